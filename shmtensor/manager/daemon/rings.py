"""Rings as the manager has them: their memory, their events, the numbers under which they hold blocks."""

# pathlib and contextlib cost time at every start of a manager.

from __future__ import annotations

import fcntl
import os
from heapq import heappop, heappush

from shmtensor._native import LAST_RING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor._native import Group, RingMemory

_PIPE_BYTES = 4096


class Ring:
    """The ring that a segment is, and the event that is readable while messages wait in it, once somebody asked."""

    __slots__ = ("event", "memory", "number", "segment")

    def __init__(self, memory: RingMemory) -> None:
        self.memory = memory
        self.number = memory.number
        self.segment = 0  # set once the state keeps it
        self.event = -1

    def watch(self) -> int:
        """The descriptor of the event, made on first ask; it shows what waits by now. Raises OSError.

        Who asks may have put a message and get no descriptor (it has none left, or waits no longer): this tells of it.
        """
        if self.event < 0:
            self.adopt(_pipe())
        else:
            self.show()
        return self.event

    def adopt(self, event: int) -> None:
        """Take over the descriptor of the event, a new one or what the manager before had made."""
        self.event = event
        self.memory.watch(os.fstat(event).st_ino)
        self.show()  # what was put before had nobody to tell

    def show(self) -> None:
        """Make the event readable if messages wait, and else not: whoever was to do it may be dead."""
        if self.event < 0:
            return
        # Emptied in any case: who watches a broadcast waits for a write to an empty pipe (Ring::announce).
        try:  # noqa: SIM105
            os.read(self.event, _PIPE_BYTES)
        except BlockingIOError:
            pass  # it is empty
        # Looked at after that: a message may have been put, and said to be there, before that was read away.
        try:
            if self.memory.size():
                os.write(self.event, b"\1")
        except BlockingIOError:
            pass  # full, so it is readable

    def close(self) -> None:
        """Unmap the ring and close its event."""
        self.memory.close()
        event, self.event = self.event, -1
        if event >= 0:
            os.close(event)


def _pipe() -> int:
    """Both ends of a new pipe in one descriptor, which does not block. Raises OSError.

    A pipe and not an eventfd: the next manager can open it anew from any process that has it.
    """
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return os.open(f"/proc/self/fd/{ends[0]}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        for fd in ends:
            os.close(fd)


class Numbers:
    """Owner numbers of rings: one that was given back, or else the group's next."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._free: list[int] = []

    def take(self) -> int:
        """Raises LookupError: all are taken."""
        if self._free:
            return heappop(self._free)
        if self._group.next_ring > LAST_RING:
            raise LookupError("all numbers of rings are taken")
        return self._group.take_ring_number()

    def give_back(self, number: int) -> None:
        heappush(self._free, number)
