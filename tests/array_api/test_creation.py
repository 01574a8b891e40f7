"""`arange`, `linspace` and `full` with the arguments of the standard, and memory that may be shared."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same

from shmtensor import array_api as xp
from shmtensor.errors import InvalidArgument


def test_arange():
    same(xp.arange(3), np.arange(3))
    same(xp.arange(2, 9, 3), np.arange(2, 9, 3))
    same(xp.arange(5, stop=1, step=-2, dtype=xp.float64, device="cpu"), np.arange(5.0, 1, -2))
    same(xp.arange(1.5), np.arange(1.5, dtype="float32"))
    assert xp.arange(3, shared=True).is_shared()


def test_linspace():
    for endpoint in (True, False):
        for num in (0, 1, 2, 3, 7):
            for dtype in ("float64", "complex128"):
                made = xp.linspace(-1, 2, num, dtype=dtype, endpoint=endpoint)
                same(made, np.linspace(-1, 2, num, dtype=dtype, endpoint=endpoint))
            whole = xp.linspace(-1, 2, num + 1, dtype="float64")
            assert xp.linspace(-1, 2, num, dtype="float64", endpoint=False).tolist() == whole[:-1].tolist()
    assert xp.linspace(0, 1, num=3).dtype == xp.float32
    assert xp.linspace(0, 1j, 3).dtype == xp.complex64
    with pytest.raises(InvalidArgument):
        xp.linspace(0, 1, -1)
    with pytest.raises(TypeError):
        xp.linspace(0, 1)


def test_full():
    for value, dtype in ((True, xp.bool), (3, xp.int64), (1.5, xp.float32), (2j, xp.complex64)):
        for shape in (2, (2,)):
            t = xp.full(shape, value)
            assert (t.dtype, t.tolist()) == (dtype, [value] * 2)
        assert xp.full((), value).tolist() == value
    assert xp.full(shape=(1,), fill_value=7, dtype=xp.uint8, device="cpu").dtype == xp.uint8
    assert xp.full((2,), 1, shared=True).is_shared()
    with pytest.raises(InvalidArgument):
        xp.full((2,), 300, dtype=xp.uint8)
