"""Convolutions, and transposed ones, along one to three axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional, init
from ..parameter import Parameter
from .module import Module
from .sizes import pair, reversed_twice, single, triple

_MODES: Final = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Parameters and settings of a convolution."""

    weight: Parameter
    bias: Parameter | None
    padding_mode: str = "zeros"  # for older pickles, which lack it

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], stride: tuple[int, ...],
        padding: str | tuple[int, ...], dilation: tuple[int, ...], transposed: bool, output_padding: tuple[int, ...],
        groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _require(in_channels, out_channels, groups, padding, padding_mode, stride)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _both_sides(padding, dilation, kernel_size)
        ends = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*ends, *kernel_size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters uniformly from -b to b, where b = 1 / sqrt(inputs of an output)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, default in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            value = getattr(self, name)
            if value != (default,) * len(value):
                parts.append(f"{name}={value}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)

    def _convolved(self, convolve: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode == "zeros":
            return convolve(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        padded = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)


def _require(
    in_channels: int, out_channels: int, groups: int, padding: Any, padding_mode: str, stride: tuple[int, ...]
) -> None:
    """Raise InvalidArgument for incompatible arguments."""
    if groups <= 0:
        raise InvalidArgument("groups must be a positive integer")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels % groups:
            raise InvalidArgument(f"{name} must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise InvalidArgument(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
        if padding == "same" and any(step != 1 for step in stride):
            raise InvalidArgument("padding='same' is not supported for strided convolutions; give numbers, or stride 1")
    if padding_mode not in _MODES:
        raise InvalidArgument(f"padding_mode must be one of {_MODES}, but got padding_mode={padding_mode!r}")


def _both_sides(padding: Any, dilation: tuple[int, ...], kernel_size: tuple[int, ...]) -> list[int]:
    """The padding as `functional.pad` takes it."""
    if padding == "valid":
        return [0, 0] * len(kernel_size)
    if padding != "same":
        return reversed_twice(padding)
    sides = []
    for spread, size in zip(reversed(dilation), reversed(kernel_size), strict=True):
        whole = spread * (size - 1)
        sides += [whole // 2, whole - whole // 2]
    return sides


def _padding(each: Callable[[Any], tuple[int, ...]], padding: Any) -> Any:
    return padding if isinstance(padding, str) else each(padding)


class _Forward(_ConvNd):
    """A convolution that is not transposed."""

    _each: Callable[[Any], tuple[int, ...]]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        each = type(self)._each
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), _padding(each, padding), each(dilation),
            False, each(0), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """The results, of shape (N, out_channels, ...)."""
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Forward):
    """Convolution along one axis: (N, in_channels, L) -> (N, out_channels, L_out). Arguments are those of Conv2d."""

    _each = staticmethod(single)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._convolved(functional.conv1d, input, weight, bias)


class Conv2d(_Forward):
    """Convolution of images: (N, in_channels, H, W) -> (N, out_channels, H_out, W_out).

    Args:
        in_channels: channels of inputs.
        out_channels: channels of results.
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window.
        padding: number of elements added on both sides; "same": as many as keep the sizes; "valid": none.
        dilation: distance of elements in the window.
        groups: number of groups of channels; results of a group depend only on inputs of that group.
        bias: whether there is a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: incompatible arguments.
    """

    _each = staticmethod(pair)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._convolved(functional.conv2d, input, weight, bias)


class Conv3d(_Forward):
    """Convolution along three axes: (N, in_channels, D, H, W) -> ... . Arguments are those of Conv2d."""

    _each = staticmethod(triple)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._convolved(functional.conv3d, input, weight, bias)


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution."""

    _each: Callable[[Any], tuple[int, ...]]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise InvalidArgument(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = type(self)._each
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), each(padding), each(dilation), True,
            each(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding with which results have a given size. Raises InvalidArgument: they cannot."""
        if output_size is None:
            return self.output_padding
        axes = len(self.kernel_size)
        others = input.dim() - axes
        sizes = [*output_size]
        if len(sizes) == others + axes:
            sizes = sizes[others:]
        if len(sizes) != axes:
            raise InvalidArgument(
                f"ConvTranspose{axes}D: for {input.dim()}D input, output_size must have {axes} or {others + axes} "
                f"elements (got {len(sizes)})"
            )
        least = []
        for i in range(axes):
            padding, window = int(self.padding[i]), self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least.append((input.shape[others + i] - 1) * self.stride[i] - 2 * padding + window)
        most = [size + step - 1 for size, step in zip(least, self.stride, strict=True)]
        if any(not low <= size <= high for low, size, high in zip(least, sizes, most, strict=True)):
            raise InvalidArgument(
                f"requested an output size of {sizes}, but valid sizes range from {least} to {most} (for an input of "
                f"{input.shape[others:]})"
            )
        return tuple([size - low for size, low in zip(sizes, least, strict=True)])

    def _transposed(self, convolve: Callable[..., Tensor], input: Tensor, output_size: Sequence[int] | None) -> Tensor:
        added = self._output_padding(input, output_size)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, added, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution along one axis. Arguments are those of ConvTranspose2d."""

    _each = staticmethod(single)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The results; `output_size`: which of the possible sizes they have. Raises InvalidArgument."""
        return self._transposed(functional.conv_transpose1d, input, output_size)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of images: the computation of the gradient of Conv2d with respect to its input.

    Args:
        in_channels: channels of inputs.
        out_channels: channels of results.
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: distance of the windows in the results.
        padding: number of elements removed from both sides.
        output_padding: number of elements added to one side of the results.
        groups: number of groups of channels; results of a group depend only on inputs of that group.
        bias: whether there is a bias.
        dilation: distance of elements in the window.
        padding_mode: "zeros".
        device: None or the CPU; `cuda()` moves the module to a GPU.
        dtype: type of the parameters.

    Raises:
        InvalidArgument: incompatible arguments.
    """

    _each = staticmethod(pair)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The results; `output_size`: which of the possible sizes they have. Raises InvalidArgument."""
        return self._transposed(functional.conv_transpose2d, input, output_size)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution along three axes. Arguments are those of ConvTranspose2d."""

    _each = staticmethod(triple)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The results; `output_size`: which of the possible sizes they have. Raises InvalidArgument."""
        return self._transposed(functional.conv_transpose3d, input, output_size)
