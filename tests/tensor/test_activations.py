"""Softmax along an axis, relu and its relatives, against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of, written

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError


def softmax(a, axis):
    grown = np.exp(a - a.max(axis, keepdims=True)) if a.size else a
    return grown / grown.sum(axis, keepdims=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_softmax(layout, dtype):
    t = tensor_of(layout, dtype)
    a = t.numpy().astype("float64")
    for dim in (0, -1):
        expected = softmax(a, dim) if a.ndim else np.ones(())
        near = 2e-3 if dtype == "float16" else 1e-6
        same(st.softmax(t, dim), expected.astype(dtype), near)
        same(t.softmax(dim=dim), expected.astype(dtype), near)
        same(t.log_softmax(dim), np.log(expected).astype(dtype), 2e-2 if dtype == "float16" else 1e-5)
        memory_of_its_own(t.softmax(dim), t)
        out = st.empty(t.shape, dtype=dtype)
        assert st.log_softmax(input=t, dim=dim, out=out) is out
        same(out, np.log(expected).astype(dtype), 2e-2 if dtype == "float16" else 1e-5)


def test_softmax_of_large_values_and_in_another_type():
    t = st.tensor([[1000.0, 1000.0], [-1000.0, 0.0]])
    assert t.softmax(1).tolist() == [[0.5, 0.5], [0, 1]]
    assert t.log_softmax(1)[1].tolist() == [-1000, 0]
    assert st.softmax(st.tensor([0, 0]), 0, dtype=st.float64).dtype == st.float64
    assert st.softmax(st.tensor([0, 0]), 0, st.float32).tolist() == [0.5, 0.5]
    for wrong in ([1, 2], [True], [1j]):
        with pytest.raises(DTypeError):
            st.softmax(st.tensor(wrong), 0)
    with pytest.raises(IndexOutOfRange):
        t.softmax(2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_each_element(layout):
    for dtype in ("int32", "uint8", "float32", "float64"):
        t = tensor_of(layout, dtype)
        a = t.numpy().copy()
        same(st.relu(t), np.maximum(a, 0))
        memory_of_its_own(t.relu(), t)
        same(st.threshold(t, 1, 7), np.where(a > 1, a, a.dtype.type(7)))
        if dtype.startswith("float"):
            grown = np.expm1(a.astype("float64"))
            same(st.celu(t), np.where(a > 0, a, grown).astype(dtype), 1e-6)
            same(st.celu(t, alpha=2.0), np.where(a > 0, a, 2 * np.expm1(a / 2)).astype(dtype), 1e-6)
            scale, alpha = 1.0507009873554805, 1.6732632423543772
            same(st.selu(t), np.where(a > 0, scale * a, scale * alpha * grown).astype(dtype), 1e-6)
            same(t.hardshrink(1), np.where(np.abs(a) <= 1, 0, a).astype(dtype))
            same(t.prelu(st.tensor([0.25], dtype=dtype)), np.where(a > 0, a, a / 4))
        if written(t):
            assert t.relu_() is t
            same(t, np.maximum(a, 0))
        else:
            with pytest.raises(LayoutError):
                t.relu_()


@pytest.mark.parametrize(("name", "more"), [("celu", (2.0,)), ("selu", ()), ("threshold", (0.5, 7))])
def test_functions_in_place(name, more):
    t = tensor_of("gaps", "float64")
    expected = getattr(st, name)(t, *more).numpy()
    assert getattr(st, f"{name}_")(t, *more) is t
    same(t, expected)
    assert not hasattr(t, name) and not hasattr(t, f"{name}_")
    with pytest.raises(DTypeError):
        getattr(st, f"{name}_")(st.tensor([1j]), *more)


def test_weights_of_prelu_belong_to_axis_1():
    t = -st.ones(2, 3, 2)
    assert st.prelu(t, st.tensor([1.0, 2.0, 3.0]))[0, :, 0].tolist() == [-1, -2, -3]
    with pytest.raises(InvalidArgument, match="give 1, or 3"):
        st.prelu(t, st.ones(2))
    with pytest.raises(DTypeError, match="float64"):
        st.prelu(t, st.ones(3, dtype="float64"))


def test_not_a_number_stays_and_types_are_refused():
    t = st.tensor([float("nan"), -1.0])
    assert np.isnan(st.relu(t).numpy()).tolist() == [True, False]
    assert np.isnan(st.threshold(t, 0, 1).numpy()).tolist() == [True, False]
    for function in (st.celu, st.selu, st.hardshrink):
        with pytest.raises(DTypeError, match="int64"):
            function(st.tensor([1]))
    with pytest.raises(DTypeError, match="bool"):
        st.relu(st.tensor([True]))
    with pytest.raises(DTypeError, match="complex"):
        st.relu(st.tensor([1j]))
    with pytest.raises(InvalidArgument, match="alpha"):
        st.celu(t, 0)


def test_threshold_takes_elements_of_the_type():
    x = st.tensor([0, 1, 2], dtype="uint8")
    for value in (-0.5, 255.5, 300, -256, float("nan"), 2**70):
        for arguments in ((1, value), (value, 1)):
            with pytest.raises(InvalidArgument, match=r"threshold with (value|threshold) .*, which uint8 does not"):
                st.threshold(x, *arguments)
        with pytest.raises(InvalidArgument, match="threshold_ with value"):
            st.threshold_(x, 1, value)
    for value in ("x", [1], 1j):
        with pytest.raises(InvalidArgument, match=r"give a (real )?number"):
            st.threshold(x, 1, value)
    same(st.threshold(x, 1.9, 7.9), np.array([7, 7, 2], "u1"))  # as torch's: numbers lose their fraction
    same(st.threshold(x, 1, -1), np.array([255, 255, 2], "u1"))
    same(st.threshold(st.tensor([0, 1, -2]), -0.5, 2**63 - 1), np.array([2**63 - 1, 1, 2**63 - 1]))
    with pytest.raises(InvalidArgument, match="float16 does not have"):
        st.threshold(st.ones(2, dtype="float16"), 1, 1e6)
    assert st.threshold(st.ones(1), 1, float("inf")).item() == float("inf")
