"""Systems of linear equations, inverses and determinants. All take stacks of matrices. Nothing in this module blocks.

A right side with one axis is a vector, with more of them a stack of matrices, as in the array API.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor, axis_of, index_of
from .._tensor.dispatch import Array, Module, operation
from ..errors import InvalidArgument
from .decompositions import pivots_of
from .lapack import FAILURES, LinAlgError, call, each, floating, matrices, numpys, same_type

__all__ = [
    "det", "inv", "lstsq", "lu_solve", "pinv", "slogdet", "solve", "solve_triangular", "tensorinv", "tensorsolve",
]  # fmt: skip


class LstsqResult(NamedTuple):
    """What `lstsq` gives.

    Sums of squares (..., k) are there when all matrices have more rows than columns and full rank; else none are.
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class SlogdetResult(NamedTuple):
    """Determinants are sign * exp(logabsdet)."""

    sign: Tensor
    logabsdet: Tensor


def right_side(name: str, b: NDArray[Any], rows: int) -> NDArray[Any]:
    """`b` as a stack of matrices with so many rows. Raises InvalidArgument."""
    columns = b[:, None] if b.ndim == 1 else b
    if columns.ndim < 2 or columns.shape[-2] != rows:
        raise InvalidArgument(
            f"{name} with a right side of shape {b.shape}; it takes vectors or matrices of {rows} rows"
        )
    return columns


@operation(method=False)
def solve(xp: Module, x1: Array, x2: Array, /) -> Array:
    """X with x1 @ X = x2: (..., n, n) and (n) or (..., n, k).

    Raises LinAlgError (singular), InvalidArgument, DTypeError.
    """
    a, b = matrices("solve", x1, square=True), floating("solve", x2)
    right_side("solve", b, a.shape[-1])
    return numpys("solve", "gesv", a, xp.linalg.solve, a, b)


@operation(method=False)
def inv(xp: Module, x: Array, /) -> Array:
    """The inverse of square matrices. Raises LinAlgError (singular), InvalidArgument, DTypeError."""
    a = matrices("inv", x, square=True)
    return numpys("inv", "gesv", a, xp.linalg.inv, a)


@operation()
def det(xp: Module, x: Array, /) -> Array:
    """Determinants (...) of square matrices. Raises InvalidArgument, DTypeError."""
    a = matrices("det", x, square=True)
    return numpys("det", "getrf", a, xp.linalg.det, a)


@operation(results=SlogdetResult)
def slogdet(xp: Module, x: Array, /) -> SlogdetResult:
    """Signs (...) of determinants, and logarithms of their absolute values. Raises InvalidArgument, DTypeError."""
    a = matrices("slogdet", x, square=True)
    return SlogdetResult(*numpys("slogdet", "getrf", a, xp.linalg.slogdet, a))


def relative(rtol: float | Tensor | None, a: NDArray[Any]) -> Any:
    """A bound for singular values, by the largest: `rtol` or, for None, the larger side times epsilon."""
    if rtol is None:
        return max(a.shape[-2:]) * float(np.finfo(a.dtype).eps)
    return rtol


@operation(method=False)
def pinv(xp: Module, x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """The pseudo-inverse (..., n, m) of matrices (..., m, n).

    Args:
        rtol: singular values up to this part of the largest count as 0; None: max(m, n) * epsilon of the type.

    Raises LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    a = matrices("pinv", x)
    return numpys("pinv", "gesdd", a, xp.linalg.pinv, a, rcond=relative(rtol, a))


@operation(method=False, results=LstsqResult)
def lstsq(xp: Module, x1: Array, x2: Array, /, *, rcond: float | None = None) -> LstsqResult:
    """X for which x1 @ X comes nearest to x2, the smallest where there are several: (..., m, n), (m) or (..., m, k).

    Args:
        rcond: singular values up to this part of the largest count as 0; None: max(m, n) * epsilon of the type.

    Returns:
        The solution (n) or (..., n, k), sums of squares of what is missing (...), ranks (...), singular values.

    Raises:
        LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    a, b = matrices("lstsq", x1), floating("lstsq", x2)
    same_type("lstsq", a, b)
    columns = right_side("lstsq", b, a.shape[-2])
    (m, n), k = a.shape[-2:], columns.shape[-1]

    def compute(matrix: NDArray[Any], right: NDArray[Any]) -> tuple[Any, ...]:
        found = numpys("lstsq", "gelsd", matrix, xp.linalg.lstsq, matrix, right, rcond)
        return found[0], found[2], found[3]

    solution, rank, singular = each(
        compute, (((n, k), a.dtype), ((), np.int64), ((min(m, n),), a.real.dtype)), a, columns
    )
    residuals = xp.zeros(0, a.real.dtype)
    if m > n and (rank == n).all():
        residuals = (xp.abs(columns - a @ solution) ** 2).sum(-2)
    if b.ndim == 1:
        solution, residuals = solution[..., 0], residuals[..., 0] if residuals.size else residuals
    return LstsqResult(solution, residuals, rank, singular)


@operation(method=False)
def tensorinv(xp: Module, x: Array, /, ind: int = 2) -> Array:
    """The inverse by `tensordot(..., ind)`. Raises LinAlgError, InvalidArgument (not square so), DTypeError."""
    a, ind = floating("tensorinv", x), index_of(ind)
    if ind < 1 or math.prod(a.shape[:ind]) != math.prod(a.shape[ind:]):
        raise InvalidArgument(f"tensorinv of a tensor of shape {a.shape} with ind {ind}: the parts differ in size")
    return numpys("tensorinv", "gesv", a, xp.linalg.tensorinv, a, ind)


@operation(method=False)
def tensorsolve(xp: Module, x1: Array, x2: Array, /, dims: Sequence[int] | None = None) -> Array:
    """X with tensordot(x1, X, axes=X.ndim) = x2; axes `dims` of x1 go to its end first.

    Raises LinAlgError (singular), IndexOutOfRange, InvalidArgument, DTypeError.
    """
    a, b = floating("tensorsolve", x1), floating("tensorsolve", x2)
    axes = None if dims is None else [axis_of(x1, i) for i in dims]
    if a.size != b.size**2:
        raise InvalidArgument(
            f"tensorsolve of shapes {a.shape} and {b.shape}: {a.size} elements are not {b.size} squared"
        )
    return numpys("tensorsolve", "gesv", a, xp.linalg.tensorsolve, a, b, axes)


# -- what SciPy has and NumPy lacks ------------------------------------------------------------------------------------


@operation(method=False)
def solve_triangular(
    xp: Module, x1: Array, x2: Array, /, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """X with x1 @ X = x2 (not left: X @ x1 = x2), where of x1 one triangle counts, without its diagonal if unit.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    return triangular("solve_triangular", x1, x2, upper, left, False, unitriangular)


def triangular(name: str, x1: Array, x2: Array, upper: bool, left: bool, turned: bool, unit: bool) -> Array:
    """`solve_triangular`, with the transpose of x1 when `turned`. Raises as that function does."""
    a, b = matrices(name, x1, square=True), floating(name, x2)
    same_type(name, a, b)
    if not left:  # X @ A = B is A^T @ X^T = B^T
        if b.ndim < 2:
            raise InvalidArgument(f"{name} from the right with a vector; give a matrix of one row")
        b = b.swapaxes(-1, -2)
    columns = right_side(name, b, a.shape[-1])

    def compute(matrix: NDArray[Any], right: NDArray[Any]) -> Any:
        transposed = int(turned == left)
        return call(name, "trtrs", matrix, right, lower=not upper, trans=transposed, unitdiag=unit)[:1]

    (found,) = each(compute, ((columns.shape[-2:], a.dtype),), a, columns)
    if not left:
        return found.swapaxes(-1, -2)
    return found[..., 0] if b.ndim == 1 else found


@operation(method=False)
def lu_solve(
    xp: Module, factors: Array, pivots: Array, x2: Array, /, *, left: bool = True, adjoint: bool = False
) -> Array:
    """X with A @ X = x2 (not left: X @ A = x2; adjoint: A^H), from the factors of A that `lu_factor` gave.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    a, b, exchanged = (
        matrices("lu_solve", factors, square=True),
        floating("lu_solve", x2),
        pivots_of("lu_solve", pivots),
    )
    same_type("lu_solve", a, b)
    n = a.shape[-1]
    if not left:  # X @ A = B is A^H @ X^H = B^H
        if b.ndim < 2:
            raise InvalidArgument("lu_solve from the right with a vector; give a matrix of one row")
        b = b.swapaxes(-1, -2).conj()
    columns = right_side("lu_solve", b, n)
    if exchanged.shape[-1:] != (n,) or (exchanged.size and not 1 <= exchanged.min() <= exchanged.max() <= n):
        raise InvalidArgument(f"lu_solve with pivots of shape {exchanged.shape}; it takes {n} of them, from 1 to {n}")

    def compute(matrix: NDArray[Any], right: NDArray[Any], places: NDArray[Any]) -> Any:
        zeros = np.flatnonzero(matrix.diagonal() == 0)  # the routine would divide by them
        if zeros.size:
            raise LinAlgError(f"lu_solve: LAPACK getrs: {FAILURES['getrs'].format(zeros[0] + 1)}")
        return call("lu_solve", "getrs", matrix, places - 1, right, trans=2 * (adjoint == left))

    (found,) = each(compute, ((columns.shape[-2:], a.dtype),), a, columns, exchanged, vectors=1)
    if not left:
        return found.swapaxes(-1, -2).conj()
    return found[..., 0] if b.ndim == 1 else found
