"""One session of this end with another one: its window, its received messages, and its connection, if it has one.

Each step leaves shared memory in a state from which another link process can continue: the rings' commit numbers show
which message was put or taken last (native/base/layout.hpp, R6), and the end's state shows the current move into the
window.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

import shmtensor

from ..._native import STORE_REFUSE, Block, KeptReader, Ring
from ...errors import MessageTooLarge, OutOfMemory, ProtocolError, SegmentLost
from ...store import Store
from .. import wire
from ..end import End
from ..session import Entry, Receiver, Sender
from ..state import Row, State

SEQUENCE_BITS: Final = 40
_BYTE: Final = np.dtype(np.uint8)
UNBOUNDED: Final = 2**63
_PING: Final = 1
_PONG: Final = 2
_SUBSCRIBED: Final = 4


def commit_number(session: int, sequence: int) -> int:
    """Return the commit number of a message of a session."""
    return (session & 0xFFFFFF) << SEQUENCE_BITS | (sequence & wire.MAX_NUMBER)


class Content(NamedTuple):
    """Outgoing messages."""

    frames: bytes
    """Empty: the memory of the messages is lost; only their numbers are sent."""
    blocks: list[memoryview]
    key: str
    """Key in the window."""


class Connection(Protocol):
    """The interface of a connection (peer.py) that a stream uses."""

    received_at: float
    sent_at: float

    @property
    def has_room(self) -> bool:
        """Whether entries should be queued."""

    @property
    def is_flushed(self) -> bool:
        """Whether the socket has accepted all queued data."""

    def send(self, head: wire.Head, *parts: memoryview) -> None:
        """Queue a frame."""

    def send_entry(self, entry: Entry[Content]) -> None:
        """Queue messages."""

    def flush(self) -> None:
        """Send queued data, as far as the socket accepts it."""

    def close(self) -> None:
        """Close the connection."""


class Owner(Protocol):
    """The interface of a link process (process.py) that a stream uses."""

    end: End
    inbox_ring: Ring
    window: int
    timeout: float
    touched: dict[Stream, None]
    blocked: dict[Stream, None]

    def put_frames(self, frames: memoryview, blocks: list[Block], commit: int) -> int:
        """Put messages into the inbox."""

    def watch_room(self, seen: int) -> None:
        """Check again once more messages than `seen` have been taken from the inbox."""

    def has_no_memory(self, problem: Exception) -> None:
        """Report a lack of memory, and check again soon."""

    def lost(self, messages: int) -> None:
        """Record that messages for this end are lost."""

    def allowance(self, stream: Stream) -> tuple[int, int]:
        """Return (highest sequence number that may be sent, stored bytes other than those without room)."""

    def wants(self, stream: Stream) -> None:
        """Record that a stream can take messages."""

    def said_bye(self, stream: Stream) -> None:
        """Handle the end of a session by the other end."""

    def disconnected(self, stream: Stream, problem: Exception) -> None:
        """Handle the loss of a stream's connection."""


class Source(Protocol):
    """The source of a stream's messages."""

    def peek(self, nbytes: int, messages: int) -> Any:
        """Return the next messages, a `RunOfMessages`, without taking them; None: there are none."""

    def take(self, run: Any, commit: int) -> bool:
        """Take these messages. False: another process has taken the first of them."""


class QueueSource:
    """The messages of a queue: each goes to one consumer."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def peek(self, nbytes: int, messages: int) -> Any:
        """As Source."""
        return self.ring.peek(nbytes, messages)

    def take(self, run: Any, commit: int) -> bool:
        """As Source."""
        return self.ring.take(run.number, run.messages, commit)


class ReaderSource:
    """The messages of a broadcast, through a reader of this stream."""

    def __init__(self, reader: KeptReader) -> None:
        self.reader = reader

    def peek(self, nbytes: int, messages: int) -> Any:
        """As Source."""
        return self.reader.peek(nbytes, messages)

    def take(self, run: Any, commit: int) -> bool:
        """As Source."""
        self.reader.skip_to((run.number + run.messages) & 0xFFFFFFFF)
        return True


class _Arrived(NamedTuple):
    first: int
    messages: int
    nbytes: int
    frames: memoryview
    blocks: list[Block]


class Stream:
    """A session."""

    def __init__(self, link: Owner, row: Row) -> None:
        """Continue the session of a row."""
        self.link = link
        self.row = row
        self.id: bytes = row.id
        self.sender: Sender[Content] = Sender(row.sent)
        self.receiver: Receiver = Receiver(row.put)
        self.peer: Connection | None = None
        self.source: Source | None = None
        self.timeout: float = link.timeout
        """Timeout of the end that has the shorter one."""
        self.is_drained: bool = False
        """The other end has reported that none of its messages are in transit."""
        self._arrived: deque[_Arrived] = deque()
        self._arrived_bytes = 0
        self._acknowledged = (-1, -1, -1)  # content of the last ACK
        self._most_credit = self._most_limit = 0  # the largest values sent on this connection
        self._is_subscribed = False
        for key in sorted(link.end.window.keys(self._prefix)):
            first, messages = (int(part, 16) for part in key.split(".")[1:])
            try:
                nbytes, frames, *tensors = link.end.window.get(key)
                content = Content(frames, [memoryview(tensor.numpy()) for tensor in tensors], key)
            except SegmentLost:
                nbytes, content = 0, Content(b"", [], key)
                link.end.state.lost_messages += messages
            self.sender.restore(Entry(first, first + messages - 1, nbytes, content))

    @property
    def _prefix(self) -> str:
        return f"{self.row.number:x}."

    def touched(self) -> None:
        """Have the link process this stream at the end of the round."""
        self.link.touched[self] = None

    # ------------------------------------------------------------------------------------------------------- sending

    def move(self, messages: int) -> int:
        """Move up to `messages` messages of the source into the window. Returns their number; 0: none, or none left.

        Raises OutOfMemory: the window cannot take them now; they stay in the source.
        """
        assert self.source is not None
        run = self.source.peek(wire.RUN_BYTES, messages)
        if run is None:
            return 0
        if run.lost or len(run.blocks) > wire.MAX_BLOCKS or len(run.frames) > wire.MAX_FRAMES:  # or cannot be sent
            self.source.take(run, 0)
            self.link.end.state.lost_messages += 1
            return run.messages  # type: ignore[no-any-return]
        state, window = self.link.end.state, self.link.end.window
        first, last = self.sender.last + 1, self.sender.last + run.messages
        commit = commit_number(self.row.number, last)
        key = _key(self.row, first, run.messages)
        content = Content(run.frames, [memoryview(block).cast("B") for block in run.blocks], key)
        state.moving_first = first
        state.moving_beyond = (run.number + run.messages) & 0xFFFFFFFF
        state.moving_last = commit
        value = (run.nbytes, run.frames, *map(_tensor, run.blocks))
        window._put([key], [value], 0, False, STORE_REFUSE, copies=False)
        taken = self.source.take(run, commit)
        if taken and state.returning:
            state.ask(run.messages)  # they were requested, and no process took them
        if taken:
            self.row.sent = last
            self.sender.add(run.messages, run.nbytes, content)
        else:
            window.delete(key)
        state.moving_last = 0
        return run.messages if taken else 0

    def acknowledged(self, head: wire.Head) -> None:
        """Process an ACK of the other end."""
        self._release(self.sender.acknowledge(head.number, head.second, head.third))

    def _release(self, entries: list[Entry[Content]]) -> None:
        for entry in entries:
            self.link.end.window.delete(entry.content.key)

    # ----------------------------------------------------------------------------------------------------- receiving

    def lacks_memory(self, problem: OutOfMemory) -> None:
        """Report that a message cannot be received at the moment."""
        self.link.end.state.text = f"no memory for an incoming message: {problem}"

    def allocate(self, nbytes: int) -> Block:
        """Return memory for an incoming block. Raises OutOfMemory."""
        return self.link.end.manager.allocate(nbytes)

    def data(self, head: wire.Head, frames: memoryview, blocks: list[Block]) -> None:
        """Take messages that have arrived. Raises ProtocolError."""
        if head.number > self._most_limit or self.receiver.nbytes >= self._most_credit:
            raise ProtocolError(
                f"message {head.number} came after {self.receiver.nbytes} bytes; message {self._most_limit} and "
                f"{self._most_credit} bytes were allowed"
            )
        known = self.receiver.accept(head.number, head.second, head.third)
        if known < head.second:
            if known and len(frames):
                frames = wire.skip(frames, known)
            self._arrived.append(_Arrived(head.number + known, head.second - known, head.third, frames, blocks))
            self._arrived_bytes += head.third
        self.deliver()

    def deliver(self) -> None:
        """Put arrived messages into the inbox, as far as there is room. Raises ProtocolError."""
        ring = self.link.inbox_ring
        while self._arrived:
            arrived = self._arrived[0]
            commit = commit_number(self.row.number, arrived.first)
            seen = ring.taken()
            try:
                put = arrived.messages
                if not len(arrived.frames):
                    self.link.lost(put)
                else:
                    put = self.link.put_frames(arrived.frames, arrived.blocks, commit)
            except OutOfMemory as problem:
                self.link.blocked[self] = None
                self.link.has_no_memory(problem)
                return
            except (MessageTooLarge, ValueError) as problem:
                raise ProtocolError(f"a message cannot be put here: {problem}") from None
            self.receiver.put += put
            self.row.put = self.receiver.put
            if put < arrived.messages:
                self._arrived[0] = arrived._replace(
                    first=arrived.first + put, messages=arrived.messages - put, frames=wire.skip(arrived.frames, put)
                )
                self.link.blocked[self] = None
                self.link.watch_room(seen)
                return
            self._arrived.popleft()
            self._arrived_bytes -= arrived.nbytes

    @property
    def waits_for_room(self) -> bool:
        """Whether arrived messages wait for room."""
        return bool(self._arrived)

    def acknowledge(self) -> None:
        """Send an ACK, if its content has changed."""
        if self.peer is None:
            return
        limit, waiting = self.link.allowance(self)
        said = self.receiver.put, self.receiver.credit(self._arrived_bytes + waiting, self.link.window), limit
        if said != self._acknowledged:
            self._acknowledged = said
            self._most_credit = max(self._most_credit, said[1])
            self._most_limit = max(self._most_limit, limit)
            self.peer.send(wire.Head(wire.ACK, 0, 0, 0, *said))

    # ---------------------------------------------------------------------------------------------------- connection

    def connected(self, peer: Connection, received: int) -> None:
        """Use a new connection, whose other side has put the messages up to `received`. Raises ProtocolError."""
        released = self.sender.connected(received)  # before anything has changed
        if self.peer is not None:
            self.peer.close()
        self._release(released)
        self.receiver.connected()
        self._acknowledged = (-1, -1, -1)
        self._most_credit = self._most_limit = 0
        self._is_subscribed = False
        self.peer = peer
        self.touched()

    def disconnected(self, peer: Connection, problem: Exception) -> None:
        """Handle the end of the connection."""
        peer.close()
        if self.peer is peer:
            self.peer = None
            self.sender.limit = 0
            self.link.disconnected(self, problem)

    def received(self, peer: Connection, head: wire.Head) -> None:
        """Process a frame that is not DATA. Raises ProtocolError."""
        if head.kind == wire.ACK:
            self.acknowledged(head)
            if head.third:
                self.link.wants(self)
        elif head.kind == wire.BEAT:
            if head.flags & _PING:
                peer.send(wire.Head(wire.BEAT, _PONG))
            if head.flags & _PONG:
                self.is_drained = True
            if head.flags & _SUBSCRIBED:
                self.link.end.state.subscribed = 1
        elif head.kind == wire.BYE:
            self.link.said_bye(self)
        else:
            raise ProtocolError(f"{wire.NAMES[head.kind]} came after the beginning of the connection")

    def ask_whether_drained(self) -> None:
        """Ask the other end to report when all its messages have arrived."""
        if self.peer is not None:
            self.peer.send(wire.Head(wire.BEAT, _PING))

    def say_subscribed(self) -> None:
        """Tell the other end that it will get all messages from now on."""
        if self.peer is not None and not self._is_subscribed:
            self._is_subscribed = True
            self.peer.send(wire.Head(wire.BEAT, _SUBSCRIBED))
            self.touched()

    def work(self) -> None:
        """Send all frames that may be sent. Raises OSError."""
        if self.peer is not None:
            self.acknowledge()
            self.queue()
            self.peer.flush()

    def queue(self) -> None:
        """Queue all frames that may be sent."""
        peer = self.peer
        while peer is not None and peer.has_room and (entry := self.sender.next()) is not None:
            peer.send_entry(entry)

    def say_bye(self) -> None:
        """End the session in order, as far as the connection accepts it."""
        if self.peer is not None:
            self.acknowledge()  # what arrived in this round; the other end reads nothing after BYE
            self.peer.send(wire.Head(wire.BYE))
            with suppress(OSError):
                self.peer.flush()

    def drop(self) -> int:
        """Give up the session, and drop the messages for the other end. Returns their number."""
        messages = sum(entry.last - entry.first + 1 for entry in self.sender.entries)
        while self.sender.entries:
            self.link.end.window.delete(self.sender.entries.popleft().content.key)
        if self.peer is not None:
            self.peer.close()
            self.peer = None
        if isinstance(self.source, ReaderSource):
            self.source.reader.leave()
        self.row.end()
        return messages


def recover(state: State, window: Store, taken: int, readers: dict[int, KeptReader]) -> None:
    """Finish the move of a link process that was killed: messages are then in their source or in the window, not both.

    Args:
        state: state of the end.
        window: window of the end.
        taken: the commit number of the last take from the source queue.
        readers: for a broadcast: each session's reader, by the session's number.
    """
    moving = state.moving_last
    if moving == 0:
        return
    session, last = moving >> SEQUENCE_BITS, moving & ((1 << SEQUENCE_BITS) - 1)
    for row in state.rows():
        if row.number == 0 or row.number & 0xFFFFFF != session:
            continue
        key = _key(row, state.moving_first, last - state.moving_first + 1)
        reader = readers.get(row.number)
        if reader is not None:  # messages in the window are skipped, others are read again
            was_taken = key in window.keys(key)
            if was_taken:
                reader.skip_to(state.moving_beyond)
        else:
            was_taken = taken == moving
        if was_taken:
            row.sent = last
        else:
            window.delete(key)
    state.moving_last = 0


def _key(row: Row, first: int, messages: int) -> str:
    """Return the key of an entry of the window: in the order of the numbers."""
    return f"{row.number:x}.{first:010x}.{messages:x}"


def _tensor(block: Block) -> Any:
    return shmtensor.from_numpy(block.array(_BYTE, (block.nbytes,)))
