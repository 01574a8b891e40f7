"""Activations: functions of each element, and softmax with its relatives. Nothing in this module blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

from ..._tensor import activations
from ..._tensor.core import Tensor
from ..._tensor.creation import empty_like, zeros_like
from ..._tensor.dispatch import Array, Module, Out, export
from ..._tensor.elementwise import sigmoid as _sigmoid
from ..._tensor.elementwise import tanh as _tanh
from ...errors import InvalidArgument
from ...random.distributions import exponential_, uniform_
from .derivatives import derived, value
from .rows import function, hidden, row

_GELU: Final = {"none": "gelu", "tanh": "gelu_tanh"}


def _placed(input: Tensor, compute: Callable[..., Tensor], *numbers: Any) -> Tensor:
    """Apply a function in place; returns the tensor. The gradient is computed from a copy."""
    kept = input.clone() if input.requires_grad else input
    input.copy_(compute(kept, *numbers))
    return input


# -- one formula each --------------------------------------------------------------------------------------------------


@hidden(gradient=lambda g, input, alpha: derived(g, input, "elu", 1, (alpha,)), name="elu")
def _elu(xp: Module, input: Array, alpha: float) -> Array:
    """`x` above 0, else alpha * (exp(x) - 1)."""
    return value(xp, "elu", 0, input, alpha)


@function
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` above 0, else alpha * (exp(x) - 1). Raises DTypeError: integers and complex numbers."""
    return _placed(input, _elu, alpha) if inplace else _elu(input, alpha)


@function
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place; returns the tensor. Raises as elu does, and LayoutError."""
    return _placed(input, _elu, alpha)


@hidden(gradient=lambda g, input, slope: derived(g, input, "leaky_relu", 1, (slope,)), name="leaky_relu")
def _leaky_relu(xp: Module, input: Array, slope: float) -> Array:
    """`x` above 0, else slope * x."""
    return value(xp, "leaky_relu", 0, input, slope)


@function
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`x` above 0, else negative_slope * x. Raises DTypeError: integers and complex numbers."""
    return _placed(input, _leaky_relu, negative_slope) if inplace else _leaky_relu(input, negative_slope)


@function
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place; returns the tensor. Raises as leaky_relu does, and LayoutError."""
    return _placed(input, _leaky_relu, negative_slope)


@hidden(gradient=lambda g, input, low, high: derived(g, input, "hardtanh", 1, (low, high)), name="hardtanh")
def _hardtanh(xp: Module, input: Array, low: float, high: float) -> Array:
    """`x` clipped, which has gradient 0 at the bounds."""
    if input.dtype.kind in "iu":
        if low < 0 and input.dtype.kind == "u":
            raise InvalidArgument(f"hardtanh of a tensor of {input.dtype.name} from {low}; give a bound from 0")
        return xp.clip(input, int(low), int(high))
    return value(xp, "hardtanh", 0, input, low, high)


@function
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` clipped to [min_val, max_val].

    Raises InvalidArgument: min_val above max_val; DTypeError: bool and complex numbers.
    """
    if min_val > max_val:
        raise InvalidArgument(f"hardtanh from {min_val} to {max_val}; min_val must not be above max_val")
    return _placed(input, _hardtanh, min_val, max_val) if inplace else _hardtanh(input, min_val, max_val)


@function
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place; returns the tensor. Raises as hardtanh does, and LayoutError."""
    return hardtanh(input, min_val, max_val, True)


@function
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`x` clipped to [0, 6]. Raises DTypeError: bool and complex numbers."""
    return hardtanh(input, 0.0, 6.0, inplace)


@hidden(gradient=lambda g, input: derived(g, input, "silu", 1, ()), name="silu")
def _silu(xp: Module, input: Array) -> Array:
    """`x * sigmoid(x)` of real numbers."""
    return value(xp, "silu", 0, input)


def _silu_of(input: Tensor) -> Tensor:
    return input * input.sigmoid() if input.dtype.is_complex else _silu(input)


@function
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * sigmoid(x)`. Raises DTypeError: integers."""
    return _placed(input, _silu_of) if inplace else _silu_of(input)


@hidden(gradient=lambda g, input: derived(g, input, "mish", 1, ()), name="mish")
def _mish(xp: Module, input: Array) -> Array:
    """`x * tanh(softplus(x))`."""
    return value(xp, "mish", 0, input)


@function
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * tanh(softplus(x))`. Raises DTypeError: integers and complex numbers."""
    return _placed(input, _mish) if inplace else _mish(input)


@hidden(gradient=lambda g, input: derived(g, input, "hardswish", 1, ()), name="hardswish")
def _hardswish(xp: Module, input: Array) -> Array:
    """`x * relu6(x + 3) / 6`."""
    return value(xp, "hardswish", 0, input)


@function
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * relu6(x + 3) / 6`. Raises DTypeError: integers and complex numbers."""
    return _placed(input, _hardswish) if inplace else _hardswish(input)


@hidden(gradient=lambda g, input: derived(g, input, "hardsigmoid", 1, ()), name="hardsigmoid")
def _hardsigmoid(xp: Module, input: Array) -> Array:
    """relu6(x + 3) / 6."""
    return value(xp, "hardsigmoid", 0, input)


@function
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6. Raises DTypeError: integers and complex numbers."""
    return _placed(input, _hardsigmoid) if inplace else _hardsigmoid(input)


@row(out=Out.COPIED, gradient=lambda g, input, approximate: derived(g, input, _GELU[approximate], 1, ()))
def gelu(xp: Module, input: Array, *, approximate: str = "none") -> Array:
    """`x` times the normal distribution function of x; with `approximate="tanh"` a formula with tanh.

    Raises InvalidArgument: another `approximate`; DTypeError: integers and complex numbers; MissingExtra: SciPy is not
        installed.
    """
    if approximate not in _GELU:
        raise InvalidArgument(f"gelu with approximate={approximate!r}; give 'none' or 'tanh'")
    return value(xp, _GELU[approximate], 0, input)


@row(out=Out.COPIED, gradient=lambda g, input, beta, threshold: derived(g, input, "softplus", 1, (beta, threshold)))
def softplus(xp: Module, input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above `threshold`.

    Raises DTypeError: integers and complex numbers.
    """
    return value(xp, "softplus", 0, input, beta, threshold)


@hidden(gradient=lambda g, input: derived(g, input, "softsign", 1, ()), name="softsign")
def _softsign(xp: Module, input: Array) -> Array:
    """`x / (1 + |x|)` of real numbers."""
    return value(xp, "softsign", 0, input)


@function
def softsign(input: Tensor) -> Tensor:
    """`x / (1 + |x|)`."""
    return _softsign(input) if input.dtype.is_floating_point else input / (input.abs() + 1)


@row(out=Out.COPIED, gradient=lambda g, input, lambd: derived(g, input, "softshrink", 1, (lambd,)))
def softshrink(xp: Module, input: Array, lambd: float = 0.5) -> Array:
    """`x` moved by `lambd` towards 0, and 0 where |x| is at most `lambd`.

    Raises InvalidArgument: lambd below 0; DTypeError: integers and complex numbers.
    """
    if lambd < 0:
        raise InvalidArgument(f"softshrink with lambd {lambd}; give 0 or more")
    return value(xp, "softshrink", 0, input, lambd)


@row(out=Out.COPIED, gradient=lambda g, input: derived(g, input, "logsigmoid", 1, ()))
def logsigmoid(xp: Module, input: Array) -> Array:
    """log(sigmoid(x)), also where sigmoid(x) is 0. Raises DTypeError: integers and complex numbers."""
    return value(xp, "logsigmoid", 0, input)


# -- functions of tensors, with torch's arguments ----------------------------------------------------------------------


@function
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The larger of x and 0. Raises DTypeError: bool and complex numbers."""
    return input.relu_() if inplace else activations.relu(input)


@function
def relu_(input: Tensor) -> Tensor:
    """`relu` in place; returns the tensor. Raises as relu does, and LayoutError."""
    return input.relu_()


@function
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)). Raises DTypeError."""
    return _sigmoid(input)


@function
def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent. Raises DTypeError."""
    return _tanh(input)


@function
def tanhshrink(input: Tensor) -> Tensor:
    """X - tanh(x). Raises DTypeError: integers."""
    return input - input.tanh()


@function
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`x` above 0, else alpha * (exp(x / alpha) - 1).

    Raises InvalidArgument: alpha is 0; DTypeError: integers and complex numbers.
    """
    return _placed(input, activations.celu, alpha) if inplace else activations.celu(input, alpha)


@function
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place; returns the tensor. Raises as celu does, and LayoutError."""
    return _placed(input, activations.celu, alpha)


@function
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`scale * x` above 0, else scale * alpha * (exp(x) - 1). Raises DTypeError: integers and complex numbers."""
    return _placed(input, activations.selu) if inplace else activations.selu(input)


@function
def selu_(input: Tensor) -> Tensor:
    """`selu` in place; returns the tensor. Raises as selu does, and LayoutError."""
    return _placed(input, activations.selu)


@function
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`value` where x is not above `threshold`.

    Raises DTypeError: bool and complex numbers; InvalidArgument: a number that the type does not have.
    """
    if inplace:
        return _placed(input, activations.threshold, threshold, value)
    return activations.threshold(input, threshold, value)


@function
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place; returns the tensor. Raises as threshold does, and LayoutError."""
    return _placed(input, activations.threshold, threshold, value)


@function
def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """`x` above 0, else x times a random number from `lower` to `upper`; without `training` times their mean.

    Raises InvalidArgument: lower above upper; DTypeError: integers and complex numbers.
    """
    if lower > upper:
        raise InvalidArgument(f"rrelu from {lower} to {upper}; lower must not be above upper")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = uniform_(empty_like(input), lower, upper)
    slopes[(input > 0)] = 1
    return input.mul_(slopes) if inplace else input * slopes


@function
def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place; returns the tensor. Raises as rrelu does, and LayoutError."""
    return rrelu(input, lower, upper, training, True)


@function
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along an axis, times sigmoid of the second half.

    Raises InvalidArgument: an odd size, or no axes; IndexOutOfRange: no such axis.
    """
    if not input.ndim or input.shape[dim] % 2:
        raise InvalidArgument(f"glu along axis {dim} of a tensor of shape {input.shape}; give an even size")
    first, second = input.chunk(2, dim)
    return first * second.sigmoid()


# -- softmax and its relatives -----------------------------------------------------------------------------------------


def _axis(name: str, dim: int | None, ndim: int, stacklevel: int) -> int:
    """The axis that torch uses if none is given."""
    if dim is not None:
        return dim
    warnings.warn(f"{name} without dim takes axis 0 or 1 by the number of axes; give dim", stacklevel=stacklevel + 1)
    return 0 if ndim in (0, 1, 3) else 1


@function
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) divided by its sum along an axis; computed in `dtype` if it is given.

    Raises IndexOutOfRange; DTypeError: integers and complex numbers.
    """
    return activations.softmax(input, _axis("softmax", dim, input.ndim, _stacklevel), dtype)


@function
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """`softmax` of -x."""
    return activations.softmax(-input, _axis("softmin", dim, input.ndim, _stacklevel), dtype)


@function
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    return activations.log_softmax(input, _axis("log_softmax", dim, input.ndim, _stacklevel), dtype)


@function
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A random draw of categories: `softmax` along an axis of logits with Gumbel noise, divided by `tau`.

    Args:
        hard: 1 for the largest and 0 for others, with the gradient of the soft values.
        eps: has no effect, as in torch.

    Raises IndexOutOfRange; DTypeError: integers and complex numbers.
    """
    noise = -exponential_(empty_like(logits)).log()
    soft = activations.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    one: Tensor = zeros_like(soft).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0)
    return one - soft.detach() + soft


__all__ = export(globals())
