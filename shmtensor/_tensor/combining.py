"""Tensors from several: products of sets, matrices of blocks, diagonals, powers; and edges around one.

Results are copies, except of one tensor. Nothing in this module blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from ..storage.arguments import shape_from
from .core import index_of, indices_of
from .dispatch import Array, Module, Result, export, operation


@operation(method=False, fails="a product of tensors, the first", result=Result.VIEW)
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


@operation(fails="combinations of {r} of")
def combinations(xp: Module, x: Array, /, r: int = 2, with_replacement: bool = False) -> Array:
    """All choices of `r` elements of a tensor of one axis, in order, a row for each.

    Args:
        with_replacement: an element may be chosen several times.

    Raises:
        InvalidArgument: other numbers of axes; a negative r.
    """
    if x.ndim != 1 or index_of(r) < 0:
        raise InvalidArgument(f"combinations of {r} of a tensor of shape {x.shape}; give one axis, and r from 0")
    if r == 0:
        return xp.empty(0, x.dtype)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    count = math.comb(x.size + r - 1, r) if with_replacement and x.size else math.comb(x.size, r)
    shape_from((count, r), 8)
    places = np.fromiter(itertools.chain.from_iterable(choose(range(x.size), r)), np.int64, count * r)
    return x[places].reshape(count, r)


@operation(method=False, fails="blocks of tensors, the first")
def block_diag(xp: Module, *tensors: Array) -> Array:
    """A matrix with the tensors as blocks on its diagonal, zeros elsewhere; one axis is a row.

    Raises InvalidArgument: no tensors, or more than two axes.
    """
    if not tensors or any(a.ndim > 2 for a in tensors):
        raise InvalidArgument(f"block_diag of shapes {[a.shape for a in tensors]}; give tensors of at most two axes")
    blocks = [xp.atleast_2d(a) for a in tensors]
    kind = np.result_type(*[a.dtype for a in tensors])
    shape, _ = shape_from((sum(len(a) for a in blocks), sum(a.shape[1] for a in blocks)), kind.itemsize)
    made = xp.zeros(shape, kind)
    row = column = 0
    for a in blocks:
        made[row : row + len(a), column : column + a.shape[1]] = a
        row, column = row + len(a), column + a.shape[1]
    return made


@operation(fails="diagonal {offset} of")
def diagflat(xp: Module, x: Array, /, offset: int = 0) -> Array:
    """A matrix with all elements on a diagonal, zeros elsewhere. Raises InvalidArgument: it would be too large."""
    side = x.size + abs(index_of(offset))
    shape_from((side, side), x.itemsize)
    return xp.diagflat(x, index_of(offset))


@operation(method=False, fails="powers of")
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


@operation(method=False, fails="edges of {pad} around")
def constant_pad_nd(xp: Module, x: Array, /, pad: Sequence[int], value: Any = 0) -> Array:
    """The tensor with so many elements before and after, of the last axis first; negative numbers take some away.

    Raises InvalidArgument: not two numbers for each axis, or more taken away than there are.
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
