"""Functions of `shmtensor` with the axes that the array API has for `linalg`: the last ones. Nothing here blocks."""

from __future__ import annotations

from typing import Any

from .._tensor import products, shapes
from .._tensor.core import Tensor, array_of, index_of
from .._tensor.dispatch import Array, Module, composed, operation
from ..dtypes import dtype_of
from ..errors import InvalidArgument

__all__ = ["cross", "diagonal", "trace"]


@composed(method=False)
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along an axis of size 3; other axes broadcast. Raises IndexOutOfRange, InvalidArgument."""
    return products.cross(x1, x2, axis)


@composed(method=False)
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The view of the diagonals of matrices, as a last axis. Raises InvalidArgument: not matrices."""
    if array_of(x).ndim < 2:
        raise InvalidArgument(f"diagonal of a tensor of shape {x.shape}; it takes matrices, in the last two axes")
    return shapes.diagonal(x, index_of(offset), -2, -1)


@operation(method=False)
def trace(xp: Module, x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of matrices, of type `dtype` (default: as `sum` has it). Raises InvalidArgument."""
    if x.ndim < 2:
        raise InvalidArgument(f"trace of a tensor of shape {x.shape}; it takes matrices, in the last two axes")
    return xp.trace(x, index_of(offset), -2, -1, None if dtype is None else dtype_of(dtype))
