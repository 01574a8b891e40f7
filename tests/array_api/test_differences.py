"""`diff` of the standard."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, same, tensor_of

from shmtensor import array_api as xp
from shmtensor.errors import IndexOutOfRange, InvalidArgument


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("0-d", "empty")])
def test_diff(layout):
    t = tensor_of(layout, "float64")
    a = t.numpy()
    same(xp.diff(t), np.diff(a))
    for axis in (0, 1, -2):
        for n in (0, 1, 2):
            same(xp.diff(t, axis=axis, n=n), np.diff(a, n, axis))
            same(xp.diff(t, axis=axis, n=n, prepend=t, append=t), np.diff(a, n, axis, a, a))
    with pytest.raises(IndexOutOfRange):
        xp.diff(t, axis=2)
    with pytest.raises(InvalidArgument):
        xp.diff(t, n=-1)
    with pytest.raises(TypeError):
        xp.diff(t, 1)
