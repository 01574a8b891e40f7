"""Elementwise special functions of torch's main namespace: gamma, error, Bessel and related functions.

Most are computed by SciPy (the extra `scipy`), which is imported on first use. Integers are computed as float32,
narrower types in float32. Functions that torch has in `torch.special` alone are in `shmtensor.special`. Nothing in this
module blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from .._loading import load
from .._native import is_device_array
from ..errors import InvalidArgument, MissingExtra, NotSupported
from .core import Tensor, index_of
from .dispatch import Array, Gradient, Module, Operand, Out, export, methods_of, operation
from .elementwise import Unary, unary
from .elementwise_rules import as_type_of, kept
from .ranges import arange
from .result_types import converted, element_of, floating_type, floats, number_of, widened

DOMAIN: Final = "Raises DTypeError: complex numbers."
BOTH: Final = "Raises DTypeError: complex numbers; InvalidArgument: incompatible shapes."
_ERF: Final = 2 / math.sqrt(math.pi)
"""The slope of erf at 0."""
_NORMAL: Final = math.sqrt(2 * math.pi)


class OfOne(Protocol):
    """A function of one tensor."""

    def __call__(self, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...


class OfTwo(Protocol):
    """A function of two tensors, or of a tensor and a number."""

    def __call__(self, input: Any, other: Any, *, out: Tensor | None = None) -> Tensor: ...


@cache
def scipys(name: str) -> Callable[..., Any]:
    """A function of `scipy.special`; of arrays of CuPy it is that of `cupyx.scipy.special`. Raises MissingExtra."""
    try:
        from scipy import special
    except ImportError as error:
        raise MissingExtra(
            f"{name} needs SciPy, which cannot be imported ({error}); pip install 'shmtensor[scipy]'"
        ) from error
    ours = getattr(special, name)

    def compute(*args: Any, **how: Any) -> Any:
        if not is_device_array(args[0]):
            return ours(*args, **how)
        return load("gpu.arrays").special_function(name)(*args, **how)

    return compute


def _lazy(name: str, doc: str) -> Callable[..., Any]:
    def compute(xp: Module, a: Array, out: Array | None = None) -> Array:
        dtype = floating_type(a)
        result = scipys(name)(a.astype(widened(xp, dtype), copy=False), out=out)
        return result if out is not None or result.dtype == dtype else result.astype(dtype)

    compute.__doc__, compute.__module__ = doc, __name__
    return compute


def of_one(
    name: str,
    function: Callable[[Array], Array],
    doc: str,
    *aliases: str,
    module: str = __name__,
    method: bool = True,
    gradient: Gradient | None = None,
) -> OfOne:
    """Register a function of one real tensor, which gets an array of float32 or float64. Methods come in place, too."""

    def compute(xp: Module, input: Array) -> Array:
        dtype, (a,) = floats(xp, name, input)
        with np.errstate(all="ignore"):
            return xp.asarray(function(a)).astype(dtype, copy=False)

    compute.__name__, compute.__module__, compute.__doc__ = name, module, f"{doc}\n\n{DOMAIN}"
    return operation(*aliases, out=Out.COPIED, method=method, in_place=method, gradient=gradient)(compute)


def of_two(
    name: str,
    function: Callable[[Array, Array], Array],
    doc: str,
    *aliases: str,
    module: str = __name__,
    method: bool = True,
    gradient: Gradient | None = None,
) -> OfTwo:
    """Register a function of two real tensors or numbers, which gets arrays of one type, float32 or float64."""

    def compute(xp: Module, input: Operand, other: Operand) -> Array:
        dtype, (a, b) = floats(xp, name, input, other)
        with np.errstate(all="ignore"):
            return xp.asarray(function(a, b)).astype(dtype, copy=False)

    compute.__name__, compute.__module__, compute.__doc__ = name, module, f"{doc}\n\n{BOTH}"
    return operation(*aliases, out=Out.COPIED, method=method, in_place=method, fails="{name} with", gradient=gradient)(
        compute
    )


def product(x: Array, y: Array, logarithm: Callable[[Array], Array]) -> Array:
    """`x * logarithm(y)`, and 0 where x is 0, unless y is NaN."""
    return np.where((x == 0) & ~np.isnan(y), x * 0, x * logarithm(y))


def unknown(name: str, parameter: str) -> Callable[..., Any]:
    """The rule of a gradient that is not known. It raises NotSupported."""

    def refuse(g: Tensor) -> NoReturn:
        raise NotSupported(f"the gradient of {name} by {parameter} is not known; detach() that tensor")

    return refuse


def _slope(g: Tensor, a: Any, x: Tensor) -> Tensor:
    """The derivative of the lower incomplete gamma function of order `a` at `x`, times a gradient."""
    order = as_type_of(g, a)
    return g * (x.log() * (order - 1) - x - lgamma(order)).exp()


def _of_factor(g: Tensor, input: Tensor, other: Any) -> Tensor:
    """Gradient of the factor of xlogy."""
    return kept(xlogy(g, other), ((input == 0) & (other <= 0)).logical_not())


digamma = unary("digamma", _lazy("psi", "The derivative of lgamma."), gradient=lambda g, x: g * x.polygamma(1))
erf = unary("erf", _lazy("erf", "The error function."), gradient=lambda g, x: g * (_ERF * (-x * x).exp()))
erfc = unary("erfc", _lazy("erfc", "1 - erf(x)."), gradient=lambda g, x: g * (-_ERF * (-x * x).exp()))
erfinv = unary(
    "erfinv", _lazy("erfinv", "The inverse of erf."), gradient=lambda g, x: g * (x.erfinv().square().exp() / _ERF)
)
i0: Unary = unary(
    "i0",
    _lazy("i0", "The modified Bessel function of order 0."),
    gradient=lambda g, x: g * load("special.bessel").i1(x),
)
lgamma = unary("lgamma", _lazy("gammaln", "log(|gamma(x)|)."), gradient=lambda g, x: g * digamma(x))
ndtri = unary(
    "ndtri",
    _lazy("ndtri", "The inverse of the normal distribution."),
    method=False,
    gradient=lambda g, result: g * (_NORMAL * (result * result / 2).exp()),
)
igamma = of_two(
    "igamma",
    lambda a, x: scipys("gammainc")(a, x),
    "The lower incomplete gamma function of `input` at `other`, divided by gamma(input).",
    gradient={"input": unknown("igamma", "input"), "other": lambda g, input, other: _slope(g, input, other)},
)
igammac = of_two(
    "igammac",
    lambda a, x: scipys("gammaincc")(a, x),
    "The upper incomplete gamma function of `input` at `other`, divided by gamma(input).",
    gradient={"input": unknown("igammac", "input"), "other": lambda g, input, other: -_slope(g, input, other)},
)
xlogy = of_two(
    "xlogy",
    lambda x, y: product(x, y, np.log),
    "`input * log(other)`, and 0 where `input` is 0, unless `other` is NaN.",
    gradient={"input": _of_factor, "other": lambda g, input, other: g * (input / other)},
)


def _of_sinc(g: Tensor, input: Tensor) -> Tensor:
    angle = input * math.pi
    return kept(g * ((angle * angle.cos() - angle.sin()) / (angle * input)), angle * input != 0)


@operation(out=Out.COPIED, in_place=True, gradient=_of_sinc)
def sinc(xp: Module, input: Array) -> Array:
    """`sin(pi * input) / (pi * input)`, and 1 at 0; integers give float32. Raises DTypeError: `out` of a lower kind."""
    dtype = floating_type(input)
    (x,) = converted(xp, widened(xp, dtype), input)
    with np.errstate(all="ignore"):
        return xp.where(x == 0, 1, xp.sin(x * math.pi) / (x * math.pi)).astype(dtype, copy=False)


def _of_logit(g: Tensor, input: Tensor, eps: float | None) -> Tensor:
    """Gradient of logit: where it clips 0, else outside its domain NaN. As in torch, eps below 0 is as None."""
    found = g / (input * (1 - input))
    if eps is None or eps < 0:
        return found.where((input >= 0) & (input <= 1), math.nan)
    return kept(found, ((input < eps) | (input > 1 - eps)).logical_not())


@operation(out=Out.COPIED, in_place=True, gradient=_of_logit)
def logit(xp: Module, input: Array, eps: float | None = None) -> Array:
    """`log(input / (1 - input))`, of `input` clipped to [eps, 1 - eps] if `eps` is given; integers give float32.

    Raises DTypeError: complex numbers, `out` of a lower kind; InvalidArgument: eps is not a real number.
    """
    dtype, (x,) = floats(xp, "logit", input)
    if eps is not None:
        bounds = element_of("logit with eps", eps, x.dtype), 1 - number_of("logit with eps", eps)
        low, high = [x.dtype.type(one) for one in bounds]
        x = xp.where(x < low, low, xp.where(x > high, high, x))
    with np.errstate(all="ignore"):
        return xp.log(x / (1 - x)).astype(dtype, copy=False)


def _polygamma(xp: Module, n: int, input: Array) -> Array:
    order = index_of(n, "order")
    if order < 0:
        raise InvalidArgument(f"polygamma of order {order}; give 0 or more")
    dtype, (x,) = floats(xp, "polygamma", input)
    with np.errstate(all="ignore"):
        if order == 0:
            return scipys("psi")(x).astype(dtype, copy=False)
        wide = x.astype(xp.float64)  # the product can lie beyond float32 where its factors do not
        values = (-1.0) ** (order + 1) * scipys("gamma")(order + 1.0) * scipys("zeta")(order + 1.0, wide)
        return values.astype(dtype)


def _polygamma_method(xp: Module, input: Array, n: int) -> Array:
    """The derivative of order `n` of digamma. Raises InvalidArgument: a negative order; DTypeError: complex numbers."""
    return _polygamma(xp, n, input)


def _of_polygamma(g: Tensor, n: int, input: Tensor) -> Tensor:
    return g * polygamma(n + 1, input)


@operation(out=Out.COPIED, method=_polygamma_method, gradient={"input": _of_polygamma})
def polygamma(xp: Module, n: int, input: Array) -> Array:
    """The derivative of order `n` of digamma. Raises InvalidArgument: a negative order; DTypeError: complex numbers."""
    return _polygamma(xp, n, input)


@operation(out=Out.PLACED, function=False, fails="polygamma of order {n} of", gradient={"input": _of_polygamma})
def polygamma_(xp: Module, input: Array, n: int) -> Array:
    """`polygamma` in place; returns self. Raises as polygamma does, and LayoutError."""
    return _polygamma(xp, n, input)


def _of_mvlgamma(g: Tensor, input: Tensor, p: int) -> Tensor:
    steps = -arange(p, dtype=g.dtype) / 2
    return g * digamma(input.unsqueeze(-1) + steps).sum(-1)


@operation(out=Out.COPIED, in_place=True, gradient=_of_mvlgamma)
def mvlgamma(xp: Module, input: Array, p: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension `p`.

    Raises InvalidArgument: p below 1; DTypeError: complex numbers.
    """
    if index_of(p, "dimension") < 1:
        raise InvalidArgument(f"mvlgamma of dimension {p}; give 1 or more")
    dtype, (x,) = floats(xp, "mvlgamma", input)
    with np.errstate(all="ignore"):
        steps = x[..., None] - xp.arange(p, dtype=x.dtype) / 2
        constant = p * (p - 1) / 4 * math.log(math.pi)
        return (scipys("gammaln")(steps).sum(-1) + constant).astype(dtype, copy=False)


__all__ = export(globals())
METHODS: Final = methods_of(__name__)
