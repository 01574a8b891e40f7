"""One-sided bounds, and replacing and finding NaN and infinities, against NumPy's functions."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of, written

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument

SPECIAL = [1.5, float("nan"), float("inf"), -float("inf"), -2.0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float16", "float32", "float64", "bool"])
def test_bounded(layout, dtype):
    t = tensor_of(layout, dtype)
    a = t.numpy().copy()
    bound = st.tensor(np.ones(a.shape[-1:], dtype))
    same(st.clamp_min(t, bound), np.maximum(a, bound.numpy()))
    same(st.clamp_max(t, bound), np.minimum(a, bound.numpy()))
    memory_of_its_own(t.clamp_min(bound), t, bound)
    if dtype != "bool":
        same(t.clamp_min(min=1), np.maximum(a, a.dtype.type(1)))
        same(t.clamp_max(max=1), np.minimum(a, a.dtype.type(1)))
        if written(t):
            assert t.clamp_min_(0).clamp_max_(1) is t
            same(t, np.clip(a, 0, 1))


def test_types_of_bounds():
    assert st.clamp_min(st.tensor([1]), 0.5).dtype == st.float32
    assert st.clamp_min(st.tensor([1], dtype="int8"), 100).dtype == st.int8
    assert st.clamp_max(st.tensor([1.0]), st.tensor([0.5], dtype="float64")).dtype == st.float64
    assert st.clamp_max(st.tensor([1.0]), st.tensor(0.5, dtype="float64")).dtype == st.float32
    with pytest.raises(DTypeError, match="complex"):
        st.clamp_min(st.tensor([1j]), 0)
    with pytest.raises(InvalidArgument):
        st.clamp_min(st.ones(2), st.ones(3))
    assert np.isnan(st.clamp_min(st.tensor(SPECIAL), 0).numpy()[1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_no_numbers_are_replaced(dtype):
    a = np.array(SPECIAL, dtype)
    if dtype.startswith("complex"):
        a = (np.array(SPECIAL) + 0j).astype(dtype)
        a.imag = SPECIAL[::-1]
    t = st.tensor(a)
    same(st.nan_to_num(t), np.nan_to_num(a))
    same(t.nan_to_num(1, 2, -3), np.nan_to_num(a, nan=1, posinf=2, neginf=-3))
    same(t.nan_to_num(posinf=2), np.nan_to_num(a, posinf=2))
    assert t.nan_to_num_(nan=4) is t
    same(t, np.nan_to_num(a, nan=4))
    whole = st.tensor([1, 2])
    memory_of_its_own(st.nan_to_num(whole), whole)


def test_infinities():
    t = st.tensor(SPECIAL)
    assert st.isposinf(t).tolist() == [False, False, True, False, False]
    assert t.isneginf().tolist() == [False, False, False, True, False]
    assert st.isposinf(st.tensor([1, 2])).tolist() == [False, False]
    out = st.empty(5, dtype="bool")
    assert st.isneginf(t, out=out) is out and out[3].item()
    with pytest.raises(DTypeError):
        st.isposinf(st.tensor([1j]))
