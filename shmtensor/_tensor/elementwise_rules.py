"""Gradient rules of elementwise operations that take more than a line.

Rules compute with tensors, by operators and methods, so that they have gradients themselves. Complex arguments are
conjugated before a rule gets them (docs/autograd.md, "Rules"). Nothing in this module blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .core import Tensor
from .creation import tensor, zeros_like

Rules: TypeAlias = "dict[str | tuple[str, ...], Callable[..., Any]]"

LOG_2: Final = math.log(2)
LOG_10: Final = math.log(10)

CONSTANT: Final[Rules] = {"x1": lambda g: zeros_like(g), "x2": lambda g: zeros_like(g)}
"""Of functions of two operands that are constant between their steps."""


def unconjugated(x: Tensor) -> Tensor:
    """An argument as it was, before it was conjugated for a rule."""
    return x.conj() if x.dtype.kind == "c" else x


def kept(g: Tensor, condition: Any) -> Tensor:
    """A gradient where a condition is true, else 0: also of infinity and NaN."""
    return g.where(condition, 0)


def as_type_of(g: Tensor, operand: Any) -> Tensor:
    """An operand as a tensor of the type of a gradient."""
    return operand.to(g.dtype) if isinstance(operand, Tensor) else tensor(operand, dtype=g.dtype)


def sgn(g: Tensor, x: Tensor) -> Tensor:
    """Of `x / abs(x)`: 0 of real numbers, and at 0."""
    if x.dtype.kind != "c":
        return zeros_like(g)
    size, sign = x.abs(), x.sgn()
    return kept((g - (g * sign).real * sign.conj()) / size, size != 0)


def acosh(g: Tensor, x: Tensor) -> Tensor:
    """Of the inverse hyperbolic cosine, which has a branch cut where the product of the roots has none."""
    if x.dtype.kind == "c":
        return g * ((x + 1).rsqrt() * (x - 1).rsqrt())
    return g * (x * x - 1).rsqrt()


# -- quotients and angles ----------------------------------------------------------------------------------------------


def _by_ratio(g: Tensor, x1: Tensor, result: Tensor) -> Tensor:
    return kept(g * (result / x1), x1 != 0)


def _by_square(g: Tensor, part: Any, x1: Any, x2: Any) -> Tensor:
    """A part of a point, divided by the square of its distance; 0 at the origin."""
    square = x1 * x1 + x2 * x2
    return kept(g * (part / square), square != 0)


NEXTAFTER: Final[Rules] = {"x1": lambda g, x1, x2: kept(g, x1 != x2), "x2": lambda g: zeros_like(g)}
DIVIDE: Final[Rules] = {"x1": lambda g, x2: g / x2, "x2": lambda g, x1, x2: -g * ((x1 / x2) / x2)}
ATAN2: Final[Rules] = {
    "x1": lambda g, x1, x2: _by_square(g, x2, x1, x2),
    "x2": lambda g, x1, x2: _by_square(-g, x1, x1, x2),
}
COPYSIGN: Final[Rules] = {"x1": _by_ratio, "x2": lambda g: zeros_like(g)}


# -- extremes: where both are equal, each has half of the gradient -----------------------------------------------------


def _of_extreme(g: Tensor, is_equal: Tensor, is_other: Tensor) -> Tensor:
    return (g / 2).where(is_equal, kept(g, is_other.logical_not()))


def _is_first(x1: Any, x2: Any, is_ahead: Tensor) -> Tensor:
    """Where the first operand is the result of fmax or fmin: it is ahead, or the other is NaN."""
    return is_ahead.logical_or(x2 != x2)


MAXIMUM: Final[Rules] = {
    "x1": lambda g, x1, x2: _of_extreme(g, x1 == x2, x1 < x2),
    "x2": lambda g, x1, x2: _of_extreme(g, x1 == x2, x1 > x2),
}
MINIMUM: Final[Rules] = {
    "x1": lambda g, x1, x2: _of_extreme(g, x1 == x2, x1 > x2),
    "x2": lambda g, x1, x2: _of_extreme(g, x1 == x2, x1 < x2),
}
FMAX: Final[Rules] = {
    "x1": lambda g, x1, x2: kept(g, _is_first(x1, x2, x1 >= x2)),
    "x2": lambda g, x1, x2: kept(g, _is_first(x1, x2, x1 >= x2).logical_not()),
}
FMIN: Final[Rules] = {
    "x1": lambda g, x1, x2: kept(g, _is_first(x1, x2, x1 <= x2)),
    "x2": lambda g, x1, x2: kept(g, _is_first(x1, x2, x1 <= x2).logical_not()),
}


# -- powers ------------------------------------------------------------------------------------------------------------


def of_base(g: Tensor, base: Tensor, exponent: Any) -> Tensor:
    """Gradient of a power by its base: 0 where the exponent is 0, of whatever base."""
    if not isinstance(exponent, Tensor) and not getattr(exponent, "ndim", 0):
        return zeros_like(g) if exponent == 0 else g * (exponent * base ** (exponent - 1))
    return kept(g * (exponent * base ** (exponent - 1)), exponent != 0)


def of_exponent(g: Tensor, base: Any, exponent: Tensor, result: Tensor) -> Tensor:
    """Gradient of a power by its exponent: 0 where the base is 0 and the exponent is not negative."""
    size = as_type_of(g, base)
    is_zero = (size == 0).logical_and(exponent.real >= 0)
    if exponent.dtype.kind == "c":
        is_zero = is_zero.logical_and(exponent.imag == 0)
    return kept(g * (result * size.log()), is_zero.logical_not())


POWER: Final[Rules] = {
    "x1": lambda g, x1, x2: of_base(g, x1, x2),
    "x2": lambda g, x1, x2, result: of_exponent(g, x1, x2, result),
}
