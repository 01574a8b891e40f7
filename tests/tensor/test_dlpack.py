"""Export and import over DLPack keep the same memory, and what cannot be used is refused."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dlpack_world import NAMED, PLACES, Made, content_of, name_of, sent, twelve
from hypothesis import given
from hypothesis import strategies as st

from shmtensor import _native, from_dlpack
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import InvalidArgument, LayoutError

DTYPES = [row.dtype for row in ELEMENT_TYPES]

# -- NumPy -------------------------------------------------------------------------------------------------------------


@PLACES
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.isbuiltin == 1], ids=str)
def test_numpy_has_the_same_memory(dtype: Any, shared: bool) -> None:
    t = twelve(shared, dtype)
    array = np.from_dlpack(t)
    assert array.dtype == dtype
    assert array.ctypes.data == t.data_ptr()
    assert array.flags.writeable
    back = from_dlpack(array)
    assert back.dtype == dtype
    assert back.data_ptr() == t.data_ptr()
    assert back.is_shared() == shared
    back[1, 2] = 0
    assert t[1, 2].item() == 0


def test_numpy_arrays_come_in() -> None:
    array = np.arange(6.0).reshape(2, 3)
    t = from_dlpack(array)
    array[0, 1] = 9
    assert t.tolist() == [[0, 9, 2], [3, 4, 5]]
    assert t.data_ptr() == array.ctypes.data
    assert not t.is_shared()
    del array
    gc.collect()
    assert t.sum().item() == 23


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:],
    "columns": lambda a: a[:, 1:3],
    "steps": lambda a: a[::2, ::3],
    "transpose": lambda a: a.T if isinstance(a, np.ndarray) else a.t(),
    "one element": lambda a: a[1:2, 2:3],
    "no axes": lambda a: a[1, 2, ...],
    "nothing": lambda a: a[:, 4:],
    "nothing at all": lambda a: a[3:, 4:],
}


@PLACES
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(view: Callable[[Any], Any], shared: bool) -> None:
    t = twelve(shared)
    array = view(t.numpy())
    out = np.from_dlpack(view(t))
    assert out.shape == array.shape
    assert out.tolist() == array.tolist()
    assert not array.size or (out.strides, out.ctypes.data) == (array.strides, array.ctypes.data)
    for back in (from_dlpack(out), from_dlpack(array), from_dlpack(view(t)), from_dlpack(from_dlpack(out))):
        assert back.shape == array.shape
        assert back.tolist() == array.tolist()
        assert back.is_shared() == shared or not array.size
        if array.size:
            back += 1
            assert np.array_equal(view(t.numpy()), back.numpy())


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: np.arange(5)[::-1], [4, 3, 2, 1, 0]),
        (lambda: np.arange(6).reshape(2, 3)[:, ::-1], [[2, 1, 0], [5, 4, 3]]),
    ],
)
def test_negative_strides(make: Callable[[], Any], values: Any) -> None:
    array = make()
    t = from_dlpack(array)
    assert t.tolist() == values
    t.fill_(7)
    assert (array == 7).all()
    assert from_dlpack(array, copy=True).tolist() == array.tolist()


def test_a_tensor_whose_strides_go_backwards_is_not_exported() -> None:
    t = from_dlpack(np.arange(5)[::-1])
    with pytest.raises(BufferError, match="clone"):
        t.__dlpack__()
    assert np.from_dlpack(t.clone()).tolist() == [4, 3, 2, 1, 0]


def test_a_negative_stride_of_one_element_is_none() -> None:
    array = np.arange(5)[::-1][:1]
    t = from_dlpack(array, copy=False)
    assert t.stride() == (1,)
    assert t.data_ptr() == array.ctypes.data


# -- what a capsule says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "name"),
    [(None, "dltensor"), ((0, 8), "dltensor")] + [(v, "dltensor_versioned") for v in ((1, 0), (1, 1), (1, 9), (2, 0))],
)
def test_versions_given_and_taken(newest: Any, name: str) -> None:
    t = twelve(True)
    capsule = t.__dlpack__(max_version=newest)
    assert name_of(capsule) == name
    content = content_of(capsule)
    if newest and newest[0]:
        assert tuple(content.version) == (1, 1)
        assert content.flags == 0
    said = content.tensor
    assert (said.data, tuple(said.device), said.axes, said.byte_offset) == (t.data_ptr(), (1, 0), 2, 0)
    assert (said.code, said.bits, said.lanes) == (2, 32, 1)
    assert (said.sizes[:2], said.strides[:2]) == ([3, 4], [4, 1])
    back = from_dlpack(capsule)
    assert name_of(capsule) == f"used_{name}"
    assert back.storage() is t.storage()
    with pytest.raises(InvalidArgument, match="already consumed"):
        from_dlpack(capsule)


def test_device_is_the_processor() -> None:
    assert twelve(True).__dlpack_device__() == (1, 0)
    assert twelve(False).__dlpack_device__() == np.zeros(1).__dlpack_device__()


@PLACES
def test_a_copy_is_asked_for(shared: bool) -> None:
    t = twelve(shared)[:, 1:]
    content = content_of(kept := t.__dlpack__(max_version=(1, 0), copy=True))
    assert content.flags == 2
    assert content.tensor.data != t.data_ptr()
    assert content.tensor.strides[:2] == [3, 1]
    copy = from_dlpack(kept)
    assert copy.tolist() == t.tolist()
    assert not copy.is_shared()
    t.zero_()
    assert copy.sum().item() == 54
    for capsule in (t.__dlpack__(copy=False), t.__dlpack__(copy=None)):
        assert content_of(capsule).tensor.data == t.data_ptr()


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"stream": 1}, InvalidArgument, "stream 1"),
        ({"stream": -1}, InvalidArgument, "stream -1"),
        ({"dl_device": (2, 0)}, BufferError, r"device \(2, 0\)"),
        ({"dl_device": (1, 1)}, BufferError, r"device \(1, 1\)"),
        ({"dl_device": "cuda"}, BufferError, "device 'cuda'"),
        ({"max_version": 1}, InvalidArgument, "max_version 1"),
        ({"max_version": ()}, InvalidArgument, "max_version"),
    ],
)
def test_exports_that_are_refused(asked: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        twelve(True).__dlpack__(**asked)


def test_dl_device_of_the_processor() -> None:
    assert name_of(twelve(True).__dlpack__(dl_device=(1, 0))) == "dltensor"


@pytest.mark.parametrize("dtype", ["float128", "complex256", "object", "datetime64[s]", "S3", "V4", ">f4", "f4,f4"])
def test_dtypes_that_dlpack_has_not(dtype: str) -> None:
    array = np.zeros(2, dtype)
    with pytest.raises(BufferError, match="no type in DLPack"):
        _native.dlpack_export(array, True, False)


def test_exports_want_an_array() -> None:
    with pytest.raises(TypeError, match="ndarray"):
        _native.dlpack_export([1], True, False)  # type: ignore[arg-type]


def test_strides_between_elements_are_refused() -> None:
    array = np.zeros(4, "i4,i1")["f0"]
    with pytest.raises(BufferError, match="strides"):
        _native.dlpack_export(array, True, False)


@pytest.mark.parametrize("name", NAMED)
def test_types_of_ml_dtypes(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = np.array([1, 2, 4], dtype)
    capsule = _native.dlpack_export(array, True, False)
    said = content_of(capsule).tensor
    assert (said.code, said.bits, said.lanes) == (*NAMED[name], 1)
    back = _native.dlpack_import(capsule, None, None)
    assert back.dtype == dtype
    assert back.ctypes.data == array.ctypes.data
    assert back.astype(float).tolist() == [1, 2, 4]


def test_without_ml_dtypes_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    made = Made(type=(4, 16, 1))
    with pytest.raises(BufferError, match=r"bfloat16.*ml_dtypes"):
        from_dlpack(made)
    assert made.deleted == 1


# -- read-only ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["received", "frozen"])
def test_read_only_memory_goes_out_as_that(way: str) -> None:
    t = twelve(True)
    if way == "frozen":
        t.share_memory_(copy_on_write=True)
    else:
        t = sent(t.share_memory_(readonly=True))
    content = content_of(kept := t.__dlpack__(max_version=(1, 0)))
    assert content.flags == 1
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    assert name_of(t.__dlpack__(copy=True)) == "dltensor"
    copy = t.__dlpack__(max_version=(1, 0), copy=True)
    assert content_of(copy).flags == 2
    array = np.from_dlpack(t)
    assert not array.flags.writeable
    for back in (from_dlpack(array), from_dlpack(t), from_dlpack(kept)):
        assert back.storage() is t.storage()
        with pytest.raises(LayoutError, match="read-only"):
            back[0, 0] = 1
    from_dlpack(copy)[0, 0] = 1


def test_read_only_memory_comes_in_as_that() -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    t = from_dlpack(array)
    for write in (lambda: t.fill_(1), lambda: t.add_(1) if hasattr(t, "add_") else t.zero_(), lambda: t[1:].zero_()):
        with pytest.raises(LayoutError, match="read-only"):
            write()
    with pytest.raises(LayoutError, match="read-only"):
        t.storage()[0] = 1
    assert not t.numpy().flags.writeable
    assert t.data_ptr() == array.ctypes.data
    assert from_dlpack(array, copy=True).fill_(1).tolist() == [1] * 4
    made = Made(flags=1)
    with pytest.raises(LayoutError, match="read-only"):
        from_dlpack(made)[0] = 1


def test_a_read_only_array_of_nothing() -> None:
    t = from_dlpack(Made((0, 3), at=None, flags=1))
    assert t.shape == (0, 3)
    assert not t.numpy().flags.writeable


# -- capsules that cannot be used --------------------------------------------------------------------------------------

MOST = 2**63 - 1
REFUSED: list[tuple[str, type[Exception], str, dict[str, Any]]] = [
    ("cuda", BufferError, r"on cuda .*number 3", {"device": (2, 3)}),
    ("rocm", BufferError, "on rocm", {"device": (10, 0)}),
    ("cuda managed", BufferError, "on cuda managed", {"device": (13, 0)}),
    ("metal", BufferError, "on metal", {"device": (8, 0)}),
    ("nowhere", BufferError, r"on unknown .*type 99", {"device": (99, 0)}),
    ("name", InvalidArgument, 'the capsule is "tensor"', {"name": b"tensor"}),
    ("no name", InvalidArgument, 'the capsule is ""', {"name": b""}),
    ("used", InvalidArgument, "already consumed", {"name": b"used_dltensor"}),
    ("used versioned", InvalidArgument, "already consumed", {"name": b"used_dltensor_versioned"}),
    ("axes", InvalidArgument, "65 axes", {"axes": 65}),
    ("axes below 0", InvalidArgument, "-1 axes", {"axes": -1}),
    ("axes without end", InvalidArgument, "2147483647 axes", {"axes": 2**31 - 1}),
    ("no sizes", InvalidArgument, "no sizes", {"sizes": None, "axes": 2}),
    ("size below 0", InvalidArgument, "size -1", {"sizes": (3, -1)}),
    ("too much", InvalidArgument, "more bytes", {"sizes": (2**40, 2**40)}),
    ("too much beside nothing", InvalidArgument, "more bytes", {"sizes": (2**40, 0, 2**40)}),
    ("a product that wraps", InvalidArgument, "more bytes", {"sizes": (2**32, 2**32)}),
    ("no memory", InvalidArgument, "no memory", {"at": None}),
    ("no memory, an offset", InvalidArgument, "no memory", {"at": None, "offset": 8}),
    ("offset", InvalidArgument, "byte_offset", {"offset": 2**64 - 1}),
    ("stride", InvalidArgument, "stride", {"sizes": (3, 3), "strides": (MOST, 1)}),
    ("stride that wraps", InvalidArgument, "stride", {"sizes": (3,), "strides": (2**61,)}),
    ("strides beyond", InvalidArgument, "strides lead", {"sizes": (3, 3), "strides": (2**46, 1)}),
    ("strides before", InvalidArgument, "strides lead", {"sizes": (3,), "strides": (-(2**44),)}),
    ("not aligned", BufferError, "aligned", {"at": 2}),
    ("offset not aligned", BufferError, "aligned", {"offset": 3}),
    ("lanes", BufferError, "4 lanes", {"type": (2, 32, 4)}),
    ("no lanes", BufferError, "0 lanes", {"type": (2, 32, 0)}),
    ("opaque", BufferError, "code 3", {"type": (3, 64, 1)}),
    ("a type to come", BufferError, "code 99", {"type": (99, 8, 1)}),
    ("4 bits", BufferError, "code 17", {"type": (17, 4, 1)}),
    ("int4", BufferError, "4 bits", {"type": (0, 4, 1)}),
    ("int24", BufferError, "24 bits", {"type": (0, 24, 1)}),
    ("no bits", BufferError, "0 bits", {"type": (0, 0, 1)}),
    ("int128", BufferError, "128 bits", {"type": (0, 128, 1)}),
    ("float128", BufferError, "128 bits", {"type": (2, 128, 1)}),
    ("complex32", BufferError, "32 bits", {"type": (5, 32, 1)}),
    ("bool of a bit", BufferError, "1 bits", {"type": (6, 1, 1)}),
    ("float8 of 16 bits", BufferError, "code 10", {"type": (10, 16, 1)}),
]


@pytest.mark.parametrize("versioned", [False, True], ids=["dltensor", "dltensor_versioned"])
@pytest.mark.parametrize(("error", "message", "made"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(error: type[Exception], message: str, made: dict[str, Any], versioned: bool) -> None:
    producer = Made(versioned=versioned, **made)
    ours = "name" not in made
    with pytest.raises(error, match=message):
        from_dlpack(producer)
    gc.collect()
    assert producer.deleted == ours  # a capsule that was not taken deletes itself
    capsule = Made(versioned=versioned, **made).capsule()
    for _ in range(2):  # whoever has the capsule still has it
        with pytest.raises(error, match=message):
            from_dlpack(capsule)


def test_a_later_major_version_is_deleted_at_once() -> None:
    # Nothing of it is known but where its deleter is.
    made = Made(version=(2, 0), device=(77, 7), type=(88, 8, 8), axes=-5)
    capsule = made.capsule()
    with pytest.raises(BufferError, match=r"DLPack 2\.0"):
        from_dlpack(capsule)
    assert made.deleted == 1
    assert name_of(capsule) == "used_dltensor_versioned"
    del capsule
    assert made.deleted == 1


def test_later_minor_versions_are_as_this_one() -> None:
    assert from_dlpack(Made((2,), version=(1, 7), type=(1, 8, 1))).tolist() == [0, 1]


@pytest.mark.parametrize("x", [3, [1.0], "abc", None])
def test_objects_without_dlpack(x: Any) -> None:
    with pytest.raises(AttributeError, match=f"not a {type(x).__name__}"):
        from_dlpack(x)


def test_dlpack_that_gives_no_capsule() -> None:
    class Wrong:
        def __dlpack__(self, **asked: Any) -> int:
            return 5

    with pytest.raises(TypeError, match="int"):
        from_dlpack(Wrong())


@pytest.mark.parametrize("error", [BufferError, TypeError, KeyError, AttributeError])
def test_what_the_other_library_raises_comes_through(error: type[Exception]) -> None:
    class Wrong:
        def __dlpack__(self, **asked: Any) -> Any:
            raise error("its own reason")

    with pytest.raises(error, match="its own reason"):
        from_dlpack(Wrong())


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "meta", (2, 0)])
def test_devices_that_are_not_there(device: Any) -> None:
    with pytest.raises(BufferError, match="device"):
        from_dlpack(np.zeros(3), device=device)


def test_what_is_asked_of_the_other_library() -> None:
    for given_, asked in (
        ({}, {"max_version": (1, 1)}),
        ({"device": "cpu"}, {"max_version": (1, 1), "dl_device": (1, 0), "copy": None}),
        ({"copy": True}, {"max_version": (1, 1), "dl_device": None, "copy": True}),
        ({"copy": False}, {"max_version": (1, 1), "dl_device": None, "copy": False}),
    ):
        made = Made()
        from_dlpack(made, **given_)
        assert made.asked == asked


def test_a_copy_that_was_forbidden() -> None:
    made = Made(flags=2)
    with pytest.raises(BufferError, match="copy=False"):
        from_dlpack(made, copy=False)
    assert made.deleted == 1
    assert from_dlpack(Made(flags=2), copy=True).shape == (3,)


@pytest.mark.parametrize("versioned", [False, True])
def test_libraries_before_these_arguments(versioned: bool) -> None:
    class Old:
        made = Made((4,), type=(1, 8, 1), versioned=versioned)

        def __dlpack__(self) -> Any:
            return self.made.capsule()

    old = Old()
    assert from_dlpack(old, copy=False).data_ptr() == ctypes.addressof(old.made.memory)
    copy = from_dlpack(old, copy=True)
    assert copy.tolist() == [0, 1, 2, 3]
    assert copy.data_ptr() != ctypes.addressof(old.made.memory)
    assert old.made.deleted == 2
    old.made.managed.tensor.device[:] = (2, 0)
    with pytest.raises(BufferError, match="cuda"):
        from_dlpack(old, device="cpu")


@given(data=st.data())
def test_any_layout_is_as_numpy_has_it(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 4), max_size=4))
    strides = data.draw(st.lists(st.integers(-4, 8), min_size=len(sizes), max_size=len(sizes)))
    reach = [(n - 1) * s if n else 0 for n, s in zip(sizes, strides, strict=True)]
    before, after = -sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    shift = data.draw(st.integers(0, 3))
    at = data.draw(st.integers(0, 2))
    made = Made(
        sizes,
        strides,
        type=(0, 16, 1),
        at=2 * at,
        offset=2 * (before + shift),
        nbytes=2 * (at + before + shift + after + 1),
    )
    wanted = np.ndarray(sizes, np.int16, made.memory, 2 * (at + before + shift), [2 * s for s in strides])
    t = from_dlpack(made)
    assert t.shape == wanted.shape
    assert t.tolist() == wanted.tolist()
    if wanted.size:
        assert t.data_ptr() == wanted.ctypes.data
    assert not made.deleted
    del t
    assert made.deleted == 1
