"""The processes behind the manager's sockets: packets, credentials, pidfds, whether they still map the memory."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH123

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from enum import Enum
from time import monotonic

from shmtensor import _native
from shmtensor.manager.protocol import MAX_REQUEST_BYTES

SO_PEERPIDFD = 77  # Linux 6.5; works across PID namespaces, where pidfd_open does not
SO_PASSPIDFD = 76
SCM_PIDFD = 4
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_ANCILLARY_BYTES = socket.CMSG_SPACE(8 * 4) + socket.CMSG_SPACE(12) + socket.CMSG_SPACE(4)


class Kind(Enum):
    """The peer of a connection."""

    PENDING = "not known before HELLO"
    EMBRYO = "an embryo's before its HELLO"
    CLIENT = "a client's"
    OBSERVER = "an observer's"


class Connection:
    """One socket of the manager and the process behind it. Sending never blocks: packets wait in `out` if need be."""

    __slots__ = ("generation", "kind", "out", "pid", "since", "slot", "sock", "stalled")

    def __init__(self, sock: socket.socket, kind: Kind, pid: int) -> None:
        self.sock: socket.socket = sock
        self.kind: Kind = kind
        self.pid: int = pid
        self.slot: int = 0
        self.generation: int = 0  # of the slot, for an embryo
        self.since: float = monotonic()
        self.stalled: float = 0.0  # time at which a reply could first not be sent
        self.out: deque[tuple[bytes, list[int]]] = deque()  # packets, with duplicates of their descriptors

    def send(self, data: bytes, descriptors: list[int], ours: bool) -> None:
        """Send or queue a packet. `ours`: close the descriptors afterwards. Raises OSError (EMFILE)."""
        if not self.out and self.sock.fileno() >= 0:
            try:
                self._send(data, descriptors)
            except BlockingIOError:
                # A queued packet has duplicates: the segment may be destroyed before the packet is sent.
                self.out.append((data, descriptors if ours else [os.dup(fd) for fd in descriptors]))
                return
            except OSError:
                pass  # the peer has ended; end of file follows
        elif self.out:
            self.out.append((data, descriptors if ours else [os.dup(fd) for fd in descriptors]))
            return
        if ours:
            _close_all(descriptors)

    def _send(self, data: bytes, descriptors: list[int]) -> None:
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        if descriptors:
            socket.send_fds(self.sock, [data], descriptors, flags)
        else:
            self.sock.send(data, flags)

    def send_waiting(self) -> None:
        """Send queued packets until one would block. Raises OSError: the peer has ended."""
        while self.out:
            data, descriptors = self.out[0]
            try:
                self._send(data, descriptors)
            except BlockingIOError:
                return
            _close_all(descriptors)
            self.out.popleft()

    def drop_waiting(self) -> None:
        """Drop queued packets and close their descriptors."""
        while self.out:
            _close_all(self.out.popleft()[1])


def _close_all(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


class Packet:
    """A received packet with its ancillary data. The receiver must close it."""

    __slots__ = ("credentials", "data", "descriptors", "pidfd", "truncated")

    def __init__(self, data: bytes) -> None:
        self.data: bytes = data
        self.descriptors: list[int] = []
        self.credentials: tuple[int, int] | None = None  # pid, uid
        self.pidfd: int = -1
        self.truncated: bool = False

    def close(self) -> None:
        """Close the descriptors that were not taken over."""
        _close_all(self.descriptors)
        self.descriptors.clear()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def receive(sock: socket.socket) -> Packet | None:
    """Receive a packet; its data is b"" at end of file. None: none is waiting. Never blocks."""
    try:
        data, ancillary, flags, _from = sock.recvmsg(
            MAX_REQUEST_BYTES + 1, _ANCILLARY_BYTES, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        )
    except BlockingIOError:
        return None
    except OSError:  # ECONNRESET: the peer closed with replies unread
        return Packet(b"")
    packet = Packet(data)
    for level, kind, content in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            count = len(content) // 4
            packet.descriptors.extend(struct.unpack(f"{count}i", content[: count * 4]))
        elif kind == socket.SCM_CREDENTIALS and len(content) == _CREDENTIALS.size:
            pid, uid, _gid = _CREDENTIALS.unpack(content)
            packet.credentials = (pid, uid)
        elif kind == SCM_PIDFD and len(content) >= 4:
            (pidfd,) = struct.unpack_from("i", content)
            if packet.pidfd < 0:
                packet.pidfd = pidfd
    packet.truncated = bool(flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC))
    return packet


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Return (pid, uid) of the process that connected."""
    pid, uid, _gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def peer_pidfd(sock: socket.socket, pid: int) -> int:
    """Return a pidfd of the process that connected; -1 if it has ended or is in a foreign namespace."""
    try:
        fd = sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:
        return open_pidfd(pid)
    os.set_inheritable(fd, False)
    return fd


def open_pidfd(pid: int) -> int:
    """Return a pidfd of `pid`; -1 if it has ended or is not visible."""
    if pid <= 0:
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def start_time(pid: int) -> int:
    """Return the start of a process in clock ticks since boot; 0 if it is not visible."""
    try:
        return _native.process_start_time(pid) if pid > 0 else 0
    except (OSError, ValueError):
        return 0


def is_foreign(pid: int) -> bool:
    """Whether the process may be in another PID namespace, where its threads have other ids."""
    return _namespaces("self") != 1 or pid <= 0 or _namespaces(str(pid)) != 1


def _namespaces(process: str) -> int:
    # Depth of PID namespaces from that of /proc to the process's own; the link /proc/<pid>/ns/pid may be unreadable.
    try:
        with open(f"/proc/{process}/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return len(line.split()) - 1
    except OSError:
        pass
    return 0


def has_ended(pidfd: int) -> bool:
    """Whether the process behind the pidfd has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def still_maps(pid: int, started: int, inode: int) -> bool:
    """Whether the process is alive and maps the memfd with this inode. `started`: its start time; 0: unknown.

    A process that closed all descriptors (as daemons do) has no connection but still uses its memory; one that called
    exec does not. Also True if it is alive but its maps cannot be read: its pidfd will show its end.
    """
    if pid <= 0:
        return False
    wanted = b"%d" % inode
    try:
        if started and _native.process_start_time(pid) != started:
            return False
        with open(f"/proc/{pid}/maps", "rb") as file:
            for line in file:
                # address perms offset device inode path
                fields = line.split(None, 5)
                if len(fields) > 5 and fields[4] == wanted and fields[5].startswith(b"/memfd:"):
                    return True
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True
    return False
