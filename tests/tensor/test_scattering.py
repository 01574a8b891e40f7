"""Writing with indices, with repeated indices, and into views of copies, against plain loops and NumPy."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
from layouts import memory_of_its_own, same
from tiers import first

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError

COMBINE = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "amax": max, "amin": min}


def reduced(old: float, new: list[float], how: str, include_self: bool) -> float:
    """What one place becomes."""
    every = [old, *new] if include_self or not new else new
    return sum(every) / len(every) if how == "mean" else functools.reduce(COMBINE[how], every)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_several_values_for_one_place(dim, how, include_self):
    a = np.arange(12.0).reshape(3, 4) - 4
    at = np.array([[0, 2, 2], [0, 2, 0]])
    source = np.arange(8.0).reshape(2, 4) * 3 - 7  # larger than the indices
    expected = a.copy()
    for place in np.ndindex(3, 4):
        new = [source[i, j] for i, j in np.ndindex(2, 3) if ((at[i, j], j) if dim == 0 else (i, at[i, j])) == place]
        expected[place] = reduced(a[place], new, how, include_self)
    x = st.from_numpy(a.copy())
    found = x.scatter_reduce(dim, st.tensor(at), st.tensor(source), how, include_self=include_self)
    same(found, expected)
    same(x, a)
    memory_of_its_own(found, x)
    assert x.scatter_reduce_(dim, st.tensor(at), st.tensor(source), how, include_self=include_self) is x
    same(x, expected)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("how", ["prod", "mean", "amax", "amin"])
def test_several_parts_for_one_index(how, include_self):
    a, source = np.arange(8.0).reshape(4, 2) - 3, np.arange(6.0).reshape(3, 2) * 2 - 5
    at = [3, 1, 3]
    expected = a.copy()
    for i, j in np.ndindex(4, 2):
        expected[i, j] = reduced(a[i, j], [source[k, j] for k in range(3) if at[k] == i], how, include_self)
    x = st.from_numpy(a.copy())
    same(st.index_reduce(x, 0, st.tensor(at), st.tensor(source), how, include_self=include_self), expected)
    turned = x.t().clone()
    assert turned.index_reduce_(1, st.tensor(at), st.tensor(source).t(), how, include_self=include_self) is turned
    same(turned, expected.T)


def test_reductions_of_other_types():
    x = st.tensor([7, 1], dtype="int32")
    at = st.tensor([0, 0])
    assert x.scatter_reduce(0, at, st.tensor([-1, -3], dtype="int32"), "mean").tolist() == [1, 1]
    low = x.scatter_reduce(0, at, st.tensor([-9, -3], dtype="int32"), "amax", include_self=False)
    assert low.tolist() == [-3, 1]
    nan = st.tensor([1.0]).scatter_reduce(0, st.tensor([0]), st.tensor([float("nan")]), "amax")
    assert np.isnan(nan.item())
    assert st.tensor(2.0).scatter_reduce(0, st.tensor(0), st.tensor(3.0), "prod").item() == 6
    assert st.tensor(2.0).index_reduce(-1, st.tensor([0]), st.tensor(3.0), "amin").item() == 2
    y = st.tensor([5, 6])
    assert y.scatter_reduce_(0, st.tensor([1, 0]), y, "sum", include_self=False).tolist() == [6, 5]
    y = st.arange(3.0)
    assert y.scatter_reduce_(0, st.tensor([1, 2]), y[:2], "sum").tolist() == [0, 1, 3]  # the source is not read again


def test_what_cannot_be_reduced():
    x, at = st.zeros(3), st.tensor([0, 1])
    with pytest.raises(InvalidArgument, match="'median'"):
        x.scatter_reduce(0, at, st.ones(2), "median")
    with pytest.raises(InvalidArgument, match="index_add"):
        x.index_reduce(0, at, st.ones(2), "sum")
    with pytest.raises(DTypeError, match="int64"):
        x.scatter_reduce(0, at, st.ones(2, dtype="int64"), "sum")
    with pytest.raises(DTypeError, match="no order"):
        st.zeros(3, dtype="complex64").scatter_reduce(0, at, st.ones(2, dtype="complex64"), "amax")
    with pytest.raises(IndexOutOfRange):
        x.scatter_reduce(0, st.tensor([3]), st.ones(1), "sum")
    with pytest.raises(IndexOutOfRange):
        x.index_reduce(0, st.tensor([3]), st.ones(1), "prod")
    with pytest.raises(InvalidArgument):
        x.scatter_reduce(0, at, st.ones(1), "sum")
    with pytest.raises(LayoutError):
        st.zeros(1).expand(3).scatter_reduce_(0, at, st.ones(2), "sum")


def test_values_at_indices():
    a = np.arange(12.0).reshape(3, 4)
    rows, columns = np.array([0, 2, 0]), np.array([1, 3, 1])
    x = st.from_numpy(a.copy())
    expected = a.copy()
    expected[rows, columns] = [5, 6, 7]
    same(st.index_put(x, (st.tensor(rows), st.tensor(columns)), st.tensor([5.0, 6, 7], dtype="float64")), expected)
    same(x, a)
    expected = a.copy()
    np.add.at(expected, (rows, columns), 10)
    same(x.index_put([st.tensor(rows), st.tensor(columns)], st.tensor(10.0), accumulate=True), expected)
    expected = a.copy()
    expected[:, [1, 1]] = 3
    assert x.index_put_((None, st.tensor([1, 1])), st.tensor(3.0)) is x
    same(x, expected)
    expected[expected > 4] = -1
    same(x.index_put_((x > 4,), st.tensor(-1.0)), expected)
    bytes_ = st.tensor([1, 0, 1], dtype="uint8")  # a mask
    expected[[0, 2]] = 8
    same(x.index_put_((bytes_,), st.tensor(8.0)), expected)
    with pytest.raises(IndexOutOfRange):
        x.index_put_((st.tensor([3]),), st.tensor(0.0))
    with pytest.raises(InvalidArgument, match="at most one"):
        x.index_put_((rows, rows, rows), st.tensor(0.0))
    with pytest.raises(LayoutError):
        st.zeros(1).expand(3).index_put_((st.tensor([0]),), st.ones(1), True)


def test_copies_that_were_written_to():
    x = st.arange(4.0)
    assert x.put(st.tensor([0, -1]), st.tensor([8.0, 9])).tolist() == [8, 1, 2, 9]
    assert st.put(x, st.tensor([1, 1]), st.ones(2), accumulate=True).tolist() == [0, 3, 2, 3]
    wide = st.masked_scatter(x, st.tensor([[True] * 4, [False] * 4]), st.arange(10.0, 20.0))
    assert wide.tolist() == [[10, 11, 12, 13], [0, 1, 2, 3]]
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidArgument, match="mask"):
        x.masked_scatter(st.tensor([True] * 3), st.ones(9))


def test_into_a_view_of_a_copy():
    a = np.arange(24.0).reshape(2, 3, 4)
    x = st.from_numpy(a.copy())
    expected = a.copy()
    expected[:, [0, 1], [1, 2]] = -1  # a part of the diagonal
    expected[:, 2, 3] = -1
    found = st.diagonal_scatter(x, st.full((2, 3), -1, dtype="float64"), 1, 1, 2)
    same(found, expected)
    memory_of_its_own(found, x)
    expected = a.copy()
    expected[:, -1] = 5
    same(x.select_scatter(st.full((2, 4), 5, dtype="float64"), 1, -1), expected)
    expected = a.copy()
    expected[..., 1:4:2] = 6
    same(x.slice_scatter(st.full((2, 3, 2), 6, dtype="float64"), -1, 1, None, 2), expected)
    same(x, a)
    for wrong in (
        lambda: x.diagonal_scatter(st.zeros(3)),
        lambda: x.select_scatter(st.zeros(1, 4), 1, 0),
        lambda: x.slice_scatter(st.zeros(1), 0, 0, 1),
        lambda: x.slice_scatter(st.zeros(1), 0, 0, 1, 0),
    ):
        with pytest.raises(InvalidArgument):
            wrong()
    with pytest.raises(IndexOutOfRange):
        x.select_scatter(st.zeros(2, 4), 1, 3)


def test_into_a_strided_view_of_a_copy():
    x = st.arange(12.0).view(3, 4)
    found = x.as_strided_scatter(st.tensor([50.0, 60]), (2,), (5,), 1)
    expected = np.arange(12, dtype=np.float32)
    expected[[1, 6]] = 50, 60
    same(found, expected.reshape(3, 4))
    memory_of_its_own(found, x)
    part = x.t()[1:]  # its own strides and offset stay
    found = st.as_strided_scatter(part, st.zeros(1), (1,), (1,))
    assert found.stride() == part.stride() and found[0, 0].item() == 0
    same(found[1:], part[1:].numpy())
    with pytest.raises(InvalidArgument):
        x.as_strided_scatter(st.zeros(2), (2,), (12,))
    with pytest.raises(InvalidArgument):
        x.as_strided_scatter(st.zeros(3), (2,), (1,))


def test_an_index_that_is_the_target():
    x = st.tensor([2, 0, 1])
    x.scatter_reduce_(0, x, st.tensor([10, 20, 30]), "sum", include_self=False)
    assert x.tolist() == [20, 30, 10]
    y = st.tensor([2, 0, 1])
    y[y] = st.tensor([10, 20, 30])
    assert y.tolist() == [20, 30, 10]


WRITES = [
    "x.index_put_((i,), v)", "x.scatter_(0, i, v)", "x.index_add_(0, i, v)", "x[i] = v", "x.put_(i, v)",
    "x.scatter_reduce_(0, i, v, 'sum')",
]  # fmt: skip


@pytest.mark.parametrize("write", first(WRITES, 2))
def test_indices_that_another_process_changes_meanwhile(write):
    """NumPy checks indices, and then uses them: it must not read them from memory that others write to."""
    program = (
        "import os, shmtensor as st, shmtensor.multiprocessing as mp\n"
        "from shmtensor.errors import IndexOutOfRange\n"
        "def change(i):\n"
        "    parent = os.getppid()\n"
        "    while os.getppid() == parent: i.numpy()[-1000:] = 1 << 40; i.numpy()[-1000:] = 0\n"
        "i = st.zeros(200_000, dtype=st.int64, shared=True)\n"
        "x, v = st.zeros(10), st.ones(200_000)\n"
        "other = mp.get_context('fork').Process(target=change, args=(i,), daemon=True)\n"
        "other.start()\n"
        "for _ in range(100):\n"
        f"    try: {write}\n"
        "    except IndexOutOfRange: pass\n"
        "other.kill(); other.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


def test_values_of_another_kind_are_refused():
    with pytest.raises(DTypeError, match="index_put_ of float32"):
        st.tensor([1, 2]).index_put_((st.tensor([0]),), st.tensor([1.7]))
