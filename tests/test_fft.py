"""Fourier transforms against NumPy's, on every layout, in the precision of their argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor import fft

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")
REAL = ("rfft", "ihfft", "rfftn")


def test_every_function_has_a_case():
    assert {*ONE, *MANY, "fftfreq", "rfftfreq", "fftshift", "ifftshift"} == set(fft.__all__)


@pytest.mark.parametrize("layout", ["dense", "transposed", "backwards", "expanded", "shared view"])
@pytest.mark.parametrize("name", [*ONE, *MANY])
def test_transforms(name, layout):
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    for dtype in ("float32", "float64", "int32", *(() if name in REAL else ("complex64", "complex128"))):
        t = tensor_of(layout, dtype)
        a = t.numpy()
        options: list[dict[str, Any]] = [{}, {"norm": "ortho"}, {"norm": "forward"}]
        options += [{"n": 3, "axis": 0}, {"n": 6}] if name in ONE else [{"axes": (0,)}, {"s": (2, 6), "axes": (0, 1)}]
        for how in options:
            same(ours(t, **how), theirs(a, **how), 1e-5)
            memory_of_its_own(ours(t, **how), t)
    if name in MANY:
        same(ours(t.real, s=(4,)), theirs(a.real, s=(4,), axes=(-1,)), 1e-5)


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        same(fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5).astype("float32"))
        same(fft.rfftfreq(n, dtype="float64"), np.fft.rfftfreq(n))
    t = tensor_of("backwards", "float64")
    for axes in (None, 0, -1, (0, 1)):
        same(fft.fftshift(t, axes=axes), np.fft.fftshift(t.numpy(), axes))
        same(fft.ifftshift(fft.fftshift(t, axes=axes), axes=axes), t.numpy())
    assert st.fft is fft
