"""Functions of neural networks that torch has for tensors: softmax along an axis, relu and its relatives.

Nothing in this module blocks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..dtypes import dtype_of
from ..errors import DTypeError, InvalidArgument
from .core import axis_of
from .dispatch import Array, Module, Out, export, operation
from .result_types import converted, element_of, require_floating, require_real, widened

_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _shifted(xp: Module, name: str, a: Array, dim: int, dtype: Any) -> tuple[Array, int]:
    """The values less the largest along an axis, in the type to compute in, and the axis."""
    if dtype is not None:
        a = a.astype(dtype_of(dtype), copy=False)
    require_floating(name, a)
    rows = a.reshape(1) if not a.ndim else a
    axis = axis_of(rows, dim)
    (x,) = converted(xp, widened(xp, a.dtype), rows)
    return (x - xp.max(x, axis=axis, keepdims=True) if x.size else x + 0), axis


@operation(out=Out.COPIED, fails="softmax along axis {axis} of")
def softmax(xp: Module, input: Array, dim: int, dtype: Any = None) -> Array:
    """exp(x) divided by its sum along an axis, so that the sum is 1; computed in `dtype` if it is given.

    Raises IndexOutOfRange; DTypeError: integers and complex numbers.
    """
    with np.errstate(all="ignore"):
        x, axis = _shifted(xp, "softmax", input, dim, dtype)
        grown = xp.exp(x)
        kind = input.dtype if dtype is None else dtype_of(dtype)
        return (grown / xp.sum(grown, axis=axis, keepdims=True)).reshape(input.shape).astype(kind, copy=False)


@operation(out=Out.COPIED, fails="log_softmax along axis {axis} of")
def log_softmax(xp: Module, input: Array, dim: int, dtype: Any = None) -> Array:
    """The logarithm of softmax along an axis; computed in `dtype` if it is given.

    Raises IndexOutOfRange; DTypeError: integers and complex numbers.
    """
    with np.errstate(all="ignore"):
        x, axis = _shifted(xp, "log_softmax", input, dim, dtype)
        kind = input.dtype if dtype is None else dtype_of(dtype)
        return (x - xp.log(xp.sum(xp.exp(x), axis=axis, keepdims=True))).reshape(input.shape).astype(kind, copy=False)


def _require_numbers(name: str, a: Array) -> None:
    if a.dtype.kind == "b":
        raise DTypeError(f"{name} of a tensor of bool; convert it by to()")
    require_real(name, a.dtype)


@operation(in_place=True, out=Out.COPIED)
def relu(xp: Module, input: Array) -> Array:
    """The larger of x and 0; NaN stays. Raises DTypeError: bool and complex numbers."""
    _require_numbers("relu", input)
    return xp.maximum(input, input.dtype.type(0))


@operation(method=False, out=Out.COPIED)
def threshold(xp: Module, input: Array, threshold: float, value: float) -> Array:
    """`value` where x is not above `threshold`; both become elements of the tensor's type, without their fraction.

    Raises DTypeError: bool and complex numbers; InvalidArgument: a number that the type does not have.
    """
    return _above(xp, "threshold", input, threshold, value)


@operation(method=False, out=Out.PLACED)
def threshold_(xp: Module, input: Array, threshold: float, value: float) -> Array:
    """`threshold` in place; returns the tensor. Raises as threshold does, and LayoutError."""
    return _above(xp, "threshold_", input, threshold, value)


def _above(xp: Module, name: str, a: Array, threshold: float, value: float) -> Array:
    _require_numbers(name, a)
    least = element_of(f"{name} with threshold", threshold, a.dtype)
    return xp.where(a <= least, element_of(f"{name} with value", value, a.dtype), a)


@operation(method=False)
def celu(xp: Module, input: Array, alpha: float = 1.0) -> Array:
    """`x` above 0, else alpha * (exp(x / alpha) - 1).

    Raises InvalidArgument: alpha is 0; DTypeError: integers and complex numbers.
    """
    return _celu(xp, "celu", input, alpha)


@operation(method=False, out=Out.PLACED)
def celu_(xp: Module, input: Array, alpha: float = 1.0) -> Array:
    """`celu` in place; returns the tensor. Raises as celu does, and LayoutError."""
    return _celu(xp, "celu_", input, alpha)


def _celu(xp: Module, name: str, a: Array, alpha: float) -> Array:
    require_floating(name, a)
    if not alpha:
        raise InvalidArgument(f"{name} with alpha 0; give another number")
    return _grown(xp, a, alpha, 1.0, 1 / alpha)


@operation(method=False)
def selu(xp: Module, input: Array) -> Array:
    """`scale * x` above 0, else scale * alpha * (exp(x) - 1), with the constants of self-normalizing networks.

    Raises DTypeError: integers and complex numbers.
    """
    require_floating("selu", input)
    return _grown(xp, input, _SELU_ALPHA, _SELU_SCALE, 1.0)


@operation(method=False, out=Out.PLACED)
def selu_(xp: Module, input: Array) -> Array:
    """`selu` in place; returns the tensor. Raises as selu does, and LayoutError."""
    require_floating("selu_", input)
    return _grown(xp, input, _SELU_ALPHA, _SELU_SCALE, 1.0)


def _grown(xp: Module, a: Array, alpha: float, scale: float, rate: float) -> Array:
    (x,) = converted(xp, widened(xp, a.dtype), a)
    with np.errstate(all="ignore"):
        return xp.where(x > 0, scale * x, scale * alpha * xp.expm1(rate * x)).astype(a.dtype, copy=False)


@operation()
def prelu(xp: Module, input: Array, weight: Array) -> Array:
    """`x` above 0, else weight * x; of several weights each belongs to one position along axis 1.

    Raises InvalidArgument: another number of weights; DTypeError: integers, complex numbers, weights of another type.
    """
    require_floating("prelu", input)
    if weight.dtype != input.dtype:
        raise DTypeError(f"prelu of a tensor of {input.dtype.name} with weights of {weight.dtype.name}; convert one")
    if weight.size != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.ndim != 1 or weight.size != channels:
            raise InvalidArgument(
                f"prelu of a tensor of shape {input.shape} with weights of shape {weight.shape}; give 1, or {channels}"
            )
        weight = weight.reshape(-1, *[1] * (input.ndim - 2))
    else:
        weight = weight.reshape(())
    return xp.where(input > 0, input, weight * input)


@operation(out=Out.COPIED)
def hardshrink(xp: Module, input: Array, lambd: float = 0.5) -> Array:
    """0 between -lambd and lambd, else x. Raises DTypeError: integers and complex numbers."""
    require_floating("hardshrink", input)
    return xp.where((input >= -lambd) & (input <= lambd), input.dtype.type(0), input)


__all__ = export(globals())
