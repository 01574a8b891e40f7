"""Bytes of tensors for processes that cannot open their memory.

The source has a server on the loopback device. Who asks must know its secret, which goes with each description of a
tensor. So this serves groups on one machine; for others `connect` raises `NotSupported`.

A request is 4 bytes, the length of the rest, and JSON: the secret and a place. The reply is a byte (0 or 1), 8 bytes,
the length of the rest, and the elements in C order (0) or why there are none (1). Numbers are big-endian.
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
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..._tensor.core import Tensor
from ..._tensor.creation import empty
from ...dtypes import dtype_of
from ...errors import MessageDamaged, NotSupported, SegmentLost, ShmTensorError
from .places import Place, boot_id

LOOPBACK: Final = "127.0.0.1"
SILENCE_SECONDS: Final = 60.0
"""After which the other side counts as gone."""
_MAX_REQUEST: Final = 1 << 16
_MAX_REASON: Final = 1 << 16
_LENGTH: Final = struct.Struct("!I")
_REPLY: Final = struct.Struct("!BQ")


class Address(NamedTuple):
    """Where a process serves its tensors."""

    boot: str
    port: int
    secret: str


class Server:
    """Sends tensors of this process to whoever knows the secret. Its threads end with the process."""

    def __init__(self) -> None:
        """Listen. Does not block. Raises OSError: there is no loopback device, or no descriptor."""
        self._secret = secrets.token_hex(16)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = Address(boot_id(), self._listener.getsockname()[1], self._secret)
        self.pid = os.getpid()
        threading.Thread(target=self._listen, name="shmtensor-fetch", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:  # the program closed it
                return
            threading.Thread(target=self._serve, args=(connection,), name="shmtensor-fetch", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):  # the other side has gone
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
    """Return where this process serves its tensors; starts its server at first. Does not block. Raises OSError."""
    global _server
    with _starting:
        if _server is None or _server.pid != os.getpid():
            _server = Server()
        return _server.address


class Connection:
    """A connection to the process that has some tensors. Use it in `with`."""

    def __init__(self, address: Address) -> None:
        """Connect. Blocks for at most `SILENCE_SECONDS`.

        Raises:
            NotSupported: the address is on another machine.
            SegmentLost: the process has ended, or is in another network namespace.
        """
        if address.boot != boot_id():
            raise NotSupported(
                "a tensor of shmtensor is on another machine, to which this transport does not reach; return a value "
                "of Ray's own, such as tensor.numpy(), from a method without tensor_transport"
            )
        self._secret = address.secret
        try:
            self._socket = socket.create_connection((LOOPBACK, address.port), SILENCE_SECONDS)
        except OSError as problem:
            raise SegmentLost(
                f"the process with a tensor does not answer at port {address.port} of this machine: it has ended, or "
                f"is in another network namespace ({problem})"
            ) from None

    def fetch(self, place: Place) -> Tensor:
        """Return a copy of a tensor in shared memory of this process's group. Blocks while it is transferred.

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
        """Let a `fetch` of another thread fail. Does not block."""
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
