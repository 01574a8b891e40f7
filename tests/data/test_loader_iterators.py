"""Several iterators of a loader, in threads, in forks and nested; and iterators after an error."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_world import Numbered, Random, Rows, Slow
from manager_world import BOUND, until

from shmtensor.data import BatchSampler, BucketSampler, DataLoader, IterableDataset, RandomSampler, sample_generator
from shmtensor.data.fetching import Fetcher
from shmtensor.data.randoms import end_samples
from shmtensor.data.workers import Crew
from shmtensor.errors import SampleFailed

pytestmark = pytest.mark.usefixtures("in_time")


def rows(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_fork_that_drops_an_iterator_leaves_the_batches_alone(persistent):
    loader = DataLoader(Slow(64, 0.005), 8, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    found = [next(iterator)]
    pid = os.fork()
    if pid == 0:
        del iterator, loader
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    found += iterator
    assert np.array_equal(np.concatenate([batch.numpy() for batch in found]), Slow().x)


def test_threads_share_the_workers_of_one_loader(monkeypatch):
    wait = Crew.wait

    def slow(crew: Crew, seconds: float) -> Any:
        message = wait(crew, seconds)
        time.sleep(0.001)  # another thread goes on while this one has a message
        return message

    monkeypatch.setattr(Crew, "wait", slow)
    loader = DataLoader(Numbered(80, (2,)), 8, num_workers=2, persistent_workers=True)
    found: list[Any] = [None] * 4

    def iterate(place: int) -> None:
        try:
            found[place] = [[int(text) for text in batch["pair"][1]] for _ in range(3) for batch in loader]
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=iterate, args=(place,), daemon=True) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert found == [[list(range(start, start + 8)) for start in range(0, 80, 8)] * 3] * 4


class Pairs:
    """A batch sampler that lets other threads go on before each batch."""

    def __iter__(self) -> Any:
        for first in range(0, 120, 2):
            time.sleep(0.0005)
            yield [first, first + 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("in_order", [True, False])
def test_threads_share_one_iterator_and_each_batch_goes_to_one(workers, in_order):
    dataset = Slow(120, 0.0005)
    loader = DataLoader(dataset, batch_sampler=Pairs(), num_workers=workers, in_order=in_order, output="numpy")
    iterator = iter(loader)
    found: list[Any] = []
    errors: list[BaseException] = []
    begin = threading.Barrier(4)

    def take() -> None:
        begin.wait(BOUND)
        try:
            found.extend(list(iterator))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=take, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert not errors
    assert len(found) == 60
    assert np.array_equal(np.sort(np.concatenate(found), axis=0), np.sort(dataset.x, axis=0))


def test_an_error_of_one_iterator_ends_the_others_of_its_workers():
    loader = DataLoader(Slow(64, 0.2), 8, num_workers=1, persistent_workers=True)
    one, two = iter(loader), iter(loader)
    one._pipeline.close()
    with pytest.raises(SampleFailed, match="another iterator"):
        next(two)
    assert len(next(iter(DataLoader(Rows(), 8)))) == 8


class Turned(BatchSampler):
    """Batches from their ends."""

    def __iter__(self) -> Any:
        return map(list, map(reversed, super().__iter__()))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        lambda: {"batch_size": 4, "shuffle": True, "seed": 3},
        lambda: {"batch_size": 4, "sampler": RandomSampler(range(12), seed=3)},
        lambda: {"batch_sampler": Turned(RandomSampler(range(12), seed=3), 4, False)},
        lambda: {"batch_sampler": BucketSampler(range(12), 4, seed=3)},
    ],
    ids=["shuffle", "sampler", "batches", "buckets"],
)
def test_iterators_side_by_side_have_the_orders_of_their_epochs(options, workers):
    one, two = (DataLoader(Rows(12), **options(), num_workers=workers) for _ in range(2))
    wanted = [rows(one), rows(one)]
    assert wanted[0] != wanted[1]
    first, second = zip(*zip(two, two, strict=True), strict=True)
    assert [rows(first), rows(second)] == wanted


class Once(IterableDataset[Any]):
    """A stream that cannot be read again, and counts its iterators."""

    def __init__(self) -> None:
        self.source = iter(range(100, 112))

    def __iter__(self) -> Any:
        return self.source


class Own(IterableDataset[Any]):
    """A stream that is another one each time."""

    def __init__(self) -> None:
        self.begun = 0

    def __iter__(self) -> Any:
        self.begun += 1
        return iter(range(100 * self.begun, 100 * self.begun + 12))


def test_iterators_of_one_stream_do_not_restart_each_other():
    loader = DataLoader(Once(), 2, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    found = [int(n) for pair in zip(loader, loader, strict=False) for batch in pair for n in batch]
    assert len(set(found)) == len(found) >= 10
    loader = DataLoader(Own(), 2, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    pairs = list(zip(loader, loader, strict=True))
    for place in (0, 1):
        hundred = 100 * (1 + place)
        assert [int(n) for pair in pairs for n in pair[place]] == list(range(hundred, hundred + 12))


def test_iterators_of_a_stream_that_have_ended_are_forgotten():
    fetcher = Fetcher(DataLoader(Own(), 2)._task(None, 0, True, False))
    assert fetcher.take(1, 0, 0, 2) == [100, 101]
    assert fetcher.take(2, 0, 0, 2) == [200, 201]
    assert fetcher.take(1, 0, 2, 2) == [102, 103]
    fetcher.end_run(1)
    assert fetcher.take(1, 0, 2, 2) == [302, 303], "read again up to there"
    end_samples()


class Leaving(IterableDataset[Any]):
    """A stream that notes the end of each of its iterators."""

    def __init__(self, marks: Path) -> None:
        self.marks = marks

    def __iter__(self) -> Any:
        try:
            yield from range(10**6)
        finally:
            (self.marks / str(len(list(self.marks.iterdir())))).touch()


def test_a_worker_drops_the_iterator_of_a_stream_that_nobody_reads_any_more(tmp_path):
    loader = DataLoader(Leaving(tmp_path), 2, num_workers=1, persistent_workers=True)
    for count in range(3):
        assert next(iter(loader)).tolist() == [0, 1]
        assert len(list(tmp_path.iterdir())) <= count
    until(lambda: len(list(tmp_path.iterdir())) == 2, "the iterators to end")


class Stumbling(IterableDataset[Any]):
    """A stream whose iterator raises once, and goes on."""

    def __iter__(self) -> Any:
        return Stumbles()


class Decoded(Stumbling):
    def load(self, item: int) -> Any:
        return item


class Stumbles:
    at = -1

    def __iter__(self) -> Stumbles:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 3:
            raise ValueError("once")
        if self.at >= 10:
            raise StopIteration
        return self.at


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dataset", [Stumbling(), Decoded()], ids=["stream", "load"])
def test_a_stream_goes_on_after_an_error_if_its_iterator_does(dataset, workers):
    iterator = iter(DataLoader(dataset, 2, num_workers=workers))
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except ValueError:
            found.append("once")
        except StopIteration:
            break
    assert found == [[0, 1], "once", [4, 5], [6, 7], [8, 9]]


class Restarting(IterableDataset[Any]):
    """A stream that is its own iterator, and begins again when it is read on past its end."""

    at = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if self.at == 7:
            self.at = 0
            raise StopIteration
        self.at += 1
        return self.at - 1


class DecodedRestarting(Restarting):
    def load(self, item: int) -> Any:
        return item


@pytest.mark.parametrize("size", [3, 7, None])
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("kind", [Restarting, DecodedRestarting], ids=["stream", "load"])
def test_a_stream_is_not_read_on_past_its_end(kind, workers, size):
    loader = DataLoader(kind(), size, num_workers=workers, output="numpy", prefetch_factor=4 if workers else None)
    step = size or 1
    wanted = [list(range(first, min(first + step, 7))) for first in range(0, 7, step)]
    assert [np.atleast_1d(batch).tolist() for batch in loader] == wanted


class Nested(Rows):
    """Samples that a loader of its own takes part in."""

    def __init__(self, is_nested: bool) -> None:
        super().__init__(8)
        self.is_nested = is_nested

    def __getitem__(self, index: int) -> Any:
        first = sample_generator().random()
        if self.is_nested:
            list(DataLoader(Random(4), 2, seed=9))
        return np.array([first, sample_generator().random()])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_within_a_sample_leaves_its_random_numbers_alone(workers):
    found = rows(DataLoader(Nested(True), 4, seed=1, num_workers=workers))
    assert found == rows(DataLoader(Nested(False), 4, seed=1, num_workers=workers))
    assert sample_generator() is not sample_generator(), "a sample is still begun"
