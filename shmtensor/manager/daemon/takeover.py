"""What a manager was killed with, found again in the processes that use it.

Every client has the descriptors of the group segment and of each segment that it maps, and processes of one user may
look into each other's `/proc/<pid>/fd`. So the next manager takes them from there, whatever those processes are doing
just now: it asks nobody, and waits for nobody. The names of the memfds say what they are (`memory.books_name`,
`memory.payload_name`).
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
"""A manager that was killed is gone within this time, or not waited for any longer."""
_MEMFD = regex(r"/memfd:shmtensor-([0-9a-f]{16})(?:-(\d+)(-books)?)?(?: \(deleted\))?")


def _descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """(path that opens it again, what it is) of each descriptor of a process, as far as they can be seen."""
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
    """The file behind another process's descriptor, or -1 when that was closed meanwhile. Raises OSError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as problem:
        _raise_if_ours(problem)
        return -1


def _raise_if_ours(problem: OSError) -> None:
    """What we lack must not look as if others had nothing."""
    if problem.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise problem


def _processes(uid: int) -> Iterator[int]:
    """The other processes of this user."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and int(entry) != os.getpid() and os.stat(f"/proc/{entry}").st_uid == uid:
                yield int(entry)
        except OSError:
            pass  # it has ended


def sockets(uid: int) -> set[int]:
    """Inodes of all sockets that other processes of this user have."""
    found = set()
    for pid in _processes(uid):
        for _path, target in _descriptors(pid):
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def has_socket(pid: int, inode: int) -> bool:
    """Whether the process has the socket of that number; 0: of none."""
    return inode != 0 and any(target == f"socket:[{inode}]" for _path, target in _descriptors(pid))


def find_group(group_id: int, uid: int, keeper: int = 0) -> _native.Group | None:
    """The group segment, from any process of this user that has it, `keeper` first; None when nobody has."""
    for pid in chain([keeper] if keeper else [], _processes(uid)):
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
                pass  # of another layout version, say
            finally:
                os.close(fd)
    return None


def find_manager(address: bytes, device: int) -> int | None:
    """The process that serves `address` and whose lock file, on that device, is not at its path any more.

    It is known by the lock that it has, and by what it wrote into the file (`lockfile.Life`). None: there is no such
    process in this PID namespace.
    """
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


def _lockers() -> set[int]:
    """The processes that took a lock with flock; all of this user where that cannot be seen."""
    try:
        with open("/proc/locks", "rb") as file:
            # number: kind how access pid device:inode range
            rows = [line.split() for line in file if b" FLOCK " in line]
    except OSError:
        return set(_processes(own_uid()))
    return {int(row[4]) for row in rows if len(row) > 4 and row[4].isdigit()}


def ask_to_look(pid: int) -> None:
    """Have the manager in that process look for its files. Nothing happens to one that does not know this signal."""
    try:
        os.kill(pid, signal.SIGURG)
    except OSError:
        pass  # it has ended


def end_predecessor(group: _native.Group) -> None:
    """Kill the manager that still has the group, since we have its lock: somebody took the file away. Blocks shortly.

    It may be stopped, and must not go on where it was. Of a group of another PID namespace the number would be another
    process's: `Group.lead` refuses it.
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
    """Descriptors of a segment, as far as they were found."""

    __slots__ = ("books", "name", "payload")

    def __init__(self) -> None:
        self.books = self.payload = -1
        self.name = b""

    def close(self) -> None:
        for fd in (self.books, self.payload):
            if fd >= 0:
                os.close(fd)
        self.books = self.payload = -1


def adopt_segments(state: State, pids: Iterable[int], shm: dict[bytes, int]) -> int:
    """Have `state` keep each segment that one of the processes has and it does not know; gives how many.

    Args:
        shm: number of the segment of which a POSIX shm object is the payload.
    Raises:
        OSError: this process lacks descriptors or memory for it.
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
    """Keep what lies behind `path` if it is a part that is lacking."""
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
        parts.books = _open(path) if parts.books < 0 else parts.books
    elif parts.payload < 0:
        parts.payload, parts.name = _open(path), name


def _adopt(state: State, parts: _Parts, pipes: dict[str, str]) -> bool:
    ring = books = None
    try:
        if parts.books < 0 or parts.payload < 0:
            return False
        books = _native.Books.found(parts.books)
        parts.books = -1
        _number, _owner, _generation, nbytes, dedicated, _retired = books.facts
        if os.fstat(parts.payload).st_size < nbytes:
            return False
        if dedicated and nbytes == _native.RING_BYTES and not parts.name:
            ring = _ring(parts.payload, pipes)
        segment = state.adopt_segment(books, parts.payload, parts.name, ring)
        if segment is None:
            return False
        parts.payload = -1
        books = ring = None
        return True
    except ValueError:
        return False  # not what its name says
    finally:
        if books is not None:
            books.close()
        if ring is not None:
            ring.close()


def _ring(payload: int, pipes: dict[str, str]) -> Ring | None:
    try:
        memory = _native.RingMemory(payload)
    except ValueError:
        return None  # a block of just that size
    ring = Ring(memory)
    event = _open(pipes[f"pipe:[{memory.event}]"]) if f"pipe:[{memory.event}]" in pipes else -1
    if event >= 0:
        ring.adopt(event)
    return ring
