"""Normalization of each sample: over its last axes, over groups of channels, over neighbouring channels."""

from __future__ import annotations

from typing import Any

from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional, init
from ..parameter import Parameter
from .module import Module


class LocalResponseNorm(Module):
    """Divides by (k + alpha * mean of squares of neighbouring channels) ** beta.

    Args:
        size: number of channels.
        alpha: the factor.
        beta: the exponent.
        k: the constant that is added.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _sizes(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm(Module):
    """Normalizes over the last axes, then multiplies by weight and adds bias.

    Args:
        normalized_shape: sizes of these axes.
        eps: added to variances.
        elementwise_affine: whether there are a weight and a bias.
        bias: whether there is a bias, if elementwise_affine.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape: tuple[int, ...] = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            made = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The weight is 1, the bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalizes groups of channels of each sample, then multiplies by weight and adds bias.

    Args:
        num_groups: number of groups.
        num_channels: number of channels.
        eps: added to variances.
        affine: whether there are a weight and a bias for each channel.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
        bias: whether there is a bias, if affine.

    Raises:
        InvalidArgument: the groups do not divide the channels.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise InvalidArgument(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = Parameter(empty(num_channels, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The weight is 1, the bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root of the mean of squares over the last axes, then multiplies by weight.

    Args:
        normalized_shape: sizes of these axes.
        eps: added to the mean; None: the machine epsilon of the type.
        elementwise_affine: whether there is a weight.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the weight.
    """

    weight: Parameter | None

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape: tuple[int, ...] = _sizes(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The weight is 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The normalized input."""
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
