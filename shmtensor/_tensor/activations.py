"""Functions of neural networks that torch has for tensors: softmax along an axis, relu and its relatives.

Nothing in this module blocks.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from .._native import relu as _relu_array
from .._native import relu_back
from ..dtypes import dtype_of
from ..errors import DTypeError, InvalidArgument
from .core import Tensor, axis_of
from .dispatch import Array, Module, Out, export, operation
from .elementwise_rules import kept
from .result_types import converted, element_of, require_floating, require_real, widened

_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946


def _shifted(xp: Module, name: str, a: Array, dim: int, dtype: Any) -> tuple[Array, int]:
    """The values minus the largest along an axis, in the type to compute in, and the axis."""
    if dtype is not None:
        a = a.astype(dtype_of(dtype), copy=False)
    require_floating(name, a)
    rows = a.reshape(1) if not a.ndim else a
    axis = axis_of(rows, dim)
    (x,) = converted(xp, widened(xp, a.dtype), rows)
    return (x - xp.max(x, axis=axis, keepdims=True) if x.size else x + 0), axis


def _of_softmax(g: Tensor, result: Tensor, dim: int) -> Tensor:
    return result * (g - (g * result).sum(dim, keepdim=True))


@operation(out=Out.COPIED, fails="softmax along axis {axis} of", gradient=_of_softmax)
def softmax(xp: Module, input: Array, dim: int, dtype: Any = None) -> Array:
    """exp(x) divided by its sum along an axis, so that the sum is 1; computed in `dtype` if it is given.

    Raises IndexOutOfRange; DTypeError: integers and complex numbers.
    """
    with np.errstate(all="ignore"):
        x, axis = _shifted(xp, "softmax", input, dim, dtype)
        grown = xp.exp(x)
        kind = input.dtype if dtype is None else dtype_of(dtype)
        return (grown / xp.sum(grown, axis=axis, keepdims=True)).reshape(input.shape).astype(kind, copy=False)


def _of_log_softmax(g: Tensor, result: Tensor, dim: int) -> Tensor:
    return g - result.exp() * g.sum(dim, keepdim=True)


@operation(out=Out.COPIED, fails="log_softmax along axis {axis} of", gradient=_of_log_softmax)
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
        raise DTypeError(f"{name} of a tensor of bool; convert it with to()")
    require_real(name, a.dtype)


def _of_relu(g: Tensor, output: Tensor) -> Tensor:
    return _relu_back(g, output)


@operation(name="relu_back", function=False, method=False, gradient={"gradient": _of_relu})
def _relu_back(xp: Module, gradient: Array, output: Array) -> Array:
    """The gradient of the input of `relu`, from that of its output."""
    found = relu_back(gradient, output) if type(output) is np.ndarray else None
    return xp.where(output <= 0, gradient.dtype.type(0), gradient) if found is None else found


@operation(in_place=True, out=Out.COPIED, gradient=lambda g, result: _relu_back(g, result))
def relu(xp: Module, input: Array) -> Array:
    """The larger of x and 0; NaN stays. Raises DTypeError: bool and complex numbers."""
    found = _relu_array(input) if type(input) is np.ndarray else None
    if found is None:
        _require_numbers("relu", input)
        found = xp.maximum(input, input.dtype.type(0))
    return found


def _of_threshold(g: Tensor, input: Tensor, threshold: float) -> Tensor:
    return kept(g, (input <= threshold).logical_not())


@operation(method=False, out=Out.COPIED, gradient=_of_threshold)
def threshold(xp: Module, input: Array, threshold: float, value: float) -> Array:
    """`value` where x is not above `threshold`; both are converted to the tensor's type; fractions are cut off.

    Raises DTypeError: bool and complex numbers; InvalidArgument: a number that the type does not have.
    """
    return _above(xp, "threshold", input, threshold, value)


@operation(method=False, out=Out.PLACED, gradient=_of_threshold)
def threshold_(xp: Module, input: Array, threshold: float, value: float) -> Array:
    """`threshold` in place; returns the tensor. Raises as threshold does, and LayoutError."""
    return _above(xp, "threshold_", input, threshold, value)


def _above(xp: Module, name: str, a: Array, threshold: float, value: float) -> Array:
    _require_numbers(name, a)
    least = element_of(f"{name} with threshold", threshold, a.dtype)
    return xp.where(a <= least, element_of(f"{name} with value", value, a.dtype), a)


def _of_celu(g: Tensor, input: Tensor, alpha: float) -> Tensor:
    return (g * (input.clamp_max(0) / alpha).exp()).where(input <= 0, g)


@operation(method=False, gradient=_of_celu)
def celu(xp: Module, input: Array, alpha: float = 1.0) -> Array:
    """`x` above 0, else alpha * (exp(x / alpha) - 1).

    Raises InvalidArgument: alpha is 0; DTypeError: integers and complex numbers.
    """
    return _celu(xp, "celu", input, alpha)


def _of_celu_in_place(g: Tensor, result: Tensor, alpha: float) -> Tensor:
    return (g * (result / alpha + 1)).where(result <= 0, g)


@operation(method=False, out=Out.PLACED, gradient=_of_celu_in_place)
def celu_(xp: Module, input: Array, alpha: float = 1.0) -> Array:
    """`celu` in place; returns the tensor. Raises as celu does, and LayoutError."""
    return _celu(xp, "celu_", input, alpha)


def _celu(xp: Module, name: str, a: Array, alpha: float) -> Array:
    require_floating(name, a)
    if not alpha:
        raise InvalidArgument(f"{name} with alpha 0; give another number")
    return _grown(xp, a, alpha, 1.0, 1 / alpha)


def _of_selu(g: Tensor, input: Tensor) -> Tensor:
    return (g * (_SELU_ALPHA * input.clamp_max(0).exp())).where(input <= 0, g) * _SELU_SCALE


@operation(method=False, gradient=_of_selu)
def selu(xp: Module, input: Array) -> Array:
    """`scale * x` above 0, else scale * alpha * (exp(x) - 1), with the constants of self-normalizing networks.

    Raises DTypeError: integers and complex numbers.
    """
    require_floating("selu", input)
    return _grown(xp, input, _SELU_ALPHA, _SELU_SCALE, 1.0)


def _of_selu_in_place(g: Tensor, result: Tensor) -> Tensor:
    return (g * (result + _SELU_SCALE * _SELU_ALPHA)).where(result <= 0, g * _SELU_SCALE)


@operation(method=False, out=Out.PLACED, gradient=_of_selu_in_place)
def selu_(xp: Module, input: Array) -> Array:
    """`selu` in place; returns the tensor. Raises as selu does, and LayoutError."""
    require_floating("selu_", input)
    return _grown(xp, input, _SELU_ALPHA, _SELU_SCALE, 1.0)


def _grown(xp: Module, a: Array, alpha: float, scale: float, rate: float) -> Array:
    (x,) = converted(xp, widened(xp, a.dtype), a)
    with np.errstate(all="ignore"):
        return xp.where(x > 0, scale * x, scale * alpha * xp.expm1(rate * x)).astype(a.dtype, copy=False)


def _by_channel(weight: Tensor, ndim: int) -> Tensor:
    """The weights of prelu, one or one for each position along axis 1, in a shape that broadcasts to the input's."""
    return weight.reshape(()) if weight.numel() == 1 else weight.reshape(-1, *[1] * (ndim - 2))


def _of_slope(g: Tensor, input: Tensor, weight_shape: tuple[int, ...]) -> Tensor:
    """Gradient of the weights of prelu."""
    found = kept(g * input, (input > 0).logical_not())
    if math.prod(weight_shape) != 1 and input.ndim > 1:
        return found.sum([axis for axis in range(input.ndim) if axis != 1])
    return found.sum().reshape(weight_shape)


@operation(
    gradient={
        "input": lambda g, input, weight: g.where(input > 0, g * _by_channel(weight, input.ndim)),
        "weight": _of_slope,
    }
)
def prelu(xp: Module, input: Array, weight: Array) -> Array:
    """`x` above 0, else weight * x; with several weights, one for each position along axis 1.

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


def _of_hardshrink(g: Tensor, input: Tensor, lambd: float) -> Tensor:
    return kept(g, ((input >= -lambd) & (input <= lambd)).logical_not())


@operation(out=Out.COPIED, gradient=_of_hardshrink)
def hardshrink(xp: Module, input: Array, lambd: float = 0.5) -> Array:
    """0 between -lambd and lambd, else x. Raises DTypeError: integers and complex numbers."""
    require_floating("hardshrink", input)
    return xp.where((input >= -lambd) & (input <= lambd), input.dtype.type(0), input)


__all__ = export(globals())
