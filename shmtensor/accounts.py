"""Statistics of this process's memory."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

import numpy as np

from ._native import VIEW_PERSONAL, View
from ._tensor.core import Tensor
from .allocators import DefaultAllocator, default_allocator
from .allocators.lease import Lease
from .allocators.protocol import mapped_meter
from .storage import Storage, regions

_peaks: Final[dict[str, int]] = {}


def memory_stats() -> dict[str, int]:
    """Return the bytes of memory in use by this process, in a flat dict.

    `heap`: memory of the default allocator, and memory that NumPy allocated for live tensors and storages. The latter
    is measured by visiting all of them in this call, so creating a tensor has no extra cost; memory used only by
    ndarrays is not included. `shared`: blocks of the manager's memory that this process holds, including received ones;
    for a queue, broadcast or store the memory reserved for it. `mapped`: files, memory files and POSIX shared memory
    mapped by map allocators. `pinned`: private page-locked memory for a GPU. `total`: the sum. `heap.peak` and so on:
    the maximum so far: at any time for `mapped` and the default allocator, and at the calls of this function for the
    others.

    Visits all Python objects, which takes milliseconds per 100,000 objects. Does not block.
    """
    client = sys.modules.get("shmtensor.manager.client")
    pinned = sys.modules.get("shmtensor.allocators.pinned")
    figures = {
        "heap": default_allocator.stats().bytes + _other_heap_bytes(),
        "shared": sum(manager.native.stats().nbytes for manager in list(client._managers.values())) if client else 0,
        "mapped": mapped_meter.stats().bytes,
        "pinned": pinned.cuda_host_allocator.stats().bytes if pinned is not None else 0,
    }
    figures["total"] = sum(figures.values())
    seen = {"heap": default_allocator.stats().peak_bytes, "mapped": mapped_meter.stats().peak_bytes}
    for kind, nbytes in figures.items():
        _peaks[kind] = max(_peaks.get(kind, 0), nbytes, seen.get(kind, 0))
    return figures | {f"{kind}.peak": nbytes for kind, nbytes in _peaks.items()}


def _other_heap_bytes() -> int:
    """Return the bytes of heap memory of live tensors and storages that the default allocator does not count."""
    owners: dict[int, Any] = {}
    for thing in gc.get_objects():
        kind = type(thing)  # not isinstance, which may call code of the object
        if issubclass(kind, Tensor):
            array = getattr(thing, "_array", None)
        elif issubclass(kind, Storage):
            array = getattr(thing, "_flat", None)
        else:
            continue
        if array is not None:  # otherwise it is being created
            owner = regions.owner_of(array)
            owners[id(owner)] = owner
    return sum(_heap_bytes(owner) for owner in owners.values())


def _heap_bytes(owner: Any) -> int:
    if isinstance(owner, np.ndarray):
        counted = owner.flags.owndata
    elif isinstance(owner, Lease):
        counted = isinstance(owner.allocator, DefaultAllocator) and owner.allocator is not default_allocator
        owner = owner.region
    elif isinstance(owner, View):
        counted = owner.kind == VIEW_PERSONAL
    else:
        counted = isinstance(owner, memoryview) and isinstance(owner.obj, bytes | bytearray)
    return int(owner.nbytes) if counted else 0
