"""Products of vectors and matrices: TH's BLAS part. NumPy computes them, by BLAS. Nothing in this module blocks.

Functions with torch's names take what torch's take: vectors, matrices or stacks of matrices, of one type and of sizes
that fit, where NumPy's own (`matmul`, `tensordot`, `einsum`) promote types and broadcast. `out` must have the shape and
the type of the result, which BLAS then writes straight into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from ..errors import DTypeError, InvalidArgument
from . import product_rules as rules
from .core import Tensor, axis_of
from .dispatch import Array, Module, Out, Register, export, operation
from .elementwise import binary
from .result_types import as_type, common_type, converted, is_narrow

KINDS: Final = ("a scalar", "a vector (1 axis)", "a matrix (2 axes)", "a stack of matrices (3 axes)")


def _matmul(a: Any, b: Any, out: Any = None) -> Any:
    """The product of matrices, stacks of them, or vectors; types of other packages are multiplied in float32."""
    kind = getattr(a, "dtype", None)
    if kind is None or kind.kind != "V" or getattr(b, "dtype", None) != kind:
        return np.matmul(a, b, out)
    found = np.asarray(np.matmul(a, b)).astype(kind)
    if out is None:
        return found
    if out.shape != found.shape:
        raise InvalidArgument(
            f"matmul gives shape {found.shape}, and out has shape {out.shape}; give one of that shape"
        )
    np.copyto(out, found, "same_kind")
    return out


matmul = binary(
    "matmul", _matmul, module=__name__, in_place=False, operator="matmul",
    gradient={"x1": rules.of_first_factor, "x2": rules.of_second_factor},
)  # fmt: skip


@operation(
    method=False,
    out=Out.COPIED,
    fails="the product over axes {dims} with a tensor of shape {b.shape} of",
    gradient={("x", "b"): rules.of_tensordot},
)
def tensordot(xp: Module, x: Array, /, b: Array, dims: Any = 2, *, axes: Any = None) -> Array:
    """The sum of products over axes: the last `dims` axes with the first ones, or two sequences of axes.

    An axis of size 1 goes with one of any size, over which the other tensor is summed, as in torch.

    Raises InvalidArgument: sizes that differ, axes that do not exist.
    """
    over = dims if axes is None else axes
    if hasattr(over, "tolist"):
        over = over.tolist() if over.size != 1 else over.item()
    try:
        if isinstance(over, int):
            return xp.tensordot(x, b, over)
        first, second = [[one] if isinstance(one, int) else list(one) for one in over]
        for i, j in zip(first, second, strict=True):
            if x.shape[i] != b.shape[j] and b.shape[j] == 1:
                x = x.sum(i, dtype=x.dtype, keepdims=True)
            elif x.shape[i] != b.shape[j] and x.shape[i] == 1:
                b = b.sum(j, dtype=b.dtype, keepdims=True)
        return xp.tensordot(x, b, (first, second))
    except (IndexError, TypeError) as error:
        raise ValueError(str(error)) from error


@operation(
    method=False,
    out=Out.COPIED,
    fails="the dot product with a tensor of shape {y.shape} of",
    gradient={("x", "y"): rules.of_vecdot},
)
def vecdot(xp: Module, x: Array, /, y: Array, *, dim: int = -1, axis: int | None = None) -> Array:
    """The dot product along an axis, the first conjugated; other axes broadcast.

    Raises IndexOutOfRange, InvalidArgument: sizes that differ.
    """
    axis = dim if axis is None else axis
    axis_of(x, axis), axis_of(y, axis)
    if x.shape[axis] != y.shape[axis] or (axis >= 0 and x.ndim != y.ndim):
        raise InvalidArgument(
            f"vecdot along axis {axis} of tensors of shapes {x.shape} and {y.shape}; give axes of one size"
        )
    result = xp.vecdot(x, y, axis=axis)
    return result.astype(x.dtype) if x.dtype.kind == "V" and x.dtype == y.dtype else result


# -- checks of operands and of `out` -----------------------------------------------------------------------------------


def _require_axes(name: str, *operands: tuple[Array, int]) -> None:
    """Refuse arrays with other numbers of axes, or with different types."""
    first = operands[0][0]
    for array, axes in operands:
        if array.ndim != axes:
            raise InvalidArgument(f"{name} with a tensor of shape {array.shape} where it takes {KINDS[axes]}")
        if array.dtype != first.dtype:
            raise DTypeError(f"{name} of tensors of {first.dtype.name} and {array.dtype.name}; convert one with to()")


def _require_place(name: str, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse an `out` that does not match the result."""
    if out is None:
        return
    if out.shape != shape:
        raise InvalidArgument(f"{name} into a tensor of shape {out.shape}; the result has shape {shape}")
    if out.dtype != dtype:
        raise DTypeError(f"{name} into a tensor of {out.dtype.name}; the result is of {dtype.name}")


def _product(
    name: str, multiply: Callable[..., Any], a: Array, b: Array, out: Array | None, shape: tuple[int, ...]
) -> Array:
    """`multiply(a, b, out)`, whose sizes match."""
    _require_place(name, out, shape, a.dtype)
    return multiply(a, b, out)


def _sum(
    xp: Module,
    name: str,
    c: Array,
    multiply: Callable[..., Any],
    a: Array,
    b: Array,
    shape: tuple[int, ...],
    beta: Any,
    alpha: Any,
    out: Array | None,
) -> Array:
    """`beta * c + alpha * multiply(a, b)`. With a beta of 0, c is ignored, even its NaN, as in BLAS."""
    if c.dtype != a.dtype:
        raise DTypeError(f"{name} of tensors of {c.dtype.name} and {a.dtype.name}; convert one with to()")
    try:
        added = xp.broadcast_to(c, shape)
    except ValueError as error:
        raise InvalidArgument(
            f"{name} of a tensor of shape {c.shape} and a product of shape {shape}; "
            "give one that broadcasts to the product"
        ) from error
    beta, alpha = _factor(beta, a.dtype), _factor(alpha, a.dtype)
    _require_place(name, out, shape, a.dtype)
    # Where the result goes over c, c must last until it is added.
    over = out if out is not None and beta != 0 and xp.may_share_memory(out, c) else None
    result = multiply(a, b, out if over is None else None)
    if alpha != 1:
        xp.multiply(result, alpha, result)
    if over is not None:
        xp.multiply(added, beta, over)
        return xp.add(over, result, over)
    if beta != 0:
        return xp.add(result, added if beta == 1 else xp.multiply(added, beta, dtype=a.dtype), result)
    return result


def _factor(value: Any, dtype: np.dtype[Any]) -> Any:
    """A factor as a number; for integers without its fraction, for bool as a bool, as in torch."""
    number = value.item() if hasattr(value, "item") else value
    if dtype.kind == "b":
        return bool(number)
    return int(number) if dtype.kind in "iu" else number


def _require_size(name: str, a: Array, b: Array, i: int, j: int) -> None:
    if a.shape[i] != b.shape[j]:
        raise InvalidArgument(f"{name} of tensors of shapes {a.shape} and {b.shape}: {a.shape[i]} is not {b.shape[j]}")


def _outer(a: Array, b: Array, out: Array | None = None) -> Array:
    return np.multiply(a[:, None], b, out)


def _batch_sum(a: Array, b: Array, out: Array | None = None) -> Array:
    """The sum of the products of two stacks, as one product of two long matrices."""
    length = a.shape[0] * a.shape[2]
    return _matmul(a.transpose(1, 0, 2).reshape(a.shape[1], length), b.reshape(length, b.shape[2]), out)


_into: Register = partial(operation, out=Out.PASSED, fails="{name} with")
_added: Register = partial(
    operation, out=Out.PASSED, in_place=True, fails="{name} with beta {beta!r} and alpha {alpha!r} of"
)

# -- vectors -----------------------------------------------------------------------------------------------------------


@_into(gradient={"x": lambda g, tensor: g * tensor, "tensor": lambda g, x: g * x})
def dot(xp: Module, x: Array, /, tensor: Array, *, out: Array | None = None) -> Array:
    """The dot product of two vectors of one size and type; nothing is conjugated.

    Raises InvalidArgument (not vectors, other sizes), DTypeError (other types).
    """
    _require_axes("dot", (x, 1), (tensor, 1))
    _require_size("dot", x, tensor, 0, 0)
    return _product("dot", xp.dot, x, tensor, out, ())


@_into(gradient={"x": lambda g, other: g.conj() * other.conj(), "other": lambda g, x: g * x.conj()})
def vdot(xp: Module, x: Array, /, other: Array, *, out: Array | None = None) -> Array:
    """The dot product of two vectors of one size and type, the first conjugated. Raises as dot does."""
    _require_axes("vdot", (x, 1), (other, 1))
    _require_size("vdot", x, other, 0, 0)
    return _product("vdot", xp.dot, x.conj() if x.dtype.kind == "c" else x, other, out, ())


@_into("ger", gradient={"x": lambda g, vec2: g @ vec2.to(g.dtype), "vec2": lambda g, x: g.mT @ x.to(g.dtype)})
def outer(xp: Module, x: Array, /, vec2: Array, *, out: Array | None = None) -> Array:
    """All products of elements of two vectors: (n) and (m) give (n, m), of the type that both promote to.

    Raises InvalidArgument: not vectors.
    """
    if x.ndim != 1 or vec2.ndim != 1:
        raise InvalidArgument(f"outer of tensors of shapes {x.shape} and {vec2.shape}; it takes two vectors (1 axis)")
    a, b = converted(xp, common_type(x, vec2), x, vec2)
    return _product("outer", _outer, a, b, out, (x.size, vec2.size))


@_added(
    gradient={
        "x": lambda g, beta: rules.scaled(g, beta),
        "vec1": lambda g, vec2, alpha: rules.scaled(g @ vec2, alpha),
        "vec2": lambda g, vec1, alpha: rules.scaled(g.mT @ vec1, alpha),
    }
)
def addr(
    xp: Module, x: Array, /, vec1: Array, vec2: Array, *, beta: Any = 1, alpha: Any = 1, out: Array | None = None
) -> Array:
    """`beta * x + alpha * outer(vec1, vec2)`, vectors (n) and (m). BLAS's ger.

    Raises InvalidArgument (shapes), DTypeError (types that differ, fractions for integers).
    """
    _require_axes("addr", (vec1, 1), (vec2, 1))
    for one in (beta, alpha):
        if x.dtype.kind in "biu" and isinstance(one, float):
            raise DTypeError(f"addr of integers with a factor of {one}; give a whole number")
    return _sum(xp, "addr", x, _outer, vec1, vec2, (vec1.size, vec2.size), beta, alpha, out)


# -- matrices ----------------------------------------------------------------------------------------------------------


@_into(gradient={"x": lambda g, vec: g.outer(vec), "vec": lambda g, x: x.mT @ g})
def mv(xp: Module, x: Array, /, vec: Array, *, out: Array | None = None) -> Array:
    """A matrix (n, m) times a vector (m). Raises InvalidArgument (shapes), DTypeError (types that differ)."""
    _require_axes("mv", (x, 2), (vec, 1))
    _require_size("mv", x, vec, 1, 0)
    return _product("mv", _matmul, x, vec, out, (x.shape[0],))


@_added(
    gradient={
        "x": lambda g, beta: rules.scaled(g, beta),
        "mat": lambda g, vec, alpha: rules.scaled(g.outer(vec), alpha),
        "vec": lambda g, mat, alpha: rules.scaled(mat.mT @ g, alpha),
    }
)
def addmv(
    xp: Module, x: Array, /, mat: Array, vec: Array, *, beta: Any = 1, alpha: Any = 1, out: Array | None = None
) -> Array:
    """`beta * x + alpha * (mat @ vec)`, a matrix (n, m) and a vector (m). BLAS's gemv.

    For integers, the fractions of beta and alpha are cut off. Raises InvalidArgument (shapes), DTypeError (types).
    """
    _require_axes("addmv", (mat, 2), (vec, 1))
    _require_size("addmv", mat, vec, 1, 0)
    return _sum(xp, "addmv", x, _matmul, mat, vec, (mat.shape[0],), beta, alpha, out)


@_into(gradient={"x": lambda g, mat2: g @ mat2.mT, "mat2": lambda g, x: x.mT @ g})
def mm(xp: Module, x: Array, /, mat2: Array, *, out: Array | None = None) -> Array:
    """A matrix (n, k) times a matrix (k, m). Raises InvalidArgument (shapes), DTypeError (types that differ)."""
    _require_axes("mm", (x, 2), (mat2, 2))
    _require_size("mm", x, mat2, 1, 0)
    return _product("mm", _matmul, x, mat2, out, (x.shape[0], mat2.shape[1]))


@_added(
    gradient={
        "x": lambda g, beta: rules.scaled(g, beta),
        "mat1": lambda g, mat2, alpha: rules.scaled(g @ mat2.mT, alpha),
        "mat2": lambda g, mat1, alpha: rules.scaled(mat1.mT @ g, alpha),
    }
)
def addmm(
    xp: Module, x: Array, /, mat1: Array, mat2: Array, *, beta: Any = 1, alpha: Any = 1, out: Array | None = None
) -> Array:
    """`beta * x + alpha * (mat1 @ mat2)`, matrices (n, k) and (k, m). BLAS's gemm.

    For integers, the fractions of beta and alpha are cut off. Raises InvalidArgument (shapes), DTypeError (types).
    """
    _require_axes("addmm", (mat1, 2), (mat2, 2))
    _require_size("addmm", mat1, mat2, 1, 0)
    return _sum(xp, "addmm", x, _matmul, mat1, mat2, (mat1.shape[0], mat2.shape[1]), beta, alpha, out)


def _of_chain(g: Tensor, matrices: Any) -> list[Tensor]:
    return rules.of_factors(g, matrices, chain_matmul)


@operation(method=False, gradient={"matrices": _of_chain})
def chain_matmul(xp: Module, *matrices: Array) -> Array:
    """The product of matrices, in the order of the least work. Raises InvalidArgument (shapes), DTypeError."""
    if not matrices:
        raise InvalidArgument("chain_matmul of no matrices; give one or more")
    _require_axes("chain_matmul", *[(x, 2) for x in matrices])
    for a, b in itertools.pairwise(matrices):
        _require_size("chain_matmul", a, b, 1, 0)
    return xp.linalg.multi_dot(matrices) if len(matrices) > 1 else matrices[0].copy()


# -- stacks of matrices ------------------------------------------------------------------------------------------------


@_into(gradient={"x": lambda g, mat2: g @ mat2.mT, "mat2": lambda g, x: x.mT @ g})
def bmm(xp: Module, x: Array, /, mat2: Array, *, out: Array | None = None) -> Array:
    """Matrices (b, n, k) times matrices (b, k, m), pair by pair. Raises InvalidArgument (shapes), DTypeError."""
    _require_axes("bmm", (x, 3), (mat2, 3))
    _require_size("bmm", x, mat2, 0, 0)
    _require_size("bmm", x, mat2, 2, 1)
    return _product("bmm", _matmul, x, mat2, out, (*x.shape[:2], mat2.shape[2]))


@_added(
    gradient={
        "x": lambda g, beta: rules.scaled(g, beta),
        "batch1": lambda g, batch2, alpha: rules.scaled(g @ batch2.mT, alpha),
        "batch2": lambda g, batch1, alpha: rules.scaled(batch1.mT @ g, alpha),
    }
)
def baddbmm(
    xp: Module, x: Array, /, batch1: Array, batch2: Array, *, beta: Any = 1, alpha: Any = 1, out: Array | None = None
) -> Array:
    """`beta * x + alpha * bmm(batch1, batch2)`, stacks (b, n, k) and (b, k, m).

    For integers, the fractions of beta and alpha are cut off. Raises InvalidArgument (shapes), DTypeError (types).
    """
    _require_axes("baddbmm", (batch1, 3), (batch2, 3))
    _require_size("baddbmm", batch1, batch2, 0, 0)
    _require_size("baddbmm", batch1, batch2, 2, 1)
    shape = (*batch1.shape[:2], batch2.shape[2])
    return _sum(xp, "baddbmm", x, _matmul, batch1, batch2, shape, beta, alpha, out)


@_added(
    gradient={
        "x": lambda g, beta: rules.scaled(g, beta),
        "batch1": lambda g, batch2, alpha: rules.scaled(g @ batch2.mT, alpha),
        "batch2": lambda g, batch1, alpha: rules.scaled(batch1.mT @ g, alpha),
    }
)
def addbmm(
    xp: Module, x: Array, /, batch1: Array, batch2: Array, *, beta: Any = 1, alpha: Any = 1, out: Array | None = None
) -> Array:
    """`beta * x + alpha * sum(bmm(batch1, batch2))` over the stack, stacks (b, n, k) and (b, k, m).

    For integers, the fractions of beta and alpha are cut off. Raises InvalidArgument (shapes), DTypeError (types).
    """
    _require_axes("addbmm", (batch1, 3), (batch2, 3))
    _require_size("addbmm", batch1, batch2, 0, 0)
    _require_size("addbmm", batch1, batch2, 2, 1)
    shape = (batch1.shape[1], batch2.shape[2])
    return _sum(xp, "addbmm", x, _batch_sum, batch1, batch2, shape, beta, alpha, out)


# -- other sums of products --------------------------------------------------------------------------------------------


@operation(
    out=Out.COPIED, fails="inner with a tensor of shape {other.shape} of", gradient={("x", "other"): rules.of_inner}
)
def inner(xp: Module, x: Array, /, other: Array) -> Array:
    """Dot products of last axes: each of the first's with each of the second's. Raises InvalidArgument: sizes."""
    return xp.inner(x, other)


@operation(out=Out.COPIED, gradient={("x", "other"): rules.of_kron})
def kron(xp: Module, x: Array, /, other: Array) -> Array:
    """Kronecker's product: the second tensor times each element of the first, in the place of that element."""
    return xp.kron(*converted(xp, common_type(x, other), x, other))


@operation(gradient=lambda g, x_shape: rules.of_trace(g, x_shape))
def trace(xp: Module, x: Array, /) -> Array:
    """The sum of the diagonal of a matrix; int64 for integers. Raises InvalidArgument: not a matrix."""
    if x.ndim != 2:
        raise InvalidArgument(f"trace of a tensor of shape {x.shape}; it takes {KINDS[2]}: use linalg.trace for stacks")
    counted = x.dtype.kind in "biu" and x.dtype != np.uint64
    if is_narrow(x.dtype):
        return as_type(xp.trace(x.astype(xp.float32)), x.dtype)
    return xp.trace(x, dtype=np.int64 if counted else None)


@operation(
    out=Out.COPIED,
    fails="cross along axis {dim} with a tensor of shape {other.shape} of",
    gradient={("x", "other"): lambda g, x, other, dim: of_cross(g, x, other, dim)},
)
def cross(xp: Module, x: Array, /, other: Array, dim: int | None = None) -> Array:
    """The vector product along an axis of size 3 (None: the first of that size, as in TH); other axes broadcast.

    Raises IndexOutOfRange (no such axis), InvalidArgument (not of size 3).
    """
    return crossed(xp, x, other, dim)


def crossed(xp: Module, a: Array, b: Array, dim: int | None) -> Array:
    """`cross` of arrays. Raises as that function does."""
    if dim is None:
        if 3 not in a.shape:
            raise InvalidArgument(f"cross of a tensor of shape {a.shape}; it has no axis of size 3")
        dim = a.shape.index(3) - a.ndim
    if a.shape[axis_of(a, dim)] != 3 or b.shape[axis_of(b, dim)] != 3 or (dim >= 0 and a.ndim != b.ndim):
        raise InvalidArgument(
            f"cross along axis {dim} of tensors of shapes {a.shape} and {b.shape}; it must have size 3 in both, and be "
            "negative if they have different numbers of axes"
        )
    return xp.cross(a, b, axis=dim)


def of_cross(g: Tensor, x: Tensor, other: Tensor, dim: int | None) -> tuple[Tensor, Tensor]:
    """Gradient rule of `cross`."""
    along = x.shape.index(3) - x.ndim if dim is None else dim
    if along >= 0:
        along -= x.ndim
    return cross(other, g, along), cross(g, x, along)


__all__ = export(globals())
