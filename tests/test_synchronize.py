"""Locks, semaphores, conditions, events and barriers: as the standard ones, and held by no death."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.queues
import multiprocessing.sharedctypes
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, until, world

import shmtensor.multiprocessing as mp
from shmtensor import errors, synchronize

METHODS = ("fork", "spawn", "forkserver")
FORK = mp.get_context("fork")
LOCKS: tuple[Callable[[], Any], ...] = (FORK.Lock, FORK.RLock, FORK.Condition)


@pytest.fixture(params=METHODS)
def ctx(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield mp.get_context(request.param)


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


@contextlib.contextmanager
def child(context: Any, target: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """A process that the test ends, unless it ended by itself."""
    process = context.Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join(BOUND)
        process.close()


def finish(process: Any) -> None:
    process.join(BOUND)
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"


def kill(process: Any) -> None:
    process.kill()
    process.join(BOUND)
    assert process.exitcode == -signal.SIGKILL


def is_in(pid: int, states: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in states


def asleep(process: Any) -> None:
    until(lambda: is_in(process.pid, "S"), "the child to sleep")


def hold(lock: Any, held: Any) -> None:
    """Takes it, and stays."""
    lock.acquire()
    held.set()
    threading.Event().wait()


def wait(waitable: Any, coming: Any = None) -> None:
    if coming is not None:
        coming.release()
    with waitable if isinstance(waitable, synchronize.Condition) else contextlib.nullcontext():
        assert waitable.wait(BOUND) is not False


def take(semaphore: Any) -> None:
    assert semaphore.acquire()


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


# ------------------------------------------------------------------------------------------------ as the standard ones


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
            with pytest.raises(ValueError, match="units"):
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
    places = [condition._crowd.enter() for _ in range(504)]
    assert None not in places
    with condition, pytest.raises(errors.QuotaExceeded, match="504"):
        condition.wait(0)
    places.pop()
    with condition:
        assert condition.wait(0) is False


# ---------------------------------------------------------------------------------------------------------- by its name


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
    assert here.run(code + wrong).count("another kind of lock") == 3
    garbage = """
from shmtensor import errors, reductions
from shmtensor.manager import client
manager = client.default()
def make():
    block = manager.allocate(4096)
    memoryview(block)[:] = bytes(i * 37 % 256 for i in range(4096))
    return block
block, _ = manager.open_or_create(reductions.name_of("g"), make)
small, _ = manager.open_or_create(reductions.name_of("h"), lambda: manager.allocate(8))
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


# ------------------------------------------------------------------------------------------------------ killed, stopped


@pytest.mark.parametrize("make", LOCKS)
def test_the_lock_of_a_killed_holder_goes_to_the_next(ctx: Any, make: Callable[[], Any]) -> None:
    lock, held = make(), ctx.Event()
    guard = lock._lock if isinstance(lock, synchronize.Condition) else lock
    with child(ctx, hold, lock, held) as process:
        assert held.wait(BOUND)
        assert not lock.acquire(False)
        kill(process)
    assert lock.acquire(timeout=BOUND)
    assert guard.owner_died is True
    lock.release()
    assert lock.acquire(timeout=BOUND)
    assert guard.owner_died is False
    lock.release()


def test_of_many_who_wait_all_have_their_turn_after_a_kill() -> None:
    lock, held, turns = FORK.Lock(), FORK.Event(), FORK.Value("i", 0, lock=False)

    def turn() -> None:
        assert lock.acquire(timeout=BOUND)
        turns.value += 1
        lock.release()

    with contextlib.ExitStack() as stack:
        holder = stack.enter_context(child(FORK, hold, lock, held))
        assert held.wait(BOUND)
        others = [stack.enter_context(child(FORK, turn)) for _ in range(4)]
        for process in others:
            asleep(process)
        kill(holder)
        for process in others:
            finish(process)
    assert turns.value == 4


def test_without_a_manager_a_waiter_sees_the_death_itself(here: World) -> None:
    here.env["SHMTENSOR_MANAGER"] = os.fsdecode(here.serve())
    code = """
import os, signal, sys, time
import shmtensor.multiprocessing as mp
lock = mp.Lock()
pid = os.fork()
if pid == 0:
    lock.acquire()
    signal.pause()
while lock.acquire(False):
    lock.release()
    time.sleep(0.01)
os.kill(int(sys.argv[1]), signal.SIGSTOP)  # the manager notices nothing any more
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
print(lock.acquire(timeout=20), lock.owner_died)
os.kill(int(sys.argv[1]), signal.SIGCONT)
"""
    assert here.run(code, str(here.server.pid)) == "True True\n"


@pytest.mark.parametrize("make", LOCKS)
def test_a_stopped_holder_lets_nobody_wait_for_longer_than_they_like(make: Callable[[], Any]) -> None:
    lock, held = make(), FORK.Event()
    with child(FORK, hold, lock, held) as process:
        assert held.wait(BOUND)
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: is_in(process.pid, "T"), "the holder to stop")
        assert not lock.acquire(timeout=0.3)
        assert not lock.acquire(False)
        kill(process)
    assert lock.acquire(timeout=BOUND)


def test_a_killed_waiter_takes_no_notification_with_it(ctx: Any) -> None:
    condition = ctx.Condition()
    sleeping = condition._sleeping_count.get_value
    with child(ctx, wait, condition) as first:
        until(lambda: sleeping() == 1, "the first waiter")
        with child(ctx, wait, condition) as second:
            until(lambda: sleeping() == 2, "the second waiter")
            kill(first)
            with condition:
                condition.notify()
            finish(second)
    assert sleeping() == 0


def test_who_notifies_is_not_kept_by_a_stopped_waiter() -> None:
    condition = FORK.Condition()
    with child(FORK, wait, condition) as first, child(FORK, wait, condition) as second:
        until(lambda: condition._sleeping_count.get_value() == 2, "the waiters")
        os.kill(first.pid, signal.SIGSTOP)
        until(lambda: is_in(first.pid, "T"), "a waiter to stop")
        with condition:
            condition.notify_all()
        finish(second)
        os.kill(first.pid, signal.SIGCONT)
        finish(first)


def test_a_killed_waiter_of_an_event_or_a_semaphore_keeps_nobody(ctx: Any) -> None:
    event, coming, semaphore = ctx.Event(), ctx.Semaphore(0), ctx.Semaphore(0)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(child(ctx, wait, event, coming)) for _ in range(2)]
        takers = [stack.enter_context(child(ctx, take, semaphore)) for _ in range(2)]
        for _ in processes:
            assert coming.acquire(timeout=BOUND)
        for process in (*processes, *takers):
            asleep(process)
        kill(processes[0])
        kill(takers[0])
        event.set()
        finish(processes[1])
        semaphore.release()
        semaphore.release()
        finish(takers[1])
    until(lambda: semaphore.get_value() == 1, "the other unit")


def come(barrier: Any, broken: Any) -> None:
    try:
        barrier.wait()
    except threading.BrokenBarrierError:
        broken.release()


def test_a_barrier_breaks_when_a_party_dies_and_can_be_used_again(ctx: Any) -> None:
    barrier, broken = ctx.Barrier(4), ctx.Semaphore(0)
    with contextlib.ExitStack() as stack:
        one, two, dead = (stack.enter_context(child(ctx, come, barrier, broken)) for _ in range(3))
        until(lambda: barrier.n_waiting == 3, "three parties")
        kill(dead)
        finish(one)
        finish(two)
    assert broken.get_value() == 2
    assert barrier.broken
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(BOUND)
    barrier.reset()
    assert not barrier.broken and barrier.n_waiting == 0
    with contextlib.ExitStack() as stack:
        again = [stack.enter_context(child(ctx, come, barrier, broken)) for _ in range(3)]
        assert barrier.wait(BOUND) in range(4)
        for process in again:
            finish(process)
    assert broken.get_value() == 2


def test_a_barrier_whose_action_is_killed_breaks() -> None:
    barrier, broken = FORK.Barrier(2, lambda: os.kill(os.getpid(), signal.SIGKILL)), FORK.Semaphore(0)
    with child(FORK, come, barrier, broken) as one, child(FORK, come, barrier, broken) as other:
        until(lambda: not (one.is_alive() or other.is_alive()), "both to end")
        assert sorted((one.exitcode, other.exitcode)) == [-signal.SIGKILL, 0]
    assert broken.get_value() == 1


def add(lock: Any, numbers: Any, mine: int, stop: Any) -> None:
    """Add 1 to two numbers; what a dead one left half done shows in their difference."""
    while not stop.is_set():
        with lock:
            if lock.owner_died:
                numbers[0] = numbers[1] = max(numbers[0], numbers[1])
            assert numbers[0] == numbers[1]
            numbers[0] += 1
            numbers[1] += 1
            numbers[2 + mine] += 1


def test_no_addition_is_lost_whoever_is_killed() -> None:
    count, kills = 4, 25
    lock, stop = FORK.Lock(), FORK.Event()
    numbers = multiprocessing.RawArray("q", 2 + count + kills)
    dice = random.Random(5)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(child(FORK, add, lock, numbers, i, stop)) for i in range(count)]
        for i in range(kills):
            before = numbers[0]
            until(lambda before=before: numbers[0] > before + dice.randrange(200), "the others to go on")
            victim = processes.pop(dice.randrange(count))
            kill(victim)
            processes.append(stack.enter_context(child(FORK, add, lock, numbers, count + i, stop)))
        stop.set()
        for process in processes:
            finish(process)
    # A killed one may have added and not noted that it did.
    assert sum(numbers[2:]) <= numbers[0] <= sum(numbers[2:]) + kills
    assert numbers[0] == numbers[1]


# ------------------------------------------------------------------------------------------------ Ctrl-C, costs of time

WAITS = {
    "lock": "lock = mp.Lock(); lock.acquire(); go(); lock.acquire()",
    "rlock": "lock = mp.RLock()\nimport threading\n"
    "t = threading.Thread(target=lock.acquire); t.start(); t.join(); go(); lock.acquire()",
    "semaphore": "semaphore = mp.Semaphore(0); go(); semaphore.acquire()",
    "condition": "condition = mp.Condition()\nwith condition:\n        go(); condition.wait()",
    "event": "event = mp.Event(); go(); event.wait()",
    "barrier": "barrier = mp.Barrier(2); go(); barrier.wait()",
}


@pytest.mark.parametrize("kind", WAITS)
def test_ctrl_c_ends_a_wait(here: World, kind: str) -> None:
    code = (
        "import signal\nimport shmtensor.multiprocessing as mp\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may start us with it ignored
        "def go():\n    print('waits', flush=True)\n"
        "try:\n    "
        + WAITS[kind].replace("\nimport", "\n    import").replace("\nt =", "\n    t =").replace("\nwith", "\n    with")
        + "\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    process = here.script(code)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "waits\n", process.stderr.read()
    until(lambda: is_in(process.pid, "S"), "it to sleep")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_an_interrupted_waiter_passes_its_notification_on() -> None:
    condition = FORK.Condition()
    place = condition._crowd.enter()
    assert place is not None
    with condition:
        condition.notify()
    assert place.leave() is True
    assert place.leave() is False
    assert condition._sleeping_count.get_value() == 0


def test_taking_what_is_free_makes_no_system_call(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = """
import os
import shmtensor.multiprocessing as mp
lock, rlock, semaphore, event, condition = mp.Lock(), mp.RLock(), mp.Semaphore(3), mp.Event(), mp.Condition()
def work():
    for _ in range(1000):
        with lock, rlock, rlock, semaphore, condition:
            condition.notify()
        event.set(); event.wait(); event.is_set(); event.clear()
        lock.acquire(True, 5); lock.release()
work()
os.write(2, b"BEGIN")
work()
os.write(2, b"END")
"""
    log = tmp_path / "calls"
    done = subprocess.run(
        ["strace", "-o", log, sys.executable, "-c", code], timeout=BOUND * 2, check=False, capture_output=True
    )
    if done.returncode != 0 and b"ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if '"BEGIN"' in line)
    end = next(i for i, line in enumerate(lines) if '"END"' in line)
    assert lines[begin + 1 : end] == []


def test_who_waits_uses_hardly_any_time_of_a_processor() -> None:
    lock, semaphore, event, condition = FORK.Lock(), FORK.Semaphore(0), FORK.Event(), FORK.Condition()
    lock.acquire()
    barrier = FORK.Barrier(2)

    def wait_for(condition: Any) -> None:
        with condition:
            condition.wait(2)

    def meet() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(2)

    waits = [lambda: lock.acquire(timeout=2), lambda: semaphore.acquire(timeout=2), lambda: event.wait(2), meet]
    threads = [threading.Thread(target=each) for each in (*waits, lambda: wait_for(condition))]
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Five waits that spin use five times the time; looking ten times in a second is a thousandth of it.
    assert used < 0.5 * (time.monotonic() - begin)
