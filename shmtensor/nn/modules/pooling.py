"""Pooling: maxima, means and norms of windows, and the inverse of maxima."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._tensor.methods import Tensor
from ...errors import InvalidArgument
from .. import functional
from .module import Module
from .sizes import pair, single, triple


class _MaxPoolNd(Module):
    """Largest elements of windows.

    Args:
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        padding: number of elements added on both sides, at most half of the window.
        dilation: distance of elements in the window.
        return_indices: return the places of the maxima, too.
        ceil_mode: also windows that reach beyond the end.
    """

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride: Any = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Largest elements of windows along one axis: (N, C, L) -> (N, C, L) with fewer elements.

    Arguments are those of `functional.max_pool1d`.
    """

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool2d(_MaxPoolNd):
    """Largest elements of windows along two axes: (N, C, H, W) -> (N, C, H, W) with fewer elements.

    Arguments are those of `functional.max_pool2d`.
    """

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class MaxPool3d(_MaxPoolNd):
    """Largest elements of windows along three axes: (N, C, D, H, W) -> (N, C, D, H, W) with fewer elements.

    Arguments are those of `functional.max_pool3d`.
    """

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class _MaxUnpoolNd(Module):
    """Puts maxima back to their places, between zeros."""

    _each: Callable[[Any], tuple[int, ...]]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        each = type(self)._each
        self.kernel_size: tuple[int, ...] = each(kernel_size)
        self.stride: tuple[int, ...] = each(stride if stride is not None else kernel_size)
        self.padding: tuple[int, ...] = each(padding)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the results of MaxPool1d back to their places, and zeros elsewhere.

    Args:
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        padding: number of elements added on both sides.
    """

    _each = staticmethod(single)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """A tensor of the size that was pooled, or of `output_size`."""
        return functional.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the results of MaxPool2d back to their places, and zeros elsewhere.

    Args:
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        padding: number of elements added on both sides.
    """

    _each = staticmethod(pair)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """A tensor of the size that was pooled, or of `output_size`."""
        return functional.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the results of MaxPool3d back to their places, and zeros elsewhere.

    Args:
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        padding: number of elements added on both sides.
    """

    _each = staticmethod(triple)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """A tensor of the size that was pooled, or of `output_size`."""
        return functional.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _AvgPoolNd(Module):
    """Means of windows."""

    def extra_repr(self) -> str:
        """The arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Means of windows along one axis: (N, C, L) -> (N, C, L) with fewer elements.

    Args:
        kernel_size: size of the window.
        stride: steps of the window; None: its size.
        padding: zeros on both sides.
        ceil_mode: also windows that reach beyond the end.
        count_include_pad: zeros that were added count.
    """

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size: tuple[Any, ...] = single(kernel_size)
        self.stride: tuple[Any, ...] = single(stride if stride is not None else kernel_size)
        self.padding: tuple[Any, ...] = single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return functional.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class _AvgPoolOfSeveral(_AvgPoolNd):
    """Means of windows along several axes."""

    padding: Any = 0  # this and the following: of older pickles, which have none
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride: Any = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_AvgPoolOfSeveral):
    """Means of windows along two axes: (N, C, H, W) -> (N, C, H, W) with fewer elements.

    Args:
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        padding: zeros on both sides.
        ceil_mode: also windows that reach beyond the end.
        count_include_pad: zeros that were added count.
        divisor_override: divide by this number instead of the number of elements.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return functional.avg_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class AvgPool3d(_AvgPoolOfSeveral):
    """Means of windows along three axes: (N, C, D, H, W) -> (N, C, D, H, W) with fewer elements.

    Args:
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        padding: zeros on both sides.
        ceil_mode: also windows that reach beyond the end.
        count_include_pad: zeros that were added count.
        divisor_override: divide by this number instead of the number of elements.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return functional.avg_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class _LPPoolNd(Module):
    """Norms of windows.

    Args:
        norm_type: the power.
        kernel_size: size of the window; this and the following, one for all axes or one for each.
        stride: steps of the window; None: its size.
        ceil_mode: also windows that reach beyond the end.
    """

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """Norms of windows along one axis. Arguments are those of `functional.lp_pool1d`."""

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return functional.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """Norms of windows along two axes. Arguments are those of `functional.lp_pool2d`."""

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return functional.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """Norms of windows along three axes. Arguments are those of `functional.lp_pool3d`."""

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        return functional.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _FractionalMaxPoolNd(Module):
    """Largest elements of windows at random places, so that results have any size.

    Args:
        kernel_size: size of the window, one for all axes or one for each.
        output_size: sizes of the results.
        output_ratio: instead, sizes of the results as parts of those of inputs, between 0 and 1.
        return_indices: return the places of the maxima, too.

    Raises:
        InvalidArgument: not exactly one of output_size and output_ratio, or a ratio that is not between 0 and 1.
    """

    _axes: int

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        each = (single, pair, triple)[self._axes - 1]
        name = type(self).__name__
        if output_size is None and output_ratio is None:
            raise InvalidArgument(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise InvalidArgument("only one of output_size and output_ratio may be specified")
        self.kernel_size: tuple[Any, ...] = each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size: tuple[Any, ...] | None = None if output_size is None else each(output_size)
        self.output_ratio: tuple[Any, ...] | None = None if output_ratio is None else each(output_ratio)
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise InvalidArgument(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Largest elements of windows at random places along two axes."""

    _axes = 2

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Largest elements of windows at random places along three axes."""

    _axes = 3

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            _random_samples=self._random_samples,
        )  # fmt: skip


class _AdaptiveAvgPoolNd(Module):
    """Means of `output_size` windows.

    Args:
        output_size: sizes of the results, one for all axes or one for each; None: that of inputs.
    """

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """The arguments."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of `output_size` windows along one axis."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return functional.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of `output_size` windows along two axes."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of `output_size` windows along three axes."""

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return functional.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(Module):
    """Largest elements of `output_size` windows.

    Args:
        output_size: sizes of the results, one for all axes or one for each; None: that of inputs.
        return_indices: return the places of the maxima, too.
    """

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        """The arguments."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Largest elements of `output_size` windows along one axis."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Largest elements of `output_size` windows along two axes."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Largest elements of `output_size` windows along three axes."""

    def forward(self, input: Tensor) -> Any:
        """The maxima; with return_indices, (maxima, indices)."""
        return functional.adaptive_max_pool3d(input, self.output_size, self.return_indices)
