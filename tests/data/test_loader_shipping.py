"""Datasets in spawned workers: their arrays are copied once for all workers."""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

import numpy as np
import pytest
from loader_world import Arrays, Rows, Unpacked
from tiers import first

from shmtensor.data import DataLoader
from shmtensor.data.shipping import Shipment
from shmtensor.errors import OutOfMemory
from shmtensor.manager import client

pytestmark = pytest.mark.usefixtures("in_time")


def loaded_by_three(dataset: Any, method: str) -> tuple[list[Any], int]:
    """Return (batches of two epochs, shared bytes that the program holds meanwhile)."""
    loader = DataLoader(dataset, 4, num_workers=3, multiprocessing_context=method, persistent_workers=True)
    batches = [batch for _ in range(2) for batch in loader]
    gc.collect()
    return batches, int(client.default().native.stats().nbytes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", first(["spawn", "forkserver"]))
def test_arrays_are_copied_once_for_all_workers(method: str) -> None:
    dataset = Arrays()
    _, without = loaded_by_three(Rows(12), method)
    batches, with_arrays = loaded_by_three(dataset, method)
    assert all(batch[name].all() for batch in batches for name in ("same", "columns", "others"))
    assert dataset.tensor[:12].sum().item() == 0  # a tensor is the same memory
    assert np.array_equal(dataset.rows[:, 0], np.arange(1000) * 1000.0)  # an array is each worker's own
    large = dataset.rows.nbytes + dataset.columns.nbytes
    assert large <= with_arrays - without < large + dataset.rows.nbytes


def test_a_worker_that_takes_the_place_of_another_has_the_arrays_as_they_were() -> None:
    arguments = {"multiprocessing_context": "spawn", "on_worker_death": "restart", "persistent_workers": True}
    loader = DataLoader(Arrays(), 12, num_workers=1, **arguments)
    wanted = [index * 1000.0 for index in range(12)]
    assert next(iter(loader))["before"].tolist() == wanted
    (pipeline,) = loader._pipelines.values()
    os.kill(pipeline.pids()[0], signal.SIGKILL)
    assert next(iter(loader))["before"].tolist() == wanted
    assert loader.stats().restarts == 1


def test_an_array_that_was_made_for_the_pickle_is_not_taken_for_a_later_one() -> None:
    shipment = Shipment(Unpacked(64, (1000,)))
    for times in range(1, 4):
        opened, (data, others) = shipment.__reduce__()
        assert opened(data, others).x[0, 0] == times
        del others


def test_without_shared_memory_arrays_are_sent_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    from shmtensor.data import shipping

    def refused(array: Any) -> Any:
        raise OutOfMemory("none left")

    monkeypatch.setattr(shipping, "_frozen", refused)
    rows = Rows(64, (1000,))
    batches = list(DataLoader(rows, 16, num_workers=2, multiprocessing_context="spawn"))
    assert np.array_equal(np.concatenate([batch.numpy() for batch in batches]), rows.x)
