"""Queues whose readiness is watched: by selectors, connection.wait, and coroutines."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import selectors
import signal
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import connection
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, World, line_of, tell

import shmtensor.multiprocessing as mp
from shmtensor._native import Ring

WATCHED = 44
"""Where a ring's header says that somebody asked for its event."""


def is_watched(q: Any) -> bool:
    return bool(struct.unpack_from("<I", memoryview(q._ring.block), WATCHED)[0])


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

    def request(_seconds: float) -> int:
        raise raised[0]

    def call(what: Callable[[Ring], Any], problem: type[BaseException]) -> Any:
        raised[:] = [problem]
        return what(Ring(q._manager.native, q._ring.block, request))  # one that has not asked yet

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


def put_without_descriptors(q: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    files = []
    with suppress(OSError):
        while True:
            files.append(os.open("/dev/null", os.O_RDONLY))
    q.put("message")
    for file in files:
        os.close(file)


def test_who_cannot_have_the_event_is_announced_by_the_manager() -> None:
    q = mp.Queue()
    number = q.fileno()
    putter = mp.get_context("fork").Process(target=put_without_descriptors, args=(q,))
    putter.start()
    assert select.select([number], [], [], BOUND)[0], "nobody was told of the message"
    putter.join(BOUND)
    assert putter.exitcode == 0
    assert q.get(timeout=BOUND) == "message"


@pytest.mark.exhaustive
def test_a_stopped_manager_announces_once_it_goes_on(here: World) -> None:
    here.serve()
    code = "import sys, shmtensor.multiprocessing as mp; q = mp.Queue(name='watched')\n"
    watcher = here.script(
        f"import select\n{code}q.fileno(); print('watches', flush=True)\n"
        f"print(bool(select.select([q], [], [], {BOUND})[0]), q.qsize())"
    )
    assert line_of(watcher) == "watches"
    putter = here.script(
        f"{code}print('has it', flush=True); sys.stdin.readline(); q.put(1, block=False); print('put')"
    )
    assert line_of(putter) == "has it"
    os.kill(here.server.pid, signal.SIGSTOP)
    try:
        tell(putter)
        assert line_of(putter) == "put"
    finally:
        os.kill(here.server.pid, signal.SIGCONT)
    assert line_of(watcher) == "True 1"


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


@pytest.mark.usefixtures("in_time")
def test_wait_for_a_result_or_the_end_of_a_worker(ctx: Any) -> None:
    q = ctx.Queue()
    process = ctx.Process(target=put_later, args=(q, "result"))
    process.start()
    assert q in connection.wait([q, process.sentinel])
    assert q.get(False) == "result"
    assert connection.wait([q, process.sentinel]) == [process.sentinel]
    assert q.empty()
    process.join()


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


# ----------------------------------------------------------------------------------------------------------- coroutines


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


def test_tasks_of_a_loop_have_their_turn_in_order_and_messages_are_written_once() -> None:
    q, written = mp.Queue(1), []

    class Counted:
        def __init__(self, number: int) -> None:
            self.number = number

        def __reduce__(self) -> Any:
            written.append(self.number)
            return int, (self.number,)

    async def main() -> None:
        await q.aput(-1)
        puts = [asyncio.create_task(q.aput(Counted(i))) for i in range(20)]
        await asyncio.sleep(0)
        gets = [asyncio.create_task(q.aget()) for _ in range(21)]
        await asyncio.gather(*puts)
        assert [await get for get in gets] == list(range(-1, 20))

    run(main())
    assert written == list(range(20))


def test_tasks_that_wait_leave_the_threads_of_the_loop_to_others() -> None:
    q = mp.Queue(1)
    q.put("first")

    class Watched(ThreadPoolExecutor):
        waiting = most = 0

        def submit(self, *call: Any, **named: Any) -> Any:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            future = super().submit(*call, **named)
            future.add_done_callback(lambda _: setattr(self, "waiting", self.waiting - 1))
            return future

    async def main() -> None:
        threads = Watched(2)
        asyncio.get_running_loop().set_default_executor(threads)
        tasks = [asyncio.create_task(call) for i in range(50) for call in (q.aput(i), empty.aget())]
        await asyncio.sleep(0.3)
        assert await asyncio.to_thread(q.get) == "first"
        assert threads.most <= 2  # one of ours, and this
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    empty = mp.Queue()
    run(main())


def test_close_ends_the_waits_of_tasks() -> None:
    empty, full = mp.Queue(), mp.Queue(1)
    full.put("first")

    async def main() -> None:
        tasks = [asyncio.create_task(call) for _ in range(3) for call in (empty.aget(), full.aput("second"))]
        await asyncio.sleep(0.05)
        for q in (empty, full):
            threading.Thread(target=q.close).start()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, ValueError)
            assert "closed" in str(result)

    run(main())
