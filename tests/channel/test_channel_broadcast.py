"""Broadcasts between two groups."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from channel_world import BOUND, elsewhere, until

from shmtensor import channel

LOCAL = "tcp://127.0.0.1:0"


def test_every_reader_on_every_machine_receives_every_message():
    with (
        closing(channel.listen(LOCAL, broadcast=True, maxsize=50)) as topic,
        topic.reader() as here,
        elsewhere("read", topic.address, {}) as one,
        elsewhere("read", topic.address, {}) as two,
    ):
        assert one.hear() == two.hear() == "reading"
        for number in range(10):
            topic.put({"number": number, "array": np.full(2000, number)})
        with elsewhere("broadcast", topic.address, 10):
            mine = [here.get(timeout=BOUND) for _ in range(20)]
        for there in (one, two):
            got = there.ask(20)
            assert [m["number"] for m in got[:10]] == list(range(10))
            assert got[10:] == mine[10:] == list(range(10))


def test_a_reader_receives_what_is_put_once_it_is_there():
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=50)) as topic:
        topic.put("before")
        with elsewhere("read", topic.address, {}) as there:
            there.hear()
            topic.put("after")
            assert there.ask(1) == ["after"]


@pytest.mark.exhaustive
def test_put_waits_for_the_slowest_machine_and_drop_oldest_does_not():
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=4)) as topic:
        with elsewhere("read", topic.address, {}) as there:
            there.hear()
            put = 0
            with pytest.raises(channel.Full):
                while True:
                    topic.put(put, timeout=0.5)
                    put += 1
            assert 4 <= put <= 20
            assert there.ask(put) == list(range(put))
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=4, policy="drop_oldest")) as topic:
        with elsewhere("read", topic.address, {}) as there:
            there.hear()
            for number in range(1000):
                topic.put(number)
            last = -1
            while last != 999:
                (now,) = there.ask(1)
                assert now > last
                last = now


@pytest.mark.exhaustive
def test_a_broadcast_goes_on_when_a_link_process_is_killed():
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=100, timeout=20)) as topic:
        with elsewhere("read", topic.address, {"timeout": 20}) as there:
            there.hear()
            links = {topic._end.state.link_pid}
            for number in range(200):
                topic.put(number)
                if number % 50 == 20:
                    links.add(topic._end.state.link_pid)
                    os.kill(topic._end.state.link_pid, signal.SIGKILL)
                if number % 50 == 49:
                    assert there.ask(50) == list(range(number - 49, number + 1))
            assert len(links) > 1


@pytest.mark.exhaustive
def test_a_reader_goes_on_without_the_broadcast_object():
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=5)) as topic:
        with elsewhere("read_alone", topic.address) as there:
            there.hear()
            until(lambda: topic.stats().connected == 1, "it is connected")
            topic.put("still here")
            assert there.hear() == "still here"


@pytest.mark.exhaustive
def test_a_machine_that_leaves_is_not_waited_for():
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=2)) as topic:
        with elsewhere("read", topic.address, {}) as there:
            there.hear()
        until(lambda: topic.stats().connected == 0, "it has left")
        for number in range(20):
            topic.put(number, timeout=BOUND)


def test_readers_raise_once_the_listening_end_is_gone_and_all_was_read():
    with elsewhere("listen", {"broadcast": True, "maxsize": 50}) as there:
        topic = channel.connect(there.hear(), broadcast=True)
        reader = topic.reader()
        topic.put("from here")
        assert reader.get(timeout=BOUND) == "from here"
    with closing(topic), reader:
        for ask in (
            lambda: reader.get(timeout=BOUND),
            lambda: reader.get(block=False),
            lambda: reader.latest(timeout=BOUND),
            lambda: asyncio.run(asyncio.wait_for(reader.aget(), BOUND)),
            lambda: next(reader),
        ):
            with pytest.raises(channel.ConnectionLost, match="closed"):
                ask()


@pytest.mark.exhaustive
def test_readers_that_wait_are_told_that_the_listening_end_is_gone():
    async def wait(reader, is_waiting):
        got = asyncio.ensure_future(reader.aget())
        await asyncio.sleep(0)
        is_waiting.set()
        return await asyncio.wait_for(got, BOUND)

    with ThreadPoolExecutor(2) as threads:
        with elsewhere("listen", {"broadcast": True, "maxsize": 50}) as there:
            topic = channel.connect(there.hear(), broadcast=True)
            readers, is_waiting = (topic.reader(), topic.reader()), threading.Event()
            waits = threads.submit(readers[0].get), threads.submit(asyncio.run, wait(readers[1], is_waiting))
            assert is_waiting.wait(BOUND)
        for waiting in waits:
            with pytest.raises(channel.ConnectionLost, match="closed"):
                waiting.result(BOUND)
        for each in (*readers, topic):
            each.close()


@pytest.mark.exhaustive
def test_a_reader_that_waits_starts_another_link_process():
    with closing(channel.listen(LOCAL, broadcast=True, maxsize=50, timeout=20)) as topic:
        with elsewhere("read_without_link", topic.address) as there:
            there.hear()
            topic.put("still here")
            assert there.hear() == "still here"
