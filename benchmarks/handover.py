"""Hand-over: a tensor is sent to another process, which adds 1 to its first element and sends it back."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import ROOT, Figure, collector_off
from benchmarks.transports import TRANSPORTS, Other, Transport
from benchmarks.turns import take_turns

SIZES = {"4 KiB": 4 << 10, "64 MiB": 64 << 20}
BENCH_FUTEX = ROOT / "build" / "native" / "bench_futex"
PAUSE = 0.005  # seconds between requests: longer than any contender spins
BUDGET = 0.5  # seconds for one work of one turn
MOST = 3_000  # round trips
SLEEPING = "two futex words, sleeping"


# ---- contenders ------------------------------------------------------------------------------------------------------


def works(name: str) -> dict[str, float]:
    """Median seconds of a round trip for each work of one transport."""
    transport = TRANSPORTS[name]
    context = transport.context("spawn")
    kinds = [(kind, words) for kind in transport.kinds for words in SIZES]
    queues = [transport.queue(context, kind, SIZES[words]) for kind, words in kinds for _ in range(2)]
    other = Other(transport, *queues, writes=[True, False] * len(kinds))
    medians = {}
    for number, (kind, words) in enumerate(kinds):
        pair = queues[2 * number], queues[2 * number + 1]
        source = np.zeros(SIZES[words] // 4, np.float32)
        medians[work(words, kind)] = there_and_back(transport, other, 2 * number, pair, source)
    if name == "shmtensor":  # last: a pair that slept stays on one core, which would affect later rows
        small = np.zeros(SIZES["4 KiB"] // 4, np.float32)
        number = kinds.index(("Queue", "4 KiB"))
        pair = queues[2 * number], queues[2 * number + 1]
        medians[PAUSED] = there_and_back(transport, other, 2 * number, pair, small, PAUSE)
        medians[AFTERWARDS] = there_and_back(transport, other, 2 * number, pair, small)
    other.end()
    return medians


def work(words: str, kind: str) -> str:
    return f"{words} there and back through `{kind}`"


PAUSED = f"{work('4 KiB', 'Queue')}, {PAUSE * 1e3:.0f} ms between"
AFTERWARDS = f"{work('4 KiB', 'Queue')}, right after that"


def there_and_back(
    transport: Transport, other: Other, first: int, pair: Sequence[Any], source: Any, pause: float = 0.0
) -> float:
    """Median seconds of one round trip. A warm-up of a tenth of them determines how many fit into the budget."""
    there, back = pair
    tensor = transport.fresh(there, source)
    times: list[float] = []
    rounds, total, counted = 3, 0, False
    with collector_off():
        while True:
            times.clear()
            other.begin(echo, first, rounds)
            for _ in range(rounds):
                if pause:
                    time.sleep(pause)
                start = time.perf_counter()
                there.put(tensor)
                tensor = back.get()
                times.append(time.perf_counter() - start)
            other.done()
            total += rounds
            if float(tensor[0]) != total:
                raise AssertionError(f"the other process added 1 {total} times, and {float(tensor[0])} came back")
            if counted:
                return statistics.median(times)
            counted = rounds > 3 or statistics.median(times) > BUDGET / 10
            cost = statistics.median(times) + pause
            rounds = max(3, min(MOST, int(BUDGET / cost)) // (1 if counted else 10))


def echo(transport: Transport, queues: Sequence[Any], first: int, rounds: int) -> None:
    there, back = queues[first], queues[first + 1]
    for _ in range(rounds):
        tensor = there.get()
        transport.add_one(tensor)
        back.put(tensor)


def kernel() -> dict[str, float]:
    """The figures that bench_futex of the native tests prints; empty if it was not built."""
    if not BENCH_FUTEX.exists():
        return {}
    output = subprocess.run([BENCH_FUTEX, str(int(PAUSE * 1e6))], capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    return {line["bench"]: line["ns"] * 1e-9 for line in lines}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    contenders = {name: ("handover:works", name) for name in TRANSPORTS}
    contenders["futex"] = ("handover:kernel",)
    contenders["ray"] = ("actors:handover",)
    results = take_turns(contenders)
    targets = {work("4 KiB", "Queue"): "3 us", PAUSED: "1.3 x futex"}
    for row in [work(words, kind) for kind in ("SimpleQueue", "Queue") for words in SIZES]:
        yield from results.figures(row, "s", targets.get(row, ""))
        if row == work("4 KiB", "Queue"):
            yield results.figure("futex", "spin", row, "two words, spinning", "s")
            yield results.figure("futex", "futex", row, SLEEPING, "s")
            yield results.figure("futex", "futex_apart", row, f"{SLEEPING}, two cores", "s")
    yield from results.figures(PAUSED, "s", targets[PAUSED])
    yield results.figure("futex", "futex_pause", PAUSED, SLEEPING, "s")
    yield results.figure("futex", "futex_apart_pause", PAUSED, f"{SLEEPING}, two cores", "s")
    yield from results.figures(AFTERWARDS, "s")
