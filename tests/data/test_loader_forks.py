"""Loaders and forks while other threads compute and use queues: no process hangs."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loader_world import Rows
from manager_world import BOUND, until

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor.data import DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded")


class Busy:
    """Threads that multiply matrices, and put tensors into queues and get them, until the end."""

    def __init__(self) -> None:
        self.rounds = [0, 0]
        self._over = threading.Event()
        works = (self._matrices, self._queue)
        self._threads = [threading.Thread(target=self._work, args=pair) for pair in enumerate(works)]

    def _work(self, place: int, make: Callable[[], Callable[[], None]]) -> None:
        step = make()
        while not self._over.is_set():
            step()
            self.rounds[place] += 1

    def _matrices(self) -> Callable[[], None]:
        a = np.random.default_rng(1).random((150, 150))
        return lambda: np.testing.assert_equal((a @ a).shape, (150, 150))

    def _queue(self) -> Callable[[], None]:
        queue: Any = mp.Queue()

        def step() -> None:
            queue.put(st.ones(100, shared=True))
            assert queue.get(timeout=BOUND).sum().item() == 100

        return step

    def __enter__(self) -> Busy:
        # With threads of its own, OpenBLAS hangs in a fork while another thread multiplies; NumPy alone does, too.
        self._before = st.get_num_threads()
        st.set_num_threads(1)
        for thread in self._threads:
            thread.start()
        until(lambda: all(self.rounds), "the threads to work")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(BOUND)
        st.set_num_threads(self._before)
        assert not any(thread.is_alive() for thread in self._threads)


def in_fork(work: Callable[[], bool]) -> None:
    """Run this in a forked process, for a bounded time."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    pidfd = os.pidfd_open(pid)
    ended, _, _ = select.select([pidfd], [], [], BOUND)
    os.close(pidfd)
    if not ended:
        os.kill(pid, 9)
    assert os.waitpid(pid, 0)[1] == 0 and ended


def in_child() -> bool:
    a = np.ones((60, 60))
    queue: Any = mp.Queue()
    queue.put(st.arange(10, shared=True))
    return bool((a @ a)[0, 0] == 60 and queue.get(timeout=BOUND)[9].item() == 9)


@pytest.mark.parametrize("forks", [5, pytest.param(100, marks=[pytest.mark.exhaustive, pytest.mark.timeout(600)])])
def test_forks_while_threads_compute_and_send(forks):
    with Busy():
        for _ in range(forks):
            in_fork(in_child)


@pytest.mark.parametrize("times", [2, pytest.param(50, marks=[pytest.mark.exhaustive, pytest.mark.timeout(600)])])
def test_loaders_while_threads_compute_and_send(times):
    wanted = Rows().x.reshape(8, 8, 5).tolist()
    with Busy():
        for _ in range(times):
            loader = DataLoader(Rows(), 8, num_workers=2, multiprocessing_context="fork", timeout=BOUND)
            assert [batch.tolist() for batch in loader] == wanted
