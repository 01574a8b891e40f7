"""Waiting on queues: threads, signals, coroutines, selectors, and those who stop in the middle."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path
from queue import Empty, Full
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, World, kill, until, world

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor._native import Ring

WATCHED = 44
"""Where a ring's header says that somebody asked for its event."""


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture
def in_time() -> Iterator[None]:
    """A wait that nothing ends fails instead of hanging."""

    def over(_number: int, _frame: types.FrameType | None) -> None:
        raise TimeoutError(f"this took {BOUND:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, BOUND)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def is_watched(q: Any) -> bool:
    return bool(struct.unpack_from("<I", memoryview(q._ring.block), WATCHED)[0])


# ------------------------------------------------------------------------------------------------------------- threads


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


# ------------------------------------------------------------------------------------------------------------- signals


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


# ----------------------------------------------------------------------------------------------- descriptors, selectors


def test_no_event_before_somebody_asks() -> None:
    q = mp.Queue()
    q.put(1)
    assert q.get() == 1
    assert q._reader.poll(0.001) is False
    assert not is_watched(q)
    q._reader.fileno()
    assert is_watched(q)


@pytest.mark.usefixtures("in_time")
def test_the_event_follows_the_messages() -> None:
    q = mp.Queue()
    q.put("before anybody watched")
    with selectors.DefaultSelector() as first, selectors.DefaultSelector() as second:
        for selector in (first, second):
            selector.register(q._reader, selectors.EVENT_READ)
        for _ in range(2):
            assert all(selector.select(0) for selector in (first, second) for _ in range(3))
            assert q.get()
            assert not any(selector.select(0) for selector in (first, second))
            q.put_many(["a", "b"])
            assert all(selector.select(0) for selector in (first, second))
            assert q.get() == "a"
            assert all(selector.select(0) for selector in (first, second))


@pytest.mark.usefixtures("in_time")
def test_ctrl_c_in_the_request_for_the_event_finds_nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    q = mp.Queue()
    q.put("first")
    q._reader.fileno()
    raised: list[type[BaseException]] = []

    def request() -> int:
        problem = raised.pop()
        raise problem

    def call(what: Callable[[Ring], Any], problem: type[BaseException]) -> Any:
        raised.append(problem)
        try:
            return what(Ring(q._manager.native, q._ring.block, request))  # one that has not asked yet
        finally:
            assert not raised

    for what in (lambda ring: ring.put(1), lambda ring: ring.put_many([1, 2]), Ring.get, lambda ring: ring.get_many(5)):
        with pytest.raises(KeyboardInterrupt) as caught:
            call(what, KeyboardInterrupt)
        assert getattr(caught.value, "put", 0) == 0
        assert getattr(caught.value, "messages", []) == []
        assert q.qsize() == 1
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    call(lambda ring: ring.put("second"), OSError)  # no reason not to put
    assert [one.object for one in told] == ["the event of a queue"]
    assert q.get_many(5) == ["first", "second"]


@pytest.mark.usefixtures("in_time")
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


def put_later(q: Any, what: Any) -> None:
    q.put(what)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_connection_wait(method: str) -> None:
    context = mp.get_context(method)
    queues = [context.Queue(), context.SimpleQueue(), context.JoinableQueue()]
    readers = [q._reader for q in queues]
    assert connection.wait(readers, 0) == []
    for q in queues:
        process = context.Process(target=put_later, args=(q, "x"))
        process.start()
        assert connection.wait(readers) == [q._reader]
        assert q._reader.poll()
        assert q._reader.recv() == "x"
        assert connection.wait(readers, 0) == []
        process.join()
        assert connection.wait([*readers, process.sentinel]) == [process.sentinel]
    queues[1]._writer.send("self")
    assert connection.wait(readers) == [readers[1]]


def put_often(q: Any) -> None:
    for i in range(1000):
        q.put(i)


@pytest.mark.usefixtures("in_time")
def test_what_is_announced_is_there() -> None:
    """A single watcher that blocks in recv after an announcement must not wait there for a message that went before."""
    context = mp.get_context("fork")
    q = context.Queue()
    q._reader.fileno()
    processes = [context.Process(target=put_often, args=(q,)) for _ in range(4)]
    for process in processes:
        process.start()
    for _ in range(4000):
        assert connection.wait([q._reader])
        q.get(False)
    for process in processes:
        process.join()
    assert not connection.wait([q._reader], 0)


def put_and_die(q: Any) -> None:
    q.put(np.ones(1000))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("in_time")
def test_a_message_of_a_dead_sender_is_seen() -> None:
    context = mp.get_context("fork")
    q = context.Queue()
    q._reader.fileno()
    process = context.Process(target=put_and_die, args=(q,))
    process.start()
    process.join()
    assert select.select([q._reader], [], [])[0]
    assert q.get().sum() == 1000


# ---------------------------------------------------------------------------------------------------------- coroutines


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, BOUND))


def test_coroutines() -> None:
    q, back = mp.Queue(3), mp.Queue()

    async def produce(first: int) -> None:
        for i in range(first, first + 50):
            await q.aput(i)

    async def consume() -> None:
        while (item := await q.aget()) is not None:
            await back.aput(item)

    async def main() -> None:
        consumers = [asyncio.create_task(consume()) for _ in range(5)]
        await asyncio.gather(*(produce(number * 50) for number in range(4)))
        for _ in consumers:
            await q.aput(None)
        await asyncio.gather(*consumers)

    run(main())
    assert sorted(back.get_many(1000)) == list(range(200))


def test_coroutines_do_not_stop_the_loop() -> None:
    q = mp.Queue()

    async def main() -> None:
        task = asyncio.create_task(q.aget())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()
        q.put("x")
        assert await task == "x"

    run(main())


def test_a_cancelled_aget_takes_nothing() -> None:
    q = mp.Queue()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(q.aget()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks[:4]:
            task.cancel()
        await asyncio.gather(*tasks[:4], return_exceptions=True)
        q.put("x")
        assert await tasks[4] == "x"
        assert q.empty()
        late = asyncio.create_task(q.aget())
        await asyncio.sleep(0)
        q.put("y")  # the loop may have woken it already: then it has the message, or else the queue has
        late.cancel()
        (result,) = await asyncio.gather(late, return_exceptions=True)
        assert (result == "y") != (q.qsize() == 1)
        assert not loop.remove_reader(q._reader.fileno())

    run(main())


def test_a_cancelled_aput_puts_nothing() -> None:
    q = mp.Queue(1)
    q.put("first")

    async def main() -> None:
        task = asyncio.create_task(q.aput("second"))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert q.get() == "first"
        await q.aput("third")
        assert await q.aget() == "third"
        assert q.empty()

    run(main())


def test_aput_sleeps_while_bytes_are_short() -> None:
    q, tries = mp.Queue(maxbytes=1000), []

    class Counted:
        def __reduce__(self) -> Any:
            tries.append(1)
            return bytes, (600,)

    q.put(b"x" * 600)

    async def main() -> None:
        task = asyncio.create_task(q.aput(Counted()))
        await asyncio.sleep(0.3)
        assert not q.full()
        assert len(tries) == 1
        q.get()
        await task

    run(main())
    assert q.get() == bytes(600)


def test_a_loop_in_each_thread() -> None:
    q, got = mp.Queue(), []

    async def main() -> None:
        while (item := await q.aget()) is not None:
            got.append(item)

    threads = [threading.Thread(target=run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(200):
        q.put(i)
    q.put_many([None, None])
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(200))


def test_aget_on_a_closed_queue() -> None:
    q = mp.Queue()
    q.close()
    for call in (q.aget, lambda: q.aput(1)):
        with pytest.raises(ValueError, match="closed"):
            run(call())


# ------------------------------------------------------------------------------------------ those who stop in between

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


@pytest.fixture
def named(here: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A queue of a manager of its own."""
    from shmtensor.manager import client

    address = here.serve()
    manager = client.at(address)
    monkeypatch.setattr(client, "default", lambda: manager)
    yield mp.Queue(name="q")
    monkeypatch.undo()


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("lock", ["putting", "taking"])
def test_a_stopped_process_holds_up_nobody_who_has_a_bound(here: World, named: Any, lock: str) -> None:
    q = named
    process = here.script(LOOP)
    assert process.stdout is not None
    process.stdout.readline()
    if not stop_inside(q, process, lock):
        pytest.skip("never stopped it inside")
    for block, timeout in ((True, 0.05), (True, 0), (False, None)):
        if lock == "putting":
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


def test_a_stall_is_reported(here: World, named: Any) -> None:
    q = named
    process = here.script(LOOP)
    assert process.stdout is not None
    process.stdout.readline()
    if not stop_inside(q, process, "putting"):
        pytest.skip("never stopped it inside")
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
