"""Gradient rules of solutions of linear equations, inverses and determinants. Nothing here blocks.

Complex arguments of rules are already conjugated, so that `A.mT` is the adjoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .._tensor.core import Tensor, axis_of
from .._tensor.creation import eye
from .._tensor.reduction_rules import products_of_others
from .pivots import permutation

Solve = Callable[..., Tensor]
Factors = Callable[..., tuple[Tensor, ...]]
Shape = tuple[int, ...]


def of_inverse(g: Tensor, result: Tensor) -> Tensor:
    """Of `inv`."""
    turned = result.mT
    return -(turned @ g @ turned)


def of_solution(g: Tensor, A: Tensor, B: Tensor, result: Tensor, left: bool, solve: Solve) -> tuple[Tensor, Tensor]:
    """Of `solve`: with regard to the matrix, and to the right side."""
    if not left:
        right = solve(A.mT, g, left=False)
        return -(result.mT @ right), right
    if B.ndim == 1 or B.shape == A.shape[:-1]:  # vectors
        column = solve(A.mT, g.unsqueeze(-1))
        return -(column @ result.unsqueeze(-2)), column.squeeze(-1)
    right = solve(A.mT, g)
    return -(right @ result.mT), right


def of_triangular(
    g: Tensor, A: Tensor, result: Tensor, upper: bool, left: bool, turned: bool, unit: bool, solve: Solve
) -> tuple[Tensor, Tensor]:
    """Of `solve_triangular`, with the transpose of the matrix where it is `turned`."""
    is_vector = left and result.ndim == 1
    if is_vector:
        g, result = g.unsqueeze(-1), result.unsqueeze(-1)
    adjoint = A if turned else A.mT
    right = solve(adjoint, g, upper=upper if turned else not upper, left=left, unitriangular=unit)
    made = -(right @ result.mT if left else result.mT @ right)
    if turned:
        made = made.mT
    matrix = made.triu(1 if unit else 0) if upper else made.tril(-1 if unit else 0)
    return matrix, right.squeeze(-1) if is_vector else right


def of_lu_solution(
    g: Tensor, LU: Tensor, pivots: Tensor, B: Tensor, result: Tensor, left: bool, adjoint: bool, lu_solve: Solve
) -> tuple[Tensor, Tensor]:
    """Of `lu_solve`: with regard to both factors in one matrix, and to the right side."""
    LU, found = LU.conj(), result.conj()
    right = lu_solve(LU, pivots, g, left=left, adjoint=not adjoint)
    its, found = (right.unsqueeze(-1), found.unsqueeze(-1)) if B.ndim == 1 else (right, found)
    first, second = (found, its) if left == adjoint else (its, found)
    matrix = first @ second.mH if left else first.mH @ second
    n = LU.shape[-1]
    lower, upper = LU.tril(-1) + eye(n, dtype=LU.dtype), LU.triu()
    turned = -(permutation(pivots, n, LU.dtype).mT @ matrix)
    return (turned @ upper.mH).tril(-1) + (lower.mH @ turned).triu(), right


def of_determinant(g: Tensor, x: Tensor, result: Tensor, inv: Solve, svd: Factors) -> Tensor:
    """Of `det`: by cofactors, and by singular values where it is 0."""
    if not bool((result == 0).any()):
        return (g * result).unsqueeze(-1).unsqueeze(-1) * inv(x).mT
    u, s, vh = svd(x)
    scale = (g * u.det().conj() * vh.det().conj()).unsqueeze(-1).unsqueeze(-1)
    return scale * ((u.conj() * products_of_others(s).unsqueeze(-2)) @ vh.conj())


def of_log_determinant(g: Tensor, x: Tensor, det: Tensor, is_singular: Tensor, inv: Solve, svd: Factors) -> Tensor:
    """Of the logarithm of `det`: infinite where a matrix is singular."""
    if bool(is_singular.any()):
        return of_determinant(g / det.masked_fill(is_singular, 0), x, det.masked_fill(is_singular, 0), inv, svd)
    return g.unsqueeze(-1).unsqueeze(-1) * inv(x).mT


def of_slogdet(g: tuple[Tensor, ...], x: Tensor, result: tuple[Tensor, ...], inv: Solve, svd: Factors) -> Tensor:
    """Of `slogdet`."""
    sign, size = result
    scale = g[1] + 1j * (g[0] * sign).imag if x.is_complex() else g[1]
    return of_log_determinant(scale, x, sign * size.exp(), sign == 0, inv, svd)


def of_pseudo_inverse(g: Tensor, x: Tensor, result: Tensor) -> Tensor:
    """Of `pinv`."""
    a, p = x.conj(), result.conj()
    turned, adjoint = g.mH, p.mH
    rows, columns = turned @ p @ adjoint, adjoint @ p @ turned
    return rows - a @ p @ rows + columns - columns @ p @ a - adjoint @ g @ adjoint


def of_least_squares(g: Any, A: Tensor, b: Tensor, result: Any, pinv: Solve) -> tuple[Tensor, Tensor]:
    """Of `lstsq`: of the solution, and of the sums of squares where they are given."""
    a, right, found, mine = A.conj(), b.conj(), result[0].conj(), g[0]
    is_vector = b.ndim == 1 or b.shape == A.shape[:-1]
    if is_vector:
        right, found, mine = right.unsqueeze(-1), found.unsqueeze(-1), mine.unsqueeze(-1)
    inverse = pinv(a)
    of_matrix = of_pseudo_inverse(mine @ right.mH, A, inverse.conj())
    of_right = inverse.mH @ mine
    if result[1].numel():
        apart = 2 * (right - a @ found) * g[1].reshape(*found.shape[:-2], 1, found.shape[-1])
        of_matrix, of_right = of_matrix - apart @ found.mH, of_right + apart
    return of_matrix, of_right.squeeze(-1) if is_vector else of_right


def of_tensor_inverse(g: Tensor, x_shape: Shape, result: Tensor, ind: int) -> Tensor:
    """Of `tensorinv`."""
    n = math.prod(x_shape[:ind])
    return of_inverse(g.reshape(n, n), result.reshape(n, n)).reshape(x_shape)


def of_tensor_solution(
    g: Tensor, A: Tensor, other_shape: Shape, result: Tensor, dims: Any, solve: Solve
) -> tuple[Tensor, Tensor]:
    """Of `tensorsolve`."""
    last = [] if dims is None else [axis_of(A, i) for i in dims]
    order = [*[i for i in range(A.ndim) if i not in last], *last]
    turned = A.permute(*order)
    n = math.prod(other_shape)
    right = solve(turned.reshape(n, n).mT, g.reshape(n, 1))
    matrix = -(right @ result.reshape(1, n))
    return matrix.reshape(turned.shape).permute(*[order.index(i) for i in range(A.ndim)]), right.reshape(other_shape)
