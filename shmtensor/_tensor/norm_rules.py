"""Gradient rules of norms. Nothing in this module blocks."""

from __future__ import annotations

import math
from typing import Any

from .core import Tensor
from .reduction_rules import reduced_axes, restored

Shape = tuple[int, ...]


def of_norm(g: Tensor, x: Tensor, result: Tensor, ord: float, axes: Shape) -> Tensor:
    """Of the norm of vectors over axes: 0 where the norm is 0.

    Args:
        g, result: of the shape that the reduction gave, with or without these axes.
        x: as it was, not conjugated.
    """
    norm, g = restored(result, x.shape, axes), restored(g, x.shape, axes)
    if ord == 0:
        return x.new_zeros(x.shape)
    if ord == 1:
        return x.sgn() * g
    if ord == 2:
        return g * (x / norm).masked_fill(norm == 0, 0)
    size = x.abs()
    if math.isinf(ord):
        mask = (size == norm) | (size.isnan() & norm.isnan())
        return x.sgn() * (g / mask.sum(axes, keepdim=True) * mask)
    if ord < 1:
        return (x.sgn() * size ** (ord - 1)).masked_fill(x == 0, 0) * g * norm ** (1 - ord)
    scale = (g / norm ** (ord - 1)).masked_fill(norm == 0, 0)
    return (x.sgn() * size ** (ord - 1) if ord < 2 else x * size ** (ord - 2)) * scale


def of_vector_norm(g: Tensor, x: Tensor, result: Tensor, ord: float, dim: Any, axis: Any) -> Tensor:
    """Of `linalg.vector_norm`."""
    return of_norm(g, x.conj(), result, ord, reduced_axes(x.shape, dim, axis))


def of_dist(g: Tensor, x: Tensor, other: Tensor, result: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Of `dist`."""
    apart = (x - other).conj()
    made = of_norm(g, apart, result, p, tuple(range(apart.ndim)))
    return made, -made


def of_renorm(g: Tensor, x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Of `renorm`."""
    x, axis = x.conj(), dim % x.ndim
    axes = tuple(i for i in range(x.ndim) if i != axis)
    size = x.abs()
    if not axes:
        norm = size
    elif math.isinf(p):
        norm = size.amax(axes, keepdim=True)
    else:
        norm = (size**p).sum(axes, keepdim=True) ** (1 / p)
    shrunk = 1 / (norm + 1e-7)
    along = (g * x.conj()).sum(axes, keepdim=True) if axes else g * x.conj()
    if g.is_complex():
        along = along.real
    less = of_norm(along, x, norm, p, axes) if axes else x.sgn() * along
    return (maxnorm * shrunk * (g - shrunk * less)).where(norm > maxnorm, g)
