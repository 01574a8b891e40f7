"""`x[key]` with gradients, elements along axes that broadcast, and indices of triangles and flat positions.

Results are copies, except `x[key]` with a basic index. Nothing in this module blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..devices import device_of
from ..dtypes import dtype_of
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import INTEGERS, shape_from
from .axes import dim_of, lined
from .core import Tensor, index_key, index_of, indices_of
from .creation import from_numpy
from .dispatch import Array, Module, Operand, Out, Result, composed, export, operation
from .selection import _indices, index_sum, sum_parts, summed_at, taken_along_back

# -- x[key], where gradients are recorded ------------------------------------------------------------------------------


def getitem(x: Tensor, key: Any) -> Tensor:
    """`x[key]`, recorded. Raises IndexOutOfRange, InvalidArgument: not an index."""
    return _item(x, _kept(key))


def setitem_(x: Tensor, key: Any, value: Any) -> Tensor:
    """Write `x[key] = value`, recorded. Returns x. Raises as `x[key] = value` does."""
    return _put_item(x, _kept(key), value)


def _kept(key: Any) -> Any:
    """A copy of an index, whose parts nobody else changes."""
    return tuple([_kept_part(one) for one in key]) if isinstance(key, tuple) else _kept_part(key)


def _kept_part(part: Any) -> Any:
    if isinstance(part, Tensor):
        return index_key(part)
    if isinstance(part, list):
        return np.array(part, None if part else np.int64)
    return part.copy() if isinstance(part, np.ndarray) else part


def _repeats(key: Any) -> bool:
    """Whether an index may select an element twice: by integers."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(one, np.ndarray) and one.dtype.kind != "b" for one in parts)


def _item_back(g: Tensor, x_shape: tuple[int, ...], key: Any) -> Tensor:
    return _items_put_back(g, x_shape, key)


@operation(
    name="getitem",
    result=Result.VIEW,
    function=False,
    method=False,
    fails="index {key!r} of",
    gradient=_item_back,
)
def _item(xp: Module, x: Array, key: Any) -> Array:
    """`x[key]` for an index without tensors."""
    try:
        found = x[key]
        if isinstance(found, np.generic):  # a view without axes is wanted
            found = x[(*key, ...) if isinstance(key, tuple) else (key, ...)]
        return found
    except OverflowError as error:
        raise IndexError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"index {key!r} of a tensor of shape {x.shape}: {error}") from error


@operation(name="items_put_back", function=False, method=False, gradient=lambda g, key: _item(g, key))
def _items_put_back(xp: Module, x: Array, shape: tuple[int, ...], key: Any) -> Array:
    """Zeros of a shape, with the elements of `x` at an index; elements at the same place are summed."""
    if isinstance(key, np.ndarray) and key.dtype.kind != "b":
        made = xp.zeros(shape, x.dtype)
        sum_parts(xp, made, key.reshape(-1) % max(len(made), 1), x.reshape(key.size, *shape[1:]))
        return made
    if _repeats(key):
        return summed_at(xp, xp.arange(math.prod(shape)).reshape(shape)[key], x, shape)
    made = xp.zeros(shape, x.dtype)
    made[key] = x
    return made


def _zeroed_back(g: Tensor, key: Any) -> Tensor:
    return zeroed(g, key)


@operation(name="zeroed", function=False, method=False, gradient=_zeroed_back)
def zeroed(xp: Module, x: Array, key: Any) -> Array:
    """A copy with zeros at an index."""
    made = x.copy()
    made[key] = 0
    return made


def value_of(g: Tensor, key: Any, value_shape: tuple[int, ...]) -> Tensor:
    """The gradient of the written value, which may have more axes than the place, of size 1."""
    part = _item(g, key)
    return part if part.ndim >= len(value_shape) else part.reshape((1,) * (len(value_shape) - part.ndim) + part.shape)


@operation(
    name="setitem",
    result=Result.SAME,
    function=False,
    method=False,
    fails="writing to index {key!r} of",
    gradient={"x": _zeroed_back, "value": value_of},
)
def _put_item(xp: Module, x: Array, key: Any, value: Operand) -> Array:
    """`x[key] = value` for an index without tensors."""
    x[key] = value


# -- along axes --------------------------------------------------------------------------------------------------------


def _taken_back(g: Tensor, x_shape: tuple[int, ...], indices: Any, dim: int | None) -> Tensor:
    """The gradient rule of `take_along_dim`."""
    if dim is None:
        return index_sum(g, (math.prod(x_shape),), 0, indices.reshape(-1)).reshape(x_shape)
    return taken_along_back(g, x_shape, indices, dim)


@operation(out=Out.COPIED, fails="taking elements along axis {dim} of", gradient=_taken_back)
def take_along_dim(xp: Module, x: Array, /, indices: Array, dim: int | None = None) -> Array:
    """For each element of `indices`, the element of `x` at that index along an axis; other axes broadcast.

    Without an axis, elements in flat order for indices in flat order.

    Raises IndexOutOfRange, InvalidArgument (shapes), DTypeError (indices that are not integers).
    """
    at = _indices(xp, indices)
    if dim is None:
        return xp.take(x.reshape(-1), at.reshape(-1))
    axis = dim_of(x, dim)
    a, at = lined(x), lined(at)
    if at.ndim != a.ndim:
        raise InvalidArgument(
            f"take_along_dim with indices of shape {at.shape} of a tensor of shape {x.shape}; as many"
        )
    others = [pair for i, pair in enumerate(zip(a.shape, at.shape, strict=True)) if i != axis]
    if any(n != m and 1 not in (n, m) for n, m in others):
        raise InvalidArgument(f"take_along_dim with indices of shape {at.shape} of a tensor of shape {x.shape}")
    result = xp.take_along_axis(a, at, axis)
    return result if x.ndim or indices.ndim else result.reshape(())


@operation(method=False, fails="the places in {shape} of")
def unravel_index(xp: Module, indices: Array, shape: int | Sequence[int]) -> tuple[Array, ...]:
    """For each axis of a tensor of this shape, the indices of elements that are numbered in flat order.

    Raises DTypeError: not integers; InvalidArgument: negative sizes.
    """
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"unravel_index of a tensor of {indices.dtype.name}; give integers")
    sizes = (index_of(shape),) if isinstance(shape, INTEGERS) else indices_of(shape)
    if min(sizes, default=0) < 0:
        raise InvalidArgument(f"unravel_index in sizes {sizes}; give sizes from 0")
    at = indices.astype(np.int64)
    below = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return tuple([xp.asarray(at // max(step, 1) % max(n, 1)) for n, step in zip(sizes, below, strict=True)])


@operation()
def nonzero_static(xp: Module, x: Array, /, *, size: int, fill_value: int = -1) -> Array:
    """The indices of the first `size` elements that are not zero, a row for each; missing ones are `fill_value`.

    Raises InvalidArgument: a negative size.
    """
    wanted = index_of(size)
    if wanted < 0:
        raise InvalidArgument(f"nonzero_static with size {size}; give one from 0")
    found = xp.argwhere(x)[:wanted]
    made = xp.full((wanted, x.ndim), fill_value, np.int64)
    made[: len(found)] = found
    return made


def _triangle(make: Any, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    rows, columns = index_of(row, "number of rows"), index_of(col, "number of columns")
    if rows < 0 or columns < 0:
        raise InvalidArgument(f"a triangle of a matrix of {row} rows and {col} columns; give numbers from 0")
    shape_from((rows, columns), 1)
    kind = dtype_of(np.int64 if dtype is None else dtype)
    device_of(device)
    return from_numpy(np.stack(make(rows, index_of(offset), columns)).astype(kind))


@composed(method=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Row and column indices of the elements on and below a diagonal of a matrix, as two rows; default type int64.

    Raises InvalidArgument, DTypeError.
    """
    return _triangle(np.tril_indices, row, col, offset, dtype, device)


@composed(method=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Row and column indices of the elements on and above a diagonal of a matrix, as two rows; default type int64.

    Raises InvalidArgument, DTypeError.
    """
    return _triangle(np.triu_indices, row, col, offset, dtype, device)


__all__ = export(globals())
