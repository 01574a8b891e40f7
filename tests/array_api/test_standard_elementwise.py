"""Elementwise functions of `shmtensor.array_api`: NumPy's values and types where the standard defines them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from layouts import COMPLEX, INTEGERS, LAYOUTS, REALS, TYPES, memory_of_its_own, same, tensor_of, values

import shmtensor as st
from shmtensor import array_api as xp
from shmtensor._tensor import elementwise

KINDS = {"b": ("bool",), "i": INTEGERS, "f": REALS, "c": COMPLEX}
UNARY = {
    "ifc": "abs isfinite isinf isnan negative sign square",
    "fc": "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal round sin sinh sqrt tan"
    " tanh",
    "if": "ceil floor trunc",
    "bi": "bitwise_invert",
    "f": "signbit",
    "b": "logical_not",
}
BINARY = {
    "ifc": "add multiply pow subtract",
    "fc": "divide",
    "if": "floor_divide greater greater_equal less less_equal maximum minimum remainder",
    "bifc": "equal not_equal",
    "f": "atan2 copysign hypot logaddexp nextafter",
    "bi": "bitwise_and bitwise_or bitwise_xor",
    "i": "bitwise_left_shift bitwise_right_shift",
    "b": "logical_and logical_or logical_xor",
}
"""The kinds of types (bool, integers, real and complex numbers) for which the standard has each function."""


def named(table: dict[str, str]) -> dict[str, str]:
    """The kinds of each function."""
    return {name: kinds for kinds, names in table.items() for name in names.split()}


def types_of(kinds: str) -> list[str]:
    return [dtype for dtype in TYPES if any(dtype in KINDS[kind] for kind in kinds)]


@pytest.fixture(autouse=True)
def no_warnings():
    with np.errstate(all="ignore"):
        yield


def test_every_function_has_a_case():
    ours = {name for name in elementwise.__all__ if name in xp.__all__} | {"equal"}
    assert ours == {*named(UNARY), *named(BINARY)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", named(UNARY))
def test_of_one(name, layout):
    function, reference = getattr(xp, name), getattr(np, name)
    for dtype in types_of(named(UNARY)[name]):
        t = tensor_of(layout, dtype)
        before = t.numpy().copy()
        result = function(t)
        same(result, np.asarray(reference(before)))
        memory_of_its_own(result, t)
        np.testing.assert_array_equal(t.numpy(), before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_may_be_a_view(layout):
    for dtype in types_of("ifc"):
        t = tensor_of(layout, dtype)
        same(xp.positive(t), t.numpy())
        same(xp.conj(t), t.numpy().conj())
        same(xp.real(t), t.numpy().real)
        same(xp.imag(t), t.numpy().imag)


@pytest.mark.parametrize("layout", ["0-d", "empty", "dense", "gaps", "backwards", "expanded", "shared view"])
@pytest.mark.parametrize("name", named(BINARY))
def test_of_two(name, layout):
    function, reference = getattr(xp, name), getattr(np, name)
    for dtype in types_of(named(BINARY)[name]):
        t = tensor_of(layout, dtype, 0, 3)
        a = t.numpy().copy()
        other = st.tensor(values(a.shape[-1:], dtype, 1, 4))
        for right in (other, t, dtype == "bool" or 2):
            b = right.numpy() if isinstance(right, st.Tensor) else right
            same(function(t, right), np.asarray(reference(a, b)))
            memory_of_its_own(function(t, right), t, other)
        same(function(other, t), np.asarray(reference(other.numpy(), a)))
        same(function(dtype == "bool" or 2, t), np.asarray(reference(dtype == "bool" or 2, a)))


SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
PAIRS = [
    *itertools.product(SIGNED, (*SIGNED, *UNSIGNED[:3])),
    *itertools.product(UNSIGNED[:3], SIGNED),
    *itertools.product(UNSIGNED, UNSIGNED),
    *itertools.product((*REALS[1:], *COMPLEX), repeat=2),
    ("bool", "bool"),
]
"""The types that the standard has results for: no uint64 with signed integers, no mixture of kinds."""


@pytest.mark.parametrize("shapes", [((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())], ids=str)
def test_promotion(shapes):
    """A tensor without axes has as much say as another."""
    for one, other in PAIRS:
        a, b = np.ones(shapes[0], one), np.ones(shapes[1], other)
        x, y = st.tensor(a), st.tensor(b)
        same(xp.equal(x, y), np.asarray(a == b))
        same(xp.where(xp.equal(x, y), x, y), np.where(a == b, a, b))
        assert xp.result_type(x, y) == xp.result_type(x.dtype, y.dtype) == np.promote_types(one, other).name
        if one != "bool":
            for name in ("add", "multiply"):
                same(getattr(xp, name)(x, y), np.asarray(getattr(np, name)(a, b)))
        if one in INTEGERS + UNSIGNED:
            same(xp.bitwise_or(x, y), np.asarray(a | b))
        if one in REALS:
            same(xp.divide(x, y), np.asarray(a / b))


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_have_the_type_of_the_tensor(dtype):
    t = st.tensor(values((3,), dtype, 1, 4))
    numbers = {"b": (True,), "i": (2,), "f": (2, 2.5), "c": (2, 2.5, 2j)}
    for number in next(numbers[kind] for kind in KINDS if dtype in KINDS[kind]):
        for function in (xp.equal, xp.bitwise_and if dtype == "bool" else xp.add):
            judge = np.equal if function is xp.equal else getattr(np, "bitwise_and" if dtype == "bool" else "add")
            same(function(t, number), judge(t.numpy(), number))
            same(function(number, t), judge(number, t.numpy()))
