"""Tensors from nothing, from values and from others' memory."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from layouts import TYPES, same

import shmtensor as st
from shmtensor import _native
from shmtensor._tensor import creation
from shmtensor.errors import InvalidArgument, NotSupported
from shmtensor.manager import client

CASES: dict[str, Any] = {
    "arange": lambda m, **how: m.arange(2, 11, 3, **how), "eye": lambda m, **how: m.eye(3, 4, k=1, **how),
    "full": lambda m, **how: m.full((2, 3), 1, **how), "linspace": lambda m, **how: m.linspace(0, 5, num=6, **how),
    "ones": lambda m, **how: m.ones((2, 3), **how), "zeros": lambda m, **how: m.zeros((2, 3), **how),
    "ones_like": lambda m, **how: m.ones_like(m.ones(3), **how),
    "zeros_like": lambda m, **how: m.zeros_like(m.ones(3), **how),
    "full_like": lambda m, **how: m.full_like(m.ones(3), 1, **how),
}  # fmt: skip
OTHERS = {"as_tensor", "asarray", "diag", "empty", "empty_like", "from_numpy", "logspace", "range", "tensor"}


def test_every_function_has_a_case():
    assert {*CASES, *OTHERS} == set(creation.__all__) - {"from_dlpack"}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name, shared):
    for dtype in TYPES:
        if name in ("arange",) and dtype == "bool":
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
    assert st.range(1, 4).tolist() == [1, 2, 3, 4] and st.range(1, 4).dtype == st.int64
    assert st.range(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert st.range(3, 1, -1).tolist() == [3, 2, 1] and st.range(3, 1).tolist() == []
    assert st.linspace(0, 1, 3).dtype == st.float32 and st.linspace(0, 1j, 2).dtype == st.complex64
    assert st.linspace(0, 4, 4, endpoint=False).tolist() == [0, 1, 2, 3]
    assert st.linspace(0, 1).shape == (100,)
    np.testing.assert_allclose(st.logspace(0, 2, 3).numpy(), [1, 10, 100])
    np.testing.assert_allclose(st.logspace(0, 2, 3, base=2, dtype="float64").numpy(), [1, 2, 4])


def test_diag():
    a = np.arange(6).reshape(2, 3)
    for k in (-1, 0, 2, 5):
        same(st.diag(st.tensor(a), k), np.diag(a, k))
        same(st.diag(st.tensor(a[0]), k), np.diag(a[0], k))


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
        lambda m: m.zeros_like(m.ones(2)),
    ):  # fmt: skip
        one, other = call(st), call(torch)
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
        assert str(one.dtype) == str(other.dtype).removeprefix("torch.")
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


def test_torchs_names_of_ends_and_steps():
    assert st.arange(end=3).tolist() == st.arange(0, end=3).tolist() == [0, 1, 2]
    assert st.linspace(0, end=4, steps=3).tolist() == [0, 2, 4]
    assert st.logspace(0, end=2, steps=3, device="cpu").tolist() == [1, 10, 100]
    with pytest.raises(NotSupported):
        st.arange(3, requires_grad=True)


def test_ranges_of_integers_that_floats_describe():
    assert st.linspace(4.3, -3, 5, dtype="int64").tolist() == [4, 2, 0, -1, -3]
    assert st.linspace(4, 9, 1, dtype="int64").tolist() == [4]
    assert st.logspace(0, 1.2, 4, dtype="int64").tolist() == [1, 2, 4, 10]
    assert st.arange(0.0, -8.5, -4.0, dtype="int64").tolist() == [0, -4]
    assert st.arange(0.0, -8.5, -4.0, dtype="int32").tolist() == [0, -4, -8]
    assert st.logspace(0, 1j, 2, dtype="complex64").shape == (2,)


def test_new_tensors_take_what_creators_take():
    x = st.ones(1, dtype="int16")
    assert x.new_zeros(2, device="cpu", requires_grad=False).dtype == st.int16
    assert x.new_full((2,), fill_value=3, dtype="float64").tolist() == [3, 3]
    with pytest.raises(InvalidArgument):
        x.new_ones(2, device="cuda")
    with pytest.raises(NotSupported):
        x.new_empty(2, requires_grad=True)
