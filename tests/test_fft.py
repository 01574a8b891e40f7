"""Fourier transforms against NumPy's, on every layout, in the precision of their argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor import fft
from shmtensor.errors import DTypeError, InvalidArgument

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn")
TWO = ("fft2", "ifft2", "rfft2", "irfft2")
HERMITIAN = ("hfft2", "ihfft2", "hfftn", "ihfftn")
REAL = ("rfft", "ihfft", "rfftn", "rfft2")


def test_every_function_has_a_case():
    assert {*ONE, *MANY, *TWO, *HERMITIAN, "fftfreq", "rfftfreq", "fftshift", "ifftshift"} == set(fft.__all__)


@pytest.mark.parametrize("layout", ["dense", "transposed", "backwards", "expanded", "shared view"])
@pytest.mark.parametrize("name", [*ONE, *MANY, *TWO])
def test_transforms(name, layout):
    ours, theirs = getattr(fft, name), getattr(np.fft, name)
    for dtype in ("float32", "float64", "int32", *(() if name in REAL else ("complex64", "complex128"))):
        t = tensor_of(layout, dtype)
        a = t.numpy()
        values = a if dtype != "int32" else a.astype("float32")  # integers count as the default type
        options: list[dict[str, Any]] = [{}, {"norm": "ortho"}, {"norm": "forward"}]
        options += [{"n": 3, "axis": 0}, {"n": 6}] if name in ONE else [{"axes": (0,)}, {"s": (2, 6), "axes": (0, 1)}]
        for how in options:
            same(ours(t, **how), theirs(values, **how), 1e-5)
            memory_of_its_own(ours(t, **how), t)
    if name in MANY:
        same(ours(t.real, s=(4,)), theirs(values.real, s=(4,), axes=(-1,)), 1e-5)


@pytest.mark.parametrize("name", ["hfftn", "hfft2"])
def test_hermitian_transforms_of_several_axes(name):
    """hfft along the last axis, after fft along the others; the other way is the inverse."""
    t = tensor_of("dense", "complex64")
    forward, back = getattr(fft, name), getattr(fft, f"i{name}")
    for norm in (None, "ortho", "forward"):
        wanted = np.fft.hfft(np.fft.fft(t.numpy(), axis=-2, norm=norm), axis=-1, norm=norm)
        same(forward(t, dim=(-2, -1), norm=norm), wanted, 1e-4)
        x = t.real
        same(forward(back(x, dim=(-2, -1), norm=norm), s=x.shape[-2:], dim=(-2, -1), norm=norm), x.numpy(), 1e-4)
    with pytest.raises(DTypeError, match="real numbers"):
        back(t)


def test_arguments_as_torch_has_them():
    t = tensor_of("dense", "float64")
    a = t.numpy()
    same(fft.fft(t, 6, 0, "ortho"), np.fft.fft(a, 6, 0, "ortho"))
    same(fft.fftn(t, (2,), -1, "forward"), np.fft.fftn(a, (2,), (-1,), "forward"))
    same(fft.fftn(t, s=(-1, 2)), np.fft.fftn(a, (a.shape[-2], 2), (-2, -1)))
    same(fft.irfftn(t, s=(-1, -1)), np.fft.irfftn(a))
    same(fft.fft2(t, dim=0), np.fft.fft(a, axis=0))
    same(fft.fftn(t[0, 0]), a[0, 0].astype("complex128"))
    same(fft.fftfreq(4, 0.5), np.fft.fftfreq(4, 0.5).astype("float32"))
    same(fft.fftshift(t, 0), np.fft.fftshift(a, 0))
    out = st.empty(a.shape, dtype="complex128")
    assert fft.fft(t, out=out) is out
    same(out, np.fft.fft(a))
    assert fft.fft(st.ones(3, dtype="bool")).dtype == fft.rfft(st.ones(3, dtype="int64")).dtype == np.complex64
    for bad in (
        lambda: fft.fftn(t, dim=(0, 0)), lambda: fft.fftn(t, s=(2,), dim=(0, 1)), lambda: fft.rfftn(t[0, 0]),
        lambda: fft.fft(t, norm="none"), lambda: fft.fft(t, 0),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            bad()


def test_frequencies_and_shifts():
    for n in (1, 4, 5):
        same(fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5).astype("float32"))
        same(fft.rfftfreq(n, dtype="float64"), np.fft.rfftfreq(n))
    t = tensor_of("backwards", "float64")
    for axes in (None, 0, -1, (0, 1)):
        same(fft.fftshift(t, axes=axes), np.fft.fftshift(t.numpy(), axes))
        same(fft.ifftshift(fft.fftshift(t, axes=axes), axes=axes), t.numpy())
    assert st.fft is fft
