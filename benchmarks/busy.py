"""A busy machine: the same work while as many other processes compute as there are cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.fresh import messages_per_second
from benchmarks.handover import there_and_back
from benchmarks.measure import Figure, collector_off
from benchmarks.streams import ONE_BY_ONE, SMALL, STREAMS
from benchmarks.transports import TRANSPORTS, Other
from benchmarks.turns import take_turns

BUSY = ", all cores computing"
ROUND_TRIP = f"4 KiB there and back through `Queue`{BUSY}"
STREAM = f"{ONE_BY_ONE}{BUSY}"
COMPUTE = "import os\nprint(flush=True)\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10_000))"


@contextmanager
def computing() -> Iterator[None]:
    """One computing process for each core of this one; they end with the block, or with this process."""
    others = [
        subprocess.Popen([sys.executable, "-c", COMPUTE], stdout=subprocess.PIPE)
        for _ in range(len(os.sched_getaffinity(0)))
    ]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()


def works(name: str) -> dict[str, float]:
    """Median seconds of a round trip, and messages per second of a stream."""
    transport = TRANSPORTS[name]
    context = transport.context("spawn")
    nbytes, limit, _ = STREAMS[ONE_BY_ONE]
    queues = [transport.queue(context, "Queue", SMALL) for _ in range(2)]
    queues.append(transport.queue(context, "Queue", nbytes, limit))
    other = Other(transport, *queues, writes=[True, False, True])
    source = np.zeros(SMALL // 4, np.float32)
    with computing(), collector_off():
        results = {
            ROUND_TRIP: there_and_back(transport, other, 0, queues[:2], source),
            STREAM: messages_per_second(transport, other, 2, queues[2], source, False),
        }
    other.end()
    return results


def measure() -> Iterator[Figure]:
    results = take_turns({name: ("busy:works", name) for name in TRANSPORTS})
    yield from results.figures(ROUND_TRIP, "s", "5 us")
    yield from results.figures(STREAM, "1/s", "8 x faster-fifo")
