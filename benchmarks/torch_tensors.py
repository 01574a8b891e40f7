"""torch tensors: through queues of ours and of torch, and torch's DataLoader with our context."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

SIZES = {"4 KiB": 4 << 10, "4 MiB": 4 << 20}
STRATEGIES = ("file_descriptor", "file_system")
ROUNDS = 200
SHAPE = (3, 224, 224)
SMALL = (16,)
LOADS = {"(3, 224, 224)": (SHAPE, 64, 40), "(16,)": (SMALL, 256, 400)}  # shape of a sample, batch, batches
WORKERS = 2
TURNS = 3


# ---- contenders ------------------------------------------------------------------------------------------------------


def there_and_back(module: str, strategy: str, nbytes: int, fresh: bool) -> float:
    """Median seconds until a tensor is back; the other process adds 1 to its first element."""
    import importlib

    import torch
    import torch.multiprocessing

    torch.set_num_threads(1)
    if strategy:
        torch.multiprocessing.set_sharing_strategy(strategy)
    context = importlib.import_module(module).get_context("fork")
    there, back = context.Queue(), context.Queue()
    other = context.Process(target=echo, args=(there, back))
    other.start()
    tensor, times = torch.zeros(nbytes // 4), []
    with collector_off():
        for number in range(ROUNDS):
            if fresh:
                tensor = torch.full((nbytes // 4,), float(number))
            start = time.perf_counter()
            there.put(tensor)
            tensor = back.get()
            float(tensor[0])
            times.append(time.perf_counter() - start)
    there.put(None)
    other.join()
    return statistics.median(times[ROUNDS // 10 :])


def echo(there: Any, back: Any) -> None:
    import torch

    torch.set_num_threads(1)
    while (tensor := there.get()) is not None:
        tensor[0] += 1
        back.put(tensor)


class Samples:
    """Samples that are in memory."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        import torch

        self.samples, self.count = torch.ones(256, *shape), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.samples[index % 256]


def load(ours: bool, shape: list[int], batch: int, batches: int) -> float:
    """Samples per second of torch's DataLoader after its first batch."""
    from torch.utils.data import DataLoader

    from shmtensor.integrations.torch import context

    samples: Any = Samples(tuple(shape), batch * batches)
    how = context("fork") if ours else "fork"
    seen, start = 0, 0.0
    for _ in DataLoader(samples, batch_size=batch, num_workers=WORKERS, multiprocessing_context=how):
        start = start or time.perf_counter()
        seen += 1
    return batch * (seen - 1) / (time.perf_counter() - start)


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    if not have("torch"):
        return
    contenders = {"shmtensor.multiprocessing": ("shmtensor.multiprocessing", "")}
    contenders |= {f"torch.multiprocessing, {strategy}": ("torch.multiprocessing", strategy) for strategy in STRATEGIES}
    for words, nbytes in SIZES.items():
        for fresh in (True, False):
            work = f"a torch tensor of {words} {'that was private' if fresh else 'that is shared'}, there and back"
            times: dict[str, list[float]] = {name: [] for name in contenders}
            for _ in range(TURNS):
                for name, how in contenders.items():
                    times[name].append(run_contender("torch_tensors:there_and_back", *how, nbytes, fresh))
            for name in contenders:
                yield Figure(work, name, statistics.median(times[name]), "s")
    for words, (shape, batch, batches) in LOADS.items():
        work = f"torch's DataLoader, {batch} x {words} float32, {WORKERS} workers"
        rates: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(TURNS):
            for ours in rates:
                rates[ours].append(run_contender("torch_tensors:load", ours, shape, batch, batches))
        target = "1.5 x torch" if shape == SHAPE else ""
        yield Figure(work, "shmtensor's context", statistics.median(rates[True]), "1/s", target)
        yield Figure(work, "torch", statistics.median(rates[False]), "1/s")
