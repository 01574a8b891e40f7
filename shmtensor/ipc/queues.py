"""Queues between processes, in shared memory: the standard interface, messages at memory speed.

A message goes into a ring (docs/queues.md) when `put` returns, without a thread or a pipe in between: it is there for
every process at once, outlives its sender, and is delivered once, whoever is killed. Tensors in it are handles; an
ndarray is copied once, into shared memory, and is the receiver's own.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.util import register_after_fork
from queue import Empty, Full
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from .._native import Block, BlockGone, LockBusy, Refused, Ring
from ..errors import InvalidArgument
from ..manager import client
from . import reductions

if TYPE_CHECKING:
    import typing_extensions  # of which every type checker knows

    Message = typing_extensions.TypeVar("Message", default=Any)  # a plain mp.Queue() is for anything
else:
    Message = TypeVar("Message")

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "QueueStats", "SimpleQueue"]

SIMPLE, QUEUE, JOINABLE, BROADCAST = range(1, 5)
_KINDS: Final = {SIMPLE: "SimpleQueue", QUEUE: "Queue", JOINABLE: "JoinableQueue", BROADCAST: "Broadcast"}
MOST_MESSAGES: Final = 2**32 - 1
MOST_BYTES: Final = 2**63 - 1
_MOMENT: Final = 0.001  # seconds that a coroutine may keep its loop, where another process has the lock


@dataclass(frozen=True)
class QueueStats:
    """A queue at one moment. Counts of all messages ever wrap at 2**32."""

    messages: int
    """Inside, put and not yet taken."""
    most: int
    """Most that were inside at once."""
    put: int
    taken: int
    nbytes: int
    """Of the messages inside: bodies, arrays and tensors."""
    put_nbytes: int
    """Of all messages ever put."""
    capacity: int
    """Bytes of the ring now; it grows as needed."""
    unfinished: int
    """Messages that task_done() was not called for."""
    putting: int
    """Process that is putting just now, 0: none."""
    taking: int
    """Process that is taking just now, 0: none."""


def bound(value: Any, name: str, most: int) -> int:
    """A bound as the standard queues take it: 0 or less is none; more than `most` is that."""
    try:
        number: int = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} has to be a whole number, not {value!r}") from None
    return min(max(0, number), most)


_rings: Final[weakref.WeakValueDictionary[Block, Ring]] = weakref.WeakValueDictionary()
"""Those in use here: a queue that arrives once more has the Ring, and so the event, that this process has already."""


def shown(thing: object, name: str | None, facts: dict[str, Any]) -> str:
    """A repr: the name, of what has one, and facts."""
    if name is not None:
        facts = {"name": name, **facts}
    return f"<{type(thing).__name__}({', '.join(f'{fact}={value!r}' for fact, value in facts.items())})>"


def bounds_of(ring: Ring) -> dict[str, int]:
    """As they were given, for a repr. Does not block."""
    return dict(zip(("maxsize", "maxbytes"), ring.limits(), strict=True))


class RingObject(reductions.Shared):
    """What lives in a ring and is found by name, inherited, sent, or given to a child that is being started."""

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
        block, made = manager.open_or_create(known, make, create, timeout)
        self._open(manager, block)
        if made:
            return
        if self._ring.kind != self._KIND:
            other = _KINDS.get(self._ring.kind, "something else")
            raise InvalidArgument(f"{name!r} is the name of a {other} and not of a {_KINDS[self._KIND]}; use another")
        self._agree(self._ring, bounds, name)

    def _agree(self, ring: Ring, bounds: tuple[int, int], name: str | None) -> None:
        """Set the bounds that are asked for and that nobody has set so far. Raises InvalidArgument: they are others."""
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
        except AttributeError:  # it could not be made
            facts = {}
        return shown(self, self._name, facts | ({"closed": True} if self._closed else {}))

    def _facts(self) -> dict[str, Any]:
        """What a repr says of it. Does not block."""
        return {"messages": self._ring.size(), **bounds_of(self._ring)}

    def __getstate__(self) -> Any:
        return self._share(self._ring.block)

    def __setstate__(self, state: Any) -> None:
        self._open(*reductions.received(state))


def _require_same(found: tuple[int, int], asked: tuple[int, int], name: str | None) -> None:
    for has, wants, what in zip(found, asked, ("maxsize", "maxbytes"), strict=True):
        if has and wants not in (0, has):
            raise InvalidArgument(
                f"{name!r} exists with {what} {has}, and {wants} was asked for; leave it out, or use another name"
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
    """Add to what is raised inside what the core says of a call that it ended in the middle (`put`, `messages`)."""
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
        """This side is used no more in this process. Does not block."""
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
        """Make a queue, or open the one of this name. Blocks up to `timeout` seconds.

        Args:
            ctx: the context that asks; any will do.
            name: letters, digits, '_', '-' and '.'; programs of this user that give the same one have the same queue.
                It lives as long as one of them holds it.
            create: True: make it; it must not exist. False: open it; it must exist. None: open it, or else make it.
            timeout: with create=False, wait so many seconds until it exists.

        Raises:
            InvalidArgument: a name that cannot be, or is something else's.
            NameTaken: create=True, and the name is in use.
            UnknownHandle: create=False, and nothing has the name.
            ManagerUnavailable: this process has a group of its own, where a name would not be found by others.
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
        """For those who take several messages in a row through `_reader`: keeps nobody out of `get`."""
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
        """Put a message. Does not block, but for memory.

        Raises:
            what pickling raises: nothing was put.
            OutOfMemory, QueueDamaged, ForkedWithoutHold, LockTimeout, ManagerError.
            StaleHandle, UnknownHandle: as get.
        """
        self._check_open()
        _put(self._manager, self._ring, obj)

    def get(self) -> Message:
        """Take the oldest message. Blocks until there is one.

        Raises:
            SegmentLost: the memory of a tensor in it is gone with its sender and the manager, or was truncated.
                It is out of the queue.
            what unpickling raises: the message is out of the queue.
            QueueDamaged, MessageDamaged, OutOfMemory, ForkedWithoutHold, LockTimeout, ManagerError.
            StaleHandle, UnknownHandle: what a dead process left undone in the queue names memory that nobody has, and
                the manager has not undone it within half a second. Damaged memory may look like that. Whoever comes
                upon it gets the error: a put, a get, and those of a broadcast.
        """
        self._check_open()
        return _get(self._manager, self._ring)  # type: ignore[no-any-return]

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{type(self).__name__} {self!r} is closed")

    def empty(self) -> bool:
        """Whether there is no message just now. Does not block. Raises OSError when closed, as a pipe does."""
        if self._closed:
            raise OSError("handle is closed")
        return self._ring.size() == 0

    def close(self) -> None:
        """This process is done with the queue: further calls raise ValueError. Others go on. Does not block."""
        self._closed = True
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """A descriptor that is readable while there are messages, for `connection.wait`, select and selectors.

        Asks the manager the first time; from then on every put and last get of this queue writes to it.
        """
        return self._ring.event()

    def stats(self) -> QueueStats:
        """Figures of this moment. Does not block."""
        return QueueStats(*self._ring.stats())


class Queue(SimpleQueue[Message]):
    """The standard queue, and more: bounds in bytes too, many messages at once, names, coroutines, figures."""

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
        """Make a queue, or open the one of this name. Blocks up to `timeout` seconds.

        Args:
            maxsize: most messages inside; 0 or less: no bound, or the one that another process gives the same name.
                The first to give one sets it, messages that are inside by then stay.
            ctx: the context that asks; any will do.
            maxbytes: most bytes inside, arrays and tensors counted with what they lie in; otherwise as maxsize.
            name, create, timeout: as SimpleQueue's.

        Raises:
            InvalidArgument: a name that cannot be, is something else's, or a queue's with other bounds.
            the others of SimpleQueue.
        """
        bounds = bound(maxsize, "maxsize", MOST_MESSAGES), bound(maxbytes, "maxbytes", MOST_BYTES)
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
        return self._ring.limits()[0] or 2**31 - 1

    def put(self, obj: Message, block: bool = True, timeout: float | None = None) -> None:
        """Put a message. Blocks while the queue is full, up to `timeout` seconds.

        Raises:
            Full: no room in that time, or at once when not `block`.
            ValueError: the queue is closed.
            MessageTooLarge: more bytes than `maxbytes`.
            what pickling raises: nothing was put.
            OutOfMemory, QueueDamaged, ForkedWithoutHold, LockTimeout, ManagerError.
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
            Empty: no message in that time, or at once when not `block`.
            ValueError: the queue is closed.
            the others of SimpleQueue.get.
        """
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        try:
            return self._native_get(block, timeout)  # type: ignore[no-any-return]
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def put_nowait(self, obj: Message) -> None:
        """`put(obj, block=False)`."""
        self.put(obj, False)

    def get_nowait(self) -> Message:
        """`get(block=False)`."""
        return self.get(False)

    def put_many(self, messages: Iterable[Message], block: bool = True, timeout: float | None = None) -> int:
        """Put messages in order, with less work for each than put. Blocks as `put` does.

        Returns:
            How many were put: all, unless the time was up.

        Raises:
            Full: not even one.
            the others of `put`: when one cannot be pickled, or is larger than `maxbytes`, none was put. What ends the
            call in the middle (Ctrl-C, no memory) has how many were put in its attribute `put`.
        """
        self._check_open()
        try:
            return self._ring.put_many(list(messages), block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            with _adding(problem):
                self._manager._translate(problem)

    def get_many(self, most: int, block: bool = True, timeout: float | None = None) -> list[Message]:
        """Take up to `most` messages. Blocks until there is one, as `get` does; then takes what is there.

        Raises:
            InvalidArgument: `most` is no number from 1.
            Empty, and the others of `get`. What cannot be read is out of the queue and raises. The attribute `messages`
            of what ends the call in the middle is the list of those that were taken.
        """
        self._check_open()
        number = most.__index__() if hasattr(most, "__index__") else 0
        if number < 1:
            raise InvalidArgument(f"get_many takes a number of messages from 1, not {most!r}")
        try:
            return self._ring.get_many(min(number, MOST_MESSAGES), block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            with _adding(problem):
                self._manager._translate(problem)

    async def aput(self, obj: Message) -> None:
        """`put` for coroutines: while the queue is full, others run. Those of one loop put in the order they called.

        Raises:
            ValueError: the queue is closed, or was closed by this process meanwhile.
            the others of put.
        """
        loop = asyncio.get_running_loop()
        async with self._loops.tasks(loop).putting:  # whoever is next waits, in a thread; the others for them
            while True:
                taken = self._ring.taken()
                if self._closed or not self._ring.is_full():
                    with suppress(Full):
                        return self.put(obj, True, _MOMENT)
                await loop.run_in_executor(None, self._ring.await_room, 0.1, taken)

    async def aget(self) -> Message:
        """`get` for coroutines: while there is no message, others run. Those of one loop get in the order they called.

        Raises:
            ValueError: the queue is closed, or was closed by this process meanwhile.
            the others of get.
        """
        return await self._loops.tasks(asyncio.get_running_loop()).get(self)  # type: ignore[no-any-return]

    def close(self) -> None:
        """As SimpleQueue's; `aput` and `aget` that wait in this process raise ValueError."""
        super().close()
        self._loops.look_again()

    def qsize(self) -> int:
        """Number of messages inside. Does not block."""
        return self._ring.size()

    def full(self) -> bool:
        """Whether a put would have to wait just now. Does not block."""
        return self._ring.is_full()

    def empty(self) -> bool:
        """Whether there is no message just now. Does not block.

        Raises:
            OSError: the queue is closed, and was used before, as in the standard library.
        """
        return self._ring.stats()[2] == 0 or super().empty()

    def join_thread(self) -> None:
        """Nothing to wait for: what was put is in the queue. Only after close(), as in the standard library."""
        assert self._closed, f"Queue {self!r} not closed"

    def cancel_join_thread(self) -> None:
        """Nothing to cancel: there is no thread, and nothing that could be lost at exit."""


class JoinableQueue(Queue[Message]):
    """A queue that counts the messages whose work is done."""

    _KIND = JOINABLE

    def task_done(self) -> None:
        """Say that one message which was taken is dealt with. Does not block.

        Raises:
            ValueError: called more often than messages were put.
        """
        if not self._ring.task_done():
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Block until task_done() was called for every message that was put."""
        self._ring.await_done(None)


class _Source(Protocol):
    """Where messages come from: a queue, or a reader of a broadcast."""

    def qsize(self) -> int: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...
    def fileno(self) -> int: ...


class Loops:
    """The event loops of this process whose tasks use one queue, or one reader of a broadcast."""

    def __init__(self) -> None:
        self._tasks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Tasks] = weakref.WeakKeyDictionary()

    def tasks(self, loop: asyncio.AbstractEventLoop) -> _Tasks:
        return self._tasks.get(loop) or self._tasks.setdefault(loop, _Tasks(loop))

    def look_again(self) -> None:
        """Tasks that wait for a message look again; from any thread."""
        for tasks in list(self._tasks.values()):
            tasks.look_again()


class _Tasks:
    """What the tasks of one event loop that use a queue share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.putting = asyncio.Lock()
        self.getting = asyncio.Lock()
        self._loop = weakref.ref(loop)
        self._waiting: asyncio.Future[None] | None = None

    async def get(self, source: _Source) -> Any:
        """The next message. Those who ask have their turn in order."""
        async with self.getting:
            while True:
                some = source.qsize() > 0
                try:
                    return source.get(some, _MOMENT)
                except Empty:
                    if some:  # another process has the lock
                        await asyncio.sleep(10 * _MOMENT)
                    else:
                        await self._readable(source.fileno())

    async def _readable(self, descriptor: int) -> None:
        """Until there may be a message, or the queue is closed. For the one that has `getting`."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        loop.add_reader(descriptor, self._wake)
        try:
            await self._waiting
        finally:
            loop.remove_reader(descriptor)
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def look_again(self) -> None:
        """Whoever waits for a message looks again; from any thread."""
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._wake)
