"""Locks, semaphores, conditions, events and barriers: dead or stopped processes do not block the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from locks_world import FORK, child, finish, hold, is_in, kill
from manager_world import BOUND, World, until

from shmtensor.ipc import synchronize

LOCKS: tuple[Callable[[], Any], ...] = (FORK.Lock, FORK.RLock, FORK.Condition)


def asleep(process: Any) -> None:
    until(lambda: is_in(process.pid, "S"), "the child to sleep")


def wait(waitable: Any, coming: Any = None) -> None:
    if coming is not None:
        coming.release()
    with waitable if isinstance(waitable, synchronize.Condition) else contextlib.nullcontext():
        assert waitable.wait(BOUND) is not False


def take(semaphore: Any) -> None:
    assert semaphore.acquire()


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
    assert guard.owner_died is False
    assert lock.acquire(timeout=BOUND)
    assert guard.owner_died is False
    lock.release()


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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
assert lock.owner_pid in (pid, None)
os.waitpid(pid, 0)
print(lock.owner_pid, lock.acquire(timeout=20), lock.owner_died)
os.kill(int(sys.argv[1]), signal.SIGCONT)
"""
    assert here.run(code, str(here.server.pid)) == "None True True\n"


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
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
