"""Initial values of parameters: functions that fill a tensor in place and return it. Gradients are not recorded.

The random ones draw from `generator`, by default from shmtensor's default generator. Nothing in this module blocks.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

from .._loading import load
from .._tensor.creation import empty, empty_like
from .._tensor.methods import Tensor
from ..autograd.modes import no_grad
from ..errors import InvalidArgument
from ..random import randperm

Fill = TypeVar("Fill", bound=Callable[..., Tensor])
_GAINS: Final[dict[str, float]] = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1),
    "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4,
}  # fmt: skip


def _unrecorded(fill: Fill) -> Fill:
    """A function that fills a tensor without recording."""

    @wraps(fill)
    def unrecorded(tensor: Tensor, *args: Any, **how: Any) -> Tensor:
        with no_grad():
            fill(tensor, *args, **how)
        return tensor

    return unrecorded  # type: ignore[return-value]


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor by which standard deviations are multiplied for a nonlinear function.

    Args:
        nonlinearity: name of the function in `nn.functional`.
        param: the slope of leaky_relu, by default 0.01.

    Raises:
        InvalidArgument: no such function, or a slope that is not a number.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise InvalidArgument(f"negative_slope {slope} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise InvalidArgument(
            f"Unsupported nonlinearity {nonlinearity}; "
            "use 'linear', 'sigmoid', 'tanh', 'relu', 'leaky_relu', 'selu' or 'conv1d' to 'conv_transpose3d'"
        )
    return _GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Numbers of inputs and of outputs of one element. Raises InvalidArgument: fewer than two axes."""
    if tensor.dim() < 2:
        raise InvalidArgument("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    outputs, inputs, *window = tensor.shape
    return inputs * math.prod(window), outputs * math.prod(window)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    modes = ["fan_in", "fan_out"]
    if not isinstance(mode, str) or mode.lower() not in modes:
        raise InvalidArgument(f"Mode {mode} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


@_unrecorded
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers uniformly distributed between a and b. Returns the tensor."""
    return tensor.uniform_(a, b, generator=generator)


@_unrecorded
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers of a normal distribution. Returns the tensor."""
    return tensor.normal_(mean, std, generator=generator)


@_unrecorded
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fill with numbers of the part of a normal distribution that is between a and b. Returns the tensor."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect",
            stacklevel=3,
        )
    lower, upper = [(1 + math.erf((bound - mean) / std / math.sqrt(2.0))) / 2 for bound in (a, b)]
    values = empty_like(tensor).uniform_(2 * lower - 1, 2 * upper - 1, generator=generator)
    return tensor.copy_((values.erfinv() * (std * math.sqrt(2.0)) + mean).clamp(a, b))


@_unrecorded
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Set every element to `val`. Returns the tensor."""
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Set every element to 1. Returns the tensor."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Set every element to 0. Returns the tensor."""
    return constant_(tensor, 0.0)


@_unrecorded
def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity. Returns the tensor. Raises InvalidArgument: not a matrix."""
    if tensor.dim() != 2:
        raise InvalidArgument("Only tensors with 2 dimensions are supported")
    return tensor.zero_().fill_diagonal_(1)


@_unrecorded
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make the weights of a convolution preserve as many channels as possible. Returns the tensor.

    Args:
        tensor: weights of shape (out_channels, in_channels / groups, ...).
        groups: number of groups of channels; channels are preserved in each group.

    Raises:
        InvalidArgument: not 3 to 5 axes, or channels that are not divisible by the groups.
    """
    if tensor.dim() not in (3, 4, 5):
        raise InvalidArgument("Only tensors with 3, 4, or 5 dimensions are supported")
    channels, inputs, *window = tensor.shape
    if channels % groups:
        raise InvalidArgument("dim 0 must be divisible by groups")
    each = channels // groups
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(each, inputs)):
            tensor[(group * each + channel, channel, *[size // 2 for size in window])] = 1
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with uniform numbers from -b to b, where b = gain * sqrt(6 / (fan_in + fan_out)) (Glorot).

    Returns the tensor. Raises InvalidArgument: fewer than two axes.
    """
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with numbers of a normal distribution of deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot).

    Returns the tensor. Raises InvalidArgument: fewer than two axes.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _kaiming_deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill with uniform numbers from -b to b, where b = gain * sqrt(3 / fan) (He). Returns the tensor.

    Args:
        tensor: the tensor.
        a: slope of leaky_relu.
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" in the backward pass.
        nonlinearity: name of the function that follows.
        generator: source of the random numbers.

    Raises:
        InvalidArgument: fewer than two axes, or another mode or function.
    """
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_deviation(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill with numbers of a normal distribution of deviation gain / sqrt(fan) (He). Returns the tensor.

    Arguments and errors are those of kaiming_uniform_.
    """
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_deviation(tensor, a, mode, nonlinearity), generator)


@_unrecorded
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Make a matrix a random orthogonal one, times `gain`; with more axes, those after the first count as one.

    Returns the tensor. Raises InvalidArgument: fewer than two axes.
    """
    if tensor.dim() < 2:
        raise InvalidArgument("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    values = empty(rows, columns, dtype=tensor.dtype).normal_(0, 1, generator=generator)
    q, r = load("linalg").qr(values.t() if rows < columns else values)
    q = q * r.diagonal().sign()  # so that each orthogonal matrix is equally likely
    return tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape) * gain)


@_unrecorded
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normally distributed numbers, and a part of each column with 0. Returns the tensor.

    Args:
        tensor: the matrix.
        sparsity: the part of each column that is 0.
        std: deviation of the others.
        generator: source of the random numbers.

    Raises:
        InvalidArgument: not a matrix.
    """
    if tensor.dim() != 2:
        raise InvalidArgument("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        tensor[randperm(rows, generator=generator)[: math.ceil(sparsity * rows)], column] = 0
    return tensor


def _older(fill: Fill) -> Fill:
    """A function under its name in older versions of torch."""

    @wraps(fill)
    def older(*args: Any, **how: Any) -> Tensor:
        name = fill.__name__
        warnings.warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.", FutureWarning, stacklevel=2
        )
        return fill(*args, **how)

    older.__name__ = fill.__name__[:-1]
    return older  # type: ignore[return-value]


uniform: Final = _older(uniform_)
normal: Final = _older(normal_)
constant: Final = _older(constant_)
eye: Final = _older(eye_)
dirac: Final = _older(dirac_)
xavier_uniform: Final = _older(xavier_uniform_)
xavier_normal: Final = _older(xavier_normal_)
kaiming_uniform: Final = _older(kaiming_uniform_)
kaiming_normal: Final = _older(kaiming_normal_)
orthogonal: Final = _older(orthogonal_)
sparse: Final = _older(sparse_)
