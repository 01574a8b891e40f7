"""Edges around tensors. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._tensor.combining import constant_pad_nd
from ..._tensor.core import Tensor, indices_of
from ..._tensor.dispatch import Array, Module, export
from ...errors import InvalidArgument
from .rows import function, hidden, sums_at


@hidden(
    name="edged",
    gradient={"input": lambda g, input_shape, places: _edged_back(g, input_shape, places)},  # type: ignore[has-type]
)
def _edged(xp: Module, input: Array, places: Any) -> Array:
    """The elements at places along the last axes: for each axis from the first of these an array, or None."""
    made = input
    for axis, at in enumerate(places, -len(places)):
        if at is not None:
            made = xp.take(made, at, axis)
    return made if made is not input else input.copy()


@hidden(name="edged_back", gradient={"output": lambda g, places: _edged(g, places)})
def _edged_back(xp: Module, output: Array, shape: Any, places: Any) -> Array:
    """The sum of elements that were taken from the same place."""
    made = output
    for axis, at in enumerate(places, -len(places)):
        if at is None:
            continue
        part = np.moveaxis(made, axis, 0)
        made = np.moveaxis(sums_at(part, at, shape[axis]), 0, axis)
    return np.ascontiguousarray(made) if made is not output else output.copy()


def _mirrored(n: int, before: int, after: int) -> Any:
    if before >= n or after >= n:
        raise InvalidArgument(f"reflecting {max(before, after)} elements of {n}; give fewer")
    at = np.abs(np.arange(-before, n + after))
    return np.where(at >= n, 2 * (n - 1) - at, at)


def _repeated(n: int, before: int, after: int) -> Any:
    return np.clip(np.arange(-before, n + after), 0, n - 1)


def _wrapped(n: int, before: int, after: int) -> Any:
    if before > n or after > n:
        raise InvalidArgument(f"wrapping {max(before, after)} elements of {n}; give at most that many")
    inner = np.arange(max(-before, 0), n - max(-after, 0))  # removed elements are not wrapped either
    return inner[np.arange(-max(before, 0), len(inner) + max(after, 0)) % max(len(inner), 1)]


_PLACES = {"reflect": _mirrored, "replicate": _repeated, "circular": _wrapped}


@function
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """The tensor with edges; negative numbers remove elements.

    Args:
        pad: elements before and after the last axis, then of the one before it, and so on.
        mode: "constant" for a value, "reflect" for the elements beside the edge, "replicate" for the one at the edge,
            "circular" for those of the other end.
        value: default 0.

    Raises InvalidArgument: not two numbers for each axis, or another mode; edges that are larger than the tensor.
    """
    sizes = indices_of(pad)
    if mode == "constant":
        return constant_pad_nd(input, sizes, 0 if value is None else value)
    if mode not in _PLACES:
        raise InvalidArgument(f"pad with mode {mode!r}; give 'constant', 'reflect', 'replicate' or 'circular'")
    if value:
        raise InvalidArgument(f"pad with mode {mode!r} and value {value}; only 'constant' takes one")
    rank = len(sizes) // 2
    if len(sizes) % 2 or not 1 <= rank <= 3 or input.ndim not in (rank + 1, rank + 2):
        raise InvalidArgument(
            f"pad of a tensor of shape {input.shape} with {sizes} and mode {mode!r}; give two numbers for each of the "
            f"last 1 to 3 axes, behind channels"
        )
    places = []
    for i, n in enumerate(input.shape[-rank:]):
        before, after = sizes[2 * (rank - 1 - i) : 2 * (rank - i)]
        if n + before + after < 1 or not n:
            raise InvalidArgument(f"pad of a tensor of shape {input.shape} with {sizes}; leave at least one element")
        places.append(_PLACES[mode](n, before, after) if before or after else None)
    return _edged(input, tuple(places))


__all__ = export(globals())
