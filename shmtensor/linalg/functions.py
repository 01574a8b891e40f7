"""Powers, products and functions (such as exp) of matrices; the functions need SciPy. Nothing here blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor, index_of
from .._tensor.dispatch import Array, Arrays, Module, Out, export, operation
from .._tensor.product_rules import of_factors
from ..errors import InvalidArgument
from ..storage.arguments import refused
from . import function_rules as rules
from .lapack import LinAlgError, matrices, numpys, scipy_linalg

__all__ = [
    "coshm", "cosm", "expm", "fractional_matrix_power", "funm", "logm", "matrix_exp", "matrix_power", "multi_dot",
    "signm", "sinhm", "sinm", "sqrtm", "tanhm", "tanm", "vander",
]  # fmt: skip
WARNS: Final = ("fractional_matrix_power", "logm", "sqrtm")
"""Functions of SciPy that warn where this module raises. (Catching warnings affects all threads; others do without.)"""


class MatrixFunction(Protocol):
    """A function of square matrices."""

    def __call__(self, x: Tensor, /) -> Tensor: ...


def _of_power(g: Tensor, x: Tensor, n: int) -> Tensor:
    return rules.of_power(g, x, index_of(n), matrix_power)


@operation(out=Out.COPIED, gradient=_of_power)
def matrix_power(xp: Module, x: Array, /, n: int) -> Array:
    """A square matrix times itself; below 0 its inverse. Raises LinAlgError (singular), InvalidArgument, DTypeError."""
    n = index_of(n)
    a = x if n >= 0 else matrices("matrix_power", x)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise InvalidArgument(f"matrix_power of a tensor of shape {a.shape}; it takes square matrices")
    return numpys("matrix_power", "gesv", a, xp.linalg.matrix_power, a, n).astype(a.dtype, copy=False)


def _of_multi_dot(g: Tensor, tensors: Any) -> list[Tensor]:
    return of_factors(g, tensors, lambda *parts: multi_dot(parts))


@operation(method=False, out=Out.COPIED, gradient=_of_multi_dot)
def multi_dot(xp: Module, tensors: Arrays, /) -> Array:
    """The product of matrices in the order of the least work; the first and the last may be vectors.

    Raises InvalidArgument (shapes, fewer than two), DTypeError.
    """
    if len(tensors) < 2:
        raise InvalidArgument(f"multi_dot of {len(tensors)} tensor; give two or more")
    try:
        return xp.linalg.multi_dot(tensors)
    except (TypeError, ValueError) as error:
        shapes = [a.shape for a in tensors]
        raise refused(error, f"multi_dot of tensors of shapes {shapes}, the first", tensors[0]) from error


def _of_vander(g: Tensor, x: Tensor) -> Tensor:
    return rules.of_vander(g, x, vander)


@operation(method=False, gradient=_of_vander)
def vander(xp: Module, x: Array, /, N: int | None = None) -> Array:
    """Powers 0 to N - 1 (None: n) of each element of (..., n), as (..., n, N): Vandermonde's matrix.

    Integers give int64. Raises InvalidArgument.
    """
    x = xp.atleast_1d(x)
    columns = x.shape[-1] if N is None else index_of(N)
    if columns < 0:
        raise InvalidArgument(f"vander of a tensor of shape {x.shape} with {columns} columns")
    kind = np.dtype(np.int64) if x.dtype.kind in "biu" else x.dtype
    powers = xp.empty((*x.shape, columns), kind)
    powers[..., :1] = 1
    powers[..., 1:] = x[..., None]
    return xp.multiply.accumulate(powers, -1, kind, powers)


# -- computed by SciPy -------------------------------------------------------------------------------------------------

ESTIMATES: Final = """

SciPy estimates norms with NumPy's global random generator: the last digits of two calls may differ.
"""


def _applied(name: str, x: Array, *args: Any) -> Array:
    """`scipy.linalg.<name>` of each matrix. The result is real where all of them are real."""
    a = matrices(name, x, square=True)
    function = getattr(scipy_linalg(name), name)
    if not a.size:
        return np.zeros_like(a)
    found = [_one(name, function, matrix, *args) for matrix in a.reshape(-1, *a.shape[-2:])]
    kind = np.complex64 if any(one.dtype.kind == "c" for one in found) else np.float32
    return np.stack(found).astype(np.result_type(a.real.dtype, kind), copy=False).reshape(a.shape)


def _one(name: str, function: Callable[..., Any], matrix: NDArray[Any], *args: Any) -> NDArray[Any]:
    if len(matrix) > 1 and not np.isfinite(matrix).all():  # SciPy's expm would square without end
        return np.full_like(matrix, np.nan)
    # SciPy's logm takes the rounding errors of float32 for a failure.
    wide = np.result_type(matrix.dtype, np.float64) if name == "logm" else matrix.dtype
    doing = f"{name} of a matrix of shape {matrix.shape}"
    with warnings.catch_warnings() if name in WARNS else nullcontext(), np.errstate(all="ignore"):
        if name in WARNS:
            warnings.filterwarnings("error", ".*exactly singular")  # of logm
            warnings.filterwarnings("ignore", ".*[Mm]atrix is singular")  # of sqrtm: a root may exist nevertheless
        try:
            result: NDArray[Any] = np.asarray(function(matrix.astype(wide), *args))
        except (np.linalg.LinAlgError, Warning) as error:
            raise LinAlgError(f"{doing}: {error}") from error
        except (TypeError, ValueError) as error:
            raise refused(error, f"{name} of", matrix) from error
    if not np.isfinite(result).all() and np.isfinite(matrix).all() and name not in ("expm", "coshm", "sinhm"):
        raise LinAlgError(f"{doing}: the result is not finite; it has none")
    return result


def _function(name: str, what: str, fails: str = "", note: str = "") -> MatrixFunction:
    def compute(xp: Module, x: Array, /) -> Array:
        return _applied(name, x)

    compute.__name__ = compute.__qualname__ = name
    raises = f"Raises {fails}InvalidArgument, DTypeError, MissingExtra (SciPy)."
    compute.__doc__ = f"{what} of square matrices. {raises}{note}"

    def gradient(g: Tensor, x: Tensor) -> Tensor:
        return rules.of_function(g, x, made)

    made: MatrixFunction = operation(method=False, gradient=gradient)(compute)
    return made


def _of_exponential(g: Tensor, x: Tensor) -> Tensor:
    return rules.of_function(g, x, matrix_exp)


@operation(gradient=_of_exponential)
def matrix_exp(xp: Module, x: Array, /) -> Array:
    """The exponential of square matrices. Raises InvalidArgument, DTypeError, MissingExtra (SciPy)."""
    return _applied("expm", x)


expm: MatrixFunction = _function("expm", "The exponential")
logm: MatrixFunction = _function("logm", "The logarithm", "LinAlgError (singular), ", ESTIMATES)
sqrtm: MatrixFunction = _function("sqrtm", "The principal square root", "LinAlgError (there is none), ")
cosm: MatrixFunction = _function("cosm", "The cosine")
sinm: MatrixFunction = _function("sinm", "The sine")
tanm: MatrixFunction = _function("tanm", "The tangent", "LinAlgError (there is none), ")
coshm: MatrixFunction = _function("coshm", "The hyperbolic cosine")
sinhm: MatrixFunction = _function("sinhm", "The hyperbolic sine")
tanhm: MatrixFunction = _function("tanhm", "The hyperbolic tangent", "LinAlgError (there is none), ")
signm: MatrixFunction = _function(
    "signm", "The sign: of eigenvalues, that of their real parts;", "LinAlgError (there is none), "
)


@operation(method=False)
def funm(xp: Module, x: Array, function: Callable[[Any], Any], /) -> Array:
    """A function of square matrices, from that of numbers: `function(array)` for an array of eigenvalues.

    Raises LinAlgError (not finite), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    return _applied("funm", x, function)


def _of_fraction(g: Tensor, x: Tensor, power: float) -> Tensor:
    return rules.of_function(g, x, lambda block: fractional_matrix_power(block, power))


@operation(method=False, gradient=_of_fraction)
def fractional_matrix_power(xp: Module, x: Array, power: float, /) -> Array:
    """A power of square matrices, with any real exponent.

    SciPy estimates norms with NumPy's global random generator: the last digits of two calls may differ.

    Raises LinAlgError (there is none), InvalidArgument, DTypeError, MissingExtra (SciPy).
    """
    return _applied("fractional_matrix_power", x, power)


export(globals())
