"""Histograms against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument

A = np.random.default_rng(3).normal(size=(50,))
WEIGHT = np.arange(50.0)
POINTS = np.random.default_rng(4).normal(size=(40, 2))


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize(
    ("bins", "limits"), [(5, None), (4, (-1.0, 0.5)), (np.array([-2.0, -1, 0.5, 3]), None)], ids=["5", "4", "edges"]
)
def test_one_axis(bins, limits, density):
    ours = bins if isinstance(bins, int) else st.tensor(bins)
    for weight in (None, WEIGHT):
        found = st.histogram(
            st.tensor(A), ours, range=limits, weight=None if weight is None else st.tensor(weight), density=density
        )
        hist, edges = np.histogram(A, bins, limits, density, weight)
        same(found.hist, hist.astype(float), 1e-12)
        same(found.bin_edges, edges, 1e-12)


def test_edges():
    assert st.tensor([0.0, 1, 2]).histogram(2).hist.tolist() == [1, 2]  # the last part has its upper edge
    hist, edges = st.histogram(st.full(3, 5.0), 1)
    assert hist.tolist() == [3] and edges.tolist() == [4.5, 5.5]
    hist, edges = st.histogram(st.empty(0), 2)
    assert hist.tolist() == [0, 0] and edges.tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("bins", [3, [2, 4], [np.array([-1.0, 0, 2]), np.array([-3.0, 3])]], ids=["3", "2 4", "edges"])
def test_several_axes(bins, density):
    ours = [st.tensor(one) for one in bins] if isinstance(bins, list) and isinstance(bins[0], np.ndarray) else bins
    weight = WEIGHT[:40]
    found = st.histogramdd(st.tensor(POINTS), ours, weight=st.tensor(weight), density=density)
    hist, edges = np.histogramdd(POINTS, bins, density=density, weights=weight)
    same(found.hist, hist, 1e-12)
    assert isinstance(found.bin_edges, tuple)
    for one, other in zip(found.bin_edges, edges, strict=True):
        same(one, other, 1e-12)
    found = st.histogramdd(st.tensor(POINTS), 2, range=[-1, 1, 0, 2])
    same(found.hist, np.histogramdd(POINTS, 2, [(-1, 1), (0, 2)])[0])


@pytest.mark.parametrize("how", [
    {"bins": 0}, {"bins": 2, "range": (1, 0)}, {"bins": 2, "range": (0, float("inf"))}, {"bins": 2, "range": (1,)},
    {"bins": 2, "weight": st.ones(3)}, {"bins": st.ones(2, 2)},
])  # fmt: skip
def test_refused(how):
    with pytest.raises(InvalidArgument, match=r"histogram|range"):
        st.histogram(st.ones(2), **how)


def test_refused_tensors():
    with pytest.raises(DTypeError, match="int64"):
        st.histogram(st.tensor([1]), 2)
    with pytest.raises(InvalidArgument, match="two axes"):
        st.histogramdd(st.ones(2), 2)
    with pytest.raises(InvalidArgument, match="as many"):
        st.histogramdd(st.ones(2, 2), [2])


@pytest.mark.filterwarnings("error")
def test_nothing_counted_is_nan_without_a_warning():
    for values in ([], [np.nan, 2.0], [np.inf]):
        found = st.histogram(st.tensor(values, dtype="float32"), 2, range=(0, 1), density=True)
        same(found.hist, np.full(2, np.nan, "f4"))
    same(
        st.histogram(st.tensor([1.0, 2.0]), st.tensor([1.0, 1.0, 3.0]), density=True).hist,
        np.array([np.nan, 0.5], "f4"),
    )
    for values in ([np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(InvalidArgument, match="give finite ones, in order"):
            st.histogram(st.tensor(values), 2)


def test_edges_of_bytes_are_edges():
    points = st.tensor([[0.0, 0.0], [2.0, 1.0]])
    edges = (st.tensor([0, 1, 3], dtype="uint8"), st.tensor([0, 2], dtype="uint8"))
    assert st.histogramdd(points, bins=edges).hist.tolist() == [[1], [1]]
