"""Base of the link processes of listening and connected ends."""

from __future__ import annotations

import socket
import threading
from time import monotonic
from typing import Any, Final

from ..._native import Block, BlockGone, LockBusy, Refused, Ring
from ...errors import OutOfMemory, ProtocolError
from .. import wire
from ..end import LISTENING, End
from ..keys import Keys, stamp_of
from ..state import Row
from .loop import Loop, Waiter
from .peer import Peer
from .stream import SEQUENCE_BITS, QueueSource, ReaderSource, Source, Stream, recover

_BEATS: Final = 5
"""Heartbeats in the time after which a silent peer counts as dead."""
_RETRY_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.2
_MANY: Final = 2**31


class Link:
    """The link process of one end."""

    def __init__(self, end: End) -> None:
        """Continue where the previous process stopped. Blocks for the manager."""
        self.end = end
        self.config: dict[str, Any] = end.config
        self.loop: Loop = Loop()
        self.timeout: float = self.config["timeout"]
        self.window: int = self.config["window"]
        self.pickled: bool = self.config["pickle"]
        self.is_broadcast: bool = self.config["kind"] == "broadcast"
        self.sends_broadcast: bool = self.is_broadcast and self.config["role"] == LISTENING
        self.inbox_ring: Ring = end.inbox._ring
        self.outbox_ring: Ring = end.outbox._ring
        self.touched: dict[Stream, None] = {}
        self.blocked: dict[Stream, None] = {}
        """Streams with messages for which the inbox has no room."""
        self.streams: dict[bytes, Stream] = {}
        self._hungry: dict[Stream, None] = {}
        """Streams that may take messages from the source, in the order of their turns."""
        self._last_look = monotonic()
        self._room = Waiter(self.loop, self._await_room, self._has_room)
        self._messages = Waiter(self.loop, self._await_messages, self._has_messages)
        self._control = Waiter(self.loop, lambda seconds, _: end.control.wait(seconds), self._controlled)
        self._is_waiting = False  # for messages
        self._known_keys: tuple[object, Keys] | None = None
        self._recover()

    # ---------------------------------------------------------------------------------------------------- after a kill

    def source_of(self, row: Row) -> Source:
        """Return the source of messages for the session of a row."""
        if self.sends_broadcast:
            return ReaderSource(self.end.outbox._broadcast_ring.kept_reader(row.number))
        return QueueSource(self.source_ring)

    @property
    def source_ring(self) -> Ring:
        """The queue whose messages are sent. An end that is being closed sends back its fetched messages."""
        return self.inbox_ring if self.end.state.returning else self.outbox_ring

    def _recover(self) -> None:
        state = self.end.state
        used = [row for row in state.rows() if row.number]
        put = self.inbox_ring.commit_number(True)
        for row in used:
            if put >> SEQUENCE_BITS == row.number & 0xFFFFFF:
                row.put = max(row.put, put & ((1 << SEQUENCE_BITS) - 1))
        sources = {row.number: self.source_of(row) for row in used if row.flags & Row.CONSUMER}
        readers = {number: source.reader for number, source in sources.items() if isinstance(source, ReaderSource)}
        recover(state, self.end.window, self.source_ring.commit_number(False), readers)
        for row in used:
            stream = self.streams[row.id] = Stream(self, row)
            stream.source = sources.get(row.number)
        known = {f"{row.number:x}" for row in used}
        for key in self.end.window.keys(""):
            if key.partition(".")[0] not in known:
                self.end.window.delete(key)

    # -------------------------------------------------------------------------------------------------------- running

    def run(self) -> None:
        """Work until no process needs this end any more. Blocks."""
        self._control.arm()
        self._tick()
        self._look()
        try:
            self.loop.run(self._work)
        finally:
            for stream in self.streams.values():
                if stream.peer is not None:
                    stream.peer.close()
            self.close()
            for waiter in (self._room, self._messages, self._control):
                waiter.close()
            self.loop.close()

    def close(self) -> None:
        """Close the descriptors of a subclass."""

    def _work(self) -> None:
        try:
            self._distribute()
        except (OutOfMemory, Refused, LockBusy) as problem:
            self.has_no_memory(problem)
        while self.touched:
            stream = next(iter(self.touched))
            del self.touched[stream]
            if stream.peer is None:
                continue
            try:
                stream.work()
            except OSError as problem:
                stream.disconnected(stream.peer, problem)

    # ----------------------------------------------------------------------------------------------- messages going out

    def wants(self, stream: Stream) -> None:
        """Record that a stream can take messages."""
        if stream.source is None:
            stream.source = self.source_of(stream.row)
        if self.sends_broadcast:
            stream.say_subscribed()
        if not stream.row.flags & Row.CONSUMER:
            stream.row.flag(Row.CONSUMER)
            self.count()
        self._hungry[stream] = None

    def _distribute(self) -> None:
        """Move messages into the windows of the streams that may take them, in turns."""
        seen = self.source_ring.stats().put
        is_empty = False
        rested = 0  # consecutive streams that took nothing
        while self._hungry and rested < len(self._hungry):
            stream = next(iter(self._hungry))
            del self._hungry[stream]
            room = stream.sender.room
            if not room or stream.peer is None:  # until its next ACK
                continue
            self._hungry[stream] = None
            if not stream.peer.has_room:
                rested += 1
                continue
            share = _MANY if self.sends_broadcast else max(1, self.source_ring.size() // len(self._hungry))
            if stream.move(min(room, share)):
                stream.queue()
                stream.touched()
                rested = 0
            else:
                is_empty = True
                rested += 1
        if is_empty and not self._is_waiting:
            self._is_waiting = True
            self._messages.arm(seen)

    def _await_messages(self, seconds: float, seen: int) -> bool:
        if self.sends_broadcast:
            return self.outbox_ring.await_beyond(seconds, seen)
        return self.source_ring.await_message(seconds)

    def _has_messages(self) -> None:
        self._is_waiting = False

    # ----------------------------------------------------------------------------------------------- messages coming in

    def allowance(self, stream: Stream) -> tuple[int, int]:
        """Return (highest sequence number that may be sent, stored bytes other than those without room)."""
        raise NotImplementedError

    def _await_room(self, seconds: float, seen: int) -> bool:
        return self.inbox_ring.await_room(seconds, seen)

    def put_frames(self, frames: memoryview, blocks: list[Block], commit: int) -> int:
        """Put messages into the inbox; returns their number. Raises OutOfMemory, and as Ring.put_frames."""
        try:
            return self.inbox_ring.put_frames(frames, blocks, commit, self.pickled)
        except (Refused, BlockGone, LockBusy) as problem:
            self.end.manager._translate(problem)

    def watch_room(self, seen: int) -> None:
        """Check again once more messages than `seen` have been taken from the inbox."""
        self._room.arm(seen)

    def has_no_memory(self, problem: Exception) -> None:
        """Report a lack of memory, and check again soon."""
        self.end.state.text = str(problem)
        self.loop.later(_RETRY_SECONDS, self._has_room)

    def _has_room(self) -> None:
        blocked, self.blocked = self.blocked, {}
        for stream in blocked:
            try:
                stream.deliver()
            except ProtocolError as problem:
                if stream.peer is not None:
                    stream.disconnected(stream.peer, problem)
            stream.touched()

    def lost(self, messages: int) -> None:
        """Record that messages for this end are lost with their memory."""
        self.end.state.ask(messages)

    # --------------------------------------------------------------------------------------------------- connections

    def keys(self) -> Keys | None:
        """Return the current keys of this end. Raises InvalidArgument."""
        directory = self.config["keys"]
        if directory is None:
            return None
        stamp = stamp_of(directory)
        if self._known_keys is None or self._known_keys[0] != stamp:
            self._known_keys = stamp, Keys(directory)
        return self._known_keys[1]

    def use(self, stream: Stream, connection: socket.socket, received: int) -> None:
        """Use a new connection for a stream."""
        peer = Peer(self.loop, connection, stream, self.config["max_message"])
        try:
            stream.connected(peer, received)
        except ProtocolError:
            peer.close()
            raise
        peer.begin()
        self.end.state.text = ""
        self.count()

    def disconnected(self, stream: Stream, problem: Exception) -> None:
        """Handle the loss of a stream's connection."""
        raise NotImplementedError

    def said_bye(self, stream: Stream) -> None:
        """Handle the end of a session by the other end."""
        raise NotImplementedError

    def count(self) -> None:
        """Update the number of connected ends, for the processes of this end."""
        state = self.end.state
        state.connected = sum(stream.peer is not None for stream in self.streams.values())
        if self.config["role"] == LISTENING:
            takers = any(stream.row.flags & Row.CONSUMER for stream in self.streams.values())
            self.outbox_ring.copied = takers and self.config["copy"]

    # --------------------------------------------------------------------------------------------------------- time

    def _tick(self) -> None:
        interval = min([self.timeout, *(stream.timeout for stream in self.streams.values())]) / _BEATS
        now = monotonic()
        was_late = now - self._last_look > 2 * interval  # this process was stopped: data that came meanwhile is unread
        self._last_look = now
        for stream in list(self.streams.values()):
            peer = stream.peer
            if peer is None:
                continue
            if was_late:
                peer.received_at = now
            if now - peer.received_at > self.timeout:
                stream.disconnected(peer, TimeoutError(f"the other end was silent for {self.timeout:g} s"))
                continue
            if now - peer.sent_at > interval and peer.is_flushed:
                peer.send(wire.Head(wire.BEAT))
                stream.touched()
        self.loop.later(interval, self._tick)

    def _look(self) -> None:
        self.look()
        self.loop.later(_LOOK_SECONDS, self._look)

    def look(self) -> None:
        """Do the work that depends on time, or on whether processes use this end."""
        raise NotImplementedError

    def _controlled(self) -> None:
        self.end.control.clear()
        self.controlled()
        self._control.arm()

    def controlled(self) -> None:
        """Handle changes of the state by a process of this end."""

    def finish(self) -> None:
        """End this process in order, unless a process has opened this end meanwhile."""
        state = self.end.state
        state.ended = 1  # a process that opens the end checks this afterwards
        if self.end.has_users():
            state.ended = 0
            return
        if self.config["stream"] is None:  # otherwise the next process of this end continues
            for stream in self.streams.values():
                stream.say_bye()
        state.connected = 0
        self.loop.stop()

    def thread(self, work: Any, *arguments: Any) -> None:
        """Run a blocking function in a thread."""
        threading.Thread(target=work, args=arguments, daemon=True).start()
