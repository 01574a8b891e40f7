"""Losses of classes: `nll_loss` and `cross_entropy`. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._native import softmax_entropy, softmax_entropy_back
from ..._tensor.activations import log_softmax, softmax
from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ..._tensor.result_types import require_floating
from ...errors import DTypeError, IndexOutOfRange, InvalidArgument
from .affine import linear
from .rows import as_type, computing_type, function, hidden, reduction_of, require_reduction


class _Picked:
    """The elements of the target classes, and their weights.

    Attributes:
        counts: which of them are not ignored; None: all.
        index: of these elements.
        shares: the weight of each, 0 where it is ignored; None: all count as 1.
        total: the sum of the weights.
    """

    __slots__ = ("counts", "index", "shares", "total")

    def __init__(self, xp: Module, shape: tuple[int, ...], target: Array, weight: Array | None, ignored: int) -> None:
        axis = 0 if len(shape) == 1 else 1
        classes = shape[axis]
        self.counts, self.shares, self.total = None, None, float(target.size)
        if ignored >= 0 or (target.size and target.min() < 0):
            counts = target != ignored
            self.counts, self.shares, self.total = counts, counts, float(counts.sum())
            target = np.where(counts, target, 0)
            if target.size and target.min() < 0:
                raise IndexOutOfRange(f"target {target.min()}; give classes from 0 to {classes - 1}, or {ignored}")
        self.index = (
            (xp.arange(shape[0]), target) if len(shape) == 2
            else (target,) if len(shape) == 1
            else _grid(xp, shape, target)
        )  # fmt: skip
        if target.size and target.max() >= classes:
            raise IndexOutOfRange(f"target {target.max()}; give classes from 0 to {classes - 1}")
        if weight is not None:
            shares = weight[target]
            self.shares = shares if self.shares is None else shares * self.shares
            self.total = self.shares.sum()

    def weighed(self, values: Array) -> Array:
        """Values of the elements times their weights; may change them."""
        if self.shares is None:
            return values
        return np.where(self.shares == 0, 0, values * self.shares)

    def reduced(self, values: Array, reduction: str) -> Array:
        """Reduce the loss of each element."""
        values = self.weighed(values)
        if reduction == "none":
            return values
        made = values.sum(dtype=values.dtype)
        found = made / made.dtype.type(self.total) if reduction == "mean" else made
        return np.asarray(found) if isinstance(found, np.generic) else found

    def spread(self, output: Array, reduction: str) -> Array:
        """The gradient of each element, from the gradient of the loss."""
        if reduction == "mean":
            output = output / output.dtype.type(self.total)
        if self.shares is None:
            return output
        made = output * self.shares.astype(output.dtype, copy=False)
        return made if self.counts is None else np.where(self.counts, made, made.dtype.type(0))


def _grid(xp: Module, shape: tuple[int, ...], target: Array) -> tuple[Array, ...]:
    first, *others = xp.ix_(*[xp.arange(n) for n in (shape[0], *shape[2:])])
    return first, target, *others


def _require(name: str, input: Array, target: Array, weight: Array | None) -> None:
    require_floating(name, input)
    if target.dtype.kind not in "iu":
        raise DTypeError(f"{name} with a target of {target.dtype.name}; give classes of int64")
    shape = input.shape
    if not shape or target.shape != (shape[:1] + shape[2:] if len(shape) > 1 else ()):
        raise InvalidArgument(
            f"{name} of a tensor of shape {shape} with a target of shape {target.shape}; give (samples, classes, ...) "
            f"and (samples, ...)"
        )
    classes = shape[min(len(shape) - 1, 1)]
    if weight is not None and weight.shape != (classes,):
        raise InvalidArgument(f"{name} with weights of shape {weight.shape}; give ({classes},)")


# -- nll_loss ----------------------------------------------------------------------------------------------------------


@hidden(
    name="nll_loss",
    gradient={
        "input": lambda g, input_shape, target, weight, ignored, reduction: _nll_back(  # type: ignore[has-type]
            g, input_shape, target, weight, ignored, reduction
        )
    },
)
def _nll(xp: Module, input: Array, target: Array, weight: Array | None, ignored: int, reduction: str) -> Array:
    """The negative element of each target class."""
    _require("nll_loss", input, target, weight)
    picked = _Picked(xp, input.shape, target, weight, ignored)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = input[picked.index].astype(computing_type(xp, input), copy=False)
        return as_type(picked.reduced(-values, reduction), input.dtype)


@hidden(
    name="nll_back",
    gradient={"output": lambda g, target, weight, ignored, reduction: _nll(g, target, weight, ignored, reduction)},
)
def _nll_back(
    xp: Module, output: Array, shape: Any, target: Array, weight: Array | None, ignored: int, reduction: str
) -> Array:
    """The gradient of `nll_loss` with respect to its input."""
    picked = _Picked(xp, shape, target, weight, ignored)
    made = xp.zeros(shape, output.dtype)
    made[picked.index] = -picked.spread(output, reduction)
    return made


@function
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The weighted negative log-probability of the target classes.

    Args:
        input: log-probabilities (samples, classes, ...), or (classes).
        target: the target classes (samples, ...), integers.
        weight: weight of each class.
        size_average, reduce: older forms of `reduction`.
        ignore_index: a target that is ignored.
        reduction: "mean" (divided by the sum of the weights), "sum" or "none".

    Raises:
        InvalidArgument: incompatible shapes, or another reduction.
        IndexOutOfRange: a target that is not a class.
        DTypeError: an input that is not floating-point, or a target that is not integer.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    require_reduction(reduction)
    return _nll(input, target, weight, ignore_index, reduction)


# -- cross_entropy -----------------------------------------------------------------------------------------------------


@hidden(
    name="cross_entropy",
    gradient={
        "input": lambda g, input, result, target, weight, ignored, reduction: _entropy_back(  # type: ignore[has-type]
            g[0], input, result[1], target, weight, ignored, reduction
        )
    },
)
def _cross_entropy(
    xp: Module, input: Array, target: Array, weight: Array | None, ignored: int, reduction: str
) -> tuple[Array, Array]:
    """`nll_loss` of `log_softmax`, and the softmax, which the gradient needs."""
    _require("cross_entropy", input, target, weight)
    if weight is None and ignored < 0 and type(input) is np.ndarray:
        found = softmax_entropy(input, target, reduction)
        if found is not None:  # a matrix, and no element is ignored
            return found
    axis = min(input.ndim - 1, 1)
    x = input.astype(computing_type(xp, input), copy=False)
    picked = _Picked(xp, input.shape, target, weight, ignored)
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=axis, keepdims=True)
        wanted = shifted[picked.index]
        grown = xp.exp(shifted, out=shifted)
        total = grown.sum(axis=axis, keepdims=True)
        loss = picked.reduced(xp.log(total).reshape(target.shape) - wanted, reduction)
        grown /= total
    return as_type(loss, input.dtype), as_type(grown, input.dtype)


@hidden(
    name="entropy_back",
    gradient={
        "output": lambda g, input, target, weight, ignored, reduction: _along_entropy(
            g, input, target, weight, ignored, reduction
        ),
        "input": lambda g, output, input, target, weight, ignored, reduction: _entropy_twice(
            g, output, input, target, weight, ignored, reduction
        ),
    },
)
def _entropy_back(
    xp: Module,
    output: Array,
    input: Array,
    probabilities: Array,
    target: Array,
    weight: Array | None,
    ignored: int,
    reduction: str,
) -> Array:
    """The gradient of `cross_entropy` with respect to its input, from the softmax of the input."""
    if weight is None and ignored < 0 and type(input) is np.ndarray:
        found = softmax_entropy_back(probabilities, target, np.asarray(output, order="C"), reduction)
        if found is not None:
            return found
    picked = _Picked(xp, input.shape, target, weight, ignored)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = picked.spread(output, reduction)
        made = probabilities * (xp.expand_dims(shares, min(input.ndim - 1, 1)) if shares.ndim else shares)
    made[picked.index] -= shares
    return made


@hidden(name="entropy_shares")
def _shares(xp: Module, input: Array, target: Array, weight: Array | None, ignored: int, reduction: str) -> Array:
    """The weight of each element in `cross_entropy`."""
    picked = _Picked(xp, input.shape, target, weight, ignored)
    return np.broadcast_to(picked.spread(xp.ones((), input.dtype), reduction), target.shape).copy()


def _along_entropy(
    g: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, ignored: int, reduction: str
) -> Tensor:
    """The derivative of `cross_entropy` in a direction."""
    axis = min(input.ndim - 1, 1)
    shares = _shares(input.detach(), target, weight, ignored, reduction)
    along = shares * ((g * softmax(input, axis)).sum(axis) + _nll(g, target, None, ignored, "none"))
    return along if reduction == "none" else along.sum()


def _entropy_twice(
    g: Tensor, output: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, ignored: int, reduction: str
) -> Tensor:
    """The second derivative of `cross_entropy`, times a direction."""
    axis = min(input.ndim - 1, 1)
    p = softmax(input, axis)
    shares = output * _shares(input.detach(), target, weight, ignored, reduction)
    return shares.unsqueeze(axis) * p * (g - (g * p).sum(axis, keepdims=True))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    """The cross-entropy of probabilities."""
    if not target.dtype.is_floating_point:
        raise DTypeError(f"cross_entropy with probabilities of {target.dtype.name}; give floating-point numbers")
    axis = min(input.ndim - 1, 1)
    classes = input.shape[axis]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = log_softmax(input, axis) * target
    if weight is not None:
        products = products * weight.reshape(-1, *[1] * max(input.ndim - 2, 0))
    if reduction == "none":
        return -products.sum(axis)
    return -products.sum() / (max(input.numel(), 1) / classes if reduction == "mean" else 1)


def _smooth_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, ignored: int, reduction: str, label_smoothing: float
) -> Tensor:
    """The cross-entropy of classes with label smoothing."""
    axis = min(input.ndim - 1, 1)
    found = log_softmax(input, axis)
    sharp = _nll(found, target, weight, ignored, reduction)
    weighed = found if weight is None else found * weight.reshape(-1, *[1] * max(input.ndim - 2, 0))
    counts = _shares(input.detach(), target, None, ignored, "none")
    smooth = -weighed.sum(axis) * counts
    if reduction == "mean":
        smooth = smooth.sum() / _shares(input.detach(), target, weight, ignored, "none").sum()
    elif reduction == "sum":
        smooth = smooth.sum()
    return sharp * (1 - label_smoothing) + smooth * (label_smoothing / input.shape[axis])


@function
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of logits and target classes, or their probabilities.

    Args:
        input: logits (samples, classes, ...), or (classes).
        target: the target classes (samples, ...), integers; or probabilities of the shape of the input.
        weight: weight of each class.
        size_average, reduce: older forms of `reduction`.
        ignore_index: a target that is ignored.
        reduction: "mean" (of classes divided by the sum of their weights), "sum" or "none".
        label_smoothing: the part of the target that is spread evenly over all classes, from 0 to 1.

    Raises:
        InvalidArgument: incompatible shapes, another reduction, or another label_smoothing.
        IndexOutOfRange: a target that is not a class.
        DTypeError: an input that is not floating-point, or a target of another type.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    require_reduction(reduction)
    if not 0 <= label_smoothing <= 1:
        raise InvalidArgument(f"cross_entropy with label_smoothing {label_smoothing}; give a number from 0 to 1")
    if target.shape == input.shape and (input.ndim != 1 or target.dtype.is_floating_point):
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    if label_smoothing:
        return _smooth_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
    return _cross_entropy(input, target, weight, ignore_index, reduction)[0]


@function
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of `linear`.

    Args:
        input: (..., in).
        linear_weight: (classes, ..., in).
        target, weight, reduction, label_smoothing: as for `cross_entropy`.
        linear_bias: of the shape of the weights without their last axis.
        ignore_index: as for `cross_entropy`; default -100.
        options: has no effect: logits are computed all at once.

    Raises as `linear` and `cross_entropy`.
    """
    shape = linear_weight.shape[:-1]
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    logits = logits.reshape(*input.shape[:-1], *shape)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


__all__ = export(globals())
