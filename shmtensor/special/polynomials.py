"""Orthogonal polynomials, whose degrees may differ from element to element. Nothing in this module blocks.

They are computed by their recurrences, those of Chebyshev inside (-1, 1) by cosines where the degree is large. Degrees
are truncated to integers; the polynomial of a negative degree is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, Module, Operand, Out, export, operation
from .._tensor.result_types import floats

_LARGE: Final = 8
"""Chebyshev polynomials of higher degrees are computed by cosines."""
RAISES: Final = "Raises DTypeError: complex numbers; InvalidArgument: shapes that do not go together."

Next = Callable[[int, Array, Array, Array], Array]
"""The polynomial of degree k + 1 from k, x, and those of degrees k and k - 1."""


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
        if np.isnan(last[n > k]).all():  # it stays so
            break
    return result


def _register(name: str, compute: Callable[[Array, Array], Array], doc: str) -> Polynomial:
    def polynomial(xp: Module, input: Operand, n: Operand) -> Array:
        dtype, (x, degrees) = floats(xp, name, input, n)
        with np.errstate(all="ignore"):
            whole = np.trunc(np.nan_to_num(degrees.astype(np.float64), nan=-1.0)).clip(-1, 2**53).astype(np.int64)
            x, whole = np.broadcast_arrays(x.astype(np.float64), whole)
            return compute(x, whole).astype(dtype)

    polynomial.__name__, polynomial.__doc__ = name, f"{doc}\n\n{RAISES}"
    return operation(method=False, out=Out.COPIED, fails="{name} with")(polynomial)


def _angles(x: Array, n: Array, by_recurrence: Array, by_angle: Callable[[Array, Array], Array]) -> Array:
    """Values for large degrees inside (-1, 1) by angles, for others by the recurrence."""
    inside = (n > _LARGE) & (np.abs(x) < 1)
    return np.where(inside, by_angle(np.arccos(np.where(inside, x, 0)), n), by_recurrence)


def _chebyshev(slope: int, shift: int, by_angle: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Chebyshev polynomials of which that of degree 1 is `slope * x + shift`."""

    def compute(x: Array, n: Array) -> Array:
        few = np.where((n > _LARGE) & (np.abs(x) < 1), 0, n)
        recurred = _recurred(x, few, slope * x + shift, lambda k, x, last, before: 2 * x * last - before)
        return _angles(x, n, recurred, by_angle)

    return compute


_t = _chebyshev(1, 0, lambda angle, n: np.cos(n * angle))
_u = _chebyshev(2, 0, lambda angle, n: np.sin((n + 1) * angle) / np.sin(angle))
_v = _chebyshev(2, -1, lambda angle, n: np.cos((n + 0.5) * angle) / np.cos(angle / 2))
_w = _chebyshev(2, 1, lambda angle, n: np.sin((n + 0.5) * angle) / np.sin(angle / 2))


def _hermite_h(x: Array, n: Array) -> Array:
    return _recurred(x, n, 2 * x, lambda k, x, last, before: 2 * x * last - 2 * k * before)


def _hermite_he(x: Array, n: Array) -> Array:
    return _recurred(x, n, x, lambda k, x, last, before: x * last - k * before)


def _laguerre(x: Array, n: Array) -> Array:
    return _recurred(x, n, 1 - x, lambda k, x, last, before: ((2 * k + 1 - x) * last - k * before) / (k + 1))


def _legendre(x: Array, n: Array) -> Array:
    return _recurred(x, n, x, lambda k, x, last, before: ((2 * k + 1) * x * last - k * before) / (k + 1))


KIND: Final = "The Chebyshev polynomial of the {} kind of degree `n` at `input`."
SHIFTED: Final = "The Chebyshev polynomial of the {} kind of degree `n` at `2 * input - 1`."
chebyshev_polynomial_t = _register("chebyshev_polynomial_t", _t, KIND.format("first"))
chebyshev_polynomial_u = _register("chebyshev_polynomial_u", _u, KIND.format("second"))
chebyshev_polynomial_v = _register("chebyshev_polynomial_v", _v, KIND.format("third"))
chebyshev_polynomial_w = _register("chebyshev_polynomial_w", _w, KIND.format("fourth"))
shifted_chebyshev_polynomial_t = _register(
    "shifted_chebyshev_polynomial_t", lambda x, n: _t(2 * x - 1, n), SHIFTED.format("first")
)
shifted_chebyshev_polynomial_u = _register(
    "shifted_chebyshev_polynomial_u", lambda x, n: _u(2 * x - 1, n), SHIFTED.format("second")
)
shifted_chebyshev_polynomial_v = _register(
    "shifted_chebyshev_polynomial_v", lambda x, n: _v(2 * x - 1, n), SHIFTED.format("third")
)
shifted_chebyshev_polynomial_w = _register(
    "shifted_chebyshev_polynomial_w", lambda x, n: _w(2 * x - 1, n), SHIFTED.format("fourth")
)
hermite_polynomial_h = _register(
    "hermite_polynomial_h", _hermite_h, "The physicists' Hermite polynomial of degree `n`."
)
hermite_polynomial_he = _register(
    "hermite_polynomial_he", _hermite_he, "The probabilists' Hermite polynomial of degree `n`."
)
laguerre_polynomial_l = _register("laguerre_polynomial_l", _laguerre, "The Laguerre polynomial of degree `n`.")
legendre_polynomial_p = _register("legendre_polynomial_p", _legendre, "The Legendre polynomial of degree `n`.")

__all__ = export(globals())
