"""The protocol of allocators, and the statistics of this package's allocators.

An allocator has TH's operations (malloc, realloc, free, a context). They work on *regions*: objects with the buffer
protocol whose bytes are writable, contiguous and do not move until `free`. A `bytearray`, an `mmap.mmap`, an ndarray
and a native block are regions, so a user's allocator needs nothing from this module.
"""

from __future__ import annotations

import operator
import os
import threading
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from ..errors import InvalidArgument

Region: TypeAlias = Any
"""An object with the buffer protocol: writable, contiguous bytes. (`collections.abc.Buffer` needs Python 3.12.)"""

MAX_BYTES: Final = 1 << 47
"""Largest possible request in bytes: the end of the user address space on x86-64 and aarch64."""


class AllocatorStats(NamedTuple):
    """Statistics of an allocator, a snapshot."""

    blocks: int
    """Regions allocated and not freed yet."""
    bytes: int
    """Bytes in them, as requested."""
    peak_bytes: int
    """Largest value of `bytes` so far."""
    total_blocks: int
    """Regions allocated since the allocator was created."""
    total_bytes: int
    """Bytes in those."""
    kept_blocks: int = 0
    """Freed regions in the cache."""
    kept_bytes: int = 0
    """Bytes in those."""


@runtime_checkable
class Allocator(Protocol):
    """malloc, realloc, free and a context (THAllocator).

    Storages check two optional attributes: `shared`, True if other processes can map the memory; `readonly`, True if
    it cannot be written to.
    """

    @property
    def name(self) -> str:
        """Short name for messages."""

    @property
    def context(self) -> Any:
        """The parameter that distinguishes allocators of a class: a path, a wrapped allocator, or None."""

    def malloc(self, nbytes: int) -> Region:
        """Allocate a region of at least `nbytes` bytes (0 or more) with arbitrary content.

        Raises:
            InvalidArgument: nbytes is negative or too large for the allocator.
            OutOfMemory: no memory.
        """

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Return a region of `nbytes` with the content of `region`, which is freed.

        Raises:
            InvalidArgument: the memory cannot be resized (mapped and shared memory).
        """

    def free(self, region: Region) -> None:
        """Free `region`. The caller must not use its bytes any more."""

    def stats(self) -> AllocatorStats:
        """Return statistics, a snapshot."""


def require_size(nbytes: object, allocator: str) -> int:
    """Check the size of a request, and return it as int. Does not block.

    Raises:
        InvalidArgument: not an integer, negative, or above MAX_BYTES.
    """
    try:
        size = operator.index(nbytes)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidArgument(
            f"{allocator} allocator: the number of bytes must be an integer, not {nbytes!r}"
        ) from error
    if not 0 <= size <= MAX_BYTES:
        raise InvalidArgument(f"{allocator} allocator: the number of bytes must be 0 to {MAX_BYTES}, not {size}")
    return size


accounts_lock: Final = threading.RLock()
"""Guards the statistics and free lists of all allocators of this package.

It is re-entrant, because a finalizer that frees a region may run while it is held. It is one lock for all allocators,
held during a fork, so that a child never inherits it locked by another thread.
"""
os.register_at_fork(
    before=accounts_lock.acquire, after_in_parent=accounts_lock.release, after_in_child=accounts_lock.release
)


class Meter:
    """Counts the allocations of one allocator. Thread-safe.

    Args:
        kind: a meter of all memory of this kind in this process, which also counts each allocation.
    """

    __slots__ = ("_blocks", "_bytes", "_kind", "_peak", "_total_blocks", "_total_bytes")

    def __init__(self, kind: Meter | None = None) -> None:
        self._kind = kind
        self._blocks = self._bytes = self._peak = self._total_blocks = self._total_bytes = 0

    def add(self, nbytes: int) -> None:
        """Count the allocation of a region of `nbytes` bytes. Does not block."""
        with accounts_lock:
            self._blocks += 1
            self._bytes += nbytes
            self._total_blocks += 1
            self._total_bytes += nbytes
            self._peak = max(self._peak, self._bytes)
            if self._kind is not None:
                self._kind.add(nbytes)

    def remove(self, nbytes: int) -> None:
        """Count the release of a region of `nbytes` bytes. Does not block."""
        with accounts_lock:
            self._blocks -= 1
            self._bytes -= nbytes
            if self._kind is not None:
                self._kind.remove(nbytes)

    def stats(self, kept_blocks: int = 0, kept_bytes: int = 0) -> AllocatorStats:
        """Return statistics, a snapshot. Does not block."""
        with accounts_lock:
            return AllocatorStats(
                self._blocks, self._bytes, self._peak, self._total_blocks, self._total_bytes, kept_blocks, kept_bytes
            )


mapped_meter: Final = Meter()
"""Counts the allocations of all map allocators."""
