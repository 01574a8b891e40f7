"""Bessel functions and the Airy function, computed by SciPy. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, export
from .._tensor.elementwise_rules import kept
from .._tensor.special import OfOne, i0, of_one, scipys


def _scipys(name: str, theirs: str, doc: str, *aliases: str, gradient: Callable[..., Any]) -> OfOne:
    return of_one(name, lambda x: scipys(theirs)(x), doc, *aliases, module=__name__, method=False, gradient=gradient)


def _quotient(result: Tensor, input: Tensor) -> Tensor:
    """Result / x of a function of order 1, and its slope at 0: 0.5."""
    is_zero = input == 0
    return (result / input.where(is_zero.logical_not(), 1)).where(is_zero.logical_not(), 0.5)


def _of_spherical(g: Tensor, input: Tensor, result: Tensor) -> Tensor:
    is_zero = input == 0
    return kept(g * ((input.cos() - result) / input.where(is_zero.logical_not(), 1)), is_zero.logical_not())


def _airy(x: Array) -> Any:
    return scipys("airy")(x)[0]


def _spherical(x: Array) -> Array:
    return np.where(np.isinf(x), 0, np.where(x == 0, 1, np.sin(x) / x))


_own = partial(of_one, module=__name__, method=False)

airy_ai: OfOne = _own("airy_ai", _airy, "The Airy function Ai.")
bessel_j0: OfOne = _scipys(
    "bessel_j0",
    "j0",
    "The Bessel function of the first kind of order 0.",
    gradient=lambda g, input: -g * bessel_j1(input),
)
bessel_j1: OfOne = _scipys(
    "bessel_j1",
    "j1",
    "The Bessel function of the first kind of order 1.",
    gradient=lambda g, input, result: g * (bessel_j0(input) - _quotient(result, input)),
)
bessel_y0: OfOne = _scipys(
    "bessel_y0",
    "y0",
    "The Bessel function of the second kind of order 0.",
    gradient=lambda g, input: -g * bessel_y1(input),
)
bessel_y1: OfOne = _scipys(
    "bessel_y1",
    "y1",
    "The Bessel function of the second kind of order 1.",
    gradient=lambda g, input, result: g * (bessel_y0(input) - result / input),
)
i0e: OfOne = _scipys(
    "i0e",
    "i0e",
    "exp(-abs(x)) times the modified Bessel function of the first kind of order 0.",
    gradient=lambda g, input, result: g * (i1e(input) - input.sgn() * result),
)
i1: OfOne = _scipys(
    "i1",
    "i1",
    "The modified Bessel function of the first kind of order 1.",
    "modified_bessel_i1",
    gradient=lambda g, input, result: g * (i0(input) - _quotient(result, input)),
)
i1e: OfOne = _scipys(
    "i1e",
    "i1e",
    "exp(-abs(x)) times the modified Bessel function of the first kind of order 1.",
    gradient=lambda g, input, result: g * (i0e(input) - result * input.sgn() - _quotient(result, input)),
)
modified_bessel_i0: OfOne = _scipys(
    "modified_bessel_i0",
    "i0",
    "The modified Bessel function of the first kind of order 0.",
    gradient=lambda g, input: g * i1(input),
)
modified_bessel_k0: OfOne = _scipys(
    "modified_bessel_k0",
    "k0",
    "The modified Bessel function of the second kind of order 0.",
    gradient=lambda g, input: -g * modified_bessel_k1(input),
)
modified_bessel_k1: OfOne = _scipys(
    "modified_bessel_k1",
    "k1",
    "The modified Bessel function of the second kind of order 1.",
    gradient=lambda g, input, result: -g * (modified_bessel_k0(input) + result / input),
)
scaled_modified_bessel_k0: OfOne = _scipys(
    "scaled_modified_bessel_k0",
    "k0e",
    "exp(x) times the modified Bessel function of the second kind of order 0.",
    gradient=lambda g, input, result: g * (result - scaled_modified_bessel_k1(input)),
)
scaled_modified_bessel_k1: OfOne = _scipys(
    "scaled_modified_bessel_k1",
    "k1e",
    "exp(x) times the modified Bessel function of the second kind of order 1.",
    gradient=lambda g, input, result: g * (result - scaled_modified_bessel_k0(input) - result / input),
)
spherical_bessel_j0: OfOne = _own("spherical_bessel_j0", _spherical, "sin(x) / x, and 1 at 0.", gradient=_of_spherical)

__all__ = export(globals())
