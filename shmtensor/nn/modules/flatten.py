"""Modules that change the shape of tensors: several axes to one, and one to several."""

from __future__ import annotations

from typing import Any

from ..._tensor.methods import Tensor
from ...errors import DTypeError, type_name
from .module import Module


class Flatten(Module):
    """Makes one axis of several.

    Args:
        start_dim: the first.
        end_dim: the last.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """The same elements."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Makes several axes of one.

    Args:
        dim: the axis.
        unflattened_size: the sizes; one may be -1.

    Raises:
        DTypeError: not an axis, or not sizes.
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise DTypeError(f"Unflatten takes the number of an axis for dim, but found type {type_name(dim)}")
        if not isinstance(unflattened_size, tuple | list):
            raise DTypeError(f"unflattened_size must be a tuple of ints, but found type {type_name(unflattened_size)}")
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise DTypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {type_name(size)} at pos {i}"
                )
        self.dim = dim
        self.unflattened_size: Any = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """The same elements."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
