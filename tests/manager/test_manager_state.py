"""The manager's state: slots, deaths, orphans, names. A small stand-in for segment metadata can be locked."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.daemon import names, report
from shmtensor.manager.daemon import state as state_module
from shmtensor.manager.daemon.records import Refusal, Segment
from shmtensor.manager.daemon.rings import Ring
from shmtensor.manager.daemon.state import State


class SegmentMetadata:
    """Blocks with holders, as far as the state looks at them."""

    def __init__(self) -> None:
        # (block, generation) -> offset, size, holds
        self.held: dict[tuple[int, int], tuple[int, int, set[tuple[int, int]]]] = {}
        self.locked = False
        self.lock_slot = 0
        self.closed = False

    def add(self, block: int, offset: int, size: int, *holds: tuple[int, int], generation: int = 1) -> None:
        self.held[block, generation] = (offset, size, set(holds))

    def _drop(self, keep: object) -> int:
        count = 0
        for key, (_offset, _size, holds) in list(self.held.items()):
            gone = {hold for hold in holds if hold == keep or hold[0] == keep}
            count += len(gone)
            holds -= gone
            if not holds:
                del self.held[key]
        return count

    def _check(self) -> None:
        if self.locked:
            raise _native.LockBusy

    facts = _native.SegmentFacts((0, 0, 0, 1 << 20, False, False, b""))

    def release_holds(self, slot: int, group: object, rebuild: bool = False) -> int:
        self._check()
        return self._drop(slot)

    is_lent = False

    def has_ended(self, group: object) -> bool:
        return False

    def expire_tickets(self, seconds: float) -> int:
        self._check()
        return self._drop((0, _native.HOLD_TICKET)) if seconds == 0 else 0

    def live(self, block: int, generation: int) -> int | None:
        found = self.held.get((block, generation))
        return None if found is None else found[1]

    def stats(self) -> _native.SegmentStats:
        nbytes = sum(size for _offset, size, _holds in self.held.values())
        return _native.SegmentStats((len(self.held), nbytes, 1 << 20, self.lock_slot))

    def holders(self, limit: int, rows: int) -> _native.Holders:
        self._check()
        sums: dict[tuple[int, int], list[tuple[int, int]]] = {}
        oldest = []
        for (block, generation), (_offset, size, holds) in sorted(self.held.items()):
            for slot, kind in sorted(holds):
                sums.setdefault((slot, kind), []).append((size, size if len(holds) == 1 else 0))
                oldest.append(_native.HeldBlock((block, generation, size, slot, kind, 2.5)))
        rows = [
            _native.HolderSum((*key, len(sizes), *(sum(part) for part in zip(*sizes, strict=True)), 2.5))
            for key, sizes in sorted(sums.items())
        ]
        return _native.Holders((rows, oldest))

    def count_holds(self) -> _native.HoldKinds:
        kinds = [kind for _offset, _size, holds in self.held.values() for _owner, kind in holds]
        listed = (_native.HOLD_CLIENT, _native.HOLD_TICKET, _native.HOLD_MESSAGE, _native.HOLD_NAME)
        counts = [kinds.count(kind) for kind in listed]
        return _native.HoldKinds((*counts, 2.5 if counts[1] else 0.0))

    def blocks(self, limit: int = 1 << 22) -> list[_native.BlockFacts]:
        self._check()
        facts = _native.HoldFacts
        return [
            _native.BlockFacts(
                (block, offset, size, generation, [facts((slot, kind, 2.5)) for slot, kind in sorted(holds)])
            )
            for (block, generation), (offset, size, holds) in sorted(self.held.items())
        ]


class Memory:
    """A ring, as far as the state looks at it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages = 0
        self.unfinished: dict[int, list[int]] = {}  # slot -> segments of its transfer
        self.undone_with: list[tuple[int, dict[int, object]]] = []
        self.locked = False

    def names(self, slot: int) -> bool:
        return slot in self.unfinished

    def segments_to_undo(self, slot: int) -> list[int]:
        return self.unfinished[slot]

    def undo_transfers(self, slot: int, metadata: dict[int, object]) -> None:
        if self.locked:
            raise _native.LockBusy
        self.undone_with.append((slot, metadata))
        del self.unfinished[slot]

    def size(self) -> int:
        return self.messages

    def watch(self, event: int) -> None:
        pass

    def stats(self) -> _native.RingFacts:
        return _native.RingFacts((self.messages, 300, 100, 65536, 81920, 5, 0, 7, 1, 9, 4, 2, 0))

    def close(self) -> None:
        pass


class Outside:
    def __init__(self) -> None:
        self.destroyed: list[int] = []
        self.released: list[int] = []
        self.punched: list[tuple[int, int, int]] = []
        self.written: list[bytes] = []

    def destroy(self, segment: Segment) -> None:
        self.destroyed.append(segment.id)

    def release(self, segment: Segment) -> None:
        self.released.append(segment.id)

    def keep(self, segment: Segment) -> None:
        pass

    def punch(self, segment: Segment, offset: int, nbytes: int) -> None:
        self.punched.append((segment.id, offset, nbytes))

    def name(self, name: bytes, triple: tuple[int, int, int], giver: tuple[int, int]) -> None:
        self.written.append(name)

    def forget(self, name: bytes) -> None:
        self.written.remove(name)


CLIENT, TICKET, MESSAGE = _native.HOLD_CLIENT, _native.HOLD_TICKET, _native.HOLD_MESSAGE


class Fixture:
    def __init__(self) -> None:
        self.outside = Outside()
        self.group = _native.Group.create(1)
        self.group.lead()
        self.state = State(self.group, self.outside, 4)

    def segment(self, owner: int, nbytes: int = 1 << 20) -> SegmentMetadata:
        metadata = SegmentMetadata()
        self.state.add_segment(self.group.take_segment_number(), metadata, -1, nbytes, False, owner, b"")  # type: ignore[arg-type]
        return metadata

    def ring(self, *holders: int) -> tuple[Memory, SegmentMetadata]:
        metadata, memory = SegmentMetadata(), Memory(self.state.ring_number())
        metadata.add(0, 0, 1 << 30, *((slot, CLIENT) for slot in holders))
        self.state.add_ring(self.group.take_segment_number(), metadata, -1, Ring(memory))  # type: ignore[arg-type]
        return memory, metadata

    def kind(self, slot: int) -> int:
        return self.group.slot(slot).state


@pytest.fixture
def made() -> Iterator[Fixture]:
    yield Fixture()


def test_a_client_gets_a_slot_and_gives_it_back(made: Fixture) -> None:
    slot = made.state.add_client(123, 456)
    assert made.group.slot(slot) == (_native.SLOT_CLIENT, 123, 456, 0, 1)
    made.state.gone(slot)
    made.state.work()
    assert made.kind(slot) == _native.SLOT_FREE
    made.state.gone(slot)  # twice is harmless
    assert made.group.counters().reaped == 1


def test_more_clients_than_allowed_are_refused(made: Fixture) -> None:
    for number in range(4):
        made.state.add_client(number + 1, 1)
    with pytest.raises(Refusal, match="4 clients") as caught:
        made.state.add_client(9, 1)
    assert caught.value.code == protocol.LIMIT


def test_the_dead_release_what_they_hold_and_the_living_keep_theirs(made: Fixture) -> None:
    dead, alive = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(alive)
    metadata.add(0, 0, 64, (dead, CLIENT))
    metadata.add(1, 64, 64, (dead, CLIENT), (alive, CLIENT))
    made.state.gone(dead)
    made.state.work()
    assert set(metadata.held) == {(1, 1)}
    assert made.kind(dead) == _native.SLOT_FREE
    assert not made.outside.destroyed


def test_an_empty_segment_goes_with_its_owner(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    made.segment(slot).add(0, 0, 64, (slot, CLIENT))
    made.state.gone(slot)
    made.state.work()
    assert made.outside.destroyed == [1]
    with pytest.raises(Refusal, match="does not exist any more") as caught:
        made.state.segment(1)
    assert caught.value.code == protocol.STALE
    with pytest.raises(Refusal, match="never made") as caught:
        made.state.segment(2)
    assert caught.value.code == protocol.UNKNOWN


def test_an_orphan_lives_until_its_last_block_and_gives_its_gaps_back(
    made: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "SWEEP_SECONDS", 0.0)
    owner, reader = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(owner)
    metadata.add(0, 0, 64, (owner, CLIENT))
    metadata.add(1, 300_000, 1000, (reader, CLIENT))
    made.state.gone(owner)
    made.state.work()
    assert not made.outside.destroyed
    assert made.state.orphans == {1}
    assert made.outside.punched == [(1, 0, 299_008), (1, 303_104, (1 << 20) - 303_104)]
    metadata.held.clear()  # the reader releases it without telling anybody
    made.state.work()
    assert made.outside.destroyed == [1]
    assert made.state.next_work(monotonic()) is None


def test_what_is_in_flight_outlives_its_sender(made: Fixture) -> None:
    sender = made.state.add_client(1, 1)
    metadata = made.segment(sender)
    metadata.add(0, 0, 64, (0, TICKET))
    made.state.gone(sender)
    made.state.work()
    assert metadata.live(0, 1) == 64
    assert made.kind(sender) == _native.SLOT_FREE
    assert made.state.collect(-1.0).tickets == 0
    done = made.state.collect(0.0)
    assert (done.tickets, done.segments) == (1, 1)
    assert made.outside.destroyed == [1]


def test_a_locked_segment_is_tried_again_and_holds_up_nobody_else(
    made: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "RETRY_SECONDS", 0.0)
    dead, alive = made.state.add_client(1, 1), made.state.add_client(2, 1)
    locked, free = made.segment(alive), made.segment(alive)
    locked.add(0, 0, 64, (dead, CLIENT))
    free.add(0, 0, 64, (dead, CLIENT))
    locked.locked = True
    made.state.gone(dead)
    for _ in range(3):
        made.state.work()
    assert not free.held
    assert locked.held
    assert made.kind(dead) == _native.SLOT_DEAD, "the slot must not be given away while a hold names it"
    assert made.state.next_work(monotonic()) is not None
    locked.locked = False
    made.state.work()
    assert not locked.held
    assert made.kind(dead) == _native.SLOT_FREE


def test_an_embryo_becomes_a_client_or_dies(made: Fixture) -> None:
    parent = made.state.add_client(1, 1)
    metadata = made.segment(parent)
    first, _generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    second, _generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    for slot in (first, second):
        metadata.add(slot, 0, 64, (slot, CLIENT))
        made.state.add_embryo(slot, 1, parent)
    made.state.identify(first, 1, 50, 60, False)
    assert made.group.slot(first)[:3] == (_native.SLOT_CLIENT, 50, 60)
    made.state.embryo_gone(second, 1)
    made.state.work()
    assert made.kind(second) == _native.SLOT_FREE
    assert set(metadata.held) == {(first, 1)}


def test_an_embryo_that_was_never_announced_is_awaited_when_its_parent_dies(made: Fixture) -> None:
    parent, other = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(other)
    lost, generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    known, _generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    foreign, _generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, other)
    made.state.add_embryo(known, 1, parent)
    for slot in (lost, known, foreign):
        metadata.add(slot, 0, 64, (slot, CLIENT))
    made.state.gone(parent)
    made.state.work()
    assert made.kind(parent) == _native.SLOT_FREE
    assert lost in made.state.awaited and known not in made.state.awaited
    made.state.embryo_gone(lost, generation)
    made.state.work()
    assert made.kind(lost) == _native.SLOT_FREE
    assert made.kind(known) == made.kind(foreign) == _native.SLOT_EMBRYO
    assert set(metadata.held) == {(known, 1), (foreign, 1)}


def test_embryos_of_others_are_refused(made: Fixture) -> None:
    parent, other = made.state.add_client(1, 1), made.state.add_client(2, 1)
    slot, _generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    for wrong, sender in ((slot, other), (parent, parent), (0, parent), (_native.MAX_SLOTS, parent)):
        with pytest.raises(Refusal):
            made.state.add_embryo(wrong, 1, sender)
    made.state.add_embryo(slot, 1, parent)
    with pytest.raises(Refusal):
        made.state.add_embryo(slot, 1, parent)


def test_only_the_owner_returns_a_segment_and_only_an_empty_one(made: Fixture) -> None:
    owner, other = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(owner)
    metadata.add(0, 0, 64, (other, CLIENT))
    with pytest.raises(Refusal) as caught:
        made.state.return_segment(1, other)
    assert caught.value.code == protocol.DENIED
    with pytest.raises(Refusal, match="1 live block") as caught:
        made.state.return_segment(1, owner)
    assert caught.value.code == protocol.INVALID
    metadata.held.clear()
    made.state.return_segment(1, owner)
    assert made.outside.destroyed == [1]


def test_names(made: Fixture) -> None:
    slot = made.state.add_client(77, 1)
    metadata = made.segment(slot)
    metadata.add(3, 0, 640, (slot, CLIENT), generation=8)
    name = made.state.names.export(1, 3, 8, slot)
    assert name.startswith(b"/torch_77_")
    protocol.check_name(name)
    assert made.state.names.export(1, 3, 8, slot) == name
    assert made.state.names.lookup(name) == (1, 3, 8, 640)
    with pytest.raises(Refusal) as caught:
        made.state.names.export(1, 3, 7, slot)
    assert caught.value.code == protocol.STALE
    with pytest.raises(Refusal) as caught:
        made.state.names.lookup(b"/torch_77_1")
    assert caught.value.code == protocol.UNKNOWN
    metadata.held.clear()
    with pytest.raises(Refusal) as caught:
        made.state.names.lookup(name)
    assert caught.value.code == protocol.STALE
    made.state.names.unexport(name, slot)
    with pytest.raises(Refusal):
        made.state.names.unexport(name, slot)
    assert not made.state.names.by_name and not made.state.names.by_block


@pytest.mark.parametrize("bound", [True, False])
def test_who_may_take_a_name_back(made: Fixture, bound: bool) -> None:
    slot, other = made.state.add_client(77, 1), made.state.add_client(78, 1)
    made.segment(slot).add(3, 0, 640, (slot, CLIENT), (other, CLIENT))

    def name() -> bytes:
        if bound:
            made.state.names.bind(b"/x", 1, 3, 1, slot)
        return b"/x" if bound else made.state.names.export(1, 3, 1, slot)

    given = name()
    if bound:
        made.state.names.bind(given, 1, 3, 1, other)
    else:
        assert made.state.names.export(1, 3, 1, other) == given
    with pytest.raises(Refusal, match="pid 77") as caught:
        made.state.names.unexport(given, other)
    assert caught.value.code == protocol.DENIED
    assert made.state.names.lookup(given)[1] == 3
    made.state.names.unexport(given, slot)
    given = name()
    made.state.gone(slot)
    assert made.state.names.lookup(given)[1] == 3
    made.state.names.unexport(given, other)
    assert not made.state.names.by_name and not made.state.names.givers


def test_names_of_dead_blocks_are_purged_when_the_table_doubles(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    metadata = made.segment(slot)
    for block in range(names.PURGE_NAMES):
        metadata.add(block, 0, 1, (slot, CLIENT))
        made.state.names.export(1, block, 1, slot)
    metadata.held.clear()
    metadata.add(7, 0, 1, (slot, CLIENT), generation=2)
    made.state.names.export(1, 7, 2, slot)
    assert len(made.state.names.by_name) == len(made.state.names.by_block) == 1


def test_the_listing_says_who_holds_what_and_what_is_in_flight(made: Fixture) -> None:
    slot = made.state.add_client(10, 20)
    metadata = made.segment(slot)
    metadata.add(0, 0, 100, (slot, CLIENT), (0, TICKET))
    metadata.add(1, 128, 50, (slot, CLIENT))
    made.state.names.export(1, 0, 1, slot)
    document = report.listing(made.state)
    assert document["clients"] == [
        {"slot": slot, "pid": 10, "start_time": 20, "state": "client", "parent": 0, "reserved_bytes": 0}
    ]
    (segment,) = document["segments"]
    assert (segment["live_blocks"], segment["live_bytes"], segment["owner"], segment["names"]) == (2, 150, slot, 1)
    assert segment["holders"] == [
        {
            "slot": 0,
            "ring": None,
            "kind": "ticket",
            "blocks": 1,
            "bytes": 100,
            "unshared_bytes": 0,
            "oldest_seconds": 2.5,
        },
        {
            "slot": slot,
            "ring": None,
            "kind": "client",
            "blocks": 2,
            "bytes": 150,
            "unshared_bytes": 50,
            "oldest_seconds": 2.5,
        },
    ]
    assert document["in_flight"] == [
        {"segment": 1, "block": 0, "generation": 1, "bytes": 100, "slot": 0, "age_seconds": 2.5}
    ]
    assert [(row["block"], row["bytes"], row["slot"], row["ring"], row["kind"]) for row in document["holds"]] == [
        (0, 100, slot, None, "client"),
        (1, 50, slot, None, "client"),
    ]
    assert segment["lock_slot"] is None
    metadata.locked, metadata.lock_slot = True, slot
    (segment,) = report.listing(made.state)["segments"]
    assert segment["busy"] and segment["holders"] is None and segment["lock_slot"] == slot


def test_a_listing_divides_its_rows_among_owners(made: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SHOW_HOLDS", 5)
    many, few = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata, other = made.segment(many), made.segment(many)
    for block in range(9):
        metadata.add(block, 64 * block, 64, (many, CLIENT))
    other.add(0, 0, 64, (few, CLIENT))
    rows = report.listing(made.state)["holds"]
    assert [row["slot"] for row in rows].count(few) == 1 and len(rows) == 5


def test_a_listing_walks_a_bounded_number_of_blocks(made: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "WALK_HOLDS", 3)
    monkeypatch.setattr(report, "WALK_LISTING", 5)
    owner = made.state.add_client(1, 1)
    for count in (3, 4, 3, 2):
        metadata = made.segment(owner)
        for block in range(count):
            metadata.add(block, 64 * block, 64, (owner, CLIENT))
    walked = [row["holders"] is not None for row in report.listing(made.state)["segments"]]
    assert walked == [True, False, False, True]


def test_many_deaths_are_worked_off_in_turns(made: Fixture) -> None:
    slots = [made.state.add_client(number + 1, 1) for number in range(4)]
    for slot in slots:
        for _ in range(20):
            made.segment(slot).add(0, 0, 64, (slot, CLIENT))
    for slot in slots:
        made.state.gone(slot)
    turns = 0
    while made.state.next_work(monotonic()) == 0.0:
        made.state.work(0.0)
        turns += 1
    assert turns > 1
    assert len(made.outside.destroyed) == 80
    assert made.group.occupied() == [0]


def test_the_dead_keep_what_they_hold_until_their_transfers_are_undone(made: Fixture) -> None:
    dead, alive = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(alive)
    metadata.add(0, 0, 64, (dead, MESSAGE))
    other, _ = made.ring(alive)
    memory, ring_metadata = made.ring(dead, alive)
    memory.unfinished[dead] = [1, 99]
    memory.locked = True
    made.state.gone(dead)
    for _ in range(3):
        made.state.work()
    assert made.state.dying == 1
    assert made.kind(dead) == _native.SLOT_DEAD
    assert (0, 1) in metadata.held and (dead, CLIENT) in ring_metadata.held[0, 1][2]
    wait = made.state.next_work(monotonic())
    assert wait is not None and 0 <= wait <= state_module.RETRY_SECONDS
    memory.locked = False
    made.state._retry_at = 0.0
    made.state.work()
    assert memory.undone_with == [(dead, {1: metadata, 99: None})] and not other.undone_with
    assert made.state.dying == 0
    assert made.kind(dead) == _native.SLOT_FREE
    assert not metadata.held and ring_metadata.held[0, 1][2] == {(alive, CLIENT)}


def test_a_ring_that_nobody_holds_gives_its_messages_back_and_then_its_number(
    made: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "SWEEP_SECONDS", 0.0)
    sender = made.state.add_client(1, 1)
    one, two = made.segment(sender), made.segment(sender)
    (memory, ring), (kept, _) = made.ring(sender), made.ring(sender)
    assert (memory.number, kept.number) == (_native.FIRST_RING, _native.FIRST_RING + 1)
    one.add(0, 0, 64, (memory.number, MESSAGE))
    one.add(1, 64, 64, (kept.number, MESSAGE))
    two.add(0, 0, 64, (memory.number, MESSAGE), (sender, CLIENT))
    made.state.work()
    assert len(one.held) == 2
    ring.held.clear()
    two.locked = True
    made.state.work()
    made.state.work()
    assert set(one.held) == {(1, 1)}
    assert not made.outside.destroyed, "destroyed before its messages' holds were released"
    assert made.state.ring_number() == kept.number + 1, "the number was free before its holds were"
    assert made.state.dying == 0, "a ring is no slot"
    two.locked = False
    made.state._retry_at = 0.0
    made.state.work()
    assert two.held[0, 1][2] == {(sender, CLIENT)}
    assert made.outside.destroyed == [3]
    assert set(made.state.rings) == {kept.number}
    assert made.state.ring_number() == memory.number


def test_a_ring_ends_with_the_last_of_its_dead_holders(made: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SWEEP_SECONDS", 1e9)
    dead = made.state.add_client(1, 1)
    metadata = made.segment(dead)
    memory, _ = made.ring(dead)
    metadata.add(0, 0, 64, (memory.number, MESSAGE))
    made.state.gone(dead)
    made.state.work()
    assert sorted(made.outside.destroyed) == [1, 2]
    assert not made.state.rings and not made.state.orphans
    assert made.group.occupied() == [0]


def test_gc_leaves_the_end_of_a_ring_to_work(made: Fixture) -> None:
    owner = made.state.add_client(1, 1)
    metadata = made.segment(owner)
    memory, ring = made.ring(owner)
    metadata.add(0, 0, 64, (memory.number, MESSAGE))
    ring.held.clear()
    assert made.state.collect(-1.0).segments == 0
    assert not made.outside.destroyed and metadata.held
    made.state.work()
    assert made.outside.destroyed == [2] and not metadata.held


def test_what_a_client_holds_of_a_ring_can_be_returned(made: Fixture) -> None:
    maker, other = made.state.add_client(1, 1), made.state.add_client(2, 1)
    _, metadata = made.ring(maker, other)
    metadata.locked = True
    with pytest.raises(Refusal, match="locked"):
        made.state.return_segment(1, maker)
    metadata.locked = False
    made.state.return_segment(1, maker)
    assert metadata.held[0, 1][2] == {(other, CLIENT)}
    made.state.return_segment(1, other)
    made.state.work()
    assert made.outside.destroyed == [1]


def test_only_a_ring_has_an_event(made: Fixture) -> None:
    made.segment(made.state.add_client(1, 1))
    with pytest.raises(Refusal, match="not a ring") as caught:
        made.state.ring(1)
    assert caught.value.code == protocol.INVALID


def test_names_of_the_users_choice(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    metadata = made.segment(slot)
    metadata.add(0, 0, 64, (slot, CLIENT))
    metadata.add(1, 64, 32, (slot, CLIENT))
    made.state.names.bind(b"/queue", 1, 0, 1, slot)
    assert made.state.names.lookup(b"/queue") == (1, 0, 1, 64)
    made.state.names.bind(b"/queue", 1, 0, 1, slot)  # asked once more
    with pytest.raises(Refusal) as caught:
        made.state.names.bind(b"/queue", 1, 1, 1, slot)
    assert caught.value.code == protocol.EXISTS
    for name, triple, code in (
        (b"/torch_1_2", (1, 1, 1), protocol.INVALID),
        (b"/other", (1, 1, 2), protocol.STALE),
        (b"/other", (9, 1, 1), protocol.UNKNOWN),
    ):
        with pytest.raises(Refusal) as caught:
            made.state.names.bind(name, *triple, slot)
        assert caught.value.code == code
    made.state.names.bind(b"/again", 1, 0, 1, slot)  # a block may have several
    exported = made.state.names.export(1, 0, 1, slot)
    document = report.listing(made.state)
    assert [row["name"] for row in document["names"]] == ["/queue", "/again"]
    assert document["names_total"] == 2 and document["segments"][0]["names"] == 3
    del metadata.held[0, 1]
    made.state.names.bind(b"/queue", 1, 1, 1, slot)
    assert made.state.names.lookup(b"/queue") == (1, 1, 1, 32)
    assert made.state.names.purge() == 2
    assert set(made.state.names.by_name) == {b"/queue"} and not made.state.names.by_block
    with pytest.raises(Refusal):
        made.state.names.lookup(exported)
    made.state.names.unexport(b"/queue", slot)
    assert not made.state.names.by_name


def test_the_listing_shows_rings_and_what_their_messages_hold(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    metadata = made.segment(slot)
    memory, _ = made.ring(slot)
    memory.messages = 2
    metadata.add(0, 0, 64, (memory.number, MESSAGE))
    metadata.add(1, 64, 64, (slot, MESSAGE))
    document = report.listing(made.state)
    (row,) = document["rings"]
    assert (row["ring"], row["segment"], row["messages"], row["bytes"]) == (memory.number, 2, 2, 200)
    assert (row["put_messages"], row["got_messages"]) == (9, 4)
    assert (row["put_lock_slot"], row["get_lock_slot"]) == (2, None)
    arena, ring = document["segments"]
    assert [(who["slot"], who["ring"], who["kind"]) for who in arena["holders"]] == [
        (slot, None, "message"),
        (None, memory.number, "message"),
    ]
    assert arena["ring"] is None and ring["ring"] == memory.number
    assert ring["live_bytes"] == ring["reserved_bytes"] == ring["holders"][0]["bytes"] == 81920
    figures = report.figures(made.state)
    assert (figures["segments"], figures["rings"], figures["orphans"]) == (2, 1, 0)
    assert figures["holds"] == {"client": 1, "ticket": 0, "message": 2, "name": 0}


def test_numbers_of_rings_are_the_smallest_free_ones_and_run_out(
    made: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmtensor.manager.daemon.rings.LAST_RING", _native.FIRST_RING + 1)
    slot = made.state.add_client(1, 1)
    rings = [made.ring(slot) for _ in range(2)]
    with pytest.raises(Refusal, match="2 rings exist") as caught:
        made.state.ring_number()
    assert caught.value.code == protocol.LIMIT
    rings[1][1].held.clear()
    rings[0][1].held.clear()
    made.state.work()
    made.state.work()
    assert made.state.ring_number() == _native.FIRST_RING


def test_the_end_lets_go_without_wiping(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    made.segment(slot).add(0, 0, 64, (slot, CLIENT))
    made.state.release_all()
    assert made.outside.released == [1]
    assert not made.outside.destroyed and not made.outside.punched


# ------------------------------------------------------------------------------------------------------ taking over


def test_numbers_of_rings_that_end_before_everybody_is_back_are_given_out_once(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    made.state.is_complete = False
    memory, metadata = made.ring(slot)
    kept, _ = made.ring(slot)
    metadata.held.clear()
    made.state.work()
    assert set(made.state.rings) == {kept.number}
    third, _ = made.ring(slot)
    assert third.number > kept.number, "numbers wait"
    made.state.complete()
    made.state.work()
    assert [made.state.ring_number() for _ in range(2)] == [memory.number, third.number + 1]


def test_slots_of_the_dead_wait_until_everybody_is_back(made: Fixture) -> None:
    dead, other = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(other)
    metadata.add(0, 0, 64, (dead, CLIENT))
    made.state.is_complete = False
    made.state.gone(dead)
    made.state.work()
    assert not metadata.held, "memory does not wait"
    assert made.kind(dead) == _native.SLOT_DEAD
    made.state.complete()
    assert made.kind(dead) == _native.SLOT_FREE


def test_neither_an_embryo_nor_the_end_of_its_socket_says_anything_of_a_later_one(made: Fixture) -> None:
    parent = made.state.add_client(1, 1)
    slot, first = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    made.state.add_embryo(slot, first, parent)
    made.state.embryo_gone(slot, first)
    made.state.work()
    again, generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    while again != slot:
        again, generation = made.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
    made.state.add_embryo(slot, generation, parent)
    assert made.state.embryo_gone(slot, first) is None
    with pytest.raises(Refusal, match="was reclaimed"):
        made.state.identify(slot, first, 50, 60, False)
    assert made.kind(slot) == _native.SLOT_EMBRYO
    assert made.state.identify(slot, generation, 70, 80, False).pid == 70


def test_a_manager_that_was_followed_frees_no_slot_of_its_successors(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    made.state.gone(slot)
    second = State(_native.Group.open(made.group.fd), made.outside, 4)
    second.group.lead()
    after = State(second.group, made.outside, 4)
    after.take_over()
    made.state._free(slot)
    assert made.kind(slot) == _native.SLOT_DEAD, "its successor has still to reclaim it"
    second.group.leave()


def test_a_full_slot_table_refuses_clients(made: Fixture) -> None:
    with pytest.raises(LookupError):
        while True:
            made.group.claim(_native.SLOT_EMBRYO, 0, 0, 1)
    with pytest.raises(Refusal, match=r"the slot table is full: [0-9]+ clients and embryos") as caught:
        made.state.add_client(1, 1)
    assert caught.value.code == protocol.LIMIT


def test_a_slot_of_an_earlier_client_cannot_be_rejoined(made: Fixture) -> None:
    slot = made.state.add_client(1, 1)
    generation = made.group.slot(slot).generation
    client = made.state.rejoin(slot, generation)
    assert client is not None and client.slot == slot
    for number, born in ((slot, generation + 1), (slot + 1, generation), (0, 0), (_native.MAX_SLOTS, 1)):
        with pytest.raises(Refusal, match=f"slot {number} no longer belongs to a live client") as caught:
            made.state.rejoin(number, born)
        assert caught.value.code == protocol.DENIED


def test_a_locked_orphan_gives_its_gaps_back_later(made: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SWEEP_SECONDS", 0.0)
    owner, reader = made.state.add_client(1, 1), made.state.add_client(2, 1)
    metadata = made.segment(owner)
    metadata.add(0, 300_000, 1000, (reader, CLIENT))
    monkeypatch.setattr(metadata, "release_holds", lambda *_: 0)  # before it is locked
    metadata.locked = True
    made.state.gone(owner)
    made.state.work()
    assert made.state.orphans == {1} and not made.outside.punched
    metadata.locked = False
    made.state.work()
    assert made.outside.punched == [(1, 0, 299_008), (1, 303_104, (1 << 20) - 303_104)]
