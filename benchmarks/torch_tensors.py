"""torch tensors through queues of shmtensor and of torch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

SIZES = {"4 KiB": 4 << 10, "4 MiB": 4 << 20}
STRATEGIES = ("file_descriptor", "file_system")
ROUNDS = 200
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
