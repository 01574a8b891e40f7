"""LAPACK's part of TH, under TH's names and torch's: functions of `shmtensor` and methods of tensors.

They differ from `shmtensor.linalg` in their arguments: the right side comes before the matrix, `svd` gives V rather
than its adjoint, and TH's names take upper triangles. All take stacks unless the docstring says otherwise. Nothing in
this module blocks.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, Module, Out, composed, export, operation
from .._tensor.outputs import given_each
from ..errors import DTypeError, InvalidArgument, tensor_advice, type_name
from ..storage.arguments import SEQUENCES
from . import decompositions, factor_rules, norms, solver_rules, solvers
from .decompositions import (
    EighResult,
    LUFactorExResult,
    LUFactorResult,
    LUResult,
    QRResult,
    factored,
    reflectors,
    unpacked,
)
from .determinants import det, slogdet
from .functions import matrix_exp, matrix_power
from .lapack import call, each, finite, floating, matrices, numpys, same_type
from .pivots import pivots_of
from .solvers import right_side, triangular

__all__ = [
    "btrifact", "btrisolve", "cholesky", "cholesky_inverse", "cholesky_solve", "det", "geev", "gels", "geqrf", "gesv",
    "gesvd", "getri", "inverse", "logdet", "lu", "lu_solve", "lu_unpack", "matrix_exp", "matrix_power", "norm", "orgqr",
    "ormqr", "pinverse", "potrf", "potri", "potrs", "pstrf", "qr", "slogdet", "svd", "syev", "symeig",
    "triangular_solve", "trtrs",
]  # fmt: skip
FUNCTIONS: Final = tuple(__all__)
"""Functions of `shmtensor`."""
METHODS: Final = tuple(name for name in __all__ if name != "lu_unpack")


class SVDResult(NamedTuple):
    """U @ diag(S) @ V^H is the matrix; the singular values S descend."""

    U: Tensor
    S: Tensor
    V: Tensor


class EigenResult(NamedTuple):
    """Eigenvalues (n, 2), real and imaginary parts, and eigenvectors (n, n): a pair has its parts in two columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class GeqrfResult(NamedTuple):
    """R in the upper triangle, reflectors below; `orgqr` and `ormqr` take both."""

    a: Tensor
    tau: Tensor


class PstrfResult(NamedTuple):
    """A triangle, and the order int32 (from 0) in which it took rows and columns."""

    u: Tensor
    pivots: Tensor


class SolveResult(NamedTuple):
    """The solution, and the factors of the matrix in one."""

    solution: Tensor
    factors: Tensor


class TriangularResult(NamedTuple):
    """The solution, and a copy of the matrix."""

    solution: Tensor
    cloned_coefficient: Tensor


# -- systems of equations ----------------------------------------------------------------------------------------------


@operation(
    results=SolveResult,
    gradient={
        ("b", "a"): lambda g, b, a, result: solver_rules.of_solution(g[0], a, b, result[0], True, solvers.solve)[::-1]
    },
)
def gesv(xp: Module, b: Array, a: Array, /) -> SolveResult:
    """X with a @ X = b, and both triangles of a, as `lu` has them.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    matrix, right = matrices("gesv", a, square=True), floating("gesv", b)
    same_type("gesv", matrix, right)
    columns = right_side("gesv", right, matrix.shape[-1])

    def compute(one: NDArray[Any], its: NDArray[Any]) -> tuple[Any, Any]:
        both, _pivots, found = call("gesv", "gesv", one, its)
        return found, both

    found, both = each(
        compute, ((columns.shape[-2:], matrix.dtype), (matrix.shape[-2:], matrix.dtype)), matrix, columns
    )
    return SolveResult(found[..., 0] if right.ndim == 1 else found, both)


@operation(results=SolveResult)
def gels(xp: Module, b: Array, a: Array, /) -> SolveResult:
    """The least-squares solution X of a @ X = b, a of full rank, and the QR (or LQ) factors of a, as `geqrf` has them.

    As in TH, X has the shape (max(m, n), k), where the rows from n on have the residuals.

    Raises LinAlgError (not of full rank), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    matrix, right = matrices("gels", a), floating("gels", b)
    same_type("gels", matrix, right)
    m, n = matrix.shape[-2:]
    columns = right_side("gels", right, m)
    tall = xp.zeros((*columns.shape[:-2], max(m, n), columns.shape[-1]), matrix.dtype)
    tall[..., :m, :] = columns

    def compute(one: NDArray[Any], its: NDArray[Any]) -> tuple[Any, Any]:
        factors, found = call("gels", "gels", one, its)
        return found, factors

    found, factors = each(compute, ((tall.shape[-2:], matrix.dtype), ((m, n), matrix.dtype)), matrix, tall)
    return SolveResult(found[..., 0] if right.ndim == 1 else found, factors)


def _of_triangular_solve(
    g: Any, A: Tensor, result: Any, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[Tensor, Tensor]:
    of_matrix, of_right = solver_rules.of_triangular(
        g[0], A, result[0], upper, True, transpose, unitriangular, solvers.solve_triangular
    )
    return of_right, of_matrix + g[1]


@operation("trtrs", results=TriangularResult, gradient={("b", "A"): _of_triangular_solve})
def triangular_solve(
    xp: Module, b: Array, /, A: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularResult:
    """X with A @ X = b (transpose: A^T), where one triangle of A counts, without its diagonal if `unitriangular`.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    found = triangular("triangular_solve", A, b, upper, True, transpose, unitriangular)
    return TriangularResult(found, A.copy())


trtrs = triangular_solve


# -- positive definite matrices ----------------------------------------------------------------------------------------


@composed()
def cholesky(input: Tensor, upper: bool = False, *, out: Any = None) -> Tensor:
    """`linalg.cholesky`: L, or U. Raises LinAlgError (not positive definite), InvalidArgument, DTypeError."""
    return decompositions.cholesky(input, upper=upper, out=out)


@composed()
def potrf(input: Tensor, upper: bool = True) -> Tensor:
    """`cholesky` with TH's default, the upper triangle. Raises as that function does."""
    return cholesky(input, upper)


def _of_cholesky_solve(g: Tensor, b: Tensor, result: Tensor, input2: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    return factor_rules.of_cholesky_solution(g, b, result, input2, upper, cholesky_solve)


@operation(out=Out.COPIED, gradient={("b", "input2"): _of_cholesky_solve})
def cholesky_solve(xp: Module, b: Array, /, input2: Array, upper: bool = False) -> Array:
    """X with A @ X = b, from the factor of A that `cholesky` gave.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    c, right = matrices("cholesky_solve", input2, square=True), floating("cholesky_solve", b)
    same_type("cholesky_solve", c, right)
    columns = right_side("cholesky_solve", right, c.shape[-1])

    def compute(one: NDArray[Any], its: NDArray[Any]) -> Any:
        return call("cholesky_solve", "potrs", one, its, lower=not upper)

    (found,) = each(compute, ((columns.shape[-2:], c.dtype),), c, columns)
    return found[..., 0] if right.ndim == 1 else found


@composed()
def potrs(input: Tensor, factor: Tensor, upper: bool = True) -> Tensor:
    """`cholesky_solve` with TH's default, the upper triangle. Raises as that function does."""
    return cholesky_solve(input, factor, upper)


@operation(out=Out.COPIED, gradient=factor_rules.of_cholesky_inverse)
def cholesky_inverse(xp: Module, factor: Array, /, upper: bool = False) -> Array:
    """The inverse of A, from the factor of A that `cholesky` gave.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    c = matrices("cholesky_inverse", factor, square=True)

    def compute(one: NDArray[Any]) -> Any:
        (half,) = call("cholesky_inverse", "potri", one, lower=not upper)
        half = np.triu(half) if upper else np.tril(half)
        other = half.conj().T.copy()
        np.fill_diagonal(other, 0)
        return (half + other,)

    return each(compute, ((c.shape[-2:], c.dtype),), c)[0]


@composed()
def potri(factor: Tensor, /, upper: bool = True) -> Tensor:
    """`cholesky_inverse` with TH's default, the upper triangle. Raises as that function does."""
    return cholesky_inverse(factor, upper)


@operation(results=PstrfResult)
def pstrf(xp: Module, x: Array, /, upper: bool = True, tol: float = -1) -> PstrfResult:
    """Cholesky's factor with pivots: of x[p][:, p], where p is the order that `pivots` gives.

    Args:
        tol: stop at a pivot below this; if `tol` is below 0: n * epsilon * the largest element of the diagonal.

    Raises:
        LinAlgError (not of full rank, or not positive), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    a = matrices("pstrf", x, square=True)

    def compute(one: NDArray[Any]) -> tuple[Any, Any]:
        half, pivots, _rank = call("pstrf", "pstrf", one, tol=tol, lower=not upper)
        return np.triu(half) if upper else np.tril(half), pivots - 1

    half, pivots = each(compute, ((a.shape[-2:], a.dtype), (a.shape[-1:], np.int32)), a)
    return PstrfResult(half, pivots)


# -- inverses and determinants -----------------------------------------------------------------------------------------


@composed("getri")
def inverse(input: Tensor) -> Tensor:
    """`linalg.inv`. Raises LinAlgError (singular), InvalidArgument, DTypeError."""
    return solvers.inv(input)


getri = inverse


@composed()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv` with torch's bound. Raises LinAlgError (no convergence), InvalidArgument, DTypeError."""
    return solvers.pinv(input, rcond)


def _of_logdet(g: Tensor, x: Tensor, result: Tensor) -> Tensor:
    is_singular = result.real == -math.inf
    return solver_rules.of_log_determinant(g, x, result.exp(), is_singular, solvers.inv, decompositions.svd)


@operation(out=Out.COPIED, gradient=_of_logdet)
def logdet(xp: Module, x: Array, /) -> Array:
    """Logarithms of determinants: NaN where one is negative, -inf where it is 0. Raises InvalidArgument, DTypeError."""
    a = matrices("logdet", x, square=True)
    sign, size = numpys("logdet", "getrf", a, xp.linalg.slogdet, a)
    with np.errstate(divide="ignore", invalid="ignore"):
        return xp.where(sign == 0, -np.inf, xp.log(sign) + size).astype(a.dtype)


# -- orthogonal factors ------------------------------------------------------------------------------------------------


@composed()
def qr(input: Tensor, some: bool = True, *, out: Any = None) -> QRResult:
    """`linalg.qr`; not `some`: a square Q. Raises InvalidArgument, DTypeError."""
    return decompositions.qr(input, mode="reduced" if some else "complete", out=out)


@operation(results=GeqrfResult)
def geqrf(xp: Module, x: Array, /) -> GeqrfResult:
    """R and the reflectors whose product is Q, in one matrix, and the scales of the reflectors. Raises as qr does."""
    a = matrices("geqrf", x)
    turned, tau = numpys("geqrf", "geqrf", a, xp.linalg.qr, a, "raw")
    return GeqrfResult(turned.swapaxes(-1, -2), tau)


@composed()
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`linalg.householder_product` of what geqrf gave: the columns of Q. Raises as that function does."""
    return decompositions.householder_product(input, input2)


def _of_ormqr(
    g: Tensor, x: Tensor, input2: Tensor, input3: Tensor, left: bool, transpose: bool
) -> tuple[Tensor, Tensor, Tensor]:
    of_other = ormqr(x.conj(), input2.conj(), g, left, not transpose)
    other = input3.conj()
    first, second = (other, g) if left == transpose else (g, other)
    of_q = first @ second.mH if left else first.mH @ second
    return *factor_rules.of_reflectors(of_q, x, input2), of_other


@operation(out=Out.COPIED, gradient={("x", "input2", "input3"): _of_ormqr})
def ormqr(xp: Module, x: Array, /, input2: Array, input3: Array, left: bool = True, transpose: bool = False) -> Array:
    """Q @ input3 (not left: input3 @ Q; transpose: Q^H), with the square Q of what geqrf gave: x and input2.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    a, scales = reflectors("ormqr", x, input2)
    c = matrices("ormqr", input3)
    same_type("ormqr", a, c)
    k = scales.shape[-1]
    if a.shape[-2] != c.shape[-2 if left else -1] or not k <= min(a.shape[-2:]):
        raise InvalidArgument(f"ormqr of shapes {a.shape}, {scales.shape} and {c.shape}, which do not match")
    if not k:
        return c.copy()
    side, turned = "L" if left else "R", ("C" if a.dtype.kind == "c" else "T") if transpose else "N"

    def compute(one: NDArray[Any], its: NDArray[Any], vector: NDArray[Any]) -> Any:
        work = 64 * (65 + (its.shape[1] if left else its.shape[0]))  # for blocks of the largest size
        return call("ormqr", "ormqr", side, turned, one, vector, its, work)[:1]

    return each(compute, ((c.shape[-2:], a.dtype),), a[..., :k], c, scales, vectors=1)[0]


def _of_svd(g: Any, x: Tensor, result: Any, compute_uv: bool) -> Tensor:
    if compute_uv:
        u, s, v = result
        return factor_rules.of_svd(g[0], g[1], g[2].mH, u.conj(), s, v.mT)
    u, _, vh = decompositions.svd(x.conj(), full_matrices=False)
    return factor_rules.of_singular_values(g[1], u, vh)


@operation("gesvd", results=SVDResult, gradient=_of_svd)
def svd(xp: Module, x: Array, /, some: bool = True, compute_uv: bool = True) -> SVDResult:
    """U, S and V, where `linalg.svd` gives V^H; without compute_uv, U and V are zeros.

    Raises LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    a = matrices("svd", x)
    if compute_uv:
        u, s, vh = numpys("svd", "gesdd", a, xp.linalg.svd, finite("svd", "gesdd", a), not some)
        return SVDResult(u, s, vh.swapaxes(-1, -2).conj())
    s = numpys("svd", "gesdd", a, xp.linalg.svd, a, compute_uv=False)
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    return SVDResult(xp.zeros((*lead, m, m), a.dtype), s, xp.zeros((*lead, n, n), a.dtype))


gesvd = svd


# -- eigenvalues -------------------------------------------------------------------------------------------------------


def _of_symeig(g: Any, x: Tensor, result: Any, eigenvectors: bool, upper: bool) -> Tensor:
    if eigenvectors:
        return factor_rules.of_symmetric(g[0], g[1], result[0], result[1].conj())
    return factor_rules.of_eigenvalues(g[0], decompositions.eigh(x.conj(), "U" if upper else "L")[1])


@operation("syev", results=EighResult, gradient=_of_symeig)
def symeig(xp: Module, x: Array, /, eigenvectors: bool = False, upper: bool = True) -> EighResult:
    """`linalg.eigh` of the upper or lower triangle; without eigenvectors, these have no elements.

    Raises LinAlgError (no convergence), InvalidArgument, DTypeError.
    """
    a, triangle = matrices("symeig", x, square=True), "U" if upper else "L"
    if eigenvectors:
        return EighResult(*numpys("symeig", "syevd", a, xp.linalg.eigh, a, triangle))
    return EighResult(numpys("symeig", "syevd", a, xp.linalg.eigvalsh, a, triangle), xp.empty(0, a.dtype))


syev = symeig


@operation(results=EigenResult)
def geev(xp: Module, x: Array, /, eigenvectors: bool = False) -> EigenResult:
    """Eigenvalues of a real square matrix as TH gives them, in real numbers; `linalg.eig` has them complex.

    Raises LinAlgError (no convergence), InvalidArgument (a stack), DTypeError (a complex type).
    """
    a = matrices("geev", x, square=True)
    if a.ndim != 2:
        raise InvalidArgument(f"geev of a tensor of shape {a.shape}; it takes one matrix, not a stack: use linalg.eig")
    if a.dtype.kind == "c":
        raise DTypeError(f"geev of a tensor of {a.dtype.name}; it takes real matrices: use linalg.eig")
    values, vectors = numpys("geev", "geev", a, xp.linalg.eig, a)
    parts = xp.stack([values.real, values.imag], -1)
    columns = xp.where(values.imag < 0, -vectors.imag, vectors.real)  # of a pair, the one with imag > 0 comes first
    return EigenResult(parts, columns if eigenvectors else xp.empty(0, a.dtype))


# -- triangular factors ------------------------------------------------------------------------------------------------


@operation(
    name="lu",
    function=False,
    method=False,
    gradient=lambda g, result: factor_rules.of_lu_factors(g[0], result[0], result[1]),
)
def _factored(xp: Module, x: Array, pivot: bool) -> tuple[Array, ...]:
    """Factors, pivots and infos."""
    return factored("lu", x, strict=False, pivot=pivot)


@composed()
def lu(input: Tensor, pivot: bool = True, get_infos: bool = False, *, out: Any = None) -> Any:
    """`linalg.lu_factor`, of singular matrices too: factors and pivots; with `get_infos` also int32, not 0 if singular.

    Raises InvalidArgument, DTypeError, NotSupported (pivot=False), MissingExtra (SciPy).
    """
    found = tuple(_factored(input, pivot))
    return given_each(LUFactorExResult(*found) if get_infos else found[:2], out, "lu")


@composed()
def btrifact(input: Tensor) -> LUFactorResult:
    """`linalg.lu_factor` under TH's name. Raises LinAlgError (singular) as that."""
    return decompositions.lu_factor(input)


@composed("btrisolve")
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Any = None) -> Tensor:
    """`linalg.lu_solve` with the right side first. Raises as that function does."""
    return solvers.lu_solve(LU_data, LU_pivots, input, out=out)


btrisolve = lu_solve


@operation(method=False, results=LUResult, gradient=factor_rules.of_unpacked)
def lu_unpack(
    xp: Module, LU_data: Array, /, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> LUResult:
    """P, L and U from what `lu` gave; factors that are not unpacked have no elements.

    Raises InvalidArgument, DTypeError.
    """
    both = matrices("lu_unpack", LU_data)
    p, lower, upper = unpacked(both, pivots_of("lu_unpack", LU_pivots))
    nothing = xp.empty(0, both.dtype)
    if not unpack_data:
        lower = upper = nothing
    return LUResult(p if unpack_pivots else nothing, lower, upper)


# -- norms -------------------------------------------------------------------------------------------------------------


@composed()
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """The p-norm of all elements, or over axes; "fro" is the 2-norm, "nuc" the sum of a matrix's singular values.

    Raises IndexOutOfRange, InvalidArgument, DTypeError, LinAlgError (no convergence).
    """
    if not isinstance(input, Tensor):
        raise DTypeError(f"norm of a {type_name(input)}; {tensor_advice(input)}")
    input = input if dtype is None else input.to(dtype)
    named = p if isinstance(p, str) else None
    if named == "nuc":
        return norms.norm(input, "nuc", tuple(range(input.ndim)) if dim is None else dim, keepdim, out=out)
    if dim is not None and isinstance(dim, SEQUENCES) and not len(dim):
        dim = None
    return norms.vector_norm(input, axis=dim, keepdims=keepdim, ord=2 if p is None or named == "fro" else p, out=out)


export(globals())
