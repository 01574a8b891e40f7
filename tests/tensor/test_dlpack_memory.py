"""Memory exchanged over DLPack lives as long as it is used; shared memory that comes back is recognised."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dlpack_world import PLACES, Made, blocks, run, sent, take, twelve
from manager_world import BOUND
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import _native, from_dlpack
from shmtensor.errors import InvalidArgument, LayoutError

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
    libc = ctypes.PyDLL(None)  # with the GIL: a library may wait for its threads, which must not wait for the GIL
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
    until = time.monotonic() + BOUND
    while sys.getrefcount(array) > count and caller is in_a_thread_of_no_python and time.monotonic() < until:
        time.sleep(0.001)  # a thread of ours drops it
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


@pytest.mark.parametrize("end", first(ENDS.values(), 3), ids=ENDS)
def test_the_end_of_the_interpreter(end: str) -> None:
    start = """
        import ctypes, sys
        import numpy as np
        import shmtensor
        from dlpack_world import take
        t = shmtensor.zeros(5, shared=True)
    """
    said = run(
        textwrap.dedent(start) + textwrap.dedent(end) + "\nprint('done', flush=True)\n",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    assert said == ("done\nlate " if "Late" in end else "done\n")


# -- shared memory that comes back -------------------------------------------------------------------------------------


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
