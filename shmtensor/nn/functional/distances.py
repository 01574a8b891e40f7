"""Distances and angles between vectors. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

from ..._tensor.core import Tensor
from ..._tensor.dispatch import export
from ..._tensor.shapes import broadcast_arrays
from ...linalg.norms import vector_norm
from .rows import function


@function
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of `x1 - x2 + eps` along the last axis. Raises InvalidArgument: incompatible shapes."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@function
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis: their product, divided by their norms.

    Args:
        eps: lower bound of norms.

    Raises InvalidArgument: incompatible shapes; IndexOutOfRange: no such axis.
    """
    if x1.shape != x2.shape:
        x1, x2 = broadcast_arrays(x1, x2)
    first, second = [vector_norm(one, 2.0, dim, True) for one in (x1, x2)]
    first, second = [one + (one.detach().clamp(min=eps) - one.detach()) for one in (first, second)]
    return ((x1 / first) * (x2 / second)).sum(dim)


@function
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """Vectors along an axis divided by their p-norm.

    Args:
        eps: lower bound of norms.

    Raises IndexOutOfRange: no such axis.
    """
    made = input / vector_norm(input, p, dim, True).clamp(min=eps)
    return made if out is None else out.copy_(made)


__all__ = export(globals())
