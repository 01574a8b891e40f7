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
