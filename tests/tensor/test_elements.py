"""Single elements and whole buffers: x[i], item, float, int, bool, iteration; memoryview, the array interface."""

from __future__ import annotations

import gc
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError

WHERE = pytest.mark.parametrize("shared", [False, True], ids=["heap", "shared"])
ROWS = pytest.mark.parametrize("row", ELEMENT_TYPES, ids=lambda row: row.name)


def cube(shared: bool = False) -> Any:
    return st.asarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4), shared=shared)


# -- by an integer ----------------------------------------------------------------------------------------------------


@WHERE
def test_an_integer_gives_a_view_of_the_storage(shared: bool) -> None:
    x = cube(shared)
    a = x.numpy()
    for view in (x, x[::-1], x.permute(2, 0, 1), x[:, 1:, ::2], x[:1]):
        for i in range(-len(view), len(view)):
            one = view[i]
            assert type(one) is st.Tensor
            assert one.storage() is x.storage()
            assert (one.tolist(), one.stride()) == (view.numpy()[i].tolist(), view.stride()[1:])
    x[1][2][3].fill_(-1)
    assert a[1, 2, 3] == -1
    for i in (2, -3, 2**70, -(2**70)):
        with pytest.raises(IndexOutOfRange):
            x[i]
    with pytest.raises(IndexOutOfRange):
        x[0][0][0][0]


def test_an_element_follows_its_storage() -> None:
    fresh = st.arange(4)[1]  # of a tensor that has no storage object yet
    x = st.arange(4)
    before = x[1]
    x.share_memory_()
    x[1] = 7
    assert before.item() == x[1].item() == int(before) == 7
    assert before.is_shared() and not fresh.is_shared()


def test_an_element_keeps_the_rights_of_its_tensor() -> None:
    with pytest.raises(LayoutError):
        st.zeros(3, 1).expand(3, 4)[0].fill_(1)
    x = st.zeros(3).share_memory_(copy_on_write=True)
    with pytest.raises(LayoutError):
        x[0].fill_(1)


def test_keys_that_are_no_plain_integers() -> None:
    x = cube()
    a = x.numpy()
    for key in (np.int64(1), st.tensor(1), True, None, slice(1), ..., [1, 0], (1, 2), (1, 2, 3)):
        wanted = a[key.item() if isinstance(key, st.Tensor) else key]
        assert x[key].tolist() == wanted.tolist()
    with pytest.raises(InvalidArgument):
        x["a"]


@WHERE
def test_iteration(shared: bool) -> None:
    x = cube(shared)
    assert [one.tolist() for one in x] == x.tolist()
    assert [one.item() for one in x.flatten()] == list(range(24))
    assert all(one.storage() is x.storage() for one in x)
    first, second = x
    assert (first[0][1].item(), second.sum().item()) == (1, sum(range(12, 24)))
    assert list(st.empty(0)) == []
    with pytest.raises(DTypeError):
        iter(st.tensor(1))


# -- numbers ----------------------------------------------------------------------------------------------------------


@ROWS
@WHERE
def test_single_elements_as_numbers(row: Any, shared: bool) -> None:
    x = st.tensor([0, 1, 1], dtype=row.dtype, shared=shared)
    for i, wanted in enumerate((0, 1, 1)):
        value = x[i].item()
        assert type(value) is type(x.numpy().item(i))
        assert value == wanted
        assert bool(x[i]) is bool(wanted)
        if row.dtype.kind == "c":
            with pytest.raises(TypeError):
                float(x[i])
        else:
            assert type(float(x[i])) is float and float(x[i]) == wanted
            assert type(int(x[i])) is int and int(x[i]) == wanted
    assert x[1:2].item() == float(abs(x[1:2])) == 1  # one element in one axis


def test_numbers_that_are_not_single() -> None:
    x = st.ones(2)
    for convert, match in ((float, "item"), (int, "item"), (bool, "ambiguous"), (st.Tensor.item, "item")):
        with pytest.raises(InvalidArgument, match=rf"{match}.*"):
            convert(x)
        with pytest.raises(InvalidArgument):
            convert(x[:0])
    for value in (float("nan"), float("inf")):
        with pytest.raises((ValueError, OverflowError)):
            int(st.tensor(value))


def test_nothing_is_kept() -> None:
    x = st.ones(3, shared=True)
    array = x._array
    before = sys.getrefcount(array), sys.getrefcount(x.storage())
    for _ in range(100):
        float(x[1])
        bool(x[0]), int(x[2]), x[1].item(), list(x), bytes(x), memoryview(x)
        with pytest.raises(InvalidArgument):
            float(x)
        with pytest.raises(IndexOutOfRange):
            x[3]
    gc.collect()
    assert (sys.getrefcount(array), sys.getrefcount(x.storage())) == before


# -- buffers ----------------------------------------------------------------------------------------------------------


@WHERE
def test_memoryview_is_over_the_same_memory(shared: bool) -> None:
    x = cube(shared)
    view = memoryview(x)
    assert (view.shape, view.format, view.readonly, view.nbytes) == ((2, 3, 4), "i", False, 96)
    view[1, 2, 3] = -5
    assert x[1][2][3].item() == -5
    assert memoryview(x[:, ::2]).strides == (48, 32, 4)
    assert bytes(x[0][0]) == x[0][0].tobytes() == np.arange(4, dtype=np.int32).tobytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy 2.5 on
        view.obj.shape = (24,)  # type: ignore[attr-defined]
    assert x.shape == (2, 3, 4)


def test_memoryview_keeps_what_it_is_over() -> None:
    x = st.ones(1000, shared=True)
    view = memoryview(x)
    del x
    others = [st.zeros(1000, shared=True) for _ in range(20)]
    assert set(view) == {1.0}
    del others
    heap = st.ones(4)
    old = memoryview(heap)
    heap.share_memory_().fill_(2)
    assert old.tolist() == [1] * 4


def test_memoryview_of_read_only_memory() -> None:
    for x in (st.zeros(3).share_memory_(copy_on_write=True), st.zeros(1).expand(3)):
        assert memoryview(x).readonly
        with pytest.raises((BufferError, ValueError)):
            np.asarray(x)[0] = 1


@ROWS
@WHERE
def test_numpy_takes_the_memory(row: Any, shared: bool) -> None:
    x = st.tensor([[0, 1], [1, 0]], dtype=row.dtype, shared=shared)
    a = np.asarray(x)
    assert a.dtype == row.dtype and a.tolist() == x.numpy().tolist()
    a[0, 0] = 1
    assert x[0][0].item() == 1
    again = st.from_numpy(a)
    assert again.is_shared() is shared
    assert not shared or again.storage() is x.storage()


@ROWS
def test_array_interface(row: Any) -> None:
    x = st.tensor([[0, 1], [1, 0]], dtype=row.dtype)
    if row.package is None:
        for view in (x, x.T, x[::-1]):
            assert view.__array_interface__ == view.numpy().__array_interface__
    else:  # NumPy's protocol has no name for these
        assert not hasattr(x, "__array_interface__")


def test_pillow_makes_images() -> None:
    image = pytest.importorskip("PIL.Image")
    x = st.arange(12 * 8 * 3, dtype="uint8", shared=True).view(12, 8, 3)
    for pixels in (x, x[:, ::2], x.flip(0)):
        made = image.fromarray(pixels)
        assert made.size == (pixels.shape[1], pixels.shape[0])
        assert np.array_equal(np.asarray(made), pixels.numpy())


# -- into shared memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [st.asarray, st.from_numpy])
def test_arrays_into_shared_memory(make: Any) -> None:
    a = np.arange(6.0).reshape(2, 3)
    for values in (a, a.T, a[:, ::2], np.broadcast_to(a[0], (4, 3)), a[:0]):
        x = make(values, shared=True)
        assert x.is_shared() and x.dtype == a.dtype and np.array_equal(x.numpy(), values)
    x = make(a, shared=True)
    x[0] = 9
    assert a[0, 1] == 1  # a copy
    assert make(x.numpy(), shared=True).storage() is x.storage()  # it is there already
    with pytest.raises(DTypeError):
        make(np.array([print]), shared=True)


def test_asarray_into_shared_memory() -> None:
    heap, shared = st.ones(3), st.ones(3, shared=True)
    assert st.asarray(shared, shared=True) is shared
    assert st.asarray(shared, shared=True, copy=True).storage() is not shared.storage()
    moved = st.asarray(heap, shared=True)
    assert moved.is_shared() and not heap.is_shared() and moved.tolist() == heap.tolist()
    assert st.asarray([1, 2], shared=True, dtype="int16").dtype == st.int16
    assert st.asarray(shared, shared=True, dtype="float64").is_shared()
    assert st.asarray(shared, shared=True, copy=False) is shared
    for values in (heap, np.ones(3), [1, 2]):
        with pytest.raises(InvalidArgument, match="without a copy"):
            st.asarray(values, shared=True, copy=False)
    with pytest.raises(DTypeError, match=r"numpy\.ndarray"):
        st.from_numpy([1, 2], shared=True)  # type: ignore[arg-type]
