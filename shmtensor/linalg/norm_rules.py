"""Gradient rules of norms of matrices, and of their condition. Nothing here blocks."""

from __future__ import annotations

from typing import Any

from .._tensor.core import Tensor
from .._tensor.norm_rules import of_vector_norm
from ..storage.arguments import SEQUENCES
from .decompositions import svd
from .factor_rules import of_singular_values
from .solver_rules import of_inverse
from .solvers import inv


def of_matrix_norm(g: Tensor, x: Tensor, result: Tensor, ord: Any, dim: Any) -> Tensor:
    """Of `matrix_norm`."""
    if ord == "fro":
        return of_vector_norm(g, x, result, 2, dim, None)
    rows, columns = (one % x.ndim for one in dim)
    matrices = x.conj().permute(*[i for i in range(x.ndim) if i not in (rows, columns)], rows, columns)
    return _of_norm(g.reshape(matrices.shape[:-2]), matrices, ord).movedim((-2, -1), (rows, columns))


def of_norm(g: Tensor, x: Tensor, result: Tensor, ord: Any, dim: Any) -> Tensor:
    """Of `linalg.norm`."""
    if dim is None and ord is not None and x.ndim == 2:
        dim = (0, 1)
    if ord is not None and isinstance(dim, SEQUENCES) and len(dim) == 2:
        return of_matrix_norm(g, x, result, ord, dim)
    return of_vector_norm(g, x, result, 2 if ord is None else ord, dim, None)


def _of_norm(g: Tensor, matrices: Tensor, ord: Any) -> Tensor:
    """Of a norm of matrices (..., m, n), which are not conjugated, other than "fro"."""
    if ord in (2, -2, "nuc"):
        u, s, vh = svd(matrices, full_matrices=False)
        of_s = g.unsqueeze(-1)
        return of_singular_values(of_s.expand(s.shape) if ord == "nuc" else of_s * _divided(s, ord > 0), u, vh)
    sums = matrices.abs().sum(-2 if abs(ord) == 1 else -1)
    share = g.unsqueeze(-1) * _divided(sums, ord > 0)
    return matrices.sgn() * share.unsqueeze(-2 if abs(ord) == 1 else -1)


def _divided(values: Tensor, largest: bool) -> Tensor:
    """1 where a value is the largest or the smallest, shared by those that are."""
    mask = values == (values.amax(-1, keepdim=True) if largest else values.amin(-1, keepdim=True))
    return mask / mask.sum(-1, keepdim=True).to(values.dtype)


def of_condition(g: Tensor, x: Tensor, p: Any) -> Tensor:
    """Of `cond`."""
    matrices = x.conj()
    if not x.numel():
        return x.new_zeros(x.shape)
    if p in (None, 2, -2):
        u, s, vh = svd(matrices, full_matrices=False)
        first, last = s.narrow(-1, 0, 1), s.narrow(-1, s.shape[-1] - 1, 1)
        g = g.unsqueeze(-1)
        if p == -2:
            first, last, u, vh = last, first, u.flip(-1), vh.flip(-2)
        zeros = s.new_zeros(s.shape)
        of_s = zeros.slice_scatter(g / last, -1, 0, 1)
        of_s = of_s + zeros.slice_scatter(-g * first / last**2, -1, s.shape[-1] - 1, s.shape[-1])
        return of_singular_values(of_s, u, vh)
    inverse = inv(matrices)
    mine, its = _norm(matrices, p), _norm(inverse, p)
    of_its = _of_norm_or_fro(g * mine, inverse, its, p)
    return _of_norm_or_fro(g * its, matrices, mine, p) + of_inverse(of_its, inverse.conj())


def _norm(matrices: Tensor, p: Any) -> Tensor:
    if p == "nuc":
        return svd(matrices, full_matrices=False)[1].sum(-1)
    if p == "fro":
        return matrices.abs().square().sum((-2, -1)).sqrt()
    sums = matrices.abs().sum(-2 if abs(p) == 1 else -1)
    return sums.amax(-1) if p > 0 else sums.amin(-1)


def _of_norm_or_fro(g: Tensor, matrices: Tensor, result: Tensor, p: Any) -> Tensor:
    if p == "fro":
        return of_vector_norm(g, matrices.conj(), result, 2, (-2, -1), None)
    return _of_norm(g, matrices, p)
