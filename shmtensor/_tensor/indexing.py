"""Indices: taking elements along axes that broadcast, indices of triangles, of elements, and of flat positions.

Results are copies. Nothing in this module blocks.
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
from .core import Tensor, index_of, indices_of
from .creation import from_numpy
from .dispatch import Array, Module, Out, composed, export, operation
from .selection import _indices


@operation(out=Out.COPIED, fails="taking elements along axis {dim} of")
def take_along_dim(xp: Module, x: Array, /, indices: Array, dim: int | None = None) -> Array:
    """For each place of `indices` the element whose index along an axis stands there; other axes broadcast.

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
