"""The other methods of a broadcast's reader: the newest message, statistics, a descriptor, coroutines, iteration."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import selectors
import signal
import struct
import threading
from multiprocessing import connection
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import pytest
from broadcast_world import finish, kill, rest
from manager_world import BOUND, live_blocks, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.ipc.broadcast import BroadcastReader

WATCHED = 44
"""Where a ring's header says that somebody asked for its event."""


def is_readable(reader: BroadcastReader) -> bool:
    """As each of the ways to ask says, and says again."""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        found = {bool(selector.select(0)), bool(connection.wait([reader], 0)), bool(selector.select(0))}
    found.add(bool(select.select([reader], [], [], 0)[0]))
    assert len(found) == 1
    return found.pop()


# --------------------------------------------------------------------------------------------------- the newest message


def test_latest_passes_over_what_came_before() -> None:
    cast = mp.Broadcast(10)
    first, second = cast.reader(), cast.reader()
    for i in range(5):
        cast.put(i)
    assert first.latest() == 4
    assert (first.skipped, first.missed, first.lag) == (4, 0, 0)
    with pytest.raises(Empty):
        first.latest(block=False)
    with pytest.raises(Empty):
        first.latest(timeout=0.01)
    assert second.get() == 0
    assert second.latest() == 4
    assert (second.skipped, second.missed) == (3, 0)
    cast.put(5)
    assert first.latest() == 5
    assert rest(second) == [5]
    assert (first.skipped, second.skipped) == (4, 3)
    assert cast.stats().messages == 0


def test_latest_waits_for_a_message() -> None:
    cast = mp.Broadcast(10)
    reader = cast.reader()
    timer = threading.Timer(0.05, cast.put, ["x"])
    timer.start()
    assert reader.latest(timeout=BOUND) == "x"
    timer.join()


def test_what_is_passed_over_is_free_when_nobody_lacks_it() -> None:
    cast = mp.Broadcast(10)
    first, second = cast.reader(), cast.reader()
    before = live_blocks()
    for i in range(6):
        cast.put(shmtensor.full((1000,), float(i)))
    newest = first.latest()
    assert newest[0].item() == 5
    assert live_blocks() == before + 6
    assert second.latest()[999].item() == 5
    assert cast.stats().messages == 0
    assert live_blocks() == before + 1
    del newest
    assert live_blocks() == before


def test_dropped_and_passed_over_are_counted_apart() -> None:
    cast = mp.Broadcast(4, policy="drop_oldest")
    reader = cast.reader()
    for i in range(10):
        cast.put(i)
    assert reader.latest() == 9
    assert (reader.missed, reader.skipped) == (6, 3)
    for i in range(10, 13):
        cast.put(i)
    assert reader.get() == 10
    assert reader.latest() == 12
    assert (reader.missed, reader.skipped) == (6, 4)


class Unreadable:
    def __reduce__(self) -> Any:
        return eval, ("1 / 0",)


def test_what_is_passed_over_is_not_unpickled() -> None:
    cast = mp.Broadcast(4)
    reader = cast.reader()
    cast.put(Unreadable())
    cast.put("fine")
    assert reader.latest() == "fine"
    cast.put("fine")
    cast.put(Unreadable())
    with pytest.raises(ZeroDivisionError):
        reader.latest()
    assert reader.empty()


def put_frames(cast: Any) -> None:
    for i in range(3):
        cast.put(shmtensor.full((1000,), float(i)))


def test_what_is_passed_over_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    need_mapping = shmtensor.manager.client.Manager._need_mapping

    def counted(self: Any, native: Any, segment: int, required: bool) -> Any:
        asked.append(segment)
        return need_mapping(self, native, segment, required)

    monkeypatch.setattr(shmtensor.manager.client.Manager, "_need_mapping", counted)
    ctx = mp.get_context("fork")
    cast = ctx.Broadcast(10)
    reader = cast.reader()
    child = ctx.Process(target=put_frames, args=(cast,))
    child.start()
    finish(child)
    cast.put("mine")
    assert reader.latest(timeout=BOUND) == "mine"
    assert reader.skipped == 3
    assert len(asked) == 0


def put_for_ever(cast: Any) -> None:
    i = 0
    while True:
        cast.put((i, shmtensor.full((100,), float(i))))
        i += 1


@pytest.mark.parametrize("policy", ["block", "drop_oldest"])
def test_latest_while_others_put_and_read(ctx: Any, policy: str) -> None:
    cast = ctx.Broadcast(20, policy=policy)
    reader, other = cast.reader(), cast.reader()
    child = ctx.Process(target=put_for_ever, args=(cast,))
    child.start()
    newest, others = -1, -1
    for _ in range(200):
        number, tensor = reader.latest(timeout=BOUND)
        assert number > newest
        assert tensor[99].item() == number
        newest = number
        number, tensor = other.get(timeout=BOUND)
        assert number > others
        assert tensor[99].item() == number
        others = number
    kill(child)
    left = rest(reader)
    newest = left[-1][0] if left else newest
    assert 200 + len(left) + reader.skipped + reader.missed == newest + 1


# -------------------------------------------------------------------------------------------------------------- figures


def test_length_of_what_a_reader_has_not_read() -> None:
    cast = mp.Broadcast(10)
    reader, other = cast.reader(), cast.reader()
    assert reader.empty()
    for i in range(3):
        cast.put(i)
        assert reader.qsize() == reader.lag == i + 1
        assert not reader.empty()
    rest(reader)
    assert (reader.qsize(), reader.empty()) == (0, True)
    assert (other.qsize(), other.empty()) == (3, False)


def test_used_after_close() -> None:
    reader = mp.Broadcast(1).reader()
    assert not reader.closed
    reader.close()
    assert reader.closed
    uses = (reader.latest, reader.qsize, reader.empty, reader.fileno, lambda: reader.skipped)
    for use in (*uses, lambda: asyncio.run(reader.aget())):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert list(reader) == []


def use_inherited(reader: Any, results: Any) -> None:
    uses = (reader.latest, reader.qsize, reader.empty, reader.fileno, lambda: next(reader), lambda: reader.skipped)
    for use in uses:
        with pytest.raises(errors.ForeignReader):
            use()
    results.put(repr(reader))


def test_a_forked_child_has_no_use_of_it() -> None:
    ctx = mp.get_context("fork")
    cast, results = ctx.Broadcast(4), ctx.Queue()
    reader = cast.reader()
    reader.fileno()
    child = ctx.Process(target=use_inherited, args=(reader, results))
    child.start()
    assert results.get(timeout=BOUND) == "<BroadcastReader(foreign=True, maxsize=4, maxbytes=0)>"
    finish(child)
    cast.put("message")
    assert is_readable(reader)
    assert rest(reader) == ["message"]


# ---------------------------------------------------------------------------------------------------------- descriptors


@pytest.mark.usefixtures("in_time")
def test_a_descriptor_is_readable_while_this_reader_has_something_to_read() -> None:
    cast = mp.Broadcast(10)
    cast.put("before anybody watched")
    early, fast, slow = cast.reader(from_oldest=True), cast.reader(), cast.reader()
    assert is_readable(early)
    assert not is_readable(fast)
    assert early.get()
    assert not is_readable(early)
    for i in range(3):
        cast.put(i)
        assert is_readable(fast)
        assert fast.get() == i
        assert not is_readable(fast)
        assert is_readable(slow)
    cast.put(3)
    cast.put(4)
    assert fast.get() == 3
    assert is_readable(fast)
    assert fast.latest() == 4
    assert not is_readable(fast)
    assert slow.latest() == 4
    assert not is_readable(slow)
    assert rest(early) == list(range(5))
    assert fast.fileno() == fast.fileno() != slow.fileno()


@pytest.mark.usefixtures("in_time")
def test_a_get_that_finds_nothing_makes_it_unreadable() -> None:
    cast = mp.Broadcast(2, policy="drop_oldest")
    reader = cast.reader()
    number = reader.fileno()
    for _ in range(2):
        os.write(reader._ring.event(), b"\1")  # as does who put a message that was read meanwhile
        assert select.select([number], [], [], 0)[0]
        with pytest.raises(Empty):
            reader.get_nowait()
        assert not select.select([number], [], [], 0)[0]
    cast.put(1)
    assert select.select([number], [], [], 0)[0]


@pytest.mark.usefixtures("in_time")
def test_who_has_read_all_is_not_woken_for_the_slow() -> None:
    cast = mp.Broadcast(200)
    slow, fast = cast.reader(), cast.reader()
    fast.fileno()
    slow.fileno()
    for i in range(100):
        cast.put(i)
        assert connection.wait([fast]) == [fast]
        assert fast.get_nowait() == i
        assert connection.wait([fast], 0) == []
    assert slow.qsize() == 100


def put_number(cast: Any, first: int) -> None:
    for i in range(first, first + 500):
        cast.put(i)


def watch(cast: Any, results: Any) -> None:
    reader = cast.reader()
    results.put(reader.fileno() >= 0)
    seen, wakes = [], 0
    while len(seen) < 1500:
        assert connection.wait([reader], BOUND) == [reader]
        wakes += 1
        seen += rest(reader)
    results.put((sorted(seen), wakes))


@pytest.mark.usefixtures("in_time")
def test_many_watch_and_many_put() -> None:
    """Nobody sleeps while there is something to read, and nobody is woken for nothing again and again."""
    ctx = mp.get_context("fork")
    cast, results = ctx.Broadcast(50), ctx.Queue()
    watchers = [ctx.Process(target=watch, args=(cast, results)) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    assert [results.get(timeout=BOUND) for _ in watchers] == [True, True]
    writers = [ctx.Process(target=put_number, args=(cast, number * 500)) for number in range(3)]
    for writer in writers:
        writer.start()
    for _ in watchers:
        seen, wakes = results.get(timeout=BOUND)
        assert seen == list(range(1500))
        assert wakes <= 3100  # one for the message, one for its sender who says so late; some by the end of a process
    for process in (*writers, *watchers):
        finish(process)


def put_one(cast: Any) -> None:
    cast.put("x")


def test_wait_for_a_message_or_the_end_of_a_process(ctx: Any) -> None:
    cast = ctx.Broadcast(4)
    reader, other = cast.reader(), cast.reader()
    child = ctx.Process(target=put_one, args=(cast,))
    assert connection.wait([reader], 0) == []
    child.start()
    assert reader in connection.wait([reader, child.sentinel], BOUND)
    assert reader.get_nowait() == "x"
    # The end of a process may make the descriptor readable for nothing, once.
    while child.sentinel not in connection.wait([reader, child.sentinel], BOUND):
        with pytest.raises(Empty):
            reader.get_nowait()
    finish(child)
    assert other.get_nowait() == "x"


def die_before_saying_so(cast: Any) -> None:
    header = memoryview(cast._ring.block)
    struct.pack_into("<I", header, WATCHED, 0)
    cast.put("x")
    struct.pack_into("<I", header, WATCHED, 1)
    os.read(cast._ring.event(), 4096)  # as far as a put comes that is killed between its two system calls
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("in_time")
def test_a_message_of_a_dead_sender_is_seen() -> None:
    ctx = mp.get_context("fork")
    cast = ctx.Broadcast(4)
    reader = cast.reader()
    for _ in range(3):
        reader.fileno()
        child = ctx.Process(target=die_before_saying_so, args=(cast,))
        child.start()
        assert connection.wait([reader]) == [reader]
        child.join()
        assert reader.get_nowait() == "x"
        assert not is_readable(reader)


@pytest.mark.usefixtures("in_time")
def test_what_has_the_number_of_a_closed_descriptor_is_left_alone() -> None:
    cast = mp.Broadcast(4)
    reader = cast.reader()
    number = reader.fileno()
    cast.put(1)
    os.close(number)
    theirs = select.epoll()
    ends = os.pipe()
    theirs.register(ends[0], select.EPOLLIN | select.EPOLLET)
    os.write(ends[1], b"x")
    os.dup2(theirs.fileno(), number)
    assert reader.get() == 1
    with pytest.raises(Empty):
        reader.get_nowait()
    assert is_readable(reader) is False
    cast.put(2)
    assert is_readable(reader)
    assert reader.fileno() != number
    del reader
    assert theirs.poll(0) == [(ends[0], select.EPOLLIN)]
    os.fstat(number)
    for descriptor in (number, *ends):
        os.close(descriptor)
    theirs.close()


def test_descriptors_end_with_readers() -> None:
    cast = mp.Broadcast(4)
    cast.reader().fileno()
    gc.collect()  # those of earlier tests
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        cast.reader().fileno()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ----------------------------------------------------------------------------------------------------------- coroutines


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, BOUND))


def test_coroutines_of_several_readers() -> None:
    cast = mp.Broadcast(1000)

    async def consume(reader: BroadcastReader) -> list[int]:
        return [await reader.aget() for _ in range(200)]

    async def main() -> None:
        readers = [asyncio.create_task(consume(cast.reader())) for _ in range(3)]
        await asyncio.sleep(0)
        for i in range(200):
            cast.put(i)
            await asyncio.sleep(0)
        for seen in await asyncio.gather(*readers):
            assert seen == list(range(200))

    run(main())


def test_coroutines_do_not_stop_the_loop_and_share_a_reader_in_order() -> None:
    cast = mp.Broadcast(10)
    reader = cast.reader()

    async def main() -> None:
        tasks = [asyncio.create_task(reader.aget()) for _ in range(3)]
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        tasks.pop(1).cancel()
        for i in range(3):
            cast.put(i)
        assert await asyncio.gather(*tasks) == [0, 1]
        assert reader.get_nowait() == 2

    run(main())


def test_close_ends_the_waits_of_tasks() -> None:
    reader = mp.Broadcast(4).reader()

    async def main() -> None:
        tasks = [asyncio.create_task(reader.aget()) for _ in range(3)]
        await asyncio.sleep(0.05)
        threading.Thread(target=reader.close).start()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, ValueError)
            assert "closed" in str(result)

    run(main())


# ------------------------------------------------------------------------------------------------------------ iteration


def test_iteration_ends_when_the_reader_is_closed() -> None:
    cast = mp.Broadcast(10)
    reader = cast.reader()
    for i in range(5):
        cast.put(i)
    seen = []
    for message in reader:
        seen.append(message)
        if message == 3:
            reader.close()
    assert seen == [0, 1, 2, 3]


def test_iteration_waits_for_messages() -> None:
    cast = mp.Broadcast(10)
    reader = cast.reader()
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(reader))
    thread.start()
    for i in range(3):
        cast.put(i)
        until(lambda: len(seen) > i, "the message to come")  # noqa: B023
    reader.close()
    thread.join(BOUND)
    assert not thread.is_alive()
    assert seen == [0, 1, 2]


class Refused:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_iteration_does_not_end_with_an_error_of_a_message() -> None:
    cast = mp.Broadcast(10)
    reader = cast.reader()
    cast.put(Refused())
    cast.put(1)
    with pytest.raises(ValueError, match="no number"):
        next(reader)
    assert next(reader) == 1


def test_asynchronous_iteration() -> None:
    cast = mp.Broadcast(10)
    reader = cast.reader()

    async def main() -> list[int]:
        seen = []
        cast.put(0)
        async for message in reader:
            seen.append(message)
            if message == 3:
                asyncio.get_running_loop().call_later(0.01, reader.close)
            else:
                cast.put(message + 1)
        return seen

    assert run(main()) == [0, 1, 2, 3]


# --------------------------------------------------------------------------------------------------------------- camera


def capture(cast: Any, frames: int) -> None:
    for number in range(frames):
        cast.put((number, np.full((48, 64, 3), number % 256, np.uint8)))
    cast.put(None)


def test_a_slow_reader_of_a_camera_sees_the_newest_frame() -> None:
    ctx = mp.get_context("spawn")
    cast = ctx.Broadcast(4, policy="drop_oldest")
    with cast.reader() as reader:
        camera = ctx.Process(target=capture, args=(cast, 300))
        camera.start()
        seen = []
        while (message := reader.latest(timeout=BOUND)) is not None:
            number, frame = message
            assert not frame.flags.writeable
            assert (frame == number % 256).all()
            seen.append(number)
        assert seen == sorted(set(seen))
        assert len(seen) + reader.missed + reader.skipped == 300
    finish(camera)
