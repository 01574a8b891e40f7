"""Distances, covariances and correlations against plain formulas and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor._tensor import distances
from shmtensor.errors import DTypeError, InvalidArgument

RNG = np.random.default_rng(6)
A, B = RNG.normal(size=(2, 5, 3)), RNG.normal(size=(4, 3))
B[1] = A[0, 2]


def norm(apart: np.ndarray, p: float) -> np.ndarray:
    """The p-norm of the last axis, by the formula."""
    return np.linalg.norm(apart.reshape(-1, apart.shape[-1]), p, axis=1).reshape(apart.shape[:-1])


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3.5, float("inf")])
def test_distances(p, monkeypatch):
    expected = norm(A[:, :, None] - B[None, None], p)
    same(st.cdist(st.tensor(A), st.tensor(B), p), expected, 1e-12)
    monkeypatch.setattr(distances, "_AT_ONCE", 30)  # a few rows at a time
    same(st.cdist(st.tensor(np.roll(A, 1, 1)), st.tensor(B), p), np.roll(expected, 1, 1), 1e-12)
    pairs = [norm(B[i] - B[j][None], p)[0] for i in range(4) for j in range(i + 1, 4)]
    same(st.pdist(st.tensor(B), p), np.array(pairs), 1e-12)


def test_no_distances():
    assert st.cdist(st.empty(0, 3), st.empty(2, 3)).shape == (0, 2)
    assert st.cdist(st.empty(2, 0), st.empty(3, 0)).tolist() == [[0] * 3] * 2
    assert st.cdist(st.empty(2, 0), st.empty(3, 0), float("inf")).tolist() == [[0] * 3] * 2
    assert st.pdist(st.ones(1, 3)).shape == (0,)
    with pytest.raises(DTypeError, match="int64"):
        st.cdist(st.tensor([[1]]), st.ones(1, 1))
    for wrong in (
        lambda: st.cdist(st.ones(2), st.ones(2, 2)),
        lambda: st.cdist(st.ones(2, 2), st.ones(2, 3)),
        lambda: st.cdist(st.ones(2, 2), st.ones(2, 2), -1),
        lambda: st.cdist(st.ones(2, 2, 2), st.ones(3, 2, 2)),
        lambda: st.pdist(st.ones(2)),
    ):
        with pytest.raises(InvalidArgument):
            wrong()


@pytest.mark.parametrize("correction", [0, 1])
def test_covariances(correction):
    x, often, much = st.tensor(B), np.array([1, 2, 3]), np.array([0.5, 1, 0.25])
    for fweights, aweights in ((None, None), (often, None), (None, much), (often, much)):
        found = x.cov(
            correction=correction,
            fweights=None if fweights is None else st.tensor(fweights),
            aweights=None if aweights is None else st.tensor(aweights),
        )
        same(found, np.cov(B, ddof=correction, fweights=fweights, aweights=aweights), 1e-12)
    z = B + 1j * B[::-1]
    same(st.cov(st.tensor(z), correction=correction), np.cov(z, ddof=correction), 1e-12)
    same(st.cov(x[0], correction=correction), np.cov(B[0], ddof=correction), 1e-12)


def test_covariances_of_little():
    assert st.cov(st.tensor([1, 2, 4])).dtype == st.float32
    assert st.cov(st.tensor(3.0), correction=0).item() == 0
    assert np.isnan(st.cov(st.tensor([3.0])).item())
    for how in ({"fweights": st.tensor([1, -1])}, {"aweights": st.ones(3)}):
        with pytest.raises(InvalidArgument):
            st.cov(st.ones(2), **how)
    with pytest.raises(DTypeError):
        st.cov(st.ones(2), fweights=st.ones(2))
    with pytest.raises(InvalidArgument):
        st.cov(st.ones(1, 2, 3))


def test_correlations():
    same(st.corrcoef(st.tensor(B)), np.corrcoef(B), 1e-12)
    z = B + 1j * B[::-1]
    same(st.tensor(z).corrcoef(), np.corrcoef(z), 1e-12)
    assert st.corrcoef(st.tensor([1.0, 2])).item() == 1
