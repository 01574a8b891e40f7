"""Helpers for tests of broadcasts: children that end, emptying readers."""

from __future__ import annotations

import os
import signal
from queue import Empty
from typing import Any

from manager_world import BOUND


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
