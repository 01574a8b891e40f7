"""Tensors from several: products of sets, matrices of blocks, diagonals, powers; and edges around one.

Results are copies, except `cartesian_prod` of one tensor. Nothing in this module blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from ..storage.arguments import shape_from
from .core import Tensor, array_of, index_of, indices_of
from .creation import empty
from .dispatch import Array, Module, Result, composed, export, operation
from .ranges import arange
from .result_types import common_type


def _of_product(g: Tensor, tensors_shape: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    """Gradients of the tensors of a product: that of an element is summed over the combinations that have it."""
    count = len(tensors_shape)
    if count == 1:
        return [g]
    parts = g.reshape([*[shape[0] for shape in tensors_shape], count]).unbind(-1)
    return [part.sum([axis for axis in range(count) if axis != i]) for i, part in enumerate(parts)]


@operation(method=False, fails="a product of tensors, the first", result=Result.VIEW, gradient={"tensors": _of_product})
def cartesian_prod(xp: Module, *tensors: Array) -> Array:
    """Every combination of one element of each tensor (one axis), a row for each; of one tensor a view of it.

    Raises InvalidArgument: no tensors, or other numbers of axes.
    """
    if not tensors or any(a.ndim != 1 for a in tensors):
        raise InvalidArgument(f"cartesian_prod of shapes {[a.shape for a in tensors]}; give tensors of one axis")
    if len(tensors) == 1:
        return tensors[0]
    shape_from((math.prod(a.size for a in tensors), len(tensors)), tensors[0].itemsize)
    grids = xp.meshgrid(*tensors, indexing="ij")
    return xp.stack([grid.reshape(-1) for grid in grids], axis=1)


@composed()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a tensor of one axis, in order, a row for each.

    Args:
        with_replacement: an element may be chosen several times.

    Raises:
        InvalidArgument: other numbers of axes; a negative r.
    """
    size = array_of(input).size
    if input.ndim != 1 or index_of(r) < 0:
        raise InvalidArgument(f"combinations of {r} of a tensor of shape {input.shape}; give one axis, and r from 0")
    if r == 0:
        return empty(0, dtype=input.dtype)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    count = math.comb(size + r - 1, r) if with_replacement and size else math.comb(size, r)
    shape_from((count, r), 8)
    places = np.fromiter(itertools.chain.from_iterable(choose(range(size), r)), np.int64, count * r)
    return input.index_select(0, places).reshape(count, r)


def _of_blocks(g: Tensor, tensors_shape: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    """Gradients of blocks on a diagonal."""
    found = []
    row = column = 0
    for shape in tensors_shape:
        height, width = (1, 1, *shape)[-2:]
        found.append(g.narrow(0, row, height).narrow(1, column, width).reshape(shape))
        row, column = row + height, column + width
    return found


@operation(method=False, fails="blocks of tensors, the first", gradient={"tensors": _of_blocks})
def block_diag(xp: Module, *tensors: Array) -> Array:
    """A matrix with the tensors as blocks on its diagonal, zeros elsewhere; one axis is a row.

    Raises InvalidArgument: no tensors, or more than two axes.
    """
    if not tensors or any(a.ndim > 2 for a in tensors):
        raise InvalidArgument(f"block_diag of shapes {[a.shape for a in tensors]}; give tensors of at most two axes")
    blocks = [xp.atleast_2d(a) for a in tensors]
    kind = common_type(*tensors)
    shape, _ = shape_from((sum(len(a) for a in blocks), sum(a.shape[1] for a in blocks)), kind.itemsize)
    made = xp.zeros(shape, kind)
    row = column = 0
    for a in blocks:
        made[row : row + len(a), column : column + a.shape[1]] = a
        row, column = row + len(a), column + a.shape[1]
    return made


def _of_diagflat(g: Tensor, x_shape: tuple[int, ...], offset: int) -> Tensor:
    return g.diagonal(offset).reshape(x_shape)


@operation(fails="diagonal {offset} of", gradient=_of_diagflat)
def diagflat(xp: Module, x: Array, /, offset: int = 0) -> Array:
    """A matrix with all elements on a diagonal, zeros elsewhere. Raises InvalidArgument: it would be too large."""
    side = x.size + abs(index_of(offset))
    shape_from((side, side), x.itemsize)
    return xp.diagflat(x, index_of(offset))


def _of_powers(g: Tensor, x: Tensor, increasing: bool) -> Tensor:
    powers = arange(g.shape[1]) if increasing else arange(g.shape[1]).flip(0)
    return (g * (powers * x.unsqueeze(-1) ** (powers - 1).clamp_min(0))).sum(-1)


@operation(method=False, fails="powers of", gradient=_of_powers)
def vander(xp: Module, x: Array, N: int | None = None, increasing: bool = False) -> Array:
    """The powers of each element of a tensor of one axis, as rows of `N` (default: as many as elements).

    Integers give int64. Raises InvalidArgument: other numbers of axes, a negative number of powers.
    """
    count = x.size if N is None else index_of(N, "number of powers")
    if x.ndim != 1 or count < 0:
        raise InvalidArgument(f"vander of a tensor of shape {x.shape} with {count} powers; give one axis, and N from 0")
    kind = np.dtype(np.int64) if x.dtype.kind in "biu" else x.dtype
    shape, _ = shape_from((x.size, count), kind.itemsize)
    made = xp.ones(shape, kind)
    made[:, 1:] = x[:, None]
    made = xp.multiply.accumulate(made, axis=1)
    return made if increasing else xp.ascontiguousarray(made[:, ::-1])


def _of_edges(g: Tensor, pad: Sequence[int]) -> Tensor:
    return constant_pad_nd(g, [-index_of(size) for size in pad])


@operation(
    method=False,
    fails="edges of {pad} around",
    gradient=_of_edges,
)
def constant_pad_nd(xp: Module, x: Array, /, pad: Sequence[int], value: Any = 0) -> Array:
    """The tensor with elements added before and after each axis, last axis first; negative numbers remove some.

    Raises InvalidArgument: not two numbers for each axis, or more removed than there are.
    """
    sizes = indices_of(pad)
    if len(sizes) % 2 or len(sizes) > 2 * x.ndim:
        raise InvalidArgument(f"edges {sizes} around a tensor of shape {x.shape}; give two for each axis, last first")
    edges = [(0, 0)] * (x.ndim - len(sizes) // 2) + [(sizes[i], sizes[i + 1]) for i in range(len(sizes) - 2, -1, -2)]
    shape, _ = shape_from(tuple([n + a + b for n, (a, b) in zip(x.shape, edges, strict=True)]), x.itemsize)
    made = xp.full(shape, value, x.dtype)
    inner = [slice(max(a, 0), m - max(b, 0)) for m, (a, b) in zip(shape, edges, strict=True)]
    kept = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, edges, strict=True)]
    made[tuple(inner)] = x[tuple(kept)]
    return made


__all__ = export(globals())
