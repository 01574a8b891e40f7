"""Activation functions as modules."""

from __future__ import annotations

import warnings
from typing import Any

from ..._tensor.creation import full
from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional
from ..init import constant_
from ..parameter import Parameter
from .module import Module


class _InPlace(Module):
    """An activation function that may compute in place.

    Args:
        inplace: write the results to the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def _described(self, *others: str) -> str:
        return ", ".join([*others, *["inplace=True"] * bool(self.inplace)])

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        return self._described()


class ReLU(_InPlace):
    """The larger of x and 0.

    Args:
        inplace: write the results to the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.relu(input, inplace=self.inplace)


class Hardsigmoid(_InPlace):
    """x / 6 + 1/2, between 0 and 1.

    Args:
        inplace: write the results to the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.hardsigmoid(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in torch."""
        return ""


class SELU(_InPlace):
    """ELU with the constants of self-normalizing networks.

    Args:
        inplace: write the results to the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.selu(input, inplace=self.inplace)


class SiLU(_InPlace):
    """x * sigmoid(x).

    Args:
        inplace: write the results to the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.silu(input, inplace=self.inplace)


class Mish(_InPlace):
    """x * tanh(softplus(x)).

    Args:
        inplace: write the results to the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.mish(input, inplace=self.inplace)


class Hardswish(_InPlace):
    """x * hardsigmoid(x).

    Args:
        inplace: write the results to the input.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.hardswish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in torch."""
        return ""


class Hardtanh(_InPlace):
    """x between min_val and max_val, and the bounds elsewhere.

    Args:
        min_val: lower bound.
        max_val: upper bound.
        inplace: write the results to the input.
        min_value: older name of min_val.
        max_value: older name of max_val.

    Raises:
        InvalidArgument: the bounds are not in order.
    """

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(inplace)
        for new, old in (("min_val", min_value), ("max_val", max_value)):
            if old is not None:
                warnings.warn(
                    f"keyword argument `{new}ue` is deprecated and rename to `{new}`", FutureWarning, stacklevel=2
                )
        self.min_val: float = min_val if min_value is None else min_value
        self.max_val: float = max_val if max_value is None else max_value
        if self.max_val <= self.min_val:
            raise InvalidArgument(
                f"max_val {self.max_val} is not larger than min_val {self.min_val}; give other bounds"
            )

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return self._described(f"min_val={self.min_val}", f"max_val={self.max_val}")


class ReLU6(Hardtanh):
    """x between 0 and 6, and the bounds elsewhere.

    Args:
        inplace: write the results to the input.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        return self._described()


class Threshold(_InPlace):
    """x where it is above a threshold, and a value elsewhere.

    Args:
        threshold: the threshold.
        value: the value.
        inplace: write the results to the input.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return self._described(f"threshold={self.threshold}", f"value={self.value}")


class RReLU(_InPlace):
    """x above 0, else a slope times x: a random one in training, the mean of the bounds in evaluation.

    Args:
        lower: lower bound of the slopes.
        upper: upper bound of the slopes.
        inplace: write the results to the input.
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return self._described(f"lower={self.lower}", f"upper={self.upper}")


class ELU(_InPlace):
    """x above 0, else alpha * (exp(x) - 1).

    Args:
        alpha: the factor.
        inplace: write the results to the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return self._described(f"alpha={self.alpha}")


class CELU(_InPlace):
    """x above 0, else alpha * (exp(x / alpha) - 1).

    Args:
        alpha: the factor.
        inplace: write the results to the input.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return self._described(f"alpha={self.alpha}")


class LeakyReLU(_InPlace):
    """x above 0, else a slope times x.

    Args:
        negative_slope: the slope.
        inplace: write the results to the input.
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return self._described(f"negative_slope={self.negative_slope}")


class PReLU(Module):
    """x above 0, else weight * x, with one weight, or one for each channel (axis 1).

    Args:
        num_parameters: number of weights.
        init: their initial value.
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the weights.
    """

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Set the weights to their initial value."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"num_parameters={self.num_parameters}"


class GELU(Module):
    """x times the normal distribution function of x.

    Args:
        approximate: "none", or "tanh" for an approximation.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """The first half of an axis times sigmoid of the second half.

    Args:
        dim: the axis.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"dim={self.dim}"


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x where beta * x is above a threshold.

    Args:
        beta: the factor.
        threshold: the threshold.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardshrink(Module):
    """0 between -lambd and lambd, else x.

    Args:
        lambd: the bound.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.lambd}"


class Softshrink(Module):
    """0 between -lambd and lambd, else x moved by lambd towards 0.

    Args:
        lambd: the bound.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.lambd}"


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return input.sigmoid()


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return input.tanh()


class LogSigmoid(Module):
    """The logarithm of sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.tanhshrink(input)


class _AlongAxis(Module):
    """A function along an axis."""

    dim: int | None = None  # for older pickles, which lack it

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """The arguments."""
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """exp(x) divided by its sum along an axis.

    Args:
        dim: the axis; None: 0 of tensors with 0, 1 or 3 axes, else 1.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.softmax(input, self.dim)


class LogSoftmax(_AlongAxis):
    """The logarithm of softmax along an axis.

    Args:
        dim: the axis; None: 0 of tensors with 0, 1 or 3 axes, else 1.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.log_softmax(input, self.dim)


class Softmin(_AlongAxis):
    """softmax of -x along an axis.

    Args:
        dim: the axis; None: 0 of tensors with 0, 1 or 3 axes, else 1.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        return functional.softmin(input, self.dim)


class Softmax2d(Module):
    """softmax along the channels of images: (N, C, H, W) or (C, H, W). Raises InvalidArgument: other axes."""

    def forward(self, input: Tensor) -> Tensor:
        """The results."""
        if input.dim() not in (3, 4):
            raise InvalidArgument(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return functional.softmax(input, -3)
