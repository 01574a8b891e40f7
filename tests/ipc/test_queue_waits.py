"""Blocking calls on queues: threads, signals, and processes that stop halfway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Full
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, World, kill, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors

# -------------------------------------------------------------------------------------------------------------- threads


@pytest.mark.usefixtures("in_time")
def test_threads_on_one_queue() -> None:
    q, results = mp.Queue(10), mp.Queue()

    def produce(number: int) -> None:
        for i in range(200):
            q.put((number, i, np.full(200, i)))

    def consume() -> None:
        while (message := q.get()) is not None:
            number, i, array = message
            assert (array == i).all()
            results.put((number, i))

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for thread in (*producers, *consumers):
        thread.start()
    for thread in producers:
        thread.join()
    for _ in consumers:
        q.put(None)
    for thread in consumers:
        thread.join()
    assert sorted(results.get_many(1000)) == [(number, i) for number in range(4) for i in range(200)]


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("blocked", ["get", "put", "join", "get_many", "poll"])
def test_others_run_meanwhile(blocked: str) -> None:
    q = mp.JoinableQueue(1)
    if blocked in ("put", "join"):
        q.put(1)
    calls: dict[str, Callable[[], Any]] = {
        "get": q.get,
        "put": lambda: q.put(2),
        "join": q.join,
        "get_many": lambda: q.get_many(3),
        "poll": lambda: q._reader.poll(None),
    }
    started = threading.Event()
    thread = threading.Thread(target=lambda: (started.set(), calls[blocked]()))
    thread.start()
    assert started.wait(BOUND)
    turns = sum(1 for _ in range(100_000))  # with the GIL kept from us, none of this would happen
    assert turns == 100_000
    assert thread.is_alive()
    if blocked == "put":
        q.get()
    elif blocked == "join":
        q.task_done()
    else:
        q.put("x")
    thread.join()


# -------------------------------------------------------------------------------------------------------------- signals


def wait_and_tell(q: Any, told: Any, call: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told.send("ready")
    try:
        if call == "get":
            q.get()
        elif call == "put":
            q.put(2)
        elif call == "join":
            q.join()
        elif call == "put_many":
            q.put_many([2, 3])
        else:
            q.get_many(2, timeout=1000)
    except KeyboardInterrupt:
        told.send("interrupted")
        told.recv()


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("call", ["get", "put", "join", "put_many", "get_many"])
def test_ctrl_c_ends_a_wait(call: str) -> None:
    context = mp.get_context("fork")
    q = context.JoinableQueue(1)
    if call in ("put", "join", "put_many"):
        q.put(1)
    mine, theirs = context.Pipe()
    process = context.Process(target=wait_and_tell, args=(q, theirs, call))
    process.start()
    assert mine.recv() == "ready"
    assert process.pid is not None
    until(lambda: asleep(process.pid), "the child to wait")
    os.kill(process.pid, signal.SIGINT)
    assert mine.recv() == "interrupted"
    assert q.qsize() == (call in ("put", "join", "put_many"))
    mine.send("end")
    process.join()


def asleep(pid: int | None) -> bool:
    """True when a process waits in the kernel for a futex."""
    return (
        "futex" in Path(f"/proc/{pid}/wchan").read_text() or "S (sleeping)" in Path(f"/proc/{pid}/status").read_text()
    )


@pytest.mark.usefixtures("in_time")
def test_a_handler_uses_the_queue_that_it_interrupted() -> None:
    q, full = mp.Queue(), mp.Queue(1)
    full.put("first")
    done = []

    def on_signal(_number: int, _frame: types.FrameType | None) -> None:
        q.put([np.arange(5000), "from the handler"])
        assert full.get() == "first"
        done.append(q.qsize())

    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        array, said = q.get()  # blocked: only the handler puts
        assert (array.tolist(), said) == (list(range(5000)), "from the handler")
        timer.join()
        full.put("first")
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        full.put("second")  # blocked: only the handler gets
        assert full.get() == "second"
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(done) == 2


class SignalsWhenWritten:
    """Runs a signal handler inside encode."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return str, ("encoded",)


@pytest.mark.usefixtures("in_time")
def test_a_handler_inside_encode() -> None:
    q = mp.Queue()

    def on_signal(_number: int, _frame: types.FrameType | None) -> None:
        q.put([np.arange(100), "handler"])
        assert q.get()[1] == "handler"

    before = signal.signal(signal.SIGUSR1, on_signal)
    try:
        for _ in range(100):
            q.put([np.arange(200), SignalsWhenWritten()])
            array, said = q.get()
            assert (len(array), said) == (200, "encoded")
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("in_time")
def test_a_storm_of_signals_loses_nothing() -> None:
    q, came = mp.Queue(5), []

    def on_signal(_number: int, _frame: types.FrameType | None) -> None:
        came.append(1)

    def produce() -> None:
        for i in range(3000):
            q.put(i)

    before = signal.signal(signal.SIGUSR1, on_signal)
    thread = threading.Thread(target=produce)
    thread.start()
    main = threading.main_thread().ident
    assert main is not None
    over = threading.Event()

    def shoot() -> None:
        while not over.wait(0.001):
            signal.pthread_kill(main, signal.SIGUSR1)

    shooter = threading.Thread(target=shoot)
    shooter.start()
    try:
        assert [q.get() for _ in range(3000)] == list(range(3000))
        until(lambda: came, "a signal")
    finally:
        over.set()
        shooter.join()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("in_time")
@pytest.mark.usefixtures("interruptible")
def test_many_that_is_interrupted_says_how_many_it_put() -> None:
    q = mp.Queue(2)

    def interrupt() -> None:
        until(q.full, "it to wait for room")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        q.put_many(range(5))
    thread.join()
    assert caught.value.put == 2  # type: ignore[attr-defined]
    assert q.get_many(5) == [0, 1]


# -------------------------------------------------------------------------------------------- those who stop in between


LOOP = """
import shmtensor.multiprocessing as mp
q = mp.Queue(name="q")
data = bytes(16_000)
print("ready", flush=True)
while True:
    q.put_many([data] * 200)
    q.get_many(1000)
"""


def stop_inside(q: Any, process: Any, lock: str) -> bool:
    """Stop the process while it has a lock of the queue; False: not hit in the bound."""
    deadline = time.monotonic() + BOUND / 2
    while time.monotonic() < deadline:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        if getattr(q.stats(), lock) == process.pid:
            return True
        process.send_signal(signal.SIGCONT)
        time.sleep(0.0005)
    return False


def stopped_inside(here: World, q: Any, lock: str) -> Any:
    """A process that puts and gets all the time, stopped while it has a lock of the queue."""
    process = here.script(LOOP)
    assert process.stdout is not None
    process.stdout.readline()
    if not stop_inside(q, process, lock):
        pytest.skip("never stopped it inside")
    return process


@pytest.fixture
def named(here: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A queue of a manager of its own."""
    from shmtensor.manager import client

    address = here.serve()
    manager = client.at(address)
    monkeypatch.setattr(client, "default", lambda: manager)
    yield mp.Queue(name="q")
    monkeypatch.undo()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("lock", ["put_lock_pid", "get_lock_pid"])
def test_a_stopped_process_holds_up_nobody_who_has_a_bound(here: World, named: Any, lock: str) -> None:
    q = named
    process = stopped_inside(here, q, lock)
    for block, timeout in ((True, 0.05), (True, 0), (False, None)):
        if lock == "put_lock_pid":
            with pytest.raises(Full):
                q.put(1, block, timeout)
        else:
            # With nothing inside a get needs no lock.
            with pytest.raises(Empty):
                q.get(block, timeout)
    kill(process)
    q.put("after")
    while q.get(timeout=BOUND) != "after":
        pass


@pytest.mark.usefixtures("in_time")
def test_a_stopped_process_does_not_stop_the_loop_of_tasks_that_wait_for_it(here: World, named: Any) -> None:
    q = named
    process = stopped_inside(here, q, "put_lock_pid")

    async def main() -> None:
        tasks = [asyncio.create_task(q.aput(i)) for i in range(10)]
        turns = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await asyncio.sleep(0.001)
                    turns += 1
        assert turns > 10
        kill(process)
        await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.mark.exhaustive
def test_a_stall_is_reported(here: World, named: Any) -> None:
    q = named
    process = stopped_inside(here, q, "put_lock_pid")
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.StallWarning)
        with pytest.raises(errors.StallWarning, match=f"process {process.pid} has kept the lock for putting on"):
            q.put(shmtensor.ones(3))
    kill(process)
    q.put("after")
    while q.get(timeout=BOUND) != "after":
        pass


def test_daemon_threads_that_wait_do_not_abort_the_end_of_the_interpreter() -> None:
    """Before 3.14, Python unwinds a thread that wants the GIL while it ends; no frame of C++ lets that pass."""
    code = (
        "import queue, sys, threading, time\nimport shmtensor.multiprocessing as mp\n"
        "q, lock = mp.Queue(), mp.Lock()\nlock.acquire()\n"
        "def get():\n"
        "    while True:\n"
        "        try:\n            q.get(timeout=0.0005)\n        except queue.Empty:\n            pass\n"
        "def take():\n"
        "    while True:\n        lock.acquire(timeout=0.0005)\n"
        "for target in (get, take) * 3:\n    threading.Thread(target=target, daemon=True).start()\n"
        "sys.exit(3)\n"
    )
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND)
        assert (done.returncode, done.stderr) == (3, "")
