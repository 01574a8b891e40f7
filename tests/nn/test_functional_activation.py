"""Activations, dropout and attention beside torch, and their refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from functional_world import beside_torch, fixed, numbers

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor.errors import DTypeError, InvalidArgument

EACH = [
    ("relu", {}), ("relu6", {}), ("elu", {}), ("elu", {"alpha": 0.7}), ("celu", {"alpha": 2.0}), ("selu", {}),
    ("leaky_relu", {}), ("leaky_relu", {"negative_slope": 0.3}), ("hardtanh", {}), ("gelu", {}),
    ("hardtanh", {"min_val": -0.5, "max_val": 0.7}), ("gelu", {"approximate": "tanh"}), ("silu", {}), ("mish", {}),
    ("softplus", {}), ("softplus", {"beta": 2, "threshold": 1}), ("softsign", {}), ("softshrink", {}),
    ("softshrink", {"lambd": 0.1}), ("hardshrink", {}), ("hardswish", {}), ("hardsigmoid", {}), ("logsigmoid", {}),
    ("tanhshrink", {}), ("sigmoid", {}), ("tanh", {}), ("threshold", {"threshold": 0.1, "value": 20}),
    ("rrelu", {}), ("softmax", {"dim": 1}), ("softmin", {"dim": 0}), ("log_softmax", {"dim": -1}), ("glu", {}),
    ("glu", {"dim": 0}),
]  # fmt: skip
IN_PLACE = (
    "relu",
    "relu6",
    "elu",
    "celu",
    "selu",
    "leaky_relu",
    "hardtanh",
    "silu",
    "mish",
    "hardswish",
    "hardsigmoid",
)


@pytest.mark.torch
@pytest.mark.parametrize(("name", "how"), EACH, ids=str)
def test_each(name, how):
    x = numbers(4, 6) * 3
    beside_torch(name, x, second=name != "hardsigmoid", **how)  # of which torch has none
    if name not in ("hardswish", "hardtanh", "glu"):  # torch differs at the bounds where nothing is defined
        beside_torch(name, np.array([[-800.0, 0.0], [30.0, 800.0]]), second=False, **how)


@pytest.mark.torch
def test_prelu():
    for weight in (numbers(1), numbers(3)):
        beside_torch("prelu", numbers(2, 3, 4), weight)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    function = getattr(F, name)
    start, again = [st.from_numpy(numbers(7)) for _ in range(2)]
    start.requires_grad = again.requires_grad = True
    x = start * 1
    assert function(x, inplace=True) is x
    x.square().sum().backward()
    function(again * 1).square().sum().backward()
    assert st.allclose(x, function(again)) and st.allclose(start.grad, again.grad)
    if hasattr(F, f"{name}_"):
        y = st.from_numpy(numbers(7))
        assert getattr(F, f"{name}_")(y) is y and st.allclose(y, x.detach())


def test_softmax_without_axis_warns():
    for shape, dim in (((2,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((2, 1, 1, 3), 1)):
        x = st.from_numpy(numbers(*shape))
        with pytest.warns(UserWarning, match="give dim"):
            assert st.allclose(F.softmax(x), F.softmax(x, dim))


def test_gumbel_softmax():
    st.manual_seed(0)
    x = st.zeros(1000, 3)
    x[:, 1] = 2
    x.requires_grad = True
    soft, hard = F.gumbel_softmax(x, 0.5), F.gumbel_softmax(x, hard=True)
    assert st.allclose(soft.sum(1), st.ones(1000))
    assert sorted(set(hard.detach().flatten().round().tolist())) == [0, 1] and hard[:, 1].mean().item() > 0.6
    (hard * st.arange(3)).sum().backward()
    assert x.grad.abs().sum().item() > 0


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d", "dropout3d"])
def test_dropout(name):
    st.manual_seed(0)
    shape = {"dropout1d": (50, 40, 3), "dropout3d": (50, 40, 2, 2, 2)}.get(name, (50, 40, 3, 3))
    x = st.ones(*shape, requires_grad=True)
    made = getattr(F, name)(x, 0.25)
    assert {round(one, 5) for one in made.detach().flatten().tolist()} == {0.0, round(4 / 3, 5)}
    assert 0.7 < (made > 0).to("float32").mean().item() < 0.8
    if name != "dropout":
        whole = made.detach().reshape(50, 40, -1)
        assert bool((whole == whole[:, :, :1]).all())
    made.sum().backward()
    assert st.allclose(x.grad, made.detach())
    assert getattr(F, name)(x, 0.25, training=False) is x
    assert getattr(F, name)(x, 1.0).abs().sum().item() == 0
    y = st.ones(*shape)
    assert getattr(F, name)(y, 0.5, inplace=True) is y and sorted(set(y.flatten().tolist())) == [0, 2]


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_deviation(name):
    st.manual_seed(0)
    x = st.randn(200, 300, 2)
    made = getattr(F, name)(x, 0.3, training=True)
    assert abs(made.mean().item()) < 0.05 and abs(made.std().item() - 1) < 0.05
    assert getattr(F, name)(x, 0.3) is x


@pytest.mark.torch
def test_attention():
    q, k, v = numbers(2, 3, 4, 8), numbers(2, 3, 5, 8, seed=1), numbers(2, 3, 5, 6)
    for how in ({}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": numbers(4, 5)}):
        beside_torch("scaled_dot_product_attention", q, k, v, **how)
    mask = np.random.default_rng(0).random((3, 4, 5)) > 0.4
    mask[0, 1] = False
    beside_torch("scaled_dot_product_attention", q, k, v, mask)
    beside_torch("scaled_dot_product_attention", q, k[:, :1], v[:, :1], enable_gqa=True)


@pytest.mark.torch
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("weights", [True, False])
def test_attention_of_several_heads(batch, weights):
    e, heads, length, size = 8, 2, 4, 5
    projection = (numbers(3 * e, e), numbers(3 * e), None, None, False, 0.0, numbers(e, e, seed=3), numbers(e))
    q, k = numbers(length, *batch, e), numbers(size, *batch, e, seed=2)
    name = "multi_head_attention_forward"
    beside_torch(name, q, k, k * 2, e, heads, *projection, second=weights, need_weights=weights)
    lost = fixed(np.zeros((*batch, size)))
    lost[..., -1] = -np.inf
    how = {"need_weights": weights, "average_attn_weights": False, "key_padding_mask": lost}
    beside_torch(name, q, k, k + 1, e, heads, *projection, attn_mask=numbers(length, size), second=False, **how)
    extra = (*projection[:2], numbers(1, 1, e), numbers(1, 1, e, seed=4), True, *projection[5:])
    beside_torch(name, q, k, k + 1, e, heads, *extra, second=weights, need_weights=weights)
    if batch:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            separate = {"use_separate_proj_weight": True, **dict.fromkeys(("k_proj_weight",), numbers(e, 3, seed=6))}
            separate |= {"q_proj_weight": numbers(e, e, seed=7), "v_proj_weight": numbers(e, 2, seed=8)}
            key, value = numbers(size, *batch, 3), numbers(size, *batch, 2)
            beside_torch(
                name, q, key, value, e, heads, None, *projection[1:], second=False, need_weights=weights, **separate
            )


def test_refusals():
    x = st.zeros(2, 3)
    for wrong in (
        lambda: F.gelu(x, approximate="some"),
        lambda: F.hardtanh(x, 1, 0),
        lambda: F.softshrink(x, -1),
        lambda: F.glu(x),
        lambda: F.rrelu(x, 1, 0),
        lambda: F.dropout(x, 1.5),
        lambda: F.alpha_dropout(x, -1, training=True),
        lambda: F.dropout1d(st.zeros(3)),
        lambda: F.scaled_dot_product_attention(x, x, x, x, is_causal=True),
        lambda: F.scaled_dot_product_attention(x, st.zeros(2, 4), x),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    for name in ("elu", "gelu", "silu", "mish", "softplus", "hardswish"):
        with pytest.raises(DTypeError):
            getattr(F, name)(x.to("int64"))
