"""DataLoader whose workers are killed and stopped at random instants: no sample is lost, repeated or torn."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_world import Rows
from manager_world import is_alive, until

from shmtensor.data import DataLoader, IterableDataset

SEED = 8
pytestmark = pytest.mark.usefixtures("in_time")


class Checked(Rows):
    """Rows of one number each, so that a torn row shows; some are slow."""

    def __init__(self, length: int = 400) -> None:
        super().__init__(length, ())

    def __getitem__(self, index: int) -> Any:
        if index % 7 == 0:
            time.sleep(0.004)
        return np.full(1000, index, np.float32), str(index)


class CheckedStream(IterableDataset[Any]):
    """The same as a stream."""

    def __iter__(self) -> Any:
        return map(Checked().__getitem__, range(400))


class DecodedStream(IterableDataset[Any]):
    """The same as a stream of numbers, of which workers make the samples."""

    def __iter__(self) -> Any:
        return iter(range(400))

    def load(self, index: int) -> Any:
        """A sample."""
        return Checked()[index]


KINDS = {"map": Checked, "stream": CheckedStream, "decoded": DecodedStream}


class Assassin(threading.Thread):
    """Kills, or stops for a moment, workers of an iterator at random instants, so many times."""

    def __init__(self, loader: Any, iterator: Any, times: int, number: int) -> None:
        super().__init__(daemon=True)
        self._loader, self._pipeline, self._times = loader, iterator._pipeline, times
        self._random = random.Random(SEED + number)
        self.done = threading.Event()

    def run(self) -> None:
        for count in range(self._times):
            time.sleep(self._random.uniform(0.0, 0.005))
            pids = self._pipeline.pids()
            if self.done.is_set() or not pids:
                return
            pid = self._random.choice(pids)
            try:
                if count and self._random.random() < 0.3:
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.01)
                    os.kill(pid, signal.SIGCONT)
                else:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def used(loader: Any, times: int, number: int) -> list[Any]:
    """An epoch's batches as rows and texts, while workers are killed."""
    iterator = iter(loader)
    assassin = Assassin(loader, iterator, times, number)
    assassin.start()
    found = []
    for array, texts in iterator:
        rows = np.asarray(array)
        assert (rows == rows[:, :1]).all(), "a torn row"
        found.append((rows[:, 0].tolist(), list(texts), array))
    assassin.done.set()
    assassin.join()
    for indices, _, array in found:
        assert np.asarray(array)[:, 0].tolist() == indices, "a batch that was handed out has been written to"
    return [(indices, texts) for indices, texts, _ in found]


WANTED = [([float(n) for n in range(k, k + 20)], [str(n) for n in range(k, k + 20)]) for k in range(0, 400, 20)]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(2))
def test_no_sample_is_lost_or_repeated(method, kind, number):
    dataset: Any = KINDS[kind]()
    loader = DataLoader(
        dataset, 20, num_workers=3, on_worker_death="restart", persistent_workers=number == 1,
        multiprocessing_context=method,
    )  # fmt: skip
    if kind == "stream":  # one reader, that begins again each time: fewer deaths, or it gets nowhere
        assert used(loader, 2, number) == WANTED
        return
    for epoch in range(2):
        assert used(loader, 8, 10 * number + epoch) == WANTED
    assert loader.stats().restarts > 0


def test_batches_out_of_order_come_once_each():
    loader = DataLoader(Checked(), 20, num_workers=3, on_worker_death="restart", in_order=False)
    assert sorted(used(loader, 10, 99)) == WANTED


def test_after_many_deaths_nothing_is_left():
    loader = DataLoader(Checked(), 20, num_workers=2, on_worker_death="restart", persistent_workers=True)
    for number in range(5):
        assert used(loader, 4, 200 + number) == WANTED
    pipeline = loader._pipelines["load"]
    assert not pipeline._pending and pipeline.workers == 2


class Changing(Rows):
    """Integers from 20 on, and fractions before; the worker with sample 2 is killed once the test says so."""

    def __init__(self, marks: Path) -> None:
        super().__init__()
        self.marks = marks

    def __getitem__(self, index: int) -> Any:
        if index == 2 and not (self.marks / "dead").exists():
            until((self.marks / "die").exists, "the test")
            (self.marks / "dead").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(2, index) if index >= 20 else np.full(2, index + 0.5)


def test_a_new_worker_knows_the_layout_of_later_batches(tmp_path):
    """Else it would write fractions into slots for integers."""
    order = [[1], [2], [20], [21], [22], [3]]
    loader = DataLoader(
        Changing(tmp_path), batch_sampler=order, num_workers=2, prefetch_factor=1, in_order=False,
        on_worker_death="restart",
    )  # fmt: skip
    iterator: Any = iter(loader)
    found = [next(iterator).tolist() for _ in range(3)]
    until(iterator._waiting[-1].is_counted_done, "batch 22, the first one known to be of integers beforehand")
    (tmp_path / "die").touch()
    until(iterator._pipeline._crew.ended, "the worker with sample 2 to end")
    (other,) = (pid for pid in iterator._pipeline.pids() if is_alive(pid))
    os.kill(other, signal.SIGSTOP)
    try:
        iterator._pipeline._looked = 0  # the next one notices it
        found += [next(iterator).tolist() for _ in range(3)]
    finally:
        os.kill(other, signal.SIGCONT)
    assert found == [[[1.5] * 2], [[20] * 2], [[21] * 2], [[22] * 2], [[2.5] * 2], [[3.5] * 2]]
