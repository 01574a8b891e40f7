"""Many processes on one queue: half of them put small messages, the other half get them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off
from benchmarks.transports import TRANSPORTS, Transport
from benchmarks.turns import take_turns

PROCESSES = (8, 32, 64)
BUDGET = 0.3  # seconds for one number of processes in one turn
FIRST = 20  # messages of each producer in the round that determines how many fit into the budget
ROUNDS = 3  # the last one counts
DEADLINE = 60.0  # seconds until a round counts as hung


# ---- contenders ------------------------------------------------------------------------------------------------------


def works(name: str) -> dict[str, float]:
    """Messages per second, all producers together."""
    transport = TRANSPORTS[name]
    transport.settle()
    return {work(size): messages_per_second(transport, size) for size in PROCESSES}


def work(size: int) -> str:
    return f"small messages, {size} processes on a queue"


def messages_per_second(transport: Transport, size: int) -> float:
    """Forked processes: only the queue differs, and 64 imports of torch would take minutes."""
    context = transport.context("fork")
    standard = multiprocessing.get_context("fork")
    queue = transport.queue(context, "Queue", 1024)
    count = standard.Value("q", FIRST, lock=False)
    gate, times = standard.Barrier(size + 1), standard.SimpleQueue()
    members = [
        context.Process(target=member, args=(number, queue, count, gate, times), daemon=True) for number in range(size)
    ]
    for process in members:
        process.start()
    rate = 0.0
    for _ in range(ROUNDS):
        gate.wait(DEADLINE)  # all have finished the round, and read the count
        spans = [times.get() for _ in range(size)]
        rate = count.value * (size // 2) / (max(end for _, end in spans) - min(start for start, _ in spans))
        count.value = max(FIRST, int(rate * BUDGET / (size // 2)))
    for process in members:
        process.join(10)
    return rate


def member(number: int, queue: Any, count: Any, gate: Any, times: Any) -> None:
    """Half of the members put messages, and each of the others gets as many as one of them puts."""
    with collector_off():
        for _ in range(ROUNDS):
            gate.wait(DEADLINE)
            start = time.perf_counter()
            if number % 2 == 0:
                for value in range(count.value):
                    queue.put((value, 1.5))
            else:
                for _ in range(count.value):
                    queue.get()
            times.put((start, time.perf_counter()))


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    names = [name for name in TRANSPORTS if name not in ("torch fd", "iceoryx2")]
    results = take_turns({name: ("many_processes:works", name) for name in names})
    for size in PROCESSES:
        yield from results.figures(work(size), "1/s", "200 k/s")
