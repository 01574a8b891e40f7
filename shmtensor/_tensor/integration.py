"""Integrals by the trapezoidal rule, and gradients of values on a grid. Results are copies; nothing here blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import default_float
from ..errors import InvalidArgument
from ..storage.arguments import SEQUENCES
from .core import Tensor, array_of, axis_of, index_of
from .dispatch import Array, Module, export, operation


def _areas(xp: Module, y: Array, x: Array | None, dx: Any, axis: int) -> tuple[Array, Any]:
    """Twice the area of each trapezoid along an axis, which becomes the last one, and the type of the result."""
    if x is None:
        whole = y.dtype.kind in "biu"
        values = xp.moveaxis(y.astype(np.float64) if whole else y, axis, -1)
        return (values[..., 1:] + values[..., :-1]) * (1 if dx is None else dx), default_float() if whole else y.dtype
    kind = np.result_type(y.dtype, x.dtype)
    values = xp.moveaxis(y, axis, -1)
    sums = values[..., 1:] + values[..., :-1]
    if x.ndim == 1:
        if x.shape[0] != y.shape[axis]:
            raise InvalidArgument(f"{x.shape[0]} points x for axis {axis} of values of shape {y.shape}; give as many")
        points = x
    else:
        points = xp.moveaxis(x.reshape((1,) * (y.ndim - x.ndim) + x.shape), axis - y.ndim, -1)
    return sums * (points[..., 1:] - points[..., :-1]), default_float() if kind.kind in "biu" else kind


@operation("trapz", method=False, fails="an integral along axis {dim} of")
def trapezoid(xp: Module, y: Array, x: Array | None = None, *, dx: Any = None, dim: int = -1) -> Array:
    """The integral of values along an axis by the trapezoidal rule.

    Args:
        x: points of the values: one axis, or of shapes that broadcast; None: they are `dx` apart.
        dx: default 1.

    Raises:
        IndexOutOfRange: no such axis; InvalidArgument: not as many points as values.
    """
    axis = axis_of(y, dim)
    if not y.shape[axis]:
        return xp.zeros(y.shape[:axis] + y.shape[axis + 1 :], y.dtype)
    areas, kind = _areas(xp, y, x, dx, axis)
    return (xp.sum(areas, axis=-1) / 2).astype(kind)


@operation(method=False, fails="an integral along axis {dim} of")
def cumulative_trapezoid(xp: Module, y: Array, x: Array | None = None, *, dx: Any = None, dim: int = -1) -> Array:
    """The integral of values along an axis up to each of them but the first, as `trapezoid`. Raises as that does."""
    axis = axis_of(y, dim)
    if not y.shape[axis]:
        return y.copy()
    areas, kind = _areas(xp, y, x, dx, axis)
    made = xp.moveaxis(xp.cumsum(areas, axis=-1) / 2, -1, axis)
    return xp.ascontiguousarray(made, kind)


@operation(method=False, fails="the gradient of")
def gradient(xp: Module, x: Array, /, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Array, ...]:
    """The gradient of values on a grid, by differences: a tensor for each axis.

    Args:
        spacing: distance of neighbours: a number, a list of one for each axis, or of a tensor of coordinates for each.
        dim: an axis or several; None: all.
        edge_order: 1 or 2: order of the differences at the ends.

    Raises:
        IndexOutOfRange: no such axis; InvalidArgument: not as many distances as axes, too few values.
    """
    dims = list(range(x.ndim)) if dim is None else list(dim) if isinstance(dim, SEQUENCES) else [dim]
    axes = [axis_of(x, one) for one in dims]
    spacing = 1 if spacing is None else spacing
    several = spacing if isinstance(spacing, SEQUENCES) else [spacing] * len(axes)
    parts = [array_of(one) if isinstance(one, Tensor) else one for one in several]
    if len(parts) != len(axes):
        raise InvalidArgument(f"a gradient along {len(axes)} axes with {len(parts)} distances; give one for each")
    if index_of(edge_order) not in (1, 2):
        raise InvalidArgument(f"a gradient with edge_order {edge_order}; give 1 or 2")
    kind = default_float() if x.dtype.kind in "biu" else x.dtype
    values = x.astype(np.float64) if x.dtype.kind in "biu" else x
    steps = [one.astype(np.float64) if getattr(one, "ndim", 0) else one for one in parts]
    return tuple([
        xp.gradient(values, step, axis=axis, edge_order=edge_order).astype(kind, copy=False)
        for step, axis in zip(steps, axes, strict=True)
    ])  # fmt: skip


__all__ = export(globals())
