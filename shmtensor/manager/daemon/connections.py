"""The daemon's open connections: accept them, reply, and end those that are silent. Never blocks."""

# contextlib costs time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import errno
import os
import resource
import select
import socket
from time import monotonic

from shmtensor.manager import protocol
from shmtensor.manager.daemon import peers
from shmtensor.manager.daemon.peers import Connection, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor.manager.daemon.state import State

STALL_SECONDS = 5.0
"""A client that does not read its replies for this long is disconnected."""
HELLO_SECONDS = 10.0
"""A connection without a HELLO for this long is closed."""
KEPT_DESCRIPTORS = 16
"""Descriptors kept free for the requests of existing clients; new connections are refused before that."""
MAX_PENDING = 1024
"""Maximum number of connections without a HELLO; beyond this, the oldest is closed."""
ACCEPTED_PER_TURN = 16
"""Maximum number of connections accepted before the clients are served."""
DESCRIPTOR_LIMITS = (errno.EMFILE, errno.ENFILE)
"""Error numbers of the system when there are no file descriptors left."""


def send_last(sock: socket.socket, message: protocol.Message, request_id: int) -> None:
    """Send a reply to a peer that is then disconnected. It is lost if the peer has ended or does not read."""
    try:
        sock.send(protocol.encode(message, request_id), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        pass


class Connections:
    """The manager's connections, registered in the server's `poll`. Slots and clients belong to the others."""

    def __init__(self, listener: socket.socket, poll: select.epoll, state: State, uid: int) -> None:
        self.listener: socket.socket = listener
        self._poll = poll
        self._state = state
        self._uid = uid
        self._open: dict[int, Connection] = {}  # by descriptor of the socket
        self._by_slot: dict[int, Connection] = {}
        self._pending: dict[int, Connection] = {}  # oldest first
        self._stalled: dict[int, Connection] = {}
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def get(self, fd: int) -> Connection | None:
        """Return the connection with that descriptor."""
        return self._open.get(fd)

    def of(self, slot: int) -> Connection | None:
        """Return the connection of the client in `slot`."""
        return self._by_slot.get(slot)

    def is_open(self, connection: Connection) -> bool:
        """Whether the connection has not been closed."""
        return self._open.get(connection.sock.fileno()) is connection

    @property
    def has_pending(self) -> bool:
        """Whether any connection has not said HELLO yet."""
        return bool(self._pending)

    def add(self, connection: Connection) -> None:
        """Read from a new connection."""
        fd = connection.sock.fileno()
        self._open[fd] = connection
        self._poll.register(fd, select.EPOLLIN)

    def introduced(self, connection: Connection) -> None:
        """Record that a connection has said HELLO or REJOIN."""
        self._pending.pop(connection.sock.fileno(), None)

    def assign(self, connection: Connection, slot: int) -> None:
        """Record that a connection is that of the client in `slot`."""
        self._by_slot[slot] = connection

    def forget(self, connection: Connection) -> None:
        """Close a connection; its client's slot is not changed."""
        fd = connection.sock.fileno()
        if fd < 0 or self._open.pop(fd, None) is None:
            return
        self._pending.pop(fd, None)
        self._stalled.pop(fd, None)
        self._poll.unregister(fd)
        connection.drop_waiting()
        connection.sock.close()
        if self._by_slot.get(connection.slot) is connection:
            del self._by_slot[connection.slot]

    def close(self, but: Connection | None) -> None:
        """Close all connections but one."""
        for connection in self._open.values():
            connection.drop_waiting()
            if connection is not but:
                connection.sock.close()
        self._open.clear()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    # ----------------------------------------------------------------------------------------------------- accepting

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from `listener` instead of the previous one, which is emptied and closed."""
        before, self.listener = self.listener, listener
        self._poll.register(listener.fileno(), select.EPOLLIN)
        if before is not listener:
            while self._accept(before):  # no new connections arrive there
                pass
            self._poll.unregister(before.fileno())
            before.close()

    def accept(self) -> None:
        """Accept connections that are waiting."""
        self._accept(self.listener)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept connections. False: none is waiting, or none can be accepted now."""
        for _ in range(ACCEPTED_PER_TURN):
            try:
                # Each time: systemd makes a socket blocking when it passes it to the next process of the service.
                listener.setblocking(False)
                sock, _from = listener.accept()
            except BlockingIOError:
                return False
            except OSError as problem:
                if problem.errno not in DESCRIPTOR_LIMITS:
                    return False
                if not self._drop_oldest_pending():
                    self._refuse_for_descriptors()
                return False
            pid, uid = peers.credentials(sock)
            refusal = self._refusal(sock, uid)
            if len(self._pending) >= MAX_PENDING:
                self._drop_oldest_pending()
            sock.setblocking(False)
            if refusal is not None:
                self._state.group.count_refused()
                send_last(sock, refusal, 0)
                sock.close()
                continue
            connection = Connection(sock, Kind.PENDING, pid)
            self.add(connection)
            self._pending[sock.fileno()] = connection
        return True

    def _refusal(self, sock: socket.socket, uid: int) -> protocol.Error | None:
        """Return why a new connection is refused; None: it is accepted. May close the oldest one without a HELLO."""
        if uid != self._uid:
            text = f"this manager belongs to uid {self._uid}, and the client has uid {uid}"
            return protocol.Error(protocol.DENIED, 0, text)
        if sock.fileno() + len(self._pending) >= self._descriptors - KEPT_DESCRIPTORS:
            # All lower numbers are in use, and each pending connection needs one more, for its pidfd.
            return protocol.Error(protocol.LIMIT, 0, self.descriptor_text())
        if len(self._open) >= 2 * self._state.max_clients + 64 and not self._drop_oldest_pending():
            return protocol.Error(protocol.LIMIT, 0, f"the limit of {len(self._open)} open connections is reached")
        return None

    def _drop_oldest_pending(self) -> bool:
        """Close the oldest connection without a HELLO to make room. False: there is none."""
        oldest = next(iter(self._pending.values()), None)
        if oldest is None:
            return False
        self._state.group.count_refused()
        self.forget(oldest)
        return True

    def _refuse_for_descriptors(self) -> None:
        """Out of descriptors: use the spare one to refuse the next connection, which would wait for ever."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            sock, _from = self.listener.accept()
            send_last(sock, protocol.Error(protocol.LIMIT, errno.EMFILE, self.descriptor_text()), 0)
            sock.close()
            self._state.group.count_refused()
        except OSError:
            pass
        finally:
            try:
                self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._spare = -1

    def descriptor_text(self) -> str:
        """Return the text of an ERROR for a manager without file descriptors."""
        segments, clients = len(self._state.segments), len(self._state.clients)
        return (
            f"the manager has no file descriptors left ({segments} segments, {clients} clients); raise the hard limit "
            f"of open files (ulimit -Hn) and restart it"
        )

    # ------------------------------------------------------------------------------------------------------- sending

    def reply(
        self,
        connection: Connection,
        message: protocol.Message,
        request_id: int,
        descriptors: tuple[int, ...] = (),
        ours: bool = False,
    ) -> None:
        """Send a reply, or queue it and stop reading from this client until it is sent. `ours`: close afterwards."""
        was_waiting = bool(connection.out)
        connection.send(protocol.encode(message, request_id), list(descriptors), ours)
        if connection.out and not was_waiting:
            fd = connection.sock.fileno()
            connection.stalled = monotonic()
            self._stalled[fd] = connection
            self._poll.modify(fd, select.EPOLLOUT)

    def send_more(self, connection: Connection) -> bool:
        """Send queued replies. False: the peer has ended."""
        try:
            connection.send_waiting()
        except OSError:
            return False
        if not connection.out:
            fd = connection.sock.fileno()
            self._stalled.pop(fd, None)
            self._poll.modify(fd, select.EPOLLIN)
        return True

    def unsent(self) -> list[Connection]:
        """Return the connections with queued replies."""
        return [connection for connection in self._open.values() if connection.out]

    # ------------------------------------------------------------------------------------------------------ deadlines

    def next_due(self, now: float) -> float | None:
        """Seconds until `close_silent` or `stalled` finds a connection; None: neither will find one."""
        waits = []
        if self._pending:
            waits.append(next(iter(self._pending.values())).since + HELLO_SECONDS - now)
        if self._stalled:
            waits.append(min(one.stalled for one in self._stalled.values()) + STALL_SECONDS - now)
        return min(waits) if waits else None

    def close_silent(self, now: float) -> None:
        """Close the connections that said no HELLO in time."""
        for connection in [one for one in self._pending.values() if now - one.since > HELLO_SECONDS]:
            self.forget(connection)

    def stalled(self, now: float) -> list[Connection]:
        """Return the connections whose peers have not read their replies in time."""
        return [one for one in self._stalled.values() if now - one.stalled > STALL_SECONDS]
