"""The client's socket to a manager: connecting, the handshake, requests and replies."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH116

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import struct
import threading
from time import monotonic, sleep

from shmtensor import errors
from shmtensor.manager import protocol
from shmtensor.manager.address import check_address, own_uid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

REQUEST_SECONDS = 30.0
"""A request without a reply for this long raises ManagerTimeout."""
SLICE_SECONDS = 0.1
"""Longest single wait, so that Python's signal handlers run even if another thread received the signal."""

_ERRORS: dict[int, type[errors.ShmTensorError]] = {
    protocol.MALFORMED: errors.ProtocolError,
    protocol.VERSION: errors.ProtocolError,
    protocol.DENIED: errors.ManagerError,
    protocol.LIMIT: errors.QuotaExceeded,
    protocol.MEMORY: errors.OutOfMemory,
    protocol.UNKNOWN: errors.UnknownHandle,
    protocol.STALE: errors.StaleHandle,
    protocol.INVALID: errors.InvalidArgument,
    protocol.UNSUPPORTED: errors.ManagerUnavailable,
    protocol.INTERNAL: errors.ManagerError,
    protocol.EXISTS: errors.NameTaken,
    protocol.PENDING: errors.SegmentLost,
}


class NothingThere(errors.ManagerUnavailable):
    """No manager runs at the address: no socket, a stale socket, or the manager ended while we connected."""


class ConnectionGone(errors.ManagerError):
    """The connection broke: the manager ended or disconnected us, or this process closed the descriptor."""


def _over(fd: int) -> socket.socket:
    """Return a socket object over `fd` for one call; `detach()` it afterwards, since the caller owns the descriptor."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd)


def _identity(fd: int) -> tuple[int, int, int] | None:
    """Identify the file behind a descriptor, as (fd, device, inode); None if it is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return fd, found.st_dev, found.st_ino


def _close_all(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def connect(address: bytes | str, timeout: float = REQUEST_SECONDS) -> int:
    """Connect to the manager at `address`, without a HELLO. Blocks up to `timeout` seconds.

    Returns:
        The descriptor of the socket, close-on-exec.

    Raises:
        NothingThere: there is no socket, or no process listens on it.
        ManagerUnavailable: the path is not a socket, belongs to another user, or cannot be reached.
        ManagerTimeout: the manager did not accept the connection.
    """
    path = check_address(address)
    shown = os.fsdecode(path)
    _check_socket(path, shown)
    deadline = monotonic() + timeout
    while True:
        try:
            return _connect_now(path, shown)
        except BlockingIOError:
            if monotonic() > deadline:
                raise errors.ManagerTimeout(
                    f"the manager at {shown} accepted no connection within {timeout:g} s; it may be stopped"
                ) from None
        sleep(0.002)


def _check_socket(path: bytes, shown: str) -> None:
    """Check that there is a socket of this user. Raises NothingThere, ManagerUnavailable."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NothingThere(
            f"no manager runs at {shown}: the socket does not exist; "
            "start one with `shmtensor-manager serve`, or check the address"
        ) from None
    except OSError as problem:
        raise errors.ManagerUnavailable(
            f"cannot read the manager address {shown}: {problem.strerror}; "
            "see that this user may read the directories of the path"
        ) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise errors.ManagerUnavailable(
            f"the manager address {shown} is not a socket; give the path of a manager's socket"
        )
    own = own_uid()
    if found.st_uid != own:
        raise errors.ManagerUnavailable(
            f"the manager at {shown} belongs to uid {found.st_uid}, and this process has uid {own}; each user needs "
            "their own manager"
        )


def _connect_now(path: bytes, shown: str) -> int:
    """Connect without waiting; returns the socket's descriptor. Raises BlockingIOError: too many others are waiting.

    Raises:
        NothingThere, ManagerUnavailable: as `connect`.
    """
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as problem:
        raise errors.ManagerUnavailable(f"cannot connect to the manager at {shown}: {problem.strerror}") from None
    with sock:  # does not close what was detached
        try:
            sock.setblocking(False)
            sock.connect(path)
            uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            sock.setblocking(True)
        except BlockingIOError:
            raise
        except OSError as problem:
            if problem.errno in (errno.ECONNREFUSED, errno.ENOENT, errno.ECONNRESET):
                raise NothingThere(
                    f"no manager runs at {shown}: the socket is stale, no process listens on it; "
                    "start one with `shmtensor-manager serve`"
                ) from None
            if problem.errno == errno.EPROTOTYPE:
                raise errors.ManagerUnavailable(
                    f"the socket {shown} is not a manager's: it has another type; give the path of a manager's socket"
                ) from None
            raise errors.ManagerUnavailable(f"cannot connect to the manager at {shown}: {problem.strerror}") from None
        own = own_uid()
        if uid != own:
            raise errors.ManagerUnavailable(
                f"the process that listens at {shown} belongs to uid {uid}, and this process has uid {own}; "
                "use another address: each user needs their own manager"
            )
        return sock.detach()


class Bounded:
    """Acquire a lock in a `with`, waiting until a deadline. Signals are handled meanwhile."""

    def __init__(self, lock: Any, deadline: float, address: bytes) -> None:
        """Wait for `lock` until `deadline` (monotonic clock, seconds); `address` is for the error message."""
        self._lock = lock
        self._deadline = deadline
        self._address = address

    def __enter__(self) -> None:
        """Acquire the lock. Raises ManagerTimeout."""
        begun = monotonic()
        while not self._lock.acquire(timeout=max(0.0, min(SLICE_SECONDS, self._deadline - monotonic()))):
            if monotonic() > self._deadline:
                raise errors.ManagerTimeout(
                    f"another thread of this process has waited {monotonic() - begun:.3g} s for an answer of the "
                    f"manager at {os.fsdecode(self._address)}; the manager may be stopped or the machine overloaded"
                )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Requests:
    """Requests to one manager. The descriptor is passed to each call, because a fork may replace it.

    Thread-safe, and safe to re-enter from a signal handler or finalizer: replies are matched by their ids.

    Attributes:
        is_current: called while a reply is awaited; False ends the wait, because the manager has been replaced.
    """

    def __init__(
        self, address: bytes, late: Callable[[protocol.Message, protocol.Message, list[int]], bool] | None = None
    ):
        """Prepare requests to the manager at `address`.

        Args:
            address: absolute path of the manager's socket.
            late: called with (request, reply, descriptors) for a reply that `request` does not return, because the
                request was given up or (then without descriptors) this process had no descriptors left. Returns True
                if it took the descriptors over.
        """
        self.address = address
        self.is_current: Callable[[], bool] = lambda: True
        self._late = late
        self.renew()

    def renew(self, fd: int = -1) -> None:
        """Forget all pending requests; in a forked child, whose connection is `fd`, they belong to the parent."""
        self.lock: threading.RLock = threading.RLock()
        self.depth: int = 0  # pending requests, nested by signal handlers
        self.abandoned: int = -1  # a descriptor to close when the outermost request ends
        self._id = 0
        self._open: dict[int, protocol.Message] = {}  # sent and not yet answered
        self._given_up: set[int] = set()
        self._replies: dict[int, tuple[protocol.Message, list[int]]] = {}
        # Identity of the connection; None: not connected yet. A closed connection is never taken for another file.
        self._known = None if fd < 0 else _identity(fd) or (fd, -1, -1)

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth and self.abandoned >= 0:
            fd, self.abandoned = self.abandoned, -1
            self.close(fd)

    @property
    def _shown(self) -> str:
        return os.fsdecode(self.address)

    def request(
        self, fd: int, message: protocol.Message, timeout: float = REQUEST_SECONDS
    ) -> tuple[protocol.Message, list[int]]:
        """Send a request as `ask` does. Raises the exception of an ERROR reply (table in docs/protocol.md)."""
        reply, descriptors = self.ask(fd, message, timeout)
        if isinstance(reply, protocol.Error):
            raise error_of(reply, self._shown)
        return reply, descriptors

    def ask(
        self, fd: int, message: protocol.Message, timeout: float = REQUEST_SECONDS, passed: int = -1
    ) -> tuple[protocol.Message, list[int]]:
        """Send `message` and wait for its reply, up to `timeout` seconds; signals are handled meanwhile.

        The descriptor `passed` goes along, if it is not -1.

        Returns:
            (reply, descriptors); the caller must close the descriptors. The reply may be an ERROR.

        Raises:
            ManagerTimeout: no reply within `timeout`.
            InvalidArgument: a field is out of range, or a name is malformed.
            ManagerError: the connection is closed.
            QuotaExceeded: this process has no file descriptors left for those of the reply.
        """
        deadline = monotonic() + timeout
        with Bounded(self.lock, deadline, self.address), self:
            self._check(fd)
            self._id = number = self._id % 0xFFFFFFFF + 1
            try:
                data = protocol.encode(message, number)
            except protocol.Malformed as problem:
                raise errors.InvalidArgument(str(problem)) from None
            self._open[number] = message
            try:
                self._send(fd, data, message, deadline, timeout, passed)
                self._receive_reply(number, fd, message, deadline, timeout)
            except BaseException:
                if number in self._replies:
                    self._drop(self._open.pop(number), *self._replies.pop(number))
                else:
                    self._given_up.add(number)
                raise
            del self._open[number]
            reply, descriptors = self._replies.pop(number)
        if len(descriptors) != reply.DESCRIPTORS:
            self._drop(message, reply, descriptors)
            raise errors.QuotaExceeded(
                f"this process has no file descriptors left for the manager's reply to {type(message).__name__} "
                f"({reply.DESCRIPTORS} needed; manager at {self._shown}); close files, or raise the limit of open "
                "files (ulimit -n)"
            )
        return reply, descriptors

    def _too_slow(self, message: protocol.Message, timeout: float) -> errors.ManagerTimeout:
        return errors.ManagerTimeout(
            f"the manager at {self._shown} did not answer {type(message).__name__} within {timeout:.3g} s; it may be "
            "stopped, or the machine overloaded"
        )

    def _lost(self, why: str) -> ConnectionGone:
        return ConnectionGone(
            f"lost the connection to the manager at {self._shown} ({why}); memory that is already mapped keeps working"
        )

    def _check(self, fd: int) -> None:
        """Refuse to use a descriptor that is not our socket any more; some programs close all descriptors."""
        if fd < 0:
            raise self._lost("this process closed it, or could not open one when it was forked")
        if self._known is None or self._known[0] != fd:
            self._known = _identity(fd)
        if not self.owns(fd):
            raise self._lost("this process closed its descriptor")

    def owns(self, fd: int) -> bool:
        """Whether the descriptor is still that of our connection. Does not block."""
        return self._known is not None and self._known == _identity(fd)

    def close(self, fd: int) -> None:
        """Close the connection, unless its descriptor has been reused for another file."""
        if self._known is None or self.owns(fd):
            os.close(fd)

    def _wait(self, fd: int, event: int, message: protocol.Message, deadline: float, timeout: float) -> None:
        left = deadline - monotonic()
        if left <= 0:
            raise self._too_slow(message, timeout)
        poll = select.poll()
        poll.register(fd, event)
        # Data that was sent before is still readable.
        if not poll.poll(max(1, min(left, SLICE_SECONDS) * 1000)) and not self.is_current():
            raise self._lost("another manager has replaced it")
        self._check(fd)

    def _send(
        self, fd: int, data: bytes, message: protocol.Message, deadline: float, timeout: float, passed: int
    ) -> None:
        sock = _over(fd)
        beside = [] if passed < 0 else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", passed))]
        try:
            while True:
                try:
                    sock.sendmsg([data], beside, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                    return
                except BlockingIOError:
                    self._wait(fd, select.POLLOUT, message, deadline, timeout)
                except ConnectionError:
                    return  # disconnected; an ERROR with the reason may still be readable
                except OSError as problem:
                    raise self._lost(problem.strerror or str(problem)) from None
        finally:
            sock.detach()

    def _receive_reply(self, number: int, fd: int, message: protocol.Message, deadline: float, timeout: float) -> None:
        """Receive until the reply of this number is there.

        This is a separate function because of CPython 3.12 and 3.13: if a `while` is the last statement of a `try` or
        `with`, an interrupt at its jump back is not caught there.
        """
        while number not in self._replies:
            self._receive(fd, message, deadline, timeout)

    def _receive(self, fd: int, message: protocol.Message, deadline: float, timeout: float) -> None:
        self._wait(fd, select.POLLIN, message, deadline, timeout)
        received = receive(fd)
        if received is None:
            return
        data, descriptors, lost = received
        if not data:
            _close_all(descriptors)
            raise self._lost("the manager ended or closed the connection")
        try:
            number, reply = protocol.decode_reply(data)
            expected = reply.DESCRIPTORS
            if lost and len(descriptors) < expected:
                _close_all(descriptors)
                descriptors = []
            elif len(descriptors) != expected:
                raise protocol.Malformed(
                    f"{type(reply).__name__} came with {len(descriptors)} descriptors instead of {expected}"
                )
        except protocol.Malformed as problem:
            _close_all(descriptors)
            raise errors.ProtocolError(
                f"the process that listens at {self._shown} does not speak the manager's protocol: {problem}"
            ) from None
        if number in self._given_up:
            self._given_up.discard(number)
            self._drop(self._open.pop(number), reply, descriptors)
        elif number in self._open:
            self._replies[number] = (reply, descriptors)
        elif number == 0 and isinstance(reply, protocol.Error):
            _close_all(descriptors)
            raise error_of(reply, self._shown)
        else:
            _close_all(descriptors)

    def _drop(self, request: protocol.Message, reply: protocol.Message, descriptors: list[int]) -> None:
        if self._late is None or not self._late(request, reply, descriptors):
            _close_all(descriptors)


def receive(fd: int) -> tuple[bytes, list[int], bool] | None:
    """Receive one packet. Returns None if none is waiting; never blocks.

    Returns:
        (data, descriptors, lost): data is b"" at end of file; lost is True if descriptors were dropped because this
        process cannot have more, or too many were sent.
    """
    sock = _over(fd)
    room, flags = socket.CMSG_SPACE(16 * 4), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    try:
        try:
            data, ancillary, found, _from = sock.recvmsg(protocol.MAX_REPLY_BYTES + 1, room, flags)
        except ConnectionResetError:
            # Reported once if the manager closed the socket with unread requests; its earlier replies can still be
            # read.
            data, ancillary, found, _from = sock.recvmsg(protocol.MAX_REPLY_BYTES + 1, room, flags)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b"", [], False
    finally:
        sock.detach()
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            count = len(content) // 4
            descriptors.extend(struct.unpack(f"{count}i", content[: count * 4]))
    return data, descriptors, bool(found & socket.MSG_CTRUNC)


def hello(
    requests: Requests, fd: int, flags: int = 0, timeout: float = REQUEST_SECONDS
) -> tuple[protocol.Welcome, int]:
    """Send HELLO on a fresh connection. Blocks up to `timeout` seconds.

    Returns:
        (the welcome, the group segment's descriptor).

    Raises:
        NothingThere: the manager ended meanwhile.
        ProtocolError: it has another protocol or layout version, or is not a manager.
        QuotaExceeded: it has reached its maximum number of clients.
    """
    from shmtensor._native import LAYOUT_VERSION

    return _introduce(requests, fd, protocol.Hello(protocol.PROTOCOL_VERSION, LAYOUT_VERSION, flags), timeout)


def rejoin(
    requests: Requests, fd: int, slot: int, generation: int, group: int, timeout: float = REQUEST_SECONDS
) -> tuple[protocol.Welcome, int]:
    """Send REJOIN on a fresh connection, as the client in that slot. Blocks up to `timeout` seconds.

    Returns:
        (the welcome, the group segment's descriptor).

    Raises:
        ShmTensorError: as `hello`.
    """
    from shmtensor._native import LAYOUT_VERSION

    message = protocol.Rejoin(protocol.PROTOCOL_VERSION, LAYOUT_VERSION, slot, generation, group)
    return _introduce(requests, fd, message, timeout)


def _introduce(requests: Requests, fd: int, message: protocol.Message, timeout: float) -> tuple[protocol.Welcome, int]:
    try:
        reply, descriptors = requests.request(fd, message, timeout)
    except ConnectionGone:
        raise NothingThere(f"the manager at {os.fsdecode(requests.address)} ended before it answered") from None
    if not isinstance(reply, protocol.Welcome):
        _close_all(descriptors)
        raise errors.ProtocolError(
            f"the manager at {os.fsdecode(requests.address)} answered {type(message).__name__} with "
            f"{type(reply).__name__}"
        )
    return reply, descriptors[0]


def error_of(reply: protocol.Error, shown: str) -> errors.ShmTensorError:
    """Return the exception for an ERROR reply."""
    cls = _ERRORS.get(reply.code, errors.ManagerError)
    problem = cls(f"the manager at {shown} refused: {reply.text}")
    if reply.code == protocol.MALFORMED:
        problem = cls(f"the manager at {shown} could not decode a request of this process: {reply.text}")
    return problem


def read_document(reply: protocol.Message, descriptors: list[int]) -> bytes:
    """Return the text of a DOCUMENT and close its descriptors. Raises ProtocolError if its size is wrong."""
    try:
        if not isinstance(reply, protocol.Document) or os.fstat(descriptors[0]).st_size != reply.nbytes:
            raise errors.ProtocolError("the manager sent a document whose size differs from the one announced")
        parts = []
        at = 0
        while at < reply.nbytes:
            part = os.pread(descriptors[0], min(reply.nbytes - at, 1 << 24), at)
            if not part:
                raise errors.ProtocolError("the manager's document ended early")
            parts.append(part)
            at += len(part)
        return b"".join(parts)
    finally:
        _close_all(descriptors)


class Observer:
    """A connection without a slot, for reports, gc and stop. Close it, or use it in a `with`."""

    def __init__(self, address: bytes | str, timeout: float = REQUEST_SECONDS) -> None:
        """Connect and send HELLO. Blocks up to `timeout` seconds, as each request does then.

        Raises as `connect` and `hello` do.
        """
        self.address: bytes = check_address(address)
        self._timeout = timeout
        self._requests = Requests(self.address)
        self._fd = connect(self.address, timeout)
        try:
            welcome, group = hello(self._requests, self._fd, protocol.OBSERVER, timeout)
        except BaseException:
            self.close()
            raise
        self.welcome: protocol.Welcome = welcome
        os.close(group)

    def request(self, message: protocol.Message) -> tuple[protocol.Message, list[int]]:
        """Send a request and return its reply and descriptors. Raises as `Requests.request`."""
        return self._requests.request(self._fd, message, self._timeout)

    def document(self, message: protocol.Message) -> bytes:
        """Send a request whose reply is a DOCUMENT and return its text. Raises as `Requests.request`."""
        return read_document(*self.request(message))

    def wait_closed(self, timeout: float = REQUEST_SECONDS) -> None:
        """Wait until the manager has closed the connection, up to `timeout` seconds. Raises ManagerTimeout."""
        deadline = monotonic() + timeout
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            if poll.poll(SLICE_SECONDS * 1000):
                received = receive(self._fd)
                if received is not None:
                    _close_all(received[1])
                    if not received[0]:
                        return
            if monotonic() > deadline:
                raise errors.ManagerTimeout(
                    f"the manager at {os.fsdecode(self.address)} did not end within {timeout:g} s; "
                    "replace it: `shmtensor-manager restart`"
                )

    def close(self) -> None:
        """Close the connection."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._requests.close(fd)

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
