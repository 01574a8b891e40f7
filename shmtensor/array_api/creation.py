"""Functions that create tensors and whose arguments differ from torch's. They block only with `shared=True`."""

from __future__ import annotations

from typing import Any

from .._tensor import creation, ranges
from .._tensor.core import Tensor
from .._tensor.dispatch import composed, export


@composed(method=False)
def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None, shared: bool = False
) -> Tensor:
    """Values from `start` (0 if only one is given) below `stop`, `step` apart.

    The default type is int64 when all are integers, else the default floating-point type.

    Raises InvalidArgument: step 0, or bounds that are not finite; DTypeError: not numbers.
    """
    return ranges.arange(start, stop, step, dtype=dtype, device=device, shared=shared)


@composed(method=False)
def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
    shared: bool = False,
) -> Tensor:
    """`num` values from `start` to `stop`, equally far apart; without `endpoint` the last is the one before `stop`.

    The default type is the default floating-point type, or its complex type.

    Raises InvalidArgument: `num` negative or not an integer; DTypeError: not numbers.
    """
    return ranges.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, device=device, shared=shared)


@composed(method=False)
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, shared: bool = False) -> Tensor:
    """A tensor of one value.

    The default type depends on the value: bool, int64, the default floating-point type or its complex type.

    Raises InvalidArgument: a value outside the range of the type, or invalid sizes; DTypeError: not a number.
    """
    return creation.full(shape, fill_value, dtype=dtype, device=device, shared=shared)


__all__ = export(globals())
