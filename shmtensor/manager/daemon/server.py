"""The daemon's event loop: one thread, one epoll, non-blocking sockets. `state` has its state.

`connections` accepts and replies, `handshake` ties connections to clients, `service` answers requests about memory.

Connection    one socket: of a client, of an observer, of an embryo before its HELLO, or pending (nothing said yet)
Death         shown by a readable pidfd, end of file or GOODBYE (docs/protocol.md, "Life of a client")
"""

from __future__ import annotations

import os
import select
import signal
import sys
from time import monotonic, time

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.address import journal_path, own_uid
from shmtensor.manager.daemon import handover, notify, peers, takeover
from shmtensor.manager.daemon.connections import DESCRIPTOR_LIMITS, Connections, send_last
from shmtensor.manager.daemon.handshake import Handshake
from shmtensor.manager.daemon.journal import Journal, Past
from shmtensor.manager.daemon.memory import Memory, group_name, payload_name, remove_shm
from shmtensor.manager.daemon.peers import Connection, Kind
from shmtensor.manager.daemon.records import Refusal
from shmtensor.manager.daemon.service import Service
from shmtensor.manager.daemon.state import SWEEP_SECONDS, State
from shmtensor.manager.daemon.watch import Watch
from shmtensor.manager.launch import NotReady

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Any

    from shmtensor.manager.daemon.custodian import Custodian
    from shmtensor.manager.daemon.guard import Guard

MAX_CLIENTS = 4096
BACK_SECONDS = 10.0
"""Clients of the previous manager have this long to reconnect with the segments in its last replies."""
FIRST_CLIENT_SECONDS = 5.0
"""A manager in the background waits this long for its first client (its starter may be slow or dead)."""
GUARD_SECONDS = 1.0
"""Interval between checks of the files at the address while there is traffic (without traffic: IDLE_SECONDS)."""
IDLE_SECONDS = 60.0
"""Longest wait of one turn of the loop."""
PACKETS_PER_TURN = 16
"""Packets read from one client before the others are served."""

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


class Server:
    """The manager at one address. Use it in a `with`, and call `run()` inside."""

    stopping: bool = False
    replaced: bool = False
    is_to_be_followed: bool = False
    """Set after an orderly end: another process has to continue with this manager's segments."""
    is_restarting: bool = False
    asker: Connection | None = None
    """The connection that asked to replace this manager."""
    request_id: int = 0
    """The id of that request, which is not answered yet."""
    _is_idle_end = False
    _custodian: Custodian | None = None
    _custody_at = 0.0
    _custody_problem = ""

    def __init__(
        self,
        address: bytes,
        guard: Guard,
        *,
        past: Past | None = None,
        group: _native.Group | None = None,
        before: Server | None = None,
        keepers: Iterable[int] = (),
        kept: Container[int] = (),
        is_private: bool = False,
        is_left: bool = False,
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
            keepers: pids of processes that have the previous manager's descriptors; may include this process.
            kept: numbers of the segments whose descriptors this service's supervisor has already.
            is_private: the manager runs in the background.
            is_left: it continues there for a `serve` that has ended.
            max_clients: further clients are refused.
            idle_exit: end this many seconds after the last client; None: never.
            log: where the daemon's stderr goes, reported by STATS.
        """
        uid = self._uid = own_uid()
        self.address = address
        self._guard = guard
        self.idle_exit = idle_exit
        self.is_private = is_private
        self.is_left = is_left
        self.log = log
        self.group: _native.Group = group or _native.Group.create(int.from_bytes(os.urandom(8), "little"))
        self.group_id: int = self.group.group_id
        if group is not None:
            takeover.end_predecessor(group)
        self.epoch: int = self.group.lead()
        self.past: Past = past if past is not None and group is not None else Past()
        self.past.group = self.group_id
        self._journal = Journal(journal_path(address), self.past, before is not None)
        self._guard_at = monotonic() + GUARD_SECONDS
        is_kept = not is_private and notify.is_supervised()
        if is_kept:
            notify.keep(group_name(self.group_id, self.epoch), [self.group.fd])
            notify.drop(group_name(self.group_id, self.epoch - 1))
        memory = Memory(self.group_id, self._journal, kept if is_kept else None)
        self.state: State = State(self.group, memory, max_clients)
        self._service = Service(self.state, memory, self._facts, self._search)
        self.started: float = time()
        self._started = monotonic()
        self._took_over = group is not None
        self._idle_since = self._started
        self._poll = select.epoll()
        self._connections = Connections(guard.listener, self._poll, self.state, uid)
        self._watch = Watch(self.state, self._poll, uid)
        self._clients = Handshake(self.state, self._connections, self._watch, self._welcome, self._adopt, uid)
        self._wake, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if group is not None:
            self._take_over(before, keepers)

    @property
    def kept_names(self) -> set[str]:
        """The names under which a supervisor keeps descriptors that this manager knows."""
        names = {payload_name(self.group_id, number) for number in self.state.segments}
        return {group_name(self.group_id, self.epoch), *names}

    # ---------------------------------------------------------------------------------------------------------- loop

    def stop(self, *_: object) -> None:
        """End after the current turn of the loop, also if a restart was asked for. The handler of END_SIGNALS."""
        self.is_restarting = False
        self.stopping = True

    def _look_soon(self, *_: object) -> None:
        """Check the files at the address in this turn of the loop: another process did not find them."""
        self._guard_at = 0.0

    def __enter__(self) -> Server:
        for number in handover.END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
                signal.signal(number, self.stop)
        signal.signal(signal.SIGURG, self._look_soon)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handover.END_SIGNALS)  # those that came during a handover
        self._connections.listen(self._guard.listener)
        self._poll.register(self._wake, _READ)
        if self._guard.changes >= 0:
            self._poll.register(self._guard.changes, _READ)
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and give up the group. Segments are kept until `close`."""
        signal.set_wakeup_fd(-1)
        self._connections.close(but=self.asker)
        self._watch.close()
        self._journal.close()
        self._guard.close()
        self.group.leave()
        self._poll.close()
        for fd in (self._wake, self._wake_write):
            os.close(fd)

    def close(self) -> None:
        """Release all segments, after the `with`. Clients keep what they have mapped."""
        self._end_custody()
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
                else:
                    self._read(connection)
            elif fd in self._watch:
                slot = self._watch.ended(fd)
                if slot is not None:
                    self._process_ended(slot)
            elif fd == self._wake:
                os.read(self._wake, 512)
            elif fd == self._connections.listener.fileno():
                self._connections.accept()
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
        due = self._connections.next_due(now)
        if due is not None:
            waits.append(due)
        if self.idle_exit is not None and self._is_idle():
            waits.append(self._leave_at() - now)
        return max(0.0, min(waits))

    def _is_idle(self) -> bool:
        return not self.state.clients and not self.state.embryos and not self._connections.has_pending

    def _leave_at(self) -> float:
        patience = self.idle_exit or 0.0
        return self._idle_since + (patience if self._watch.had_client else max(patience, FIRST_CLIENT_SECONDS))

    def _look_after(self) -> None:
        """Do the work that is due."""
        now = monotonic()
        self._watch.look(now)
        if now >= self._custody_at:
            self._custody_at = now + SWEEP_SECONDS
            self._keep_custody()
        if now >= self._guard_at:
            self._guard_at = now + GUARD_SECONDS
            self._keep_files()
        if not self.state.is_complete and (
            now - self._started > BACK_SECONDS or not any(one.detached for one in self.state.clients.values())
        ):
            self._complete()
        self._connections.close_silent(now)
        for connection in self._connections.stalled(now):
            self._note(f"slot {connection.slot} (pid {connection.pid}) does not read its replies: disconnected")
            self._clients.disconnect(connection)
        if self.idle_exit is not None:
            if self.state.clients or self.state.embryos:
                self._idle_since = now
            elif not self._connections.has_pending and now >= self._leave_at():  # observers do not keep it
                self._is_idle_end = self.stopping = True

    def _keep_files(self) -> None:
        """Recreate the files that clients and a successor need, if they were removed."""
        if not self.group.leads:
            return
        for note in self._guard.keep(self._journal):
            self._note(note)
        if self._guard.listener is not self._connections.listener:
            self._connections.listen(self._guard.listener)

    def _keep_custody(self) -> None:
        """Have a custodian with all segments if any object is kept by a name, and only then."""
        if not self.state.keeps_names:
            self._end_custody()
            return
        if self._custodian is None:
            from shmtensor.manager.daemon.custodian import Custodian

            self._custodian = Custodian(self.address)
        segments = self.state.segments
        descriptors = [fd for one in segments.values() for fd in one.descriptors]
        try:
            self._custodian.keep(frozenset(segments), [self.group.fd, *descriptors])
            self._custody_problem = ""
        except OSError as problem:
            text = f"objects kept by a name would not survive a kill of this manager: no custodian: {problem.strerror}"
            if text != self._custody_problem:
                self._note(text)
            self._custody_problem = text

    def _end_custody(self) -> None:
        if self._custodian is not None:
            self._custodian.end()
            self._custodian = None

    def _flush(self) -> None:
        for connection in self._connections.unsent():
            self._send_more(connection)

    def _note(self, text: str) -> None:
        print(f"shmtensor-manager[{os.getpid()}]: {text}", file=sys.stderr, flush=True)

    # --------------------------------------------------------------------------------------------------- taking over

    def _take_over(self, before: Server | None, keepers: Iterable[int]) -> None:
        """Continue the group of the previous manager, with the segments found in its keepers, clients and custodian.

        Clients that died meanwhile are marked dead.
        """
        clients = self.state.take_over()
        if before is not None:
            before.state.pass_on(self.state)
        others = takeover.processes(self._uid) if before is None else ()  # among them, the custodian
        self._adopt([*keepers, *(client.pid for client in clients), *others])
        for client in clients:
            self._watch.alone(client)
        self._look_after()  # starts a custodian if one is needed
        self.state.names.adopt(self.past.names)
        for ring in self.state.rings.values():
            ring.show()  # the client that had to update the event may have died as well
        if before is not None:
            before._end_custody()  # there is another custodian now
        self._note(
            f"took over {len(self.state.clients)} clients with {len(self.state.segments)} segments, as the group's "
            f"manager number {self.epoch}"
        )

    def _complete(self) -> None:
        """End the recovery: all clients have reconnected, or had time to. Segments that were not found are lost."""
        self.state.complete()
        mine = {segment.name for segment in self.state.segments.values()}
        for name in set(self.past.shm) - mine:
            remove_shm(name)
            self._journal.gone(name)

    def _adopt(self, pids: Iterable[int]) -> int:
        return takeover.adopt_segments(self.state, (pid for pid in pids if pid > 0), self.past.shm)

    def _search(self) -> bool:
        """Search all clients for segments again: the previous manager's last replies may have arrived late."""
        clients = list(self.state.clients.values())
        return bool(self._took_over and self._adopt(client.pid for client in clients))

    # ------------------------------------------------------------------------------------------------------- packets

    def _read(self, connection: Connection) -> None:
        for _ in range(PACKETS_PER_TURN):
            packet = peers.receive(connection.sock)
            if packet is None:
                return
            if not packet.data:
                packet.close()
                self._clients.disconnect(connection)
                return
            self._take(connection, packet)
            if not self._connections.is_open(connection) or connection.out or self.stopping:
                return

    def _process_ended(self, slot: int) -> None:
        connection = self._connections.of(slot)
        if connection is not None:
            # Children that it announced before it died may be alive: their sockets are still in its queue.
            while self._connections.is_open(connection):
                packet = peers.receive(connection.sock)
                if packet is None or not packet.data:
                    if packet is not None:
                        packet.close()
                    break
                self._take(connection, packet, only_embryos=True)
            self._connections.forget(connection)
        self._watch.client_ended(slot)
        self._custody_at = 0.0  # it may have been the only process with a new segment

    def _take(self, connection: Connection, packet: peers.Packet, only_embryos: bool = False) -> None:
        self.group.count_request()
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
                        self._clients.announce(connection, message, packet)
                    return
                self._dispatch(connection, message, request_id, packet)
            except protocol.Malformed as problem:
                self.group.count_refused()
                if not only_embryos:
                    error = protocol.Error(protocol.MALFORMED, 0, str(problem))
                    send_last(connection.sock, error, problem.request_id)
                    self._clients.disconnect(connection)
            except Refusal as problem:
                self.group.count_refused()
                self._connections.reply(
                    connection, protocol.Error(problem.code, problem.detail, str(problem)), request_id
                )
            except OSError as problem:
                self.group.count_refused()
                code, text = protocol.MEMORY, f"the system refused: {problem.strerror}"
                if problem.errno in DESCRIPTOR_LIMITS:
                    code, text = protocol.LIMIT, self._connections.descriptor_text()
                if request_id:  # messages of native code have no id and are never answered
                    self._connections.reply(connection, protocol.Error(code, problem.errno or 0, text), request_id)
            except Exception as problem:
                # A bug must not end the manager for all clients: report it to this client, log it, continue.
                import traceback

                self._note(f"a request of pid {connection.pid} failed")
                traceback.print_exc()
                if request_id:
                    text = f"internal error of the manager ({problem!r}); its log has the traceback"
                    self._connections.reply(connection, protocol.Error(protocol.INTERNAL, 0, text), request_id)
        finally:
            packet.close()

    def _dispatch(
        self, connection: Connection, message: protocol.Message, request_id: int, packet: peers.Packet
    ) -> None:
        if isinstance(message, protocol.Hello):
            self._clients.hello(connection, message, request_id, packet)
            return
        if isinstance(message, protocol.Rejoin):
            self._clients.rejoin(connection, message, request_id)
            return
        if connection.kind in (Kind.PENDING, Kind.EMBRYO):
            raise protocol.Malformed(f"{type(message).__name__} came before HELLO", request_id)
        if isinstance(message, protocol.Embryo):
            try:
                self._clients.announce(connection, message, packet)
            except Refusal as problem:  # EMBRYO is never answered: the child sees the end of its socket
                if not self.state.is_connected(message.slot, message.generation):  # the child connected first
                    self.group.count_refused()
                    self._note(f"slot {connection.slot} (pid {connection.pid}): {problem}")
            return
        if connection.kind == Kind.OBSERVER and not isinstance(message, _OBSERVER_MAY):
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
            answer = self._service.answer(connection.slot, connection.pid, message, packet.descriptors)
            self._connections.reply(connection, answer.reply, request_id, answer.descriptors, answer.ours)

    def _send_more(self, connection: Connection) -> None:
        if not self._connections.send_more(connection):
            self._clients.disconnect(connection)

    # ------------------------------------------------------------------------------------------------------ requests

    def _welcome(self, slot: int) -> protocol.Welcome:
        flags = protocol.PRIVATE if self.is_private else 0
        return protocol.Welcome(slot, os.getpid(), self.group_id, self.epoch, flags)

    def _facts(self) -> dict[str, Any]:
        """Return the fields of STATS that describe this process."""
        return {
            "address": os.fsdecode(self.address),
            "pid": os.getpid(),
            "group": f"{self.group_id:016x}",
            "epoch": self.epoch,
            "private": self.is_private,
            "left": self.is_left,
            "supervised": not self.is_private and notify.is_supervised(),
            "idle_exit": self.idle_exit,
            "started": self.started,
            "uptime_seconds": monotonic() - self._started,
            "log": self.log,
        }

    def _on_stop(self, connection: Connection, request_id: int) -> None:
        self._note(f"stopped by pid {connection.pid}")
        self._connections.reply(connection, protocol.Ok(), request_id)
        self.stopping = True

    def _on_restart(self, connection: Connection, request_id: int) -> None:
        try:
            handover.rehearse_restart()
        except NotReady as problem:
            raise Refusal(
                protocol.UNSUPPORTED, f"a new manager would not start: {problem}; pid {os.getpid()} continues"
            ) from None
        self._note(f"restarts at the request of pid {connection.pid}")
        self._connections.reply(connection, protocol.Ok(), request_id)
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
        if connection.kind == Kind.CLIENT:
            connection.kind = Kind.OBSERVER  # its end of file must not count as a death
            self._watch.client_ended(connection.slot)
            self._custody_at = 0.0
        self._connections.reply(connection, protocol.Ok(), request_id)
        self._connections.forget(connection)
