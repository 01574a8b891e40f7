"""Entropies, the normal distribution, products with logarithms, and Hurwitz' zeta function.

Nothing in this module blocks.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from .._tensor.dispatch import Array, export
from .._tensor.special import of_one, of_two, product, scipys

_of_one = partial(of_one, module=__name__, method=False)
_of_two = partial(of_two, module=__name__, method=False)


def _entropy(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.where(x > 0, -x * np.log(x), np.where(x == 0, x.dtype.type(0), -np.inf)))


entr = _of_one("entr", _entropy, "-x * log(x); 0 at 0, and minus infinity below.")
erfcx = _of_one("erfcx", lambda x: scipys("erfcx")(x), "exp(x ** 2) * erfc(x).")
log_ndtr = _of_one("log_ndtr", lambda x: scipys("log_ndtr")(x), "The logarithm of ndtr.")
ndtr = _of_one("ndtr", lambda x: scipys("ndtr")(x), "The normal distribution: the area below x.")
xlog1py = _of_two(
    "xlog1py",
    lambda x, y: product(x, y, np.log1p),
    "`input * log1p(other)`, and 0 where `input` is 0, unless `other` is NaN.",
)
zeta = _of_two(
    "zeta", lambda x, q: scipys("zeta")(x, q), "Hurwitz' zeta function: the sum of (k + other) ** -input for k from 0."
)

__all__ = export(globals())
