"""The refcounted map allocator: a named mapping that counts its openers and loses its name with the last of them.

The layout is TH's: 64 bytes before the data, an int32 count at their start. TH changes the count with an atomic
instruction, which Python has not; here every change happens under an exclusive `flock`, which the kernel drops when
its holder dies. The two must not be mixed on one object. What a killed process held stays counted and its name stays
behind, as in TH: that is what the managed allocator is for.
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
    """Shared memory or a shared file whose openers are counted (THRefcountedMapAllocator).

    Args:
        context: path, or name of the shared-memory object; None with SHAREDMEM makes a fresh name.
        flags: MapFlags. SHARED or SHAREDMEM is required; KEEPFD is implied; FROMFD and UNLINK are refused, because
            the count decides when the name goes.

    Raises:
        InvalidArgument: flags or context that do not go together.
    """

    __slots__ = ("_map", "_meter")

    name = "refcounted map"
    shared = True

    def __init__(self, context: str | os.PathLike[str] | None, flags: int = MapFlags.SHAREDMEM) -> None:
        if flags & (MapFlags.FROMFD | MapFlags.UNLINK):
            raise InvalidArgument("refcounted map allocator: the count removes the name; leave FROMFD and UNLINK out")
        if not flags & (MapFlags.SHARED | MapFlags.SHAREDMEM):
            raise InvalidArgument("refcounted map allocator: a private mapping has no other openers; add SHARED")
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
        """Map the object and count one opener more; the creator makes the count 1.

        Blocks while another opener changes the count (a few system calls) and while pages are reserved.

        Args:
            nbytes: data bytes, 0 to MAX_BYTES - 64; 0 means all of an existing object.

        Raises:
            InvalidArgument, MappingError, OutOfMemory: as MapAllocator.malloc.
            StaleHandle: the last opener has just gone, and the name with it.
        """
        nbytes = require_size(nbytes, self.name)
        mapping, created = self._map.map(nbytes + PREFIX if nbytes else 0)
        if len(mapping) < PREFIX:
            mapping.release()
            raise InvalidArgument(f"{mapping.label} has {len(mapping)} bytes, less than the prefix of {PREFIX}")
        # From here on the count decides when the name goes, not the map allocator.
        mapping.released.detach()
        place = _Place(mapping, self._sharedmem)
        try:
            with place.locked():
                (count,) = _COUNT.unpack_from(mapping)
                if count <= 0 and not created:
                    raise StaleHandle(
                        f"{mapping.label} has no user: its last one freed it just now, or its creator is not ready; "
                        "open it after the creator's malloc and before its free"
                    )
                _COUNT.pack_into(mapping, 0, count + 1)
        except BaseException:
            place.kept.close()
            raise
        mapping.released = weakref.finalize(mapping, place.leave, os.getpid())
        self._meter.add(len(mapping) - PREFIX)
        return memoryview(mapping)[PREFIX:]

    def incref(self, region: Region) -> int:
        """Count one reference more by hand (one in flight); gives the new count. Blocks as malloc does."""
        mapping = _mapping_of(region)
        return _change(_Place(mapping, self._sharedmem), mapping, 1)

    def decref(self, region: Region) -> int:
        """Take back one `incref`; gives the new count. Blocks as malloc does.

        Raises:
            InvalidArgument: the count is 1, this region's own: free the region instead.
        """
        mapping = _mapping_of(region)
        return _change(_Place(mapping, self._sharedmem), mapping, -1)

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Always an error, as in TH.

        Raises:
            InvalidArgument: always.
        """
        return self._map.realloc(region, nbytes)

    def free(self, region: Region) -> None:
        """Count one opener less; the last one removes the name. Blocks as malloc does."""
        mapping = _mapping_of(region)
        self._meter.remove(len(mapping) - PREFIX)
        mapping.release()
        with contextlib.suppress(BufferError):
            region.release()
            mapping.close()

    def stats(self) -> AllocatorStats:
        """What is given out. Does not block."""
        return self._meter.stats()


def _mapping_of(region: Region) -> MappedRegion:
    try:
        mapping = region.obj
    except (AttributeError, ValueError):  # no memoryview, or a released one
        mapping = None
    if not isinstance(mapping, MappedRegion) or not mapping.released.alive:
        raise InvalidArgument("not a live region of a refcounted map allocator; pass what its malloc returned")
    return mapping


class _Place:
    """Where the count of a mapping lies: its file, as far as that can be had again."""

    __slots__ = ("_identity", "_name", "_sharedmem", "kept")

    def __init__(self, mapping: MappedRegion, sharedmem: bool) -> None:
        assert mapping.kept is not None
        self.kept = mapping.kept
        self._identity = mapping.identity
        self._name = mapping.label
        self._sharedmem = sharedmem

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """The file, locked; raises StaleHandle if its descriptor is closed and its name stands for another."""
        # A fresh open file description: flock does not exclude holders of the same one (threads, forked children).
        number = self.kept.number
        if self.kept.is_ours:
            own = Descriptor(os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_CLOEXEC))
        else:
            own = Descriptor(open_name(self._name, MapFlags.SHAREDMEM if self._sharedmem else MapFlags.SHARED))
        try:
            found = os.fstat(own.number)
            if (found.st_dev, found.st_ino) != self._identity:
                raise StaleHandle(
                    f"the descriptor of {self._name} was closed by this program, and the name stands for another object"
                )
            fcntl.flock(own.number, fcntl.LOCK_EX)
            yield own.number
        finally:
            own.close()

    def leave(self, pid: int) -> None:
        """Count this opener out; runs when its mapping may be gone already, so it works on the file."""
        try:
            if os.getpid() != pid:
                return  # a forked child has the mapping but was never counted
            with self.locked() as file:
                (count,) = _COUNT.unpack(os.pread(file, _COUNT.size, 0))
                os.pwrite(file, _COUNT.pack(count - 1), 0)
                if count <= 1:
                    unlink_name(self._name, self._sharedmem)
        except (StaleHandle, FileNotFoundError):
            pass  # nobody can come upon the count any more
        finally:
            self.kept.close()


def _change(place: _Place, mapping: MappedRegion, by: int) -> int:
    with place.locked():
        (count,) = _COUNT.unpack_from(mapping)
        if count + by < 1:
            raise InvalidArgument(f"{mapping.label} has a count of {count}, its own; free the region instead")
        _COUNT.pack_into(mapping, 0, count + by)
        return int(count) + by
