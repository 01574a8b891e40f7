"""Norms of vectors and matrices, condition and rank. Nothing here blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._tensor.core import axes_of
from .._tensor.dispatch import Array, Module, Out, export, operation
from .._tensor.norm_rules import of_vector_norm
from .._tensor.result_types import as_type, is_narrow, norms_of_vectors
from ..dtypes import dtype_of
from ..errors import DTypeError, IndexOutOfRange, InvalidArgument
from ..storage.arguments import SEQUENCES, refused
from . import norm_rules as rules
from .lapack import matrices, numpys
from .solvers import smallest

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]


def measured(name: str, a: Array, function: Callable[..., Any], **how: Any) -> Array:
    """A norm by NumPy, which may compute an SVD; types narrower than float32 are computed in float32."""
    if a.dtype.kind in "iub":
        raise DTypeError(f"{name} of a tensor of {a.dtype.name}; it takes floating-point types: convert it with to()")
    try:
        if not is_narrow(a.dtype):
            return numpys(name, "gesdd", a, function, a, **how)
        return as_type(numpys(name, "gesdd", a, function, a.astype(np.float32), **how), a.dtype)
    except np.exceptions.AxisError as error:
        raise IndexOutOfRange(f"{name} of a tensor of shape {a.shape}: {error}") from error


def _typed(x: Array, dtype: Any) -> Array:
    return x if dtype is None else x.astype(dtype_of(dtype), copy=False)


def _dims(dim: Any, axis: Any) -> Any:
    """The axes that torch's `dim` and NumPy's `axis` name; None, or none of them, means all."""
    dims = dim if axis is None else axis
    return None if isinstance(dims, SEQUENCES) and not len(dims) else dims


def of_vectors(name: str, xp: Module, x: Array, ord: float, dims: Any, keepdims: bool) -> Array:
    """The norm over axes, of which there may be none; None: all."""
    return measured(name, x, partial(norms_of_vectors, xp), axis=axes_of(x, dims), keepdims=keepdims, ord=ord)


def _of_matrices(name: str, xp: Module, x: Array, ord: Any, dims: Any, keepdims: bool) -> Array:
    if x.ndim < 2:
        raise InvalidArgument(f"{name} of a tensor of shape {x.shape}; it takes matrices, in two axes")
    rows, columns = axes_of(x, dims)
    if rows == columns:
        raise InvalidArgument(f"{name} over axes {tuple(dims)} of a tensor of shape {x.shape}; give two different axes")
    found = measured(name, xp.moveaxis(x, (rows, columns), (-2, -1)), xp.linalg.norm, ord=ord, axis=(-2, -1))
    return xp.expand_dims(found, sorted((rows, columns))) if keepdims else found


@operation(method=False, out=Out.COPIED, gradient=of_vector_norm)
def vector_norm(
    xp: Module,
    x: Array,
    /,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Any = None,
    keepdims: bool = False,
) -> Array:
    """The norm of all elements, or over axes: sum(abs(x) ** ord) ** (1 / ord).

    Order 0 counts the elements that are not 0; inf and -inf give the largest and the smallest absolute value.

    Args:
        dtype: convert to that first.

    Raises:
        IndexOutOfRange, InvalidArgument, DTypeError.
    """
    return of_vectors("vector_norm", xp, _typed(x, dtype), ord, _dims(dim, axis), keepdims or keepdim)


@operation(method=False, out=Out.COPIED, gradient=rules.of_matrix_norm)
def matrix_norm(
    xp: Module,
    x: Array,
    /,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    keepdims: bool = False,
) -> Array:
    """The norm of matrices in two axes: "fro", "nuc" (the sum of singular values), 1, 2, inf and their negatives.

    Args:
        dtype: convert to that first.

    Raises:
        IndexOutOfRange, InvalidArgument, DTypeError, LinAlgError (no convergence).
    """
    if not isinstance(dim, SEQUENCES) or len(dim) != 2:
        raise InvalidArgument(f"matrix_norm over axes {dim!r}; give two")
    return _of_matrices("matrix_norm", xp, _typed(x, dtype), ord, dim, keepdims or keepdim)


@operation(method=False, out=Out.COPIED, gradient=rules.of_norm)
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
    a, dims = _typed(x, dtype), _dims(dim, None)
    if ord is None:
        return of_vectors("norm", xp, a, 2, dims, keepdim)
    if dims is None and a.ndim == 2:
        dims = (0, 1)
    if isinstance(dims, SEQUENCES) and len(dims) == 2:
        return _of_matrices("norm", xp, a, ord, dims, keepdim)
    if isinstance(ord, str) or (dims is None and a.ndim > 2) or (isinstance(dims, SEQUENCES) and len(dims) > 2):
        raise InvalidArgument(f"norm with ord {ord!r} of a tensor of shape {a.shape}; give one or two axes as dim")
    return of_vectors("norm", xp, a, ord, dims, keepdim)


@operation(method=False, out=Out.COPIED, gradient=rules.of_condition)
def cond(xp: Module, x: Array, /, p: Any = None) -> Array:
    """The condition number: norm(x, p) * norm(inv(x), p); p None is 2, by singular values.

    It is inf if a matrix is singular, and 0 if it has no elements.


    Raises InvalidArgument (not square, unless p is None, 2 or -2), DTypeError, LinAlgError (no convergence).
    """
    a = matrices("cond", x, square=p not in (None, 2, -2))
    if not a.size:
        return xp.zeros(a.shape[:-2], a.real.dtype)
    return xp.asarray(numpys("cond", "gesdd", a, xp.linalg.cond, a, p)).astype(a.real.dtype, copy=False)


@operation(method=False, out=Out.COPIED)
def matrix_rank(
    xp: Module,
    x: Array,
    /,
    tol: float | Array | None = None,
    hermitian: bool = False,
    *,
    atol: float | Array | None = None,
    rtol: float | Array | None = None,
) -> Array:
    """The ranks of matrices, int64: the numbers of singular values above a bound.

    Args:
        tol: the same as `atol` with an `rtol` of 0.
        hermitian: the matrices are Hermitian; only their lower triangles are read.
        atol: singular values up to this do not count.
        rtol: those up to this part of the largest do not; None: max(m, n) * epsilon of the type, but 0 with an `atol`.

    Raises:
        InvalidArgument, DTypeError, LinAlgError (no convergence).
    """
    a = matrices("matrix_rank", x, square=hermitian)
    if tol is not None:
        atol, rtol = tol, 0
    if hermitian:
        values = xp.abs(numpys("matrix_rank", "syevd", a, xp.linalg.eigvalsh, a))
    else:
        values = numpys("matrix_rank", "gesdd", a, xp.linalg.svd, a, compute_uv=False)
    try:
        return xp.count_nonzero(values > smallest(xp, values, a, atol, rtol), axis=-1)
    except ValueError as error:
        shapes = xp.shape(atol), xp.shape(rtol)
        raise refused(error, f"matrix_rank with atol and rtol of shapes {shapes} of", a) from error


export(globals())
