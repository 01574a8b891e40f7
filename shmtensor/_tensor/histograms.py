"""Histograms with one axis or several. Results are copies; nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import INTEGERS, SEQUENCES
from .core import Tensor, array_of, index_of
from .dispatch import Array, Module, composed, export, operation


class Histogram(NamedTuple):
    """The result of histogram."""

    hist: Tensor
    bin_edges: Tensor


class HistogramDD(NamedTuple):
    """The result of histogramdd."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def _bounds(points: Array, count: int, given: Any) -> list[tuple[float, float]]:
    """The lowest and highest edge of each axis."""
    if given is not None:
        if len(given) != 2 * count:
            raise InvalidArgument(f"a range of {len(given)} numbers for {count} axes; give two for each")
        found = [(float(given[2 * i]), float(given[2 * i + 1])) for i in range(count)]
    elif len(points):
        found = [(float(column.min()), float(column.max())) for column in points.T]
    else:
        found = [(0.0, 1.0)] * count
    if not all(np.isfinite(low) and np.isfinite(high) and low <= high for low, high in found):
        raise InvalidArgument(f"a histogram from lowest to highest edge {found}; give finite ones, in order")
    return [(low, high) if low < high else (low - 0.5, high + 0.5) for low, high in found]


def _edges(xp: Module, points: Array, bins: Any, given: Any) -> list[Array]:
    """The edges of the bins along each axis."""
    count = points.shape[1]
    several = bins if isinstance(bins, SEQUENCES) else [bins] * count
    wanted = [array_of(one).copy() if isinstance(one, Tensor) else one for one in several]
    if len(wanted) != count:
        raise InvalidArgument(f"bins for {len(wanted)} axes, and points of {count}; give as many")
    if all(isinstance(one, INTEGERS) for one in wanted):
        if min(map(index_of, wanted), default=1) < 1:
            raise InvalidArgument(f"a histogram of {wanted} bins; give numbers of at least 1")
        bounds = _bounds(points, count, given)
        with np.errstate(all="ignore"):
            return [
                xp.linspace(low, high, index_of(n) + 1).astype(points.dtype)
                for n, (low, high) in zip(wanted, bounds, strict=True)
            ]
    edges = [xp.asarray(one).astype(points.dtype) for one in wanted]
    if any(one.ndim != 1 or not one.size for one in edges):
        raise InvalidArgument("edges of a histogram must be tensors of one axis, with at least one edge")
    return edges


def _counted(xp: Module, points: Array, edges: list[Array], weight: Array | None, density: bool) -> Array:
    """The number of points, or the sum of their weights, in each bin."""
    shape = tuple([len(one) - 1 for one in edges])
    inside = xp.ones(len(points), bool)
    place = xp.zeros(len(points), np.int64)
    for column, edge, n in zip(points.T, edges, shape, strict=True):
        at = xp.searchsorted(edge, column, "right") - 1
        at[column == edge[-1]] = n - 1  # the last bin includes its upper edge
        inside &= (column >= edge[0]) & (column <= edge[-1]) & (at >= 0) & (at < n)
        place = place * n + at
    weights = None if weight is None else weight.reshape(-1)[inside].astype(np.float64)
    size = int(np.prod(shape))
    counts = xp.bincount(place[inside], weights, size)[:size].reshape(shape).astype(np.float64)
    if density:
        with np.errstate(all="ignore"):  # NaN where nothing was counted
            counts /= counts.sum()
            for axis, edge in enumerate(edges):
                widths = xp.diff(edge.astype(np.float64))
                counts /= widths.reshape([-1 if i == axis else 1 for i in range(len(edges))])
    with np.errstate(over="ignore"):
        return counts.astype(points.dtype)


def _require_float(a: Array, name: str) -> None:
    if a.dtype.kind != "f":
        raise DTypeError(f"{name} of a tensor of {a.dtype.name}; convert it to a floating-point type with to()")


def _require_weights(weight: Array | None, shape: tuple[int, ...], name: str) -> None:
    if weight is not None and weight.shape != shape:
        raise InvalidArgument(f"{name} with weights of shape {weight.shape}; give shape {shape}")


@operation(results=Histogram, fails="a histogram of")
def histogram(
    xp: Module,
    x: Array,
    /,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Histogram:
    """The number of values in each bin of a range, and the edges of the bins.

    Args:
        bins: number of equal bins, or a tensor of edges.
        range: lowest and highest edge; None: the smallest and the largest value.
        weight: weight of each value.
        density: divide by the sum and by the widths of the bins; NaN if nothing was counted.

    Raises:
        DTypeError: not a floating-point type; InvalidArgument: an invalid range, or incompatible shapes.
    """
    _require_float(x, "histogram")
    _require_weights(weight, x.shape, "histogram")
    points = x.reshape(-1, 1)
    edges = _edges(xp, points, [bins], range)
    return _counted(xp, points, edges, weight, density), edges[0]  # type: ignore[return-value]


@operation(name="histogramdd", function=False, method=False, fails="a histogram of")
def _of_points(xp: Module, x: Array, bins: Any, range: Any, weight: Array | None, density: bool) -> Any:
    """Counts and edges of `histogramdd`."""
    _require_float(x, "histogramdd")
    if x.ndim < 2:
        raise InvalidArgument(
            f"histogramdd of a tensor of shape {x.shape}; it needs two axes, the last for coordinates"
        )
    _require_weights(weight, x.shape[:-1], "histogramdd")
    points = x.reshape(-1, x.shape[-1])
    edges = _edges(xp, points, bins, range)
    return _counted(xp, points, edges, weight, density), edges


@composed(method=False)
def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """The number of points, with coordinates on the last axis, in each bin of a grid, and the edges of the bins.

    Args:
        bins: number of equal bins, a list of one for each coordinate, or a list of tensors of edges.
        range: lowest and highest edge of each coordinate, in one list; None: the smallest and largest coordinates.
        weight, density: as `histogram`.

    Raises:
        DTypeError: not a floating-point type; InvalidArgument: an invalid range, or incompatible shapes.
    """
    hist, edges = _of_points(input, bins, range, weight, density)
    return HistogramDD(hist, tuple(edges))


__all__ = export(globals())
