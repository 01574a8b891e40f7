"""Systems of linear equations, and inverses. All take stacks of matrices. Nothing in this module blocks.

A right side with one axis is a vector; one of the shape of the stack of matrices, without its last axis, a stack of
vectors; any other a stack of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor, axis_of, index_of
from .._tensor.dispatch import Array, Module, Out, composed, export, operation
from .._tensor.outputs import given_each
from ..errors import InvalidArgument
from ..storage.arguments import refused
from . import solver_rules as rules
from .lapack import FAILURES, LinAlgError, call, each, finite, floating, matrices, numpys, reported, same_type
from .pivots import pivots_of

__all__ = [
    "inv", "inv_ex", "lstsq", "lu_solve", "pinv", "solve", "solve_ex", "solve_triangular",
    "tensorinv", "tensorsolve",
]  # fmt: skip


DRIVERS: Final = ("gelsy", "gels", "gelsd", "gelss")
"""Values of `driver` of `lstsq`. One LAPACK routine computes all of them; they differ in the further results."""


class InvExResult(NamedTuple):
    """The inverse, and for each matrix an int32: 0, or which element of U's diagonal is 0."""

    inverse: Tensor
    info: Tensor


class LstsqResult(NamedTuple):
    """The result of `lstsq`; fields that a driver does not compute have no elements.

    Sums of squares (..., k) are computed if all matrices have more rows than columns and full rank.
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class SolveExResult(NamedTuple):
    """The solution, and for each matrix an int32: 0, or which element of U's diagonal is 0."""

    result: Tensor
    info: Tensor


def right_side(name: str, b: NDArray[Any], rows: int) -> NDArray[Any]:
    """`b` as a stack of matrices with `rows` rows. Raises InvalidArgument."""
    columns = b[:, None] if b.ndim == 1 else b
    if columns.ndim < 2 or columns.shape[-2] != rows:
        raise InvalidArgument(
            f"{name} with a right side of shape {b.shape}; it takes vectors or matrices of {rows} rows"
        )
    return columns


def is_vector(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether a right side is a vector, or a stack with one for each matrix, as torch sees it."""
    return b.ndim == 1 or b.shape == a.shape[:-1]


def _system(name: str, A: Array, B: Array, left: bool) -> tuple[Array, Array]:
    """The matrix and the right side, a matrix too, of a system with the unknown at the right."""
    a, b = matrices(name, A, square=True), floating(name, B)
    if left:
        return a, right_side(name, b[..., None] if is_vector(a, b) else b, a.shape[-1])
    if b.ndim < 2:
        raise InvalidArgument(f"{name} from the right with a vector; give a matrix of one row")
    return a.swapaxes(-1, -2), right_side(name, b.swapaxes(-1, -2), a.shape[-1])


def _solution(found: Array, A: Array, B: Array, left: bool) -> Array:
    """The solution of `_system`, in the shape of the right side."""
    if not left:
        return found.swapaxes(-1, -2)
    return found[..., 0] if is_vector(A, B) else found


def _of_solve(g: Tensor, A: Tensor, B: Tensor, result: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    return rules.of_solution(g, A, B, result, left, solve)


@operation(method=False, out=Out.COPIED, gradient={("A", "B"): _of_solve})
def solve(xp: Module, A: Array, /, B: Array, *, left: bool = True) -> Array:
    """X with A @ X = B (not left: X @ A = B), A (..., n, n).

    B has one vector (n) for all matrices, a vector (..., n) for each, or matrices (..., n, k).

    Raises LinAlgError (singular), InvalidArgument, DTypeError.
    """
    a, b = _system("solve", A, B, left)
    return _solution(numpys("solve", "gesv", a, xp.linalg.solve, a, b), A, B, left)


@operation(
    method=False,
    results=SolveExResult,
    gradient={("A", "B"): lambda g, A, B, result, left: rules.of_solution(g[0], A, B, result[0], left, solve)},
)
def solve_ex(xp: Module, A: Array, /, B: Array, *, left: bool = True, check_errors: bool = False) -> SolveExResult:
    """`solve` that reports in `info` which matrices are singular; their solutions are meaningless.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy), LinAlgError (singular, if `check_errors`).
    """
    a, b = _system("solve_ex", A, B, left)
    same_type("solve_ex", a, b)

    def compute(matrix: NDArray[Any], right: NDArray[Any]) -> Any:
        return reported("solve_ex", "gesv", check_errors, matrix, right)[2:]

    found, info = each(compute, ((b.shape[-2:], a.dtype), ((), np.int32)), a, b)
    return SolveExResult(_solution(found, A, B, left), info)


@operation(method=False, out=Out.COPIED, gradient=rules.of_inverse)
def inv(xp: Module, x: Array, /) -> Array:
    """The inverse of square matrices. Raises LinAlgError (singular), InvalidArgument, DTypeError."""
    a = matrices("inv", x, square=True)
    return numpys("inv", "gesv", a, xp.linalg.inv, a)


@operation(method=False, results=InvExResult, gradient=lambda g, result: rules.of_inverse(g[0], result[0]))
def inv_ex(xp: Module, x: Array, /, *, check_errors: bool = False) -> InvExResult:
    """`inv` that reports in `info` which matrices are singular; their inverses are meaningless.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy), LinAlgError (singular, if `check_errors`).
    """
    a = matrices("inv_ex", x, square=True)
    one = xp.eye(a.shape[-1], dtype=a.dtype)

    def compute(matrix: NDArray[Any]) -> Any:
        return reported("inv_ex", "gesv", check_errors, matrix, one)[2:]

    return InvExResult(*each(compute, ((a.shape[-2:], a.dtype), ((), np.int32)), a))


def smallest(xp: Module, values: Array, a: Array, atol: Any, rtol: Any) -> Array:
    """The bound (..., 1) up to which singular values (..., k) of matrices do not count.

    Args:
        atol: that value; None: 0.
        rtol: that part of the largest; None: the larger side times epsilon, but 0 where `atol` is above 0.
    """
    least = xp.asarray(0 if atol is None else atol)
    if rtol is None:
        rtol = xp.where(least > 0, 0, max(a.shape[-2:]) * float(np.finfo(a.dtype).eps))
    return xp.maximum(least[..., None], xp.asarray(rtol)[..., None] * values.max(-1, keepdims=True, initial=0))


@operation(method=False, out=Out.COPIED, gradient=rules.of_pseudo_inverse)
def pinv(
    xp: Module,
    x: Array,
    /,
    rcond: float | Array | None = None,
    hermitian: bool = False,
    *,
    atol: float | Array | None = None,
    rtol: float | Array | None = None,
) -> Array:
    """The pseudo-inverse (..., n, m) of matrices (..., m, n).

    Args:
        rcond: another name of `rtol`.
        hermitian: the matrices are Hermitian; only their lower triangles are read.
        atol: singular values up to this count as 0.
        rtol: so do those up to this part of the largest; None: max(m, n) * epsilon of the type, but 0 with an `atol`.

    Raises LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    a = matrices("pinv", x, square=hermitian)
    relative = rcond if rtol is None else rtol
    if hermitian:
        values, u = numpys("pinv", "syevd", a, xp.linalg.eigh, a)
        v = u
    else:
        u, values, vh = numpys("pinv", "gesdd", a, xp.linalg.svd, finite("pinv", "gesdd", a), full_matrices=False)
        v = vh.swapaxes(-1, -2).conj()
    try:
        counts = xp.abs(values) > smallest(xp, xp.abs(values), a, atol, relative)
        scales = xp.where(counts, 1 / xp.where(counts, values, 1), 0).astype(values.dtype, copy=False)
        return (v * scales[..., None, :]) @ u.swapaxes(-1, -2).conj()
    except ValueError as error:
        shapes = xp.shape(atol), xp.shape(relative)
        raise refused(error, f"pinv with atol and rtol of shapes {shapes} of", a) from error


@operation(
    method=False,
    name="lstsq",
    function=False,
    results=LstsqResult,
    gradient={("A", "b"): lambda g, A, b, result: rules.of_least_squares(g, A, b, result, pinv)},
)
def _lstsq(xp: Module, A: Array, b: Array, rcond: float | None, driver: str | None) -> LstsqResult:
    """What `lstsq` gives."""
    a, right = matrices("lstsq", A), floating("lstsq", b)
    same_type("lstsq", a, right)
    if driver is not None and driver not in DRIVERS:
        raise InvalidArgument(f"lstsq with driver {driver!r}; use one of {', '.join(DRIVERS)}")
    is_one = is_vector(a, right)
    columns = right_side("lstsq", right[..., None] if is_one else right, a.shape[-2])
    (m, n), k = a.shape[-2:], columns.shape[-1]

    def compute(matrix: NDArray[Any], its: NDArray[Any]) -> tuple[Any, ...]:
        finite("lstsq", "gelsd", matrix), finite("lstsq", "gelsd", its)
        found = numpys("lstsq", "gelsd", matrix, xp.linalg.lstsq, matrix, its, rcond)
        return found[0], found[2], found[3]

    solution, rank, singular = each(
        compute, (((n, k), a.dtype), ((), np.int64), ((min(m, n),), a.real.dtype)), a, columns
    )
    residuals = xp.zeros(0, a.real.dtype)
    if m > n and driver not in (None, "gelsy") and (driver == "gels" or (rank == n).all()):
        residuals = (xp.abs(columns - a @ solution) ** 2).sum(-2)
    if driver == "gels":
        rank = xp.zeros(0, np.int64)
    if driver not in ("gelsd", "gelss"):
        singular = xp.zeros(0, a.real.dtype)
    return LstsqResult(solution[..., 0] if is_one else solution, residuals, rank, singular)


@composed(method=False)
def lstsq(
    input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None
) -> LstsqResult:
    """The least-squares solution X of input @ X = b, the smallest of several: (..., m, n), (m) or (..., m, k).

    Args:
        rcond: singular values up to this part of the largest count as 0; None: max(m, n) * epsilon of the type.
        driver: "gelsy" (None), "gels", "gelsd" or "gelss".

    Returns:
        The solution (n) or (..., n, k), sums of squares of the residuals (all but gelsy), ranks (all but gels),
        singular values (gelsd, gelss).

    Raises:
        LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    found = _lstsq(input, b, rcond, driver)
    return given_each(found._replace(singular_values=found.singular_values.detach()), out, "lstsq")  # type: ignore[no-any-return]


@operation(method=False, out=Out.COPIED, gradient=rules.of_tensor_inverse)
def tensorinv(xp: Module, x: Array, /, ind: int = 2) -> Array:
    """The inverse by `tensordot(..., ind)`. Raises LinAlgError, InvalidArgument (not square), DTypeError."""
    a, ind = floating("tensorinv", x), index_of(ind)
    if ind < 1 or math.prod(a.shape[:ind]) != math.prod(a.shape[ind:]):
        raise InvalidArgument(f"tensorinv of a tensor of shape {a.shape} with ind {ind}: the parts differ in size")
    return numpys("tensorinv", "gesv", a, xp.linalg.tensorinv, a, ind)


@operation(
    method=False,
    out=Out.COPIED,
    gradient={
        ("A", "other"): lambda g, A, other_shape, result, dims: rules.of_tensor_solution(
            g, A, other_shape, result, dims, solve
        )
    },
)
def tensorsolve(xp: Module, A: Array, /, other: Array, dims: Sequence[int] | None = None) -> Array:
    """X with tensordot(A, X, axes=X.ndim) = other; axes `dims` of A go to its end first.

    Raises LinAlgError (singular), IndexOutOfRange, InvalidArgument, DTypeError.
    """
    a, b = floating("tensorsolve", A), floating("tensorsolve", other)
    axes = None if dims is None else [axis_of(A, i) for i in dims]
    if a.size != b.size**2:
        raise InvalidArgument(
            f"tensorsolve of shapes {a.shape} and {b.shape}: {a.size} elements are not {b.size} squared"
        )
    return numpys("tensorsolve", "gesv", a, xp.linalg.tensorsolve, a, b, axes)


# -- computed by SciPy -------------------------------------------------------------------------------------------------


def _of_triangular(
    g: Tensor, A: Tensor, result: Tensor, upper: bool, left: bool, unitriangular: bool
) -> tuple[Tensor, Tensor]:
    return rules.of_triangular(g, A, result, upper, left, False, unitriangular, solve_triangular)


@operation(method=False, out=Out.COPIED, gradient={("A", "B"): _of_triangular})
def solve_triangular(
    xp: Module, A: Array, /, B: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """X with A @ X = B (not left: X @ A = B), where one triangle of A is read, without its diagonal if `unitriangular`.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    return triangular("solve_triangular", A, B, upper, left, False, unitriangular)


def triangular(name: str, A: Array, B: Array, upper: bool, left: bool, turned: bool, unit: bool) -> Array:
    """`solve_triangular`, with the transpose of A when `turned`. Raises as that function does."""
    a, b = matrices(name, A, square=True), floating(name, B)
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


def _of_lu_solve(
    g: Tensor, LU: Tensor, pivots: Tensor, B: Tensor, result: Tensor, left: bool, adjoint: bool
) -> tuple[Tensor, Tensor]:
    return rules.of_lu_solution(g, LU, pivots, B, result, left, adjoint, lu_solve)


@operation(method=False, out=Out.COPIED, gradient={("LU", "B"): _of_lu_solve})
def lu_solve(xp: Module, LU: Array, /, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False) -> Array:
    """X with A @ X = B (not left: X @ A = B; adjoint: A^H), from the factors of A that `lu_factor` gave.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    a, b, exchanged = (
        matrices("lu_solve", LU, square=True),
        floating("lu_solve", B),
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


export(globals())
