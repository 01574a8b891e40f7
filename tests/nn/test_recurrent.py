"""Recurrent layers: first and second derivatives by differences, and dropout between layers."""

from __future__ import annotations

from typing import Any

import pytest
from tiers import first

import shmtensor as st
from shmtensor import nn
from shmtensor.autograd import gradcheck, gradgradcheck
from shmtensor.nn.utils.rnn import pack_padded_sequence

LAYERS = [
    ("LSTM", {}),
    ("LSTM", {"proj_size": 1, "bidirectional": True}),
    ("GRU", {}),
    ("GRU", {"bias": False, "bidirectional": True}),
    ("RNN", {}),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "how"), first(LAYERS))
def test_derivatives(name: str, how: dict[str, Any], packed: bool) -> None:
    st.manual_seed(1)
    layer = getattr(nn, name)(1, 2, **how).double()
    names = [one for one, _ in layer.named_parameters()]

    def run(x: Any, *weights: Any) -> Any:
        for one, weight in zip(names, weights, strict=True):
            layer.__dict__[one] = weight
        given = pack_padded_sequence(x, [3, 1]) if packed else x
        output, last = layer(given)
        return (output.data if packed else output, *(last if isinstance(last, tuple) else (last,)))

    x = st.randn(3, 2, 1, dtype=st.float64).requires_grad_()
    weights = [one.detach().clone().requires_grad_() for one in layer.parameters()]
    assert gradcheck(run, (x, *weights))
    assert gradgradcheck(run, (x, *weights))


def test_relu_has_derivatives() -> None:
    layer = nn.RNN(2, 3, nonlinearity="relu").double()
    x = st.linspace(0.5, 1.5, 12, dtype=st.float64).reshape(3, 2, 2).requires_grad_()
    with st.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.25)  # far from where relu bends
    assert gradcheck(lambda x: layer(x)[0], (x,))
    assert gradgradcheck(lambda x: layer(x)[0], (x,))


def test_dropout_between_layers_only_in_training() -> None:
    layer = nn.GRU(2, 4, 2, dropout=1.0)
    x = st.ones(3, 2, 2)
    first, _ = layer(x)
    other, _ = layer(-x)
    assert first.tolist() == other.tolist()  # the second layer gets zeros
    layer.eval()
    assert layer(x)[0].tolist() != layer(-x)[0].tolist()


def test_a_layer_of_another_type() -> None:
    for name in ("LSTM", "GRU", "RNN"):
        layer = getattr(nn, name)(2, 3).half()
        output, _ = layer(st.ones(2, 1, 2, dtype=st.float16))
        assert output.dtype == st.float16
