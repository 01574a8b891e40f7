"""One writes, many read, and each sees every message, in order (docs/broadcast.md).

A broadcast is a ring as a queue is one (shmtensor/queues.py), but its readers take nothing away: a message leaves when
all readers have read it, or as the policy for slow readers says. A process may die at any moment, and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final

from ._native import (
    POLICY_BLOCK,
    POLICY_DROP_OLDEST,
    POLICY_RAISE,
    BlockGone,
    Cast,
    CastReader,
    LockBusy,
    Refused,
    Ring,
)
from .errors import InvalidArgument
from .manager import client
from .queues import BROADCAST, MOST_BYTES, MOST_MESSAGES, RingObject, bound

if TYPE_CHECKING:
    from ._native import Block

__all__ = ["Broadcast", "BroadcastReader", "BroadcastStats", "Empty", "Full", "ReaderStats"]

_POLICIES: Final = {"block": POLICY_BLOCK, "drop_oldest": POLICY_DROP_OLDEST, "raise": POLICY_RAISE}
_NAMES: Final = {number: name for name, number in _POLICIES.items()}


@dataclass(frozen=True)
class ReaderStats:
    """A reader of a broadcast at one moment."""

    pid: int
    lag: int
    """Messages that it has not read yet."""


@dataclass(frozen=True)
class BroadcastStats:
    """A broadcast at one moment. Counts of all messages ever wrap at 2**32."""

    messages: int
    """Inside: put, and not yet read by all or dropped."""
    most: int
    """Most that were inside at once."""
    put: int
    nbytes: int
    """Of the messages inside: bodies, arrays and tensors."""
    put_nbytes: int
    """Of all messages ever put."""
    capacity: int
    """Bytes of the ring now; it grows as needed."""
    readers: tuple[ReaderStats, ...]


class Broadcast(RingObject):
    """A bounded sequence of messages that every reader sees whole."""

    _KIND = BROADCAST

    def __init__(
        self,
        maxsize: int = 0,
        *,
        policy: str | None = None,
        maxbytes: int = 0,
        name: str | None = None,
        ctx: Any = None,
    ) -> None:
        """Make a broadcast, or open the one of this name.

        Args:
            maxsize: most messages inside, from 1. May be left out where the name exists.
            policy: what happens when there is no room because of a reader that is slow. "block": put waits for it.
                "drop_oldest": the oldest message goes, and those readers miss it. "raise": put raises Full. None: as
                the one of this name has it; "block" for a new one.
            maxbytes: most bytes inside, arrays and tensors counted with what they lie in; 0 or less: no bound.
            name: letters, digits, '_', '-' and '.'; processes of this user's manager that give the same one have the
                same broadcast. It lives as long as one of them holds it.
            ctx: the context that asks; any will do.

        Raises:
            InvalidArgument: no maxsize for a new one, an unknown policy, a name that cannot be, is something else's, or
                a broadcast's with other bounds or another policy.
            OutOfMemory, ManagerError: as Manager.create_ring.
        """
        if policy is not None and policy not in _POLICIES:
            raise InvalidArgument(f"a slow reader's policy is one of {', '.join(_POLICIES)}, not {policy!r}")
        self._asked = policy
        super().__init__(bound(maxsize, "maxsize", MOST_MESSAGES), bound(maxbytes, "maxbytes", MOST_BYTES), name)
        if policy not in (None, self.policy):
            raise InvalidArgument(
                f"{name!r} exists with policy {self.policy!r}, and {policy!r} was asked for; leave it out, or use "
                "another name"
            )

    def _furnish(self, ring: Ring) -> None:
        if ring.limits()[0] == 0:
            raise InvalidArgument(
                "a broadcast is bounded: give a maxsize from 1, the messages it keeps for slow readers"
            )
        Cast(ring).policy = _POLICIES[self._asked or "block"]

    def _open(self, manager: client.Manager, block: Block) -> None:
        super()._open(manager, block)
        self._cast = Cast(self._ring)
        self._waits = self._cast.policy != POLICY_RAISE
        self._closed = False

    @property
    def policy(self) -> str:
        """What happens when there is no room because of a slow reader."""
        return _NAMES[self._cast.policy]

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"Broadcast {self!r} is closed")

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put a message. Blocks while a live reader lacks the oldest of a full broadcast, up to `timeout` seconds.

        With the policy "drop_oldest" there always is room, and with "raise" there is no waiting. Without readers the
        oldest goes. Any process may put: all readers see the same order.

        Raises:
            Full: no room in that time, or at once when not `block`, or with the policy "raise".
            ValueError: closed.
            MessageTooLarge: more bytes than `maxbytes`.
            what pickling raises: nothing was put.
            OutOfMemory, QueueDamaged, ForkedWithoutHold, LockTimeout, ManagerError.
        """
        self._check_open()
        try:
            self._ring.put(obj, block and self._waits, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def put_nowait(self, obj: Any) -> None:
        """`put(obj, block=False)`."""
        self.put(obj, False)

    def reader(self, from_oldest: bool = False) -> BroadcastReader:
        """A reader for this process, which sees what is put from now on. Does not block, but for other readers.

        It is this process's alone: a child, forked or not, has the broadcast and calls reader() for one of its own.

        Args:
            from_oldest: begin with the oldest message that is still there.

        Raises:
            ValueError: closed.
            QuotaExceeded: there are as many readers as there can be.
            QueueDamaged, ForkedWithoutHold, LockTimeout.
        """
        self._check_open()
        try:
            return BroadcastReader(self._manager, self._cast.reader(from_oldest))
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def close(self) -> None:
        """This process puts nothing more and makes no more readers; those it has go on. Does not block."""
        self._closed = True

    def stats(self) -> BroadcastStats:
        """Figures of this moment. Does not block."""
        messages, most, put, _, nbytes, put_nbytes, capacity, *_ = self._ring.stats()
        readers = tuple(ReaderStats(pid, lag) for pid, lag in self._cast.readers())
        return BroadcastStats(messages, most, put, nbytes, put_nbytes, capacity, readers)


class BroadcastReader:
    """A reader of one broadcast, in one process: it sees every message, from where it began on.

    Tensors that arrive are the sender's memory, as in queues. Arrays lie in memory that all readers share, so they are
    read-only; `array.copy()` is writable. Threads that share a reader share its messages between them. With the policy
    "drop_oldest", a reader that falls behind goes on with the oldest message left, and `missed` counts the others.
    """

    def __init__(self, manager: client.Manager, native: CastReader) -> None:
        self._manager = manager
        self._native = native

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next message. Blocks until there is one, up to `timeout` seconds.

        Raises:
            Empty: no message in that time, or at once when not `block`.
            ValueError: closed.
            ForeignReader: this process inherited the reader and did not make it.
            SegmentLost: the memory of a tensor in it is gone with its sender and the manager, or was truncated.
                It has been skipped.
            what unpickling raises: the message has been read.
            QueueDamaged, MessageDamaged, OutOfMemory, ForkedWithoutHold, ManagerError.
        """
        try:
            return self._native.get(block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def get_nowait(self) -> Any:
        """`get(block=False)`."""
        return self.get(False)

    @property
    def missed(self) -> int:
        """Messages dropped so far before this reader read them. Does not block."""
        return self._native.missed

    @property
    def lag(self) -> int:
        """Messages that are there to be read. Does not block."""
        return self._native.lag

    def close(self) -> None:
        """Nobody waits for this reader any more. Does not block. Done when the reader is garbage, too."""
        self._native.close()

    def __enter__(self) -> BroadcastReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a reader is its process's alone; send the Broadcast to a child, and call reader() there")
