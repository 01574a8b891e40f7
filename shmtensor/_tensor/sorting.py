"""Values in order. Results are copies; none blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument
from .core import Tensor, array_of, failed, index_of, wrap
from .statistical import Found

__all__ = ["argsort", "kthvalue", "msort", "sort", "topk"]
METHODS: Final = ("argsort", "kthvalue", "sort", "topk")


def _order(a: NDArray[Any], axis: int, descending: bool, stable: bool) -> NDArray[Any]:
    if not descending:
        return np.argsort(a, axis, stable=stable)
    # Reversed before and after, so that equal ones keep their order.
    order = np.flip(np.argsort(np.flip(a, axis), axis, stable=stable), axis)
    return a.shape[axis] - 1 - order  # type: ignore[no-any-return]


def sort(
    x: Tensor, /, axis: int = -1, descending: bool = False, stable: bool = True, *, dim: int | None = None
) -> Tensor:
    """The values in order along an axis; NaN counts as the largest. Raises IndexOutOfRange."""
    a = array_of(x)
    at = x._axis(axis if dim is None else dim)
    try:
        result = np.sort(a, at, stable=stable)
    except MemoryError as error:
        raise failed(error, "sorting", a) from error
    if descending:
        result = np.flip(result, at)
    return wrap(np.ascontiguousarray(result))


def argsort(
    x: Tensor, /, axis: int = -1, descending: bool = False, stable: bool = True, *, dim: int | None = None
) -> Tensor:
    """The indices along an axis that would put the values in order. Raises IndexOutOfRange."""
    return wrap(_order(array_of(x), x._axis(axis if dim is None else dim), descending, stable))


def msort(x: Tensor, /) -> Tensor:
    """The values in order along the first axis. Raises IndexOutOfRange."""
    return sort(x, axis=0)


def topk(x: Tensor, /, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Found:
    """The `k` largest (or smallest) values along an axis, in order, and where they stand.

    Raises IndexOutOfRange; InvalidArgument: more than there are.
    """
    a = array_of(x)
    axis = x._axis(dim)
    count = index_of(k)
    have = a.shape[axis]
    if not 0 <= count <= have:
        raise InvalidArgument(f"asked for the {k} largest of {have} along axis {dim}; ask for 0 to {have}")
    first = (slice(None),) * axis + (slice(count),)
    if 0 < count < have // 4:  # so few that sorting all would be waste
        last = (slice(None),) * axis + (slice(have - count, None),)
        part = np.argpartition(a, have - count if largest else count - 1, axis)[last if largest else first]
        at = np.take_along_axis(part, _order(np.take_along_axis(a, part, axis), axis, largest, True), axis)
    else:
        at = _order(a, axis, largest, True)[first]
    return Found(wrap(np.take_along_axis(a, at, axis)), wrap(np.ascontiguousarray(at)))


def kthvalue(x: Tensor, /, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """The `k`-th smallest value (from 1) along an axis, and where it is. Raises IndexOutOfRange, InvalidArgument."""
    a = array_of(x)
    axis = x._axis(dim)
    k = index_of(k)
    if not 1 <= k <= a.shape[axis]:
        raise InvalidArgument(f"asked for value {k} of {a.shape[axis]} along axis {dim}; they count from 1")
    at = np.take(np.argpartition(a, k - 1, axis), [k - 1], axis)
    values = np.take_along_axis(a, at, axis)
    return Found(*[wrap(one if keepdim else np.squeeze(one, axis)) for one in (values, at)])
