"""Max pooling over windows at random places. Blocks while another thread draws random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ...errors import InvalidArgument
from ...random.sampling import rand
from .pooling import require_channels, scatter_to_planes
from .rows import each_axis, function, hidden


def _starts(samples: Array, n: int, m: int, size: int) -> Array:
    """The starts of the windows in each plane."""
    made = np.full((*samples.shape, m), n - size, np.int64)
    if m > 1:
        step = (n - size) / (m - 1)
        inner = np.arange(m - 1)
        made[..., :-1] = ((inner + samples[..., None]) * step).astype(np.int64) - (samples * step).astype(np.int64)[
            ..., None
        ]
    return made


@hidden(
    name="fractional_max_pool",
    gradient={
        "input": lambda g, result, input_shape, sizes: scatter_to_planes(g[0], result[1], input_shape[-len(sizes) :])
    },
)
def _fractional(xp: Module, input: Array, samples: Array, sizes: Any, wanted: Any) -> tuple[Array, Array]:
    """The largest element of each window of (samples, channels, ...), and its index."""
    rank = len(sizes)
    order = (1, 0) if rank == 2 else (0, 1, 2)  # torch draws the width first, of two
    flat: Any = 0
    for axis, (n, m, k) in enumerate(zip(input.shape[2:], wanted, sizes, strict=True)):
        starts = _starts(samples[..., order[axis]], n, m, k)
        at = starts[..., None] + xp.arange(k)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = m, k
        flat = flat * n + at.reshape(*input.shape[:2], *shape)
    flat = flat.reshape(*input.shape[:2], *wanted, math.prod(sizes))
    lead = input.shape[:2]
    planes, index = input.reshape(*lead, math.prod(input.shape[2:])), flat.reshape(*lead, math.prod(flat.shape[2:]))
    elements = np.take_along_axis(planes, index, 2).reshape(flat.shape)
    best = xp.argmax(elements, axis=-1)[..., None]
    return np.take_along_axis(elements, best, -1)[..., 0], np.take_along_axis(flat, best, -1)[..., 0]


def _pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    random_samples: Tensor | None,
) -> Any:
    name = f"fractional_max_pool{rank}d"
    require_channels(name, input, rank)
    if (output_size is None) == (output_ratio is None):
        raise InvalidArgument(f"{name} with output_size and output_ratio, or neither; give one of them")
    sizes = each_axis(kernel_size, rank, "kernel_size", 1)
    if output_size is None:
        ratios: Sequence[float] = output_ratio if isinstance(output_ratio, list | tuple) else [output_ratio] * rank
        output_size = [int(n * one) for n, one in zip(input.shape[-rank:], ratios, strict=True)]
    wanted = each_axis(output_size, rank, "output_size", 1)
    if any(m + k - 1 > n for n, m, k in zip(input.shape[-rank:], wanted, sizes, strict=True)):
        raise InvalidArgument(f"{name} of a tensor of shape {input.shape} to {wanted} with windows of {sizes}")
    x = input if input.ndim == rank + 2 else input.unsqueeze(0)
    samples = rand(*x.shape[:2], rank, dtype=x.dtype) if random_samples is None else random_samples
    found: Any = _fractional(x, samples, sizes, wanted)
    if x is not input:
        found = (found[0].squeeze(0), found[1].squeeze(0))
    return found if return_indices else found[0]


@function
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest of each window of images, whose places are drawn so that sizes shrink by fractions.

    Args:
        input: (samples, channels, ...), or without samples.
        kernel_size: size of the windows.
        output_size: sizes of the result; give this or `output_ratio`.
        output_ratio: sizes of the result as parts of those of the input.
        return_indices: return the indices of the elements, too.
        _random_samples: numbers from 0 to 1, (samples, channels, 2), that determine the windows.

    Raises InvalidArgument: other shapes, or windows that do not fit.
    """
    return _pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@function
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d`, always with indices."""
    return _pool(2, input, kernel_size, output_size, output_ratio, True, _random_samples)


@function
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest of each window of volumes, whose places are drawn so that sizes shrink by fractions.

    Args:
        input: (samples, channels, ...), or without samples.
        kernel_size: size of the windows.
        output_size: sizes of the result; give this or `output_ratio`.
        output_ratio: sizes of the result as parts of those of the input.
        return_indices: return the indices of the elements, too.
        _random_samples: numbers from 0 to 1, (samples, channels, 3), that determine the windows.

    Raises InvalidArgument: other shapes, or windows that do not fit.
    """
    return _pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@function
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool3d`, always with indices."""
    return _pool(3, input, kernel_size, output_size, output_ratio, True, _random_samples)


__all__ = export(globals())
