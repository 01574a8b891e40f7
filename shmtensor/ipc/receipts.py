"""Receipts: records of the message that a worker has taken from a queue, which other processes read if it dies."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._native import BlockGone, LockBusy, Refused, atomic_load, atomic_store
from ..manager import client
from . import reductions
from .queues import SimpleQueue

__all__ = ["Receipt", "take"]


class Receipt(reductions.Shared):
    """The number + 1 of the task that a worker has taken (0: none). Only the worker writes it.

    A process that reads a cleared receipt, or a later number, also sees the result that the worker put before that
    (SYNC: receipt).
    """

    def __init__(self) -> None:
        self._open(client.default().allocate(8))
        self.clear()

    def _open(self, block: Any) -> None:
        self.block = block
        self._cell = np.frombuffer(block, np.int64, 1)

    def __getstate__(self) -> Any:
        return self._share(self.block)

    def __setstate__(self, state: Any) -> None:
        self._open(reductions.received(state)[1])

    def read(self) -> int:
        """Return the task's number + 1. Does not block."""
        return atomic_load(self._cell, 0, "acquire")

    def clear(self) -> None:
        """Set it to no task. Does not block."""
        atomic_store(self._cell, 0, 0, "release")


def take(tasks: SimpleQueue, receipt: Receipt, seconds: float) -> Any:
    """Set the receipt to the next message's number + 1, then take it. Blocks up to `seconds`. Raises as `Queue.get`."""
    try:
        return tasks._ring.get(seconds > 0, seconds, receipt.block)
    except (Refused, BlockGone, LockBusy) as problem:
        tasks._manager._translate(problem)
