"""Tensors with strides or an order of axes of the caller's choice, or over the memory of a buffer.

Blocking and errors are those of `empty`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import dtype_of
from ..errors import InvalidArgument
from ..storage.arguments import array_from
from .core import Tensor, index_of, indices_of
from .creation import empty, from_numpy
from .dispatch import composed, export
from .options import requiring
from .shapes import as_strided


@composed(method=False)
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
    pin_memory: bool = False,
    allocator: Any = None,
) -> Tensor:
    """A tensor of arbitrary content with these sizes and strides (elements). Arguments and errors as `empty`.

    Raises:
        InvalidArgument: also not as many strides as sizes, or negative ones.
    """
    sizes, steps = indices_of(size), indices_of(stride, "strides")
    if len(sizes) != len(steps) or min((*sizes, *steps), default=0) < 0:
        raise InvalidArgument(f"sizes {sizes} and strides {steps}; give as many of both, from 0")
    count = 1 + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True)) if 0 not in sizes else 0
    how = {"dtype": dtype, "device": device, "shared": shared, "allocator": allocator}
    whole = empty(count, requires_grad=requires_grad, pin_memory=pin_memory, **how)
    return as_strided(whole, sizes, steps)


@composed(method=False)
def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    shared: bool = False,
    requires_grad: bool = False,
    pin_memory: bool = False,
    allocator: Any = None,
) -> Tensor:
    """A dense tensor of arbitrary content, with its axes in this order in memory; the last one varies fastest.

    Arguments and errors as `empty`. Raises InvalidArgument also for an order that is not one of its axes.
    """
    sizes, order = indices_of(size), indices_of(physical_layout, "axes")
    if sorted(order) != list(range(len(sizes))):
        raise InvalidArgument(f"the order {order} for the axes of sizes {sizes}; name each once")
    steps, step = [1] * len(sizes), 1
    for axis in reversed(order):
        steps[axis] = step
        step *= max(sizes[axis], 1)
    how = {"dtype": dtype, "device": device, "shared": shared, "allocator": allocator}
    return empty_strided(sizes, steps, requires_grad=requires_grad, pin_memory=pin_memory, **how)


@composed(method=False)
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor, with one axis, over the memory of an object with the buffer protocol, without a copy.

    Args:
        count: number of elements; -1: all.
        offset: first byte.

    Raises:
        InvalidArgument: more elements than there are; DTypeError: not a buffer; LayoutError: it cannot be written.
    """
    kind = dtype_of(dtype)
    try:
        found = np.frombuffer(buffer, kind, index_of(count, "count"), index_of(offset, "offset"))
    except (TypeError, AttributeError):
        array_from(buffer, kind)  # raises the error
        raise
    except ValueError as error:
        raise InvalidArgument(f"{count} elements of {kind.name} from byte {offset} of a buffer: {error}") from error
    return requiring(from_numpy(found), requires_grad)


__all__ = export(globals())
