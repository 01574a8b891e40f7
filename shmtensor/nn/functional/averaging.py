"""Means and norms of windows. Nothing in this module blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, Out, export
from ...errors import DTypeError, InvalidArgument
from .activation import relu
from .pooling import adaptive_sizes, pooling_windows, require_channels, spans
from .rows import as_type, computing_type, each_axis, function, hidden
from .windows import Windows


def _divisors(w: Windows, sizes: tuple[int, ...], counts_edges: bool, divisor: int | None, padding: Any) -> Any:
    """The divisor of the sum of each window: a number, or an array with one for each window."""
    if divisor is not None:
        return divisor
    parts = []
    for n, m, k, s, (p, _), own in zip(sizes, w.counts(sizes), w.size, w.stride, w.edges, padding, strict=True):
        first = np.arange(m) * s - p
        end = np.minimum(first + k, n + own)  # elements that ceil_mode added never count
        if not counts_edges:
            first, end = np.maximum(first, 0), np.minimum(end, n)
        parts.append(end - first)
    made = math.prod(np.ix_(*parts), start=np.ones((1,) * len(sizes), np.int64))
    return int(made.flat[0]) if (made == made.flat[0]).all() else made


@hidden(
    name="average_windows",
    out=Out.COPIED,
    gradient={
        "input": lambda g, input_shape, windows, divisors: _average_back(  # type: ignore[has-type]
            g, input_shape[-len(windows.size) :], windows, divisors
        )
    },
    fails="means of windows of",
)
def _average(xp: Module, input: Array, windows: Any, divisors: Any) -> Array:
    """The sum of each window, divided."""
    w: Windows = windows
    a = w.padded(xp, input.astype(computing_type(xp, input), copy=False))
    places = [place for _, place in w.places(w.counts(input.shape[-len(w.size) :]))]
    made = a[places[0]].copy()
    for place in places[1:]:
        made += a[place]
    if made.dtype.kind in "iu":
        return as_type(xp.trunc(made / divisors), input.dtype)
    made /= np.asarray(divisors, made.real.dtype)
    return as_type(made, input.dtype)


@hidden(name="average_back", gradient={"output": lambda g, windows, divisors: _average(g, windows, divisors)})
def _average_back(xp: Module, output: Array, sizes: Any, windows: Any, divisors: Any) -> Array:
    """For each element, the sum over its windows of their gradients, divided."""
    w: Windows = windows
    shares = output.astype(computing_type(xp, output), copy=False)
    shares = shares / np.asarray(divisors, shares.real.dtype)
    made = xp.zeros((*output.shape[: -len(sizes)], *w.padded_shape(sizes)), shares.dtype)
    for _, place in w.places(output.shape[-len(sizes) :]):
        made[place] += shares
    return as_type(xp.ascontiguousarray(w.without_edges(made, sizes)), output.dtype)


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    require_channels(f"avg_pool{rank}d", input, rank)
    if divisor_override == 0:
        raise InvalidArgument(f"avg_pool{rank}d with divisor_override 0; give another number, or None")
    sizes = input.shape[-rank:]
    windows = pooling_windows(sizes, kernel_size, stride, padding, 1, ceil_mode, rank)
    own = each_axis(padding, rank, "padding")
    return _average(input, windows, _divisors(windows, sizes, count_include_pad, divisor_override, own))


@function
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last axis.

    Args:
        input: (samples, channels, n), or without samples.
        kernel_size: size of the windows.
        stride: step of the windows; default their size.
        padding: zeros on both sides; at most half of the size.
        ceil_mode: windows that reach beyond the end count, too.
        count_include_pad: whether these zeros are counted.

    Raises InvalidArgument: other shapes, or wrong numbers.
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@function
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last two axes; as `avg_pool1d`.

    Args:
        divisor_override: divisor of the sums, in place of the number of elements.
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@function
def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last three axes; as `avg_pool2d`."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


# -- windows between given bounds --------------------------------------------------------------------------------------


@hidden(
    name="average_spans",
    gradient={"input": lambda g, input_shape, spans: _spans_back(g, input_shape[-len(spans) :], spans)},  # type: ignore[has-type]
)
def _average_spans(xp: Module, input: Array, spans: Any) -> Array:
    """The mean of windows whose bounds (first, end) are given for each axis."""
    made = input.astype(computing_type(xp, input), copy=False)
    for i, (first, end) in enumerate(spans):
        axis = i - len(spans)
        edge = [(0, 0)] * made.ndim
        edge[axis] = (0, 1)  # reduceat requires indices below the size
        bounds = np.stack([first, end], 1).reshape(-1)
        part = tuple([slice(None)] * (made.ndim + axis) + [slice(None, None, 2)])
        made = np.add.reduceat(np.pad(made, edge), bounds, axis)[part] if bounds.size else made[..., :0]
        made = made / (end - first).astype(made.real.dtype).reshape(-1, *[1] * (-axis - 1))
    return as_type(made, input.dtype)


@hidden(name="spans_back", gradient={"output": lambda g, spans: _average_spans(g, spans)})
def _spans_back(xp: Module, output: Array, sizes: Any, spans: Any) -> Array:
    """The share of each window's mean at all its elements."""
    made = output.astype(computing_type(xp, output), copy=False)
    for i, (first, end) in enumerate(spans):
        axis = i - len(spans)
        at = xp.arange(sizes[i])
        inside = (first[:, None] <= at) & (at < end[:, None])
        matrix = (inside / (end - first)[:, None]).astype(made.dtype)
        made = np.moveaxis(np.tensordot(made, matrix, (made.ndim + axis, 0)), -1, axis)
    return as_type(xp.ascontiguousarray(made), output.dtype)


def _adaptive_avg(rank: int, input: Tensor, output_size: Any) -> Tensor:
    wanted = adaptive_sizes(f"adaptive_avg_pool{rank}d", input, output_size, rank)
    if not input.dtype.is_floating_point:
        raise DTypeError(f"adaptive_avg_pool{rank}d of a tensor of {input.dtype.name}; convert it with to()")
    return _average_spans(input, tuple(spans(input.shape[-rank:], wanted)))


@function
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The means of `output_size` windows of nearly equal size over the last axis.

    Args:
        output_size: number of windows; None: as many as elements.

    Raises InvalidArgument: other shapes, or another number of sizes; DTypeError: integers.
    """
    return _adaptive_avg(1, input, output_size)


@function
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The means of windows over the last two axes; as `adaptive_avg_pool1d`."""
    return _adaptive_avg(2, input, output_size)


@function
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The means of windows over the last three axes; as `adaptive_avg_pool1d`."""
    return _adaptive_avg(3, input, output_size)


# -- norms -------------------------------------------------------------------------------------------------------------


def _lp_pool(rank: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    elements = math.prod(each_axis(kernel_size, rank, "kernel_size", 1))
    mean = _avg_pool(rank, input**norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    result: Tensor = (mean.sign() * relu(mean.abs()) * elements) ** (1.0 / norm_type)
    return result


@function
def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """(sum of x ** norm_type) ** (1 / norm_type) over each window; arguments as for `avg_pool1d`."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@function
def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`lp_pool1d` of windows of the last two axes."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@function
def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`lp_pool1d` of windows of the last three axes."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


__all__ = export(globals())
