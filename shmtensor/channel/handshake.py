"""The handshake of a connection: TLS if there are keys, the prefix, HELLO and WELCOME. Blocks, up to a timeout."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Any, Final

from ..errors import ConnectionLost, ProtocolError
from . import wire
from .address import Address
from .keys import Keys

Content = dict[str, Any]
SECONDS: Final = 10.0
"""Maximum time of a handshake."""


class Refused(ConnectionLost):
    """The other side refused the connection, for a permanent reason."""

    retry = False


class RefusedNow(Refused):
    """The other side refused the connection, for a reason that may be temporary."""

    retry = True


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read().strip()


def connect(
    address: Address, keys: Keys | None, encrypt: bool, hello: Content, timeout: float = SECONDS
) -> tuple[socket.socket, Content]:
    """Connect to a listening end. Returns the connection and its WELCOME. Blocks up to `timeout` seconds.

    Raises:
        Refused: it refused, permanently.
        OSError, ProtocolError: nothing listens there, the keys do not match, or the listener is not a channel.
    """
    deadline = monotonic() + timeout
    connection: socket.socket = socket.create_connection((address.host, address.port), timeout)
    try:
        _prepare(connection, deadline)
        if keys is not None:
            connection = keys.wrap(connection, listening=False)
        connection.sendall(wire.PREFIX + wire.text(wire.HELLO, {**hello, "encrypt": encrypt}))
        head, content = _receive(connection, deadline)
        if head.kind == wire.REFUSE and content.get("retry") is True:
            raise ConnectionError(str(content.get("reason")))
        if head.kind == wire.REFUSE:
            raise Refused(f"{address} refuses the connection: {content.get('reason')}")
        if head.kind != wire.WELCOME:
            raise ProtocolError(f"{address} answers HELLO with {wire.NAMES[head.kind]}")
        return _decrypted(connection, encrypt), content
    except BaseException:
        connection.close()
        raise


def accept(
    connection: socket.socket, keys: Keys | None, encrypt: bool, answer: Callable[[Content], Content]
) -> tuple[socket.socket, Content]:
    """Answer a new connection. Returns it and its HELLO. Blocks up to 10 s.

    Args:
        connection: as accepted.
        keys: ours; None: without TLS.
        encrypt: whether the data after the handshake is encrypted, if there are keys.
        answer: returns the WELCOME for a HELLO; raises Refused.

    Raises:
        OSError, ProtocolError, Refused: the handshake failed; the connection is closed.
    """
    deadline = monotonic() + SECONDS
    try:
        _prepare(connection, deadline)
        if keys is not None:
            connection = keys.wrap(connection, listening=True)
        try:
            head, hello = _receive(connection, deadline)
            if head.kind != wire.HELLO:
                raise ProtocolError(f"the first frame is {wire.NAMES[head.kind]}")
            if keys is not None and hello.get("encrypt") is not encrypt:
                raise Refused(f"this side has encrypt={encrypt}, the other one does not; both must agree")
            welcome = answer(hello)
        except Refused as refusal:
            with suppress(OSError):
                connection.sendall(
                    wire.PREFIX + wire.text(wire.REFUSE, {"reason": str(refusal), "retry": refusal.retry})
                )
            raise
        connection.sendall(wire.PREFIX + wire.text(wire.WELCOME, welcome))
        return _decrypted(connection, encrypt), hello
    except BaseException:
        connection.close()
        raise


def _prepare(connection: socket.socket, deadline: float) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(max(0.001, deadline - monotonic()))


def _decrypted(connection: socket.socket, encrypt: bool) -> socket.socket:
    """Return the connection for use after the handshake: without TLS, if both sides have agreed on that."""
    if isinstance(connection, ssl.SSLSocket) and not encrypt:
        connection = connection.unwrap()
    connection.setblocking(False)
    return connection


def _receive(connection: socket.socket, deadline: float) -> tuple[wire.Head, Content]:
    prefix = _exactly(connection, len(wire.PREFIX), deadline)
    if prefix[:-1] != wire.PREFIX[:-1]:
        raise ProtocolError(
            "the other side is not a channel of shmtensor; "
            "check the address, and that both sides use keys or neither does"
        )
    if prefix != wire.PREFIX:
        raise Refused(
            f"the other side has version {prefix[-1]} of the protocol, this one {wire.VERSION}; "
            "use the same version of shmtensor on both sides"
        )
    head = wire.unpack(_exactly(connection, wire.HEAD_BYTES, deadline), 0)
    if head.kind not in (wire.HELLO, wire.WELCOME, wire.REFUSE):
        raise ProtocolError(f"{wire.NAMES[head.kind]} came before HELLO and WELCOME")
    return head, wire.parse_text(_exactly(connection, head.length, deadline))


def _exactly(connection: socket.socket, nbytes: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        left = deadline - monotonic()
        if left <= 0:
            raise TimeoutError("the handshake of the other side took too long")
        connection.settimeout(left)
        part = connection.recv(nbytes - len(data))
        if not part:
            raise ConnectionError("the other side closed the connection during the handshake")
        data += part
    return bytes(data)
