"""Queues between processes in shared memory, with the standard interface.

When `put` returns, the message is in a ring (docs/queues.md); there is no thread and no pipe. It is visible to every
process at once, outlives its sender, and is delivered once even if processes are killed. Tensors are sent as handles;
an ndarray is copied once into shared memory, and that copy belongs to the receiver.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.util import register_after_fork
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from .._loading import load
from .._native import Block, BlockGone, LockBusy, Refused, Ring
from ..errors import InvalidArgument
from ..manager import client, naming, ring_kinds
from ..manager.ring_kinds import JOINABLE, QUEUE, SIMPLE
from . import reductions

if TYPE_CHECKING:
    import asyncio

    import typing_extensions  # known to every type checker

    from .tasks import Tasks

    Message = typing_extensions.TypeVar("Message", default=Any)  # a plain mp.Queue() takes any type
else:
    Message = TypeVar("Message")

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "QueueStats", "SimpleQueue"]

MAX_MESSAGES: Final = 2**32 - 1
MAX_BYTES: Final = 2**63 - 1


@dataclass(frozen=True)
class QueueStats:
    """Statistics of a queue, a snapshot. Counts of all messages ever put or taken wrap at 2**32."""

    messages: int
    """Messages inside: put and not yet taken."""
    peak_messages: int
    """Largest number of messages inside so far."""
    put: int
    taken: int
    nbytes: int
    """Bytes of the messages inside: bodies, arrays and tensors."""
    put_nbytes: int
    """Bytes of all messages ever put."""
    capacity: int
    """Current size of the ring in bytes; it grows as needed."""
    unfinished: int
    """Messages for which task_done() has not been called."""
    put_lock_pid: int
    """Process that holds the lock of producers; 0: none."""
    get_lock_pid: int
    """Process that holds the lock of consumers; 0: none."""


def bound(value: Any, name: str, maximum: int) -> int:
    """Return a bound in the form of the standard queues: 0 for no bound, at most `maximum`. Raises TypeError."""
    try:
        number: int = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    return min(max(0, number), maximum)


_rings: Final[weakref.WeakValueDictionary[Block, Ring]] = weakref.WeakValueDictionary()
"""The Ring of each block in use here: a queue that is received again shares the Ring and its event."""


def shown(thing: object, name: str | None, facts: dict[str, Any]) -> str:
    """Return a repr with the name, if there is one, and facts."""
    if name is not None:
        facts = {"name": name, **facts}
    return f"<{type(thing).__name__}({', '.join(f'{fact}={value!r}' for fact, value in facts.items())})>"


def bounds_of(ring: Ring) -> dict[str, int]:
    """Return maxsize and maxbytes as given, for a repr. Does not block."""
    bounds = ring.limits()
    return {"maxsize": bounds.maxsize, "maxbytes": bounds.maxbytes}


class RingObject(reductions.Shared):
    """Base of objects in a ring, which are opened by name, inherited, sent, or passed to a child process."""

    _KIND: int
    _name: str | None = None
    _ring: Ring
    _closed = False

    def __init__(
        self, bounds: tuple[int, int], name: str | None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        manager = client.default()
        self._name = name

        def make() -> Block:
            block = manager.create_ring()
            ring = Ring(manager.native, block, functools.partial(manager.event, block.segment))
            ring.kind = self._KIND
            self._agree(ring, bounds, name)
            return block

        known = None if name is None else reductions.name_of(name)
        block, made = naming.open_or_create(manager, known, make, create, timeout)
        self._open(manager, block)
        if made:
            return
        if self._ring.kind != self._KIND:
            other = ring_kinds.NAMES.get(self._ring.kind, "something else")
            own = ring_kinds.NAMES[self._KIND]
            raise InvalidArgument(f"{name!r} is the name of a {other}, not of a {own}; use another name")
        self._agree(self._ring, bounds, name)

    def _agree(self, ring: Ring, bounds: tuple[int, int], name: str | None) -> None:
        """Set bounds that no process has set so far. Raises InvalidArgument: other bounds are set."""
        _require_same(ring.limits(), bounds, name)
        _require_same(ring.bound(*bounds), bounds, name)

    def _open(self, manager: client.Manager, block: Block) -> None:
        self._manager = manager
        ring = _rings.get(block)
        if ring is None:
            ring = _rings[block] = Ring(manager.native, block, functools.partial(manager.event, block.segment))
        self._ring = ring

    def __repr__(self) -> str:
        try:
            facts = self._facts()
        except AttributeError:  # __init__ failed
            facts = {}
        return shown(self, self._name, facts | ({"closed": True} if self._closed else {}))

    def _facts(self) -> dict[str, Any]:
        """Return the facts shown by a repr. Does not block."""
        return {"messages": self._ring.size(), **bounds_of(self._ring)}

    def __getstate__(self) -> Any:
        return self._share(self._ring.block)

    def __setstate__(self, state: Any) -> None:
        self._open(*reductions.received(state))


def _require_same(found: tuple[int, int], asked: tuple[int, int], name: str | None) -> None:
    for has, wants, what in zip(found, asked, ("maxsize", "maxbytes"), strict=True):
        if has and wants not in (0, has):
            raise InvalidArgument(
                f"{name!r} exists with {what}={has}, not {wants}; leave {what} out, or use another name"
            )


def _put(manager: client.Manager, ring: Ring, obj: Any) -> None:
    try:
        ring.put(obj)
    except (Refused, BlockGone, LockBusy) as problem:
        manager._translate(problem)


def _get(manager: client.Manager, ring: Ring) -> Any:
    try:
        return ring.get()
    except (Refused, BlockGone, LockBusy) as problem:
        manager._translate(problem)


@contextmanager
def _adding(problem: Exception) -> Iterator[None]:
    """Copy the attributes `put` and `messages` of a native exception to the exception raised inside."""
    try:
        yield
    except Exception as error:
        vars(error).update(vars(problem))
        raise


class _End:
    """One side of a queue, with the part of a Connection's interface that the standard library uses of it.

    It knows the ring and not the queue: a cycle would keep a dropped queue until the next garbage collection.
    """

    def __init__(self, manager: client.Manager, ring: Ring) -> None:
        self._manager = manager
        self._ring = ring
        self.closed = False

    def fileno(self) -> int:
        """As SimpleQueue.fileno."""
        return self._ring.event()

    def close(self) -> None:
        """Mark this side as closed in this process. Does not block."""
        self.closed = True

    def _check(self) -> None:
        if self.closed:
            raise OSError("handle is closed")

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Whether there is a message, at the latest after `timeout` seconds (None: without a bound)."""
        self._check()
        return self._ring.await_message(timeout)

    def recv(self) -> Any:
        """The next message. Blocks until there is one. Raises as Queue.get."""
        self._check()
        return _get(self._manager, self._ring)

    def send(self, obj: Any) -> None:
        """Put a message. Blocks while the queue is full. Raises as Queue.put."""
        self._check()
        _put(self._manager, self._ring, obj)


class SimpleQueue(RingObject, Generic[Message]):
    """A queue without bounds: put, get, empty, close."""

    _KIND = SIMPLE

    def __init__(
        self,
        *,
        ctx: Any = None,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
        _bounds: tuple[int, int] = (0, 0),
    ) -> None:
        """Create a queue, or open an existing one by name. Blocks up to `timeout` seconds.

        Args:
            ctx: the context that creates it; not used.
            name: letters, digits, '_', '-' and '.'. Programs of this user that give the same name share the queue. It
                exists as long as one process holds it.
            create: True: create it; it must not exist. False: open it; it must exist. None: open or else create it.
            timeout: with create=False, seconds to wait until it exists.

        Raises:
            InvalidArgument: the name is malformed, or used for another kind of object.
            NameTaken: create=True, and the name is in use.
            UnknownHandle: create=False, and the name is not in use.
            ManagerUnavailable: this process has its own group, where other programs would not find the name.
            OutOfMemory, ManagerError: as Manager.create_ring.
        """
        super().__init__(_bounds, name, create, timeout)

    def _open(self, manager: client.Manager, block: Block) -> None:
        super()._open(manager, block)
        self._reader = _End(manager, self._ring)
        self._writer = _End(manager, self._ring)
        self._native_put = self._ring.put
        self._native_get = self._ring.get

    @functools.cached_property
    def _rlock(self) -> Any:
        """A lock for code that takes several messages in a row through `_reader`. It does not lock `get`."""
        from .synchronize import Lock

        return Lock()

    def __getstate__(self) -> Any:
        return (super().__getstate__(), self.__dict__.get("_rlock"))

    def __setstate__(self, state: Any) -> None:
        ticket, lock = state
        super().__setstate__(ticket)
        if lock is not None:
            self.__dict__["_rlock"] = lock

    def put(self, obj: Message) -> None:
        """Put a message. Blocks only for memory.

        Raises:
            Exception: as raised by pickling; nothing was put.
            OutOfMemory, QueueDamaged, ClientUnavailable, LockTimeout, ManagerError: see `shmtensor.errors`.
            StaleHandle, UnknownHandle: as `get`.
        """
        self._check_open()
        _put(self._manager, self._ring, obj)

    def get(self) -> Message:
        """Take the oldest message. Blocks until there is one.

        Raises:
            SegmentLost: the memory of a tensor in the message was lost with its sender and the manager, or truncated.
                The message is removed from the queue.
            Exception: as raised by unpickling; the message is removed from the queue.
            QueueDamaged, MessageDamaged, OutOfMemory, ClientUnavailable, LockTimeout, ManagerError: see
                `shmtensor.errors`.
            StaleHandle, UnknownHandle: a process died during an operation on this queue that names memory which no
                longer exists, and the manager did not undo the operation within half a second; or the queue's memory
                is damaged. Any put or get that finds this raises the error.
        """
        self._check_open()
        return _get(self._manager, self._ring)  # type: ignore[no-any-return]

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{type(self).__name__} {self!r} is closed")

    def empty(self) -> bool:
        """Whether the queue is empty. Does not block. Raises OSError if the queue is closed, as a pipe does."""
        if self._closed:
            raise OSError("handle is closed")
        return self._ring.size() == 0

    def close(self) -> None:
        """Close the queue for this process: further calls raise ValueError. Does not block."""
        self._closed = True
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are messages, for `connection.wait` and select.

        The first call sends a request to the manager; from then on each put, and each get that empties the queue,
        updates the descriptor.
        """
        return self._ring.event()

    def stats(self) -> QueueStats:
        """Return statistics, a snapshot. Does not block."""
        return QueueStats(*self._ring.stats())


class Queue(SimpleQueue[Message]):
    """The standard queue with additions: a bound in bytes, batches, names, coroutines, statistics."""

    _KIND = QUEUE

    def __init__(
        self,
        maxsize: int = 0,
        *,
        ctx: Any = None,
        maxbytes: int = 0,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a queue, or open an existing one by name. Blocks up to `timeout` seconds.

        Args:
            maxsize: maximum number of messages inside; 0 or less: no limit, or the one that another process gives for
                this name. The first process to give one sets it; messages that are inside by then stay.
            ctx: the context that creates it; not used.
            maxbytes: maximum number of bytes inside, including arrays and tensors; otherwise as `maxsize`.
            name: as for SimpleQueue.
            create: as for SimpleQueue.
            timeout: as for SimpleQueue.

        Raises:
            InvalidArgument: the name is malformed, used for another kind of object, or for a queue with other bounds.
            NameTaken, UnknownHandle, ManagerUnavailable, OutOfMemory, ManagerError: as SimpleQueue.
        """
        bounds = bound(maxsize, "maxsize", MAX_MESSAGES), bound(maxbytes, "maxbytes", MAX_BYTES)
        super().__init__(ctx=ctx, name=name, create=create, timeout=timeout, _bounds=bounds)
        self._reset()
        register_after_fork(self, Queue._reset)

    def _reset(self) -> None:
        self._closed = False
        self._loops = Loops()

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._reset()
        register_after_fork(self, Queue._reset)

    @property
    def _maxsize(self) -> int:
        return self._ring.limits().maxsize or 2**31 - 1

    def put(self, obj: Message, block: bool = True, timeout: float | None = None) -> None:
        """Put a message. Blocks while the queue is full, up to `timeout` seconds.

        Raises:
            Full: no room within `timeout`, or at once if not `block`.
            ValueError: the queue is closed.
            MessageTooLarge: the message has more bytes than `maxbytes`.
            Exception: as raised by pickling; nothing was put.
            OutOfMemory, QueueDamaged, ClientUnavailable, LockTimeout, ManagerError: see `shmtensor.errors`.
            StaleHandle, UnknownHandle: as SimpleQueue.get.
        """
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        try:
            self._native_put(obj, block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def get(self, block: bool = True, timeout: float | None = None) -> Message:
        """Take the oldest message. Blocks until there is one, up to `timeout` seconds.

        Raises:
            Empty: no message within `timeout`, or at once if not `block`.
            ValueError: the queue is closed.
            Exception: as SimpleQueue.get.
        """
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        try:
            return self._native_get(block, timeout)  # type: ignore[no-any-return]
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def put_nowait(self, obj: Message) -> None:
        """Put a message without waiting: `put(obj, block=False)`."""
        self.put(obj, False)

    def get_nowait(self) -> Message:
        """Take the oldest message without waiting: `get(block=False)`."""
        return self.get(False)

    def put_many(self, messages: Iterable[Message], block: bool = True, timeout: float | None = None) -> int:
        """Put several messages in order, at a lower cost than single puts. Blocks as `put` does.

        Returns:
            The number of messages put: all, unless `timeout` expired.

        Raises:
            Full: none could be put.
            Exception: as `put`. If a message cannot be pickled or is larger than `maxbytes`, none is put. An exception
                in the middle of the call (Ctrl-C, no memory) has the number of messages put in its attribute `put`.
        """
        self._check_open()
        try:
            return self._ring.put_many(list(messages), block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            with _adding(problem):
                self._manager._translate(problem)

    def get_many(self, max_items: int, block: bool = True, timeout: float | None = None) -> list[Message]:
        """Take up to `max_items` messages. Blocks until there is one, as `get` does, then takes those that are there.

        Raises:
            InvalidArgument: `max_items` is not an integer of at least 1.
            Exception: as `get`. A message that cannot be read is removed and raises. An exception in the middle of the
                call has the list of messages taken before in its attribute `messages`.
        """
        self._check_open()
        number = max_items.__index__() if hasattr(max_items, "__index__") else 0
        if number < 1:
            raise InvalidArgument(f"max_items must be an integer of at least 1, not {max_items!r}")
        try:
            return self._ring.get_many(min(number, MAX_MESSAGES), block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            with _adding(problem):
                self._manager._translate(problem)

    async def aput(self, obj: Message) -> None:
        """Put a message without blocking the event loop. Coroutines of one loop put in the order of their calls.

        Raises:
            ValueError: the queue is closed, or was closed by this process meanwhile.
            Exception: as `put`.
        """
        tasks = self._loops.tasks()
        async with tasks.put_lock:  # the first waits in a thread, the others for the first
            while True:
                taken = self._ring.taken()
                if self._closed or not self._ring.is_full():
                    with suppress(Full):
                        return self.put(obj, True, tasks.MOMENT)
                await tasks.in_thread(self._ring.await_room, 0.1, taken)

    async def aget(self) -> Message:
        """Take the oldest message without blocking the event loop. Coroutines of one loop get in order of their calls.

        Raises:
            ValueError: the queue is closed, or was closed by this process meanwhile.
            Exception: as `get`.
        """
        return await self._loops.tasks().get(self)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the queue for this process. `aput` and `aget` that wait here raise ValueError. Does not block."""
        super().close()
        self._loops.look_again()

    def qsize(self) -> int:
        """Return the number of messages inside. Does not block."""
        return self._ring.size()

    def full(self) -> bool:
        """Whether the queue is full. Does not block."""
        return self._ring.is_full()

    def empty(self) -> bool:
        """Whether the queue is empty. Does not block.

        Raises:
            OSError: the queue is closed and has been used, as in the standard library.
        """
        return self._ring.stats().put == 0 or super().empty()

    def join_thread(self) -> None:
        """Return at once, because there is no feeder thread. Only after close(), as in the standard library."""
        assert self._closed, f"Queue {self!r} not closed"

    def cancel_join_thread(self) -> None:
        """Do nothing: there is no feeder thread, and no message is lost at exit."""


class JoinableQueue(Queue[Message]):
    """A queue that counts unfinished tasks."""

    _KIND = JOINABLE

    def task_done(self) -> None:
        """Mark one message that was taken as done. Does not block.

        Raises:
            ValueError: called more often than messages were put.
        """
        if not self._ring.task_done():
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Block until task_done() has been called for every message that was put."""
        self._ring.await_done(None)


@functools.cache  # a message must not wait for the lock of `load`
def _tasks_module() -> Any:
    return load("ipc.tasks")


class Loops:
    """The event loops of this process whose tasks use one queue or reader of a broadcast."""

    def __init__(self) -> None:
        self._tasks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Tasks] = weakref.WeakKeyDictionary()

    def tasks(self) -> Tasks:
        """Return the state that the tasks of the running event loop share. Raises RuntimeError: none is running."""
        return _tasks_module().of_running_loop(self._tasks)  # type: ignore[no-any-return]

    def look_again(self) -> None:
        """Make tasks that wait for a message check again. May be called from any thread."""
        for tasks in list(self._tasks.values()):
            tasks.look_again()
