"""Shared by the functions: registration of rows, checks of arguments, and reductions of losses.

Nothing in this package blocks, except functions that draw random numbers while another thread draws.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from ..._tensor.core import Tensor, index_of, indices_of
from ..._tensor.dispatch import Array, Module, Register, composed, operation
from ..._tensor.result_types import as_type as as_type
from ..._tensor.result_types import widened
from ...dtypes import NumpyType
from ...errors import DTypeError, InvalidArgument
from ...storage.arguments import INTEGERS

row: Final[Register] = partial(operation, method=False)
"""Registers a function of this namespace."""
hidden: Final[Register] = partial(operation, function=False, method=False)
"""Registers an operation that functions and gradient rules call."""
function: Final = composed(method=False)
"""Registers a function that calls rows."""


def each_axis(value: Any, count: int, what: str, least: int = 0) -> tuple[int, ...]:
    """A number for each of `count` axes, from one number for all or from a sequence.

    Args:
        least: the smallest number that is allowed.

    Raises InvalidArgument: another number of them, or too small ones.
    """
    sizes = (index_of(value, what),) * count if isinstance(value, INTEGERS) else indices_of(value, what)
    if len(sizes) == 1:
        sizes *= count
    if len(sizes) != count or min(sizes, default=least) < least:
        raise InvalidArgument(f"{what} {value!r:.100}; give an integer from {least}, or {count} of them")
    return sizes


def require_same_type(name: str, x: Array, *others: Array | None) -> None:
    """Refuse operands of several types, as torch does. Raises DTypeError."""
    for one in others:
        if one is not None and one.dtype != x.dtype:
            raise DTypeError(f"{name} of tensors of {x.dtype.name} and {one.dtype.name}; convert one with to()")


def computing_type(xp: Module, a: Array) -> NumpyType:
    """The type in which products and sums of a tensor are computed: float32 for narrower floating-point types."""
    return a.dtype if a.dtype.kind in "biu" else widened(xp, a.dtype)


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean or sum of a loss, or the loss itself ("none"). Raises InvalidArgument: another reduction."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    require_reduction(reduction)
    return loss


def require_reduction(reduction: str) -> None:
    """Check that torch has this reduction. Raises InvalidArgument."""
    if reduction not in ("none", "mean", "sum"):
        raise InvalidArgument(f"reduction {reduction!r}; give 'none', 'mean' or 'sum'")


def reduction_of(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction of torch's two older arguments, if one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def sums_at(values: Array, at: Array, size: int) -> Array:
    """An array of `size` rows, each the sum of the values that have its index; 0 where none has."""
    if not isinstance(values, np.ndarray):
        sums: Any = np.zeros_like(values, shape=(size, *values.shape[1:]))
        sums.scatter_add(at, values)
        return sums
    made = np.zeros((size, *values.shape[1:]), values.dtype)
    if at.size:
        if (at[1:] < at[:-1]).any():
            order = np.argsort(at, kind="stable")
            at, values = at[order], values[order]
        first = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        made[at[first]] = np.add.reduceat(values, first, axis=0)
    return made
