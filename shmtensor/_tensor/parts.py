"""Views that divide a tensor, and conjugate transposes.

Nothing in this module blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from ..errors import InvalidArgument
from ..storage.arguments import INTEGERS
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
    """At most `chunks` views along an axis, as `chunk`; so many if the axis has nothing.

    Raises IndexOutOfRange, InvalidArgument.
    """
    axis = axis_of(x, dim)
    if index_of(chunks) < 1:
        raise InvalidArgument(f"asked for {chunks} chunks; ask for 1 or more")
    if not x.shape[axis]:
        return _cut(x, axis, [0] * index_of(chunks))
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


# -- the conjugate transpose -------------------------------------------------------------------------------------------


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


__all__ = export(globals())
