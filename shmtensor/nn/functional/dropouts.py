"""Dropout: some elements or channels become 0 at random. Blocks while another thread draws random numbers."""

from __future__ import annotations

import math

from ..._tensor.core import Tensor
from ..._tensor.creation import empty
from ..._tensor.dispatch import export
from ...errors import InvalidArgument
from ...random.distributions import bernoulli_
from .rows import function

_SELU = 1.7580993408473766
"""The absolute value of the smallest value of SELU."""


def _require_probability(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise InvalidArgument(f"{name} with probability {p}; give a number from 0 to 1")


def _kept(input: Tensor, p: float, by_channel: bool) -> Tensor:
    """1 for elements that are kept, 0 for dropped ones."""
    shape = (*input.shape[:2], *[1] * (input.ndim - 2)) if by_channel else input.shape
    kind = input.dtype.to_real if input.dtype.is_complex else input.dtype
    return bernoulli_(empty(shape, dtype=kind() if callable(kind) else kind, device=input.device), 1 - p)


def _dropped(name: str, input: Tensor, p: float, training: bool, inplace: bool, by_channel: bool = False) -> Tensor:
    _require_probability(name, p)
    if not training or not p or not input.numel():
        return input
    noise = _kept(input, p, by_channel)
    if p < 1:
        noise /= 1 - p
    return input.mul_(noise) if inplace else input * noise


def _alpha_dropped(name: str, input: Tensor, p: float, training: bool, inplace: bool, by_channel: bool) -> Tensor:
    _require_probability(name, p)
    if not training or not p or not input.numel():
        return input
    noise = _kept(input, p, by_channel)
    if p == 1:
        return input.mul_(noise) if inplace else input * noise
    scale = 1 / math.sqrt((_SELU * _SELU * p + 1) * (1 - p))
    shift = (noise - 1) * (_SELU * scale) + _SELU * scale * p
    noise *= scale
    return input.mul_(noise).add_(shift) if inplace else input * noise + shift


@function
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element becomes 0 with probability `p`, else it is divided by 1 - p; without `training`, no change.

    Raises InvalidArgument: p that is not a probability.
    """
    return _dropped("dropout", input, p, training, inplace)


def _by_channel(name: str, input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    """`dropout` of whole channels, of a tensor with samples or without."""
    if batched or not training:
        return _dropped(name, input, p, training, inplace, True)
    made = _dropped(name, input.unsqueeze(0), p, training, inplace, True)
    return input if inplace else made.squeeze(0)


@function
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (samples, channels, n), or without samples. Raises InvalidArgument."""
    if input.ndim not in (2, 3):
        raise InvalidArgument(f"dropout1d of a tensor of shape {input.shape}; give 2 or 3 axes")
    return _by_channel("dropout1d", input, p, training, inplace, input.ndim == 3)


@function
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of (samples, channels, height, width). Raises InvalidArgument: p."""
    return _by_channel("dropout2d", input, p, training, inplace, True)


@function
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of five axes, or of four without samples. Raises InvalidArgument: p."""
    return _by_channel("dropout3d", input, p, training, inplace, input.ndim != 4)


@function
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Each element becomes the least value of `selu` with probability `p`; mean and variance stay as they were.

    Raises InvalidArgument: p that is not a probability.
    """
    return _alpha_dropped("alpha_dropout", input, p, training, inplace, False)


@function
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels (axis 1). Raises InvalidArgument: p."""
    return _alpha_dropped("feature_alpha_dropout", input, p, training, inplace, True)


__all__ = export(globals())
