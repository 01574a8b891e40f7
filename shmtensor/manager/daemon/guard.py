"""The files by which clients and the next manager find a manager, which puts them back if they are removed.

They are the directory (mode 0700), the lock file (flock on it is held for life; it says by which process), the log, the
socket and the journal. What another program has put in the place of one of them stays.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH108, PTH116, PTH120, SIM105

from __future__ import annotations

import errno
import os
import socket

from shmtensor import _native
from shmtensor.errors import ManagerUnavailable
from shmtensor.manager import address as addresses
from shmtensor.manager.daemon import journal
from shmtensor.manager.lockfile import LIFE_BYTES, head, is_life, is_still, open_lock, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmtensor.manager.daemon.handover import Seat

_BACKLOG = 4096


def open_log(address: bytes) -> str:
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


def listen(address: bytes) -> socket.socket:
    """A socket that listens at `address`, mode 0600. Raises ManagerUnavailable: something lies there, say."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    previous = os.umask(0o177)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as problem:
        listener.close()
        raise ManagerUnavailable(
            f"the socket {os.fsdecode(address)} cannot be made: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a directory that can hold sockets"
        ) from None
    finally:
        os.umask(previous)
    return listener


# -------------------------------------------------------------------------------------------------------------- keeping


class Guard:
    """The files of the manager in this process. `close` it at last.

    Attributes:
        changes: a descriptor that is readable when `keep` may have something to do; -1: the system has none to spare.
    """

    def __init__(self, seat: Seat) -> None:
        """Keep the files of a seat that has its lock and its listener. What is put back is the seat's from then on."""
        self._seat = seat
        self._address = seat.address
        self._directory = os.path.dirname(seat.address)
        self._home = os.stat(self._directory)
        self._problems: list[str] = []
        try:
            self.changes = _native.directory_watch()
        except OSError:
            self.changes = -1

    @property
    def listener(self) -> socket.socket:
        """What listens at the address; another one once it had to be made again."""
        assert self._seat.listener is not None
        return self._seat.listener

    @property
    def is_hindered(self) -> bool:
        """Whether something could not be put back when last looked for."""
        return bool(self._problems)

    def keep(self, kept_journal: journal.Journal) -> list[str]:
        """Put back what is not there any more; gives what the log should say. Does not block."""
        notes, problems = [], []
        steps: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("directory", self._keep_directory),
            ("lock file", self._keep_lock),
            ("log", self._keep_log),
            ("socket", self._keep_socket),
            ("journal", kept_journal.keep),
        )
        for what, keep in steps:
            try:
                if keep():
                    notes.append(f"the {what} was taken away, and is put back")
            except OSError as refused:
                problems.append(f"the {what} was taken away, and cannot be put back: {refused.strerror or refused}")
                if what in ("directory", "lock file"):
                    break  # it has to be ours before anything else may be put there
        notes += [problem for problem in problems if problem not in self._problems]
        self._problems = problems
        return notes

    def _keep_directory(self) -> bool:
        is_there = is_still(self._directory, self._home)
        if not is_there:
            addresses.own_directory(os.fsdecode(self._directory))
            self._home = os.stat(self._directory)
        if self.changes >= 0:
            try:  # before anything is looked for in it
                _native.watch_directory(self.changes, self._directory)
            except OSError:
                pass  # as without `changes`
        return not is_there

    def _keep_lock(self) -> bool:
        path = addresses.lock_path(self._address)
        if is_still(path, os.fstat(self._seat.lock)):
            return False
        found = head(path, LIFE_BYTES)
        if found is None or (found and not is_life(found)):
            raise FileExistsError(errno.EEXIST, "the file of another program lies there")
        lock = open_lock(path)
        try:
            if not try_lock(lock):
                raise BlockingIOError(errno.EAGAIN, "another process has one there")
            self._seat.life.write(lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(self._seat.lock)
        self._seat.lock = lock
        return True

    def _keep_log(self) -> bool:
        path = addresses.log_path(self._address)
        if self._seat.log != os.fsdecode(path) or os.path.lexists(path):
            return False
        open_log(self._address)
        return True

    def _keep_socket(self) -> bool:
        seat = self._seat
        if seat.made is not None and is_still(self._address, seat.made):
            return False
        if os.path.lexists(self._address):
            raise FileExistsError(errno.EEXIST, "another file lies there")
        seat.listener, seat.is_own = listen(self._address), True
        seat.made = os.stat(self._address)
        return True

    def close(self) -> None:
        """Keep nothing any more. Does not block."""
        if self.changes >= 0:
            os.close(self.changes)


def remove(path: bytes) -> None:
    """Remove a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def remove_empty_log(address: bytes) -> None:
    """The caller holds the lock of the address: nobody writes to its log."""
    log = addresses.log_path(address)
    try:
        if not os.stat(log).st_size:
            remove(log)
    except FileNotFoundError:
        pass
