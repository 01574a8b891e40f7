"""Rings in the manager: their memory, their events, and the owner numbers under which they hold blocks."""

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
    """The ring in a segment, and its event (a pipe that is readable while messages wait), made on first request."""

    __slots__ = ("event", "memory", "number", "segment")

    def __init__(self, memory: RingMemory) -> None:
        self.memory: RingMemory = memory
        self.number: int = memory.number
        self.segment: int = 0  # set once the state keeps it
        self.event: int = -1

    def watch(self) -> int:
        """Return the descriptor of the event, made on the first call and up to date. Raises OSError.

        It is updated on each call, because the client that asks may be unable to receive the descriptor and may have
        put a message before.
        """
        if self.event < 0:
            self.adopt(_pipe())
        else:
            self.show()
        return self.event

    def adopt(self, event: int) -> None:
        """Take over the descriptor of the event: a new one, or the previous manager's."""
        self.event = event
        self.memory.watch(os.fstat(event).st_ino)
        self.show()  # messages put before are not reported by anyone else

    def show(self) -> None:
        """Make the event readable if messages wait, and only then. The client that had to do so may have died."""
        if self.event < 0:
            return
        # Emptied in any case: the readers of a broadcast wait for a write to an empty pipe (Ring::announce).
        try:  # noqa: SIM105
            os.read(self.event, _PIPE_BYTES)
        except BlockingIOError:
            pass  # it is empty
        # Checked after that: the byte read above may have announced a message that was put just now.
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
    """Return both ends of a new pipe in one non-blocking descriptor. Raises OSError.

    It is a pipe, not an eventfd, because a successor can reopen it through /proc of any process that has it.
    """
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return os.open(f"/proc/self/fd/{ends[0]}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        for fd in ends:
            os.close(fd)


class Numbers:
    """Allocates owner numbers of rings: a number that was given back, or else the group's next."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._free: list[int] = []

    def take(self) -> int:
        """Return an unused number. Raises LookupError: all are in use."""
        if self._free:
            return heappop(self._free)
        if self._group.next_ring > LAST_RING:
            raise LookupError("all ring numbers are in use")
        return self._group.take_ring_number()

    def give_back(self, number: int) -> None:
        """Make a number available again."""
        heappush(self._free, number)
