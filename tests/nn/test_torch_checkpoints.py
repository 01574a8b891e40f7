"""Checkpoints of modules: torch's load here, ours load there, and modules go to other processes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor import nn


def network(library: Any) -> Any:
    return library.nn.Sequential(
        library.nn.Conv2d(1, 2, 3),
        library.nn.BatchNorm2d(2),
        library.nn.Flatten(),
        library.nn.Linear(8, 3),
        library.nn.LSTM(3, 2, 2),
    )


@pytest.mark.torch
def test_a_checkpoint_of_torch_loads(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    theirs, ours = network(torch), network(st)
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    state = st.load(tmp_path / "model.pt")
    assert state._metadata[""] == {"version": 1}
    assert repr(ours.load_state_dict(state)) == "<All keys matched successfully>"
    for key, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[key].numpy(), value.numpy())


@pytest.mark.torch
@pytest.mark.parametrize("keep_vars", [False, True])
def test_torch_loads_ours(tmp_path: Path, keep_vars: bool) -> None:
    torch: Any = pytest.importorskip("torch")
    theirs, ours = network(torch), network(st)
    st.save(ours.state_dict(keep_vars=keep_vars), tmp_path / "model.pt")
    theirs.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    for key, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[key].numpy(), value.numpy())


def test_version_1_of_batch_norm_had_no_count(tmp_path: Path) -> None:
    layer = nn.BatchNorm1d(2)
    state = layer.state_dict()
    del state["num_batches_tracked"]
    state._metadata[""]["version"] = 1
    assert repr(nn.BatchNorm1d(2).load_state_dict(state)) == "<All keys matched successfully>"


def fill(model: Any, value: float) -> None:
    with st.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_a_module(method: str) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).share_memory()
    model[1].weight.requires_grad = False
    child = mp.get_context(method).Process(target=fill, args=(model, 7.0))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert all((parameter.detach().numpy() == 7).all() for parameter in model.parameters())


def answer(queue: Any, back: Any) -> None:
    model = queue.get()
    fill(model, 5.0)
    back.put([type(one).__name__ + str(one.requires_grad) for one in model.parameters()])


def test_a_module_in_a_message_shares_its_parameters() -> None:
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=(queue, back))
    child.start()
    model = nn.Linear(2, 3).share_memory()
    model.bias.requires_grad = False
    queue.put(model)
    assert back.get(timeout=60) == ["ParameterTrue", "ParameterFalse"]
    child.join()
    assert model.weight.tolist() == [[5, 5]] * 3
    copied = copy.deepcopy(model)
    fill(copied, 1.0)
    assert model.weight.tolist() == [[5, 5]] * 3
