"""Transfer of tensors' bytes to processes that cannot open their memory.

The source has a server on the loopback device, and one at the address of its node if `SHMTENSOR_RAY_KEYS` names a
directory of keys (`shmtensor.channel.keys`): with keys, other machines and network namespaces can connect by TLS, if
each side has the certificate of the other. A client must also know the source's secret, which is part of each
description of a tensor.

A request is the length of the rest (4 bytes) and JSON: the secret and a place. The reply is a byte (0 or 1), the length
of the rest (8 bytes), and the elements in C order (0) or an error message (1). Numbers are big-endian.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import ray
from numpy.typing import NDArray

from ..._tensor.core import Tensor
from ..._tensor.creation import empty
from ...channel.handshake import boot_id
from ...channel.keys import Keys
from ...dtypes import dtype_of
from ...errors import MessageDamaged, NotSupported, SegmentLost, ShmTensorError
from .places import Place

KEYS_VARIABLE: Final = "SHMTENSOR_RAY_KEYS"
LOOPBACK: Final = "127.0.0.1"
SILENCE_SECONDS: Final = 60.0
"""Seconds of silence after which the other side counts as dead."""
_BEGIN_SECONDS: Final = 10.0
_BEGINNINGS: Final = 64
"""Maximum number of handshakes at a time; further connections are closed."""
_MAX_REQUEST: Final = 1 << 16
_MAX_REASON: Final = 1 << 16
_LENGTH: Final = struct.Struct("!I")
_REPLY: Final = struct.Struct("!BQ")


class Address(NamedTuple):
    """The address at which a process serves its tensors."""

    boot: str
    network: int
    """The network namespace whose loopback device has `port`."""
    port: int
    secret: str
    host: str | None = None
    """Address for peers with keys; None: there is none."""
    host_port: int = 0

    @property
    def is_near(self) -> bool:
        """Whether it is on the loopback device of this process."""
        return (self.boot, self.network) == (boot_id(), own_network())


def own_network() -> int:
    """Return the id of this process's network namespace."""
    return Path("/proc/self/ns/net").stat().st_ino


def keys_directory() -> str | None:
    """Return the directory of the keys for other machines; None: there are none."""
    return os.environ.get(KEYS_VARIABLE) or None


class Server:
    """Sends tensors of this process to clients that know the secret. Its threads end with the process."""

    def __init__(self, keys: str | None = None, host: str = "") -> None:
        """Listen on the loopback device, and with keys at `host`. Does not block.

        Raises:
            OSError: there is no loopback device, no such address, or no descriptor.
            InvalidArgument: the keys cannot be used.
        """
        self._secret = secrets.token_hex(16)
        self._beginnings = threading.BoundedSemaphore(_BEGINNINGS)
        near = self._listening(LOOPBACK, None)
        self.address: Address = Address(boot_id(), own_network(), near, self._secret)
        if keys is not None:
            Keys(keys)  # raises here instead of at the first connection
            self.address = self.address._replace(host=host, host_port=self._listening(host, keys))
        self.pid: int = os.getpid()

    def _listening(self, host: str, keys: str | None) -> int:
        listener = socket.create_server((host, 0))
        threading.Thread(target=self._listen, args=(listener, keys), name="shmtensor-fetch", daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    def _listen(self, listener: socket.socket, keys: str | None) -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:  # the program closed it
                return
            if not self._beginnings.acquire(blocking=False):  # too many handshakes
                connection.close()
                continue
            arguments = connection, keys
            threading.Thread(target=self._begin, args=arguments, name="shmtensor-fetch", daemon=True).start()

    def _begin(self, connection: socket.socket, keys: str | None) -> None:
        with connection, suppress(OSError, EOFError, ShmTensorError):  # not one of our peers, or it has ended
            try:
                connection.settimeout(_BEGIN_SECONDS)
                known = connection if keys is None else Keys(keys).wrap(connection, listening=True)
            finally:
                self._beginnings.release()
            with known:
                self._serve(known)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(SILENCE_SECONDS)
        while True:
            (length,) = _LENGTH.unpack(_received(connection, _LENGTH.size))
            if length > _MAX_REQUEST:
                return
            try:
                elements = self._elements(_received(connection, length))
            except (ShmTensorError, ValueError, LookupError, TypeError) as problem:
                reason = f"{type(problem).__name__}: {problem}".encode()[:_MAX_REASON]
                connection.sendall(_REPLY.pack(1, len(reason)) + reason)
                return
            connection.sendall(_REPLY.pack(0, elements.nbytes))
            connection.sendall(elements.data)

    def _elements(self, request: bytes) -> NDArray[np.uint8]:
        document = json.loads(request)
        if not hmac.compare_digest(str(document["secret"]).encode(), self._secret.encode()):
            raise MessageDamaged("the secret of the request is not this process's")
        array = np.ascontiguousarray(Place.of_document(document["place"]).open()._live())
        return array.reshape(-1).view(np.uint8)


_server: Server | None = None
_starting = threading.Lock()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def own_address() -> Address:
    """Return the address of this process's server; the first call starts it. Does not block. Raises OSError."""
    global _server
    with _starting:
        if _server is None or _server.pid != os.getpid():
            keys = keys_directory()
            _server = Server(keys, ray.util.get_node_ip_address() if keys else "")
        return _server.address


class Connection:
    """A connection to a process that serves tensors. Use it in a `with`."""

    def __init__(self, address: Address) -> None:
        """Connect. Blocks for at most `SILENCE_SECONDS`.

        Raises:
            NotSupported: the process is on another machine or in another network namespace, and one of the two
                processes has no keys.
            SegmentLost: the process has ended, or cannot be reached.
            InvalidArgument: the keys of this process cannot be used.
        """
        self._secret = address.secret
        keys = None if address.is_near else keys_directory()
        if not address.is_near and (keys is None or address.host is None):
            raise NotSupported(
                "a tensor of shmtensor is on another machine or in another network namespace. "
                f"Set {KEYS_VARIABLE} to a directory of keys on both sides (docs/cluster.md), or return a value "
                "that Ray sends itself, such as tensor.numpy(), from a method without tensor_transport"
            )
        where = (LOOPBACK, address.port) if address.is_near else (address.host, address.host_port)
        try:
            self._socket = socket.create_connection(where, SILENCE_SECONDS)
            if keys is not None:
                self._socket = Keys(keys).wrap(self._socket, listening=False)
        except OSError as problem:
            advice = "" if keys is None else ", or one of the two sides lacks the certificate of the other"
            raise SegmentLost(
                f"the process with a tensor does not answer at {where[0]}:{where[1]}: it has ended{advice} ({problem})"
            ) from None

    def fetch(self, place: Place) -> Tensor:
        """Return a copy of a tensor, in shared memory of this process's group. Blocks while it is transferred.

        Raises:
            SegmentLost: the source has ended, or does not have the tensor any more.
            OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
        """
        if place.block is None:
            return place.open()
        tensor = empty(place.size, dtype=dtype_of(place.dtype), shared=True)
        target = tensor._live().reshape(-1).view(np.uint8)
        request = json.dumps({"secret": self._secret, "place": place.document()}).encode()
        try:
            self._socket.sendall(_LENGTH.pack(len(request)) + request)
            status, length = _REPLY.unpack(_received(self._socket, _REPLY.size))
            if status == 0 and length == target.nbytes:
                _receive_into(self._socket, target.data)
                return tensor
            reason = _received(self._socket, min(length, _MAX_REASON)).decode(errors="replace") if status else ""
        except (OSError, EOFError) as problem:
            reason = str(problem) or "it closed the connection"
        raise SegmentLost(
            f"a tensor of {place.size} {place.dtype} elements cannot be fetched from the process that has it: "
            f"{reason or 'it answered with another size'}"
        )

    def abort(self) -> None:
        """Make a `fetch` in another thread fail. Does not block."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._socket.close()


def _received(connection: socket.socket, nbytes: int) -> bytes:
    data = bytearray(nbytes)
    _receive_into(connection, memoryview(data))
    return bytes(data)


def _receive_into(connection: socket.socket, target: memoryview) -> None:
    done = 0
    while done < len(target):
        got = connection.recv_into(target[done:])
        if not got:
            raise EOFError("the other side closed the connection")
        done += got
