"""concurrent.futures.ProcessPoolExecutor(mp_context=...): it uses internals of queues, which must work."""

from __future__ import annotations

import gc
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor.manager import client


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


def square(x: Any) -> Any:
    return x * x


def fill(tensor: Any, value: float) -> Any:
    return tensor.fill_(value)


def fail(x: Any) -> Any:
    raise KeyError(x)


def die(how: int) -> None:
    os.kill(os.getpid(), how)


def wait_for_ever() -> None:
    signal.pause()


def test_many_tasks(ctx: Any) -> None:
    with ProcessPoolExecutor(2, mp_context=ctx) as executor:
        assert list(executor.map(square, range(300))) == [x * x for x in range(300)]
        assert list(executor.map(square, range(300), chunksize=20)) == [x * x for x in range(300)]
        futures = {executor.submit(square, x): x for x in range(100)}
        for future in as_completed(futures, BOUND):
            assert future.result() == futures[future] ** 2
        with pytest.raises(KeyError):
            executor.submit(fail, 1).result(BOUND)


def test_one_by_one() -> None:
    """Each result is taken before the next comes: the event must not say that there is one when there is none."""
    with ProcessPoolExecutor(2, mp_context=mp.get_context("fork")) as executor:
        for x in range(3000):
            assert executor.submit(square, x).result(BOUND) == x * x


def test_tensors_and_arrays(ctx: Any) -> None:
    before = in_flight()
    tensor, array = shmtensor.ones(1000), np.arange(100_000.0)
    with ProcessPoolExecutor(1, mp_context=ctx) as executor:
        back = executor.submit(fill, tensor, 4.0).result(BOUND)
        assert back.storage() is tensor.storage()
        assert tensor[7].item() == 4
        assert (executor.submit(square, array).result(BOUND) == array * array).all()
    assert in_flight() == before


def test_a_killed_worker_breaks_it_and_nobody_waits(ctx: Any) -> None:
    with ProcessPoolExecutor(2, mp_context=ctx) as executor:
        assert executor.submit(square, 2).result(BOUND) == 4
        pending: list[Future[Any]] = [executor.submit(wait_for_ever) for _ in range(2)]
        executor.submit(square, 3)
        until(lambda: all(future.running() for future in pending), "the tasks to run")
        os.kill(next(iter(executor._processes)), signal.SIGKILL)
        for future in pending:
            with pytest.raises(BrokenProcessPool):
                future.result(BOUND)
        with pytest.raises(BrokenProcessPool):
            executor.submit(square, 3)


def test_a_task_that_kills_its_worker() -> None:
    with ProcessPoolExecutor(2, mp_context=mp.get_context("fork")) as executor, pytest.raises(BrokenProcessPool):
        executor.submit(die, signal.SIGKILL).result(BOUND)


def test_shutdown_cancels_what_waits(ctx: Any) -> None:
    executor = ProcessPoolExecutor(1, mp_context=ctx)
    futures = [executor.submit(square, x) for x in range(50)]
    executor.shutdown(wait=True, cancel_futures=True)
    assert all(future.cancelled() or future.result(0) == x * x for x, future in enumerate(futures))
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(square, 1)


def descriptors() -> int:
    """Open ones, but for those of segments, which are closed by and by."""
    gc.collect()
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            count += not path.readlink().name.startswith("memfd:")
    return count


@pytest.mark.exhaustive
def test_no_threads_or_descriptors_are_left(ctx: Any) -> None:
    def use() -> None:
        with ProcessPoolExecutor(2, mp_context=ctx) as executor:
            assert executor.submit(square, 3).result(BOUND) == 9

    use()  # what is made once: the fork server, the resource tracker
    threads, before = threading.active_count(), descriptors()
    for _ in range(3):
        use()
    assert threading.active_count() <= threads
    assert descriptors() <= before
