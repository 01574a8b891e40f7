"""Locks, semaphores, conditions, events and barriers: as the standard ones, and by name."""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import multiprocessing.sharedctypes
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from locks_world import FORK, child, finish, hold, kill
from manager_world import BOUND, World, line_of, until

import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.ipc import synchronize

METHODS = ("fork", "spawn", "forkserver")


def in_thread(function: Callable[[], Any]) -> Any:
    """What it gives, or the exception it raises, in a thread."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(function())
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(BOUND)
    assert not thread.is_alive(), "the thread hangs"
    return result[0]


# ------------------------------------------------------------------------------------------------- as the standard ones


def use_all(objects: dict[str, Any], outcome: Any) -> None:
    """In a child: each is the same one as the parent's."""
    lock, rlock, semaphore, bounded, condition, event, barrier = objects.values()
    assert not lock.acquire(False)  # the parent has it
    lock.release()
    assert not rlock.acquire(timeout=0.01)
    with pytest.raises(AssertionError, match="not owned"):
        rlock.release()
    assert semaphore.get_value() == 2
    assert semaphore.acquire() and semaphore.acquire(False) and not semaphore.acquire(False)
    assert bounded.acquire(False) and not bounded.acquire(timeout=-1)
    assert event.wait(BOUND)
    assert barrier.wait(BOUND) in (0, 1)
    with condition:
        outcome.value = 7
        condition.notify()


def test_a_child_of_any_start_method_has_the_same_objects(ctx: Any) -> None:
    objects = {
        "lock": ctx.Lock(),
        "rlock": ctx.RLock(),
        "semaphore": ctx.Semaphore(2),
        "bounded": ctx.BoundedSemaphore(1),
        "condition": ctx.Condition(),
        "event": ctx.Event(),
        "barrier": ctx.Barrier(2),
    }
    outcome = ctx.Value("i", 0)
    lock, rlock, semaphore, bounded, condition, event, barrier = objects.values()
    assert lock.acquire()
    assert rlock.acquire() and rlock.acquire()
    with child(ctx, use_all, objects, outcome) as process:
        assert lock.acquire(timeout=BOUND)  # the child gave it back
        event.set()
        with condition:
            assert barrier.wait(BOUND) in (0, 1)
            assert condition.wait_for(lambda: outcome.value == 7, BOUND)
        finish(process)
    assert semaphore.get_value() == 0 and bounded.get_value() == 0  # units have no holder: none came back
    semaphore.release()
    bounded.release()
    assert repr(rlock) == "<RLock(MainProcess, 2)>"


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_the_owner_of_a_lock_has_a_pid(ctx: Any, kind: str) -> None:
    lock, held = getattr(ctx, kind)(), ctx.Event()
    assert lock.owner_pid is None
    with lock:
        assert lock.owner_pid == os.getpid() and in_thread(lambda: lock.owner_pid) == os.getpid()
    assert lock.owner_pid is None
    with child(ctx, hold, lock, held) as process:
        assert held.wait(BOUND)
        assert not lock.acquire(timeout=0.01), "a waiter, whose mark is in the word that names the owner"
        assert lock.owner_pid == process.pid
        kill(process)
        until(lambda: lock.owner_pid is None, "the end of the owner")
    with lock:
        assert lock.owner_pid == os.getpid() and lock.owner_died


def test_a_lock_is_not_its_context_s(ctx: Any) -> None:
    """A lock of the default context, and of each other one."""
    for maker in (mp, *map(mp.get_context, METHODS)):
        lock, held = maker.Lock(), maker.Event()
        with child(ctx, hold, lock, held) as process:
            assert held.wait(BOUND)
            assert not lock.acquire(False)
            kill(process)
        assert lock.acquire(timeout=BOUND)


@pytest.mark.parametrize("timeout", [0, -1, -0.5, 0.001])
def test_timeouts_that_are_over(timeout: float) -> None:
    lock, semaphore, event, condition = FORK.Lock(), FORK.Semaphore(0), FORK.Event(), FORK.Condition()
    lock.acquire()
    assert not lock.acquire(True, timeout)
    assert not lock.acquire(timeout=timeout)
    assert not semaphore.acquire(True, timeout)
    assert not event.wait(timeout)
    with condition:
        assert not condition.wait(timeout)
        assert condition.wait_for(lambda: 0, timeout) == 0
    with pytest.raises(threading.BrokenBarrierError):
        FORK.Barrier(2).wait(timeout)
    assert not lock.acquire(False, None)
    assert lock.acquire(False, BOUND) is False


def test_none_waits_for_as_long_as_it_takes() -> None:
    lock, event = FORK.Lock(), FORK.Event()
    lock.acquire()
    threading.Timer(0.25, lambda: (lock.release(), event.set())).start()  # longer than one look
    assert lock.acquire(True, None)
    assert event.wait(None)
    event.clear()
    assert not event.is_set()


@pytest.mark.parametrize("arguments", [((True, None, 1), {}), ((True,), {"block": 1}), ((), {"blocking": True})])
def test_arguments_that_are_not(arguments: Any) -> None:
    positional, named = arguments
    for lock in (FORK.Lock(), FORK.Semaphore()):
        with pytest.raises(TypeError, match="acquire"):
            lock.acquire(*positional, **named)
        assert lock.acquire()
        with pytest.raises(TypeError):
            lock.acquire(timeout="soon")


def test_released_too_often() -> None:
    for lock in (FORK.Lock(), FORK.BoundedSemaphore(1), FORK.BoundedSemaphore(0)):
        with pytest.raises(ValueError, match="too many times"):
            lock.release()
    rlock = FORK.RLock()
    with pytest.raises(AssertionError, match="not owned"):
        rlock.release()
    rlock.acquire()
    assert isinstance(in_thread(rlock.release), AssertionError)
    assert in_thread(lambda: rlock.acquire(False)) is False
    rlock.release()
    lock = FORK.Lock()
    lock.acquire()
    assert in_thread(lock.release) is None  # whoever likes
    semaphore = FORK.Semaphore(synchronize.SEM_VALUE_MAX)
    with pytest.raises(ValueError, match="too many times"):
        semaphore.release()


def test_wrong_values() -> None:
    for value in (-1, synchronize.SEM_VALUE_MAX + 1):
        for make in (FORK.Semaphore, FORK.BoundedSemaphore):
            with pytest.raises(ValueError, match="value of a semaphore"):
                make(value)
    with pytest.raises(TypeError):
        FORK.Semaphore(1.5)
    for parties in (0, -3, 4097):
        with pytest.raises(ValueError, match="barrier"):
            FORK.Barrier(parties)
    condition = FORK.Condition()
    for call in (condition.wait, condition.notify, condition.notify_all):
        with pytest.raises(AssertionError):
            call()


def test_reprs() -> None:
    standard = multiprocessing.get_context("fork")
    for make in (lambda c: c.Lock(), lambda c: c.RLock(), lambda c: c.Semaphore(3), lambda c: c.BoundedSemaphore(4)):
        ours, theirs = make(FORK), make(standard)
        assert repr(ours) == repr(theirs)
        for act in ("acquire", "release", "acquire"):
            getattr(ours, act)()
            getattr(theirs, act)()
            assert repr(ours) == repr(theirs)
        assert in_thread(lambda ours=ours: repr(ours)) == in_thread(lambda theirs=theirs: repr(theirs))
    lock, held = FORK.Lock(), FORK.Event()
    assert "unset" in repr(held)
    with child(FORK, hold, lock, held):
        assert held.wait(BOUND)
        assert repr(lock) == "<Lock(owner=SomeOtherProcess)>"
    assert " set" in repr(held)
    assert repr(FORK.Condition()) == "<Condition(<RLock(None, 0)>, 0)>"


def test_what_may_be_pickled_only_for_a_child() -> None:
    for made in (FORK.Lock(), FORK.RLock(), FORK.Semaphore(), FORK.Condition(), FORK.Event(), FORK.Barrier(2)):
        with pytest.raises(RuntimeError, match="inheritance"):
            pickle.dumps(made)


def put_and_add(queue: Any, value: Any, array: Any) -> None:
    for i in range(50):
        queue.put(i)
        with value.get_lock():
            value.value += 1
        with array:
            array[1] += 2
    queue.close()
    queue.join_thread()


def test_standard_classes_over_these_locks(ctx: Any) -> None:
    queue = multiprocessing.queues.Queue(4, ctx=ctx)
    value = multiprocessing.sharedctypes.Value("i", 0, ctx=ctx)
    array = multiprocessing.sharedctypes.Array("d", 3, ctx=ctx)
    with child(ctx, put_and_add, queue, value, array) as one, child(ctx, put_and_add, queue, value, array) as other:
        got = sorted(queue.get(timeout=BOUND) for _ in range(100))
        finish(one)
        finish(other)
    assert got == sorted([*range(50)] * 2)
    assert value.value == 100 and array[1] == 200
    queue.close()
    queue.join_thread()


def test_a_forked_child_does_not_hold_what_its_parent_holds() -> None:
    rlock = FORK.RLock()
    rlock.acquire()

    def look() -> None:
        assert not rlock.acquire(False)
        assert repr(rlock) == "<RLock(SomeOtherProcess, nonzero)>"
        with pytest.raises(AssertionError):
            rlock.release()

    with child(FORK, look) as process:
        finish(process)
    rlock.release()


def test_a_barrier_in_rounds_with_its_action() -> None:
    total = FORK.Value("i", 0)

    def action() -> None:
        total.value += 1

    barrier = FORK.Barrier(3, action)
    seen = FORK.Value("i", 0)

    def party() -> None:
        for _ in range(20):
            index = barrier.wait(BOUND)
            with seen.get_lock():
                seen.value += index

    with child(FORK, party) as one, child(FORK, party) as two, child(FORK, party) as three:
        for process in (one, two, three):
            finish(process)
    assert total.value == 20
    assert seen.value == 20 * (0 + 1 + 2)
    assert not barrier.broken and barrier.n_waiting == 0


def test_a_barrier_for_more_than_a_condition_holds() -> None:
    parties = 520
    barrier = FORK.Barrier(parties)
    passed: list[int] = []
    threads = [threading.Thread(target=lambda: passed.append(barrier.wait(BOUND * 2))) for _ in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND * 3)
    assert sorted(passed) == list(range(parties))


def test_a_condition_is_full() -> None:
    condition = FORK.Condition()
    places = [condition._wait_queue.enter() for _ in range(504)]
    assert None not in places
    with condition, pytest.raises(errors.QuotaExceeded, match="504"):
        condition.wait(0)
    places.pop()
    with condition:
        assert condition.wait(0) is False


# ---------------------------------------------------------------------------------------------------------- by its name


@pytest.mark.parametrize("kind", ["Semaphore", "BoundedSemaphore"])
def test_the_first_to_say_how_many_units_sets_it(kind: str) -> None:
    make = getattr(FORK, kind)
    early = make(name=f"test.{kind}")
    assert early.get_value() == 1 and early.acquire(False) and not early.acquire(False)
    owner = make(4, name=f"test.{kind}")
    assert owner.get_value() == 3, "one is taken"
    assert make(name=f"test.{kind}").get_value() == 3
    with pytest.raises(errors.InvalidArgument, match="exists with value 4, not 1"):
        make(1, name=f"test.{kind}")
    early.release()
    assert owner.get_value() == 4
    if kind == "BoundedSemaphore":
        with pytest.raises(ValueError, match="too many times"):
            early.release()
    other = {"Semaphore": "BoundedSemaphore", "BoundedSemaphore": "Semaphore"}[kind]
    with pytest.raises(errors.InvalidArgument, match="another kind"):
        getattr(FORK, other)(name=f"test.{kind}")
    none = make(name=f"test.{kind}.0")
    assert none.acquire(False)
    with pytest.raises(errors.InvalidArgument, match="more units acquired"):
        make(0, name=f"test.{kind}.0")
    none.release()
    assert make(0, name=f"test.{kind}.0").get_value() == 0


def test_who_waits_for_a_unit_gets_one_of_those_that_are_said_later(here: World) -> None:
    code = "import sys, shmtensor.multiprocessing as mp\ns = mp.Semaphore(name='s'); s.acquire()\n"
    waiter = here.script(code + "print('waits', flush=True); print(s.acquire(timeout=20), flush=True)")
    assert line_of(waiter) == "waits"
    assert here.run("import shmtensor.multiprocessing as mp; mp.Semaphore(2, name='s'); print('ok')") == "ok\n"
    assert line_of(waiter) == "True"


def test_named_objects_between_programs_that_are_not_related(here: World) -> None:
    code = """
import sys
import shmtensor.multiprocessing as mp
lock, rlock = mp.Lock(name="a"), mp.RLock(name="b")
semaphore, bounded = mp.Semaphore(2, name="c"), mp.BoundedSemaphore(3, name="d")
condition, event = mp.Condition(name="e"), mp.Event(name="f")
"""
    here.env["SHMTENSOR_MANAGER"] = os.fsdecode(here.serve())
    first = here.script(
        code + "lock.acquire(); semaphore.acquire(); rlock.acquire()\n"
        "with condition:\n    print('here', flush=True)\n    assert condition.wait(20)\n"
        "event.set(); print('notified', flush=True); sys.stdin.read()"
    )
    assert first.stdout is not None and first.stderr is not None
    assert first.stdout.readline() == "here\n", first.stderr.read()
    here.run(
        code + "assert not lock.acquire(False) and not rlock.acquire(False) and semaphore.get_value() == 1\n"
        "assert bounded.get_value() == 3\n"
        "with condition:\n    condition.notify()\n"
        "assert event.wait(20); lock.release()\n"
    )
    assert first.stdout.readline() == "notified\n"
    wrong = """
for make in (mp.RLock, mp.Semaphore, mp.Event):
    try:
        make(name="a")
    except ValueError as error:
        print(error)
"""
    assert here.run(code + wrong).count("another kind of object") == 3
    garbage = """
from shmtensor import errors
from shmtensor.ipc import reductions
from shmtensor.manager import client, naming
manager = client.default()
def make():
    block = manager.allocate(4096)
    memoryview(block)[:] = bytes(i * 37 % 256 for i in range(4096))
    return block
block, _ = naming.open_or_create(manager, reductions.name_of("g"), make)
small, _ = naming.open_or_create(manager, reductions.name_of("h"), lambda: manager.allocate(8))
for make in (mp.Lock, mp.RLock, mp.Semaphore, mp.BoundedSemaphore, mp.Event, mp.Condition):
    for name in ("g", "h"):
        try:
            make(name=name)
        except ValueError as error:
            print(error)
try:
    mp.Lock(name="no such/name")
except errors.InvalidArgument:
    print("refused")
"""
    out = here.run(code + garbage)
    assert out.count("overwritten") + out.count("too small") == 12
    assert "refused" in out


def test_whole_numbers_of_other_libraries() -> None:
    semaphore = mp.Semaphore(np.int64(3))
    assert all(semaphore.acquire(False) for _ in range(3)) and not semaphore.acquire(False)
    assert mp.Barrier(np.int64(1)).wait(BOUND) == 0
    for make in (mp.Semaphore, mp.BoundedSemaphore, mp.Barrier):
        with pytest.raises(TypeError, match="must be an integer"):
            make(1.5)
