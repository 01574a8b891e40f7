"""In-place methods: shapes, which change a tensor's view of its storage, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import same

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError

SHAPES: dict[str, tuple[Any, ...]] = {
    "unsqueeze_": (1,), "squeeze_": (), "transpose_": (0, -1), "swapaxes_": (0, 1), "swapdims_": (1, 2),
    "as_strided_": ((3, 2), (1, 3), 1),
}  # fmt: skip


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_another_view_of_the_same_storage(name, shared):
    x = st.tensor(np.arange(12.0).reshape(1, 3, 4), shared=shared)
    storage, expected = x.storage(), getattr(x, name[:-1])(*SHAPES[name])
    assert getattr(x, name)(*SHAPES[name]) is x
    assert (x.shape, x.stride(), x.storage_offset()) == (expected.shape, expected.stride(), expected.storage_offset())
    same(x, expected.numpy())
    assert x.storage() is storage
    x.fill_(1)
    assert expected.min().item() == 1


def test_shapes_stay_after_a_move():
    x = st.arange(6.0).view(2, 3)
    x.t_().share_memory_()
    assert x.tolist() == [[0, 3], [1, 4], [2, 5]] and x.is_shared()
    assert x.unsqueeze_(0).squeeze_(0).t_().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.detach_() is x
    with pytest.raises(IndexOutOfRange):
        x.transpose_(0, 2)
    with pytest.raises(InvalidArgument):
        x.as_strided_((9,), (1,))
    assert x.shape == (2, 3)


def test_values():
    a = np.arange(9.0).reshape(3, 3) + 1
    x = st.from_numpy(a.copy())
    assert x.cumsum_(0) is x
    same(x, a.cumsum(0))
    same(st.from_numpy(a.copy()).cumprod_(1), a.cumprod(1))
    same(st.from_numpy(a.copy()).tril_(-1), np.tril(a, -1))
    same(st.from_numpy(a.copy()).triu_(1), np.triu(a, 1))
    same(st.from_numpy(a.copy()).lerp_(st.zeros(3, 3, dtype="float64"), 0.25), a * 0.75)
    assert st.tensor([100, 100], dtype="int8").cumsum_(0).tolist() == [100, -56]
    with pytest.raises(LayoutError):
        st.ones(1).expand(3).cumsum_(0)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (7, 3), (3, 3, 3)])
def test_diagonals(shape, wrap):
    a = np.zeros(shape)
    np.fill_diagonal(a, 5, wrap)
    x = st.zeros(*shape, dtype="float64")
    assert x.fill_diagonal_(5, wrap) is x
    same(x, a)


def test_what_has_no_diagonal():
    for shape in ((3,), (2, 3, 3)):
        with pytest.raises(InvalidArgument):
            st.zeros(*shape).fill_diagonal_(1)
    with pytest.raises(LayoutError):
        st.zeros(1).expand(3, 3).fill_diagonal_(1)
    assert st.empty(0, 3).fill_diagonal_(1).shape == (0, 3)


def test_functions_of_elements():
    x = st.arange(6).view(2, 3)
    assert x.map_(st.tensor([10, 20, 30]), lambda a, b: a + b) is x
    assert x.tolist() == [[10, 21, 32], [13, 24, 35]]
    x.map2_(x, st.tensor(2), lambda a, b, c: (a - b) * c + 1)
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]
    with pytest.raises(DTypeError, match="function"):
        x.map_(x, 3)
    with pytest.raises(InvalidArgument):
        x.map_(st.ones(2), lambda a, b: a)


def test_negative_powers_in_place_change_nothing_before_they_are_seen():
    x = st.tensor([[1, 5], [-1, 2], [0, 10]])
    powers = st.tensor([[2, 3], [3, 2], [1, -1]])
    expect = [[1, 125], [-1, 4], [0, 0]]
    assert st.pow(x, powers).tolist() == expect
    assert x.pow_(powers).tolist() == expect
