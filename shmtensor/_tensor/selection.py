"""Elements by their indices or by a mask, where they stand, and sets of them. Results are copies; none blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, IndexOutOfRange, InvalidArgument, tensor_advice, type_name
from .core import FAILURES, OPERANDS, Tensor, array_of, failed, given, index_of, wrap

__all__ = [
    "allclose",
    "argwhere",
    "array_equal",
    "bincount",
    "bucketize",
    "clamp",
    "clip",
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "isclose",
    "isin",
    "lerp",
    "masked_fill",
    "masked_select",
    "nonzero",
    "scatter",
    "scatter_add",
    "searchsorted",
    "take",
    "take_along_axis",
    "tril",
    "triu",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "where",
]  # fmt: skip
METHODS: Final = (
    "allclose", "argwhere", "array_equal", "bincount", "clamp", "clip", "gather", "index_add", "index_add_",
    "index_copy", "index_copy_", "index_fill", "index_fill_", "isclose", "scatter_add", "index_select", "lerp",
    "masked_fill", "masked_fill_", "masked_scatter_", "masked_select", "nonzero", "put_", "scatter", "scatter_",
    "scatter_add_", "take", "take_along_axis", "tril", "triu",
)  # fmt: skip
_LAST: Final = np.iinfo(np.int64).max


def _indices(index: Any, what: str = "index") -> NDArray[Any]:
    """Indices as an array of int64. Raises DTypeError, InvalidArgument (ragged lists), IndexOutOfRange."""
    a = _array(index, what)
    if a.dtype.kind not in "iu" and a.size:
        raise DTypeError(f"{what} of {a.dtype.name}; give integers")
    if a.dtype == np.uint64 and a.size and a.max() > _LAST:
        raise IndexOutOfRange(f"{what} of {a.max()}; no tensor has so many elements")
    return a.astype(np.int64, copy=False)


def _array(values: Any, what: str) -> NDArray[Any]:
    if isinstance(values, Tensor):
        return values._live()
    try:
        return np.asarray(values)
    except FAILURES as error:
        raise InvalidArgument(f"{what} {values!r}: {error}") from error


def _mask(x: NDArray[Any], mask: Any) -> NDArray[Any]:
    """A mask with the sizes of `x`. Raises DTypeError, InvalidArgument."""
    a = _array(mask, "mask")
    if a.dtype.kind != "b":
        raise DTypeError(f"a mask of {a.dtype.name}; give truth values, as a comparison does")
    try:
        return np.broadcast_to(a, x.shape)
    except ValueError as error:
        raise InvalidArgument(f"a mask of shape {a.shape} for a tensor of shape {x.shape}: {error}") from error


def _value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._live()
    if isinstance(value, OPERANDS):
        return value
    raise DTypeError(f"a value of type {type_name(value)}; {tensor_advice(value)}")


# -- by index ----------------------------------------------------------------------------------------------------------


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """What stands at the indices along an axis, or (without one) in flat order.

    Raises IndexOutOfRange: no such element or axis; DTypeError: indices that are no integers.
    """
    a = array_of(x)
    at = _indices(indices)
    along = None if axis is None else x._axis(axis)
    try:
        return wrap(np.take(a, at, along))
    except FAILURES as error:
        raise failed(error, f"taking elements along axis {axis} of", a) from error


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each place of `indices` the element whose index along the axis stands there; other axes broadcast.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError.
    """
    a = array_of(x)
    at = _indices(indices)
    along = x._axis(axis)
    if at.ndim != a.ndim:
        raise InvalidArgument(f"indices of shape {at.shape} into a tensor of shape {a.shape}; give as many axes")
    try:
        return wrap(np.take_along_axis(a, at, along))
    except FAILURES as error:
        if "broadcast" in str(error):  # NumPy's is an IndexError for this, too
            error = ValueError(str(error))
        raise failed(error, f"indices of shape {at.shape} into", a) from error


def index_select(x: Tensor, /, dim: int, index: Any) -> Tensor:
    """What stands at indices (a tensor of one axis) along an axis. Raises IndexOutOfRange, DTypeError."""
    at = _indices(index)
    if at.ndim > 1:
        raise InvalidArgument(f"index_select with indices of shape {at.shape}; give one axis")
    return take(x, wrap(at.reshape(-1)), axis=dim)


def _place(x: Tensor, dim: int, index: Any, doing: str) -> tuple[NDArray[Any], tuple[Any, ...]]:
    """(array, key) of the elements that gather reads and scatter writes. Raises as they do."""
    a = array_of(x)
    axis = x._axis(dim)
    at = _indices(index)
    if at.ndim != a.ndim:
        raise InvalidArgument(f"{doing} with indices of shape {at.shape} of a tensor of shape {a.shape}; other axes")
    for i, (wanted, have) in enumerate(zip(at.shape, a.shape, strict=True)):
        if i != axis and wanted > have:
            raise InvalidArgument(f"{doing} with indices of shape {at.shape} of a tensor of shape {a.shape}: axis {i}")
    if at.size and not -a.shape[axis] <= int(at.min()) <= int(at.max()) < a.shape[axis]:
        raise IndexOutOfRange(
            f"{doing} with indices from {at.min()} to {at.max()} along axis {dim} of a tensor of shape {a.shape}"
        )
    key = [np.arange(n).reshape([-1 if i == j else 1 for j in range(a.ndim)]) for i, n in enumerate(at.shape)]
    key[axis] = at
    return a, tuple(key)


def gather(x: Tensor, /, dim: int, index: Any) -> Tensor:
    """`out[i][j] = x[index[i][j]][j]` for dim 0, and so on: as take_along_axis, but indices may cover a part.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError.
    """
    a, key = _place(x, dim, index, "gather")
    return wrap(a[key])


def scatter_(self: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """`self[index[i][j]][j] = src[i][j]` for dim 0, and so on; of several for one place the last. Gives self.

    Args:
        src: a number, or a tensor at least as large as `index`.

    Raises:
        IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    a, key = _place(self, dim, index, "scatter")
    _write(a, key, _source(src, key))
    return self


def scatter(x: Tensor, /, dim: int, index: Any, src: Any) -> Tensor:
    """`scatter_` on a copy. Raises as that does."""
    return scatter_(x.clone(), dim, index, src)


def scatter_add_(self: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """`self[index[i][j]][j] += src[i][j]` for dim 0, and so on; all of several for one place count. Gives self.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    a, key = _place(self, dim, index, "scatter_add")
    _add_at(a, key, _source(src, key))
    return self


def _source(src: Any, key: tuple[Any, ...]) -> Any:
    values = _value(src)
    if not isinstance(values, np.ndarray) or not values.ndim:
        return values
    shape = np.broadcast_shapes(*[part.shape for part in key])
    if values.ndim != len(shape) or any(have < want for have, want in zip(values.shape, shape, strict=True)):
        raise InvalidArgument(f"a source of shape {values.shape} for indices of shape {shape}; give at least as many")
    return values[tuple(slice(n) for n in shape)]


def _write(a: NDArray[Any], key: Any, values: Any) -> None:
    try:
        a[key] = values
    except FAILURES as error:
        raise failed(error, "writing to", a) from error


def _add_at(a: NDArray[Any], key: Any, values: Any) -> None:
    if not a.flags.writeable:  # add.at does not look
        raise failed(ValueError("read-only"), "adding to", a)
    try:
        if isinstance(values, list):
            values = np.asarray(values)
        # What `a += values` would refuse, NumPy cuts off here.
        kind = values.dtype if isinstance(values, np.ndarray) else np.add(np.zeros((), a.dtype), values).dtype
        if not np.can_cast(kind, a.dtype, "same_kind"):
            raise TypeError(f"values of {kind.name} would be cut off")
        np.add.at(a, key, values)
    except FAILURES as error:
        raise failed(error, "adding to", a) from error


def _along(x: Tensor, dim: int, index: Any) -> tuple[NDArray[Any], tuple[Any, ...]]:
    a = array_of(x)
    at = _indices(index)
    if at.ndim > 1:
        raise InvalidArgument(f"indices of shape {at.shape} along axis {dim}; give one axis")
    return a, (slice(None),) * x._axis(dim) + (at.reshape(-1),)


def index_add_(self: Tensor, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Tensor:
    """Add `alpha` times the parts of `source` to those at indices along an axis; repeated ones count. Gives self.

    Not atomic (`index_add_atomic_` is). Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError, LayoutError.
    """
    a, key = _along(self, dim, index)
    values = _value(source)
    _add_at(a, key, values if alpha == 1 else np.multiply(values, alpha))
    return self


def index_copy_(self: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """Copy the parts of `source` to indices along an axis; gives self. Raises as index_add_."""
    a, key = _along(self, dim, index)
    _write(a, key, _value(source))
    return self


def index_fill_(self: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """Fill the parts at indices along an axis with a value; gives self. Raises as index_add_."""
    return index_copy_(self, dim, index, value)


def _on_a_copy(name: str, in_place: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(x: Tensor, /, dim: int, index: Any, source: Any, **how: Any) -> Tensor:
        array_of(x)
        return in_place(x.clone(), dim, index, source, **how)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`{name}_` on a copy. Raises as that does."
    return compute


scatter_add = _on_a_copy("scatter_add", scatter_add_)
index_add = _on_a_copy("index_add", index_add_)
index_copy = _on_a_copy("index_copy", index_copy_)
index_fill = _on_a_copy("index_fill", index_fill_)


def put_(self: Tensor, index: Any, source: Any, accumulate: bool = False) -> Tensor:
    """Write (or add) values at indices in flat order; gives self. Raises as index_add_."""
    a = array_of(self)
    at = _indices(index)
    if at.size and not -a.size <= int(at.min()) <= int(at.max()) < a.size:
        raise IndexOutOfRange(f"indices from {at.min()} to {at.max()} of a tensor of {a.size} elements")
    key = np.unravel_index(at % max(a.size, 1), a.shape) if a.ndim else (np.zeros_like(at),)
    a = a if a.ndim else a.reshape(1)
    values = _value(source)
    if isinstance(values, np.ndarray) and values.ndim and values.size == at.size:
        values = values.reshape(at.shape)
    (_add_at if accumulate else _write)(a, key, values)
    return self


# -- by mask -----------------------------------------------------------------------------------------------------------


def masked_select(x: Tensor, mask: Any, /) -> Tensor:
    """The elements where a mask, which broadcasts, is true, on one axis. Raises InvalidArgument, DTypeError."""
    a = array_of(x)
    return wrap(a[_mask(a, mask)])


def masked_fill_(self: Tensor, mask: Any, value: Any) -> Tensor:
    """Fill the elements where a mask, which broadcasts, is true; gives self. Raises InvalidArgument, DTypeError."""
    a = array_of(self)
    _write(a, _mask(a, mask), _value(value))
    return self


def masked_fill(x: Tensor, mask: Any, value: Any, /) -> Tensor:
    """`masked_fill_` on a copy. Raises as that does."""
    return masked_fill_(x.clone(), mask, value)


def masked_scatter_(self: Tensor, mask: Any, source: Any) -> Tensor:
    """Write the elements of `source`, in order, where a mask is true; gives self. Raises InvalidArgument: too few."""
    a = array_of(self)
    places = _mask(a, mask)
    values = _array(_value(source), "values").reshape(-1)
    wanted = int(places.sum())
    if wanted > values.size:
        raise InvalidArgument(f"a mask with {wanted} true elements and {values.size} values; give at least as many")
    _write(a, places, values[:wanted])
    return self


def where(condition: Any, x1: Any = None, x2: Any = None, /) -> Any:
    """Elements of `x1` where a condition is true, of `x2` elsewhere; with the condition alone as `nonzero`.

    Raises InvalidArgument: shapes that do not go together; DTypeError.
    """
    if x1 is None and x2 is None:
        return nonzero(condition)
    c, a, b = _array(_value(condition), "a condition"), _value(x1), _value(x2)
    try:
        return wrap(np.where(c, a, b))
    except FAILURES as error:
        raise failed(error, "choosing by", c) from error


def clip(x: Tensor, /, min: Any = None, max: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Values below `min` become it, those above `max` become that; either may be None. Raises InvalidArgument."""
    a = array_of(x)
    low, high = (None if bound is None else _value(bound) for bound in (min, max))
    try:
        result = a.copy() if low is None and high is None else np.clip(a, low, high)
        # Bounds of the same kind do not change the type, as those of NumPy may.
        if result.dtype != a.dtype and np.can_cast(result.dtype, a.dtype, "same_kind"):
            result = result.astype(a.dtype)
    except FAILURES as error:
        raise failed(error, f"clipping to {min} and {max}", a) from error
    return given(result, out, "clip")


clamp = clip


def lerp(x: Tensor, end: Any, weight: Any, /) -> Tensor:
    """x + weight * (end - x). Raises InvalidArgument: shapes."""
    a, b, part = array_of(x), _value(end), _value(weight)
    start = a.astype(np.float64) if a.dtype.kind in "biu" else a  # differences may be negative
    try:
        return wrap(start + np.multiply(part, np.subtract(b, start)))
    except FAILURES as error:
        raise failed(error, "interpolating", a) from error


# -- where -------------------------------------------------------------------------------------------------------------


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """For each axis the indices of all elements that are not zero. Raises InvalidArgument: no axis."""
    a = array_of(x)
    if not a.ndim:
        raise InvalidArgument("nonzero of a tensor without axes; compare its value")
    return tuple([wrap(at) for at in np.nonzero(a)])


def argwhere(x: Tensor, /) -> Tensor:
    """The indices of all elements that are not zero, a row for each."""
    return wrap(np.argwhere(array_of(x)))


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where in the sorted `x1` (one axis) each of `x2` would go. Raises InvalidArgument, DTypeError."""
    a, values = array_of(x1), _value(x2)
    order = None if sorter is None else _indices(sorter, "sorter")
    try:
        return wrap(np.searchsorted(a, values, side, order))  # type: ignore[call-overload]
    except FAILURES as error:
        raise failed(error, f"searching with side {side!r} in", a) from error


def bucketize(x: Tensor, boundaries: Any, /, *, right: bool = False) -> Tensor:
    """The number of the part between sorted boundaries in which each value lies. Raises InvalidArgument."""
    return searchsorted(boundaries, x, side="right" if right else "left")


def array_equal(x1: Tensor, x2: Any, /) -> bool:
    """Whether sizes and all elements are the same."""
    return bool(np.array_equal(array_of(x1), _value(x2)))


def isclose(x1: Tensor, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Which elements are so close that |x1 - x2| <= atol + rtol * |x2|. Raises InvalidArgument: shapes."""
    a = array_of(x1)
    try:
        return wrap(np.isclose(a, _value(x2), rtol, atol, equal_nan))
    except FAILURES as error:
        raise failed(error, "comparing", a) from error


def allclose(x1: Tensor, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are as close as `isclose` says. Raises InvalidArgument: shapes."""
    return bool(isclose(x1, x2, rtol, atol, equal_nan)._array.all())


def isin(x: Tensor, test: Any, /, *, invert: bool = False) -> Tensor:
    """Which elements are among those of `test`."""
    return wrap(np.isin(array_of(x), _value(test), invert=invert))


def bincount(x: Tensor, /, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2 ... occurs, or the sum of their weights. Raises InvalidArgument, DTypeError."""
    a = array_of(x)
    try:
        return wrap(np.bincount(a, None if weights is None else array_of(weights), minlength))
    except FAILURES as error:
        raise failed(error, "counting in", a) from error


def tril(x: Tensor, /, k: int = 0, *, diagonal: int | None = None) -> Tensor:
    """Matrices with zeros above a diagonal. Raises InvalidArgument: fewer than two axes."""
    return _triangle(np.tril, x, k if diagonal is None else diagonal)


def triu(x: Tensor, /, k: int = 0, *, diagonal: int | None = None) -> Tensor:
    """Matrices with zeros below a diagonal. Raises InvalidArgument: fewer than two axes."""
    return _triangle(np.triu, x, k if diagonal is None else diagonal)


def _triangle(function: Any, x: Tensor, k: int) -> Tensor:
    a = array_of(x)
    if a.ndim < 2:
        raise InvalidArgument(f"a triangle of a tensor of shape {a.shape}; it needs two axes")
    return wrap(function(a, index_of(k)))


# -- sets --------------------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """What unique_all gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What unique_counts gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What unique_inverse gives."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values, sorted; where each first stands, what each element became, how many there are."""
    return UniqueAll(*[wrap(part) for part in np.unique_all(array_of(x))])


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values, sorted, and how many there are of each."""
    return UniqueCounts(*[wrap(part) for part in np.unique_counts(array_of(x))])


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, sorted, and for each element which of them it is."""
    return UniqueInverse(*[wrap(part) for part in np.unique_inverse(array_of(x))])


def unique_values(x: Tensor, /) -> Tensor:
    """The different values, sorted."""
    return wrap(np.unique(array_of(x), equal_nan=False))
