"""The largest elements of windows, and the inverse of this pooling. Nothing in this module blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._native import max_pool, max_pool_back, max_pool_places
from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ..._tensor.result_types import require_real
from ...dtypes import int64
from ...errors import IndexOutOfRange, InvalidArgument
from .rows import each_axis, function, hidden
from .windows import Windows


def pooling_windows(
    shape: Sequence[int], kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, rank: int
) -> Windows:
    """The windows of a pooling. With `ceil_mode`, edges are added at the end for windows that reach beyond it.

    Raises InvalidArgument: wrong numbers.
    """
    size = each_axis(kernel_size, rank, "kernel_size", 1)
    steps = size if stride is None or stride == () or stride == [] else each_axis(stride, rank, "stride", 1)
    before, apart = each_axis(padding, rank, "padding"), each_axis(dilation, rank, "dilation", 1)
    if any(p > ((k - 1) * d + 1) // 2 for p, k, d in zip(before, size, apart, strict=True)):
        raise InvalidArgument(f"padding {before} for windows of {size}; give at most half of the size")
    edges = []
    for n, k, s, p, d in zip(shape, size, steps, before, apart, strict=True):
        after = p
        rest = n + 2 * p - d * (k - 1) - 1
        if ceil_mode and rest >= 0 and rest % s:
            last = (rest // s + 1) * s
            if last < n + p:  # the last window begins in the tensor or before it
                after = p + last - rest
        elif ceil_mode and rest < 0 and rest > -s:
            after = p - rest
        edges.append((p, after))
    return Windows(size, steps, apart, tuple(edges))


def require_channels(name: str, input: Tensor, rank: int) -> None:
    """Refuse tensors of another number of axes. Raises InvalidArgument."""
    if input.ndim not in (rank + 1, rank + 2):
        raise InvalidArgument(f"{name} of a tensor of shape {input.shape}; give {rank + 1} or {rank + 2} axes")


# -- elements of planes ------------------------------------------------------------------------------------------------


@hidden(
    name="scatter_to_planes",
    gradient={"input": lambda g, indices, sizes: gather_from_planes(g, indices, len(sizes))},  # type: ignore[has-type]
)
def scatter_to_planes(xp: Module, input: Array, indices: Array, sizes: Any) -> Array:
    """The sum of elements at their indices in planes of zeros, which have these sizes."""
    return _summed_at(input, indices, sizes)


def _summed_at(input: Array, indices: Array, sizes: Sequence[int]) -> Array:
    lead, plane = input.shape[: -len(sizes)], math.prod(sizes)
    planes = math.prod(lead)
    flat = indices.reshape(planes, math.prod(indices.shape[len(lead) :])) + np.arange(planes)[:, None] * plane
    made = np.bincount(flat.reshape(-1), input.reshape(-1), planes * plane)
    return made.reshape(*lead, *sizes).astype(input.dtype, copy=False)


@hidden(
    name="gather_from_planes",
    gradient={"input": lambda g, indices, input_shape, rank: scatter_to_planes(g, indices, input_shape[-rank:])},
)
def gather_from_planes(xp: Module, input: Array, indices: Array, rank: int) -> Array:
    """The elements at indices in planes, which are the last `rank` axes."""
    flat = input.reshape(*input.shape[:-rank], math.prod(input.shape[-rank:]))
    places = indices.reshape(*indices.shape[:-rank], math.prod(indices.shape[-rank:]))
    return xp.take_along_axis(flat, places, -1).reshape(indices.shape)


# -- the largest of each window ----------------------------------------------------------------------------------------


def _least(xp: Module, a: Array) -> Any:
    return xp.iinfo(a.dtype).min if a.dtype.kind in "iu" else -np.inf


@hidden(
    name="max_pool",
    gradient={"input": lambda g, input, result, windows: _to_largest(g, input, result, windows)},  # type: ignore[has-type]
    fails="the largest of windows of",
)
def _max_pool(xp: Module, input: Array, windows: Any) -> Array:
    """The largest element of each window; NaN if there is one."""
    w: Windows = windows
    require_real("max_pool", input.dtype)
    rank = len(w.size)
    count = w.counts(input.shape[-rank:])
    made = xp.empty((*input.shape[:-rank], *count), input.dtype)
    if max_pool(input, made, w):
        return made
    a = w.padded(xp, input, _least(xp, input))
    places = [place for _, place in w.places(count)]
    made[...] = a[places[0]]
    for place in places[1:]:
        xp.maximum(made, a[place], out=made)
    return made


@hidden(
    name="to_largest",
    gradient={
        "output": lambda g, input, largest, windows: gather_from_planes(
            g,
            _places_of_largest(input, largest, windows),  # type: ignore[has-type]
            len(windows.size),
        )
    },
)
def _to_largest(xp: Module, output: Array, input: Array, largest: Array, windows: Any) -> Array:
    """The sums of a gradient at the largest element of each window; its gradient does not depend on the elements."""
    made = xp.empty(input.shape, input.dtype)
    if max_pool_back(input, xp.ascontiguousarray(output), made, windows):
        return made
    return _summed_at(output, _places(xp, input, largest, windows), input.shape[-len(windows.size) :])


@hidden(name="places_of_largest")
def _places_of_largest(xp: Module, input: Array, largest: Array, windows: Any) -> Array:
    """Where the largest element of each window is in its plane: the first, or the last NaN."""
    return _places(xp, input, largest, windows)


def _places(xp: Module, input: Array, largest: Array, windows: Any) -> Array:
    w: Windows = windows
    found = xp.empty(largest.shape, np.int64)
    if max_pool_places(input, found, w):
        return found
    sizes, count = input.shape[-len(w.size) :], largest.shape[-len(w.size) :]
    a = w.padded(xp, input, _least(xp, input))
    starts = [xp.arange(n) * s - p for n, s, (p, _) in zip(count, w.stride, w.edges, strict=True)]
    steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    first = sum(start * step for start, step in zip(np.ix_(*starts), steps, strict=True))
    inside = None
    if w.has_edges() and (largest == _least(xp, input)).any():  # elements that are as small as the edges
        inside = w.padded(xp, xp.ones(sizes, bool), False)
    is_nan = np.isnan(largest).any() if largest.dtype.kind not in "iu" else False
    places = [
        (sum(i * d * step for i, d, step in zip(position, w.dilation, steps, strict=True)), place)
        for position, place in w.places(count)
    ]
    for offset, place in reversed(places):
        is_it = a[place] == largest
        np.copyto(found, first + offset, where=is_it if inside is None else is_it & inside[place])
    for offset, place in places if is_nan else ():
        np.copyto(found, first + offset, where=np.isnan(a[place]))
    return found


def _max_of(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    require_channels(f"max_pool{rank}d", input, rank)
    windows = pooling_windows(input.shape[-rank:], kernel_size, stride, padding, dilation, ceil_mode, rank)
    made = _max_pool(input, windows)
    return (made, _places_of_largest(input, made, windows)) if return_indices else made


@function
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of the last axis.

    Args:
        input: (samples, channels, n), or without samples.
        kernel_size: size of the windows.
        stride: step of the windows; default their size.
        padding: elements on both sides, which are never the largest; at most half of the size.
        dilation: distance between the elements of a window.
        ceil_mode: windows that reach beyond the end count, too.
        return_indices: return the indices of the elements, too, as int64.

    Returns:
        The elements, or (elements, indices in the last axis).

    Raises InvalidArgument: other shapes, or wrong numbers.
    """
    return _max_of(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@function
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window of the last two axes, whose elements are counted in one; as `max_pool1d`."""
    return _max_of(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@function
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window of the last three axes, whose elements are counted in one; as `max_pool1d`."""
    return _max_of(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@function
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`max_pool1d`, always with indices."""
    return _max_of(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@function
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`max_pool2d`, always with indices."""
    return _max_of(2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@function
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`max_pool3d`, always with indices."""
    return _max_of(3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


# -- windows at given places -------------------------------------------------------------------------------------------


@hidden(
    name="max_at",
    gradient={
        "input": lambda g, result, input_shape, positions: scatter_to_planes(
            g[0], result[1], input_shape[-len(positions) :]
        )
    },
)
def _max_at(xp: Module, input: Array, positions: Any) -> tuple[Array, Array]:
    """The largest element of windows whose positions are given for each axis as (windows, size), and its index."""
    require_real("max_pool", input.dtype)
    rank = len(positions)
    sizes, count = input.shape[-rank:], [len(one) for one in positions]
    grids = []
    for i, one in enumerate(positions):
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = one.shape
        grids.append(one.reshape(shape))
    flat = np.ravel_multi_index(tuple(np.broadcast_arrays(*grids)), sizes).reshape(*count, -1)
    elements = input.reshape(*input.shape[:-rank], -1)[..., flat]
    best = xp.argmax(elements, axis=-1)
    found = np.take_along_axis(elements, best[..., None], -1)[..., 0]
    return found, np.take_along_axis(np.broadcast_to(flat, elements.shape), best[..., None], -1)[..., 0]


def spans(sizes: Sequence[int], wanted: Sequence[int]) -> list[tuple[Any, Any]]:
    """The bounds of the windows of an adaptive pooling, for each axis."""
    return [(np.arange(m) * n // m, -(-(np.arange(m) + 1) * n // m)) for n, m in zip(sizes, wanted, strict=True)]


def adaptive_sizes(name: str, input: Tensor, output_size: Any, rank: int) -> tuple[int, ...]:
    """Sizes of the result, where None means the tensor's. Raises InvalidArgument."""
    require_channels(name, input, rank)
    asked = list(output_size) if isinstance(output_size, list | tuple) else [output_size] * rank
    if len(asked) != rank:
        raise InvalidArgument(f"{name} to size {output_size}; give {rank} sizes")
    sizes = [n if m is None else m for n, m in zip(input.shape[-rank:], asked, strict=True)]
    if 0 in input.shape[1:]:
        raise InvalidArgument(f"{name} of a tensor of shape {input.shape}; only the axis of samples may be empty")
    return each_axis(sizes, rank, "output_size")


def _adaptive_max(rank: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    wanted = adaptive_sizes(f"adaptive_max_pool{rank}d", input, output_size, rank)
    positions = []
    for first, end in spans(input.shape[-rank:], wanted):
        longest = int((end - first).max(initial=1))
        positions.append(np.minimum(first[:, None] + np.arange(longest), end[:, None] - 1))
    found = _max_at(input, tuple(positions))
    return found if return_indices else found[0]


@function
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows of nearly equal size over the last axis.

    Args:
        output_size: number of windows; None: as many as elements.
        return_indices: return the indices of the elements, too.

    Raises InvalidArgument: other shapes, or another number of sizes.
    """
    return _adaptive_max(1, input, output_size, return_indices)


@function
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool1d`, always with indices."""
    return _adaptive_max(1, input, output_size, True)


@function
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows of nearly equal size over the last two axes.

    Args:
        output_size: number of windows; None: as many as elements.
        return_indices: return the indices of the elements, too.

    Raises InvalidArgument: other shapes, or another number of sizes.
    """
    return _adaptive_max(2, input, output_size, return_indices)


@function
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool2d`, always with indices."""
    return _adaptive_max(2, input, output_size, True)


@function
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows of nearly equal size over the last three axes.

    Args:
        output_size: number of windows; None: as many as elements.
        return_indices: return the indices of the elements, too.

    Raises InvalidArgument: other shapes, or another number of sizes.
    """
    return _adaptive_max(3, input, output_size, return_indices)


@function
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool3d`, always with indices."""
    return _adaptive_max(3, input, output_size, True)


# -- unpooling ---------------------------------------------------------------------------------------------------------


@hidden(
    name="max_unpool",
    gradient={"input": lambda g, indices, sizes: gather_from_planes(g, indices, len(sizes))},
)
def _unpooled(xp: Module, input: Array, indices: Array, sizes: Any) -> Array:
    """Planes of zeros with elements at their indices."""
    lead, plane = input.shape[: -len(sizes)], math.prod(sizes)
    at = indices.reshape(math.prod(lead), -1)
    if at.size and not 0 <= at.min() <= at.max() < plane:
        raise IndexOutOfRange(f"max_unpool with index {at.max()} into sizes {sizes}; give output_size")
    made = xp.zeros((math.prod(lead), plane), input.dtype)
    made[xp.arange(len(made))[:, None], at] = input.reshape(at.shape)
    return made.reshape(*lead, *sizes)


def _max_unpool(
    rank: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    require_channels(f"max_unpool{rank}d", input, rank)
    size = each_axis(kernel_size, rank, "kernel_size", 1)
    steps = size if stride is None or stride == () or stride == [] else each_axis(stride, rank, "stride", 1)
    before = each_axis(padding, rank, "padding")
    if indices.shape != input.shape or indices.dtype != int64:
        raise InvalidArgument(
            f"max_unpool{rank}d of a tensor of shape {input.shape} with indices of shape {indices.shape} and type "
            f"{indices.dtype.name}; give as many indices of int64"
        )
    usual = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(input.shape[-rank:], steps, size, before, strict=True)]
    wanted = usual if output_size is None else [*output_size][-rank:]
    if any(not u - s < w < u + s for u, s, w in zip(usual, steps, wanted, strict=True)):
        raise InvalidArgument(f"max_unpool{rank}d to sizes {wanted}; give sizes less than {steps} from {usual}")
    return _unpooled(input, indices, each_axis(wanted, rank, "output_size"))


@function
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Zeros, with elements at the indices that `max_pool1d` returned.

    Args:
        input: (samples, channels, n), or without samples.
        indices: as many indices, int64.
        kernel_size, stride, padding: of the pooling.
        output_size: sizes of the result, if several sizes are pooled to the same size.

    Raises:
        InvalidArgument: other shapes, or sizes that are not pooled to the size of the input.
        IndexOutOfRange: an index beyond the result.
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@function
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """The inverse of `max_pool2d`; arguments and errors as for `max_unpool1d`."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@function
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """The inverse of `max_pool3d`; arguments and errors as for `max_unpool1d`."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


__all__ = export(globals())
