"""A manager gives its place to the next one, and nothing is lost on the way.

The *keeper* has served so far. It goes on holding every descriptor until the *heir* says GOODBYE, on the line between
them: then the heir has taken the lock, the socket and the segments, the latter from the keeper's `/proc/<pid>/fd`. An
heir that ends before it says so, or takes too long, is no heir: the keeper serves again.

    RESTART          the keeper is a forked child, the heir a fresh interpreter in the process itself, by exec
    SIGTERM, STOP    the heir is a forked child, in the background, which has all descriptors itself
    SUCCEED          the keeper is a manager in the background, the heir a `serve` at its address
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

from shmtensor.errors import ManagerUnavailable, ShmTensorError
from shmtensor.manager import protocol
from shmtensor.manager.daemon import peers
from shmtensor.manager.launch import import_paths
from shmtensor.manager.lockfile import Life

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmtensor.manager.daemon.journal import Past
    from shmtensor.manager.daemon.peers import Connection

HEIR_SECONDS = 10.0
"""An heir that does not serve within this time is killed, and the keeper serves again."""
HEIRS = 3
"""A manager that ends tries so often to leave a child in its place."""
ASK_SECONDS = 1.0
"""A manager in the background gives its place to another within this time, or not now."""
_SERVES = protocol.encode(protocol.Goodbye())
_PROGRAM = "import sys;sys.path+=sys.argv[2:];import shmtensor.manager.daemon.run as run;run.again(sys.argv[1])"


class Seat:
    """What a process needs in order to be the manager at an address, beside the group itself."""

    __slots__ = (
        *("address", "dead", "idle_exit", "is_others", "is_own", "is_private", "keeper", "line", "listener", "lock"),
        *("log", "made", "max_clients", "ready"),
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
        keeper: int = 0,
        line: socket.socket | None = None,
    ) -> None:
        """Take the descriptors over.

        Args:
            lock: the descriptor of the lock that says "a manager serves this address"; -1: still to be taken.
            listener: the listening socket; None: still to be made.
            is_own: the socket file is ours, to be removed at the end.
            is_private, idle_exit, max_clients, log: as for `run.serve`.
            keeper, line: the process that keeps what the manager before has, and the way to tell it that it may end.
        """
        self.address = address
        self.lock = lock
        self.listener = listener
        self.is_own = is_own
        self.is_private = is_private
        self.idle_exit = idle_exit
        self.max_clients = max_clients
        self.log = log
        self.keeper = keeper
        self.line = line
        self.made: os.stat_result | None = None
        """The socket file."""
        self.dead: Past | None = None
        """What was written down of a group that nobody needs any more."""
        self.is_others = line is not None
        """True while another process has it, too, or has it now: what lies at the address is left alone."""
        self.ready: Callable[[], None] = lambda: None

    @property
    def life(self) -> Life:
        """What this process writes into the lock file when it has the seat."""
        return Life(os.getpid(), self.idle_exit, self.max_clients, self.address)

    def taken(self) -> None:
        """This process serves: tell those who wait for it, and the keeper, which ends."""
        ready, self.ready = self.ready, lambda: None
        ready()
        self.is_others = False
        line, self.line, self.keeper = self.line, None, 0
        if line is not None:
            try:
                line.send(_SERVES, socket.MSG_NOSIGNAL)
            except OSError:
                pass  # it was killed, and nothing is lacking
            line.close()

    def close(self) -> None:
        """Close the descriptors. A lock that another process has as well stays locked."""
        for sock in (self.listener, self.line):
            if sock is not None:
                sock.close()
        os.close(self.lock)


def stand_by(line: socket.socket, heir: int) -> bool:
    """Keep everything until the heir serves. False: it ended before that, or was killed. Blocks.

    Args:
        heir: a pidfd; -1: it cannot be had. Closed, as is the line.
    """
    poll = select.poll()
    poll.register(line, select.POLLIN)
    try:
        if poll.poll(HEIR_SECONDS * 1000):
            return line.recv(protocol.MAX_REQUEST_BYTES, socket.MSG_DONTWAIT) == _SERVES
        if heir >= 0:
            signal.pidfd_send_signal(heir, signal.SIGKILL)
            poll.poll(HEIR_SECONDS * 1000)
        return False  # even if it has said so meanwhile: it is killed
    except OSError:
        return False
    finally:
        line.close()
        if heir >= 0:
            os.close(heir)


# ------------------------------------------------------------------------------------------------------- by a request


def ask(seat: Seat) -> bool:
    """Have the place of the manager in the background at that address. False: none gives it. Blocks up to a second."""
    from shmtensor.manager import connection

    line = None
    try:
        fd = connection.connect(seat.address, ASK_SECONDS)
        line = socket.socket(fileno=fd)
        requests = connection.Requests(seat.address)
        welcome, group = connection.hello(requests, fd, protocol.OBSERVER, ASK_SECONDS)
        os.close(group)
        reply, (lock, listener) = requests.request(fd, protocol.Succeed(), ASK_SECONDS)
    except ShmTensorError:
        if line is not None:
            line.close()
        return False
    assert isinstance(reply, protocol.Seat)
    seat.lock, seat.keeper, seat.line, seat.is_others = lock, welcome.pid, line, True
    given, is_own = socket.socket(fileno=listener), bool(reply.flags & protocol.OWN)
    unused: socket.socket | None = given
    if seat.listener is None or is_own:  # its own socket lies at the path, so that ours is found by nobody any more
        unused, seat.listener, seat.is_own = seat.listener, given, is_own
    if unused is not None:
        unused.close()
    return True


def give(seat: Seat, asker: Connection, request_id: int) -> bool:
    """Let whoever asked have the place, and wait until it serves. False: it does not. Blocks."""
    assert seat.listener is not None
    data = protocol.encode(protocol.Seat(protocol.OWN if seat.is_own else 0), request_id)
    try:
        socket.send_fds(asker.sock, [data], [seat.lock, seat.listener.fileno()], socket.MSG_NOSIGNAL)
    except OSError:
        pass  # it is gone, which the line says
    return stand_by(asker.sock, peers.peer_pidfd(asker.sock, asker.pid))


# ----------------------------------------------------------------------------------------------------- by fork and exec


def _fork() -> tuple[int, socket.socket]:
    """(the child's pid, the line to it) in the parent, (0, the line to the parent) in the child. Raises OSError."""
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


def restart(seat: Seat) -> None:
    """Start anew in this process, by exec; a child keeps all. Returns in that child, when it is to serve. Blocks there.

    Raises:
        OSError: the system refuses; this process is to serve.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keeper
    child, line = _fork()
    if child:
        seat.line, seat.keeper = line, child
        _execute(seat)
    if stand_by(line, peers.peer_pidfd(line, os.getppid())):
        os._exit(0)


def leave(seat: Seat) -> bool:
    """Have a child go on, which returns True. False: it serves, or cannot (then `seat.is_others` is false). Blocks.

    Raises:
        OSError: no process can be made.
    """
    for _ in range(HEIRS):
        child, line = _fork()
        if not child:
            seat.line, seat.is_others = line, True
            return True
        seat.is_others = stand_by(line, peers.open_pidfd(child))
        if seat.is_others:
            break
    return False


def _execute(seat: Seat) -> None:
    """Run a fresh interpreter in this process, which serves in `seat`. Raises OSError: it cannot be run."""
    assert seat.listener is not None and seat.line is not None
    descriptors = (seat.lock, seat.listener.fileno(), seat.line.fileno())
    settings = {name: getattr(seat, name) for name in _PASSED}
    settings["address"] = os.fsdecode(seat.address)
    settings["descriptors"], settings["protocol"] = descriptors, protocol.PROTOCOL_VERSION
    for fd in descriptors:
        os.set_inheritable(fd, True)
    try:
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(settings), *import_paths()])
    finally:  # it was refused
        for fd in descriptors:
            os.set_inheritable(fd, False)


_PASSED = ("is_own", "is_private", "idle_exit", "max_clients", "log", "keeper")


def executed(text: str) -> Seat:
    """The place that `restart` passed on. Raises ManagerUnavailable: from another version."""
    settings: dict[str, Any] = json.loads(text)
    before = settings.pop("protocol")
    if before != protocol.PROTOCOL_VERSION:
        raise ManagerUnavailable(
            f"the manager before speaks protocol {before}, as its clients do, and the version that is installed now "
            f"speaks {protocol.PROTOCOL_VERSION}; end the clients first"
        )
    lock, listener, line = settings.pop("descriptors")
    for fd in (lock, listener, line):
        os.set_inheritable(fd, False)
    address = os.fsencode(settings.pop("address"))
    listening = socket.socket(fileno=listener)
    return Seat(address, lock=lock, listener=listening, line=socket.socket(fileno=line), **settings)
