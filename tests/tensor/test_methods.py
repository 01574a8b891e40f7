"""Operations that are only methods: set_, resize_, indexing, conversions, functions of three tensors."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import memory_of_its_own, same

import shmtensor as st
from shmtensor import Tensor
from shmtensor._tensor.dispatch import all_rows
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import DTypeError, InvalidArgument, ShmTensorError


def test_every_method_has_its_name_and_says_what_it_does():
    for name, method in [pair for row in all_rows() for pair in row.methods.items()]:
        assert getattr(Tensor, name) is not None
        assert method.__doc__ and method.__doc__[0] != " ", name
        assert method.__name__ not in ("compute", "convert", "create"), name


def test_set():
    storage = st.IntStorage(range(10))
    t = st.zeros(2)
    assert t.set_(storage) is t
    assert (t.tolist(), t.dtype, t.storage() is storage) == (list(range(10)), st.int32, True)
    assert t.set_(storage, 2, (2, 3)).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert t.set_(storage, 1, (2, 2), (4, 1)).tolist() == [[1, 2], [5, 6]]
    other = st.arange(6.0).view(2, 3)
    assert t.set_(other[1]).tolist() == [3, 4, 5]
    assert t.storage() is other.storage()
    t[0] = 50
    assert other[1, 0].item() == 50
    assert t.set_(other, 1, (2,), (2,)).tolist() == [1, 50]
    assert t.set_(other, 4).tolist() == [4, 5]
    assert t.set_().shape == (0,) and other.shape == (2, 3)
    other.share_memory_()
    assert t.set_(other).is_shared()


def test_resize():
    t = st.arange(6)
    storage = t.storage()
    assert t.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert t.resize_((3, 4)) is t and t.storage() is storage
    assert (t.shape, storage.size(), t.view(12)[:6].tolist()) == ((3, 4), 12, [0, 1, 2, 3, 4, 5])
    part = st.arange(6)[2:]
    assert part.resize_(3).tolist() == [2, 3, 4]
    assert part.resize_as_(st.zeros(2, 2)).tolist() == [[2, 3], [4, 5]]
    part.resize_(10)
    assert part.storage().size() == 12 and part[:4].tolist() == [2, 3, 4, 5]
    assert st.zeros(3).resize_(0).shape == (0,) and st.zeros(0).resize_(2, 2).shape == (2, 2)
    shared = st.zeros(6, shared=True)
    assert shared.resize_(2, 3).shape == (2, 3)
    with pytest.raises(ShmTensorError):
        shared.resize_(10_000)
    assert shared.shape == (2, 3) and shared.is_shared()


def test_indexing():
    t = st.tensor(np.arange(24).reshape(2, 3, 4))
    a = np.arange(24).reshape(2, 3, 4)
    for key in (
        0, -1, (1, 2), (1, 2, 3), slice(None, None, -1), (..., 0), (0, ..., 1), (None, 0),
        (slice(1), [2, 0]), [1, 0], a > 5,
        (a > 5).tolist(), ([0, 1], [2, 0]), (0, [True, False, True]), (slice(None), np.array([0, 2])), np.int64(1),
        (), ..., [],
        ([0], slice(None), [1]), True, np.array(1), (np.array([[0], [1]]), [0, 1]),
    ):  # fmt: skip
        same(t[key], a[key])
        ours, theirs = t.clone(), a.copy()
        ours[key] = -1
        theirs[key] = -1
        same(ours, theirs)
    same(t[st.tensor([1, 0])], a[[1, 0]])
    same(t[t > 5], a[a > 5])
    same(t[0, st.tensor(1)], a[0, 1])
    same(t[st.tensor(1) : st.tensor(2)], a[1:2])
    t[0, 0] = [9, 8, 7, 6]
    t[1, 1] = st.ones(4, dtype="int64")
    t[1, 2, 3] = st.tensor(5)
    assert (t[0, 0].tolist(), t[1, 1].tolist(), t[1, 2, 3].item()) == ([9, 8, 7, 6], [1, 1, 1, 1], 5)
    memory_of_its_own(t[[0]], t)
    t[0, 1, 2].fill_(77)
    assert t[0, 1, 2].item() == 77
    assert None not in t and "x" not in t and 77 in t and 78 not in t


def test_conversions():
    t = st.tensor([[0, 1], [2, 3]])
    for row in ELEMENT_TYPES:
        made = getattr(t, row.method)()
        assert (made.dtype, made.tolist()) == (row.dtype, t.bool().tolist() if row.name == "bool" else t.tolist())
        assert getattr(made, row.method)() is made
        assert st.zeros(2, 2, dtype=row.dtype).copy_(t).tolist() == made.tolist()
    assert t.type_as(st.ones(1)).dtype == st.float32 and t.to("cpu") is t
    assert st.zeros(2, dtype="float64").copy_([0.1, 0.2]).tolist() == [0.1, 0.2]
    assert st.zeros(2, 2).copy_(np.arange(2)).tolist() == [[0, 1], [0, 1]]
    assert t.new_zeros(2, 3).dtype == t.dtype and t.new_full((2,), 7, shared=True).is_shared()
    assert t.new_tensor([1.5], dtype="float32").tolist() == [1.5] and t.new_ones(1, dtype="int8").dtype == st.int8
    assert t.new_empty(2).shape == (2,)
    assert f"{st.tensor(1.5):.2f}" == "1.50" and f"{t}" == repr(t)
    assert (int(st.tensor([3])), float(st.tensor(3)), complex(st.tensor(1j)), bool(st.tensor(0))) == (3, 3.0, 1j, False)


def test_ternary():
    a, b, c = (np.arange(1.0, 7).reshape(2, 3) * k for k in (1, 2, 3))
    x, y, z = st.tensor(a), st.tensor(b), st.tensor(c)
    same(x.addcmul(y, z), a + b * c)
    same(x.addcmul(y, z, value=0.5), a + 0.5 * b * c)
    same(x.addcdiv(y, z, value=2), a + 2 * (b / c))
    same(x.lerp(y, 0.5), a + 0.5 * (b - a))
    same(x.lerp(y, z), a + c * (b - a))
    same(x.clamp(2, 4), np.clip(a, 2, 4))
    same(x.clip(y - 3, y), np.clip(a, b - 3, b))
    same(st.maximum(x, 3), np.maximum(a, 3))
    same(x.minimum(y[0]), np.minimum(a, b[0]))
    same(x.addcmul(y[0], z[:, :1]), a + b[0] * c[:, :1])


def test_apply_and_others():
    t = st.arange(4).view(2, 2).t()
    assert t.apply_(lambda v: v * 2) is t and t.tolist() == [[0, 4], [2, 6]]
    t = st.ones(2)
    assert not t.detach().requires_grad and t.detach().storage() is t.storage()
    assert t.requires_grad_(False) is t and not t.requires_grad
    assert st.ones(2, 3).view_as(st.zeros(3, 2)).shape == (3, 2)
    with pytest.raises(DTypeError, match="tensor"):
        st.ones(2).type_as(5)
    with pytest.raises(InvalidArgument):
        st.ones(2).view_as(st.ones(3))
