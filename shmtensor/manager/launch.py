"""Starting a manager: in the foreground (`serve`), or in the background for whoever needs one (`start`).

The background one is re-parented before it serves: the starter sees one short-lived child, whose exit means "ready" or
carries the reason why not, and no zombie or long-lived child is left to it.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH100, PTH108, PTH110, PTH116, PTH118, PTH120, PTH123, PTH202, PTH208, SIM105

from __future__ import annotations

import fcntl
import os
import socket
import sys
from time import monotonic, sleep, time

from shmtensor.errors import ManagerTimeout, ManagerUnavailable
from shmtensor.manager import address as addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

START_SECONDS = 10.0
"""A start, and the wait for someone else's, may take this long."""
IDLE_EXIT_SECONDS = 0.5
"""A private manager leaves this long after its last client."""
SUCCEED_SECONDS = 3.0
"""A manager that is just leaving may hold the lock for this long."""
KEEP_LOG_SECONDS = 7 * 86400.0
"""What a dead manager logged can be read for this long; then the next one to start clears it away."""
_POLL_SECONDS = 0.005
_BACKLOG = 4096

# The child has neither site-packages nor PYTHONPATH (-I -S: it starts faster, and no hook of the environment runs);
# what follows the options are the starter's own import paths, searched after the standard library.
_PROGRAM = (
    "import sys;sys.path+=sys.argv[3:];import shmtensor.manager.launch as launch;launch.background(*sys.argv[1:3])"
)


class AlreadyRunning(ManagerUnavailable):
    """A manager serves this address already."""


# ------------------------------------------------------------------------------------------------- the starter's side

_start_lock = -1  # descriptor of the lock while this process holds it


def _after_fork() -> None:
    # The child would keep its parent's lock for life.
    global _start_lock
    if _start_lock >= 0:
        os.close(_start_lock)
        _start_lock = -1


os.register_at_fork(after_in_child=_after_fork)


class StartLock:
    """One process at a time starts managers in `directory`. Blocks up to `seconds`; use in a `with`."""

    def __init__(self, directory: str, seconds: float = START_SECONDS) -> None:
        self.path = os.path.join(directory, "start.lock")
        self.seconds = seconds

    def __enter__(self) -> StartLock:
        """Raises ManagerTimeout, ManagerUnavailable."""
        global _start_lock
        fd = _open_lock(os.fsencode(self.path))
        deadline = monotonic() + self.seconds
        while not _try_lock(fd):
            if monotonic() > deadline:
                os.close(fd)
                raise ManagerTimeout(
                    f"another process has been starting a manager for {self.seconds:g} s (it holds {self.path}); "
                    "see what it waits "
                    f"for, or set {addresses.MANAGER_VARIABLE} to a running manager"
                )
            sleep(_POLL_SECONDS)
        _start_lock = fd
        return self

    def __exit__(self, *_: object) -> None:
        _after_fork()


def start(address: bytes, idle_exit: float | None = IDLE_EXIT_SECONDS) -> None:
    """Start a manager at `address` in the background and wait until it accepts connections (up to 10 s).

    Raises:
        ManagerUnavailable: it could not be started; says what was refused and what to set.
    """
    if not sys.executable:
        raise _cannot_start("sys.executable is empty, so there is no interpreter to run it with")
    import subprocess

    import shmtensor

    paths = [os.path.dirname(os.path.abspath(path)) for path in shmtensor.__path__]
    paths += [os.path.abspath(path) for path in sys.path if path and path not in paths]
    idle = "" if idle_exit is None else repr(idle_exit)
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, os.fsdecode(address), idle, *paths]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
            cwd="/",
        )
    except OSError as problem:
        raise _cannot_start(f"{problem.strerror} ({sys.executable} could not be run)") from None
    with child:
        try:
            _out, said = child.communicate(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            raise _cannot_start(f"it was not ready within {START_SECONDS:g} s") from None
    if child.returncode:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise _cannot_start(lines[-1] if lines else f"it ended with code {child.returncode} and said nothing")


def _cannot_start(why: str) -> ManagerUnavailable:
    return ManagerUnavailable(
        f"no manager of shared memory could be started: {why}. Where processes may not be started, start one elsewhere "
        f"(`shmtensor-manager serve --address PATH`) and set {addresses.MANAGER_VARIABLE} to its socket; where the "
        "directory is "
        f"the trouble, set {addresses.RUNTIME_VARIABLE} to one of your own"
    )


# ------------------------------------------------------------------------------------------------- the manager's side


def _open_lock(path: bytes) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise ManagerUnavailable(
            f"the lock file {os.fsdecode(path)} cannot be opened: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a "
            f"directory that you can write to"
        ) from None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        raise ManagerUnavailable(
            f"the file system of the runtime directory refuses flock: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a "
            f"directory on a local one"
        ) from None
    return True


def _take_life_lock(address: bytes) -> int:
    """The lock that says "a manager serves this address", held until this process ends. Raises AlreadyRunning."""
    path = addresses.lock_path(address)
    deadline = monotonic() + SUCCEED_SECONDS
    while True:
        fd = _open_lock(path)
        if _try_lock(fd):
            # A leaving manager unlinks the file: what we locked must still be what others will find.
            try:
                there = os.stat(path)
            except FileNotFoundError:
                there = None
            ours = os.fstat(fd)
            if there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return fd
        os.close(fd)
        if monotonic() > deadline:
            raise AlreadyRunning(f"a manager runs at {os.fsdecode(address)} already")
        if os.path.exists(address) and _answers(address):
            raise AlreadyRunning(f"a manager runs at {os.fsdecode(address)} already")
        sleep(_POLL_SECONDS)


def _answers(address: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        try:
            sock.connect(address)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def _remove(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_empty_log(address: bytes) -> None:
    """The caller holds the lock of the address: nobody writes to its log."""
    log = addresses.log_path(address)
    if os.path.exists(log) and not os.path.getsize(log):
        _remove(log)


def _remove_old_log(log: bytes) -> None:
    if os.path.exists(addresses.lock_path(log.removesuffix(b".log") + b".sock")):
        return  # its manager lives, or is cleared away by this sweep
    try:
        if time() - os.stat(log).st_mtime > KEEP_LOG_SECONDS:
            os.unlink(log)
    except OSError:
        pass  # as in `_sweep`


def _clear(address: bytes) -> None:
    """Remove what a dead manager left at `address`; the caller holds its lock."""
    path = addresses.names_path(address)
    try:
        with open(path, "rb") as file:
            names = file.read().split()
    except FileNotFoundError:
        names = []
    if names:
        from shmtensor.manager.memory import unlink_shm

        for name in names:
            unlink_shm(name)
    _remove(path)
    _remove(address)


def _sweep(directory: bytes, own: bytes) -> None:
    """Clear away what dead managers left in the directory: sockets, locks, names of POSIX shm objects, old logs."""
    for entry in os.listdir(directory):
        if entry.endswith(b".log"):
            _remove_old_log(os.path.join(directory, entry))
        if not entry.endswith(b".sock.lock"):
            continue
        address = os.path.join(directory, entry.removesuffix(b".lock"))
        if address == own:
            continue
        try:
            fd = os.open(os.path.join(directory, entry), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _try_lock(fd):
                _clear(address)
                _remove_empty_log(address)
                _remove(addresses.lock_path(address))
        except OSError:
            pass  # someone else's trouble; it must not keep this manager from starting
        finally:
            os.close(fd)


def _listen(address: bytes) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    previous = os.umask(0o177)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as problem:
        listener.close()
        raise ManagerUnavailable(
            f"the socket {os.fsdecode(address)} cannot be made: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a directory "
            f"that can hold sockets"
        ) from None
    finally:
        os.umask(previous)
    return listener


def _raise_descriptor_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # fewer segments fit; the error that says so comes then


def _quota(chosen: int | None, variable: str) -> int:
    """The quota that was chosen, or else that of the environment; 0: none. Raises ManagerUnavailable."""
    text = os.environ.get(variable)
    if chosen is not None or not text:
        return chosen or 0
    from shmtensor.manager.shortage import parse_size

    try:
        return parse_size(text)
    except ValueError:
        raise ManagerUnavailable(
            f"{variable} is {text!r}, which is not a size such as 512M or 4G; set or unset it"
        ) from None


def serve(
    address: bytes,
    ready: Callable[[], None],
    *,
    max_clients: int | None = None,
    max_bytes: int | None = None,
    max_bytes_per_client: int | None = None,
    idle_exit: float | None = None,
    log: str | None = None,
) -> None:
    """Serve at `address` in this process until stopped or idle; `ready` is called when connections are accepted.

    Args:
        max_bytes: payload that may be reserved in all; None: as SHMTENSOR_MAX_BYTES says, or without a bound.
        max_bytes_per_client: the same of each client, with SHMTENSOR_MAX_BYTES_PER_CLIENT.
        log: where stderr goes, for STATS; None: it is sent to the log beside the socket.
    Raises:
        AlreadyRunning: a manager serves this address.
        ManagerUnavailable: directory, lock or socket are refused, or a quota in the environment is no size.
    """
    quotas = (
        _quota(max_bytes, addresses.MAX_BYTES_VARIABLE),
        _quota(max_bytes_per_client, addresses.MAX_BYTES_PER_CLIENT_VARIABLE),
    )
    directory = os.fsencode(addresses.own_directory(os.path.dirname(os.fsdecode(address))))
    lock = _take_life_lock(address)
    try:
        # Not before the lock: a manager that leaves takes its log along if it is empty.
        shown = _open_log(address) if log is None else log
        from shmtensor.manager.server import MAX_CLIENTS, Server

        _clear(address)
        _sweep(directory, address)
        _raise_descriptor_limit()
        listener = _listen(address)
        try:
            server = Server(
                address,
                listener,
                max_clients=MAX_CLIENTS if max_clients is None else max_clients,
                idle_exit=idle_exit,
                log=shown,
            )
        except OSError as problem:
            listener.close()
            _remove(address)
            raise ManagerUnavailable(f"the group's shared memory cannot be made: {problem.strerror}") from None
        server.group.set_quotas(*quotas)
        with server:
            ready()
            server.run()
    except ManagerUnavailable:
        raise
    except BaseException:
        if log is None:
            import traceback

            traceback.print_exc()
        raise
    finally:
        _remove(addresses.names_path(address))
        _remove_empty_log(address)
        _remove(addresses.lock_path(address))
        os.close(lock)


def background(address_text: str, idle: str) -> None:
    """What the started interpreter runs: fork, serve in the child, report readiness by the exit of this process."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.fork()
    except OSError as problem:
        print(f"fork was refused: {problem.strerror}", file=sys.stderr)
        os._exit(1)
    if child:
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            said = pipe.read()
        if said == b"ready":
            os._exit(0)
        os.write(2, said or b"it died while it started\n")
        os._exit(1)
    os.close(read_end)
    address = os.fsencode(address_text)
    code = 0
    waiting = True

    def report(said: bytes) -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            os.write(write_end, said)
            os.close(write_end)

    try:
        _detach()
        serve(address, lambda: report(b"ready"), idle_exit=float(idle) if idle else None)
    except AlreadyRunning:
        report(b"ready")  # all that was wanted
    except BaseException as problem:
        code = 1
        report(f"{problem}\n".encode("utf-8", "replace"))
    sys.stderr.flush()
    os._exit(code)


def _detach() -> None:
    """Keep nothing of the starter: directory, umask, signal mask and handlers, name."""
    import signal

    os.chdir("/")
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(b"shmtensor-mgr")
    except OSError:
        pass


def _open_log(address: bytes) -> str:
    """Send stderr to the log beside the socket; gives its path. Raises ManagerUnavailable."""
    path = addresses.log_path(address)
    shown = os.fsdecode(path)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise ManagerUnavailable(f"the log {shown} cannot be written: {problem.strerror}") from None
    os.dup2(log, 2)
    os.close(log)
    return shown
