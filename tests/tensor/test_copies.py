"""Copies of views: the values of the view, in memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import memory_of_its_own, same

import shmtensor as st
from shmtensor._tensor import copies
from shmtensor.errors import IndexOutOfRange, InvalidArgument

A = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
Z = (A + 1j).astype(np.complex64)
CASES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "alias_copy": ((), A),
    "as_strided_copy": (((2, 2), (4, 1), 1), np.array([[1, 2], [5, 6]], np.float32)),
    "detach_copy": ((), A),
    "diagonal_copy": ((0, 1, 2), A[0].diagonal()[None]),
    "expand_copy": (((2, -1, 4),), np.broadcast_to(A, (2, 3, 4))),
    "narrow_copy": ((1, 1, 2), A[:, 1:3]),
    "permute_copy": (((2, 0, 1),), A.transpose(2, 0, 1)),
    "select_copy": ((1, -1), A[:, -1]),
    "slice_copy": ((2, 0, -1, 2), A[:, :, 0:-1:2]),
    "split_copy": ((2, 1), (A[:, :2], A[:, 2:])),
    "split_with_sizes_copy": (([1, 2], 1), (A[:, :1], A[:, 1:])),
    "squeeze_copy": ((), A[0]),
    "t_copy": ((), A[0].T),
    "transpose_copy": ((1, 2), A.swapaxes(1, 2)),
    "unbind_copy": ((1,), (A[:, 0], A[:, 1], A[:, 2])),
    "unfold_copy": ((2, 2, 2), A.reshape(1, 3, 2, 2)),
    "unsqueeze_copy": ((0,), A[None]),
    "view_copy": (((4, 3),), A.reshape(4, 3)),
}  # fmt: skip
SOURCES = {"t_copy": A[0]}


def test_every_function_has_a_case():
    assert set(CASES) == set(copies.__all__)


@pytest.mark.parametrize("name", CASES)
def test_a_copy_has_the_values_of_the_view_and_its_own_memory(name):
    arguments, expected = CASES[name]
    x = st.tensor(SOURCES.get(name, A))
    found = getattr(st, name)(x, *arguments)
    several = isinstance(expected, tuple)
    assert isinstance(found, tuple) is several
    for one, other in zip(found if several else [found], expected if several else [expected], strict=True):
        same(one, np.ascontiguousarray(other))
        memory_of_its_own(one, x)
        assert one.is_contiguous()


@pytest.mark.parametrize("name", CASES)
def test_out_gets_the_copy(name):
    arguments, expected = CASES[name]
    x = st.tensor(SOURCES.get(name, A))
    if isinstance(expected, tuple):
        into = [st.empty(one.shape) for one in expected]
        assert getattr(st, name)(x, *arguments, out=into) is None
        for one, other in zip(into, expected, strict=True):
            same(one, other)
    else:
        out = st.empty(expected.shape, dtype=expected.dtype)
        assert getattr(st, name)(x, *arguments, out=out) is out
        same(out, expected)
        with pytest.raises(InvalidArgument, match=name):
            getattr(st, name)(x, *arguments, out=st.empty(7, dtype=expected.dtype))


def test_errors_are_those_of_the_view():
    with pytest.raises(IndexOutOfRange):
        st.transpose_copy(st.ones(2), 0, 1)
    with pytest.raises(InvalidArgument, match="step"):
        st.slice_copy(st.ones(4), 0, 0, 4, 0)
    assert st.ones(3).narrow_copy(0, 1, 2).shape == (2,)
