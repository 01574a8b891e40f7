"""Values in order. Results are copies; nothing in this module blocks."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgument
from .core import Tensor, axes_of, axis_of, index_of
from .dispatch import Array, Module, composed, export, operation
from .outputs import placed
from .result_types import sortable
from .selection import gather_sum
from .statistical import Found, into_pair


def order_along(xp: Module, a: Array, axis: int, descending: bool, stable: bool) -> Array:
    a, kind = sortable(xp, a), "stable" if stable else None
    if not descending:
        return xp.argsort(a, axis, kind)
    # Reversed before and after, so that equal ones keep their order.
    order = xp.flip(xp.argsort(xp.flip(a, axis), axis, kind), axis)
    return a.shape[axis] - 1 - order


@operation(
    name="sort",
    results=Found,
    function=False,
    method=False,
    fails="sorting",
    gradient=lambda g, x_shape, dim, result: gather_sum(g[0], x_shape, dim, result[1]),
)
def _sorted(xp: Module, x: Array, /, dim: Any, descending: bool, stable: bool) -> Found:
    """The values in order, and their indices."""
    if not x.ndim:
        axes_of(x, dim)
        return x.copy(), xp.zeros((), xp.int64)  # type: ignore[return-value]
    at = axis_of(x, dim)
    order = order_along(xp, x, at, descending, stable)
    return xp.take_along_axis(x, order, at), xp.ascontiguousarray(order)  # type: ignore[return-value]


@composed()
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    axis: int | None = None,
    out: Any = None,
) -> Found:
    """The values in order along an axis, and their indices; NaN counts as the largest. Raises IndexOutOfRange."""
    return into_pair(_sorted(input, dim if axis is None else axis, descending, stable), out)  # type: ignore[no-any-return]


@operation(fails="sorting")
def argsort(
    xp: Module,
    x: Array,
    /,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    axis: int | None = None,
) -> Array:
    """The indices along an axis that would put the values in order. Raises IndexOutOfRange."""
    wanted = dim if axis is None else axis
    if not x.ndim:
        axes_of(x, wanted)
        return xp.zeros((), xp.int64)
    return xp.ascontiguousarray(order_along(xp, x, axis_of(x, wanted), descending, stable))


@composed()
def msort(input: Tensor, *, out: Any = None) -> Tensor:
    """The values in order along the first axis. Raises IndexOutOfRange."""
    values = sort(input, 0).values
    return placed(values, out, "msort")


@operation(
    results=Found,
    lifts=True,
    gradient=lambda g, x_shape, dim, result: gather_sum(g[0], x_shape, dim, result[1]),
)
def topk(xp: Module, x: Array, /, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Found:
    """The `k` largest (or smallest) values along an axis, in order, and their indices.

    Raises IndexOutOfRange; InvalidArgument: more than there are.
    """
    axis = axis_of(x, dim)
    count = index_of(k)
    have = x.shape[axis]
    if not 0 <= count <= have:
        raise InvalidArgument(f"asked for the {k} largest of {have} along axis {dim}; ask for 0 to {have}")
    first = (slice(None),) * axis + (slice(count),)
    if 0 < count < have // 4:  # few enough that a full sort would cost more
        last = (slice(None),) * axis + (slice(have - count, None),)
        part = xp.argpartition(sortable(xp, x), have - count if largest else count - 1, axis)[
            last if largest else first
        ]
        at = xp.take_along_axis(part, order_along(xp, xp.take_along_axis(x, part, axis), axis, largest, True), axis)
    else:
        at = order_along(xp, x, axis, largest, True)[first]
    return xp.take_along_axis(x, at, axis), xp.ascontiguousarray(at)  # type: ignore[return-value]


def _value_back(g: Any, x_shape: tuple[int, ...], dim: int, keepdim: bool, result: Any) -> Tensor:
    """The gradient rule of one value along an axis."""
    value, index = g[0], result[1]
    if x_shape and not keepdim:
        value, index = value.unsqueeze(dim), index.unsqueeze(dim)
    return gather_sum(value, x_shape, dim, index)


@operation(results=Found, lifts=True, gradient=_value_back)
def kthvalue(xp: Module, x: Array, /, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """The `k`-th smallest value (from 1) along an axis, and its index. Raises IndexOutOfRange, InvalidArgument."""
    axis = axis_of(x, dim)
    k = index_of(k)
    if not 1 <= k <= x.shape[axis]:
        raise InvalidArgument(f"asked for value {k} of {x.shape[axis]} along axis {dim}; they count from 1")
    at = xp.take(xp.argpartition(sortable(xp, x), k - 1, axis), [k - 1], axis)
    values = xp.take_along_axis(x, at, axis)
    return tuple([one if keepdim else xp.squeeze(one, axis) for one in (values, at)])  # type: ignore[return-value]


__all__ = export(globals())
