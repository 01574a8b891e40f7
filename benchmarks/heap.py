"""Allocating and freeing: one warm 4 KiB block, and with up to a million live blocks."""

from __future__ import annotations

import functools
import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import ROOT, Figure, collector_off, have, run_contender, seconds_per_call

BENCH_HEAP = [ROOT / "build" / folder / "bench_heap" for folder in ("native-tests", "native")]
SMALL = 64  # bytes of a block where many are alive
LIVE = (10, 1_000, 100_000, 1_000_000)


# ---- contenders ------------------------------------------------------------------------------------------------------


def manager_allocate() -> float:
    from shmtensor.manager import client

    return seconds_per_call(functools.partial(client.default().allocate, 4096), 10_000, 50)


def shmtensor_empty() -> float:
    import shmtensor

    return seconds_per_call(functools.partial(shmtensor.empty, 1024, shared=True), 10_000, 50)


def torch_empty(strategy: str) -> float:
    import torch
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy(strategy)
    return seconds_per_call(lambda: torch.empty(1024).share_memory_(), 200, 20)


def stdlib_create() -> float:
    from multiprocessing.shared_memory import SharedMemory

    def create() -> None:
        memory = SharedMemory(create=True, size=4096)
        memory.close()
        memory.unlink()

    return seconds_per_call(create, 200, 20)


def python_live(live: int) -> dict[str, float]:
    """Seconds to free one block and allocate another of the same size while `live` blocks are alive."""
    from shmtensor.manager import client

    allocate = client.default().allocate
    with collector_off():
        blocks: list[Any] = [allocate(SMALL) for _ in range(live)]

        def last_in_first_out() -> None:
            blocks.pop()
            blocks.append(allocate(SMALL))

        places = random.Random(0)
        order = iter([places.randrange(live) for _ in range(200_000)])

        def any_order() -> None:
            place = next(order)
            blocks[place] = None
            blocks[place] = allocate(SMALL)

        return {"lifo": timed(last_in_first_out), "random": timed(any_order)}


def timed(function: Callable[[], None]) -> float:
    """Median of batches, without garbage collection, which takes seconds with a million objects alive."""
    times = []
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(2_000):
            function()
        times.append((time.perf_counter() - start) / 2_000)
    return statistics.median(times[5:])


# ---- rows ------------------------------------------------------------------------------------------------------------


def native_figures() -> list[dict[str, Any]]:
    """The figures that bench_heap of the native tests prints, a JSON object per line; empty if it was not built."""
    program = next((path for path in BENCH_HEAP if path.exists()), None)
    if program is None:
        return []
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def measure() -> Iterator[Figure]:
    native = native_figures()
    work = "allocate and free a warm 4 KiB block"
    yield Figure(work, "shmtensor `empty(1024, shared=True)`", run_contender("heap:shmtensor_empty"), "s", "1 us")
    yield Figure(work, "shmtensor `Manager.allocate`", run_contender("heap:manager_allocate"), "s", "1 us")
    warm = [line["ns"] * 1e-9 for line in native if line["bytes"] == 4096]
    note = "10 other blocks live" if warm else "bench_heap of the native tests is not built"
    yield Figure(work, "shmtensor native", warm[0] if warm else None, "s", "100 ns", note)
    yield Figure(work, "stdlib `SharedMemory` create, close, unlink", run_contender("heap:stdlib_create"), "s")
    if have("torch"):
        for strategy in ("file_descriptor", "file_system"):
            seconds = run_contender("heap:torch_empty", strategy)
            yield Figure(work, f"torch `share_memory_`, {strategy}", seconds, "s")

    for line in sorted((line for line in native if line["bytes"] == SMALL), key=lambda line: line["bench"]):
        target = "flat" if "last in first out" in line["bench"] else ""
        contender = f"shmtensor native, {line['live']:,} live"
        yield Figure(f"{line['bench']}, 64 B", contender, line["ns"] * 1e-9, "s", target)
    figures = {live: run_contender("heap:python_live", live) for live in LIVE}
    for order, words in (("lifo", "last in first out"), ("random", "random live block")):
        for live, seconds in figures.items():
            contender = f"shmtensor `Manager.allocate`, {live:,} live"
            target = "flat" if order == "lifo" else ""
            yield Figure(f"free+allocate from Python, {words}, 64 B", contender, seconds[order], "s", target)
