"""Bessel functions and the Airy function, computed by SciPy. Nothing in this module blocks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .._tensor.dispatch import Array, export
from .._tensor.special import OfOne, of_one, scipys


def _scipys(name: str, theirs: str, doc: str, *aliases: str) -> OfOne:
    return of_one(name, lambda x: scipys(theirs)(x), doc, *aliases, module=__name__, method=False)


def _airy(x: Array) -> Any:
    return scipys("airy")(x)[0]


def _spherical(x: Array) -> Array:
    return np.where(np.isinf(x), 0, np.where(x == 0, 1, np.sin(x) / x))


_own = partial(of_one, module=__name__, method=False)

airy_ai = _own("airy_ai", _airy, "The Airy function Ai.")
bessel_j0 = _scipys("bessel_j0", "j0", "The Bessel function of the first kind of order 0.")
bessel_j1 = _scipys("bessel_j1", "j1", "The Bessel function of the first kind of order 1.")
bessel_y0 = _scipys("bessel_y0", "y0", "The Bessel function of the second kind of order 0.")
bessel_y1 = _scipys("bessel_y1", "y1", "The Bessel function of the second kind of order 1.")
i0e = _scipys("i0e", "i0e", "exp(-abs(x)) times the modified Bessel function of the first kind of order 0.")
i1 = _scipys("i1", "i1", "The modified Bessel function of the first kind of order 1.", "modified_bessel_i1")
i1e = _scipys("i1e", "i1e", "exp(-abs(x)) times the modified Bessel function of the first kind of order 1.")
modified_bessel_i0 = _scipys("modified_bessel_i0", "i0", "The modified Bessel function of the first kind of order 0.")
modified_bessel_k0 = _scipys("modified_bessel_k0", "k0", "The modified Bessel function of the second kind of order 0.")
modified_bessel_k1 = _scipys("modified_bessel_k1", "k1", "The modified Bessel function of the second kind of order 1.")
scaled_modified_bessel_k0 = _scipys(
    "scaled_modified_bessel_k0", "k0e", "exp(x) times the modified Bessel function of the second kind of order 0."
)
scaled_modified_bessel_k1 = _scipys(
    "scaled_modified_bessel_k1", "k1e", "exp(x) times the modified Bessel function of the second kind of order 1."
)
spherical_bessel_j0 = _own("spherical_bessel_j0", _spherical, "sin(x) / x, and 1 at 0.")

__all__ = export(globals())
