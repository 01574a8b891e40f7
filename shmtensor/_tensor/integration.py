"""Integrals by the trapezoidal rule, and gradients of values on a grid. Results are copies; nothing here blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..dtypes import default_float
from ..errors import InvalidArgument
from ..storage.arguments import SEQUENCES
from .combining import constant_pad_nd
from .core import Tensor, array_of, axis_of, index_of
from .creation import converted, tensor, zeros
from .dispatch import Array, Module, composed, export, operation
from .joining import concat

_FLOAT64: Final = np.dtype(np.float64)


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


# -- gradients ---------------------------------------------------------------------------------------------------------


def _padded(g: Tensor, axis: int, before: int, after: int) -> Tensor:
    return constant_pad_nd(g, [*[0, 0] * (g.ndim - 1 - axis), before, after])


def _neighbours(values: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """All values along an axis but the first, and all but the last."""
    count = values.shape[axis] - 1
    return values.narrow(axis, 1, count), values.narrow(axis, 0, count)


def _along(points: Tensor, axis: int, ndim: int) -> Tensor:
    """Points of values of `ndim` axes, in a shape that broadcasts to that of the values."""
    if points.ndim == 1:
        return points.reshape(-1, *[1] * (ndim - 1 - axis))
    return points.reshape((1,) * (ndim - points.ndim) + points.shape)


def _by_values(g: Tensor, shape: tuple[int, ...], x: Tensor | None, dx: Any, axis: int) -> Tensor:
    """Gradient of the values, from that of the areas."""
    sizes = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
    if x is None:
        halves = (g * (0.5 if dx is None else dx / 2)).broadcast_to(sizes)
    else:
        points = _along(x, axis, len(shape))
        right, left = _neighbours(points, points.ndim - len(shape) + axis)
        halves = g * ((right - left) / 2)
        halves = halves.broadcast_to([max(pair) for pair in zip(halves.shape, sizes, strict=True)])
    return _padded(halves, axis, 0, 1) + _padded(halves, axis, 1, 0)


def _by_points(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    """Gradient of the points, from that of the areas."""
    right, left = _neighbours(y, axis)
    halves = g * ((right + left) / 2)
    found = _padded(halves, axis, 1, 0) - _padded(halves, axis, 0, 1)
    others = [i for i in range(found.ndim) if i != axis]
    return found.sum(others) if x.ndim == 1 and others else found


def _of_integral(g: Tensor, y_shape: tuple[int, ...], x: Tensor | None, dx: Any, dim: int) -> Tensor:
    axis = dim % len(y_shape)
    return _by_values(g.unsqueeze(axis), y_shape, x, dx, axis) if y_shape[axis] else zeros(y_shape, dtype=g.dtype)


def _of_points(g: Tensor, y: Tensor, x: Tensor, dim: int) -> Tensor:
    axis = dim % y.ndim
    return _by_points(g.unsqueeze(axis), y, x, axis)


def _of_areas(g: Tensor, axis: int) -> Tensor:
    """The gradient of areas, from that of their sums."""
    return g.flip(axis).cumsum(axis).flip(axis)


def _of_integrals(g: Tensor, y_shape: tuple[int, ...], x: Tensor | None, dx: Any, dim: int) -> Tensor:
    axis = dim % len(y_shape)
    return _by_values(_of_areas(g, axis), y_shape, x, dx, axis) if y_shape[axis] else g


def _of_all_points(g: Tensor, y: Tensor, x: Tensor, dim: int) -> Tensor:
    axis = dim % y.ndim
    return _by_points(_of_areas(g, axis), y, x, axis)


# -- integrals ---------------------------------------------------------------------------------------------------------


@operation(
    "trapz",
    method=False,
    fails="an integral along axis {dim} of",
    gradient={"y": _of_integral, "x": _of_points},
)
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


@operation(method=False, fails="an integral along axis {dim} of", gradient={"y": _of_integrals, "x": _of_all_points})
def cumulative_trapezoid(xp: Module, y: Array, x: Array | None = None, *, dx: Any = None, dim: int = -1) -> Array:
    """The integral of values along an axis up to each of them but the first, as `trapezoid`. Raises as that does."""
    axis = axis_of(y, dim)
    if not y.shape[axis]:
        return y.copy()
    areas, kind = _areas(xp, y, x, dx, axis)
    made = xp.moveaxis(xp.cumsum(areas, axis=-1) / 2, -1, axis)
    return xp.ascontiguousarray(made, kind)


# -- gradients of values on a grid -------------------------------------------------------------------------------------


@composed(method=False)
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """The gradient of values on a grid, by differences: a tensor for each axis.

    Args:
        spacing: distance of neighbours: a number, a list of one for each axis, or of a tensor of coordinates for each.
        dim: an axis or several; None: all.
        edge_order: 1 or 2: order of the differences at the ends.

    Raises:
        IndexOutOfRange: no such axis; InvalidArgument: not as many distances as axes, too few values.
    """
    a = array_of(input)
    dims = list(range(a.ndim)) if dim is None else list(dim) if isinstance(dim, SEQUENCES) else [dim]
    axes = [axis_of(a, one) for one in dims]
    spacing = 1 if spacing is None else spacing
    several = spacing if isinstance(spacing, SEQUENCES) else [spacing] * len(axes)
    if len(several) != len(axes):
        raise InvalidArgument(f"a gradient along {len(axes)} axes with {len(several)} distances; give one for each")
    if index_of(edge_order) not in (1, 2):
        raise InvalidArgument(f"a gradient with edge_order {edge_order}; give 1 or 2")
    for axis in axes:
        if a.shape[axis] <= edge_order:
            raise InvalidArgument(
                f"a gradient with edge_order {edge_order} along axis {axis} of a tensor of shape {a.shape}; it needs "
                f"{edge_order + 1} values"
            )
    is_whole = a.dtype.kind in "biu"
    values = converted(input, _FLOAT64) if is_whole else input
    kind = default_float() if is_whole else a.dtype
    found = [
        _slopes(values, _steps(one, values, axis), axis, edge_order) for one, axis in zip(several, axes, strict=True)
    ]
    return tuple([one.to(kind) for one in found])


def _steps(spacing: Any, values: Tensor, axis: int) -> Any:
    """The distance of neighbours along an axis: a number, or a tensor that broadcasts. Raises InvalidArgument."""
    if not np.ndim(array_of(spacing) if isinstance(spacing, Tensor) else spacing):
        return spacing
    points = spacing if isinstance(spacing, Tensor) else tensor(spacing)
    if points.shape != (values.shape[axis],):
        raise InvalidArgument(
            f"a gradient along axis {axis} of a tensor of shape {values.shape} with coordinates of shape "
            f"{points.shape}; give one for each value"
        )
    right, left = _neighbours(points.to(_FLOAT64), 0)
    return _along(right - left, axis, values.ndim)


def _slopes(values: Tensor, steps: Any, axis: int, edge_order: int) -> Tensor:
    """Central differences along an axis, and differences of an order at the ends."""
    count = values.shape[axis]

    def part(x: Any, start: int, length: int) -> Any:
        return x.narrow(axis - values.ndim, start, length) if isinstance(steps, Tensor) and steps.ndim else x

    def at(start: int, length: int = 1) -> Tensor:
        return values.narrow(axis, start, length)

    inner = at(0, 0)
    if count > 2:
        one, two = part(steps, 0, count - 2), part(steps, 1, count - 2)
        low, middle, high = -two / (one * (one + two)), (two - one) / (one * two), one / (two * (one + two))
        inner = low * at(0, count - 2) + middle * at(1, count - 2) + high * at(2, count - 2)
    if edge_order == 1:
        first, last = (at(1) - at(0)) / part(steps, 0, 1), (at(count - 1) - at(count - 2)) / part(steps, count - 2, 1)
        return concat([first, inner, last], axis)
    one, two = part(steps, 0, 1), part(steps, 1, 1)
    first = _parabola(one, two, at(0), at(1), at(2))
    one, two = part(steps, count - 2, 1), part(steps, count - 3, 1)
    last = -_parabola(one, two, at(count - 1), at(count - 2), at(count - 3))
    return concat([first, inner, last], axis)


def _parabola(one: Any, two: Any, end: Tensor, middle: Tensor, inner: Tensor) -> Any:
    """The slope at the end of three values, which are `one` and `two` apart."""
    both = one + two
    return -(one + both) / (one * both) * end + both / (one * two) * middle - one / (two * both) * inner


__all__ = export(globals())
