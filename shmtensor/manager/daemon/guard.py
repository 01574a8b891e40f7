"""The files by which clients and a successor find a manager. The manager recreates them if they are removed.

They are the directory (mode 0700), the lock file (locked for life with flock; names the process), the log, the socket
and the journal. A file of another program at one of their paths is left alone.
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

    from shmtensor.manager.daemon.handover import Role

_BACKLOG = 4096


def open_log(address: bytes) -> str:
    """Redirect stderr to the log beside the socket. Returns its path. Raises ManagerUnavailable."""
    path = addresses.log_path(address)
    shown = os.fsdecode(path)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise ManagerUnavailable(
            f"cannot write the log {shown}: {problem.strerror}; choose a file that this user may write"
        ) from None
    os.dup2(log, 2)
    os.close(log)
    return shown


def listen(address: bytes) -> socket.socket:
    """Return a socket that listens at `address`, mode 0600. Raises ManagerUnavailable, for example if a file exists."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    previous = os.umask(0o177)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as problem:
        listener.close()
        raise ManagerUnavailable(
            f"cannot create the socket {os.fsdecode(address)}: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a directory that can hold sockets"
        ) from None
    finally:
        os.umask(previous)
    return listener


# -------------------------------------------------------------------------------------------------------------- keeping


class Guard:
    """Keeps the files of the manager in this process. Must be closed.

    Attributes:
        changes: an inotify descriptor, readable when `keep` may have to act; -1: none available.
    """

    def __init__(self, role: Role) -> None:
        """Keep the files of a role that has its lock and its listener; new ones are stored in the role."""
        self._role = role
        self._address = role.address
        self._directory = os.path.dirname(role.address)
        self._home = os.stat(self._directory)
        self._problems: list[str] = []
        try:
            self.changes: int = _native.directory_watch()
        except OSError:
            self.changes = -1

    @property
    def listener(self) -> socket.socket:
        """The listening socket at the address. It changes when the socket had to be created again."""
        assert self._role.listener is not None
        return self._role.listener

    @property
    def is_hindered(self) -> bool:
        """Whether a file could not be recreated at the last check."""
        return bool(self._problems)

    def keep(self, kept_journal: journal.Journal) -> list[str]:
        """Recreate missing files. Returns messages for the log. Does not block."""
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
                    notes.append(f"the {what} was removed and has been put back")
            except OSError as refused:
                problems.append(f"the {what} was removed and cannot be put back: {refused.strerror or refused}")
                if what in ("directory", "lock file"):
                    break  # without these, the other files may not be created
        notes += [problem for problem in problems if problem not in self._problems]
        self._problems = problems
        return notes

    def _keep_directory(self) -> bool:
        is_there = is_still(self._directory, self._home)
        if not is_there:
            addresses.own_directory(os.fsdecode(self._directory))
            self._home = os.stat(self._directory)
        if self.changes >= 0:
            try:  # before the files in it are checked
                _native.watch_directory(self.changes, self._directory)
            except OSError:
                pass  # continue as without inotify
        return not is_there

    def _keep_lock(self) -> bool:
        path = addresses.lock_path(self._address)
        if is_still(path, os.fstat(self._role.lock)):
            return False
        found = head(path, LIFE_BYTES)
        if found is None or (found and not is_life(found)):
            raise FileExistsError(errno.EEXIST, "a file of another program is in its place")
        lock = open_lock(path)
        try:
            if not try_lock(lock):
                raise BlockingIOError(errno.EAGAIN, "another process has locked one there")
            self._role.life.write(lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(self._role.lock)
        self._role.lock = lock
        return True

    def _keep_log(self) -> bool:
        path = addresses.log_path(self._address)
        if self._role.log != os.fsdecode(path) or os.path.lexists(path):
            return False
        open_log(self._address)
        return True

    def _keep_socket(self) -> bool:
        role = self._role
        if role.made is not None and is_still(self._address, role.made):
            return False
        if os.path.lexists(self._address):
            raise FileExistsError(errno.EEXIST, "another file is in its place")
        role.listener, role.is_own = listen(self._address), True
        role.made = os.stat(self._address)
        return True

    def close(self) -> None:
        """Stop watching the files. Does not block."""
        if self.changes >= 0:
            os.close(self.changes)


def remove(path: bytes) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def remove_empty_log(address: bytes) -> None:
    """Remove the log at `address` if it is empty. The caller holds the lock of `address`: no process writes the log."""
    log = addresses.log_path(address)
    try:
        if not os.stat(log).st_size:
            remove(log)
    except FileNotFoundError:
        pass
