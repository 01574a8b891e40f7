"""Rings and named objects through a real manager: who keeps them, and what is freed at their end and by deaths."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import pytest
from manager_world import World, kill, until, world
from ring_bytes import HEAD, KILLED_IN_GET, KILLED_IN_PUT, TAIL, RingBytes, start

from shmtensor import _native, errors
from shmtensor.manager import client, naming, protocol


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture
def manager(here: World) -> Iterator[client.Manager]:
    """This process as a client of a manager of its own; the test must drop its blocks."""
    made = client.at(here.serve())
    yield made
    made.close()


def hold_of_ring(manager: client.Manager, ring: RingBytes, block: _native.Block) -> None:
    """Let a message inside hold the block."""
    hold, _mark = manager.ticket(block)
    ring.give(block, hold, ring.number, _native.HOLD_MESSAGE)
    ring.write_message(block, hold)
    ring.move(TAIL)


def is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def test_a_ring_lives_as_long_as_somebody_holds_it(here: World, manager: client.Manager) -> None:
    block = manager.create_ring()
    assert (block.index, block.generation, block.offset, block.nbytes) == (0, 1, 0, _native.RING_BYTES)
    manager.bind(b"/ring", block)
    other = start(here, manager, "ring = m.open(b'/ring')")
    (segment,) = manager.list()["segments"]
    assert sorted(row["slot"] for row in segment["holders"]) == sorted(row["slot"] for row in manager.list()["clients"])
    del block
    assert manager.attach(segment["id"], 0, 1).nbytes == _native.RING_BYTES
    kill(other)
    until(lambda: manager.stats().segments == 0, "the ring to go with its last holder")
    with pytest.raises(errors.StaleHandle):
        manager.open(b"/ring")


def test_a_forked_child_holds_its_parents_ring(manager: client.Manager) -> None:
    block = manager.create_ring()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0 if memoryview(block)[:7] == b"SHMRING" else 1)
    os.close(read_end)
    del block
    manager.gc()
    assert manager.stats().rings == 1
    os.close(write_end)
    assert os.waitpid(pid, 0)[1] == 0
    until(lambda: manager.stats().segments == 0, "the ring to go with the child")


def test_rings_have_no_name_in_dev_shm(manager: client.Manager) -> None:
    client.set_strategy("file_system")
    try:
        block = manager.create_ring()
    finally:
        client.set_strategy("file_descriptor")
    assert manager.list()["segments"][0]["name"] is None
    del block


def test_a_client_that_dies_before_it_hears_of_its_ring_leaves_nothing(here: World, manager: client.Manager) -> None:
    code = (
        "import sys; from manager_world import Wire; from shmtensor.manager import protocol\n"
        "wire = Wire(sys.argv[1].encode()); wire.hello(); wire.send(protocol.Create(0, protocol.RING))\n"
        "sys.stdin.readline()\n"
    )
    child = here.script(code, os.fsdecode(manager.address))
    until(lambda: manager.stats().rings == 1, "the ring to be made")
    kill(child)
    until(lambda: manager.stats().segments == 0, "the ring to go")


def test_a_ring_that_comes_too_late_is_given_back(here: World, manager: client.Manager) -> None:
    here.server.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(errors.ManagerTimeout):
            manager._request(protocol.Create(0, protocol.RING), 0.2)
    finally:
        here.server.send_signal(signal.SIGCONT)
    until(lambda: manager.stats().segments == 0, "the ring to be given back")


def test_a_ring_whose_descriptors_cannot_be_had_is_given_back(here: World, manager: client.Manager) -> None:
    code = (
        "import os, resource, sys\nfrom shmtensor import errors\nfrom shmtensor.manager import client\n"
        "m = client.at(sys.argv[1]); m.stats()\n"
        "limits = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "free = os.dup(0); os.close(free); resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))\n"
        "try:\n    m.create_ring()\n"
        "except errors.QuotaExceeded as problem:\n    print('ulimit -n' in str(problem), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    child = here.script(code, os.fsdecode(manager.address))
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    until(lambda: manager.stats().segments == 0, "the ring to be given back")
    kill(child)


def test_messages_inside_go_with_the_ring_and_its_number_is_free_again(manager: client.Manager) -> None:
    ring = RingBytes(manager, manager.create_ring())
    number = ring.number
    block = manager.allocate(4096)
    hold_of_ring(manager, ring, block)
    document = manager.list()
    arena = next(row for row in document["segments"] if not row["dedicated"])
    assert [(who["ring"], who["kind"], who["bytes"]) for who in arena["holders"] if who["ring"]] == [
        (number, "message", 4096)
    ]
    assert document["rings"][0]["messages"] == 1
    triple = (block.segment, block.index, block.generation)
    del block
    assert manager.attach(*triple).nbytes == 4096, "the message must keep the block"
    ring.view.release()
    del ring
    until(lambda: manager.stats().live_blocks == 0, "the message's block to go with the ring")
    with pytest.raises(errors.StaleHandle):
        manager.attach(*triple)
    until(lambda: manager.stats().rings == 0, "the ring to go")
    again = RingBytes(manager, manager.create_ring())
    assert again.number == number
    again.view.release()


def test_a_put_that_was_cut_short_is_undone_before_its_holds_are_released(here: World, manager: client.Manager) -> None:
    block = manager.create_ring()
    manager.bind(b"/ring", block)
    kill(start(here, manager, KILLED_IN_PUT))
    until(lambda: manager.stats().clients == 1 and not manager.stats().dying, "the dead to be reclaimed")
    until(lambda: manager.stats().live_blocks == 1, "the block to go: it was never published")
    assert bytes(memoryview(block)[144:152]) == bytes(8)
    del block


def test_a_get_that_was_cut_short_leaves_the_message_inside(here: World, manager: client.Manager) -> None:
    ring = RingBytes(manager, manager.create_ring())
    manager.bind(b"/ring", ring.block)
    block = manager.allocate(4096)
    hold, _mark = manager.ticket(block)
    ring.give(block, hold, ring.number, _native.HOLD_MESSAGE)
    ring.write_message(block, hold)
    ring.move(TAIL)
    triple = (block.segment, block.index, block.generation)
    child = start(here, manager, KILLED_IN_GET, *map(str, (*triple, hold)))
    del block
    kill(child)
    until(lambda: manager.stats().clients == 1 and not manager.stats().dying, "the dead to be reclaimed")
    assert manager.attach(*triple).nbytes == 4096
    assert manager.list()["rings"][0]["messages"] == 1
    ring.view.release()
    del ring
    until(lambda: manager.stats().live_blocks == 0, "the message to go with the ring")


def test_a_slot_is_not_reclaimed_while_a_ring_that_names_it_is_locked(here: World, manager: client.Manager) -> None:
    block = manager.create_ring()
    manager.bind(b"/ring", block)
    locker = start(here, manager, "ring = RingBytes(m, m.open(b'/ring')); ring.lock(PUT_LOCK)")
    kill(start(here, manager, KILLED_IN_PUT))
    until(lambda: manager.stats().dying == 1, "the death to be seen")
    kill(start(here, manager, "block = m.allocate(1)"))
    until(lambda: manager.stats().clients == 2 and manager.stats().dying == 1, "another dead client to be reclaimed")
    assert manager.stats().live_blocks == 2, "the ring and the block on its way into it"
    kill(locker)
    until(lambda: manager.stats().dying == 0, "the dead to be reclaimed once the lock can be had")
    until(lambda: manager.stats().live_blocks == 1, "the block to go")
    del block


def test_a_ring_that_was_written_over_holds_nobody_up(here: World, manager: client.Manager) -> None:
    block = manager.create_ring()
    manager.bind(b"/ring", block)
    code = (
        KILLED_IN_PUT + "ring.note(GET_UNDO, slot)\n"
        "for start, end in ((8, PUT_LOCK), (MESSAGES, MESSAGES + 4096)):\n"
        "    ring.view[start:end] = b'\\xff' * (end - start)\n"
    )
    kill(start(here, manager, code))
    until(lambda: manager.stats().clients == 1 and not manager.stats().dying, "the dead to be reclaimed")
    (row,) = manager.list()["rings"]
    assert row["ring"] == _native.FIRST_RING and row["max_messages"] == 0xFFFFFFFF
    assert "ring 8192" in here.command("ls").stdout
    del block
    until(lambda: manager.stats().live_blocks == 0, "what the ring held to go with it")


def test_a_death_between_a_message_and_its_signal_leaves_no_sleeper(here: World, manager: client.Manager) -> None:
    block = manager.create_ring()
    manager.bind(b"/ring", block)
    event = manager.event(block.segment)
    assert not is_readable(event)
    child = start(here, manager, "ring = RingBytes(m, m.open(b'/ring')); ring.move(TAIL)")
    assert not is_readable(event)
    kill(child)
    until(lambda: is_readable(event), "the event to be made readable")
    child = start(here, manager, "ring = RingBytes(m, m.open(b'/ring')); ring.move(HEAD)")
    assert is_readable(event)
    kill(child)
    until(lambda: not is_readable(event), "the event of the empty ring to be reset")
    os.close(event)
    del block


def test_an_event_is_one_for_all_and_knows_what_waits(manager: client.Manager) -> None:
    ring = RingBytes(manager, manager.create_ring())
    ring.move(TAIL)
    one, two = manager.event(ring.block.segment), manager.event(ring.block.segment)
    assert is_readable(one) and is_readable(two)
    assert os.read(two, 100) == b"\1"
    assert not is_readable(one)
    assert not os.get_blocking(one) and not os.get_inheritable(one)
    ring.move(HEAD)
    before = manager.stats().descriptors
    arena = manager.allocate(1)
    with pytest.raises(errors.InvalidArgument, match="not a ring"):
        manager.event(arena.segment)
    del arena
    segment = ring.block.segment
    ring.view.release()
    del ring
    until(lambda: manager.stats().rings == 0, "the ring to go")
    assert manager.stats().descriptors == before + 2 - 3, "an arena more; metadata, payload and event less"
    with pytest.raises(errors.StaleHandle):
        manager.event(segment)
    os.close(one)
    os.close(two)


def test_names_of_the_users_choice(manager: client.Manager) -> None:
    one, two = manager.allocate(1000), manager.allocate(1000)
    manager.bind(b"/a.b-C_9", one)
    assert manager.open(b"/a.b-C_9") is one
    manager.bind(b"/a.b-C_9", one)  # once more: it does already
    with pytest.raises(errors.NameTaken, match="another object"):
        manager.bind(b"/a.b-C_9", two)
    with pytest.raises(FileExistsError):
        manager.bind(b"/a.b-C_9", two)
    for wrong in (b"", b"name", b"/", b"/a/b", b"/" + b"x" * 63, b"/torch_", b"/torch_1_2"):
        with pytest.raises(errors.InvalidArgument):
            manager.bind(wrong, two)
    assert [row["name"] for row in manager.list()["names"]] == ["/a.b-C_9"]
    del one
    manager.bind(b"/a.b-C_9", two)
    assert manager.open(b"/a.b-C_9") is two
    manager.unexport(b"/a.b-C_9")
    with pytest.raises(errors.UnknownHandle):
        manager.open(b"/a.b-C_9")
    with pytest.raises(errors.StaleHandle):
        manager._request(protocol.Bind(two.segment, two.index, two.generation + 1, b"/a"))
    del two


def test_open_or_create_takes_over_the_name_of_what_is_gone(manager: client.Manager) -> None:
    block, made = naming.open_or_create(manager, b"/x", lambda: manager.allocate(64))
    assert made
    again, made = naming.open_or_create(manager, b"/x", lambda: pytest.fail("there is one"))
    assert again is block and not made
    del block, again
    block, made = naming.open_or_create(manager, b"/x", lambda: manager.allocate(32))
    assert made and block.nbytes == 32
    del block


def test_of_many_processes_at_once_one_makes_the_object(here: World, manager: client.Manager) -> None:
    code = (
        "import sys; from shmtensor.manager import client, naming; m = client.at(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    block, made = naming.open_or_create(m, line.strip().encode(), m.create_ring)\n"
        "    print(block.segment, int(made), flush=True)\n"
    )
    children = [here.script(code, os.fsdecode(manager.address)) for _ in range(4)]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for turn in range(10):
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"/turn-{turn}\n")
            child.stdin.flush()
        answers = [child.stdout.readline().split() for child in children if child.stdout is not None]
        assert len({segment for segment, _made in answers}) == 1, answers
        assert sorted(made for _segment, made in answers) == ["0", "0", "0", "1"]
    for child in children:
        kill(child)
    until(lambda: manager.stats().segments == 0, "the rings to go")


def test_ls_shows_rings_and_names(here: World, manager: client.Manager) -> None:
    ring = RingBytes(manager, manager.create_ring())
    block = manager.allocate(4096)
    hold_of_ring(manager, ring, block)
    manager.bind(b"/jobs", ring.block)
    text = here.command("ls").stdout
    assert f"ring {ring.number}" in text and f"messages in ring {ring.number}" in text and "/jobs" in text
    assert "1 of them rings" in here.command("status").stdout
    ring.move(HEAD)
    ring.view.release()
    del ring, block
