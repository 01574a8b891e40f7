"""Medians, quantiles and moments, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import same, tensor_of

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument

NAN = float("nan")


def with_nan(layout, dtype="float32"):
    a = tensor_of(layout, dtype).numpy().copy()
    if a.size > 1:
        a.flat[:2] = NAN
    return a


@pytest.mark.parametrize("layout", ["0-d", "dense", "gaps", "shared view"])
def test_medians(layout):
    a = with_nan(layout)
    t = st.tensor(a)
    same(st.nanmedian(t), np.nanquantile(a, 0.5, method="lower").astype("float32"))
    for dim in {0, -1} if a.ndim else {0}:
        for keepdim in (False, True):
            found = t.nanmedian(dim, keepdim)
            if not a.ndim:
                assert (found.values.tolist(), found.indices.tolist()) == (a.tolist(), 0)
                continue
            same(found.values, np.nanquantile(a, 0.5, dim, method="lower", keepdims=keepdim).astype("float32"))
            places = found.indices if keepdim else found.indices.unsqueeze(dim)
            picked = np.take_along_axis(a, places.numpy(), dim)
            np.testing.assert_array_equal(picked if keepdim else picked.squeeze(dim), found.values.numpy())


def test_medians_at_the_edges():
    assert np.isnan(st.nanmedian(st.tensor([NAN, NAN])).item())
    assert st.nanmedian(st.tensor([5, 1, 3, 2])).item() == 2
    assert np.isnan(st.nanmedian(st.zeros(0)).item())
    with pytest.raises(InvalidArgument):
        st.nanmedian(st.zeros(0, 2), 0)
    with pytest.raises(IndexOutOfRange):
        st.nanmedian(st.tensor(1.0), 1)
    with pytest.raises(DTypeError):
        st.nanmedian(st.tensor([1j]))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(interpolation):
    a = with_nan("dense", "float64")
    t = st.tensor(a)
    for q in (0.3, np.array([0.0, 0.25, 0.8, 1.0])):
        ours = q if isinstance(q, float) else st.tensor(q)
        for dim in (None, 0, 1, -1):
            for keepdim in (False, True):
                expected = np.nanquantile(a, q, dim, method=interpolation, keepdims=keepdim)
                same(t.nanquantile(ours, dim, keepdim, interpolation=interpolation), expected)


def test_quantiles_at_the_edges():
    t = st.tensor([[NAN, NAN], [1.0, 2.0]])
    found = st.nanquantile(t, 0.5, dim=1).tolist()
    assert np.isnan(found[0]) and found[1] == 1.5
    assert st.nanquantile(st.tensor(3.0), 0.5, 0).tolist() == 3
    for wrong in (2.0, -0.1):
        with pytest.raises(InvalidArgument, match="0 to 1"):
            st.nanquantile(t, wrong)
    with pytest.raises(InvalidArgument, match="interpolation"):
        st.nanquantile(t, 0.5, interpolation="best")
    with pytest.raises(InvalidArgument, match="no element"):
        st.nanquantile(st.zeros(0), 0.5)
    with pytest.raises(DTypeError):
        st.nanquantile(st.tensor([1]), 0.5)
    with pytest.raises(DTypeError):
        st.nanquantile(t, st.tensor(0.5, dtype="float64"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_moments(dtype):
    t = tensor_of("gaps", dtype)
    a = t.numpy().astype("complex128" if dtype == "complex64" else "float64")
    near, real = (3e-3 if dtype == "float16" else 1e-5), np.zeros(0, dtype).real.dtype
    for dim in (None, 0, -1, (0, 1), ()):
        axis = None if dim == () else dim
        for keepdim in (False, True):
            for how, ddof in (({}, 1), ({"correction": 0}, 0), ({"unbiased": False}, 0), ({"correction": 2}, 2)):
                variance, mean = st.var_mean(t, dim, keepdim=keepdim, **how)
                expected = np.var(a, axis, ddof=ddof, keepdims=keepdim)
                same(variance, expected.astype(real), near)
                same(mean, np.mean(a, axis, keepdims=keepdim).astype(dtype), near)
                same(st.std_mean(t, dim, keepdim=keepdim, **how)[0], np.sqrt(expected).astype(real), near)
    same(st.var_mean(t, False)[0], np.var(a).astype(real), near)


def test_moments_at_the_edges():
    variance, mean = st.var_mean(st.tensor(3.0), 0)
    assert np.isnan(variance.item()) and mean.item() == 3
    assert st.std_mean(st.tensor(3.0), -1, correction=0)[0].item() == 0
    assert np.isnan(st.var_mean(st.zeros(0))[1].item())
    with pytest.raises(DTypeError, match="int64"):
        st.var_mean(st.tensor([1]))
    with pytest.raises(IndexOutOfRange):
        st.std_mean(st.ones(2), 1)


def test_sums_to_a_size():
    t = st.arange(24).view(2, 3, 4).to("int32")
    assert t.sum_to_size(3, 1).tolist() == t.numpy().sum((0, 2))[:, None].tolist()
    for dtype in ("int8", "uint8", "bool"):
        assert t.to(dtype).sum_to_size((1, 3, 4)).dtype == st.int64
    assert t.sum_to_size(2, 3, 4) is t and t.sum_to_size(()).item() == 276
    for wrong in ((2, 3), (1, 1, 1, 1), (24,)):
        with pytest.raises(InvalidArgument, match="broadcast"):
            t.sum_to_size(wrong)
