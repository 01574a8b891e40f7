"""Element by element: every function against NumPy's on every layout and type, `out=`, in place, and operators."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from layouts import LAYOUTS, TYPES, close, memory_of_its_own, same, tensor_of, values, written

import shmtensor as st
from shmtensor import Tensor
from shmtensor._tensor import elementwise, special
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError


def _sigmoid(a: Any) -> Any:
    return np.reciprocal(np.exp(np.negative(a, dtype=np.result_type(a.dtype, np.float16))) + 1)


OTHER_NAMES = {
    "cinv": np.reciprocal, "div": np.divide, "eq": np.equal, "ge": np.greater_equal, "gt": np.greater,
    "le": np.less_equal, "lt": np.less, "mul": np.multiply, "ne": np.not_equal, "neg": np.negative,
    "sub": np.subtract, "bitwise_not": np.invert, "fix": np.trunc,
    "frac": lambda a: a - np.trunc(a), "rsqrt": lambda a: 1 / np.sqrt(a), "sigmoid": _sigmoid,
    "imag": lambda a: a.imag.copy(), "real": lambda a: a.real.copy(),
    "sign": lambda a: a.copy() if a.dtype.kind == "b" else np.sign(a),
    "square": lambda a: np.square(a.astype(np.int64) if a.dtype.kind == "b" else a),
    "round": lambda a: a.copy() if a.dtype.kind in "iub" else np.round(a),
}  # fmt: skip
"""What NumPy has under another name, or not."""
BINARY = sorted(name for name in elementwise.__all__ if getattr(elementwise, name) in elementwise.BINARY)
UNARY = sorted(set(elementwise.__all__) - set(BINARY))
NEAR = {"rsqrt": 1e-2, "sigmoid": 1e-6}
COMPARISONS = {"isfinite", "isinf", "isnan", "signbit"}


def numpys(name: str) -> Any:
    return OTHER_NAMES.get(name) or getattr(np, name)


def expected(function: Any, *arrays: Any) -> Any:
    """What NumPy gives, or the error that it raises."""
    try:
        return function(*arrays)
    except (TypeError, ValueError) as error:
        return error


@pytest.fixture(autouse=True)
def no_warnings():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UNARY)
def test_of_one(name, layout):
    function, method = getattr(st, name), getattr(Tensor, name)
    for dtype in TYPES:
        t = tensor_of(layout, dtype)
        before = t.numpy().copy()
        result = expected(numpys(name), t.numpy())
        if isinstance(result, Exception):
            with pytest.raises(DTypeError, match=dtype):
                function(t)
            continue
        ours = function(t)
        same(ours, result, NEAR.get(name, 0))
        memory_of_its_own(ours, t)
        if callable(method):  # real and imag are properties
            same(method(t), ours.numpy())
        for shared in (False, True):
            out = st.empty(ours.shape, dtype=ours.dtype, shared=shared)
            assert function(t, out=out) is out
            same(out, ours.numpy())
        np.testing.assert_array_equal(t.numpy(), before)
        if not hasattr(Tensor, f"{name}_"):
            continue
        inplace = getattr(t, f"{name}_")
        if not written(t):
            with pytest.raises(LayoutError):
                inplace()
        elif np.can_cast(ours.dtype, t.dtype, "same_kind"):
            assert inplace() is t
            close(t.numpy(), ours.numpy().astype(t.dtype))
        else:
            with pytest.raises(DTypeError):
                inplace()
            np.testing.assert_array_equal(t.numpy(), before)


@pytest.mark.parametrize("layout", ["0-d", "empty", "dense", "gaps", "backwards", "expanded", "shared view"])
@pytest.mark.parametrize("name", BINARY)
def test_of_two(name, layout):
    function, method, reference = getattr(st, name), getattr(Tensor, name), numpys(name)
    for dtype in TYPES:
        t = tensor_of(layout, dtype, 0, 3)
        array = t.numpy().copy()
        other = st.tensor(values(array.shape[-1:], dtype, 1, 4))
        for right in (other, other.numpy(), other.tolist(), t, 2):
            theirs = right.numpy() if isinstance(right, Tensor) else right
            result = expected(reference, array, theirs)
            if isinstance(result, Exception):
                with pytest.raises(DTypeError if isinstance(result, TypeError) else InvalidArgument):
                    function(t, right)
                continue
            same(function(t, right), result)
            same(method(t, right), result)
            if not isinstance(right, list) and name != "ldexp":
                same(function(theirs, t), reference(theirs, array))
            out = st.empty(result.shape, dtype=result.dtype, shared=True)
            assert function(t, right, out=out) is out
            same(out, result)
        into = t.clone()
        result = expected(reference, array, 2)
        if isinstance(result, Exception) or not np.can_cast(result.dtype, t.dtype, "same_kind"):
            with pytest.raises((DTypeError, InvalidArgument)):
                getattr(into, f"{name}_")(2)
            np.testing.assert_array_equal(into.numpy(), array)
        else:
            assert getattr(into, f"{name}_")(2) is into
            close(into.numpy(), result.astype(t.dtype))


OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"]


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    op, inplace = getattr(operator, name), getattr(operator, f"i{name.rstrip('_')}")
    dtype = "int64" if name in ("and_", "or_", "xor", "lshift", "rshift") else "float64"
    for layout in LAYOUTS:
        t = tensor_of(layout, dtype, 1, 4)
        a = t.numpy().copy()
        for right in (3, a, np.asarray(2, dtype), st.tensor(a)):
            b = right.numpy() if isinstance(right, Tensor) else right
            same(op(t, right), op(a, b))
            same(op(right, t), op(b, a))
        if dtype == "float64" or name in ("and_", "or_", "xor"):
            into = t.clone()
            assert inplace(into, 3) is into
            same(into, op(a, 3))


def test_unary_operators():
    t = tensor_of("gaps", "int32")
    for op in (operator.neg, operator.pos, operator.abs, operator.invert):
        same(op(t), op(t.numpy()))
        memory_of_its_own(op(t), t)


def test_broadcasting_and_promotion():
    a, b = st.tensor([[1], [2]], dtype="uint8"), st.tensor([1.0, 2, 3])
    same(a + b, a.numpy() + b.numpy())
    same(a * 2, a.numpy() * 2)
    same(a * 2.5, a.numpy() * 2.5)
    same(b * 1j, b.numpy() * 1j)
    assert (st.add(1, 2).dtype, st.add(1, 2).item()) == (st.int64, 3)
    assert st.add([1, 2], [3, 4]).tolist() == [4, 6]
    assert (True + st.ones(1)).tolist() == [2]


@pytest.mark.parametrize("shift", [-1, 1])
def test_out_that_overlaps_an_argument(shift):
    base = np.arange(1.0, 9)
    t = st.tensor(base)
    source, out = (t[1:], t[:-1]) if shift < 0 else (t[:-1], t[1:])
    expect = np.sqrt(source.numpy()) + 1
    st.sqrt(source, out=out)
    st.add(out, 1, out=out)
    close(out.numpy(), expect)
    for function in (st.sigmoid, st.rsqrt, st.frac, st.round):
        t.copy_(base)
        expect = function(source.clone()).numpy()
        function(source, out=out)
        close(out.numpy(), expect)


BAD_OUT = [
    (lambda t: st.zeros(4), InvalidArgument, "shape"),
    (lambda t: st.zeros(2, 3), InvalidArgument, "shape"),
    (lambda t: st.zeros(3, dtype="int32"), DTypeError, "int32"),
    (lambda t: st.zeros(1).expand(3), LayoutError, "expand"),
    (lambda t: np.zeros(3), DTypeError, "ndarray"),
    (lambda t: [0, 0, 0], DTypeError, "list"),
]


@pytest.mark.parametrize(("out", "error", "says"), BAD_OUT)
def test_out_that_cannot_take_it(out, error, says):
    t = st.tensor([1.0, 2, 3])
    for call in (
        st.exp,
        st.sigmoid,
        st.rsqrt,
        lambda x, out: st.add(x, 1, out=out),
        lambda x, out: st.pow(x, x, out=out),
    ):
        made = out(t)
        with pytest.raises(error, match=says):
            call(t, out=made)
        if isinstance(made, Tensor):
            assert not made.any()


def test_operands_that_are_none():
    t = st.ones(3)
    for other in (None, "x", {}, object(), (1, 2, 3)):
        with pytest.raises(TypeError):
            t + other
        with pytest.raises(TypeError):
            other * t
        for function in (st.add, st.maximum, st.equal):
            for arguments in ((t, other), (other, t), (other, other)):
                with pytest.raises(DTypeError):
                    function(*arguments)
        assert other not in t
    for values_ in ([1, 2, 3], 5, np.ones(3), None):
        with pytest.raises(DTypeError, match="asarray"):
            st.exp(values_)
    with pytest.raises(DTypeError):
        st.add(t, ["a", "b", "c"])
    with pytest.raises(InvalidArgument):
        st.add(t, [[1, 2], [3]])
    for number in (300, -1, 2**70):
        with pytest.raises(InvalidArgument, match=r"out of bounds|large"):
            st.ones(2, dtype="uint8") + number
    with pytest.raises(InvalidArgument, match="negative"):
        st.ones(2, dtype="int64") ** -1


@pytest.mark.parametrize("name", ["digamma", "erf", "erfc", "erfinv", "i0", "lgamma", "ndtri"])
def test_special_functions(name):
    scipy = pytest.importorskip("scipy.special")
    theirs = {"digamma": "psi", "lgamma": "gammaln"}.get(name, name)
    for layout in LAYOUTS:
        t = tensor_of(layout, "float64", 0.1, 0.9)
        result = getattr(scipy, theirs)(t.numpy())
        same(getattr(st, name)(t), result)
        if name in special.METHODS:
            same(getattr(t, name)(), result)
        out = st.empty(t.shape, dtype="float64")
        assert getattr(st, name)(t, out=out) is out
        same(out, result)
