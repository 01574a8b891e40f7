"""Combining several tensors, and padding one, against NumPy and itertools."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from layouts import memory_of_its_own, same

import shmtensor as st
from shmtensor.errors import InvalidArgument


def test_products_of_sets():
    a, b, c = [1, 2], [3, 4, 5], [6]
    found = st.cartesian_prod(st.tensor(a), st.tensor(b), st.tensor(c))
    assert found.tolist() == [list(row) for row in itertools.product(a, b, c)]
    x = st.tensor(a)
    same(st.cartesian_prod(x), np.array(a))
    assert st.cartesian_prod(x).storage() is x.storage()
    for wrong in ((), (st.ones(2, 2),)):
        with pytest.raises(InvalidArgument):
            st.cartesian_prod(*wrong)


@pytest.mark.parametrize("r", [0, 1, 2, 3, 5])
def test_combinations(r):
    a = [7, 3, 5, 9]
    for repeated, choose in ((False, itertools.combinations), (True, itertools.combinations_with_replacement)):
        expected = [list(row) for row in choose(a, r)] if r else []
        found = st.combinations(st.tensor(a), r, repeated)
        assert found.tolist() == expected and found.dtype == st.int64
        assert found.shape == ((len(expected), r) if r else (0,))
    assert st.empty(0).combinations(2, True).shape == (0, 2)
    with pytest.raises(InvalidArgument):
        st.combinations(st.ones(2, 2))
    with pytest.raises(InvalidArgument):
        st.combinations(st.ones(2), -1)


def test_blocks():
    found = st.block_diag(st.tensor([[1, 2], [3, 4]]), st.tensor([5, 6]), st.tensor(7.0), st.empty(0, 1))
    expected = np.zeros((4, 6), np.float32)
    expected[:2, :2], expected[2, 2:4], expected[3, 4] = [[1, 2], [3, 4]], [5, 6], 7
    np.testing.assert_array_equal(found.numpy(), expected)
    for wrong in ((), (st.ones(1, 1, 1),)):
        with pytest.raises(InvalidArgument):
            st.block_diag(*wrong)


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_flat_diagonals(offset):
    a = np.arange(4.0).reshape(2, 2)
    same(st.from_numpy(a).diagflat(offset), np.diagflat(a, offset))
    with pytest.raises(InvalidArgument):
        st.diagflat(st.ones(2), 2**40)


def test_powers():
    a = np.array([1.0, 2, 3])
    same(st.vander(st.tensor(a)), np.vander(a))
    same(st.vander(st.tensor(a), 2, increasing=True), np.vander(a, 2, True))
    same(st.vander(st.tensor([2, 3], dtype="int8"), N=4), np.vander([2, 3], 4))
    assert st.vander(st.ones(2)).dtype == st.float32 and st.vander(st.ones(2), 0).shape == (2, 0)
    for wrong in ((st.ones(1, 1),), (st.ones(2), -1)):
        with pytest.raises(InvalidArgument):
            st.vander(*wrong)


def test_edges():
    a = np.arange(6.0).reshape(2, 3)
    x = st.from_numpy(a)
    same(st.constant_pad_nd(x, (1, 2), 9), np.pad(a, ((0, 0), (1, 2)), constant_values=9))
    same(st.constant_pad_nd(x, (0, 1, 2, 0)), np.pad(a, ((2, 0), (0, 1))))
    same(st.constant_pad_nd(x, (-1, 1, 0, -1), -1), np.array([[1, 2, -1.0]]))
    memory_of_its_own(st.constant_pad_nd(x, ()), x)
    for wrong in ((1,), (1, 1) * 3, (-2, -2)):
        with pytest.raises(InvalidArgument):
            st.constant_pad_nd(x, wrong)
