"""Windows of images as columns of a matrix, and back. Nothing in this module blocks."""

from __future__ import annotations

import math
from typing import Any

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ...errors import InvalidArgument
from .rows import each_axis, function, hidden
from .windows import Windows, symmetric


@hidden(
    name="to_columns",
    gradient=lambda g, input_shape, windows: _from_columns(g, input_shape[-2:], windows),  # type: ignore[has-type]
)
def _to_columns(xp: Module, input: Array, windows: Any) -> Array:
    """(..., channels * size, windows) of (..., channels, height, width)."""
    w: Windows = windows
    count = w.counts(input.shape[-2:])
    channels = input.shape[-3]
    found = w.view(w.padded(xp, input))
    return found.reshape(*input.shape[:-3], channels * math.prod(w.size), math.prod(count)).copy()


@hidden(name="from_columns", gradient=lambda g, windows: _to_columns(g, windows))
def _from_columns(xp: Module, input: Array, sizes: Any, windows: Any) -> Array:
    """The sum of windows at their places in (..., channels, height, width)."""
    w: Windows = windows
    shape = (*input.shape[:-2], input.shape[-2] // math.prod(w.size), *w.size, *w.counts(sizes))
    return xp.ascontiguousarray(w.scattered(xp, input.reshape(shape), sizes))


def _windows(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Windows:
    return Windows(
        each_axis(kernel_size, 2, "kernel_size", 1),
        each_axis(stride, 2, "stride", 1),
        each_axis(dilation, 2, "dilation", 1),
        symmetric(each_axis(padding, 2, "padding")),
    )


@function
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of images as columns.

    Args:
        input: (samples, channels, height, width), or without samples.
        kernel_size: size of the windows.
        dilation: distance between the elements of a window.
        padding: zeros on both sides.
        stride: step of the windows.

    Returns:
        (samples, channels * size, windows).

    Raises InvalidArgument: other shapes, or numbers that are too small.
    """
    if input.ndim not in (3, 4):
        raise InvalidArgument(f"unfold of a tensor of shape {input.shape}; give (samples, channels, height, width)")
    return _to_columns(input, _windows(kernel_size, dilation, padding, stride))


@function
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The inverse of `unfold`: the sum of columns, each at the place of its window.

    Args:
        input: (samples, channels * size, windows), or without samples.
        output_size: height and width of the result.
        kernel_size, dilation, padding, stride: as for `unfold`.

    Returns:
        (samples, channels, height, width).

    Raises InvalidArgument: incompatible shapes, or numbers that are too small.
    """
    windows = _windows(kernel_size, dilation, padding, stride)
    sizes = each_axis(output_size, 2, "output_size", 1)
    count = math.prod(windows.counts(sizes))
    if input.ndim not in (2, 3) or input.shape[-2] % math.prod(windows.size) or input.shape[-1] != count:
        raise InvalidArgument(
            f"fold of a tensor of shape {input.shape} into sizes {sizes}; give (samples, channels * "
            f"{math.prod(windows.size)}, {count})"
        )
    return _from_columns(input, sizes, windows)


__all__ = export(globals())
