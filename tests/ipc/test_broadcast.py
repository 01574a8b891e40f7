"""Broadcast: every reader gets every message in order, even if others are slow, late or killed."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from contextlib import suppress
from queue import Empty, Full
from typing import Any

import numpy as np
import pytest
from broadcast_world import finish, kill, rest
from manager_world import BOUND, line_of, live_blocks, tell, until, world
from native_programs import program

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors

# ------------------------------------------------------------------------------------------------------------- messages


def test_every_reader_sees_every_message_in_order() -> None:
    cast = mp.Broadcast(100)
    readers = [cast.reader() for _ in range(3)]
    for i in range(100):
        cast.put((i, "x" * i))
    for reader in readers:
        assert rest(reader) == [(i, "x" * i) for i in range(100)]
        assert reader.missed == reader.lag == 0
    assert cast.stats().messages == 0


def test_tensors_are_the_same_memory_for_all() -> None:
    cast = mp.Broadcast(4)
    first, second = cast.reader(), cast.reader()
    sent = shmtensor.zeros(1000)
    cast.put({"weights": sent})
    one, two = first.get()["weights"], second.get()["weights"]
    one[7] = 5.0
    assert two[7].item() == sent[7].item() == 5.0


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize("length", [3, 10_000, 200_000])
def test_arrays_are_read_only_and_not_copied(length: int) -> None:
    cast = mp.Broadcast(4)
    first, second = cast.reader(), cast.reader()
    array = np.arange(length, dtype=np.float64)
    cast.put(array)
    cast.put(Holder(array))  # by pickle
    cast.put([array, array])
    array[:] = -1
    for reader in (first, second):
        for got in (reader.get(), reader.get().value, reader.get()[1]):
            assert not got.flags.writeable
            assert np.array_equal(got, np.arange(length))
            with pytest.raises(ValueError, match="read-only"):
                got[0] = 1
            if length > 1000:  # a smaller one is the reader's own
                with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                    got.flags.writeable = True
    if length > 1000:
        cast.put(array)
        assert first.get().ctypes.data == second.get().ctypes.data


def test_a_queue_still_gives_arrays_to_write_to() -> None:
    queue = mp.Queue()
    array = np.arange(10_000.0)
    queue.put(Holder(array))
    got = queue.get().value
    got[0] = 5
    assert array[0] == 0


def test_storages_by_pickle_are_the_same_memory() -> None:
    cast = mp.Broadcast(4)
    first, second = cast.reader(), cast.reader()
    cast.put(Holder(shmtensor.zeros(1000)))
    one, two = first.get().value, second.get().value
    one[0] = 3.0
    assert two[0].item() == 3.0


def test_long_bodies_and_many_blocks() -> None:
    cast = mp.Broadcast(4)
    first, second = cast.reader(), cast.reader()
    text = "long " * 20_000
    many = [shmtensor.full((4,), float(i)) for i in range(3000)]
    cast.put(text)
    cast.put(many)
    del many
    for reader in (first, second):
        assert reader.get() == text
        assert [tensor[0].item() for tensor in reader.get()] == list(range(3000))


def test_the_table_of_holds_grows_while_messages_are_read() -> None:
    b = mp.Broadcast(8)
    readers = b.reader(), b.reader()
    tensors = [shmtensor.ones(1) for _ in range(1400)]
    others = []
    for _ in range(6):  # each with another number of free entries left
        b.put(tensors)
        others += [shmtensor.ones(1).share_memory_() for _ in range(700)]
        assert len(readers[0].get(timeout=BOUND)) == 1400
    assert len(rest(readers[1])) == 6


def test_memory_is_free_when_all_have_read() -> None:
    cast = mp.Broadcast(8)
    first, second = cast.reader(), cast.reader()
    before = live_blocks()
    for i in range(8):
        cast.put(shmtensor.full((1000,), float(i)))
    assert live_blocks() == before + 8
    assert len(rest(first)) == 8
    assert live_blocks() == before + 8
    assert len(rest(second)) == 8
    assert live_blocks() == before


def test_memory_is_free_when_messages_are_dropped() -> None:
    cast = mp.Broadcast(2, policy="drop_oldest")
    reader = cast.reader()
    before = live_blocks()
    for i in range(10):
        cast.put(shmtensor.full((1000,), float(i)))
    assert live_blocks() == before + 2
    assert [tensor[0].item() for tensor in rest(reader)] == [8, 9]
    reader.close()
    for i in range(5):
        cast.put(shmtensor.full((1000,), float(i)))
    assert live_blocks() == before + 2
    del cast, reader
    until(lambda: live_blocks() == before, "the broadcast's end to free what was inside")


def test_what_cannot_be_pickled_is_not_put() -> None:
    cast = mp.Broadcast(2)
    reader = cast.reader()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        cast.put(lambda: None)
    cast.put(1)
    assert reader.get() == 1


# ------------------------------------------------------------------------------------------------------------- policies


def test_block_waits_for_the_slowest() -> None:
    cast = mp.Broadcast(2)
    fast, slow = cast.reader(), cast.reader()
    cast.put(0)
    cast.put(1)
    assert rest(fast) == [0, 1]
    with pytest.raises(Full):
        cast.put_nowait(2)
    with pytest.raises(Full):
        cast.put(2, timeout=0.05)
    thread = threading.Thread(target=cast.put, args=(2,))
    thread.start()
    assert slow.get() == 0
    thread.join(BOUND)
    assert not thread.is_alive()
    assert rest(slow) == [1, 2]
    assert rest(fast) == [2]


def test_closing_the_slowest_makes_room() -> None:
    cast = mp.Broadcast(2)
    fast = cast.reader()
    before = live_blocks()
    with cast.reader() as slow:
        for i in range(2):
            cast.put(shmtensor.full((1000,), float(i)))
        assert len(rest(fast)) == 2
        assert slow.lag == 2
    assert cast.stats().messages == 0
    assert live_blocks() == before
    slow = cast.reader()
    cast.put(0)
    cast.put(1)
    rest(fast)
    del slow
    gc.collect()
    cast.put(2, timeout=BOUND)


def test_drop_oldest_says_how_many_were_missed() -> None:
    cast = mp.Broadcast(3, policy="drop_oldest")
    fast, slow = cast.reader(), cast.reader()
    for i in range(10):
        cast.put(i)
        assert fast.get() == i
    assert slow.missed == 7
    assert slow.lag == 3
    assert slow.get() == 7
    assert slow.missed == 7
    cast.put(10)
    cast.put(11)
    assert slow.missed == 8
    assert rest(slow) == [9, 10, 11]
    assert (slow.missed, fast.missed) == (8, 0)


def test_raise_never_waits() -> None:
    cast = mp.Broadcast(1, policy="raise")
    reader = cast.reader()
    cast.put(0)
    with pytest.raises(Full):
        cast.put(1)
    with pytest.raises(Full):
        cast.put(1, True, 100)
    assert rest(reader) == [0]
    cast.put(1)
    assert rest(reader) == [1]


def test_a_bound_in_bytes() -> None:
    cast = mp.Broadcast(100, maxbytes=10_000, policy="drop_oldest")
    reader = cast.reader()
    for i in range(10):
        cast.put(np.full(500, float(i)))
    assert [array[0] for array in rest(reader)] == [8, 9]
    with pytest.raises(errors.MessageTooLarge):
        cast.put(np.zeros(5000))


# --------------------------------------------------------------------------------------------------------- late joiners


def test_a_late_reader_sees_what_comes_or_what_is_left() -> None:
    cast = mp.Broadcast(4)
    first = cast.reader()
    for i in range(4):
        cast.put(i)
    assert first.get() == 0
    late, oldest = cast.reader(), cast.reader(from_oldest=True)
    assert rest(oldest) == [1, 2, 3]
    assert rest(late) == []
    assert rest(first) == [1, 2, 3]
    cast.put(4)
    assert rest(first) == rest(late) == rest(oldest) == [4]


def test_without_readers_the_latest_are_kept() -> None:
    cast = mp.Broadcast(3)
    for i in range(10):
        cast.put(i, timeout=BOUND)
    assert rest(cast.reader(from_oldest=True)) == [7, 8, 9]
    assert rest(cast.reader()) == []


def test_as_many_readers_as_there_can_be() -> None:
    cast = mp.Broadcast(1)
    readers = [cast.reader() for _ in range(shmtensor._native.MAX_READERS)]
    with pytest.raises(errors.QuotaExceeded, match="at most"):
        cast.reader()
    cast.put("all")
    assert all(rest(reader) == ["all"] for reader in readers)
    readers.pop().close()
    assert rest(cast.reader(from_oldest=True)) == []


# ------------------------------------------------------------------------------------------------------ other processes

COUNT = 300


def read_all(cast: Any, results: Any) -> None:
    reader = cast.reader()
    results.put("ready")
    seen = [reader.get(timeout=BOUND) for _ in range(COUNT)]
    results.put(all(number == i and tensor[0].item() == i for i, (number, tensor) in enumerate(seen)))


def test_readers_in_children(ctx: Any) -> None:
    cast, results = ctx.Broadcast(COUNT), ctx.Queue()
    children = [ctx.Process(target=read_all, args=(cast, results)) for _ in range(3)]
    for child in children:
        child.start()
    assert [results.get(timeout=BOUND) for _ in children] == ["ready"] * 3
    for i in range(COUNT):
        cast.put((i, shmtensor.full((10,), float(i))))
    assert [results.get(timeout=BOUND) for _ in children] == [True] * 3
    for child in children:
        finish(child)


def use_inherited(cast: Any, reader: Any, results: Any) -> None:
    try:
        reader.get_nowait()
    except errors.ForeignReader as error:
        results.put(str(error))
    reader.close()
    own = cast.reader(from_oldest=True)
    results.put(own.get_nowait())


def test_a_forked_child_needs_a_reader_of_its_own() -> None:
    ctx = mp.get_context("fork")
    cast, results = ctx.Broadcast(4), ctx.Queue()
    reader = cast.reader()
    cast.put("message")
    child = ctx.Process(target=use_inherited, args=(cast, reader, results))
    child.start()
    assert "reader()" in results.get(timeout=BOUND)
    assert results.get(timeout=BOUND) == "message"
    finish(child)
    cast.put("more")
    assert rest(reader) == ["message", "more"]


def test_pickles_only_while_spawning() -> None:
    cast = mp.Broadcast(2)
    with pytest.raises(RuntimeError, match="inheritance"):
        pickle.dumps(cast)
    with pytest.raises(TypeError, match="send the Broadcast"):
        pickle.dumps(cast.reader())


def lag(cast: Any, results: Any, number: int) -> None:
    reader = cast.reader()
    for _ in range(number):
        reader.get(timeout=BOUND)
    results.put("ready")
    signal.pause()


def test_a_killed_reader_holds_nobody_up(ctx: Any) -> None:
    cast, results = ctx.Broadcast(3), ctx.Queue()
    child = ctx.Process(target=lag, args=(cast, results, 0))
    child.start()
    assert results.get(timeout=BOUND) == "ready"
    reader = cast.reader()
    before = live_blocks()
    for i in range(3):
        cast.put(shmtensor.full((1000,), float(i)))
    assert len(rest(reader)) == 3
    assert {one.pid: one.lag for one in cast.stats().readers} == {os.getpid(): 0, child.pid: 3}
    with pytest.raises(Full):
        cast.put_nowait(3)
    thread = threading.Thread(target=cast.put, args=(3,))
    thread.start()
    kill(child)
    thread.join(BOUND)
    assert not thread.is_alive()
    assert rest(reader) == [3]
    assert [one.pid for one in cast.stats().readers] == [os.getpid()]
    assert live_blocks() == before


def test_idle_readers_clear_up_after_a_killed_one() -> None:
    ctx = mp.get_context("fork")
    cast, results = ctx.Broadcast(3), ctx.Queue()
    child = ctx.Process(target=lag, args=(cast, results, 1))
    child.start()
    until(lambda: cast.stats().readers, "the child to join")
    reader = cast.reader()
    before = live_blocks()
    for _ in range(3):
        cast.put(shmtensor.zeros(1000))
    assert results.get(timeout=BOUND) == "ready"
    assert len(rest(reader)) == 3
    kill(child)

    def is_clear() -> bool:
        with pytest.raises(Empty):
            reader.get(timeout=0.05)
        return cast.stats().messages == 0

    until(is_clear, "what only the dead lacked to go")
    assert live_blocks() == before


def put_for_ever(cast: Any) -> None:
    i = 0
    while True:
        cast.put((i, shmtensor.full((100,), float(i))))
        i += 1


def test_readers_outlive_a_killed_writer(ctx: Any) -> None:
    cast = ctx.Broadcast(50)
    first, second = cast.reader(), cast.reader()
    child = ctx.Process(target=put_for_ever, args=(cast,))
    child.start()
    for i in range(200):
        assert first.get(timeout=BOUND)[0] == second.get(timeout=BOUND)[0] == i
    kill(child)
    left = rest(first)
    assert [number for number, _ in left] == list(range(200, 200 + len(left)))
    assert all(tensor[99].item() == number for number, tensor in left)
    assert [number for number, _ in rest(second)] == [number for number, _ in left]
    cast.put("another writer")
    assert rest(first) == rest(second) == ["another writer"]


def test_many_killed_readers_and_one_who_sees_all() -> None:
    ctx = mp.get_context("fork")
    cast, results = ctx.Broadcast(20), ctx.Queue()
    writer = ctx.Process(target=put_for_ever, args=(cast,))
    reader = cast.reader()
    writer.start()
    expected = 0
    for _ in range(10):
        child = ctx.Process(target=lag, args=(cast, results, 5))
        child.start()
        while results.empty():
            with suppress(Empty):  # the child may lag just now, and so the writer wait
                assert reader.get(timeout=0.05)[0] == expected
                expected += 1
        assert results.get(timeout=BOUND) == "ready"
        kill(child)
    for _ in range(100):
        assert reader.get(timeout=BOUND)[0] == expected
        expected += 1
    kill(writer)


NAMED = """
import sys, shmtensor.multiprocessing as mp
cast = mp.Broadcast(5, name="news", policy="drop_oldest")
reader = cast.reader()
print("ready", flush=True)
sys.stdin.readline()
print(reader.get(timeout=20)["x"].tolist(), flush=True)
sys.stdin.readline()
"""
OPENS = """
import shmtensor, shmtensor.multiprocessing as mp
from shmtensor import errors
cast = mp.Broadcast(name="news")
assert cast.policy == "drop_oldest"
cast.put({"x": shmtensor.zeros(3)})
for wrong in (dict(policy="raise"), dict(maxsize=6)):
    try:
        mp.Broadcast(name="news", **wrong)
    except errors.InvalidArgument as error:
        assert "news" in str(error)
    else:
        raise SystemExit("opened with " + repr(wrong))
try:
    mp.Queue(name="news")
except errors.InvalidArgument as error:
    assert "Broadcast" in str(error)
print("put", flush=True)
input()
"""


def test_unrelated_processes_find_it_by_name() -> None:
    with world() as w:
        first = w.script(NAMED, env={"SHMTENSOR_GROUP": "own"})
        assert first.stdin and first.stdout
        assert first.stdout.readline() == "ready\n"
        second = w.script(OPENS, env={"SHMTENSOR_GROUP": "own"})
        assert second.stdin and second.stdout and second.stderr
        assert second.stdout.readline() == "put\n", second.stderr.read()
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == "[0.0, 0.0, 0.0]\n"
        for process in (first, second):
            process.communicate("\n", timeout=BOUND)
            assert process.returncode == 0


FIRST = """
import sys, shmtensor.multiprocessing as mp
from shmtensor import errors
cast = mp.Broadcast(name="early")
assert cast.policy is None
try:
    cast.put(1)
except errors.InvalidArgument as error:
    assert "maxsize" in str(error)
else:
    raise SystemExit("put without bounds")
reader = cast.reader()
print("reads", flush=True)
sys.stdin.readline()
got = [reader.get(timeout=20) for _ in range(2)]
cast.put("mine")
print(got, reader.missed, cast.policy, flush=True)
"""
WRITER = """
import sys, shmtensor.multiprocessing as mp
cast = mp.Broadcast(2, name="early", policy="drop_oldest")
for i in range(5):
    cast.put(i, timeout=20)
print("put", flush=True)
sys.stdin.readline()
"""


def test_a_reader_may_come_before_the_writer_who_says_the_bounds() -> None:
    with world() as w:
        first = w.script(FIRST)
        assert line_of(first) == "reads"
        writer = w.script(WRITER)
        assert line_of(writer) == "put"
        tell(first)
        assert line_of(first) == "[3, 4] 3 drop_oldest"
        tell(writer)


def test_the_policy_is_chosen_with_the_maxsize_at_the_latest() -> None:
    early = mp.Broadcast(name="test.policy")
    assert early.policy is None
    mp.Broadcast(3, name="test.policy")
    assert early.policy == "block"
    with pytest.raises(errors.InvalidArgument, match="exists with policy 'block'"):
        mp.Broadcast(name="test.policy", policy="raise")
    early = mp.Broadcast(name="test.policy.2", policy="raise")
    mp.Broadcast(1, name="test.policy.2")
    reader = early.reader()
    early.put(1)
    with pytest.raises(Full):
        early.put(2)
    reader.close()
    for wrong in ({}, {"name": "test.policy.3", "create": True}):
        with pytest.raises(errors.InvalidArgument, match="needs a maxsize"):
            mp.Broadcast(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ bad input


def test_refused_arguments() -> None:
    for size in (0, -1):
        with pytest.raises(errors.InvalidArgument, match="a maxsize of at least 1"):
            mp.Broadcast(size)
    with pytest.raises(errors.InvalidArgument, match="drop_oldest"):
        mp.Broadcast(1, policy="ignore")
    with pytest.raises(TypeError, match="must be an integer"):
        mp.Broadcast("many")


def test_used_after_close() -> None:
    cast = mp.Broadcast(1)
    reader, other = cast.reader(), cast.reader()
    reader.close()
    reader.close()
    for use in (reader.get, reader.get_nowait, lambda: reader.missed, lambda: reader.lag):
        with pytest.raises(ValueError, match="closed"):
            use()
    cast.put(1)
    cast.close()
    with pytest.raises(ValueError, match="closed"):
        cast.put(2)
    with pytest.raises(ValueError, match="closed"):
        cast.reader()
    assert other.get() == 1


def test_a_reader_closed_while_it_waits() -> None:
    cast = mp.Broadcast(1)
    reader = cast.reader()
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            reader.get(timeout=BOUND)
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    reader.close()
    thread.join(BOUND)
    assert len(failed) == 1


def test_signals_interrupt_waits() -> None:
    def handler(*_: Any) -> None:
        raise InterruptedError

    cast = mp.Broadcast(1)
    reader = cast.reader()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            reader.get()
        cast.put(1)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            cast.put(2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rest(reader) == [1]


def test_figures() -> None:
    cast = mp.Broadcast(8)
    reader = cast.reader()
    for _ in range(3):
        cast.put(np.zeros(1000))
    stats = cast.stats()
    assert (stats.messages, stats.peak_messages, stats.put) == (3, 3, 3)
    assert stats.nbytes == stats.put_nbytes >= 24_000
    assert [(one.pid, one.lag) for one in stats.readers] == [(os.getpid(), 3)]
    assert len(rest(reader)) == 3
    with pytest.raises(AttributeError):
        stats.put = 1  # type: ignore[misc]


# --------------------------------------------------------------------------------------------------------------- native


@pytest.mark.exhaustive
def test_every_failpoint_in_every_role() -> None:
    done = program("cast")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 never reached" in done.stdout


@pytest.mark.exhaustive
def test_storm_of_kills() -> None:
    done = program("cast", "storm", "300")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "none missed" in done.stdout
