"""Fourier transforms with the names of `torch.fft` and of the array API's extension `fft`, computed by NumPy.

Each computes in the precision of its argument: complex64 for float32 and complex64, the default type for integers.
`norm` is "backward" (the inverse divides by n; also None), "ortho" (both directions divide by the square root of n) or
"forward" (the forward transform divides by n). Axes have torch's name (`dim`) and the array API's (`axis`, `axes`).
Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from ._missing import suggest as _suggest
from ._tensor.core import FAILURES, axes_of, axis_of, failed, index_of, indices_of
from ._tensor.creation import asarray
from ._tensor.dispatch import Array, Gradient, Module, Out, composed, export, operation
from ._tensor.methods import Tensor
from ._tensor.outputs import given
from .devices import device_of
from .dtypes import default_float, dtype_of
from .errors import DTypeError, InvalidArgument
from .storage.arguments import SEQUENCES

NORMS: Final = ("backward", "ortho", "forward")
OTHER_WAY: Final = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}
"""For each norm, the norm with which the transform of the other direction divides by the same factor."""


class OneAxis(Protocol):
    """A transform along one axis."""

    def __call__(
        self,
        x: Tensor,
        /,
        n: int | None = None,
        dim: int = -1,
        norm: str | None = None,
        *,
        axis: int | None = None,
        out: Tensor | None = None,
    ) -> Tensor: ...


class ManyAxes(Protocol):
    """A transform along several axes."""

    def __call__(
        self,
        x: Tensor,
        /,
        s: Sequence[int] | None = None,
        dim: Any = None,
        norm: str | None = None,
        *,
        axes: Sequence[int] | None = None,
        out: Tensor | None = None,
    ) -> Tensor: ...


def _require_norm(name: str, norm: str | None) -> None:
    if norm is not None and norm not in NORMS:
        raise InvalidArgument(f"{name} with norm {norm!r}; use one of {', '.join(NORMS)}")


def _transformable(name: str, x: Array, takes: str) -> Array:
    """Return the array with floating-point elements; with complex ones if `takes` is "complex"."""
    if x.dtype.kind in "biu":
        x = x.astype(default_float())
    if takes == "real" and x.dtype.kind == "c":
        raise DTypeError(f"{name} of a tensor of {x.dtype.name}; it takes real numbers")
    return x.astype(np.result_type(x.dtype, np.complex64)) if takes == "complex" and x.dtype.kind != "c" else x


# -- gradient rules ----------------------------------------------------------------------------------------------------
# Each is the rule of a transform along axes, with `points` of the last one: the transform of the other direction,
# scaled so that it is the adjoint. `norm` is a key of OTHER_WAY.

Rule = Callable[[Tensor, tuple[int, ...], list[int], Any, str | None], Tensor]


def _resized(g: Tensor, shape: tuple[int, ...], axes: list[int]) -> Tensor:
    """Return the gradient of an input that was cut, or padded with zeros, along axes."""
    for axis in axes:
        have, wanted = g.shape[axis], shape[axis]
        if have > wanted:
            g = g.narrow(axis, 0, wanted)
        elif have < wanted:
            whole = [wanted if i == axis else size for i, size in enumerate(g.shape)]
            g = g.new_zeros(whole).slice_scatter(g, axis, 0, have)
    return g


def _of_fft(g: Tensor, shape: tuple[int, ...], axes: list[int], points: Any, norm: str | None) -> Tensor:
    return _resized(ifftn(g, dim=axes, norm=OTHER_WAY[norm]) if axes else g, shape, axes)


def _of_ifft(g: Tensor, shape: tuple[int, ...], axes: list[int], points: Any, norm: str | None) -> Tensor:
    return _resized(fftn(g, dim=axes, norm=OTHER_WAY[norm]) if axes else g, shape, axes)


def _of_rfft(g: Tensor, shape: tuple[int, ...], axes: list[int], points: Any, norm: str | None) -> Tensor:
    sizes = [*[g.shape[axis] for axis in axes[:-1]], shape[axes[-1]] if points in (None, -1) else points]
    return _resized(ifftn(g, s=sizes, dim=axes, norm=OTHER_WAY[norm]).real, shape, axes)


def _of_irfft(g: Tensor, shape: tuple[int, ...], axes: list[int], points: Any, norm: str | None) -> Tensor:
    last = axes[-1]
    weights = np.ones(g.shape[last] // 2 + 1, g.dtype)
    weights[1 : (g.shape[last] + 1) // 2] = 2  # frequencies that represent two
    counted = asarray(weights.reshape([-1 if i == last else 1 for i in range(len(shape))]))
    return _resized(rfftn(g, dim=axes, norm=OTHER_WAY[norm]) * counted, shape, axes)


def _of_hfft(g: Tensor, shape: tuple[int, ...], axes: list[int], points: Any, norm: str | None) -> Tensor:
    return _of_irfft(g, shape, axes, points, OTHER_WAY[norm]).conj()


def _of_ihfft(g: Tensor, shape: tuple[int, ...], axes: list[int], points: Any, norm: str | None) -> Tensor:
    return _of_rfft(g.conj(), shape, axes, points, OTHER_WAY[norm])


def _rule_of_one(rule: Rule) -> Gradient:
    def of_axis(
        g: Tensor, x_shape: tuple[int, ...], n: int | None, dim: int, norm: str | None, axis: int | None
    ) -> Tensor:
        return rule(g, x_shape, [(dim if axis is None else axis) % len(x_shape)], n, norm)

    return of_axis


def _rule_of_many(rule: Rule) -> Gradient:
    def of_axes(g: Tensor, x_shape: tuple[int, ...], s: Any, dim: Any, norm: str | None, axes: Any) -> Tensor:
        along, points = _axes_and_points(len(x_shape), s, dim if axes is None else axes)
        return rule(g, x_shape, [axis % len(x_shape) for axis in along], points and points[-1], norm)

    return of_axes


def _axes_and_points(ndim: int, s: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the axes of a transform along several, and the number of points of each if given."""
    points = None if s is None else indices_of(s if isinstance(s, SEQUENCES) else (s,), "numbers of points")
    if axes is None:
        axes = range(-ndim, 0) if points is None else range(-len(points), 0)
    return indices_of(axes if isinstance(axes, (*SEQUENCES, range)) else (axes,), "axes"), points


# -- transforms --------------------------------------------------------------------------------------------------------


def _one(name: str, function: Callable[..., Any], rule: Rule, what: str, takes: str = "any") -> OneAxis:
    def transform(
        xp: Module,
        x: Array,
        /,
        n: int | None = None,
        dim: int = -1,
        norm: str | None = None,
        *,
        axis: int | None = None,
    ) -> Array:
        points = None if n is None else index_of(n, "number of points")
        _require_norm(name, norm)
        along = axis_of(x, dim if axis is None else axis)
        return function(_transformable(name, x, takes), n=points, axis=along, norm=norm)

    return _described(
        transform, name, f"{what} along an axis, of `n` points (cut, or filled with zeros).", _rule_of_one(rule)
    )


def _many(
    name: str, function: Callable[..., Any], rule: Rule, what: str, takes: str = "any", grows: bool = False
) -> ManyAxes:
    def transform(
        xp: Module, x: Array, /, s: Any = None, dim: Any = None, norm: str | None = None, *, axes: Any = None
    ) -> Array:
        return _along(name, function, _transformable(name, x, takes), s, dim if axes is None else axes, norm, grows)

    doc = f"{what} along axes (default all), of `s` points each (cut, or filled with zeros; -1: all)."
    return _described(transform, name, doc, _rule_of_many(rule))


def _two(
    name: str, function: Callable[..., Any], rule: Rule, what: str, takes: str = "any", grows: bool = False
) -> ManyAxes:
    def transform(
        xp: Module, x: Array, /, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, axes: Any = None
    ) -> Array:
        return _along(name, function, _transformable(name, x, takes), s, dim if axes is None else axes, norm, grows)

    doc = f"{what} along axes (default the last two), of `s` points each (cut, or filled with zeros)."
    return _described(transform, name, doc, _rule_of_many(rule))


def _along(
    name: str, function: Callable[..., Any], a: Array, s: Any, axes: Any, norm: str | None, grows: bool
) -> Array:
    """Apply `function` along several axes. If `grows`, it returns n points for n // 2 + 1 elements of the last axis."""
    axes, points = _axes_and_points(a.ndim, s, axes)
    along = [axis_of(a, one) for one in axes]
    _require_norm(name, norm)
    if len({*along}) < len(along) or (points is not None and len(points) != len(along)):
        raise InvalidArgument(f"{name} of a tensor of shape {a.shape} along axes {along} of {points} points")
    if not along:
        if function not in (np.fft.fftn, np.fft.ifftn):
            raise InvalidArgument(f"{name} of a tensor of shape {a.shape} along no axis; give one or more")
        return a.astype(np.result_type(a.dtype, np.complex64))
    if points is not None:
        sizes = [a.shape[axis] for axis in along]
        if grows:
            sizes[-1] = 2 * (sizes[-1] - 1)
        points = tuple([size if one == -1 else one for one, size in zip(points, sizes, strict=True)])
    return function(a, s=points, axes=along, norm=norm)


def _described(transform: Any, name: str, doc: str, gradient: Gradient) -> Callable[..., Tensor]:
    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"{doc} Raises IndexOutOfRange, InvalidArgument (a number of points, a norm), DTypeError."
    return operation(method=False, out=Out.COPIED, gradient=gradient)(transform)


def _hfftn(a: Array, *, s: Any, axes: Any, norm: str | None) -> Array:
    return np.fft.irfftn(a.conj(), s=s, axes=axes, norm=OTHER_WAY[norm])  # type: ignore[arg-type]


def _ihfftn(a: Array, *, s: Any, axes: Any, norm: str | None) -> Array:
    return np.fft.rfftn(a, s=s, axes=axes, norm=OTHER_WAY[norm]).conj()  # type: ignore[arg-type]


TRANSFORM, HALF, HERMITIAN = (
    "The transform",
    "One half of the transform of real values",
    "The transform of a signal with Hermitian symmetry",
)
fft: OneAxis = _one("fft", np.fft.fft, _of_fft, TRANSFORM)
ifft: OneAxis = _one("ifft", np.fft.ifft, _of_ifft, "The inverse of fft")
rfft: OneAxis = _one("rfft", np.fft.rfft, _of_rfft, HALF, "real")
irfft: OneAxis = _one("irfft", np.fft.irfft, _of_irfft, "The inverse of rfft", "complex")
hfft: OneAxis = _one("hfft", np.fft.hfft, _of_hfft, HERMITIAN, "complex")
ihfft: OneAxis = _one("ihfft", np.fft.ihfft, _of_ihfft, "The inverse of hfft", "real")
fft2: ManyAxes = _two("fft2", np.fft.fftn, _of_fft, TRANSFORM)
ifft2: ManyAxes = _two("ifft2", np.fft.ifftn, _of_ifft, "The inverse of fft2")
rfft2: ManyAxes = _two("rfft2", np.fft.rfftn, _of_rfft, HALF, "real")
irfft2: ManyAxes = _two("irfft2", np.fft.irfftn, _of_irfft, "The inverse of rfft2", "complex", grows=True)
hfft2: ManyAxes = _two("hfft2", _hfftn, _of_hfft, HERMITIAN, "complex", grows=True)
ihfft2: ManyAxes = _two("ihfft2", _ihfftn, _of_ihfft, "The inverse of hfft2", "real")
fftn: ManyAxes = _many("fftn", np.fft.fftn, _of_fft, TRANSFORM)
ifftn: ManyAxes = _many("ifftn", np.fft.ifftn, _of_ifft, "The inverse of fftn")
rfftn: ManyAxes = _many("rfftn", np.fft.rfftn, _of_rfft, HALF, "real")
irfftn: ManyAxes = _many("irfftn", np.fft.irfftn, _of_irfft, "The inverse of rfftn", "complex", grows=True)
hfftn: ManyAxes = _many("hfftn", _hfftn, _of_hfft, HERMITIAN, "complex", grows=True)
ihfftn: ManyAxes = _many("ihfftn", _ihfftn, _of_ihfft, "The inverse of hfftn", "real")


def _frequencies(function: Callable[..., Any], n: int, d: float, out: Tensor | None, dtype: Any, device: Any) -> Tensor:
    device_of(device)
    if index_of(n) < 1 or not d:
        raise InvalidArgument(
            f"frequencies of {n} points with spacing {d}; give at least 1 point, and a spacing other than 0"
        )
    try:
        values = function(n, d)
    except FAILURES as error:
        raise failed(error, f"frequencies of {n} points for", np.empty(0)) from error
    if out is not None and dtype is None:
        return given(values.astype(out.dtype), out, "frequencies")
    made = asarray(values.astype(default_float() if dtype is None else dtype_of(dtype)))
    return made if out is None else given(made.numpy(), out, "frequencies")


@composed(method=False)
def fftfreq(n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the frequencies of `n` points with spacing `d`, in the order of fft. Raises InvalidArgument."""
    return _frequencies(np.fft.fftfreq, n, d, out, dtype, device)


@composed(method=False)
def rfftfreq(n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the frequencies of `n` points with spacing `d`, in the order of rfft. Raises InvalidArgument."""
    return _frequencies(np.fft.rfftfreq, n, d, out, dtype, device)


def _of_shift(g: Tensor, dim: Any, axes: Any) -> Tensor:
    return ifftshift(g, dim if axes is None else axes)


@operation(method=False, gradient=_of_shift)
def fftshift(xp: Module, x: Array, /, dim: Any = None, *, axes: Any = None) -> Array:
    """Move frequency 0 to the middle of all axes, or of the given ones. Raises IndexOutOfRange."""
    return xp.fft.fftshift(x, axes_of(x, dim if axes is None else axes))


@operation(method=False, gradient=lambda g, dim, axes: fftshift(g, dim if axes is None else axes))
def ifftshift(xp: Module, x: Array, /, dim: Any = None, *, axes: Any = None) -> Array:
    """The inverse of fftshift. Raises IndexOutOfRange."""
    return xp.fft.ifftshift(x, axes_of(x, dim if axes is None else axes))


__all__ = export(globals())
_suggest(globals())
