"""Dropout: parts of inputs are set to 0 in training."""

from __future__ import annotations

from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional
from .module import Module


class _DropoutNd(Module):
    """Settings of dropout.

    Args:
        p: probability of 0.
        inplace: write the results to the input.

    Raises:
        InvalidArgument: p is not a probability.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidArgument(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The arguments."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, sets elements to 0 with probability p, and divides others by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        """The results; the input itself in evaluation."""
        return functional.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """In training, sets channels of (N, C, L) to 0 with probability p, and divides others by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        """The results; the input itself in evaluation."""
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """In training, sets channels of images to 0 with probability p, and divides others by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        """The results; the input itself in evaluation."""
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """In training, sets channels of volumes to 0 with probability p, and divides others by 1 - p."""

    def forward(self, input: Tensor) -> Tensor:
        """The results; the input itself in evaluation."""
        return functional.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """In training, dropout that keeps mean and variance after SELU."""

    def forward(self, input: Tensor) -> Tensor:
        """The results; the input itself in evaluation."""
        return functional.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """In training, AlphaDropout of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        """The results; the input itself in evaluation."""
        return functional.feature_alpha_dropout(input, self.p, self.training, self.inplace)
