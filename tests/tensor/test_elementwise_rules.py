"""Gradients of elementwise operations, conversions, integrals and combinations, against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.autograd import gradcheck, gradgradcheck
from shmtensor.errors import GradientError, NotSupported

Inputs = tuple[st.Tensor, ...]
ONE = [
    "abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "exp", "exp2", "expm1",
    "floor", "frac", "log", "log10", "log1p", "log2", "negative", "rad2deg", "reciprocal", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "round", "sgn", "angle", "positive",
    "nan_to_num", "relu", "cbrt", "selu", "hardshrink", "sinc", "logit", "conj", "conj_physical", "resolve_conj",
    "resolve_neg", "diagflat",
]  # fmt: skip
COMPLEX = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "exp2", "expm1", "log",
    "log10", "log1p", "log2", "negative", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "square",
    "tan", "tanh", "sgn", "angle", "conj", "conj_physical", "view_as_real", "view_as_real_copy", "nan_to_num",
    "sinc",
]  # fmt: skip
TWO = [
    "add", "atan2", "copysign", "divide", "float_power", "fmax", "fmin", "fmod", "hypot", "logaddexp",
    "logaddexp2", "maximum", "minimum", "multiply", "pow", "remainder", "subtract", "clamp_min", "clamp_max",
    "ldexp", "complex", "polar", "rsub", "floor_divide",
]  # fmt: skip
SCIPY = ["digamma", "erf", "erfc", "erfinv", "i0", "lgamma"]
SPECIAL = [
    "ndtri", "i0e", "i1", "i1e", "erfcx", "entr", "log_ndtr", "ndtr", "bessel_j0", "bessel_j1", "bessel_y0",
    "bessel_y1", "modified_bessel_i0", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "spherical_bessel_j0",
]  # fmt: skip


def leaf(low: float, high: float, *shape: int, dtype: Any = st.float64) -> st.Tensor:
    """Numbers between two bounds; complex ones have both parts there."""
    drawn = np.random.default_rng(sum(shape)).uniform(low, high, (2, *shape))
    x = st.tensor(drawn[0] + 1j * drawn[1] if dtype is st.complex128 else drawn[0], dtype=dtype)
    return x.requires_grad_()


def agrees(function: Callable[..., Any], *inputs: st.Tensor) -> bool:
    """Whether gradients, and the gradients of these, agree with differences."""
    return bool(gradcheck(function, inputs) and gradgradcheck(function, inputs))


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_tensor(name: str) -> None:
    assert agrees(getattr(st, name), leaf(0.1, 0.4, 5))


@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers(name: str) -> None:
    assert agrees(getattr(st, name), leaf(0.3, 1.4, 5, dtype=st.complex128))


def test_functions_of_numbers_from_1() -> None:
    assert agrees(st.acosh, leaf(1.5, 4, 5))


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_tensors(name: str) -> None:
    assert agrees(getattr(st, name), leaf(2.1, 2.9, 2, 3), leaf(1.1, 1.4, 3))


@pytest.mark.parametrize("name", ["add", "divide", "logaddexp", "multiply", "pow", "subtract", "rsub"])
def test_functions_of_two_complex_tensors(name: str) -> None:
    inputs = leaf(0.3, 1.4, 2, 3, dtype=st.complex128), leaf(0.3, 1.4, 3, dtype=st.complex128)
    assert agrees(getattr(st, name), *inputs)


@pytest.mark.parametrize("name", SCIPY)
def test_special_functions(name: str) -> None:
    pytest.importorskip("scipy.special")
    assert agrees(getattr(st, name), leaf(0.3, 0.9, 5))


@pytest.mark.parametrize("name", SPECIAL)
def test_functions_of_special(name: str) -> None:
    pytest.importorskip("scipy.special")
    assert agrees(getattr(st.special, name), leaf(0.3, 0.9, 5))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: st.igamma(1.7, x), [leaf(0.3, 4, 5)]),
        (lambda x: st.igammac(st.tensor([0.5], dtype=st.float64), x), [leaf(0.3, 4, 5)]),
        (lambda q: st.special.zeta(2.5, q), [leaf(1, 4, 5)]),
        (lambda x: st.polygamma(2, x), [leaf(1, 4, 5)]),
        (lambda x: x.polygamma(0), [leaf(1, 4, 5)]),
        (lambda x: x.mvlgamma(3), [leaf(2, 4, 5)]),
        (st.xlogy, [leaf(1, 4, 5), leaf(1, 4, 5)]),
        (st.special.xlog1py, [leaf(1, 4, 5), leaf(1, 4, 5)]),
    ],
)
def test_special_functions_of_two(function: Callable[..., Any], inputs: list[st.Tensor]) -> None:
    pytest.importorskip("scipy.special")
    assert agrees(function, *inputs)


def test_gradients_that_are_not_known() -> None:
    pytest.importorskip("scipy.special")
    for function in (st.igamma, st.igammac, st.special.zeta):
        with pytest.raises(NotSupported, match="is not known"):
            function(leaf(1.5, 2, 3), leaf(1.5, 2, 3)).sum().backward()
    with pytest.raises(GradientError, match="no gradient"):
        st.heaviside(leaf(1, 2, 3), leaf(1, 2, 3)).sum().backward()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(1),
        lambda x: st.log_softmax(x, 0),
        lambda x: st.softmax(x, 0, dtype=st.float64),
        lambda x: st.threshold(x, 0.3, 2.0),
        lambda x: st.celu(x, 0.7),
        lambda x: st.celu(x, -0.7),
        lambda x: st.celu_(x.clone(), 0.7),
        lambda x: st.selu_(x.clone()),
        lambda x: st.threshold_(x.clone(), 0.3, 2.0),
        lambda x: x.clone().relu_(),
        lambda x: st.logit(x, 0.25),
        lambda x: st.diag(x, 1),
        lambda x: st.diag(x[0], -1),
        lambda x: st.diagflat(x, 2),
        lambda x: st.vander(x[0], 4),
        lambda x: st.vander(x[0], 3, increasing=True),
        lambda x: st.combinations(x[0], 2),
        lambda x: st.constant_pad_nd(x, [1, -1, 0, 2], 3.0),
        lambda x: st.frexp(x * 1.1).mantissa,
        lambda x: st.view_as_complex(x[:2]).abs(),
        lambda x: st.view_as_complex_copy(x[:2]).abs(),
        lambda x: st.trapezoid(x, dx=0.5, dim=0),
        lambda x: st.cumulative_trapezoid(x),
        lambda x: st.gradient(x, spacing=0.5, edge_order=1),
        lambda x: st.gradient(st.cat([x, x * x], 1), edge_order=2, dim=1),
        lambda x: x.repeat(2, 3),
        lambda x: x.copy(),
        lambda x: st.fill(x, 2.0) * x,
        lambda x: x.to(st.complex128).abs(),
        lambda x: st.as_tensor(x, shared=True),
        lambda x: st.slice_copy(x, 1, 0, None, 1),
        lambda x: x.__round__(1) + x,
        lambda x: (x * 1).fill_diagonal_(3.0),
        lambda x: (x * 1).cumprod_(0),
        lambda x: (x * 1).tril_(),
    ],
)
def test_functions_with_other_arguments(function: Callable[..., Any]) -> None:
    x = st.tensor([[0.2, -1.4], [0.5, 0.7], [-0.9, 0.6]], dtype=st.float64, requires_grad=True)
    assert agrees(function, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x * 1).add_(y, alpha=3.0),
        lambda x, y: (x * 1).sub_(y, alpha=3.0),
        lambda x, y: (x * 1).div_(y),
        lambda x, y: (x * 1).div_(y, rounding_mode="trunc"),
        lambda x, y: (x * 1).div_(y, rounding_mode="floor"),
        lambda x, y: (x * 1).addcmul_(x, y, value=2),
        lambda x, y: (x * 1).addcdiv_(x, y, value=2),
        lambda x, y: (x * 1).__idiv__(y),
        lambda x, y: (x * 1).pow_(y),
        lambda x, y: st.prelu(x, y),
        lambda x, y: st.trapezoid(x, y, dim=1),
        lambda x, y: st.trapezoid(y, y),
        lambda x, y: st.cumulative_trapezoid(x, x * x, dim=0),
        lambda x, y: st.gradient(x, spacing=[1, y], edge_order=2)[1],
        lambda x, y: st.cartesian_prod(y, x[0], y),
        lambda x, y: st.block_diag(x, y, x[0, 0]),
        lambda x, y: st.add(x, y, alpha=2),
        lambda x, y: 3 / x + 2**y - (1 - x) % y,
        lambda x, y: st.hypot(x, [1.0, 2.0, 3.0]) * y,
    ],
)
def test_functions_of_two_with_other_arguments(function: Callable[..., Any]) -> None:
    assert agrees(function, leaf(1.1, 1.9, 4, 3), leaf(0.2, 0.9, 3).cumsum(0).detach().requires_grad_())


def test_gradients_have_the_type_of_their_tensor() -> None:
    x, y = st.ones(3, dtype=st.float32, requires_grad=True), st.ones(3, dtype=st.float64, requires_grad=True)
    z = st.ones(3, dtype=st.complex64, requires_grad=True)
    (x * y * z).abs().sum().backward()
    assert x.grad is not None and y.grad is not None and z.grad is not None
    assert (x.grad.dtype, y.grad.dtype, z.grad.dtype) == (st.float32, st.float64, st.complex64)
    for dtype in (st.float16, st.bfloat16):
        half = st.ones(2, dtype=dtype, requires_grad=True)
        (half * 2 + half.exp()).float().sum().backward()
        assert half.grad is not None and half.grad.dtype is dtype


def test_conversions_keep_the_graph() -> None:
    x = st.ones(2, 2, requires_grad=True)
    made = [
        x.double(), x.to(st.float64), x.to("cpu", st.float64), x.type("shmtensor.DoubleTensor"), x.type_as(x.double()),
        x.to(copy=True), x.half().float(), x.to(memory_format=st.contiguous_format), st.asarray(x, dtype=st.float64),
        st.asarray(x, copy=True),
    ]  # fmt: skip
    for one in made:
        (gradient,) = st.autograd.grad(one.sum(), x)
        assert gradient.tolist() == [[1, 1], [1, 1]] and gradient.dtype is st.float32
    assert not x.long().requires_grad and not st.detach_copy(x).requires_grad


def test_random_draws_have_no_gradient() -> None:
    x = st.full((3,), 0.5, dtype=st.float64, requires_grad=True)
    for draw in ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "random_", "bernoulli_"):
        (gradient,) = st.autograd.grad(getattr(x * 1, draw)().sum(), x)
        assert gradient.tolist() == [0, 0, 0]
    for made in ((x * 1).geometric_(0.5), st.poisson(x), st.bernoulli(x), st.binomial(x, x), st.normal(x, x)):
        (gradient,) = st.autograd.grad(made.sum(), x)
        assert gradient.tolist() == [0, 0, 0]
