"""Functions that differ from torch's: here they follow the array API. Nothing in this module blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._tensor import elementwise, inspection
from .._tensor.core import Tensor, array_of, axis_of
from .._tensor.dispatch import Array, Module, Operand, Out, Register, composed, export, operation
from .._tensor.joining import rolled
from .._tensor.shapes import several_axes, squeezed
from .._tensor.sorting import order_along
from .._tensor.statistical import differences, inexact, reduced, reduced_in_float32
from ..dtypes import DTYPES, DType, dtype_of
from ..errors import InvalidArgument

_reduction: Register = partial(operation, method=False, out=Out.COPIED, fails="{name} over axes {axis} of")
_plain: Register = partial(operation, method=False)


@_reduction()
def max(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest value over all axes or some. Raises IndexOutOfRange, InvalidArgument (no elements)."""
    return reduced(xp.maximum.reduce, x, axis, keepdims)


@_reduction()
def min(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The smallest value over all axes or some. Raises IndexOutOfRange, InvalidArgument (no elements)."""
    return reduced(xp.minimum.reduce, x, axis, keepdims)


def _summed(xp: Module, function: Any, x: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
    how = {} if dtype is None else {"dtype": dtype_of(dtype)}  # NumPy's choice is the standard's
    return reduced_in_float32(xp, function, x, axis, keepdims, **how)


@_reduction()
def sum(xp: Module, x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The sum over all axes or some; unsigned integers stay so. Raises IndexOutOfRange, DTypeError."""
    return _summed(xp, xp.add.reduce, x, axis, dtype, keepdims)


@_reduction()
def prod(xp: Module, x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The product over all axes or some; unsigned integers stay so. Raises IndexOutOfRange, DTypeError."""
    return _summed(xp, xp.multiply.reduce, x, axis, dtype, keepdims)


@_reduction()
def all(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether every value over all axes or some is true. Raises IndexOutOfRange."""
    return reduced(xp.logical_and.reduce, x, axis, keepdims)


@_reduction()
def any(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether some value over all axes or some is true. Raises IndexOutOfRange."""
    return reduced(xp.logical_or.reduce, x, axis, keepdims)


@_reduction()
def count_nonzero(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """How many values over all axes or some are not zero. Raises IndexOutOfRange."""
    return reduced(xp.count_nonzero, x, axis, keepdims)


@_reduction()
def mean(xp: Module, x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean over all axes or some. Raises IndexOutOfRange."""
    return reduced_in_float32(xp, xp.mean, inexact(xp, x), axis, keepdims)


@_reduction()
def std(xp: Module, x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The standard deviation. `correction` is taken from the number of elements. Raises IndexOutOfRange."""
    return reduced_in_float32(xp, xp.std, inexact(xp, x), axis, keepdims, ddof=correction)


@_reduction()
def var(xp: Module, x: Array, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance. `correction` is taken from the number of elements. Raises IndexOutOfRange."""
    return reduced_in_float32(xp, xp.var, inexact(xp, x), axis, keepdims, ddof=correction)


@_plain(fails="sorting")
def sort(xp: Module, x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The values in order along an axis; NaN counts as the largest. Raises IndexOutOfRange."""
    at = axis_of(x, axis)
    result = xp.sort(x, at, stable=stable)
    return xp.ascontiguousarray(xp.flip(result, at) if descending else result)


@_plain(fails="sorting")
def argsort(xp: Module, x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The indices along an axis that would put the values in order. Raises IndexOutOfRange."""
    return xp.ascontiguousarray(order_along(xp, x, axis_of(x, axis), descending, stable))


@_plain()
def nonzero(xp: Module, x: Array, /) -> tuple[Array, ...]:
    """For each axis the indices of all elements that are not zero. Raises InvalidArgument: no axis."""
    if not x.ndim:
        raise InvalidArgument("nonzero of a tensor without axes; compare its value")
    return xp.nonzero(x)  # type: ignore[no-any-return]


@_plain(fails="rolling")
def roll(xp: Module, x: Array, /, shift: Any, *, axis: Any = None) -> Array:
    """The elements moved by `shift` places along axes, or in flat order; they come back at the other end. A copy.

    Raises IndexOutOfRange, InvalidArgument: not as many shifts as axes.
    """
    return rolled(xp, x, shift, axis)


@_plain(fails="squeeze of axis {axis} of")
def squeeze(xp: Module, x: Array, /, axis: Any) -> Array:
    """The view without the named axes, which must be of size 1. Raises IndexOutOfRange, InvalidArgument."""
    axes = several_axes(x, axis)
    if not np.all([x.shape[i] == 1 for i in axes]):
        raise InvalidArgument(f"squeeze of axis {axis} of a tensor of shape {x.shape}; give axes of size 1")
    return squeezed(x, axes)


@_plain(fails="clipping to {min} and {max}")
def clip(xp: Module, x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    """The values limited to the range from `min` to `max`, in the tensor's type. Raises InvalidArgument."""
    if min is None and max is None:
        return x.copy()
    result = xp.clip(x, min, max)
    same_kind = np.can_cast(result.dtype, x.dtype, "same_kind")
    return result.astype(x.dtype, copy=False) if same_kind else result


@_plain(fails="a grid, the first axis of which is")
def meshgrid(xp: Module, *arrays: Array, indexing: str = "xy") -> tuple[Array, ...]:
    """Grids of coordinates from tensors of one axis. Copies. Raises InvalidArgument."""
    if indexing not in ("xy", "ij"):
        raise InvalidArgument(f"meshgrid with indexing {indexing!r}; give 'xy' or 'ij'")
    return tuple(xp.meshgrid(*arrays, indexing=indexing))


@_plain()
def isin(xp: Module, x1: Operand, x2: Operand, /, *, invert: bool = False) -> Array:
    """Which elements of `x1` are among those of `x2` (or not, with `invert`). Raises DTypeError."""
    return xp.isin(x1, x2, invert=invert)


@operation(method=False, out=Out.COPIED, fails="differences along axis {axis} of")
def diff(
    xp: Module,
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """Differences of neighbours along an axis, `n` times; of truth values exclusive or.

    Raises IndexOutOfRange, InvalidArgument.
    """
    return differences(xp, x, n, axis, prepend, append)


@composed(method=False)
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether a type (or a tensor's type) can be cast to another safely, as in NumPy. Raises DTypeError."""
    source = array_of(from_).dtype if isinstance(from_, Tensor) else dtype_of(from_)
    return np.can_cast(source, dtype_of(to))


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """The result of `finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntInfo:
    """The result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: DType


@composed(method=False)
def finfo(type: Any, /) -> FloatInfo:
    """Range and precision of a floating-point type, or of a tensor's, or of the parts of a complex one.

    Raises DTypeError: another kind of type.
    """
    found = inspection.finfo(type)
    return FloatInfo(found.bits, found.eps, found.max, found.min, found.smallest_normal, DTYPES[dtype_of(found.dtype)])


@composed(method=False)
def iinfo(type: Any, /) -> IntInfo:
    """Range of an integer type, or of a tensor's. Raises DTypeError: another kind of type."""
    found = inspection.iinfo(type)
    return IntInfo(found.bits, found.max, found.min, DTYPES[dtype_of(found.dtype)])


equal: elementwise.Binary = elementwise.eq
__all__ = sorted([*export(globals()), "equal"])
