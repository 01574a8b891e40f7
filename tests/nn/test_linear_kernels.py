"""Kernels of fully connected networks: biases, sums of rows, relu and the loss beside NumPy; refusals."""

from __future__ import annotations

import numpy as np
import pytest

import shmtensor as st
import shmtensor.nn.functional as F  # noqa: N812  # as everybody imports it
from shmtensor import _native
from shmtensor.nn.functional import classification
from shmtensor.optim import sgd

TYPES = ["float32", "float64"]
SHAPES = [(1, 1), (1, 5), (7, 1), (3, 4), (16, 16), (17, 33), (64, 128), (130, 70)]


def drawn(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_bias_is_added_in_place(shape, dtype):
    product, bias = drawn(*shape, dtype=dtype), drawn(shape[1], dtype=dtype, seed=1)
    wanted = product + bias
    assert _native.with_bias(product, bias) is product
    assert np.array_equal(product, wanted)
    assert _native.with_bias(product, None) is product


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_bias_is_added_to_a_transpose(shape, dtype):
    kept, bias = drawn(*shape[::-1], dtype=dtype), drawn(shape[1], dtype=dtype, seed=1)
    before = kept.copy()
    for given, wanted in ((bias, kept.T + bias), (None, kept.T)):
        made = _native.with_bias(kept.T, given)
        assert made.flags.c_contiguous
        assert np.array_equal(made, wanted)
    if 1 not in shape:
        _native.with_bias(kept.T, bias)
        assert np.array_equal(kept, before)


def frozen(a: np.ndarray) -> np.ndarray:
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("product", "bias"),
    [
        (drawn(3, 4), drawn(3)),
        (drawn(3, 4), drawn(4, dtype="float32")),
        (drawn(3, 4), drawn(8)[::2]),
        (drawn(3, 4), [1.0] * 4),
        (drawn(3, 4), 1.0),
        (drawn(6, 4)[::2], drawn(4)),
        (drawn(2, 3, 4), drawn(4)),
        (drawn(4), drawn(4)),
        (drawn(0, 4), drawn(4)),
        (drawn(3, 0), drawn(0)),
        (drawn(3, 4).astype(">f8"), drawn(4)),
        (drawn(3, 4, dtype="float16"), drawn(4, dtype="float16")),
        (np.ones((3, 4), int), np.ones(4, int)),
        (frozen(drawn(3, 4)), drawn(4)),
        ([[1.0]], drawn(1)),
    ],
    ids=[
        "rows",
        "type",
        "steps",
        "list",
        "number",
        "gaps",
        "three axes",
        "one axis",
        "no rows",
        "no columns",
        "byte order",
        "float16",
        "integers",
        "read-only",
        "no array",
    ],
)
def test_what_a_bias_is_not_added_to(product, bias):
    before = np.array(product)
    assert _native.with_bias(product, bias) is None
    assert np.array_equal(product, before)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_summed_as_by_numpy(shape, dtype):
    a = drawn(*shape, dtype=dtype)
    assert np.allclose(_native.sum_rows(a), a.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "a", [drawn(4), drawn(2, 3, 4), drawn(6, 4)[::2], drawn(3, 4).T, drawn(0, 4), drawn(3, 4, dtype="float16"), 1.0],
    ids=lambda a: str(np.shape(a)),
)  # fmt: skip
def test_what_is_not_summed(a):
    assert _native.sum_rows(a) is None


@pytest.mark.parametrize("dtype", TYPES)
def test_relu_is_that_of_numpy(dtype):
    a = np.concatenate([[np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40], drawn(100)]).astype(dtype)
    made = _native.relu(a)
    assert made is not a
    assert np.array_equal(made, np.maximum(a, 0), equal_nan=True)
    assert np.array_equal(st.from_numpy(a[::3]).relu().numpy(), np.maximum(a[::3], 0), equal_nan=True)
    assert _native.relu(a[::3]) is None
    assert _native.relu(a.astype("float16")) is None
    assert _native.relu(2.0) is None


@pytest.mark.parametrize("dtype", [*TYPES, "float16"])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    "shape", [(5,), (1, 5), (2, 5), (3, 5), (4, 5), (9, 5), (2, 3, 5), (2, 1, 5), (3, 2, 2, 5), (0, 5)], ids=str
)
def test_linear_with_more_and_fewer_rows_than_outputs(shape, with_bias, dtype):
    x, weight = drawn(*shape, dtype=dtype), drawn(4, 5, dtype=dtype, seed=1)
    bias = drawn(4, dtype=dtype, seed=2) if with_bias else None
    wanted = x @ weight.T + (0 if bias is None else bias)
    made = F.linear(*[None if a is None else st.from_numpy(a) for a in (x, weight, bias)]).numpy()
    assert made.flags.c_contiguous
    assert (made.shape, made.dtype) == (wanted.shape, x.dtype)
    assert np.allclose(
        made, wanted, rtol=1e-2 if dtype == "float16" else 1e-4, atol=1e-2 if dtype == "float16" else 1e-5
    )


@pytest.mark.parametrize("rows", [3, 9])
def test_linear_leaves_its_arguments(rows):
    x, weight, bias = drawn(rows, 5), drawn(5, 7).T, drawn(14)[::2]
    kept = [a.copy() for a in (x, weight, bias)]
    made = F.linear(*[st.from_numpy(a) for a in (x, weight, bias)]).numpy()
    assert np.allclose(made, x @ weight.T + bias)
    assert all(np.array_equal(a, b) for a, b in zip(kept, (x, weight, bias), strict=True))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_loss_is_that_of_numpy(monkeypatch, reduction, dtype):
    x, target = drawn(9, 4, dtype=dtype) * 5, st.from_numpy(np.arange(9) % 4)

    def found() -> tuple[np.ndarray, np.ndarray]:
        given = st.from_numpy(x).requires_grad_()
        loss = F.cross_entropy(given, target, reduction=reduction)
        (loss * st.from_numpy(drawn(*loss.shape, dtype=dtype, seed=3))).sum().backward()
        assert given.grad is not None
        return loss.detach().numpy(), given.grad.numpy()

    calls = []
    kernel = classification.softmax_entropy
    monkeypatch.setattr(classification, "softmax_entropy", lambda *args: calls.append(kernel(*args)) or calls[-1])
    mine = found()
    assert [one is None for one in calls] == [False]
    for name in ("softmax_entropy", "softmax_entropy_back"):
        monkeypatch.setattr(classification, name, lambda *args: None)
    for a, b in zip(mine, found(), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_loss_of_each_row_may_be_one_number():
    x = st.from_numpy(drawn(6, 3)).requires_grad_()
    F.cross_entropy(x, st.from_numpy(np.arange(6) % 3), reduction="none").sum().backward()
    other = st.from_numpy(drawn(6, 3)).requires_grad_()
    F.cross_entropy(other, st.from_numpy(np.arange(6) % 3), reduction="sum").backward()
    assert np.allclose(x.grad.numpy(), other.grad.numpy())


@pytest.mark.parametrize(
    "how",
    [{}, {"weight_decay": 0.1}, {"maximize": True}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.3},
     {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}],
    ids=str,
)  # fmt: skip
def test_sgd_is_that_of_numpy(monkeypatch, how):
    def steps() -> np.ndarray:
        p = st.from_numpy(drawn(5, 3)).requires_grad_()
        optimizer = st.optim.SGD([p], lr=0.1, **how)
        for seed in range(3):
            p.grad = st.from_numpy(drawn(5, 3, seed=seed + 5))
            optimizer.step()
        return p.detach().numpy()

    mine = steps()
    monkeypatch.setattr(sgd, "sgd_step", lambda *args: False)
    assert np.allclose(mine, steps(), rtol=1e-12)


def test_zeros_for_gradients_that_did_not_come():
    g = st.ones(2)
    forms = [((2,), np.dtype("float32")), ((3, 1), np.dtype("float64")), None]
    first, second, third = _native.with_zeros((g, None, None), forms)
    assert first is g
    assert third is None
    assert np.array_equal(second.numpy(), np.zeros((3, 1)))
    assert second.dtype == st.float64
    with pytest.raises(TypeError):
        _native.with_zeros((g,), forms)
