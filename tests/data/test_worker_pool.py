"""WorkerPool.map: results, order, reading ahead, exceptions, deaths, ends."""

from __future__ import annotations

import asyncio
import collections
import functools
import gc
import itertools
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pool_world as world
import pytest
from manager_world import until
from tiers import first

import shmtensor as st
from shmtensor.data import WorkerPool
from shmtensor.data.outputs import converted
from shmtensor.errors import InvalidArgument, TaskFailed, TaskTimeout, WorkerDied

pytestmark = pytest.mark.usefixtures("in_time")
BAD = world.BAD


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(2, context="fork") as made:
        yield made


def outcomes(results: Iterator[Any]) -> list[Any]:
    """Results, with exceptions in their places."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(results))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


# -- results


@pytest.mark.parametrize("chunk", [1, 7])
@pytest.mark.parametrize("items", [0, 1, 100])
def test_results_are_in_order(pool, items, chunk):
    assert list(pool.map(world.square, range(items), chunk=chunk)) == [i * i for i in range(items)]


@pytest.mark.parametrize("method", first(["fork", "spawn", "forkserver"]))
def test_results_are_trees_with_tensors(method):
    with WorkerPool(1, context=method) as pool:
        for i, found in enumerate(pool.map(world.tree, range(3))):
            assert type(found["array"]) is st.Tensor and found["array"].is_shared()
            assert found["array"].tolist() == [[i] * 3] * 2
            assert type(found["pair"]) is world.Pair and found["pair"].one.tolist() == [float(i)] * 2
            assert found["pair"].two == str(i) and found["empty"] == [None, True]


def test_tensors_are_of_the_wanted_library():
    with WorkerPool(1, output="numpy") as pool:
        found = next(pool.map(world.square, [np.arange(3)]))
        assert type(found) is np.ndarray and found.tolist() == [0, 1, 4]


def test_shared_items_arrive_by_handle(pool):
    tensor = st.zeros(3, shared=True)
    list(pool.map(functools.partial(st.Tensor.fill_, value=7), [tensor]))
    assert tensor.tolist() == [7] * 3


def test_workers_stay_for_further_maps(pool):
    pids = pool.pids()
    for _ in range(3):
        assert set(pool.map(world.own_pid, range(20))) <= set(pids)
    assert pool.pids() == pids and pool.stats().restarts == 0


def test_maps_of_one_pool_take_turns(pool):
    pairs = zip(pool.map(world.square, range(50)), pool.map(abs, range(0, -50, -1)), strict=True)
    assert list(pairs) == [(i * i, i) for i in range(50)]


def test_threads_share_a_pool(pool):
    found: list[Any] = [None] * 4

    def run(place: int) -> None:
        found[place] = list(pool.map(world.square, range(place, 100)))

    threads = [threading.Thread(target=run, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[i * i for i in range(place, 100)] for place in range(4)]


def test_a_slow_item_delays_nobody(pool, tmp_path):
    function = world.Waiting(tmp_path / "gate", (0,))
    results = pool.map(function, range(8), in_order=False, ahead=8)
    assert sorted(itertools.islice(results, 7)) == list(range(1, 8))
    (tmp_path / "gate").touch()
    assert list(results) == [0]


def test_no_more_is_read_than_asked_for(pool):
    read = []

    def items() -> Iterator[int]:
        for i in itertools.count():
            read.append(i)
            yield i

    results = pool.map(world.square, items(), ahead=6, chunk=2)
    for i in range(20):
        assert len(read) <= i + 6
        assert next(results) == i * i
    assert len(read) > 20


def test_random_numbers_belong_to_the_item():
    found = []
    for workers, chunk in ((1, 1), (3, 4)):
        with WorkerPool(workers, seed=3) as pool:
            found.append(list(pool.map(world.noise, range(20), chunk=chunk)))
    assert found[0] == found[1] and len(set(found[0])) == 20


def test_the_function_is_sent_once_to_each_worker_and_an_item_is_two_messages(pool):
    core = pool._core
    before = [core._tasks.stats().put, core._crew.results.stats().put]
    assert len(list(pool.map(world.square, range(50)))) == 50
    assert [core._tasks.stats().put, core._crew.results.stats().put] == [before[0] + 50, before[1] + 50]
    own = [member.jobs.stats().put for member in core._crew.members]
    list(pool.map(world.square, range(50), chunk=25))
    assert core._tasks.stats().put == before[0] + 52
    woken = sum(member.jobs.stats().put for member in core._crew.members) - sum(own) - 2 - 2  # the function, its end
    assert woken <= 2


# -- exceptions


@pytest.mark.parametrize("chunk", [1, 4])
def test_an_exception_comes_in_its_place_with_index_and_traceback(pool, chunk):
    found = outcomes(pool.map(world.failing, range(10), chunk=chunk))
    error = found[BAD]
    assert type(error) is KeyError and "no such thing" in str(error)
    assert f"a worker called failing with item {BAD}, which raised this" in error.__notes__[0]
    assert "pool_world.py" in error.__notes__[0]
    assert found[:BAD] + found[BAD + 1 :] == [i for i in range(10) if i != BAD]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (world.failing_loudly, "Loud: 1 and 2"),
        (world.stop_iteration, "StopIteration"),
        (world.give_unreadable, "cannot be read"),
    ],
    ids=["constructor", "stop", "result"],
)
def test_what_cannot_be_raised_or_read_here_is_told(pool, function, message):
    found = outcomes(pool.map(function, range(8)))
    error = found.pop(BAD)
    assert found == [0, 1, 2, 3, 4, 6, 7]
    assert isinstance(error, TaskFailed | OSError)
    assert f"item {BAD}" in str(error) + "".join(getattr(error, "__notes__", ()))
    assert message in str(error)


def test_a_result_that_cannot_be_sent(pool):
    found = outcomes(pool.map(world.give_lambda, range(8)))
    assert "lambda" in str(found.pop(BAD)) and found == [0, 1, 2, 3, 4, 6, 7]


def test_an_item_that_cannot_be_sent_or_read(pool):
    found = outcomes(pool.map(abs, [1, lambda: 1, -2, world.Unreadable(), -3]))
    assert "lambda" in str(found[1]) and "cannot be read" in str(found[3])
    assert [found[0], found[2], found[4]] == [1, 2, 3]


@pytest.mark.parametrize("in_order", [True, False])
def test_one_item_of_a_chunk_cannot_be_read(pool, in_order):
    for bad in (world.Unreadable(), world.ExitsWhenRead()):
        items = [1, -2, bad, 4, 5, -6, 7]
        found = outcomes(pool.map(abs, items, chunk=5, ahead=10, in_order=in_order))
        errors = [value for value in found if isinstance(value, Exception)]
        assert len(errors) == 1 and "item 2" in str(errors[0]) + "".join(getattr(errors[0], "__notes__", ()))
        assert sorted(set(found) - set(errors)) == [1, 2, 4, 5, 6, 7]
        assert not in_order or found[2] is errors[0]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_exception_that_would_end_the_program_fails_its_item(pool, kind):
    pids = pool.pids()
    for chunk in (1, 4):
        found = outcomes(pool.map(world.Leaving(kind), range(8), chunk=chunk))
        error = found.pop(BAD)
        assert isinstance(error, TaskFailed) and found == [0, 1, 2, 3, 4, 6, 7]
        assert f"item {BAD}" in str(error) and kind.__name__ in str(error) and "pool_world.py" in str(error)
    assert pool.pids() == pids and pool.stats().restarts == 0


def test_an_initializer_that_exits():
    pool = WorkerPool(2, initializer=sys.exit)
    with pytest.raises(TaskFailed, match=r"(?s)initializer, which raised.*SystemExit"):
        next(pool.map(world.square, range(3)))


def test_a_function_that_exits_when_it_is_read(pool):
    with pytest.raises(TaskFailed, match="SystemExit: 4"):
        next(pool.map(functools.partial(max, world.ExitsWhenRead()), range(3)))
    assert list(pool.map(world.square, range(3))) == [0, 1, 4] and pool.stats().restarts == 0


def test_a_function_that_cannot_be_sent_or_read(pool):
    with pytest.raises(InvalidArgument, match=r"lambda.* cannot be sent to workers"):
        pool.map(lambda i: i, range(3))
    with pytest.raises(OSError, match="cannot be read"):
        next(pool.map(functools.partial(max, world.Unreadable()), range(3)))
    assert list(pool.map(world.square, range(3))) == [0, 1, 4]


def test_an_exception_of_the_items_comes_after_the_results_before_it(pool):
    def items() -> Iterator[int]:
        yield from range(3)
        raise OSError("no more")

    results = pool.map(world.square, items())
    assert list(itertools.islice(results, 3)) == [0, 1, 4]
    with pytest.raises(OSError, match="no more"):
        next(results)
    assert list(results) == []


def test_a_worker_that_cannot_start():
    pool = WorkerPool(2, initializer=world.start_badly)
    with pytest.raises(OSError, match="no such disk") as caught:
        collections.deque(pool.map(world.square, itertools.count()), 0)  # until the other worker cannot start
    assert "initializer" in caught.value.__notes__[0]
    with pytest.raises(InvalidArgument, match="closed, because worker 1 could not start"):
        pool.map(world.square, range(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1"),
        ({"workers": True}, "workers must be an integer of at least 1, not True"),
        ({"workers": 1.0}, r"workers must be an integer of at least 1, not 1\.0"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"context": "thread"}, r"context must be a start method \(fork, .*\) or a context, not 'thread'"),
        ({"context": 3}, r"context must be a start method \(fork, .*\) or a context, not an object of int"),
        ({"output": "tensorflow"}, "output must be"),
        ({"on_worker_death": "ignore"}, "on_worker_death must be 'raise' or 'restart'"),
        ({"timeout": -1}, "timeout"),
        ({"initializer": 3}, "initializer must be callable"),
    ],
    ids=["workers", "bool", "float", "seed", "method", "context", "output", "death", "timeout", "initializer"],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        WorkerPool(**{"workers": 1, **arguments})


def test_arguments_of_map_out_of_range(pool):
    for arguments in ({"chunk": 0}, {"chunk": 1.0}, {"ahead": 0}, {"ahead": True}, {"function": 3}):
        with pytest.raises(InvalidArgument, match=next(iter(arguments))):
            pool.map(**{"function": world.square, "items": range(3), **arguments})


def test_integers_of_numpy_are_integers():
    with WorkerPool(np.int64(1), seed=np.uint8(3)) as pool:
        assert list(pool.map(world.square, range(5), ahead=np.int64(3), chunk=np.int32(2))) == [0, 1, 4, 9, 16]
        simulations = pool.simulations(world.Counter, np.int64(3))
        simulations.send(method="reset")
        ids, _ = simulations.gather(min=np.int64(2), max=np.int64(3))
        assert 2 <= len(ids) <= 3


def test_a_pool_that_is_closed_or_of_another_process(pool):
    pid = os.fork()
    if pid == 0:
        try:
            pool.map(world.square, range(3))
        except InvalidArgument as error:
            os._exit(7 if "process that created it" in str(error) else 1)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    results = pool.map(world.square, range(3))
    pool.close()
    pool.close()
    for call in (lambda: pool.map(world.square, range(3)), lambda: next(results), pool.pids):
        with pytest.raises(InvalidArgument, match="closed"):
            call()


# -- deaths


def test_a_death_is_explained_and_costs_one_item(pool, tmp_path):
    pids = pool.pids()
    found = outcomes(pool.map(world.DiesOnce(tmp_path), range(10)))
    error = found.pop(BAD)
    assert isinstance(error, WorkerDied) and error.signal_name == "SIGKILL" and error.pid in pids
    assert f"while it had item {BAD}" in str(error) and "restart" in str(error)
    assert found == [i for i in range(10) if i != BAD]
    assert pool.stats().restarts == 1
    assert list(pool.map(world.square, range(3))) == [0, 1, 4]


@pytest.mark.parametrize(("method", "chunk"), first([("fork", 1), ("fork", 3), ("spawn", 1), ("forkserver", 3)], 2))
def test_a_death_costs_nothing_where_workers_are_restarted(method, chunk, tmp_path):
    with WorkerPool(2, context=method, on_worker_death="restart") as pool:
        assert list(pool.map(world.DiesOnce(tmp_path, 2), range(10), chunk=chunk)) == list(range(10))
        assert pool.stats().restarts == 2


def test_an_item_that_kills_each_worker_fails(tmp_path):
    with WorkerPool(2, on_worker_death="restart") as pool:
        found = outcomes(pool.map(world.DiesOnce(tmp_path, 1000), range(10)))
        assert isinstance(found[BAD], WorkerDied) and pool.stats().restarts == 3
        assert found[:BAD] + found[BAD + 1 :] == [i for i in range(10) if i != BAD]


def test_a_worker_that_dies_idle_is_replaced(pool):
    for pid in pool.pids():
        os.kill(pid, signal.SIGKILL)
    assert list(pool.map(world.square, range(10))) == [i * i for i in range(10)]
    assert pool.stats().restarts >= 1


def test_workers_that_die_at_each_start_are_an_error():
    pool = WorkerPool(1, initializer=os._exit, on_worker_death="restart")
    with pytest.raises(WorkerDied, match=r"ended with exit code 0 as all that were started"):
        next(pool.map(world.square, range(3)))
    with pytest.raises(InvalidArgument, match="one after the other"):
        pool.pids()


def test_a_timeout_names_workers_and_items():
    message = rf"0\.5 seconds: worker \d \(pid \d+\) is stopped .* has item {BAD}"
    with WorkerPool(2, timeout=0.5) as pool, pytest.raises(TaskTimeout, match=message):
        list(pool.map(world.stopping, range(10)))


# -- ends


def test_a_map_that_is_dropped_ends(pool, tmp_path):
    gate = tmp_path / "gate"
    marks = tmp_path / "marks"
    marks.mkdir()
    blocking = pool.map(world.Waiting(gate, (0, 1)), range(2))
    for _ in pool.map(world.Waiting(gate, ()), iter(())):
        raise AssertionError
    dropped = pool.map(world.Marked(marks), range(8))
    del dropped
    gc.collect()
    assert pool.stats().tasks == 2
    gate.touch()
    assert list(blocking) == [0, 1]
    assert list(pool.map(world.square, range(20))) == [i * i for i in range(20)]
    assert not list(marks.iterdir())


def unreadable() -> Iterator[int]:
    yield 1
    raise KeyError("no such thing")


@pytest.mark.parametrize(("function", "items"), [(world.failing, range(10)), (world.square, unreadable())])
def test_a_map_that_failed_is_not_kept(pool, function, items):
    gc.disable()
    try:
        found = pool.map(function, items)
        kept = weakref.ref(found)
        with suppress(KeyError):
            list(found)
        del found
        assert kept() is None
    finally:
        gc.enable()


def test_break_and_drop_leave_nothing():
    before = st.memory_stats()["shared"]
    pool = WorkerPool(2)
    for found in pool.map(world.tree, range(100)):
        if found["array"][0, 0] == 3:
            break
    pids = pool.pids()
    del pool, found
    gc.collect()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert st.memory_stats()["shared"] == before


ENDS = """
import os, signal, sys, time
sys.path.append(sys.argv[2])
import pool_world as world
from pathlib import Path
from shmtensor.data import WorkerPool
def main():
    pool = WorkerPool(2)
    sims = pool.simulations(world.Counter, 4)
    sims.send()
    sims.gather(4)
    results = pool.map(world.Waiting(Path(sys.argv[3]), (1, 2)), range(8))
    next(results)
    try:
        print(*pool.pids(), flush=True)
        if sys.argv[1] != "exit":
            next(results)
    except KeyboardInterrupt:
        sys.exit(5)
main()
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("how", "code"), [("exit", 0), ("interrupt", 5), ("kill", -9)])
def test_workers_end_with_the_program(how, code, tmp_path):
    program = subprocess.Popen(
        [sys.executable, "-c", ENDS, how, str(Path(world.__file__).parent), str(tmp_path / "gate")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert program.stdout is not None and program.stderr is not None
    pids = program.stdout.readline().split()
    if how == "interrupt":
        os.killpg(program.pid, signal.SIGINT)
    elif how == "kill":
        program.kill()
    assert program.wait() == code, program.stderr.read()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "workers end")
    assert program.stderr.read() == ""
    program.stdout.close()
    program.stderr.close()


# -- hard cases


def test_items_are_read_while_other_threads_use_the_pool(pool):
    """A map may read what a thread makes with the same pool."""
    found: queue.Queue[Any] = queue.Queue()

    def feed() -> None:
        for value in pool.map(world.square, range(20)):
            found.put(value)
        found.put(None)

    threads = []

    def items() -> Iterator[Any]:
        threads.append(threading.Thread(target=feed, daemon=True))
        threads[0].start()
        while (value := found.get(timeout=60)) is not None:
            yield value

    assert list(pool.map(world.square, items())) == [i**4 for i in range(20)]
    threads[0].join()


def test_of_a_chunk_only_the_item_fails_that_cannot_be_sent(pool):
    found = outcomes(pool.map(world.square, [0, 1, threading.Lock(), 3, 4, 5], chunk=3))
    assert isinstance(found.pop(2), TypeError) and found == [0, 1, 9, 16, 25]
    found = outcomes(pool.map(world.give_lambda, range(9), chunk=9))
    assert isinstance(found.pop(BAD), AttributeError | pickle.PicklingError) and found == [0, 1, 2, 3, 4, 6, 7, 8]


def test_a_long_sequence_without_tensors_is_not_looked_through():
    long = range(10**12)
    assert converted({"a": long, "b": [bytearray(2)]}, lambda tensor: tensor) == {"a": long, "b": [bytearray(2)]}


def nested(_: Any) -> None:
    WorkerPool(1)


def test_a_worker_makes_no_pool(pool):
    with pytest.raises(InvalidArgument, match="cannot start processes; make the WorkerPool outside"):
        next(pool.map(nested, [0]))


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_a_task_is_given_closes_the_pool(pool, monkeypatch):
    monkeypatch.setattr(pool._core, "_wake", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pool.map(world.square, range(4))
    with pytest.raises(InvalidArgument, match="closed, after KeyboardInterrupt while workers were told"):
        pool.map(world.square, range(4))


def test_ctrl_c_while_a_worker_is_replaced_closes_the_pool(pool, monkeypatch):
    monkeypatch.setattr(pool._core._crew, "replace", interrupt)
    os.kill(pool.pids()[0], signal.SIGKILL)
    results = pool.map(world.square, range(4))
    with pytest.raises(KeyboardInterrupt):
        while True:
            list(pool.map(world.square, range(4)))
    with pytest.raises(InvalidArgument, match="closed, after KeyboardInterrupt while workers were told"):
        next(results)
