"""Windows that slide over the last axes: their sizes, their elements, and the sums back. Arrays only, no operations.

Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ..._native import exchange_channels, gather_windows, scatter_windows
from ..._tensor.dispatch import Array, Module
from ...errors import InvalidArgument

Pairs = tuple[tuple[int, int], ...]
"""Elements before and after each axis."""


class Windows(NamedTuple):
    """Sliding windows: for each axis the size, step, distance of their elements, and edges around the tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    edges: Pairs

    def counts(self, shape: Sequence[int]) -> tuple[int, ...]:
        """How many windows fit on each axis. Raises InvalidArgument: none."""
        found = tuple(
            (n + a + b - d * (k - 1) - 1) // s + 1
            for n, k, s, d, (a, b) in zip(shape, self.size, self.stride, self.dilation, self.edges, strict=True)
        )
        if min(found, default=1) < 1:
            raise InvalidArgument(
                f"windows of {self.size} with dilation {self.dilation} over sizes {tuple(shape)} with edges "
                f"{self.edges}; the windows must fit"
            )
        return found

    def padded(self, xp: Module, a: Array, value: Any = 0) -> Array:
        """The array with its edges filled with a value; the array itself if it has none. Negative edges are cut off."""
        if not self.has_edges():
            return a
        first = a.ndim - len(self.edges)
        made = xp.full((*a.shape[:first], *self.padded_shape(a.shape[first:])), value, a.dtype)
        inner, kept = self._parts(a.shape[first:])
        made[inner] = a[kept]
        return made

    def has_edges(self) -> bool:
        """Whether some edge is not 0."""
        return any(one for pair in self.edges for one in pair)

    def _parts(self, shape: Sequence[int]) -> tuple[Any, Any]:
        """The place of the array between its edges, and the part of the array that lies there."""
        inner = [slice(max(a, 0), n + a + min(b, 0)) for n, (a, b) in zip(shape, self.edges, strict=True)]
        kept = [slice(max(-a, 0), n + min(b, 0)) for n, (a, b) in zip(shape, self.edges, strict=True)]
        return (..., *inner), (..., *kept)

    def padded_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Sizes with the edges."""
        return tuple(n + a + b for n, (a, b) in zip(shape, self.edges, strict=True))

    def view(self, a: Array) -> Array:
        """All windows of an array that has its edges: (..., size, count), without a copy."""
        rank = len(self.size)
        first = a.ndim - rank
        count = tuple(
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(a.shape[first:], self.size, self.stride, self.dilation, strict=True)
        )
        steps = a.strides[first:]
        inner = tuple(step * d for step, d in zip(steps, self.dilation, strict=True))
        outer = tuple(step * s for step, s in zip(steps, self.stride, strict=True))
        shape = (*a.shape[:first], *self.size, *count)
        return np.lib.stride_tricks.as_strided(a, shape, (*a.strides[:first], *inner, *outer), writeable=False)

    def places(self, count: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Each position in a window, and the index that selects it of all windows of an array that has its edges."""
        for position in product(*[range(k) for k in self.size]):
            starts = [i * d for i, d in zip(position, self.dilation, strict=True)]
            yield position, (
                ..., *[slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, count, self.stride, strict=True)],
            )  # fmt: skip

    def scattered(self, xp: Module, windows: Array, shape: Sequence[int]) -> Array:
        """The sum of windows (..., size, count) at their places in an array of these last sizes."""
        rank = len(self.size)
        lead, count = windows.shape[: -2 * rank], windows.shape[-rank:]
        made = xp.zeros((*lead, *self.padded_shape(shape)), windows.dtype)
        for position, place in self.places(count):
            made[place] += windows[(..., *position, *[slice(None)] * rank)]
        return self.without_edges(made, shape)

    def without_edges(self, made: Array, shape: Sequence[int]) -> Array:
        """The part of an array between its edges; 0 where negative edges were cut off."""
        if not self.has_edges():
            return made
        inner, kept = self._parts(shape)
        if min(min(pair) for pair in self.edges) >= 0:
            return made[inner]
        whole = np.zeros((*made.shape[: made.ndim - len(self.edges)], *shape), made.dtype)
        whole[kept] = made[inner]
        return whole

    def gathered(self, xp: Module, a: Array, count: Sequence[int]) -> Array:
        """The elements of all windows of (samples, channels, ...): (channels, size, samples, count), in C order."""
        rank = len(self.size)
        made = xp.empty((a.shape[1], *self.size, a.shape[0], *count), a.dtype)
        if not gather_windows(a, made, self):
            made[...] = self.view(self.padded(xp, a)).transpose(
                1, *range(2, 2 + rank), 0, *range(2 + rank, 2 + 2 * rank)
            )
        return made

    def summed(self, xp: Module, columns: Array, shape: Sequence[int]) -> Array:
        """The inverse of `gathered`: sums of the elements at their places, (samples, channels, *shape)."""
        rank = len(self.size)
        made = xp.empty((columns.shape[1 + rank], columns.shape[0], *shape), columns.dtype)
        if not scatter_windows(columns, made, self):
            made[...] = self.scattered(xp, xp.moveaxis(columns, 1 + rank, 0), shape)
        return made

    def is_single(self) -> bool:
        """Whether each window is one element of the tensor, and each element one window."""
        return {*self.size, *self.stride} <= {1} and not self.has_edges()


def exchanged(xp: Module, a: Array, bias: Array | None = None, into: Array | None = None) -> Array:
    """(a, b, ...) as (b, a, ...), in C order, plus a bias (a)."""
    made = xp.empty((a.shape[1], a.shape[0], *a.shape[2:]), a.dtype) if into is None else into
    if not exchange_channels(a, bias, made):
        made[...] = a.swapaxes(0, 1)
        if bias is not None:
            made += bias.reshape(-1, *[1] * (a.ndim - 2))
    return made


def symmetric(padding: Sequence[int]) -> Pairs:
    """The same edges before and after."""
    return tuple((p, p) for p in padding)
