"""Distances between vectors."""

from __future__ import annotations

from ..._tensor.methods import Tensor
from .. import functional
from .module import Module


class PairwiseDistance(Module):
    """The norm of differences of vectors.

    Args:
        p: the norm.
        eps: added to the differences.
        keepdim: keep the axis of the vectors, with size 1.
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances: (N, D), (N, D) -> (N)."""
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors.

    Args:
        dim: the axis of the vectors.
        eps: lower bound of the product of their lengths.
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines, without the axis of the vectors."""
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)
