"""A GPU for every case."""

import gc
import multiprocessing

import gpu_world
import pytest

gpu_world.install()

import shmtensor.multiprocessing as mp  # noqa: E402 - after CuPy can be found


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    gpu_world.release()
    gc.collect()
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
        process.join()
    assert not left


@pytest.fixture
def start():
    """Start a process that has a function of gpu_world to do; returns (process, its queues)."""
    context = mp.get_context("spawn")
    started = []

    def begin(work, queues=2, *args):
        made = [context.Queue() for _ in range(queues)]
        process = context.Process(target=work, args=(*made, *args))
        process.start()
        started.append((process, made))
        return process, *made

    yield begin
    for process, made in started:
        if process.is_alive():
            made[0].put(None)
            process.join(30)
        if process.is_alive():
            process.kill()
            process.join()
