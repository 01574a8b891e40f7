"""Decompositions of matrices. All functions take stacks of matrices, in the last two axes. Nothing here blocks."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, Module, Out, export, operation
from ..errors import InvalidArgument, NotSupported
from . import factor_rules as rules
from .lapack import call, each, finite, floating, matrices, numpys, reported, same_type
from .pivots import permutation_of
from .solvers import solve

__all__ = [
    "cholesky", "cholesky_ex", "eig", "eigh", "eigvals", "eigvalsh", "householder_product", "lu", "lu_factor",
    "lu_factor_ex", "qr", "svd", "svdvals",
]  # fmt: skip
DRIVERS: Final = (None, "gesvd", "gesvdj", "gesvda")
"""Names of routines that torch's callers give to `svd`; here one routine computes all."""


class CholeskyExResult(NamedTuple):
    """The factor, and for each matrix an int32: 0, or the order of a leading minor that is not positive definite."""

    L: Tensor
    info: Tensor


class EigResult(NamedTuple):
    """Eigenvalues (..., n), in no order, and eigenvectors (..., n, n), the columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """Eigenvalues (..., n), ascending, and eigenvectors (..., n, n), the columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class LUFactorResult(NamedTuple):
    """Both factors in one matrix, and pivots: row i (from 0) was exchanged with row pivots[i] - 1, int32."""

    LU: Tensor
    pivots: Tensor


class LUFactorExResult(NamedTuple):
    """Both factors in one matrix, pivots, and for each matrix an int32: 0, or which element of U's diagonal is 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class LUResult(NamedTuple):
    """P @ L @ U is the matrix: a permutation, a lower triangle with ones on its diagonal, an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class QRResult(NamedTuple):
    """Q @ R is the matrix: orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """U @ diag(S) @ Vh is the matrix; the singular values S descend."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@operation(method=False, out=Out.COPIED, gradient=rules.of_cholesky)
def cholesky(xp: Module, x: Array, /, *, upper: bool = False) -> Array:
    """L with L @ L^H = x (upper: U with U^H @ U = x) for a positive definite matrix; only one triangle of it is read.

    Raises LinAlgError (not positive definite), InvalidArgument, DTypeError.
    """
    a = matrices("cholesky", x, square=True)
    return numpys("cholesky", "potrf", a, xp.linalg.cholesky, a, upper=upper)


@operation(
    method=False, results=CholeskyExResult, gradient=lambda g, result, upper: rules.of_cholesky(g[0], result[0], upper)
)
def cholesky_ex(xp: Module, x: Array, /, *, upper: bool = False, check_errors: bool = False) -> CholeskyExResult:
    """`cholesky` that reports in `info` which matrices are not positive definite; their factors are meaningless.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy), LinAlgError (not positive definite, if `check_errors`).
    """
    a = matrices("cholesky_ex", x, square=True)

    def compute(matrix: NDArray[Any]) -> tuple[Any, ...]:
        factor, info = reported("cholesky_ex", "potrf", check_errors, matrix, lower=not upper, clean=True)
        return factor, info

    return CholeskyExResult(*each(compute, ((a.shape[-2:], a.dtype), ((), np.int32)), a))


@operation(method=False, results=QRResult, gradient=rules.of_qr)
def qr(xp: Module, x: Array, /, mode: str = "reduced") -> QRResult:
    """Q (..., m, k) and R (..., k, n) with k the smaller of m and n; mode "complete": k = m; "r": Q has no elements.

    Raises InvalidArgument, DTypeError.
    """
    a = matrices("qr", x)
    if mode == "r":
        return QRResult(xp.empty(0, a.dtype), numpys("qr", "geqrf", a, xp.linalg.qr, a, mode))
    if mode not in ("reduced", "complete"):
        raise InvalidArgument(f"qr with mode {mode!r}; use 'reduced', 'complete' or 'r'")
    q, r = numpys("qr", "geqrf", a, xp.linalg.qr, a, mode)
    return QRResult(q, r)


def require_driver(name: str, driver: str | None) -> None:
    """Refuse the name of a routine that torch does not know. Raises InvalidArgument."""
    if driver not in DRIVERS:
        raise InvalidArgument(f"{name} with driver {driver!r}; use one of {', '.join(map(repr, DRIVERS))}")


def _of_svd(g: Any, result: Any) -> Tensor:
    return rules.of_svd(g[0], g[1], g[2], *[one.conj() for one in result])


@operation(method=False, results=SVDResult, gradient=_of_svd)
def svd(xp: Module, x: Array, /, full_matrices: bool = True, *, driver: str | None = None) -> SVDResult:
    """U (..., m, m), S (..., k) and Vh (..., n, n) with k the smaller of m and n; not full: (..., m, k), (..., k, n).

    Raises LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    require_driver("svd", driver)
    a = matrices("svd", x)
    return SVDResult(*numpys("svd", "gesdd", a, xp.linalg.svd, finite("svd", "gesdd", a), full_matrices))


def _of_svdvals(g: Tensor, x: Tensor) -> Tensor:
    u, _, vh = svd(x.conj(), full_matrices=False)
    return rules.of_singular_values(g, u, vh)


@operation(method=False, out=Out.COPIED, gradient=_of_svdvals)
def svdvals(xp: Module, x: Array, /, *, driver: str | None = None) -> Array:
    """Singular values (..., k), descending. Raises LinAlgError (no convergence), InvalidArgument, DTypeError."""
    require_driver("svdvals", driver)
    a = matrices("svdvals", x)
    return numpys("svdvals", "gesdd", a, xp.linalg.svd, a, compute_uv=False)


def _of_eigh(g: Any, result: Any) -> Tensor:
    return rules.of_symmetric(g[0], g[1], result[0], result[1].conj())


@operation(method=False, results=EighResult, gradient=_of_eigh)
def eigh(xp: Module, x: Array, /, UPLO: str = "L") -> EighResult:
    """Eigenvalues and eigenvectors of a symmetric or Hermitian matrix; only the triangle "L" or "U" is read.

    Raises LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    a = matrices("eigh", x, square=True)
    return EighResult(*numpys("eigh", "syevd", a, xp.linalg.eigh, a, UPLO))


@operation(method=False, out=Out.COPIED, gradient=lambda g, x, UPLO: rules.of_eigenvalues(g, eigh(x.conj(), UPLO)[1]))
def eigvalsh(xp: Module, x: Array, /, UPLO: str = "L") -> Array:
    """Eigenvalues (..., n), ascending, of a symmetric or Hermitian matrix. Raises as eigh does."""
    a = matrices("eigvalsh", x, square=True)
    return numpys("eigvalsh", "syevd", a, xp.linalg.eigvalsh, a, UPLO)


def _complex(a: NDArray[Any], found: Any) -> Array:
    return found.astype(np.result_type(a.dtype, np.complex64), copy=False)


@operation(
    method=False,
    results=EigResult,
    gradient=lambda g, result: rules.of_eigen(g[0], g[1], result[0].conj(), result[1].conj()),
)
def eig(xp: Module, x: Array, /) -> EigResult:
    """Eigenvalues and eigenvectors of any square matrix; complex ones, for real matrices too.

    Raises LinAlgError (no convergence, or values that are not finite), InvalidArgument, DTypeError.
    """
    a = matrices("eig", x, square=True)
    values, vectors = numpys("eig", "geev", a, xp.linalg.eig, a)
    return EigResult(_complex(a, values), _complex(a, vectors))


def _of_eigvals(g: Tensor, x: Tensor) -> Tensor:
    vectors = eig(x.conj())[1]
    return solve(vectors.mH, g.unsqueeze(-1) * vectors.mH)


@operation(method=False, out=Out.COPIED, gradient=_of_eigvals)
def eigvals(xp: Module, x: Array, /) -> Array:
    """Eigenvalues (..., n) of any square matrix, complex. Raises as eig does."""
    a = matrices("eigvals", x, square=True)
    return _complex(a, numpys("eigvals", "geev", a, xp.linalg.eigvals, a))


# -- computed by SciPy -------------------------------------------------------------------------------------------------


def factored(name: str, x: Array, *, strict: bool, pivot: bool = True) -> tuple[Array, Array, Array]:
    """Both factors in one array, pivots from 1, and the routine's reports.

    Raises LinAlgError (singular, when strict), NotSupported (without pivots), MissingExtra.
    """
    a = matrices(name, x)
    if not pivot:
        raise NotSupported(f"{name} with pivot=False; LAPACK has it with pivots only: leave pivot out")

    def compute(matrix: NDArray[Any]) -> tuple[Any, ...]:
        both, pivots, info = reported(name, "getrf", strict, matrix)
        return both, pivots + 1, info

    both, pivots, info = each(compute, ((a.shape[-2:], a.dtype), ((min(a.shape[-2:]),), np.int32), ((), np.int32)), a)
    return both, pivots, info


def unpacked(both: NDArray[Any], pivots: NDArray[Any]) -> tuple[Any, Any, Any]:
    """The three factors that `factored` gave in one array. Raises InvalidArgument: pivots of another size."""
    m, n = both.shape[-2:]
    k = min(m, n)
    if pivots.shape != (*both.shape[:-2], k) or (pivots.size and not 1 <= pivots.min() <= pivots.max() <= m):
        raise InvalidArgument(f"pivots of shape {pivots.shape} are not those of factors of shape {both.shape}")
    permutation = permutation_of(pivots, m, both.dtype)
    lower = np.tril(both[..., :k], -1) + np.eye(m, k, dtype=both.dtype)
    return permutation, lower, np.triu(both[..., :k, :])


@operation(
    method=False, results=LUFactorResult, gradient=lambda g, result: rules.of_lu_factors(g[0], result[0], result[1])
)
def lu_factor(xp: Module, x: Array, /, *, pivot: bool = True) -> LUFactorResult:
    """L and U in one matrix, and the exchanges of rows that made them; `lu_solve` takes them.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, NotSupported (pivot=False), MissingExtra (SciPy).
    """
    return LUFactorResult(*factored("lu_factor", x, strict=True, pivot=pivot)[:2])


@operation(
    method=False, results=LUFactorExResult, gradient=lambda g, result: rules.of_lu_factors(g[0], result[0], result[1])
)
def lu_factor_ex(xp: Module, x: Array, /, *, pivot: bool = True, check_errors: bool = False) -> LUFactorExResult:
    """`lu_factor` that reports in `info` which matrices are singular.

    Raises InvalidArgument, DTypeError, NotSupported (pivot=False), MissingExtra (SciPy), LinAlgError (singular, if
    `check_errors`).
    """
    return LUFactorExResult(*factored("lu_factor_ex", x, strict=check_errors, pivot=pivot))


@operation(
    method=False, results=LUResult, gradient=lambda g, result: rules.of_lu(g[1], g[2], *[one.conj() for one in result])
)
def lu(xp: Module, x: Array, /, *, pivot: bool = True) -> LUResult:
    """P (..., m, m), L (..., m, k) and U (..., k, n) with x = P @ L @ U; of singular matrices too.

    Raises InvalidArgument, DTypeError, NotSupported (pivot=False), MissingExtra (SciPy).
    """
    return LUResult(*unpacked(*factored("lu", x, strict=False, pivot=pivot)[:2]))


@operation(method=False, out=Out.COPIED, gradient={("x", "tau"): rules.of_reflectors})
def householder_product(xp: Module, x: Array, /, tau: Array) -> Array:
    """The first n columns of the product of k reflectors: x (..., m, n) has them below its diagonal, tau (..., k).

    Raises InvalidArgument (unless m >= n >= k), DTypeError, MissingExtra (SciPy).
    """
    a, scales = reflectors("householder_product", x, tau)
    m, n = a.shape[-2:]
    if not m >= n >= scales.shape[-1]:
        raise InvalidArgument(
            f"householder_product of shapes {a.shape} and {scales.shape}: rows >= columns >= reflectors is required"
        )
    if not scales.shape[-1]:
        return np.broadcast_to(xp.eye(m, n, dtype=a.dtype), a.shape).copy()

    def compute(matrix: NDArray[Any], vector: NDArray[Any]) -> Any:
        # LAPACK's wrapper takes as many columns as there are reflectors; more of them have the scale 0.
        return call("householder_product", "orgqr", matrix, vector)[:1]

    filled = xp.zeros((*scales.shape[:-1], n), a.dtype)
    filled[..., : scales.shape[-1]] = scales
    return each(compute, ((a.shape[-2:], a.dtype),), a, filled, vectors=1)[0]


def reflectors(name: str, x: Array, tau: Array) -> tuple[Array, Array]:
    """The arrays of what `geqrf` gave. Raises InvalidArgument, DTypeError."""
    a, scales = matrices(name, x), floating(name, tau)
    same_type(name, a, scales)
    if not scales.ndim or scales.shape[:-1] != a.shape[:-2]:
        raise InvalidArgument(f"{name} of shapes {a.shape} and {scales.shape}; tau has one axis less")
    return a, scales


export(globals())
