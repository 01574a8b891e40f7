"""Loading to a GPU: copies from a pinned batch, copies beside computing, and samples a second on the device.

`python benchmarks/gpu_loading.py` runs it alone, which takes less than a minute.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks.loader_data import InMemory
from benchmarks.measure import Figure, collector_off, have, run_contender

SHAPE, BATCH, LENGTH = (3, 224, 224), 64, 4_096  # a batch has 38.5 MB
WORKERS = max(2, min(8, (os.cpu_count() or 2) // 2))
ROUNDS = 4
COPIES = 20
SECONDS = 25.0  # after which no further round begins

COPY = f"copy of a batch of {BATCH} x {SHAPE} float32 to the device"
BESIDE = "the same, each beside a computation that takes as long"
LOADED = f"samples a second on the device, {SHAPE} float32 from memory, {WORKERS} workers"
OURS, AHEAD, TORCH = "shmtensor, pin_memory", "shmtensor, pin_memory, prefetch_to", "torch, pin_memory"


def reason() -> str:
    """Why nothing can be measured here; empty if it can."""
    from shmtensor import cuda

    if not cuda.is_available():
        return f"no GPU can be used: {cuda.status()}"
    if not have("torch"):
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "torch has no CUDA"


def loader(length: int, **arguments: Any) -> Any:
    """Ours."""
    import shmtensor.data

    return shmtensor.data.DataLoader(
        InMemory(512, SHAPE, length), BATCH, num_workers=WORKERS, persistent_workers=True, output="torch",
        pin_memory=True, **arguments,
    )  # fmt: skip


# ---- contenders ------------------------------------------------------------------------------------------------------


def _median(do: Callable[[], object]) -> float:
    """Median seconds until the device has done the work."""
    import torch

    times = []
    for _ in range(COPIES + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        do()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def copies() -> dict[str, float]:
    """Bytes a second from a pinned batch of the loader, from torch's pinned memory, and from memory that is not pinned.

    Also seconds for a batch that is copied beside a computation as long as the copy, on the same stream and ahead.
    """
    import torch

    from shmtensor.data.prefetching import Prefetched

    batches = iter(loader(4 * BATCH))
    next(batches)
    ours = next(batches)
    best = torch.empty_like(ours, device="cpu", pin_memory=True).copy_(ours)
    plain = ours.clone()
    target = torch.empty_like(ours, device="cuda")
    assert ours.is_pinned()
    assert not plain.is_pinned()
    sources = {"ours": ours, "best": best, "plain": plain}
    found: dict[str, list[float]] = {name: [] for name in sources}
    with collector_off():
        for _ in range(3):
            for name, source in sources.items():
                found[name].append(
                    _median(lambda source=source: target.copy_(source, non_blocking=True))  # type: ignore[misc]
                )
        rates = {name: ours.nbytes / min(seconds) for name, seconds in found.items()}
        cycles = int(1e6)
        cycles = int(cycles * min(found["ours"]) / _median(lambda: torch.cuda._sleep(cycles)))

        def epoch(on_device: Iterable[Any]) -> None:
            for batch in on_device:
                torch.cuda._sleep(cycles)
                batch[0, 0, 0, 0] += 1

        many = [ours] * 20
        in_turn = _median(lambda: epoch(batch.to("cuda", non_blocking=True) for batch in many)) / len(many)
        ahead = _median(lambda: epoch(Prefetched(many, "cuda"))) / len(many)
    return rates | {"in_turn": in_turn, "ahead": ahead}


def loaders() -> dict[str, float]:
    """Samples a second, from the dataset to the device; the loaders take turns. Medians."""
    import torch
    import torch.utils.data

    pinned = loader(LENGTH)
    ahead = loader(LENGTH)
    theirs = torch.utils.data.DataLoader(
        InMemory(512, SHAPE, LENGTH), BATCH, num_workers=WORKERS, persistent_workers=True, pin_memory=True
    )
    torch.zeros(1, device="cuda")
    epochs: dict[str, Callable[[], Iterable[Any]]] = {
        OURS: lambda: (batch.to("cuda", non_blocking=True) for batch in pinned),
        AHEAD: lambda: ahead.prefetch_to("cuda"),
        TORCH: lambda: (batch.to("cuda", non_blocking=True) for batch in theirs),
    }
    found: dict[str, list[float]] = {name: [] for name in epochs}
    begun = time.perf_counter()
    with collector_off():
        for number in range(ROUNDS + 1):
            if number > 1 and time.perf_counter() - begun > SECONDS:
                break
            for name, batches in epochs.items():
                time.sleep(0.2)  # for workers to finish samples that are not awaited
                start = time.perf_counter()
                count = sum(len(batch) for batch in batches())
                torch.cuda.synchronize()
                found[name].append(count / (time.perf_counter() - start))
    return {name: statistics.median(rates[1:]) for name, rates in found.items()}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    if why := reason():
        yield Figure(COPY, "shmtensor", None, "B/s", note=why)
        return
    found: dict[str, float] = run_contender("gpu_loading:copies")
    note = f"{found['ours'] / found['best']:.2f} of torch's pinned memory"
    yield Figure(COPY, "shmtensor, a batch of the loader", found["ours"], "B/s", "0.9 of pinned", note)
    yield Figure(COPY, "torch, pinned memory", found["best"], "B/s")
    yield Figure(COPY, "memory that is not pinned", found["plain"], "B/s")
    yield Figure(BESIDE, "shmtensor, prefetch_to", found["ahead"], "s", "half of on one stream")
    yield Figure(BESIDE, "on one stream", found["in_turn"], "s")
    rates: dict[str, float] = run_contender("gpu_loading:loaders")
    for name, rate in rates.items():
        target = "1.5 x torch" if name == OURS else ""
        yield Figure(LOADED, name, rate, "1/s", target, f"{rate / rates[TORCH]:.2f} x torch" if name != TORCH else "")


if __name__ == "__main__":
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    for row in measure():
        value = "-" if row.value is None else f"{row.value:,.4g} {row.unit}"
        print(f"{row.work}: {row.contender}: {value} {row.note}", flush=True)
