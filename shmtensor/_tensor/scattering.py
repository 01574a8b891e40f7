"""Writing to selected elements: with indices, combining several values for one place, and into views of a copy.

Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .._native import is_device_array, strided
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import is_writable
from .axes import along, dim_of, lined, part_of
from .core import Tensor, array_of, axis_of, index_key, index_of, indices_of
from .dispatch import Array, Module, Operand, Out, Result, composed, export, operation
from .indexing import getitem, value_of, zeroed
from .inspection import finfo
from .masks import masked_scatter_, where
from .outputs import placed
from .selection import _indices, _of_sizes, _place, _source, put_
from .shapes import broadcast_to, clone, diagonal, in_memory, select

_UFUNCS: Final[dict[str, Any]] = {
    "sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum,
}  # fmt: skip
_BY_PART: Final = ("index_select", "index_add", "index_reduce")


# -- at indices --------------------------------------------------------------------------------------------------------


def _key(a: Array, indices: Any) -> tuple[Any, ...]:
    """An index of one part for each axis; None is all of it. Bytes are masks, as in torch."""
    parts = index_key(tuple(indices) if isinstance(indices, list | tuple) else (indices,))
    key: list[Any] = []
    axes = 0
    for one in parts:
        # A copy, as in `_indices`; that of a tensor on a GPU was made by `index_key`.
        at: Any = slice(None) if one is None else one if is_device_array(one) else np.array(one)
        is_mask = one is not None and at.dtype.char in "?B"
        key.append(at.astype(bool) if is_mask else at)
        axes += max(at.ndim, 1) if is_mask else 1
    if axes > a.ndim:
        raise InvalidArgument(f"indices for {axes} axes of a tensor of shape {a.shape}; give at most one for each")
    found: tuple[Any, ...] = index_key(tuple(key), a)
    return found


@composed(function=False)
def index_put_(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write values to what a tuple of indices (tensors, or None for all of an axis) selects; returns self.

    Args:
        accumulate: add them; several values for one place are all added.

    Raises:
        IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    return _put_at(self, _key(array_of(self), indices), values, accumulate)


@operation(
    name="index_put_",
    result=Result.SAME,
    function=False,
    method=False,
    fails="writing to",
    gradient={
        "self": lambda g, key, accumulate: g if accumulate else zeroed(g, key),
        "values": lambda g, key, values_shape: value_of(g, key, values_shape),
    },
)
def _put_at(xp: Module, self: Array, key: tuple[Any, ...], values: Operand, accumulate: bool) -> Array:
    """`index_put_` for an index of arrays."""
    kind = getattr(values, "dtype", self.dtype)
    if not np.can_cast(kind, self.dtype, "same_kind"):
        raise DTypeError(f"index_put_ of {kind.name} to a tensor of {self.dtype.name}; convert the values with to()")
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
    if not is_writable(a):  # ufunc.at does not check
        raise ValueError("read-only")


def _neutral(kind: np.dtype[Any], reduce: str) -> Any:
    """The neutral element of a reduction."""
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
        raise InvalidArgument(f"asked to reduce by {reduce!r}; use one of {', '.join(_UFUNCS)}")
    if a.dtype.kind == "c" and reduce in ("amax", "amin"):
        raise DTypeError(f"{reduce} of a tensor of {a.dtype.name}; complex numbers have no order")
    if hasattr(values, "dtype") and values.dtype != a.dtype:
        raise DTypeError(f"a source of {values.dtype.name} for a tensor of {a.dtype.name}; convert it with to()")
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


class _Places:
    """Where values are combined: as `gather` and `scatter` name elements, or `index_select` and `index_add` parts."""

    def __init__(self, dim: int, index: Any, by_element: bool) -> None:
        self._how = dim, index
        self._names = ("gather", "scatter_add", "scatter_reduce") if by_element else _BY_PART
        self._index_shape = np.shape(index) if by_element else None

    def of(self, x: Tensor) -> Tensor:
        """The elements of a tensor at these places."""
        return getattr(x, self._names[0])(*self._how)  # type: ignore[no-any-return]

    def add(self, x: Tensor, values: Tensor) -> Tensor:
        """A tensor with values added at these places."""
        return getattr(x, self._names[1])(*self._how, values)  # type: ignore[no-any-return]

    def combine(self, x: Tensor, values: Tensor, reduce: str, include_self: bool) -> Tensor:
        """A tensor with values combined."""
        how = {"include_self": include_self}
        return getattr(x, self._names[2])(*self._how, values, reduce, **how)  # type: ignore[no-any-return]

    def used(self, src: Tensor) -> Tensor:
        """The part of a source that is combined."""
        shape = self._index_shape
        return src if shape in (None, src.shape) else src[tuple([slice(n) for n in shape])]


def _reduced_back(
    g: Tensor, self: Tensor, src: Tensor, result: Tensor, reduce: str, include_self: bool, places: _Places
) -> tuple[Tensor, Tensor]:
    """The gradients of a tensor and of the values that were combined with it."""
    values = places.used(src)
    if reduce == "prod":
        own, other = _product_back(g, self, values, result, include_self, places)
    elif reduce == "sum":
        own, other = g, places.of(g)
    elif reduce == "mean":
        counts = places.add(g.new_full(g.shape, int(include_self)), values.new_ones(values.shape)).clamp(min=1)
        own = g / counts
        other = places.of(own)
    else:  # shared by all that are the largest or smallest
        outside = None if include_self else places.add(g.new_zeros(g.shape), values.new_ones(values.shape)) == 0
        is_own = self == result if outside is None else (self == result) & outside
        is_other = values == places.of(result)
        share = g / places.add(is_own.to(g.dtype), is_other.to(g.dtype)).clamp(min=1)
        own, other = share * is_own, places.of(share) * is_other
    if not include_self:
        own = own * (places.add(g.new_zeros(g.shape), values.new_ones(values.shape)) == 0)
    return own, _of_sizes(other, src.shape)


def _product_back(
    g: Tensor, self: Tensor, values: Tensor, result: Tensor, include_self: bool, places: _Places
) -> tuple[Tensor, Tensor]:
    """The gradients of products, in which some factor may be 0."""
    whole = self.masked_fill(self == 0, 1)
    own = g * places.combine(whole, values, "prod", include_self) / whole
    zero = values == 0
    zeros = places.of(places.add(self.new_zeros(self.shape), zero.to(self.dtype)))
    alone = zero & (zeros == 1)
    without = places.of(g * places.combine(self, values.masked_fill(alone, 1), "prod", include_self))
    return own, where(alone, without, places.of(g * result) / values.masked_fill(zero, 1))


def _scatter_reduced_back(
    g: Tensor, self: Tensor, dim: int, index: Any, src: Tensor, reduce: str, include_self: bool, result: Tensor
) -> tuple[Tensor, Tensor]:
    places = _Places(dim, index, True)
    return _reduced_back(g, self, src, result, reduce, include_self, places)


def _index_reduced_back(
    g: Tensor, self: Tensor, dim: int, index: Any, source: Tensor, reduce: str, include_self: bool, result: Tensor
) -> tuple[Tensor, Tensor]:
    places = _Places(dim, index, False)
    return _reduced_back(g, self, source, result, reduce, include_self, places)


@operation(result=Result.SAME, function=False, fails="writing to", gradient={("self", "src"): _scatter_reduced_back})
def scatter_reduce_(
    xp: Module, self: Array, dim: int, index: Any, src: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Combine each `src[i][j]` into `self[index[i][j]][j]` (for dim 0, and so on); returns self.

    Args:
        index: with as many axes as the tensor, at most as large as `src`.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: False: ignore the previous values at places that get others.

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


@operation(result=Result.SAME, function=False, fails="writing to", gradient={("self", "source"): _index_reduced_back})
def index_reduce_(
    xp: Module, self: Array, dim: int, index: Any, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Combine the parts of `source` into those at indices (one axis) along an axis; returns self.

    Args:
        reduce: "prod", "mean", "amax" or "amin".
        include_self: False: ignore the previous values at places that get others.

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


@operation(
    fails="writing a diagonal of",
    gradient={
        "x": lambda g, src_shape, offset, dim1, dim2: g.diagonal_scatter(g.new_zeros(src_shape), offset, dim1, dim2),
        "src": lambda g, offset, dim1, dim2: diagonal(g, offset, dim1, dim2),
    },
)
def diagonal_scatter(xp: Module, x: Array, /, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A copy with `src` in the place of a diagonal of two axes. Raises IndexOutOfRange, InvalidArgument."""
    made = x.copy()
    part = made.diagonal(index_of(offset), axis_of(x, dim1), axis_of(x, dim2))
    if isinstance(part, np.ndarray):
        part.flags.writeable = True  # NumPy returns a read-only view
    return _filled(made, part, src, "diagonal_scatter")


@operation(
    fails="writing to index {index} of",
    gradient={
        "x": lambda g, src_shape, dim, index: g.select_scatter(g.new_zeros(src_shape), dim, index),
        "src": lambda g, dim, index: select(g, dim, index),
    },
)
def select_scatter(xp: Module, x: Array, /, src: Array, dim: int, index: int) -> Array:
    """A copy with `src` at one index of an axis. Raises IndexOutOfRange, InvalidArgument."""
    made = x.copy()
    return _filled(made, made[(*along(axis_of(x, dim), index_of(index)), ...)], src, "select_scatter")


@operation(
    out=Out.COPIED,
    fails="writing to a slice of",
    gradient={
        "x": lambda g, src_shape, dim, start, end, step: g.slice_scatter(g.new_zeros(src_shape), dim, start, end, step),
        "src": lambda g, dim, start, end, step: getitem(g, part_of(array_of(g), dim, start, end, step)),
    },
)
def slice_scatter(
    xp: Module, x: Array, /, src: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """A copy with `src` at the indices from `start` below `end`, `step` apart, of an axis.

    Raises IndexOutOfRange, InvalidArgument.
    """
    made = x.copy()
    return _filled(made, made[part_of(x, dim, start, end, step)], src, "slice_scatter")


def _strided_source(g: Tensor, place: Any, own: Any) -> Tensor:
    """The gradient of what was written at sizes and strides: zeros where the tensor has no element."""
    size, positions, elements = in_memory(place, own)
    numbers = np.full(size, -1)
    numbers[elements.reshape(-1)] = np.arange(elements.size)
    found = numbers[positions]
    taken = g.reshape(-1).index_select(0, np.maximum(found, 0).reshape(-1)).reshape(place[0])
    return taken.masked_fill(found < 0, 0)


def _strided_rest(g: Tensor, place: Any, own: Any) -> Tensor:
    """The gradient of the elements that were not written to."""
    size, positions, elements = in_memory(place, own)
    written = np.zeros(size, bool)
    written[positions.reshape(-1)] = True
    return g.masked_fill(written[elements], 0)


@operation(
    name="as_strided_scatter",
    function=False,
    method=False,
    fails="writing to sizes and strides of the storage of",
    gradient={"x": _strided_rest, "src": _strided_source},
)
def _strided_scatter(xp: Module, x: Array, src: Array, place: Any, own: Any) -> Array:
    """A copy with `src` at sizes, strides and offset (elements) of the storage, of which it has `own`."""
    end = own[2] + sum((n - 1) * step for n, step in zip(x.shape, own[1], strict=True) if step > 0) + 1
    flat = xp.zeros(end if x.size else 0, x.dtype)
    made, part = [
        strided(flat, sizes, tuple([n * x.itemsize for n in steps]), first * x.itemsize)
        for sizes, steps, first in (own, place)
    ]
    if part.shape != src.shape:
        raise InvalidArgument(
            f"as_strided_scatter of a tensor of shape {src.shape} into shape {part.shape}; give one of that shape"
        )
    made[...] = x
    part[...] = src
    return made


@composed()
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy with `src` at the sizes and strides (elements) that `as_strided` takes, on the copy's storage.

    The copy has the strides of the tensor. Raises InvalidArgument: outside of its storage; shapes.
    """
    own = array_of(input).shape, input.stride(), input.storage_offset()
    first = own[2] if storage_offset is None else index_of(storage_offset)
    return _strided_scatter(input, src, (indices_of(size), indices_of(stride, "strides"), first), own)


@composed(function=False)
def index_add_atomic_(self: Tensor, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
    """`atomics.index_add_atomic_` on this tensor; returns self. Raises as that function does."""
    from ..atomics import index_add_atomic_

    return index_add_atomic_(self, dim, index, source, alpha)


__all__ = export(globals())
