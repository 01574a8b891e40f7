"""Messages from a queue arrive by handle, as a private copy or by value, or an error leaves nothing behind."""

from __future__ import annotations

import gc
import os
import pickle
import re
import resource
import signal
import struct
import sys
import threading
import time
import types
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, until
from ring_bytes import GET_UNDO, MESSAGES, TAIL, RingBytes

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor._native import DEDICATED_HOLDS, PAGE, Block
from shmtensor.manager import client


@pytest.fixture
def q() -> Iterator[Any]:
    yield mp.Queue()


def trip(q: Any, value: Any) -> Any:
    q.put(value)
    return q.get()


class Point:
    """A class of one's own, with identity."""

    def __init__(self) -> None:
        self.other: Any = None


VALUES = [
    None,
    True,
    -(2**70),
    1.5,
    1j,
    "",
    "\N{SNOWMAN}",
    b"",
    bytearray(b"abc"),
    (),
    [[]],
    {},
    {1: (2, [3])},
    {1, 2},
    frozenset({1, 2}),
    OrderedDict(a=1),
    range(3),
    len,
    ValueError,
    np.float32(3),
    np.dtype("i4"),
    slice(1, 2),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(q: Any, value: Any) -> None:
    got = trip(q, value)
    assert got == value
    assert type(got) is type(value)


def test_identity(q: Any) -> None:
    array, tensor, point = np.arange(1000), shmtensor.ones(3), Point()
    for one in (array, tensor, point, [1], {"a": 1}, bytearray(b"x"), np.arange(2)):
        first, second, inside = trip(q, [one, one, {"k": one}])
        assert first is second is inside["k"]
    ring: list[Any] = []
    ring.append(ring)
    got = trip(q, ring)
    assert got[0] is got
    point.other = {"me": point, "array": array}
    got = trip(q, (point, array))
    assert got[0].other["me"] is got[0]
    assert got[0].other["array"] is got[1]
    shared = [1, 2]
    got = trip(q, {"a": shared, "b": shared, "c": (shared,)})
    assert got["a"] is got["b"] is got["c"][0]


@pytest.mark.parametrize("size", [0, 1, 10, 1000, 10**6])
@pytest.mark.parametrize(
    "wrap", [lambda a: a, lambda a: {"x": [a]}, lambda a: (a, {1})], ids=["bare", "plain", "pickle"]
)
def test_an_array_is_the_receivers_own(q: Any, size: int, wrap: Any) -> None:
    array = np.arange(size)
    q.put(wrap(array))
    array += 1
    got = q.get()
    while not isinstance(got, np.ndarray):
        got = got["x"] if isinstance(got, dict) else got[0]
    assert got.flags.writeable
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, np.arange(size))
    got += 5
    np.testing.assert_array_equal(array, np.arange(size) + 1)


def arrays() -> list[np.ndarray[Any, Any]]:
    base = np.arange(6000.0).reshape(20, 30, 10)
    frozen = np.arange(1000)
    frozen.flags.writeable = False
    return [
        np.asfortranarray(base),
        base[::2, ::-3],
        base.transpose(1, 2, 0),
        np.broadcast_to(np.arange(10), (100, 10)),
        np.array(7.0),
        np.zeros((0, 5)),
        frozen,
        np.arange(100, dtype=">i4"),
        np.array(["a", "bc"]),
        np.array([1, None, "x"], dtype=object),
        np.zeros(500, dtype=[("a", "i4"), ("b", "f8")]),
        np.arange(1000).astype("M8[s]"),
        np.arange(10, dtype=np.float16),
        np.ma.masked_array([1, 2], [0, 1]),
    ]


@pytest.mark.parametrize("number", range(len(arrays())))
def test_arrays_of_all_kinds(q: Any, number: int) -> None:
    array = arrays()[number]
    got = trip(q, array)
    assert type(got) is type(array)
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.flags.writeable
    np.testing.assert_array_equal(got, array)
    if number == 0:
        assert got.flags.f_contiguous


def test_a_view_ships_its_own_bytes(q: Any) -> None:
    base = np.zeros(10**7, np.uint8)
    q.put(base[100:10_100])
    assert 10_000 <= q.stats().nbytes < 12_000
    q.put([base[0:20_000:2], {1}])
    assert 20_000 <= q.stats().nbytes < 24_000
    assert [q.get().shape, q.get()[0].shape] == [(10_000,), (10_000,)]


def test_tensors_are_the_same_memory(q: Any) -> None:
    tensor = shmtensor.zeros(4, 5)
    q.put(tensor)
    tensor.add_(1)
    got = q.get()
    assert got.tolist() == np.ones((4, 5)).tolist()
    got.add_(1)
    assert tensor.tolist() == got.tolist()
    view = tensor.t()[1:3]
    got = trip(q, [view, tensor])
    assert got[0].stride() == view.stride()
    got[0].fill_(9)
    assert tensor[0].tolist() == [2, 9, 9, 2, 2]
    assert got[1].tolist() == tensor.tolist()


def test_storages_and_empty_tensors(q: Any) -> None:
    storage = shmtensor.arange(10).storage()
    got = trip(q, storage)
    assert type(got) is type(storage)
    assert got.tolist() == storage.tolist()
    for shape in ((0,), (3, 0), ()):
        got = trip(q, shmtensor.ones(*shape))
        assert tuple(got.shape) == shape


@pytest.mark.parametrize("size", [16_000, 16_384, 16_385, 100_000, 20 << 20])
def test_long_bodies_go_by_block(q: Any, size: int) -> None:
    text, data = "t" * size, os.urandom(size)
    for value in (text, data, [text, {data}]):
        assert trip(q, value) == value
    q.put(data)
    assert q.stats().nbytes >= size
    assert q.stats().capacity == 1 << 16
    assert q.get() == data


@pytest.mark.parametrize("count", [900, 10_000])
def test_many_tensors_in_one_message(q: Any, count: int) -> None:
    trip(q, [shmtensor.ones(1)])
    before = len(list(Path("/proc/self/fd").iterdir()))
    q.put([shmtensor.full((16,), i) for i in range(count)])
    got = q.get()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2  # another segment at most
    assert [int(t[3]) for t in got] == list(range(count))


# ---------------------------------------------------------------------------------------------------------- bad input


class Unpicklable:
    """Refuses to be written."""

    def __reduce__(self) -> Any:
        raise KeyError("not me")


class Unreadable:
    """Refuses to be read."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_what_cannot_be_pickled_raises_in_put(q: Any) -> None:
    gc.collect()
    before = client.default().stats().live_blocks
    big = np.zeros(10**5)
    for value in (Unpicklable(), [shmtensor.ones(9), big, Unpicklable()], {"k": Unpicklable()}):
        with pytest.raises(KeyError, match="not me"):
            q.put(value)
    with pytest.raises(KeyError, match="not me"):
        q.put_many([1, big, Unpicklable()])
    for unfit in (lambda: 0, threading.Lock(), (i for i in ()), types.ModuleType("m")):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            q.put([shmtensor.ones(3), unfit])
    gc.collect()
    assert q.empty()
    until(lambda: client.default().stats().live_blocks <= before, "what was not sent")
    assert trip(q, 1) == 1


def test_many_messages_of_which_one_finds_no_hold_entry_leave_the_metadata_right(q: Any) -> None:
    full = shmtensor.empty(300 << 20, dtype="uint8").share_memory_()  # a segment of its own, with a short table
    kept, sent = shmtensor.ones(4).share_memory_(), shmtensor.ones(4)
    sink = mp.Queue()
    with pytest.raises(errors.QuotaExceeded, match="table of holds") as caught:
        while True:
            sink.put(full)
    most = sink.stats().messages
    said = str(caught.value)
    del caught  # it keeps this frame, and the queue in it
    assert f"all {DEDICATED_HOLDS} entries" in said and most == DEDICATED_HOLDS - 1
    assert re.search(f"Most entries: {most} by messages in ring \\d+; 1 by pid {os.getpid()} ", said)
    assert "maxsize" in said and "raise the limit" not in said and "bytes" not in said
    with pytest.raises(errors.QuotaExceeded, match="table of holds"):
        q.put_many([1, [kept, sent, full]])
    client.default().native.check_invariants()
    assert q.empty() and trip(q, kept).tolist() == [1.0] * 4


class Forks:
    """Its pickling forks; both processes go on with what they were at."""

    child = -1

    def __reduce__(self) -> Any:
        Forks.child = os.fork()
        if Forks.child:
            os.waitpid(Forks.child, 0)
        return int, ()


@pytest.mark.parametrize("maxbytes", [0, 64])
def test_a_fork_amid_many_messages(maxbytes: int) -> None:
    q = mp.Queue(maxbytes=maxbytes)
    value = shmtensor.ones(4 if not maxbytes else 99).share_memory_()
    try:
        q.put_many([[value], Forks()])
    except errors.MessageTooLarge:
        assert maxbytes
    if Forks.child == 0:
        os._exit(0)
    messages = [] if maxbytes else [q.get() for _ in range(4)]  # each process's own
    client.default().native.check_invariants()
    assert [type(m) for m in messages] == ([] if maxbytes else [list, int, list, int])
    assert all(m[0].tolist() == [1.0] * 4 for m in messages[::2])
    del messages
    client.default().native.check_invariants()


def test_what_a_dead_process_took_from_memory_that_is_gone_is_an_error(q: Any) -> None:
    ring = RingBytes(q._manager, q._ring.block)
    gone: Any = types.SimpleNamespace(segment=10**6, index=0, generation=1)
    ring.write_message(gone, 0)
    ring.note(GET_UNDO, 8000)
    ring.move(TAIL)
    for _ in range(2):
        with pytest.raises(errors.UnknownHandle):
            q.get(timeout=BOUND)


def test_a_message_that_says_it_is_lost_is_none(q: Any) -> None:
    """The flag is one of letters; in the ring's memory it means nothing."""
    memory = memory_of(q)
    q.put("a")
    memory[MESSAGES + 7] |= 0x80  # of flags, the highest bit
    assert q.get(timeout=BOUND) == "a"


def test_what_cannot_be_read_raises_in_get(q: Any) -> None:
    gc.collect()
    before = client.default().stats().live_blocks
    for value in (Unreadable(), [shmtensor.ones(9), np.zeros(10**5), Unreadable()]):
        q.put(value)
        q.put("next")
        with pytest.raises(ValueError, match="no number"):
            q.get()
        assert q.get() == "next"
    del value
    gc.collect()
    until(lambda: client.default().stats().live_blocks <= before, "what could not be read")


def test_a_signal_amid_many_has_what_was_taken() -> None:
    q, count, told = mp.Queue(), 20_000, []

    def handler(_number: int, _frame: Any) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        while not told:  # when it comes before the call, or after it, it says nothing
            q.put_many(range(count))
            try:
                signal.setitimer(signal.ITIMER_REAL, 500e-6)
                q.get_many(count)
                time.sleep(BOUND)
            except InterruptedError as problem:
                told = getattr(problem, "messages", [])
            left = q.qsize()
            with suppress(Empty):
                q.get_many(count, block=False)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert told == list(range(count - left))


@pytest.mark.parametrize("wrong", [lambda: 0, np.zeros(2000)])
def test_an_error_before_any_of_many_is_put_says_so(wrong: Any) -> None:
    q = mp.Queue(maxbytes=10_000)
    with pytest.raises(Exception, match=r"pickle|bytes") as caught:
        q.put_many([1, wrong])
    assert caught.value.put == 0  # type: ignore[attr-defined]
    assert q.qsize() == 0


def test_many_with_one_that_cannot_be_read(q: Any) -> None:
    q.put_many([1, [shmtensor.ones(2), Unreadable()], shmtensor.ones(3), Unreadable(), 5])
    with pytest.raises(ValueError, match="no number") as caught:
        q.get_many(10)
    one, tensor, five = caught.value.messages  # type: ignore[attr-defined]
    assert (one, float(tensor.sum()), five) == (1, 3, 5)
    assert q.empty()


def take_without_memory(q: Any, told: Any) -> None:
    """Take many when there is no memory for the last: what was taken is in the error, the last is in the queue."""
    status = Path("/proc/self/status").read_text()
    used = int(status.split("VmSize:")[1].split()[0]) << 10
    _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    ballast: list[Any] = [None] * (1 << 20)
    found: Any = None
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), hard))
    try:
        for i in range(len(ballast)):
            ballast[i] = bytes(8000)
    except MemoryError:
        try:
            found = q.get_many(100, False)
        except MemoryError as error:
            found = error
    del ballast
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    told.send((type(found).__name__, getattr(found, "messages", None), q.qsize(), len(q.get(False))))


def test_many_without_memory_for_one() -> None:
    context = mp.get_context("fork")
    q = context.Queue()
    q.put_many([*range(64), b"x" * 14_000])
    mine, theirs = context.Pipe()
    process = context.Process(target=take_without_memory, args=(q, theirs))
    process.start()
    theirs.close()
    assert mine.recv() == ("MemoryError", list(range(64)), 1, 14_000)
    process.join()


def send_what_only_i_have(q: Any) -> None:
    module = types.ModuleType("only_here")
    sys.modules["only_here"] = module
    exec("class Mine: pass", module.__dict__)
    q.put([module.Mine(), shmtensor.ones(5)])
    q.put("next")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_class_that_the_receiver_has_not(method: str) -> None:
    context = mp.get_context(method)
    q = context.Queue()
    process = context.Process(target=send_what_only_i_have, args=(q,))
    process.start()
    with pytest.raises(ModuleNotFoundError, match="only_here"):
        q.get()
    assert q.get() == "next"
    process.join()


class PutsWhenItGoes:
    """Garbage with a finalizer that uses the queue that is encoding just then."""

    def __init__(self, q: Any) -> None:
        self.q = q
        self.me = self

    def __del__(self) -> None:
        self.q.put([np.arange(2000), "from __del__"])


class CollectsWhenWritten:
    """Lets the garbage collector run inside encode."""

    def __reduce__(self) -> Any:
        gc.collect()
        return str, ("encoded",)


def test_a_finalizer_that_puts_inside_put(q: Any) -> None:
    for _ in range(20):
        PutsWhenItGoes(q)
        q.put([np.arange(1000), CollectsWhenWritten(), np.arange(3000)])
        array, said = q.get()
        assert (array.tolist(), said) == (list(range(2000)), "from __del__")
        first, said, last = q.get()
        assert (len(first), said, len(last)) == (1000, "encoded", 3000)
        assert last.tolist() == list(range(3000))


class PutsWhenWritten:
    def __init__(self, q: Any, depth: int) -> None:
        self.q = q
        self.depth = depth

    def __reduce__(self) -> Any:
        if self.depth:
            self.q.put([np.full(1000, self.depth), PutsWhenWritten(self.q, self.depth - 1)])
        return int, (self.depth,)


def test_a_reducer_that_puts_inside_put(q: Any) -> None:
    q.put(PutsWhenWritten(q, 10))
    for depth in range(1, 11):
        array, number = q.get()
        assert number == depth - 1
        assert (array == depth).all()
    assert q.get() == 10


# -------------------------------------------------------------------------------------- memory that was written over


def memory_of(q: Any) -> memoryview:
    """The ring, to be damaged."""
    return memoryview(q._ring.block)


DAMAGE = {
    "magic": (0, b"\xff" * 8),
    "header": (0, bytes(PAGE)),
    "capacity": (40, b"\xff\xff\xff\x7f"),
    "tail": (TAIL, b"\xff" * 8),
    "message": (MESSAGES, b"\xff" * 64),
    "zeroes": (MESSAGES, bytes(64)),
    "length": (MESSAGES + 16, b"\xff" * 8),
    "holds": (MESSAGES + 8, b"\xff\xff\xff\x0f"),
    "a hold": (MESSAGES + 40, b"\xff" * 24),
    "the segment of a hold": (MESSAGES + 40, bytes(8)),
    "the index of a hold": (MESSAGES + 40 + 16, b"\xff" * 4),
    "the index of a block": (MESSAGES + 40 + 8, b"\xff" * 4),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_an_error(q: Any, what: str) -> None:
    at, garbage = DAMAGE[what]
    q.put(shmtensor.ones(100))
    memory_of(q)[at : at + len(garbage)] = garbage
    with pytest.raises((errors.QueueDamaged, errors.SegmentLost)):
        for _ in range(3):
            q.get(timeout=1)
    del q


def test_a_damaged_body_is_an_error(q: Any) -> None:
    memory = memory_of(q)
    for first in (0, 1, 2, 7, 255):
        at = MESSAGES + struct.unpack_from("<I", memory, TAIL + 4)[0] * 64 + 40
        q.put([1, "text", b"bytes"])
        memory[at : at + 20] = bytes([first]) + b"\xff" * 19
        q.put("next")
        with pytest.raises((errors.MessageDamaged, EOFError, ValueError, pickle.UnpicklingError)):
            q.get()
        assert q.get() == "next"


def test_random_damage_never_crashes() -> None:
    """In a child, so that a crash is seen as one."""
    process = mp.get_context("fork").Process(target=damage_at_random)
    process.start()
    process.join()
    assert process.exitcode == 0


def damage_at_random() -> None:
    random = np.random.default_rng(5)
    for _ in range(150):
        q = mp.Queue()
        memory = memory_of(q)
        for i in range(5):
            q.put([shmtensor.ones(100), np.arange(i * 100), "x" * i, {i}])
        for _ in range(3):
            # Not the words of the mutexes: what is in them, only the C library knows.
            at = int(random.integers(MESSAGES, MESSAGES + 1500))
            memory[at] = int(random.integers(256))
        for _ in range(6):
            try:
                q.get(timeout=0)
            except Exception:
                continue


def test_another_block_is_no_queue() -> None:
    manager = client.default()
    block = manager.allocate(1 << 20)
    assert isinstance(block, Block)
    with pytest.raises(errors.QueueDamaged):
        type(mp.Queue()._ring)(manager.native, block, lambda: -1)
