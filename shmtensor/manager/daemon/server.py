"""The daemon's event loop: one thread, one epoll, non-blocking sockets. `state` holds what it knows.

Connection    one socket: of a client, of an observer, of an embryo before its HELLO, or pending (nothing said yet)
Death         shown by a readable pidfd, end of file or GOODBYE (docs/protocol.md, "Life of a client")
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import sys
from time import monotonic, time

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.address import journal_path, own_uid
from shmtensor.manager.daemon import peers, takeover
from shmtensor.manager.daemon.journal import Journal, Past
from shmtensor.manager.daemon.memory import Memory, unlink_shm
from shmtensor.manager.daemon.peers import CLIENT, EMBRYO, OBSERVER, PENDING, Connection
from shmtensor.manager.daemon.service import Service
from shmtensor.manager.daemon.state import Refusal, State
from shmtensor.manager.daemon.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from shmtensor.manager.daemon.guard import Guard

MAX_CLIENTS = 4096
STALL_SECONDS = 5.0
"""A client that does not read its replies for this long is disconnected."""
HELLO_SECONDS = 10.0
"""A connection without a HELLO for this long is closed."""
BACK_SECONDS = 10.0
"""Clients of the previous manager have this long to reconnect with what it sent them last."""
FIRST_CLIENT_SECONDS = 5.0
"""A manager in the background waits this long for its first client (its starter may be slow or dead)."""
KEPT_DESCRIPTORS = 16
"""Descriptors kept free for the requests of existing clients; new connections are refused before that."""
MAX_PENDING = 1024
"""Connections without a HELLO; beyond this, the oldest is closed."""
GUARD_SECONDS = 1.0
"""Interval between checks of the files at the address while there is traffic (without traffic: IDLE_SECONDS)."""
IDLE_SECONDS = 60.0
"""Longest wait of one turn of the loop."""
PACKETS_PER_TURN = 16
"""Packets read from one client before the others are served."""

_LIMITS = (errno.EMFILE, errno.ENFILE)
_READ = select.EPOLLIN
_OBSERVER_MAY = (
    protocol.List,
    protocol.Stats,
    protocol.Collect,
    protocol.Stop,
    protocol.Restart,
    protocol.Succeed,
    protocol.Lookup,
    protocol.Goodbye,
)


def _who(pid: int) -> tuple[int, int, bool]:
    """Return what the slot table records about a process: pid, start time, whether it is in another namespace."""
    return pid, peers.start_time(pid), peers.is_foreign(pid)


class Server:
    """The manager at one address. Use it in a `with`, and call `run()` inside."""

    def __init__(
        self,
        address: bytes,
        guard: Guard,
        *,
        past: Past | None = None,
        group: _native.Group | None = None,
        before: Server | None = None,
        keeper: int = 0,
        is_private: bool = False,
        max_clients: int = MAX_CLIENTS,
        idle_exit: float | None = None,
        log: str = "",
    ) -> None:
        """Create the group, or take one over. Raises OSError: no memory for it.

        Args:
            address: path of the socket.
            guard: keeps the files at the address, and has the listening socket.
            past: the previous manager's journal.
            group: the previous manager's group; None: create one.
            before: the previous manager, if it ran in this process; its segments are taken over directly.
            keeper: pid of the process that has the previous manager's descriptors; 0: none is known.
            is_private: the manager was started on demand and runs in the background.
            max_clients: further clients are refused.
            idle_exit: end this many seconds after the last client; None: never.
            log: where the daemon's stderr goes, reported by STATS.
        """
        self._uid = own_uid()
        self.address = address
        self.listener = guard.listener
        self._guard = guard
        self.idle_exit = idle_exit
        self.is_private = is_private
        self.log = log
        self.group = group or _native.Group.create(int.from_bytes(os.urandom(8), "little"))
        self.group_id = self.group.group_id
        if group is not None:
            takeover.end_predecessor(group)
        self.epoch = self.group.lead()
        self.past = past if past is not None and group is not None else Past()
        self.past.group = self.group_id
        self._journal = Journal(journal_path(address), self.past, before is not None)
        self._guard_at = monotonic() + GUARD_SECONDS
        memory = Memory(self.group_id, self._journal)
        self.state = State(self.group, memory, max_clients)
        self._service = Service(self.state, memory, self._facts, self._search)
        self.started = time()
        self._started = monotonic()
        self.requests = 0
        self.refused = 0
        self.stopping = False
        self.replaced = False
        self.is_to_be_followed = False
        """Set after an orderly end: another process is to continue with this manager's segments."""
        self.is_restarting = False
        self.asker: Connection | None = None
        """The connection that asked to replace this manager."""
        self.request_id = 0
        """The id of that request, which is not answered yet."""
        self._is_idle_end = False
        self._connections: dict[int, Connection] = {}  # by descriptor of the socket
        self._by_slot: dict[int, Connection] = {}
        self._took_over = group is not None
        self._pending: dict[int, Connection] = {}
        self._stalled: dict[int, Connection] = {}
        self._idle_since = self._started
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.epoll()
        self._watch = Watch(self.state, self._poll, self._uid)
        self._wake, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if group is not None:
            self._take_over(before, keeper)

    # ---------------------------------------------------------------------------------------------------------- loop

    def stop(self, *_: object) -> None:
        """End after the current turn of the loop. May be called from a signal handler."""
        self.stopping = True

    def _look_soon(self, *_: object) -> None:
        """Check the files at the address in this turn of the loop: another process did not find them."""
        self._guard_at = 0.0

    def __enter__(self) -> Server:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                signal.signal(number, self.stop)
        signal.signal(signal.SIGURG, self._look_soon)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.listener.setblocking(False)
        self._poll.register(self.listener.fileno(), _READ)
        self._poll.register(self._wake, _READ)
        if self._guard.changes >= 0:
            self._poll.register(self._guard.changes, _READ)
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and give up the group. Segments are kept until `close`."""
        signal.set_wakeup_fd(-1)
        for connection in self._connections.values():
            connection.drop_waiting()
            if connection is not self.asker:
                connection.sock.close()
        self._connections.clear()
        self._watch.close()
        self._journal.close()
        self._guard.close()
        self.group.leave()
        self._poll.close()
        for fd in (self._spare, self._wake, self._wake_write):
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        """Release all segments, after the `with`. Clients keep what they have mapped."""
        self.state.release_all()

    @property
    def needs_successor(self) -> bool:
        """Whether clients or live blocks remain for another manager to serve."""
        if self._is_idle_end or self.state.clients or self.state.embryos:
            return not self._is_idle_end
        return any(segment.figures()[0] for segment in self.state.segments.values())

    def run(self) -> None:
        """Serve until stopped, idle or replaced."""
        try:
            self._keep_files()  # from now on, changes are reported by inotify
            while not self.stopping:
                self._turn()
        except PermissionError:
            if self.group.leads:
                raise
        self.replaced = not self.group.leads
        if self.replaced:
            self._note("has been replaced by another manager")
        else:
            self._flush()
            self._keep_files()
            self.is_to_be_followed = self.is_restarting or self.asker is not None or self.needs_successor

    def _turn(self) -> None:
        found = self._poll.poll(self._next_wait(), 64)
        if not self.group.leads:  # this process was stopped, and another manager replaced it meanwhile
            self.stopping = True
            return
        for fd, events in found:
            connection = self._connections.get(fd)
            if connection is not None:
                if events & select.EPOLLOUT:
                    self._send_more(connection)
                elif self._connections.get(fd) is connection:
                    self._read(connection)
            elif fd in self._watch:
                slot = self._watch.ended(fd)
                if slot is not None:
                    self._process_ended(slot)
            elif fd == self._wake:
                os.read(self._wake, 512)
            elif fd == self.listener.fileno():
                self._accept(self.listener)
            elif fd == self._guard.changes:
                os.read(fd, 65536)
                self._look_soon()
        self.state.work()
        self._look_after()

    def _next_wait(self) -> float:
        now = monotonic()
        waits = [IDLE_SECONDS]
        work = self.state.next_work(now)
        if work is not None:
            waits.append(work)
        look = self._watch.next_look(now)
        if look is not None:
            waits.append(look)
        if self._guard.is_hindered:
            waits.append(self._guard_at - now)
        if not self.state.is_complete:
            waits.append(self._started + BACK_SECONDS - now)
        if self._pending:
            waits.append(next(iter(self._pending.values())).since + HELLO_SECONDS - now)  # the oldest comes first
        if self._stalled:
            waits.append(min(one.stalled for one in self._stalled.values()) + STALL_SECONDS - now)
        if self.idle_exit is not None and self._is_idle():
            waits.append(self._leave_at() - now)
        return max(0.0, min(waits))

    def _is_idle(self) -> bool:
        return not self.state.clients and not self.state.embryos and not self._pending

    def _leave_at(self) -> float:
        patience = self.idle_exit or 0.0
        return self._idle_since + (patience if self._watch.had_client else max(patience, FIRST_CLIENT_SECONDS))

    def _look_after(self) -> None:
        """Do what is due by the clock."""
        now = monotonic()
        self._watch.look(now)
        if now >= self._guard_at:
            self._guard_at = now + GUARD_SECONDS
            self._keep_files()
        if not self.state.is_complete and (
            now - self._started > BACK_SECONDS or not any(one.detached for one in self.state.clients.values())
        ):
            self._complete()
        if self._pending:
            for connection in [one for one in self._pending.values() if now - one.since > HELLO_SECONDS]:
                self._disconnect(connection)
        if self._stalled:
            for connection in [one for one in self._stalled.values() if now - one.stalled > STALL_SECONDS]:
                self._note(f"slot {connection.slot} (pid {connection.pid}) does not read its replies: disconnected")
                self._disconnect(connection)
        if self.idle_exit is not None:
            if self.state.clients or self.state.embryos:
                self._idle_since = now
            elif not self._pending and now >= self._leave_at():  # observers do not keep it
                self._is_idle_end = self.stopping = True

    def _keep_files(self) -> None:
        """Put back the files that clients and a successor need: somebody may have cleared the directory."""
        if not self.group.leads:
            return
        for note in self._guard.keep(self._journal):
            self._note(note)
        if self._guard.listener is not self.listener:
            before, self.listener = self.listener, self._guard.listener
            self.listener.setblocking(False)
            self._poll.register(self.listener.fileno(), _READ)
            while self._accept(before):  # no new connections arrive there
                pass
            self._poll.unregister(before.fileno())
            before.close()

    def _flush(self) -> None:
        for connection in list(self._connections.values()):
            if connection.out:
                self._send_more(connection)

    def _note(self, text: str) -> None:
        print(f"shmtensor-manager[{os.getpid()}]: {text}", file=sys.stderr, flush=True)

    # --------------------------------------------------------------------------------------------------- connections

    def _accept(self, listener: socket.socket) -> bool:
        """Accept connections. False: none is waiting, or none can be accepted now."""
        for _ in range(PACKETS_PER_TURN):
            try:
                sock, _from = listener.accept()
            except BlockingIOError:
                return False
            except OSError as problem:
                if problem.errno not in _LIMITS:
                    return False
                if not self._drop_oldest_pending():
                    self._refuse_for_descriptors()
                return False
            pid, uid = peers.credentials(sock)
            refusal = None
            if uid != self._uid:
                refusal = (protocol.DENIED, f"this manager belongs to uid {self._uid}, and the client has uid {uid}")
            elif sock.fileno() + len(self._pending) >= self._descriptors - KEPT_DESCRIPTORS:
                # All lower numbers are in use, and each pending connection needs one more, for its pidfd.
                refusal = (protocol.LIMIT, self._descriptor_text())
            elif len(self._connections) >= 2 * self.state.max_clients + 64 and not self._drop_oldest_pending():
                refusal = (protocol.LIMIT, f"the limit of {len(self._connections)} open connections is reached")
            if len(self._pending) >= MAX_PENDING:
                self._drop_oldest_pending()
            connection = Connection(sock, PENDING, pid)
            sock.setblocking(False)
            if refusal is not None:
                self.refused += 1
                self._send_last(sock, protocol.Error(refusal[0], 0, refusal[1]), 0)
                sock.close()
                continue
            self._add(connection)
            self._pending[sock.fileno()] = connection
        return True

    def _drop_oldest_pending(self) -> bool:
        """Close the oldest connection without a HELLO to make room. False: there is none."""
        oldest = next(iter(self._pending.values()), None)
        if oldest is None:
            return False
        self.refused += 1
        self._disconnect(oldest)
        return True

    def _refuse_for_descriptors(self) -> None:
        """Out of descriptors: use the spare one to refuse the next connection, which would wait for ever."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            sock, _from = self.listener.accept()
            self._send_last(sock, protocol.Error(protocol.LIMIT, errno.EMFILE, self._descriptor_text()), 0)
            sock.close()
            self.refused += 1
        except OSError:
            pass
        finally:
            try:
                self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._spare = -1

    def _descriptor_text(self) -> str:
        return (
            f"the manager has no file descriptors left ({len(self.state.segments)} segments, {len(self.state.clients)} "
            f"clients); raise the hard limit of open files (ulimit -Hn) and restart it"
        )

    def _send_last(self, sock: socket.socket, message: protocol.Message, request_id: int) -> None:
        try:
            sock.send(protocol.encode(message, request_id), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            pass

    def _add(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        self._connections[fd] = connection
        self._poll.register(fd, _READ)

    def _forget(self, connection: Connection) -> None:
        """Close a connection; its client's slot is not changed."""
        fd = connection.sock.fileno()
        if fd < 0 or self._connections.pop(fd, None) is None:
            return
        self._pending.pop(fd, None)
        self._stalled.pop(fd, None)
        self._poll.unregister(fd)
        connection.drop_waiting()
        connection.sock.close()
        if self._by_slot.get(connection.slot) is connection:
            del self._by_slot[connection.slot]

    def _disconnect(self, connection: Connection) -> None:
        """Close a connection that ended or misbehaved. Its client stays, detached, if it still uses memory."""
        slot, kind = connection.slot, connection.kind
        self._forget(connection)
        if kind == EMBRYO:
            self._watch.embryo_gone(slot, connection.generation)
        elif kind == CLIENT:
            self._watch.disconnected(slot)

    def _process_ended(self, slot: int) -> None:
        connection = self._by_slot.get(slot)
        if connection is not None:
            # Children that it announced before it died may be alive: their sockets are still in its queue.
            while self._connections.get(connection.sock.fileno()) is connection:
                packet = peers.receive(connection.sock)
                if packet is None or not packet.data:
                    if packet is not None:
                        packet.close()
                    break
                self._take(connection, packet, only_embryos=True)
            self._forget(connection)
        self._watch.client_ended(slot)

    def _serve(self, connection: Connection, slot: int, pidfd: int) -> None:
        """Make `connection` that of the client in `slot`."""
        connection.slot, connection.kind = slot, CLIENT
        self._by_slot[slot] = connection
        self._watch.connected(slot, pidfd)

    # --------------------------------------------------------------------------------------------------- taking over

    def _take_over(self, before: Server | None, keeper: int) -> None:
        """Continue the group of the previous manager, with the segments found in its keeper and its clients.

        Clients that died meanwhile are marked dead.
        """
        clients = self.state.take_over()
        if before is not None:
            before.state.pass_on(self.state)
        self._adopt([keeper, *(client.pid for client in clients)])
        for client in clients:
            self._watch.alone(client)
        self._look_after()
        self.state.adopt_names(self.past.names)
        for ring in self.state.rings.values():
            ring.show()  # the client that was to update the event may have died, too
        self._note(
            f"took over {len(self.state.clients)} clients with {len(self.state.segments)} segments, as the group's "
            f"manager number {self.epoch}"
        )

    def _complete(self) -> None:
        """End the recovery: all clients have reconnected, or had the time to. What was not found is lost."""
        self.state.complete()
        mine = {segment.name for segment in self.state.segments.values()}
        for name in set(self.past.shm) - mine:
            unlink_shm(name)
            self._journal.gone(name)

    def _adopt(self, pids: Iterable[int]) -> int:
        return takeover.adopt_segments(self.state, (pid for pid in pids if pid > 0), self.past.shm)

    def _search(self) -> bool:
        """Look for segments in all clients again: the previous manager's last replies may have arrived late."""
        clients = list(self.state.clients.values())
        return bool(self._took_over and self._adopt(client.pid for client in clients))

    # ------------------------------------------------------------------------------------------------------- packets

    def _read(self, connection: Connection) -> None:
        fd = connection.sock.fileno()
        for _ in range(PACKETS_PER_TURN):
            packet = peers.receive(connection.sock)
            if packet is None:
                return
            if not packet.data:
                packet.close()
                self._disconnect(connection)
                return
            self._take(connection, packet)
            if self._connections.get(fd) is not connection or connection.out or self.stopping:
                return

    def _take(self, connection: Connection, packet: peers.Packet, only_embryos: bool = False) -> None:
        self.requests += 1
        request_id = 0
        try:
            try:
                request_id, message = protocol.decode_request(packet.data)
                if packet.truncated:
                    raise protocol.Malformed("the packet or its descriptors were truncated", request_id)
                if len(packet.descriptors) != message.DESCRIPTORS:
                    raise protocol.Malformed(
                        f"{type(message).__name__} came with {len(packet.descriptors)} descriptors instead of "
                        f"{message.DESCRIPTORS}",
                        request_id,
                    )
                if only_embryos:
                    if isinstance(message, protocol.Embryo):
                        self._on_embryo(connection, message, packet)
                    return
                self._dispatch(connection, message, request_id, packet)
            except protocol.Malformed as problem:
                self.refused += 1
                if not only_embryos:
                    self._send_last(
                        connection.sock, protocol.Error(protocol.MALFORMED, 0, str(problem)), problem.request_id
                    )
                    self._disconnect(connection)
            except Refusal as problem:
                self.refused += 1
                self._reply(connection, protocol.Error(problem.code, problem.detail, str(problem)), request_id)
            except OSError as problem:
                self.refused += 1
                code, text = protocol.MEMORY, f"the system refused: {problem.strerror}"
                if problem.errno in _LIMITS:
                    code, text = protocol.LIMIT, self._descriptor_text()
                if request_id:  # messages of native code have no id and are never answered
                    self._reply(connection, protocol.Error(code, problem.errno or 0, text), request_id)
            except Exception as problem:
                # A bug must not end the manager for all clients: report it to this client, log it, continue.
                import traceback

                self._note(f"a request of pid {connection.pid} failed")
                traceback.print_exc()
                if request_id:
                    text = f"internal error of the manager ({problem!r}); its log has the traceback"
                    self._reply(connection, protocol.Error(protocol.INTERNAL, 0, text), request_id)
        finally:
            packet.close()

    def _dispatch(
        self, connection: Connection, message: protocol.Message, request_id: int, packet: peers.Packet
    ) -> None:
        if isinstance(message, protocol.Hello):
            self._on_hello(connection, message, request_id, packet)
            return
        if isinstance(message, protocol.Rejoin):
            self._on_rejoin(connection, message, request_id)
            return
        if connection.kind in (PENDING, EMBRYO):
            raise protocol.Malformed(f"{type(message).__name__} came before HELLO", request_id)
        if isinstance(message, protocol.Embryo):
            try:
                self._on_embryo(connection, message, packet)
            except Refusal as problem:  # EMBRYO is never answered: the child sees the end of its socket
                if not self.state.is_connected(message.slot, message.generation):  # the child may have been faster
                    self.refused += 1
                    self._note(f"slot {connection.slot} (pid {connection.pid}): {problem}")
            return
        if connection.kind == OBSERVER and not isinstance(message, _OBSERVER_MAY):
            raise Refusal(protocol.DENIED, f"observers have no slot and cannot send {type(message).__name__}")
        if isinstance(message, protocol.Stop):
            self._on_stop(connection, request_id)
        elif isinstance(message, protocol.Restart):
            self._on_restart(connection, request_id)
        elif isinstance(message, protocol.Succeed):
            self._on_succeed(connection, request_id)
        elif isinstance(message, protocol.Goodbye):
            self._on_goodbye(connection, request_id)
        else:
            answer = self._service.answer(connection.slot, connection.pid, message)
            self._reply(connection, answer.reply, request_id, answer.descriptors, answer.ours)

    def _reply(
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

    def _send_more(self, connection: Connection) -> None:
        try:
            connection.send_waiting()
        except OSError:
            self._disconnect(connection)
            return
        if not connection.out:
            fd = connection.sock.fileno()
            self._stalled.pop(fd, None)
            self._poll.modify(fd, _READ)

    # ------------------------------------------------------------------------------------------------------ requests

    def _on_hello(self, connection: Connection, message: protocol.Hello, request_id: int, packet: peers.Packet) -> None:
        quiet = bool(message.flags & protocol.QUIET)
        if connection.kind in (CLIENT, OBSERVER):
            raise protocol.Malformed("HELLO came twice", request_id)
        try:
            self._check_versions(message)
            if connection.kind == EMBRYO:
                self._embryo_hello(connection, message, request_id, packet)
            elif message.flags & protocol.OBSERVER:
                connection.kind = OBSERVER
            else:
                pid = connection.pid
                slot = self.state.add_client(*_who(pid))
                self._serve(connection, slot, peers.peer_pidfd(connection.sock, pid))
        except Refusal as problem:
            self.refused += 1
            if not quiet:
                error = protocol.Error(problem.code, problem.detail, str(problem))
                self._send_last(connection.sock, error, request_id)
            self._disconnect(connection)
            return
        self._pending.pop(connection.sock.fileno(), None)
        if not quiet:
            self._welcome(connection, request_id)

    def _welcome(self, connection: Connection, request_id: int) -> None:
        flags = protocol.PRIVATE if self.is_private else 0
        welcome = protocol.Welcome(connection.slot, os.getpid(), self.group_id, self.epoch, flags)
        self._reply(connection, welcome, request_id, (self.group.fd,))

    def _on_rejoin(self, connection: Connection, message: protocol.Rejoin, request_id: int) -> None:
        if connection.kind != PENDING:
            raise protocol.Malformed("REJOIN came after HELLO", request_id)
        try:
            self._check_versions(message)
            self._rejoin(connection, message)
        except Refusal as problem:
            self.refused += 1
            self._send_last(connection.sock, protocol.Error(problem.code, problem.detail, str(problem)), request_id)
            self._disconnect(connection)
            return
        self._pending.pop(connection.sock.fileno(), None)
        self._welcome(connection, request_id)

    def _rejoin(self, connection: Connection, message: protocol.Rejoin) -> None:
        """Give the process behind a new connection its slot back. Raises Refusal."""
        slot = message.slot
        if message.group != self.group_id:
            raise Refusal(
                protocol.DENIED,
                "the manager now serves another group; the group of this process has ended; restart the program",
            )
        client = self.state.rejoin(slot, message.generation)
        if client is not None and client.pid and connection.pid and client.pid != connection.pid:
            raise Refusal(protocol.DENIED, f"slot {slot} belongs to pid {client.pid}, not to pid {connection.pid}")
        self.state.identify(slot, message.generation, *_who(connection.pid))
        before = self._by_slot.get(slot)
        if before is not None:
            before.kind = OBSERVER  # its end of file must not count as a death
            self._forget(before)
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
        self.state.identify(connection.slot, connection.generation, *_who(pid))
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        try:
            connection.sock.setsockopt(socket.SOL_SOCKET, peers.SO_PASSPIDFD, 0)
        except OSError:
            pass
        pidfd, packet.pidfd = packet.pidfd, -1
        self._serve(connection, connection.slot, pidfd if pidfd >= 0 else peers.open_pidfd(pid))

    def _on_embryo(self, connection: Connection, message: protocol.Embryo, packet: peers.Packet) -> None:
        self.state.add_embryo(message.slot, message.generation, connection.slot)
        fd = packet.descriptors.pop()
        try:
            sock = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)
            self._watch.embryo_gone(message.slot, message.generation)
            return
        embryo = Connection(sock, EMBRYO, 0)
        embryo.slot, embryo.generation = message.slot, message.generation
        if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_SEQPACKET:
            sock.close()
            self._watch.embryo_gone(message.slot, message.generation)
            return
        sock.setblocking(False)
        self._add(embryo)

    def _facts(self) -> dict[str, Any]:
        """Return the fields of STATS that describe this process."""
        return {
            "address": os.fsdecode(self.address),
            "pid": os.getpid(),
            "group": f"{self.group_id:016x}",
            "epoch": self.epoch,
            "private": self.is_private,
            "idle_exit": self.idle_exit,
            "started": self.started,
            "uptime_seconds": monotonic() - self._started,
            "log": self.log,
            "requests": self.requests,
            "refused": self.refused,
        }

    def _on_stop(self, connection: Connection, request_id: int) -> None:
        self._note(f"stopped by pid {connection.pid}")
        self._reply(connection, protocol.Ok(), request_id)
        self.stopping = True

    def _on_restart(self, connection: Connection, request_id: int) -> None:
        if not os.access(sys.executable or "", os.X_OK):
            raise Refusal(
                protocol.UNSUPPORTED, f"the manager's interpreter {sys.executable!r} cannot be executed any more"
            )
        self._note(f"restarts at the request of pid {connection.pid}")
        self._reply(connection, protocol.Ok(), request_id)
        self.is_restarting = self.stopping = True

    def _on_succeed(self, connection: Connection, request_id: int) -> None:
        if not self.is_private:
            raise Refusal(
                protocol.DENIED,
                f"the manager (pid {os.getpid()}) was started by `serve` and is not replaced on request",
            )
        self._note(f"is replaced by pid {connection.pid}")
        self.asker, self.request_id, self.stopping = connection, request_id, True

    def _on_goodbye(self, connection: Connection, request_id: int) -> None:
        if connection.kind == CLIENT:
            connection.kind = OBSERVER  # its end of file must not count as a death
            self._watch.client_ended(connection.slot)
        self._reply(connection, protocol.Ok(), request_id)
        self._forget(connection)
