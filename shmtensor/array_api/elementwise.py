"""Elementwise functions with the standard's values for complex infinities. Nothing in this module blocks."""

from __future__ import annotations

import numpy as np

from .._tensor.dispatch import Array, Module, Out, export, operation
from .._tensor.statistical import inexact


@operation(method=False, out=Out.COPIED)
def expm1(xp: Module, x: Array, /) -> Array:
    """exp(x) - 1, exact near 0; complex numbers that are not finite give what `exp` gives. Raises DTypeError."""
    x = inexact(xp, x)
    if x.dtype.kind != "c":
        return xp.expm1(x)
    with np.errstate(over="ignore", invalid="ignore"):
        result = xp.where(xp.isfinite(x), xp.expm1(x), xp.exp(x) - 1)
    result.real += 0.0  # -0 becomes 0
    return result


@operation(method=False, out=Out.COPIED)
def tanh(xp: Module, x: Array, /) -> Array:
    """The hyperbolic tangent; of infinity + bi, for finite b, 1 and a zero with the sign of b. Raises DTypeError."""
    x = inexact(xp, x)
    if x.dtype.kind != "c":
        return xp.tanh(x)
    with np.errstate(over="ignore", invalid="ignore"):
        result = xp.asarray(xp.tanh(x))
    limit = xp.isinf(x.real) & xp.isfinite(x.imag)
    result.real[limit] = xp.copysign(1, x.real[limit])
    result.imag[limit] = xp.copysign(0, x.imag[limit])
    return result


__all__ = export(globals())
