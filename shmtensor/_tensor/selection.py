"""Selecting elements by indices, and sums at indices; finding, comparing and counting values; sets of values.

Results are copies. Nothing in this module blocks.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ..errors import DTypeError, GradientError, IndexOutOfRange, InvalidArgument
from ..storage.arguments import is_writable
from .axes import dim_of, lined
from .core import FAILURES, Tensor, axis_of, failed, index_of
from .dispatch import Array, Module, Operand, Out, Result, composed, export, operation
from .outputs import placed
from .result_types import multiple, sortable
from .shapes import clone, into_zeros, narrow

_INTO: Final = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Tensor | None")
_LAST: Final = np.iinfo(np.int64).max


def _indices(xp: Module, index: Any, what: str = "index") -> Array:
    """Indices as an array of int64. Raises DTypeError, InvalidArgument (ragged lists), IndexOutOfRange."""
    a = _array(xp, index, what)
    if a.dtype.kind not in "iu" and a.size:
        raise DTypeError(f"{what} of {a.dtype.name}; give integers")
    if a.dtype == np.uint64 and a.size and a.max() > _LAST:
        raise IndexOutOfRange(f"{what} of {a.max()}; no tensor has so many elements")
    return a.astype(np.int64)  # a copy: the index may be the target, or change in another process after it was checked


def _array(xp: Module, values: Any, what: str) -> Array:
    try:
        return xp.asarray(values)
    except FAILURES as error:
        raise InvalidArgument(f"{what} {values!r}: {error}") from error


# -- sums at indices, which gradient rules use -------------------------------------------------------------------------


def summed_at(xp: Module, positions: Array, values: Array, shape: tuple[int, ...]) -> Array:
    """A new array of sums of values, each added at a position in flat order; zeros elsewhere."""
    size, kind = math.prod(shape), values.dtype
    at = positions.reshape(-1)
    v = (values if values.shape == positions.shape else xp.broadcast_to(values, positions.shape)).reshape(-1)
    if kind.kind == "c":
        made = xp.empty(size, kind)
        made.real, made.imag = xp.bincount(at, v.real, size), xp.bincount(at, v.imag, size)
    else:
        made = xp.bincount(at, v, size)
    return made.astype(kind, copy=False).reshape(shape)


def sum_parts(xp: Module, parts: Array, at: Array, values: Array) -> None:
    """Add values to parts of an array of zeros, at indices along its first axis; those of one index are summed."""
    if not values.size:
        return
    if parts.ndim == 1:
        parts[...] = summed_at(xp, at, values, parts.shape)
        return
    order = xp.argsort(at.astype(xp.uint16) if len(parts) <= 1 << 16 else at, kind="stable")
    found = at[order]
    edges = xp.ones(at.size + 1, bool)  # where another index begins
    xp.not_equal(found[1:], found[:-1], out=edges[1:-1])
    alone = edges[:-1] & edges[1:]
    single = order[alone]
    parts[at[single]] = values[single]
    if len(single) < at.size:
        several, begins = order[~alone], xp.flatnonzero(edges[:-1][~alone])
        parts[at[several[begins]]] = xp.add.reduceat(values[several], begins, 0)


@operation(name="gather_sum", function=False, method=False, gradient=lambda g, dim, index: g.gather(dim, index))
def gather_sum(xp: Module, x: Array, shape: tuple[int, ...], dim: int, index: Any) -> Array:
    """`scatter_add` to zeros of a shape; also to one without axes."""
    at = _indices(xp, index)
    if not at.size:
        return xp.zeros(shape, x.dtype)
    sizes = shape or (1,)
    axis, step = dim % len(sizes), math.prod(sizes)
    positions = xp.zeros(lined(at).shape, xp.int64)
    for i, n in enumerate(lined(at).shape):
        step //= sizes[i]
        part = lined(at) % sizes[i] if i == axis else xp.arange(n).reshape(-1, *(1,) * (len(sizes) - i - 1))
        positions += part * step
    return summed_at(xp, positions, lined(x), shape)


@operation(name="index_sum", function=False, method=False, gradient=lambda g, dim, index: g.index_select(dim, index))
def index_sum(xp: Module, x: Array, shape: tuple[int, ...], dim: int, index: Any) -> Array:
    """`index_add` of a tensor to zeros of a shape, along an axis (from 0); several for one index are summed."""
    sizes = shape or (1,)
    at = _indices(xp, index).reshape(-1) % max(sizes[dim], 1)
    made = xp.zeros(sizes, x.dtype)
    values = x.reshape((*sizes[:dim], at.size, *sizes[dim + 1 :]))
    sum_parts(xp, xp.moveaxis(made, dim, 0), at, xp.moveaxis(values, dim, 0))
    return made.reshape(shape)


def _taken_back(g: Tensor, x_shape: tuple[int, ...], indices: Any, axis: int | None) -> Tensor:
    """The gradient rule of `take`."""
    at = indices.reshape(-1) if isinstance(indices, Tensor) else np.asarray(indices).reshape(-1)
    if axis is None:
        return index_sum(g, (math.prod(x_shape),), 0, at).reshape(x_shape)
    return index_sum(g, x_shape, axis % len(x_shape), at)


def taken_along_back(g: Tensor, x_shape: tuple[int, ...], index: Any, axis: int) -> Tensor:
    """The gradient rule of taking elements along an axis by indices whose other axes broadcast."""
    if not x_shape:
        return gather_sum(g.reshape(-1), (1,), 0, np.asarray(index).reshape(-1)).reshape(())
    axis %= len(x_shape)
    sizes = (*g.shape[:axis], x_shape[axis], *g.shape[axis + 1 :])
    at = np.asarray(index)
    return gather_sum(g, sizes, axis, np.broadcast_to(at, g.shape))


# -- by index ----------------------------------------------------------------------------------------------------------


@operation(out=Out.COPIED, fails="taking elements along axis {axis} of", gradient=_taken_back)
def take(xp: Module, x: Array, indices: Any, /, *, axis: int | None = None) -> Array:
    """The elements at indices along an axis, or (without one) in flat order.

    Raises IndexOutOfRange: no such element or axis; DTypeError: indices that are not integers.
    """
    at = _indices(xp, indices)
    return xp.take(x, at, None if axis is None else axis_of(x, axis))


@operation(
    fails="indices of shape {indices.shape} into",
    gradient=lambda g, x_shape, indices, axis: taken_along_back(g, x_shape, indices, axis),
)
def take_along_axis(xp: Module, x: Array, indices: Any, /, *, axis: int = -1) -> Array:
    """For each element of `indices`, the element of `x` at that index along the axis; other axes broadcast.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError.
    """
    at = _indices(xp, indices)
    along = axis_of(x, axis)
    if at.ndim != x.ndim:
        raise InvalidArgument(f"indices of shape {at.shape} into a tensor of shape {x.shape}; give as many axes")
    try:
        return xp.take_along_axis(x, at, along)
    except IndexError as error:
        if "broadcast" in str(error):  # NumPy's is an IndexError for this, too
            raise failed(ValueError(str(error)), f"indices of shape {at.shape} into", x) from error
        raise


@operation(
    out=Out.COPIED,
    fails="taking elements along axis {dim} of",
    lifts=True,
    gradient=lambda g, x_shape, dim, index: index_sum(g, x_shape, dim % max(len(x_shape), 1), index),
)
def index_select(xp: Module, x: Array, /, dim: int, index: Any) -> Array:
    """The parts at indices (a tensor of one axis) along an axis. Raises IndexOutOfRange, DTypeError."""
    at = _indices(xp, index)
    if at.ndim > 1:
        raise InvalidArgument(f"index_select with indices of shape {at.shape}; give one axis")
    return xp.take(x, at.reshape(-1), axis_of(x, dim))


def _place(xp: Module, a: Array, dim: int, index: Any, doing: str) -> tuple[Any, ...]:
    """The key of the elements that gather reads and scatter writes. Raises as they do."""
    axis = axis_of(a, dim)
    at = _indices(xp, index)
    if at.ndim != a.ndim:
        raise InvalidArgument(f"{doing} with indices of shape {at.shape} of a tensor of shape {a.shape}; other axes")
    for i, (wanted, have) in enumerate(zip(at.shape, a.shape, strict=True)):
        if i != axis and wanted > have:
            raise InvalidArgument(f"{doing} with indices of shape {at.shape} of a tensor of shape {a.shape}: axis {i}")
    if at.size and not -a.shape[axis] <= int(at.min()) <= int(at.max()) < a.shape[axis]:
        raise IndexOutOfRange(
            f"{doing} with indices from {at.min()} to {at.max()} along axis {dim} of a tensor of shape {a.shape}"
        )
    key = [xp.arange(n).reshape([-1 if i == j else 1 for j in range(a.ndim)]) for i, n in enumerate(at.shape)]
    key[axis] = at
    return tuple(key)


@operation(out=Out.COPIED, gradient=lambda g, x_shape, dim, index: gather_sum(g, x_shape, dim, index))
def gather(xp: Module, x: Array, /, dim: int, index: Any) -> Array:
    """`out[i][j] = x[index[i][j]][j]` for dim 0, and so on: as take_along_axis, but indices may cover a part.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError.
    """
    at = _indices(xp, index)
    if not at.size:  # of any number of axes
        dim_of(x, dim)
        return xp.empty(at.shape, x.dtype)
    return lined(x)[_place(xp, lined(x), dim, lined(at), "gather")].reshape(at.shape)


def _of_sizes(part: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient of a source of which a part was used."""
    if part.shape == shape or part.ndim != len(shape):
        return part.reshape(shape) if part.numel() == math.prod(shape) else part
    for dim, (have, wanted) in enumerate(zip(part.shape, shape, strict=True)):
        if have < wanted:
            part = into_zeros(part, (*part.shape[:dim], wanted, *part.shape[dim + 1 :]), narrow, (dim, 0, have))
    return part


def _source_of(g: Tensor, dim: int, index: Any, src_shape: tuple[int, ...]) -> Tensor:
    """The gradient of the values that `scatter` wrote or added."""
    return _of_sizes(gather(g, dim, index), src_shape)


def _overwritten(g: Tensor, dim: int, index: Any, reduce: str | None) -> Tensor:
    """The gradient of the tensor that `scatter` changed. Raises GradientError: it multiplies."""
    if reduce == "multiply":
        raise _no_product()
    return g if reduce == "add" else scatter(g, dim, index, 0)


def _written(g: Tensor, dim: int, index: Any, src_shape: tuple[int, ...], reduce: str | None) -> Tensor:
    """The gradient of the values that `scatter` wrote. Raises GradientError: it multiplies."""
    if reduce == "multiply":
        raise _no_product()
    return _source_of(g, dim, index, src_shape)


def _no_product() -> GradientError:
    return GradientError("scatter with reduce 'multiply' has no gradient; use scatter_reduce with 'prod'")


@operation(
    result=Result.SAME,
    function=False,
    fails="writing to",
    lifts=True,
    gradient={"self": _overwritten, "src": _written},
)
def scatter_(xp: Module, self: Array, dim: int, index: Any, src: Operand, *, reduce: str | None = None) -> Array:
    """`self[index[i][j]][j] = src[i][j]` for dim 0, and so on; the last of several for one place counts. Returns self.

    Args:
        src: a number, or a tensor at least as large as `index`.
        reduce: "add" or "multiply": combine with the existing values; several for one place all count.

    Raises:
        IndexOutOfRange, InvalidArgument (shapes, reduce), DTypeError, LayoutError.
    """
    if reduce not in (None, "add", "multiply"):
        raise InvalidArgument(f"scatter with reduce {reduce!r}; give 'add' or 'multiply', or use scatter_reduce")
    key = _place(xp, self, dim, index, "scatter")
    values = _source(src, key)
    if reduce is None:
        self[key] = values
    else:
        if not hasattr(values, "ndim"):
            values = xp.asarray(values).astype(self.dtype)
        _combine_at(self, key, xp.add if reduce == "add" else xp.multiply, values)


@operation(
    result=Result.SAME,
    function=False,
    fails="adding to",
    lifts=True,
    gradient={"self": lambda g: g, "src": _source_of},
)
def scatter_add_(xp: Module, self: Array, dim: int, index: Any, src: Operand) -> Array:
    """`self[index[i][j]][j] += src[i][j]` for dim 0, and so on; several for one place all count. Returns self.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    key = _place(xp, self, dim, index, "scatter_add")
    _combine_at(self, key, xp.add, _source(src, key))


def _source(values: Any, key: tuple[Any, ...]) -> Any:
    if not getattr(values, "ndim", 0):
        return values
    shape = np.broadcast_shapes(*[part.shape for part in key])
    if values.ndim != len(shape) or any(have < want for have, want in zip(values.shape, shape, strict=True)):
        raise InvalidArgument(f"a source of shape {values.shape} for indices of shape {shape}; give at least as many")
    return values[tuple(slice(n) for n in shape)]


def _combine_at(a: Array, key: Any, function: Any, values: Any) -> None:
    """Combine the elements at a key with values by a ufunc of two operands, in place; each of several counts."""
    if not is_writable(a):  # ufunc.at does not check
        raise ValueError("read-only")
    if isinstance(values, list):
        values = np.asarray(values)
    # NumPy would truncate here the values that `a += values` refuses.
    kind = values.dtype if hasattr(values, "ndim") else function(np.zeros((), a.dtype), values).dtype
    if not np.can_cast(kind, a.dtype, "same_kind"):
        raise TypeError(f"values of {kind.name} would be cut off")
    function.at(a, key, values)


def _along(xp: Module, a: Array, dim: int, index: Any) -> tuple[Any, ...]:
    at = _indices(xp, index)
    if at.ndim > 1:
        raise InvalidArgument(f"indices of shape {at.shape} along axis {dim}; give one axis")
    return (slice(None),) * axis_of(a, dim) + (at.reshape(-1),)


def _parts_of(g: Tensor, dim: int, index: Any, source_shape: tuple[int, ...]) -> Tensor:
    """The gradient of the values that were written or added along an axis."""
    part = index_select(g, dim, index)
    return part if part.ndim >= len(source_shape) else part.reshape(source_shape)


def _added(g: Tensor, dim: int, index: Any, source_shape: tuple[int, ...], alpha: float) -> Tensor:
    part = _parts_of(g, dim, index, source_shape)
    return part if alpha == 1 else part * alpha


@operation(
    result=Result.SAME,
    function=False,
    fails="adding to",
    lifts=True,
    gradient={"self": lambda g: g, "source": _added},
)
def index_add_(xp: Module, self: Array, dim: int, index: Any, source: Operand, *, alpha: float = 1) -> Array:
    """Add `alpha` times the parts of `source` to those at indices along an axis; repeated ones add up. Returns self.

    Not atomic (`index_add_atomic_` is). Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    key = _along(xp, self, dim, index)
    scaled = source if alpha == 1 else multiple(xp, "index_add", self.dtype, source, alpha)
    _combine_at(self, key, xp.add, scaled)


def _without(g: Tensor, dim: int, index: Any) -> Tensor:
    return index_fill(g, dim, index, 0)


@operation(
    result=Result.SAME,
    function=False,
    fails="writing to",
    lifts=True,
    gradient={"self": _without, "source": _parts_of},
)
def index_copy_(xp: Module, self: Array, dim: int, index: Any, source: Operand) -> Array:
    """Copy the parts of `source` to indices along an axis; returns self. Raises as index_add_."""
    self[_along(xp, self, dim, index)] = source


@operation(
    result=Result.SAME,
    function=False,
    fails="writing to",
    lifts=True,
    gradient={
        "self": _without,
        "value": lambda g, dim, index, value_shape: _parts_of(g, dim, np.unique(np.asarray(index)), value_shape),
    },
)
def index_fill_(xp: Module, self: Array, dim: int, index: Any, value: Operand) -> Array:
    """Fill the parts at indices along an axis with a value; returns self. Raises as index_add_."""
    self[_along(xp, self, dim, index)] = value


def _on_a_copy(in_place: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(input: Tensor, *args: Any, out: Any = None, **how: Any) -> Tensor:
        return placed(in_place(clone(input), *args, **how), out, name)

    name = in_place.__name__.removesuffix("_")
    compute.__name__ = compute.__qualname__ = name
    first, *rest = inspect.signature(in_place).parameters.values()
    compute.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [first.replace(name="input"), *rest, _INTO], return_annotation="Tensor"
    )
    compute.__doc__ = f"`{name}_` on a copy. Raises as that function does."
    return composed()(compute)


scatter = _on_a_copy(scatter_)
scatter_add = _on_a_copy(scatter_add_)
index_add = _on_a_copy(index_add_)
index_copy = _on_a_copy(index_copy_)
index_fill = _on_a_copy(index_fill_)


@operation(
    result=Result.SAME,
    function=False,
    fails="writing to",
    gradient={
        "self": lambda g, index, accumulate: g if accumulate else g.put(index, 0),
        "source": lambda g, index, source_shape: _of_sizes(take(g, index), source_shape),
    },
)
def put_(xp: Module, self: Array, index: Any, source: Operand, accumulate: bool = False) -> Array:
    """Write (or add) values at indices in flat order; returns self. Raises as index_add_."""
    at = _indices(xp, index)
    if at.size and not -self.size <= int(at.min()) <= int(at.max()) < self.size:
        raise IndexOutOfRange(f"indices from {at.min()} to {at.max()} of a tensor of {self.size} elements")
    key = xp.unravel_index(at % max(self.size, 1), self.shape) if self.ndim else (xp.zeros_like(at),)
    a = self if self.ndim else self.reshape(1)
    if getattr(source, "ndim", 0) and source.size == at.size:
        source = source.reshape(at.shape)
    if accumulate:
        _combine_at(a, key, xp.add, source)
    else:
        a[key] = source


# -- finding, comparing and counting values ----------------------------------------------------------------------------


@operation(method=False, out=Out.COPIED, fails="searching with side {side!r} in")
def searchsorted(
    xp: Module,
    sorted_sequence: Array,
    values: Operand,
    /,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """The index at which each value would be inserted to keep sorted values sorted: int64, or int32.

    Args:
        sorted_sequence: one axis; or rows on the last axis, with other axes as those of `values`.
        right: insert after equal values ("right" as `side`), not before them ("left").
        sorter: indices that sort the sequence.

    Raises InvalidArgument: shapes, a side; DTypeError.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise InvalidArgument(f"searchsorted with right={right} and side {side!r}; give 'left' or 'right'")
    where = "right" if right or side == "right" else "left"
    rows = sortable(xp, sorted_sequence)
    if sorter is not None:
        if sorter.shape != rows.shape:
            raise InvalidArgument(f"a sorter of shape {sorter.shape} for values of shape {rows.shape}; give that shape")
        rows = xp.take_along_axis(rows, _indices(xp, sorter, "sorter"), -1)
    kind = xp.int32 if out_int32 else xp.int64
    asked = sortable(xp, xp.asarray(values))
    if rows.ndim <= 1:
        return xp.asarray(xp.searchsorted(rows.reshape(-1), asked, where)).astype(kind)
    if rows.shape[:-1] != asked.shape[:-1]:
        raise InvalidArgument(
            f"searchsorted of {asked.shape} in rows of {rows.shape}; all axes but the last must agree"
        )
    found = xp.empty(asked.shape, kind)
    for at in np.ndindex(rows.shape[:-1]):
        found[at] = xp.searchsorted(rows[at], asked[at], where)
    return found


@composed(method=False)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None
) -> Tensor:
    """The index of the interval between sorted boundaries that contains each value. Raises InvalidArgument."""
    return searchsorted(boundaries, input, right=right, out_int32=out_int32, out=out)


@operation("array_equal", result=Result.VALUE)
def equal(xp: Module, x1: Array, x2: Operand, /) -> bool:
    """Whether sizes and all elements are the same."""
    return bool(xp.array_equal(x1, x2))


@operation(fails="comparing")
def isclose(
    xp: Module, x1: Array, x2: Operand, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Which elements are so close that |x1 - x2| <= atol + rtol * |x2|. Raises InvalidArgument: shapes."""
    return xp.isclose(x1, x2, rtol, atol, equal_nan)


@operation(result=Result.VALUE, fails="comparing")
def allclose(
    xp: Module, x1: Array, x2: Operand, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are as close as `isclose` says. Raises InvalidArgument: shapes."""
    return bool(xp.isclose(x1, x2, rtol, atol, equal_nan).all())


@operation(out=Out.COPIED, method=False)
def isin(
    xp: Module, elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Array:
    """Which elements are among `test_elements` (or not, with `invert`); one of both may be a number.

    Args:
        assume_unique: neither has duplicates.
    """
    return xp.isin(elements, test_elements, assume_unique, invert)


@operation(fails="counting in", gradient={"weights": lambda g, x: index_select(g, 0, x)})
def bincount(xp: Module, x: Array, /, weights: Array | None = None, minlength: int = 0) -> Array:
    """How often each of 0, 1, 2 ... occurs, or the sum of their weights: of float32 in float32, else in float64.

    Raises InvalidArgument, DTypeError.
    """
    counts = xp.bincount(x, weights, minlength)
    return counts.astype(xp.float32) if weights is not None and weights.dtype == xp.float32 else counts


@operation(out=Out.COPIED, gradient=lambda g, k, diagonal: g.tril(k, diagonal=diagonal))
def tril(xp: Module, x: Array, /, k: int = 0, *, diagonal: int | None = None) -> Array:
    """Matrices with zeros above a diagonal. Raises InvalidArgument: fewer than two axes."""
    return _triangle(xp.tril, x, k if diagonal is None else diagonal)


@operation(out=Out.COPIED, gradient=lambda g, k, diagonal: g.triu(k, diagonal=diagonal))
def triu(xp: Module, x: Array, /, k: int = 0, *, diagonal: int | None = None) -> Array:
    """Matrices with zeros below a diagonal. Raises InvalidArgument: fewer than two axes."""
    return _triangle(xp.triu, x, k if diagonal is None else diagonal)


def _triangle(function: Any, a: Array, k: int) -> Array:
    if a.ndim < 2:
        raise InvalidArgument(f"a triangle of a tensor of shape {a.shape}; it needs two axes")
    return function(a, index_of(k))


# -- sets --------------------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The result of unique_all."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of unique_counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of unique_inverse."""

    values: Tensor
    inverse_indices: Tensor


@operation(results=UniqueAll, method=False)
def unique_all(xp: Module, x: Array, /) -> UniqueAll:
    """The different values, sorted; the index of the first of each, which value each element is, and the counts."""
    return xp.unique_all(x)  # type: ignore[no-any-return]


@operation(results=UniqueCounts, method=False)
def unique_counts(xp: Module, x: Array, /) -> UniqueCounts:
    """The different values, sorted, and how many there are of each."""
    return xp.unique_counts(x)  # type: ignore[no-any-return]


@operation(results=UniqueInverse, method=False)
def unique_inverse(xp: Module, x: Array, /) -> UniqueInverse:
    """The different values, sorted, and for each element which of them it is."""
    return xp.unique_inverse(x)  # type: ignore[no-any-return]


@operation(method=False)
def unique_values(xp: Module, x: Array, /) -> Array:
    """The different values, sorted."""
    return xp.unique(x, equal_nan=False)


__all__ = export(globals())
