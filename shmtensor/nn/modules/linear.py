"""Linear maps: Identity, Linear, Bilinear."""

from __future__ import annotations

import math
from typing import Any

from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional, init
from ..parameter import Parameter
from .module import Module


class Identity(Module):
    """Returns its input. Arguments are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """The input."""
        return input


class Linear(Module):
    """`x @ weight.T + bias`: (..., in_features) -> (..., out_features).

    Args:
        in_features: size of the last axis of inputs.
        out_features: size of the last axis of results.
        bias: whether there is a bias.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters uniformly from -b to b, where b = 1 / sqrt(in_features)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """The results, of shape (..., out_features)."""
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """The Linear at the end of MultiheadAttention, under torch's name."""


class Bilinear(Module):
    """`x1 @ weight[k] @ x2 + bias[k]` for each output k: (..., in1), (..., in2) -> (..., out_features).

    Args:
        in1_features: size of the last axis of first inputs.
        in2_features: size of the last axis of second inputs.
        out_features: size of the last axis of results.
        bias: whether there is a bias.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in1_features <= 0:
            raise InvalidArgument(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters uniformly from -b to b, where b = 1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """The results, of shape (..., out_features)."""
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
