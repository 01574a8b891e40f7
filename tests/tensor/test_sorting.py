"""Sorting: against NumPy and torch, with ties and NaN, on every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor._tensor import sorting

AXES = [name for name in LAYOUTS if name != "0-d"]


def test_every_function_has_a_case():
    assert set(sorting.__all__) == {"argsort", "kthvalue", "msort", "sort", "topk"}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "float16", "float64", "complex64"])
@pytest.mark.parametrize("layout", AXES)
def test_sort(layout, dtype):
    t = tensor_of(layout, dtype)
    a = t.numpy()
    for dim in (0, 1, -1):
        values, order = st.sort(t, dim)
        same(values, np.sort(a, dim))
        memory_of_its_own(values, t)
        same(st.sort(t, dim, stable=True).indices, np.argsort(a, dim, stable=True))
        same(st.argsort(t, dim), np.argsort(a, dim, stable=True))
        same(t.take_along_axis(order, axis=dim), values.numpy())
        down, order = t.sort(dim, descending=True)
        same(down, np.flip(np.sort(a, dim), dim))
        assert down.is_contiguous() and order.is_contiguous()
        same(t.take_along_axis(st.argsort(t, dim, descending=True), axis=dim), down.numpy())
        same(t.take_along_axis(order, axis=dim), down.numpy())
    same(st.msort(t), np.sort(a, 0))


def test_equal_ones_keep_their_order():
    t = st.tensor([2, 1, 2, 1, 2])
    assert t.argsort(stable=True).tolist() == t.sort(stable=True).indices.tolist() == [1, 3, 0, 2, 4]
    assert t.argsort(-1, True, True).tolist() == t.sort(-1, True, True).indices.tolist() == [0, 2, 4, 1, 3]


def test_sort_gives_a_pair_and_writes_to_one():
    t = st.tensor([3.0, 1, 2])
    found = t.sort()
    assert found._fields == ("values", "indices")
    out = st.zeros(3), st.zeros(3, dtype=st.int64)
    into = st.sort(t, out=out)
    assert into.values is out[0] and into.indices is out[1]
    for pair in (found, out):
        assert [one.tolist() for one in pair] == [[1, 2, 3], [1, 2, 0]]
    for dim in (0, -1):
        values, indices = st.tensor(5.0).sort(dim)
        assert (values.shape, values.item(), indices.shape, indices.item()) == ((), 5, (), 0)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "float64", "bool"])
def test_topk_and_kthvalue(dtype, largest):
    for t in (tensor_of("gaps", dtype), st.tensor(np.random.default_rng(0).integers(0, 9, (40, 50)).astype(dtype)).t()):
        a = t.numpy()
        for dim in (0, 1):
            ordered = np.sort(a, dim)
            ordered = np.flip(ordered, dim) if largest else ordered
            for k in sorted({0, 1, 2, a.shape[dim] // 8, a.shape[dim] // 2, a.shape[dim]}):
                values, indices = t.topk(k, dim, largest)
                same(values, np.take(ordered, range(k), dim))
                assert indices.dtype == st.int64
                same(t.take_along_axis(indices, axis=dim), values.numpy())
                assert all(len(set(row)) == k for row in np.moveaxis(indices.numpy(), dim, -1).tolist())
            for k in (1, a.shape[dim]):
                values, indices = t.kthvalue(np.int64(k), dim, True)
                same(values, np.take(np.sort(a, dim), [k - 1], dim))
                same(t.take_along_axis(indices, axis=dim), values.numpy())
                assert t.kthvalue(k, dim).values.shape == np.sum(a, dim).shape


@pytest.mark.torch
def test_as_torch():
    torch: Any = pytest.importorskip("torch")
    a = np.random.default_rng(1).normal(size=(5, 40)).astype(np.float32)
    a[1, 3] = a[1, 30] = np.nan
    ours, theirs = st.tensor(a), torch.from_numpy(a)
    for arguments in ((3, 1, True), (3, 1, False), (30, 1, True), (2, 0, True)):
        one, other = ours.topk(*arguments), theirs.topk(*arguments)
        np.testing.assert_array_equal(one.values.numpy(), other.values.numpy())
    np.testing.assert_array_equal(ours.kthvalue(4, 0).values.numpy(), theirs.kthvalue(4, 0).values.numpy())
    one, other = st.sort(ours, stable=True), theirs.sort(stable=True)
    np.testing.assert_array_equal(one.values.numpy(), other.values.numpy())
    np.testing.assert_array_equal(one.indices.numpy(), other.indices.numpy())
    np.testing.assert_array_equal(st.msort(ours).numpy(), theirs.msort().numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_nan_is_the_largest_of_each_type(dtype):
    x = st.tensor([0.0, np.nan, 0.5, -1.0, np.nan, -2.0], dtype=dtype)
    assert st.argsort(x).tolist() == [5, 3, 0, 2, 1, 4]
    assert st.sort(x, descending=True, stable=True).indices.tolist() == [1, 4, 2, 0, 3, 5]
    assert st.topk(x.tile(4), 2, largest=False).values.tolist() == [-2.0, -2.0]
    assert st.kthvalue(x, 2).values.item() == -1.0
    assert st.nanmedian(x).item() == -1.0
    assert st.unique(x[x == x]).tolist() == [-2.0, -1.0, 0.0, 0.5]
    assert st.unique(x).dtype == x.dtype
    assert st.searchsorted(st.sort(x).values, x[:3]).tolist() == [2, 4, 3]
