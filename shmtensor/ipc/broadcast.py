"""Broadcasts: messages that every reader receives, in order (docs/broadcast.md).

A broadcast is a ring, as a queue is (queues.py), but reading does not remove a message. A message is removed when all
readers have read it, or earlier according to the policy for slow readers. The death of a process does not stop others.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from .. import _native
from .._native import (
    POLICY_BLOCK,
    POLICY_DROP_OLDEST,
    POLICY_RAISE,
    POLICY_UNSET,
    BlockGone,
    BroadcastRing,
    LockBusy,
    Refused,
    Ring,
)
from ..errors import InvalidArgument, ShmTensorError
from ..manager import client
from ..manager.ring_kinds import BROADCAST
from .queues import MAX_BYTES, MAX_MESSAGES, Loops, Message, RingObject, bound, bounds_of, shown

if TYPE_CHECKING:
    from .._native import Block

__all__ = ["Broadcast", "BroadcastReader", "BroadcastStats", "Empty", "Full", "ReaderStats"]

_POLICIES: Final = {"block": POLICY_BLOCK, "drop_oldest": POLICY_DROP_OLDEST, "raise": POLICY_RAISE}
_NAMES: Final = {number: name for name, number in _POLICIES.items()}


_broadcast_rings: Final[weakref.WeakValueDictionary[Ring, BroadcastRing]] = weakref.WeakValueDictionary()
"""The BroadcastRing of each ring in use here: a broadcast that is received again shares it."""


@dataclass(frozen=True)
class ReaderStats:
    """Statistics of one reader of a broadcast."""

    pid: int
    lag: int
    """Messages not read yet."""


@dataclass(frozen=True)
class BroadcastStats:
    """Statistics of a broadcast, a snapshot. Counts of all messages ever put wrap at 2**32."""

    messages: int
    """Messages inside: put, and neither read by all readers nor dropped."""
    peak_messages: int
    """Largest number of messages inside so far."""
    put: int
    nbytes: int
    """Bytes of the messages inside: bodies, arrays and tensors."""
    put_nbytes: int
    """Bytes of all messages ever put."""
    capacity: int
    """Current size of the ring in bytes; it grows as needed."""
    readers: tuple[ReaderStats, ...]


class Broadcast(RingObject, Generic[Message]):
    """A bounded sequence of messages, each of which every reader receives."""

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
        """Create a broadcast, or open an existing one by name. Blocks up to `timeout` seconds.

        Args:
            maxsize: maximum number of messages inside, at least 1. With a name it may be omitted: the first process to
                give it sets it, and nothing can be put before that.
            policy: what `put` does when the broadcast is full because of a slow reader. "block": wait for the reader.
                "drop_oldest": drop the oldest message. "raise": raise Full. None: the policy that another process
                gives for this name; "block" if `maxsize` is set without a policy.
            maxbytes: maximum number of bytes inside, including arrays and tensors; 0 or less: no limit, or the one
                that another process gives for this name.
            name: as for SimpleQueue.
            create: as for SimpleQueue.
            timeout: as for SimpleQueue.
            ctx: the context that creates it; not used.

        Raises:
            InvalidArgument: no maxsize and no name to open, an unknown policy, or a name that is malformed, is used for
                another kind of object, or for a broadcast with other bounds or another policy.
            NameTaken, UnknownHandle, ManagerUnavailable, OutOfMemory, ManagerError: as SimpleQueue.
        """
        if policy is not None and policy not in _POLICIES:
            raise InvalidArgument(f"policy must be one of {', '.join(_POLICIES)}, not {policy!r}")
        bounds = bound(maxsize, "maxsize", MAX_MESSAGES), bound(maxbytes, "maxbytes", MAX_BYTES)
        if bounds[0] == 0 and (name is None or create):
            raise InvalidArgument(
                "a new broadcast needs a maxsize of at least 1: the number of messages it keeps for slow readers"
            )
        self._asked = policy
        super().__init__(bounds, name, create, timeout)

    def _agree(self, ring: Ring, bounds: tuple[int, int], name: str | None) -> None:
        # The policy first: once there is a maxsize, messages can be put, and then the policy must be known.
        wanted = _POLICIES[self._asked] if self._asked else POLICY_BLOCK if bounds[0] else POLICY_UNSET
        found = ring.policy(wanted)
        if self._asked and found != wanted:
            raise InvalidArgument(
                f"the broadcast {name!r} exists with policy {_NAMES[found]!r}, not {self._asked!r}; leave the policy "
                "out, or use another name"
            )
        super()._agree(ring, bounds, name)

    def _open(self, manager: client.Manager, block: Block) -> None:
        super()._open(manager, block)
        found = _broadcast_rings.get(self._ring)
        if found is None:
            found = _broadcast_rings[self._ring] = BroadcastRing(self._ring)
        self._broadcast_ring = found
        self._waits: bool | None = None  # whether `put` may wait; None: not known yet
        self._closed = False

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "policy": self.policy}

    @property
    def policy(self) -> str | None:
        """What `put` does when the broadcast is full because of a slow reader; None: not set yet."""
        return _NAMES.get(self._ring.policy())

    def _read_policy(self) -> bool:
        if self._ring.limits().maxsize == 0:
            raise InvalidArgument(
                "cannot put into a broadcast without a maxsize: no process has given one for this name so far; give "
                "one, as in mp.Broadcast(100, name=...)"
            )
        self._waits = self._ring.policy() != POLICY_RAISE
        return self._waits

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"Broadcast {self!r} is closed")

    def put(self, obj: Message, block: bool = True, timeout: float | None = None) -> None:
        """Put a message. Blocks while the broadcast is full and a reader has not read the oldest message.

        Waits up to `timeout` seconds. With the policy "drop_oldest" there is always room, and with "raise" there is no
        wait. Without readers the oldest message is dropped. Any process may put; all readers see the same order.

        Raises:
            Full: no room within `timeout`, or at once if not `block` or with the policy "raise".
            ValueError: the broadcast is closed.
            InvalidArgument: no process has set a maxsize.
            MessageTooLarge: the message has more bytes than `maxbytes`.
            Exception: as raised by pickling; nothing was put.
            OutOfMemory, QueueDamaged, ClientUnavailable, LockTimeout, ManagerError: see `shmtensor.errors`.
            StaleHandle, UnknownHandle: as SimpleQueue.get.
        """
        self._check_open()
        waits = self._waits if self._waits is not None else self._read_policy()
        try:
            self._ring.put(obj, block and waits, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def put_nowait(self, obj: Message) -> None:
        """Put a message without waiting: `put(obj, block=False)`."""
        self.put(obj, False)

    def reader(self, from_oldest: bool = False) -> BroadcastReader[Message]:
        """Create a reader for this process, which receives messages put from now on. Blocks only for other readers.

        The reader belongs to this process; a child, forked or spawned, must call `reader()` for its own.

        Args:
            from_oldest: start with the oldest message inside.

        Raises:
            ValueError: the broadcast is closed.
            QuotaExceeded: the maximum number of readers is reached.
            QueueDamaged, ClientUnavailable, LockTimeout: see `shmtensor.errors`.
        """
        self._check_open()
        try:
            native = self._broadcast_ring.reader(from_oldest)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)
        return self._reader_of(native)

    def _reader_of(self, native: _native.BroadcastReader) -> BroadcastReader[Message]:
        return BroadcastReader(self._manager, self._ring, native, self._name)

    def close(self) -> None:
        """Close the broadcast for this process; its readers stay open. Does not block."""
        self._closed = True

    def stats(self) -> BroadcastStats:
        """Return statistics, a snapshot. Does not block."""
        now = self._ring.stats()
        readers = tuple(ReaderStats(*reader) for reader in self._broadcast_ring.readers())
        return BroadcastStats(
            now.messages, now.peak_messages, now.put, now.nbytes, now.put_nbytes, now.capacity_nbytes, readers
        )


class BroadcastReader(Generic[Message]):
    """A reader of one broadcast, in one process. It receives every message from its start on.

    Received tensors share the sender's memory, as in queues. Received arrays are in memory that all readers share, so
    they are read-only; `array.copy()` is writable. Threads and tasks that use one reader divide its messages among
    them. With the policy "drop_oldest", a reader that falls behind continues with the oldest message left; `missed`
    counts the dropped ones. `skipped` counts those that `latest` skips.

    `for message in reader` and `async for message in reader` wait for each message, and end when this process closes
    the reader, in the loop or in another thread or task.

    All methods except `close` raise ForeignReader in a process that inherited the reader, and ValueError once it is
    closed.
    """

    def __init__(self, manager: client.Manager, ring: Ring, native: _native.BroadcastReader, name: str | None) -> None:
        self._manager = manager
        self._ring = ring
        self._native = native
        self._name = name
        self._loops = Loops()

    def get(self, block: bool = True, timeout: float | None = None) -> Message:
        """Return the next message. Blocks until there is one, up to `timeout` seconds.

        Raises:
            Empty: no message within `timeout`, or at once if not `block`.
            SegmentLost: the memory of a tensor in the message was lost with its sender and the manager, or truncated.
                The message counts as read.
            Exception: as raised by unpickling; the message counts as read.
            QueueDamaged, MessageDamaged, OutOfMemory, ClientUnavailable, LockTimeout, ManagerError: see
                `shmtensor.errors`.
            StaleHandle, UnknownHandle: as SimpleQueue.get.
        """
        try:
            return self._native.get(block, timeout)  # type: ignore[no-any-return]
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def get_nowait(self) -> Message:
        """Return the next message without waiting: `get(block=False)`."""
        return self.get(False)

    def latest(self, block: bool = True, timeout: float | None = None) -> Message:
        """Return the newest message and skip those before it. Blocks until there is one, up to `timeout` seconds.

        At the time of the read there was no newer one. Skipped messages are not decoded; `skipped` counts them, and
        their memory is freed once all readers have read or skipped them. Raises as `get`.
        """
        try:
            return self._native.latest(block, timeout)  # type: ignore[no-any-return]
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    async def aget(self) -> Message:
        """Return the next message, without blocking the event loop. Coroutines of one loop get in order of their calls.

        Raises:
            ValueError: the reader is closed, or was closed by this process meanwhile.
            Exception: as `get`.
        """
        return await self._loops.tasks().get(self)  # type: ignore[no-any-return]

    def qsize(self) -> int:
        """Return the number of messages that this reader has not read. Does not block."""
        return self._native.lag

    def empty(self) -> bool:
        """Whether this reader has read all messages. Does not block."""
        return self._native.lag == 0

    def fileno(self) -> int:
        """Return a descriptor that is readable while this reader has messages, for `connection.wait` and select.

        It may also be readable when there is no message (with "drop_oldest", or if another thread was faster), but not
        after a `get` that found none: use `get(block=False)`. The reader closes it. The first call sends a request to
        the manager; from then on every put into this broadcast writes to its event.

        Raises:
            OSError: no descriptors are left.
            StaleHandle, ManagerError: see `shmtensor.errors`.
        """
        return self._native.event()

    @property
    def lag(self) -> int:
        """The number of messages that this reader has not read, as `qsize()`."""
        return self._native.lag

    @property
    def missed(self) -> int:
        """The number of messages dropped by the policy "drop_oldest" before this reader read them. Does not block."""
        return self._native.missed

    @property
    def skipped(self) -> int:
        """The number of messages that `latest` has skipped. Does not block."""
        return self._native.skipped

    def close(self) -> None:
        """Close the reader: writers do not wait for it any more. Also done on garbage collection. Does not block."""
        self._native.close()
        self._loops.look_again()

    @property
    def closed(self) -> bool:
        """Whether this process has closed the reader. Does not block and raises nothing."""
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
            if not self.closed:  # the message itself raised it
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
        except AttributeError:  # not created by reader()
            return shown(self, None, {})
        except (ShmTensorError, ValueError):
            facts = {"closed": True} if self.closed else {"foreign": True}
        return shown(self, self._name, facts | bounds_of(self._ring))

    def __reduce__(self) -> Any:
        raise TypeError(
            "a BroadcastReader belongs to its process and cannot be sent; send the Broadcast and call its reader()"
        )
