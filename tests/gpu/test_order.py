"""Timelines and deferred releases: the points of `put`, the waits of `get`, memory kept until streams have passed."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from functools import partial

import pytest
from host_driver import HostDriver
from manager_world import until

import shmtensor.multiprocessing as mp
from shmtensor import _native
from shmtensor.errors import DeviceUnavailable, OwnerDied
from shmtensor.gpu import driver, order, segments
from shmtensor.manager import client


@pytest.fixture
def lines(host):
    return order.of(client.default())


class Thing:
    """Something that can be looked at by a weak reference."""


def test_nothing_is_waited_for_without_work(host, lines):
    assert lines.is_idle(0, 5)
    timeline, point = lines.mark(0, 5)
    before = lines.facts(timeline).issued
    assert point == 0 and lines.is_over(timeline, 0) and lines.wait(timeline, 0, 0, 6) is False
    host.hold(5)
    assert not lines.is_idle(0, 5) and lines.is_idle(1, 6)
    assert lines.mark(0, 5) == (timeline, before + 1)
    host.release(5)
    assert lines.wait(timeline, before + 1, 0, 6) is False
    assert lines.mark(0, 5) == (timeline, 0)
    assert lines.facts(timeline).issued == before + 1
    assert "cuStreamWaitValue64" not in host.calls


def test_the_default_stream_is_busy_while_another_one_is(host, lines):
    host.hold(5)
    assert not lines.is_idle(0, 0) and lines.mark(0, 0)[1] >= 1
    host.release(5)
    assert lines.is_idle(0, 0) and lines.mark(0, 0)[1] == 0


def test_each_stream_has_a_timeline_of_its_own(lines):
    assert len({lines.mark(device, stream)[0] for device in (0, 1) for stream in (0, 7, 8)}) == 6


def test_a_receiver_waits_until_the_senders_work_is_done(host, lines):
    host.hold(5)
    timeline, point = lines.mark(0, 5)
    assert not lines.is_over(timeline, point)
    waited = []
    thread = threading.Thread(target=lambda: waited.append(lines.wait(timeline, point, 0, 6)))
    thread.start()
    until(lambda: "cuStreamWaitValue64" in host.calls, "the stream waits")
    assert not waited
    host.release(5)
    thread.join(20)
    assert waited == [True]
    assert lines.is_over(timeline, point)


def test_points_complete_in_order(host, lines):
    host.hold(5)
    first, second = lines.mark(0, 5), lines.mark(0, 5)
    assert first[0] == second[0] and first[1] < second[1]
    host.release(5)
    assert lines.is_over(*first) and lines.is_over(*second)


def test_a_refused_point_was_never_given_out(host, lines):
    host.hold(0)
    timeline, point = lines.mark(0, 0)
    host.refuses["cuStreamWriteValue64"] = 400
    with pytest.raises(DeviceUnavailable, match=r"refused cuStreamWriteValue64: .*stream 0x0.* \(400\)"):
        lines.mark(0, 0)
    host.refuses.clear()
    assert lines.facts(timeline).issued == point
    assert lines.mark(0, 0) == (timeline, point + 1)


def test_a_refused_wait_names_the_stream(host, lines):
    host.hold(5)
    point = lines.mark(0, 5)
    host.refuses["cuStreamWaitValue64"] = 400
    with pytest.raises(DeviceUnavailable, match=r"refused cuStreamWaitValue64: .*for stream 0x6 of cuda:1.* \(400\)"):
        lines.wait(*point, 1, 6)
    host.refuses.clear()
    host.release(5)
    assert lines.wait(*point, 1, 6) is False


def test_idle_timelines_are_used_for_other_streams(host, lines):
    host.hold(1)
    busy = lines.mark(0, 1)[0]
    seen = {lines.mark(0, stream)[0] for stream in range(2, 3 * order.LINES)}
    assert busy not in seen
    assert len(seen) < 2 * order.LINES
    host.release(1)


def test_all_timelines_of_a_group_in_use(lines):
    timelines = _native.Timelines(client.default().native.group)
    taken = []
    while (line := timelines.claim(client.default().native.slot, client.default().native.generation)) >= 0:
        taken.append(line)
    with pytest.raises(DeviceUnavailable, match="all 1024 of the group are in use"):
        lines.mark(0, 123)
    for line in taken:
        timelines.give_back(line)
    assert lines.mark(0, 123)[1] == 0


def sender(points, done):
    driver.use(made := HostDriver())
    lines = order.of(client.default())
    made.hold()
    points.put(lines.mark(0, 0))
    made.release()
    made.hold()
    points.put(lines.mark(0, 0))
    points.put(lines.mark(0, 0))
    done.get()


def killed_sender():
    context = mp.get_context("spawn")
    points, done = context.Queue(), context.Queue()
    process = context.Process(target=sender, args=(points, done))
    process.start()
    found = [points.get(timeout=30) for _ in range(3)]
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return found


def test_points_of_a_killed_process_are_over_and_lost(lines):
    reached, *lost = killed_sender()
    assert lines.is_over(*reached)
    for timeline, point in lost:
        until(
            lambda timeline=timeline, point=point: lines._timelines.is_reached(timeline, point), "the manager ended it"
        )
        for call in (partial(lines.wait, timeline, point, 0, 0), partial(lines.is_over, timeline, point)):
            with pytest.raises(OwnerDied, match="the process that sent it was killed"):
                call()
    assert lines.facts(reached[0]).slot == 0  # free again


def test_a_line_with_lost_points_is_used_last(lines):
    reached, *_ = killed_sender()
    until(lambda: lines.facts(reached[0]).slot == 0, "the manager ended it")
    assert reached[0] not in {lines.mark(0, stream)[0] for stream in range(order.LINES)}


def test_what_a_stream_uses_is_kept(host):
    host.hold(9)
    thing = Thing()
    ref = weakref.ref(thing)
    order.keep_until_done(thing, 0, 9)
    del thing
    order.of(client.default()).settle()
    gc.collect()
    assert ref() is not None
    host.release(9)
    until(lambda: ref() is None, "it was let go of")


def test_releases_between_two_looks_have_one_point(host):
    lines = order.of(client.default())
    things = [Thing() for _ in range(100)]
    host.hold(33)
    timeline, before = lines.mark(0, 33)
    for thing in things:
        order._released.append((thing, 0, 33))
    lines.settle()
    assert lines.facts(timeline).issued == before + 1
    host.release(33)


def test_a_stream_that_does_not_exist_any_more(host):
    """Its work is waited for, since it cannot be marked."""
    thing = Thing()
    ref = weakref.ref(thing)
    host.refuses["cuStreamWriteValue64"] = 400
    order.keep_until_done(thing, 0, 12)
    del thing
    until(lambda: ref() is None, "it was let go of")
    assert "cuCtxSynchronize" in host.calls


def test_a_thread_that_cannot_wait_is_replaced(host, monkeypatch):
    failed = []
    monkeypatch.setattr(threading, "excepthook", lambda found: failed.append(str(found.exc_value)))
    host.refuses |= {"cuStreamWriteValue64": 400, "cuCtxSynchronize": 999}
    order.keep_until_done(Thing(), 0, 12)
    until(lambda: failed, "the thread has failed")
    assert "refused cuCtxSynchronize" in failed[0]
    host.refuses.clear()
    thing = Thing()
    ref = weakref.ref(thing)
    order.keep_until_done(thing, 0, 12)
    del thing
    until(lambda: ref() is None, "another one let go of it")
    assert len(failed) == 1


@pytest.fixture
def other(host, here):
    """A client of another group."""
    manager = client.at(here.serve())
    yield manager
    manager.close()


@pytest.mark.exhaustive
def test_a_client_that_leaves_its_group_ends_what_it_has_for_gpus(host, other):
    registered, threads = set(host._registered), set(threading.enumerate())
    lines = order.of(other)
    timeline, _ = lines.mark(0, 5)
    segments.make_segment(other, 0, 1 << 20)
    assert any(thread.name == "shmtensor-gpu-succession" for thread in set(threading.enumerate()) - threads)
    host.hold(5)
    _, point = lines.mark(0, 5)
    assert not lines.is_over(timeline, point)
    timer = threading.Timer(0.1, host.release, (5,))
    timer.start()
    other.close()
    timer.join()
    assert set(host._registered) == registered
    assert not [thread for thread in set(threading.enumerate()) - threads if "succession" in thread.name]
    assert lines.facts(timeline).completed == point


@pytest.mark.exhaustive
def test_blocks_wait_for_the_streams_of_their_own_group(host, other):
    first, second = order.of(client.default()), order.of(other)
    assert order.order_of_owner(client.default().allocate(100)) is first
    assert order.order_of_owner(other.allocate(100)) is second
    assert order.order_of_owner(Thing()) in (first, second)


def test_a_forked_child_cannot_use_the_driver(host):
    context = mp.get_context("fork")
    answers = context.Queue()

    def child():
        try:
            driver.current()
        except DeviceUnavailable as problem:
            answers.put(str(problem))

    process = context.Process(target=child)
    process.start()
    assert "start it with the method spawn" in answers.get(timeout=30)
    process.join()


EXITING = """
import sys, threading, time
sys.path[:0] = {path!r}
from host_driver import HostDriver
from shmtensor.gpu import driver, order
from shmtensor.manager import client

driver.use(made := HostDriver())
lines = order.of(client.default())
made.hold()
print(*lines.mark(0, 0), flush=True)
threading.Timer(0.3, made.release).start()
"""


def test_a_process_that_ends_waits_for_its_streams(lines):
    """What it has sent arrives whole."""
    done = subprocess.run(
        [sys.executable, "-c", EXITING.format(path=sys.path)], capture_output=True, text=True, timeout=60, check=True
    )
    timeline, point = map(int, done.stdout.split())
    assert lines.is_over(timeline, point)
