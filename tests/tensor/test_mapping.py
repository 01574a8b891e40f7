"""Functions of Python over the elements of several tensors."""

from __future__ import annotations

import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError


def test_functions_of_two_and_three_elements():
    t = st.arange(4).view(2, 2).t()
    assert t.map_(st.tensor([10, 20]), lambda a, b: a + b) is t and t.tolist() == [[10, 22], [11, 23]]
    assert t.map2_(st.ones(2, 2), st.tensor(2), lambda a, b, c: a - b * c).tolist() == [[8, 20], [9, 21]]
    with pytest.raises(DTypeError, match="2 elements"):
        t.map_(t, 5)
    with pytest.raises(DTypeError):
        t.map_([1, 2], max)
    with pytest.raises(InvalidArgument):
        t.map_(st.ones(3), max)
    with pytest.raises(LayoutError):
        st.ones(1).expand(3).map_(st.ones(3), max)
