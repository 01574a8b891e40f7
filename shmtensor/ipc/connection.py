"""Pipes with messages as in queues: tensors by handle, arrays through shared memory, other values pickled.

A message is encoded as for a queue. Its body goes through the pipe with a ticket for each block in it. A message that
is never received keeps its memory until the group ends.
"""

from __future__ import annotations

import os
import socket
from multiprocessing import connection, reduction
from multiprocessing.reduction import ForkingPickler
from typing import Any

from .codec import decode_from_wire, encode_for_wire, withdraw

_PICKLE = b"\x80"
"""First byte of a pickle of protocol 2 or later; none of our messages starts with it."""


class Connection(connection.Connection):
    """One end of a pipe. Bytes are sent unchanged; objects sent by a standard connection can be received."""

    def send(self, obj: Any) -> None:
        """Send an object. Blocks while the pipe is full.

        Raises:
            OSError: this end is closed or not writable, or the other end is closed (BrokenPipeError).
            Exception: as raised by pickling; nothing was sent.
            OutOfMemory, ManagerError: an array or tensor could not be shared.
        """
        self._check_closed()  # type: ignore[attr-defined]
        self._check_writable()  # type: ignore[attr-defined]
        message = encode_for_wire(obj)
        try:
            self._send_bytes(memoryview(message))  # type: ignore[attr-defined]
        except BaseException:
            withdraw(message)
            raise

    def recv(self) -> Any:
        """Return the next object. Blocks until there is one.

        Raises:
            EOFError: the other end is closed.
            OSError: this end is closed or not readable.
            MessageDamaged, SegmentLost, StaleHandle: as decode_from_wire.
            Exception: as raised by unpickling.
        """
        self._check_closed()  # type: ignore[attr-defined]
        self._check_readable()  # type: ignore[attr-defined]
        message = self._recv_bytes().getvalue()  # type: ignore[attr-defined]
        return ForkingPickler.loads(message) if message[:1] == _PICKLE else decode_from_wire(message)


def _reduce(end: Connection) -> tuple[Any, ...]:
    return _rebuild, (reduction.DupFd(end.fileno()), end.readable, end.writable)


def _rebuild(duplicate: Any, readable: bool, writable: bool) -> Connection:
    return Connection(duplicate.detach(), readable, writable)


reduction.register(Connection, _reduce)


def Pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    """Return two connected ends. If not `duplex`, the first only receives and the second only sends. Raises OSError."""
    if duplex:
        ours, theirs = socket.socketpair()
        ours.setblocking(True)
        theirs.setblocking(True)
        return Connection(ours.detach()), Connection(theirs.detach())
    reader, writer = os.pipe()
    return Connection(reader, writable=False), Connection(writer, readable=False)
