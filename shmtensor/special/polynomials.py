"""Orthogonal polynomials, whose degrees may differ from element to element. Nothing in this module blocks.

They are computed by their recurrences, those of Chebyshev by cosines and hyperbolic cosines where the degree is large.
Degrees are truncated to integers; the polynomial of a negative degree is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, Module, Operand, Out, export, operation
from .._tensor.result_types import floats
from ..errors import InvalidArgument

_LARGE: Final = 8
"""Chebyshev polynomials of higher degrees are computed by cosines."""
_LARGER: Final = 1000
"""Those of higher degrees are computed by hyperbolic functions outside (-1, 1)."""
_HERMITE: Final = 512
"""Hermite polynomials of higher degrees are NaN: most are above every float64."""
_MOST: Final = 100_000
"""Largest degree of other polynomials."""
RAISES: Final = "Raises DTypeError: complex numbers; InvalidArgument: incompatible shapes."
BOUNDED: Final = f"{RAISES[:-1]}, or a degree above {_MOST}."

Next = Callable[[int, Array, Array, Array], Array]
"""The polynomial of degree k + 1 from k, x, and those of degrees k and k - 1."""
Curve = Callable[[Array, Array], Array]
"""Values from an inverse hyperbolic cosine and a degree."""


class Polynomial(Protocol):
    """A polynomial at the elements of a tensor, of degrees in another one; one of them may be a number."""

    def __call__(self, input: object, n: object, *, out: Tensor | None = None) -> Tensor: ...


def _recurred(x: Array, n: Array, first: Array, following: Next) -> Array:
    """The polynomials of degrees `n`, where that of degree 0 is 1 and that of degree 1 is `first`."""
    result = np.where(n < 0, 0, np.where(n == 0, np.ones_like(x), first))
    before, last = np.ones_like(x), first
    for k in range(1, int(n.max(initial=0))):
        before, last = last, following(k, x, last, before)
        np.copyto(result, last, where=n >= k + 1)
        if np.isnan(last[n > k]).all():  # NaN stays NaN
            break
    return result


def _bounded(n: Array) -> Array:
    if int(n.max(initial=0)) > _MOST:
        raise InvalidArgument(
            f"a polynomial of degree {int(n.max())}, which takes as many steps; give a degree up to {_MOST}"
        )
    return n


def _register(name: str, compute: Callable[[Array, Array], Array], doc: str, raises: str = RAISES) -> Polynomial:
    def polynomial(xp: Module, input: Operand, n: Operand) -> Array:
        dtype, (x, degrees) = floats(xp, name, input, n)
        with np.errstate(all="ignore"):
            whole = np.trunc(np.nan_to_num(degrees.astype(np.float64), nan=-1.0)).clip(-1, 2**53).astype(np.int64)
            x, whole = np.broadcast_arrays(x.astype(np.float64), whole)
            return compute(x, whole).astype(dtype)

    polynomial.__name__, polynomial.__doc__ = name, f"{doc}\n\n{raises}"
    return operation(method=False, out=Out.COPIED, fails="{name} with")(polynomial)


def _angles(x: Array, n: Array, by_recurrence: Array, by_angle: Callable[[Array, Array], Array]) -> Array:
    """Values for large degrees inside (-1, 1) by angles, for others by the recurrence."""
    inside = (n > _LARGE) & (np.abs(x) < 1)
    return np.where(inside, by_angle(np.arccos(np.where(inside, x, 0)), n), by_recurrence)


def _grown_t(t: Array, n: Array) -> Array:
    return np.cosh(n * t)


def _grown_u(t: Array, n: Array) -> Array:
    return np.where(t == 0, n + 1.0, np.sinh((n + 1) * t) / np.sinh(t))


def _cosh_part(t: Array, n: Array) -> Array:
    return np.cosh((n + 0.5) * t) / np.cosh(t / 2)


def _sinh_part(t: Array, n: Array) -> Array:
    return np.where(t == 0, 2 * n + 1.0, np.sinh((n + 0.5) * t) / np.sinh(t / 2))


def _chebyshev(
    slope: int, shift: int, by_angle: Callable[[Array, Array], Array], above: Curve, below: Curve
) -> Callable[[Array, Array], Array]:
    """Chebyshev polynomials of which that of degree 1 is `slope * x + shift`.

    Those of large degrees are `by_angle(arccos(x), n)` inside (-1, 1), `above(arccosh(x), n)` from 1, and up to -1
    `below(arccosh(-x), n)`, with the other sign for odd degrees.
    """

    def compute(x: Array, n: Array) -> Array:
        outside = (n > _LARGER) & (np.abs(x) >= 1)
        few = np.where(((n > _LARGE) & (np.abs(x) < 1)) | outside, 0, n)
        recurred = _recurred(x, few, slope * x + shift, lambda k, x, last, before: 2 * x * last - before)
        if outside.any():
            grown, sign = np.arccosh(np.where(outside, np.abs(x), 1)), np.where(n % 2, -1, 1)
            found = np.where(x > 0, above(grown, n), sign * below(grown, n))
            recurred = np.where(outside, np.where(np.isinf(found), np.nan, found), recurred)  # as by the recurrence
        return _angles(x, n, recurred, by_angle)

    return compute


_t = _chebyshev(1, 0, lambda angle, n: np.cos(n * angle), _grown_t, _grown_t)
_u = _chebyshev(2, 0, lambda angle, n: np.sin((n + 1) * angle) / np.sin(angle), _grown_u, _grown_u)
_v = _chebyshev(2, -1, lambda angle, n: np.cos((n + 0.5) * angle) / np.cos(angle / 2), _cosh_part, _sinh_part)
_w = _chebyshev(2, 1, lambda angle, n: np.sin((n + 0.5) * angle) / np.sin(angle / 2), _sinh_part, _cosh_part)


def _hermite_h(x: Array, n: Array) -> Array:
    few = np.minimum(n, _HERMITE)
    values = _recurred(x, few, 2 * x, lambda k, x, last, before: 2 * x * last - 2 * k * before)
    return np.where(n > _HERMITE, np.nan, values)


def _hermite_he(x: Array, n: Array) -> Array:
    values = _recurred(x, np.minimum(n, _HERMITE), x, lambda k, x, last, before: x * last - k * before)
    return np.where(n > _HERMITE, np.nan, values)


def _laguerre(x: Array, n: Array) -> Array:
    return _recurred(x, _bounded(n), 1 - x, lambda k, x, last, before: ((2 * k + 1 - x) * last - k * before) / (k + 1))


def _legendre(x: Array, n: Array) -> Array:
    return _recurred(x, _bounded(n), x, lambda k, x, last, before: ((2 * k + 1) * x * last - k * before) / (k + 1))


KIND: Final = "The Chebyshev polynomial of the {} kind of degree `n` at `input`."
SHIFTED: Final = "The Chebyshev polynomial of the {} kind of degree `n` at `2 * input - 1`."
chebyshev_polynomial_t: Polynomial = _register("chebyshev_polynomial_t", _t, KIND.format("first"))
chebyshev_polynomial_u: Polynomial = _register("chebyshev_polynomial_u", _u, KIND.format("second"))
chebyshev_polynomial_v: Polynomial = _register("chebyshev_polynomial_v", _v, KIND.format("third"))
chebyshev_polynomial_w: Polynomial = _register("chebyshev_polynomial_w", _w, KIND.format("fourth"))
shifted_chebyshev_polynomial_t: Polynomial = _register(
    "shifted_chebyshev_polynomial_t", lambda x, n: _t(2 * x - 1, n), SHIFTED.format("first")
)
shifted_chebyshev_polynomial_u: Polynomial = _register(
    "shifted_chebyshev_polynomial_u", lambda x, n: _u(2 * x - 1, n), SHIFTED.format("second")
)
shifted_chebyshev_polynomial_v: Polynomial = _register(
    "shifted_chebyshev_polynomial_v", lambda x, n: _v(2 * x - 1, n), SHIFTED.format("third")
)
shifted_chebyshev_polynomial_w: Polynomial = _register(
    "shifted_chebyshev_polynomial_w", lambda x, n: _w(2 * x - 1, n), SHIFTED.format("fourth")
)
hermite_polynomial_h: Polynomial = _register(
    "hermite_polynomial_h", _hermite_h, "The physicists' Hermite polynomial of degree `n`."
)
hermite_polynomial_he: Polynomial = _register(
    "hermite_polynomial_he", _hermite_he, "The probabilists' Hermite polynomial of degree `n`."
)
laguerre_polynomial_l: Polynomial = _register(
    "laguerre_polynomial_l", _laguerre, "The Laguerre polynomial of degree `n`.", BOUNDED
)
legendre_polynomial_p: Polynomial = _register(
    "legendre_polynomial_p", _legendre, "The Legendre polynomial of degree `n`.", BOUNDED
)

__all__ = export(globals())
