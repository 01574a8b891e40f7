"""Tensors joined, repeated and rolled. Results are copies, except of `meshgrid`. Nothing in this module blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..allocators.protocol import MAX_BYTES
from ..errors import InvalidArgument
from ..storage.arguments import INTEGERS, SEQUENCES, shape_from
from .core import Tensor, array_of, axes_of, axis_of, index_of, indices_of
from .dispatch import Array, Arrays, Module, Out, composed, export, operation
from .result_types import common_type, converted
from .shapes import broadcast_to, diagonal, narrow, reshape, select, several_axes, sizes_of


def _separated(g: Tensor, shapes: Any, axis: int, wide: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple) -> Any:
    """The gradients of tensors that were joined along an axis.

    Args:
        shapes: shapes of these tensors.
        wide: returns, for one of these shapes, the shape with which the tensor was joined.
    """
    found, start = [], 0
    for shape in shapes:
        if shape == (0,) and g.ndim > 1:  # among others of any shape
            found.append(g.new_zeros(shape))
            continue
        have = wide(shape)[axis]
        found.append(narrow(g, axis, start, have).reshape(shape))
        start += have
    return found


def _unstacked(g: Tensor, axis: int) -> list[Tensor]:
    return [select(g, axis, i) for i in range(g.shape[axis])]


def _two_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (2 - len(shape)) + shape


def _three_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*_two_axes(shape), 1) if len(shape) < 3 else shape


def _as_columns(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) > 1 else (math.prod(shape), 1)


def _concatenated_back(g: Tensor, arrays_shape: Any, axis: int | None) -> Any:
    """The gradient rule of `concat`."""
    return _separated(g, arrays_shape, 0, _flat) if axis is None else _separated(g, arrays_shape, axis)


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape),)


def _joined(function: Callable[..., Array], arrays: Any, out: Any, **how: Any) -> Array:
    # NumPy writes while it reads, so that results go elsewhere first where that is the same memory.
    if out is None or any(np.may_share_memory(out, a) for a in arrays):
        return function(arrays, dtype=common_type(*[np.atleast_1d(a) for a in arrays]), **how)
    return function(arrays, out=out, **how)


def _one_after_the_other(xp: Module, arrays: Any, axis: Any, out: Any) -> Array:
    """The arrays along an axis. Those of shape (0,) may be among others, as in torch."""
    if out is None and arrays:
        kind = arrays[0].dtype
        for a in arrays:
            if a.dtype is not kind or not a.size:
                break
        else:  # most calls
            return xp.concatenate(arrays, axis)
    kept = [a for a in arrays if a.shape != (0,)]
    if len(kept) == len(arrays) or not kept or axis is None:
        return _joined(xp.concatenate, arrays, out, axis=axis)
    kind = common_type(*arrays)
    return _joined(xp.concatenate, [a.astype(kind, copy=False) for a in kept], out, axis=axis)


@operation(
    "concatenate",
    out=Out.PASSED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=_concatenated_back,
)
def concat(xp: Module, arrays: Arrays, /, axis: int | None = 0, *, out: Array | None = None) -> Array:
    """The tensors one after the other along an axis; None: all their elements on one.

    A copy, of the type that they promote to. Raises InvalidArgument (shapes), IndexOutOfRange.
    """
    return _one_after_the_other(xp, arrays, axis, out)


@operation(
    out=Out.PASSED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=lambda g, tensors_shape, dim: _separated(g, tensors_shape, dim),
)
def cat(xp: Module, tensors: Arrays, /, dim: int = 0, *, out: Array | None = None) -> Array:
    """`concat` with torch's names. A copy. Raises InvalidArgument (shapes), IndexOutOfRange."""
    return _one_after_the_other(xp, tensors, dim, out)


@operation(
    out=Out.PASSED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=lambda g, axis, dim: _unstacked(g, axis if dim is None else dim),
)
def stack(xp: Module, arrays: Arrays, /, axis: int = 0, *, dim: int | None = None, out: Array | None = None) -> Array:
    """Tensors of one shape along a new axis. A copy. Raises InvalidArgument, IndexOutOfRange."""
    return _joined(xp.stack, arrays, out, axis=axis if dim is None else dim)


@operation(
    out=Out.COPIED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=lambda g, tensors_shape: _separated(g, tensors_shape, min(g.ndim - 1, 1), lambda shape: shape or (1,)),
)
def hstack(xp: Module, tensors: Arrays, /) -> Array:
    """Tensors side by side: along the second axis, or the only one. A copy. Raises InvalidArgument."""
    return xp.hstack(converted(xp, common_type(*tensors), *tensors))


@operation(
    "row_stack",
    out=Out.COPIED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=lambda g, tensors_shape: _separated(g, tensors_shape, 0, _two_axes),
)
def vstack(xp: Module, tensors: Arrays, /) -> Array:
    """Tensors as rows, one below the other. A copy. Raises InvalidArgument."""
    return xp.vstack(converted(xp, common_type(*tensors), *tensors))


@operation(
    out=Out.COPIED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=lambda g, tensors_shape: _separated(g, tensors_shape, 2, _three_axes),
)
def dstack(xp: Module, tensors: Arrays, /) -> Array:
    """Tensors along the third axis. A copy. Raises InvalidArgument."""
    return xp.dstack(converted(xp, common_type(*tensors), *tensors))


@operation(
    out=Out.COPIED,
    method=False,
    fails="{name} of tensors, the first",
    gradient=lambda g, tensors_shape: _separated(g, tensors_shape, 1, _as_columns),
)
def column_stack(xp: Module, tensors: Arrays, /) -> Array:
    """Tensors as columns, side by side. A copy. Raises InvalidArgument."""
    return xp.column_stack(converted(xp, common_type(*tensors), *tensors))


@operation(fails="rolling", gradient=lambda g, shifts, dims: g.roll(_back(shifts), dims))
def roll(xp: Module, x: Array, /, shifts: Any, dims: Any = None) -> Array:
    """The elements moved by `shifts` places along axes, or in flat order; they come back at the other end. A copy.

    Raises IndexOutOfRange, InvalidArgument: not as many shifts as axes.
    """
    return rolled(xp, x, shifts, dims)


def _back(shifts: Any) -> Any:
    return [-index_of(one) for one in shifts] if isinstance(shifts, SEQUENCES) else -index_of(shifts)


def rolled(xp: Module, x: Array, shifts: Any, dims: Any) -> Array:
    """The implementation of `roll`."""
    if isinstance(shifts, SEQUENCES) and len(shifts) != (len(dims) if isinstance(dims, SEQUENCES) else 1):
        raise InvalidArgument(f"a roll by {shifts} along axes {dims}; give one shift for each axis")
    by = indices_of(shifts, "shifts") if isinstance(shifts, SEQUENCES) else index_of(shifts, "shift")
    return xp.roll(x, by[0] if dims is None and isinstance(by, tuple) else by, axes_of(x, dims))


def _unrepeated(g: Tensor, x_shape: tuple[int, ...], repeats: Any, axis: int | None) -> Tensor:
    """The gradient rule of `repeat`: sums over what was repeated."""
    at, shape = (0, _flat(x_shape)) if axis is None else (axis % max(len(x_shape), 1), x_shape)
    have, counts = shape[at], np.asarray(repeats)
    if counts.size == 1:
        sums = g.reshape((*shape[:at], have, counts.item(), *shape[at + 1 :])).sum(at + 1)
    else:
        sums = g.new_zeros(shape).index_add(at, np.repeat(np.arange(have), counts.reshape(-1)), g)
    return sums.reshape(x_shape)


def _repeated(xp: Module, a: Array, repeats: Any, axis: int | None) -> Array:
    along = None if axis is None else axis_of(a, axis)
    have = a.size if along is None else a.shape[along]
    counts = xp.asarray(repeats)
    if counts.dtype.kind not in "iu" and counts.size:
        raise TypeError("give integers")
    wanted = float(counts.sum(dtype=xp.float64)) * (have if counts.size == 1 else 1)
    if wanted * (a.size // max(have, 1)) * a.itemsize > MAX_BYTES:  # NumPy's arithmetic would wrap around
        raise ValueError("the result has too many bytes")
    return xp.repeat(a, repeats, along)


@operation(method=False, fails="repeating {repeats} times", gradient=_unrepeated)
def repeat(xp: Module, x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element (or each index of an axis) repeated in a row. A copy.

    Args:
        repeats: a number, or integers, one for each; None as axis takes the elements in flat order.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; negative or too few numbers.
    """
    return _repeated(xp, x, repeats, axis)


@operation(
    fails="repeating {repeats} times",
    gradient=lambda g, x_shape, repeats, dim: _unrepeated(g, x_shape, repeats, dim),
)
def repeat_interleave(
    xp: Module, x: Array, /, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    """`repeat` with torch's names; for one tensor of integers, each index repeated as often. A copy.

    Args:
        output_size: the size that the axis gets, if it is known.

    Raises:
        IndexOutOfRange, InvalidArgument: as repeat; another size.
    """
    a, times = (xp.arange(x.shape[0] if x.ndim else 1), x) if repeats is None else (x, repeats)
    made = _repeated(xp, a, times, dim)
    size = made.size if dim is None else made.shape[dim]
    if output_size is not None and index_of(output_size) != size:
        raise InvalidArgument(f"repeat_interleave with output_size {output_size}; the size is {size}")
    return made


def _tiled(xp: Module, a: Array, repetitions: Any) -> Array:
    times = indices_of((repetitions,) if isinstance(repetitions, INTEGERS) else repetitions, "repetitions")
    if min(times, default=0) < 0:
        raise InvalidArgument(f"tiles {times} times; give numbers from 0")
    shape_from((math.prod(times), *a.shape), a.itemsize)
    return xp.tile(a, times)


def _untiled(g: Tensor, x_shape: tuple[int, ...], repetitions: Any) -> Tensor:
    """The gradient rule of `tile`: the sum of all tiles."""
    times = sizes_of((repetitions,) if isinstance(repetitions, INTEGERS) else tuple(repetitions))
    ndim = max(len(times), len(x_shape))
    sizes: list[int] = []
    axes: list[int] = []
    for n, have in zip((*(1,) * (ndim - len(times)), *times), (*(1,) * (ndim - len(x_shape)), *x_shape), strict=True):
        if index_of(n) != 1:
            axes.append(len(sizes))
            sizes.append(index_of(n))
        sizes.append(have)
    return (g.reshape(sizes).sum(axes) if axes else g).reshape(x_shape)


def _tile_method(xp: Module, x: Array, /, *repetitions: Any) -> Array:
    """The tensor repeated along each axis, as `tile(x, repetitions)`; `x.tile(2, 3)` or `x.tile((2, 3))`."""
    return _tiled(xp, x, sizes_of(repetitions))


@operation(method=_tile_method, fails="tiling {repetitions} times", gradient=_untiled)
def tile(xp: Module, x: Array, repetitions: Sequence[int], /) -> Array:
    """The tensor repeated along each axis. A copy. Raises InvalidArgument."""
    return _tiled(xp, x, repetitions)


@operation(gradient=lambda g, offset, dim1, dim2: diagonal(g, offset, dim1, dim2))
def diag_embed(xp: Module, x: Array, /, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Zeros with the last axis on a diagonal of two new axes. A copy. Raises InvalidArgument, IndexOutOfRange."""
    if not x.ndim:
        raise InvalidArgument("diag_embed of a tensor without axes; it needs one")
    offset = index_of(offset)
    side = x.shape[-1] + (offset if offset > 0 else -offset)
    shape, _ = shape_from((*x.shape[:-1], side, side), x.itemsize)
    made = xp.zeros(shape, x.dtype)
    at = xp.arange(x.shape[-1])
    made[..., at + max(0, -offset), at + max(0, offset)] = x
    places = several_axes(made, (dim1, dim2))
    return xp.ascontiguousarray(xp.moveaxis(made, (-2, -1), places))


@composed(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Grids of coordinates from tensors, or a list of them, of one axis: views, which cannot be written.

    Raises InvalidArgument, DTypeError.
    """
    several = sizes_of(tensors)
    if indexing not in ("xy", "ij") or not several or any(array_of(x).ndim > 1 for x in several):
        raise InvalidArgument(f"meshgrid with indexing {indexing!r}; give tensors of one axis, and 'xy' or 'ij'")
    places = list(range(len(several)))
    if indexing == "xy" and len(several) > 1:
        places[:2] = 1, 0
    sizes = [several[i].numel() for i in places]
    rows = [
        reshape(x, tuple([-1 if i == at else 1 for i in range(len(several))]))
        for x, at in zip(several, places, strict=True)
    ]
    return tuple([broadcast_to(row, sizes) for row in rows])


__all__ = export(globals())
