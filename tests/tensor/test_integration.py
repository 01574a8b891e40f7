"""Integrals and gradients against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor.errors import IndexOutOfRange, InvalidArgument

A = np.array([[1.0, 4, 9, 7], [2, 2, 5, 1], [0, 3, 3, 8]])
X = np.array([0.0, 1, 3, 3.5])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_integrals(dim):
    y = st.from_numpy(A)
    x = X[: A.shape[dim]]
    same(st.trapezoid(y, dim=dim), np.trapezoid(A, axis=dim))
    same(st.trapz(y, dx=0.5, dim=dim), np.trapezoid(A, dx=0.5, axis=dim))
    same(st.trapezoid(y, st.tensor(x), dim=dim), np.trapezoid(A, x, axis=dim))
    points = np.cumsum(A, axis=dim)
    same(st.trapezoid(y, st.tensor(points), dim=dim), np.trapezoid(A, points, axis=dim))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_integrals_up_to_each_value(dim):
    y = st.from_numpy(A)
    x = X[: A.shape[dim]]
    parts = [np.trapezoid(A.take(range(i), dim), x[:i], axis=dim) for i in range(2, A.shape[dim] + 1)]
    same(st.cumulative_trapezoid(y, st.tensor(x), dim=dim), np.stack(parts, dim))
    parts = [np.trapezoid(A.take(range(i), dim), dx=2, axis=dim) for i in range(2, A.shape[dim] + 1)]
    same(st.cumulative_trapezoid(y, dx=2, dim=dim), np.stack(parts, dim))


def test_integrals_of_integers_and_of_nothing():
    assert st.trapezoid(st.tensor([1, 2])).dtype == st.float32
    assert st.trapezoid(st.tensor([1, 2])).item() == 1.5
    assert st.trapezoid(st.tensor([1, 2]), st.tensor([3, 5])).item() == 3
    assert st.cumulative_trapezoid(st.tensor([1, 2, 4])).tolist() == [1.5, 4.5]
    low = st.tensor([1, 3], dtype="uint8")
    assert st.trapezoid(low, low.flip(0)).item() == 124  # integers are subtracted as integers, as torch does it
    assert st.trapezoid(st.empty(3, 0)).tolist() == [0, 0, 0]
    assert st.cumulative_trapezoid(st.empty(3, 0)).shape == (3, 0)
    with pytest.raises(InvalidArgument, match="as many"):
        st.trapezoid(st.ones(3), st.ones(2))
    with pytest.raises(IndexOutOfRange):
        st.trapezoid(st.ones(3), dim=1)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradients(edge_order):
    x = st.from_numpy(A)
    for found, expected in zip(
        st.gradient(x, edge_order=edge_order), np.gradient(A, edge_order=edge_order), strict=True
    ):
        same(found, expected)
    (found,) = st.gradient(x, spacing=0.5, dim=-1, edge_order=edge_order)
    same(found, np.gradient(A, 0.5, axis=1, edge_order=edge_order))
    first, second = st.gradient(x, spacing=[2, st.tensor(X)], dim=(0, 1), edge_order=edge_order)
    same(first, np.gradient(A, 2, axis=0, edge_order=edge_order))
    same(second, np.gradient(A, X, axis=1, edge_order=edge_order))


def test_gradients_of_other_types():
    assert st.gradient(st.tensor([1, 4, 9]))[0].tolist() == [3, 4, 5]
    assert st.gradient(st.tensor([1, 4]))[0].dtype == st.float32
    assert st.gradient(st.ones(3, dtype="complex64"), spacing=None)[0].dtype == st.complex64
    with pytest.raises(InvalidArgument, match="one for each"):
        st.gradient(st.ones(3, 3), spacing=[1.0])
    with pytest.raises(InvalidArgument, match="edge_order"):
        st.gradient(st.ones(3), edge_order=3)
    with pytest.raises(InvalidArgument):
        st.gradient(st.ones(1))
    with pytest.raises(IndexOutOfRange):
        st.gradient(st.ones(3), dim=1)


def test_gradient_of_integers_is_computed_in_double():
    same(st.gradient(st.tensor([200, 10, 5], dtype="uint8"))[0], np.array([-190, -97.5, -5], "f4"))
    same(st.gradient(st.tensor([2**24 + 1, 2**24 + 3, 2**24 + 7]))[0], np.array([2, 3, 4], "f4"))
    same(st.gradient(st.tensor([2**62, -(2**62)]))[0], np.array([-(2.0**63)] * 2, "f4"))
    points = st.tensor([200, 10, 5], dtype="uint8")
    same(st.gradient(st.tensor([0, 190, 195]), spacing=(points,))[0], np.array([-1, -1, -1], "f4"))
