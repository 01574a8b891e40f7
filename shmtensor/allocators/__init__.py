"""Allocators, the sources of the memory of storages: one protocol, and an allocator for each kind of memory."""

from .._loading import later as _later
from .default import DefaultAllocator, default_allocator
from .managed import ManagedAllocator, managed_allocator
from .map import MapAllocator, MapFlags, MappedRegion
from .pool import PoolAllocator
from .protocol import MAX_BYTES, Allocator, AllocatorStats, Region
from .refcounted import RefcountedMapAllocator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .pinned import CudaHostAllocator as CudaHostAllocator

__all__ = [
    "MAX_BYTES",
    "Allocator",
    "AllocatorStats",
    "CudaHostAllocator",
    "DefaultAllocator",
    "ManagedAllocator",
    "MapAllocator",
    "MapFlags",
    "MappedRegion",
    "PoolAllocator",
    "RefcountedMapAllocator",
    "Region",
    "default_allocator",
    "managed_allocator",
]

_later(globals(), {"allocators.pinned": "CudaHostAllocator"})  # loaded on first use: it needs the GPU driver
