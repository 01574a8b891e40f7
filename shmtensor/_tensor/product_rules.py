"""Gradient rules of products of vectors, matrices and tensors. Nothing in this module blocks.

Complex arguments of rules are already conjugated, except in lists of tensors.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from typing import Any

from ..storage.arguments import SEQUENCES
from .core import Tensor, axis_of
from .creation import eye
from .einsums import einsum

Shape = tuple[int, ...]

# -- matrices ----------------------------------------------------------------------------------------------------------


def scaled(g: Tensor, factor: Any) -> Tensor:
    """`factor * g`, without a copy where the factor is 1."""
    return g if type(factor) in (int, float) and factor == 1 else g * factor


def of_first_factor(g: Tensor, x1_shape: Shape, x2: Tensor) -> Tensor:
    """Of `matmul`, with regard to the first operand. The second may be an array."""
    if x2.ndim == 1:
        return g * x2 if len(x1_shape) == 1 else g.unsqueeze(-1) * x2
    if len(x1_shape) == 1:
        return (x2 @ g.unsqueeze(-1)).squeeze(-1)
    return g @ x2.swapaxes(-1, -2)


def of_second_factor(g: Tensor, x1: Tensor, x2_shape: Shape) -> Tensor:
    """Of `matmul`, with regard to the second operand. The first may be an array."""
    if x1.ndim == 1:
        return g * x1 if len(x2_shape) == 1 else g.unsqueeze(-2) * x1.reshape(-1, 1)
    if len(x2_shape) == 1:
        return (x1.swapaxes(-1, -2) @ g.unsqueeze(-1)).squeeze(-1)
    if len(x2_shape) == 2 and x1.ndim > 2:  # one product of long matrices, rather than a sum of many
        rows = math.prod(x1.shape[:-1])
        x1, g = x1.reshape(rows, x1.shape[-1]), g.reshape(rows, g.shape[-1])
    return x1.swapaxes(-1, -2) @ g


def of_factors(g: Tensor, matrices: Any, multiply: Callable[..., Tensor]) -> list[Tensor]:
    """Of a product of several matrices, of which the first and the last may be vectors."""
    parts, shapes = [one.conj() for one in matrices], [one.shape for one in matrices]
    parts[0], parts[-1] = _as_matrix(parts[0], 0), _as_matrix(parts[-1], 1)
    g = g.reshape(parts[0].shape[0], parts[-1].shape[1])
    turned = [one.mT for one in parts]
    return [multiply(*turned[:i][::-1], g, *turned[i + 1 :][::-1]).reshape(shape) for i, shape in enumerate(shapes)]


def _as_matrix(x: Tensor, axis: int) -> Tensor:
    return x if x.ndim == 2 else x.unsqueeze(axis)


# -- sums of products --------------------------------------------------------------------------------------------------


def of_vecdot(g: Tensor, x: Tensor, y: Tensor, dim: int, axis: int | None) -> tuple[Tensor, Tensor]:
    """Of `vecdot`, of which the first operand is conjugated."""
    along = dim if axis is None else axis
    along = along if along < 0 else along - x.ndim
    g = g.unsqueeze(along)
    return g.conj() * y.conj(), g * x.conj()


def of_inner(g: Tensor, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Of `inner`."""
    if not x.ndim or not other.ndim:
        return g * other, g * x
    rows, others = x.reshape(-1, x.shape[-1]), other.reshape(-1, other.shape[-1])
    made = g.reshape(rows.shape[0], others.shape[0])
    return (made @ others).reshape(x.shape), (made.mT @ rows).reshape(other.shape)


def of_kron(g: Tensor, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Of `kron`."""
    ndim = max(x.ndim, other.ndim)
    if not ndim:
        return g * other, g * x
    first, second = ([*[1] * (ndim - one.ndim), *one.shape] for one in (x, other))
    parts = g.reshape([size for pair in zip(first, second, strict=True) for size in pair])
    x_parts = x.reshape([size for n in first for size in (n, 1)])
    other_parts = other.reshape([size for n in second for size in (1, n)])
    even, odd = tuple(range(0, 2 * ndim, 2)), tuple(range(1, 2 * ndim, 2))
    return (parts * other_parts).sum(odd).reshape(x.shape), (parts * x_parts).sum(even).reshape(other.shape)


def of_tensordot(g: Tensor, x: Tensor, b: Tensor, dims: Any, axes: Any) -> tuple[Tensor, Tensor]:
    """Of `tensordot`."""
    over = dims if axes is None else axes
    if hasattr(over, "tolist"):
        over = over.tolist() if over.size != 1 else over.item()
    if isinstance(over, int):
        pairs = [(x.ndim - over + i, i) for i in range(over)]
    else:
        first, second = [one if isinstance(one, SEQUENCES) else [one] for one in over]
        pairs = [(axis_of(x, i), axis_of(b, j)) for i, j in zip(first, second, strict=True)]
    names = string.ascii_letters
    mine, theirs = list(names[: x.ndim]), list(names[x.ndim : x.ndim + b.ndim])
    kept = "".join(
        [*[one for i, one in enumerate(mine) if i not in {i for i, _ in pairs}],
         *[one for j, one in enumerate(theirs) if j not in {j for _, j in pairs}]]
    )  # fmt: skip
    for i, j in pairs:
        theirs[j] = mine[i]
    x_shape, b_shape = x.shape, b.shape
    for i, j in pairs:  # an axis of size 1 goes with one of any size
        if x_shape[i] != b_shape[j]:
            x, b = (x.sum(i, keepdim=True), b) if b_shape[j] == 1 else (x, b.sum(j, keepdim=True))
    of_x = einsum(f"{kept},{''.join(theirs)}->{''.join(mine)}", g, b)
    of_b = einsum(f"{kept},{''.join(mine)}->{''.join(theirs)}", g, x)
    return of_x.expand(x_shape), of_b.expand(b_shape)


def of_trace(g: Tensor, x_shape: Shape, offset: int = 0) -> Tensor:
    """Of `trace`, and of `linalg.trace` of stacks."""
    return g.unsqueeze(-1).unsqueeze(-1) * eye(*x_shape[-2:], k=offset, dtype=g.dtype)
