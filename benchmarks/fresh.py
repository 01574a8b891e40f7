"""Fresh tensors: made, filled by one copy, sent, read and dropped; one by one, in streams, many in one message."""

from __future__ import annotations

import mmap
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Figure, collector_off
from benchmarks.streams import ARRAYS, BATCH, BATCHES, MANY, MESSAGE, ONE_BY_ONE, SMALL, STREAMS, drain, read_all
from benchmarks.transports import TRANSPORTS, Other, Transport
from benchmarks.turns import take_turns

BUDGET = 0.3  # seconds for one work of one turn


# ---- contenders ------------------------------------------------------------------------------------------------------


def works(name: str) -> dict[str, float]:
    transport = TRANSPORTS[name]
    context = transport.context("spawn")
    queues = [transport.queue(context, "Queue", nbytes, limit) for nbytes, limit, _ in STREAMS.values()]
    queues.append(transport.queue(context, "Queue", MANY * (SMALL + 512)))
    other = Other(transport, *queues, writes=[True] * len(queues))
    results = {}
    with collector_off():
        for number, (work, (nbytes, _, unit)) in enumerate(STREAMS.items()):
            if work == ARRAYS and name not in ("shmtensor", "stdlib", "faster-fifo"):
                continue  # torch sends ndarrays as the standard library does
            source = np.ones(nbytes // 4, np.float32)
            rate = messages_per_second(transport, other, number, queues[number], source, work == ARRAYS)
            results[work] = rate * (nbytes if unit == "B/s" else 1)
        if name != "iceoryx2":  # an iceoryx2 sample is one block
            results[MESSAGE] = one_message(transport, other, queues)
    other.end()
    return results


def messages_per_second(transport: Transport, other: Other, number: int, queue: Any, source: Any, plain: bool) -> float:
    """Time from making the first until the last is read. A short run before determines how many fit into the budget."""
    count, rate = 8, 0.0
    for _ in range(3):
        other.begin(drain, number, count)
        start = time.perf_counter()
        for _ in range(count):
            queue.put(source if plain else transport.fresh(queue, source))
        rate = count / (other.done() - start)
        count = max(8, min(100_000, int(rate * BUDGET)))
    return rate


def one_message(transport: Transport, other: Other, queues: Sequence[Any]) -> float:
    """Median seconds from making the first tensor until one element of each is read."""
    queue, source = queues[-1], np.ones(SMALL // 4, np.float32)
    times = []
    for _ in range(8):
        other.begin(read_all, len(queues) - 1)
        start = time.perf_counter()
        queue.put([transport.fresh(queue, source) for _ in range(MANY)])
        times.append(other.done() - start)
    return statistics.median(times[1:])


def copying() -> dict[str, float]:
    """Bytes per second that one process copies, into warm memory and into fresh pages of shared memory."""
    source, target = np.ones(BATCH // 4, np.float32), np.zeros(BATCH // 4, np.float32)
    warm, fresh = [], []
    with collector_off():
        for _ in range(10):
            start = time.perf_counter()
            np.copyto(target, source)
            warm.append(time.perf_counter() - start)
            new = np.frombuffer(mmap.mmap(-1, BATCH), np.float32)
            start = time.perf_counter()
            np.copyto(new, source)
            fresh.append(time.perf_counter() - start)
            del new
    return {"warm": BATCH / statistics.median(warm[1:]), "fresh": BATCH / statistics.median(fresh[1:])}


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    contenders: dict[str, tuple[Any, ...]] = {name: ("fresh:works", name) for name in TRANSPORTS}
    contenders["copying"] = ("fresh:copying",)
    contenders["ray"] = ("actors:fresh",)
    results = take_turns(contenders)
    yield from results.figures(ONE_BY_ONE, "1/s", "400 k/s")
    yield from results.figures(MESSAGE, "s", "1.5 ms")
    for work in (BATCHES, ARRAYS):
        yield from results.figures(work, "B/s", "0.75 x memcpy")
        yield results.figure("copying", "warm", work, "`numpy.copyto` alone, warm memory", "B/s")
        yield results.figure("copying", "fresh", work, "`numpy.copyto` alone, fresh shared pages", "B/s")
