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
from ..storage.arguments import INTEGERS, SEQUENCES
from .core import Tensor, axis_of, index_of, indices_of
from .dispatch import Array, Module, Register, Result, export, operation
from .joining import cat, stack
from .shapes import into_zeros, narrow

_view: Register = partial(operation, result=Result.VIEW)
_COMPLEX: Final[dict[Any, Any]] = {
    np.dtype(np.float32): np.dtype(np.complex64),
    np.dtype(np.float64): np.dtype(np.complex128),
}


def _joined_again(g: tuple[Tensor, ...], dim: int) -> Tensor:
    """The gradient rule of operations that divide all of an axis."""
    return cat(list(g), dim)


def _put_together(g: tuple[Tensor, ...], x_shape: tuple[int, ...], axis: int, where: Any) -> Tensor:
    """The gradient rule of operations that cut an axis before indices; parts overlap where these do not ascend."""
    if sum(one.shape[axis] for one in g) == x_shape[axis]:
        return cat(list(g), axis)
    starts = [slice(at, None).indices(x_shape[axis])[0] for at in (0, *indices_of(np.asarray(where).tolist()))]
    places = [(axis, start, one.shape[axis]) for start, one in zip(starts, g, strict=True)]
    parts = [into_zeros(one, x_shape, narrow, place) for one, place in zip(g, places, strict=True)]
    return sum(parts, g[0].new_zeros(()))


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


@_view(gradient=_joined_again)
def chunk(xp: Module, x: Array, /, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    """At most `chunks` views of equal sizes along an axis, the last of which may be smaller.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; fewer than one.
    """
    axis = axis_of(x, dim)
    if index_of(chunks) < 1:
        raise InvalidArgument(f"asked for {chunks} chunks; ask for 1 or more")
    return _parts(x, axis, max(1, -(-x.shape[axis] // index_of(chunks))))


@_view(gradient=_joined_again)
def split(xp: Module, x: Array, /, split_size: int | Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Views along an axis: all of one size but perhaps the last, or of the given sizes.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; sizes that do not add up to it.
    """
    return _parts(x, axis_of(x, dim), split_size)


def _parts(a: Array, axis: int, split_size: Any) -> tuple[Array, ...]:
    if isinstance(split_size, SEQUENCES):
        return _cut(a, axis, indices_of(split_size))
    size = index_of(split_size)
    if size < 1:
        raise InvalidArgument(f"a split into parts of {size}; give a size from 1")
    return _of_size(a, axis, size)


@_view(
    fails="splitting at {indices_or_sections}",
    gradient=lambda g, x_shape, indices_or_sections, dim: _put_together(g, x_shape, dim, indices_or_sections),
)
def tensor_split(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Views along an axis: a number of nearly equal sizes, or cut before the given indices.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; fewer than one part.
    """
    axis = axis_of(x, dim)
    if hasattr(indices_or_sections, "tolist"):  # a tensor
        indices_or_sections = indices_or_sections.tolist()
    one = isinstance(indices_or_sections, INTEGERS)
    cuts: Any = index_of(indices_or_sections) if one else list(indices_of(indices_or_sections, "indices"))
    return tuple(xp.array_split(x, cuts, axis))


def _unstacked(a: Array, axis: int) -> tuple[Array, ...]:
    before = (slice(None),) * axis
    return tuple([a[(*before, i, ...)] for i in range(a.shape[axis])])


@_view(gradient=lambda g, axis: stack(list(g), axis))
def unstack(xp: Module, x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The views at each index of an axis. Raises IndexOutOfRange."""
    return _unstacked(x, axis_of(x, axis))


@_view(gradient=lambda g, dim: stack(list(g), dim))
def unbind(xp: Module, x: Array, /, dim: int = 0) -> tuple[Array, ...]:
    """The views at each index of an axis. Raises IndexOutOfRange."""
    return _unstacked(x, axis_of(x, dim))


@_view("unsafe_split_with_sizes", gradient=_joined_again)
def split_with_sizes(xp: Module, x: Array, /, split_sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Views of the given sizes along an axis. Raises IndexOutOfRange; InvalidArgument: they do not add up to it."""
    return _cut(x, axis_of(x, dim), indices_of(split_sizes))


@_view(gradient=_joined_again)
def unsafe_split(xp: Module, x: Array, /, split_size: int, dim: int = 0) -> tuple[Array, ...]:
    """Views of one size along an axis, the last of which may be smaller, as `split`.

    Raises IndexOutOfRange, InvalidArgument.
    """
    return _of_size(x, axis_of(x, dim), index_of(split_size))


@_view(gradient=_joined_again)
def unsafe_chunk(xp: Module, x: Array, /, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    """At most `chunks` views along an axis, as `chunk`; exactly `chunks` if the axis is empty.

    Raises IndexOutOfRange, InvalidArgument.
    """
    axis = axis_of(x, dim)
    if index_of(chunks) < 1:
        raise InvalidArgument(f"asked for {chunks} chunks; ask for 1 or more")
    if not x.shape[axis]:
        return _cut(x, axis, [0] * index_of(chunks))
    return _of_size(x, axis, max(1, -(-x.shape[axis] // index_of(chunks))))


def _divided(a: Array, axis: int, where: Any, name: str) -> tuple[Array, ...]:
    """Views along an axis: a number of one size, or cut before indices."""
    have = a.shape[axis]
    if isinstance(where, INTEGERS):
        count = index_of(where)
        if count < 1 or have % count:
            raise InvalidArgument(f"{name} into {count} parts of axis {axis}, which has {have}; give a divisor of that")
        return _cut(a, axis, [have // count] * count)
    cuts: list[int | None] = [None, *indices_of(where, "indices"), None]
    before = (slice(None),) * axis
    return tuple([a[(*before, slice(*pair))] for pair in itertools.pairwise(cuts)])


@_view(
    gradient=lambda g, x_shape, indices_or_sections: _put_together(
        g, x_shape, min(len(x_shape) - 1, 1), indices_or_sections
    )
)
def hsplit(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int]) -> tuple[Array, ...]:
    """Views along the second axis, or the only one: a number of one size, or cut before the given indices.

    Raises InvalidArgument: no axis; a number of parts that does not divide it.
    """
    if not x.ndim:
        raise InvalidArgument("hsplit of a tensor without axes; it needs one")
    return _divided(x, min(x.ndim - 1, 1), indices_or_sections, "hsplit")


@_view(gradient=lambda g, x_shape, indices_or_sections: _put_together(g, x_shape, 0, indices_or_sections))
def vsplit(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int]) -> tuple[Array, ...]:
    """Views along the first axis of two or more: a number of one size, or cut before the given indices.

    Raises InvalidArgument: fewer than two axes; a number of parts that does not divide it.
    """
    if x.ndim < 2:
        raise InvalidArgument(f"vsplit of a tensor of shape {x.shape}; it needs two axes")
    return _divided(x, 0, indices_or_sections, "vsplit")


@_view(gradient=lambda g, x_shape, indices_or_sections: _put_together(g, x_shape, 2, indices_or_sections))
def dsplit(xp: Module, x: Array, /, indices_or_sections: int | Sequence[int]) -> tuple[Array, ...]:
    """Views along the third axis: a number of one size, or cut before the given indices.

    Raises InvalidArgument: fewer than three axes; a number of parts that does not divide it.
    """
    if x.ndim < 3:
        raise InvalidArgument(f"dsplit of a tensor of shape {x.shape}; it needs three axes")
    return _divided(x, 2, indices_or_sections, "dsplit")


# -- the conjugate transpose -------------------------------------------------------------------------------------------


@_view(function=False, method=False, properties=("H",), gradient=lambda g: g.H)
def _conjugate_transpose(xp: Module, self: Array) -> Array:
    """The conjugate of the transpose of a matrix; a view for real types. Raises InvalidArgument: not a matrix."""
    if self.ndim not in (0, 2):
        raise InvalidArgument(f"H of a tensor of shape {self.shape}; give a matrix, or use mH for stacks")
    return self.T.conj() if self.dtype.kind == "c" else self.T


@_view(function=False, method=False, properties=("mH",), gradient=lambda g: g.mH)
def _conjugate_matrix_transpose(xp: Module, self: Array) -> Array:
    """The conjugate with the last two axes exchanged; a view for real types. Raises InvalidArgument: fewer than two."""
    if self.ndim == 1:
        raise InvalidArgument(f"mH of a tensor of shape {self.shape}; it needs two axes")
    turned = self.swapaxes(-1, -2) if self.ndim else self
    return turned.conj() if self.dtype.kind == "c" else turned


__all__ = export(globals())
