"""The pinned allocator: private page-locked memory, for fast asynchronous copies from and to GPUs."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import OutOfMemory
from ..gpu import driver, registered
from .protocol import AllocatorStats, Meter, Region, require_size


class _Memory:
    """Memory that the driver allocated. It is freed with this object."""

    __slots__ = ("_driver", "_pid", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        current = driver.current()
        self.address = current.host_allocate(nbytes)
        self.nbytes, self._driver, self._pid = nbytes, current, os.getpid()

    def array(self) -> NDArray[Any]:
        whole = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        return np.frombuffer(memoryview(whole), np.uint8)

    def __del__(self, is_ending: Any = sys.is_finalizing, pid: Any = os.getpid) -> None:
        if not is_ending() and getattr(self, "_pid", None) == pid():
            self._driver.host_free(self.address)


class CudaHostAllocator:
    """Pinned memory of this process (THCudaHostAllocator).

    Allocating and freeing takes about 100 us per MiB; `PoolAllocator(CudaHostAllocator())` reuses freed memory. Use
    `pin_memory()` to pin shared memory.
    """

    __slots__ = ("_memories", "_meter")

    name = "pinned"
    context = None
    pinned = True

    def __init__(self) -> None:
        self._meter = Meter()
        self._memories: dict[int, _Memory] = {}  # by address

    def malloc(self, nbytes: int) -> Region:
        """Allocate an uninitialised region, which begins at a page boundary. Initialises CUDA if necessary.

        Args:
            nbytes: 0 to MAX_BYTES.

        Raises:
            InvalidArgument: nbytes is out of range.
            OutOfMemory: the driver refused.
            DeviceUnavailable: this process cannot use a GPU; the message says why.
        """
        nbytes = require_size(nbytes, self.name)
        try:
            memory = _Memory(nbytes or 1)
        except driver.DriverError as problem:
            if problem.code != driver.OUT_OF_MEMORY:
                raise
            raise OutOfMemory(
                f"the CUDA driver refused {nbytes} bytes of pinned memory ({problem}); free pinned tensors, pin less, "
                "or raise the limit of locked memory (ulimit -l)"
            ) from None
        region = memory.array()[:nbytes]
        self._memories[memory.address] = memory
        self._meter.add(nbytes)
        return region

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Return a region of the new size with the old content as far as it fits; frees `region`.

        Raises:
            InvalidArgument, OutOfMemory, DeviceUnavailable: as malloc; then `region` stays valid.
        """
        fresh = self.malloc(nbytes)
        kept = min(len(region), len(fresh))
        fresh[:kept] = region[:kept]
        self.free(region)
        return fresh

    def free(self, region: Region) -> None:
        """Free the region after the work submitted so far to this thread's current streams. Does not block."""
        self._meter.remove(len(region))
        memory = self._memories.pop(int(region.ctypes.data))
        registered.retire(memory)

    def stats(self) -> AllocatorStats:
        """Return statistics, a snapshot. Does not block."""
        return self._meter.stats()


cuda_host_allocator: Final = CudaHostAllocator()
"""The allocator of `pin_memory()` for private memory."""
