"""Starting a manager in the background, for whoever needs one; and ending one that does not answer.

The one that is started is re-parented before it serves (`daemon.run`): the starter sees one short-lived child, whose
exit means "ready" or carries the reason why not, and no zombie or long-lived child is left to it.
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
"""A start, and the wait for someone else's, may take this long."""
IDLE_EXIT_SECONDS = 0.5
"""A manager that was started on demand leaves this long after its last client."""
SUCCEED_SECONDS = 3.0
"""A manager that is just leaving may hold the lock for this long."""
POLL_SECONDS = 0.005
READY = b"ready"
"""What the started process says once it serves."""
KILLED = b"it died while it started\n"
"""What it says where the manager in the background ended and gave no reason."""

# The child has neither site-packages nor PYTHONPATH (-I -S: it starts faster, and no hook of the environment runs);
# what follows the options are the starter's own import paths, searched after the standard library.
_PROGRAM = "import sys;sys.path+=sys.argv[4:];import shmtensor.manager.daemon.run as run;run.background(*sys.argv[1:4])"


_start_locks: set[Descriptor] = set()  # of the lock that this process has, or waits with
_starters: set[tuple[str, int]] = set()  # (path of the lock, thread) of each


def _after_fork() -> None:
    # The child would keep its parent's lock for life.
    while _start_locks:
        _start_locks.pop().close()
    _starters.clear()


os.register_at_fork(after_in_child=_after_fork)


class StartLock:
    """One process at a time starts managers in `directory`. Blocks up to `seconds`; use in a `with`.

    A signal handler in a thread that has it, or waits for it, goes on without: that thread cannot give it back
    meanwhile, and of two managers that start at once one ends.
    """

    def __init__(self, directory: str, seconds: float = START_SECONDS) -> None:
        self.path = os.path.join(directory, "start.lock")
        self.seconds = seconds
        self._starter = (self.path, get_ident())
        self._file: Descriptor | None = None

    def __enter__(self) -> StartLock:
        """Raises ManagerTimeout, ManagerUnavailable."""
        if self._starter in _starters:
            return self
        deadline = monotonic() + self.seconds
        file = self._open()
        try:
            while not try_lock(file.number):
                if monotonic() > deadline:
                    raise ManagerTimeout(
                        f"another process has been starting a manager for {self.seconds:g} s (it holds {self.path}); "
                        f"see what it waits for, or set {addresses.MANAGER_VARIABLE} to a running manager"
                    )
                sleep(POLL_SECONDS)
                if not file.is_ours:  # another thread closed it
                    _start_locks.discard(file)
                    file = self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _open(self) -> Descriptor:
        self._file = file = Descriptor(open_lock(os.fsencode(self.path)))
        _start_locks.add(file)
        _starters.add(self._starter)
        return file

    def __exit__(self, *_: object) -> None:
        file, self._file = self._file, None
        if file is None:  # that of a signal handler, which has none of its own
            return
        _starters.discard(self._starter)
        _start_locks.discard(file)
        if file.is_ours:  # else a child has closed it, or the program
            fcntl.flock(file.number, fcntl.LOCK_UN)  # for copies that a child forked just now has still
            file.close()


def start(address: bytes, idle_exit: float | None = IDLE_EXIT_SECONDS, max_clients: int | None = None) -> None:
    """Start a manager at `address` in the background and wait until it accepts connections (up to 10 s).

    One that is killed on the way is started again.

    Args:
        idle_exit, max_clients: as for `serve`.
    Raises:
        ManagerUnavailable: it could not be started; says what was refused and what to set.
    """
    if not sys.executable:
        raise _cannot_start("sys.executable is empty, so there is no interpreter to run it with")
    limits = ["" if value is None else repr(value) for value in (idle_exit, max_clients)]
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, os.fsdecode(address), *limits, *import_paths()]
    deadline = monotonic() + START_SECONDS
    while True:
        out, said, code = _run(command, deadline)
        if out == READY:  # not by the exit code, which a program that ignores SIGCHLD never learns
            return
        was_killed = said == KILLED or (not said and code < 0)
        if not was_killed or monotonic() > deadline:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            raise _cannot_start(lines[-1] if lines else f"it ended with code {code} and said nothing")


def _run(command: list[str], deadline: float) -> tuple[bytes, bytes, int]:
    """What the command wrote to stdout and stderr until it closed both, and its exit code.

    Raises ManagerUnavailable.
    """
    import subprocess

    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
            cwd="/",
        )
    except OSError as problem:
        raise _cannot_start(f"{problem.strerror} ({sys.executable} could not be run)") from None
    with child:
        try:
            out, said = child.communicate(timeout=max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            raise _cannot_start(f"it was not ready within {START_SECONDS:g} s") from None
    return out, said, child.returncode


def kill(address: bytes) -> tuple[float | None, int | None]:
    """Kill the manager at `address`, which does not answer; its clients keep what they have. Blocks until it is gone.

    Returns:
        Its idle_exit and max_clients, as for `serve`.
    Raises:
        ManagerTimeout: it does not die. ManagerUnavailable: nobody knows which process it is.
    """
    fd = open_lock(addresses.lock_path(address))
    deadline = monotonic() + SUCCEED_SECONDS
    try:
        while True:
            life = Life.read(fd)
            if life is None:
                raise ManagerUnavailable(f"there is no manager to kill at {os.fsdecode(address)}")
            if try_lock(fd):
                break
            _kill_if(life.pid, os.fstat(fd))
            if monotonic() > deadline:
                raise ManagerTimeout(f"the manager at {os.fsdecode(address)} (pid {life.pid}) does not die")
            sleep(POLL_SECONDS)
    finally:
        os.close(fd)
    return life.idle_exit, life.max_clients


def _kill_if(pid: int, lock: os.stat_result) -> None:
    """Kill the process if it has that file open: a number alone may be another's by now."""
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
    """See to it that a manager follows the one that has ended at `address`: a supervisor's, or else our own. Blocks.

    Raises:
        ManagerUnavailable: it could not be started.
    """
    deadline = monotonic() + (SUCCEED_SECONDS if idle_exit is None else 0.0)
    while monotonic() < deadline:
        if os.path.exists(address) and answers(address):
            return
        sleep(POLL_SECONDS)
    start(address, idle_exit, max_clients)


def _cannot_start(why: str) -> ManagerUnavailable:
    return ManagerUnavailable(
        f"no manager of shared memory could be started: {why}. Where processes may not be started, start one elsewhere "
        f"(`shmtensor-manager serve --address PATH`) and set {addresses.MANAGER_VARIABLE} to its socket; where the "
        "directory is "
        f"the trouble, set {addresses.RUNTIME_VARIABLE} to one of your own"
    )


def import_paths() -> list[str]:
    """Where an interpreter without site-packages finds what this one can import."""
    import shmtensor

    paths = [os.path.dirname(os.path.abspath(path)) for path in shmtensor.__path__]
    return list(dict.fromkeys([*paths, *(os.path.abspath(path) for path in sys.path if path)]))
