"""The CUDA allocator: blocks of a GPU's memory that any process of the group can use (docs/gpu.md)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..errors import InvalidArgument
from ..gpu import arrays, driver, memory, order, segments
from ..manager import client
from .protocol import AllocatorStats, Region, require_size


class CudaAllocator:
    """Shared memory of one device.

    A block is released when its last reference in this process is gone and no stream of this process uses it any more,
    so `free` does nothing. Other processes that hold the block keep it.

    Args:
        device: number of the device.

    Raises:
        DeviceUnavailable: there is no GPU, or this one cannot be shared.
        InvalidArgument: no device has that number.
    """

    __slots__ = ("context",)

    name = "cuda"
    shared = True
    context: int
    """Number of the device."""

    def __init__(self, device: int = 0) -> None:
        self.context = driver.require_device(device)

    def malloc(self, nbytes: int) -> Region:
        """Allocate a block with arbitrary content; for 0 bytes, a block of 1 byte. Raises as `allocate`."""
        return allocate(self.context, require_size(nbytes, self.name))

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Raise an error: other processes may have the block open with its size.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(
            f"cannot resize a shared block of {region.nbytes} bytes on cuda:{self.context} to {nbytes}, because other "
            "processes may have it open; allocate a new block and copy"
        )

    def free(self, region: Region) -> None:
        """Do nothing: the last reference to the block releases this process's hold. Does not block."""

    def stats(self) -> AllocatorStats:
        """Return the blocks on the device that this process holds, including received ones."""
        now = client.default().native.device_stats(self.context)
        return AllocatorStats(now.blocks, now.nbytes, now.nbytes, now.blocks, now.nbytes, 0, now.free)


class PrivateCudaAllocator:
    """Private memory of one device, which CuPy allocates and caches. Regions are CuPy arrays of bytes."""

    __slots__ = ("context",)

    name = "cuda"
    shared = False
    context: int
    """Number of the device."""

    def __init__(self, device: int = 0) -> None:
        self.context = driver.require_device(device)

    def malloc(self, nbytes: int) -> Region:
        """Allocate memory with arbitrary content. Raises OutOfMemory."""
        return arrays.empty(require_size(nbytes, self.name), "uint8", self.context)

    def free(self, region: Region) -> None:
        """Do nothing: the memory goes back to CuPy's pool with the last array over it. Does not block."""


@cache
def of(device: int, shared: bool) -> CudaAllocator | PrivateCudaAllocator:
    """Return the allocator of shared, or of private, memory of a device."""
    return CudaAllocator(device) if shared else PrivateCudaAllocator(device)


def allocate(device: int, nbytes: int) -> Any:
    """Allocate shared memory of a device, of at least 1 byte: a `gpu.memory.BlockMemory`.

    The first call in a process finds or starts the manager and initialises CUDA, which takes up to a second. Later ones
    make no request while the arenas of this process have room.

    Raises:
        OutOfMemory: the device has no memory left; the message states what is free and what this process holds.
        DeviceUnavailable: the device cannot be shared, or the driver refused.
        ManagerError: no manager can be reached or started.
    """
    manager = client.default()
    order.of(manager).collect()
    return memory.memory_over(manager.allocate_on(device, nbytes or 1))


def empty_cache(device: int) -> int:
    """Free the device memory that this process caches. Returns the number of segments freed. May block."""
    return segments.give_back(client.default(), device)
