"""LAPACK: checks of arguments, stacks of matrices, and errors.

NumPy calls LAPACK where it can, SciPy (the extra `scipy`, imported on first use) for the rest. A routine that fails
raises LinAlgError, which names the routine and what it found, as TH did.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._tensor.dispatch import Array
from ..errors import DTypeError, InvalidArgument, MissingExtra, ShmTensorError
from ..storage.arguments import refused

TYPES: Final = "fdFD"
"""NumPy's letters for what LAPACK computes with."""
UNITARY: Final = {"orgqr": "ungqr", "ormqr": "unmqr"}
"""Routine -> its name for complex types."""
FAILURES: Final = {
    "gels": "diagonal element {0} of its triangular factor is zero: it does not have full rank",
    "gesv": "U({0},{0}) is zero: the matrix is singular",
    "getrf": "U({0},{0}) is zero: the matrix is singular",
    "getrs": "U({0},{0}) is zero: the matrix is singular",
    "potrf": "the leading minor of order {0} is not positive definite",
    "potri": "element ({0},{0}) of the factor is zero: the matrix is singular",
    "pstrf": "the matrix is rank deficient or not positive semidefinite",
    "hetrf": "D({0},{0}) is zero: the matrix is singular",
    "sytrf": "D({0},{0}) is zero: the matrix is singular",
    "trtrs": "A({0},{0}) is zero: the matrix is singular",
}
"""The meaning of a report above 0, by routine; indices count from 1, as in its manual."""


class LinAlgError(ShmTensorError, np.linalg.LinAlgError):
    """The problem has no solution: a matrix is singular or not positive definite, or an iteration does not converge.

    It is also NumPy's error of this name, and so a ValueError. The message has LAPACK's routine and what it reported.
    """


def floating(name: str, a: Array) -> Array:
    """The array of a tensor that LAPACK can compute with. Does not block. Raises DTypeError."""
    if a.dtype.char not in TYPES:
        raise DTypeError(
            f"{name} of a tensor of {a.dtype.name}; it takes float32, float64, complex64 and complex128: convert it by "
            "to()"
        )
    return a


def matrices(name: str, x: Array, *, square: bool = False) -> Array:
    """The array of a tensor (..., m, n) of matrices for LAPACK. Does not block. Raises InvalidArgument, DTypeError."""
    a = floating(name, x)
    if a.ndim < 2:
        raise InvalidArgument(f"{name} of a tensor of shape {a.shape}; it takes matrices, in the last two axes")
    if square and a.shape[-1] != a.shape[-2]:
        raise InvalidArgument(f"{name} of a tensor of shape {a.shape}; it takes square matrices")
    return a


def same_type(name: str, a: NDArray[Any], *others: NDArray[Any]) -> None:
    """Refuse arrays of several types. Does not block. Raises DTypeError."""
    for other in others:
        if other.dtype != a.dtype:
            raise DTypeError(f"{name} of tensors of {a.dtype.name} and {other.dtype.name}; convert one with to()")


def finite(name: str, routine: str, a: NDArray[Any]) -> NDArray[Any]:
    """Check an array for a routine that may not end if it finds an infinity. Does not block. Raises LinAlgError."""
    if np.isfinite(a).all():
        return a
    raise LinAlgError(
        f"{name} of a tensor of shape {a.shape} with infinities or NaN: LAPACK {routine} would not converge; replace "
        "them, for example with nan_to_num()"
    )


def numpys(name: str, routine: str, a: NDArray[Any], function: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """`function(*args)` of NumPy, which calls `routine`, with the errors of this package. Does not block.

    Raises:
        LinAlgError: no solution. InvalidArgument, DTypeError: incompatible shapes or types.
    """
    try:
        return function(*args, **how)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"{name} of a tensor of shape {a.shape}: LAPACK {routine}: {error}") from error
    except (TypeError, ValueError) as error:
        raise refused(error, f"{name} of", a) from error


def scipy_linalg(name: str) -> Any:
    """The module `scipy.linalg`. May read it from disk. Raises MissingExtra: SciPy is not installed."""
    try:
        return importlib.import_module("scipy.linalg")
    except ImportError as error:
        raise MissingExtra(f"{name} needs SciPy ({error}); pip install 'shmtensor[scipy]'") from error


def call(name: str, routine: str, *args: Any, **how: Any) -> list[Any]:
    """The results of LAPACK's `routine`, without its report. Does not block.

    Args:
        args: arguments of SciPy's wrapper; the first array among them is the matrix.

    Raises:
        LinAlgError: no solution. MissingExtra: SciPy is not installed.
    """
    return reported(name, routine, True, *args, **how)[:-1]


def reported(name: str, routine: str, strict: bool, /, *args: Any, **how: Any) -> list[Any]:
    """The results of LAPACK's `routine`; the last is its report, 0 or the number of the problem. Does not block.

    Args:
        strict: raise if the report is not 0.
        args: arguments of SciPy's wrapper; the first array among them is the matrix.

    Raises:
        LinAlgError: no solution. MissingExtra: SciPy is not installed.
    """
    a: NDArray[Any] = next(one for one in args if isinstance(one, np.ndarray))
    actual = UNITARY.get(routine, routine) if a.dtype.kind == "c" else routine
    results: list[Any] = list(scipy_linalg(name).get_lapack_funcs(actual, dtype=a.dtype)(*args, **how))
    info = results[-1]
    if info < 0:
        raise InvalidArgument(f"{name}: LAPACK {actual}: argument {-info} has an illegal value")
    if info > 0 and strict:
        raise LinAlgError(f"{name} of a matrix of shape {a.shape}: LAPACK {actual}: {FAILURES[routine].format(info)}")
    return results


def each(
    compute: Callable[..., Sequence[Any]],
    made: Sequence[tuple[tuple[int, ...], Any]],
    *stacks: NDArray[Any],
    vectors: int = 0,
) -> list[Array]:
    """`compute` for each matrix of stacks whose leading axes broadcast. Does not block.

    Args:
        compute: takes one matrix of each stack, and returns the results.
        made: shape and dtype of each result.
        vectors: number of stacks, the last ones, that contain vectors.

    Returns:
        The results as stacks; zeros for a matrix without elements, which LAPACK does not accept.

    Raises:
        LinAlgError: what compute raises, with the place of the matrix. InvalidArgument: axes that do not broadcast.
    """
    own = [2] * (len(stacks) - vectors) + [1] * vectors
    try:
        lead = np.broadcast_shapes(*[s.shape[: s.ndim - axes] for s, axes in zip(stacks, own, strict=True)])
    except ValueError as error:
        raise InvalidArgument(f"stacks of shapes {[s.shape for s in stacks]} do not broadcast: {error}") from error
    spread = [np.broadcast_to(s, lead + s.shape[s.ndim - axes :]) for s, axes in zip(stacks, own, strict=True)]
    results = [np.zeros(lead + shape, dtype) for shape, dtype in made]
    if 0 in [s.size for s in spread]:
        return results
    for place in np.ndindex(lead):
        try:
            found = compute(*[s[place] for s in spread])
        except LinAlgError as error:
            if not lead:
                raise
            raise LinAlgError(f"{error} (matrix {place} of the stack)") from error
        for result, value in zip(results, found, strict=True):
            result[place] = value
    return results
