"""Entropies, the normal distribution, products with logarithms, and Hurwitz' zeta function.

Nothing in this module blocks.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, export
from .._tensor.elementwise_rules import kept
from .._tensor.special import OfOne, OfTwo, of_one, of_two, product, scipys, unknown

_of_one = partial(of_one, module=__name__, method=False)
_of_two = partial(of_two, module=__name__, method=False)


def _entropy(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.where(x > 0, -x * np.log(x), np.where(x == 0, x.dtype.type(0), -np.inf)))


def _of_factor(g: Tensor, input: Tensor, other: Any) -> Tensor:
    """Gradient of the factor of xlog1py."""
    return kept(xlog1py(g, other), ((input == 0) & (other <= -1)).logical_not())


def _of_zeta(g: Tensor, input: Any, other: Tensor) -> Tensor:
    found: Tensor = -g * zeta(input + 1, other) * input
    return found


entr: OfOne = _of_one(
    "entr", _entropy, "-x * log(x); 0 at 0, and minus infinity below.", gradient=lambda g, input: -g * (1 + input.log())
)
erfcx: OfOne = _of_one(
    "erfcx",
    lambda x: scipys("erfcx")(x),
    "exp(x ** 2) * erfc(x).",
    gradient=lambda g, input, result: g * (2 * input * result - 2 / math.sqrt(math.pi)),
)
log_ndtr: OfOne = _of_one(
    "log_ndtr",
    lambda x: scipys("log_ndtr")(x),
    "The logarithm of ndtr.",
    gradient=lambda g, input: g / erfcx(-input * math.sqrt(0.5)) * math.sqrt(2 / math.pi),
)
ndtr: OfOne = _of_one(
    "ndtr",
    lambda x: scipys("ndtr")(x),
    "The normal distribution: the area below x.",
    gradient=lambda g, input: g * ((-input * input / 2).exp() / math.sqrt(2 * math.pi)),
)
xlog1py: OfTwo = _of_two(
    "xlog1py",
    lambda x, y: product(x, y, np.log1p),
    "`input * log1p(other)`, and 0 where `input` is 0, unless `other` is NaN.",
    gradient={"input": _of_factor, "other": lambda g, input, other: g * (input / (other + 1))},
)
zeta: OfTwo = _of_two(
    "zeta",
    lambda x, q: scipys("zeta")(x, q),
    "Hurwitz' zeta function: the sum of (k + other) ** -input for k from 0.",
    gradient={
        "input": unknown("zeta", "input"),
        "other": _of_zeta,
    },
)

__all__ = export(globals())
