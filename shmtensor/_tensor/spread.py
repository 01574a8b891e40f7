"""Variance and standard deviation together with the mean. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import reduction_rules as rules
from .core import axes_of
from .dispatch import Array, Module, export, operation
from .result_types import as_type, converted, number_of, require_floating, widened


def moments(
    xp: Module, name: str, a: Array, dim: Any, unbiased: bool | None, keepdim: bool, correction: float | None
) -> tuple[Array, Array]:
    """Variance and mean over axes, in the type to compute in. Raises IndexOutOfRange; DTypeError: integers."""
    require_floating(name, a, complex_too=True)
    if isinstance(dim, bool):  # var_mean(input, unbiased)
        dim, unbiased = None, dim
    rows = a.reshape(1) if not a.ndim else a
    axes = axes_of(rows, dim)
    if axes in (None, ()):
        axes = tuple(range(rows.ndim))
    (x,) = converted(xp, widened(xp, a.dtype), rows)
    taken = (
        number_of(f"{name} with correction", correction)
        if correction is not None
        else int(unbiased is None or unbiased)
    )
    kept = keepdim and a.ndim > 0
    count = x.size // max(1, np.prod([n for i, n in enumerate(x.shape) if i not in np.atleast_1d(axes)], dtype=int))
    with np.errstate(all="ignore"):
        mean = xp.sum(x, axis=axes, keepdims=True) / x.real.dtype.type(count)
        apart = x - mean
        if x.dtype.kind == "c":
            apart = apart.real * apart.real + apart.imag * apart.imag
        else:
            xp.multiply(apart, apart, out=apart)
        divisor = x.real.dtype.type(max(count - taken, 0))
        variance = xp.sum(apart, axis=axes, keepdims=True) / divisor
    if not kept:
        variance, mean = xp.squeeze(variance, axes), xp.squeeze(mean, axes)
    return variance, mean


@operation(method=False, fails="{name} over axes {axis} of", gradient=rules.of_var_mean)
def var_mean(
    xp: Module,
    input: Array,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Array, Array]:
    """Variance and mean over all axes or some.

    `correction` (default 1; 0 if `unbiased` is False) is subtracted from the number of elements in the divisor of the
    variance.

    Raises IndexOutOfRange; DTypeError: integers; InvalidArgument: a correction that is not a number.
    """
    variance, mean = moments(xp, "var_mean", input, dim, unbiased, keepdim, correction)
    return as_type(variance, input.real.dtype), as_type(mean, input.dtype)


@operation(method=False, fails="{name} over axes {axis} of", gradient=rules.of_std_mean)
def std_mean(
    xp: Module,
    input: Array,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Array, Array]:
    """Standard deviation and mean over all axes or some. Arguments and errors are those of var_mean."""
    variance, mean = moments(xp, "std_mean", input, dim, unbiased, keepdim, correction)
    return as_type(xp.sqrt(variance), input.real.dtype), as_type(mean, input.dtype)


__all__ = export(globals())
