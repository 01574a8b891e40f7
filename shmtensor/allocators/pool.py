"""The pool allocator, which caches freed regions for reuse."""

from __future__ import annotations

import bisect
from typing import Final

from ..errors import InvalidArgument, OutOfMemory
from .managed import ManagedAllocator
from .map import MapAllocator
from .protocol import Allocator, AllocatorStats, Meter, Region, accounts_lock, require_size

WASTE: Final = 2
"""A cached region is used for a request if it is at most this many times as large."""


class PoolAllocator:
    """Caches the freed regions of another allocator: best fit, bounded.

    Args:
        inner: the allocator of new regions.
        max_kept_bytes: maximum size of the cache; beyond it, the largest regions are freed.

    Raises:
        InvalidArgument: `inner` allocates memory that other processes may still use when it is freed here (managed or
            mapped); or max_kept_bytes is negative.
    """

    __slots__ = ("_asked", "_inner", "_kept", "_kept_bytes", "_limit", "_meter", "_sizes")

    name = "pool"

    def __init__(self, inner: Allocator, max_kept_bytes: int = 256 << 20) -> None:
        if isinstance(inner, ManagedAllocator | MapAllocator):
            raise InvalidArgument(
                f"a pool over the {inner.name} allocator would reuse memory that other processes may still use; the "
                "managed allocator has its own cache, so use it directly"
            )
        self._inner = inner
        self._limit = require_size(max_kept_bytes, self.name)
        self._meter = Meter()
        self._sizes: list[int] = []  # ascending, parallel to _kept
        self._kept: list[Region] = []
        self._kept_bytes = 0
        self._asked: dict[int, tuple[Region, int]] = {}  # id -> (region in use, bytes requested)

    @property
    def context(self) -> Allocator:
        """The wrapped allocator."""
        return self._inner

    def malloc(self, nbytes: int) -> Region:
        """Return the best fitting cached region, or a new one; it may be larger than requested.

        If `inner` is out of memory, empties the cache and tries again. Blocks only if `inner` does.

        Raises:
            InvalidArgument, OutOfMemory: as `inner`.
        """
        nbytes = require_size(nbytes, self.name)
        with accounts_lock:
            at = bisect.bisect_left(self._sizes, nbytes)
            if nbytes and at < len(self._sizes) and self._sizes[at] <= WASTE * nbytes:
                self._kept_bytes -= self._sizes.pop(at)
                region = self._kept.pop(at)
            else:
                try:
                    region = self._inner.malloc(nbytes)
                except OutOfMemory:
                    if not self._kept:
                        raise
                    self.empty_cache()
                    region = self._inner.malloc(nbytes)
            self._asked[id(region)] = (region, nbytes)
            self._meter.add(nbytes)
        return region

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Return a region of the new size with the old content as far as it fits; `region` goes to the pool.

        Raises:
            InvalidArgument, OutOfMemory: as malloc; then `region` stays valid.
        """
        fresh = self.malloc(nbytes)
        with memoryview(region).cast("B") as old, memoryview(fresh).cast("B") as new:
            kept = min(len(old), len(new))
            new[:kept] = old[:kept]
        self.free(region)
        return fresh

    def free(self, region: Region) -> None:
        """Keep the region for reuse, or free it with `inner` when the pool is full. Blocks only if `inner` does.

        Raises:
            InvalidArgument: the region was freed already, or another allocator allocated it.
        """
        with accounts_lock:
            try:
                _, asked = self._asked.pop(id(region))
            except KeyError:
                raise InvalidArgument(
                    "the pool did not allocate this region, or freed it already; free each region once, "
                    "with the allocator that allocated it"
                ) from None
            self._meter.remove(asked)
            size = memoryview(region).nbytes
            if size == 0 or size > self._limit:
                self._inner.free(region)
                return
            while self._kept_bytes + size > self._limit:
                self._kept_bytes -= self._sizes.pop()
                self._inner.free(self._kept.pop())
            at = bisect.bisect_left(self._sizes, size)
            self._sizes.insert(at, size)
            self._kept.insert(at, region)
            self._kept_bytes += size

    def empty_cache(self) -> int:
        """Free all cached regions. Returns their number of bytes. Blocks only if `inner` does."""
        with accounts_lock:
            kept, freed = self._kept, self._kept_bytes
            self._sizes, self._kept, self._kept_bytes = [], [], 0
            for region in kept:
                self._inner.free(region)
            return freed

    def stats(self) -> AllocatorStats:
        """Return statistics, including the cache. Does not block."""
        with accounts_lock:
            return self._meter.stats(len(self._kept), self._kept_bytes)
