"""Loading: samples a second from memory and from photographs by two workers, and the time to the first batch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.loader_data import InMemory, Photographs
from benchmarks.loader_peers import (
    CONTEXT,
    LOADERS,
    OURS,
    TORCH,
    WORKERS,
    SamplesAlone,
    installed,
    ours,
    torch,
    torch_with_context,
)
from benchmarks.measure import Figure, collector_off, have, run_contender

LARGE, SMALL, IMAGES = "large", "small", "images"
CALLED = {
    LARGE: "64 x (3, 224, 224) float32 from memory",
    SMALL: "256 x (16,) float32 from memory",
    IMAGES: "photographs decoded and cropped",
}
BATCH = {LARGE: 64, SMALL: 256, IMAGES: 16}
TARGETS = {
    (LARGE, OURS): "2.5 x torch, 0.75 of memcpy",
    (LARGE, CONTEXT): "1.5 x torch",
    (SMALL, OURS): "4 x torch",
    (IMAGES, OURS): "0.95 of decoding alone",
}
MEMCPY = "memcpy of one process, warm"
DECODING = f"decoding alone, {WORKERS} processes"
ONE_DECODING = "decoding alone, 1 process"
BOUNDS = {LARGE: MEMCPY, SMALL: MEMCPY, IMAGES: DECODING}
ROUNDS = 5
PAUSE = 0.3  # seconds for workers to finish samples that are not awaited


def dataset_of(kind: str) -> Any:
    if kind == LARGE:
        return InMemory(512, (3, 224, 224), 2_048)
    return InMemory(131_072, (16,), 131_072) if kind == SMALL else Photographs(192)


class Copies:
    """Copies of a batch's rows to warm memory."""

    def __init__(self, dataset: InMemory, batch: int) -> None:
        import numpy as np

        self.x, self.length, self.out = dataset.x, len(dataset), np.zeros_like(dataset.x[:batch])

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self.length, len(self.out)):
            first = start % len(self.x)
            self.out[...] = self.x[first : first + len(self.out)]
            yield self.out


def rate(batches: Iterable[Any]) -> float:
    """Samples a second over an epoch; batches are dropped as they come."""
    iterator = iter(batches)
    begin = time.perf_counter()
    count = sum(len(batch) for batch in iterator)
    return count / (time.perf_counter() - begin)


def epochs(kind: str) -> dict[str, tuple[float, float]]:
    """Samples a second of each loader and of its upper bound, and their ratios.

    They take turns. Medians; a ratio is of figures of the same turn.
    """
    dataset, batch = dataset_of(kind), BATCH[kind]
    contenders: dict[str, Any] = {}
    if kind == IMAGES:
        contenders |= {DECODING: SamplesAlone(dataset, WORKERS), ONE_DECODING: SamplesAlone(dataset, 1)}
    for name in installed():
        contenders[name] = LOADERS[name][1](dataset, batch)
    if kind != IMAGES:
        contenders[MEMCPY] = Copies(dataset, batch)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    with collector_off():
        for _ in range(ROUNDS + 1):
            for name, batches in contenders.items():
                time.sleep(PAUSE)
                found[name].append(rate(batches))
    bounds = found[BOUNDS[kind]]
    parts = {name: [a / b for a, b in zip(rates, bounds, strict=True)] for name, rates in found.items()}
    return {name: (statistics.median(found[name][1:]), statistics.median(parts[name][1:])) for name in found}


def first_batches(kind: str, persistent: bool) -> dict[str, float]:
    """Seconds from `iter()` to the first batch of each loader; they take turns. Medians.

    Loaders without persistent workers are made anew each time, without knowledge of the samples.
    """
    makers = {OURS: ours} | ({CONTEXT: torch_with_context, TORCH: torch} if have("torch") else {})
    dataset = dataset_of(kind)
    loaders = {name: make(dataset, BATCH[kind], persistent) for name, make in makers.items()}
    times: dict[str, list[float]] = {name: [] for name in loaders}
    with collector_off():
        for _ in range(2 * ROUNDS + 1):
            for name, make in makers.items():
                time.sleep(PAUSE)
                loader = loaders[name] if persistent else make(dataset, BATCH[kind], persistent)
                begin = time.perf_counter()
                iterator = iter(loader)
                next(iterator)
                times[name].append(time.perf_counter() - begin)
                del iterator
    return {name: statistics.median(some[1:]) for name, some in times.items()}


def measure() -> Iterator[Figure]:
    for kind, called in CALLED.items():
        work = f"samples a second, {called}, {WORKERS} workers"
        if kind == IMAGES and not have("sklearn"):
            yield Figure(work, OURS, None, "1/s", "", "scikit-learn, which has the photographs, is not installed")
            continue
        found: dict[str, tuple[float, float]] = run_contender("loader:epochs", kind)
        for name in [*LOADERS, *(name for name in found if name not in LOADERS)]:
            target = TARGETS.get((kind, name), "")
            if name not in found:
                yield Figure(work, name, None, "1/s", target, f"{LOADERS[name][0]} is not installed")
                continue
            speed, part = found[name]
            is_compared = kind != SMALL and name != BOUNDS[kind]
            yield Figure(work, name, speed, "1/s", target, f"{part:.2f} of {BOUNDS[kind]}" if is_compared else "")
    for persistent, target in ((True, "5 ms"), (False, "50 ms")):
        for kind in (LARGE, SMALL):
            work = f"first batch, {'persistent' if persistent else 'new forked'} workers, {CALLED[kind]}"
            firsts: dict[str, float] = run_contender("loader:first_batches", kind, persistent)
            for name, seconds in firsts.items():
                yield Figure(work, name, seconds, "s", target if name == OURS else "")
