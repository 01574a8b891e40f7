"""DLPack: what goes out and comes in is the same memory, deleters are called once, what cannot be used is refused."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dlpack_capsules import Made, content_of, name_of, take
from hypothesis import given
from hypothesis import strategies as st

import shmtensor
import shmtensor.dlpack
import shmtensor.multiprocessing as mp
from shmtensor import _native, from_dlpack
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import InvalidArgument, LayoutError
from shmtensor.manager import client

DTYPES = [row.dtype for row in ELEMENT_TYPES]
PLACES = pytest.mark.parametrize("shared", [False, True], ids=["heap", "shared"])
NAMED = {
    "bfloat16": (4, 16), "float8_e3m4": (7, 8), "float8_e4m3": (8, 8), "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8), "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}  # fmt: skip


def twelve(shared: bool, dtype: Any = np.float32) -> Any:
    """A tensor of shape (3, 4)."""
    return shmtensor.tensor(np.arange(12).astype(dtype), shared=shared).view(3, 4)


def run(code: str, **env: str) -> str:
    """A program of its own, which has to end well and say nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# -- NumPy -------------------------------------------------------------------------------------------------------------


@PLACES
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind in "biufc"], ids=str)
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
def test_negative_strides_are_copied(make: Callable[[], Any], values: Any) -> None:
    array = make()
    t = from_dlpack(array)
    assert t.tolist() == values
    assert t.is_contiguous()
    t.fill_(7)
    assert array.tolist() == values
    with pytest.raises(BufferError, match="negative strides"):
        from_dlpack(array, copy=False)


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
    with pytest.raises(InvalidArgument, match="used before"):
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
    ("name", InvalidArgument, 'called "tensor"', {"name": b"tensor"}),
    ("no name", InvalidArgument, 'called ""', {"name": b""}),
    ("used", InvalidArgument, "used before", {"name": b"used_dltensor"}),
    ("used versioned", InvalidArgument, "used before", {"name": b"used_dltensor_versioned"}),
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
    backwards = wanted.size and any(n > 1 and s < 0 for n, s in zip(sizes, strides, strict=True))
    if wanted.size:
        assert (t.data_ptr() == wanted.ctypes.data) == (not backwards)
    assert made.deleted == bool(backwards)
    assert all(s >= 0 for s in t.stride())
    del t
    assert made.deleted == 1


# -- lifetimes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
def test_a_deleter_is_called_once_with_the_last_view(versioned: bool) -> None:
    made = Made((6,), versioned=versioned)
    capsule = made.capsule()
    t = from_dlpack(capsule)
    part = t.view(2, 3)[1]
    array = part.numpy()
    del t
    del capsule
    gc.collect()
    assert made.deleted == 0
    del part
    assert made.deleted == 0
    del array
    gc.collect()
    assert made.deleted == 1


@pytest.mark.parametrize("made", [{}, {"at": None, "sizes": (0,)}, {"strides": (-1,), "offset": 8}, {"flags": 1}])
def test_a_deleter_is_called_once_in_any_case(made: dict[str, Any]) -> None:
    producer = Made(**made)
    from_dlpack(producer)
    gc.collect()
    assert producer.deleted == 1


def test_no_deleter() -> None:
    t = from_dlpack(Made((2,), type=(1, 8, 1), deletes=False))
    assert t.tolist() == [0, 1]


def test_a_deleter_that_runs_while_an_error_is_under_way() -> None:
    made = Made()

    def fails() -> None:
        t = from_dlpack(made)
        assert t.shape == (3,)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    gc.collect()
    assert made.deleted == 1


def blocks() -> int:
    """Blocks that this process holds."""
    gc.collect()
    return int(client.default().native.stats()[2])


@pytest.mark.parametrize("newest", [None, (1, 0)])
def test_an_exported_block_lives_as_long_as_the_capsule(newest: Any) -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    t = twelve(True)
    capsule = t.__dlpack__(max_version=newest)
    del t
    assert blocks() == before + 1
    others = [shmtensor.full((12,), 9.0, shared=True) for _ in range(50)]
    array = np.from_dlpack(_Bare(capsule))
    del others, capsule
    assert blocks() == before + 1
    assert array.tolist() == np.arange(12.0).reshape(3, 4).tolist()
    del array
    assert blocks() == before
    capsule = twelve(True).__dlpack__(max_version=newest)
    assert blocks() == before + 1
    del capsule  # which nobody took
    assert blocks() == before


class _Bare:
    """What NumPy needs around a capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **asked: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def with_gil(deleter: int, managed: int) -> None:
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)


def without_gil(deleter: int, managed: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)


def in_another_thread(deleter: int, managed: int) -> None:
    thread = threading.Thread(target=without_gil, args=(deleter, managed))
    thread.start()
    thread.join()


def in_a_thread_of_no_python(deleter: int, managed: int) -> None:
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    started = libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(deleter), ctypes.c_void_p(managed))
    assert started == 0
    assert libc.pthread_join(thread, None) == 0


@PLACES
@pytest.mark.parametrize("newest", [None, (1, 0)])
@pytest.mark.parametrize("caller", [with_gil, without_gil, in_another_thread, in_a_thread_of_no_python])
def test_our_deleter_may_be_called_from_anywhere(caller: Callable[[int, int], None], newest: Any, shared: bool) -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    t = twelve(shared)
    array = t._live()
    count = sys.getrefcount(array)
    capsule = t.__dlpack__(max_version=newest)
    assert sys.getrefcount(array) == count + 1
    deleter, managed = take(capsule)
    del capsule
    assert sys.getrefcount(array) == count + 1
    caller(deleter, managed)
    assert sys.getrefcount(array) == count
    del t, array
    assert blocks() == before


def test_memory_that_moves_stays_where_it_was_exported() -> None:
    t = shmtensor.arange(4)
    array = np.from_dlpack(t)
    t.share_memory_()
    t[0] = 9
    assert array.tolist() == [0, 1, 2, 3]
    s = shmtensor.FloatStorage(4)
    s.fill_(1)
    array = np.from_dlpack(shmtensor.Tensor(s))
    s.resize_(4000)
    assert array.tolist() == [1] * 4


# Each is at the end of a program that has a shared tensor `t`, and ends without a word.
ENDS = {
    "a capsule": "kept = t.__dlpack__()",
    "an array": "kept = np.from_dlpack(t)",
    "an array that is in a module": "sys.kept = np.from_dlpack(t)",
    "an import": "kept = shmtensor.from_dlpack(np.arange(5))",
    "both in a circle": "kept = [np.from_dlpack(t), shmtensor.from_dlpack(np.arange(5))]; kept.append(kept)",
    "a deleter when Python has ended": """
        deleter, managed = take(t.__dlpack__())
        ctypes.CDLL(None).__cxa_atexit(ctypes.c_void_p(deleter), ctypes.c_void_p(managed), None)
    """,
    "a deleter in another thread while Python ends": """
        libc = ctypes.CDLL(None)
        class Late:
            def __del__(self, at=take(t.__dlpack__()), libc=libc, thread=ctypes.c_ulong(),
                        initialized=ctypes.pythonapi.Py_IsInitialized, byref=ctypes.byref, pointer=ctypes.c_void_p):
                if not initialized() and libc.pthread_create(byref(thread), None, pointer(at[0]), pointer(at[1])) == 0:
                    libc.pthread_join(thread, None)
                    libc.write(1, b"late ", 5)
        kept = Late()
    """,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_end_of_the_interpreter(end: str) -> None:
    start = """
        import ctypes, sys
        import numpy as np
        import shmtensor, shmtensor.dlpack
        from dlpack_capsules import take
        t = shmtensor.zeros(5, shared=True)
    """
    said = run(
        textwrap.dedent(start) + textwrap.dedent(end) + "\nprint('done', flush=True)\n",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    assert said == ("done\nlate " if "Late" in end else "done\n")


# -- shared memory that comes back -------------------------------------------------------------------------------------


def sent(value: Any) -> Any:
    """What a receiver gets of it."""
    queue = mp.SimpleQueue()
    queue.put(value)
    return queue.get()


def test_memory_of_ours_is_known_again() -> None:
    t = twelve(True)
    array = np.from_dlpack(t)
    for part, offset in ((array, 0), (array[1:], 4), (array.T[2:], 2), (array[2:, 3:], 11)):
        back = from_dlpack(part)
        assert back.is_shared()
        assert back.storage() is t.storage()
        assert back.storage_offset() == offset
        assert back.tolist() == part.tolist()


def test_what_is_known_again_holds_the_block_itself() -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    array = np.from_dlpack(twelve(True))
    back = from_dlpack(array)
    del array
    assert blocks() == before + 1
    others = [shmtensor.full((12,), 9.0, shared=True) for _ in range(50)]
    assert back.tolist() == np.arange(12.0).reshape(3, 4).tolist()
    del others, back
    assert blocks() == before


def test_it_goes_through_a_queue_by_handle() -> None:
    t = twelve(True)
    back = from_dlpack(np.from_dlpack(t))
    got = sent(back[1])
    assert got.storage() is t.storage()
    got[0] = 77
    assert t[1, 0].item() == 77


def _write(tensor: Any, value: float) -> None:
    tensor.fill_(value)


def test_another_process_writes_to_it() -> None:
    array = np.from_dlpack(shmtensor.zeros(3, shared=True))
    process = mp.get_context("spawn").Process(target=_write, args=(from_dlpack(array), 5))
    process.start()
    process.join()
    assert array.tolist() == [5, 5, 5]


def test_a_dedicated_segment_is_known_too() -> None:
    t = shmtensor.empty(_native.DEDICATED_FROM // 4 + 100, shared=True)
    back = from_dlpack(np.from_dlpack(t)[-5:])
    assert back.storage() is t.storage()
    assert back.storage_offset() == t.numel() - 5


def test_the_right_block_of_many() -> None:
    tensors = [shmtensor.full((size,), size, dtype="int64", shared=True) for size in range(1, 200)]
    for t in tensors[::7]:
        back = from_dlpack(np.from_dlpack(t)[-1:])
        assert back.storage() is t.storage()


def test_other_types_over_the_same_block() -> None:
    t = twelve(True)
    back = from_dlpack(np.from_dlpack(t).view(np.uint8))
    assert back.is_shared()
    assert back.dtype == np.uint8
    back.zero_()
    assert t.sum().item() == 0


def test_rights_do_not_get_wider() -> None:
    t = twelve(True)
    array = np.from_dlpack(t)
    t.share_memory_(readonly=True)
    back = from_dlpack(np.from_dlpack(t))
    assert "memory=lent" in repr(back)
    with pytest.raises(LayoutError):
        sent(back)[0, 0] = 1
    assert "memory=lent" in repr(from_dlpack(array))  # taken before, and seen by nobody: the least rights that are left
    t[0, 0] = 50
    assert sent(back)[0, 0].item() == 50
    del t, back
    gc.collect()
    assert "memory=shared" in repr(from_dlpack(array))


def test_a_read_only_view_of_shared_memory() -> None:
    t = twelve(True)
    array = t.numpy()
    array.flags.writeable = False
    back = from_dlpack(array)
    assert back.is_shared()
    assert "memory=read-only" in repr(back)
    with pytest.raises(LayoutError):
        back[0, 0] = 1
    with pytest.raises(LayoutError):
        sent(back)[0, 0] = 1
    t[0, 0] = 50
    assert back[0, 0].item() == 50


def test_memory_of_others_stays_others() -> None:
    private = sent(twelve(True).share_memory_(copy_on_write=True))
    for array in (np.from_dlpack(private), np.from_dlpack(twelve(False)), np.arange(3.0)):
        back = from_dlpack(array)
        assert not back.is_shared()
        assert back.data_ptr() == array.ctypes.data
        with pytest.raises(InvalidArgument):
            back.storage().resize_(100)
        back.share_memory_()
        assert back.is_shared()
        back.zero_()
        assert array.any()  # it moved


def test_what_reaches_beyond_a_block_is_not_that_block() -> None:
    t = shmtensor.zeros(16, shared=True)
    made = Made((17,))
    made.managed.tensor.data = t.data_ptr()
    assert not from_dlpack(made).is_shared()
    assert made.deleted == 1
    made.managed.tensor.sizes[0] = 16
    assert from_dlpack(made).is_shared()


def _both(queue: Any, t: Any) -> None:
    queue.put(from_dlpack(np.from_dlpack(t)))


def test_a_forked_child_knows_it_too() -> None:
    queue = mp.SimpleQueue()
    t = twelve(True)
    process = mp.get_context("fork").Process(target=_both, args=(queue, t))
    process.start()
    got = queue.get()
    process.join()
    assert got.storage() is t.storage()


# -- torch -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


TORCH_NAMES = [row.torch_name for row in ELEMENT_TYPES]


@pytest.mark.torch
@PLACES
@pytest.mark.parametrize("name", TORCH_NAMES)
def test_torch_and_back(torch: Any, name: str, shared: bool) -> None:
    kind = getattr(torch, name, None)
    if kind is None:
        pytest.skip(f"this torch has no {name}")
    dtype = next(row.dtype for row in ELEMENT_TYPES if row.torch_name == name)
    t = twelve(shared, dtype)
    theirs = torch.from_dlpack(t)
    assert theirs.dtype == kind
    assert theirs.data_ptr() == t.data_ptr()
    theirs[1, 2] = 0
    assert t[1, 2].item() == 0
    back = from_dlpack(theirs)
    assert back.dtype == dtype
    assert back.data_ptr() == t.data_ptr()
    assert back.is_shared() == shared
    if shared:
        assert back.storage() is t.storage()
    copy = from_dlpack(theirs, copy=True)
    assert copy.data_ptr() != t.data_ptr()
    assert copy.tolist() == t.tolist()


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", [name for name in NAMED if name not in ("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz")]
)
def test_torch_and_types_of_ml_dtypes(torch: Any, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs = torch.tensor([1.0, 2.0, 4.0]).to(getattr(torch, name))
    array = _native.dlpack_import(theirs, None, None)
    assert array.dtype == getattr(ml_dtypes, name)
    assert array.astype(float).tolist() == [1, 2, 4]
    assert array.ctypes.data == theirs.data_ptr()
    again = torch.from_dlpack(_native.dlpack_export(array, True, False))
    assert again.dtype == theirs.dtype
    assert again.data_ptr() == theirs.data_ptr()


@pytest.mark.torch
def test_torch_views(torch: Any) -> None:
    theirs = torch.arange(24).reshape(2, 3, 4)
    for view in (
        theirs.transpose(0, 2),
        theirs[:, 1:, ::2],
        theirs[0, 0, 0],
        theirs[:, :0],
        theirs[:1].expand(5, 3, 4),
    ):
        t = from_dlpack(view, copy=False)
        assert t.tolist() == view.tolist()
        assert not view.numel() or t.data_ptr() == view.data_ptr()
        assert torch.from_dlpack(t).tolist() == view.tolist()


@pytest.mark.torch
def test_torch_keeps_the_block_and_lets_go_of_it(torch: Any) -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    theirs = torch.from_dlpack(twelve(True))
    part = theirs[1:]
    del theirs
    others = [shmtensor.full((12,), 9.0, shared=True) for _ in range(50)]
    assert part.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    del others
    assert blocks() == before + 1
    del part
    assert blocks() == before


@pytest.mark.torch
def test_torch_tensor_over_ours_goes_by_handle(torch: Any) -> None:
    theirs = torch.from_dlpack(shmtensor.zeros(4, shared=True))
    got = sent(from_dlpack(theirs))
    got[2] = 8
    assert theirs.tolist() == [0, 0, 8, 0]


@pytest.mark.torch
def test_torch_refuses_for_itself(torch: Any) -> None:
    with pytest.raises(BufferError, match="gradient"):
        from_dlpack(torch.zeros(3, requires_grad=True))
    with pytest.raises((BufferError, ValueError, RuntimeError)):
        from_dlpack(torch.zeros(3, device="meta"))


@pytest.mark.torch
def test_torch_deletes_in_its_own_threads(torch: Any) -> None:
    shmtensor.zeros(1, shared=True)
    before = blocks()
    x = torch.from_dlpack(shmtensor.ones(64, shared=True)).requires_grad_()
    (x * x).sum().backward()  # what the graph kept goes in torch's thread
    assert x.grad is not None
    assert x.grad.tolist() == [2] * 64
    del x
    assert blocks() == before


# -- JAX, in a process of its own: it warns of every fork once it is loaded --------------------------------------------


def test_jax() -> None:
    pytest.importorskip("ml_dtypes")
    if subprocess.run(
        [sys.executable, "-c", "import importlib.util as u; assert u.find_spec('jax')"], stderr=-3
    ).returncode:
        pytest.skip("no jax")
    run(
        """
        import gc
        import jax, jax.numpy as jnp, numpy as np
        import shmtensor, shmtensor.dlpack
        from shmtensor import _native, from_dlpack
        from shmtensor.manager import client

        def blocks():
            gc.collect()
            return client.default().native.stats()[2]

        t = shmtensor.arange(64, dtype="float32", shared=True).view(8, 8)
        theirs = jax.dlpack.from_dlpack(t)
        assert theirs.unsafe_buffer_pointer() == t.data_ptr()
        t[0, 1] = 9
        assert theirs[0, 1] == 9
        back = from_dlpack(theirs)
        assert back.is_shared() and back.storage() is t.storage()
        held = blocks()
        del t, back
        assert blocks() == held
        assert float(theirs.sum()) == 64 * 63 / 2 + 8
        del theirs
        assert blocks() == held - 1

        dtypes = "bool int8 uint8 int16 int32 float16 float32 complex64 bfloat16 float8_e4m3fn"
        for dtype in dtypes.split():
            x = jnp.arange(3).astype(dtype)
            array = _native.dlpack_import(x, None, None)
            assert array.dtype == x.dtype, dtype
            assert array.ctypes.data == x.unsafe_buffer_pointer()
            assert np.array_equal(array, np.asarray(x)), dtype
        x = jnp.arange(5)
        t = from_dlpack(x)
        copy = from_dlpack(x, copy=True)
        assert t.tolist() == copy.tolist() == [0, 1, 2, 3, 4]
        assert t.data_ptr() == x.unsafe_buffer_pointer() != copy.data_ptr()
        kept = jax.dlpack.from_dlpack(shmtensor.ones(64, shared=True))
        """,
        JAX_PLATFORMS="cpu",
        PYTHONPATH=os.pathsep.join(sys.path),
    )


def test_array_api_strict() -> None:
    strict = pytest.importorskip("array_api_strict")
    t = twelve(True)
    theirs = strict.from_dlpack(t)
    assert from_dlpack(theirs).storage() is t.storage()
