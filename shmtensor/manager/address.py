"""Where managers live: the runtime directory, the paths beside a socket, and the token of a process tree."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH100, PTH103, PTH112, PTH116, PTH118, PTH123

from __future__ import annotations

import os
import stat

from shmtensor.errors import InvalidArgument, ManagerUnavailable
from shmtensor.manager.protocol import MAX_ADDRESS_BYTES

MANAGER_VARIABLE = "SHMTENSOR_MANAGER"
RUNTIME_VARIABLE = "SHMTENSOR_RUNTIME_DIR"
GROUP_VARIABLE = "SHMTENSOR_GROUP"
MAX_BYTES_VARIABLE = "SHMTENSOR_MAX_BYTES"
MAX_BYTES_PER_CLIENT_VARIABLE = "SHMTENSOR_MAX_BYTES_PER_CLIENT"


def own_uid() -> int:
    """The uid of this process, which the other side of a socket and the owner of a directory are compared with.

    Raises:
        ManagerUnavailable: it is the overflow uid of a user namespace that cannot name every user: not ours alone.
    """
    uid = os.geteuid()
    if uid == _overflow_uid() and not _names_every_user():
        raise ManagerUnavailable(
            f"this process has uid {uid}, which in its user namespace stands for every user without a name there, so "
            "it cannot be told from theirs; run as another user, or map this one (`unshare --map-root-user`)"
        )
    return uid


def _overflow_uid() -> int:
    """The uid that stands for every user whom a user namespace cannot name."""
    try:
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def _names_every_user() -> bool:
    try:
        with open("/proc/self/uid_map", "rb") as file:
            return sum(int(line.split()[2]) for line in file) >= 0xFFFFFFFF
    except FileNotFoundError:
        return True  # a kernel without user namespaces
    except OSError:
        return False


def own_directory(path: str) -> str:
    """Make `path` (mode 0700) if it is missing, and check that it is ours alone.

    Returns:
        The path, made absolute.
    Raises:
        ManagerUnavailable: it cannot be made, is no directory, is a symbolic link, or is open to other users.
    """
    path = os.path.abspath(path)
    try:
        if not os.path.lexists(path):
            os.makedirs(path, 0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError as problem:
        raise ManagerUnavailable(
            f"the directory {path} for the manager's socket cannot be made: {problem.strerror}; set {RUNTIME_VARIABLE} "
            f"to a directory that you can write to, or {MANAGER_VARIABLE} to the socket of a running manager"
        ) from None
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise ManagerUnavailable(f"{path} is {what}; set {RUNTIME_VARIABLE} to a directory of your own")
    uid = own_uid()
    if found.st_uid != uid:
        raise ManagerUnavailable(
            f"the directory {path} belongs to another user (uid {found.st_uid}, this is uid {uid}); set "
            f"{RUNTIME_VARIABLE} to a directory of your own"
        )
    if found.st_mode & 0o077:
        raise ManagerUnavailable(
            f"the directory {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); a manager's socket "
            f"must lie in one of your own, made by `mkdir -m 700`, say: set {RUNTIME_VARIABLE} to such a directory"
        )
    return path


def runtime_path() -> str:
    """The runtime directory of this user as a path; it need not exist yet."""
    chosen = os.environ.get(RUNTIME_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session:
        # After `su` the variable still names the other user's directory.
        try:
            if os.stat(session).st_uid == os.geteuid() and _is_writable(session):
                return os.path.join(session, "shmtensor")
        except OSError:
            pass
    # The last is for containers whose root is read-only.
    name = f"shmtensor-{os.geteuid()}"
    for temporary in (os.environ.get("TMPDIR"), "/tmp", "/dev/shm"):
        if temporary and _is_writable(temporary):
            return os.path.join(os.path.abspath(temporary), name)
    return os.path.join("/tmp", name)


def _is_writable(directory: str) -> bool:
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)


def runtime_directory() -> str:
    """The runtime directory, made and checked. Raises ManagerUnavailable."""
    return own_directory(runtime_path())


def check_address(address: bytes | str) -> bytes:
    """The address as absolute path in bytes.

    Raises:
        InvalidArgument: it is empty, holds a NUL, or is longer than 100 bytes (sockets cannot have longer paths).
    """
    try:
        path = os.path.abspath(os.fsencode(address)) if address else b""
    except (TypeError, UnicodeEncodeError):
        path = b""
    if not path or b"\0" in path:
        raise InvalidArgument(f"{address!r} is not the address of a manager: the path of its socket is expected")
    if len(path) > MAX_ADDRESS_BYTES:
        raise InvalidArgument(
            f"the manager address {os.fsdecode(path)} has {len(path)} bytes and at most {MAX_ADDRESS_BYTES} fit into a "
            f"socket address; give a shorter path ({RUNTIME_VARIABLE} sets the directory of those that shmtensor makes)"
        )
    return path


def shared_address(directory: str) -> bytes:
    """Where `shmtensor-manager serve` listens by default."""
    return check_address(os.path.join(directory, "manager.sock"))


def group_token() -> str:
    """The token by which this process tree finds its private manager; made up and exported on first use.

    Raises:
        InvalidArgument: SHMTENSOR_GROUP holds something that is no token.
    """
    token = os.environ.get(GROUP_VARIABLE)
    if not token:
        token = os.environ[GROUP_VARIABLE] = os.urandom(8).hex()
    if len(token) > 32 or not (token.isascii() and token.isalnum()):
        raise InvalidArgument(
            f"{GROUP_VARIABLE} is {token!r}; 1 to 32 ASCII letters and digits are expected. Unset it to get a fresh one"
        )
    return token


def private_address(directory: str) -> bytes:
    """Where the private manager of this process tree listens."""
    return check_address(os.path.join(directory, group_token() + ".sock"))


def _base(address: bytes) -> bytes:
    return address.removesuffix(b".sock")


def lock_path(address: bytes) -> bytes:
    """flock on it is held by the manager at `address` for life."""
    return address + b".lock"


def log_path(address: bytes) -> bytes:
    """Where a manager in the background logs."""
    return _base(address) + b".log"


def journal_path(address: bytes) -> bytes:
    """What the manager at `address` has written down for the next one."""
    return _base(address) + b".journal"
