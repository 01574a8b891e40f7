"""Rings as the manager has them: their memory, their events, the numbers under which they hold blocks."""

# contextlib costs time at every start of a manager.

from __future__ import annotations

import os
from heapq import heappop, heappush

from shmtensor._native import FIRST_RING, LAST_RING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor._native import RingMemory


class Ring:
    """The ring that a segment is, and the event that is readable while messages wait in it, once somebody asked."""

    __slots__ = ("event", "memory", "number", "segment")

    def __init__(self, memory: RingMemory) -> None:
        self.memory = memory
        self.number = memory.number
        self.segment = 0  # set once the state keeps it
        self.event = -1

    def watch(self) -> int:
        """The descriptor of the event, made on first ask. Raises OSError."""
        if self.event < 0:
            self.event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.memory.watch()
            self.show()  # what was put before had nobody to tell
        return self.event

    def show(self) -> None:
        """Make the event readable if messages wait, and else not: whoever was to do it may be dead."""
        if self.event < 0:
            return
        try:
            if not self.memory.size():
                os.eventfd_read(self.event)
        except BlockingIOError:
            pass  # not readable, as it should be
        # Looked at again: a message may have been put, and said to be there, before that was read away.
        try:
            if self.memory.size():
                os.eventfd_write(self.event, 1)
        except BlockingIOError:
            pass  # it is readable

    def close(self) -> None:
        """Unmap the ring and close its event."""
        self.memory.close()
        event, self.event = self.event, -1
        if event >= 0:
            os.close(event)


class Numbers:
    """Owner numbers of rings; the smallest free one is given out next."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._high = FIRST_RING

    @property
    def next(self) -> int:
        """Raises LookupError: all are taken."""
        if not self._free and self._high > LAST_RING:
            raise LookupError("all numbers of rings are taken")
        return self._free[0] if self._free else self._high

    def take(self) -> int:
        """Give out `next`."""
        number = self.next
        if self._free:
            heappop(self._free)
        else:
            self._high += 1
        return number

    def give_back(self, number: int) -> None:
        heappush(self._free, number)
