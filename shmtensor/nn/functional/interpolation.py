"""Resizing: interpolation along the last axes. Nothing in this module blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.dispatch import Array, Module, export
from ...errors import InvalidArgument
from .averaging import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .rows import as_type, computing_type, each_axis, function, hidden

_AREA: Final[dict[int, Callable[..., Tensor]]] = {
    1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d
}  # fmt: skip
_RANKS: Final = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_MODES: Final = ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area")


@hidden(
    name="resampled",
    gradient={"input": lambda g, input_shape, taps: _resampled_back(g, input_shape[-len(taps) :], taps)},  # type: ignore[has-type]
    fails="resampling",
)
def _resampled(xp: Module, input: Array, taps: Any) -> Array:
    """Sums of elements along each of the last axes: (their indices, weights), both (elements, results)."""
    made = input
    for axis, (at, weights) in enumerate(taps, -len(taps)):
        if weights is None:
            made = xp.take(made, at[0], axis)
            continue
        wide = made.astype(xp.float32 if made.dtype.kind in "iu" else computing_type(xp, made), copy=False)
        factors = weights.astype(wide.real.dtype).reshape(len(weights), -1, *[1] * (-axis - 1))
        made = xp.take(wide, at[0], axis) * factors[0]
        for i in range(1, len(at)):
            made += xp.take(wide, at[i], axis) * factors[i]
    if input.dtype.kind in "iu" and made.dtype.kind == "f":
        bounds = xp.iinfo(input.dtype)
        made = xp.clip(xp.floor(made + 0.5), bounds.min, bounds.max)
    return as_type(made, input.dtype) if made is not input else input.copy()


@hidden(name="resampled_back", gradient={"output": lambda g, taps: _resampled(g, taps)})
def _resampled_back(xp: Module, output: Array, sizes: Any, taps: Any) -> Array:
    """The transpose of `_resampled`."""
    made = output.astype(computing_type(xp, output), copy=False)
    for axis, (at, weights) in enumerate(taps, -len(taps)):
        matrix = xp.zeros((at.shape[1], sizes[axis]), made.real.dtype)
        np.add.at(matrix, (xp.arange(at.shape[1]), at), 1 if weights is None else weights)
        made = np.moveaxis(np.tensordot(made, matrix, (made.ndim + axis, 0)), -1, axis)
    return as_type(np.ascontiguousarray(made), output.dtype)


# -- which elements ----------------------------------------------------------------------------------------------------


def _step(n: int, m: int, factor: float | None, align: bool) -> float:
    """The distance of results in elements."""
    if align:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / factor if factor else n / m


def _nearest(n: int, m: int, factor: float | None, exact: bool) -> tuple[Any, Any]:
    step = np.float32(_step(n, m, factor, False))  # float32, to round as torch does
    at = np.floor((np.arange(m, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step).astype(np.int64)
    if not exact and m == 2 * n:
        at = np.arange(m) // 2
    return np.clip(at, 0, n - 1)[None], None


def _linear(n: int, m: int, factor: float | None, align: bool) -> tuple[Any, Any]:
    step = _step(n, m, factor, align)
    place = np.arange(m) * step if align else np.maximum((np.arange(m) + 0.5) * step - 0.5, 0)
    first = np.minimum(np.floor(place).astype(np.int64), n - 1)
    part = np.clip(place - first, 0, 1)
    return np.stack([first, np.minimum(first + 1, n - 1)]), np.stack([1 - part, part])


def cubic_weights(part: Any, a: float = -0.75) -> list[Any]:
    """Weights of the four elements around a place that lies `part` of the distance after the second."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _cubic(n: int, m: int, factor: float | None, align: bool) -> tuple[Any, Any]:
    step = _step(n, m, factor, align)
    place = np.arange(m) * step if align else (np.arange(m) + 0.5) * step - 0.5
    first = np.floor(place).astype(np.int64)
    at = np.clip(first + np.arange(-1, 3)[:, None], 0, n - 1)
    return at, np.stack(cubic_weights(place - first))


def _smooth(n: int, m: int, factor: float | None, align: bool, cubic: bool) -> tuple[Any, Any]:
    """Weights over more elements if there are fewer results."""
    step = _step(n, m, factor, align)
    delta = 0.0 if align else 0.5
    reach = (2 if cubic else 1) * max(step, 1.0)
    center = (np.arange(m) + delta) * step
    first = np.maximum((center - reach + delta).astype(np.int64), 0)
    count = np.minimum((center + reach + delta).astype(np.int64), n) - first
    taps = np.arange(max(int(count.max(initial=1)), 1))[:, None]
    x = np.abs((taps + first - center + delta) / max(step, 1.0))
    if cubic:
        a = -0.5
        weights = np.where(x < 1, ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a)
        weights = np.where(x < 2, weights, 0)
    else:
        weights = np.maximum(1 - x, 0)
    weights = np.where(taps < count, weights, 0)
    return np.minimum(first + taps, n - 1), weights / weights.sum(0)


# -- functions ---------------------------------------------------------------------------------------------------------


def _sizes(input: Tensor, size: Any, scale_factor: Any, again: bool | None) -> tuple[tuple[int, ...], list[Any]]:
    """Sizes of the result, and the factors to compute with. Raises InvalidArgument."""
    rank = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise InvalidArgument("interpolate with size and scale_factor, or neither; give one of them")
    if size is not None:
        if again:
            raise InvalidArgument("interpolate with size and recompute_scale_factor; that is for scale_factor")
        return each_axis(size, rank, "size", 1), [None] * rank
    factors = [*scale_factor] if isinstance(scale_factor, list | tuple) else [scale_factor] * rank
    if len(factors) != rank:
        raise InvalidArgument(f"interpolate with scale_factor {scale_factor}; give one number, or {rank}")
    sizes = tuple(math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True))
    if min(sizes) < 1:
        raise InvalidArgument(f"interpolate to sizes {sizes}; they must be from 1")
    return sizes, [None] * rank if again else factors


def _taps(
    mode: str, sizes: Sequence[int], wanted: Sequence[int], factors: Sequence[Any], align: bool, smooth: bool
) -> tuple[Any, ...]:
    of_each = zip(sizes, wanted, factors, strict=True)
    if mode.startswith("nearest"):
        return tuple([_nearest(n, m, f, mode == "nearest-exact") for n, m, f in of_each])
    if smooth:
        return tuple([_smooth(n, m, f, align, mode == "bicubic") for n, m, f in of_each])
    return tuple([(_cubic if mode == "bicubic" else _linear)(n, m, f, align) for n, m, f in of_each])


@function
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The tensor interpolated to other sizes of its last axes.

    Args:
        input: (samples, channels, ...), with one to three sizes.
        size: sizes of the result.
        scale_factor: factor of the sizes, one number or one for each; give this or `size`.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area" (means).
        align_corners: the first and last elements keep their places; for linear and cubic modes.
        recompute_scale_factor: compute the factor again from the sizes.
        antialias: use weights over more elements for smaller sizes; for "bilinear" and "bicubic".

    Raises InvalidArgument: other sizes or another mode.
    """
    if mode not in _MODES:
        raise InvalidArgument(f"interpolate with mode {mode!r}; give one of {', '.join(_MODES)}")
    rank = input.ndim - 2
    if not 1 <= rank <= 3 or _RANKS.get(mode, rank) != rank or not input.numel():
        raise InvalidArgument(
            f"interpolate of a tensor of shape {input.shape} with mode {mode!r}; give (samples, channels, ...) with "
            f"{_RANKS.get(mode, '1 to 3')} sizes"
        )
    if align_corners is not None and mode not in _RANKS:
        raise InvalidArgument(f"interpolate with mode {mode!r} and align_corners; that is for {', '.join(_RANKS)}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise InvalidArgument(f"interpolate with mode {mode!r} and antialias; that is for bilinear and bicubic")
    wanted, factors = _sizes(input, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return _AREA[rank](input, wanted)
    return _resampled(input, _taps(mode, input.shape[2:], wanted, factors, bool(align_corners), antialias))


@function
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate`, by its old name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@function
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor)


@function
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and align_corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


__all__ = export(globals())
