"""A connection: conversion of bytes to frames and back. The stream interprets the frames."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Generator
from time import monotonic
from typing import TYPE_CHECKING, Final

from ...errors import OutOfMemory, ProtocolError
from .. import wire
from .stream import Content

if TYPE_CHECKING:
    from ..._native import Block
    from ..session import Entry
    from .loop import Loop
    from .stream import Stream

_BUFFER_BYTES: Final = 256 * 1024
_DIRECT_BYTES: Final = 64 * 1024
"""Data of at least this many bytes is read directly to its destination, without a buffer."""
_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Bytes read from one connection before the others are served."""
_QUEUED_BYTES: Final = 1024 * 1024
"""Entries are queued for sending only while fewer bytes wait for the socket, so that an ACK does not wait for long."""
_PARTS: Final = 64
_MEMORY_SECONDS: Final = 0.1
_buffer: Final = memoryview(bytearray(_BUFFER_BYTES))
_AGAIN: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Peer:
    """A connection to the other end, for one stream."""

    def __init__(self, loop: Loop, connection: socket.socket, stream: Stream, max_message: int) -> None:
        self.stream = stream
        self.closed: bool = False
        self.received_at: float = monotonic()
        self.sent_at: float = self.received_at
        self._loop = loop
        self._connection = connection
        self._gathers = not isinstance(connection, ssl.SSLSocket)
        self._max_message = max_message
        self._buffer = _buffer  # shared: its content is consumed before the next connection is read
        self._have = self._buffer[:0]  # received, and not parsed yet
        self._lacks_memory = self._is_blocked = False
        self._kept = b""
        self._frames = self._read_frames()
        self._target = next(self._frames)
        self._parts: deque[memoryview] = deque()
        self._queued = 0
        self._events = select.EPOLLIN
        loop.watch(connection.fileno(), self._events, self._happened)

    def _happened(self, events: int) -> None:
        if self.closed:
            return
        try:
            if events & ~select.EPOLLOUT:
                self._read()
            if not self.closed:
                self.stream.touched()
        except OSError as problem:
            self.stream.disconnected(self, problem)
        except (ProtocolError, ValueError, OverflowError, struct.error) as problem:
            self.stream.disconnected(self, ProtocolError(str(problem)))

    def begin(self) -> None:
        """Process data that TLS has read already."""
        self._loop.call(self._happened, select.EPOLLIN)

    # ------------------------------------------------------------------------------------------------------- reading

    def _read(self) -> None:
        left = _BATCH_BYTES
        while (left > 0 or len(self._have)) and not self.closed and not self._lacks_memory:
            if len(self._have) == 0:
                direct = len(self._target) >= _DIRECT_BYTES
                into = self._target if direct else self._buffer
                try:
                    got = self._connection.recv_into(into)
                except _AGAIN:
                    return
                if got == 0:
                    raise ConnectionError("the other end closed the connection")
                self.received_at = monotonic()
                left -= got
                if direct:
                    self._filled(got)
                    continue
                self._have = self._buffer[:got]
            part = min(len(self._have), len(self._target))
            self._target[:part] = self._have[:part]
            self._have = self._have[part:]
            self._filled(part)
        if not self.closed and not self._lacks_memory:  # TLS may have more than the socket shows
            self._loop.call(self._happened, select.EPOLLIN)

    def _filled(self, nbytes: int) -> None:
        self._target = self._target[nbytes:]
        while len(self._target) == 0 and not self.closed and not self._lacks_memory:
            self._target = next(self._frames)

    def _allocate(self, size: int) -> Generator[memoryview, None, Block]:
        """Return memory for a block. Until there is some, nothing is read from this connection."""
        while True:
            try:
                return self.stream.allocate(size)
            except OutOfMemory as problem:
                self._lacks_memory = True
                self._kept = bytes(self._have)  # other connections use the buffer meanwhile
                self._have = self._buffer[:0]
                self.stream.lacks_memory(problem)
                self._watch()
                self._loop.later(_MEMORY_SECONDS, self._try_again)
                yield memoryview(b"")

    def _try_again(self) -> None:
        if self.closed:
            return
        self.received_at = monotonic()  # its heartbeats are unread
        self._lacks_memory = False
        self._have = memoryview(self._kept)
        self._kept = b""
        self._filled(0)
        if not self._lacks_memory:
            self._watch()
            self._happened(select.EPOLLIN)

    def _read_frames(self) -> Generator[memoryview]:
        """Yield the memory to be filled next."""
        data = memoryview(bytearray(wire.HEAD_BYTES))
        while True:
            yield data
            head = wire.unpack(data, self._max_message)
            if head.kind != wire.DATA:
                if head.length:
                    raise ProtocolError(f"{wire.NAMES[head.kind]} came after the beginning of the connection")
                self.stream.received(self, head)
                continue
            yield from self._read_messages(head)

    def _read_messages(self, head: wire.Head) -> Generator[memoryview]:
        """Read the rest of a DATA. Keeps no reference to the data while it waits for the next frame."""
        sizes: list[int] = []
        if head.blocks:
            packed = memoryview(bytearray(head.blocks * wire.SIZE_BYTES))
            yield packed
            sizes = wire.unpack_sizes(packed, head.third)
        if head.length and sum(sizes) + head.length - head.second * wire.FRAME.size != head.third:
            raise ProtocolError(f"DATA announces {head.third} bytes, but its parts have a different number")
        frames = memoryview(bytearray(head.length))
        yield frames
        blocks = []
        for size in sizes:
            block = yield from self._allocate(size)
            yield memoryview(block).cast("B")
            blocks.append(block)
        self.stream.data(head, frames, blocks)

    # ------------------------------------------------------------------------------------------------------- sending

    @property
    def has_room(self) -> bool:
        """Whether entries should be queued."""
        return self._queued < _QUEUED_BYTES

    def send(self, head: wire.Head, *parts: memoryview) -> None:
        """Queue a frame."""
        for part in (memoryview(wire.pack(head)), *parts):
            self._parts.append(part)
            self._queued += len(part)

    def send_entry(self, entry: Entry[Content]) -> None:
        """Queue messages, directly from their memory."""
        content = entry.content
        sizes = [len(block) for block in content.blocks]
        self.send(
            wire.Head(
                wire.DATA,
                blocks=len(sizes),
                length=len(content.frames),
                number=entry.first,
                second=entry.last - entry.first + 1,
                third=entry.nbytes,
            ),
            *([memoryview(wire.pack_sizes(sizes))] if sizes else ()),
            memoryview(content.frames),
            *content.blocks,
        )

    def flush(self) -> None:
        """Send queued data, as far as the socket accepts it. Does not block. Raises OSError."""
        blocked = False
        while self._parts and not blocked:
            try:
                if self._gathers:
                    parts = [self._parts[i] for i in range(min(_PARTS, len(self._parts)))]
                    sent = self._connection.sendmsg(parts)
                else:
                    sent = self._connection.send(self._parts[0])
            except _AGAIN:
                blocked = True
                break
            self.sent_at = monotonic()
            self._queued -= sent
            while sent > 0 or (self._parts and len(self._parts[0]) == 0):
                first = self._parts[0]
                if sent < len(first):
                    self._parts[0] = first[sent:]
                    break
                sent -= len(first)
                self._parts.popleft()
        self._is_blocked = blocked
        self._watch()

    def _watch(self) -> None:
        """Wait for the events that can be handled now."""
        events = (0 if self._lacks_memory else select.EPOLLIN) | (select.EPOLLOUT if self._is_blocked else 0)
        if events != self._events and not self.closed:
            self._events = events
            self._loop.modify(self._connection.fileno(), events)

    @property
    def is_flushed(self) -> bool:
        """Whether the socket has accepted all queued data."""
        return not self._parts

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            self.closed = True
            self._loop.forget(self._connection.fileno())
            self._connection.close()
            self._parts.clear()
            self._loop.call(self._release)

    def _release(self) -> None:
        """Release partial data: generators refer to this peer, so garbage collection would come late."""
        self._target = self._have = self._buffer[:0]
        self._frames.close()
