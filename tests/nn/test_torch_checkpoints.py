"""Checkpoints of modules: exchanged with torch in both directions, and modules sent to other processes."""

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


OLDER: list[tuple[str, tuple[Any, ...], str, tuple[int, ...]]] = [
    *((f"{kind}{axes}d", (2, 4, 3), "padding_mode", (1, 2, *[5] * axes))
      for kind in ("Conv", "ConvTranspose") for axes in (1, 2, 3)),
    ("LSTM", (2, 3), "proj_size", (4, 1, 2)),
    ("AvgPool3d", (2,), "padding ceil_mode count_include_pad", (1, 2, 5, 5, 5)),
    ("Upsample", (None, 1.3), "recompute_scale_factor", (1, 2, 7)),
    ("Softmax", (), "dim", (2, 3)),
    ("LogSoftmax", (), "dim", (2, 3)),
    ("Softmin", (), "dim", (2, 3)),
]  # fmt: skip
"""Modules whose pickles lacked attributes in older versions of torch: name, arguments, attributes, shape of input."""


@pytest.mark.filterwarnings("ignore:.*[Dd]im")
@pytest.mark.parametrize(("name", "arguments", "lacking", "shape"), OLDER, ids=[case[0] for case in OLDER])
@pytest.mark.parametrize("library", ["shmtensor", pytest.param("torch", marks=pytest.mark.torch)])
def test_pickles_of_older_versions_lack_attributes(
    library: str, name: str, arguments: Any, lacking: str, shape: Any
) -> None:
    t: Any = pytest.importorskip(library)
    layer = getattr(t.nn, name)(*arguments)
    state = layer.__reduce_ex__(2)[2]
    made = type(layer).__new__(type(layer))
    made.__setstate__({key: value for key, value in state.items() if key not in lacking.split()})
    if name == "Upsample":
        layer.recompute_scale_factor = True
    assert repr(made) == repr(layer)
    x = t.rand(*shape)
    found, wanted = made(x), layer(x)
    assert t.equal(*(one[0] if name == "LSTM" else one for one in (found, wanted)))


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
