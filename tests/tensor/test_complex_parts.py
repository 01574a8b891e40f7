"""Complex numbers and their parts, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import COMPLEX, LAYOUTS, TYPES, memory_of_its_own, same, tensor_of, written

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_of_each_element(layout, dtype):
    t = tensor_of(layout, dtype)
    a = t.numpy().copy()
    kind = {"float16": "float16", "float64": "float64", "complex128": "float64"}.get(dtype, "float32")
    same(st.angle(t), np.angle(a.astype("complex128")).astype(kind), 1e-3 if kind == "float16" else 1e-6)
    same(t.sgn(), np.sign(a) if dtype != "bool" else a)
    same(st.isreal(t), np.isreal(a))
    same(st.conj_physical(t), a.conj())
    for function in (st.resolve_conj, st.resolve_neg):
        assert function(t) is t
    if dtype in COMPLEX:
        memory_of_its_own(t.conj_physical(), t)
        if written(t):
            assert t.conj_physical_() is t
            same(t, a.conj())
    else:
        assert st.conj_physical(t) is t


def test_angles_of_real_numbers():
    t = st.tensor([-1.0, -0.0, 0.0, 2.0, float("nan")])
    np.testing.assert_array_equal(st.angle(t).numpy(), np.array([np.pi, 0, 0, 0, np.nan], "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_made_of_parts(dtype):
    a, b = tensor_of("gaps", dtype), tensor_of("dense", dtype)[:, :1]
    same(st.complex(a, b), a.numpy() + np.array(1j, st.complex(a, b).dtype) * b.numpy())
    same(st.polar(a, b), (a.numpy() * np.exp(1j * b.numpy())).astype(st.polar(a, b).dtype), 1e-6)
    out = st.empty(st.complex(a, b).shape, dtype=st.complex(a, b).dtype)
    assert st.complex(real=a, imag=b, out=out) is out
    assert out.imag.tolist() == b.expand(a.shape).tolist()
    with pytest.raises(DTypeError):
        st.complex(a, b.to("int64"))
    with pytest.raises(DTypeError):
        st.polar(a, b.to("float32" if dtype == "float64" else "float64"))
    with pytest.raises(InvalidArgument):
        st.complex(a, st.ones(7, 7, dtype=dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_views_as_pairs(layout, dtype):
    t = tensor_of(layout, dtype)
    a = t.numpy()
    pairs = st.view_as_real(t)
    same(pairs, np.stack([a.real, a.imag], -1))
    same(st.view_as_complex(pairs), a)
    same(st.view_as_real_copy(t), pairs.numpy())
    memory_of_its_own(st.view_as_real_copy(t), t)
    memory_of_its_own(st.view_as_complex_copy(pairs), t)
    if t.numel():
        assert np.may_share_memory(pairs.numpy(), a)
        assert pairs.storage() is t.storage() or pairs.data_ptr() == t.data_ptr()
        if written(t):
            pairs[..., 1] = 5
            assert (t.numpy().imag == 5).all()


def test_views_that_there_are_not():
    with pytest.raises(DTypeError, match="float32"):
        st.view_as_real(st.ones(2))
    with pytest.raises(DTypeError, match="int64"):
        st.view_as_complex(st.tensor([1, 2]))
    with pytest.raises(InvalidArgument, match="size 2"):
        st.view_as_complex(st.ones(3))
    for wrong in (st.ones(2, 4).t()[:2], st.ones(9)[1:].view(4, 2), st.ones(3, 5)[:, :2], st.ones(4)[::2]):
        with pytest.raises((LayoutError, InvalidArgument)):
            st.view_as_complex(wrong if wrong.shape[-1] == 2 else wrong.t())


def test_conversions():
    t = st.tensor([1.5])
    assert (t.cfloat().dtype, t.cdouble().dtype) == (st.complex64, st.complex128)
    assert t.cfloat().cfloat().tolist() == [1.5]


def test_parts_are_views():
    x = st.tensor([1 + 2j, 3 - 1j])
    st.real(x)[0] = 5
    st.imag(x)[1] = 7
    assert x.tolist() == [5 + 2j, 3 + 7j]
    whole = st.tensor([1, 2])
    assert st.real(whole).storage() is whole.storage()
    assert st.imag(whole).tolist() == [0, 0]
