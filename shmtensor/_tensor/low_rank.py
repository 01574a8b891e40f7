"""The largest singular values of matrices, and principal components. Nothing in this module blocks.

torch approximates them by random projections; here they come from the full decomposition, without randomness.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import InvalidArgument
from ..linalg.decompositions import svd
from .core import Tensor, array_of, index_of
from .dispatch import composed, export
from .elementwise import subtract
from .statistical import mean


class LowRank(NamedTuple):
    """The first q left vectors (..., m, q), singular values (..., q), and right vectors (..., n, q), the columns."""

    U: Tensor
    S: Tensor
    V: Tensor


def _largest(x: Tensor, q: int) -> LowRank:
    u, s, vh = svd(x, full_matrices=False)
    return LowRank(u[..., :q], s[..., :q], vh.mH[..., :q])


def _require(name: str, x: Tensor, q: Any, niter: Any) -> int:
    shape = array_of(x).shape
    if len(shape) < 2:
        raise InvalidArgument(f"{name} of a tensor of shape {shape}; it takes matrices")
    if index_of(q, "q") < 0 or index_of(niter, "niter") < 0:
        raise InvalidArgument(f"{name} with q={q} and niter={niter}; give numbers from 0")
    return index_of(q, "q")


@composed(method=False)
def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> LowRank:  # noqa: N803  # as torch
    """The `q` largest singular values of matrices, and their vectors: `U @ diag(S) @ V.mH` is the nearest of rank q.

    Args:
        A: matrices (..., m, n).
        q: how many; at most as many as there are.
        niter: of torch's approximation; has no effect.
        M: what is subtracted from A first.

    Raises:
        InvalidArgument: not matrices, a negative number.
        DTypeError: integers. LinAlgError: not finite.
    """
    wanted = _require("svd_lowrank", A, q, niter)
    return _largest(A if M is None else subtract(A, M), wanted)


@composed(method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> LowRank:
    """The first `q` principal components of rows of matrices: the columns of `V`; `A @ V` are their coordinates.

    Args:
        A: matrices (..., m, n), of which the rows are data.
        q: how many; default 6, or as many as there are.
        center: the mean of the rows is subtracted first.
        niter: of torch's approximation; has no effect.

    Raises:
        InvalidArgument: not matrices; q negative or more than rows or columns.
        DTypeError: integers. LinAlgError: not finite.
    """
    wanted = _require("pca_lowrank", A, 0 if q is None else q, niter)
    most = min(A.shape[-2:])
    if wanted > most:
        raise InvalidArgument(f"pca_lowrank with q={q} of a tensor of shape {A.shape}; give at most {most}")
    if center:
        A = subtract(A, mean(A, -2, keepdim=True))
    return _largest(A, min(6, most) if q is None else wanted)


__all__ = export(globals())
