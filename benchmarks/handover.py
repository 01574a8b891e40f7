"""Hand-over: a tensor goes to another process, which adds 1 to its first element and sends it back."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

SIZES = {"4 KiB": 4 << 10, "64 MiB": 64 << 20}
TURNS = 5


# ---- contenders ------------------------------------------------------------------------------------------------------


def shmtensor_pair(kind: str, nbytes: int) -> float:
    import shmtensor
    import shmtensor.multiprocessing as mp

    return there_and_back(mp, kind, shmtensor.zeros(nbytes // 4, shared=True), 1_000)


def torch_pair(kind: str, nbytes: int, strategy: str) -> float:
    import torch
    import torch.multiprocessing as mp

    mp.set_sharing_strategy(strategy)
    return there_and_back(mp, kind, torch.zeros(nbytes // 4).share_memory_(), 300, strategy)


def stdlib_pair(kind: str, nbytes: int) -> float:
    import multiprocessing

    import numpy as np

    rounds = 1_000 if nbytes < 1 << 20 else 5
    return there_and_back(multiprocessing, kind, np.zeros(nbytes // 4, np.float32), rounds)


def there_and_back(mp: Any, kind: str, tensor: Any, rounds: int, strategy: str = "") -> float:
    """Median seconds of one round trip through two queues of that kind, after a tenth of the rounds as a warm-up."""
    context = mp.get_context("spawn")
    there, back = getattr(context, kind)(), getattr(context, kind)()
    child = context.Process(target=echo, args=(mp.__name__, there, back, strategy), daemon=True)
    child.start()
    back.get()  # the child is ready
    times = []
    with collector_off():
        for round_ in range(rounds + rounds // 10 + 1):
            start = time.perf_counter()
            there.put(tensor)
            received = back.get()
            times.append(time.perf_counter() - start)
            if float(received[0]) != round_ + 1:
                raise AssertionError(f"round {round_}: the child's addition was lost")
            tensor = received
    there.put(None)
    child.join(10)
    return statistics.median(times[rounds // 10 + 1 :])


def echo(module: str, there: Any, back: Any, strategy: str) -> None:
    mp = importlib.import_module(module)
    if strategy:
        mp.set_sharing_strategy(strategy)
    back.put(None)
    while (tensor := there.get()) is not None:
        tensor[0] += 1
        back.put(tensor)


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    for kind in ("SimpleQueue", "Queue"):
        for words, nbytes in SIZES.items():
            contenders: dict[str, tuple[Any, ...]] = {"shmtensor": ("handover:shmtensor_pair", kind, nbytes)}
            if have("torch"):
                for strategy in ("file_descriptor", "file_system"):
                    contenders[f"torch, {strategy}"] = ("handover:torch_pair", kind, nbytes, strategy)
            contenders["stdlib, an ndarray by value"] = ("handover:stdlib_pair", kind, nbytes)
            # Waking another process takes most of the time and varies from minute to minute: they take turns.
            turns = [{name: run_contender(*call) for name, call in contenders.items()} for _ in range(TURNS)]
            for name in contenders:
                seconds = statistics.median(turn[name] for turn in turns)
                yield Figure(f"{words} there and back through `{kind}`", name, seconds, "s")
