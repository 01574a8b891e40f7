"""Losses of each element. Nothing in this module blocks."""

from __future__ import annotations

import math
import warnings
from typing import Any, Final

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ..._tensor.result_types import require_floating
from ...errors import InvalidArgument
from .activation import logsigmoid
from .derivatives import derived, value
from .rows import function, hidden, reduced, reduction_of


def _apart(name: str, input: Tensor, target: Tensor) -> Tensor:
    """The difference; warns, as torch, if one is broadcast. Raises InvalidArgument."""
    if input.shape != target.shape:
        warnings.warn(
            f"{name} of shapes {input.shape} and {target.shape}, which are broadcast; give tensors of one shape",
            stacklevel=4,
        )
    return input - target


def _weighed(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """A loss times weights; a mean is divided by their sum."""
    if weight is None:
        return reduced(loss, reduction)
    loss = loss * weight
    if reduction != "mean":
        return reduced(loss, reduction)
    return loss.sum() / (weight.sum() if weight.shape == loss.shape else weight.expand(loss.shape).sum())


@function
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The square of the difference.

    Args:
        size_average, reduce: older forms of `reduction`.
        reduction: "mean", "sum" or "none".
        weight: weight of each element; a mean is divided by the sum of the weights.

    Raises InvalidArgument: incompatible shapes, or another reduction.
    """
    loss = _apart("mse_loss", input, target).square()
    return _weighed(loss, weight, reduction_of(reduction, size_average, reduce))


@function
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute value of the difference; arguments and errors as for `mse_loss`."""
    loss = _apart("l1_loss", input, target).abs()
    return _weighed(loss, weight, reduction_of(reduction, size_average, reduce))


@hidden(name="smooth_l1_loss", gradient=lambda g, d, beta: derived(g, d, "smooth_l1_loss", 1, (beta,)))
def _smooth_l1(xp: Module, d: Array, beta: float) -> Array:
    """Half the square divided by beta if the absolute value is below beta, else that value minus beta / 2."""
    return value(xp, "smooth_l1_loss", 0, d, beta)


@function
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Half the square of the difference divided by `beta`; from `beta` on, its absolute value minus beta / 2.

    Raises InvalidArgument: beta below 0, incompatible shapes, or another reduction.
    """
    if beta < 0:
        raise InvalidArgument(f"smooth_l1_loss with beta {beta}; give 0 or more")
    d = _apart("smooth_l1_loss", input, target)
    return reduced(_smooth_l1(d, beta) if beta else d.abs(), reduction_of(reduction, size_average, reduce))


@hidden(name="huber_loss", gradient=lambda g, d, delta: derived(g, d, "huber_loss", 1, (delta,)))
def _huber(xp: Module, d: Array, delta: float) -> Array:
    """Half the square up to delta, then a line."""
    return value(xp, "huber_loss", 0, d, delta)


@function
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the square of the difference up to `delta`; beyond, delta * (|difference| - delta / 2).

    Raises InvalidArgument: delta not above 0, incompatible shapes, or another reduction.
    """
    if delta <= 0:
        raise InvalidArgument(f"huber_loss with delta {delta}; give a number above 0")
    return _weighed(_huber(_apart("huber_loss", input, target), delta), weight, reduction)


# -- probabilities -----------------------------------------------------------------------------------------------------


_LEAST: Final = float(np.float32(1e-12))
"""Lower bound of the divisor in the gradient of binary_cross_entropy; a float32, as in torch."""


@hidden(
    name="binary_cross_entropy",
    gradient={
        "input": lambda g, input, target: g * (input - target) / (input * (1 - input)).clamp(min=_LEAST),
        "target": lambda g, input: g * ((-input).log1p() - input.log()),
    },
)
def _binary(xp: Module, input: Array, target: Array) -> Array:
    """The cross-entropy of probabilities of two classes, with logarithms from -100."""
    require_floating("binary_cross_entropy", input)
    if input.size and not (input.min() >= 0 and input.max() <= 1):
        raise InvalidArgument("binary_cross_entropy of numbers that are not probabilities; give numbers from 0 to 1")
    with np.errstate(divide="ignore"):
        yes, no = xp.log(input), xp.log1p(-input)
    return (target - 1) * xp.maximum(no, -100) - target * xp.maximum(yes, -100)


@function
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The cross-entropy of probabilities of two classes; logarithms are at least -100.

    Args:
        input: probabilities.
        target: target probabilities, of the same shape.
        weight: weight of each element.
        size_average, reduce: older forms of `reduction`.
        reduction: "mean", "sum" or "none".

    Raises InvalidArgument: other shapes, numbers that are not probabilities, or another reduction.
    """
    if input.shape != target.shape:
        raise InvalidArgument(f"binary_cross_entropy of shapes {input.shape} and {target.shape}; give one shape")
    loss = _binary(input, target)
    return reduced(loss if weight is None else loss * weight, reduction_of(reduction, size_average, reduce))


@function
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of sigmoid(input), without the loss of accuracy.

    Args:
        input: logits.
        target: target probabilities, of the same shape.
        weight: weight of each element.
        size_average, reduce: older forms of `reduction`.
        reduction: "mean", "sum" or "none".
        pos_weight: weight of positive targets.

    Raises InvalidArgument: other shapes, or another reduction.
    """
    if input.shape != target.shape:
        raise InvalidArgument(
            f"binary_cross_entropy_with_logits of shapes {input.shape} and {target.shape}; give one shape"
        )
    likely = logsigmoid(input)
    if pos_weight is not None:
        likely = likely * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input - likely
    return reduced(loss if weight is None else loss * weight, reduction_of(reduction, size_average, reduce))


@function
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """The Kullback-Leibler divergence: `target * (log(target) - input)`, and 0 where the target is 0.

    Args:
        input: log-probabilities.
        target: probabilities, or with `log_target` their logarithms.
        size_average, reduce: older forms of `reduction`.
        reduction: "batchmean" (the sum divided by the samples), "mean", "sum" or "none".

    Raises InvalidArgument: incompatible shapes, or another reduction.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.ndim else loss.sum()
    if reduction == "mean":
        warnings.warn("kl_div with reduction 'mean' is not a divergence; give 'batchmean'", stacklevel=3)
    return reduced(loss, reduction)


@function
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log-likelihood of Poisson distributions.

    Args:
        input: the logarithm of the expectation; without `log_input` the expectation.
        target: observed values.
        full: add Stirling's approximation of the factorial of the target, where that is above 1.
        size_average, reduce: older forms of `reduction`.
        eps: added to an expectation before its logarithm is taken.
        reduction: "mean", "sum" or "none".

    Raises InvalidArgument: incompatible shapes, or another reduction.
    """
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        factorial = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + factorial.masked_fill(target <= 1, 0)
    return reduced(loss, reduction_of(reduction, size_average, reduce))


@function
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of normal distributions.

    Args:
        input: expectations.
        target: observed values.
        var: variances, of the input's shape, or without its last axis or with 1 there; or a number.
        full: include the constant term.
        eps: the least variance, which has no gradient.
        reduction: "mean", "sum" or "none".

    Raises InvalidArgument: a variance below 0, or of another shape; another reduction.
    """
    if not isinstance(var, Tensor):
        var = input.new_full(input.shape, var)
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (input.shape[:-1] == var.shape[:-1] and var.shape[-1] == 1):
            raise InvalidArgument(f"gaussian_nll_loss of shape {input.shape} with var of shape {var.shape}")
    if bool((var < 0).any()):
        raise InvalidArgument("gaussian_nll_loss with a var below 0; give variances from 0")
    least = var + (var.detach().clamp(min=eps) - var.detach())  # clamped, with the gradient of var
    loss = 0.5 * (least.log() + (input - target).square() / least)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


__all__ = export(globals())
