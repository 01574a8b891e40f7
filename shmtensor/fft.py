"""Fourier transforms: the array API's extension `fft`, by NumPy's. Nothing in this module blocks.

Each computes in the precision of its argument: complex64 for float32 and complex64. `norm` is "backward" (divided by n
on the way back), "ortho" (by the root of n both ways) or "forward".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from ._tensor.core import FAILURES, axes_of, failed, index_of, indices_of
from ._tensor.creation import asarray
from ._tensor.dispatch import Array, Module, composed, export, operation
from ._tensor.methods import Tensor
from .devices import device_of
from .dtypes import DEFAULT, dtype_of
from .errors import InvalidArgument

NORMS: Final = ("backward", "ortho", "forward")


class OneAxis(Protocol):
    """A transform along one axis."""

    def __call__(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor: ...


class ManyAxes(Protocol):
    """A transform along several axes."""

    def __call__(
        self, x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor: ...


def _require_norm(name: str, norm: str) -> None:
    if norm not in NORMS:
        raise InvalidArgument(f"{name} with norm {norm!r}; there is {', '.join(NORMS)}")


def _one(name: str, function: Callable[..., Any], what: str) -> OneAxis:
    def transform(xp: Module, x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
        points = None if n is None else index_of(n, "number of points")
        _require_norm(name, norm)
        return function(x, n=points, axis=index_of(axis, "axis"), norm=norm)

    return _described(transform, name, f"{what} along an axis, of `n` points (cut, or filled with zeros).")


def _many(name: str, function: Callable[..., Any], what: str) -> ManyAxes:
    def transform(
        xp: Module,
        x: Array,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Array:
        points = None if s is None else indices_of(s, "numbers of points")
        if points is not None and axes is None:
            axes = range(-len(points), 0)
        _require_norm(name, norm)
        return function(x, s=points, axes=None if axes is None else indices_of(axes, "axes"), norm=norm)

    return _described(
        transform, name, f"{what} along axes (default all), of `s` points each (cut, or filled with zeros)."
    )


def _described(transform: Any, name: str, doc: str) -> Callable[..., Tensor]:
    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"{doc} Raises IndexOutOfRange, InvalidArgument (a number of points, a norm), DTypeError."
    return operation(method=False)(transform)


fft = _one("fft", np.fft.fft, "The transform")
ifft = _one("ifft", np.fft.ifft, "The inverse of fft")
rfft = _one("rfft", np.fft.rfft, "The transform of real values, of which one half is given")
irfft = _one("irfft", np.fft.irfft, "The inverse of rfft")
hfft = _one("hfft", np.fft.hfft, "The transform of a signal with Hermitian symmetry")
ihfft = _one("ihfft", np.fft.ihfft, "The inverse of hfft")
fftn = _many("fftn", np.fft.fftn, "The transform")
ifftn = _many("ifftn", np.fft.ifftn, "The inverse of fftn")
rfftn = _many("rfftn", np.fft.rfftn, "The transform of real values, of which one half is given")
irfftn = _many("irfftn", np.fft.irfftn, "The inverse of rfftn")


def _frequencies(function: Callable[..., Any], n: int, d: float, dtype: Any, device: Any) -> Tensor:
    device_of(device)
    if index_of(n) < 1 or not d:
        raise InvalidArgument(f"frequencies of {n} points, {d} apart; give 1 or more, and a distance")
    try:
        values = function(n, d)
    except FAILURES as error:
        raise failed(error, f"frequencies of {n} points for", np.empty(0)) from error
    return asarray(values.astype(DEFAULT if dtype is None else dtype_of(dtype)))


@composed(method=False)
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `n` points, `d` apart, as fft orders them. Raises InvalidArgument."""
    return _frequencies(np.fft.fftfreq, n, d, dtype, device)


@composed(method=False)
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `n` points, `d` apart, as rfft orders them. Raises InvalidArgument."""
    return _frequencies(np.fft.rfftfreq, n, d, dtype, device)


@operation(method=False)
def fftshift(xp: Module, x: Array, /, *, axes: Any = None) -> Array:
    """Frequency 0 in the middle of all axes or some. Raises IndexOutOfRange."""
    return xp.fft.fftshift(x, axes_of(x, axes))


@operation(method=False)
def ifftshift(xp: Module, x: Array, /, *, axes: Any = None) -> Array:
    """The inverse of fftshift. Raises IndexOutOfRange."""
    return xp.fft.ifftshift(x, axes_of(x, axes))


__all__ = export(globals())
