"""Determinants of matrices. All take stacks of matrices. Nothing in this module blocks."""

from __future__ import annotations

from typing import NamedTuple

from .._tensor.core import Tensor
from .._tensor.dispatch import Array, Module, Out, export, operation
from . import solver_rules as rules
from .decompositions import svd
from .lapack import matrices, numpys
from .solvers import inv

__all__ = ["det", "slogdet"]


class SlogdetResult(NamedTuple):
    """Determinants are sign * exp(logabsdet)."""

    sign: Tensor
    logabsdet: Tensor


@operation(out=Out.COPIED, gradient=lambda g, x, result: rules.of_determinant(g, x, result, inv, svd))
def det(xp: Module, x: Array, /) -> Array:
    """Determinants (...) of square matrices. Raises InvalidArgument, DTypeError."""
    a = matrices("det", x, square=True)
    return numpys("det", "getrf", a, xp.linalg.det, a)


@operation(results=SlogdetResult, gradient=lambda g, x, result: rules.of_slogdet(g, x, result, inv, svd))
def slogdet(xp: Module, x: Array, /) -> SlogdetResult:
    """Signs (...) of determinants, and logarithms of their absolute values. Raises InvalidArgument, DTypeError."""
    a = matrices("slogdet", x, square=True)
    return SlogdetResult(*numpys("slogdet", "getrf", a, xp.linalg.slogdet, a))


export(globals())
