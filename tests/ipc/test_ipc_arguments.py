"""What locks, queues and broadcasts say and refuse, in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from manager_world import BOUND

import shmtensor.multiprocessing as mp
from shmtensor.errors import InvalidArgument
from shmtensor.ipc.broadcast import BroadcastReader
from shmtensor.ipc.pool import Pool


@pytest.mark.parametrize(
    ("kind", "text"),
    [(mp.Lock, "<Lock(owner=MainProcess|other)>"), (mp.RLock, "<RLock(MainProcess|other, 1)>")],
)
def test_the_thread_that_holds_a_lock(kind: Callable[[], Any], text: str) -> None:
    lock, found = kind(), []

    def hold() -> None:
        with lock:
            found.append(repr(lock))

    thread = threading.Thread(target=hold, name="other")
    thread.start()
    thread.join(BOUND)
    assert found == [text]


def test_a_named_condition_has_its_own_lock() -> None:
    with pytest.raises(InvalidArgument, match="a named condition has its own lock; give lock or name, not both"):
        mp.Condition(mp.Lock(), name="condition")


def test_a_broadcast_that_nobody_has_bounded() -> None:
    cast: Any = mp.Broadcast(name="bounded-later")
    with pytest.raises(InvalidArgument, match="cannot put into a broadcast without a maxsize: no process has given"):
        cast.put(1)
    bounded: Any = mp.Broadcast(2, name="bounded-later")
    reader = bounded.reader()
    cast.put(1)
    assert reader.get(timeout=BOUND) == 1


def test_a_reader_that_no_broadcast_made() -> None:
    assert repr(BroadcastReader.__new__(BroadcastReader)) == "<BroadcastReader()>"


def test_the_lock_of_a_queue_is_one_lock() -> None:
    """As in `multiprocessing.Queue`, for code that takes several messages in a row."""
    queue: Any = mp.Queue()
    with queue._rlock:
        assert not queue._rlock.acquire(block=False)
        queue.put(1)
        assert queue.get(timeout=BOUND) == 1  # which it does not lock
    assert queue._rlock.acquire(block=False)
    queue._rlock.release()


@pytest.mark.exhaustive
def test_a_pool_without_a_context_fills_its_places() -> None:
    """`Pool` of the module, which has the default context; `_repopulate_pool` is multiprocessing's name."""
    with Pool(1) as pool:
        (first,) = pool.map(_pid, [0])
        pool._repopulate_pool()
        assert pool.map(_pid, [0, 1]) == [first, first]


def _pid(_item: int) -> int:
    return os.getpid()


def _count(queue: Any, results: Any) -> None:
    with queue._rlock:
        results.put(queue.get(timeout=BOUND) + queue.get(timeout=BOUND))


@pytest.mark.exhaustive
def test_the_lock_of_a_queue_goes_with_it() -> None:
    ctx = mp.get_context("spawn")
    queue, results = ctx.Queue(), ctx.Queue()
    with queue._rlock:
        process = ctx.Process(target=_count, args=(queue, results))
        process.start()
        queue.put(1)
        queue.put(2)
    assert results.get(timeout=BOUND) == 3
    process.join(BOUND)
    assert process.exitcode == 0
