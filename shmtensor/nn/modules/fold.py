"""Windows of images as columns, and their sum."""

from __future__ import annotations

from typing import Any

from ..._tensor.methods import Tensor
from .. import functional
from .module import Module


class Fold(Module):
    """Adds columns, which are windows, to images: (N, C * elements of a window, L) -> (N, C, H, W).

    Args:
        output_size: sizes of the images.
        kernel_size: sizes of the window; this and the following, one for both axes or one for each.
        dilation: distance of elements in the window.
        padding: number of elements removed from both sides.
        stride: steps of the window.
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The images."""
        return functional.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Windows of images as columns: (N, C, H, W) -> (N, C * elements of a window, L).

    Args:
        kernel_size: sizes of the window; this and the following, one for both axes or one for each.
        dilation: distance of elements in the window.
        padding: zeros on both sides.
        stride: steps of the window.
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The columns."""
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
