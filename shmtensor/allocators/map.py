"""The map allocator: files, POSIX shared memory and descriptors as regions (THMapAllocator)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import stat
import weakref
from enum import IntFlag
from typing import Any, Final, Self

from .._native import Descriptor, map_over, memory_available
from ..errors import InvalidArgument, MappingError, OutOfMemory
from ..hooks import relieve
from ..posix_shm import open_shm, unlink_shm
from .protocol import AllocatorStats, Meter, Region, mapped_meter, require_size

_NORESERVE: Final = 0x4000  # MAP_NORESERVE of sys/mman.h
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM})


_SHM_NAME: Final = re.compile(r"/(?!\.{1,2}$)[^/\0]{1,254}")


class MapFlags(IntFlag):
    """How memory is mapped: TH_ALLOCATOR_MAPPED_*, with the values and meanings of TH."""

    SHARED = 1
    """Writes change the file, and all processes that map it see them. Otherwise the mapping is private."""
    SHAREDMEM = 2
    """POSIX shared memory instead of a file; always shared."""
    EXCLUSIVE = 4
    """Fail if the name exists."""
    NOCREATE = 8
    """Fail if the name does not exist."""
    KEEPFD = 16
    """Keep the descriptor open, as `region.fd`."""
    FROMFD = 32
    """Map the given descriptor."""
    UNLINK = 64
    """Remove the name once it is mapped."""
    READONLY = 128
    """With SHARED and NOCREATE: map an existing file for reading only. (Not in TH.)"""


_READONLY: Final = MapFlags.READONLY | MapFlags.SHARED | MapFlags.NOCREATE


class MappedRegion(mmap.mmap):
    """A mapping with its name and descriptor. Python unmaps it after the last array over it.

    `release` removes the name and closes the descriptor; this also happens when the region is freed or the process
    exits. A forked child never removes a name of its parent.
    """

    label: str
    """Path, name or descriptor, for messages."""
    identity: tuple[int, int]
    """Device and inode, which identify the memory in other processes."""
    released: weakref.finalize[Any, Any]
    kept: Descriptor | None
    """The descriptor of the memory, with KEEPFD."""

    def __new__(cls, fileno: int, nbytes: int, flags: MapFlags, label: str) -> Self:
        """Map a file from its start. Raises OSError."""
        kind = mmap.MAP_SHARED if flags & (MapFlags.SHARED | MapFlags.SHAREDMEM) else mmap.MAP_PRIVATE
        rights = mmap.PROT_READ if flags & MapFlags.READONLY else mmap.PROT_READ | mmap.PROT_WRITE
        # Created without a file: for a file, Python's mmap keeps a duplicate descriptor and later closes that number,
        # even if the program has reused it.
        self = super().__new__(cls, -1, nbytes, flags=mmap.MAP_PRIVATE | _NORESERVE, prot=rights)
        map_over(self, fileno, kind == mmap.MAP_SHARED, bool(rights & mmap.PROT_WRITE))
        self.kept = None
        self.label = label
        status = os.fstat(fileno)
        self.identity = status.st_dev, status.st_ino
        return self

    @property
    def fd(self) -> int:
        """The descriptor with KEEPFD, owned by the region; -1 without it, or if the program closed it."""
        return self.kept.number if self.kept is not None and self.kept.is_ours else -1

    def release(self) -> None:
        """Remove the name if this region owns it, and close the descriptor. The memory stays mapped. Does not block."""
        self.released()
        self.kept = None


class MapAllocator:
    """Maps a file, a POSIX shared-memory object or a descriptor (THMapAllocator).

    The name of a shared-memory object that this allocator created is removed when its region is freed (as in TH), or
    at once with UNLINK. Objects opened with NOCREATE, and files, keep their names.

    Args:
        context: path of the file or name of the shared-memory object (`/name`). None with SHAREDMEM and UNLINK:
            memory without a name; None with SHAREDMEM: a new name `/torch_<pid>_<random>`. With FROMFD: the
            descriptor, which is duplicated.
        flags: MapFlags.

    Raises:
        InvalidArgument: the flags contradict each other or the context.
    """

    __slots__ = ("_context", "_flags", "_meter")

    name = "map"

    def __init__(self, context: str | os.PathLike[str] | int | None, flags: int = 0) -> None:
        self._flags = MapFlags(flags)
        if flags & ~sum(MapFlags):
            raise InvalidArgument(f"map allocator: flags {flags:#x} has unknown bits; use MapFlags")
        if isinstance(context, int) != bool(flags & MapFlags.FROMFD) or isinstance(context, bool):
            raise InvalidArgument(f"map allocator: context {context!r} with {self._flags!r}; FROMFD takes a descriptor")
        if context is None and not flags & MapFlags.SHAREDMEM:
            raise InvalidArgument("map allocator: no path; give one, or SHAREDMEM for memory without a file")
        if flags & MapFlags.EXCLUSIVE and flags & MapFlags.NOCREATE:
            raise InvalidArgument("map allocator: EXCLUSIVE (must not exist) contradicts NOCREATE (must exist)")
        if flags & MapFlags.EXCLUSIVE and not self.shared:
            raise InvalidArgument("map allocator: EXCLUSIVE creates, which needs SHARED or SHAREDMEM")
        if flags & MapFlags.READONLY and self._flags & ~MapFlags.KEEPFD & ~MapFlags.FROMFD != _READONLY:
            raise InvalidArgument(f"map allocator: {self._flags!r}; READONLY requires SHARED, NOCREATE and a file")
        if context is None and flags & MapFlags.NOCREATE:
            raise InvalidArgument("map allocator: NOCREATE opens an existing object; give its name")
        try:
            self._context = context if isinstance(context, int) or context is None else os.fsdecode(context)
        except TypeError as error:
            raise InvalidArgument(f"map allocator: {context!r} is neither a path nor a name; give a string") from error
        # Checked here, because shm_open's wrapper crashes on some names that it cannot use ("." for one).
        if flags & MapFlags.SHAREDMEM and isinstance(context, str) and not _SHM_NAME.fullmatch(context):
            raise InvalidArgument(
                f"map allocator: {context!r} is not a name of shared memory: '/' and 1 to 254 characters without '/'; "
                "give such a name, or a path without SHAREDMEM"
            )
        self._meter = Meter(mapped_meter)

    @property
    def context(self) -> str | int | None:
        """The path, name or descriptor."""
        return self._context

    @property
    def flags(self) -> MapFlags:
        """The flags."""
        return self._flags

    @property
    def readonly(self) -> bool:
        """Whether its memory is read-only."""
        return bool(self._flags & MapFlags.READONLY)

    @property
    def shared(self) -> bool:
        """Whether other processes see what is written."""
        return bool(self._flags & (MapFlags.SHARED | MapFlags.SHAREDMEM))

    def malloc(self, nbytes: int) -> MappedRegion:
        """Map `nbytes` from the start of the file, object or descriptor; 0: all of it.

        Blocks while the file system reserves pages. They are reserved in advance, so that a full file system is an
        error here and not SIGBUS later. A shared file or a new object grows to the size.

        Args:
            nbytes: 0 to MAX_BYTES.

        Raises:
            InvalidArgument: nbytes is out of range, beyond the end of a file that cannot grow, or 0 for an empty file.
            MappingError: it cannot be opened or mapped; `errno` has the reason.
            OutOfMemory: the file system has no room; everything that was created is removed.
        """
        region, _ = self.map(require_size(nbytes, self.name))
        self._meter.add(len(region))
        return region

    def map(self, nbytes: int) -> tuple[MappedRegion, bool]:
        """Map memory as malloc does, without statistics. Returns (region, whether the name is new)."""
        try:
            return self._map(nbytes)
        except OutOfMemory:
            if not relieve(nbytes):
                raise
            return self._map(nbytes)

    def _map(self, nbytes: int) -> tuple[MappedRegion, bool]:
        fd, label, created = self._open()
        before = os.fstat(fd).st_size
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise InvalidArgument(f"{label} is not a file or shared memory; give a regular file")
            size = self._fit(fd, label, before, nbytes)
            try:
                region = MappedRegion(fd, size, self._flags, label)
            except OSError as error:
                if error.errno == errno.ENOMEM:
                    raise OutOfMemory(
                        f"mapping {size} bytes of {label}: {error.strerror}; free mappings or memory first"
                    ) from error
                raise _failed(error, f"mapping {size} bytes of {label}") from error
        except BaseException:
            if created is not None:
                unlink_name(created, bool(self._flags & MapFlags.SHAREDMEM))
            elif self.shared and os.fstat(fd).st_size > before:
                with contextlib.suppress(OSError):  # the first error is the one to report
                    os.ftruncate(fd, before)
            os.close(fd)
            raise
        named = self._context if isinstance(self._context, str) else created
        doomed = None
        if self._flags & MapFlags.UNLINK and isinstance(named, str):
            unlink_name(named, bool(self._flags & MapFlags.SHAREDMEM))
        elif self._flags & MapFlags.SHAREDMEM:
            doomed = created
        if self._flags & MapFlags.KEEPFD:
            region.kept = Descriptor(fd)
        else:
            os.close(fd)
        region.released = weakref.finalize(region, _release, region.kept, doomed, os.getpid())
        return region, created is not None

    def _open(self) -> tuple[int, str, str | None]:
        """Return (descriptor, label for messages, name if it is new or None)."""
        flags, context = self._flags, self._context
        if isinstance(context, int):
            try:
                return fcntl.fcntl(context, fcntl.F_DUPFD_CLOEXEC, 0), f"descriptor {context}", None
            except OSError as error:
                raise _failed(error, f"opening descriptor {context}") from error
            except (ValueError, OverflowError) as error:
                raise InvalidArgument(f"{context} is not a descriptor; give one that is open") from error
        if context is None and flags & MapFlags.UNLINK:
            try:
                return os.memfd_create("shmtensor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "anonymous memory", None
            except OSError as error:
                raise _failed(error, "making anonymous memory") from error
        name = context if context is not None else f"/torch_{os.getpid()}_{int.from_bytes(os.urandom(8)) >> 1}"
        exclusive = bool(flags & MapFlags.EXCLUSIVE) or context is None
        try:
            if flags & MapFlags.NOCREATE:
                return open_name(name, flags, 0), name, None
            if not exclusive:
                # Open first, to know whether the name is new: only new names are removed after a failure.
                with contextlib.suppress(FileNotFoundError):
                    return open_name(name, flags, 0), name, None
                if not self.shared:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            while True:
                try:
                    return open_name(name, flags, os.O_CREAT | os.O_EXCL), name, name
                except FileExistsError:
                    if exclusive:
                        raise
                with contextlib.suppress(FileNotFoundError):  # another process created it meanwhile
                    return open_name(name, flags, 0), name, None
        except OSError as error:
            raise _failed(error, f"opening {name} with {flags!r}") from error
        except ValueError as error:
            raise InvalidArgument(f"opening {name!r} with {flags!r}: {error}; give a valid name") from error

    def _fit(self, fd: int, label: str, present: int, nbytes: int) -> int:
        """Return the size to map, after reserving its pages."""
        if nbytes == 0:
            if present == 0:
                raise InvalidArgument(f"{label} is empty; give the number of bytes")
            nbytes = present
        if nbytes > present and (not self.shared or self._flags & (MapFlags.FROMFD | MapFlags.READONLY)):
            raise InvalidArgument(
                f"cannot map {nbytes} bytes of {label}, which has {present}; "
                "ask for fewer, or map it SHARED and writable, which makes it larger"
            )
        if not self.shared or self._flags & MapFlags.READONLY:
            return nbytes
        try:
            if nbytes > present:
                os.ftruncate(fd, nbytes)
            missing = nbytes - os.fstat(fd).st_blocks * 512
            if missing > 0:  # there are holes
                if _lies_in_memory(fd):
                    _require_memory(missing, label)
                os.posix_fallocate(fd, 0, nbytes)
        except OSError as error:
            if error.errno in _NO_ROOM:
                room = os.fstatvfs(fd)
                raise OutOfMemory(
                    f"cannot reserve {nbytes} bytes in {label} (had {present}): {os.strerror(error.errno or 0)}; its "
                    f"file system has {room.f_bavail * room.f_frsize} of {room.f_blocks * room.f_frsize} bytes free"
                ) from error
            raise _failed(error, f"growing {label} from {present} to {nbytes} bytes") from error
        if self._context is None and self._flags & MapFlags.UNLINK:
            # Shrinking it under a mapping would cause SIGBUS.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return nbytes

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Raise an error, as in TH: other processes may map the memory with its size.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(
            f"cannot resize a mapping of {len(region)} bytes to {nbytes}; allocate a new region and copy"
        )

    def free(self, region: Region) -> None:
        """Release name and descriptor, and unmap the region, or leave that to the last array over it.

        Does not block.
        """
        self._meter.remove(len(region))
        region.release()
        with contextlib.suppress(BufferError):  # an array is alive and keeps the mapping
            region.close()

    def stats(self) -> AllocatorStats:
        """Return statistics, a snapshot. Does not block."""
        return self._meter.stats()


def open_name(name: str, flags: MapFlags, create: int = 0) -> int:
    """Open a file or shared-memory object. Returns the descriptor. Raises OSError, ValueError."""
    if flags & MapFlags.SHAREDMEM:
        return open_shm(name, create)
    writable = flags & MapFlags.SHARED and not flags & MapFlags.READONLY
    # O_NONBLOCK: opening a pipe, which is refused later, would wait for its other end.
    return os.open(name, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK | create, 0o600)


def _lies_in_memory(fd: int) -> bool:
    """Whether a file is in memory: on a tmpfs, or a memfd, whose mount is not listed."""
    device = os.fstat(fd).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123
        for line in lines:
            mount, _, file_system = line.partition(" - ")
            if mount.split()[2] == number:
                return file_system.split()[0] in ("tmpfs", "ramfs")
    return True


def _require_memory(nbytes: int, label: str) -> None:
    """Raise OutOfMemory for more than is available: the system might kill this process instead of refusing."""
    free = memory_available()
    if nbytes > free.nbytes:
        raise OutOfMemory(
            f"cannot reserve {nbytes} more bytes of memory for {label}: {free.nbytes} bytes are available "
            f"({free.limit}); ask for less, or free memory first"
        )


def _failed(error: OSError, doing: str) -> MappingError:
    return MappingError(error.errno, f"{doing}: {error.strerror}; check the name, its rights and the flags")


def unlink_name(name: str, sharedmem: bool) -> None:
    """Remove a name; one that is gone already is fine. Does not block."""
    with contextlib.suppress(FileNotFoundError):
        if sharedmem:
            unlink_shm(name)
        else:
            os.unlink(name)  # noqa: PTH108


def _release(kept: Descriptor | None, doomed: str | None, pid: int) -> None:
    if kept is not None:
        kept.close()
    if doomed is not None and os.getpid() == pid:
        unlink_name(doomed, True)
