"""Gradient rules of distances between rows, and of covariances. Nothing in this module blocks."""

from __future__ import annotations

import math
from typing import Any

from .core import Tensor
from .indexing import triu_indices


def of_cdist(g: Tensor, x1: Tensor, x2: Tensor, result: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Of `cdist`."""
    if p == 2:  # without the differences themselves, which are many
        ratio = _over_distance(g, result, 1)
        first = x1 * ratio.sum(-1, keepdim=True) - ratio @ x2
        return first, x2 * ratio.sum(-2).unsqueeze(-1) - ratio.mT @ x1
    made = _of_distance(g.unsqueeze(-1), x1.unsqueeze(-2) - x2.unsqueeze(-3), result.unsqueeze(-1), p)
    return made.sum(-2), -made.sum(-3)


def of_pdist(g: Tensor, x: Tensor, result: Tensor, p: float) -> Tensor:
    """Of `pdist`."""
    zeros = x.new_zeros(x.shape)
    if not result.numel():
        return zeros
    first, second = triu_indices(x.shape[0], x.shape[0], 1).unbind()
    apart = x.index_select(0, first) - x.index_select(0, second)
    made = _of_distance(g.unsqueeze(-1), apart, result.unsqueeze(-1), p)
    return zeros.index_add(0, first, made).index_add(0, second, -made)


def _over_distance(g: Tensor, distance: Tensor, power: float) -> Tensor:
    """`g / distance**power`, and 0 where the distance is 0."""
    is_zero = distance == 0
    known = distance.masked_fill(is_zero, 1)
    return (g / (known if power == 1 else known**power)).masked_fill(is_zero, 0)


def _of_distance(g: Tensor, apart: Tensor, distance: Tensor, p: float) -> Tensor:
    """The gradients of the differences that the p-norm was taken of."""
    if p == 0:
        return apart.new_zeros(apart.shape)
    if p == 1:
        return apart.sign() * g
    size = apart.abs()
    if math.isinf(p):
        return apart.sign() * g * (size == distance)
    scale = _over_distance(g, distance, p - 1)
    if p == 2:
        return apart * scale
    if p > 2:
        return apart * size ** (p - 2) * scale
    is_zero = size == 0
    return (apart.sign() * size.masked_fill(is_zero, 1) ** (p - 1)).masked_fill(is_zero, 0) * scale


def of_cov(
    g: Tensor, x: Tensor, correction: float, fweights: Tensor | None, aweights: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Of `cov`: with regard to the observations, and to their weights."""
    rows = (x.reshape(1, -1) if x.ndim < 2 else x).conj()
    n, count = rows.shape
    g = g.reshape(n, n)
    times = rows.new_ones(count) if fweights is None else fweights.to(rows.dtype)
    weights = (times if aweights is None else times * aweights).reshape(-1)
    total: Any = count if fweights is None and aweights is None else weights.sum()
    free: Any = total - correction
    slope = times
    if aweights is not None and correction:
        squares = (weights * aweights).sum()
        free = total - correction * squares / total
        slope = times - correction * (2 * weights / total - squares * times / total**2)
    apart = rows - (rows * weights).sum(1, keepdim=True) / total
    of_rows = ((g + g.mH) @ (apart * weights) / free).reshape(x.shape)
    if aweights is None:
        return of_rows, None
    inner = ((g.mH @ apart) * apart.conj()).sum(0).real
    made = (times * inner - slope * (weights * inner).sum() / free) / free
    return of_rows, made.real.reshape(aweights.shape)
