"""Margin losses, and losses of distances. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ..._tensor.elementwise import minimum
from ..._tensor.masks import where
from ...errors import IndexOutOfRange, InvalidArgument
from .activation import logsigmoid
from .distances import pairwise_distance
from .rows import function, hidden, reduced, reduction_of


@function
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where the target is 1, and how much it is below `margin` where the target is -1.

    Raises InvalidArgument: incompatible shapes, or another reduction.
    """
    far = where(target != 1, (margin - input).clamp(min=0), 0)
    near = where(target != -1, input, 0)
    return reduced(far + near, reduction_of(reduction, size_average, reduce))


@function
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The larger of 0 and `-target * (input1 - input2) + margin`; a target of 1 means that the first should be larger.

    Raises InvalidArgument: incompatible shapes, or another reduction.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise InvalidArgument(
            f"margin_ranking_loss of shapes {input1.shape}, {input2.shape} and {target.shape}; give as many axes"
        )
    loss = (-target * (input1 - input2) + margin).clamp(min=0)
    return reduced(loss, reduction_of(reduction, size_average, reduce))


@function
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)) of targets 1 and -1. Raises InvalidArgument: shapes, or another reduction."""
    return reduced(-logsigmoid(target * input), reduction_of(reduction, size_average, reduce))


@function
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes (last axis) of the cross-entropy of sigmoid(input) and a target of 0 and 1.

    Args:
        weight: weight of each class.

    Raises InvalidArgument: incompatible shapes, or another reduction.
    """
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return reduced(loss.mean(-1), reduction_of(reduction, size_average, reduce))


@function
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of the larger of 0 and `margin - input[target] + input[class]`, to the power `p`.

    Args:
        input: (samples, classes), or (classes).
        target: the target classes (samples), or one.
        p: 1 or 2.
        weight: weight of each target class.

    Raises InvalidArgument: other shapes, p or reduction; IndexOutOfRange: a target that is not a class.
    """
    if p not in (1, 2):
        raise InvalidArgument(f"multi_margin_loss with p={p}; give 1 or 2")
    reduction = reduction_of(reduction, size_average, reduce)
    x, wanted = (input, target) if input.ndim == 2 else (input.reshape(1, -1), target.reshape(-1))
    if input.ndim not in (0, 1, 2) or wanted.shape != x.shape[:1]:
        raise InvalidArgument(f"multi_margin_loss of shape {input.shape} with a target of shape {target.shape}")
    if weight is not None and weight.shape != x.shape[1:]:
        raise InvalidArgument(f"multi_margin_loss with weights of shape {weight.shape}; give {x.shape[1:]}")
    at = wanted.unsqueeze(1)
    z = (margin - x.gather(1, at) + x).clamp(min=0) ** p
    if weight is not None:
        z = z * weight[wanted].unsqueeze(1)
    others = _others(at, x.shape[1])
    loss = where(others, z, 0).sum(1) / x.shape[1]
    return reduced(loss if input.ndim == 2 or reduction != "none" else loss.reshape(target.shape), reduction)


@hidden(name="other_classes")
def _others(xp: Module, at: Array, classes: int) -> Array:
    """Which classes of each sample are not the target class."""
    return at != xp.arange(classes)


@hidden(name="listed_classes")
def _listed(xp: Module, target: Array) -> tuple[Array, Array]:
    """Which targets count, those before the first -1; and which classes they name."""
    counts = np.logical_and.accumulate(target >= 0, axis=1)
    if (target[counts] >= target.shape[1]).any():
        raise IndexOutOfRange(f"target {target[counts].max()}; give classes from 0 to {target.shape[1] - 1}")
    named = xp.zeros(target.shape, bool)
    rows, columns = np.nonzero(counts)
    named[rows, target[rows, columns]] = True
    return counts, named


@function
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over target and other classes of max(0, 1 - their difference), divided by the number of classes.

    Args:
        input: (samples, classes), or (classes).
        target: of the same shape, integers: the target classes, up to the first -1.

    Raises InvalidArgument: other shapes, or another reduction; IndexOutOfRange: a target that is not a class.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if input.shape != target.shape or input.ndim > 2:
        raise InvalidArgument(f"multilabel_margin_loss of shapes {input.shape} and {target.shape}; give one shape")
    x, wanted = (input, target) if input.ndim == 2 else (input.reshape(1, -1), target.reshape(1, -1))
    counts, named = _listed(wanted)
    picked = x.gather(1, where(counts, wanted, 0))
    apart = (1 - picked.unsqueeze(2) + x.unsqueeze(1)).clamp(min=0)
    loss = where(counts.unsqueeze(2) & ~named.unsqueeze(1), apart, 0).sum([1, 2]) / max(x.shape[1], 1)
    return reduced(loss if input.ndim == 2 or reduction != "none" else loss.reshape(()), reduction)


# -- distances ---------------------------------------------------------------------------------------------------------


@function
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cosine where the target is 1, and how much the cosine is above `margin` where the target is -1.

    Args:
        input1, input2: (samples, n), or (n).
        target: (samples), or one.

    Raises InvalidArgument: other shapes, or another reduction.
    """
    if target.ndim > 1 or input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise InvalidArgument(
            f"cosine_embedding_loss of shapes {input1.shape} and {input2.shape} with a target of shape {target.shape}; "
            f"give (samples, n) and (samples)"
        )
    tiny = 1e-12
    product = (input1 * input2).sum(-1)
    first, second = (input1 * input1).sum(-1) + tiny, (input2 * input2).sum(-1) + tiny
    cosine = product / (first * second).sqrt()
    near = where(target == 1, 1 - cosine, 0)
    far = where(target == -1, (cosine - margin).clamp(min=0), 0)
    return reduced(near + far, reduction_of(reduction, size_average, reduce))


def _triplet(near: Tensor, far: Tensor, other: Callable[[], Tensor] | None, margin: float, reduction: str) -> Tensor:
    if other is not None:
        far = minimum(far, other())
    return reduced((near - far + margin).clamp(min=0), reduction)


@function
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, distance to the positive - distance to the negative + margin).

    Args:
        anchor, positive, negative: (samples, n), or (n).
        margin: above 0.
        p, eps: as for `pairwise_distance`.
        swap: use the distance between positive and negative for the latter, if it is smaller.

    Raises InvalidArgument: incompatible shapes, a margin not above 0, or another reduction.
    """
    if margin <= 0:
        raise InvalidArgument(f"triplet_margin_loss with margin {margin}; give a number above 0")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise InvalidArgument(
            f"triplet_margin_loss of shapes {anchor.shape}, {positive.shape} and {negative.shape}; give as many axes"
        )
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    other = (lambda: pairwise_distance(positive, negative, p, eps)) if swap else None
    return _triplet(near, far, other, margin, reduction_of(reduction, size_average, reduce))


@function
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance; default `pairwise_distance`. Raises as that does."""
    if margin <= 0:
        raise InvalidArgument(f"triplet_margin_with_distance_loss with margin {margin}; give a number above 0")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise InvalidArgument(
            f"triplet_margin_with_distance_loss of shapes {anchor.shape}, {positive.shape} and {negative.shape}"
        )
    distance: Any = distance_function or pairwise_distance
    other = (lambda: distance(positive, negative)) if swap else None
    return _triplet(distance(anchor, positive), distance(anchor, negative), other, margin, reduction)


__all__ = export(globals())
