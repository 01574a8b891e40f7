"""Powers in double, reversed differences, steps, exponents, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, TYPES, memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument


@pytest.mark.parametrize("layout", LAYOUTS)
def test_powers_are_in_double(layout):
    for dtype in TYPES:
        t = tensor_of(layout, dtype, 1, 4)
        wide = t.numpy().astype("complex128" if dtype.startswith("complex") else "float64")
        same(st.float_power(t, 2), wide**2)
        same(t.float_power(t), wide**wide)
        same(st.float_power(2, t), 2.0**wide)
        memory_of_its_own(t.float_power(1), t)
    into = st.tensor([2.0], dtype="float64")
    assert into.float_power_(3) is into and into.tolist() == [8]
    with pytest.raises(DTypeError):
        st.tensor([2]).float_power_(3)


def test_reversed_differences():
    t = st.tensor([1, 2, 3])
    assert st.rsub(t, 5).tolist() == [4, 3, 2]
    assert st.rsub(t, st.tensor([1.5]), alpha=2).tolist() == [-0.5, -2.5, -4.5]
    assert st.rsub(t, 0.5).dtype == st.float32
    for wrong in (lambda: st.rsub(st.tensor([True]), 1), lambda: st.rsub(t, 1, alpha=0.5)):
        with pytest.raises(DTypeError):
            wrong()
    with pytest.raises(InvalidArgument):
        st.rsub(t, st.ones(2))


def test_steps():
    t, values = st.tensor([-1.0, 0.0, 2.0, float("nan")]), st.tensor([7.0])
    assert st.heaviside(t, values).tolist() == [0, 7, 1, 0]
    assert t.heaviside_(values) is t and t.tolist() == [0, 7, 1, 0]
    assert st.heaviside(st.tensor([0, 3]), st.tensor(5)).tolist() == [5, 1]
    with pytest.raises(DTypeError, match="int64"):
        st.heaviside(t, st.tensor([1]))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_mantissas_and_exponents(dtype):
    t = tensor_of("gaps", dtype)
    found = st.frexp(t)
    mantissa, exponent = np.frexp(t.numpy())
    same(found.mantissa, mantissa)
    same(found.exponent, exponent)
    assert found.exponent.dtype == st.int32
    with pytest.raises(DTypeError, match="int64"):
        st.frexp(st.tensor([1]))


def test_division_by_its_old_names():
    t = st.tensor([1.0, 4.0])
    assert (t.__div__(2).tolist(), t.__rdiv__(2).tolist()) == ([0.5, 2], [2, 0.5])
    assert t.__idiv__(4) is t and t.tolist() == [0.25, 1]


def test_fix_is_trunc():
    assert st.fix is st.trunc and st.tensor([-1.5, 1.5]).fix_().tolist() == [-1, 1]


def test_arguments_that_are_no_numbers_are_named():
    with pytest.raises(InvalidArgument, match="rsub with alpha 'x', a str; give a number"):
        st.rsub(st.ones(3), 1, alpha="x")
    for name in ("var_mean", "std_mean"):
        with pytest.raises(InvalidArgument, match=f"{name} with correction 'x', a str; give a number"):
            getattr(st, name)(st.ones(3), correction="x")
        with pytest.raises(InvalidArgument, match=f"{name} over axes None of a tensor of shape"):
            getattr(st, name)(st.ones(3), keepdim=np.ones(2))
