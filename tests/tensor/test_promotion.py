"""The types of elementwise results: torch's for two types, for numbers, and for tensors without axes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from elementwise_cases import BINARY, UNARY, computed
from layouts import same, values
from torch_types import EVERY, common, rank, with_number

import shmtensor as st
from shmtensor.errors import DTypeError

NOT_TORCHS = {"bitwise_invert", "cbrt", "cinv"}


@pytest.fixture(autouse=True)
def no_warnings():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("name", BINARY)
def test_of_two_types(name):
    function = getattr(st, name)
    tensors = {dtype: st.tensor(values((2,), dtype, 1, 4)) for dtype in EVERY}
    for one, other in itertools.product(EVERY, repeat=2):
        x, y = tensors[one], tensors[other]
        result = computed(name, common(one, other), x.numpy(), y.numpy())
        if isinstance(result, Exception):
            with pytest.raises(DTypeError):
                function(x, y)
        else:
            same(function(x, y), result)


@pytest.mark.parametrize("dtype", EVERY)
def test_of_tensors_and_numbers(dtype):
    t = st.tensor(values((3,), dtype, 1, 4))
    for number in (True, 2, 2.5, 2j):
        for name in ("add", "mul", "div", "eq", "pow"):
            kind = with_number(dtype, number)
            if name == "pow" and rank(kind) == 0:
                continue
            same(getattr(st, name)(t, number), computed(name, kind, t.numpy(), number))
            same(getattr(st, name)(number, t), computed(name, kind, number, t.numpy()))


def of_shapes(one: str, other: str) -> tuple[str, str]:
    """Types of the sums of a tensor with axes and one without, in both orders."""
    x, y = st.ones(2, dtype=one), st.ones((), dtype=other)
    return (x + y).dtype.name, (y + x).dtype.name


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64"])
def test_without_axes_of_a_higher_category(dtype):
    for other in EVERY:
        if rank(other) > rank(dtype):
            assert of_shapes(dtype, other) == (common(dtype, other),) * 2


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "complex64"])
def test_without_axes_of_the_same_category(dtype):
    """The array API's rule, where torch takes the type of the tensor with axes (docs/tensors.md)."""
    for other in EVERY:
        if rank(other) == rank(dtype):
            assert of_shapes(dtype, other) == (common(dtype, other),) * 2


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted({*UNARY, *BINARY} - NOT_TORCHS))
def test_types_are_torchs(name):
    """What these tests expect is what torch does, wherever torch computes at all."""
    torch: Any = pytest.importorskip("torch")
    ones = {dtype: torch.ones(2, dtype=getattr(torch, dtype)) for dtype in EVERY}
    for types in itertools.product(EVERY, repeat=1 if name in UNARY else 2):
        try:
            theirs = getattr(torch, name)(*[ones[dtype] for dtype in types]).dtype
        except (RuntimeError, NotImplementedError):
            continue
        found = computed(name, common(*types), *[np.ones(2, dtype) for dtype in types])
        assert str(theirs) in (f"torch.{found.dtype}", "torch.complex32"), types


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_the_default_type_is_that_of_integers_that_become_inexact(dtype):
    whole = st.tensor([1, 4])
    calls = (
        lambda: whole / 2, lambda: whole.sqrt(), lambda: whole * 1.5, lambda: whole + st.tensor(2), lambda: 1 / whole,
        lambda: st.special.erf(whole), lambda: whole.logsumexp(0), lambda: st.trapezoid(whole),
        lambda: st.gradient(whole)[0], lambda: st.softmax(whole, 0, dtype=st.get_default_dtype()),
        lambda: st.fft.fftfreq(4), lambda: st.zeros(2), lambda: st.tensor([1.0]), lambda: st.where(whole > 1, 1.0, 0.0),
    )  # fmt: skip
    st.set_default_dtype(dtype)
    try:
        found = [call().dtype.name for call in calls]
        assert (whole * 2j).dtype == ("complex128" if dtype == "float64" else "complex64")
        assert repr(st.ones(1)) == "tensor([1.])"
        assert "float32" in repr(st.ones(1, dtype="float32"))
    finally:
        st.set_default_dtype("float32")
    assert found == [dtype] * 3 + ["int64"] + [dtype] * 10
    assert (whole / 2).dtype == "float32"


def test_joined_and_outer_results_have_the_common_type():
    x, whole = st.ones(2), st.tensor([1, 2])
    for made in (
        st.outer(x, whole), st.kron(x, whole), st.hstack((x, whole)), st.vstack((x, whole)), st.dstack((x, whole)),
        st.column_stack((x, whole)), st.block_diag(x, whole), st.cat((x, whole)), st.stack((x, whole)),
    ):  # fmt: skip
        assert made.dtype == "float32"


def test_alpha_changes_no_type():
    for x, y in ((st.ones(2), st.tensor(1.0, dtype="float64")), (st.tensor([1]), st.tensor(True)), (st.ones(1), 2)):
        assert st.add(x, y).dtype == st.add(x, y, alpha=2).dtype
        assert st.sub(x, st.tensor(1)).dtype == st.sub(x, st.tensor(1), alpha=3).dtype


def test_numbers_take_the_type_of_a_tensor_of_ml_dtypes():
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = st.ones(2, dtype=st.bfloat16)
    for made in (x + 2.5, 2.5 / x, x * 2, x - True, x**2, st.maximum(x, 0.5), x + st.tensor([1, 2])):
        assert made.dtype == st.bfloat16
    assert (x + 2.5).tolist() == [3.5, 3.5]
    assert (x < 2.5).tolist() == [True, True]
    x += 0.5
    assert x.tolist() == [1.5, 1.5]
    st.set_default_dtype(st.bfloat16)
    try:
        assert ((st.tensor([1]) / 2).dtype, (st.tensor([1]) + 1.5).dtype, st.zeros(1).dtype) == (st.bfloat16,) * 3
    finally:
        st.set_default_dtype(st.float32)
    assert (st.tensor([1]) / 2).dtype == st.float32
