"""Connections become clients, and clients lose connections: HELLO, REJOIN, EMBRYO, and the end of a connection."""

# contextlib costs time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import os
import socket

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.daemon import peers
from shmtensor.manager.daemon.connections import Connections, send_last
from shmtensor.manager.daemon.peers import Connection, Kind
from shmtensor.manager.daemon.records import Refusal
from shmtensor.manager.daemon.state import State
from shmtensor.manager.daemon.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _who(pid: int) -> tuple[int, int, bool]:
    """Return what the slot table records about a process: pid, start time, whether it is in another namespace."""
    return pid, peers.start_time(pid), peers.is_foreign(pid)


class Handshake:
    """Gives slots to the processes behind connections, and takes them back when the connections end. Never blocks."""

    def __init__(
        self,
        state: State,
        connections: Connections,
        watch: Watch,
        welcome: Callable[[int], protocol.Welcome],
        adopt: Callable[[Iterable[int]], int],
        uid: int,
    ) -> None:
        """Serve clients of these connections.

        Args:
            state: the manager's state.
            connections: the manager's connections.
            watch: detects the ends of clients.
            welcome: returns the WELCOME for a slot.
            adopt: searches for segments of the previous manager in the processes with these pids.
            uid: the user whose processes may be clients.
        """
        self._state = state
        self._connections = connections
        self._watch = watch
        self._welcome = welcome
        self._adopt = adopt
        self._uid = uid

    def hello(self, connection: Connection, message: protocol.Hello, request_id: int, packet: peers.Packet) -> None:
        """Turn a new connection, or an embryo's, into that of a client or an observer."""
        quiet = bool(message.flags & protocol.QUIET)
        if connection.kind in (Kind.CLIENT, Kind.OBSERVER):
            raise protocol.Malformed("HELLO came twice", request_id)
        try:
            self._check_versions(message)
            if connection.kind == Kind.EMBRYO:
                self._embryo_hello(connection, message, request_id, packet)
            elif message.flags & protocol.OBSERVER:
                connection.kind = Kind.OBSERVER
            else:
                pid = connection.pid
                slot = self._state.add_client(*_who(pid))
                self._serve(connection, slot, peers.peer_pidfd(connection.sock, pid))
        except Refusal as problem:
            self._state.group.count_refused()
            if not quiet:
                error = protocol.Error(problem.code, problem.detail, str(problem))
                send_last(connection.sock, error, request_id)
            self.disconnect(connection)
            return
        self._connections.introduced(connection)
        if not quiet:
            self._welcome_client(connection, request_id)

    def _welcome_client(self, connection: Connection, request_id: int) -> None:
        self._connections.reply(connection, self._welcome(connection.slot), request_id, (self._state.group.fd,))

    def rejoin(self, connection: Connection, message: protocol.Rejoin, request_id: int) -> None:
        """Turn a new connection into that of a client of the previous manager."""
        if connection.kind != Kind.PENDING:
            raise protocol.Malformed("REJOIN came after HELLO", request_id)
        try:
            self._check_versions(message)
            self._rejoin(connection, message)
        except Refusal as problem:
            self._state.group.count_refused()
            send_last(connection.sock, protocol.Error(problem.code, problem.detail, str(problem)), request_id)
            self.disconnect(connection)
            return
        self._connections.introduced(connection)
        self._welcome_client(connection, request_id)

    def _rejoin(self, connection: Connection, message: protocol.Rejoin) -> None:
        """Give the process behind a new connection its slot back. Raises Refusal."""
        slot = message.slot
        if message.group != self._state.group.group_id:
            raise Refusal(
                protocol.DENIED,
                "the manager now serves another group; the group of this process has ended; restart the program",
            )
        client = self._state.rejoin(slot, message.generation)
        if client is not None and client.pid and connection.pid and client.pid != connection.pid:
            raise Refusal(protocol.DENIED, f"slot {slot} belongs to pid {client.pid}, not to pid {connection.pid}")
        self._state.identify(slot, message.generation, *_who(connection.pid))
        before = self._connections.of(slot)
        if before is not None:
            before.kind = Kind.OBSERVER  # its end of file must not count as a death
            self._connections.forget(before)
        self._serve(connection, slot, peers.peer_pidfd(connection.sock, connection.pid))
        self._adopt([connection.pid])  # segments in late replies of the previous manager

    def _check_versions(self, message: protocol.Hello | protocol.Rejoin) -> None:
        if message.protocol != protocol.PROTOCOL_VERSION:
            raise Refusal(
                protocol.VERSION,
                f"the manager speaks protocol {protocol.PROTOCOL_VERSION} and this process {message.protocol}; use the "
                "same version of shmtensor in all processes, or another manager",
                protocol.PROTOCOL_VERSION,
            )
        if message.layout != _native.LAYOUT_VERSION:
            raise Refusal(
                protocol.VERSION,
                f"the manager uses memory layout {_native.LAYOUT_VERSION} and this process {message.layout}; use the "
                "same version of shmtensor in all processes, or another manager",
                protocol.PROTOCOL_VERSION,
            )

    def _embryo_hello(
        self, connection: Connection, message: protocol.Hello, request_id: int, packet: peers.Packet
    ) -> None:
        if message.flags & protocol.OBSERVER:
            raise protocol.Malformed("an embryo cannot be an observer", request_id)
        if packet.credentials is None:
            raise protocol.Malformed("an embryo's HELLO came without credentials: SO_PASSCRED was not set", request_id)
        pid, uid = packet.credentials
        if uid != self._uid:
            raise Refusal(protocol.DENIED, f"this manager belongs to uid {self._uid}, and the child has uid {uid}")
        connection.pid = pid
        self._state.identify(connection.slot, connection.generation, *_who(pid))
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        try:
            connection.sock.setsockopt(socket.SOL_SOCKET, peers.SO_PASSPIDFD, 0)
        except OSError:
            pass
        pidfd, packet.pidfd = packet.pidfd, -1
        self._serve(connection, connection.slot, pidfd if pidfd >= 0 else peers.open_pidfd(pid))

    def announce(self, connection: Connection, message: protocol.Embryo, packet: peers.Packet) -> None:
        """Take over the socket of a child that a client is starting. Raises Refusal."""
        self._state.add_embryo(message.slot, message.generation, connection.slot)
        fd = packet.descriptors.pop()
        try:
            sock = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)
            self._watch.embryo_gone(message.slot, message.generation)
            return
        embryo = Connection(sock, Kind.EMBRYO, 0)
        embryo.slot, embryo.generation = message.slot, message.generation
        if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_SEQPACKET:
            sock.close()
            self._watch.embryo_gone(message.slot, message.generation)
            return
        sock.setblocking(False)
        self._connections.add(embryo)

    def _serve(self, connection: Connection, slot: int, pidfd: int) -> None:
        """Turn `connection` into that of the client in `slot`."""
        connection.slot, connection.kind = slot, Kind.CLIENT
        self._connections.assign(connection, slot)
        self._watch.connected(slot, pidfd)

    def disconnect(self, connection: Connection) -> None:
        """Close a connection that ended or misbehaved. Its client stays, detached, if it still uses memory."""
        slot, kind = connection.slot, connection.kind
        self._connections.forget(connection)
        if kind == Kind.EMBRYO:
            self._watch.embryo_gone(slot, connection.generation)
        elif kind == Kind.CLIENT:
            self._watch.disconnected(slot)
