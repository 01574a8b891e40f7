"""`expm1` and `tanh` of complex infinities, NaNs and zeros; NumPy's values elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from layouts import TYPES, close, same, values

import shmtensor as st
from shmtensor import array_api as xp

INF, NAN = math.inf, math.nan
# Of each pair the result; a part that is None may have either sign, or be anything.
EXPM1 = [
    ((0.0, 0.0), (0.0, 0.0)), ((-0.0, 0.0), (0.0, 0.0)), ((-0.0, -0.0), (0.0, -0.0)), ((INF, 0.0), (INF, 0.0)),
    ((-INF, INF), (-1, None)), ((INF, INF), (INF, NAN)), ((-INF, NAN), (-1, None)), ((INF, NAN), (INF, NAN)),
    ((NAN, 0.0), (NAN, 0.0)), ((NAN, 1.0), (NAN, NAN)), ((1.0, INF), (NAN, NAN)), ((INF, 1.0), (INF, INF)),
]  # fmt: skip
TANH = [
    ((INF, 2.0), (1.0, 0.0)), ((INF, -2.0), (1.0, -0.0)), ((-INF, 2.0), (-1.0, 0.0)), ((INF, 1e300), (1.0, 0.0)),
    ((INF, NAN), (1.0, None)), ((0.0, INF), (None, NAN)), ((NAN, 1.0), (NAN, NAN)), ((INF, 0.0), (1.0, 0.0)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "cases"), [(xp.expm1, EXPM1), (xp.tanh, TANH)])
@pytest.mark.filterwarnings("error")
def test_of_what_is_not_finite(function, cases):
    made = function(xp.asarray([complex(*parts) for parts, _ in cases], dtype=xp.complex128))
    for (given, wanted), found in zip(cases, made.tolist(), strict=True):
        for part, want in zip((found.real, found.imag), wanted, strict=True):
            assert want is None or repr(part) == repr(float(want)), (given, wanted, found)


@pytest.mark.parametrize("name", ["expm1", "tanh"])
@pytest.mark.parametrize("dtype", TYPES)
def test_of_numbers(name, dtype):
    a = values((3, 4), dtype)
    made = getattr(xp, name)(xp.asarray(a))
    if a.dtype.kind in "biu":
        assert made.dtype == xp.float32
        close(made.numpy(), getattr(np, name)(a.astype("float32")), 1e-6)
    else:
        same(made, getattr(np, name)(a))
    assert getattr(xp, name)(xp.asarray(a[0, 0])).shape == ()


def test_out():
    out = st.zeros(2)
    assert xp.tanh(st.ones(2), out=out) is out and out.tolist() == st.tanh(st.ones(2)).tolist()
