"""`solve` and `vector_norm` of the standard."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, close, tensor_of

from shmtensor import array_api as xp
from shmtensor.errors import InvalidArgument


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("0-d", "empty")])
@pytest.mark.parametrize("keepdims", [False, True])
def test_vector_norm(layout, keepdims):
    t = tensor_of(layout, "float64")
    a = t.numpy()
    for axis in (None, 0, -1, (0, 1), (1,), ()):
        for order in (2, 1, 0, np.inf):
            made = xp.linalg.vector_norm(t, axis=axis, keepdims=keepdims, ord=order)
            close(made.numpy(), np.linalg.vector_norm(a, axis=axis, keepdims=keepdims, ord=order))
    assert xp.linalg.vector_norm(t, axis=()).tolist() == xp.abs(t).tolist()


def test_solve_takes_one_axis_as_a_vector():
    a = np.random.default_rng(0).normal(size=(2, 3, 3))
    for b in (np.ones(3), np.ones((3, 2)), np.ones((2, 3, 2)), np.ones((1, 3, 4))):
        made = xp.linalg.solve(xp.asarray(a), xp.asarray(b))
        close(made.numpy(), np.linalg.solve(a, b), 1e-12)
    with pytest.raises(InvalidArgument):
        xp.linalg.solve(xp.asarray(a), xp.ones(4))
