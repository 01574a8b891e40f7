"""GPUs: a tensor on a device is sent to another process; streams of small tensors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off
from benchmarks.turns import take_turns

ROUNDS = 2_000
TORCH_ROUNDS = 300
SMALL = 100_000  # tensors of a stream
TORCH_SMALL = 5_000
KEPT = 64  # messages of a stream that wait at most

HANDED = "4 KiB on the device to another process, and a word back"
STREAM = "stream of new 4 KiB tensors on the device"


def reason() -> str:
    """Why nothing can be measured here; empty if it can."""
    from shmtensor import cuda

    return "" if cuda.is_available() else f"no GPU can be used: {cuda.status()}"


# ---- contenders ------------------------------------------------------------------------------------------------------


def _answer(there: Any, back: Any) -> None:
    """Answer each tensor once it has arrived."""
    for tensor in iter(there.get, None):
        del tensor
        back.put(1)


def _round_trips(context: Any, tensor: Any, rounds: int) -> float:
    """Median seconds until the other process has the tensor and has answered."""
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=_answer, args=(there, back))
    process.start()
    times = []
    with collector_off():
        for _ in range(rounds + rounds // 10):
            start = time.perf_counter()
            there.put(tensor)
            back.get(timeout=60)
            times.append(time.perf_counter() - start)
    there.put(None)
    process.join()
    return statistics.median(times[rounds // 10 :])


def ours() -> dict[str, Any]:
    """Median seconds of a hand-over from a device, and of one from host memory."""
    import shmtensor as st
    import shmtensor.multiprocessing as mp

    context = mp.get_context("spawn")
    on_device = st.zeros(1024, device="cuda").share_memory_()
    return {
        "device": _round_trips(context, on_device, ROUNDS),
        "host": _round_trips(context, st.zeros(1024, shared=True), ROUNDS),
    }


def torch() -> dict[str, Any]:
    """The same with torch's queue and tensors."""
    import torch as theirs
    import torch.multiprocessing as mp

    return {"device": _round_trips(mp.get_context("spawn"), theirs.zeros(1024, device="cuda"), TORCH_ROUNDS)}


def _drop(there: Any, back: Any) -> None:
    for tensor in iter(there.get, None):
        del tensor
    back.put(1)


def our_stream() -> dict[str, Any]:
    """Tensors a second, and the growth of the device's used memory, in bytes, over a second run of equal length."""
    import shmtensor as st
    import shmtensor.multiprocessing as mp

    context = mp.get_context("spawn")
    there, back = context.Queue(KEPT), context.Queue()
    process = context.Process(target=_drop, args=(there, back))
    process.start()
    used = []
    start = 0.0
    for number in range(SMALL + SMALL // 10):
        if number == SMALL // 10:
            start = time.perf_counter()
        if number % (SMALL // 10) == 0:
            free, total = st.cuda.mem_get_info()
            used.append(total - free)
        there.put(st.empty(1024, device="cuda", shared=True))
    there.put(None)
    back.get(timeout=60)
    seconds = time.perf_counter() - start
    process.join()
    return {"rate": SMALL / seconds, "growth": used[-1] - used[1]}


def torch_stream() -> dict[str, Any]:
    """The same with torch's queue and tensors."""
    import torch as theirs
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    there, back = context.Queue(KEPT), context.Queue()
    process = context.Process(target=_drop, args=(there, back))
    process.start()
    theirs.zeros(1, device="cuda")
    start = time.perf_counter()
    for _ in range(TORCH_SMALL):
        there.put(theirs.empty(1024, device="cuda"))
    there.put(None)
    back.get(timeout=120)
    seconds = time.perf_counter() - start
    process.join()
    return {"rate": TORCH_SMALL / seconds}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    if why := reason():
        yield Figure(HANDED, "shmtensor", None, "s", note=why)
        return
    contenders = {
        "shmtensor": ("gpu:ours",), "torch": ("gpu:torch",), "stream": ("gpu:our_stream",),
        "torch_stream": ("gpu:torch_stream",),
    }  # fmt: skip
    results = take_turns(contenders)
    yield results.figure("shmtensor", "device", HANDED, "shmtensor", "s", "a tenth of torch")
    yield results.figure("shmtensor", "host", HANDED, "shmtensor, in the processor's memory", "s", "at most 10 us less")
    yield results.figure("torch", "device", HANDED, "torch", "s")
    yield results.figure("stream", "rate", STREAM, "shmtensor", "/s")
    yield results.figure("torch_stream", "rate", STREAM, "torch", "/s")
    yield results.figure("stream", "growth", f"{STREAM}: growth of the device's memory", "shmtensor", "B", "0")
