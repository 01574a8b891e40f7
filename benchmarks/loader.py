"""Loading: samples a second by workers, and how soon the first batch is there, beside torch's DataLoader."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

WORKERS = 2
KINDS: dict[str, tuple[int, int, tuple[int, ...], str, str]] = {
    "large": (1_024, 64, (3, 224, 224), "64 x (3, 224, 224) float32", "2.5 x torch, 0.75 of memcpy"),
    "small": (131_072, 256, (16,), "256 x (16,) float32", "4 x torch"),
}
"""Samples of the dataset, samples of a batch, their shape, and how it is called."""
ROUNDS = 9


class InMemory:
    """Rows of one array in memory."""

    def __init__(self, kind: str) -> None:
        import numpy as np

        length, _, shape, *_ = KINDS[kind]
        self.x = np.random.default_rng(0).standard_normal((length, *shape), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index]


def loader_of(name: str, dataset: Any, batch: int, persistent: bool) -> Any:
    if name == "torch":
        import torch.utils.data

        torch.set_num_threads(1)
        return torch.utils.data.DataLoader(dataset, batch, num_workers=WORKERS, persistent_workers=persistent)
    import shmtensor.data

    return shmtensor.data.DataLoader(dataset, batch, num_workers=WORKERS, persistent_workers=persistent)


def rate(loader: Any) -> float:
    """Samples a second of one epoch, of which the batches are dropped as they come."""
    begin = time.perf_counter()
    count = sum(len(batch) for batch in loader)
    return count / (time.perf_counter() - begin)


def epochs(kind: str, beside_torch: bool) -> dict[str, float]:
    """Samples a second of each loader, which take turns, and those of copies in memory that is warm."""
    import numpy as np

    dataset, batch = InMemory(kind), KINDS[kind][1]
    names = ["shmtensor", "torch"] if beside_torch else ["shmtensor"]
    loaders = {name: loader_of(name, dataset, batch, True) for name in names}
    found: dict[str, list[float]] = {name: [] for name in [*names, "memcpy"]}
    into = np.zeros_like(dataset.x[:batch])
    with collector_off():
        for _ in range(ROUNDS + 1):
            for name, loader in loaders.items():
                found[name].append(rate(loader))
            begin = time.perf_counter()
            for start in range(0, len(dataset), batch):
                np.copyto(into, dataset.x[start : start + batch])
            found["memcpy"].append(len(dataset) / (time.perf_counter() - begin))
    return {name: statistics.median(rates[1:]) for name, rates in found.items()}


def first_batches(name: str, kind: str, persistent: bool) -> float:
    """Seconds from `iter()` to the first batch, the median."""
    loader = loader_of(name, InMemory(kind), KINDS[kind][1], persistent)
    next(iter(loader))
    times = []
    with collector_off():
        for _ in range(2 * ROUNDS):
            begin = time.perf_counter()
            iterator = iter(loader)
            next(iterator)
            times.append(time.perf_counter() - begin)
            del iterator
    return statistics.median(times)


def measure() -> Iterator[Figure]:
    torch = have("torch")
    for kind, (_, _, _, called, target) in KINDS.items():
        rates: dict[str, float] = run_contender("loader:epochs", kind, torch)
        work = f"samples a second, {called}, {WORKERS} workers"
        note = f"{rates['shmtensor'] / rates['memcpy']:.2f} of memcpy" if kind == "large" else ""
        yield Figure(work, "shmtensor", rates["shmtensor"], "1/s", target, note)
        if torch:
            yield Figure(work, "torch", rates["torch"], "1/s")
        yield Figure(work, "memcpy of one process, warm", rates["memcpy"], "1/s")
    for persistent, target in ((True, "5 ms"), (False, "50 ms")):
        for kind, (_, _, _, called, _) in KINDS.items():
            work = f"first batch, {'persistent' if persistent else 'new forked'} workers, {called}"
            yield Figure(
                work, "shmtensor", run_contender("loader:first_batches", "shmtensor", kind, persistent), "s", target
            )
            if torch:
                yield Figure(work, "torch", run_contender("loader:first_batches", "torch", kind, persistent), "s")
