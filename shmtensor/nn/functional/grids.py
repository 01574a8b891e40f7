"""Images and volumes sampled at the positions of a grid. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from ..._tensor.core import Tensor
from ..._tensor.creation import tensor, zeros_like
from ..._tensor.dispatch import Array, Module, export
from ..._tensor.masks import where
from ...errors import InvalidArgument
from .activation import hardtanh
from .interpolation import cubic_weights
from .pooling import gather_from_planes
from .rows import function, hidden


def _in_elements(place: Tensor, size: int, align: bool) -> Tensor:
    """Coordinates from -1 to 1 as indices."""
    return (place + 1) * ((size - 1) / 2) if align else ((place + 1) * size - 1) / 2


def _reflected(place: Tensor, low: float, span: float) -> Tensor:
    if not span:
        return place * 0
    away = (place - low).abs()
    turns = (away.detach() / span).floor()
    rest = away - turns * span
    return where(turns % 2 == 0, rest, span - rest) + low  # type: ignore[no-any-return]


def _bounded(place: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Places that lie outside moved inside, as the padding says."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        place = _reflected(place, 0.0, size - 1) if align else _reflected(place, -0.5, size)
    return hardtanh(place, 0.0, float(size - 1))


@hidden(name="index_on_grid")
def _index(xp: Module, first: Array, *others: Array, sizes: Any) -> tuple[Array, Array]:
    """The index in a plane, and whether it lies in it."""
    inside = xp.ones(first.shape, bool)
    made = xp.zeros(first.shape, np.int64)
    with np.errstate(invalid="ignore"):
        for at, n in zip((first, *others), sizes, strict=True):
            inside &= (at >= 0) & (at <= n - 1)
            made = made * n + np.nan_to_num(np.clip(at, 0, n - 1)).astype(np.int64)
    return made, inside


@hidden(name="at_place", gradient={"values": lambda g: g, "place": lambda g, place: zeros_like(place)})
def _at_place(xp: Module, values: Array, place: Array) -> Array:
    """The values; their gradient with respect to the place is 0."""
    return values.copy()


def _elements(planes: Tensor, places: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """(samples, channels, places) at integer places, 0 outside."""
    found: Any = _index(*[one.detach() for one in places], sizes=tuple(sizes))
    at, inside = found
    samples, channels = planes.shape[:2]
    wide = at.reshape(samples, 1, -1).expand(samples, channels, -1)
    made = gather_from_planes(planes, wide, 1)
    return made if bool(inside.all()) else made * inside.reshape(samples, 1, -1)


def _flat(weight: Tensor) -> Tensor:
    return weight.reshape(weight.shape[0], 1, -1)


def _linear(planes: Tensor, places: list[Tensor], sizes: Sequence[int]) -> Tensor:
    first = [one.detach().floor() for one in places]
    parts = [one - low for one, low in zip(places, first, strict=True)]
    made = None
    for corner in product((0, 1), repeat=len(places)):
        weight = None
        for bit, part in zip(corner, parts, strict=True):
            factor = part if bit else 1 - part
            weight = factor if weight is None else weight * factor
        assert weight is not None
        found = _elements(planes, [low + bit for low, bit in zip(first, corner, strict=True)], sizes) * _flat(weight)
        made = found if made is None else made + found
    assert made is not None
    return made


def _cubic(planes: Tensor, places: list[Tensor], sizes: Sequence[int], padding: str, align: bool) -> Tensor:
    first = [one.detach().floor() for one in places]
    weights = [cubic_weights(one - low) for one, low in zip(places, first, strict=True)]
    made = None
    for offset in product(range(4), repeat=2):
        at = [_bounded(low + (i - 1), n, padding, align) for low, i, n in zip(first, offset, sizes, strict=True)]
        found = _elements(planes, at, sizes) * _flat(weights[0][offset[0]] * weights[1][offset[1]])
        made = found if made is None else made + found
    assert made is not None
    return made


@function
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Elements of images or volumes at places of a grid.

    Args:
        input: (samples, channels, height, width), or with a depth before.
        grid: (samples, height, width, 2), or with a depth before and 3: coordinates (x, y, z), from -1 to 1.
        mode: "bilinear", "nearest", or "bicubic" of images.
        padding_mode: values outside: "zeros", the elements at the "border", or their "reflection".
        align_corners: -1 and 1 are the centers of the outer elements; otherwise their outer edges.

    Returns:
        (samples, channels, height, width) of the grid.

    Raises InvalidArgument: other shapes or modes.
    """
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != input.shape[0]:
        raise InvalidArgument(f"grid_sample of a tensor of shape {input.shape} with a grid of shape {grid.shape}")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank == 3):
        raise InvalidArgument(f"grid_sample with mode {mode!r}; give 'bilinear', 'nearest', or 'bicubic' of images")
    if padding_mode not in ("zeros", "border", "reflection") or 0 in input.shape[2:]:
        raise InvalidArgument(f"grid_sample with padding_mode {padding_mode!r}; give 'zeros', 'border' or 'reflection'")
    align, sizes = bool(align_corners), input.shape[2:]
    places = [_in_elements(grid.select(-1, rank - 1 - i), n, align) for i, n in enumerate(sizes)]
    planes = input.reshape(*input.shape[:2], -1)
    if mode == "bicubic":
        made = _cubic(planes, places, sizes, padding_mode, align)
    else:
        places = [_bounded(one, n, padding_mode, align) for one, n in zip(places, sizes, strict=True)]
        if mode == "nearest":
            made = _elements(planes, [one.detach().round() for one in places], sizes)
            made = _at_place(made, grid) if grid.requires_grad else made
        else:
            made = _linear(planes, places, sizes)
    return made.reshape(*input.shape[:2], *grid.shape[1:-1])


@function
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of affine maps, for `grid_sample`.

    Args:
        theta: the maps, (samples, 2, 3) or (samples, 3, 4).
        size: of the images or volumes: (samples, channels, height, width), or with a depth before.
        align_corners: as for `grid_sample`.

    Raises InvalidArgument: other shapes.
    """
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(size) < 1:
        raise InvalidArgument(f"affine_grid of maps of shape {theta.shape} for size {tuple(size)}")
    steps = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        steps.append(line if align_corners else line * ((n - 1) / n))
    mesh = np.meshgrid(*steps, indexing="ij")
    base = tensor(np.stack([*reversed(mesh), np.ones(size[2:])], -1).reshape(-1, rank + 1), dtype=theta.dtype)
    return base.matmul(theta.transpose(1, 2)).reshape(size[0], *size[2:], rank)


__all__ = export(globals())
