"""What every allocator meets, and the accounts that those of this package keep.

An allocator is TH's small virtual table (malloc, realloc, free, a context) as a Python protocol. It deals in *regions*:
objects with the buffer protocol whose bytes are writable, contiguous and stay where they are until `free`. A
`bytearray`, an `mmap.mmap`, an ndarray and a native block are regions, so an allocator of the user's own needs nothing
from here.
"""

from __future__ import annotations

import operator
import os
import threading
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from ..errors import InvalidArgument

Region: TypeAlias = Any
"""An object with the buffer protocol: writable, contiguous bytes. (`collections.abc.Buffer` is of Python 3.12.)"""

MAX_BYTES: Final = 1 << 47
"""Bytes of the largest request that can be meant: user address space on x86-64 and aarch64 ends there."""


@dataclass(frozen=True, slots=True)
class AllocatorStats:
    """What an allocator has given out. A snapshot: other threads go on."""

    blocks: int
    """Regions given out and not freed yet."""
    bytes: int
    """Bytes in them, as asked for."""
    peak_bytes: int
    """The most `bytes` there have been."""
    total_blocks: int
    """Regions given out since the allocator was made."""
    total_bytes: int
    """Bytes in those."""
    kept_blocks: int = 0
    """Regions that were freed and are kept for reuse."""
    kept_bytes: int = 0
    """Bytes in those."""


@runtime_checkable
class Allocator(Protocol):
    """malloc, realloc, free and a context (THAllocator).

    An allocator whose memory other processes can have says so by an attribute `shared`, True; one whose memory nobody
    can write to by `readonly`. Storages look for them.
    """

    @property
    def name(self) -> str:
        """Short name for messages and views."""

    @property
    def context(self) -> Any:
        """What tells this allocator from another of its class: a path, a wrapped allocator, None."""

    def malloc(self, nbytes: int) -> Region:
        """A region of at least `nbytes` bytes (0 or more), content arbitrary.

        Raises:
            InvalidArgument: nbytes is negative or beyond what the allocator can ever give.
            OutOfMemory: there is no memory for it now.
        """

    def realloc(self, region: Region, nbytes: int) -> Region:
        """A region of `nbytes` with the content of `region`, which is gone afterwards.

        Raises:
            InvalidArgument: this kind of memory cannot change its size (mapped and shared memory).
        """

    def free(self, region: Region) -> None:
        """Take `region` back. The caller promises that nothing looks at its bytes any more."""

    def stats(self) -> AllocatorStats:
        """What is given out at this moment."""


def require_size(nbytes: object, allocator: str) -> int:
    """`nbytes` as an int, when a request may have this size. Does not block.

    Raises:
        InvalidArgument: not an integer, negative, or above MAX_BYTES.
    """
    try:
        size = operator.index(nbytes)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidArgument(
            f"{allocator} allocator: asked for {nbytes!r} bytes, which is not an integer; give a number of bytes"
        ) from error
    if not 0 <= size <= MAX_BYTES:
        raise InvalidArgument(f"{allocator} allocator: asked for {size} bytes; ask for 0 to {MAX_BYTES}")
    return size


accounts_lock: Final = threading.RLock()
"""Guards the accounts and free lists of all allocators of this package.

Re-entrant because a finalizer that frees a region may run while it is held; one for all, and taken across a fork, so
that a child never inherits it locked by a thread that it has not got.
"""
os.register_at_fork(
    before=accounts_lock.acquire, after_in_parent=accounts_lock.release, after_in_child=accounts_lock.release
)


class Meter:
    """Counts what one allocator gives out and takes back; safe in threads.

    Args:
        kind: the meter of all memory of this kind in this process, which counts it too.
    """

    __slots__ = ("_blocks", "_bytes", "_kind", "_peak", "_total_blocks", "_total_bytes")

    def __init__(self, kind: Meter | None = None) -> None:
        self._kind = kind
        self._blocks = self._bytes = self._peak = self._total_blocks = self._total_bytes = 0

    def add(self, nbytes: int) -> None:
        """One more region of `nbytes` bytes is out. Does not block."""
        with accounts_lock:
            self._blocks += 1
            self._bytes += nbytes
            self._total_blocks += 1
            self._total_bytes += nbytes
            self._peak = max(self._peak, self._bytes)
            if self._kind is not None:
                self._kind.add(nbytes)

    def remove(self, nbytes: int) -> None:
        """A region of `nbytes` bytes came back. Does not block."""
        with accounts_lock:
            self._blocks -= 1
            self._bytes -= nbytes
            if self._kind is not None:
                self._kind.remove(nbytes)

    def stats(self, kept_blocks: int = 0, kept_bytes: int = 0) -> AllocatorStats:
        """A snapshot. Does not block."""
        with accounts_lock:
            return AllocatorStats(
                self._blocks, self._bytes, self._peak, self._total_blocks, self._total_bytes, kept_blocks, kept_bytes
            )


mapped_meter: Final = Meter()
"""All that map allocators have given out."""
