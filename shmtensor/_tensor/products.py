"""Products of vectors and matrices: TH's BLAS part. NumPy computes them, by BLAS. None blocks.

Functions with torch's names take what torch's take: vectors, matrices or stacks of matrices, of one type and of sizes
that fit, where NumPy's own (`matmul`, `tensordot`, `einsum`) promote types and broadcast. `out` must have the shape and
the type of the result, which BLAS then writes straight into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import refused
from .core import Tensor, array_of, wrap
from .elementwise import binary

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "cross", "dot", "einsum", "ger", "inner",
    "kron", "matmul", "mm", "mv", "outer", "tensordot", "trace", "vdot", "vecdot",
]  # fmt: skip
METHODS: Final = (
    "addbmm", "addbmm_", "addmm", "addmm_", "addmv", "addmv_", "addr", "addr_", "baddbmm", "baddbmm_", "bmm", "cross",
    "dot", "ger", "inner", "kron", "matmul", "mm", "mv", "outer", "trace", "vdot",
)  # fmt: skip
KINDS: Final = ("a scalar", "a vector (1 axis)", "a matrix (2 axes)", "a stack of matrices (3 axes)")

matmul = binary("matmul", np.matmul, in_place=False, operator="matmul")


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """The sum of products over axes: so many last ones with as many first ones, or two sequences of them.

    Raises InvalidArgument: sizes that differ, axes that are not there.
    """
    a, b = array_of(x1), array_of(x2)
    try:
        return wrap(np.tensordot(a, b, axes))
    except (IndexError, TypeError, ValueError) as error:
        raise refused(error, f"the product over axes {axes} with a tensor of shape {b.shape} of", a) from error


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot product along an axis, the first conjugated; other axes broadcast.

    Raises IndexOutOfRange, InvalidArgument: sizes that differ.
    """
    a, b = array_of(x1), array_of(x2)
    x1._axis(axis), x2._axis(axis)
    if a.shape[axis] != b.shape[axis] or (axis >= 0 and a.ndim != b.ndim):
        raise InvalidArgument(f"vecdot along axis {axis} of tensors of shapes {a.shape} and {b.shape}")
    try:
        return wrap(np.vecdot(a, b, axis=axis))  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise refused(error, f"the dot product with a tensor of shape {b.shape} of", a) from error


# -- what goes in, and where the result goes ---------------------------------------------------------------------------


def _fitting(name: str, *operands: tuple[Tensor, int]) -> list[NDArray[Any]]:
    """The arrays of tensors with so many axes each, and of one type."""
    arrays = [array_of(x) for x, _ in operands]
    for array, (_, axes) in zip(arrays, operands, strict=True):
        if array.ndim != axes:
            raise InvalidArgument(f"{name} with a tensor of shape {array.shape} where it takes {KINDS[axes]}")
        if array.dtype != arrays[0].dtype:
            raise DTypeError(f"{name} of tensors of {arrays[0].dtype.name} and {array.dtype.name}; convert one by to()")
    return arrays


def _place(name: str, out: Tensor | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The array of `out`, which must be one for the result."""
    if out is None:
        return None
    target = array_of(out)
    if target.shape != shape:
        raise InvalidArgument(f"{name} into a tensor of shape {target.shape}; the result has shape {shape}")
    if target.dtype != dtype:
        raise DTypeError(f"{name} into a tensor of {target.dtype.name}; the result is of {dtype.name}")
    return target


def _product(
    name: str,
    multiply: Callable[..., Any],
    a: NDArray[Any],
    b: NDArray[Any],
    out: Tensor | None,
    shape: tuple[int, ...],
) -> Tensor:
    """`multiply(a, b, out)`, the sizes of which fit."""
    target = _place(name, out, shape, a.dtype)
    try:
        result = multiply(a, b, target)
    except (TypeError, ValueError) as error:
        raise refused(error, f"{name} with", a if target is None else target) from error
    return wrap(result) if out is None else out


def _sum(
    name: str,
    x: Tensor,
    multiply: Callable[..., Any],
    a: NDArray[Any],
    b: NDArray[Any],
    shape: tuple[int, ...],
    beta: Any,
    alpha: Any,
    out: Tensor | None,
) -> Tensor:
    """beta * x + alpha * multiply(a, b). With a beta of 0 nothing of x counts, not even NaN, as BLAS has it."""
    c = array_of(x)
    if c.dtype != a.dtype:
        raise DTypeError(f"{name} of tensors of {c.dtype.name} and {a.dtype.name}; convert one by to()")
    try:
        added = np.broadcast_to(c, shape)
    except ValueError as error:
        raise InvalidArgument(f"{name} of a tensor of shape {c.shape} and a product of shape {shape}") from error
    beta, alpha = (one.item() if isinstance(one, Tensor) else one for one in (beta, alpha))
    target = _place(name, out, shape, a.dtype)
    # Where the result goes over x, x must last until it is added.
    over = target if target is not None and beta != 0 and np.may_share_memory(target, c) else None
    try:
        result = multiply(a, b, target if over is None else None)
        if alpha != 1:
            np.multiply(result, alpha, result)
        if over is not None:
            np.multiply(added, beta, over)
            np.add(over, result, over)
        elif beta != 0:
            np.add(result, added if beta == 1 else np.multiply(added, beta, dtype=a.dtype), result)
    except (OverflowError, TypeError, ValueError) as error:
        raise refused(
            error, f"{name} with beta {beta!r} and alpha {alpha!r} of", c if target is None else target
        ) from error
    return wrap(result) if out is None else out


def _sizes(name: str, a: NDArray[Any], b: NDArray[Any], i: int, j: int) -> None:
    if a.shape[i] != b.shape[j]:
        raise InvalidArgument(f"{name} of tensors of shapes {a.shape} and {b.shape}: {a.shape[i]} is not {b.shape[j]}")


def _outer(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any] | None = None) -> Any:
    return np.multiply(a[:, None], b, out)


def _batch_sum(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any] | None = None) -> Any:
    """The sum of the products of two stacks, as one product of two long matrices."""
    length = a.shape[0] * a.shape[2]
    return np.matmul(a.transpose(1, 0, 2).reshape(a.shape[1], length), b.reshape(length, b.shape[2]), out)


# -- vectors -----------------------------------------------------------------------------------------------------------


def dot(x: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The dot product of two vectors of one size and type; nothing is conjugated.

    Raises InvalidArgument (not vectors, other sizes), DTypeError (other types).
    """
    a, b = _fitting("dot", (x, 1), (other, 1))
    _sizes("dot", a, b, 0, 0)
    return _product("dot", np.dot, a, b, out, ())


def vdot(x: Tensor, other: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """The dot product of two vectors of one size and type, the first conjugated. Raises as dot does."""
    a, b = _fitting("vdot", (x, 1), (other, 1))
    _sizes("vdot", a, b, 0, 0)
    return _product("vdot", np.dot, a.conj() if a.dtype.kind == "c" else a, b, out, ())


def outer(x: Tensor, vec2: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """All products of elements of two vectors: (n) and (m) give (n, m), of the type that both promote to.

    Raises InvalidArgument: not vectors.
    """
    a, b = array_of(x), array_of(vec2)
    if a.ndim != 1 or b.ndim != 1:
        raise InvalidArgument(f"outer of tensors of shapes {a.shape} and {b.shape}; it takes two vectors (1 axis)")
    dtype = np.result_type(a, b)
    return _product("outer", _outer, a.astype(dtype, copy=False), b, out, (a.size, b.size))


ger = outer


def addr(
    x: Tensor, vec1: Tensor, vec2: Tensor, /, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * x + alpha * outer(vec1, vec2), vectors (n) and (m). BLAS's ger.

    Raises InvalidArgument (shapes), DTypeError (types that differ, fractions for integers).
    """
    a, b = _fitting("addr", (vec1, 1), (vec2, 1))
    return _sum("addr", x, _outer, a, b, (a.size, b.size), beta, alpha, out)


def addr_(x: Tensor, vec1: Tensor, vec2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addr` in place; gives self. Raises as addr does, and LayoutError."""
    return addr(x, vec1, vec2, beta=beta, alpha=alpha, out=x)


# -- matrices ----------------------------------------------------------------------------------------------------------


def mv(x: Tensor, vec: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """A matrix (n, m) times a vector (m). Raises InvalidArgument (shapes), DTypeError (types that differ)."""
    a, b = _fitting("mv", (x, 2), (vec, 1))
    _sizes("mv", a, b, 1, 0)
    return _product("mv", np.matmul, a, b, out, (a.shape[0],))


def addmv(
    x: Tensor, mat: Tensor, vec: Tensor, /, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * x + alpha * (mat @ vec), a matrix (n, m) and a vector (m). BLAS's gemv.

    Raises InvalidArgument (shapes), DTypeError (types that differ, fractions for integers).
    """
    a, b = _fitting("addmv", (mat, 2), (vec, 1))
    _sizes("addmv", a, b, 1, 0)
    return _sum("addmv", x, np.matmul, a, b, (a.shape[0],), beta, alpha, out)


def addmv_(x: Tensor, mat: Tensor, vec: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addmv` in place; gives self. Raises as addmv does, and LayoutError."""
    return addmv(x, mat, vec, beta=beta, alpha=alpha, out=x)


def mm(x: Tensor, mat2: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """A matrix (n, k) times a matrix (k, m). Raises InvalidArgument (shapes), DTypeError (types that differ)."""
    a, b = _fitting("mm", (x, 2), (mat2, 2))
    _sizes("mm", a, b, 1, 0)
    return _product("mm", np.matmul, a, b, out, (a.shape[0], b.shape[1]))


def addmm(
    x: Tensor, mat1: Tensor, mat2: Tensor, /, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * x + alpha * (mat1 @ mat2), matrices (n, k) and (k, m). BLAS's gemm.

    Raises InvalidArgument (shapes), DTypeError (types that differ, fractions for integers).
    """
    a, b = _fitting("addmm", (mat1, 2), (mat2, 2))
    _sizes("addmm", a, b, 1, 0)
    return _sum("addmm", x, np.matmul, a, b, (a.shape[0], b.shape[1]), beta, alpha, out)


def addmm_(x: Tensor, mat1: Tensor, mat2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addmm` in place; gives self. Raises as addmm does, and LayoutError."""
    return addmm(x, mat1, mat2, beta=beta, alpha=alpha, out=x)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the order of the least work. Raises InvalidArgument (shapes), DTypeError."""
    arrays = _fitting("chain_matmul", *[(x, 2) for x in matrices])
    if not arrays:
        raise InvalidArgument("chain_matmul of no matrices; give one or more")
    for a, b in itertools.pairwise(arrays):
        _sizes("chain_matmul", a, b, 1, 0)
    return wrap(np.linalg.multi_dot(arrays) if len(arrays) > 1 else arrays[0].copy())


# -- stacks of matrices ------------------------------------------------------------------------------------------------


def bmm(x: Tensor, mat2: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """Matrices (b, n, k) times matrices (b, k, m), pair by pair. Raises InvalidArgument (shapes), DTypeError."""
    a, b = _fitting("bmm", (x, 3), (mat2, 3))
    _sizes("bmm", a, b, 0, 0)
    _sizes("bmm", a, b, 2, 1)
    return _product("bmm", np.matmul, a, b, out, (*a.shape[:2], b.shape[2]))


def baddbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, /, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * x + alpha * bmm(batch1, batch2), stacks (b, n, k) and (b, k, m).

    Raises InvalidArgument (shapes), DTypeError (types that differ, fractions for integers).
    """
    a, b = _fitting("baddbmm", (batch1, 3), (batch2, 3))
    _sizes("baddbmm", a, b, 0, 0)
    _sizes("baddbmm", a, b, 2, 1)
    return _sum("baddbmm", x, np.matmul, a, b, (*a.shape[:2], b.shape[2]), beta, alpha, out)


def baddbmm_(x: Tensor, batch1: Tensor, batch2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`baddbmm` in place; gives self. Raises as baddbmm does, and LayoutError."""
    return baddbmm(x, batch1, batch2, beta=beta, alpha=alpha, out=x)


def addbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, /, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * x + alpha * the sum of bmm(batch1, batch2) over the stack, stacks (b, n, k) and (b, k, m).

    Raises InvalidArgument (shapes), DTypeError (types that differ, fractions for integers).
    """
    a, b = _fitting("addbmm", (batch1, 3), (batch2, 3))
    _sizes("addbmm", a, b, 0, 0)
    _sizes("addbmm", a, b, 2, 1)
    return _sum("addbmm", x, _batch_sum, a, b, (a.shape[1], b.shape[2]), beta, alpha, out)


def addbmm_(x: Tensor, batch1: Tensor, batch2: Tensor, /, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addbmm` in place; gives self. Raises as addbmm does, and LayoutError."""
    return addbmm(x, batch1, batch2, beta=beta, alpha=alpha, out=x)


# -- other sums of products --------------------------------------------------------------------------------------------


def inner(x: Tensor, other: Tensor, /) -> Tensor:
    """Dot products of last axes: each of the first's with each of the second's. Raises InvalidArgument: sizes."""
    a, b = array_of(x), array_of(other)
    try:
        return wrap(np.inner(a, b))
    except (TypeError, ValueError) as error:
        raise refused(error, f"inner with a tensor of shape {b.shape} of", a) from error


def kron(x: Tensor, other: Tensor, /) -> Tensor:
    """Kronecker's product: the second tensor times each element of the first, in the place of that element."""
    return wrap(np.kron(array_of(x), array_of(other)))


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum of products that an equation in Einstein's notation says ("ij,jk->ik"), in an order of little work.

    A new tensor. Raises InvalidArgument: an equation that is none, or that the shapes do not fit.
    """
    arrays = [array_of(x) for x in operands]
    try:
        result = np.einsum(equation, *arrays, optimize=len(arrays) > 1)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise InvalidArgument(f"einsum {equation!r} of tensors of shapes {shapes}: {error}") from error
    seen = any(np.may_share_memory(result, a) for a in arrays)  # NumPy gives a view where nothing is summed
    return wrap(np.array(result) if seen else result)


def trace(x: Tensor, /) -> Tensor:
    """The sum of the diagonal of a matrix; of integers as int64. Raises InvalidArgument: no matrix."""
    a = array_of(x)
    if a.ndim != 2:
        raise InvalidArgument(f"trace of a tensor of shape {a.shape}; it takes {KINDS[2]}: use linalg.trace for stacks")
    counted = a.dtype.kind in "biu" and a.dtype != np.uint64
    return wrap(np.trace(a, dtype=np.int64 if counted else None))


def cross(x: Tensor, other: Tensor, /, dim: int | None = None) -> Tensor:
    """The vector product along an axis of size 3 (None: the first of that size, as in TH); other axes broadcast.

    Raises IndexOutOfRange (no such axis), InvalidArgument (not of size 3).
    """
    a, b = array_of(x), array_of(other)
    if dim is None:
        if 3 not in a.shape:
            raise InvalidArgument(f"cross of a tensor of shape {a.shape}; it has no axis of size 3")
        dim = a.shape.index(3) - a.ndim
    if a.shape[x._axis(dim)] != 3 or b.shape[other._axis(dim)] != 3 or (dim >= 0 and a.ndim != b.ndim):
        raise InvalidArgument(
            f"cross along axis {dim} of tensors of shapes {a.shape} and {b.shape}; it has size 3 in both, and counts "
            "from the end (-1) where they have not as many axes"
        )
    try:
        return wrap(np.cross(a, b, axis=dim))
    except (TypeError, ValueError) as error:
        raise refused(error, f"cross along axis {dim} with a tensor of shape {b.shape} of", a) from error
