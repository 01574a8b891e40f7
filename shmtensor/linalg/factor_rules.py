"""Gradient rules of decompositions of matrices. Nothing here blocks.

Complex arguments of rules are already conjugated. The rules conjugate them again, so that formulas are those of
textbooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._tensor.core import Tensor
from .._tensor.creation import eye
from .._tensor.joining import concat, stack
from ..errors import NotSupported
from .pivots import permutation
from .solvers import solve, solve_triangular


def _diagonal(x: Tensor) -> Tensor:
    return x.diagonal(0, -2, -1)


def _came(g: Tensor) -> bool:
    """Whether a result was used: otherwise its gradient is zeros, which must not be divided by zeros."""
    return g.requires_grad or bool(g.any())


def _mirrored(x: Tensor) -> Tensor:
    """The Hermitian matrix of which the lower triangle is given."""
    half = x.tril(-1)
    return half + half.mH + _diagonal(x).real.diag_embed()


def of_cholesky(g: Tensor, result: Tensor, upper: bool) -> Tensor:
    """Of `cholesky`."""
    lower = result.conj()
    if upper:
        lower, g = lower.mH, g.mH
    half = (lower.mH @ g).tril()
    middle = (half + half.tril(-1).mH) / 2
    return solve_triangular(lower, solve_triangular(lower.mH, middle, upper=True), upper=False, left=False)


def of_cholesky_solution(
    g: Tensor, b: Tensor, result: Tensor, input2: Tensor, upper: bool, solve: Callable[..., Tensor]
) -> tuple[Tensor, Tensor]:
    """Of `cholesky_solve`."""
    factor, found = input2.conj(), result.conj()
    right = solve(g, factor, upper)
    its, found = (right.unsqueeze(-1), found.unsqueeze(-1)) if b.ndim == 1 else (right, found)
    both = its @ found.mH
    both = both + both.mH
    return right, -(factor @ both) if upper else -(both @ factor)


def of_cholesky_inverse(g: Tensor, factor: Tensor, result: Tensor, upper: bool) -> Tensor:
    """Of `cholesky_inverse`."""
    factor, inverse = factor.conj(), result.conj()
    both = inverse @ (g + g.mH) @ inverse
    return -(factor @ both) if upper else -(both @ factor)


def of_qr(g: Any, x: Tensor, result: Any, mode: str) -> Tensor:
    """Of `qr`; of the complete one too where Q is not larger than in the reduced one."""
    q, r = [one.conj() for one in result]
    of_q, of_r = g
    m, n = x.shape[-2:]
    if mode == "r" or (mode == "complete" and m > n):
        raise NotSupported(
            f"the gradient of qr with mode {mode!r} of a tensor of shape {x.shape}; take the reduced factors"
        )
    if m >= n:
        return _of_tall_qr(of_q, of_r, q, r)
    more = of_r.narrow(-1, m, n - m)
    of_q = of_q + x.conj().narrow(-1, m, n - m) @ more.mH
    first = _of_tall_qr(of_q, of_r.narrow(-1, 0, m), q, r.narrow(-1, 0, m))
    return concat([first, q @ more], -1)


def _of_tall_qr(of_q: Tensor, of_r: Tensor, q: Tensor, r: Tensor) -> Tensor:
    middle = _mirrored(r @ of_r.mH - of_q.mH @ q)
    return solve_triangular(r.mH, of_q + q @ middle, upper=False, left=False)


# -- eigenvalues and singular values -----------------------------------------------------------------------------------


def _apart(values: Tensor) -> Tensor:
    """The differences of the values of columns and rows, and 1 on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + eye(values.shape[-1], dtype=values.dtype)


def _without_diagonal(x: Tensor) -> Tensor:
    return x.tril(-1) + x.triu(1)


def of_singular_values(g: Tensor, u: Tensor, vh: Tensor) -> Tensor:
    """Of singular values alone."""
    return (u * g.unsqueeze(-2)) @ vh


def of_svd(of_u: Tensor, of_s: Tensor, of_vh: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> Tensor:
    """Of singular values and vectors, of which those of singular values count. Factors are not conjugated."""
    k = s.shape[-1]
    u, of_u = u.narrow(-1, 0, k), of_u.narrow(-1, 0, k)
    vh, of_vh = vh.narrow(-2, 0, k), of_vh.narrow(-2, 0, k)
    uses_u, uses_v = _came(of_u), _came(of_vh)
    if not (uses_u or uses_v):
        return of_singular_values(of_s, u, vh)
    of_v = of_vh.mH
    left, right = u.mH @ of_u, vh @ of_v
    left, right = left - left.mH, right - right.mH
    apart = _apart(s) * (s.unsqueeze(-2) + s.unsqueeze(-1))
    apart = _without_diagonal(apart) + eye(k, dtype=s.dtype)
    middle = (left / apart) * s.unsqueeze(-2) + s.unsqueeze(-1) * (right / apart)
    middle = _without_diagonal(middle) + of_s.diag_embed()
    if u.is_complex():
        middle = middle + (_diagonal(left) / (2 * s)).diag_embed()
    made = u @ middle @ vh
    if u.shape[-2] > k and uses_u:
        rest = of_u / s.unsqueeze(-2)
        made = made + (rest - u @ (u.mH @ rest)) @ vh
    if vh.shape[-1] > k and uses_v:
        rest = of_vh / s.unsqueeze(-1)
        made = made + u @ (rest - (rest @ vh.mH) @ vh)
    return made


def of_symmetric(of_values: Tensor, of_vectors: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """Of eigenvalues and eigenvectors of a Hermitian matrix. Vectors are not conjugated."""
    middle = of_values.diag_embed().to(vectors.dtype)
    if _came(of_vectors):
        turned = vectors.mH @ of_vectors
        middle = middle + _without_diagonal((turned - turned.mH) / (2 * _apart(values)))
    return vectors @ middle @ vectors.mH


def of_eigenvalues(g: Tensor, vectors: Tensor) -> Tensor:
    """Of eigenvalues of a Hermitian matrix alone."""
    return (vectors * g.unsqueeze(-2)) @ vectors.mH


def of_eigen(of_values: Tensor, of_vectors: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """Of eigenvalues and normalized eigenvectors of any matrix. They are not conjugated."""
    middle = of_values.diag_embed()
    if _came(of_vectors):
        turned = vectors.mH @ of_vectors
        less = (vectors.mH @ vectors) * _diagonal(turned).real.unsqueeze(-2)
        middle = middle + _without_diagonal((turned - less) / _apart(values).conj())
    return solve(vectors.mH, middle @ vectors.mH)


# -- triangular factors ------------------------------------------------------------------------------------------------


def _parts(both: Tensor) -> tuple[Tensor, Tensor]:
    """L and U, of two factors in one matrix."""
    m, n = both.shape[-2:]
    k = min(m, n)
    lower = both.narrow(-1, 0, k).tril(-1) + eye(m, k, dtype=both.dtype)
    return lower, both.narrow(-2, 0, k).triu()


def of_lu_factors(g: Tensor, both: Tensor, pivots: Tensor) -> Tensor:
    """Of both factors in one matrix, which are given conjugated."""
    lower, upper = _parts(both.conj())
    k = upper.shape[-2]
    of_lower, of_upper = g.narrow(-1, 0, k).tril(-1), g.narrow(-2, 0, k).triu()
    return of_lu(of_lower, of_upper, permutation(pivots, both.shape[-2], both.dtype), lower, upper)


def of_lu(of_lower: Tensor, of_upper: Tensor, order: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Of `lu`. Factors are not conjugated."""
    k, m, n = upper.shape[-2], lower.shape[-2], upper.shape[-1]
    top, square = lower.narrow(-2, 0, k), upper.narrow(-1, 0, k)
    below = top.mH @ of_lower.narrow(-2, 0, k)
    above = of_upper.narrow(-1, 0, k) @ square.mH
    parts = []
    if n > k:
        more = of_upper.narrow(-1, k, n - k)
        below = below - more @ upper.narrow(-1, k, n - k).mH
        parts = [solve_triangular(top.mH, more, upper=True, unitriangular=True)]
    if m > k:
        more = of_lower.narrow(-2, k, m - k)
        above = above - lower.narrow(-2, k, m - k).mH @ more
        parts = [solve_triangular(square.mH, more, upper=False, left=False)]
    middle = below.tril(-1) + above.triu()
    middle = solve_triangular(top.mH, middle, upper=True, unitriangular=True)
    made = solve_triangular(square.mH, middle, upper=False, left=False)
    return order @ concat([made, *parts], -1 if n > k else -2)


def of_unpacked(g: tuple[Tensor, ...], LU_data: Tensor) -> Tensor:  # as lu_unpack
    """Of `lu_unpack`."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    if not g[1].numel() and LU_data.numel():
        return LU_data.new_zeros(LU_data.shape)
    lower, upper = g[1].tril(-1), g[2].triu()
    if n > k:
        lower = concat([lower, lower.new_zeros((*lower.shape[:-1], n - k))], -1)
    if m > k:
        upper = concat([upper, upper.new_zeros((*upper.shape[:-2], m - k, n))], -2)
    return lower + upper


# -- reflectors --------------------------------------------------------------------------------------------------------


def of_reflectors(g: Tensor, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Of the first columns of the product of reflectors, which are below the diagonal of x, conjugated."""
    a, scales = x.conj(), tau.conj()
    m, k = a.shape[-2], scales.shape[-1]
    vectors = a.narrow(-1, 0, k).tril(-1) + eye(m, k, dtype=a.dtype)
    made = [eye(m, g.shape[-1], dtype=a.dtype).expand(g.shape)]  # products of the last ones, from the last
    for i in range(k - 1, -1, -1):
        made.append(_reflected(made[-1], vectors.narrow(-1, i, 1), scales.narrow(-1, i, 1)))
    of_vectors, of_scales = [], []
    for i in range(k):
        v, scale, after = vectors.narrow(-1, i, 1), scales.narrow(-1, i, 1).unsqueeze(-1), made[k - 1 - i]
        row = v.mH @ after
        of_scales.append(-((v @ row).conj() * g).sum((-2, -1)))
        of_vectors.append(-(scale.conj() * (g @ row.mH)) - scale * (after @ (g.mH @ v)))
        g = _reflected(g, v, scales.narrow(-1, i, 1).conj())
    if not k:
        return a.new_zeros(a.shape), scales.new_zeros(scales.shape)
    of_a = concat(of_vectors, -1).tril(-1)
    if a.shape[-1] > k:
        of_a = concat([of_a, of_a.new_zeros((*of_a.shape[:-1], a.shape[-1] - k))], -1)
    return of_a, stack(of_scales, -1)


def _reflected(x: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    return x - scale.unsqueeze(-1) * (v @ (v.mH @ x))
