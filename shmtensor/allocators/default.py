"""The default allocator: private memory of this process, by TH's rules."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import OutOfMemory
from ..hooks import relieve
from .protocol import AllocatorStats, Meter, Region, require_size

_Made = TypeVar("_Made")

ALIGN_ABOVE: Final = 5120
"""Larger regions (bytes) are aligned (THGeneral's THAlloc)."""
ALIGNMENT: Final = 64
"""Their alignment in bytes: a cache line."""


class DefaultAllocator:
    """Private heap memory, with 64-byte alignment above 5,120 bytes (THGeneral's THAlloc)."""

    __slots__ = ("_meter",)

    name = "default"
    context = None

    def __init__(self) -> None:
        self._meter = Meter()

    def malloc(self, nbytes: int) -> Region:
        """Allocate an uninitialised region; for 0 bytes an empty one (TH returns NULL). Does not block.

        If the system refuses, collects garbage, then calls the low-memory callback (`shmtensor.hooks`), and tries
        again after each, as THAlloc does.

        Args:
            nbytes: 0 to MAX_BYTES.

        Raises:
            InvalidArgument: nbytes is out of range.
            OutOfMemory: still refused; the message states the memory that is left.
        """
        nbytes = require_size(nbytes, self.name)
        try:
            region = _aligned(nbytes)
        except MemoryError as error:
            region = again(partial(_aligned, nbytes), nbytes, error)
        self._meter.add(nbytes)
        return region

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Return a region of the new size with the old content as far as it fits; frees `region`. Does not block.

        Raises:
            InvalidArgument, OutOfMemory: as malloc; then `region` stays valid.
        """
        fresh = self.malloc(nbytes)
        kept = min(len(region), len(fresh))
        fresh[:kept] = region[:kept]
        self.free(region)
        return fresh

    def free(self, region: Region) -> None:
        """Count the region as freed; Python frees the memory with the last reference. Does not block."""
        self._meter.remove(len(region))

    def stats(self) -> AllocatorStats:
        """Return statistics, a snapshot. Does not block."""
        return self._meter.stats()


def _aligned(nbytes: int) -> NDArray[Any]:
    if nbytes <= ALIGN_ABOVE:
        return np.empty(nbytes, np.uint8)
    padded = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -int(padded.ctypes.data) % ALIGNMENT
    return padded[skip : skip + nbytes]


def again(make: Callable[[], _Made], nbytes: int, error: MemoryError) -> _Made:
    """Call `make` again after it failed with `error`: after garbage collection, then after the low-memory callback.

    Does not block.

    Raises:
        OutOfMemory: still refused.
    """
    # Exceptions are not kept in variables: their tracebacks refer to the caller's frame, and so to its objects.
    gc.collect()
    with suppress(MemoryError):
        return make()
    if relieve(nbytes):
        with suppress(MemoryError):
            return make()
    raise out_of_heap(nbytes) from error


def out_of_heap(nbytes: int) -> OutOfMemory:
    """Return the error for `nbytes` of private memory that the system refused. Does not block."""
    found = {"MemAvailable": "?", "SwapFree": "?"}
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                key, _, value = line.partition(":")
                if key in found:
                    found[key] = value.strip()
    except OSError:
        pass  # without /proc the message has no figures
    return OutOfMemory(
        f"cannot allocate {nbytes} bytes of heap memory: available {found['MemAvailable']}, "
        f"swap free {found['SwapFree']}; ask for less, free tensors, or check the limits (ulimit -v, the memory cgroup)"
    )


default_allocator: Final = DefaultAllocator()
"""The default allocator of storages."""
