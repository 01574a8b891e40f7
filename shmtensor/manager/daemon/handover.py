"""Handover from a manager to its successor, without loss of memory.

The *keeper* is the process that has the role of manager before the handover. It keeps every descriptor until the
*successor* sends GOODBYE on the socket between them (the *line*). By then the successor has the lock, the listening
socket and the segments, which it reopens from the keeper's `/proc/<pid>/fd`. If the successor ends before that, or
takes too long, the keeper serves again.

    RESTART          the keeper is a forked child, the successor a fresh interpreter in the same process, by exec
    SIGTERM, STOP    the successor is a forked child in the background, which inherits all descriptors
    SUCCEED          the keeper is a manager in the background, the successor a `serve` at its address
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from time import monotonic

from shmtensor import _native
from shmtensor.errors import ManagerUnavailable, ShmTensorError
from shmtensor.manager import launch, protocol
from shmtensor.manager.daemon import notify, peers
from shmtensor.manager.daemon.memory import group_name, payload_name
from shmtensor.manager.lockfile import Life

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import Any

    from shmtensor.manager.daemon.journal import Past
    from shmtensor.manager.daemon.peers import Connection

SUCCESSOR_SECONDS = 10.0
"""A successor that does not serve within this time is killed, and the keeper serves again."""
MAX_SUCCESSORS = 3
"""Attempts to fork a successor when a manager ends."""
ASK_SECONDS = 1.0
"""Timeout of a request for the role of a manager in the background."""
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that ask a manager to end. They are blocked during a handover, until the next server has handlers."""
_SERVES = protocol.encode(protocol.Goodbye())
_PROGRAM = "import sys;sys.path+=sys.argv[2:];import shmtensor.manager.daemon.run as run;run.again(sys.argv[1])"
_REHEARSAL = "import sys;sys.path+=sys.argv[2:];import shmtensor.manager.daemon.run as run;run.rehearse(sys.argv[1])"


class Role:
    """The role of manager at an address: lock, listening socket and settings; everything but the group."""

    __slots__ = (
        *("address", "dead", "idle_exit", "is_left", "is_others", "is_own", "is_private", "is_restarted"),
        *("keeper", "kept", "killed", "line", "listener", "lock", "log", "made", "max_clients", "ready"),
    )

    def __init__(
        self,
        address: bytes,
        *,
        lock: int = -1,
        listener: socket.socket | None,
        is_own: bool,
        is_private: bool,
        idle_exit: float | None,
        max_clients: int | None,
        log: str | None,
        is_left: bool = False,
        keeper: int = 0,
        line: socket.socket | None = None,
    ) -> None:
        """Take over the descriptors.

        Args:
            address: path of the socket.
            lock: descriptor of the locked lock file; -1: not locked yet.
            listener: the listening socket; None: not created yet.
            is_own: the socket file was created by a manager, which removes it at the end.
            is_private: as for `run.serve`.
            idle_exit: as for `run.serve`.
            max_clients: as for `run.serve`.
            log: as for `run.serve`.
            is_left: this process continues in the background for a `serve` that has ended.
            keeper: pid of the process that keeps the previous manager's descriptors; 0: none.
            line: the socket to the keeper.
        """
        self.address = address
        self.lock = lock
        self.listener = listener
        self.is_own = is_own
        self.is_private = is_private
        self.idle_exit = idle_exit
        self.max_clients = max_clients
        self.log = log
        self.is_left = is_left
        self.keeper: int = keeper
        self.line = line
        self.killed: Life | None = None
        """The content of the lock file of a manager that did not end in order."""
        self.made: os.stat_result | None = None
        """Status of the socket file."""
        self.dead: Past | None = None
        """The journal of a group that has ended, to be removed."""
        self.kept: dict[str, list[int]] = {}
        """Descriptors of the previous process of this service, which its supervisor kept, by name."""
        self.is_restarted = False
        """Whether this process has executed a fresh interpreter; its supervisor has all descriptors then."""
        self.is_others: bool = line is not None
        """Whether another process has, or has taken, the role: then the files at the address are left alone."""
        self.ready: Callable[[], None] = lambda: None

    @property
    def keepers(self) -> list[int]:
        """The processes that have the previous manager's descriptors: its keeper, and this one if it got them."""
        return [self.keeper] * (self.keeper > 0) + [os.getpid()] * bool(self.kept)

    def kept_numbers(self, group: _native.Group | None) -> Container[int]:
        """Return the numbers of the group's segments whose descriptors the supervisor has.

        If another manager has led the group since the supervisor got them, they are released: segments that that
        manager did not find count as lost, and their holds may have been released.
        """
        if group is not None and self.is_restarted:
            return range(group.next_segment)
        if group is None or group_name(group.group_id, group.epoch) not in self.kept:
            self.release_kept(())
            return ()
        segments = payload_name(group.group_id, 0)[:-1]
        return {int(name.removeprefix(segments)) for name in self.kept if name.startswith(segments)}

    def release_kept(self, known: Container[str]) -> None:
        """Close the descriptors that the supervisor kept, and have it close those whose names are not known."""
        for name, descriptors in self.kept.items():
            if name not in known:
                notify.drop(name)
            for fd in descriptors:
                os.close(fd)
        self.kept = {}

    @property
    def life(self) -> Life:
        """The content that this process writes into the lock file."""
        return Life(os.getpid(), self.idle_exit, self.max_clients, self.address)

    def taken(self) -> None:
        """Report that this process serves now: to `ready`, the supervisor, and the keeper, which then ends."""
        ready, self.ready = self.ready, lambda: None
        ready()
        if not self.is_private:
            notify.ready(self.address)
        self.is_others = False
        line, self.line, self.keeper = self.line, None, 0
        if line is not None:
            try:
                line.send(_SERVES, socket.MSG_NOSIGNAL)
            except OSError:
                pass  # the keeper was killed, and is not needed any more
            line.close()

    def close(self) -> None:
        """Close the descriptors. The lock stays locked if another process has its descriptor too."""
        for sock in (self.listener, self.line):
            if sock is not None:
                sock.close()
        os.close(self.lock)


def stand_by(line: socket.socket, successor: int) -> bool:
    """Keep all descriptors until the successor serves. False: it ended before that, or was killed. Blocks.

    Args:
        line: the socket to the successor; closed.
        successor: a pidfd; -1: none available. Closed.
    """
    poll = select.poll()
    poll.register(line, select.POLLIN)
    try:
        if poll.poll(SUCCESSOR_SECONDS * 1000):
            return line.recv(protocol.MAX_REQUEST_BYTES, socket.MSG_DONTWAIT) == _SERVES
        if successor >= 0:
            signal.pidfd_send_signal(successor, signal.SIGKILL)
            poll.poll(SUCCESSOR_SECONDS * 1000)
        return False  # even if it sent GOODBYE meanwhile, because it is killed
    except OSError:
        return False
    finally:
        line.close()
        if successor >= 0:
            os.close(successor)


# ------------------------------------------------------------------------------------------------------- by a request


def ask(role: Role) -> bool:
    """Request the role of the manager in the background at that address. False: refused. Blocks up to a second."""
    from shmtensor.manager import connection

    line = None
    try:
        fd = connection.connect(role.address, ASK_SECONDS)
        line = socket.socket(fileno=fd)
        requests = connection.Requests(role.address)
        welcome, group = connection.hello(requests, fd, protocol.OBSERVER, ASK_SECONDS)
        os.close(group)
        reply, (lock, listener) = requests.request(fd, protocol.Succeed(), ASK_SECONDS)
    except ShmTensorError:
        if line is not None:
            line.close()
        return False
    assert isinstance(reply, protocol.Role)
    role.lock, role.keeper, role.line, role.is_others = lock, welcome.pid, line, True
    given, is_own = socket.socket(fileno=listener), bool(reply.flags & protocol.OWN)
    unused: socket.socket | None = given
    if role.listener is None or is_own:  # the socket file is that manager's, so clients would not find ours
        unused, role.listener, role.is_own = role.listener, given, is_own
    if unused is not None:
        unused.close()
    return True


def give(role: Role, asker: Connection, request_id: int) -> bool:
    """Pass the role to the connection that asked for it and wait until it serves. False: it does not. Blocks."""
    assert role.listener is not None
    data = protocol.encode(protocol.Role(protocol.OWN if role.is_own else 0), request_id)
    try:
        socket.send_fds(asker.sock, [data], [role.lock, role.listener.fileno()], socket.MSG_NOSIGNAL)
    except OSError:
        pass  # it has ended, which `stand_by` sees on the line
    return stand_by(asker.sock, peers.peer_pidfd(asker.sock, asker.pid))


# ----------------------------------------------------------------------------------------------------- by fork and exec


def _fork() -> tuple[int, socket.socket]:
    """Fork. Returns (child's pid, line) in the parent and (0, line) in the child. Raises OSError."""
    ours, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    try:
        child = os.fork()
    except OSError:
        ours.close()
        childs.close()
        raise
    (childs if child else ours).close()
    return child, ours if child else childs


def rehearse_restart() -> None:
    """Start a fresh interpreter as `restart` does, which checks that it could be the manager. Blocks until it ends.

    Raises:
        NotReady: it could not; this process must not be replaced by it.
    """
    launch.interpret(_REHEARSAL, [json.dumps(_versions())], monotonic() + SUCCESSOR_SECONDS)


def _versions() -> dict[str, int]:
    return {"protocol": protocol.PROTOCOL_VERSION, "layout": _native.LAYOUT_VERSION}


def check_versions(text: str) -> None:
    """Check that this version can continue a group of the versions in `text`. Raises ManagerUnavailable."""
    before, ours = json.loads(text), _versions()
    if before != ours:
        raise ManagerUnavailable(
            f"the running manager and its clients have protocol {before['protocol']} and layout {before['layout']}, "
            f"the installed version has protocol {ours['protocol']} and layout {ours['layout']}; end the clients "
            "before the restart"
        )


def restart(role: Role) -> bool:
    """Replace this process by a fresh interpreter, by exec, while a child is the keeper.

    A supervisor sees the same process. Call `rehearse_restart` before.

    Blocks in the child, and returns there whether the successor serves; if it does not, the child has to serve again.

    Raises:
        OSError: the system refuses; this process has to serve again.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the keeper
    child, line = _fork()
    if child:
        role.line, role.keeper = line, child
        _execute(role)
    return stand_by(line, peers.peer_pidfd(line, os.getppid()))


def leave(role: Role) -> bool:
    """Fork a successor. Blocks until it serves.

    Returns:
        True in the child. False in the parent; `role.is_others` is then False if no child could serve.

    Raises:
        OSError: fork failed.
    """
    for _ in range(MAX_SUCCESSORS):
        child, line = _fork()
        if not child:
            role.line, role.is_others = line, True
            return True
        role.is_others = stand_by(line, peers.open_pidfd(child))
        if role.is_others:
            break
    return False


def _execute(role: Role) -> None:
    """Execute a fresh interpreter that takes `role` over. Raises OSError: it cannot be executed."""
    assert role.listener is not None and role.line is not None
    descriptors = (role.lock, role.listener.fileno(), role.line.fileno())
    settings = {name: getattr(role, name) for name in _PASSED}
    settings["address"] = os.fsdecode(role.address)
    settings["descriptors"], settings["versions"] = descriptors, json.dumps(_versions())
    for fd in descriptors:
        os.set_inheritable(fd, True)
    try:
        os.execv(
            sys.executable, [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(settings), *launch.import_paths()]
        )
    finally:  # reached only if exec failed
        for fd in descriptors:
            os.set_inheritable(fd, False)


_PASSED = ("is_own", "is_private", "is_left", "idle_exit", "max_clients", "log", "keeper")


def executed(text: str) -> Role:
    """Return the role that `restart` passed on. Raises ManagerUnavailable: it came from another version."""
    settings: dict[str, Any] = json.loads(text)
    check_versions(settings.pop("versions"))
    lock, listener, line = settings.pop("descriptors")
    for fd in (lock, listener, line):
        os.set_inheritable(fd, False)
    address = os.fsencode(settings.pop("address"))
    listening = socket.socket(fileno=listener)
    role = Role(address, lock=lock, listener=listening, line=socket.socket(fileno=line), **settings)
    role.is_restarted = True
    return role
