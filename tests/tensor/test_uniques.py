"""Unique values and runs of equal ones, against NumPy and plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange

ROWS = np.array([[2, 1], [0, 5], [2, 1], [0, 4]])


def test_different_values():
    x = st.tensor(ROWS)
    same(st.unique(x), np.unique(ROWS))
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    same(values[inverse], ROWS)
    assert inverse.shape == ROWS.shape and counts.tolist() == [2, 2, 2, 1, 1]
    _, counts = st.unique(x, return_counts=True)
    assert counts.tolist() == [2, 2, 2, 1, 1]
    assert len(st.unique(st.tensor([float("nan")] * 2))) == 2
    assert st.unique(st.tensor([True, False, True])).tolist() == [False, True]
    assert st.unique(st.empty(0)).shape == (0,)


def test_different_parts():
    x = st.tensor(ROWS)
    values, inverse, counts = st.unique(x, True, True, True, dim=0)
    assert values.tolist() == [[0, 4], [0, 5], [2, 1]]
    assert inverse.tolist() == [2, 1, 2, 0] and counts.tolist() == [1, 1, 2]
    same(x.t().unique(dim=-1), np.unique(ROWS.T, axis=1))
    values, inverse, counts = st.unique(st.empty(0, 3), True, True, True, dim=0)
    assert values.shape == (0, 3) and inverse.shape == counts.shape == (0,)
    with pytest.raises(IndexOutOfRange):
        x.unique(dim=2)
    with pytest.raises(DTypeError, match="order"):
        st.unique(st.ones(2, dtype="complex64"))


def test_runs():
    a = [1, 1, 2, 2, 2, 1, 3]
    groups = [(key, len(list(group))) for key, group in itertools.groupby(a)]
    values, inverse, counts = st.unique_consecutive(st.tensor(a), return_inverse=True, return_counts=True)
    assert values.tolist() == [key for key, _ in groups] and counts.tolist() == [n for _, n in groups]
    assert inverse.tolist() == [0, 0, 1, 1, 1, 2, 3]
    assert values.dtype == inverse.dtype == counts.dtype == st.int64
    square = st.tensor([[1, 1], [1, 2]])
    assert square.unique_consecutive().tolist() == [1, 2]
    assert square.unique_consecutive(return_inverse=True)[1].tolist() == [[0, 0], [0, 1]]
    assert st.unique_consecutive(st.empty(0), return_counts=True)[1].tolist() == []


def test_runs_of_parts():
    x = st.tensor([[1, 2], [1, 2], [1, 3], [1, 2]])
    values, inverse, counts = x.unique_consecutive(True, True, dim=0)
    assert values.tolist() == [[1, 2], [1, 3], [1, 2]]
    assert inverse.tolist() == [0, 0, 1, 2] and counts.tolist() == [2, 1, 1]
    assert x.t().unique_consecutive(dim=1).tolist() == [[1, 1, 1], [2, 3, 2]]
    with pytest.raises(IndexOutOfRange):
        x.unique_consecutive(dim=2)
