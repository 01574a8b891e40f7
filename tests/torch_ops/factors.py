"""Factors of matrices that are not unique: their product is compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ops.comparing import TOLERANCES, Disagreement

AMBIGUOUS = frozenset({"linalg.eig", "linalg.eigh", "linalg.svd", "pca_lowrank", "svd", "svd_lowrank"})
"""Entries of which the database says what can be compared."""
APPROXIMATE = frozenset({"svd_lowrank"})
"""Of these torch's values are only near."""


def check(name: str, sample: Any, found: Any) -> None:
    """Compare the product of the factors with the matrix, where they are all there. Raises Disagreement."""
    matrix = sample.input.detach().resolve_conj().numpy()
    parts = [np.asarray(one.numpy()) for one in found]
    if name in ("linalg.svd", "svd") and parts[0].size and sample.kwargs.get("compute_uv", True):
        u, s, v = parts
        rows = v if name == "linalg.svd" else np.swapaxes(v, -1, -2).conj()
        _near(u[..., : s.shape[-1]] * s[..., None, :] @ rows[..., : s.shape[-1], :], matrix)
    elif name == "svd_lowrank":
        _check_nearest(
            matrix @ np.swapaxes(sample.args[0].resolve_conj().numpy(), -1, -2), sample.kwargs.get("M"), *parts
        )
    elif name == "linalg.eig":
        _near(matrix @ parts[1], parts[1] * parts[0][..., None, :])
    elif name == "linalg.eigh":
        triangle = np.tril if sample.kwargs.get("UPLO", "L") in "lL" else np.triu
        half = triangle(matrix, -1 if triangle is np.tril else 1)
        diagonal = np.einsum("...ii->...i", matrix).real[..., None] * np.eye(matrix.shape[-1], dtype=matrix.dtype)
        _near((half + diagonal + np.swapaxes(half, -1, -2).conj()) @ parts[1], parts[1] * parts[0][..., None, :])


def _check_nearest(matrix: np.ndarray, less: Any, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> None:
    """No product of the rank is nearer to the matrix. torch's is not as near, so that its own values are no measure."""
    matrix = matrix if less is None else matrix - less.numpy()
    error = np.linalg.norm(matrix - (u * s[..., None, :]) @ np.swapaxes(v, -1, -2).conj(), axis=(-2, -1))
    _near(error, np.linalg.norm(np.linalg.svd(matrix, compute_uv=False)[..., s.shape[-1] :], axis=-1))


def _near(product: np.ndarray, matrix: np.ndarray) -> None:
    relative = 10 * TOLERANCES.get(product.dtype.name, (1e-9, 0))[0]
    if matrix.size and np.abs(product - matrix).max() > relative * max(1, np.abs(matrix).max()):
        raise Disagreement(f"the product of the factors differs by {np.abs(product - matrix).max()}")
