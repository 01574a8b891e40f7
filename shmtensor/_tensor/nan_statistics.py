"""Medians and quantiles that ignore NaN. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import DTypeError, InvalidArgument
from . import reduction_rules as rules
from .core import Tensor, axis_of
from .dispatch import Array, Module, Out, export, operation
from .result_types import require_floating, require_real, sortable
from .statistical import Found

INTERPOLATIONS: Final = ("linear", "lower", "higher", "midpoint", "nearest")


def _rows(xp: Module, a: Array, dim: int | None) -> tuple[Array, tuple[int, ...]]:
    """The values with the axis in question last, or all in one axis, and the shape that a result has with `keepdim`."""
    if dim is None or not a.ndim:
        if dim is not None:
            axis_of(xp.empty(1), dim)
        return a.reshape(-1), (1,) * a.ndim
    axis = axis_of(a, dim)
    return xp.moveaxis(a, axis, -1), tuple(1 if i == axis else n for i, n in enumerate(a.shape))


def _of_nanmedian(g: Any, input: Tensor, result: Any, dim: int | None) -> Tensor:
    return rules.of_middle(g, input, result) if dim is None else rules.of_found(g, input.shape, result, dim)


@operation(results=Found, fails="{name} along axis {axis} of", gradient=_of_nanmedian)
def nanmedian(xp: Module, input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """The value in the middle of those that are not NaN, the smaller one of two; NaN if all are.

    Returns:
        One value, of all elements; with `dim` values and their indices along that axis.

    Raises:
        IndexOutOfRange: no such axis.
        InvalidArgument: an axis without elements.
        DTypeError: complex numbers.
    """
    require_real("nanmedian", input.dtype)
    rows, kept = _rows(xp, input, dim)
    if not rows.shape[-1]:
        if dim is None and input.dtype.kind not in "biu":
            return xp.full((), xp.nan, input.dtype)
        raise InvalidArgument(f"nanmedian of a tensor of shape {input.shape}; the tensor has no elements")
    order = xp.argsort(sortable(xp, rows), -1, kind="stable")
    counts = xp.sum(~xp.isnan(rows), axis=-1, keepdims=True)
    found = xp.take_along_axis(order, xp.maximum(counts - 1, 0) // 2, -1)
    values = xp.take_along_axis(rows, found, -1)[..., 0]
    if dim is None:
        return values
    shape = kept if keepdim else values.shape
    return values.reshape(shape), found.reshape(shape)


@operation(
    out=Out.COPIED, fails="quantile {q} of",
    gradient={
        "input": lambda g, input, q, dim, interpolation: rules.of_quantile(g, input, q, dim, interpolation, True),
        "q": lambda g, input, q, dim, interpolation: rules.of_parts(g, input, q, dim, interpolation, True),
    },
)  # fmt: skip
def nanquantile(
    xp: Module,
    input: Array,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Array:
    """The value below which a part `q` of the values that are not NaN lies; NaN if all are.

    Args:
        q: 0 to 1, or a tensor of several, which are then the first axis of the result.
        interpolation: between two neighbours: "linear", "lower", "higher", "midpoint" or "nearest".

    Raises:
        IndexOutOfRange: no such axis.
        InvalidArgument: no elements, a part outside 0 to 1, another interpolation.
        DTypeError: a type that is not floating-point, parts of another type.
    """
    require_floating("nanquantile", input)
    if interpolation not in INTERPOLATIONS:
        raise InvalidArgument(f"nanquantile with interpolation {interpolation!r}; use {', '.join(INTERPOLATIONS)}")
    if isinstance(q, xp.ndarray) and q.dtype != input.dtype:
        raise DTypeError(f"nanquantile of a tensor of {input.dtype.name} with parts of {q.dtype.name}; convert one")
    parts = xp.asarray(q, input.dtype)
    if parts.ndim > 1 or not bool(((parts >= 0) & (parts <= 1)).all()):
        raise InvalidArgument("nanquantile takes parts from 0 to 1, one or an axis of them")
    rows, kept = _rows(xp, input, dim)
    if not rows.shape[-1]:
        raise InvalidArgument(f"nanquantile of a tensor of shape {input.shape}; the tensor has no elements")
    values = _between(xp, xp.sort(rows, -1), parts.reshape(-1), interpolation)
    shape = kept if keepdim else values.shape[1:]
    return values.reshape((*parts.shape, *shape))


def _between(xp: Module, ordered: Array, parts: Array, interpolation: str) -> Array:
    """For each part and each row, whose NaN are at the end, the value at that part of the values before them."""
    counts = xp.sum(~xp.isnan(ordered), axis=-1)
    places = parts.reshape(-1, *[1] * counts.ndim) * xp.maximum(counts - 1, 0).astype(ordered.dtype)
    if interpolation == "lower":
        places = xp.floor(places)
    elif interpolation == "higher":
        places = xp.ceil(places)
    elif interpolation == "nearest":
        places = xp.rint(places)
    first = xp.floor(places)
    share = xp.full_like(places, 0.5) if interpolation == "midpoint" else places - first
    low, high = (
        xp.take_along_axis(ordered[None], place.astype(np.intp)[..., None], -1)[..., 0]
        for place in (first, xp.ceil(places))
    )
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return xp.where(low == high, low, low + share * (high - low))


__all__ = export(globals())
