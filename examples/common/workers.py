"""Processes that train together. One that is killed is replaced, and training continues.

The training state lies in shared memory, which does not belong to a single process: the process that replaces a dead
one finds the parameters, the state of the optimizer and the step counter there.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from tqdm import tqdm

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import hogwild
from shmtensor.hogwild import Counter

MOST_REPLACED = 100  # if more are killed, something else is wrong
TICK = 0.02  # seconds between two calls of `watch`


@dataclass(frozen=True)
class Outcome:
    seconds: float  # from the start of all to the end of the last
    replaced: int  # processes that were killed


class Gate:
    """A gate at which processes wait for each other before they begin, since starting may take longer than training."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.arrived = Counter()
        self.open = mp.Event()
        self.ended = st.zeros(processes, dtype=st.float64, shared=True)  # the time when each process ended

    def open_when_all_are_there(self) -> bool:
        if self.arrived.value >= self.processes:
            self.open.set()
        return self.open.is_set()


def run_together(
    train: Callable[..., None],
    args: tuple[Any, ...],
    processes: int,
    *,
    start_method: str,
    watch: Callable[[float], None],
) -> Outcome:
    """Call `train(rank, *args)` in `processes` processes, with one BLAS thread each. Blocks until all have returned.

    Meanwhile, `watch(seconds since the start)` is called here many times a second. An exception in a process ends all.
    """
    gate = Gate(processes)
    workers: dict[int, mp.ProcessContext] = {}
    start, replaced = 0.0, 0

    def employ(rank: int) -> int:
        with ignoring_interrupts():  # a terminal sends Ctrl-C to all processes; this one ends the others
            workers[rank] = hogwild.run(
                through_gate, (rank, gate, train, args), 1, start_method=start_method, join=False
            )
        return workers[rank].pids()[0]

    try:
        tell("pids " + " ".join(str(employ(rank)) for rank in range(processes)) + ": kill one, and it is replaced")
        while workers:
            connection.wait([sentinel for worker in workers.values() for sentinel in worker.sentinels], TICK)
            for rank, worker in list(workers.items()):
                try:
                    if worker.join(0):
                        del workers[rank]
                except mp.ProcessExitedException as death:
                    replaced += 1
                    if death.signal_name is None or replaced > MOST_REPLACED:
                        raise
                    tell(f"worker {rank} got {death.signal_name}; its place is taken by pid {employ(rank)}")
            if gate.open_when_all_are_there():
                start = start or time.monotonic()
                watch(time.monotonic() - start)
    finally:
        end(workers)
    return Outcome(float(gate.ended.max()) - start, replaced)


def through_gate(_: int, rank: int, gate: Gate, train: Callable[..., None], args: tuple[Any, ...]) -> None:
    """The function that each process runs."""
    gate.arrived.add()
    gate.open.wait()
    train(rank, *args)
    gate.ended[rank] = time.monotonic()


def end(workers: dict[int, mp.ProcessContext]) -> None:
    """Kill the processes. Nothing is lost: the shared state stays as it is."""
    with ignoring_interrupts():
        for worker in workers.values():
            for process in worker.processes:
                process.kill()
                process.join()


# Except under fork, the default is a named semaphore, which a killed program leaves behind.
tqdm.set_lock(threading.RLock())


def tell(line: str) -> None:
    tqdm.write(line, file=sys.stderr)  # above the bar


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Within the block, Ctrl-C is ignored by this process; processes started in the block always ignore it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
