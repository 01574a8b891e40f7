"""The refcounted map allocator: a named mapping with a reference count, whose name is removed with the last reference.

The layout is TH's: 64 bytes before the data, with an int32 count at their start. TH changes the count with an atomic
instruction; here it is changed under an exclusive `flock`, which the kernel releases when its owner dies. The two must
not be used on the same object. As in TH, the references of a killed process are not removed, so its names remain; the
managed allocator does not have this problem.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import weakref
from collections.abc import Iterator
from typing import Final

from .._native import Descriptor
from ..errors import InvalidArgument, StaleHandle
from .map import MapAllocator, MapFlags, MappedRegion, open_name, unlink_name
from .protocol import AllocatorStats, Meter, Region, require_size

PREFIX: Final = 64
"""Bytes before the data (TH_ALLOC_ALIGNMENT)."""
_COUNT: Final = struct.Struct("=i")


class RefcountedMapAllocator:
    """Shared memory or a shared file with a reference count (THRefcountedMapAllocator).

    Args:
        context: path, or name of the shared-memory object; None with SHAREDMEM: a new name.
        flags: MapFlags. SHARED or SHAREDMEM is required; KEEPFD is implied; FROMFD and UNLINK are not allowed, because
            the count determines when the name is removed.

    Raises:
        InvalidArgument: the flags contradict each other or the context.
    """

    __slots__ = ("_map", "_meter")

    name = "refcounted map"
    shared = True

    def __init__(self, context: str | os.PathLike[str] | None, flags: int = MapFlags.SHAREDMEM) -> None:
        if flags & (MapFlags.FROMFD | MapFlags.UNLINK):
            raise InvalidArgument(
                "refcounted map allocator: FROMFD and UNLINK are not allowed; the count removes the name"
            )
        if not flags & (MapFlags.SHARED | MapFlags.SHAREDMEM):
            raise InvalidArgument("refcounted map allocator: the mapping must not be private; add SHARED")
        self._map = MapAllocator(context, flags | MapFlags.KEEPFD)
        self._meter = Meter()

    @property
    def _sharedmem(self) -> bool:
        return bool(self._map.flags & MapFlags.SHAREDMEM)

    @property
    def context(self) -> str | int | None:
        """The path or name."""
        return self._map.context

    def malloc(self, nbytes: int) -> Region:
        """Map the object and increment its count, which the creator sets to 1.

        Blocks while another process changes the count (a few system calls) and while pages are reserved.

        Args:
            nbytes: data bytes, 0 to MAX_BYTES - 64; 0: all of an existing object.

        Raises:
            InvalidArgument, MappingError, OutOfMemory: as MapAllocator.malloc.
            StaleHandle: the last reference was just removed, with the name.
        """
        nbytes = require_size(nbytes, self.name)
        mapping, created = self._map.map(nbytes + PREFIX if nbytes else 0)
        if len(mapping) < PREFIX:
            mapping.release()
            raise InvalidArgument(
                f"{mapping.label} has {len(mapping)} bytes, less than the prefix of {PREFIX}; "
                "open memory that a refcounted allocator created"
            )
        # From here on the count determines when the name is removed.
        mapping.released.detach()
        place = _Place(mapping, self._sharedmem)
        try:
            with place.locked():
                (count,) = _COUNT.unpack_from(mapping)
                if count <= 0 and not created:
                    raise StaleHandle(
                        f"{mapping.label} has a count of 0: it was just freed, or its creator is not ready; open it "
                        "after the creator's malloc and before the last free"
                    )
                _COUNT.pack_into(mapping, 0, count + 1)
        except BaseException:
            place.kept.close()
            raise
        mapping.released = weakref.finalize(mapping, place.leave, os.getpid())
        self._meter.add(len(mapping) - PREFIX)
        return memoryview(mapping)[PREFIX:]

    def incref(self, region: Region) -> int:
        """Increment the count by hand, for a reference in flight. Returns the new count. Blocks as malloc does."""
        mapping = _mapping_of(region)
        return _change(_Place(mapping, self._sharedmem), mapping, 1)

    def decref(self, region: Region) -> int:
        """Undo one `incref`. Returns the new count. Blocks as malloc does.

        Raises:
            InvalidArgument: the count is 1, which belongs to this region: free the region instead.
        """
        mapping = _mapping_of(region)
        return _change(_Place(mapping, self._sharedmem), mapping, -1)

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Raise an error, as in TH.

        Raises:
            InvalidArgument: always.
        """
        return self._map.realloc(region, nbytes)

    def free(self, region: Region) -> None:
        """Decrement the count; at 0 the name is removed. Blocks as malloc does."""
        mapping = _mapping_of(region)
        self._meter.remove(len(mapping) - PREFIX)
        mapping.release()
        with contextlib.suppress(BufferError):
            region.release()
            mapping.close()

    def stats(self) -> AllocatorStats:
        """Return statistics, a snapshot. Does not block."""
        return self._meter.stats()


def _mapping_of(region: Region) -> MappedRegion:
    try:
        mapping = region.obj
    except (AttributeError, ValueError):  # not a memoryview, or a released one
        mapping = None
    if not isinstance(mapping, MappedRegion) or not mapping.released.alive:
        raise InvalidArgument("not a live region of a refcounted map allocator; pass what its malloc returned")
    return mapping


class _Place:
    """The file of a mapping, which contains its count."""

    __slots__ = ("_identity", "_name", "_sharedmem", "kept")

    def __init__(self, mapping: MappedRegion, sharedmem: bool) -> None:
        assert mapping.kept is not None
        self.kept = mapping.kept
        self._identity = mapping.identity
        self._name = mapping.label
        self._sharedmem = sharedmem

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Lock the file. Raises StaleHandle if its descriptor was closed and its name belongs to another object."""
        # A new open file description: flock does not exclude users of the same one (threads, forked children).
        number = self.kept.number
        if self.kept.is_ours:
            own = Descriptor(os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_CLOEXEC))
        else:
            own = Descriptor(open_name(self._name, MapFlags.SHAREDMEM if self._sharedmem else MapFlags.SHARED))
        try:
            found = os.fstat(own.number)
            if (found.st_dev, found.st_ino) != self._identity:
                raise StaleHandle(
                    f"this program closed the descriptor of {self._name}, and the name belongs to another object by "
                    "now; keep the descriptor open until the storage is released"
                )
            fcntl.flock(own.number, fcntl.LOCK_EX)
            yield own.number
        finally:
            own.close()

    def leave(self, pid: int) -> None:
        """Decrement the count through the file, because the mapping may not exist any more."""
        try:
            if os.getpid() != pid:
                return  # a forked child has the mapping but is not counted
            with self.locked() as file:
                (count,) = _COUNT.unpack(os.pread(file, _COUNT.size, 0))
                os.pwrite(file, _COUNT.pack(count - 1), 0)
                if count <= 1:
                    unlink_name(self._name, self._sharedmem)
        except (StaleHandle, FileNotFoundError):
            pass  # the count is not reachable any more
        finally:
            self.kept.close()


def _change(place: _Place, mapping: MappedRegion, by: int) -> int:
    with place.locked():
        (count,) = _COUNT.unpack_from(mapping)
        if count + by < 1:
            raise InvalidArgument(f"{mapping.label} has a count of {count}, which is this region's; free the region")
        _COUNT.pack_into(mapping, 0, count + by)
        return int(count) + by
