"""Where managers live: the runtime directory, the paths beside a socket, and the token of a group."""

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
    "quota": f"it sets {MAX_BYTES_VARIABLE} or {MAX_BYTES_PER_CLIENT_VARIABLE}, which must not limit other programs",
    "version": "the user's manager is of another version of shmtensor",
    "namespace": "the user's manager runs in another PID namespace",
}
"""Why a process tree has a group of its own that nobody chose. Its token is the key and 16 hexadecimal digits."""

_SUFFIXES = (".sock", ".lock", ".log", ".journal", ".journal.new")
"""Of the files that managers make."""


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
        ManagerUnavailable: it cannot be made, is not a directory, is a symbolic link, or is open to other users and
            holds what no manager made.
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
    is_shared = bool(found.st_mode & (stat.S_ISVTX | stat.S_ISGID))  # on purpose, as /tmp is
    if found.st_mode & 0o077 and (is_shared or not _close_to_others(path)):
        advice = f"set {RUNTIME_VARIABLE} to another directory" + ("" if is_shared else f", or `chmod 700 {path}`")
        raise ManagerUnavailable(
            f"the directory {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}), and a manager's "
            f"socket must lie in one that is yours alone: {advice}"
        )
    return path


def _close_to_others(path: str) -> bool:
    """Give a directory of ours mode 0700 if nothing but what managers make lies in it. False: it stays as it is."""
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
    """The runtime directory of this user as a path; it need not exist yet."""
    chosen = os.environ.get(RUNTIME_VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    # Without a login session (cron, ssh, su) the variable is unset, or names the other user's directory.
    for session in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.geteuid()}"):
        try:
            if session and os.stat(session).st_uid == os.geteuid() and _is_writable(session):
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
    """Where the user's manager listens, started on demand or by `shmtensor-manager serve`."""
    return check_address(os.path.join(directory, "manager.sock"))


def group_token() -> str | None:
    """The token of the group that SHMTENSOR_GROUP chooses; None: the user's manager is meant.

    A program with quotas of its own gets a token, exported for its descendants: its quotas are not for others.

    Raises:
        InvalidArgument: SHMTENSOR_GROUP holds something that is not a token.
    """
    token = os.environ.get(GROUP_VARIABLE)
    if not token:
        has_quotas = os.environ.get(MAX_BYTES_VARIABLE) or os.environ.get(MAX_BYTES_PER_CLIENT_VARIABLE)
        return group_apart("quota") if has_quotas and not os.environ.get(MANAGER_VARIABLE) else None
    if len(token) > 32 or not (token.isascii() and token.isalnum()):
        raise InvalidArgument(
            f"{GROUP_VARIABLE} is {token!r}; 1 to 32 ASCII letters and digits are expected. Unset it to use the user's "
            "manager"
        )
    return token


def group_apart(reason: str) -> str:
    """A new token for this process and its descendants, who cannot use the user's manager; exported."""
    token = os.environ[GROUP_VARIABLE] = reason + os.urandom(8).hex()
    return token


def reason_apart(token: str) -> str | None:
    """The `reason` of a token that `group_apart` made; None: somebody chose it."""
    return token[:-16] if token[:-16] in _APART else None


def check_names_meet(address: bytes) -> None:
    """Check that a name means the same to all programs of the group at `address`.

    Raises:
        ManagerUnavailable: this process tree has that group for itself, and nobody chose so.
    """
    token = os.path.basename(_base(address)).decode("utf-8", "replace")
    reason = reason_apart(token)
    if reason is not None:
        raise ManagerUnavailable(
            f"a name cannot be used here: this process and its descendants have a group of their own, because "
            f"{_APART[reason]}, and other programs would not find what is behind the name. Set {GROUP_VARIABLE} to the "
            "same letters and digits in all programs that are to find it"
        )


def group_address(directory: str, token: str) -> bytes:
    """Where the manager of the group with that token listens."""
    return check_address(os.path.join(directory, token + ".sock"))


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


def _quota(variable: str) -> int:
    """A quota of the environment, in bytes; 0: none. Raises ManagerUnavailable."""
    text = os.environ.get(variable)
    if not text:
        return 0
    from shmtensor.manager.shortage import parse_size

    try:
        return parse_size(text)
    except ValueError:
        raise ManagerUnavailable(
            f"{variable} is {text!r}, which is not a size such as 512M or 4G; set or unset it"
        ) from None


def own_quotas() -> tuple[int, int]:
    """The quotas of the environment in bytes: of a group, and of each client; 0: none. Raises ManagerUnavailable."""
    return _quota(MAX_BYTES_VARIABLE), _quota(MAX_BYTES_PER_CLIENT_VARIABLE)
