"""Tensors of every layout, for tests that compare functions with NumPy's on all layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

import shmtensor
from shmtensor import Tensor

INTEGERS = ("int8", "int32", "int64", "uint8", "uint32")
REALS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
TYPES = (*INTEGERS, *REALS, *COMPLEX, "bool")


def values(shape: tuple[int, ...], dtype: str, low: float = -3, high: float = 4) -> np.ndarray[Any, Any]:
    """The same numbers in each call, from `low` (0 for unsigned types) to below `high`."""
    rng = np.random.default_rng(len(shape) + sum(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        least = 0 if dtype.startswith("u") and low < 0 else low
        return rng.integers(int(least), int(high) + 1, shape).astype(dtype)
    made = rng.uniform(low, high, shape)
    return (made + 1j * rng.uniform(low, high, shape) if dtype in COMPLEX else made).astype(dtype)


def _shared(array: np.ndarray[Any, Any]) -> Tensor:
    return shmtensor.tensor(array, shared=True)


LAYOUTS = {
    "0-d": ((), shmtensor.tensor),
    "empty": ((0, 3), shmtensor.tensor),
    "dense": ((3, 4), shmtensor.tensor),
    "transposed": ((4, 3), lambda a: shmtensor.tensor(a).t()),
    "gaps": ((6, 8), lambda a: shmtensor.tensor(a)[::2, 1::2]),
    "backwards": ((3, 8), lambda a: shmtensor.tensor(a)[::-1, ::-2]),
    "expanded": ((3, 1), lambda a: shmtensor.tensor(a).expand(3, 4)),
    "read-only": ((1, 3, 4), lambda a: shmtensor.tensor(a).expand(2, 3, 4)[1]),
    "shared": ((3, 4), _shared),
    "shared view": ((2, 3, 4), lambda a: _shared(a).permute(2, 0, 1)[:, 1]),
}
"""For each layout: the shape of the array, and the function that makes the tensor from it."""


def tensor_of(layout: str, dtype: str, low: float = -3, high: float = 4) -> Tensor:
    """A tensor of a layout."""
    shape, make = LAYOUTS[layout]
    return make(values(shape, dtype, low, high))  # type: ignore[no-any-return, no-untyped-call]


def written(t: Tensor) -> bool:
    """Whether the layout can be written to."""
    return bool(t.numpy().flags.writeable)


def close(ours: Any, theirs: Any, near: float = 0) -> None:
    """Fails unless values are equal except for the last digits, which NumPy computes differently for other layouts."""
    a, b = np.asarray(ours), np.asarray(theirs)
    near = max(near, 4 * float(np.finfo(b.dtype).eps) if b.dtype.kind in "fc" else 0)
    assert a.shape == b.shape
    if near:
        np.testing.assert_allclose(a, b, rtol=near, atol=near)
    else:
        np.testing.assert_array_equal(a, b)


def same(ours: Any, theirs: Any, near: float = 0) -> None:
    """Fails unless a tensor has the type, the shape and the values of NumPy's result."""
    assert type(ours) is Tensor
    assert ours.dtype == np.asarray(theirs).dtype
    close(ours.numpy(), theirs, near)


def memory_of_its_own(ours: Tensor, *others: Tensor) -> None:
    """Fails if a result shares memory with a tensor from which it was made."""
    assert not any(np.may_share_memory(ours.numpy(), other.numpy()) for other in others if ours.numel())
