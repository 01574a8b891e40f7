"""A manager with quotas, this process as a client of it, and programs that fill it."""

from __future__ import annotations

import os
import subprocess

from manager_world import World

from shmtensor.manager import client

MIB = 1 << 20

FILL = """
import sys, os
from shmtensor import errors
from shmtensor.manager import client
manager = client.at(os.environ["AT"])
def fill(size, most=100_000):
    kept = []
    try:
        while len(kept) < most:
            block = manager.allocate(size)
            memoryview(block)[:] = bytes([len(kept) % 251]) * size
            kept.append(block)
    except errors.QuotaExceeded as problem:
        return kept, str(problem)
    return kept, ""
def say(*words):
    print(*words, flush=True)
"""
"""The beginning of each program."""


class Group:
    """The address of a manager that serves in `here` with these options."""

    def __init__(self, here: World, *options: str) -> None:
        self.here = here
        self.address = here.serve(*options)
        self.env = {"AT": os.fsdecode(self.address)}

    @property
    def manager(self) -> client.Manager:
        """A connection of this process, which is a client from the first call on; the caller closes it."""
        return client.at(self.address)

    def script(self, code: str) -> subprocess.Popen[str]:
        """As World.script, after FILL."""
        return self.here.script(FILL + code, env=self.env)

    def run(self, code: str) -> str:
        """As World.run, after FILL; without the newline at the end."""
        return self.here.run(FILL + code, env=self.env).rstrip()
