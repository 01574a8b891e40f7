"""Snapshots of a group: the manager's documents combined with /proc."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forged import LOCK, Forged
from manager_world import World, tell
from ring_bytes import GET_LOCK, start

from shmtensor.manager import client, protocol
from shmtensor.manager.connection import Observer
from shmtensor.manager.monitor import snapshot
from shmtensor.manager.monitor.processes import look

HOLDER = 40
"""Where a lock has the slot of its holder."""


@pytest.fixture
def user(here: World) -> Iterator[client.Manager]:
    made = client.at(here.serve())
    yield made
    made.close()


@pytest.fixture
def observer(user: client.Manager) -> Iterator[Observer]:
    with Observer(user.address) as made:
        yield made


def start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_process_is_read_from_proc() -> None:
    facts = look(os.getpid(), start_time(os.getpid()), pss=True)
    assert facts is not None
    assert "python" in facts.command and 0 < facts.age_seconds < 86400
    assert sum(facts.threads.values()) == len(list(Path("/proc/self/task").iterdir()))
    assert facts.threads.get("R")
    assert facts.pss_bytes is None or 1 << 20 < facts.pss_bytes < 1 << 40
    unread = look(os.getpid(), start_time(os.getpid()), pss=False)
    assert unread is not None and unread.pss_bytes is None


@pytest.mark.parametrize("wrong", ["other start", "no start", "no pid"])
def test_another_process_of_the_same_id_is_not_taken_for_it(wrong: str) -> None:
    pid, begun = os.getpid(), start_time(os.getpid())
    assert look(*{"other start": (pid, begun + 1), "no start": (pid, 0), "no pid": (0, begun)}[wrong], True) is None


def test_processes_have_what_they_hold(user: client.Manager, observer: Observer) -> None:
    kept = [user.allocate(10_000) for _ in range(3)]
    user.ticket(kept[0])
    found = snapshot.take(observer)
    observer.request(protocol.Collect(0.0))  # the ticket, for which the manager would wait
    (process,) = found.processes
    assert (process.pid, process.state, process.slot) == (os.getpid(), "client", user.native.slot)
    assert (process.held_blocks, process.held_bytes, process.locks) == (3, 30_000, 0)
    assert process.command and "python" in process.command
    assert process.age_seconds is not None and process.oldest_seconds is not None and process.reserved_bytes > 0
    (segment,) = found.segments
    assert (segment.kind, segment.owner_pid, segment.live_blocks, segment.holders) == ("arena", os.getpid(), 3, 2)
    assert {(holder.kind, holder.blocks) for holder in found.holders} == {("client", 3), ("ticket", 1)}
    assert sorted(hold.kind for hold in found.holds) == ["client"] * 3 + ["ticket"]
    assert {hold.block for hold in found.holds if hold.pid == os.getpid()} == {block.index for block in kept}
    assert found.stats.live_blocks == 3 and not found.unlisted_segments
    json.dumps(found.stats.__dict__)


def test_pss_is_kept_where_it_is_not_asked_for(observer: Observer) -> None:
    first = snapshot.take(observer)
    again = snapshot.take(observer, first, pss=False)
    assert [row.pss_bytes for row in again.processes] == [row.pss_bytes for row in first.processes]
    assert [row.pss_bytes for row in snapshot.take(observer, pss=False).processes] == [None]


def test_rates_are_of_what_passed_a_ring_between_two_snapshots(here: World, user: client.Manager) -> None:
    code = """
import sys
import shmtensor.multiprocessing as mp
queue = mp.Queue(name="work", maxsize=100)
for line in sys.stdin:
    for _ in range(int(line)):
        queue.put(b"x" * 100)
    if not int(line):
        queue.get()
    print(flush=True)
"""
    program = here.script(code)
    with Observer(user.address) as observer:
        tell(program, "3")
        line_of_nothing(program)
        first = snapshot.take(observer)
        (ring,) = first.rings
        assert (ring.kind, ring.name, ring.messages, ring.max_messages) == ("Queue", "/work", 3, 100)
        assert (ring.put_messages, ring.got_messages, ring.processes, ring.rates) == (3, 0, 1, None)
        assert [(name.name, name.kind) for name in first.names] == [("/work", "Queue")]
        for amount in ("5", "0"):
            tell(program, amount)
            line_of_nothing(program)
        second = snapshot.take(observer, first)
    (ring,) = second.rings
    seconds = second.clock - first.clock
    assert ring.rates is not None and seconds > 0
    assert ring.rates.put_messages * seconds == pytest.approx(5)
    assert ring.rates.got_messages * seconds == pytest.approx(1)
    assert ring.rates.put_bytes * seconds == pytest.approx(ring.put_bytes - first.rings[0].put_bytes)
    assert ring.rates.put_bytes > 0


def line_of_nothing(program: Any) -> None:
    assert program.stdout.readline() == "\n", program.stderr.read()


def test_counts_of_messages_wrap(here: World, user: client.Manager) -> None:
    block = user.create_ring()
    document = here.observe(user.address)
    stats = document.pop("stats")
    (row,) = document["rings"]
    row["put_messages"] = 2**32 - 2
    before = snapshot.read(stats, document)
    row["put_messages"] = 3
    after = snapshot.read(stats, document, before=before)
    rates = after.rings[0].rates
    assert rates is not None and rates.put_messages * (after.clock - before.clock) == pytest.approx(5)
    del block


def test_documents_of_older_managers_can_be_read(here: World, user: client.Manager) -> None:
    kept = user.allocate(64)
    ring = user.create_ring()
    document = here.observe(user.address)
    stats = document.pop("stats")
    document.pop("holds")
    for row in document["segments"]:
        row.pop("lock_slot")
    for row in document["rings"]:
        for key in ("put_messages", "got_messages", "put_lock_slot", "get_lock_slot"):
            row.pop(key)
    found = snapshot.read(stats, document)
    assert found.processes[0].held_blocks == 2 and not found.locks and not found.holds
    del kept, ring


def test_the_process_that_keeps_a_lock_of_a_ring_is_named(here: World, user: client.Manager) -> None:
    ring = user.create_ring()
    user.bind(b"/ring", ring)
    code = (
        "import struct; ring = RingBytes(m, m.open(b'/ring')); ring.lock(GET_LOCK)\n"
        f"struct.pack_into('<I', ring.view, GET_LOCK + {HOLDER}, slot)"
    )
    keeper = start(here, user, code)
    with Observer(user.address) as observer:
        first = snapshot.take(observer)
        (lock,) = first.locks
        assert lock.place.endswith(", get") and lock.pid == keeper.pid and lock.looks == 1
        assert lock.command and lock.threads
        assert {row.pid: row.locks for row in first.processes} == {keeper.pid: 1, os.getpid(): 0}
        assert snapshot.take(observer, first).locks[0].looks == 2
        keeper.kill()
        keeper.wait()
        assert not snapshot.take(observer, first).locks
    del ring


def test_the_process_that_keeps_a_lock_of_a_segment_is_named(user: client.Manager, observer: Observer) -> None:
    kept = user.allocate(64)
    with Forged(user, kept.segment) as forged:
        forged.set(LOCK + HOLDER, user.native.slot)
        assert not snapshot.take(observer).locks  # the holder is stale: nobody has the lock
        forged.set(LOCK + HOLDER, user.native.slot)  # the manager has had the lock since
        forged.set(LOCK, os.getpid())
        found = snapshot.take(observer)
        forged.set(LOCK, 0)
    (lock,) = found.locks
    assert lock.place == f"segment {kept.segment}" and lock.pid == os.getpid()
    assert found.unlisted_segments == 1 and found.segments[0].holders is None


def test_a_holder_that_is_no_slot_is_nobody(user: client.Manager, observer: Observer) -> None:
    ring = user.create_ring()
    view = memoryview(ring)
    struct.pack_into("<I", view, GET_LOCK, os.getpid())
    struct.pack_into("<I", view, GET_LOCK + HOLDER, 1 << 30)
    assert not snapshot.take(observer).locks
    struct.pack_into("<I", view, GET_LOCK, 0)
    view.release()
    del ring


def test_an_owner_of_many_holds_does_not_hide_the_others(here: World, user: client.Manager) -> None:
    kept = [user.allocate(64) for _ in range(1_500)]
    code = "from shmtensor.manager import client\nkept = client.default().allocate(64)\nprint(flush=True)\ninput()"
    other = here.script(code)
    line_of_nothing(other)
    with Observer(user.address) as observer:
        found = snapshot.take(observer)
    by_pid = [hold.pid for hold in found.holds]
    assert len(by_pid) == 1_000 and by_pid.count(other.pid) == 1
    assert {holder.pid: holder.blocks for holder in found.holders} == {os.getpid(): 1_500, other.pid: 1}
    tell(other)
    assert other.wait(20) == 0
    del kept


def test_a_snapshot_says_when_it_was_taken(observer: Observer) -> None:
    before = time.time()
    found = snapshot.take(observer)
    assert before <= found.taken <= time.time()
