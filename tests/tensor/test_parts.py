"""Views that divide a tensor, and views of real and imaginary parts, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor.errors import IndexOutOfRange, InvalidArgument

CUBE = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("where", [2, [1, 3], [0, 0, 9], [-1]])
@pytest.mark.parametrize(("name", "axis"), [("hsplit", 1), ("vsplit", 0), ("dsplit", 2)])
def test_divided_like_numpy_and_on_the_same_storage(name, axis, where):
    a = np.arange(64.0).reshape(4, 4, 4)
    x = st.from_numpy(a)
    found = getattr(st, name)(x, where)
    expected = getattr(np, name)(a, where)
    assert len(found) == len(expected) and isinstance(found, tuple)
    for one, other in zip(found, expected, strict=True):
        same(one, other)
        assert one.storage() is x.storage()
    assert [part.shape for part in getattr(x, name)(where)] == [part.shape for part in expected]


def test_one_axis_is_split_sideways():
    assert [part.tolist() for part in st.arange(4).hsplit(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("name", "shape"), [("hsplit", ()), ("vsplit", (4,)), ("dsplit", (4, 4)), ("hsplit", (2, 3)), ("vsplit", (3, 2))]
)
def test_what_cannot_be_divided(name, shape):
    with pytest.raises(InvalidArgument, match=name):
        getattr(st, name)(st.zeros(shape), 2)


def test_parts_of_given_sizes():
    x = st.from_numpy(CUBE)
    for split in (st.split_with_sizes, st.unsafe_split_with_sizes):
        first, second = split(x, [1, 3], dim=-1)
        same(first, CUBE[..., :1])
        same(second, CUBE[..., 1:])
        assert second.storage() is x.storage()
    assert [part.shape[1] for part in st.unsafe_split(x, 2, 1)] == [2, 1]
    assert [part.shape[2] for part in x.unsafe_chunk(3, dim=2)] == [2, 2]
    assert [part.shape for part in st.unsafe_chunk(st.zeros(0, 2), 3)] == [(0, 2)] * 3
    with pytest.raises(InvalidArgument, match="add up"):
        x.split_with_sizes([1, 2])
    with pytest.raises(IndexOutOfRange):
        x.split_with_sizes([1, 1], 3)
    with pytest.raises(InvalidArgument):
        x.unsafe_chunk(0)


def test_complex_numbers_as_pairs():
    a = (np.arange(6) + 1j * np.arange(6)[::-1]).astype(np.complex64).reshape(2, 3)
    for z, b in ((st.tensor(a), a), (st.tensor(a).t(), a.T), (st.tensor(a)[:, ::2], a[:, ::2])):
        pairs = st.view_as_real(z)
        same(pairs, np.stack([b.real, b.imag], -1))
        assert pairs.storage() is z.storage() and pairs.dtype == st.float32
        same(st.view_as_complex(pairs), b)
        assert st.view_as_complex(pairs).storage() is z.storage()
    z = st.tensor(a)
    st.view_as_real(z)[0, 0, 1] = 40
    assert z[0, 0].item() == 40j


def test_conjugate_transposes():
    a = np.array([[1 + 2j, 3], [4j, 5]], np.complex64)
    same(st.tensor(a).H, a.conj().T)
    same(st.tensor(a)[None].mH, a.conj().T[None])
    x = st.ones(2, 3)
    assert x.H.storage() is x.mH.storage() is x.storage() and x.H.shape == (3, 2)
    for wrong in (lambda: st.ones(1, 2, 3).H, lambda: st.ones(2).mH):
        with pytest.raises(InvalidArgument):
            wrong()
    assert x.resolve_conj() is x and st.resolve_neg(x) is x


def test_a_sum_undoes_an_expand():
    x = st.from_numpy(CUBE)
    same(x.sum_to_size(3, 1), CUBE.sum(axis=(0, 2), keepdims=True)[0])
    same(x.sum_to_size((1, 4)), CUBE.sum(axis=(0, 1))[None])
    assert x.sum_to_size(2, 3, 4).storage() is x.storage()
    assert st.ones(3, dtype="uint8").sum_to_size(1).dtype == st.int64
    assert st.ones(3).sum_to_size(()).shape == ()
    assert st.tensor(True).sum_to_size(()).dtype == st.int64
    for sizes in ((2, 1), (1, 2, 3, 4), (5,)):
        with pytest.raises(InvalidArgument, match="broadcast"):
            x.sum_to_size(sizes)
