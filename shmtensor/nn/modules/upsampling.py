"""Resizing of images, channels as pixels, and channels in another order."""

from __future__ import annotations

from typing import Any

from ..._tensor.methods import Tensor
from .. import functional
from .module import Module


class Upsample(Module):
    """Interpolates to another size: (N, C, ...) -> (N, C, ...).

    Args:
        size: the sizes of the last axes.
        scale_factor: instead, their factors.
        mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".
        align_corners: the outermost elements keep their places.
        recompute_scale_factor: compute the factors again from the sizes.
    """

    recompute_scale_factor: bool | None = True  # for older pickles, which lack it

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.name: str = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple([float(factor) for factor in scale_factor])
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The interpolated input."""
        return functional.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The arguments."""
        size = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Repeats the nearest element of images.

    Args:
        size: the sizes.
        scale_factor: instead, their factors.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Interpolates images linearly along both axes; the corners keep their places.

    Args:
        size: the sizes.
        scale_factor: instead, their factors.
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """Makes pixels of channels: (N, C * r * r, H, W) -> (N, C, H * r, W * r).

    Args:
        upscale_factor: r.
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The larger images."""
        return functional.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Makes channels of pixels: (N, C, H * r, W * r) -> (N, C * r * r, H, W).

    Args:
        downscale_factor: r.
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The smaller images."""
        return functional.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Takes channels in turn from groups.

    Args:
        groups: number of groups.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """The same channels in another order."""
        return functional.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"groups={self.groups}"
