"""Instance normalization."""

from __future__ import annotations

import warnings
from typing import Any

from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional
from .batchnorm import _NormBase, require_axes


class _InstanceNorm(_NormBase):
    """Instance normalization.

    Args:
        num_features: number of channels.
        eps: added to variances.
        momentum: weight of a batch in running statistics.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether there are running statistics.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of parameters and statistics.
        bias: whether there is a bias, if affine.
    """

    _axes: int
    """Axes of an input with channels and without a batch."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        require_axes(input, self._axes, self._axes + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        self._check_input_dim(input)
        axis = input.dim() - self._axes
        found = input.shape[axis]
        if found != self.num_features:
            if self.affine:
                raise InvalidArgument(
                    f"expected input's size at dim={axis} to match num_features ({self.num_features}), but got: {found}"
                )
            warnings.warn(
                f"input's size at dim={axis} does not match num_features. You can silence this warning by not passing "
                "in num_features, which is not used because affine=False",
                stacklevel=2,
            )
        return self._normalized(input) if axis else self._normalized(input.unsqueeze(0)).squeeze(0)

    def _normalized(self, input: Tensor) -> Tensor:
        return functional.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each instance of (N, C, L) or (C, L)."""

    _axes = 2


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each instance of (N, C, H, W) or (C, H, W)."""

    _axes = 3


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each instance of (N, C, D, H, W) or (C, D, H, W)."""

    _axes = 4
