"""Choosing elements by masks and conditions, limiting and mixing them, and finding those that are not zero.

Results are copies. Nothing in this module blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import default_float
from ..errors import DTypeError, InvalidArgument
from .core import Tensor, array_of
from .dispatch import Array, Module, Operand, Out, Result, composed, export, operation
from .outputs import given
from .result_types import common_type
from .selection import _array, _of_sizes
from .shapes import broadcast_to, clone


def _mask(xp: Module, x: Array, mask: Any) -> Array:
    """A mask with the sizes of `x`. Raises DTypeError, InvalidArgument."""
    a = _array(xp, mask, "mask")
    if a.dtype == xp.uint8:  # TH's ByteTensor
        a = a.astype(bool)
    if a.dtype.kind != "b":
        raise DTypeError(f"a mask of {a.dtype.name}; give truth values, as a comparison does")
    try:
        return xp.broadcast_to(a, x.shape)
    except ValueError as error:
        raise InvalidArgument(f"a mask of shape {a.shape} for a tensor of shape {x.shape}: {error}") from error


def matched(xp: Module, *operands: Any) -> list[Any]:
    """Operands as the elementwise operations promote them: integers take the type of an inexact one.

    A Python float or complex number converts integers to the default type. Raises OverflowError: a Python integer that
    does not fit the type of the tensors.
    """
    inexact = [one.dtype for one in operands if hasattr(one, "dtype") and one.dtype.kind not in "biu"]
    numbers = [type(one) for one in operands if isinstance(one, float | complex)]
    if not inexact and not numbers:
        whole = [one.dtype for one in operands if hasattr(one, "dtype") and one.dtype.kind in "iu"]
        if not whole:
            return list(operands)
        kind = xp.result_type(*whole)
        return [one if hasattr(one, "dtype") else xp.asarray(one, kind) for one in operands]
    kind = xp.result_type(*inexact) if inexact else default_float()
    if complex in numbers:
        kind = xp.result_type(kind, xp.complex64)
    return [xp.asarray(one, kind) if not hasattr(one, "dtype") or one.dtype.kind in "biu" else one for one in operands]


def _broadcast_mask(xp: Module, x: Array, mask: Any) -> tuple[Array, Array]:
    """A tensor and its mask, broadcast to each other. Raises DTypeError, InvalidArgument."""
    a = _array(xp, mask, "mask")
    try:
        whole = xp.broadcast_to(x, np.broadcast_shapes(x.shape, a.shape))
    except ValueError:
        whole = x  # the check of the mask raises the error
    return whole, _mask(xp, whole, a)


# -- by mask -----------------------------------------------------------------------------------------------------------


@operation(name="masked_into_zeros", function=False, method=False, gradient=lambda g, mask: g.masked_select(mask))
def _masked_into_zeros(xp: Module, x: Array, shape: tuple[int, ...], mask: Any) -> Array:
    """Zeros of a shape, with the elements of `x` where a mask is true."""
    made = xp.zeros(shape, x.dtype)
    made[_mask(xp, made, mask)] = x
    return made


def _unselected(g: Tensor, x_shape: tuple[int, ...], mask: Any) -> Tensor:
    """The gradient rule of `masked_select`, before it is summed to the tensor's sizes."""
    return _masked_into_zeros(g, np.broadcast_shapes(x_shape, np.shape(mask)), mask)


def _masked_source(g: Tensor, mask: Any, source_shape: tuple[int, ...]) -> Tensor:
    """The gradient of the elements that were written in order where a mask is true."""
    found = masked_select(g, broadcast_to(mask, g.shape) if isinstance(mask, Tensor) else mask)
    return _of_sizes(found, (math.prod(source_shape),)).reshape(source_shape)


@operation(out=Out.COPIED, gradient=_unselected)
def masked_select(xp: Module, x: Array, mask: Any, /) -> Array:
    """The elements where a mask, which broadcasts, is true, on one axis. Raises InvalidArgument, DTypeError."""
    a, places = _broadcast_mask(xp, x, mask)
    return a[places]


@operation(
    result=Result.SAME,
    function=False,
    fails="writing to",
    gradient={
        "self": lambda g, mask: g.masked_fill(mask, 0),
        "value": lambda g, mask, value_shape: _of_sizes(masked_select(g, mask), value_shape),
    },
)
def masked_fill_(xp: Module, self: Array, mask: Any, value: Operand) -> Array:
    """Fill the elements where a mask, which broadcasts, is true; returns self. Raises InvalidArgument, DTypeError."""
    self[_mask(xp, self, mask)] = value


@composed()
def masked_fill(input: Tensor, mask: Any, value: Any) -> Tensor:
    """`masked_fill_` on a copy of the broadcast shape. Raises as that function does."""
    try:
        given = array_of(mask) if isinstance(mask, Tensor) else mask
        shape = np.broadcast_shapes(array_of(input).shape, np.shape(given))
    except ValueError:
        shape = input.shape  # the check of the mask raises the error
    return masked_fill_(clone(input) if shape == input.shape else clone(broadcast_to(input, shape)), mask, value)


@operation(
    result=Result.SAME,
    function=False,
    fails="writing to",
    gradient={"self": lambda g, mask: g.masked_fill(mask, 0), "source": _masked_source},
)
def masked_scatter_(xp: Module, self: Array, mask: Any, source: Operand) -> Array:
    """Write the elements of `source`, in order, where a mask is true; returns self. Raises InvalidArgument: too few."""
    places = _mask(xp, self, mask)
    values = _array(xp, source, "values").reshape(-1)
    wanted = int(places.sum())
    if wanted > values.size:
        raise InvalidArgument(f"a mask with {wanted} true elements and {values.size} values; give at least as many")
    self[places] = values[:wanted]


# -- by condition ------------------------------------------------------------------------------------------------------


def _instead(self: Tensor, condition: Any, other: Any) -> Tensor:
    """Its elements where a condition is true, those of `other` elsewhere. Raises InvalidArgument, DTypeError."""
    return where(condition, self, other)  # type: ignore[no-any-return]


@composed(method=_instead)
def where(condition: Any, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """Elements of `input` where a condition is true, of `other` elsewhere; with the condition alone, its `nonzero`.

    Raises InvalidArgument: incompatible shapes; DTypeError.
    """
    return (
        nonzero(condition, as_tuple=True)
        if input is None and other is None
        else _chosen(condition, input, other, out=out)
    )


@operation(
    name="where",
    function=False,
    method=False,
    out=Out.COPIED,
    fails="choosing by",
    gradient={
        "x1": lambda g, condition: where(condition, g, 0),
        "x2": lambda g, condition: where(condition, 0, g),
    },
)
def _chosen(xp: Module, condition: Operand, x1: Operand, x2: Operand, /) -> Array:
    """`where` with three arguments."""
    return xp.where(_array(xp, condition, "a condition"), *matched(xp, x1, x2))


def _clipped(g: Tensor, x: Tensor, min: Any, max: Any) -> Tensor:
    """The gradient of the values between the bounds, or at them."""
    inside = None if min is None else x >= min
    if max is not None:
        inside = x <= max if inside is None else inside & (x <= max)
    return g if inside is None else where(inside, g, 0)


def _at_least(g: Tensor, x: Tensor, min: Any, max: Any) -> Tensor:
    """The gradient of the lower bound."""
    return where(x < min if max is None else (x < min) & (min < max), g, 0)  # type: ignore[no-any-return]


def _at_most(g: Tensor, x: Tensor, min: Any, max: Any) -> Tensor:
    """The gradient of the upper bound, which is the result too where it is below the lower one."""
    return where(x > max if min is None else (x > max) | (max < min), g, 0)  # type: ignore[no-any-return]


@operation(
    "clamp",
    out=Out.COPIED,
    in_place=True,
    fails="clipping to {min} and {max}",
    gradient={"x": _clipped, "min": _at_least, "max": _at_most},
)
def clip(xp: Module, x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    """The values limited to the range from `min` to `max`; either may be None. Raises InvalidArgument."""
    if min is None and max is None:
        return x.copy()
    kind = common_type(x, *[one for one in (min, max) if one is not None])
    return xp.clip(x, min, max).astype(kind, copy=False)


@operation(
    out=Out.COPIED,
    in_place=True,
    fails="interpolating",
    gradient={
        "x": lambda g, weight: g * (1 - weight),
        "end": lambda g, weight: g * weight,
        "weight": lambda g, x, end: g * (end - x),
    },
)
def lerp(xp: Module, x: Array, end: Operand, weight: Operand, /) -> Array:
    """`x + weight * (end - x)`. Raises InvalidArgument: shapes."""
    start = x.astype(np.float64) if x.dtype.kind in "biu" else x  # differences may be negative
    return start + xp.multiply(weight, xp.subtract(end, start))


# -- not zero ----------------------------------------------------------------------------------------------------------


@operation(name="nonzero", function=False, method=False)
def _nonzero(xp: Module, x: Array, as_tuple: bool) -> Any:
    """The implementation of nonzero."""
    if not as_tuple:
        return xp.argwhere(x)
    return xp.nonzero(x.reshape(1) if not x.ndim else x)


@composed()
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """The indices of all elements that are not zero: int64, a row for each; `as_tuple`: a tensor for each axis.

    Raises DTypeError, InvalidArgument, LayoutError: `out`.
    """
    found = _nonzero(input, as_tuple)
    return found if out is None or as_tuple else given(array_of(found), out, "nonzero")


@operation()
def argwhere(xp: Module, x: Array, /) -> Array:
    """The indices of all elements that are not zero, a row for each."""
    return xp.argwhere(x)


__all__ = export(globals())
