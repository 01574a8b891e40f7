"""Factors of symmetric and Hermitian matrices that need not be positive definite, by SciPy. Nothing here blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, Module, Out, export, operation
from ..errors import InvalidArgument
from .lapack import call, each, matrices, reported, same_type

__all__ = ["ldl_factor", "ldl_factor_ex", "ldl_solve"]


class LDLFactorResult(NamedTuple):
    """Both factors in one lower triangle, and pivots as LAPACK's sytrf gives them, int32; `ldl_solve` takes them."""

    LD: Tensor
    pivots: Tensor


class LDLFactorExResult(NamedTuple):
    """Both factors, pivots, and for each matrix an int32: 0, or which block of D is singular."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


def _factored(name: str, x: Array, hermitian: bool, strict: bool) -> list[Array]:
    a = matrices(name, x, square=True)
    routine = "hetrf" if hermitian and a.dtype.kind == "c" else "sytrf"

    def compute(matrix: NDArray[Any]) -> tuple[Any, ...]:
        factors, pivots, info = reported(name, routine, strict, matrix, lower=True)
        return np.tril(factors), pivots, info

    return each(compute, ((a.shape[-2:], a.dtype), (a.shape[-1:], np.int32), ((), np.int32)), a)


@operation(method=False, results=LDLFactorResult)
def ldl_factor(xp: Module, x: Array, /, *, hermitian: bool = False) -> LDLFactorResult:
    """L and D with L @ D @ L^T = x (hermitian: L^H); only the lower triangle of x is read.

    Raises LinAlgError (singular), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    return LDLFactorResult(*_factored("ldl_factor", x, hermitian, strict=True)[:2])


@operation(method=False, results=LDLFactorExResult)
def ldl_factor_ex(xp: Module, x: Array, /, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorExResult:
    """`ldl_factor` that reports in `info` which matrices are singular.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy), LinAlgError (singular, if `check_errors`).
    """
    return LDLFactorExResult(*_factored("ldl_factor_ex", x, hermitian, strict=check_errors))


@operation(method=False, out=Out.COPIED)
def ldl_solve(xp: Module, LD: Array, /, pivots: Array, B: Array, *, hermitian: bool = False) -> Array:
    """X with A @ X = B (..., n, k), from the factors of A that `ldl_factor` gave.

    Raises InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    a, b = matrices("ldl_solve", LD, square=True), matrices("ldl_solve", B)
    same_type("ldl_solve", a, b)
    n = a.shape[-1]
    within = not pivots.size or 1 <= np.abs(pivots).min() <= np.abs(pivots).max() <= n
    if b.shape[-2] != n or pivots.dtype.kind != "i" or pivots.shape != a.shape[:-1] or not within:
        raise InvalidArgument(
            f"ldl_solve of factors of shape {a.shape}, pivots of shape {pivots.shape} and {pivots.dtype.name}, and a "
            f"right side of shape {b.shape}; give what ldl_factor gave, and {n} rows"
        )
    routine = "hetrs" if hermitian and a.dtype.kind == "c" else "sytrs"

    def compute(matrix: NDArray[Any], right: NDArray[Any], places: NDArray[Any]) -> list[Any]:
        return call("ldl_solve", routine, matrix, places, right, lower=True)

    return each(compute, ((b.shape[-2:], b.dtype),), a, b, pivots.astype(np.int32, copy=False), vectors=1)[0]


export(globals())
