"""Queues with unfinished transfers of dead processes, and messages whose memory is gone."""

from __future__ import annotations

import gc
import signal
import subprocess
import types
from collections.abc import Callable, Iterator
from queue import Full
from typing import Any

import pytest
from manager_world import BOUND, World, kill, live_in_arenas, until, world
from ring_bytes import GET_UNDO, KILLED_IN_GET_OF_ITS_OWN, KILLED_IN_PUT, MESSAGES, PUT_UNDO, RingBytes, start

import shmtensor.multiprocessing as mp
from shmtensor import errors
from shmtensor.manager import client

TRUNCATE = """
import os
(path,) = ["/dev/shm" + row["name"] for row in m.list()["segments"] if row["name"]]
os.truncate(path, 4096)
client.set_strategy("file_descriptor")
"""
SENDS_WHAT_IS_TRUNCATED = (
    """
import shmtensor
import shmtensor.multiprocessing as mp
client.set_strategy("file_system")
client.default = lambda: m
q = mp.Queue(name="q")
q.put(shmtensor.ones(1000))
"""
    + TRUNCATE
)


class Meeting:
    """This process and another at the ring of a queue; what happens when this one first needs the other's memory."""

    def __init__(self, here: World, manager: client.Manager) -> None:
        self.here = here
        self.manager = manager
        self.other: subprocess.Popen[str] | None = None
        self.then: Callable[[int], None] = lambda segment: None
        self.asked: list[int] = []

    def ring_of(self, q: Any) -> RingBytes:
        self.manager.bind(b"/ring", q._ring.block)
        return RingBytes(self.manager, q._ring.block)

    def start(self, code: str) -> None:
        self.other = start(self.here, self.manager, code)

    def kill(self) -> None:
        assert self.other is not None
        kill(self.other)


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meeting]:
    need_mapping = client.Manager._need_mapping

    def late(self: client.Manager, native: Any, segment: int, required: bool) -> str | None:
        made.asked.append(segment)
        made.then(segment)
        return need_mapping(self, native, segment, required)

    monkeypatch.setattr(client.Manager, "_need_mapping", late)
    with world() as here:
        manager = client.at(here.serve())
        monkeypatch.setattr(client, "default", lambda: manager)
        made = Meeting(here, manager)
        yield made
        made.then = lambda segment: None
        gc.collect()  # an error that was looked at keeps the frame that the queue is in
        until(lambda: manager.stats().live_blocks == 0, "the queue and all in it to go")
        manager.close()


def one_more(q: Any) -> None:
    q.put("a")


def two_more(q: Any) -> None:
    assert q.put_many(["a", "b"]) == 2


@pytest.mark.parametrize(("make", "put"), [(mp.Queue, one_more), (mp.Queue, two_more), (mp.Broadcast, one_more)])
def test_a_put_goes_on_when_the_manager_was_first_to_undo_what_is_needed(
    meeting: Meeting, make: Any, put: Callable[[Any], None]
) -> None:
    """It has looked at the dead one's record and asks for memory that is released by the time the manager hears it."""
    q = make(16)
    source = q.reader() if make is mp.Broadcast else q
    ring = meeting.ring_of(q)

    def undone_first(segment: int) -> None:
        meeting.kill()
        until(
            lambda: segment not in [row["id"] for row in meeting.manager.list()["segments"]],
            "the dead one's memory to go",
        )

    meeting.then = undone_first
    meeting.start(KILLED_IN_PUT)
    put(q)
    assert len(meeting.asked) == 1
    assert source.get(timeout=BOUND) == "a"
    ring.view.release()


def test_a_get_goes_on_when_message_and_record_are_of_lost_memory(meeting: Meeting) -> None:
    """Whoever was about to take the message, and had sent it, ended together with the manager."""
    q = mp.Queue(16)
    ring = meeting.ring_of(q)

    def lose(_segment: int) -> None:
        meeting.then = lambda segment: None
        assert meeting.here.server is not None
        kill(meeting.here.server)
        meeting.kill()
        meeting.here.serve()

    meeting.then = lose
    meeting.start(KILLED_IN_GET_OF_ITS_OWN)
    with pytest.raises(errors.SegmentLost, match=r"was removed.*ended before"):
        q.get(timeout=20)
    q.put("the next")
    assert q.get(timeout=BOUND) == "the next"
    ring.view.release()


def test_a_message_whose_memory_was_truncated_is_taken_out(meeting: Meeting) -> None:
    q = mp.Queue(name="q")
    meeting.start(SENDS_WHAT_IS_TRUNCATED)
    q.put("the next")
    assert live_in_arenas(meeting.manager.list()) == 1
    with pytest.raises(errors.SegmentLost, match=r"was removed.*truncated"):
        q.get(timeout=5)
    assert q.get(timeout=BOUND) == "the next"
    until(
        lambda: live_in_arenas(meeting.manager.list()) == 0,
        "the sender's block to be free again",
    )
    meeting.kill()


UNDONE = {"put": KILLED_IN_PUT, "get": KILLED_IN_GET_OF_ITS_OWN}


@pytest.mark.parametrize("end", UNDONE)
def test_what_is_undone_needs_the_metadata_and_not_the_memory_that_was_truncated(meeting: Meeting, end: str) -> None:
    """The holds of a message that was never put are its dead sender's again, of one that was not taken the ring's."""
    q = mp.Queue(16)
    ring = meeting.ring_of(q)
    lock = f"ring.lock({'PUT_LOCK' if end == 'put' else 'GET_LOCK'})\n"  # so that the manager cannot be first
    meeting.start('client.set_strategy("file_system")\n' + UNDONE[end] + TRUNCATE + lock)
    meeting.kill()
    if end == "put":
        q.put("a")
        assert q.get(timeout=BOUND) == "a"
        until(lambda: live_in_arenas(meeting.manager.list()) == 0, "the memory of the message that was never put")
    else:
        with pytest.raises(errors.SegmentLost, match="truncated"):
            q.get(timeout=5)
        until(lambda: live_in_arenas(meeting.manager.list()) == 0, "the memory of the message that nobody could read")
    ring.view.release()


def test_the_error_of_a_signal_handler_is_not_taken_for_the_managers_answer(meeting: Meeting) -> None:
    q = mp.Queue(16)
    ring = meeting.ring_of(q)
    before = bytes(ring.view[PUT_UNDO : PUT_UNDO + 8])

    def fail(_segment: int) -> None:
        meeting.then = lambda segment: None
        raise KeyError("a handler's own")

    meeting.then = fail
    meeting.start(KILLED_IN_PUT)
    noted = bytes(ring.view[PUT_UNDO : PUT_UNDO + 8])
    assert noted != before
    with pytest.raises(KeyError, match="handler's own"):
        q.put("a")
    assert bytes(ring.view[PUT_UNDO : PUT_UNDO + 8]) == noted, "nothing was undone"
    q.put("b")
    assert q.get(timeout=BOUND) == "b"
    meeting.kill()
    ring.view.release()


def test_a_ring_that_names_ever_new_segments_ends_a_wait_in_its_bound(meeting: Meeting) -> None:
    q = mp.Queue(16)
    ring = meeting.ring_of(q)

    def another(_segment: int) -> None:
        name(len(meeting.asked))

    def name(number: int) -> None:
        block: Any = types.SimpleNamespace(segment=10**6 + number, index=0, generation=1)
        ring.write_message(block, 0)

    name(0)
    ring.note(PUT_UNDO, 8000)
    meeting.then = another
    for timeout in (0.1, 0):
        with pytest.raises(Full):
            q.put("a", timeout=timeout)
    ring.view.release()


def test_each_wait_for_the_manager_in_one_get_has_a_bound_of_its_own(meeting: Meeting) -> None:
    """A reader that waits comes upon what somebody left undone, three times; each is undone within the bound."""
    cast = mp.Broadcast(4)
    slow, reader = cast.reader(), cast.reader()
    cast.put("a")
    assert reader.get() == "a"
    ring = meeting.ring_of(cast)
    first = slice(MESSAGES, MESSAGES + 128)
    message = bytes(ring.view[first])
    block: Any = types.SimpleNamespace(segment=10**6, index=0, generation=1)
    rounds, looks, idle = 0, 0, 0

    def at_each_look(*_: Any) -> None:
        nonlocal rounds, looks, idle
        if bytes(ring.view[GET_UNDO : GET_UNDO + 8]) == bytes(8):
            idle += 1
            if idle == 3 and rounds < 3:
                ring.write_message(block, 0)
                ring.note(GET_UNDO, 8000)
                looks = 0
            elif idle == 3:
                cast.put("b")
        else:
            looks += 1
            if looks == 20:
                ring.view[GET_UNDO : GET_UNDO + 8] = bytes(8)
                ring.view[first] = message
                rounds, idle = rounds + 1, 0

    before = signal.signal(signal.SIGALRM, at_each_look)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        assert reader.get(timeout=60) == "b"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rounds == 3
    assert [slow.get(), slow.get()] == ["a", "b"]
    ring.view.release()


@pytest.mark.parametrize("make", [mp.Queue, mp.Broadcast])
def test_what_nobody_undoes_is_an_error(meeting: Meeting, make: Any) -> None:
    """Of memory that never was, by a process that never was: the manager has nothing to undo."""
    q = make(1)
    ring = meeting.ring_of(q)
    if make is mp.Broadcast:  # full, so that a put takes messages out
        reader = q.reader()
        q.put("a")
    block: Any = types.SimpleNamespace(segment=10**6, index=0, generation=1)
    ring.write_message(block, 0)
    ring.note(GET_UNDO if make is mp.Broadcast else PUT_UNDO, 8000)
    for timeout in (0, None):
        with pytest.raises(errors.UnknownHandle, match="never made a segment 1000000"):
            q.put("b", timeout is None, timeout)
    with pytest.raises(Full):
        q.put("b", timeout=0.05)
    ring.view.release()
    if make is mp.Broadcast:
        del reader


@pytest.mark.parametrize("make", [mp.Queue, mp.SimpleQueue, mp.Broadcast])
def test_a_get_of_what_nobody_undoes_is_an_error(meeting: Meeting, make: Any) -> None:
    q = make(4) if make is not mp.SimpleQueue else make()
    source = q.reader() if make is mp.Broadcast else q
    ring = meeting.ring_of(q)
    q.put("a")
    block: Any = types.SimpleNamespace(segment=10**6, index=0, generation=1)
    ring.write_message(block, 0)
    ring.note(GET_UNDO, 8000)
    with pytest.raises(errors.UnknownHandle, match="never made a segment 1000000"):
        source.get()
    ring.view.release()
