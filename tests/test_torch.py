"""Beside torch in one process: memory crosses both ways without a copy, and torch's own sharing is left alone."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

import shmtensor
import shmtensor.multiprocessing

pytestmark = pytest.mark.torch
torch: Any = pytest.importorskip("torch")


def test_torch_sees_shared_memory() -> None:
    tensor = shmtensor.zeros(3, 4, shared=True)
    theirs = torch.from_numpy(tensor.numpy())
    theirs[1] = 5
    assert tensor[1].tolist() == [5] * 4
    tensor.fill_(2)
    assert theirs.sum().item() == 24


def test_torch_keeps_the_block_alive() -> None:
    theirs = torch.from_numpy(shmtensor.full((1000,), 3.0, shared=True).numpy())
    others = [shmtensor.full((1000,), 9.0, shared=True) for _ in range(50)]
    assert (theirs == 3).all()
    del others


def test_a_torch_tensor_becomes_shared() -> None:
    theirs = torch.arange(6, dtype=torch.float32)
    ours = shmtensor.from_numpy(theirs.numpy())
    ours[0] = 7
    assert theirs[0].item() == 7
    ours.share_memory_()
    assert ours.tolist() == [7, 1, 2, 3, 4, 5]
    assert theirs.tolist() == [7, 1, 2, 3, 4, 5]  # the old memory is whole


def test_both_cross_in_one_message() -> None:
    ours = shmtensor.ones(3, shared=True)
    theirs = torch.ones(3)
    mine, its = pickle.loads(ForkingPickler.dumps((ours, theirs)))
    assert mine.storage() is ours.storage()
    assert torch.equal(its, theirs)


def test_the_same_names_mean_the_same() -> None:
    for name in ("view", "narrow", "select", "t", "transpose", "storage_offset", "stride", "numel", "is_contiguous"):
        assert hasattr(shmtensor.Tensor, name) and hasattr(torch.Tensor, name)
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    ours, theirs = shmtensor.from_numpy(array), torch.from_numpy(array)
    for one, other in (
        (ours.narrow(2, 1, 2), theirs.narrow(2, 1, 2)),
        (ours.select(1, 2), theirs.select(1, 2)),
        (ours.transpose(0, 2), theirs.transpose(0, 2)),
        (ours.view(6, -1).t(), theirs.view(6, -1).t()),
    ):
        assert one.stride() == other.stride()
        assert one.storage_offset() == other.storage_offset()
        assert one.tolist() == other.tolist()
