"""Elements by index and by mask against NumPy and torch; repeated indices, overlaps, sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import memory_of_its_own, same, tensor_of

import shmtensor as st
from shmtensor import array_api
from shmtensor._tensor import masks, selection
from shmtensor.errors import InvalidArgument

LAYOUTS = ["dense", "transposed", "gaps", "backwards", "expanded", "shared", "shared view"]
ROW = np.array([0, 2, 1])


def changed(a: Any, row: int, values: Any) -> Any:
    """A copy with one row changed."""
    b = a.copy()
    b[row] = values
    return b


CASES: dict[str, Any] = {
    "allclose": (lambda t: st.asarray(t.allclose(t + 1e-9)), lambda a: np.array(True)),
    "index_add": (lambda t: t.index_add(0, [0, 0], t[:2]), lambda a: changed(a, 0, a[0] * 2 + a[1])),
    "index_copy": (lambda t: t.index_copy(0, [1], t[:1]), lambda a: changed(a, 1, a[0])),
    "index_fill": (lambda t: t.index_fill(0, [1], 7), lambda a: changed(a, 1, 7)),
    "isclose": (lambda t: st.isclose(t, t[0]), lambda a: np.isclose(a, a[0])),
    "masked_fill": (lambda t: st.masked_fill(t, t > 0, 0), lambda a: np.minimum(a, 0)),
    "scatter": (lambda t: st.scatter(t, 0, np.ones((1, t.shape[1]), int), 5), lambda a: changed(a, 1, 5)),
    "scatter_add": (lambda t: t.scatter_add(0, np.ones((1, t.shape[1]), int), t[:1]),
                 lambda a: changed(a, 1, a[1] + a[0])),
    "argwhere": (lambda t: st.argwhere(t > 0), lambda a: np.argwhere(a > 0)),
    "bincount": (lambda t: st.bincount((t[0] > 0).long(), t[0].double(), 3), lambda a: np.bincount(a[0] > 0, a[0], 3)),
    "bucketize": (lambda t: st.bucketize(t, st.tensor([-1.0, 0, 1])), lambda a: np.searchsorted([-1.0, 0, 1], a)),
    "clamp": (lambda t: st.clamp(t, -1, 1), lambda a: np.clip(a, -1, 1)),
    "clip": (lambda t: t.clip(max=t.t().t() * 0), lambda a: np.minimum(a, 0)),
    "gather": (lambda t: t.gather(0, st.tensor([[0, 1], [2, 0]])),
               lambda a: np.array([[a[0, 0], a[1, 1]], [a[2, 0], a[0, 1]]])),
    "index_select": (lambda t: t.index_select(-2, ROW), lambda a: a[ROW]),
    "isin": (lambda t: st.isin(t, t[0]), lambda a: np.isin(a, a[0])),
    "lerp": (lambda t: t.lerp(1, 0.25), lambda a: a + 0.25 * (1 - a)),
    "masked_select": (lambda t: t.masked_select(t > 0), lambda a: a[a > 0]),
    "nonzero": (lambda t: st.nonzero(t > 0), lambda a: np.argwhere(a > 0)),
    "searchsorted": (lambda t: st.searchsorted(st.sort(t[0]).values, t, side="right"),
                     lambda a: np.searchsorted(np.sort(a[0]), a, "right")),
    "take": (lambda t: t.take(st.tensor([2, 1], dtype="uint64"), axis=0), lambda a: a[[2, 1]]),
    "take_along_axis": (lambda t: t.take_along_axis(t.argsort(axis=0), axis=0), lambda a: np.sort(a, 0)),
    "tril": (lambda t: st.tril(t, k=-1), lambda a: np.tril(a, -1)),
    "triu": (lambda t: t.triu(diagonal=1), lambda a: np.triu(a, 1)),
    "unique_all": (lambda t: st.unique_all(t).inverse_indices, lambda a: np.unique_all(a).inverse_indices),
    "unique_counts": (lambda t: st.unique_counts(t).counts, lambda a: np.unique_counts(a).counts),
    "unique_inverse": (lambda t: st.unique_inverse(t).values, lambda a: np.unique_inverse(a).values),
    "unique_values": (st.unique_values, np.unique),
    "where": (lambda t: st.where(t > 0, t, 0), lambda a: np.where(a > 0, a, 0)),
    "array_equal": (lambda t: st.asarray(st.array_equal(t, t.clone())), lambda a: np.array(True)),
    "equal": (lambda t: st.asarray(st.equal(t, t + 1)), lambda a: np.array(False)),
}  # fmt: skip


def test_every_function_has_a_case():
    assert set(CASES) == {*selection.__all__, *masks.__all__}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_what_is_selected(name, layout):
    ours, reference = CASES[name]
    for dtype in ("float32", "float64"):
        t = tensor_of(layout, dtype)
        made = ours(t)
        same(made, reference(t.numpy()))
        memory_of_its_own(made, t)


def indices(shape: tuple[int, ...], below: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(0, below, shape)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_what_is_written(dim, shared):
    def fresh() -> Any:
        return st.tensor(np.arange(12.0).reshape(3, 4), shared=shared)

    a = np.arange(12.0).reshape(3, 4)
    at, source = indices((2, 3), 3), np.arange(6.0).reshape(2, 3) + 50
    expect, added = a.copy(), a.copy()
    for i, j in np.ndindex(2, 3):
        place = (at[i, j], j) if dim == 0 else (i, at[i, j])
        expect[place] = source[i, j]
        added[place] += source[i, j]
    t = fresh()
    assert t.scatter_(dim, st.tensor(at), st.tensor(source)) is t
    same(t, expect)
    same(fresh().scatter(dim, at, source), expect)
    same(fresh().scatter_add_(dim, at, source), added)
    same(
        t.gather(dim, at),
        np.array([[t[(at[i, j], j) if dim == 0 else (i, at[i, j])].item() for j in range(3)] for i in range(2)]),
    )

    rows = np.array([2, 0, 2])
    key = (slice(None),) * (dim % 2) + (rows,)
    parts = np.ones((3, 4) if dim == 0 else (3, 3)) * 10
    expect = a.copy()
    np.add.at(expect, key, parts)
    same(fresh().index_add_(dim, st.tensor(rows), parts), expect)
    expect = a.copy()
    np.add.at(expect, key, parts * 0.5)
    same(fresh().index_add_(dim, rows, st.tensor(parts), alpha=0.5), expect)
    expect = a.copy()
    expect[key] = 5
    same(fresh().index_fill_(dim, rows, 5), expect)
    same(fresh().index_copy_(dim, rows, parts * 0 + 5), expect)


def test_put_and_masks():
    t = st.arange(6.0).view(2, 3).t()
    assert t.put_([0, -1], [10, 20]).tolist() == [[10, 3], [1, 4], [2, 20]]
    assert t.put_(st.tensor([1, 1]), st.ones(2), accumulate=True)[0, 1].item() == 5
    assert st.tensor(1.0).put_([0], 5).item() == 5
    assert t.masked_fill(t > 5, 0).tolist() == [[0, 5], [1, 4], [2, 0]]
    assert t.masked_fill_(st.tensor([True, False]), -1).tolist() == [[-1, 5], [-1, 4], [-1, 20]]
    assert t.masked_scatter_(t < 0, st.arange(5.0)).tolist() == [[0, 5], [1, 4], [2, 20]]
    assert st.tensor(3.0).masked_select(True).tolist() == [3]
    assert st.tensor([1, 2, 3], dtype="int8").index_add_(0, [0], 5).tolist() == [6, 2, 3]


def test_sources_that_overlap_what_is_written():
    t = st.arange(6.0)
    assert t.index_add_(0, [1, 2, 3, 4], t[:4]).tolist() == [0, 1, 3, 5, 7, 5]
    t = st.arange(6.0)
    assert t.index_copy_(0, [1, 2, 3], t[:3]).tolist() == [0, 0, 1, 2, 4, 5]
    t = st.arange(6.0)
    assert t.scatter_(0, [5, 4, 3, 2, 1, 0], t).tolist() == [5, 4, 3, 2, 1, 0]
    t = st.arange(6.0)
    assert t.masked_scatter_(t > 0, t).tolist() == [0, 0, 1, 2, 3, 4]
    t = st.arange(6.0)
    t[t > 0] = t[:5]
    assert t.tolist() == [0, 0, 1, 2, 3, 4]
    t = st.arange(6.0)
    t[[1, 2, 3]] = t[:3]
    assert t.tolist() == [0, 0, 1, 2, 4, 5]
    st.clip(t[:5], 1, 2, out=t[1:])
    assert t.tolist() == [0, 1, 1, 1, 2, 2]


def test_bounds_promote_the_type_and_keep_it_in_the_array_api():
    assert st.ones(2).clip(st.zeros(2, dtype="float64"), 2.0).dtype == st.float64
    assert array_api.clip(st.ones(2), st.zeros(2, dtype="float64"), 2.0).dtype == st.float32
    for clip, dtype in ((st.clip, st.int64), (array_api.clip, st.int8)):
        t = clip(st.tensor([5, -5], dtype="int8"), st.tensor([-300]), st.tensor([300]))
        assert (t.dtype, t.tolist()) == (dtype, [5, -5])
    assert st.tensor([0, 1]).clip(0.5).tolist() == [0.5, 1]
    assert st.ones(2).clip().tolist() == [1, 1]
    t = st.tensor([3.0, -3])
    assert t.clamp_(-1, 1) is t and t.tolist() == [1, -1]
    assert st.tensor([10], dtype="uint8").lerp(5, 0.5).tolist() == [7.5]


@pytest.mark.torch
def test_as_torch():
    torch: Any = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    a, at = rng.normal(size=(4, 5)).astype(np.float32), rng.permuted(np.tile(np.arange(4), (5, 1)), axis=1).T.copy()
    b = rng.normal(size=(4, 5)).astype(np.float32)
    for call in (
        lambda m, x, i, y: x.gather(0, i), lambda m, x, i, y: x.scatter(0, i, y),
        lambda m, x, i, y: x.clone().scatter_add_(0, i, y),
        lambda m, x, i, y: x.index_select(1, i[0]), lambda m, x, i, y: x.clone().index_add_(0, i[:, 0], y, alpha=2),
        lambda m, x, i, y: x.clone().index_copy_(0, i[:, 1], y),
        lambda m, x, i, y: x.clone().index_fill_(1, i[0, :2], 3),
        lambda m, x, i, y: x.masked_select(x > 0), lambda m, x, i, y: x.masked_fill(x > y, 5),
        lambda m, x, i, y: x.clone().masked_scatter_(x > 0, y), lambda m, x, i, y: x.clamp(-0.5, 0.5),
        lambda m, x, i, y: x.lerp(y, 0.3),
        lambda m, x, i, y: x.clone().put_(i[0], y[0, :5]), lambda m, x, i, y: x.tril(diagonal=1),
        lambda m, x, i, y: x.argwhere(), lambda m, x, i, y: (x > y).nonzero(),
        lambda m, x, i, y: m.nonzero(x > y, as_tuple=True)[1], lambda m, x, i, y: m.isin(2, i),
        lambda m, x, i, y: x.addcmul(x, y, value=2), lambda m, x, i, y: x.addcdiv(x, y, value=0.5),
        lambda m, x, i, y: m.bucketize(x, m.tensor([-1.0, 0, 1])), lambda m, x, i, y: m.where(x > 0, x, y),
        lambda m, x, i, y: m.isin(i, i[0]),
        lambda m, x, i, y: i[0].bincount(minlength=7), lambda m, x, i, y: m.searchsorted(m.tensor([-1.0, 0, 1]), x),
    ):  # fmt: skip
        one = call(st, st.tensor(a), st.tensor(at), st.tensor(b))
        other = call(torch, torch.tensor(a), torch.tensor(at), torch.tensor(b))
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


def test_indices_of_what_is_not_zero():
    t = st.tensor([[0, 2, 0], [3, 0, 4]])
    assert st.nonzero(t).tolist() == t.nonzero().tolist() == [[0, 1], [1, 0], [1, 2]]
    for each in (t.nonzero(as_tuple=True), st.where(t)):
        assert type(each) is tuple and [one.tolist() for one in each] == [[0, 1, 1], [1, 0, 2]]
    out = st.zeros(3, 2, dtype=st.int64)
    assert st.nonzero(t, out=out) is out and out.tolist() == t.argwhere().tolist()
    for value, rows in ((5, 1), (0, 0)):
        number = st.tensor(value)
        assert number.nonzero().shape == number.argwhere().shape == (rows, 0)
        assert [one.tolist() for one in number.nonzero(as_tuple=True)] == [[0] * rows]


def test_which_are_in():
    t = st.tensor([[1, 2], [3, 1]])
    assert st.isin(t, st.tensor([1, 3])).tolist() == [[True, False], [True, True]]
    assert st.isin(t, 1, invert=True).tolist() == [[False, True], [True, False]]
    assert st.isin(elements=st.arange(2), test_elements=st.tensor([2, 0]), assume_unique=True).tolist() == [True, False]
    one = st.isin(3, t)
    assert one.shape == () and one.item() is True


def test_searching_in_rows():
    rows = np.array([[1.0, 3, 5], [2, 4, 4]])
    values = np.array([[3.0, 0], [4, 9]])
    for side in ("left", "right"):
        expected = np.stack([np.searchsorted(a, v, side) for a, v in zip(rows, values, strict=True)])
        same(st.searchsorted(st.tensor(rows), st.tensor(values), side=side), expected)
        turned = st.tensor(rows[:, ::-1].copy())
        order = turned.argsort(-1)
        same(st.searchsorted(turned, st.tensor(values), side=side, sorter=order), expected)
    same(st.searchsorted(st.tensor(rows), st.tensor(values), right=True), expected)
    assert st.searchsorted(st.tensor([1, 2]), 2, out_int32=True).dtype == st.int32
    assert st.bucketize(st.tensor([1, 3]), st.tensor([1, 2]), right=True, out_int32=True).tolist() == [1, 2]
    assert st.searchsorted(st.empty(0, 2), st.empty(0, 3)).shape == (0, 3)
    for how in ({"side": "left", "right": True}, {"side": "up"}, {"sorter": st.tensor([0, 1])}):
        with pytest.raises(InvalidArgument):
            st.searchsorted(st.tensor(rows), st.tensor(values), **how)
    with pytest.raises(InvalidArgument, match="rows"):
        st.searchsorted(st.tensor(rows), st.ones(3, 2))


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(InvalidArgument, match="mask"):
        st.ones(2, 2).masked_fill(st.tensor([True, False, True]), 0)


def test_where_refuses_numbers_that_the_type_does_not_have():
    x = st.ones(1, dtype="uint8")
    assert st.where(st.tensor([False]), x, 3).dtype == "uint8"
    for number in (300, -1):
        with pytest.raises(InvalidArgument, match="bounds"):
            st.where(st.tensor([False]), x, number)
