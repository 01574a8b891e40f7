"""Writing to selected elements: with indices, combining several values for one place, and into views of a copy.

Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..errors import DTypeError, InvalidArgument
from .axes import along, dim_of, lined, part_of
from .core import Tensor, array_of, axis_of, index_key, index_of, placed
from .dispatch import Array, Module, Operand, Out, Result, composed, export, operation
from .inspection import finfo
from .selection import _indices, _place, _source, masked_scatter_, put_
from .shapes import as_strided, broadcast_to, clone

_UFUNCS: Final[dict[str, Any]] = {
    "sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum,
}  # fmt: skip


# -- at indices --------------------------------------------------------------------------------------------------------


def _key(a: Array, indices: Any) -> tuple[Any, ...]:
    """An index of one part for each axis; None is all of it. Bytes are masks, as in torch."""
    parts = index_key(tuple(indices) if isinstance(indices, list | tuple) else (indices,))
    key: list[Any] = []
    axes = 0
    for one in parts:
        at: Any = slice(None) if one is None else np.array(one)  # a copy, as in `_indices`
        is_mask = one is not None and at.dtype.char in "?B"
        key.append(at.astype(bool) if is_mask else at)
        axes += max(at.ndim, 1) if is_mask else 1
    if axes > a.ndim:
        raise InvalidArgument(f"indices for {axes} axes of a tensor of shape {a.shape}; give at most one for each")
    return tuple(key)


@operation(result=Result.SAME, function=False, fails="writing to")
def index_put_(xp: Module, self: Array, indices: Any, values: Operand, accumulate: bool = False) -> Array:
    """Write values to what a tuple of indices (tensors, or None for all of an axis) selects; returns self.

    Args:
        accumulate: add them; all of several for one place count.

    Raises:
        IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    key = _key(self, indices)
    kind = getattr(values, "dtype", self.dtype)
    if not np.can_cast(kind, self.dtype, "same_kind"):
        raise DTypeError(f"index_put_ of {kind.name} to a tensor of {self.dtype.name}; convert the values by to()")
    if accumulate:
        _require_writable(self)
        xp.add.at(self, key, xp.asarray(values).astype(self.dtype))
    else:
        self[key] = values


@composed()
def index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """`index_put_` on a copy. Raises as that function does."""
    return index_put_(clone(input), indices, values, accumulate)


@composed()
def put(input: Tensor, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """`put_` on a copy. Raises as that function does."""
    return put_(clone(input), index, source, accumulate)


@composed()
def masked_scatter(input: Tensor, mask: Any, source: Any) -> Tensor:
    """`masked_scatter_` on a copy, with the sizes that tensor and mask broadcast to. Raises as that function does."""
    places = mask if isinstance(mask, Tensor) else np.asarray(mask)
    try:
        shape = np.broadcast_shapes(array_of(input).shape, places.shape)
    except ValueError as error:
        raise InvalidArgument(f"a mask of shape {places.shape} for a tensor of shape {input.shape}: {error}") from error
    return masked_scatter_(clone(broadcast_to(input, shape)), mask, source)


# -- several values for one place --------------------------------------------------------------------------------------


def _require_writable(a: Array) -> None:
    if not a.flags.writeable:  # ufunc.at does not look
        raise ValueError("read-only")


def _neutral(kind: np.dtype[Any], reduce: str) -> Any:
    """What does not change a result."""
    if reduce in ("amax", "amin"):
        sign = -1 if reduce == "amax" else 1
        if kind.kind == "b":
            return reduce == "amin"
        if kind.kind in "iu":
            return np.iinfo(kind).min if reduce == "amax" else np.iinfo(kind).max
        return sign * (np.inf if kind.isbuiltin == 1 else finfo(kind).max)
    return 1 if reduce == "prod" else 0


def _combine(xp: Module, a: Array, key: Any, values: Any, reduce: str, include_self: bool) -> None:
    """Combine values into the places of a key, in place."""
    if reduce not in _UFUNCS:
        raise InvalidArgument(f"asked to reduce by {reduce!r}; there is {', '.join(_UFUNCS)}")
    if a.dtype.kind == "c" and reduce in ("amax", "amin"):
        raise DTypeError(f"{reduce} of a tensor of {a.dtype.name}; complex numbers have no order")
    if hasattr(values, "dtype") and values.dtype != a.dtype:
        raise DTypeError(f"a source of {values.dtype.name} for a tensor of {a.dtype.name}; convert it by to()")
    _require_writable(a)
    if np.may_share_memory(a, values):
        values = xp.array(values)
    if not include_self:
        a[key] = _neutral(a.dtype, reduce)
    with np.errstate(invalid="ignore"):  # NaN among them
        _UFUNCS[reduce].at(a, key, values)
    if reduce == "mean":
        counts = xp.full(a.shape, int(include_self), np.int64)
        xp.add.at(counts, key, 1)
        counts = xp.maximum(counts, 1)
        if a.dtype.kind == "b":
            return
        (xp.floor_divide if a.dtype.kind in "iu" else xp.true_divide)(a, counts, out=a, casting="unsafe")


@operation(result=Result.SAME, function=False, fails="writing to")
def scatter_reduce_(
    xp: Module, self: Array, dim: int, index: Any, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Combine each `src[i][j]` into `self[index[i][j]][j]` (for dim 0, and so on); returns self.

    Args:
        index: with as many axes as the tensor, at most as large as `src`.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: False: values that were there before do not count where others come.

    Raises:
        IndexOutOfRange, InvalidArgument (shapes, reduce), DTypeError (another type), LayoutError.
    """
    at = lined(_indices(xp, index))
    if at.size:
        key = _place(xp, lined(self), dim, at, "scatter_reduce")
        _combine(xp, lined(self), key, _source(lined(src), key), reduce, include_self)


@composed()
def scatter_reduce(
    input: Tensor, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True, out: Any = None
) -> Tensor:
    """`scatter_reduce_` on a copy. Raises as that function does."""
    return placed(
        scatter_reduce_(clone(input), dim, index, src, reduce, include_self=include_self), out, "scatter_reduce"
    )


@operation(result=Result.SAME, function=False, fails="writing to")
def index_reduce_(
    xp: Module, self: Array, dim: int, index: Any, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Combine the parts of `source` into those at indices (one axis) along an axis; returns self.

    Args:
        reduce: "prod", "mean", "amax" or "amin".
        include_self: False: values that were there before do not count where others come.

    Raises:
        IndexOutOfRange, InvalidArgument (shapes, reduce), DTypeError (another type), LayoutError.
    """
    if reduce == "sum":
        raise InvalidArgument("index_reduce by 'sum'; use index_add, or give 'prod', 'mean', 'amax' or 'amin'")
    at = _indices(xp, index)
    if at.ndim > 1:
        raise InvalidArgument(f"index_reduce with indices of shape {at.shape}; give one axis")
    key = along(dim_of(self, dim), at.reshape(-1))
    _combine(xp, lined(self), key, lined(source), reduce, include_self)


@composed()
def index_reduce(
    input: Tensor, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True, out: Any = None
) -> Tensor:
    """`index_reduce_` on a copy. Raises as that function does."""
    return placed(
        index_reduce_(clone(input), dim, index, source, reduce, include_self=include_self), out, "index_reduce"
    )


# -- into a view of a copy ---------------------------------------------------------------------------------------------


def _filled(whole: Array, part: Array, src: Array, name: str) -> Array:
    """`whole` after `src` was written to its view `part`."""
    if part.shape != src.shape:
        raise InvalidArgument(
            f"{name} of a tensor of shape {src.shape} into shape {part.shape}; give one of that shape"
        )
    np.copyto(part, src, casting="unsafe")
    return whole


@operation(fails="writing a diagonal of")
def diagonal_scatter(xp: Module, x: Array, /, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A copy with `src` in the place of a diagonal of two axes. Raises IndexOutOfRange, InvalidArgument."""
    made = x.copy()
    part = made.diagonal(index_of(offset), axis_of(x, dim1), axis_of(x, dim2))
    part.flags.writeable = True
    return _filled(made, part, src, "diagonal_scatter")


@operation(fails="writing to index {index} of")
def select_scatter(xp: Module, x: Array, /, src: Array, dim: int, index: int) -> Array:
    """A copy with `src` at one index of an axis. Raises IndexOutOfRange, InvalidArgument."""
    made = x.copy()
    return _filled(made, made[(*along(axis_of(x, dim), index_of(index)), ...)], src, "select_scatter")


@operation(out=Out.COPIED, fails="writing to a slice of")
def slice_scatter(
    xp: Module, x: Array, /, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """A copy with `src` at the indices from `start` below `end`, `step` apart, of an axis.

    Raises IndexOutOfRange, InvalidArgument.
    """
    made = x.copy()
    return _filled(made, made[part_of(x, dim, start, end, step)], src, "slice_scatter")


@composed()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy with `src` at the sizes and strides (elements) that `as_strided` takes, on the copy's storage.

    The copy has the strides of the tensor. Raises InvalidArgument: outside of its storage; shapes.
    """
    a = array_of(input)
    first = input.storage_offset()
    end = first + sum((n - 1) * step for n, step in zip(a.shape, input.stride(), strict=True) if step > 0) + 1
    whole = clone(as_strided(input, (end if a.size else 0,), (1,), 0))
    part = as_strided(whole, size, stride, first if storage_offset is None else storage_offset)
    if part.shape != array_of(src).shape:
        raise InvalidArgument(f"as_strided_scatter of a tensor of shape {src.shape} into shape {part.shape}")
    part.copy_(src)
    return as_strided(whole, a.shape, input.stride(), first)


@composed(function=False)
def index_add_atomic_(self: Tensor, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
    """`atomics.index_add_atomic_` on this tensor; returns self. Raises as that function does."""
    from ..atomics import index_add_atomic_

    return index_add_atomic_(self, dim, index, source, alpha)


__all__ = export(globals())
