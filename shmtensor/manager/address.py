"""Addresses of managers: the runtime directory, the paths beside a socket, and group tokens."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH100, PTH103, PTH112, PTH116, PTH118, PTH119, PTH123, PTH208

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

_APART = {
    "quota": f"{MAX_BYTES_VARIABLE} or {MAX_BYTES_PER_CLIENT_VARIABLE} is set, which must not limit other programs",
    "version": "the user's manager has another version of shmtensor",
    "namespace": "the user's manager runs in another PID namespace",
}
"""Reasons for an automatic group of a process tree. Its token is the key followed by 16 hexadecimal digits."""

_SUFFIXES = (".sock", ".lock", ".log", ".journal", ".journal.new")
"""Suffixes of the files that managers create."""


def own_uid() -> int:
    """Return the uid of this process, with which peers of sockets and owners of directories are compared.

    Raises:
        ManagerUnavailable: it is the overflow uid of a user namespace, which other users share.
    """
    uid = os.geteuid()
    if uid == _overflow_uid() and not _names_every_user():
        raise ManagerUnavailable(
            f"this process has uid {uid}, which in its user namespace stands for every unmapped user, so its files "
            "cannot be distinguished from theirs; run as another user, or map this one (`unshare --map-root-user`)"
        )
    return uid


def _overflow_uid() -> int:
    """Return the uid that stands for every unmapped user of a user namespace."""
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
    """Create the directory `path` (mode 0700) if it is missing, and check that only this user has access.

    Returns:
        The absolute path.

    Raises:
        ManagerUnavailable: it cannot be created, is not a directory, is a symbolic link, or is open to other users
            and contains files that are not a manager's.
    """
    path = os.path.abspath(path)
    try:
        if not os.path.lexists(path):
            os.makedirs(path, 0o700, exist_ok=True)
        found = os.lstat(path)
    except OSError as problem:
        raise ManagerUnavailable(
            f"cannot create the directory {path} for the manager's socket: {problem.strerror}; set {RUNTIME_VARIABLE} "
            f"to a directory that you can write to, or {MANAGER_VARIABLE} to the socket of a running manager"
        ) from None
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise ManagerUnavailable(f"the runtime directory {path} is {what}; set {RUNTIME_VARIABLE} to another directory")
    uid = own_uid()
    if found.st_uid != uid:
        raise ManagerUnavailable(
            f"the directory {path} belongs to uid {found.st_uid}, and this process has uid {uid}; set "
            f"{RUNTIME_VARIABLE} to a directory of this user"
        )
    is_shared = bool(found.st_mode & (stat.S_ISVTX | stat.S_ISGID))  # shared on purpose, like /tmp
    if found.st_mode & 0o077 and (is_shared or not _close_to_others(path)):
        advice = f"set {RUNTIME_VARIABLE} to another directory" + ("" if is_shared else f", or `chmod 700 {path}`")
        raise ManagerUnavailable(
            f"the directory {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}), but a manager's "
            f"socket needs a directory that only its user can access: {advice}"
        )
    return path


def _close_to_others(path: str) -> bool:
    """Set mode 0700 on a directory of ours if it contains only managers' files. False: it was not changed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        for name in os.listdir(fd):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            kind = stat.S_ISSOCK if name.endswith(".sock") else stat.S_ISREG
            if not name.endswith(_SUFFIXES) or found.st_uid != os.geteuid() or not kind(found.st_mode):
                return False
        os.fchmod(fd, 0o700)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def runtime_path() -> str:
    """Return the path of this user's runtime directory, which need not exist yet."""
    chosen = os.environ.get(RUNTIME_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    # Without a login session (cron, ssh, su) the variable is unset, or names another user's directory.
    for session in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.geteuid()}"):
        try:
            if session and os.stat(session).st_uid == os.geteuid() and _is_writable(session):
                return os.path.join(session, "shmtensor")
        except OSError:
            pass
    # The last one is for containers with a read-only root.
    name = f"shmtensor-{os.geteuid()}"
    for temporary in (os.environ.get("TMPDIR"), "/tmp", "/dev/shm"):
        if temporary and _is_writable(temporary):
            return os.path.join(os.path.abspath(temporary), name)
    return os.path.join("/tmp", name)


def _is_writable(directory: str) -> bool:
    return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)


def runtime_directory() -> str:
    """Create and check the runtime directory. Returns its path. Raises ManagerUnavailable."""
    return own_directory(runtime_path())


def check_address(address: bytes | str) -> bytes:
    """Return the address as an absolute path in bytes.

    Raises:
        InvalidArgument: it is empty, contains a NUL, or is longer than 100 bytes (the limit for sockets).
    """
    try:
        path = os.path.abspath(os.fsencode(address)) if address else b""
    except (TypeError, UnicodeEncodeError):
        path = b""
    if not path or b"\0" in path:
        raise InvalidArgument(f"{address!r} is not a manager address; give the path of its socket")
    if len(path) > MAX_ADDRESS_BYTES:
        raise InvalidArgument(
            f"the manager address {os.fsdecode(path)} has {len(path)} bytes, and a socket path can have at most "
            f"{MAX_ADDRESS_BYTES}; give a shorter path ({RUNTIME_VARIABLE} sets the default directory)"
        )
    return path


def shared_address(directory: str) -> bytes:
    """Return the address of the user's manager, started on demand or by `shmtensor-manager serve`."""
    return check_address(os.path.join(directory, "manager.sock"))


def group_token() -> str | None:
    """Return the group token in SHMTENSOR_GROUP; None: use the user's manager.

    A program that sets quotas gets its own token, exported for its descendants, so that the quotas do not limit other
    programs.

    Raises:
        InvalidArgument: the value of SHMTENSOR_GROUP is not a token.
    """
    token = os.environ.get(GROUP_VARIABLE)
    if not token:
        has_quotas = os.environ.get(MAX_BYTES_VARIABLE) or os.environ.get(MAX_BYTES_PER_CLIENT_VARIABLE)
        return group_apart("quota") if has_quotas and not os.environ.get(MANAGER_VARIABLE) else None
    if len(token) > 32 or not (token.isascii() and token.isalnum()):
        raise InvalidArgument(
            f"{GROUP_VARIABLE} must be 1 to 32 ASCII letters and digits, not {token!r}; unset it for the user's manager"
        )
    return token


def group_apart(reason: str) -> str:
    """Export a new token for this process and its descendants, which cannot use the user's manager; returns it."""
    token = os.environ[GROUP_VARIABLE] = reason + os.urandom(8).hex()
    return token


def reason_apart(token: str) -> str | None:
    """Return the reason in a token of `group_apart`; None for a token that the user chose."""
    return token[:-16] if token[:-16] in _APART else None


def check_names_meet(address: bytes) -> None:
    """Check that programs can share names through the group at `address`.

    Raises:
        ManagerUnavailable: the group was created automatically for this process tree alone.
    """
    token = os.path.basename(_base(address)).decode("utf-8", "replace")
    reason = reason_apart(token)
    if reason is not None:
        raise ManagerUnavailable(
            f"names cannot be used here: this process and its descendants have their own group, because "
            f"{_APART[reason]}, so other programs would not find the name. Set {GROUP_VARIABLE} to the same letters "
            "and digits in all programs that share names"
        )


def group_address(directory: str, token: str) -> bytes:
    """Return the address of the manager of the group with that token."""
    return check_address(os.path.join(directory, token + ".sock"))


def _base(address: bytes) -> bytes:
    return address.removesuffix(b".sock")


def lock_path(address: bytes) -> bytes:
    """Return the path of the lock file, which the manager at `address` keeps locked for life."""
    return address + b".lock"


def log_path(address: bytes) -> bytes:
    """Return the path of the log of a manager in the background."""
    return _base(address) + b".log"


def journal_path(address: bytes) -> bytes:
    """Return the path of the journal of the manager at `address`."""
    return _base(address) + b".journal"


def _quota(variable: str) -> int:
    """Return a quota from the environment in bytes; 0: none. Raises ManagerUnavailable."""
    text = os.environ.get(variable)
    if not text:
        return 0
    from shmtensor.manager.shortage import parse_size

    try:
        return parse_size(text)
    except ValueError:
        raise ManagerUnavailable(f"{variable} must be a size such as 512M or 4G, not {text!r}") from None


def own_quotas() -> tuple[int, int]:
    """Return the quotas from the environment in bytes: (group, each client); 0: none. Raises ManagerUnavailable."""
    return _quota(MAX_BYTES_VARIABLE), _quota(MAX_BYTES_PER_CLIENT_VARIABLE)
