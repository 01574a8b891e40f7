"""Beside torch in one process: memory is exchanged without a copy, and torch's own sharing is left alone."""

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


MISTAKEN: dict[str, Any] = {
    "function": lambda x: shmtensor.sum(x),
    "elementwise": lambda x: shmtensor.add(x, 1),
    "with a tensor": lambda x: shmtensor.maximum(shmtensor.ones(3), x),
    "in place": lambda x: shmtensor.ones(3).add_(x),
    "condition": lambda x: shmtensor.where(x > 0, 1, 2),
    "list": lambda x: shmtensor.stack([x]),
    "out": lambda x: shmtensor.add(shmtensor.ones(3), 1, out=x),
    "set_": lambda x: shmtensor.ones(3).set_(x),
    "from_numpy": lambda x: shmtensor.from_numpy(x),
    "atomics": lambda x: shmtensor.atomics.load(x, 0),
    "random": lambda x: shmtensor.random.normal_(x),
}


@pytest.mark.parametrize("mistaken", MISTAKEN.values(), ids=list(MISTAKEN))
def test_errors_say_whose_tensor_it_is(mistaken: Any) -> None:
    with pytest.raises(shmtensor.errors.ShmTensorError, match=r"torch\.Tensor.*use shmtensor\.from_dlpack\(x\)"):
        mistaken(torch.ones(3))


def test_saving_a_state_dict_says_what_to_do(tmp_path: Any) -> None:
    state = torch.nn.Linear(2, 3).state_dict()
    for name in ("state.npz", "state.safetensors"):
        with pytest.raises(
            shmtensor.errors.DTypeError, match=r"'weight': cannot save a torch\.Tensor; use .*from_dlpack"
        ):
            shmtensor.save(state, tmp_path / name)
    shmtensor.save({name: shmtensor.from_dlpack(value) for name, value in state.items()}, tmp_path / "state.npz")
    assert shmtensor.load(tmp_path / "state.npz")["weight"].shape == (3, 2)
