"""The objects that `listen` and `connect` return: a queue and a broadcast between machines.

On the machine of the listening end they use its ring directly, as `multiprocessing.Queue` and `Broadcast` do. On other
machines, processes put into and take from queues of their own machine, and the link process moves the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.util import register_after_fork
from queue import Empty
from typing import Any, Final, cast

from .. import _native
from .._native import Ring
from ..errors import InvalidArgument
from ..ipc import reductions
from ..ipc.broadcast import Broadcast, BroadcastReader
from ..ipc.queues import Loops, Queue
from .end import CONNECTED, End

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class ChannelStats:
    """Statistics of one end of a channel, a snapshot."""

    address: str
    is_listening: bool
    """Whether this machine has the listening end."""
    connected: int
    """Number of ends that are connected to this one at the moment: those on other machines, or the listening end."""
    messages: int
    """Messages inside: at a listening end all, at another one those that were fetched and not taken."""
    unsent: int
    """Messages that processes of a connected end have put and that were not sent yet."""
    unacknowledged: int
    """Parts of the window: runs of messages that were sent, or are being sent, and are not acknowledged."""
    lost: int
    """Unacknowledged messages that were dropped because their destination ended."""
    problem: str
    """The current problem of the connection; empty: none."""


class _Linked:
    """The part that both kinds of channels share: the end."""

    _end: End
    _remote: bool

    def _open_end(self, end: End) -> None:
        self._end = end
        self._remote = end.config["role"] == CONNECTED
        end.watch()

    @property
    def address(self) -> str:
        """The address for other ends to connect to; if port 0 was requested, it has the chosen port."""
        return self._opened_end().address

    def _opened_end(self) -> End:
        end: End | None = vars(self).get("_end")
        if end is None:
            raise ValueError(f"{type(self).__name__} {self!r} is closed")
        return end

    def stats(self) -> Any:
        """Return statistics, a snapshot. Does not block."""
        end = self._opened_end()
        return ChannelStats(
            address=end.address,
            is_listening=not self._remote,
            connected=end.state.connected,
            messages=end.inbox._ring.size(),
            unsent=end.outbox._ring.size() if self._remote else 0,
            unacknowledged=end.window.stats().objects,
            lost=end.state.lost_messages,
            problem=end.state.text,
        )

    def flush(self, timeout: float | None = None) -> None:
        """Block until the listening end has all messages put at this end before, by any of its processes.

        Messages are delivered without this call as well. It is needed before the container of this process ends,
        because that kills the link process. At the listening end it returns at once.

        Args:
            timeout: seconds; None: no limit, or until the other end is lost.

        Raises:
            DeliveryTimeout: it took longer. Everything is still delivered as soon as possible.
            ConnectionLost: the listening end is gone.
        """
        if timeout is not None and not timeout >= 0:
            raise InvalidArgument(f"timeout must be None or at least 0 seconds, not {timeout!r}")
        end = self._opened_end()
        if self._remote:
            end.await_delivery(timeout)

    def _close_end(self) -> None:
        """Notify the link process that this process has closed the channel."""
        end = self.__dict__.pop("_end", None)
        if end is not None:
            end.control.set()


class Channel(_Linked, Queue[Any]):
    """A queue between processes on any machines, with the interface of `multiprocessing.Queue`.

    Each message goes to one `get`, on any machine, and the messages of one process arrive in the order in which it put
    them. Between machines, messages are sent by value: tensors are copied when they are put, so later writes have no
    effect, unless the end was opened with copy=False. Between processes on the machine of the listening end, tensors
    are shared, as in a queue.

    In addition to the exceptions of a Queue, `put` and `get` raise DTypeError for a value that needs pickle if the
    channel was not opened with pickle=True, and ConnectionLost once the other end is gone and all messages that had
    arrived were taken.
    """

    def __init__(self, end: End) -> None:
        self._use(end)
        register_after_fork(self, Queue._reset)

    def _use(self, end: End) -> None:
        self._name = end.config["stream"]
        self._open(end.manager, end.inbox._ring.block)
        self._open_end(end)
        self._reset()

    def __getstate__(self) -> Any:
        return _state_of(self._end, self._share)

    def __setstate__(self, state: Any) -> None:
        self._use(_end_of(state))
        register_after_fork(self, Queue._reset)

    def _facts(self) -> dict[str, Any]:
        return {"address": self.address, **super()._facts()} if "_end" in vars(self) else super()._facts()

    def close(self) -> None:
        """Close the channel for this process. Does not block.

        Messages that were put are still delivered. Once no process of this machine has this end open, messages that
        were fetched for this machine and not taken go back to the end of the queue.
        """
        super().close()
        self._close_end()


class RemoteChannel(Channel):
    """A channel on another machine than the listening end: a local queue for outgoing and one for incoming messages.

    It is full when its bounds are reached here, because the listening end accepts no more. `qsize` and `empty` refer to
    messages that have arrived here.
    """

    def _use(self, end: End) -> None:
        super()._use(end)
        self._outbox: Queue[Any] = end.outbox
        self._prefetch: int = end.config["prefetch"]

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put a message, as Queue.put."""
        self._check_open()
        self._end.require()
        self._outbox.put(obj, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest message, as Queue.get."""
        self._check_open()
        self._ask(1)
        try:
            message = super().get(block, timeout)
        except BaseException as problem:
            self._ask(-1)
            _check_lost(self._end, problem, self._ring.size)
            raise
        self._took()
        return message

    def _ask(self, messages: int) -> None:
        """Request `messages` more messages for this end."""
        end = self._end
        end.state.ask(messages)
        if self._ring.size() == 0:
            end.control.set()

    def _took(self) -> None:
        """Notify the link process that this end can receive more messages."""
        if self._ring.size() <= self._prefetch // 2:
            self._end.control.set()

    def put_many(self, messages: Iterable[Any], block: bool = True, timeout: float | None = None) -> int:
        """Put several messages in order, as Queue.put_many."""
        self._check_open()
        self._end.require()
        return self._outbox.put_many(messages, block, timeout)

    def get_many(self, max_items: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Take up to `max_items` messages, as Queue.get_many."""
        self._check_open()
        self._ask(1)
        try:
            messages = super().get_many(max_items, block, timeout)
        except BaseException as problem:
            self._ask(len(getattr(problem, "messages", ())) - 1)
            _check_lost(self._end, problem, self._ring.size)
            raise
        self._ask(len(messages) - 1)
        self._took()
        return messages

    async def aput(self, obj: Any) -> None:
        """Put a message without blocking the event loop, as Queue.aput."""
        self._check_open()
        self._end.require()
        await self._outbox.aput(obj)

    async def aget(self) -> Any:
        """Take the oldest message without blocking the event loop, as Queue.aget."""
        self._check_open()
        self._end.want()
        async with _Looking(self._loops):
            return await super().aget()

    def qsize(self) -> int:
        """Return the number of messages that have arrived here. Does not block."""
        self._opened_end().want()
        return super().qsize()

    def empty(self) -> bool:
        """Whether no message has arrived here. Does not block."""
        self._opened_end().want()
        return super().empty()

    def full(self) -> bool:
        """Whether `put` would have to wait. Does not block."""
        return self._outbox.full()

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are messages, as SimpleQueue.fileno."""
        self._opened_end().want()
        return super().fileno()

    def close(self) -> None:
        """Close the channel for this process, as Channel.close."""
        super().close()
        self._outbox.close()


class BroadcastChannel(_Linked, Broadcast[Any]):
    """A broadcast whose readers may be on other machines, with the interface of `multiprocessing.Broadcast`.

    Each reader on every machine receives the messages of all processes, in one order. The policy for slow readers
    applies to machines as to readers: with "block", `put` waits for the slowest machine. On a machine other than that
    of the listening end, `put` returns when the message is on its way there.

    In addition to the exceptions of a Broadcast, `put` raises DTypeError and ConnectionLost as in Channel, and readers
    raise ConnectionLost.
    """

    def __init__(self, end: End) -> None:
        self._use(end)

    def _use(self, end: End) -> None:
        self._name = end.config["stream"]
        self._open(end.manager, end.inbox._ring.block)
        self._open_end(end)

    def __getstate__(self) -> Any:
        return _state_of(self._end, self._share)

    def __setstate__(self, state: Any) -> None:
        self._use(_end_of(state))

    def _facts(self) -> dict[str, Any]:
        return {"address": self.address, **super()._facts()} if "_end" in vars(self) else super()._facts()

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put a message, as Broadcast.put."""
        if not self._remote:
            return super().put(obj, block, timeout)
        self._check_open()
        self._end.require()
        self._end.outbox.put(obj, block, timeout)

    def reader(self, from_oldest: bool = False) -> ChannelReader:
        """Create a reader for this process, as Broadcast.reader. It receives messages put from now on, on any machine.

        If it is the first reader of its machine, blocks until the listening end has registered it. `from_oldest` starts
        with the oldest message that is inside on this machine.

        Raises:
            ManagerTimeout: the listening end did not answer within the timeout of the channel.
            ConnectionLost: it is gone.
            Exception: as Broadcast.reader.
        """
        reader = cast("ChannelReader", super().reader(from_oldest))
        if self._remote:
            self._end.want()
            self._end.await_subscription()
        return reader

    def _reader_of(self, native: _native.BroadcastReader) -> ChannelReader:
        return ChannelReader(self._opened_end(), self._ring, native, self._name)

    def close(self) -> None:
        """Close the broadcast for this process; its readers stay open. Does not block."""
        super().close()
        self._close_end()


class ChannelReader(BroadcastReader[Any]):
    """A reader of a broadcast between machines.

    In addition to the exceptions of a BroadcastReader, its calls raise ConnectionLost once the other end is gone and
    all messages that had arrived were read.
    """

    def __init__(self, end: End, ring: Ring, native: _native.BroadcastReader, name: str | None) -> None:
        super().__init__(end.manager, ring, native, name)
        self._end = end  # the end stays open while this reads

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next message, as BroadcastReader.get."""
        try:
            return super().get(block, timeout)
        except Empty as problem:
            _check_lost(self._end, problem, self.qsize)
            raise

    def latest(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the newest message, as BroadcastReader.latest."""
        try:
            return super().latest(block, timeout)
        except Empty as problem:
            _check_lost(self._end, problem, self.qsize)
            raise

    async def aget(self) -> Any:
        """Return the next message without blocking the event loop, as BroadcastReader.aget."""
        async with _Looking(self._loops):
            return await super().aget()


def _check_lost(end: End, problem: BaseException, left: Callable[[], int]) -> None:
    """Raise ConnectionLost in place of Empty if nothing can arrive any more.

    Everything that arrived was put into the ring before the end was marked as lost, so `left` is called last.
    """
    if isinstance(problem, Empty) and end.is_lost and left() == 0:
        end.require()


class _Looking:
    """While a coroutine waits, makes it check at intervals whether the other end still exists."""

    def __init__(self, loops: Loops) -> None:
        self._loops = loops
        self._timer: asyncio.TimerHandle | None = None

    def _look(self) -> None:
        self._loops.look_again()
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    async def __aenter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _state_of(end: End, share: Callable[[Any], Any]) -> Any:
    return tuple(share(block) for block in (end.state.block, *end.blocks))


def _end_of(state: Any) -> End:
    (manager, block), *others = [reductions.received(part) for part in state]
    end = End.open(manager, block)
    del others  # kept until here, so that none of them ends
    return end
