"""Tuning: tries settings on the dataset and reports what it found."""

from __future__ import annotations

from typing import Any

import pytest
from loader_world import Numbered, Rows, Slow, Stream

from shmtensor.data import BatchSampler, DataLoader

pytestmark = pytest.mark.usefixtures("in_time")


@pytest.mark.exhaustive
def test_workers_that_help_are_found():
    loader = DataLoader(Slow(64, 0.002), 8, shuffle=True, seed=3)
    tuning = loader.tune(max_workers=2, seconds=0.3)
    assert tuning.best.num_workers > 0 and tuning.best.samples_per_second > tuning.trials[0].samples_per_second
    assert [(trial.num_workers, trial.prefetch_factor) for trial in tuning.trials] == [
        (0, None), (1, 2), (1, 4), (2, 2), (2, 4)
    ]  # fmt: skip
    assert str(tuning).count("<- best") == 1
    other: Any = DataLoader(Slow(64, 0.0), 8, shuffle=True, seed=3, **tuning.arguments)
    assert [batch.tolist() for batch in other] == [batch.tolist() for batch in loader]


def test_settings_beyond_the_bytes_are_not_chosen():
    tuning = DataLoader(Rows(64), 8, max_bytes=100).tune(max_workers=1, seconds=0.1)
    assert tuning.best.num_workers == 0 and "too large" in str(tuning)


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(), 4),
        DataLoader(Numbered(), None),
        DataLoader(Rows(), batch_sampler=BatchSampler(range(64), 5, True)),
        DataLoader(Rows(), 64),
        DataLoader(Rows(), 4, sampler=[1, 2, 3], collate_fn=list),
    ],
    ids=["stream", "samples", "batches", "one", "collate"],
)
def test_every_kind_of_loader_can_be_tuned(loader):
    assert loader.tune(max_workers=1, seconds=0.05).best.samples_per_second > 0
