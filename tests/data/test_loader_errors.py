"""Errors in workers: the message says what, where and why, and the loader can be used again."""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import dataclasses
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_world import DiesOnce, Failing, Loud, Rows, Slow, Stream
from manager_world import BOUND, is_alive, live_in_arenas, until

import shmtensor as st
from shmtensor.data import DataLoader
from shmtensor.data.pipeline import Batch, Pipeline
from shmtensor.errors import (
    DTypeError,
    InvalidArgument,
    LoaderTimeout,
    OutOfMemory,
    SampleFailed,
    SampleMismatch,
    SampleTypeError,
    WorkerDied,
)
from shmtensor.manager import client

pytestmark = pytest.mark.usefixtures("in_time")


def whole(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


WANTED = Rows().x.reshape(16, 4, 5).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_has_its_type_index_and_traceback(workers):
    with pytest.raises(KeyError, match="no such thing") as caught:
        whole(DataLoader(Failing(37, "key"), 4, num_workers=workers))
    notes = "".join(caught.value.__notes__)
    assert "37" in notes
    if workers:
        assert "loader_world.py" in notes and "Traceback" in notes


@pytest.mark.parametrize("kind", ["loud", "stop"])
def test_an_exception_that_cannot_be_raised_here(kind):
    with pytest.raises(SampleFailed, match=r"(?s)37.*loader_world\.py.*(Loud: 1 and 2|StopIteration)"):
        whole(DataLoader(Failing(37, kind), 4, num_workers=2))
    with pytest.raises(Loud if kind == "loud" else SampleFailed):
        whole(DataLoader(Failing(37, kind), 4))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_after_a_failed_one_come(workers):
    iterator = iter(DataLoader(Failing(37, "key"), 4, num_workers=workers))
    found = []
    for _ in range(16):
        try:
            found.append(next(iterator).tolist())
        except KeyError:
            found.append(None)
    assert found == [*WANTED[:9], None, *WANTED[10:]]
    assert next(iterator, None) is None


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("bad", [1, 37])
def test_samples_of_unequal_shape_are_named(workers, bad):
    with pytest.raises(SampleMismatch, match=rf"\(5,\).*\(7,\).*{bad}"):
        whole(DataLoader(Failing(bad, "shape"), 4, num_workers=workers))


FORK = {0: None, 2: "fork"}
"""Start methods by the number of workers; datasets have functions that cannot be pickled."""


class Odd(Rows):
    """One sample is another thing than the others."""

    def __init__(self, others: Any, odd: Any) -> None:
        super().__init__()
        self.others, self.odd = others, odd

    def __getitem__(self, index: int) -> Any:
        return self.odd(index) if index == 37 else self.others(index)


class OddStream(Stream):
    """The same one after the other."""

    def __init__(self, others: Any, odd: Any, length: int = 64) -> None:
        super().__init__(length)
        self.rows, self.length = Odd(others, odd), length

    def __iter__(self) -> Any:
        return map(self.rows.__getitem__, range(self.length))


def vector(index: int) -> Any:
    return np.full(3, index, np.float32)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [Odd, OddStream])
@pytest.mark.parametrize(
    ("others", "odd", "kind", "words"),
    [
        (vector, lambda _: object(), SampleTypeError, "found object"),
        (vector, lambda _: None, SampleTypeError, "found NoneType"),
        (vector, lambda _: np.array(["a"]), SampleTypeError, "an array of <U1"),
        (vector, lambda n: (vector(n), 1), SampleTypeError, "found tuple"),
        (lambda n: {"x": vector(n), "y": 1}, lambda n: {"x": vector(n), "y": None}, SampleTypeError, "NoneType"),
        (lambda _: 1.5, lambda _: "text", SampleTypeError, "a number, and sample 1 a str"),
        (lambda _: 1.5, vector, SampleMismatch, r"\(\), sample 1 \(3,\)"),
        (lambda n: {"x": vector(n)}, vector, SampleMismatch, "a dict, sample 1 a numpy.ndarray"),
        (lambda n: {"x": vector(n)}, lambda _: [1.0], SampleMismatch, "a dict, sample 1 a list"),
        (lambda n: {"x": vector(n)}, lambda _: None, SampleMismatch, "a dict, sample 1 a NoneType"),
        (lambda n: {"x": vector(n)}, lambda n: {"y": vector(n)}, SampleMismatch, "the key 'x'"),
        (vector, lambda _: np.zeros((2, 2)), SampleMismatch, r"sample 1 \(2, 2\)"),
    ],
    ids=range(12),
)
def test_the_sample_that_does_not_fit_is_named_with_its_worker(workers, make, others, odd, kind, words):
    iterator = iter(DataLoader(make(others, odd), 4, num_workers=workers, multiprocessing_context=FORK[workers]))
    for _ in range(9):
        next(iterator)
    with pytest.raises(kind, match=words) as caught:
        next(iterator)
    assert 1 in caught.value.positions
    worker = r" \(worker [01]\)" if workers else ""
    assert re.search(rf"\(indices of these samples: .*\b37{worker}\)$", str(caught.value))


@pytest.mark.parametrize("workers", [0, 2])
def test_objects_that_cannot_be_collated_are_named_in_every_batch(workers):
    with pytest.raises(SampleTypeError, match=r"found object \(sample 0 of the batch\).*indices of these samples: 0"):
        next(
            iter(
                DataLoader(Odd(lambda _: object(), None), 4, num_workers=workers, multiprocessing_context=FORK[workers])
            )
        )
    rows = Odd(lambda n: (vector(n), None), None)
    with pytest.raises(SampleTypeError, match=r"NoneType .*indices of these samples: 0"):
        next(iter(DataLoader(rows, 4, num_workers=workers, multiprocessing_context=FORK[workers])))


@pytest.mark.parametrize("size", [4, None])
@pytest.mark.parametrize("make", [Odd, OddStream])
def test_a_sample_that_cannot_be_sent_is_named_with_its_worker(make, size):
    dataset = make(vector, lambda _: threading.Lock())
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        whole(DataLoader(dataset, size, num_workers=2, multiprocessing_context="fork"))
    assert re.match(r"\nworker [01], for the sample of index 37, raised", caught.value.__notes__[-1])


class OddChunks(Odd):
    """Several at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def test_samples_beside_one_that_cannot_be_sent_are_freed():
    before = client.default().list()["in_flight_total"]
    dataset = OddChunks(lambda n: np.full(1000, n), lambda _: threading.Lock())
    with pytest.raises(TypeError, match="cannot pickle"):
        whole(DataLoader(dataset, 16, num_workers=1, multiprocessing_context="fork"))
    assert client.default().list()["in_flight_total"] == before


def test_samples_of_a_stream_that_ended_are_not_named():
    dataset = OddStream(vector, lambda _: threading.Lock(), 38)
    loader = DataLoader(dataset, 37, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(TypeError, match="cannot pickle") as caught:
        whole(loader)
    assert "the sample of index 37, raised" in caught.value.__notes__[-1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate_fn", [np.stack, st.data.default_collate])
def test_the_batch_that_a_collate_fn_fails_at_is_named(workers, collate_fn):
    dataset = Odd(vector, lambda _: np.zeros(4))
    loader = DataLoader(dataset, 4, num_workers=workers, collate_fn=collate_fn, multiprocessing_context=FORK[workers])
    with pytest.raises(ValueError, match="shape") as caught:
        list(loader)
    assert "the batch of indices 36, 37, 38, 39" in caught.value.__notes__[-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_batch_that_a_registered_function_fails_at_is_named(workers, monkeypatch):
    def refuse(batch: Any, *, collate_fn_map: Any) -> Any:
        raise KeyError("no such thing")

    monkeypatch.setitem(st.data.default_collate_fn_map, complex, refuse)
    loader = DataLoader([2j] * 6, 4, num_workers=workers, multiprocessing_context=FORK[workers])
    with pytest.raises(KeyError, match="no such thing") as caught:
        list(loader)
    assert caught.value.__notes__ == ["(the batch of indices 0, 1, 2, 3)"]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_other_samples_in_a_registered_function_is_raised_as_it_is(workers, monkeypatch):
    def flatten(batch: Any, *, collate_fn_map: Any) -> Any:
        return st.data.default_collate([0.0] * 9 + [object()])

    monkeypatch.setitem(st.data.default_collate_fn_map, complex, flatten)
    loader = DataLoader([2j] * 4, 4, num_workers=workers, multiprocessing_context=FORK[workers])
    with pytest.raises(SampleTypeError, match="object") as caught:
        list(loader)
    assert caught.value.__notes__ == ["(the batch of indices 0, 1, 2, 3)"]


def itself() -> Any:
    """A list that contains itself."""
    found: list[Any] = [1.5]
    found.append(found)
    return found


class Circular(Rows):
    """One sample contains itself."""

    def __init__(self, bad: int) -> None:
        super().__init__()
        self.bad = bad

    def __getitem__(self, index: int) -> Any:
        return itself() if index == self.bad else [1.5, self.x[index]]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("bad", [0, 9])
@pytest.mark.parametrize("size", [4, None], ids=["batch", "single"])
def test_a_sample_that_contains_itself(workers, bad, size):
    iterator = iter(DataLoader(Circular(bad), size, num_workers=workers))
    batch = bad // (size or 1)
    for _ in range(batch):
        next(iterator)
    with pytest.raises((InvalidArgument, DTypeError), match=rf"(batch of indices .*\b{bad}\b.*itself|sample 1 of)"):
        next(iterator)
    assert len(list(iterator)) == 64 // (size or 1) - batch - 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_result_of_collate_fn_that_contains_itself(workers):
    def collate(samples: Any) -> Any:
        return itself() if samples[0][0] == 20 else len(samples)

    iterator = iter(DataLoader(Rows(), 4, num_workers=workers, collate_fn=collate))
    assert next(iterator) == 4
    with pytest.raises(InvalidArgument, match="batch of indices 4, 5, 6, 7 contains itself"):
        next(iterator)
    assert list(iterator) == [4] * 14


def endless(samples: Any) -> Any:
    return endless(samples)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_fn_that_calls_itself_without_end_is_not_mistaken_for_it(workers):
    with pytest.raises(RecursionError):
        next(iter(DataLoader(Rows(), 4, num_workers=workers, collate_fn=endless)))


def with_its_traceback(error: BaseException) -> tuple[Any, ...]:
    """Pickle a traceback as a chain of its frames, as tblib does; importing Dask has every exception pickled so."""
    chain: Any = None
    traceback = error.__traceback__
    while traceback is not None:
        chain = (chain, traceback.tb_lineno)
        traceback = traceback.tb_next
    return type(error), error.args, {"chain": chain}


def test_tracebacks_that_are_pickled_by_another_library(monkeypatch):
    monkeypatch.setitem(copyreg.dispatch_table, RecursionError, with_its_traceback)
    with pytest.raises(RecursionError, match="maximum recursion") as caught:
        next(iter(DataLoader(Rows(), 4, num_workers=1, collate_fn=endless)))
    assert "Previous line repeated" in "".join(caught.value.__notes__)


def test_a_dataset_that_is_shorter_than_it_says():
    class Liar(Rows):
        def __len__(self) -> int:
            return 70

    iterator = iter(DataLoader(Liar(), 4, num_workers=2))
    assert [next(iterator).tolist() for _ in range(16)] == WANTED
    with pytest.raises(IndexError) as caught:
        next(iterator)
    assert "64" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_changes_its_length(workers):
    dataset = Rows()
    loader = DataLoader(dataset, 4, num_workers=workers)
    iterator = iter(loader)
    assert next(iterator).tolist() == WANTED[0]
    whole_x, dataset.x = dataset.x, dataset.x[:30]  # workers that were forked before have the rows still
    found = []
    with pytest.raises(IndexError) if not workers else contextlib.nullcontext():
        found.extend(iterator)
    assert [batch.tolist() for batch in found] == (WANTED[1:] if workers else WANTED[1:7])
    del iterator
    assert len(loader) == 8 and len(whole(loader)) == 8
    dataset.x = whole_x
    assert whole(loader) == WANTED


class Counting(Rows):
    """Counts how often each sample is loaded; sample 4 does not come before it may."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark, self.counts = mark, st.zeros(64, dtype=st.int64, shared=True)

    def __getitem__(self, index: int) -> Any:
        if index == 4:
            until(self.mark.exists, "the test")
        self.counts[index] += 1
        return self.x[index]


def test_batches_that_nobody_wants_are_not_loaded(tmp_path):
    dataset = Counting(tmp_path / "may")
    loader = DataLoader(dataset, 4, num_workers=1, prefetch_factor=8, persistent_workers=True)
    next(iter(loader))
    dataset.mark.touch()
    assert whole(loader) == WANTED
    assert dataset.counts[8:].tolist() == [1] * 56


class Gated(Failing):
    """Sample 0 fails. The others are counted, and wait until the program knows of it."""

    def __init__(self) -> None:
        super().__init__(0, "key")
        self.gate = multiprocessing.get_context("fork").Event()
        self.counts = st.zeros(64, dtype=st.int64, shared=True)

    def __getitem__(self, index: int) -> Any:
        if index:
            assert self.gate.wait(BOUND)
            self.counts[index] += 1
        return super().__getitem__(index)


def test_the_rest_of_a_failed_batch_is_not_loaded_nor_waited_for(monkeypatch):
    dataset, seen = Gated(), []
    take = Pipeline._take

    def then_open(pipeline: Pipeline, message: Any) -> None:
        seen.extend(pipeline._pending.values())
        take(pipeline, message)
        dataset.gate.set()

    monkeypatch.setattr(Pipeline, "_take", then_open)
    with pytest.raises(KeyError, match="no such thing"):
        next(iter(DataLoader(dataset, 64, num_workers=1, multiprocessing_context="fork")))
    batch: Batch = seen[0]
    assert dataset.counts.sum() < 32, "chunks were begun after the program knew of the failure"
    # Else it is found to be done by a look that comes once in a while.
    until(batch.is_counted_done, "a count of all chunks, also of those that nobody begins")


def test_an_error_that_ends_the_epoch_ends_the_workers():
    loader = DataLoader(Failing(37, "hang"), 4, num_workers=2, timeout=0.5, persistent_workers=True)
    iterator: Any = iter(loader)
    pids = iterator._pipeline.pids()
    with pytest.raises(LoaderTimeout):
        list(iterator)
    assert not any(map(is_alive, pids))


def start_badly(number: int) -> None:
    if number == 1:
        raise OSError("no such disk")


def test_a_worker_that_cannot_start():
    with pytest.raises(OSError, match="no such disk") as caught:
        whole(DataLoader(Slow(), 4, num_workers=2, worker_init_fn=start_badly))
    assert "start_badly" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_death_is_explained_and_the_loader_can_be_used_again(persistent, tmp_path):
    loader = DataLoader(DiesOnce(37, str(tmp_path)), 4, num_workers=2, persistent_workers=persistent)
    with pytest.raises(WorkerDied, match=r"worker \d \(pid \d+\) was killed by SIGKILL .*37.*out-of-memory") as caught:
        whole(loader)
    assert caught.value.signal_name == "SIGKILL"
    del caught
    assert whole(loader) == WANTED


@pytest.mark.parametrize("kind", [DiesOnce, "stream"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_death_costs_no_sample(kind, method, tmp_path):
    if kind == "stream":
        loader = DataLoader(
            Dying(str(tmp_path)), 4, num_workers=2, on_worker_death="restart", multiprocessing_context=method
        )
        assert whole(loader) == [[[n] * 3 for n in range(k, min(k + 4, 23))] for k in range(0, 23, 4)]
    else:
        dataset = DiesOnce(37, str(tmp_path), 2)
        loader = DataLoader(dataset, 4, num_workers=2, on_worker_death="restart", multiprocessing_context=method)
        assert whole(loader) == WANTED
        assert loader.stats().restarts == 2


class Dying(Stream):
    def __init__(self, marks: str) -> None:
        super().__init__()
        self.marks = marks

    def __iter__(self) -> Any:
        for number, array in enumerate(super().__iter__()):
            if number == 13:
                try:
                    os.close(os.open(f"{self.marks}/died", os.O_CREAT | os.O_EXCL))
                    os.kill(os.getpid(), signal.SIGKILL)
                except FileExistsError:
                    pass
            yield array


def test_a_death_is_noticed_while_other_batches_come(tmp_path):
    class Endless:
        def __iter__(self) -> Any:
            yield from ([1, 2], [3, 4], [37])
            while True:
                yield [5]

    dataset = DiesOnce(37, str(tmp_path))
    loader = DataLoader(dataset, batch_sampler=Endless(), num_workers=2, in_order=False)
    with pytest.raises(WorkerDied, match="while it loaded index 37"):
        for count, _ in enumerate(loader):
            assert count < 5000, "it would be noticed in a pause"


def test_a_sample_that_kills_every_worker_is_an_error(tmp_path):
    loader = DataLoader(DiesOnce(37, str(tmp_path), 99), 4, num_workers=2, on_worker_death="restart")
    with pytest.raises(WorkerDied, match="37, as 3 workers did in a row"):
        whole(loader)


def test_a_worker_that_exits():
    with pytest.raises(WorkerDied, match="exit code 3"):
        whole(DataLoader(Failing(37, "exit"), 4, num_workers=2))


@pytest.mark.exhaustive
def test_a_worker_that_hangs_or_is_stopped_is_named():
    loader = DataLoader(Failing(37, "hang"), 4, num_workers=2, timeout=2.5)
    with pytest.raises(LoaderTimeout, match=r"2\.5 seconds: worker \d \(pid \d+\) has .*37"):
        whole(loader)
    with pytest.raises(LoaderTimeout, match=r"which is stopped by a signal, has .*37"):
        whole(DataLoader(Failing(37, "stopped"), 4, num_workers=2, timeout=2.5))


def test_a_worker_that_is_stopped_for_a_while_delays_only():
    iterator = iter(DataLoader(Slow(64, 0.005), 4, num_workers=2))
    found = []
    for number, batch in enumerate(iterator):
        found.append(batch.tolist())
        pid = iterator._pipeline.pids()[number % 2] if number < 15 else 0
        if pid:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.02)
            os.kill(pid, signal.SIGCONT)
    assert found == WANTED


def test_a_stopped_worker_keeps_no_memory_of_batches():
    loader = DataLoader(Rows(2_400), 4, num_workers=2, persistent_workers=True)
    wanted = whole(loader)
    pid = loader._pipelines["load"].pids()[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert whole(loader) == wanted
        live = live_in_arenas(client.default().list())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert live < 100  # there were 600 batches
    assert whole(loader) == wanted


def test_a_batch_beyond_all_memory():
    class Huge(Rows):
        def __getitem__(self, index: int) -> Any:
            return np.broadcast_to(np.float32(index), (1 << 30,)) if index >= 8 else self.x[index]

    loader = DataLoader(Rows(), 64, num_workers=2, max_bytes=100)
    with pytest.raises(OutOfMemory, match="a batch of 1280 bytes, with max_bytes=100"):
        for _ in range(2):
            whole(loader)


def test_an_exception_of_a_stream_ends_it():
    class Broken(Stream):
        def __iter__(self) -> Any:
            yield from (np.full(3, n) for n in range(6))
            raise ValueError("torn")

    class BrokenDecoded(Broken):
        def load(self, item: Any) -> Any:
            return item

    for workers in (0, 2):
        for dataset in (Broken(), BrokenDecoded()):
            iterator = iter(DataLoader(dataset, 4, num_workers=workers))
            assert len(next(iterator)) == 4
            with pytest.raises(ValueError, match="torn"):
                next(iterator)
            assert next(iterator, None) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_a_sampler_comes_after_the_batches_before(workers):
    def order() -> Any:
        yield from ([1], [2, 3], [4])
        raise ValueError("no more")

    iterator = iter(DataLoader(Rows(8, ()), batch_sampler=order(), num_workers=workers))
    assert [next(iterator).tolist() for _ in range(3)] == [[1], [2, 3], [4]]
    with pytest.raises(ValueError, match="no more"):
        next(iterator)


@pytest.mark.exhaustive
def test_an_iterator_that_an_error_has_ended_says_so_and_its_state_can_be_loaded():
    loader = DataLoader(Failing(37, "hang"), 4, num_workers=1, timeout=5)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(9)] == WANTED[:9]
    with pytest.raises(LoaderTimeout) as caught:
        next(iterator)
    with pytest.raises(SampleFailed, match=r"before its last batch, with .*LoaderTimeout: .*37"):
        next(iterator)
    loader.dataset.kind, loader.timeout = "none", 0
    loader.load_state_dict(loader.state_dict())  # while the error holds the iterator
    assert caught.value.args and whole(loader) == WANTED[9:]


class Promising(st.data.IterableDataset):
    """A stream of 7 samples that has a length of its own."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        return iter(range(7))


class LoadedPromising(Promising):
    def load(self, item: int) -> Any:
        return item


@pytest.mark.filterwarnings("ignore:.*multi-threaded")
@pytest.mark.parametrize("size", [2, None])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Promising, LoadedPromising], ids=["stream", "load"])
def test_a_stream_that_is_longer_than_it_says_warns_once_in_an_epoch(kind, workers, size):
    loader = DataLoader(kind(3), size, num_workers=workers)
    assert len(loader) == (3 if size is None else 2)
    for _ in range(2):
        with pytest.warns(UserWarning, match=rf"{len(loader)} batches.*{kind.__name__}.*__len__") as caught:
            count = sum(1 for _ in loader)
        assert count == (7 if size is None else 4)
        assert [one.filename for one in caught if one.category is UserWarning] == [__file__]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("length", "asks"), [(7, True), (8, True), (3, False)])
def test_a_stream_whose_length_is_right_or_not_asked_for_does_not_warn(length, asks, workers, recwarn):
    loader = DataLoader(Promising(length), 2, num_workers=workers)
    if asks:
        assert len(loader) == 4
    assert sum(1 for _ in loader) == 4
    assert not [one for one in recwarn if "__len__" in str(one.message)]


class Starting(Rows):
    """Starts a program for each sample, and ends it by a signal."""

    def __getitem__(self, index: int) -> Any:
        with subprocess.Popen(["sleep", "100"]) as program:
            program.terminate()
            try:
                return program.wait(10)
            except subprocess.TimeoutExpired:
                program.kill()
                return 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_programs_that_a_dataset_starts_can_be_terminated(method):
    loader = DataLoader(Starting(1), 1, num_workers=1, multiprocessing_context=method)
    assert [batch.tolist() for batch in loader] == [[-signal.SIGTERM]]


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """An exception that refuses notes."""

    number: int

    def __reduce__(self) -> Any:
        return Frozen, (self.number,)


class Leaving(Exception):
    """An exception that ends the process that pickles it."""

    def __reduce__(self) -> Any:
        raise SystemExit(3)


class Raising(Rows):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def __getitem__(self, index: int) -> Any:
        if index == 37:
            raise self.make(index)
        return self.x[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_that_refuses_notes(workers):
    with pytest.raises(Frozen) as caught:
        whole(DataLoader(Raising(Frozen), 4, num_workers=workers))
    assert caught.value.number == 37
    assert not workers or "Traceback" in str(caught.value.__cause__)


def test_an_exception_whose_pickling_exits():
    with pytest.raises(SampleFailed, match=r"(?s)37.*Leaving"):
        whole(DataLoader(Raising(Leaving), 4, num_workers=2))


class LeavingStream(st.data.IterableDataset):
    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.next = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self.next += 1
        if self.next == 38:
            raise self.kind
        if self.next > 80:
            raise StopIteration
        return np.float32(self.next)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("case", ["slots", "collated", "threads", "stream"])
def test_an_exception_that_would_end_the_program_fails_its_batch(kind, case):
    dataset: Any = LeavingStream(kind) if case == "stream" else Raising(lambda index: kind())
    more = {"collated": {"collate_fn": np.stack}, "threads": {"threads": 2}}.get(case, {})
    batches = iter(
        DataLoader(dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context="fork", **more)
    )
    pids = batches._pipeline.pids()
    assert len([next(batches) for _ in range(9)]) == 9
    with pytest.raises(SampleFailed, match=rf"(?s)37.*{kind.__name__}"):
        next(batches)
    assert next(batches).shape[0] == 4 and batches._pipeline.pids() == pids
    with pytest.raises(kind):
        list(DataLoader(LeavingStream(kind) if case == "stream" else dataset, 4))


def test_a_worker_init_fn_that_exits():
    with pytest.raises(SampleFailed, match="SystemExit"):
        next(iter(DataLoader(Rows(), 4, num_workers=1, worker_init_fn=sys.exit)))


class Dealt(Stream):
    """A stream that one process reads, and of which others load the samples."""

    bad: Any

    def load(self, item: Any) -> Any:
        return self.bad[37] if item[0] == 10 else item


def interrupted() -> Iterator[list[int]]:
    yield [0, 1]
    raise KeyError("no such thing")


def dealt(kind: str) -> DataLoader[Any]:
    stream = Dealt(64)
    stream.bad = Failing(37, kind)
    return DataLoader(stream, 4, num_workers=2)


FAILURES: dict[str, Any] = {
    "sample": lambda workers: DataLoader(Failing(37, "key"), 4, num_workers=workers),
    "shape": lambda workers: DataLoader(Failing(37, "shape"), 4, num_workers=workers),
    "sampler": lambda workers: DataLoader(Rows(), batch_sampler=interrupted(), num_workers=workers),
    "late": lambda workers: DataLoader(Failing(37, "hang"), 4, num_workers=workers, timeout=0.1),
    "death": lambda workers: DataLoader(Failing(37, "exit"), 4, num_workers=workers),
    "dealt, sample": lambda _: dealt("key"),
    "dealt, death": lambda _: dealt("exit"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_nothing_is_kept_after_an_error_without_garbage_collection(failure):
    gc.disable()
    try:
        iterator = iter(FAILURES[failure](2))
        kept = weakref.ref(iterator)
        raised = False
        try:
            for _ in iterator:
                pass
        except (KeyError, SampleMismatch, WorkerDied, LoaderTimeout):
            raised = True
        assert raised
        assert failure != "dealt, death" or not multiprocessing.active_children(), "the one that reads"
        del iterator
        assert kept() is None and not multiprocessing.active_children()
    finally:
        gc.enable()


@pytest.mark.parametrize("failure", ["sample", "shape", "sampler"])
def test_nothing_is_kept_after_an_error_without_workers(failure):
    gc.disable()
    try:
        iterator = iter(FAILURES[failure](0))
        kept = weakref.ref(iterator)
        with contextlib.suppress(KeyError, SampleMismatch):
            for _ in iterator:
                pass
        del iterator
        assert kept() is None
    finally:
        gc.enable()
