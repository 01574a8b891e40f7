"""Views that divide a tensor, or see its elements as their real and imaginary parts; sums that undo `expand`.

Nothing in this module blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ..errors import DTypeError, InvalidArgument, LayoutError
from ..storage.arguments import INTEGERS, SEQUENCES
from .core import axis_of, index_of, indices_of
from .dispatch import Array, Module, Register, Result, export, operation

_view: Register = partial(operation, result=Result.VIEW)
_COMPLEX: Final[dict[Any, Any]] = {
    np.dtype(np.float32): np.dtype(np.complex64),
    np.dtype(np.float64): np.dtype(np.complex128),
}


def _cut(a: Array, axis: int, sizes: Sequence[int]) -> tuple[Array, ...]:
    """Views of these sizes along an axis. Raises InvalidArgument: they do not add up to it."""
    have = a.shape[axis]
    if sum(sizes) != have or min(sizes, default=0) < 0:
        raise InvalidArgument(f"a split into {list(sizes)} of axis {axis}, which has {have}; give sizes that add up")
    parts, start = [], 0
    for size in sizes:
        parts.append(a[(*(slice(None),) * axis, slice(start, start + size))])
        start += size
    return tuple(parts)


def _of_size(a: Array, axis: int, size: int) -> tuple[Array, ...]:
    """Views of one size along an axis, the last of which may be smaller."""
    have = a.shape[axis]
    if size < 1 and (have or size):
        raise InvalidArgument(f"a split into parts of {size}; give a size from 1")
    return _cut(a, axis, [min(size, have - start) for start in range(0, have, max(size, 1))] or [0])


@_view("unsafe_split_with_sizes")
def split_with_sizes(xp: Module, x: Array, /, split_sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Views of the given sizes along an axis. Raises IndexOutOfRange; InvalidArgument: they do not add up to it."""
    return _cut(x, axis_of(x, dim), indices_of(split_sizes))


@_view()
def unsafe_split(xp: Module, x: Array, /, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    """Views of one size along an axis, the last of which may be smaller, as `split`.

    Raises IndexOutOfRange, InvalidArgument.
    """
    return _of_size(x, axis_of(x, dim), index_of(split_size))


@_view()
def unsafe_chunk(xp: Module, x: Array, /, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    """At most `chunks` views along an axis, as `chunk`. Raises IndexOutOfRange, InvalidArgument."""
    axis = axis_of(x, dim)
    if index_of(chunks) < 1:
        raise InvalidArgument(f"asked for {chunks} chunks; ask for 1 or more")
    return _of_size(x, axis, max(1, -(-x.shape[axis] // index_of(chunks))))


def _divided(a: Array, axis: int, where: Any, name: str) -> tuple[Array, ...]:
    """Views along an axis: so many of one size, or cut before indices."""
    have = a.shape[axis]
    if isinstance(where, INTEGERS):
        count = index_of(where)
        if count < 1 or have % count:
            raise InvalidArgument(f"{name} into {count} parts of axis {axis}, which has {have}; give a divisor of that")
        return _cut(a, axis, [have // count] * count)
    cuts: list[int | None] = [None, *indices_of(where, "indices"), None]
    before = (slice(None),) * axis
    return tuple([a[(*before, slice(*pair))] for pair in itertools.pairwise(cuts)])


@_view()
def hsplit(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int]) -> tuple[Array, ...]:
    """Views along the second axis, or the only one: so many of one size, or cut before the given indices.

    Raises InvalidArgument: no axis; a number of parts that does not divide it.
    """
    if not x.ndim:
        raise InvalidArgument("hsplit of a tensor without axes; it needs one")
    return _divided(x, min(x.ndim - 1, 1), indices_or_sections, "hsplit")


@_view()
def vsplit(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int]) -> tuple[Array, ...]:
    """Views along the first axis of two or more: so many of one size, or cut before the given indices.

    Raises InvalidArgument: fewer than two axes; a number of parts that does not divide it.
    """
    if x.ndim < 2:
        raise InvalidArgument(f"vsplit of a tensor of shape {x.shape}; it needs two axes")
    return _divided(x, 0, indices_or_sections, "vsplit")


@_view()
def dsplit(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int]) -> tuple[Array, ...]:
    """Views along the third axis: so many of one size, or cut before the given indices.

    Raises InvalidArgument: fewer than three axes; a number of parts that does not divide it.
    """
    if x.ndim < 3:
        raise InvalidArgument(f"dsplit of a tensor of shape {x.shape}; it needs three axes")
    return _divided(x, 2, indices_or_sections, "dsplit")


# -- real and imaginary parts ------------------------------------------------------------------------------------------


@_view(method=False)
def view_as_real(xp: Module, x: Array, /) -> Array:
    """The view of complex numbers as a last axis of two: real and imaginary part. Raises DTypeError: not complex."""
    if x.dtype.kind != "c":
        raise DTypeError(f"view_as_real of a tensor of {x.dtype.name}; give a complex type")
    return x[..., None].view(x.real.dtype)


@_view(method=False)
def view_as_complex(xp: Module, x: Array, /) -> Array:
    """The view of a last axis of two, real and imaginary part, as complex numbers.

    Raises:
        DTypeError: a type other than float32 and float64.
        InvalidArgument: no last axis of size 2.
        LayoutError: the two do not lie together.
    """
    kind = _COMPLEX.get(x.dtype)
    if kind is None:
        raise DTypeError(f"view_as_complex of a tensor of {x.dtype.name}; give float32 or float64")
    if not x.ndim or x.shape[-1] != 2:
        raise InvalidArgument(f"view_as_complex of a tensor of shape {x.shape}; its last axis must have size 2")
    if x.strides[-1] != x.itemsize or any(step % kind.itemsize for step in x.strides[:-1]):
        raise LayoutError(
            f"view_as_complex of a tensor of shape {x.shape}: its pairs do not lie together; use a clone()"
        )
    return x.view(kind)[..., 0]


@_view()
def resolve_conj(xp: Module, x: Array, /) -> Array:
    """Itself: no tensor is conjugated lazily."""
    return x


@_view()
def resolve_neg(xp: Module, x: Array, /) -> Array:
    """Itself: no tensor is negated lazily."""
    return x


@_view(function=False, method=False, properties=("H",))
def _conjugate_transpose(xp: Module, self: Array) -> Array:
    """The conjugate of the transpose of a matrix; a view for real types. Raises InvalidArgument: not a matrix."""
    if self.ndim not in (0, 2):
        raise InvalidArgument(f"H of a tensor of shape {self.shape}; give a matrix, or use mH for stacks")
    return self.T.conj() if self.dtype.kind == "c" else self.T


@_view(function=False, method=False, properties=("mH",))
def _conjugate_matrix_transpose(xp: Module, self: Array) -> Array:
    """The conjugate with the last two axes exchanged; a view for real types. Raises InvalidArgument: fewer than two."""
    if self.ndim == 1:
        raise InvalidArgument(f"mH of a tensor of shape {self.shape}; it needs two axes")
    turned = self.swapaxes(-1, -2) if self.ndim else self
    return turned.conj() if self.dtype.kind == "c" else turned


# -- sums --------------------------------------------------------------------------------------------------------------


@_view(function=False, fails="a sum to {size} of")
def sum_to_size(xp: Module, self: Array, *size: Any) -> Array:
    """The sum over the axes that `expand` to this size from `size` would repeat; a view where nothing is summed.

    Raises InvalidArgument: sizes that do not expand to those of the tensor.
    """
    sizes = indices_of(size[0] if len(size) == 1 and isinstance(size[0], SEQUENCES) else size)
    new = self.ndim - len(sizes)
    if new < 0 or any(wanted not in (1, have) for wanted, have in zip(sizes, self.shape[new:], strict=True)):
        raise InvalidArgument(f"sum_to_size of a tensor of shape {self.shape} to {sizes}; that does not expand to it")
    axes = [i for i, have in enumerate(self.shape) if i < new or sizes[i - new] != have]
    if not axes and sizes:
        return self.view()
    kind = np.int64 if self.dtype.kind in "biu" else None
    return xp.sum(self, axis=tuple(axes), keepdims=True, dtype=kind).reshape(sizes)


__all__ = export(globals())
