"""The objects that `listen` and `connect` return: a queue and a broadcast between machines.

On the machine of the listening end they use its ring directly, as `multiprocessing.Queue` and `Broadcast` do. On other
machines a process puts into a queue of its own machine, and takes from one; the link process moves the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.util import register_after_fork
from time import monotonic
from typing import Any, Final, TypeVar

from .._native import COPY_TENSORS, PICKLE_BY_VALUE, REFUSE_PICKLE, BlockGone, LockBusy, Refused
from ..errors import ConnectionLost, DTypeError, InvalidArgument, ManagerTimeout, type_name
from ..ipc import reductions
from ..ipc.broadcast import Broadcast, BroadcastReader
from ..ipc.queues import Empty, Full, Loops, Queue
from .address import Address
from .end import CONNECTED, LISTENING, End
from .state import State

_SLICE: Final = 1.0  # seconds between two looks whether the other end is there still
_MOMENT: Final = 0.001  # seconds that a coroutine may block its loop while another process holds the lock
_STATUS, _CONSUMERS = 1, 4  # words of the state, read by each put
_LOST: Final = 2
_CALLS: Final = 63  # after so many calls of a process: look whether there is a link process
Result = TypeVar("Result")


@dataclass(frozen=True)
class ChannelStats:
    """Statistics of one end of a channel, a snapshot."""

    address: str
    is_listening: bool
    """Whether this machine has the listening end."""
    connected: int
    """Ends on other machines, or the listening end, that are connected to this one at the moment."""
    messages: int
    """Messages inside: of a listening end all, of another one those that were fetched and not taken."""
    unsent: int
    """Messages that processes of a connected end have put, and that were not sent yet."""
    unacknowledged: int
    """Parts of the window: runs of messages that were sent, or are being sent, and not acknowledged."""
    lost: int
    """Messages for other ends that were dropped because those are gone."""
    problem: str
    """What hinders the connection at the moment; empty: nothing."""


class _Linked:
    """What a channel of either kind knows of its end."""

    _end: End
    _form: tuple[int, int]
    _words: memoryview
    _remote: bool
    _wants: bool
    _calls: int

    def _open_end(self, end: End) -> None:
        self._end = end
        self._words = end.state._words
        self._remote = end.config["role"] == CONNECTED
        self._wants = not self._remote
        self._calls = -1
        pickling = PICKLE_BY_VALUE if end.config["pickle"] else REFUSE_PICKLE
        copied = pickling | COPY_TENSORS
        self._form = (copied, copied) if self._remote else (pickling, copied)

    @property
    def address(self) -> str:
        """The address, as others on this network can use it: where port 0 was asked for, with the port."""
        config = self._end.config
        return str(Address(config["host"], self._end.state.port or config["port"]))

    def stats(self) -> Any:
        """Return statistics, a snapshot. Does not block."""
        end = self._end
        return ChannelStats(
            address=self.address,
            is_listening=not self._remote,
            connected=end.state.connected,
            messages=end.inbox._ring.size(),
            unsent=end.outbox._ring.size() if self._remote else 0,
            unacknowledged=end.window.stats().objects,
            lost=end.state.lost_messages,
            problem=end.state.text,
        )

    def _want(self) -> None:
        """Have the other end send messages to this one, though nobody may be in `get`."""
        if not self._wants:
            self._wants = True
            self._end.state.wanted = 1
            self._end.control.set()

    def _look(self) -> None:
        """Check that the other end is there, and that the link process works. Blocks for a start of that."""
        if self._words[_STATUS] == _LOST:
            raise ConnectionLost(self._end.state.text)
        self._end.link()

    def _sliced(self, call: Callable[[bool, float | None], Result], block: bool, timeout: float | None) -> Result:
        """Make a call that waits, and look between slices of it. Raises as the call, and ConnectionLost."""
        left = _SLICE if timeout is None else timeout
        if not block or left <= _SLICE:
            with_timeout = timeout is not None or not block
            try:
                return call(block, left)
            except (Full, Empty):
                self._look()
                if with_timeout:
                    raise
        deadline = None if timeout is None else monotonic() + left
        while True:
            left = _SLICE if deadline is None else max(0.0, deadline - monotonic())
            try:
                return call(True, min(left, _SLICE))
            except (Full, Empty):
                self._look()
                if deadline is not None and left <= _SLICE:
                    raise

    def _close_end(self) -> None:
        """Let the link process see that this process has closed the channel."""
        end = self.__dict__.pop("_end", None)
        if end is not None:
            self._words = memoryview(bytes(8 * (_CONSUMERS + 1))).cast("Q")
            end.control.set()


def _refused(problem: TypeError, value: object) -> DTypeError:
    return DTypeError(
        f"cannot put a {type_name(value)} that contains more than {str(problem).removeprefix('only ')}; with "
        "pickle=True on both ends a channel takes any value that pickle takes"
    )


class Channel(_Linked, Queue[Any]):
    """A queue between processes on any machines, with the interface of `multiprocessing.Queue`.

    Each message goes to one `get`, on whichever machine, and those of one process arrive in the order in which it put
    them. What is put travels by value between machines: tensors are copied when they are put, so that a later write
    changes nothing. While all processes are on the machine of the listening end, tensors are shared, as in a queue.

    On another machine than the listening end's, `qsize`, `empty` and `full` say what is known there.
    """

    def __init__(self, end: End) -> None:
        self._use(end)
        register_after_fork(self, Channel._reset)

    def _use(self, end: End) -> None:
        self._name = end.config["stream"]
        self._open(end.manager, end.inbox._ring.block)
        self._outbox: Queue = end.outbox
        self._prefetch: int = end.config.get("prefetch", 0)
        self._native_put = end.outbox._ring.put
        self._open_end(end)
        self._reset()

    def __getstate__(self) -> Any:
        return _state_of(self._end, self._share)

    def __setstate__(self, state: Any) -> None:
        self._use(_end_of(state))
        register_after_fork(self, Channel._reset)

    def _facts(self) -> dict[str, Any]:
        return {"address": self.address, **super()._facts()}

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put a message. Blocks while the channel is full, up to `timeout` seconds.

        A channel is full when its bounds are reached; on another machine than the listening end's, when the queue there
        has reached them, since the listening end takes no more.

        Raises:
            Full: no room within `timeout`, or at once if not `block`.
            ConnectionLost: the other end is gone.
            DTypeError: the value needs pickle, and the channel was not opened with pickle=True.
            ValueError, MessageTooLarge, OutOfMemory, QueueDamaged, ClientUnavailable, LockTimeout, ManagerError: as
                Queue.put.
        """
        if self._closed:
            raise ValueError(f"Channel {self!r} is closed")
        words = self._words
        if words[_STATUS] == _LOST:
            raise ConnectionLost(self._end.state.text)
        self._calls = calls = self._calls + 1
        if not calls & _CALLS:
            self._end.link()
        form = self._form[words[_CONSUMERS] != 0]
        try:
            if not block or (timeout is not None and timeout <= _SLICE):
                self._native_put(obj, block, timeout, form)
            else:
                self._sliced(lambda wait, seconds: self._native_put(obj, wait, seconds, form), block, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)
        except TypeError as problem:
            if isinstance(problem, DTypeError) or not str(problem).startswith("only tensors"):
                raise
            raise _refused(problem, obj) from None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest message. Blocks until there is one, up to `timeout` seconds.

        Raises:
            Empty: no message within `timeout`, or at once if not `block`.
            ConnectionLost: the other end is gone, and all that had arrived was taken.
            ValueError, Exception: as Queue.get.
        """
        if self._closed:
            raise ValueError(f"Channel {self!r} is closed")
        self._calls = calls = self._calls + 1
        if not calls & _CALLS and self._words[_STATUS] != _LOST:
            self._end.link()
        if self._remote:
            self._ask(1)
        try:
            return self._sliced(self._native_get, block, timeout)
        except Empty:
            self._ask(-1)
            raise
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)

    def _ask(self, messages: int) -> None:
        """Have so many more messages sent to this end."""
        if self._remote and messages:
            end = self._end
            end.state.ask(messages)
            if self._ring.size() <= self._prefetch // 2:
                end.control.set()

    def put_many(self, messages: Iterable[Any], block: bool = True, timeout: float | None = None) -> int:
        """Put several messages in order, at a lower cost than single puts. Blocks as `put` does.

        Returns:
            The number of messages put: all, unless `timeout` expired.

        Raises:
            Full: none could be put.
            Exception: as `put`, and as Queue.put_many.
        """
        self._check_open()
        if self._words[_STATUS] == _LOST:
            raise ConnectionLost(self._end.state.text)
        form = self._form[self._words[_CONSUMERS] != 0]
        left = list(messages)
        put = 0

        def some(wait: bool, seconds: float | None) -> None:
            nonlocal left, put
            done = self._outbox._ring.put_many(left, wait, seconds, form)
            left = left[done:]
            put += done
            if left:
                raise Full

        try:
            if left:
                self._sliced(some, block, timeout)
        except Full:
            if put == 0:
                raise
        except (Refused, BlockGone, LockBusy) as problem:
            problem.put = put + getattr(problem, "put", 0)  # type: ignore[union-attr]
            try:
                self._manager._translate(problem)
            except Exception as error:
                vars(error).update(vars(problem))
                raise
        except TypeError as problem:
            if not str(problem).startswith("only tensors"):
                raise
            raise _refused(problem, messages) from None
        except ConnectionLost as problem:
            problem.put = put  # type: ignore[attr-defined]
            raise
        return put

    def get_many(self, max_items: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Take up to `max_items` messages, as Queue.get_many. Raises ConnectionLost as `get`."""
        self._check_open()
        some = super().get_many

        def taken(wait: bool, seconds: float | None) -> list[Any]:
            return some(max_items, wait, seconds)

        self._ask(1)
        try:
            messages = self._sliced(taken, block, timeout)
        except (Empty, InvalidArgument):
            self._ask(-1)
            raise
        self._ask(len(messages) - 1)
        return messages

    async def aput(self, obj: Any) -> None:
        """Put a message without blocking the event loop. Raises as `put`."""
        loop = asyncio.get_running_loop()
        ring = self._outbox._ring
        async with self._loops.tasks(loop).put_lock:
            while True:
                taken = ring.taken()
                if self._closed or not ring.is_full():
                    with suppress(Full):
                        return self.put(obj, True, _MOMENT)
                await loop.run_in_executor(None, ring.await_room, 0.1, taken)
                self._check_open()
                self._look()

    async def aget(self) -> Any:
        """Take the oldest message without blocking the event loop. Raises as `get`."""
        self._check_open()
        self._want()
        async with _looking(self._loops):
            return await super().aget()

    def qsize(self) -> int:
        """Return the number of messages that `get` would find here at once. Does not block."""
        self._want()
        return super().qsize()

    def empty(self) -> bool:
        """Whether `get` would find no message here at once. Does not block."""
        self._want()
        return super().empty()

    def full(self) -> bool:
        """Whether `put` would have to wait. Does not block."""
        return self._outbox._ring.is_full()

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are messages, as SimpleQueue.fileno."""
        self._want()
        return super().fileno()

    def close(self) -> None:
        """Close the channel for this process. Does not block.

        What was put is delivered all the same. What was fetched for this machine and not taken goes back to the end of
        the queue, once no process of this machine has this end any more.
        """
        super().close()
        self._close_end()


class BroadcastChannel(_Linked, Broadcast[Any]):
    """A broadcast whose readers may be on other machines, with the interface of `multiprocessing.Broadcast`.

    What any process puts, each reader on every machine receives, in one order. The policy for slow readers holds for
    machines as for readers: with "block", `put` waits for the slowest machine.
    """

    def __init__(self, end: End) -> None:
        self._use(end)

    def _use(self, end: End) -> None:
        self._name = end.config["stream"]
        self._open(end.manager, end.inbox._ring.block)
        self._outbox = end.outbox
        self._open_end(end)

    def __getstate__(self) -> Any:
        return _state_of(self._end, self._share)

    def __setstate__(self, state: Any) -> None:
        self._use(_end_of(state))

    def _facts(self) -> dict[str, Any]:
        return {"address": self.address, **super()._facts()}

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put a message, as Broadcast.put; on another machine, it is on its way when this returns.

        Raises:
            ConnectionLost: the other end is gone.
            DTypeError: the value needs pickle, and the channel was not opened with pickle=True.
            Exception: as Broadcast.put.
        """
        self._check_open()
        if self._words[_STATUS] == _LOST:
            raise ConnectionLost(self._end.state.text)
        waits = block and (self._remote or (self._waits if self._waits is not None else self._read_policy()))
        form = self._form[self._words[_CONSUMERS] != 0]
        ring = self._outbox._ring
        try:
            self._sliced(lambda wait, seconds: ring.put(obj, wait, seconds, form), waits, timeout)
        except (Refused, BlockGone, LockBusy) as problem:
            self._manager._translate(problem)
        except TypeError as problem:
            if not str(problem).startswith("only tensors"):
                raise
            raise _refused(problem, obj) from None

    def reader(self, from_oldest: bool = False) -> BroadcastReader[Any]:
        """Create a reader for this process, as Broadcast.reader. It receives what is put from now on, wherever.

        Blocks until the listening end knows of it, if this is the first one of its machine. `from_oldest` starts with
        the oldest message that is inside on this machine.

        Raises:
            ManagerTimeout: the listening end did not answer within the timeout of the channel.
            ConnectionLost: it is gone.
            Exception: as Broadcast.reader.
        """
        self._check_open()
        reader: BroadcastReader[Any] = super().reader(from_oldest)
        if self._remote:
            self._want()
            self._await_subscription()
        return reader

    def _await_subscription(self) -> None:
        state, deadline = self._end.state, monotonic() + self._end.config["timeout"]
        pause = 0.0005
        while not state.subscribed:
            self._look()
            if monotonic() > deadline:
                raise ManagerTimeout(f"{self.address} did not answer; {state.text or 'is it stopped?'}")
            _sleep(pause)
            pause = min(2 * pause, 0.05)

    def close(self) -> None:
        """Close the broadcast for this process; its readers stay open. Does not block."""
        super().close()
        self._close_end()


def _sleep(seconds: float) -> None:
    from time import sleep

    sleep(seconds)


class _looking:  # noqa: N801
    """While a coroutine waits: have it look now and then whether the other end is there still."""

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self._timer: asyncio.TimerHandle | None = None

    def _look(self) -> None:
        self._loops.look_again()
        self._timer = asyncio.get_running_loop().call_later(_SLICE, self._look)

    async def __aenter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SLICE, self._look)

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _state_of(end: End, share: Callable[[Any], Any]) -> Any:
    return tuple(share(block) for block in (end.state.block, *end.blocks))


def _end_of(state: Any) -> End:
    (manager, block), *others = [reductions.received(part) for part in state]
    end = End(manager, State(block))
    del others  # held until here, so that none of them is gone
    return end


__all__ = ["CONNECTED", "LISTENING", "BroadcastChannel", "Channel", "ChannelStats"]
