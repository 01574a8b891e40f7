"""The first batch of a loader: the first sample determines the layout, and workers write the others into slots."""

from __future__ import annotations

import multiprocessing
import resource
from typing import Any

import numpy as np
import pytest
from loader_world import DiesOnce, Failing, Rows
from manager_world import BOUND

from shmtensor.data import DataLoader
from shmtensor.data.pipeline import Pipeline
from shmtensor.errors import SampleMismatch

pytestmark = pytest.mark.usefixtures("in_time")


class Gated:
    """Samples of which those from 4 on wait until the program knows the layout."""

    def __init__(self, gate: Any, odd: int = -1) -> None:
        self.gate, self.odd = gate, odd

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        assert index < 4 or self.gate.wait(BOUND)
        return {"name": str(index), "x": np.full(9 if index == self.odd else 5, index)}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An event that is set when the program has learned the layout."""
    learned = multiprocessing.get_context("fork").Event()
    learn = Pipeline._learn

    def then_open(pipeline: Pipeline, batch: Any, sample: Any) -> None:
        learn(pipeline, batch, sample)
        learned.set()

    monkeypatch.setattr(Pipeline, "_learn", then_open)
    return learned


@pytest.mark.parametrize("workers", [1, 2])
def test_most_of_it_is_written_into_slots(gate: Any, workers: int) -> None:
    loader = DataLoader(Gated(gate), 32, num_workers=workers, multiprocessing_context="fork")
    first, second = loader
    for start, batch in ((0, first), (32, second)):
        assert batch["name"] == [str(n) for n in range(start, start + 32)]
        assert batch["x"].tolist() == [[n] * 5 for n in range(start, start + 32)]
        assert batch["x"].is_shared()


def test_a_sample_of_it_that_does_not_fit(gate: Any) -> None:
    with pytest.raises(SampleMismatch, match=r"sample 0 has \(5,\), sample 21 \(9,\).*samples: 0, 21 \(worker \d\)\)"):
        next(iter(DataLoader(Gated(gate, 21), 32, num_workers=2, multiprocessing_context="fork")))


def test_it_does_not_go_beyond_the_bound_of_memory(gate: Any) -> None:
    loader = DataLoader(Gated(gate), 32, num_workers=2, multiprocessing_context="fork", max_bytes=100)
    first = next(iter(loader))
    assert not first["x"].is_shared() and first["x"][:, 0].tolist() == list(range(32))


@pytest.mark.parametrize("bad", [0, 2])
def test_a_worker_that_dies_in_it_costs_no_sample(bad: int, tmp_path: Any) -> None:
    loader = DataLoader(DiesOnce(bad, str(tmp_path), 2), 16, num_workers=2, on_worker_death="restart")
    assert [batch.tolist() for batch in loader] == Rows().x.reshape(4, 16, 5).tolist()
    assert loader.stats().restarts == 2


@pytest.mark.parametrize("bad", [0, 9])
def test_an_exception_in_it_leaves_the_next_ones(bad: int) -> None:
    iterator = iter(DataLoader(Failing(bad, "key"), 16, num_workers=2))
    with pytest.raises(KeyError, match="no such thing"):
        next(iterator)
    assert [batch.tolist() for batch in iterator] == Rows().x.reshape(4, 16, 5)[1:].tolist()


class Faults:
    """Samples of 1 MiB, with the number of page faults of the worker so far."""

    def __init__(self) -> None:
        self.x = np.ones(1 << 20, np.uint8)

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return self.x, resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def faults_of_reading() -> int:
    """Page faults of reading memory that another mapping has in use, a page in 16."""
    import mmap
    import os

    file = os.memfd_create("pages")
    os.ftruncate(file, 1 << 20)
    before, after = mmap.mmap(file, 1 << 20), mmap.mmap(file, 1 << 20)
    os.close(file)
    before.write(bytes(1 << 20))
    count = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert sum(after[:: 1 << 12]) == 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - count


def test_a_new_worker_maps_a_batch_that_was_in_use_before_with_few_faults() -> None:
    if faults_of_reading() > 64:
        pytest.skip("this kernel maps one page at a time")
    loader = DataLoader(Faults(), 16, num_workers=1, multiprocessing_context="fork")
    for _ in range(2):  # the second time the memory is warm
        next(iter(loader))
    faults = np.diff(next(iter(loader))[1].numpy())
    assert faults.sum() < 15 * 256 / 2, "256 pages of each sample were mapped one by one"
