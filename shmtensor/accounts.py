"""What memory this process has, by kind."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

import numpy as np

from . import memory
from ._native import VIEW_PERSONAL, View
from ._tensor import Tensor
from .allocators.protocol import heap_meter, mapped_meter
from .storage import Storage

_peaks: Final[dict[str, int]] = {}


def memory_stats() -> dict[str, int]:
    """Bytes of memory in use by this process, in a flat dict.

    `heap`: what the default allocator has given to storages, and what NumPy allocated for the tensors and storages that
    live. The latter is found by looking at all of them now, so that making a tensor costs nothing more; memory that
    only an ndarray has is not in it.
    `shared`: blocks of the manager's memory that this process holds; those received from others too.
    `mapped`: files, memory files and POSIX shared memory mapped by map allocators.
    `pinned`: page-locked memory for a GPU.
    `total`: the sum.
    `heap.peak` and so on: the most there has been. For `mapped`, and what the default allocator gives, at any time;
    for the rest at the calls of this function.

    Walks through Python's objects, so it takes milliseconds for each 100,000 of them. Does not block.
    """
    client = sys.modules.get("shmtensor.manager.client")
    pinned = memory.pinned_allocator
    figures = {
        "heap": heap_meter.stats().bytes + _numpy_bytes(),
        "shared": sum(manager.native.stats()[3] for manager in list(client._managers.values())) if client else 0,
        "mapped": mapped_meter.stats().bytes,
        "pinned": pinned.stats().bytes if pinned is not None else 0,
    }
    figures["total"] = sum(figures.values())
    seen = {"heap": heap_meter.stats().peak_bytes, "mapped": mapped_meter.stats().peak_bytes}
    for kind, nbytes in figures.items():
        _peaks[kind] = max(_peaks.get(kind, 0), nbytes, seen.get(kind, 0))
    return figures | {f"{kind}.peak": nbytes for kind, nbytes in _peaks.items()}


def _numpy_bytes() -> int:
    """Bytes of heap memory under living tensors and storages that no allocator of ours counts."""
    owners: dict[int, Any] = {}
    for thing in gc.get_objects():
        array = getattr(thing, "_array" if type(thing) is Tensor else "_flat", None) if _ours(thing) else None
        if array is not None:
            owner = memory.owner_of(array)
            owners[id(owner)] = owner
    return sum(owner.nbytes for owner in owners.values() if _is_heap(owner))


def _ours(thing: object) -> bool:
    return issubclass(type(thing), (Tensor, Storage))


def _is_heap(owner: object) -> bool:
    if isinstance(owner, np.ndarray):
        return bool(owner.flags.owndata)
    if isinstance(owner, View):
        return owner.kind == VIEW_PERSONAL
    return isinstance(owner, memoryview) and isinstance(owner.obj, bytes | bytearray)
