"""Recovery of a killed manager's segments from the processes that use them.

Every client has the descriptors of the group segment and of each segment that it maps, a custodian those of all, and
processes of one user can open each other's `/proc/<pid>/fd`. The next manager reopens them there, so it needs no
cooperation of the clients and never waits for them. The names of the memfds identify them (`memory.metadata_name`,
`memory.payload_name`). Only the memory of devices cannot be reopened in that way: clients give its descriptors (GIVE).
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH115, PTH116, PTH119, PTH123, PTH208, SIM105

from __future__ import annotations

import errno
import os
import signal
from itertools import chain
from re import compile as regex
from time import monotonic, sleep

from shmtensor import _native
from shmtensor.manager.address import lock_path, own_uid
from shmtensor.manager.daemon.peers import still_maps
from shmtensor.manager.daemon.rings import Ring
from shmtensor.manager.lockfile import Life

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shmtensor.manager.daemon.state import State

KILL_SECONDS = 1.0
"""Longest wait for a killed manager to end."""
_MEMFD = regex(r"/memfd:shmtensor-([0-9a-f]{16})(?:-(\d+)(-metadata)?)?(?: \(deleted\))?")


def _descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """Yield (path that reopens it, link target) for each visible descriptor of a process."""
    directory = f"/proc/{pid}/fd"
    try:
        entries = os.listdir(directory)
    except OSError as problem:
        _raise_if_ours(problem)
        return
    for entry in entries:
        path = f"{directory}/{entry}"
        try:
            yield path, os.readlink(path)
        except OSError:
            pass  # closed meanwhile


def _open(path: str) -> int:
    """Reopen another process's descriptor; -1 if it was closed meanwhile. Raises OSError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        _raise_if_ours(problem)
        return -1


def _raise_if_ours(problem: OSError) -> None:
    """Raise an error of this process's limits, so that it is not taken for a missing descriptor."""
    if problem.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise problem


def processes(uid: int) -> Iterator[int]:
    """Yield the pids of the other processes of this user."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and int(entry) != os.getpid() and os.stat(f"/proc/{entry}").st_uid == uid:
                yield int(entry)
        except OSError:
            pass  # it has ended


def sockets(uid: int) -> set[int]:
    """Return the inodes of all sockets that other processes of this user have open."""
    found = set()
    for pid in processes(uid):
        for _path, target in _descriptors(pid):
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def has_socket(pid: int, inode: int) -> bool:
    """Whether the process has the socket with that inode open (0: no socket)."""
    return inode != 0 and any(target == f"socket:[{inode}]" for _path, target in _descriptors(pid))


def find_group(group_id: int, uid: int, keepers: Iterable[int] = ()) -> _native.Group | None:
    """Reopen the group segment from any process of this user that has it, `keepers` first; None if no process has."""
    for pid in chain(keepers, processes(uid)):
        for path, target in _descriptors(pid):
            match = _MEMFD.fullmatch(target)
            if match is None or match[2] is not None or int(match[1], 16) != group_id:
                continue
            fd = _open(path)
            if fd < 0:
                continue
            try:
                return _native.Group.open(fd)
            except (ValueError, OSError):
                pass  # for example of another layout version
            finally:
                os.close(fd)
    return None


def find_manager(address: bytes, device: int) -> int | None:
    """Find the manager of `address` whose lock file, on that device, was removed from its path.

    It is identified by the lock that it holds and by the content of the file (`lockfile.Life`). None: there is no such
    process in this PID and network namespace.
    """
    if not _is_bound(address):  # reading /proc/locks takes 15 ms: the kernel stops all file locking for it
        return None
    name = os.fsdecode(os.path.basename(lock_path(address)))
    for pid in _lockers() - {os.getpid()}:
        for path, target in _descriptors(pid):
            if os.path.basename(target.removesuffix(" (deleted)")) != name:
                continue
            fd = _open(path)
            if fd < 0:
                continue
            try:
                life = Life.read(fd)
                if life is not None and (life.pid, life.address) == (pid, address) and os.fstat(fd).st_dev == device:
                    return pid
            finally:
                os.close(fd)
    return None


def _is_bound(address: bytes) -> bool:
    """Whether a socket is bound to `address`, also if its file was removed; True if /proc/net/unix cannot be read."""
    try:
        with open("/proc/net/unix", "rb") as file:
            return b" " + address + b"\n" in file.read()
    except OSError:
        return True


def _lockers() -> set[int]:
    """Return the pids of processes that hold a flock; all processes of this user if /proc/locks cannot be read."""
    try:
        with open("/proc/locks", "rb") as file:
            # number: kind how access pid device:inode range
            rows = [line.split() for line in file if b" FLOCK " in line]
    except OSError:
        return set(processes(own_uid()))
    return {int(row[4]) for row in rows if len(row) > 4 and row[4].isdigit()}


def ask_to_look(pid: int) -> None:
    """Ask a manager to check its files, by a signal that other processes ignore."""
    try:
        os.kill(pid, signal.SIGURG)
    except OSError:
        pass  # it has ended


def end_predecessor(group: _native.Group) -> None:
    """Kill the manager that still leads the group although we hold its lock, because its file was removed.

    It may be stopped and must not continue later. In a group of another PID namespace its pid would mean another
    process; `Group.lead` refuses that. Blocks up to KILL_SECONDS.
    """
    if group.is_foreign:
        return
    deadline = monotonic() + KILL_SECONDS
    inode = os.fstat(group.fd).st_ino
    pid = group.leader
    while group.is_led and pid != os.getpid() and still_maps(pid, 0, inode) and monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return
        sleep(0.002)


class _Parts:
    """The descriptors of a segment that have been found so far."""

    __slots__ = ("metadata", "name", "payload")

    def __init__(self) -> None:
        self.metadata = self.payload = -1
        self.name = b""

    def close(self) -> None:
        for fd in (self.metadata, self.payload):
            if fd >= 0:
                os.close(fd)
        self.metadata = self.payload = -1


def adopt_segments(state: State, pids: Iterable[int], shm: dict[bytes, int]) -> int:
    """Register in `state` each segment that one of the processes has and `state` lacks. Returns their number.

    Args:
        state: the state of this manager.
        pids: the processes to search.
        shm: for the name of each POSIX shm object, the number of the segment whose payload it is.

    Raises:
        OSError: this process has no descriptors or memory left.
    """
    found: dict[int, _Parts] = {}
    pipes: dict[str, str] = {}
    try:
        for pid in pids:
            for path, target in _descriptors(pid):
                if target.startswith("pipe:["):
                    pipes[target] = path
                _note(state, path, target, shm, found)
        return sum(_adopt(state, parts, pipes) for parts in found.values())
    finally:
        for parts in found.values():
            parts.close()


def _note(state: State, path: str, target: str, shm: dict[bytes, int], found: dict[int, _Parts]) -> None:
    """Reopen the descriptor at `path` if it is a missing part of a segment."""
    match = _MEMFD.fullmatch(target)
    name = os.fsencode(target[8:].removesuffix(" (deleted)")) if target.startswith("/dev/shm/") else b""
    if match is not None and match[2] is not None and int(match[1], 16) == state.group.group_id:
        number = int(match[2])
    elif name in shm:
        number = shm[name]
    else:
        return
    if number in state.segments:
        return
    parts = found.setdefault(number, _Parts())
    if match is not None and match[3]:
        parts.metadata = _open(path) if parts.metadata < 0 else parts.metadata
    elif parts.payload < 0:
        parts.payload, parts.name = _open(path), name


def _adopt(state: State, parts: _Parts, pipes: dict[str, str]) -> bool:
    ring = metadata = None
    try:
        if parts.metadata < 0:
            return False
        metadata = _native.SegmentMetadata.found(parts.metadata)
        parts.metadata = -1
        facts = metadata.facts
        if facts.device:
            # A descriptor with the payload's name is not the device's memory, which no process can reopen.
            segment = state.adopt_segment(metadata, -1, b"", None)
            if segment is not None:
                metadata = None
            return segment is not None
        if parts.payload < 0 or os.fstat(parts.payload).st_size < facts.payload_bytes:
            return False
        if facts.dedicated and facts.payload_bytes == _native.RING_BYTES and not parts.name:
            ring = _ring(parts.payload, pipes)
        segment = state.adopt_segment(metadata, parts.payload, parts.name, ring)
        if segment is None:
            return False
        parts.payload = -1
        metadata = ring = None
        return True
    except ValueError:
        return False  # its name matches, but its content does not
    finally:
        if metadata is not None:
            metadata.close()
        if ring is not None:
            ring.close()


def _ring(payload: int, pipes: dict[str, str]) -> Ring | None:
    try:
        memory = _native.RingMemory(payload)
    except ValueError:
        return None  # an ordinary block of the same size
    ring = Ring(memory)
    event = _open(pipes[f"pipe:[{memory.event}]"]) if f"pipe:[{memory.event}]" in pipes else -1
    if event >= 0:
        ring.adopt(event)
    return ring
