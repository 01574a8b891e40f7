"""The steady state of a queue: the cost of live blocks, blocked readers and system calls."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import ContenderFailed, Figure, collector_off, have, run_contender
from benchmarks.transports import TRANSPORTS, Other, Transport
from benchmarks.turns import take_turns

LIVE = (10, 100_000)
READERS, BLOCKED = 4, 3.0  # processes, seconds
MESSAGES = 1_000
BEGIN, END = "/benchmark-begin", "/benchmark-end"  # paths looked up before and after the calls that strace counts


# ---- contenders ------------------------------------------------------------------------------------------------------


def live_blocks() -> dict[str, float]:
    """Median seconds to make a 4 KiB tensor, send it and get it back, for each number of live tensors, in turn."""
    import shmtensor

    transport = TRANSPORTS["shmtensor"]
    context = transport.context("spawn")
    there, back = (transport.queue(context, "Queue", 4096) for _ in range(2))
    other = Other(transport, there, back, writes=[True, False])
    source = np.ones(1024, np.float32)
    times: dict[int, list[float]] = {live: [] for live in LIVE}
    with collector_off():
        for turn, live in itertools.product(range(4), LIVE):
            blocks = [shmtensor.empty(16, shared=True) for _ in range(live)]
            other.begin(send_back, 1_100)
            for number in range(1_100):
                start = time.perf_counter()
                there.put(transport.fresh(there, source))
                back.get()
                if turn and number >= 100:
                    times[live].append(time.perf_counter() - start)
            other.done()
            del blocks
    other.end()
    return {str(live): statistics.median(values) for live, values in times.items()}


def send_back(transport: Transport, queues: Sequence[Any], count: int) -> None:
    there, back = queues
    for _ in range(count):
        back.put(there.get())


def blocked_readers(name: str) -> float:
    """The share of a core used by the busiest of several processes that are blocked in `get` of one queue."""
    transport = TRANSPORTS[name]
    queue = transport.queue(transport.context("spawn"), "Queue", 4096)
    others = [Other(transport, queue, writes=[True]) for _ in range(READERS)]
    for other in others:
        other.begin(get_one)
    time.sleep(0.5)  # they spin, and then they sleep
    before, start = [cpu_seconds(other.process.pid) for other in others], time.perf_counter()
    time.sleep(BLOCKED)
    wall = time.perf_counter() - start
    shares = [(cpu_seconds(other.process.pid) - used) / wall for other, used in zip(others, before, strict=True)]
    for _ in others:
        queue.put(0)
    for other in others:
        other.done()
        other.end()
    return max(shares)


def get_one(transport: Transport, queues: Sequence[Any]) -> None:
    queues[0].get()


def cpu_seconds(pid: int) -> float:
    """The processor time of all threads: in nanoseconds from schedstat, in ticks of 10 ms from stat."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) * 1e-9


def put_and_get(name: str, kind: str) -> bool:
    """Fresh 4 KiB tensors through a queue within this process: no process waits for another."""
    transport = TRANSPORTS[name]
    transport.settle()
    queue = transport.queue(transport.context("spawn"), kind, 4096)
    source = np.ones(1024, np.float32)
    with collector_off():
        for mark, rounds in (("/benchmark-warm-up", MESSAGES), (BEGIN, MESSAGES), (END, 0)):
            os.path.exists(mark)  # noqa: PTH110
            for _ in range(rounds):
                queue.put(transport.fresh(queue, source))
                transport.read(queue.get())
    return True


# ---- rows ------------------------------------------------------------------------------------------------------------


def system_calls(name: str, kind: str) -> int:
    """System calls of all threads between the marks, as counted by strace -f."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        run_contender("steady:put_and_get", name, kind, wrapper=("strace", "-f", "-o", str(trace)))
        lines = trace.read_text(errors="replace").splitlines()
    begin = next(number for number, line in enumerate(lines) if BEGIN in line)
    inside = itertools.takewhile(lambda line: END not in line, lines[begin + 1 :])
    return sum(1 for line in inside if re.match(r"\d+ +\w+\(", line))


def measure() -> Iterator[Figure]:
    results = take_turns({"shmtensor": ("steady:live_blocks",)})
    work = "a fresh 4 KiB tensor there and back through `Queue`"
    for live in LIVE:
        target = "as beside 10" if live != LIVE[0] else ""
        yield results.figure("shmtensor", str(live), work, f"shmtensor, {live:,} live blocks", "s", target)

    work = f"busiest of {READERS} readers blocked in `Queue.get`"
    for name, transport in TRANSPORTS.items():
        target = "0.1 %" if name == "shmtensor" else ""
        if name in ("torch fd", "iceoryx2"):  # torch's strategies share the queue; iceoryx2 polls
            continue
        yield attempt(Figure(work, transport.name, None, "core", target), name, "steady:blocked_readers", name)

    for kind in ("SimpleQueue", "Queue"):
        work = f"system calls of {MESSAGES:,} messages put and got through `{kind}`"
        for name, transport in TRANSPORTS.items():
            if kind not in transport.kinds or name == "iceoryx2":
                continue
            target = "0" if name == "shmtensor" else ""
            yield attempt(Figure(work, transport.name, None, "", target), name, None, name, kind)


def attempt(row: Figure, name: str, contender: str | None, *arguments: str) -> Figure:
    """The row with its figure, or with the reason why there is none. Without a contender: its system calls."""
    if not have(TRANSPORTS[name].needs):
        return replace(row, note=f"{TRANSPORTS[name].needs} is not installed")
    if contender is None and not shutil.which("strace"):
        return replace(row, note="strace is not installed")
    try:
        return replace(row, value=run_contender(contender, *arguments) if contender else system_calls(*arguments))
    except (ContenderFailed, StopIteration) as error:
        return replace(row, note=str(error) or "strace could not follow it")
