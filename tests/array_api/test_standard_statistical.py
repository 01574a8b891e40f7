"""Statistical functions of `shmtensor.array_api`: NumPy's values and types where the standard defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor import array_api as xp
from shmtensor.errors import IndexOutOfRange, InvalidArgument

INTEGERS, REALS, COMPLEX = ("int8", "uint8", "int64"), ("float16", "float32", "float64"), ("complex64",)
EVERY = ("bool", *INTEGERS, *REALS, *COMPLEX)
TYPES = {
    **dict.fromkeys(("all", "any", "count_nonzero"), EVERY),
    **dict.fromkeys(("argmax", "argmin", "max", "min"), INTEGERS + REALS),
    **dict.fromkeys(("prod", "sum"), INTEGERS + REALS + COMPLEX),
    **dict.fromkeys(("mean", "std", "var"), REALS),
}
"""The types for which the standard has each function."""


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "empty"])
@pytest.mark.parametrize("name", TYPES)
def test_reductions(name, layout):
    function, reference = getattr(xp, name), getattr(np, name)
    for dtype in TYPES[name]:
        t = tensor_of(layout, dtype)
        a = t.numpy().copy()
        axes: list[Any] = [None, *range(-a.ndim, a.ndim)]
        if not name.startswith("arg"):
            axes += [tuple(range(a.ndim)), ()]
        for axis in axes:
            for keepdims in (False, True):
                expect = np.asarray(reference(a, axis=axis, keepdims=keepdims))
                ours = function(t, axis=axis, keepdims=keepdims)
                same(ours, expect, 1e-2 if dtype == "float16" else 1e-6)
                memory_of_its_own(ours, t)
        np.testing.assert_array_equal(t.numpy(), a)


@pytest.mark.parametrize("name", TYPES)
def test_axes_that_are_not_there(name):
    for wrong in (2, -3):
        with pytest.raises(IndexOutOfRange, match=str(wrong)):
            getattr(xp, name)(st.ones(2, 3), axis=wrong)


def test_nothing_to_reduce():
    assert (xp.sum(st.empty(0)).item(), xp.prod(st.empty(0)).item()) == (0, 1)
    assert (xp.all(st.empty(0)).item(), xp.any(st.empty(0)).item()) == (True, False)
    for function in (xp.max, xp.min, xp.argmax, xp.argmin):
        with pytest.raises(InvalidArgument):
            function(st.empty(0))


def test_options():
    t = tensor_of("dense", "float32")
    a = t.numpy()
    same(xp.sum(t, dtype=st.float64), a.sum(dtype="float64"))
    same(xp.prod(t, axis=0, dtype=st.float64), a.prod(0, dtype="float64"))
    same(xp.sum(tensor_of("dense", "uint8"), dtype=st.uint8), tensor_of("dense", "uint8").numpy().sum(dtype="uint8"))
    for correction in (0, 1, 1.5):
        same(xp.std(t, axis=1, correction=correction), a.std(1, ddof=correction))
        same(xp.var(t, correction=correction), a.var(ddof=correction))


@pytest.mark.parametrize("dtype", [*INTEGERS, "float32", "complex64"])
def test_accumulations(dtype):
    for layout in ("dense", "gaps", "backwards", "shared view", "empty"):
        t = tensor_of(layout, dtype)
        a = t.numpy().copy()
        for name in ("cumulative_sum", "cumulative_prod"):
            function, reference = getattr(xp, name), getattr(np, name)
            for axis in (0, 1, -1):
                for how in ({}, {"include_initial": True}, {"dtype": "complex128"}):
                    same(function(t, axis=axis, **how), reference(a, axis=axis, **how), 1e-5)
        with pytest.raises(InvalidArgument, match="axis"):
            xp.cumulative_sum(t)
    assert xp.cumulative_sum(st.ones(3)).tolist() == [1, 2, 3]


def test_differences():
    t = tensor_of("gaps", "float64")
    a = t.numpy()
    for n in range(4):
        same(xp.diff(t, n=n), np.diff(a, n))
        memory_of_its_own(xp.diff(t, n=n), t)
    same(xp.diff(t, axis=0, prepend=t[:1], append=t[:1]), np.diff(a, axis=0, prepend=a[:1], append=a[:1]))
