"""Many processes on one queue: half of them put small messages, the other half get them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Figure, collector_off
from benchmarks.transports import TRANSPORTS, Transport
from benchmarks.turns import take_turns

CROWDS = (8, 32, 64)
BUDGET = 0.7  # seconds for one crowd of one turn
FIRST = 20  # messages of each producer in the round that says how many there is time for
DEADLINE = 60.0  # seconds until a round counts as hung


# ---- contenders ------------------------------------------------------------------------------------------------------


def works(name: str) -> dict[str, float]:
    """Messages per second, all producers together."""
    transport = TRANSPORTS[name]
    transport.settle()
    return {work(size): messages_per_second(transport, size) for size in CROWDS}


def work(size: int) -> str:
    return f"{size} processes on one queue, small messages"


def messages_per_second(transport: Transport, size: int) -> float:
    """Forked processes: nothing but the queue differs, and 64 imports of torch would take minutes."""
    context = transport.context("fork")
    standard = multiprocessing.get_context("fork")
    queue = transport.queue(context, "Queue", 1024)
    count = standard.Value("q", FIRST, lock=False)
    gate, finished = standard.Barrier(size + 1), standard.SimpleQueue()
    members = [
        context.Process(target=member, args=(number % 2 == 0, queue, count, gate, finished), daemon=True)
        for number in range(size)
    ]
    for process in members:
        process.start()
    rate = 0.0
    for _ in range(2):
        gate.wait(DEADLINE)
        start = time.perf_counter()
        end = max(finished.get() for _ in range(size // 2))
        rate = count.value * (size // 2) / (end - start)
        count.value = max(FIRST, int(rate * BUDGET / (size // 2)))
    for process in members:
        process.join(10)
    return rate


def member(puts: bool, queue: Any, count: Any, gate: Any, finished: Any) -> None:
    """Two rounds. Each consumer takes as many as each producer puts."""
    with collector_off():
        for _ in range(2):
            gate.wait(DEADLINE)
            if puts:
                for number in range(count.value):
                    queue.put((number, 1.5))
            else:
                for _ in range(count.value):
                    queue.get()
                finished.put(time.perf_counter())


# ---- rows ------------------------------------------------------------------------------------------------------------


def measure() -> Iterator[Figure]:
    results = take_turns({name: ("crowd:works", name) for name in TRANSPORTS if name not in ("torch fd", "iceoryx2")})
    for size in CROWDS:
        for figure in results.figures(work(size), "1/s", "200 k/s"):
            yield figure
