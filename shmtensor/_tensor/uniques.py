"""The different values of a tensor, as torch gives them. Results are copies; nothing in this module blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DTypeError, InvalidArgument
from .axes import dim_of, lined
from .dispatch import Array, Module, export, operation
from .result_types import sortable


def _only(found: list[Any]) -> Any:
    """One result alone, several as a tuple."""
    return found[0] if len(found) == 1 else tuple(found)


@operation(fails="different values of")
def unique(
    xp: Module,
    x: Array,
    /,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different values, sorted; or the different parts along an axis. NaN differs from itself.

    Args:
        sorted: results are sorted in any case.
        return_inverse: return the index of its value for each element (or part), too.
        return_counts: return the number of occurrences of each value, too.

    Returns:
        A tensor; a tuple if more was asked for.

    Raises:
        IndexOutOfRange: no such axis; DTypeError: complex numbers, which have no order.
    """
    if x.dtype.kind == "c":
        raise DTypeError(f"unique of a tensor of {x.dtype.name}; complex numbers have no order: use view_as_real")
    axis = None if dim is None else dim_of(x, dim)
    a = x if axis is None else lined(x)
    if axis is not None and not a.size:
        return _none_of(xp, a, axis, return_inverse, return_counts)
    found = xp.unique(sortable(xp, a), return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
    inverse = found[1].reshape(x.shape if axis is None else -1)
    wanted = [
        found[0].astype(x.dtype, copy=False),
        *([inverse] if return_inverse else []),
        *([found[2]] if return_counts else []),
    ]
    return _only(wanted)


def _none_of(xp: Module, a: Array, axis: int, return_inverse: bool, return_counts: bool) -> Any:
    """The result of unique along an axis of a tensor without elements."""
    if a.shape[axis] and any(n == 0 for i, n in enumerate(a.shape) if i != axis):
        raise InvalidArgument(f"unique along axis {axis} of a tensor of shape {a.shape}; its parts are empty")
    nothing = xp.zeros(0, np.int64)
    return _only([a.copy(), *[nothing] * (return_inverse + return_counts)])


@operation(fails="different values in a row of")
def unique_consecutive(
    xp: Module,
    x: Array,
    /,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The first of each run of equal values, in flat order, or of equal parts along an axis.

    Args:
        return_inverse: return the number of the run of each element (or part), too.
        return_counts: return the length of each run, too.

    Returns:
        A tensor; a tuple if more was asked for.

    Raises:
        IndexOutOfRange: no such axis.
    """
    axis = 0 if dim is None else dim_of(x, dim)
    a = x.reshape(-1) if dim is None else lined(x)
    rows = xp.moveaxis(a, axis, 0)
    changes = rows[1:] != rows[:-1]
    first = xp.ones(rows.shape[0], bool)
    first[1:] = changes.any(axis=tuple(range(1, changes.ndim)))
    starts = xp.flatnonzero(first)
    found = [xp.compress(first, a, axis=axis)]
    if return_inverse:
        found.append((xp.cumsum(first) - 1).reshape(x.shape if dim is None else -1))
    if return_counts:
        found.append(xp.diff(starts, append=rows.shape[0]))
    return _only(found)


__all__ = export(globals())
