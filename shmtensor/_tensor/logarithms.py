"""Sums and differences of two numbers that are given by their logarithms (THLogAdd). Nothing in this module blocks.

For tensors there is `logaddexp`.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..errors import DTypeError, InvalidArgument, type_name
from .dispatch import composed, export

_NEAR: Final = -math.log(2)
"""The x at which one of two formulas of log(1 - exp(x)) becomes more exact than the other."""


@composed(method=False)
def logadd(log_a: float, log_b: float) -> float:
    """`log(exp(log_a) + exp(log_b))`, without the overflow of the powers. Raises DTypeError: not numbers."""
    a, b = _number("logadd", log_a), _number("logadd", log_b)
    if a < b:
        a, b = b, a
    return a if a == b and math.isinf(a) else a + math.log1p(math.exp(b - a))


@composed(method=False)
def logsub(log_a: float, log_b: float) -> float:
    """`log(exp(log_a) - exp(log_b))`, without the overflow of the powers; -inf for equal ones (TH: -DBL_MAX).

    Raises InvalidArgument: `log_a` is below `log_b`; DTypeError: not numbers.
    """
    a, b = _number("logsub", log_a), _number("logsub", log_b)
    if a < b:
        raise InvalidArgument(f"logsub({a}, {b}); the first must not be below the second: the difference is negative")
    if a == b:
        return -math.inf
    difference = b - a
    return a + (math.log(-math.expm1(difference)) if difference > _NEAR else math.log1p(-math.exp(difference)))


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DTypeError(f"{name} of a {type_name(value)}; give two numbers, or use logaddexp of tensors") from None


__all__ = export(globals())
