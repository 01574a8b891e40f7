"""svd_lowrank and pca_lowrank: the nearest matrix of a rank, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shmtensor as st

A = np.sin(np.arange(60, dtype=np.float64) ** 2).reshape(10, 6)


@pytest.mark.parametrize("q", [0, 2, 6, 9])
def test_the_nearest_of_a_rank(q: int) -> None:
    u, s, v = st.svd_lowrank(st.from_numpy(A), q=q)
    kept = min(q, 6)
    assert (u.shape, s.shape, v.shape) == ((10, kept), (kept,), (6, kept))
    error = np.linalg.norm(A - (u * s).numpy() @ v.numpy().T)
    assert error == pytest.approx(np.linalg.norm(np.linalg.svd(A)[1][kept:]), abs=1e-9)


def test_less_something() -> None:
    x, less = st.from_numpy(A), st.ones(6, dtype=st.float64)
    np.testing.assert_allclose(st.svd_lowrank(x, 3, M=less).S, np.linalg.svd(A - 1)[1][:3])


def test_principal_components() -> None:
    x = st.from_numpy(np.stack([A, 2 * A]))
    found = st.pca_lowrank(x)
    centred = x.numpy() - x.numpy().mean(1, keepdims=True)
    np.testing.assert_allclose(found.S, np.linalg.svd(centred)[1], atol=1e-9)
    assert found.V.shape == (2, 6, 6)
    np.testing.assert_allclose(st.pca_lowrank(x, q=2, center=False).S, np.linalg.svd(x.numpy())[1][:, :2])


WRONG: list[Any] = [
    lambda: st.pca_lowrank(st.ones(3, 2), q=3), lambda: st.pca_lowrank(st.ones(3, 2), q=-1),
    lambda: st.pca_lowrank(st.ones(3, 2), niter=-1), lambda: st.svd_lowrank(st.ones(3)),
    lambda: st.svd_lowrank(st.ones(3, 2), q=1.5),
]  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(st.errors.InvalidArgument):
        call()
