"""Starting a manager in the background, and killing one that does not answer.

The manager is re-parented before it serves (`daemon.run`). The starter sees one short-lived child, whose exit means
"ready" or gives the reason of a failure; no zombie and no long-lived child remains.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH100, PTH110, PTH118, PTH120, PTH208

from __future__ import annotations

import fcntl
import os
import signal
import sys
from _thread import get_ident
from time import monotonic, sleep

from shmtensor._native import Descriptor
from shmtensor.errors import ManagerTimeout, ManagerUnavailable
from shmtensor.manager import address as addresses
from shmtensor.manager.lockfile import Life, answers, is_still, open_lock, try_lock

START_SECONDS = 10.0
"""Longest time for a start, and for waiting for another process's start."""
IDLE_EXIT_SECONDS = 0.5
"""A manager that was started on demand ends this long after its last client."""
SUCCEED_SECONDS = 3.0
"""A manager that is ending may hold the lock for this long."""
POLL_SECONDS = 0.005
READY = b"ready"
"""Output of the started process once it serves."""
KILLED = b"it died while it started\n"
"""Its output if the manager in the background ended without a reason."""

# The child has neither site-packages nor PYTHONPATH (-I -S: it starts faster, and no hook of the environment runs). The
# starter's own import paths follow the options; they are searched after the standard library.
_PROGRAM = "import sys;sys.path+=sys.argv[4:];import shmtensor.manager.daemon.run as run;run.background(*sys.argv[1:4])"


_start_locks: set[Descriptor] = set()  # descriptors of locks that this process holds or waits for
_starters: set[tuple[str, int]] = set()  # (path of the lock, thread) of each


def _after_fork() -> None:
    # Otherwise the child would keep its parent's lock as long as it lives.
    while _start_locks:
        _start_locks.pop().close()
    _starters.clear()


os.register_at_fork(after_in_child=_after_fork)


class StartLock:
    """Admits one process at a time that starts managers in `directory`. Use in a `with`; blocks up to `seconds`.

    A signal handler in a thread that holds the lock, or waits for it, continues without it, because the thread cannot
    release it meanwhile. If two managers start at once, one of them ends.
    """

    def __init__(self, directory: str, seconds: float = START_SECONDS) -> None:
        self.path: str = os.path.join(directory, "start.lock")
        self.seconds = seconds
        self._starter = (self.path, get_ident())
        self._file: Descriptor | None = None

    def __enter__(self) -> StartLock:
        """Acquire the lock. Raises ManagerTimeout, ManagerUnavailable."""
        if self._starter in _starters:
            return self
        try:
            self._acquire()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _acquire(self) -> None:
        deadline = monotonic() + self.seconds
        file = self._open()
        while not try_lock(file.number):
            if monotonic() > deadline:
                raise ManagerTimeout(
                    f"another process has been starting a manager for {self.seconds:g} s (it holds {self.path}); "
                    f"check that process, or set {addresses.MANAGER_VARIABLE} to a running manager"
                )
            sleep(POLL_SECONDS)
            if not file.is_ours:  # another thread closed it
                _start_locks.discard(file)
                file = self._open()

    def _open(self) -> Descriptor:
        self._file = file = Descriptor(open_lock(os.fsencode(self.path)))
        _start_locks.add(file)
        _starters.add(self._starter)
        return file

    def __exit__(self, *_: object) -> None:
        file, self._file = self._file, None
        if file is None:  # in a signal handler, which continued without the lock
            return
        _starters.discard(self._starter)
        _start_locks.discard(file)
        if file.is_ours:  # otherwise the program closed it, or this is a child
            fcntl.flock(file.number, fcntl.LOCK_UN)  # a child forked just now still has a copy
            file.close()


def start(address: bytes, idle_exit: float | None = IDLE_EXIT_SECONDS, max_clients: int | None = None) -> None:
    """Start a manager at `address` in the background. Blocks until it accepts connections, up to 10 s.

    If it is killed before that, it is started again.

    Args:
        address: absolute path of the socket.
        idle_exit: as for `serve`.
        max_clients: as for `serve`.

    Raises:
        ManagerUnavailable: it could not be started; the message has the reason and what to set.
    """
    limits = ["" if value is None else repr(value) for value in (idle_exit, max_clients)]
    deadline = monotonic() + START_SECONDS
    while True:
        try:
            return interpret(_PROGRAM, [os.fsdecode(address), *limits], deadline)
        except NotReady as problem:
            if not problem.was_killed or monotonic() > deadline:
                raise ManagerUnavailable(
                    f"cannot start the shared-memory manager: {problem}. If this process may not start others, run "
                    f"`shmtensor-manager serve --address PATH` elsewhere and set {addresses.MANAGER_VARIABLE} to PATH; "
                    f"if the directory cannot be used, set {addresses.RUNTIME_VARIABLE} to another one"
                ) from None


class NotReady(Exception):
    """A program ended without READY, or could not be started. The text has the reason."""

    def __init__(self, reason: str, was_killed: bool = False) -> None:
        super().__init__(reason)
        self.was_killed = was_killed


def interpret(program: str, arguments: list[str], deadline: float) -> None:
    """Run a program in a fresh interpreter until it closes stdout and stderr. Blocks.

    Args:
        program: its text, which prints READY when it is ready, or a reason to stderr.
        arguments: for the program; this interpreter's import paths follow them.
        deadline: on the monotonic clock, in seconds.

    Raises:
        NotReady: it did not print READY.
    """
    import subprocess

    if not sys.executable:
        raise NotReady("sys.executable is empty, so there is no interpreter to run it; set it to Python's path")
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, *arguments, *import_paths()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
            cwd="/",
        )
    except OSError as problem:
        raise NotReady(f"{problem.strerror} (cannot execute {sys.executable})") from None
    with child:
        try:
            out, said = child.communicate(timeout=max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            raise NotReady(f"it was not ready within {START_SECONDS:g} s") from None
    if out == READY:  # not the exit code, which is not available in a program that ignores SIGCHLD
        return
    lines = said.decode("utf-8", "replace").strip().splitlines()
    raise NotReady(
        lines[-1] if lines else f"it ended with exit code {child.returncode} and no message",
        was_killed=said == KILLED or (not said and child.returncode < 0),
    )


def kill(address: bytes) -> tuple[float | None, int | None]:
    """Kill the manager at `address`, which does not answer. Its clients keep their memory. Blocks until it has ended.

    Returns:
        Its idle_exit and max_clients, as for `serve`.

    Raises:
        ManagerTimeout: it did not end.
        ManagerUnavailable: its process is not known.
    """
    fd = open_lock(addresses.lock_path(address))
    deadline = monotonic() + SUCCEED_SECONDS
    try:
        while True:
            life = Life.read(fd)
            if life is None:
                raise ManagerUnavailable(
                    f"no manager to kill at {os.fsdecode(address)}: its lock file names no process; "
                    "if one runs, end it by its pid"
                )
            if try_lock(fd):
                break
            _kill_if(life.pid, os.fstat(fd))
            if monotonic() > deadline:
                raise ManagerTimeout(
                    f"the manager at {os.fsdecode(address)} (pid {life.pid}) did not end after SIGKILL; "
                    "see its state in `ps`: the kernel may wait for a device"
                )
            sleep(POLL_SECONDS)
    finally:
        os.close(fd)
    return life.idle_exit, life.max_clients


def _kill_if(pid: int, lock: os.stat_result) -> None:
    """Kill a process if it has that file open, since its pid may have been reused."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            if is_still(b"/proc/%d/fd/%s" % (pid, entry.encode()), lock):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return
    except OSError:
        pass  # it has ended
    finally:
        os.close(pidfd)


def succeed(address: bytes, idle_exit: float | None, max_clients: int | None) -> None:
    """Wait until a supervisor has started a successor of the manager at `address`; if none does, start one. Blocks.

    Raises:
        ManagerUnavailable: it could not be started.
    """
    deadline = monotonic() + (SUCCEED_SECONDS if idle_exit is None else 0.0)
    while monotonic() < deadline:
        if os.path.exists(address) and answers(address):
            return
        sleep(POLL_SECONDS)
    start(address, idle_exit, max_clients)


def import_paths() -> list[str]:
    """Return the import paths of this interpreter, for one that runs without site-packages."""
    import shmtensor

    paths = [os.path.dirname(os.path.abspath(path)) for path in shmtensor.__path__]
    return list(dict.fromkeys([*paths, *(os.path.abspath(path) for path in sys.path if path)]))
