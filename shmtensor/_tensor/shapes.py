"""Other shapes of the same values: views of a storage, and what joins, repeats and rearranges.

Where NumPy can give a view the result is one, on the same storage; the docstrings say where it is a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._native import strided
from ..allocators.protocol import MAX_BYTES
from ..dtypes import BY_DTYPE, dtype_of
from ..errors import IndexOutOfRange, InvalidArgument, LayoutError, type_name
from ..storage.arguments import INTEGERS, SEQUENCES, check_axes, empty_array, shape_from, view_shape
from ..storage.regions import address_of
from .core import FAILURES, Tensor, again, array_of, failed, given, index_of, indices_of, target_of, wrap

__all__ = [
    "adjoint", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_tensors", "broadcast_to", "cat", "chunk", "column_stack", "concat", "concatenate", "contiguous",
    "diag_embed", "diagonal", "dstack", "expand_dims", "flatten", "flip", "fliplr", "flipud", "hstack",
    "matrix_transpose", "meshgrid", "moveaxis", "movedim", "narrow", "permute_dims", "ravel", "repeat",
    "repeat_interleave", "reshape", "roll", "rot90", "select", "split", "squeeze", "stack", "swapaxes", "t",
    "tensor_split", "tile", "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "unstack", "vstack",
]  # fmt: skip
METHODS: Final = (
    "adjoint", "as_strided", "broadcast_to", "chunk", "contiguous", "diag_embed", "diagonal", "expand_dims",
    "flatten", "fliplr", "flipud", "matrix_transpose", "moveaxis", "movedim", "narrow", "ravel", "repeat_interleave",
    "roll", "rot90", "select", "split", "squeeze", "swapaxes", "t", "tensor_split", "transpose", "unbind",
    "unflatten", "unfold", "unsqueeze", "unstack",
)  # fmt: skip
_BACK: Final = slice(None, None, -1)


def _share_or_wrap(x: Tensor, a: NDArray[Any], result: NDArray[Any]) -> Tensor:
    """`result` on the storage of `x` when it is a view of its array `a`."""
    return x._share(result) if a.flags.c_contiguous or np.may_share_memory(result, a) else wrap(result)


def _axes(x: Tensor, dims: Any) -> tuple[int, ...]:
    """Axes from one or a sequence of them. Raises IndexOutOfRange; InvalidArgument: one of them twice."""
    axes = tuple(x._axis(dim) for dim in dims) if isinstance(dims, SEQUENCES) else (x._axis(dims),)
    if len(set(axes)) != len(axes):
        raise InvalidArgument(f"axes {dims} of a tensor of shape {x.shape} name one of them twice")
    return axes


def _sizes(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sizes that `f(*sizes)` or `f(sizes)` means."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], SEQUENCES) else sizes


def _new_axis(x: Tensor, dim: Any) -> int:
    """Where a new axis is to go. Raises IndexOutOfRange, InvalidArgument: there are as many as there can be."""
    ndim = x._array.ndim + 1
    check_axes(ndim)
    at = index_of(dim)
    if not -ndim <= at < ndim:
        raise IndexOutOfRange(f"asked for a new axis {dim} in a tensor of shape {x.shape}; use {-ndim} to {ndim - 1}")
    return at % ndim


# -- views -------------------------------------------------------------------------------------------------------------


def view(self: Tensor, *shape: Any) -> Tensor:
    """The same memory with other sizes, one of which may be -1: what is left; or its bytes as another dtype.

    Does not block.

    Raises:
        InvalidArgument: another number of elements; a last axis that is no whole number of elements of the dtype.
        LayoutError: the memory's layout has no such view (use reshape, which may copy), or none that is aligned.
    """
    storage = self._storage
    a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
    if len(shape) == 1 and isinstance(shape[0], (np.dtype, type, str)):
        return _view_as_type(self, a, shape[0])
    sizes = view_shape(shape, a)
    if a.flags.c_contiguous:
        return self._share(a.reshape(sizes))
    try:
        return self._share(a.reshape(sizes, copy=False))
    except ValueError as error:
        raise LayoutError(
            f"a tensor of shape {a.shape} and strides {self.stride()} has no view of shape {sizes}; use reshape"
        ) from error


def _view_as_type(x: Tensor, a: NDArray[Any], dtype: Any) -> Tensor:
    wanted = dtype if dtype in BY_DTYPE else dtype_of(dtype)
    try:
        result = a.view(wanted)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"the bytes of a tensor of shape {a.shape} and dtype {a.dtype.name} as {wanted.name}: {error}"
        ) from error
    if a.itemsize != wanted.itemsize and (
        not result.flags.aligned or any(stride % wanted.itemsize for stride in result.strides)
    ):
        raise LayoutError(
            f"a tensor of shape {a.shape}, strides {a.strides} bytes and dtype {a.dtype.name} has no elements of "
            f"{wanted.name}: they would not lie at multiples of {wanted.itemsize} bytes; use a clone()"
        )
    return x._share(result)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`view` with the sizes of another tensor. Does not block. Raises as view does."""
    return view(self, array_of(other).shape)


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the sizes of another tensor. Does not block. Raises as reshape does."""
    return reshape(self, array_of(other).shape)


def reshape(x: Tensor, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The same values, in C order, with other sizes; a view where the layout has one.

    Does not block.

    Args:
        shape: sizes, one of which may be -1: what is left.
        copy: True: always a copy; False: never.

    Raises:
        InvalidArgument: another number of elements.
        LayoutError: copy is False, and the layout has no such view.
    """
    a = array_of(x)
    sizes = view_shape(shape if isinstance(shape, tuple) else (shape,), a)
    if copy:
        return wrap(a.copy().reshape(sizes))
    if copy is False:
        return view(x, sizes)
    return _share_or_wrap(x, a, a.reshape(sizes))


def reshape_method(self: Tensor, *shape: Any, copy: bool | None = None) -> Tensor:
    """The same values with other sizes, as `reshape(x, shape)`; `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    return reshape(self, _sizes(shape), copy=copy)


def flatten(x: Tensor, /, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Axes `start_dim` to `end_dim` as one; a view where the layout has one. Does not block. Raises IndexOutOfRange."""
    shape = array_of(x).shape
    if not shape:
        return reshape(x, (1,))
    first, last = x._axis(start_dim), x._axis(end_dim)
    if first == 0 and last == len(shape) - 1:
        return ravel(x)
    if first > last:
        raise InvalidArgument(f"flatten from axis {start_dim} to axis {end_dim} of {shape}; give them in order")
    return reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def ravel(x: Tensor, /) -> Tensor:
    """All elements on one axis; a view where the layout has one. Does not block."""
    return reshape(x, (array_of(x).size,))


def unflatten(x: Tensor, /, dim: int, sizes: Sequence[int]) -> Tensor:
    """One axis as several. Does not block. Raises IndexOutOfRange, InvalidArgument: sizes that are not its parts."""
    a = array_of(x)
    axis = x._axis(dim)
    inner = indices_of(sizes)
    have, known = a.shape[axis], math.prod(inner)
    if known < 0 and inner.count(-1) == 1 and have % known == 0:
        inner = tuple([have // -known if n == -1 else n for n in inner])
    elif known != have or min(inner, default=0) < 0:
        raise InvalidArgument(f"axis {dim} of a tensor of shape {a.shape} as {inner}; they must multiply to {have}")
    sizes = view_shape((*a.shape[:axis], *inner, *a.shape[axis + 1 :]), a)
    return x._share(a.reshape(sizes)) if a.flags.c_contiguous else reshape(x, sizes)


def narrow(x: Tensor, /, dim: int, start: int, length: int) -> Tensor:
    """The view of `length` steps from `start` along an axis. Does not block.

    Raises:
        IndexOutOfRange: no such axis or range.
    """
    a = array_of(x)
    axis = x._axis(dim)
    have = a.shape[axis]
    start, length = index_of(start), index_of(length)
    if start < 0:
        start += have
    if not 0 <= start <= have or not 0 <= length <= have - start:
        raise IndexOutOfRange(f"asked for {length} steps from {start} of axis {dim}, which has {have}")
    part = slice(start, start + length)
    return x._share(a[(slice(None),) * axis + (part,) if axis else part])


def select(x: Tensor, /, dim: int, index: int) -> Tensor:
    """The view at one index of an axis, which is gone from it. Does not block. Raises IndexOutOfRange."""
    a = array_of(x)
    axis = x._axis(dim)
    have = a.shape[axis]
    if type(index) is not int:
        index = index_of(index)
    if not -have <= index < have:
        raise IndexOutOfRange(f"asked for index {index} of axis {dim}, which has {have}")
    return x._share(a[(slice(None),) * axis + (index, ...)])


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """The view with its axes in another order. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    a = array_of(x)
    try:
        for axis in axes:
            if type(axis) is not int or not -a.ndim <= axis < a.ndim:
                axes = [x._axis(one) for one in indices_of(axes, "axes")]
        return x._share(a.transpose(axes))
    except TypeError as error:
        raise InvalidArgument(f"the order {axes} for the axes of a tensor of shape {a.shape}; give integers") from error
    except ValueError as error:
        raise failed(error, f"the order {axes} for the axes of", a) from error


def permute(self: Tensor, *dims: Any) -> Tensor:
    """The view with its axes in another order, as `permute_dims(x, axes)`; `x.permute(1, 0)` or `x.permute((1, 0))`."""
    return permute_dims(self, _sizes(dims))


def transpose(x: Tensor, /, dim0: int, dim1: int) -> Tensor:
    """The view with two axes exchanged. Does not block. Raises IndexOutOfRange."""
    a = array_of(x)
    return x._share(a.swapaxes(x._axis(dim0), x._axis(dim1)))


swapaxes = transpose


def t(x: Tensor, /) -> Tensor:
    """The transpose of a matrix; a tensor of fewer axes as it is. Does not block. Raises InvalidArgument."""
    a = array_of(x)
    if a.ndim > 2:
        raise InvalidArgument(f"t() of a tensor of shape {a.shape}; it takes at most two axes: use transpose")
    return x._share(a.T)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The view with the last two axes exchanged. Does not block. Raises InvalidArgument: fewer than two."""
    a = array_of(x)
    if a.ndim < 2:
        raise InvalidArgument(f"matrix_transpose of a tensor of shape {a.shape}; it needs two axes")
    return x._share(a.swapaxes(-1, -2))


def adjoint(x: Tensor, /) -> Tensor:
    """The conjugate of the matrix transpose; a view for real types. Does not block. Raises InvalidArgument."""
    turned = matrix_transpose(x)
    return turned if turned._array.dtype.kind != "c" else wrap(turned._array.conj())


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """The view with axes at other places. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    a = array_of(x)
    if type(source) is int and type(destination) is int:
        order = list(range(a.ndim))
        order.insert(x._axis(destination), order.pop(x._axis(source)))
        return x._share(a.transpose(order))
    sources, targets = _axes(x, source), _axes(x, destination)
    if len(sources) != len(targets):
        raise InvalidArgument(f"moveaxis of axes {source} to {destination}; give as many of both")
    order = [i for i in range(a.ndim) if i not in sources]
    for target, source_ in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source_)
    return x._share(a.transpose(order))


movedim = moveaxis


def squeeze(x: Tensor, /, axis: Any = None, *, dim: Any = None) -> Tensor:
    """The view without axes of size 1: all of them, or those named, which must be so.

    Does not block. Raises IndexOutOfRange; InvalidArgument: an axis of another size.
    """
    a = array_of(x)
    axis = axis if dim is None else dim
    if axis is None:
        return x._share(a.squeeze())
    axes = _axes(x, axis)
    if any(a.shape[i] != 1 for i in axes):
        raise InvalidArgument(f"squeeze of axis {axis} of a tensor of shape {a.shape}; only axes of size 1 can go")
    return x._share(a.squeeze(axes))


def expand_dims(x: Tensor, /, axis: Any) -> Tensor:
    """The view with new axes of size 1. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    if not isinstance(axis, SEQUENCES):
        return unsqueeze(x, axis)
    a = array_of(x)
    ndim = a.ndim + len(axis)
    check_axes(ndim)
    axes = [index_of(one) + ndim if index_of(one) < 0 else index_of(one) for one in axis]
    if not all(0 <= one < ndim for one in axes):
        raise IndexOutOfRange(f"asked for new axes {axis} in a tensor of shape {a.shape}; use {-ndim} to {ndim - 1}")
    if len(set(axes)) != len(axes):
        raise InvalidArgument(f"asked for new axes {axis} in a tensor of shape {a.shape}; one is there twice")
    return x._share(a[tuple([None if i in axes else slice(None) for i in range(ndim)])])


def unsqueeze(x: Tensor, /, dim: int) -> Tensor:
    """The view with a new axis of size 1 at `dim`. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    a = array_of(x)
    return x._share(a[(slice(None),) * _new_axis(x, dim) + (None,)])


def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """The view with these sizes, whose new elements are the same memory, so that it cannot be written.

    Does not block. Raises InvalidArgument: sizes that the tensor does not broadcast to.
    """
    return _broadcast(x, array_of(x), indices_of(shape), False)


def _broadcast(x: Tensor, a: NDArray[Any], sizes: tuple[int, ...], keeps: bool) -> Tensor:
    """`keeps`: a size of -1 is that of the axis."""
    new = len(sizes) - a.ndim
    own, steps = a.shape, list(a.strides)
    if new < 0:
        raise InvalidArgument(f"broadcasting to {sizes} of a tensor of shape {own}; give as many axes or more")
    for i, have in enumerate(own, new):
        if have != sizes[i]:
            if keeps and sizes[i] == -1:
                sizes = (*sizes[:i], have, *sizes[i + 1 :])
                continue
            if have != 1:
                raise InvalidArgument(f"broadcasting to {sizes} of a tensor of shape {own}; only axes of size 1 repeat")
            steps[i - new] = 0
    try:
        return x._share(strided(a, sizes, (*(0,) * new, *steps)))
    except (OverflowError, ValueError) as error:
        raise failed(error, f"broadcasting to {sizes}", a) from error


def expand(self: Tensor, *sizes: Any) -> Tensor:
    """The view with axes of size 1 repeated, without memory of their own; -1 keeps an axis. It cannot be written.

    Does not block. Raises InvalidArgument: other sizes.
    """
    return _broadcast(self, self._live(), indices_of(_sizes(sizes)), True)


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`expand` to the sizes of another tensor. Does not block. Raises InvalidArgument."""
    return broadcast_to(self, array_of(other).shape)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that tensors of these sizes broadcast to. Does not block. Raises InvalidArgument."""
    try:
        return np.broadcast_shapes(*shapes)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"shapes {list(shapes)} do not broadcast: {error}") from error


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Views of all tensors with the sizes that they broadcast to. Does not block. Raises InvalidArgument."""
    shape = broadcast_shapes(*[array_of(x).shape for x in arrays])
    return tuple([broadcast_to(x, shape) for x in arrays])


broadcast_tensors = broadcast_arrays


def diagonal(x: Tensor, /, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The view of a diagonal of two axes, as a last axis. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    a = array_of(x)
    try:
        result = a.diagonal(index_of(offset), x._axis(dim1), x._axis(dim2))
    except ValueError as error:
        raise failed(error, "taking a diagonal of", a) from error
    if a.flags.writeable:
        result.flags.writeable = True  # NumPy's is read-only for reasons of its history
    return x._share(result)


def as_strided(x: Tensor, /, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The view of the storage with these sizes and strides (elements). Overlapping ones cannot be written.

    Does not block.

    Args:
        storage_offset: first element in the storage; None: the tensor's own.

    Raises:
        InvalidArgument: it would reach beyond the storage.
    """
    a = array_of(x)
    sizes, strides, width = indices_of(size), indices_of(stride, "strides"), a.itemsize
    steps = tuple([n * width for n in strides])
    if storage_offset is None:
        with suppress(OverflowError, TypeError, ValueError):  # the tensor's own elements will do, mostly
            return x._share(strided(a, sizes, steps))
    flat = x.storage()._flat
    if flat.dtype != a.dtype:
        flat = flat[: flat.nbytes // width * width // flat.itemsize].view(a.dtype)
    offset = address_of(a) - address_of(flat) if storage_offset is None else index_of(storage_offset) * width
    try:
        if not 0 <= offset <= flat.nbytes:
            raise ValueError("it begins outside of the storage")
        return x._share(strided(flat, sizes, steps, offset))
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"sizes {sizes}, strides {strides}, offset {offset // width} for a storage of {flat.size} elements: {error}"
        ) from error


def unfold(x: Tensor, /, dimension: int, size: int, step: int) -> Tensor:
    """The view of all windows of `size` along an axis, `step` apart, as a last axis; no writing to overlapping ones.

    Does not block. Raises IndexOutOfRange, InvalidArgument: windows larger than the axis, a step below 1.
    """
    a = array_of(x)
    axis = x._axis(dimension)
    sizes, steps = a.shape, a.strides
    have = sizes[axis]
    size, step = index_of(size), index_of(step)
    if not 0 <= size <= have or step < 1:
        raise InvalidArgument(f"windows of {size}, {step} apart, of axis {dimension}, which has {have}")
    shape = (*sizes[:axis], (have - size) // step + 1, *sizes[axis + 1 :], size)
    strides = (*steps[:axis], steps[axis] * step, *steps[axis + 1 :], steps[axis])
    try:
        return x._share(strided(a, shape, strides))
    except (OverflowError, ValueError) as error:
        raise failed(error, f"windows of {size}, {step} apart, of", a) from error


def flip(x: Tensor, /, axis: Any = None) -> Tensor:
    """The view with the order of elements reversed along all axes or some. Does not block. Raises IndexOutOfRange."""
    a = array_of(x)
    key: tuple[Any, ...]
    if axis is None:
        key = (_BACK,) * a.ndim
    elif type(axis) is int:
        key = (slice(None),) * x._axis(axis) + (_BACK,)
    else:
        axes = _axes(x, axis)
        key = tuple([_BACK if i in axes else slice(None) for i in range(a.ndim)])
    return x._share(a[(*key, ...)])


def flip_method(self: Tensor, *axes: Any, dims: Any = ()) -> Tensor:
    """The view with the order of elements reversed along some axes; `x.flip(0, 1)` or `x.flip((0, 1))`; none: all."""
    given = axes or dims
    return flip(self, axis=given[0] if len(given) == 1 else given or None)


def fliplr(x: Tensor, /) -> Tensor:
    """`flip` of the second axis. Does not block. Raises IndexOutOfRange."""
    return flip(x, axis=1)


def flipud(x: Tensor, /) -> Tensor:
    """`flip` of the first axis. Does not block. Raises IndexOutOfRange."""
    return flip(x, axis=0)


def rot90(x: Tensor, /, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The view turned by 90 degrees `k` times in the plane of two axes. Does not block. Raises IndexOutOfRange."""
    a = array_of(x)
    axes = _axes(x, indices_of(dims, "axes"))
    if len(axes) != 2:
        raise InvalidArgument(f"rot90 in the plane of axes {dims}; give two")
    return x._share(np.rot90(a, index_of(k), axes))


def chunk(x: Tensor, /, chunks: int, dim: int = 0) -> list[Tensor]:
    """At most `chunks` views of equal sizes along an axis, the last of which may be smaller. Does not block.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; fewer than one.
    """
    have = array_of(x).shape[x._axis(dim)]
    if index_of(chunks) < 1:
        raise InvalidArgument(f"asked for {chunks} chunks; ask for 1 or more")
    return split(x, max(1, -(-have // index_of(chunks))), dim)


def split(x: Tensor, /, split_size: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Views along an axis: all of one size but perhaps the last, or of the given sizes. Does not block.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; sizes that do not add up to it.
    """
    a = array_of(x)
    axis = x._axis(dim)
    have = a.shape[axis]
    if isinstance(split_size, SEQUENCES):
        sizes = [index_of(n) for n in split_size]
        if sum(sizes) != have or min(sizes, default=0) < 0:
            raise InvalidArgument(
                f"a split into {sizes} of axis {dim}, which has {have}; the sizes must add up to that"
            )
    else:
        size = index_of(split_size)
        if size < 1:
            raise InvalidArgument(f"a split into parts of {size}; give a size from 1")
        sizes = [min(size, have - start) for start in range(0, have, size)] or [0]
    parts, start = [], 0
    for size in sizes:
        parts.append(narrow(x, axis, start, size))
        start += size
    return parts


def tensor_split(x: Tensor, /, indices_or_sections: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Views along an axis: so many of nearly equal sizes, or cut before the given indices. Does not block.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; fewer than one part.
    """
    a = array_of(x)
    axis = x._axis(dim)
    one = isinstance(indices_or_sections, INTEGERS)
    cuts: Any = index_of(indices_or_sections) if one else list(indices_of(indices_or_sections, "indices"))
    try:
        return [x._share(part) for part in np.array_split(a, cuts, axis)]
    except ValueError as error:
        raise failed(error, f"splitting at {cuts}", a) from error


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The views at each index of an axis. Does not block. Raises IndexOutOfRange."""
    return tuple([select(x, axis, i) for i in range(array_of(x).shape[x._axis(axis)])])


def unbind(x: Tensor, /, dim: int = 0) -> tuple[Tensor, ...]:
    """The views at each index of an axis. Does not block. Raises IndexOutOfRange."""
    return unstack(x, axis=dim)


def contiguous(x: Tensor, /) -> Tensor:
    """Itself when contiguous, else a copy that is. Does not block."""
    a = array_of(x)
    return x if a.flags.c_contiguous else x.clone()


# -- copies ------------------------------------------------------------------------------------------------------------


def _arrays(tensors: Sequence[Tensor], doing: str) -> list[NDArray[Any]]:
    if not isinstance(tensors, SEQUENCES) or not tensors:
        found = "no tensors" if isinstance(tensors, SEQUENCES) else f"a {type_name(tensors)}"
        raise InvalidArgument(f"{doing} of {found}; give a list")
    return [array_of(x) for x in tensors]


def _joined(function: Any, tensors: Sequence[Tensor], doing: str, **how: Any) -> Tensor:
    arrays = _arrays(tensors, doing)
    out = how.pop("out", None)
    target = None if out is None else target_of(out)
    # NumPy writes while it reads, so that results go elsewhere first where that is the same memory.
    direct = target is not None and not any(np.may_share_memory(target, a) for a in arrays)
    compute = partial(function, arrays, **how, **({"out": target} if direct else {}))
    try:
        result = compute()
    except FAILURES as error:
        shapes = [a.shape for a in arrays]
        result = again(error, f"{doing} of tensors of shapes {shapes}, the first", arrays[0], compute)
    return out if direct else given(result, out, doing)


def concat(arrays: Sequence[Tensor], /, axis: int | None = 0, *, out: Tensor | None = None) -> Tensor:
    """The tensors one after the other along an axis; None: all their elements on one.

    A copy, of the type that they promote to. Does not block. Raises InvalidArgument (shapes), IndexOutOfRange.
    """
    return _joined(np.concatenate, arrays, "concat", axis=axis, out=out)


concatenate = concat


def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """`concat` with torch's names. A copy. Does not block. Raises InvalidArgument (shapes), IndexOutOfRange."""
    return concat(tensors, axis=dim, out=out)


def stack(arrays: Sequence[Tensor], /, axis: int = 0, *, dim: int | None = None, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape along a new axis. A copy. Does not block. Raises InvalidArgument, IndexOutOfRange."""
    return _joined(np.stack, arrays, "stack", axis=axis if dim is None else dim, out=out)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors side by side: along the second axis, or the only one. A copy. Does not block. Raises InvalidArgument."""
    return _joined(np.hstack, tensors, "hstack")


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as rows, one below the other. A copy. Does not block. Raises InvalidArgument."""
    return _joined(np.vstack, tensors, "vstack")


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors along the third axis. A copy. Does not block. Raises InvalidArgument."""
    return _joined(np.dstack, tensors, "dstack")


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as columns, side by side. A copy. Does not block. Raises InvalidArgument."""
    return _joined(np.column_stack, tensors, "column_stack")


def roll(x: Tensor, /, shift: Any, axis: Any = None) -> Tensor:
    """The elements moved by `shift` places along axes, or in flat order; what falls off comes in again. A copy.

    Does not block. Raises IndexOutOfRange, InvalidArgument: not as many shifts as axes.
    """
    a = array_of(x)
    if isinstance(shift, SEQUENCES) and (
        axis is None or len(shift) != (len(axis) if isinstance(axis, SEQUENCES) else 1)
    ):
        raise InvalidArgument(f"a roll by {shift} along axes {axis}; give one shift for each axis")
    axes = axis if axis is None else tuple(x._axis(i) for i in axis) if isinstance(axis, SEQUENCES) else x._axis(axis)
    by = indices_of(shift, "shifts") if isinstance(shift, SEQUENCES) else index_of(shift, "shift")
    try:
        return wrap(np.roll(a, by, axes))
    except FAILURES as error:
        raise failed(error, "rolling", a) from error


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element (or each index of an axis) so many times in a row. A copy. Does not block.

    Args:
        repeats: a number, or integers, one for each; None as axis takes the elements in flat order.

    Raises:
        IndexOutOfRange, InvalidArgument: no such axis; negative or too few numbers.
    """
    a = array_of(x)
    times = repeats._live() if isinstance(repeats, Tensor) else repeats
    along = None if axis is None else x._axis(axis)
    have = a.size if along is None else a.shape[along]
    try:
        counts = np.asarray(times)
        if counts.dtype.kind not in "iu" and counts.size:
            raise TypeError("give integers")
        wanted = float(counts.sum(dtype=np.float64)) * (have if counts.size == 1 else 1)
        if wanted * (a.size // max(have, 1)) * a.itemsize > MAX_BYTES:  # NumPy's arithmetic would wrap around
            raise ValueError("more bytes than can exist")
        return wrap(np.repeat(a, times, along))
    except FAILURES as error:
        raise failed(error, f"repeating {times} times", a) from error


def repeat_interleave(x: Tensor, /, repeats: Any, dim: int | None = None) -> Tensor:
    """`repeat` with torch's names. A copy. Does not block. Raises IndexOutOfRange, InvalidArgument."""
    return repeat(x, repeats, axis=dim)


def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """The tensor so many times along each axis. A copy. Does not block. Raises InvalidArgument."""
    a = array_of(x)
    times = indices_of((repetitions,) if isinstance(repetitions, INTEGERS) else repetitions, "repetitions")
    if min(times, default=0) < 0:
        raise InvalidArgument(f"tiles {times} times; give numbers from 0")
    shape_from((math.prod(times), *a.shape), a.itemsize)
    try:
        return wrap(np.tile(a, times))
    except FAILURES as error:
        raise failed(error, f"tiling {times} times", a) from error


def tile_method(self: Tensor, *repetitions: Any) -> Tensor:
    """The tensor so many times along each axis, as `tile(x, repetitions)`; `x.tile(2, 3)` or `x.tile((2, 3))`."""
    return tile(self, _sizes(repetitions))


def atleast_1d(x: Tensor, /) -> Tensor:
    """With one axis at least; a view. Does not block."""
    a = array_of(x)
    return x._share(np.atleast_1d(a))


def atleast_2d(x: Tensor, /) -> Tensor:
    """With two axes at least; a view. Does not block."""
    a = array_of(x)
    return x._share(np.atleast_2d(a))


def atleast_3d(x: Tensor, /) -> Tensor:
    """With three axes at least; a view. Does not block."""
    a = array_of(x)
    return x._share(np.atleast_3d(a))


def diag_embed(x: Tensor, /, offset: int = 0) -> Tensor:
    """Matrices of zeros with the last axis on a diagonal. A copy. Does not block. Raises InvalidArgument."""
    a = array_of(x)
    if not a.ndim:
        raise InvalidArgument("diag_embed of a tensor without axes; it needs one")
    offset = index_of(offset)
    side = a.shape[-1] + (offset if offset > 0 else -offset)
    shape, _ = shape_from((*a.shape[:-1], side, side), a.itemsize)
    made = empty_array(shape, a.dtype)
    made.fill(0)
    at = np.arange(a.shape[-1])
    made[..., at + max(0, -offset), at + max(0, offset)] = a
    return wrap(made)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Grids of coordinates from tensors of one axis. Copies. Does not block. Raises InvalidArgument."""
    if indexing not in ("xy", "ij") or any(array_of(x).ndim > 1 for x in arrays):
        raise InvalidArgument(f"meshgrid with indexing {indexing!r}; give tensors of one axis, and 'xy' or 'ij'")
    try:
        grids = np.meshgrid(*[array_of(x) for x in arrays], indexing=indexing)  # type: ignore[call-overload]
    except FAILURES as error:
        raise failed(error, f"a grid of {len(arrays)} axes, the first of", array_of(arrays[0])) from error
    return tuple([wrap(grid) for grid in grids])
