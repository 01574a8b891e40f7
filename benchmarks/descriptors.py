"""File descriptors that live shared tensors need."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure, have, run_contender


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1  # without the one that lists


# ---- contenders ------------------------------------------------------------------------------------------------------


def shmtensor_live(count: int) -> int:
    """Descriptors that `count` live shared tensors of 4 KiB added to this process."""
    import shmtensor

    before = count_descriptors()
    tensors = [shmtensor.empty(1024, shared=True) for _ in range(count)]
    added = count_descriptors() - before
    del tensors
    return added


def torch_live(count: int) -> dict[str, int]:
    """Descriptors added, and how many tensors could be made, up to `count`."""
    import torch
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    before = count_descriptors()
    spare = os.open("/dev/null", os.O_RDONLY)  # counting needs a descriptor, and there may be none left
    tensors = []
    try:
        for _ in range(count):
            tensors.append(torch.empty(1024).share_memory_())  # noqa: PERF401  what was made before an error counts
    except RuntimeError as error:
        if "Too many open files" not in str(error):
            raise
    os.close(spare)
    return {"made": len(tensors), "descriptors": count_descriptors() - before}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    for count in (10, 100_000):
        work = f"descriptors for {count:,} live shared 4 KiB tensors"
        target = "as for 10" if count > 10 else ""
        yield Figure(work, "shmtensor", run_contender("descriptors:shmtensor_live", count), "", target)
        if have("torch"):
            result = run_contender("descriptors:torch_live", count)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            note = "" if result["made"] == count else f"stopped at {result['made']:,} tensors, the limit is {limit:,}"
            yield Figure(work, "torch, file_descriptor", result["descriptors"], "", note=note)
