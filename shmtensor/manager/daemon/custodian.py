"""The custodian: a child of the manager that keeps the descriptors of a group with objects that are kept by a name.

An object that is kept by a name (a `Store`) exists even if no process has it open. If the manager is killed, perhaps no
client has the descriptors by which the next manager recovers the memory. The custodian has them: it starts the next
manager, as a client does, and ends once that one serves.

    manager                                   custodian
       |-- fork: group, all segments, line ------>|   closes everything else, reads the line
       |  segments have changed: another fork,    |
       |  then SIGKILL ------------------------->x
       |                                          |
       |  ends in order, or is followed: SIGKILL  |
       X  killed: end of the line --------------->|   starts the next manager, which finds the memory in our /proc
                                                  |   that one serves
                                                 ends

It never touches shared memory, and has neither the lock, the listening socket nor a connection.
"""

# pathlib costs time at a start of a manager.
# ruff: noqa: PTH120, PTH123

from __future__ import annotations

import contextlib
import os
import signal
import sys
from time import monotonic, sleep

from shmtensor.errors import ShmTensorError
from shmtensor.manager import address as addresses
from shmtensor.manager import connection, launch
from shmtensor.manager.daemon import peers
from shmtensor.manager.daemon.guard import open_log
from shmtensor.manager.lockfile import answers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

START_SECONDS = 30.0
"""A custodian whose manager was killed gives up after this time if no next manager can be started."""
_PAUSE_SECONDS = 0.1


class Custodian:
    """The custodian of one manager, if it has one. Must be ended; otherwise it assumes that this process was killed."""

    def __init__(self, address: bytes) -> None:
        self._address = address
        self._pidfd = -1
        self._line = -1  # open in this process while it is the manager
        self._segments: frozenset[int] = frozenset()

    @property
    def is_alive(self) -> bool:
        """Whether there is a custodian."""
        return self._pidfd >= 0 and not peers.has_ended(self._pidfd)

    def keep(self, segments: frozenset[int], descriptors: Iterable[int]) -> None:
        """Keep a custodian that has exactly these segments: the existing one, or a new one. Raises OSError.

        Args:
            segments: their numbers.
            descriptors: of the group, and of these segments.
        """
        if self._segments == segments and self.is_alive:
            return
        end, line = os.pipe2(os.O_CLOEXEC)
        try:
            child = os.fork()
            if not child:
                _run(self._address, end, {end, *descriptors})
            try:
                pidfd = os.pidfd_open(child)
            except OSError:  # no descriptor is left
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise
        except OSError:
            os.close(line)
            raise
        finally:
            os.close(end)
        self.end()  # the previous one
        self._pidfd, self._line, self._segments = pidfd, line, segments

    def end(self) -> None:
        """End the custodian, if there is one."""
        pidfd, line = self._pidfd, self._line
        if pidfd < 0:
            return
        self._pidfd = self._line = -1
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # of this process before it forked
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        os.close(pidfd)
        os.close(line)


def _run(address: bytes, line: int, descriptors: set[int]) -> NoReturn:
    """Run the custodian, in the child."""
    try:
        os.setsid()  # the Ctrl-C of a terminal is for the manager
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        _close_all_but(descriptors)
        with open("/proc/self/comm", "wb", buffering=0) as file:
            file.write(b"shmtensor-cust")
        os.read(line, 1)
        _start_next(address)
    except BaseException as problem:
        _log(address, f"the custodian failed: {problem!r}")
    finally:
        os._exit(0)


def _close_all_but(descriptors: set[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in {0, 1, 2} - descriptors:
        os.dup2(null, fd)
    first = 3
    for fd in sorted(descriptors - {0, 1, 2}):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _start_next(address: bytes) -> None:
    """Start the next manager unless there is one, and wait until it serves."""
    deadline = monotonic() + START_SECONDS
    while True:
        try:
            # A manager answers once it has taken over the segments that it found.
            connection.Observer(address, launch.START_SECONDS).close()
            return
        except connection.NothingThere as missing:
            problem: Exception = missing
        except (ShmTensorError, OSError) as refused:
            problem = refused
        try:
            with launch.StartLock(addresses.own_directory(os.path.dirname(os.fsdecode(address)))):
                if not answers(address):
                    launch.start(address)
        except (ShmTensorError, OSError) as refused:
            problem = refused
        if monotonic() > deadline:
            _log(address, f"the memory of objects kept by a name is lost with the killed manager: {problem}")
            return
        sleep(_PAUSE_SECONDS)


def _log(address: bytes, text: str) -> None:
    open_log(address)
    print(f"shmtensor-manager[{os.getpid()}]: {text}", file=sys.stderr, flush=True)
