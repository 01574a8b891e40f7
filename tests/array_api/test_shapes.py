"""`meshgrid` and `squeeze` of the standard."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of

from shmtensor import array_api as xp
from shmtensor.errors import InvalidArgument


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("0-d", "empty")])
@pytest.mark.parametrize("how", [{}, {"indexing": "xy"}, {"indexing": "ij"}])
def test_meshgrid(layout, how):
    t = tensor_of(layout, "float32")
    a = t.numpy()
    ours, theirs = xp.meshgrid(t[0], t[1], t[:, 0], **how), np.meshgrid(a[0], a[1], a[:, 0], **how)
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
        memory_of_its_own(one, t)


def test_squeeze_wants_axes_of_size_1():
    t = xp.zeros((1, 3, 1))
    for axis, shape in ((0, (3, 1)), (-1, (1, 3)), ((0, 2), (3,)), ((), (1, 3, 1))):
        view = xp.squeeze(t, axis)
        assert view.shape == shape and np.may_share_memory(view.numpy(), t.numpy())
    for axis in (1, (0, 1)):
        with pytest.raises(InvalidArgument, match="give axes of size 1"):
            xp.squeeze(t, axis)
    with pytest.raises(TypeError):
        xp.squeeze(t)


def test_roll_has_the_standards_names():
    x = xp.reshape(xp.arange(6), (2, 3))
    same(xp.roll(x, shift=1), np.roll(x.numpy(), 1))
    same(xp.roll(x, (1, -1), axis=(0, 1)), np.roll(x.numpy(), (1, -1), (0, 1)))
    with pytest.raises(TypeError):
        xp.roll(x, shifts=1)


def test_concat_of_what_has_no_axes():
    made = xp.concat([xp.asarray([], dtype=xp.uint8), xp.asarray(0, dtype=xp.uint16)], axis=None)
    assert (made.dtype, made.shape) == (xp.uint16, (1,))
