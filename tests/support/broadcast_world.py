"""Helpers for tests of broadcasts: children that end, emptying readers, counting live blocks."""

from __future__ import annotations

import gc
import os
import signal
from queue import Empty
from typing import Any

from manager_world import BOUND, is_alive, until

from shmtensor.manager import client


def finish(process: Any) -> None:
    process.join(BOUND)
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"
    process.close()


def kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join(BOUND)
    assert process.exitcode == -signal.SIGKILL
    process.close()


def rest(reader: Any) -> list[Any]:
    """The messages that can be read at present."""
    found = []
    while True:
        try:
            found.append(reader.get_nowait())
        except Empty:
            return found


def reclaim() -> None:
    """Wait until nothing is held by garbage or by the dead."""
    gc.collect()
    until(lambda: all(is_alive(one["pid"]) for one in client.default().list()["clients"]), "the dead to be reclaimed")


def live_blocks() -> int:
    """Live blocks in arenas, once the dead have been reclaimed."""
    reclaim()
    return sum(segment["live_blocks"] for segment in client.default().list()["segments"] if not segment["dedicated"])
