"""Channels in another order, and channels as pixels. Nothing in this module blocks."""

from __future__ import annotations

import math

from ..._tensor.core import Tensor
from ..._tensor.dispatch import export
from ...errors import InvalidArgument
from .rows import function


@function
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., channels * r * r, height, width) as (..., channels, height * r, width * r).

    Raises InvalidArgument: channels that r * r does not divide, or fewer than three axes.
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise InvalidArgument(f"pixel_shuffle by {r} of a tensor of shape {input.shape}; {r}² must divide the channels")
    if r == 1:
        return input.clone()
    *lead, channels, height, width = input.shape
    parts = input.reshape(math.prod(lead), channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(*lead, channels // (r * r), height * r, width * r)


@function
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., channels, height * r, width * r) as (..., channels * r * r, height, width).

    Raises InvalidArgument: sizes that r does not divide, or fewer than three axes.
    """
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-1] % r or input.shape[-2] % r:
        raise InvalidArgument(f"pixel_unshuffle by {r} of a tensor of shape {input.shape}; {r} must divide the sizes")
    if r == 1:
        return input.clone()
    *lead, channels, height, width = input.shape
    parts = input.reshape(math.prod(lead), channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return parts.reshape(*lead, channels * r * r, height // r, width // r)


@function
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels (axis 1) of groups, one of each group after the other.

    Raises InvalidArgument: channels that the groups do not divide, or fewer than three axes.
    """
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise InvalidArgument(
            f"channel_shuffle with {groups} groups of a tensor of shape {input.shape}; "
            "give a number that divides its channels"
        )
    samples, channels, *rest = input.shape
    return input.reshape(samples, groups, channels // groups, *rest).transpose(1, 2).reshape(input.shape)


@function
def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`channel_shuffle`."""
    return channel_shuffle(input, groups)


__all__ = export(globals())
