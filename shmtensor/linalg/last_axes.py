"""Functions of `shmtensor` that `linalg` has with other axes: the last ones. Nothing here blocks."""

from __future__ import annotations

from typing import Any

from .._tensor import products, shapes
from .._tensor.core import Tensor, array_of, index_of
from .._tensor.dispatch import Array, Module, Out, composed, export, operation
from .._tensor.product_rules import of_trace
from ..dtypes import dtype_of
from ..errors import InvalidArgument

__all__ = ["cross", "diagonal", "trace"]


@operation(
    method=False,
    out=Out.COPIED,
    fails="cross along axis {dim} with a tensor of shape {other.shape} of",
    gradient={
        ("x", "other"): lambda g, x, other, dim, axis: products.of_cross(g, x, other, dim if axis is None else axis)
    },
)
def cross(xp: Module, x: Array, /, other: Array, *, dim: int = -1, axis: int | None = None) -> Array:
    """The vector product along an axis of size 3; other axes broadcast. Raises IndexOutOfRange, InvalidArgument."""
    return products.crossed(xp, x, other, dim if axis is None else axis)


@composed(method=False)
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The view of the diagonals of two axes, as a last axis.

    Raises InvalidArgument (fewer than two axes), IndexOutOfRange.
    """
    if array_of(A).ndim < 2:
        raise InvalidArgument(f"diagonal of a tensor of shape {A.shape}; it takes matrices, in the last two axes")
    return shapes.diagonal(A, index_of(offset), dim1, dim2)


@operation(method=False, gradient=lambda g, x_shape, offset: of_trace(g, x_shape, offset))
def trace(xp: Module, x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of matrices, of type `dtype` (default: as `sum` has it). Raises InvalidArgument."""
    if x.ndim < 2:
        raise InvalidArgument(f"trace of a tensor of shape {x.shape}; it takes matrices, in the last two axes")
    return xp.trace(x, index_of(offset), -2, -1, None if dtype is None else dtype_of(dtype))


export(globals())
