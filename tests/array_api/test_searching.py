"""`nonzero`, `isin`, `searchsorted`, `equal` and `where` of the standard."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of

from shmtensor import array_api as xp
from shmtensor.errors import DTypeError, InvalidArgument

AXES = [name for name in LAYOUTS if name not in ("0-d", "empty")]


@pytest.mark.parametrize("layout", AXES)
def test_what_is_found(layout):
    t = tensor_of(layout, "float64")
    a = t.numpy()
    found = xp.nonzero(t > 0)
    assert type(found) is tuple and len(found) == 2
    for one, other in zip(found, np.nonzero(a > 0), strict=True):
        same(one, other)
        memory_of_its_own(one, t)
    for side in ("left", "right"):
        same(xp.searchsorted(xp.sort(t[0]), t, side=side), np.searchsorted(np.sort(a[0]), a, side))
        order = xp.argsort(t[0])
        same(xp.searchsorted(t[0], t, side=side, sorter=order), np.searchsorted(a[0], a, side, order.numpy()))
    same(xp.where(t > 0, t, xp.zeros_like(t)), np.where(a > 0, a, 0))
    same(xp.equal(t, t[0]), a == a[0])


def test_nonzero_wants_an_axis():
    with pytest.raises(InvalidArgument, match="without axes"):
        xp.nonzero(xp.asarray(1))


def test_isin_takes_numbers():
    t = xp.asarray([[1, 2], [3, 1]])
    assert xp.isin(t, xp.asarray([1, 3])).tolist() == [[True, False], [True, True]]
    assert xp.isin(t, 1, invert=True).tolist() == [[False, True], [True, False]]
    one = xp.isin(3, t)
    assert (one.shape, one.dtype, one.item()) == ((), xp.bool, True)
    assert not xp.isin(3, xp.asarray([], dtype=xp.uint8)).item()
    with pytest.raises(DTypeError):
        xp.isin("a", t)
