"""Blocks of arrays, and memory for intermediate results."""

import numpy as np
import pytest

from shmtensor.optim import arrays
from shmtensor.optim.arrays import BLOCK, Scratch, coalesced


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("order", ["CC", "FF", "CF"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (1000, 130), (2, 70_000), (100_001,)])
def test_blocks_cover_each_element_once(shape, order, dtype):
    first, second = (np.zeros(shape, dtype, order=one) for one in order)
    scratch = Scratch()
    for _ in range(2):  # the second time, small views are known
        for a, b, s, t in scratch.blocks(2, first, second):
            assert a.shape == b.shape == s.shape == t.shape
            assert not np.may_share_memory(s, t)
            assert a.dtype.kind == s.dtype.kind == "f"
            s[...], t[...] = 1, 2
            a += s
            b += t
    part = 1 + 1j if dtype is np.complex64 else 1
    assert (first == 2 * part).all()
    assert (second == 4 * part).all()


def test_blocks_are_small_and_share_their_memory():
    a = np.zeros(10 * BLOCK // 8 + 3)
    blocks = list(Scratch().blocks(1, a))
    assert len(blocks) == 11
    assert all(one.nbytes <= BLOCK for one, _ in blocks)
    assert len({spare.ctypes.data for _, spare in blocks}) == 1


def test_views_that_are_kept_have_a_bound(monkeypatch):
    monkeypatch.setattr(arrays, "_VIEWS", 3)
    scratch = Scratch()
    for size in range(10):
        list(scratch.blocks(1, np.zeros(size)))
        assert len(scratch._views) <= 3


def test_rows_of_sparse_gradients_are_added():
    indices, values = coalesced(np.array([4, 0, 4, 2, 4]), np.arange(10.0).reshape(5, 2))
    assert indices.tolist() == [0, 2, 4]
    assert values.tolist() == [[2, 3], [6, 7], [12, 15]]
    indices, values = coalesced(np.zeros(0, np.int64), np.zeros((0, 2)))
    assert indices.shape == (0,)
    assert values.shape == (0, 2)
