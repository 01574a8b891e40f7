"""Norms of vectors and matrices, condition and rank. Nothing here blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._tensor.core import axes_of
from .._tensor.dispatch import Array, Module, operation
from ..dtypes import dtype_of
from ..errors import DTypeError, IndexOutOfRange, InvalidArgument
from ..storage.arguments import refused
from .lapack import matrices, numpys
from .solvers import relative

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]


def measured(name: str, a: Array, function: Callable[..., Any], **how: Any) -> Array:
    """A norm by NumPy, which SVD may be a part of."""
    if a.dtype.kind in "iub":
        raise DTypeError(f"{name} of a tensor of {a.dtype.name}; it takes floating-point types: convert it by to()")
    try:
        return numpys(name, "gesdd", a, function, a, **how)
    except np.exceptions.AxisError as error:
        raise IndexOutOfRange(f"{name} of a tensor of shape {a.shape}: {error}") from error


@operation(method=False)
def vector_norm(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of all elements, or over axes: sum(abs(x) ** ord) ** (1 / ord); 0 counts what is not 0; inf, -inf.

    Raises IndexOutOfRange, InvalidArgument, DTypeError.
    """
    return measured("vector_norm", x, xp.linalg.vector_norm, axis=axes_of(x, axis), keepdims=keepdims, ord=ord)


@operation(method=False)
def matrix_norm(xp: Module, x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices: "fro", "nuc" (the sum of singular values), 1, 2, inf and their negatives.

    Raises InvalidArgument, DTypeError, LinAlgError (no convergence).
    """
    if x.ndim < 2:
        raise InvalidArgument(f"matrix_norm of a tensor of shape {x.shape}; it takes matrices, in the last two axes")
    return measured("matrix_norm", x, xp.linalg.matrix_norm, keepdims=keepdims, ord=ord)


@operation(method=False)
def norm(
    xp: Module, x: Array, /, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    """A norm as `torch.linalg.norm` has it: of all elements, of vectors along `dim`, of matrices in two of them.

    Args:
        ord: None for the 2-norm (of all elements, or along `dim`), else as in vector_norm and matrix_norm.
        dtype: convert to that first.

    Raises:
        IndexOutOfRange, InvalidArgument, DTypeError, LinAlgError (no convergence).
    """
    x = x if dtype is None else x.astype(dtype_of(dtype), copy=False)
    return measured("norm", x, xp.linalg.norm, ord=ord, axis=axes_of(x, dim), keepdims=keepdim)


@operation(method=False)
def cond(xp: Module, x: Array, /, p: Any = None) -> Array:
    """How much an inverse magnifies: norm(x, p) * norm(inv(x), p); None is 2, by singular values. inf: singular.

    Raises InvalidArgument (not square, unless p is None, 2 or -2), DTypeError, LinAlgError (no convergence).
    """
    a = matrices("cond", x, square=p not in (None, 2, -2))
    if not a.size:
        raise InvalidArgument(f"cond of a tensor of shape {a.shape}; it has no elements")
    return xp.asarray(numpys("cond", "gesdd", a, xp.linalg.cond, a, p)).astype(a.real.dtype, copy=False)


@operation(method=False)
def matrix_rank(xp: Module, x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """How many singular values count, int64.

    Args:
        rtol: up to this part of the largest they do not; None: max(m, n) * epsilon of the type.

    Raises:
        InvalidArgument, DTypeError, LinAlgError (no convergence).
    """
    a = matrices("matrix_rank", x)
    values = numpys("matrix_rank", "gesdd", a, xp.linalg.svd, a, compute_uv=False)
    bound = xp.asarray(relative(rtol, a))
    try:
        return xp.count_nonzero(values > bound[..., None] * values.max(-1, keepdims=True, initial=0), axis=-1)
    except ValueError as error:
        raise refused(error, f"matrix_rank with rtol of shape {bound.shape} of", a) from error
