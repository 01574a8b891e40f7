"""The lock file beside a manager's socket. The manager holds an flock on it for life; its content names the process.

Clients and managers use it to find out whether a manager serves an address.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH116

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat

from shmtensor.errors import ManagerUnavailable
from shmtensor.manager import address as addresses

LIFE_BYTES = 200
"""Longest lock file."""


class Life:
    """The content of a lock file."""

    __slots__ = ("address", "idle_exit", "max_clients", "pid")

    def __init__(self, pid: int, idle_exit: float | None, max_clients: int | None, address: bytes) -> None:
        self.pid: int = pid
        self.idle_exit: float | None = idle_exit
        self.max_clients: int | None = max_clients
        self.address: bytes = address

    def write(self, lock: int) -> None:
        """Write it into the locked file. /proc/locks then lists the lock as this process's, whichever process took it.

        Raises OSError.
        """
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # no other process can have it in between
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        numbers = ("-" if value is None else repr(value) for value in (self.idle_exit, self.max_clients))
        os.ftruncate(lock, 0)
        os.pwrite(lock, " ".join((str(self.pid), *numbers)).encode() + b" " + self.address, 0)

    @classmethod
    def read(cls, lock: int) -> Life | None:
        """Read a lock file; None if no manager has written it."""
        found = os.pread(lock, LIFE_BYTES, 0)
        words = found.split(b" ", 3)
        if len(words) != 4 or not is_life(found):
            return None
        try:
            idle_exit = None if words[1] == b"-" else float(words[1])
            max_clients = None if words[2] == b"-" else int(words[2])
        except ValueError:
            return None
        return cls(int(words[0]), idle_exit, max_clients, words[3])


def is_life(found: bytes) -> bool:
    """Whether `found` begins as a manager's lock file does: pid, idle_exit, max_clients."""
    words = found.split(b" ")[:3]
    return len(words) == 3 and words[0].isdigit() and not b"".join(words).strip(b"0123456789.e+-")


def open_lock(path: bytes) -> int:
    """Open a lock file, creating it if need be. Returns the descriptor. Raises ManagerUnavailable."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise ManagerUnavailable(
            f"cannot open the lock file {os.fsdecode(path)}: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a directory that you can write to"
        ) from None


def try_lock(fd: int) -> bool:
    """Lock the file. False: another process holds the lock. Raises ManagerUnavailable."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        raise ManagerUnavailable(
            f"the file system of the runtime directory does not support flock: {problem.strerror}; set "
            f"{addresses.RUNTIME_VARIABLE} to a directory on a local file system"
        ) from None
    return True


def is_still(path: bytes, found: os.stat_result) -> bool:
    """Whether the file at `path` is still the one that was found before."""
    try:
        now = os.stat(path)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)


def open_regular(path: bytes) -> int:
    """Open a file for reading and return the descriptor. Does not block. Raises OSError, also if it is not regular."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def head(path: bytes, nbytes: int = 100) -> bytes | None:
    """Read the first bytes of the file at `path`: b"" if there is none, None if it cannot be read or is not a file."""
    try:
        fd = open_regular(path)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
    try:
        data = os.pread(fd, nbytes, 0)
        # After a power failure, data that was being written may be zeros.
        return data if os.fstat(fd).st_size > nbytes or data.strip(b"\0") else b""
    except OSError:
        return None
    finally:
        os.close(fd)


def answers(address: bytes) -> bool:
    """Whether a process listens at `address`. Does not block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        try:
            sock.connect(address)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def runs_at(address: bytes) -> bool:
    """Whether a manager of this user listens at `address`, according to its lock file. Does not block."""
    path = addresses.lock_path(address)
    try:
        is_ours = os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False
    return is_ours and is_life(head(path) or b"") and answers(address)
