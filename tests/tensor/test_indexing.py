"""Indices of elements, triangles and flat positions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument


def test_elements_along_an_axis():
    a = np.arange(12.0).reshape(3, 4)[::-1].copy()
    x = st.from_numpy(a)
    order = x.argsort(0)
    same(x.take_along_dim(order, 0), np.sort(a, 0))
    same(st.take_along_dim(x, order.to("int32"), dim=-2), np.sort(a, 0))
    same(x.take_along_dim(st.tensor([[0], [1], [3]]), 1), a[[0, 1, 2], [0, 1, 3]][:, None])
    same(x.take_along_dim(st.tensor([[2, 0]]), 1), a[:, [2, 0]])  # the indices broadcast
    same(st.take_along_dim(x[:1], st.zeros(5, 2, dtype="int64"), 1), np.full((5, 2), a[0, 0]))  # the tensor does
    same(x.take_along_dim(st.tensor([5, 0])), a.reshape(-1)[[5, 0]])
    out = st.empty(2, dtype="float64")
    assert st.take_along_dim(x, st.tensor([1, 2]), out=out) is out and out.tolist() == [9, 10]
    with pytest.raises(IndexOutOfRange):
        x.take_along_dim(st.tensor([[4]]), 1)
    with pytest.raises(IndexOutOfRange):
        x.take_along_dim(order, 2)
    for wrong in (st.zeros(3, dtype="int64"), st.zeros(2, 1, dtype="int64")):
        with pytest.raises(InvalidArgument):
            x.take_along_dim(wrong, 1)
    with pytest.raises(DTypeError):
        x.take_along_dim(st.zeros(3, 1), 1)


def test_flat_positions():
    at = np.array([[0, 7], [11, 5]], np.int32)
    for found, expected in zip(st.unravel_index(st.tensor(at), (3, 4)), np.unravel_index(at, (3, 4)), strict=True):
        same(found, expected)
    assert st.unravel_index(st.tensor(5), 7)[0].item() == 5
    assert st.unravel_index(st.tensor(0), ()) == ()
    with pytest.raises(DTypeError):
        st.unravel_index(st.ones(2), (2,))
    with pytest.raises(InvalidArgument):
        st.unravel_index(st.tensor(1), (-2,))


@pytest.mark.parametrize("offset", [-2, 0, 1, 9])
@pytest.mark.parametrize("sizes", [(3, 4), (4, 2), (0, 3)])
def test_indices_of_triangles(sizes, offset):
    same(st.tril_indices(*sizes, offset), np.stack(np.tril_indices(sizes[0], offset, sizes[1])))
    found = st.triu_indices(*sizes, offset, dtype="int32")
    same(found, np.stack(np.triu_indices(sizes[0], offset, sizes[1])).astype(np.int32))


def test_what_has_no_triangle():
    for wrong in (lambda: st.tril_indices(-1, 2), lambda: st.triu_indices(2, -1), lambda: st.tril_indices(2, 2.5)):
        with pytest.raises(InvalidArgument):
            wrong()


def test_so_many_that_are_not_zero():
    x = st.tensor([[0, 3], [4, 5]])
    assert st.nonzero_static(x, size=2).tolist() == [[0, 1], [1, 0]]
    assert x.nonzero_static(size=4, fill_value=7).tolist() == [[0, 1], [1, 0], [1, 1], [7, 7]]
    assert x.nonzero_static(size=0).shape == (0, 2)
    with pytest.raises(InvalidArgument):
        x.nonzero_static(size=-1)
