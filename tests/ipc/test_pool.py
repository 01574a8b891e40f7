"""Pool: the standard interface, and every task is done or the death of its worker reported."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import pickle
import random
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, is_alive, until, world

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor.errors import SegmentLost, WorkerDied
from shmtensor.ipc import pool as pools
from shmtensor.manager import client

METHODS = ("fork", "spawn", "forkserver")


@pytest.fixture
def two() -> Iterator[Any]:
    with mp.get_context("fork").Pool(2) as pool:
        yield pool


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


# --------------------------------------------------------------------------------------------------------------- tasks


def square(x: Any) -> Any:
    return x * x


def add(x: Any, y: Any = 1) -> Any:
    return x + y


def pid(_: Any = None) -> int:
    return os.getpid()


def fail(x: Any) -> Any:
    raise KeyError(x)


def touch_and_wait(path: str, until_gone: str) -> int:
    Path(path).touch()
    while Path(until_gone).exists():
        time.sleep(0.005)
    return os.getpid()


def end(how: str) -> Any:
    if how == "segfault":
        faulthandler.disable()
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "os._exit":
        os._exit(3)
    elif how == "sys.exit":
        sys.exit(0)
    return how


def slow_square(x: int) -> tuple[int, Any]:
    time.sleep(0.001)
    return x, np.full(500, x * x)


class TooManyArguments(Exception):
    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(one)


def raise_too_many() -> None:
    raise TooManyArguments(1, 2)


class Elsewhere:
    """Can be unpickled in every process but one."""

    def __init__(self, refuses: int) -> None:
        self.refuses = refuses

    def __reduce__(self) -> Any:
        return unpack_elsewhere, (self.refuses,)


def unpack_elsewhere(refuses: int) -> Elsewhere:
    if os.getpid() == refuses:
        raise ImportError("not here")
    return Elsewhere(refuses)


def refused_by_pool_maker(x: Any) -> Elsewhere:
    return Elsewhere(os.getppid())


_initialized: list[Any] = []


def initialize(value: Any) -> None:
    _initialized.append(value)


def initialized() -> list[Any]:
    return _initialized


# ------------------------------------------------------------------------------------------------- standard interface


def test_standard_interface(ctx: Any) -> None:
    seen: list[Any] = []
    with ctx.Pool(2, initialize, (7,)) as pool:
        assert pool.apply(initialized) == [7]
        assert pool.apply(add, (1,), {"y": 2}) == 3
        assert pool.map(square, range(50)) == [x * x for x in range(50)]
        assert pool.map(square, []) == []
        assert pool.starmap(add, [(1, 2), (3, 4)]) == [3, 7]
        assert list(pool.imap(square, range(10))) == [x * x for x in range(10)]
        assert list(pool.imap(square, range(10), chunksize=3)) == [x * x for x in range(10)]
        assert sorted(pool.imap_unordered(square, range(10))) == [x * x for x in range(10)]
        result = pool.apply_async(square, (3,), callback=seen.append)
        assert result.get(BOUND) == 9
        assert seen == [9]
        failed = pool.map_async(fail, [1], error_callback=seen.append)
        failed.wait(BOUND)
        assert not failed.successful()
        with pytest.raises(KeyError) as caught:
            failed.get()
        assert seen[1] is caught.value
        assert "in fail" in str(caught.value.__cause__)
        pool.close()
        with pytest.raises(ValueError, match="not running"):
            pool.apply(square, (1,))
        pool.join()
    assert all(worker.exitcode == 0 for worker in pool._pool)


def test_tensors_and_arrays_cross_through_shared_memory(ctx: Any) -> None:
    tensor, array = shmtensor.ones(1000), np.arange(1000.0)
    before = in_flight()
    with ctx.Pool(1) as pool:
        pool.apply(fill, (tensor, 5.0))
        back = pool.apply(square, (array,))
        pool.close()
        pool.join()
    assert tensor[0].item() == 5.0
    assert back.tolist() == (array * array).tolist()
    assert back.flags.writeable
    assert in_flight() == before


def fill(tensor: Any, value: float) -> Any:
    return tensor.fill_(value)


@pytest.mark.parametrize("arguments", [{"processes": 0}, {"maxtasksperchild": 0}, {"maxtasksperchild": "x"}])
def test_arguments_are_checked(arguments: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        mp.Pool(**arguments)


def test_initializer_has_to_be_callable() -> None:
    with pytest.raises(TypeError, match="callable"):
        mp.Pool(1, initializer=3)


def test_workers_are_replaced_after_maxtasksperchild() -> None:
    with mp.get_context("fork").Pool(2, maxtasksperchild=5) as pool:
        pids = pool.map(pid, range(40), chunksize=1)
        assert len(set(pids)) >= 8
        assert max(pids.count(one) for one in pids) <= 5
        pool.close()
        pool.join()


def test_what_cannot_be_pickled_fails_alone(two: Any) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        two.apply(square, (lambda: 1,))
    with pytest.raises(pools.pool.MaybeEncodingError, match="lambda"):
        two.apply(eval, ("lambda: 1",))
    with pytest.raises(pools.pool.MaybeEncodingError, match="TooManyArguments"):
        two.apply(raise_too_many)
    assert two.apply(square, (3,)) == 9


def test_what_cannot_be_unpickled_fails_alone() -> None:
    with mp.get_context("fork").Pool(1) as pool:
        worker = pool.apply(pid)
        results = [pool.apply_async(square, (x,)) for x in range(5)]
        with pytest.raises(ImportError, match="not here"):
            pool.apply(square, (Elsewhere(worker),))
        results += [pool.apply_async(refused_by_pool_maker, (0,)), pool.apply_async(square, (5,))]
        with pytest.raises(ImportError, match="not here"):
            results.pop(5).get(BOUND)
        assert [result.get(BOUND) for result in results] == [x * x for x in range(6)]
        assert pool.apply(pid) == worker


def test_iterables_are_read_as_far_as_tasks_may_wait(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_MAX_TASKS", 10)
    numbers = itertools.count()
    results = two.imap(square, numbers)
    assert [next(results) for _ in range(100)] == [x * x for x in range(100)]
    assert next(numbers) <= 100 + 4096  # those that were read before the bound was set
    two.terminate()
    two.join()


def test_large_tasks_wait_for_their_turn(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_MAX_BYTES", 1 << 20)
    arrays = (np.full(1 << 17, x) for x in range(20))
    assert [int(part[0]) for part in two.imap(square, arrays)] == [x * x for x in range(20)]
    assert two._inqueue.stats().peak_messages <= 3


def test_a_dropped_pool_ends_its_workers() -> None:
    pool = mp.get_context("fork").Pool(2)
    pool.map(square, range(10))
    workers, gone = list(pool._pool), weakref.ref(pool)
    pool._state = "quiet"  # no ResourceWarning
    del pool
    gc.collect()
    assert gone() is None
    until(lambda: not any(worker.is_alive() for worker in workers), "the workers to end")


def test_terminate_does_not_wait_for_tasks(two: Any) -> None:
    results = two.map_async(time.sleep, [1000.0] * 100, chunksize=1)
    two.terminate()
    two.join()
    assert not results.ready()


# -------------------------------------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize(
    ("how", "code", "name"),
    [("killed", -9, "SIGKILL"), ("segfault", -11, "SIGSEGV"), ("os._exit", 3, None), ("sys.exit", 0, None)],
)
def test_the_task_of_a_dead_worker_raises(ctx: Any, how: str, code: int, name: str | None) -> None:
    if ctx.get_start_method() != "fork" and how != "killed":
        pytest.skip("one end is enough under this method")
    with ctx.Pool(1) as pool:
        before, later = pool.apply_async(pid), [pool.apply_async(end, (how,)), pool.apply_async(pid)]
        with pytest.raises(WorkerDied, match=name or f"exit code {code}") as caught:
            later[0].get(BOUND)
        error = caught.value
        assert isinstance(error, ChildProcessError)
        assert (error.pid, error.exit_code, error.signal_name) == (before.get(BOUND), code, name)
        assert str(error.pid) in str(error)
        assert later[1].get(BOUND) != error.pid
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.pid, copy.exit_code, copy.signal_name) == (str(error), error.pid, code, name)


def test_only_the_chunk_of_a_dead_worker_is_lost(two: Any) -> None:
    with pytest.raises(WorkerDied):
        two.map(end, ["fine", "killed", "fine"], chunksize=1)
    for imap in ("imap", "imap_unordered"):
        results = getattr(two, imap)(end, ["fine"] * 5 + ["killed"] + ["fine"] * 5)
        outcomes: list[Any] = []
        while len(outcomes) < 11:
            try:
                outcomes.append(results.next(BOUND))
            except WorkerDied as error:
                outcomes.append(error)
        assert outcomes.count("fine") == 10
        assert imap == "imap_unordered" or isinstance(outcomes[5], WorkerDied)
    assert two.map(square, range(10)) == [x * x for x in range(10)]


def test_an_idle_worker_is_replaced(two: Any) -> None:
    assert two.map(square, range(20), chunksize=1) == [x * x for x in range(20)]
    for _ in range(3):
        workers = list(two._pool)
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        assert two.map(square, range(20), chunksize=1) == [x * x for x in range(20)]
        until(lambda: len(two._pool) == 2 and not set(workers) & set(two._pool), "new workers")  # noqa: B023


def test_a_worker_killed_before_its_take_has_lost_nothing(two: Any) -> None:
    """The receipt names a message, and its writer died before that was taken: another worker does the task."""
    first, second = two._pool
    for worker in (first, second):
        os.kill(worker.pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{worker.pid}/stat").read_text().split()[2] == "T", "it to stop")  # noqa: B023
    number = two._inqueue.stats().put
    results = [two.apply_async(square, (x,)) for x in range(3)]
    until(lambda: two._inqueue.stats().messages == 3, "the tasks to wait")
    two._core._receipts[first]._cell[0] = number + 1
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: first not in two._pool, "the death to be noticed")
    os.kill(second.pid, signal.SIGCONT)
    assert [result.get(BOUND) for result in results] == [0, 1, 4]


def test_a_task_in_the_hands_of_another_worker_is_not_lost(two: Any, tmp_path: Path) -> None:
    """As above, and the death is noticed only when another worker has taken the task."""
    started, gate = tmp_path / "started", tmp_path / "gate"
    gate.touch()
    number = two._inqueue.stats().put
    result = two.apply_async(touch_and_wait, (str(started), str(gate)))
    until(started.exists, "the task to start")
    holder, other = sorted(two._pool, key=lambda worker: two._core._receipts[worker].read() != number + 1)
    two._core._receipts[other]._cell[0] = number + 1
    os.kill(other.pid, signal.SIGKILL)
    until(lambda: other not in two._pool and len(two._pool) == 2, "the death to be noticed")
    assert two.apply(square, (2,)) == 4  # results that came after it have been seen
    gate.unlink()
    assert result.get(BOUND) == holder.pid


def test_a_result_that_was_put_counts_although_its_worker_is_dead(two: Any) -> None:
    collector = two._result_handler
    number = two._inqueue.stats().put
    results = [two.apply_async(pid) for _ in range(4)]
    pids = {result.get(BOUND) for result in results}
    for at, worker in enumerate(list(two._pool)):
        os.kill(worker.pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{worker.pid}/stat").read_text().split()[2] == "T", "it to stop")  # noqa: B023
        two._core._receipts[worker]._cell[0] = number + at + 1  # of a task that is done
        os.kill(worker.pid, signal.SIGKILL)
    assert two.apply(square, (3,)) == 9
    assert collector.is_alive()
    assert pids


def in_truncated_memory() -> Any:
    """A result whose memory somebody truncates before anybody receives it."""
    client.set_strategy("file_system")
    value = shmtensor.ones(1000, shared=True)
    client.set_strategy("file_descriptor")
    manager = client.default()
    own = [row for row in manager.list()["segments"] if row["owner"] == manager.native.slot]
    for row in own:
        os.truncate("/dev/shm" + row["name"], 4096)
    return value


@pytest.mark.parametrize("most", [None, 1])
def test_a_result_in_memory_that_was_truncated_is_lost(most: int | None, tmp_path: Path) -> None:
    """Its task fails, whatever becomes of its worker; all others are done."""
    gate = tmp_path / "gate"
    gate.touch()
    with mp.get_context("fork").Pool(2, maxtasksperchild=most) as pool:
        working = pool.apply_async(touch_and_wait, (str(tmp_path / "started"), str(gate)))
        until((tmp_path / "started").exists, "a task to be started")
        for result in [pool.apply_async(in_truncated_memory) for _ in range(3 if most else 1)]:
            with pytest.raises(SegmentLost, match="truncated"):
                result.get(BOUND)
        assert pool.apply_async(square, (4,)).get(BOUND) == 16
        assert not working.ready()
        gate.unlink()
        assert working.get(BOUND)
        until(lambda: not pool._core._tasks and not pool._core._losses, "no more looks at receipts")


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
def test_storm(method: str) -> None:
    """Workers are killed at random moments of a burst: every task has its result, or its worker's death."""
    rng = random.Random(1)
    before = in_flight()
    rounds = 25 if method == "fork" else 6
    with mp.get_context(method).Pool(3) as pool:
        results = [pool.apply_async(slow_square, (x,)) for x in range(rounds * 40)]
        killed = set()
        for _ in range(rounds):
            time.sleep(rng.random() * 0.02)
            worker = rng.choice(list(pool._pool) or [None])
            if worker is not None:
                with suppress(ProcessLookupError):  # killed before, and seen by the pool just now
                    os.kill(worker.pid, signal.SIGKILL)
                    killed.add(worker.pid)
        lost = 0
        for x, result in enumerate(results):
            try:
                found, array = result.get(BOUND)
            except WorkerDied as error:
                assert error.pid in killed
                assert error.signal_name == "SIGKILL"
                lost += 1
            else:
                assert found == x
                assert (array == x * x).all()
        assert lost <= len(killed)
        assert pool.map(square, range(30)) == [x * x for x in range(30)]
        assert not pool._core._tasks
        pool.close()
        pool.join()
    until(lambda: in_flight() == before, "the blocks of the dead to be free")


def test_close_and_join_do_not_wait_for_the_dead() -> None:
    with mp.get_context("fork").Pool(2) as pool:
        results = [pool.apply_async(end, ("killed" if x % 5 == 0 else "fine",)) for x in range(20)]
        pool.close()
        pool.join()
        assert sum(not result.successful() for result in results) == 4


MAKER = """
import sys, time
import shmtensor.multiprocessing as mp

if __name__ == "__main__":
    pool = mp.get_context(sys.argv[1]).Pool(3)
    pool.map_async(time.sleep, [0.3] * 12, chunksize=1)
    print(*[worker.pid for worker in pool._pool], flush=True)
    time.sleep(1000)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_the_process_that_made_the_pool(method: str, tmp_path: Path) -> None:
    script = tmp_path / "maker.py"
    script.write_text(MAKER)
    with world() as here:
        maker = here.popen(str(script), method)
        assert maker.stdout is not None
        workers = [int(word) for word in maker.stdout.readline().split()]
        assert len(workers) == 3
        maker.send_signal(signal.SIGKILL)
        try:
            until(lambda: not any(is_alive(worker) for worker in workers), "the workers to end")
        finally:
            for worker in filter(is_alive, workers):
                os.kill(worker, signal.SIGKILL)


def test_thread_pools_are_the_standard_ones() -> None:
    with mp.pool.ThreadPool(2) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    dummy = mp.dummy.Pool(1)
    assert dummy.apply(square, (3,)) == 9
    dummy.terminate()
