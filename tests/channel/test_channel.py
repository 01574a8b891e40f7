"""Channels between two groups, as between two machines, and within one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from channel_world import BOUND, elsewhere, sums, until
from link_proxy import LinkProxy
from tiers import first

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import channel
from shmtensor.channel.end import End
from shmtensor.errors import DTypeError, InvalidArgument, MessageTooLarge, ShmTensorError
from shmtensor.manager import client

LOCAL = "tcp://127.0.0.1:0"


def put_child(queue):
    queue.put("from a child")


VALUES = [
    None, True, 2**40, 1.5, 1 + 2j, "text", {"a": [1, (2, 3)]},
    np.arange(10, dtype=np.int16), np.zeros((3, 0)), np.asfortranarray(np.arange(2000.0).reshape(40, 50)),
    shmtensor.arange(5000).reshape(50, 100).t(), shmtensor.ones(7, dtype=shmtensor.bfloat16), shmtensor.tensor(3.0),
    {"batch": [shmtensor.ones(300, 300), np.ones(70000)]},
]  # fmt: skip


def test_values_arrive_at_the_other_end_as_they_were_put():
    with closing(channel.listen(LOCAL)) as queue, elsewhere("command", queue.address, {}) as there:
        assert there.hear() is False
        for value in VALUES:
            queue.put(value)
            assert there.ask(["get"]) == ["ok", json.loads(json.dumps(sums(value)))]


def test_values_arrive_in_order_and_once():
    with closing(channel.listen(LOCAL)) as queue, elsewhere("produce", queue.address, 5000, {}):
        assert [queue.get(timeout=BOUND) for _ in range(5000)] == list(range(5000))
        assert queue.empty()


def test_on_the_machine_of_the_listening_end_the_queue_itself_is_used():
    with closing(channel.listen(LOCAL)) as queue, closing(channel.connect(queue.address)) as same:
        assert same.stats().is_listening
        shared = shmtensor.zeros(1000)
        queue.put(shared)
        same.get(timeout=BOUND).fill_(3)
        assert shared[0] == 3  # one memory
        assert queue.stats().connected == 0


@pytest.mark.parametrize("copy", first([True, False]))
def test_a_tensor_is_copied_when_it_is_put_for_another_machine(copy):
    with (
        closing(channel.listen(LOCAL, copy=copy)) as queue,
        elsewhere("command", queue.address, {"prefetch": 1}) as there,
    ):
        there.hear()
        queue.put("first")
        assert there.ask(["get"]) == ["ok", "first"]
        mine = shmtensor.ones(100_000)
        for _ in range(4):
            queue.put(mine)
        mine.fill_(7)
        for _ in range(4):
            assert there.ask(["get"])[1][3] == (100_000 if copy else 700_000)


@pytest.mark.parametrize("copy", first([False, True]))
def test_a_tensor_from_another_machine_was_copied_when_it_was_put_there(copy):
    with (
        closing(channel.listen(LOCAL, maxsize=1)) as queue,
        elsewhere("command", queue.address, {"copy": copy}) as there,
    ):
        there.hear()
        # One is in the queue and one in transit, so the third is not sent yet when it is overwritten.
        assert there.ask(["put_and_fill", 3, 7]) == ["ok", None]
        assert [float(queue.get(timeout=BOUND)[0]) for _ in range(3)][2] == (1 if copy else 7)


def test_batches_coroutines_and_descriptors():
    with closing(channel.listen(LOCAL, maxsize=1000)) as queue, elsewhere("command", queue.address, {}) as there:
        there.hear()
        assert there.ask(["put_many", list(range(100))]) == ["ok", 100]
        assert queue.get_many(1000, timeout=BOUND)[0] == 0
        queue.put_many(["x", "y"])
        assert select.select([queue.fileno()], [], [], BOUND)[0]

        async def both():
            got = asyncio.ensure_future(queue.aget())
            await queue.aput("from a coroutine")
            return await got

        until(lambda: queue.qsize() >= 2, "all are there")
        assert asyncio.run(both()) is not None


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_have_the_channel(method):
    with closing(channel.listen(LOCAL)) as queue:
        child = mp.get_context(method).Process(target=put_child, args=(queue,))
        child.start()
        assert queue.get(timeout=BOUND) == "from a child"
        child.join()


def test_bounds_hold_at_both_ends():
    with closing(channel.listen(LOCAL, maxsize=3, maxbytes=10_000)) as queue:
        with elsewhere("command", queue.address, {}) as there:
            there.hear()
            put = 0
            while there.ask(["put", put, True, 0.5])[0] == "ok":
                put += 1
            assert 3 <= put <= 9  # here, on the way, and there
            assert there.ask(["put_array", 20_000, 1])[0] == "MessageTooLarge"
            assert [queue.get(timeout=BOUND) for _ in range(put)] == list(range(put))
        with pytest.raises(MessageTooLarge):
            queue.put(np.zeros(20_000))
        with pytest.raises(channel.Empty):
            queue.get(timeout=0.01)


def test_an_end_is_sent_what_it_asks_for():
    with closing(channel.listen(LOCAL)) as queue, elsewhere("command", queue.address, {}) as there:
        there.hear()
        for number in range(5):
            assert there.ask(["put", number])[0] == "ok"
            assert queue.get(timeout=BOUND) == number
            queue.put(number)
            assert there.ask(["get"]) == ["ok", number]
        assert there.ask(["get", True, 0.05])[0] == "Empty"
        assert there.ask(["get_many", 10, True, 0.05])[0] == "Empty"
        queue.put_many(range(5))
        assert there.ask(["get_many", 10])[0] == "ok"
        assert queue.qsize() == 4


def test_an_end_that_only_puts_is_sent_nothing_and_one_that_takes_no_more_than_it_prefetches():
    with closing(channel.listen(LOCAL)) as queue:
        with elsewhere("command", queue.address, {"prefetch": 4}) as there:
            there.hear()
            assert there.ask(["put", "x"])[0] == "ok"
            assert queue.get(timeout=BOUND) == "x"
            queue.put_many(list(range(20)))
            assert there.ask(["stats"])[1]["messages"] == 0
            assert queue.qsize() == 20
            assert there.ask(["get"]) == ["ok", 0]
            until(lambda: queue.qsize() == 20 - 4, "three more were fetched")
            assert [queue.get() for _ in range(16)] == list(range(4, 20))
        # What it had fetched comes back when it ends.
        assert sorted(queue.get(timeout=BOUND) for _ in range(3)) == [1, 2, 3]


@pytest.mark.exhaustive
def test_takers_on_several_machines_share_the_messages():
    with closing(channel.listen(LOCAL)) as queue:
        with elsewhere("command", queue.address, {}) as one, elsewhere("command", queue.address, {}) as two:
            one.hear(), two.hear()
            queue.put_many(range(2))
            got = [one.ask(["get"])[1], two.ask(["get"])[1]]
            queue.put_many(range(2, 40))
            got += [end.ask(["get"])[1] for _ in range(10) for end in (one, two)]
            got += [queue.get(timeout=BOUND) for _ in range(queue.qsize())]
        until(lambda: queue.qsize() + len(got) == 40, "the rest came back")
        got += [queue.get() for _ in range(queue.qsize())]
        assert sorted(got) == list(range(40))


@pytest.mark.exhaustive
def test_what_was_put_is_delivered_though_its_process_ended():
    with closing(channel.listen(LOCAL)) as queue:
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        proxy.delay = 0.05
        try:
            with elsewhere("produce", proxy.url, 200, {}):
                pass
            assert [queue.get(timeout=BOUND) for _ in range(200)] == list(range(200))
        finally:
            proxy.close()


def test_what_is_inside_goes_to_takers_after_the_listening_process_has_ended():
    with elsewhere("listen", {}, 30) as there:
        queue = channel.connect(there.hear())
        assert queue.get(timeout=BOUND) == 0
    with closing(queue):
        assert [queue.get(timeout=BOUND) for _ in range(29)] == list(range(1, 30))
        with pytest.raises(channel.ConnectionLost, match="closed"):
            queue.get(timeout=BOUND)
        with pytest.raises(channel.ConnectionLost, match="closed"):
            queue.put(1)


@pytest.mark.exhaustive
def test_a_silent_end_is_lost_within_its_timeout_and_its_window_is_freed():
    with closing(channel.listen(LOCAL, timeout=3.0)) as queue:
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        try:
            with elsewhere("command", proxy.url, {"timeout": 3.0, "prefetch": 2}) as there:
                there.hear()
                queue.put("first")
                assert there.ask(["get"]) == ["ok", "first"]
                proxy.blocked = True
                queue.put_many([np.zeros(100_000)] * 3)
                assert there.ask(["get", True, BOUND])[0] == "ConnectionLost"
                until(lambda: queue.stats().unacknowledged == 0, "the window is empty")
                until(lambda: queue.stats().lost in (1, 2), "one is lost; that `first` arrived may not be known here")
                assert queue.qsize() == 2
        finally:
            proxy.close()


@pytest.mark.parametrize("what", first(["link", "guard"]))
def test_the_link_process_and_its_guard_may_be_killed(what):
    with closing(channel.listen(LOCAL)) as queue, elsewhere("command", queue.address, {}) as there:
        there.hear()
        for number in range(4):
            here = queue._end.state
            link = here.link_pid if number % 2 else there.ask(["link"])[1]
            victim = link
            if what == "guard":
                victim = int(Path(f"/proc/{link}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(victim, signal.SIGKILL)
            assert there.ask(["put", number]) == ["ok", None]
            assert queue.get(timeout=BOUND) == number
            queue.put(number)
            assert there.ask(["get"]) == ["ok", number]


def test_a_connection_that_is_reset_loses_nothing():
    with closing(channel.listen(LOCAL)) as queue:
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        try:
            with elsewhere("produce", proxy.url, 20_000, {}):
                for number in range(20_000):
                    assert queue.get(timeout=BOUND) == number
                    if number % 2000 == 100:
                        proxy.reset()
            assert proxy.resets >= 1
        finally:
            proxy.close()


@pytest.mark.exhaustive
def test_named_streams_outlast_the_processes_of_their_ends():
    with elsewhere("hold_group") as here, elsewhere("hold_group") as far:
        here.hear(), far.hear()
        with elsewhere("listen", {"name": "jobs"}, group=here.group) as first:
            address = first.hear()
            with elsewhere("command", address, {"name": "decoder"}, group=far.group) as sender:
                sender.hear()
                for number in range(10):
                    assert sender.ask(["put", number])[0] == "ok"
            assert first.ask(4) == [0, 1, 2, 3]
        with elsewhere("command", address, {"name": "decoder"}, group=far.group) as sender:
            sender.hear()
            for number in range(10, 20):  # nobody listens
                assert sender.ask(["put", number])[0] == "ok"
        with elsewhere("listen", {"name": "jobs", "address": address}, group=here.group) as second:
            assert second.hear() == address
            assert second.ask(16) == list(range(4, 20))
        stop(here), stop(far)


@pytest.mark.exhaustive
@pytest.mark.parametrize("hours", [1, -1])
def test_the_clock_of_a_machine_jumps(hours):
    """The group of a named stream is lost, and begins anew with another time of day."""
    with closing(channel.listen(LOCAL, timeout=BOUND)) as queue:
        for number, clock in enumerate((0, hours * 3600)):
            with elsewhere("hold_group") as far:
                far.hear()
                options = {"name": "decoder", "clock": clock, "timeout": BOUND}
                with elsewhere("command", queue.address, options, group=far.group) as sender:
                    sender.hear()
                    assert sender.ask(["put", number])[0] == "ok"
                    assert queue.get(timeout=BOUND) == number
                stop(far)


def stop(program):
    """End what a named stream keeps."""
    subprocess.run(
        [sys.executable, "-m", "shmtensor.manager", "stop", "--force"],
        env={**os.environ, "SHMTENSOR_GROUP": program.group},
        check=False,
        capture_output=True,
    )


def test_flush_waits_until_the_listening_end_has_what_was_put():
    with closing(channel.listen(LOCAL)) as queue:
        queue.flush()  # here it is where it belongs
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        try:
            with elsewhere("command", proxy.url, {"timeout": BOUND}) as there:
                there.hear()
                assert there.ask(["flush", 0]) == ["ok", None]  # nothing was put
                proxy.blocked = True
                for number in range(3):
                    there.ask(["put_array", 100_000, number])
                name, text = there.ask(["flush", 0.2])
                assert name == "DeliveryTimeout" and "has not received everything within 0.2 s" in text
                there.say(["flush", BOUND])
                proxy.blocked = False
                assert there.hear() == ["ok", None]
                assert queue.qsize() == 3
                assert there.ask(["put_many", list(range(1000))]) == ["ok", 1000]
                assert there.ask(["flush", BOUND]) == ["ok", None]
                assert queue.qsize() == 1003
                assert there.ask(["flush", -1])[0] == "InvalidArgument"
        finally:
            proxy.close()


@pytest.mark.exhaustive
def test_flush_says_that_the_other_end_is_lost():
    with closing(channel.listen(LOCAL, timeout=BOUND)) as queue:
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        try:
            with elsewhere("command", proxy.url, {"timeout": 0.5}) as there:
                there.hear()
                proxy.blocked = True
                there.ask(["put", 1])
                assert there.ask(["flush", None])[0] == "ConnectionLost"
        finally:
            proxy.close()


def test_what_needs_pickle_needs_the_consent_of_both_ends():
    with closing(channel.listen(LOCAL)) as queue, pytest.raises(DTypeError, match="pickle=True"):
        queue.put({1, 2})
    with closing(channel.listen(LOCAL, pickle=True)) as queue:
        queue.put({1, 2})
        assert queue.get() == {1, 2}
        with pytest.raises(channel.ConnectionLost, match="pickle"):
            channel.connect(queue.address)
        with elsewhere("command", queue.address, {"pickle": True}) as there:
            there.hear()
            queue.put({"set": frozenset([1]), "array": np.arange(3.0)}["array"])
            assert there.ask(["get"])[0] == "ok"
            queue.put(range(5))
            assert there.ask(["get"])[0] == "TypeError"  # the test's program cannot print a range
        with pytest.raises(RuntimeError, match="inheritance"):
            queue.put([mp.Queue()])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("127.0.0.1:7000",), InvalidArgument, "tcp://HOST:PORT"),
        (("tcp://127.0.0.1",), InvalidArgument, "tcp://HOST:PORT"),
        (("tcp://127.0.0.1:70000",), InvalidArgument, "tcp://HOST:PORT"),
        (("tcp://0.0.0.0:0",), InvalidArgument, "keys"),
        (("tcp://0.0.0.0:0", {"keys": "/nowhere"}), InvalidArgument, "no keys in /nowhere"),
        ((LOCAL, {"timeout": float("nan")}), InvalidArgument, "timeout"),
        ((LOCAL, {"window": "much"}), InvalidArgument, "window"),
        ((LOCAL, {"max_peers": 0}), InvalidArgument, "max_peers"),
        ((LOCAL, {"policy": "block"}), InvalidArgument, "broadcasts"),
        ((LOCAL, {"name": "a b"}), InvalidArgument, "not a valid name"),
        ((LOCAL, {"broadcast": True}), InvalidArgument, "maxsize"),
    ],
)
def test_bad_arguments(arguments, error, text):
    address, options = arguments if len(arguments) == 2 else (*arguments, {})
    with pytest.raises(error, match=text):
        channel.listen(address, **options)


def test_an_address_in_use_and_one_where_nobody_listens():
    with closing(channel.listen(LOCAL)) as queue:
        with pytest.raises(ShmTensorError, match="in use"):
            channel.listen(queue.address)
        with pytest.raises(channel.ConnectionLost, match="kind"):
            channel.connect(queue.address, broadcast=True)
    with pytest.raises(channel.ConnectionLost, match="refused"):
        channel.connect("tcp://127.0.0.1:1", timeout=0.2)
    with pytest.raises(InvalidArgument, match="no port"):
        channel.connect(LOCAL)


def test_a_closed_channel():
    queue = channel.listen(LOCAL)
    queue.close()
    for call in (lambda: queue.put(1), queue.get, lambda: queue.put_many([1]), lambda: queue.get_many(1)):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert "closed" in repr(queue)


def test_a_named_stream_is_not_opened_with_less_than_it_was_made_with(tmp_path):
    keys = pytest.importorskip("shmtensor.channel.keys")
    pytest.importorskip("cryptography")
    keys.make(tmp_path / "keys")
    with closing(channel.listen(LOCAL, name="guarded", keys=tmp_path / "keys")) as queue:
        for options in ({}, {"keys": tmp_path / "keys", "encrypt": False}, {"keys": tmp_path / "keys", "maxsize": 5}):
            with pytest.raises(InvalidArgument, match="guarded"):
                channel.listen(queue.address, name="guarded", **options)


@pytest.mark.exhaustive
def test_named_streams_that_are_away_make_room_for_others():
    with closing(channel.listen(LOCAL, max_peers=2)) as queue:
        for number in range(4):
            with elsewhere("produce", queue.address, 1, {"name": f"end{number}"}):
                assert queue.get(timeout=BOUND) == 0
            until(lambda: queue.stats().connected == 0, "it has left")


@pytest.mark.exhaustive
def test_messages_that_are_cut_leave_no_memory_behind():
    with closing(channel.listen(LOCAL)) as queue:
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        proxy.rate = 100e6
        try:
            with elsewhere("command", proxy.url, {"timeout": BOUND}) as there:
                there.hear()
                assert there.ask(["put_array", 40_000_000, 1])[0] == "ok"
                for _ in range(6):
                    before = proxy.connections
                    until(lambda: queue._manager.stats().live_bytes > 40_000_000, "it is being received")
                    proxy.reset()
                    until(lambda seen=before: proxy.connections > seen, "it connects again")
                    until(lambda: queue._manager.stats().live_bytes < 90_000_000, "only one is here")
                proxy.rate = 0
                assert queue.get(timeout=BOUND).sum() == 40_000_000
        finally:
            proxy.close()


def test_memory_comes_back():
    with closing(channel.listen(LOCAL)) as queue, elsewhere("command", queue.address, {}) as there:
        there.hear()
        queue.put("first")
        there.ask(["get"])
        before = queue._manager.stats().live_bytes
        for _ in range(20):
            queue.put(np.ones(1_000_000, np.uint8))
            assert there.ask(["get"])[0] == "ok"
        until(lambda: queue._manager.stats().live_bytes <= before, "what was sent is free")
        assert there.ask(["put_array", 1_000_000, 1])[0] == "ok"
        assert queue.get(timeout=BOUND).sum() == 1_000_000
        until(lambda: queue._manager.stats().live_bytes <= before, "what was received is free")


@pytest.mark.exhaustive
@pytest.mark.parametrize("nbytes", [4_000_000, 3_000])
def test_an_end_without_memory_receives_the_rest_once_there_is_some(nbytes):
    messages = 100_000_000 // nbytes
    limited = ("env", "SHMTENSOR_MAX_BYTES=24M")
    with elsewhere("listen", {"timeout": BOUND}, prefix=limited) as there:
        with closing(channel.connect(there.hear(), timeout=BOUND)) as queue:
            queue.put_many([np.full(nbytes, number % 251, np.uint8) for number in range(messages)])
            problem = until(lambda: there.ask("problem"), "the memory is full")
            assert re.search(r"memory|limit|quota", problem)
            for first in range(0, messages, 5000):
                count = min(5000, messages - first)
                got = there.ask(count)
                assert [one[3] for one in got] == [nbytes * ((first + i) % 251) for i in range(count)]
            queue.flush(BOUND)


@pytest.mark.exhaustive
def test_a_named_stream_outlasts_the_channel_and_is_unknown_to_the_next_one():
    with elsewhere("hold_group") as far:
        far.hear()
        queue = channel.listen(LOCAL)
        address = queue.address
        with elsewhere("command", address, {"name": "waiting"}, group=far.group) as there:
            there.hear()
            assert there.ask(["put", 1])[0] == "ok"
            assert queue.get(timeout=BOUND) == 1
            queue.close()
            until(
                lambda: (
                    "closed there" in there.ask(["stats"])[1]["problem"]
                    or "refused" in there.ask(["stats"])[1]["problem"]
                ),
                "it has noticed",
            )
            with closing(channel.listen(address)):
                name, text = there.ask(["get", True, BOUND])
                assert name == "ConnectionLost" and "the session is unknown here" in text
        stop(far)


@pytest.mark.exhaustive
def test_a_named_stream_that_is_opened_again_while_it_closes_continues():
    with closing(channel.listen(LOCAL, timeout=BOUND)) as queue, elsewhere("hold_group") as far:
        far.hear()
        proxy = LinkProxy(("127.0.0.1", int(queue.address.rpartition(":")[2])))
        options = {"name": "decoder", "timeout": BOUND}
        try:
            with elsewhere("command", proxy.url, options, group=far.group) as first:
                first.hear()
                proxy.blocked = True
                assert first.ask(["put_many", [0, 1, 2]]) == ["ok", 3]
                link = first.ask(["link"])
            with elsewhere("command", proxy.url, options, group=far.group) as second:
                second.hear()
                assert second.ask(["link"]) == link
                assert second.ask(["put", 3]) == ["ok", None]
                proxy.blocked = False
                assert [queue.get(timeout=BOUND) for _ in range(4)] == [0, 1, 2, 3]
                queue.put("back")
                assert second.ask(["get"]) == ["ok", "back"]
        finally:
            proxy.close()
        stop(far)


@pytest.mark.exhaustive
def test_a_named_channel_that_could_not_listen_is_opened_at_another_address():
    with closing(channel.listen(LOCAL)) as queue:
        for _ in range(2):
            with pytest.raises(ShmTensorError, match="in use"):
                channel.listen(queue.address, name="elsewhere")
            assert not End.find(client.default(), "channel.listen.elsewhere").is_linked(), "it counts as listening"
        with closing(channel.listen(LOCAL, name="elsewhere")) as other:
            assert other.address != queue.address
            with closing(channel.connect(other.address)) as same:
                same.put(1)
                assert other.get(timeout=BOUND) == 1


@pytest.mark.parametrize("prefetch", [0, 2.0, True, 2**31 + 1])
def test_a_prefetch_that_is_none(prefetch):
    with pytest.raises(InvalidArgument, match="prefetch must be an integer of at least 1"):
        channel.connect("tcp://127.0.0.1:1", prefetch=prefetch)
