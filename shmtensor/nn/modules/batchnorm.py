"""Batch normalization."""

from __future__ import annotations

from typing import Any

from ..._tensor.creation import empty, ones, tensor, zeros
from ..._tensor.methods import Tensor
from ...dtypes import int64
from ...errors import InvalidArgument
from .. import functional, init
from ..parameter import Parameter
from .module import Module


class _NormBase(Module):
    """Parameters and running statistics of a normalization over batches or instances.

    Args:
        num_features: number of channels.
        eps: added to variances.
        momentum: weight of a batch in running statistics; None: they are means over all batches.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether there are running statistics.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of parameters and statistics.
        bias: whether there is a bias, if affine.
    """

    _version = 2
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = Parameter(empty(num_features, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", tensor(0, device=device, dtype=int64))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)

    def reset_parameters(self) -> None:
        """Forget the running statistics; the weight is 1, the bias 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        key = f"{prefix}num_batches_tracked"
        if local_metadata.get("version", 1) < 2 and self.track_running_stats and key not in state_dict:
            state_dict[key] = tensor(0, dtype=int64)  # version 1 did not count
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """Batch normalization."""

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input. In training, the statistics are the batch's, and running ones are updated."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        tracked = not self.training or self.track_running_stats
        return functional.batch_norm(
            input, self.running_mean if tracked else None, self.running_var if tracked else None, self.weight,
            self.bias, of_batch, factor, self.eps,
        )  # fmt: skip


def require_axes(input: Tensor, *numbers: int) -> None:
    """Refuse an input with another number of axes. Raises InvalidArgument."""
    if input.dim() not in numbers:
        wanted = " or ".join([f"{number}D" for number in numbers])
        raise InvalidArgument(f"expected {wanted} input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel of (N, C) or (N, C, L) over the batch, then multiplies by weight and adds bias."""

    def _check_input_dim(self, input: Tensor) -> None:
        require_axes(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of (N, C, H, W) over the batch, then multiplies by weight and adds bias."""

    def _check_input_dim(self, input: Tensor) -> None:
        require_axes(input, 4)


class BatchNorm3d(_BatchNorm):
    """Normalizes each channel of (N, C, D, H, W) over the batch, then multiplies by weight and adds bias."""

    def _check_input_dim(self, input: Tensor) -> None:
        require_axes(input, 5)
