"""Padding: elements added around inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._tensor.methods import Tensor
from .. import functional
from .module import Module
from .sizes import pair, quadruple, sextuple


class _Pad(Module):
    """Adds elements on both sides of the last axes.

    Args:
        padding: how many, one for all sides or one for each: (left, right, top, bottom, front, back).
    """

    _each: Callable[[Any], tuple[int, ...]]
    _mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding: tuple[int, ...] = type(self)._each(padding)

    def forward(self, input: Tensor) -> Tensor:
        """The input with what is added."""
        return functional.pad(input, self.padding, mode=self._mode)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    """Adds elements of one value.

    Args:
        padding: how many, one for all sides or one for each.
        value: the value.
    """

    _mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with what is added."""
        return functional.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Adds elements of one value on both sides of the last axis."""

    _each = staticmethod(pair)


class ConstantPad2d(_ConstantPadNd):
    """Adds elements of one value on both sides of the last two axes."""

    _each = staticmethod(quadruple)


class ConstantPad3d(_ConstantPadNd):
    """Adds elements of one value on both sides of the last three axes."""

    _each = staticmethod(sextuple)


class ZeroPad1d(ConstantPad1d):
    """Adds zeros on both sides of the last axis."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Adds zeros on both sides of the last two axes."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Adds zeros on both sides of the last three axes."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.padding}"


class _CircularPadNd(_Pad):
    """Adds elements of the other end on both sides."""

    _mode = "circular"


class CircularPad1d(_CircularPadNd):
    """Adds elements of the other end on both sides of the last axis."""

    _each = staticmethod(pair)


class CircularPad2d(_CircularPadNd):
    """Adds elements of the other end on both sides of the last two axes."""

    _each = staticmethod(quadruple)


class CircularPad3d(_CircularPadNd):
    """Adds elements of the other end on both sides of the last three axes."""

    _each = staticmethod(sextuple)


class _ReflectionPadNd(_Pad):
    """Adds elements in reverse, without the outermost, on both sides."""

    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Adds elements in reverse, without the outermost, on both sides of the last axis."""

    _each = staticmethod(pair)


class ReflectionPad2d(_ReflectionPadNd):
    """Adds elements in reverse, without the outermost, on both sides of the last two axes."""

    _each = staticmethod(quadruple)


class ReflectionPad3d(_ReflectionPadNd):
    """Adds elements in reverse, without the outermost, on both sides of the last three axes."""

    _each = staticmethod(sextuple)


class _ReplicationPadNd(_Pad):
    """Repeats the outermost elements on both sides."""

    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Repeats the outermost elements on both sides of the last axis."""

    _each = staticmethod(pair)


class ReplicationPad2d(_ReplicationPadNd):
    """Repeats the outermost elements on both sides of the last two axes."""

    _each = staticmethod(quadruple)


class ReplicationPad3d(_ReplicationPadNd):
    """Repeats the outermost elements on both sides of the last three axes."""

    _each = staticmethod(sextuple)
