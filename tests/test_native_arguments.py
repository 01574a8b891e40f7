"""Functions of the native module that are called with arguments of other types or sizes say what they need."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from shmtensor import _native
from shmtensor.manager import client

F8 = np.dtype(np.float64)


def block() -> Any:
    return client.default().allocate(64)


def _copied(change: bytes) -> int:
    """A descriptor of memory that is none of a segment."""
    descriptor = os.memfd_create("test")
    os.write(descriptor, change)
    return descriptor


def _found(content: bytes) -> Any:
    descriptor = _copied(content)
    try:
        return _native.SegmentMetadata.found(descriptor)
    finally:
        os.close(descriptor)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no tensor": (lambda: _native.tensor(), TypeError, "tensor takes 1 to 3 arguments, not 0"),
    "too much for a tensor": (
        lambda: _native.tensor(np.ones(1), None, 0, 0), TypeError, "tensor takes 1 to 3 arguments, not 4"),
    "nothing to allocate": (
        lambda: _native.allocate_tensor(None, F8), TypeError, "allocate_tensor takes 3 arguments, not 2"),
    "default type": (
        lambda: _native.set_default_type("float64"), TypeError, "default type must be a numpy.dtype, not str"),
    "dtype": (lambda: block().array("f8", (2,)), TypeError, "dtype must be a numpy.dtype, not str"),
    "shape": (lambda: block().array(F8, [2]), TypeError, "shape must be a tuple of integers, not list"),
    "objects": (lambda: block().array(np.dtype(object), (2,)), TypeError, "holds Python objects"),
    "too long": (lambda: block().array(F8, (9,)), ValueError, "does not fit in a block of 64 bytes"),
    "random numbers into integers": (
        lambda: _native.Twister(1).uniform(0, 1, np.zeros(3, np.int32)), TypeError, "contiguous array of float64"),
    "random integers into numbers": (
        lambda: _native.Twister(1).integers(5, 0, np.zeros(3)), TypeError, r"int64 \(integers\) is needed"),
    "random numbers into a list": (
        lambda: _native.Twister(1).uniform(0, 1, [0.0]), TypeError, "a bytes-like object is required, not 'list'"),
    "a device": (
        lambda: _native.SegmentMetadata.create("s", 0, 0, 1, 4096, False, b"short"), ValueError,
        "the UUID of a device has 16 bytes"),
    "metadata": (lambda: _found(bytes(1 << 16)), ValueError, "not segment metadata of this layout version"),
    "metadata of nothing": (lambda: _found(b""), ValueError, "not segment metadata of this layout version"),
    "no operation": (lambda: _native.Operation(None, len), TypeError, "needs a form and a function that computes"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        call()


def test_arrays_that_are_refused_random_numbers_are_not_changed() -> None:
    twister, array = _native.Twister(1), np.ones((3, 4), np.float32)
    for given in (array, array[:, ::2], array.astype(np.float64)[:, ::2]):
        with pytest.raises((TypeError, ValueError, BufferError)):
            twister.uniform(0, 1, given)
    assert (array == 1).all()
    assert twister.draw() == _native.Twister(1).draw()  # nor was anything drawn
