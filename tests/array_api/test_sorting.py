"""`sort` and `argsort` of the standard: one tensor each, stable, with keywords, on every layout."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor import array_api as xp
from shmtensor.errors import IndexOutOfRange


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "float16", "float64", "complex64"])
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "0-d"])
def test_sort(layout, dtype):
    t = tensor_of(layout, dtype)
    a = t.numpy()
    for axis in (0, 1, -1):
        same(xp.sort(t, axis=axis), np.sort(a, axis))
        same(xp.argsort(t, axis=axis), np.argsort(a, axis, stable=True))
        memory_of_its_own(xp.sort(t, axis=axis), t)
        down, order = xp.sort(t, axis=axis, descending=True), xp.argsort(t, axis=axis, descending=True)
        same(down, np.flip(np.sort(a, axis), axis))
        assert down.is_contiguous()
        same(xp.take_along_axis(t, order, axis=axis), down.numpy())


def test_equal_ones_keep_their_order_without_being_asked():
    t = xp.asarray([2, 1, 2, 1, 2])
    assert xp.argsort(t).tolist() == [1, 3, 0, 2, 4]
    assert xp.argsort(t, descending=True).tolist() == [0, 2, 4, 1, 3]


def test_the_standard_knows_no_axis_of_a_number():
    for function in (xp.sort, xp.argsort):
        with pytest.raises(IndexOutOfRange):
            function(st.tensor(5.0))
        with pytest.raises(TypeError):
            function(st.ones(3), -1)
