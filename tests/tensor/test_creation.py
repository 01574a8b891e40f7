"""Tensors from nothing, from values and from existing memory."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from layouts import TYPES, same

import shmtensor as st
from shmtensor import _native
from shmtensor._tensor import creation, ranges
from shmtensor.errors import DeviceUnavailable, DTypeError, InvalidArgument, NotSupported
from shmtensor.manager import client

CASES: dict[str, Any] = {
    "arange": lambda m, **how: m.arange(2, 11, 3, **how), "eye": lambda m, **how: m.eye(3, 4, k=1, **how),
    "full": lambda m, **how: m.full((2, 3), 1, **how), "linspace": lambda m, **how: m.linspace(0, 5, num=6, **how),
    "ones": lambda m, **how: m.ones((2, 3), **how), "zeros": lambda m, **how: m.zeros((2, 3), **how),
    "ones_like": lambda m, **how: m.ones_like(m.ones(3), **how),
    "zeros_like": lambda m, **how: m.zeros_like(m.ones(3), **how),
    "full_like": lambda m, **how: m.full_like(m.ones(3), 1, **how),
}  # fmt: skip
OTHERS = {
    "as_tensor", "asarray", "diag", "empty", "empty_like", "from_numpy", "logspace", "range", "scalar_tensor", "tensor",
}  # fmt: skip


def test_every_function_has_a_case():
    assert {*CASES, *OTHERS} == {*creation.__all__, *ranges.__all__} - {"from_dlpack"}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name, shared):
    for dtype in TYPES:
        if name == "arange" and np.dtype(dtype).kind in "bc":
            continue
        made = CASES[name](st, dtype=dtype, shared=shared)
        same(made, CASES[name](np, dtype=dtype))
        assert made.is_shared() is shared


def test_sizes():
    for made in (st.zeros(2, 3), st.ones((2, 3)), st.empty([2, 3]), st.empty_like(st.zeros(2, 3))):
        assert (made.shape, made.dtype) == ((2, 3), st.float32)
    assert st.eye(2).tolist() == [[1, 0], [0, 1]]
    for k in range(-4, 5):
        same(st.eye(2, 3, k=k, dtype="int8"), np.eye(2, 3, k=k, dtype="int8"))
    assert st.eye(0).shape == (0, 0)


def test_ranges():
    assert st.range(1, 4).tolist() == [1, 2, 3, 4] and st.range(1, 4).dtype == st.float32
    assert st.range(1, 4, dtype="int64").dtype == st.int64
    assert st.range(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert st.range(3, 1, -1).tolist() == [3, 2, 1] and st.range(3, 1).tolist() == []
    assert st.linspace(0, 1, 3).dtype == st.float32 and st.linspace(0, 1j, 2).dtype == st.complex64
    assert st.linspace(0, 4, 4, endpoint=False).tolist() == [0, 1, 2, 3]
    assert st.linspace(0, 1).shape == (100,)
    np.testing.assert_allclose(st.logspace(0, 2, 3).numpy(), [1, 10, 100])
    np.testing.assert_allclose(st.logspace(0, 2, 3, base=2, dtype="float64").numpy(), [1, 2, 4])


@pytest.mark.parametrize("call", [
    lambda: st.arange(2, stop=8, step=3), lambda: st.arange(start=2, end=8, step=3),
    lambda: st.arange(st.tensor(2), 8, 3), lambda: st.range(2, 5.5, 3, dtype=st.long),
    lambda: st.linspace(2, 5, 2, dtype=st.long), lambda: st.linspace(start=2, end=5, steps=2, dtype=st.long),
    lambda: st.linspace(2, stop=5, num=2, dtype=st.long),
    lambda: st.linspace(st.tensor(2.0), st.tensor(5), 2, dtype=st.long),
    lambda: st.range(start=2, end=5, step=3, dtype=st.long),
])  # fmt: skip
def test_names_of_bounds(call):
    same(call(), np.array([2, 5]))


def test_integers_are_truncated_in_ranges_as_in_torch():
    assert st.arange(-0.9, 2.1, 1, dtype="int64").tolist() == [0, 1]
    assert st.arange(-1, 2, 2, dtype="uint8").tolist() == [255, 1]
    assert st.arange(0.5, 3, dtype="int32").tolist() == [0, 1, 2]
    assert st.arange(0.5, 4, 1.5, dtype="int32").tolist() == [0, 1, 2]
    assert st.linspace(0.9, 10.9, 4, dtype="int64").tolist() == [0, 3, 6, 10]
    assert st.logspace(0, 2, 4, dtype="int64").tolist() == [1, 4, 21, 100]
    assert st.logspace(2.5, 3, 1, dtype="int64").tolist() == [316]
    for wrong in (lambda: st.arange(2, dtype="bool"), lambda: st.arange(2, dtype="complex64")):
        with pytest.raises(DTypeError, match="integer and floating-point"):
            wrong()
    with pytest.raises(InvalidArgument, match="without axes"):
        st.linspace(st.ones(2), 3)


NEW: dict[str, Any] = {
    "empty": lambda **how: st.empty(2, 3, **how), "zeros": lambda **how: st.zeros(2, 3, **how),
    "ones": lambda **how: st.ones(2, 3, **how), "full": lambda **how: st.full((2, 3), 4.0, **how),
    "arange": lambda **how: st.arange(5.0, **how), "range": lambda **how: st.range(1, 5, **how),
    "linspace": lambda **how: st.linspace(0, 1, 5, **how), "logspace": lambda **how: st.logspace(0, 1, 5, **how),
    "eye": lambda **how: st.eye(3, **how), "rand": lambda **how: st.rand(2, 3, **how),
    "randn": lambda **how: st.randn(2, 3, **how), "randint": lambda **how: st.randint(3, (2, 3), **how),
    "randperm": lambda **how: st.randperm(5, **how), "normal": lambda **how: st.normal(0, 1, (2, 3), **how),
}  # fmt: skip
WITHOUT_OUT: dict[str, Any] = {
    "tensor": lambda **how: st.tensor([1.5], **how), "as_tensor": lambda **how: st.as_tensor([1.5], **how),
    "asarray": lambda **how: st.asarray([1.5], **how), "scalar_tensor": lambda **how: st.scalar_tensor(1.5, **how),
    **{f"{name}_like": lambda name=name, **how: getattr(st, f"{name}_like")(st.ones(2, 3), **how)
       for name in ("empty", "zeros", "ones", "rand", "randn")},
    "full_like": lambda **how: st.full_like(st.ones(2), 3, **how),
    "randint_like": lambda **how: st.randint_like(st.ones(2), 3, **how),
    **{f"new_{name}": lambda name=name, **how: getattr(st.ones(1), f"new_{name}")(2, 3, **how)
       for name in ("empty", "zeros", "ones")},
    "new_full": lambda **how: st.ones(1).new_full((2,), 3, **how),
    "new_tensor": lambda **how: st.ones(1).new_tensor([3], **how),
    "new_empty_strided": lambda **how: st.ones(1).new_empty_strided((2, 3), (1, 2), **how),
}  # fmt: skip


@pytest.mark.parametrize("name", [*NEW, *WITHOUT_OUT])
def test_torchs_keywords(name):
    make = {**NEW, **WITHOUT_OUT}[name]
    usual = {"layout": st.strided, "pin_memory": False, "requires_grad": False}
    for device in ("cpu", st.device("cpu"), st.device("cpu:0"), None):
        assert make(dtype=st.float64, device=device, **usual).dtype == st.float64
    for unusual, error, says in (
        ({"pin_memory": True}, DeviceUnavailable, "GPU"),
        ({"layout": "sparse"}, NotSupported, "strided"), ({"device": "cuda"}, DeviceUnavailable, "GPU"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            make(**unusual)
    with pytest.raises(TypeError, match="bogus"):
        make(bogus=1)
    made = make(dtype=st.float64, requires_grad=True)
    assert made.requires_grad and made.is_leaf and not make(dtype=st.float64).requires_grad
    with pytest.raises(DTypeError, match="int64"):
        make(dtype=st.int64, requires_grad=True)


@pytest.mark.parametrize("name", NEW)
def test_out(name):
    out = st.empty_like(NEW[name](), dtype=st.float64).fill_(-7)
    assert NEW[name](out=out) is out
    assert out.dtype == st.float64 and (name == "empty" or (out.numpy() != -7).all())
    with pytest.raises(InvalidArgument, match="shape"):
        NEW[name](out=st.zeros(1, 1, 1))
    with pytest.raises(DTypeError, match="float64"):
        NEW[name](out=out, dtype="float32")


def test_sizes_by_name():
    for made in (
        st.zeros(size=(2, 3)), st.empty(shape=(2, 3)), st.full(size=(2, 3), fill_value=1.0), st.rand(size=[2, 3]),
        st.full(shape=(2, 3), fill_value=1.0), st.full(1.0, shape=(2, 3)), st.randn(size=(2, 3)),
        st.randint(high=5, size=(2, 3), dtype=st.float32), st.randint(5, size=(2, 3), dtype=st.float32),
        st.randint(low=2, high=5, size=(2, 3), dtype=st.float32), st.ones(4).new_zeros(size=(2, 3)),
    ):  # fmt: skip
        assert (made.shape, made.dtype) == ((2, 3), st.float32)
    with pytest.raises(InvalidArgument, match="one of them"):
        st.zeros(2, size=(2, 3))
    for wrong in (lambda: st.randint(3), lambda: st.randint(low=3, size=None), lambda: st.randint_like(st.ones(2))):
        with pytest.raises(InvalidArgument, match="without a bound"):
            wrong()
    assert st.eye(n=2, m=3).shape == (2, 3)
    assert (
        st.full((2,), -9, dtype="uint8").tolist() == st.full_like(st.ones(2, dtype="uint8"), -9).tolist() == [247] * 2
    )
    with pytest.raises(InvalidArgument):
        st.full((2,), -257, dtype="uint8")


@pytest.mark.parametrize("shared", [False, True])
def test_memory_formats(shared):
    last = st.empty(2, 3, 4, 5, memory_format=st.channels_last, shared=shared)
    assert last.shape == (2, 3, 4, 5) and last.stride() == (60, 1, 15, 3) and last.is_shared() is shared
    assert st.empty(1, 2, 3, 4, 5, memory_format=st.channels_last_3d).stride() == (120, 1, 40, 10, 2)
    x = st.zeros(2, 3, 8).permute(2, 0, 1)
    for like in (st.empty_like, st.zeros_like, st.ones_like, st.rand_like):
        assert like(x, shared=shared).stride() == like(x, memory_format=st.preserve_format).stride() == (1, 24, 8)
        assert like(x[::2], shared=shared).stride() == (1, 12, 4)
        assert like(x, memory_format=st.contiguous_format).is_contiguous()
        assert like(last, memory_format=st.contiguous_format).is_contiguous()
        assert like(last).stride() == last.stride()
    assert st.empty_like(st.zeros(1, 3).expand(2, 3)).stride() == (3, 1)
    assert st.ones_like(x).tolist() == st.ones(8, 2, 3).tolist() and st.zeros_like(x).sum().item() == 0
    with pytest.raises(InvalidArgument, match="4 axes"):
        st.empty(2, 3, memory_format=st.channels_last)
    with pytest.raises(InvalidArgument, match="channels_last"):
        st.empty(2, 3, memory_format="last")


def test_the_default_type(default_dtype):
    for dtype, complex_type in (("float64", "complex128"), ("float16", "complex64")):
        st.set_default_dtype(getattr(st, dtype))
        assert st.get_default_dtype() == dtype == st.finfo().dtype
        for made in (
            st.empty(2), st.zeros(2), st.ones(2), st.full((2,), 1.5), st.tensor([1.5]), st.arange(2.0), st.range(1, 2),
            st.linspace(0, 1, 3), st.logspace(0, 1, 3), st.eye(2), st.rand(2), st.randn(2), st.normal(0, 1, (2,)),
            st.scalar_tensor(1), st.asarray(1.5), st.Tensor(2), st.Tensor([1]), st.zeros(2, shared=True),
        ):  # fmt: skip
            assert made.dtype == dtype
        assert st.tensor(1j).dtype == st.linspace(0, 1j, 2).dtype == st.full((1,), 1j).dtype == complex_type
        assert st.tensor(1).dtype == st.arange(2).dtype == st.int64
    for spec in (st.DoubleTensor, "shmtensor.DoubleTensor", "torch.DoubleTensor"):
        st.set_default_dtype(st.float32)
        st.set_default_tensor_type(spec)
        assert st.zeros(1).dtype == st.float64
    for wrong in (st.int64, st.complex64, "nothing"):
        with pytest.raises(DTypeError):
            st.set_default_dtype(wrong)
    with pytest.raises(DTypeError, match="FloatTensor"):
        st.set_default_tensor_type("shmtensor.NoTensor")


@pytest.fixture
def default_dtype():
    yield
    st.set_default_dtype(st.float32)


def test_diag():
    a = np.arange(6).reshape(2, 3)
    for k in (-1, 0, 2, 5):
        same(st.diag(st.tensor(a), k), np.diag(a, k))
        same(st.diag(st.tensor(a[0]), k), np.diag(a[0], k))


def test_asarray_of_an_array_as_another_type():
    for dtype in ("float64", np.float64, np.dtype("float64"), st.float64):  # NumPy says that float64 equals None
        made = st.asarray(np.arange(3), dtype=dtype)
        assert made.dtype == st.float64 and made.tolist() == [0, 1, 2]


def test_asarray_over_the_same_memory():
    base = np.arange(4, dtype=np.float32)
    t = st.asarray(base)
    t[0] = 9
    assert base[0] == 9
    assert st.asarray(t) is t and st.as_tensor(t, dtype="float32") is t
    assert not np.may_share_memory(st.asarray(t, copy=True).numpy(), base)
    assert st.asarray(t, dtype="int8").dtype == st.int8
    for buffer in (array.array("f", [1, 2]), bytearray(b"ab"), memoryview(bytearray(b"ab"))):
        t = st.asarray(buffer, copy=False)
        t[0] = 7
        assert np.asarray(memoryview(buffer)).tolist()[0] == 7
    assert st.asarray(b"ab").tolist() == [97, 98]
    fixed = np.arange(3)
    fixed.flags.writeable = False
    assert st.asarray(fixed).tolist() == [0, 1, 2]
    with pytest.raises(InvalidArgument, match="copy"):
        st.asarray(fixed, copy=False)
    assert st.asarray([[1, 2]]).dtype == st.int64 and st.asarray(2.5).dtype == st.float32
    assert st.asarray(np.float64(2)).dtype == st.float64 and st.asarray(1j).dtype == st.complex64
    same(st.tensor([st.tensor(1.0), st.tensor(2.0)]), np.array([1, 2], np.float32))


@pytest.mark.torch
def test_as_torch():
    torch: Any = pytest.importorskip("torch")
    for call in (
        lambda m: m.arange(5), lambda m: m.arange(0.0, 1, 0.25), lambda m: m.eye(2, 3), lambda m: m.full((2, 3), 7),
        lambda m: m.full((2,), 1.5),
        lambda m: m.full((2,), True), lambda m: m.tensor([1.5, 2]), lambda m: m.tensor([1, 2]),
        lambda m: m.diag(m.tensor([1, 2]), 1),
        lambda m: m.zeros(2, 3), lambda m: m.linspace(0, 1, 5), lambda m: m.logspace(0, 1, 5),
        lambda m: m.zeros_like(m.ones(2)), lambda m: m.scalar_tensor(3),
        lambda m: m.arange(-0.9, 2.1, 2, dtype=m.int64), lambda m: m.linspace(-3.7, 9.9, 7, dtype=m.int32),
        lambda m: m.logspace(0, 4, 9, dtype=m.int64), lambda m: m.full((2,), -9, dtype=m.uint8),
    ):  # fmt: skip
        one, other = call(st), call(torch)
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
        assert one.dtype.name == str(other.dtype).removeprefix("torch.")
    theirs = torch.ones(3)
    st.asarray(theirs)[0] = 5
    assert theirs[0].item() == 5


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("f4", -1), ("f4", (2, -1)), ("f4", True), ("f4", (2, 3.0)), ("f4", [2, 3]), ("f4", 0), ("f4", 2**46),
     ("f4", 2**80), ("f4", (1,) * 65), (">f4", 3), ("S4", 3), ("O", 3)],
)  # fmt: skip
def test_what_is_not_allocated_in_one_call_is_left_to_python(dtype: str, shape: Any):
    native = client.default().native
    assert native is not None
    assert _native.allocate_tensor(native, np.dtype(dtype), shape) is None
    with pytest.raises(TypeError, match="a shmtensor client is needed, not int"):
        _native.allocate_tensor(3, np.dtype("f4"), shape)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), 1, 7, (2, 3), (2, 1, 4), (0, 3), np.int64(3)])
def test_empty_in_shared_memory(shape: Any):
    made = st.empty(shape, dtype=st.int16, shared=True)
    made.fill_(3)
    assert made.shape == np.empty(shape).shape
    assert made.dtype == np.int16
    assert made.is_shared()
    assert made.is_contiguous()
    assert made.numpy().base is not None
    assert made.numpy().flags.carray
    assert (made.numpy() == 3).all()
