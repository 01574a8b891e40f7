"""Weights that are computed before each call, beside torch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor import errors, nn
from shmtensor.nn import utils

KINDS: list[Any] = [
    ("weight_norm", "Linear", (4, 3), {}, (2, 4)),
    ("weight_norm", "Linear", (4, 3), {"dim": None}, (2, 4)),
    ("weight_norm", "Conv2d", (2, 3, 2), {"dim": 1}, (2, 2, 4, 4)),
    ("spectral_norm", "Linear", (4, 3), {"n_power_iterations": 3}, (2, 4)),
    ("spectral_norm", "Conv2d", (2, 3, 2), {}, (2, 2, 4, 4)),
    ("spectral_norm", "ConvTranspose1d", (2, 3, 2), {}, (2, 2, 4)),
]


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "name", "args", "how", "shape"), KINDS)
def test_they_are_torchs(kind: str, name: str, args: Any, how: Any, shape: tuple[int, ...]) -> None:
    torch: Any = pytest.importorskip("torch")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(torch.nn.utils, kind)(getattr(torch.nn, name)(*args).double(), **how)
    ours = getattr(utils, kind)(getattr(nn, name)(*args).double(), **how)
    assert [*ours.state_dict()] == [*theirs.state_dict()]
    ours.load_state_dict({key: st.asarray(value.numpy().copy()) for key, value in theirs.state_dict().items()})
    values = np.random.default_rng(0).standard_normal(shape)
    for training in (True, True, False):
        results = []
        for library, layer in ((st, ours), (torch, theirs)):
            layer.zero_grad()
            result = layer.train(training)(library.asarray(values))
            result.backward(library.ones_like(result))
            results.append([result, *[one.grad for one in layer.parameters()], *layer.buffers()])
        for mine, other in zip(*results, strict=True):
            np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-8, atol=1e-10)
    for library, layer in ((utils, ours), (torch.nn.utils, theirs)):
        getattr(library, f"remove_{kind}")(layer)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-10)
    assert not ours._forward_pre_hooks


def test_a_weight_of_spectral_norm_1() -> None:
    layer = utils.spectral_norm(nn.Linear(5, 4), n_power_iterations=200)
    layer(st.ones(5))
    assert float(st.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1, abs=1e-5)


REFUSED: list[Any] = [
    (lambda: utils.weight_norm(utils.weight_norm(nn.Linear(2, 2))), "two weight_norm hooks"),
    (lambda: utils.spectral_norm(nn.Linear(2, 2, bias=False), "bias"), "no parameter 'bias'"),
    (lambda: utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), "to be positive"),
    (lambda: utils.remove_weight_norm(nn.Linear(2, 2)), "weight_norm of 'weight' not found"),
    (lambda: utils.remove_spectral_norm(nn.Linear(2, 2)), "spectral_norm of 'weight' not found"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, text = REFUSED[number]
    with pytest.raises(errors.InvalidArgument, match=text):
        call()
