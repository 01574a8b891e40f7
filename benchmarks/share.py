"""`share_memory_()`: moving a tensor of this process into shared memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off, have, run_contender

SIZES = {"4 KiB": 4 << 10, "64 MiB": 64 << 20}


# ---- contenders ------------------------------------------------------------------------------------------------------


def shmtensor_share(nbytes: int) -> dict[str, float]:
    import shmtensor

    return share_and_copy(shmtensor.from_numpy, nbytes)


def torch_share(nbytes: int, strategy: str) -> dict[str, float]:
    import torch
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy(strategy)
    return share_and_copy(torch.from_numpy, nbytes)


def share_and_copy(from_numpy: Callable[[Any], Any], nbytes: int) -> dict[str, float]:
    """Seconds of share_memory_() of a tensor over a warm array, and of a numpy.copyto of as much into a warm array.

    The tensor that was shared in one round is dropped before the next one, untimed. If a library keeps memory for
    reuse, it is warm from the second round on. The two take turns, so that both see the same noise.
    """
    import numpy as np

    source = np.ones(nbytes // 4, np.float32)
    target = np.zeros_like(source)
    rounds = 30 if nbytes > 1 << 20 else 500
    shares, copies = [], []
    with collector_off():
        for _ in range(rounds):
            tensor = from_numpy(source)
            start = time.perf_counter()
            tensor.share_memory_()
            shares.append(time.perf_counter() - start)
            del tensor
            start = time.perf_counter()
            np.copyto(target, source)
            copies.append(time.perf_counter() - start)
    return {"share": statistics.median(shares[5:]), "copyto": statistics.median(copies[5:])}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    for words, nbytes in SIZES.items():
        work = f"`share_memory_()` of {words}"
        ours = run_contender("share:shmtensor_share", nbytes)
        target = "1.3 x copyto" if nbytes > 1 << 20 else ""
        note = f"{ours['share'] / ours['copyto']:.2f} x copyto"
        yield Figure(work, "shmtensor", ours["share"], "s", target, note)
        yield Figure(work, "`numpy.copyto` alone", ours["copyto"], "s", note="same process as the row above")
        if have("torch"):
            for strategy in ("file_descriptor", "file_system"):
                theirs = run_contender("share:torch_share", nbytes, strategy)
                note = f"{theirs['share'] / theirs['copyto']:.2f} x copyto"
                yield Figure(work, f"torch, {strategy}", theirs["share"], "s", note=note)
