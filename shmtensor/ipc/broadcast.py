"""One writes, many read, and each sees every message, in order (docs/broadcast.md).

A broadcast is a ring as a queue is one (queues.py), but its readers take nothing away: a message leaves when
all readers have read it, or as the policy for slow readers says. A process may die at any moment, and the others go on.
"""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import dataclass
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from .._native import (
    POLICY_BLOCK,
    POLICY_DROP_OLDEST,
    POLICY_RAISE,
    POLICY_UNSET,
    BlockGone,
    Cast,
    CastReader,
    LockBusy,
    Refused,
    Ring,
)
from ..errors import InvalidArgument, ShmTensorError
from ..manager import client
from .queues import BROADCAST, MOST_BYTES, MOST_MESSAGES, Loops, Message, RingObject, bound, bounds_of, shown

if TYPE_CHECKING:
    from .._native import Block

__all__ = ["Broadcast", "BroadcastReader", "BroadcastStats", "Empty", "Full", "ReaderStats"]

_POLICIES: Final = {"block": POLICY_BLOCK, "drop_oldest": POLICY_DROP_OLDEST, "raise": POLICY_RAISE}
_NAMES: Final = {number: name for name, number in _POLICIES.items()}


_casts: Final[weakref.WeakValueDictionary[Ring, Cast]] = weakref.WeakValueDictionary()
"""Those in use here: a broadcast that arrives once more has the Ring of the first, which makes room by one Cast."""


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


class Broadcast(RingObject, Generic[Message]):
    """A bounded sequence of messages that every reader sees whole."""

    _KIND = BROADCAST

    def __init__(
        self,
        maxsize: int = 0,
        *,
        policy: str | None = None,
        maxbytes: int = 0,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
        ctx: Any = None,
    ) -> None:
        """Make a broadcast, or open the one of this name. Blocks up to `timeout` seconds.

        Args:
            maxsize: most messages inside, from 1. May be left out with a name: the first process to give one sets it,
                and until then nothing can be put.
            policy: what happens when there is no room because of a reader that is slow. "block": put waits for it.
                "drop_oldest": the oldest message goes, and those readers miss it. "raise": put raises Full. None: as
                others say who give the same name; "block" where the maxsize is set without one.
            maxbytes: most bytes inside, arrays and tensors counted with what they lie in; 0 or less: no bound, or the
                one that another process gives the same name.
            name, create, timeout: as SimpleQueue's.
            ctx: the context that asks; any will do.

        Raises:
            InvalidArgument: neither a maxsize nor a name to open, an unknown policy, a name that cannot be, is
                something else's, or a broadcast's with other bounds or another policy.
            the others of SimpleQueue.
        """
        if policy is not None and policy not in _POLICIES:
            raise InvalidArgument(f"a slow reader's policy is one of {', '.join(_POLICIES)}, not {policy!r}")
        bounds = bound(maxsize, "maxsize", MOST_MESSAGES), bound(maxbytes, "maxbytes", MOST_BYTES)
        if bounds[0] == 0 and (name is None or create):
            raise InvalidArgument(
                "a broadcast is bounded: give a maxsize from 1, the messages it keeps for slow readers"
            )
        self._asked = policy
        super().__init__(bounds, name, create, timeout)

    def _agree(self, ring: Ring, bounds: tuple[int, int], name: str | None) -> None:
        # The policy first: once there is a maxsize, which allows to put, it is known.
        wanted = _POLICIES[self._asked] if self._asked else POLICY_BLOCK if bounds[0] else POLICY_UNSET
        found = ring.policy(wanted)
        if self._asked and found != wanted:
            raise InvalidArgument(
                f"{name!r} exists with policy {_NAMES[found]!r}, and {self._asked!r} was asked for; leave it out, or "
                "use another name"
            )
        super()._agree(ring, bounds, name)

    def _open(self, manager: client.Manager, block: Block) -> None:
        super()._open(manager, block)
        cast = _casts.get(self._ring)
        if cast is None:
            cast = _casts[self._ring] = Cast(self._ring)
        self._cast = cast
        self._waits: bool | None = None  # not known yet
        self._closed = False

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "policy": self.policy}

    @property
    def policy(self) -> str | None:
        """What happens when there is no room because of a slow reader; None: nobody has said so far."""
        return _NAMES.get(self._ring.policy())

    def _settle(self) -> bool:
        if self._ring.limits()[0] == 0:
            raise InvalidArgument(
                "nothing can be put into a broadcast without bounds, and nobody has given a maxsize with this name so "
                "far; give one, as in mp.Broadcast(100, name=...)"
            )
        self._waits = self._ring.policy() != POLICY_RAISE
        return self._waits

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"Broadcast {self!r} is closed")

    def put(self, obj: Message, block: bool = True, timeout: float | None = None) -> None:
        """Put a message. Blocks while a live reader lacks the oldest of a full broadcast, up to `timeout` seconds.

        With the policy "drop_oldest" there always is room, and with "raise" there is no waiting. Without readers the
        oldest goes. Any process may put: all readers see the same order.

        Raises:
            Full: no room in that time, or at once when not `block`, or with the policy "raise".
            ValueError: closed.
            InvalidArgument: nobody has given a maxsize so far.
            MessageTooLarge: more bytes than `maxbytes`.
            what pickling raises: nothing was put.
            OutOfMemory, QueueDamaged, ForkedWithoutHold, LockTimeout, ManagerError.
            StaleHandle, UnknownHandle: as SimpleQueue.get.
        """
        self._check_open()
        waits = self._waits if self._waits is not None else self._settle()
        try:
            self._ring.put(obj, block and waits, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def put_nowait(self, obj: Message) -> None:
        """`put(obj, block=False)`."""
        self.put(obj, False)

    def reader(self, from_oldest: bool = False) -> BroadcastReader[Message]:
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
            return BroadcastReader(self._manager, self._ring, self._cast.reader(from_oldest), self._name)
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


class BroadcastReader(Generic[Message]):
    """A reader of one broadcast, in one process: it sees every message, from where it began on.

    Tensors that arrive are the sender's memory, as in queues. Arrays lie in memory that all readers share, so they are
    read-only; `array.copy()` is writable. Threads and tasks that share a reader share its messages between them. With
    the policy "drop_oldest", a reader that falls behind goes on with the oldest message left, and `missed` counts the
    others; what `latest` passes over, `skipped` counts.

    `for message in reader` and `async for message in reader` wait for each message, and end when this process closes
    the reader: in the loop, or in another thread or task.

    All but `close` raises ForeignReader in a process that inherited the reader and did not make it, and ValueError once
    it is closed.
    """

    def __init__(self, manager: client.Manager, ring: Ring, native: CastReader, name: str | None) -> None:
        self._manager = manager
        self._ring = ring
        self._native = native
        self._name = name
        self._loops = Loops()

    def get(self, block: bool = True, timeout: float | None = None) -> Message:
        """The next message. Blocks until there is one, up to `timeout` seconds.

        Raises:
            Empty: no message in that time, or at once when not `block`.
            SegmentLost: the memory of a tensor in it is gone with its sender and the manager, or was truncated.
                It has been skipped.
            what unpickling raises: the message has been read.
            QueueDamaged, MessageDamaged, OutOfMemory, ForkedWithoutHold, LockTimeout, ManagerError.
            StaleHandle, UnknownHandle: as SimpleQueue.get.
        """
        try:
            return self._native.get(block, timeout)  # type: ignore[no-any-return]
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def get_nowait(self) -> Message:
        """`get(block=False)`."""
        return self.get(False)

    def latest(self, block: bool = True, timeout: float | None = None) -> Message:
        """The newest message, and none of those before it. Blocks until there is one that this reader has not read.

        When the message was read, there was no newer one. Those passed over are not decoded; they count as `skipped`,
        and their memory is free once all readers have read or skipped them.

        Raises:
            as get.
        """
        try:
            return self._native.latest(block, timeout)  # type: ignore[no-any-return]
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    async def aget(self) -> Message:
        """`get` for coroutines: while there is no message, others run. Those of one loop get in the order they called.

        Raises:
            ValueError: the reader is closed, or was closed by this process meanwhile.
            the others of get.
        """
        return await self._loops.tasks(asyncio.get_running_loop()).get(self)  # type: ignore[no-any-return]

    def qsize(self) -> int:
        """Messages that are there and that this reader has not read: its lag. Does not block."""
        return self._native.lag

    def empty(self) -> bool:
        """Whether there is no message for this reader just now. Does not block."""
        return self._native.lag == 0

    def fileno(self) -> int:
        """A descriptor that is readable while this reader has something to read: for `connection.wait`, select,
        selectors.

        It may be readable when there is nothing to read (with "drop_oldest", or when another thread was faster), but
        not after a `get` that found nothing: use `get(block=False)`. It belongs to this reader, and is closed with the
        object. Asks the manager the first time; from then on every put of this broadcast writes to its event.

        Raises:
            OSError: no descriptor is left. StaleHandle, ManagerError.
        """
        return self._native.event()

    @property
    def lag(self) -> int:
        """The same as `qsize()`."""
        return self._native.lag

    @property
    def missed(self) -> int:
        """Messages dropped so far, by the policy "drop_oldest", before this reader read them. Does not block."""
        return self._native.missed

    @property
    def skipped(self) -> int:
        """Messages that `latest` has passed over so far. Does not block."""
        return self._native.skipped

    def close(self) -> None:
        """This reader reads nothing more, and nobody waits for it. Does not block. Done when it is garbage, too."""
        self._native.close()
        self._loops.look_again()

    @property
    def closed(self) -> bool:
        """Whether this process has closed the reader. Does not block, and raises nothing."""
        return self._native.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            return self.get()
        except ValueError:
            if not self.closed:  # the message's own
                raise
            raise StopIteration from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.aget()
        except ValueError:
            if not self.closed:
                raise
            raise StopAsyncIteration from None

    def __repr__(self) -> str:
        facts: dict[str, Any]
        try:
            facts = {"lag": self.lag, "missed": self.missed, "skipped": self.skipped}
        except AttributeError:  # nothing that reader() gave
            return shown(self, None, {})
        except (ShmTensorError, ValueError):
            facts = {"closed": True} if self.closed else {"foreign": True}
        return shown(self, self._name, facts | bounds_of(self._ring))

    def __reduce__(self) -> Any:
        raise TypeError(
            "a BroadcastReader belongs to its process and cannot be sent; send the Broadcast, and call reader() there"
        )
