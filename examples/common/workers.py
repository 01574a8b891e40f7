"""Processes that train together. One that is killed is replaced, and training goes on.

What they train lies in shared memory, and that is the group's, not a process's: parameters, the state of the optimizer
and the counter of steps are there for the process that takes the dead one's place.
"""

from __future__ import annotations

import signal
import sys
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

MOST_REPLACED = 100  # where so many are killed, something else is wrong
TICK = 0.02  # seconds between two calls of `watch`


@dataclass(frozen=True)
class Outcome:
    seconds: float  # from the start of all to the end of the last
    replaced: int  # processes that were killed


class Gate:
    """Where processes wait for each other before they begin: starting them takes longer than some of them train."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.arrived = Counter()
        self.open = mp.Event()
        self.ended = st.zeros(processes, dtype=st.float64, shared=True)  # when each process did

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
    """Call `train(rank, *args)` in so many processes, with one BLAS thread each, until all have returned.

    `watch(seconds since the start)` is called here meanwhile, many times a second. An exception in a process ends all.
    """
    gate = Gate(processes)
    workers: dict[int, mp.ProcessContext] = {}
    start, replaced = 0.0, 0

    def employ(rank: int) -> int:
        with ignoring_interrupts():  # a terminal sends Ctrl-C to all; it is this process that ends the others
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
    """What each process runs."""
    gate.arrived.add()
    gate.open.wait()
    train(rank, *args)
    gate.ended[rank] = time.monotonic()


def end(workers: dict[int, mp.ProcessContext]) -> None:
    """Nothing is lost when they are killed: what they share stays as it is."""
    with ignoring_interrupts():
        for worker in workers.values():
            for process in worker.processes:
                process.kill()
                process.join()


def tell(line: str) -> None:
    tqdm.write(line, file=sys.stderr)  # above the bar


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ctrl-C does nothing to this process now, and never to processes that are started in here."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
