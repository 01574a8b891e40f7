"""Largest, smallest and middle values: of all, along an axis with their indices, and of two tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import LAYOUTS, close, memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor import Tensor
from shmtensor.errors import DTypeError, InvalidArgument

TYPES = ("int8", "uint8", "int64", "float16", "float32", "float64", "bool")


def lower(a, axis=None, keepdims=False):
    """The median of torch and TH: of two in the middle the smaller one."""
    return np.quantile(a, 0.5, axis=axis, keepdims=keepdims, method="lower").astype(a.dtype)


ALONG: dict[str, Any] = {"max": (np.max, np.argmax), "median": (lower, None), "min": (np.min, np.argmin)}
"""What gives values and indices along an axis, and one value of all."""


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "empty"])
@pytest.mark.parametrize("name", ALONG)
def test_values_and_indices(name, layout):
    (reference, place), method = ALONG[name], getattr(Tensor, name)
    for dtype in TYPES:
        t = tensor_of(layout, dtype)
        a = t.numpy()
        same(method(t), np.asarray(reference(a)))
        rows = a if a.ndim else a.reshape(1)
        for dim in range(-rows.ndim, rows.ndim):
            for keep in (False, True):
                values, indices = method(t, dim, keep)
                expect = reference(rows, axis=dim, keepdims=keep)
                expect = expect if a.ndim else expect.reshape(())
                same(values, expect)
                memory_of_its_own(values, t)
                places = indices.numpy().reshape(reference(rows, axis=dim, keepdims=True).shape)
                close(np.take_along_axis(rows, places, dim).reshape(expect.shape), expect)
                assert (indices.dtype, indices.shape) == (st.int64, values.shape)
                if place is not None:
                    close(places, place(rows, axis=dim, keepdims=True))
            out = (st.empty(expect.shape, dtype=dtype), st.empty(expect.shape, dtype="int64", shared=True))
            found = getattr(st, name)(t, dim=dim, keepdim=True, out=out)
            assert found.values is out[0] and found.indices is out[1]
            same(out[0], expect)
            close(out[1].numpy(), indices.numpy())


def test_extremes_with_another_tensor():
    t, other = st.tensor([1.0, 5.0, float("nan")]), st.tensor([3, 4, 0])
    for found in (t.max(other), st.max(t, other), st.max(t, other=other)):
        same(found, np.array([3, 5, np.nan], "float32"))
    same(t.min(other), np.array([1, 4, np.nan], "float32"))
    out = st.empty(3)
    assert st.min(t, other, out=out) is out
    with pytest.raises(InvalidArgument):
        t.max((0,))


def test_no_elements_have_no_largest():
    for name in ("max", "min", "amax", "amin", "argmax", "argmin"):
        with pytest.raises(InvalidArgument):
            getattr(st, name)(st.empty(0))
        with pytest.raises(InvalidArgument):
            getattr(st, name)(st.empty(0, 2), 0)


def test_out_that_is_no_pair():
    t = st.ones(2, 3)
    for out, error in (
        (st.empty(3), InvalidArgument),
        ((st.empty(3),), InvalidArgument),
        ((st.empty(3), 0), DTypeError),
    ):
        with pytest.raises(error):
            st.max(t, 0, out=out)


def test_medians_are_torchs():
    assert st.tensor([1.0, 4, 2, 3]).median().item() == 2
    assert st.tensor([4, 1, 3, 2]).median().dtype == st.int64
    t = st.tensor([[1.0, float("nan"), 3], [4, 6, 5]])
    assert np.isnan(t.median().item()) and np.isnan(st.empty(0).median().item())
    values, indices = t.median(1)
    assert np.isnan(values[0].item()) and (values[1].item(), indices.tolist()) == (5, [1, 2])
    for wrong in (lambda: t.median((0, 1)), lambda: st.empty(0, 2).median(0)):
        with pytest.raises(InvalidArgument):
            wrong()
