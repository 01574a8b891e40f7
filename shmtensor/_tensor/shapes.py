"""Changing shapes: views of a storage, and copies in another order.

The result is a view on the same storage wherever NumPy can make one; docstrings state where it is a copy. Nothing in
this module blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np

from .._native import is_recorded, strided
from ..dtypes import BY_DTYPE, DType, dtype_of
from ..errors import DTypeError, GradientError, IndexOutOfRange, InvalidArgument, LayoutError
from ..layouts import axes_in_memory, dense_axes, preserve_format
from ..storage.arguments import SEQUENCES, check_axes, view_shape
from ..storage.regions import address_of
from .axes import dim_of, lined
from .core import Tensor, array_of, axes_of, axis_of, index_of, indices_of
from .dispatch import Array, Module, Register, Result, composed, export, operation

_BACK: Final = slice(None, None, -1)
_TYPES: Final = (DType, np.dtype, type, str)
_view: Register = partial(operation, result=Result.VIEW)


def several_axes(a: Array, dims: Any) -> tuple[int, ...]:
    """Axes from one or a sequence of them. Raises IndexOutOfRange; InvalidArgument: a duplicate axis."""
    axes = tuple([axis_of(a, dim) for dim in dims]) if isinstance(dims, SEQUENCES) else (axis_of(a, dims),)
    if len(set(axes)) != len(axes):
        raise InvalidArgument(f"axes {dims} of a tensor of shape {a.shape} contain a duplicate")
    return axes


def sizes_of(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sizes that `f(*sizes)` or `f(sizes)` means."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], SEQUENCES) else sizes


# -- what gradient rules use -------------------------------------------------------------------------------------------


def _reshaped_back(g: Tensor, x_shape: Any) -> Tensor:
    """The gradient rule of operations that only change sizes."""
    return g.reshape(x_shape)


def _unchanged(g: Tensor) -> Tensor:
    """The gradient rule of operations that repeat or copy elements: the caller of the rule sums over new axes."""
    return g


@operation(name="into_zeros", function=False, method=False, gradient=lambda g, view, how: view(g, *how))
def into_zeros(xp: Module, x: Array, shape: tuple[int, ...], view: Any, how: tuple[Any, ...]) -> Array:
    """Zeros of a shape, except for a part, which is a tensor.

    Args:
        shape: the sizes of the whole.
        view: the operation that gives the part as a view of the whole, in which no element occurs twice.
        how: its arguments after the whole.
    """
    made = xp.zeros(shape, x.dtype)
    view.form.row.compute(xp, made, *how)[...] = x
    return made


# -- views -------------------------------------------------------------------------------------------------------------


def _viewed_back(g: Tensor, self_shape: tuple[int, ...], shape: Any) -> Tensor:
    """Raises GradientError: for a view as another type."""
    if len(shape) == 1 and isinstance(shape[0], _TYPES):
        raise GradientError(
            "the view of a tensor's bytes as another type has no gradient; convert the values with to(), or use "
            "view_as_real or view_as_complex"
        )
    return g.reshape(self_shape)


@_view(function=False, gradient=_viewed_back)
def view(xp: Module, self: Array, *shape: Any) -> Array:
    """The same memory with other sizes, one of which may be -1 (inferred); or its bytes as another dtype.

    Raises:
        InvalidArgument: another number of elements; a last axis that is not a whole number of elements of the dtype.
        LayoutError: the memory's layout has no such view (use reshape, which may copy), or none that is aligned.
    """
    if len(shape) == 1 and isinstance(shape[0], _TYPES):
        return _view_as_type(self, shape[0])
    return _view_of_shape(self, view_shape(shape, self))


def _view_of_shape(a: Array, sizes: tuple[int, ...]) -> Array:
    if a.flags.c_contiguous:
        return a.reshape(sizes)
    try:
        return a.reshape(sizes, copy=False)
    except ValueError as error:
        strides = tuple([step // a.itemsize for step in a.strides])
        raise LayoutError(
            f"a tensor of shape {a.shape} and strides {strides} has no view of shape {sizes}; use reshape"
        ) from error


def _view_as_type(a: Array, dtype: Any) -> Array:
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
    return result


@_view(function=False, gradient=lambda g, self_shape: g.reshape(self_shape))
def view_as(xp: Module, self: Array, other: Array) -> Array:
    """`view` with the sizes of another tensor. Raises as view does."""
    return _view_of_shape(self, view_shape(other.shape, self))


@_view(function=False, gradient=lambda g, self_shape: g.reshape(self_shape))
def reshape_as(xp: Module, self: Array, other: Array) -> Array:
    """`reshape` to the sizes of another tensor. Raises as reshape does."""
    return self.reshape(view_shape(other.shape, self))


def _reshaped(a: Array, sizes: tuple[int, ...], copy: bool | None) -> Array:
    if copy:
        return a.copy().reshape(sizes)
    return _view_of_shape(a, sizes) if copy is False else a.reshape(sizes)


def _reshape_method(xp: Module, x: Array, /, *shape: Any, copy: bool | None = None) -> Array:
    """The same values with other sizes, as `reshape(x, shape)`; `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
    sizes = view_shape(shape, x)
    return x.reshape(sizes) if copy is None else _reshaped(x, sizes, copy)


@_view(method=_reshape_method, gradient=_reshaped_back)
def reshape(xp: Module, x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """The same values, in C order, with other sizes; a view where the layout has one.

    Args:
        shape: sizes, one of which may be -1: it is inferred.
        copy: True: always copy; False: never.

    Raises:
        InvalidArgument: another number of elements.
        LayoutError: copy is False, and the layout has no such view.
    """
    sizes = view_shape(shape if isinstance(shape, tuple) else (shape,), x)
    return x.reshape(sizes) if copy is None else _reshaped(x, sizes, copy)


@_view(gradient=_reshaped_back)
def flatten(xp: Module, x: Array, /, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Axes `start_dim` to `end_dim` as one; a view where the layout has one. Raises IndexOutOfRange."""
    shape = x.shape
    if not shape:
        return x.reshape(1)
    first, last = axis_of(x, start_dim), axis_of(x, end_dim)
    if first > last:
        raise InvalidArgument(f"flatten from axis {start_dim} to axis {end_dim} of {shape}; give them in order")
    return x.reshape((*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@_view(gradient=_reshaped_back)
def ravel(xp: Module, x: Array, /) -> Array:
    """All elements on one axis; a view if the tensor is contiguous."""
    return x.reshape(x.size) if x.flags.c_contiguous else x.flatten()


@_view(gradient=_reshaped_back)
def unflatten(xp: Module, x: Array, /, dim: int, sizes: Sequence[int]) -> Array:
    """One axis as several. Raises IndexOutOfRange, InvalidArgument: sizes that are not its parts."""
    axis = axis_of(x, dim)
    inner = indices_of(sizes)
    have, known = x.shape[axis], math.prod(inner)
    if known < 0 and inner.count(-1) == 1 and have % known == 0:
        inner = tuple([have // -known if n == -1 else n for n in inner])
    elif known != have or min(inner, default=0) < 0:
        raise InvalidArgument(f"axis {dim} of a tensor of shape {x.shape} as {inner}; they must multiply to {have}")
    return x.reshape(view_shape((*x.shape[:axis], *inner, *x.shape[axis + 1 :]), x))


def _narrowed(a: Array, axis: int, start: int, length: int) -> Array:
    part = slice(start, start + length)
    return a[(slice(None),) * axis + (part,) if axis else part]


def _part_back(g: Tensor, x_shape: tuple[int, ...], dim: int, start: int, length: int) -> Tensor:
    return into_zeros(g, x_shape, narrow, (dim, start, length))


@_view(gradient=_part_back)
def narrow(xp: Module, x: Array, /, dim: int, start: int, length: int) -> Array:
    """The view of `length` steps from `start` along an axis.

    Raises:
        IndexOutOfRange: no such axis or range.
    """
    axis = axis_of(x, dim)
    have = x.shape[axis]
    start, length = index_of(start), index_of(length)
    if start < 0:
        start += have
    if not 0 <= start <= have or not 0 <= length <= have - start:
        raise IndexOutOfRange(f"asked for {length} steps from {start} of axis {dim}, which has {have}")
    return _narrowed(x, axis, start, length)


def _step_back(g: Tensor, x_shape: tuple[int, ...], dim: int, index: int) -> Tensor:
    return into_zeros(g, x_shape, select, (dim, index))


@_view(gradient=_step_back)
def select(xp: Module, x: Array, /, dim: int, index: int) -> Array:
    """The view at one index of an axis, without that axis. Raises IndexOutOfRange."""
    axis = axis_of(x, dim)
    have = x.shape[axis]
    if type(index) is not int:
        index = index_of(index)
    if not -have <= index < have:
        raise IndexOutOfRange(f"asked for index {index} of axis {dim}, which has {have}; use {-have} to {have - 1}")
    return x[(slice(None),) * axis + (index, ...)]


def _permuted(a: Array, axes: Any) -> Array:
    ndim = a.ndim
    try:
        for axis in axes:
            if type(axis) is not int or not -ndim <= axis < ndim:
                axes = [axis_of(a, one) for one in indices_of(axes, "axes")]
    except TypeError as error:
        raise InvalidArgument(f"the order {axes} for the axes of a tensor of shape {a.shape}; give integers") from error
    return a.transpose(axes)


@_view(method=False, fails="the order {axes} for the axes of", gradient=lambda g, axes: _unpermuted(g, axes))
def permute_dims(xp: Module, x: Array, /, axes: Sequence[int]) -> Array:
    """The view with its axes in another order. Raises IndexOutOfRange, InvalidArgument."""
    return _permuted(x, axes)


def _unpermuted(g: Tensor, order: Any) -> Tensor:
    back = sorted(range(g.ndim), key=[axis_of(g, one) for one in order].__getitem__)
    return permute_dims(g, back)


def _permute_method(xp: Module, x: Array, /, *dims: Any) -> Array:
    """The view with its axes in another order, as `permute_dims(x, axes)`; `x.permute(1, 0)` or `x.permute((1, 0))`."""
    return _permuted(x, sizes_of(dims))


@_view(
    method=_permute_method,
    fails="the order {dims} for the axes of",
    gradient=lambda g, dims: _unpermuted(g, sizes_of(tuple(dims))),
)
def permute(xp: Module, x: Array, /, dims: Sequence[int]) -> Array:
    """The view with its axes in another order. Raises IndexOutOfRange, InvalidArgument."""
    return _permuted(x, dims)


@_view("swapaxes", "swapdims", gradient=lambda g, dim0, dim1: g.transpose(dim0, dim1))
def transpose(xp: Module, x: Array, /, dim0: int, dim1: int) -> Array:
    """The view with two axes exchanged. Raises IndexOutOfRange."""
    try:
        return x.swapaxes(axis_of(x, dim0), axis_of(x, dim1))
    except IndexOutOfRange:
        if x.ndim:
            raise
    dim_of(x, dim0), dim_of(x, dim1)
    return x.view()


@_view(gradient=lambda g: g.t())
def t(xp: Module, x: Array, /) -> Array:
    """The transpose of a matrix; a tensor of fewer axes itself. Raises InvalidArgument."""
    if x.ndim > 2:
        raise InvalidArgument(f"t() of a tensor of shape {x.shape}; it takes at most two axes: use transpose")
    return x.T


@_view(function=False, method=False, properties=("T",), gradient=lambda g: g.T)
def _reversed(xp: Module, self: Array) -> Array:
    """The view with its axes in the opposite order: of a matrix its transpose."""
    return self.T


@_view(properties=("mT",), gradient=lambda g: g.mT)
def matrix_transpose(xp: Module, x: Array, /) -> Array:
    """The view with the last two axes exchanged. Raises InvalidArgument: fewer than two."""
    if x.ndim < 2:
        raise InvalidArgument(f"matrix_transpose of a tensor of shape {x.shape}; it needs two axes")
    return x.swapaxes(-1, -2)


@_view(gradient=lambda g: g.adjoint())
def adjoint(xp: Module, x: Array, /) -> Array:
    """The conjugate of the matrix transpose; a view for real types. Raises InvalidArgument."""
    if x.ndim < 2:
        raise InvalidArgument(f"adjoint of a tensor of shape {x.shape}; it needs two axes")
    turned = x.swapaxes(-1, -2)
    return turned.conj() if x.dtype.kind == "c" else turned


@_view(method=False, properties=("real",), gradient=_unchanged)
def real(xp: Module, input: Array) -> Array:
    """The view of the real parts; itself for real types."""
    return input.real if input.dtype.kind == "c" else input


@_view(method=False, gradient=lambda g, input_dtype: g * 1j if input_dtype.is_complex else None)
def imag(xp: Module, input: Array) -> Array:
    """The view of the imaginary parts; zeros for real types."""
    return input.imag if input.dtype.kind == "c" else xp.zeros_like(input)


@_view(function=False, method=False, properties=("imag",), gradient=lambda g: g * 1j)
def _imaginary_part(xp: Module, self: Array) -> Array:
    """The view of the imaginary parts. Raises DTypeError: a real type has none (`shmtensor.imag(x)` gives 0)."""
    if self.dtype.kind != "c":
        raise DTypeError(f"a tensor of {self.dtype.name} has no imaginary parts; use shmtensor.imag(x)")
    return self.imag


@_view("movedim", gradient=lambda g, source, destination: g.moveaxis(destination, source))
def moveaxis(xp: Module, x: Array, source: Any, destination: Any, /) -> Array:
    """The view with axes at other places. Raises IndexOutOfRange, InvalidArgument."""
    if type(source) is int and type(destination) is int:
        order = list(range(x.ndim))
        order.insert(axis_of(x, destination), order.pop(axis_of(x, source)))
        return x.transpose(order)
    sources, targets = several_axes(x, source), several_axes(x, destination)
    if len(sources) != len(targets):
        raise InvalidArgument(f"moveaxis of axes {source} to {destination}; give as many of both")
    order = [i for i in range(x.ndim) if i not in sources]
    for target, source_ in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source_)
    return x.transpose(order)


def squeezed(a: Array, axes: tuple[int, ...]) -> Array:
    """A view without these axes, which are of size 1."""
    return a.squeeze(axes) if axes else a.view()


@_view(gradient=_reshaped_back)
def squeeze(xp: Module, x: Array, /, dim: Any = None, *, axis: Any = None) -> Array:
    """The view without axes of size 1: all of them, or those of the named axes that are of size 1.

    Raises IndexOutOfRange.
    """
    dims = axis if dim is None else dim
    if dims is None:
        found = x.squeeze()
        return x.view() if found is x else found
    if not x.ndim:
        axes_of(x, dims)
        return x.view()
    return squeezed(x, tuple([i for i in several_axes(x, dims) if x.shape[i] == 1]))


def _with_new_axis(a: Array, dim: Any) -> Array:
    """With a new axis. Raises IndexOutOfRange, InvalidArgument: there are as many as there can be."""
    ndim = a.ndim + 1
    check_axes(ndim)
    at = index_of(dim)
    if not -ndim <= at < ndim:
        raise IndexOutOfRange(f"asked for a new axis {dim} in a tensor of shape {a.shape}; use {-ndim} to {ndim - 1}")
    return a[(slice(None),) * (at % ndim) + (None,)]


@_view(gradient=_reshaped_back)
def expand_dims(xp: Module, x: Array, /, axis: Any) -> Array:
    """The view with new axes of size 1. Raises IndexOutOfRange, InvalidArgument."""
    if not isinstance(axis, SEQUENCES):
        return _with_new_axis(x, axis)
    ndim = x.ndim + len(axis)
    check_axes(ndim)
    axes = [index_of(one) + ndim if index_of(one) < 0 else index_of(one) for one in axis]
    if not all(0 <= one < ndim for one in axes):
        raise IndexOutOfRange(f"asked for new axes {axis} in a tensor of shape {x.shape}; use {-ndim} to {ndim - 1}")
    if len(set(axes)) != len(axes):
        raise InvalidArgument(f"asked for new axes {axis} in a tensor of shape {x.shape}; they contain a duplicate")
    return x[tuple([None if i in axes else slice(None) for i in range(ndim)])]


@_view(gradient=_reshaped_back)
def unsqueeze(xp: Module, x: Array, /, dim: int) -> Array:
    """The view with a new axis of size 1 at `dim`. Raises IndexOutOfRange, InvalidArgument."""
    return _with_new_axis(x, dim)


def _broadcast(a: Array, sizes: tuple[int, ...], keeps: bool) -> Array:
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
    return strided(a, sizes, (*(0,) * new, *steps))


@_view(fails="broadcasting to {shape}", gradient=_unchanged)
def broadcast_to(xp: Module, x: Array, /, shape: Sequence[int]) -> Array:
    """The view with these sizes, whose new elements are the same memory, so that it cannot be written.

    Raises InvalidArgument: sizes that the tensor does not broadcast to.
    """
    return _broadcast(x, indices_of(shape), False)


@_view(function=False, fails="broadcasting to {sizes}", gradient=_unchanged)
def expand(xp: Module, self: Array, *sizes: Any) -> Array:
    """The view with axes of size 1 repeated, without memory of their own; -1 keeps an axis. It cannot be written.

    Raises InvalidArgument: other sizes.
    """
    return _broadcast(self, indices_of(sizes_of(sizes)), True)


@_view(function=False, fails="broadcasting to {other.shape}", gradient={"self": _unchanged})
def expand_as(xp: Module, self: Array, other: Array) -> Array:
    """`expand` to the sizes of another tensor. Raises InvalidArgument."""
    return _broadcast(self, other.shape, False)


@composed(method=False)
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that tensors of these sizes broadcast to. Raises InvalidArgument."""
    try:
        return np.broadcast_shapes(*shapes)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"shapes {list(shapes)} do not broadcast: {error}") from error


@composed("broadcast_tensors", method=False)
def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Views of all tensors with the sizes that they broadcast to. Raises InvalidArgument."""
    shape = broadcast_shapes(*[array_of(x).shape for x in arrays])
    return tuple([broadcast_to(x, shape) for x in arrays])


def _diagonal_back(g: Tensor, x_shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Tensor:
    return into_zeros(g, x_shape, diagonal, (offset, dim1, dim2))


@_view(fails="taking a diagonal of", gradient=_diagonal_back)
def diagonal(xp: Module, x: Array, /, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """The view of a diagonal of two axes, as a last axis. Raises IndexOutOfRange, InvalidArgument."""
    result = x.diagonal(index_of(offset), axis_of(x, dim1), axis_of(x, dim2))
    if isinstance(x, np.ndarray) and x.flags.writeable:
        result.flags.writeable = True  # NumPy returns a read-only view
    return result


@operation(name="sum_of_windows", function=False, method=False, gradient=lambda g, how: g.unfold(*how))
def _sum_of_windows(xp: Module, x: Array, shape: tuple[int, ...], how: tuple[int, int, int]) -> Array:
    """The sums of the elements of windows, which `unfold` gives for a tensor of a shape and (dimension, size, step)."""
    made = xp.zeros(shape, x.dtype)
    parts = xp.moveaxis(lined(made), axis_of(lined(made), how[0]), -1)
    windows = xp.moveaxis(x if shape else x[None], axis_of(lined(made), how[0]), -2)
    last = (windows.shape[-2] - 1) * how[2] + 1
    for i in range(how[1]):
        parts[..., i : i + last : how[2]] += windows[..., i]
    return made


@_view(
    fails="windows of {size}, {step} apart, of",
    gradient=lambda g, x_shape, dimension, size, step: _sum_of_windows(g, x_shape, (dimension, size, step)),
)
def unfold(xp: Module, x: Array, /, dimension: int, size: int, step: int) -> Array:
    """The view of windows of `size` along an axis, `step` apart, as a last axis. Overlapping ones cannot be written.

    Raises IndexOutOfRange, InvalidArgument: windows larger than the axis, a step below 1.
    """
    axis = dim_of(x, dimension)
    sizes, steps = lined(x).shape, lined(x).strides
    have = sizes[axis]
    size, step = index_of(size), index_of(step)
    if not 0 <= size <= have or step < 1:
        raise InvalidArgument(
            f"windows of {size}, {step} apart, of axis {dimension}, which has {have}; "
            f"give a size of at most {have}, and a step from 1"
        )
    shape = (*sizes[:axis], (have - size) // step + 1, *sizes[axis + 1 :], size)
    strides = (*steps[:axis], steps[axis] * step, *steps[axis + 1 :], steps[axis])
    return strided(x, shape, strides) if x.ndim else strided(x, shape[1:], strides[1:])


def _flipped(a: Array, axis: Any) -> Array:
    key: tuple[Any, ...]
    if axis is None:
        key = (_BACK,) * a.ndim
    elif type(axis) is int:
        key = (slice(None),) * axis_of(a, axis) + (_BACK,)
    else:
        axes = several_axes(a, axis)
        key = tuple([_BACK if i in axes else slice(None) for i in range(a.ndim)])
    return a[(*key, ...)].copy()


def _flipped_back(g: Tensor, axis: Any) -> Tensor:
    return flip(g, axis)


@operation(method=False, gradient=_flipped_back)
def flip(xp: Module, x: Array, /, axis: Any = None) -> Array:
    """A copy with the order of elements reversed along all axes or some. Raises IndexOutOfRange."""
    return _flipped(x, axis)


def _flip_method(self: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """A copy with the order of elements reversed along some axes; `x.flip(0, 1)` or `x.flip((0, 1))`; none: all."""
    return flip(self, (axes[0] if len(axes) == 1 else axes) if axes else dims)


_flip_method.__name__ = "flip"
composed(function=False)(_flip_method)


@operation(gradient=lambda g: g.fliplr())
def fliplr(xp: Module, x: Array, /) -> Array:
    """`flip` of the second axis. Raises IndexOutOfRange."""
    return _flipped(x, 1)


@operation(gradient=lambda g: g.flipud())
def flipud(xp: Module, x: Array, /) -> Array:
    """`flip` of the first axis. Raises IndexOutOfRange."""
    return _flipped(x, 0)


@operation(gradient=lambda g, k, dims: g.rot90(-k, dims))
def rot90(xp: Module, x: Array, /, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    """A copy turned by 90 degrees `k` times in the plane of two axes. Raises IndexOutOfRange."""
    axes = several_axes(x, indices_of(dims, "axes"))
    if len(axes) != 2:
        raise InvalidArgument(f"rot90 in the plane of axes {dims}; give two")
    return xp.rot90(x, index_of(k), axes).copy()


@_view(fails="copying", gradient=_unchanged)
def contiguous(xp: Module, x: Array, /, memory_format: Any = None) -> Array:
    """Itself when contiguous in a memory format (default `contiguous_format`), else a copy that is.

    Raises InvalidArgument: a format for another number of axes.
    """
    order = None if memory_format is None else axes_in_memory(memory_format, x.ndim)
    if order is None:
        return x if x.flags.c_contiguous else x.copy()
    inner = x.transpose(order)
    return x if inner.flags.c_contiguous else inner.copy().transpose(xp.argsort(order))


@composed(method=False)
def detach(input: Tensor) -> Tensor:
    """A tensor of the same memory that is not part of the graph of gradients. Raises DTypeError: not a tensor."""
    array_of(input)
    return input.detach()


@_view(name="atleast", function=False, method=False, fails="more axes for", gradient=_reshaped_back)
def _with_axes(xp: Module, x: Array, ndim: int) -> Array:
    """A view with at least `ndim` axes."""
    return (xp.atleast_1d, xp.atleast_2d, xp.atleast_3d)[ndim - 1](x.view())


def _each_with_axes(ndim: int, tensors: tuple[Any, ...]) -> Any:
    """A tensor for one tensor; a tuple for several, or for a list."""
    if len(tensors) == 1 and not isinstance(tensors[0], SEQUENCES):
        return _with_axes(tensors[0], ndim)
    return tuple([_with_axes(x, ndim) for x in sizes_of(tensors)])


@composed(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """A view with at least one axis; for several tensors, or a list, a tuple of views. Raises DTypeError."""
    return _each_with_axes(1, tensors)


@composed(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """A view with at least two axes, (1, n) for one; otherwise as `atleast_1d`."""
    return _each_with_axes(2, tensors)


@composed(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """A view with at least three axes, (1, n, 1) for one and (m, n, 1) for two; otherwise as `atleast_1d`."""
    return _each_with_axes(3, tensors)


# -- copies ------------------------------------------------------------------------------------------------------------


@operation(fails="copying", gradient=_unchanged)
def clone(xp: Module, self: Array, *, memory_format: Any = None) -> Array:
    """A copy on the heap with a storage of its own.

    Args:
        memory_format: order of the elements in memory; None: rows one after another, as `contiguous_format`.

    Raises InvalidArgument: a format for another number of axes.
    """
    if memory_format is None:
        return self.copy()
    order = axes_in_memory(memory_format, self.ndim)
    if memory_format is preserve_format:
        order = dense_axes(self.shape, self.strides)
    return self.copy() if order is None else self.transpose(order).copy().transpose(xp.argsort(order))


# -- views of the storage ----------------------------------------------------------------------------------------------


def _restrided_back(g: Tensor, place: Any, own: Any) -> Tensor:
    """The gradient of a tensor from that of a view of its storage: sums where several elements are one in memory."""
    low, positions, elements = in_memory(place, own)
    sums = g.new_zeros(low).index_add(0, positions.reshape(-1), g.reshape(-1))
    counts = np.bincount(elements.reshape(-1), minlength=low)
    if elements.size and counts.max() > 1:
        sums = sums / g.new_tensor(np.maximum(counts, 1))
    return sums.index_select(0, elements.reshape(-1)).reshape(own[0])


def in_memory(*places: Any) -> tuple[Any, ...]:
    """The number of elements that tensors (sizes, strides, offset) reach over, and where their elements lie there."""
    found = [
        sum([np.arange(n).reshape(-1, *(1,) * (len(sizes) - i - 1)) * steps[i] for i, n in enumerate(sizes)], first)
        + np.zeros(sizes, np.int64)
        for sizes, steps, first in places
    ]
    ends = [(one.min(), one.max()) for one in found if one.size]
    low = min([one for one, _ in ends], default=0)
    return max([one for _, one in ends], default=-1) + 1 - low, *[one - low for one in found]


@_view(
    name="as_strided",
    function=False,
    method=False,
    gradient=lambda g, place, own: _restrided_back(g, place, own),
)
def _restrided(xp: Module, x: Array, view: Any, place: Any, own: Any) -> Array:
    """A view that exists already.

    Args:
        view: its array.
        place: its sizes, strides and offset (elements).
        own: those of the tensor.
    """
    return view


@composed()
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The view of the storage with these sizes and strides (elements). Overlapping ones cannot be written.

    Args:
        storage_offset: first element in the storage; None: the tensor's own.

    Raises:
        InvalidArgument: it would reach beyond the storage.
    """
    width = array_of(input).itemsize
    sizes, strides = indices_of(size), indices_of(stride, "strides")
    made = _laid(input, sizes, strides, tuple([n * width for n in strides]), storage_offset)
    if not is_recorded((input,)):
        return made
    own = input.shape, input.stride(), input.storage_offset()
    place = sizes, strides, own[2] if storage_offset is None else index_of(storage_offset)
    return _restrided(input, made._live(), place, own)


def _laid(input: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], steps: Any, storage_offset: Any) -> Tensor:
    """`as_strided` without gradients; `steps`: the strides in bytes."""
    width = array_of(input).itemsize
    if storage_offset is None:
        place = input._located()
        with suppress(OverflowError, TypeError, ValueError):  # the tensor's own elements are enough, mostly
            return input._share(strided(place[0], sizes, steps), *place)
    storage = input.storage()
    a, _, epoch = place = input._located()
    flat = storage._flat
    if storage._epoch != epoch:  # another thread has moved it just now
        return _laid(input, sizes, strides, steps, storage_offset)
    if flat.dtype != a.dtype:
        flat = flat[: flat.nbytes // width * width // flat.itemsize].view(a.dtype)
    offset = address_of(a) - address_of(flat) if storage_offset is None else index_of(storage_offset) * width
    try:
        if not 0 <= offset <= flat.nbytes:
            raise ValueError("it begins outside of the storage")
        return input._share(strided(flat, sizes, steps, offset), *place)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"sizes {sizes}, strides {strides}, offset {offset // width} for a storage of {flat.size} elements: {error}"
        ) from error


__all__ = export(globals())
