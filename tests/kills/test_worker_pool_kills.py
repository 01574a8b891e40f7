"""A WorkerPool whose workers are killed at random instants: no result is lost, repeated or torn."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from tiers import first

from shmtensor.data import WorkerPool
from shmtensor.errors import WorkerDied

SEED = 11
pytestmark = pytest.mark.usefixtures("in_time")


def filled(i: int) -> Any:
    """An array of one number, so that a torn one shows; some are slow."""
    if i % 7 == 0:
        time.sleep(0.003)
    return np.full(300, i)


class Filled:
    """A simulation that counts its steps, and knows who it is."""

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0

    def step(self, _: Any) -> Any:
        if self.number % 3 == 0:
            time.sleep(0.001)
        self.count += 1
        return np.full(300, self.number), self.count


class Killer(threading.Thread):
    """Kills, or stops for a moment, workers of a pool at random instants, so many times."""

    def __init__(self, pool: WorkerPool, times: int, number: int) -> None:
        super().__init__(daemon=True)
        self._pool, self._times = pool, times
        self._random = random.Random(SEED + number)
        self.done = threading.Event()

    def run(self) -> None:
        for _ in range(self._times):
            time.sleep(self._random.uniform(0.0, 0.02))
            if self.done.is_set():
                return
            pid = self._random.choice(self._pool.pids())
            try:
                if self._random.random() < 0.2:
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.01)
                    os.kill(pid, signal.SIGCONT)
                else:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@pytest.mark.parametrize(
    ("method", "chunk", "number"),
    first([("fork", 1, 0), ("fork", 5, 1), ("forkserver", 1, 2), ("fork", 3, 3), ("fork", 1, 4)], 2),
)
def test_each_item_has_one_result(method, chunk, number):
    with WorkerPool(3, context=method, on_worker_death="restart") as pool:
        killer = Killer(pool, 12, number)
        killer.start()
        kept = []
        for i, array in enumerate(pool.map(filled, range(1500), chunk=chunk)):
            assert (array == i).all()
            kept.append(array)
        assert len(kept) == 1500
        found = [int(array[0]) for array in pool.map(filled, range(500), in_order=False, chunk=chunk)]
        assert sorted(found) == list(range(500))
        killer.done.set()
        killer.join()
        assert pool.stats().restarts and not pool.stats().tasks
        assert all((array == i).all() for i, array in enumerate(kept))


@pytest.mark.parametrize(("method", "number"), first([("fork", 0), ("fork", 1), ("forkserver", 2), ("fork", 3)]))
def test_simulations_go_on_or_are_said_to_be_new(method, number):
    with WorkerPool(3, context=method, on_worker_death="restart") as pool:
        simulations = pool.simulations(Filled, 12)
        killer = Killer(pool, 12, number)
        killer.start()
        counts = np.zeros(12, np.int64)
        simulations.send(counts)
        rounds = 0
        while killer.is_alive() or rounds < 50:
            rounds += 1
            ids, values = simulations.gather(min(4, max(1, len(simulations.waiting))), 8)
            if values is not None:
                numbers, steps = values
                assert (np.asarray(numbers) == ids[:, None]).all()
                new = simulations.restarted
                for i, step in zip(ids.tolist(), steps.tolist(), strict=True):
                    assert step == counts[i] + 1 or (i in new)
                    counts[i] = step
            new = simulations.restarted
            counts[new] = 0
            free = np.setdiff1d(np.arange(12), simulations.waiting)
            simulations.send(np.zeros(len(free)), free)
        assert pool.stats().restarts


def test_with_raise_each_result_comes_or_fails():
    with WorkerPool(3) as pool:
        killer = Killer(pool, 10, 40)
        killer.start()
        results = pool.map(filled, range(1000))
        failed = 0
        for i in range(1000):
            try:
                assert (next(results) == i).all()
            except WorkerDied as death:
                assert f"item {i}" in str(death)
                failed += 1
        killer.done.set()
        killer.join()
        assert next(results, None) is None
        assert failed <= pool.stats().restarts
