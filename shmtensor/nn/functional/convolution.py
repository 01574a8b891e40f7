"""Convolutions (cross-correlations, as in torch) of one to three axes, and their transposes.

Windows are gathered into matrices, and BLAS multiplies these. Three rows are enough for all gradients of any order: the
convolution, the transposed convolution, which is the gradient with respect to the input, and the gradient with respect
to the weights. Nothing in this module blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ..._native import channel_sums
from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ...errors import InvalidArgument
from .rows import as_type, computing_type, each_axis, function, hidden, require_same_type
from .windows import Pairs, Windows, exchanged, symmetric

_LIMIT: Final = 1 << 20
"""Bytes of the windows that are gathered at a time, so that they stay in the cache."""


def _windows(weight_shape: Sequence[int], stride: Any, dilation: Any, edges: Pairs) -> Windows:
    return Windows(tuple(weight_shape[2:]), stride, dilation, edges)


def _wide(xp: Module, *arrays: Array) -> list[Array]:
    kind = computing_type(xp, arrays[0])
    return [one.astype(kind, copy=False) for one in arrays]


def _stack(x: Array, rank: int) -> Array:
    """The array with an axis of samples."""
    return x if x.ndim == rank + 2 else x[None]


def _at_a_time(w: Windows, channels: int, count: Sequence[int], itemsize: int) -> int:
    """The number of samples whose windows are gathered at once."""
    return max(1, _LIMIT // max(1, channels * math.prod(w.size) * math.prod(count) * itemsize))


@hidden(
    name="convolve",
    gradient={
        "input": lambda g, weight, input_shape, stride, edges, dilation, groups: _spread(  # type: ignore[has-type]
            g, weight, None, input_shape[-len(stride) :], stride, edges, dilation, groups
        ),
        "weight": lambda g, input, weight_shape, stride, edges, dilation, groups: _correlate(  # type: ignore[has-type]
            g, input, weight_shape, stride, edges, dilation, groups
        ),
        "bias": lambda g, stride: _over_channels(g, len(stride)),
    },
    fails="a convolution with weights of shape {weight.shape} of",
)
def _convolve(
    xp: Module, input: Array, weight: Array, bias: Array | None, stride: Any, edges: Any, dilation: Any, groups: int
) -> Array:
    """The convolution of (samples, channels, ...) with weights (out, channels / groups, ...)."""
    kind, rank = input.dtype, len(stride)
    w = _windows(weight.shape, stride, dilation, edges)
    count = w.counts(input.shape[-rank:])
    x, factors = _wide(xp, _stack(input, rank), weight)
    n, channels, out, size = x.shape[0], x.shape[1], weight.shape[0], math.prod(count)
    x, factors = xp.ascontiguousarray(x), factors.reshape(groups, out // groups, -1)
    more = None if bias is None else bias.astype(x.dtype, copy=False)
    made = xp.empty((n, out, size), x.dtype)
    if w.is_single():
        xp.matmul(factors, x.reshape(n, groups, channels // groups, -1), out=made.reshape(n, *factors.shape[:2], size))
        if more is not None:
            made += more[:, None]
    else:
        step = _at_a_time(w, channels, count, x.itemsize)
        for i in range(0, n, step):
            columns = w.gathered(xp, x[i : i + step], count).reshape(groups, factors.shape[2], -1)
            products = xp.matmul(factors, columns).reshape(out, -1, size)
            exchanged(xp, products, more, made[i : i + step])
    made = made.reshape(n, out, *count)
    return as_type(made if input.ndim == rank + 2 else made[0], kind)


@hidden(
    name="spread",
    gradient={
        "input": lambda g, weight, stride, edges, dilation, groups: _convolve(
            g, weight, None, stride, edges, dilation, groups
        ),
        "weight": lambda g, input, weight_shape, stride, edges, dilation, groups: _correlate(  # type: ignore[has-type]
            input, g, weight_shape, stride, edges, dilation, groups
        ),
        "bias": lambda g, stride: _over_channels(g, len(stride)),
    },
    fails="a transposed convolution with weights of shape {weight.shape} of",
)
def _spread(
    xp: Module,
    input: Array,
    weight: Array,
    bias: Array | None,
    sizes: Any,
    stride: Any,
    edges: Any,
    dilation: Any,
    groups: int,
) -> Array:
    """The transposed convolution of (samples, out, ...): the sum of each element times the weights at its window."""
    kind, rank = input.dtype, len(stride)
    w = _windows(weight.shape, stride, dilation, edges)
    x, factors = _wide(xp, _stack(input, rank), weight)
    x, factors = xp.ascontiguousarray(x), factors.reshape(groups, weight.shape[0] // groups, -1).swapaxes(1, 2)
    n, count, channels = x.shape[0], x.shape[2:], groups * weight.shape[1]
    made = xp.empty((n, channels, *sizes), x.dtype)
    step = _at_a_time(w, channels, count, x.itemsize)
    for i in range(0, n, step):
        part = exchanged(xp, x[i : i + step]).reshape(groups, factors.shape[2], -1)
        columns = xp.matmul(factors, part).reshape(channels, *w.size, -1, *count)
        made[i : i + step] = w.summed(xp, columns, sizes)
    if bias is not None:
        made += bias.reshape(-1, *[1] * rank)
    return as_type(made if input.ndim == rank + 2 else made[0], kind)


@hidden(
    name="correlate",
    gradient={
        "output": lambda g, input, stride, edges, dilation, groups: _convolve(
            input, g, None, stride, edges, dilation, groups
        ),
        "input": lambda g, output, input_shape, stride, edges, dilation, groups: _spread(
            output, g, None, input_shape[-len(stride) :], stride, edges, dilation, groups
        ),
    },
)
def _correlate(
    xp: Module, output: Array, input: Array, shape: Any, stride: Any, edges: Any, dilation: Any, groups: int
) -> Array:
    """The sum of the products of each output with its window of the input: the gradient of the weights."""
    kind, rank = input.dtype, len(stride)
    w = _windows(shape, stride, dilation, edges)
    x, y = _wide(xp, _stack(input, rank), _stack(output, rank))
    x, y = xp.ascontiguousarray(x), xp.ascontiguousarray(y)
    out = shape[0] // groups
    made = xp.zeros((groups, shape[1] * math.prod(w.size), out), x.dtype)
    step = _at_a_time(w, x.shape[1], y.shape[2:], x.itemsize)
    for i in range(0, x.shape[0], step):
        left = exchanged(xp, y[i : i + step]).reshape(groups, out, -1)
        columns = w.gathered(xp, x[i : i + step], y.shape[2:]).reshape(groups, made.shape[1], -1)
        made += xp.matmul(columns, left.swapaxes(1, 2))
    return as_type(xp.ascontiguousarray(made.swapaxes(1, 2)).reshape(shape), kind)


@hidden(
    name="channel_sums",
    gradient=lambda g, output_shape: g.reshape(1, -1, *[1] * (len(output_shape) - 2)).expand(output_shape),
)
def _channel_sums(xp: Module, output: Array) -> Array:
    """The sums of (samples, channels, ...) over all but the channels."""
    made = xp.empty(output.shape[1], output.dtype)
    if channel_sums(output, made):
        return made
    return as_type(output.sum(axis=(0, *range(2, output.ndim)), dtype=computing_type(xp, output)), output.dtype)


def _over_channels(g: Tensor, rank: int) -> Tensor:
    """The gradient of a bias."""
    return _channel_sums(g if g.ndim == rank + 2 else g.unsqueeze(0))


def _require(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, channels: int, out: int, rank: int) -> None:
    """Check the shapes. Raises InvalidArgument, DTypeError."""
    require_same_type(name, input._array, weight._array, None if bias is None else bias._array)
    if weight.ndim != rank + 2 or input.ndim not in (rank + 1, rank + 2) or input.shape[-rank - 1] != channels:
        raise InvalidArgument(
            f"{name} of a tensor of shape {input.shape} with weights of shape {weight.shape}; give (samples, channels, "
            f"{rank} sizes) with {channels} channels, and weights of {rank + 2} axes"
        )
    if bias is not None and bias.shape != (out,):
        raise InvalidArgument(f"{name} with a bias of shape {bias.shape}; give ({out},)")


def _edges(padding: Any, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Pairs:
    rank = len(size)
    if padding == "valid":
        return symmetric((0,) * rank)
    if padding == "same":
        if {*stride} != {1}:
            raise InvalidArgument(f"padding='same' with stride {tuple(stride)}; give stride 1, or numbers as padding")
        whole = [d * (k - 1) for d, k in zip(dilation, size, strict=True)]
        return tuple((n // 2, n - n // 2) for n in whole)
    if isinstance(padding, str):
        raise InvalidArgument(f"padding {padding!r}; give 'same', 'valid', or numbers")
    return symmetric(each_axis(padding, rank, "padding"))


def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    name = f"conv{rank}d"
    steps, apart = each_axis(stride, rank, "stride", 1), each_axis(dilation, rank, "dilation", 1)
    if groups < 1 or (weight.ndim and weight.shape[0] % groups):
        raise InvalidArgument(f"{name} with {groups} groups and weights of shape {weight.shape}; out must divide")
    channels = weight.shape[1] * groups if weight.ndim > 1 else 0
    _require(name, input, weight, bias, channels, weight.shape[0] if weight.ndim else 0, rank)
    edges = _edges(padding, weight.shape[2:], steps, apart)
    return _convolve(input, weight, bias, steps, edges, apart, groups)


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    steps, apart = each_axis(stride, rank, "stride", 1), each_axis(dilation, rank, "dilation", 1)
    before, more = each_axis(padding, rank, "padding"), each_axis(output_padding, rank, "output_padding")
    if any(m >= s and m >= d for m, s, d in zip(more, steps, apart, strict=True)):
        raise InvalidArgument(f"output_padding {more}, which must be smaller than stride {steps} or dilation {apart}")
    channels = weight.shape[0] if weight.ndim else 0
    if groups < 1 or channels % groups:
        raise InvalidArgument(f"{name} with {groups} groups and weights of shape {weight.shape}; channels must divide")
    _require(name, input, weight, bias, channels, weight.shape[1] * groups if weight.ndim > 1 else 0, rank)
    sizes = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        for n, s, p, d, k, m in zip(input.shape[-rank:], steps, before, apart, weight.shape[2:], more, strict=True)
    )
    if min(sizes) < 1:
        raise InvalidArgument(f"{name} of a tensor of shape {input.shape} gives sizes {sizes}; they must be from 1")
    edges = tuple((p, p - m) for p, m in zip(before, more, strict=True))
    return _spread(input, weight, bias, sizes, steps, edges, apart, groups)


@function
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The cross-correlation of the last axis with weights (out, channels / groups, size).

    Args:
        input: (samples, channels, n), or without samples.
        bias: (out).
        stride: step of the windows.
        padding: zeros on both sides, or "valid" for none, or "same" for as many results as elements.
        dilation: distance between the elements of a window.
        groups: parts of the channels, each of which has its own weights.

    Returns:
        (samples, out, windows).

    Raises:
        InvalidArgument: incompatible shapes, or numbers that are too small.
        DTypeError: several types.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@function
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The cross-correlation of the last two axes; arguments, result, errors as for `conv1d`, numbers also by axis."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@function
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The cross-correlation of the last three axes; arguments, result and errors as for `conv2d`."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@function
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv1d`: it maps a gradient of the result of `conv1d` to that of its input.

    Args:
        input: (samples, channels, n), or without samples.
        weight: (channels, out / groups, size).
        bias: (out).
        stride, padding, groups, dilation: as for `conv1d`.
        output_padding: added to the size of the result, if several sizes are possible.

    Raises:
        InvalidArgument: incompatible shapes, or numbers that are too small or large.
        DTypeError: several types.
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@function
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv2d`; arguments and errors as for `conv_transpose1d`, numbers also by axis."""
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@function
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv3d`; arguments and errors as for `conv_transpose2d`."""
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@function
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """The convolution of (time, samples, channels) with weights (size, channels, out). Raises as conv1d does."""
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


__all__ = export(globals())
