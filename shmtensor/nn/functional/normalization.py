"""Normalization: tensors with mean 0 and variance 1 over some axes. Nothing in this module blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..._native import batch_norm as batch_norm_of
from ..._native import batch_norm_back
from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, Result, export
from ..._tensor.inspection import finfo
from ..._tensor.result_types import is_narrow, require_floating
from ...autograd.modes import is_grad_enabled
from ...errors import InvalidArgument
from .averaging import avg_pool2d, avg_pool3d
from .padding import pad
from .rows import as_type, computing_type, function, hidden

# -- the rows ----------------------------------------------------------------------------------------------------------


@hidden(
    name="normalized",
    gradient={
        ("input", "weight", "bias"): lambda g, input, result, weight, bias, view, affine, axes, eps: _to_arguments(
            g[0], input, result, weight, bias, view, affine, axes, eps
        )
    },
    fails="normalizing",
)
def _normalized(
    xp: Module,
    input: Array,
    weight: Array | None,
    bias: Array | None,
    view: Any,
    affine: Any,
    axes: Any,
    eps: float,
) -> tuple[Array, Array, Array]:
    """The tensor, seen in a shape, normalized over axes, times weights, plus a bias; its means and variances."""
    fused = _normalized_channels(xp, input, weight, bias, eps) if _are_channels(axes, view) else None
    if fused is not None:
        return fused
    x = input.astype(computing_type(xp, input), copy=False).reshape(view)
    mean = x.mean(axis=axes, keepdims=True)
    made = x - mean
    variance = xp.square(made).mean(axis=axes, keepdims=True)
    made *= 1 / xp.sqrt(variance + x.dtype.type(eps))
    if weight is not None:
        made *= weight.reshape(affine)
    if bias is not None:
        made += bias.reshape(affine)
    return as_type(made.reshape(input.shape), input.dtype), mean, variance


def _are_channels(axes: tuple[int, ...], view: tuple[int, ...]) -> bool:
    """Whether the tensor is normalized over all axes but the second, as by `batch_norm`."""
    return axes[0] == 0 and 1 not in axes and len(axes) == len(view) - 1


def _normalized_channels(
    xp: Module, input: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array] | None:
    """`_normalized` for each channel, in one call; None if no such call exists."""
    made, sizes = xp.empty(input.shape, input.dtype), (1, input.shape[1], *[1] * (input.ndim - 2))
    mean, variance = xp.empty(sizes, input.dtype), xp.empty(sizes, input.dtype)
    done = batch_norm_of(xp.ascontiguousarray(input), weight, bias, eps, made, mean, variance)
    return (made, mean, variance) if done else None


def _channels_back(
    xp: Module, output: Array, input: Array, weight: Array | None, mean: Array, variance: Array, eps: float
) -> tuple[Array, Array, Array] | None:
    """`_normalized_back` for each channel, in one call; None if no such call exists."""
    dx, dw, db = xp.empty(input.shape, input.dtype), xp.empty_like(mean), xp.empty_like(mean)
    g, x = xp.ascontiguousarray(output), xp.ascontiguousarray(input)
    return (dx, dw, db) if batch_norm_back(g, x, weight, mean, variance, eps, dx, dw, db) else None


def _to_arguments(
    g: Tensor,
    input: Tensor,
    result: tuple[Tensor, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    view: Any,
    affine: Any,
    axes: Any,
    eps: float,
) -> tuple[Any, ...]:
    """The gradients of the arguments of `_normalized`."""
    if not is_grad_enabled():
        found: Any = _normalized_back(g, input, weight, result[1], result[2], view, affine, axes, eps)
        dx, dw, db = found
    else:
        dx, dw, db = _recorded_back(g.reshape(view), input.reshape(view), weight, affine, axes, eps)
        dx = dx.reshape(input.shape)
    return (
        dx,
        None if weight is None else dw.reshape(weight.shape),
        None if bias is None else db.reshape(bias.shape),
    )


@hidden(name="normalized_back")
def _normalized_back(
    xp: Module,
    output: Array,
    input: Array,
    weight: Array | None,
    mean: Array,
    variance: Array,
    view: Any,
    affine: Any,
    axes: Any,
    eps: float,
) -> tuple[Array, Array, Array]:
    """The gradients of input, weights and bias."""
    fused = _channels_back(xp, output, input, weight, mean, variance, eps) if _are_channels(axes, view) else None
    if fused is not None:
        return fused
    kind = mean.dtype
    g = output.astype(kind, copy=False).reshape(view)
    scale = 1 / xp.sqrt(variance + kind.type(eps))
    normal = input.astype(kind, copy=False).reshape(view) - mean
    normal *= scale
    others = tuple([i for i, n in enumerate(affine) if n == 1])
    products = g * normal
    dw = products.sum(axis=others)
    db = g.sum(axis=others)
    if weight is not None:
        factors = weight.reshape(affine)
        g = g * factors
        products *= factors
    normal *= -products.mean(axis=axes, keepdims=True)
    normal += g
    normal -= g.mean(axis=axes, keepdims=True)
    normal *= scale
    return as_type(normal.reshape(input.shape), input.dtype), dw, db


def _recorded_back(
    g: Tensor, x: Tensor, weight: Tensor | None, affine: Any, axes: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by recorded operations, so that the gradients have gradients."""
    apart = x - x.mean(axes, keepdims=True)
    scale = (apart.square().mean(axes, keepdims=True) + eps).rsqrt()
    normal = apart * scale
    dw, db = (g * normal).sum_to_size(affine), g.sum_to_size(affine)
    if weight is not None:
        g = g * weight.reshape(affine)
    dx = scale * (g - g.mean(axes, keepdims=True) - normal * (g * normal).mean(axes, keepdims=True))
    return dx, dw, db


@hidden(name="average_into", result=Result.SAME)
def _average_into(xp: Module, running: Array, found: Array, momentum: float, factor: float) -> None:
    """Update a running average in place."""
    running *= 1 - momentum
    running += (found.reshape(running.shape) * (momentum * factor)).astype(running.dtype, copy=False)


# -- normalization of samples ------------------------------------------------------------------------------------------


def _require_shape(name: str, what: str, one: Tensor | None, shape: tuple[int, ...]) -> None:
    if one is not None and one.shape != shape:
        raise InvalidArgument(f"{name} with {what} of shape {one.shape}; give {shape}")


def _trailing(name: str, input: Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(normalized_shape)
    if not shape or input.shape[input.ndim - len(shape) :] != shape or input.ndim < len(shape):
        raise InvalidArgument(
            f"{name} over {shape} of a tensor of shape {input.shape}; give its last sizes, at least one"
        )
    return shape


@function
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The tensor minus its mean over the last axes, divided by their standard deviation, times weights, plus a bias.

    Args:
        normalized_shape: sizes of these axes, and of weight and bias.
        eps: added to the variance.

    Raises InvalidArgument: other sizes; DTypeError: integers and complex numbers.
    """
    shape = _trailing("layer_norm", input, normalized_shape)
    _require_shape("layer_norm", "weights", weight, shape)
    _require_shape("layer_norm", "a bias", bias, shape)
    require_floating("layer_norm", input._array)
    first = input.ndim - len(shape)
    axes = tuple(range(first, input.ndim))
    made: Any = _normalized(input, weight, bias, input.shape, (1,) * first + shape, axes, eps)
    return made[0]  # type: ignore[no-any-return]


@function
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """The tensor divided by the root of the mean of its squares over the last axes, times weights.

    Args:
        normalized_shape: sizes of these axes, and of the weights.
        eps: added to the mean; default: the machine epsilon of the type.

    Raises InvalidArgument: other sizes; DTypeError: integers.
    """
    shape = _trailing("rms_norm", input, normalized_shape)
    _require_shape("rms_norm", "weights", weight, shape)
    require_floating("rms_norm", input._array, complex_too=True)
    axes = tuple(range(-len(shape), 0))
    least = finfo(input.dtype).eps if eps is None else eps
    x = input.float() if is_narrow(input._array.dtype) else input
    made = (x * ((x * x).mean(axes, keepdims=True) + least).rsqrt()).to(input.dtype)
    return made if weight is None else made * weight


@function
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Each sample's groups of channels minus their mean, divided by their deviation, times weights, plus a bias.

    Args:
        input: (samples, channels, ...).
        weight, bias: (channels).
        eps: added to the variance.

    Raises InvalidArgument: other sizes, or channels that the groups do not divide; DTypeError: as layer_norm.
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise InvalidArgument(
            f"group_norm of a tensor of shape {input.shape} with {num_groups} groups; they must divide the channels"
        )
    samples, channels, rest = input.shape[0], input.shape[1], math.prod(input.shape[2:])
    _require_several("group_norm", samples * channels // num_groups * rest, input.shape)
    _require_shape("group_norm", "weights", weight, (channels,))
    _require_shape("group_norm", "a bias", bias, (channels,))
    require_floating("group_norm", input._array)
    inner = channels // num_groups
    view, affine = (samples, num_groups, inner, rest), (1, num_groups, inner, 1)
    made: Any = _normalized(input, weight, bias, view, affine, (2, 3), eps)
    return made[0]  # type: ignore[no-any-return]


def _require_several(name: str, count: int, shape: tuple[int, ...]) -> None:
    if count == 1:
        raise InvalidArgument(f"{name} of a tensor of shape {shape}; it needs more than one value for each channel")


# -- normalization of batches ------------------------------------------------------------------------------------------


@function
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel minus its mean over all samples, divided by its deviation, times a weight, plus a bias.

    Args:
        input: (samples, channels, ...).
        running_mean, running_var: (channels); used without `training`, and changed in place with it.
        weight, bias: (channels).
        training: take mean and variance of the input.
        momentum: weight of the input in the running statistics.
        eps: added to the variance.

    Raises InvalidArgument: other sizes, or one value for each channel; DTypeError: integers and complex numbers.
    """
    if input.ndim == 1 and not input.numel():
        return input.clone()
    if input.ndim < 2:
        raise InvalidArgument(f"batch_norm of a tensor of shape {input.shape}; give (samples, channels, ...)")
    channels = input.shape[1]
    affine = (1, channels, *[1] * (input.ndim - 2))
    for what, one in (
        ("running_mean", running_mean), ("running_var", running_var), ("weights", weight), ("a bias", bias)
    ):  # fmt: skip
        _require_shape("batch_norm", what, one, (channels,))
    require_floating("batch_norm", input._array)
    if not training:
        return _by_running("batch_norm", input, running_mean, running_var, weight, bias, affine, eps)
    count = input.numel() // max(channels, 1)
    _require_several("batch_norm", count, input.shape)
    axes = (0, *range(2, input.ndim))
    found: Any = _normalized(input, weight, bias, input.shape, affine, axes, eps)
    result, mean, variance = found
    if running_mean is not None:
        _average_into(running_mean, mean.detach(), momentum, 1.0)
    if running_var is not None:
        _average_into(running_var, variance.detach(), momentum, count / (count - 1) if count else 1.0)
    return result  # type: ignore[no-any-return]


def _by_running(
    name: str,
    input: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    affine: tuple[int, ...],
    eps: float,
) -> Tensor:
    """Normalize with a given mean and variance."""
    if mean is None or variance is None:
        raise InvalidArgument(f"{name} without running_mean and running_var; give them, or use the input's")
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    made = (input - mean.reshape(affine)) * scale.reshape(affine)
    if bias is not None:
        made = made + bias.reshape(affine)
    return made if made.dtype == input.dtype else made.to(input.dtype)


@function
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each sample minus its mean, divided by its deviation, times a weight, plus a bias.

    Args:
        input: (samples, channels, ...).
        running_mean, running_var: (channels); used without `use_input_stats`, and changed in place with it.
        weight, bias, momentum, eps: as for `batch_norm`.
        use_input_stats: take mean and variance of the input.

    Raises InvalidArgument: other sizes, or one value for each channel; DTypeError: integers and complex numbers.
    """
    if input.ndim < 2:
        raise InvalidArgument(f"instance_norm of a tensor of shape {input.shape}; give (samples, channels, ...)")
    samples, channels, rest = input.shape[0], input.shape[1], math.prod(input.shape[2:])
    for what, one in (
        ("running_mean", running_mean), ("running_var", running_var), ("weights", weight), ("a bias", bias)
    ):  # fmt: skip
        _require_shape("instance_norm", what, one, (channels,))
    require_floating("instance_norm", input._array)
    if not use_input_stats:
        affine = (1, channels, *[1] * (input.ndim - 2))
        return _by_running("instance_norm", input, running_mean, running_var, weight, bias, affine, eps)
    _require_several("instance_norm", rest, input.shape)
    found: Any = _normalized(input, weight, bias, (samples, channels, rest), (1, channels, 1), (2,), eps)
    result, mean, variance = found
    if running_mean is not None:
        _average_into(running_mean, mean.detach().mean(0), momentum, 1.0)
    if running_var is not None:
        _average_into(running_var, variance.detach().mean(0), momentum, rest / (rest - 1) if rest else 1.0)
    return result  # type: ignore[no-any-return]


@function
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """The tensor divided by `(k + alpha * mean) ** beta`, with the mean of the squares of `size` channels around each.

    Args:
        input: (samples, channels, ...), at least three axes.

    Raises InvalidArgument: fewer axes.
    """
    if input.ndim < 3:
        raise InvalidArgument(f"local_response_norm of a tensor of shape {input.shape}; give at least three axes")
    if not input.numel():
        return input
    squares = (input * input).unsqueeze(1)
    if input.ndim == 3:
        means = avg_pool2d(pad(squares, (0, 0, size // 2, (size - 1) // 2)), (size, 1), stride=1).squeeze(1)
    else:
        flat = squares.reshape(input.shape[0], 1, input.shape[1], input.shape[2], -1)
        padded = pad(flat, (0, 0, 0, 0, size // 2, (size - 1) // 2))
        means = avg_pool3d(padded, (size, 1, 1), stride=1).squeeze(1).reshape(input.shape)
    return input / (means * alpha + k) ** beta


__all__ = export(globals())
