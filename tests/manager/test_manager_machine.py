"""The manager's state under any order of events: a hypothesis state machine (state.py has the invariants)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_manager_state import Memory, Outside, SegmentMetadata

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.daemon import report
from shmtensor.manager.daemon import state as state_module
from shmtensor.manager.daemon.records import Refusal, Segment
from shmtensor.manager.daemon.rings import Ring
from shmtensor.manager.daemon.state import State

pytestmark = pytest.mark.any_python

Hold = tuple[int, int]
"""Owner and kind."""
WHICH = st.integers(0, 20)


class Manager(RuleBasedStateMachine):
    """Processes come, hold blocks, send them through rings, fork and die; segments and rings are locked at times."""

    def __init__(self) -> None:
        super().__init__()
        self.group = _native.Group.create(5)
        self.group.lead()
        self.outside = Outside()
        self.state = State(self.group, self.outside, 6)
        self.living: set[int] = set()
        self.children: dict[int, int] = {}  # announced embryo -> parent
        self.unannounced: dict[int, int] = {}
        self.abandoned: set[int] = set()  # unannounced, of a parent that died
        self.metadata: dict[int, SegmentMetadata] = {}  # of segments that were not destroyed
        self.named: dict[bytes, tuple[int, int, int]] = {}
        self.giver: dict[bytes, tuple[int, int]] = {}
        self.block = 0
        self.made: list[tuple[int, int, int]] = []

    def _pick(self, kind: str, which: int) -> Any:
        """One of those that are there now, or 0; no process, segment, ring or block has that number."""
        there: dict[str, list[Any]] = {
            "clients": sorted(self.living),
            "embryos": sorted(self.children.keys() | self.unannounced.keys()),
            "segments": [n for n, segment in self.state.segments.items() if segment.ring is None],
            "rings": sorted(self.state.rings),
            "blocks": self.made[-8:],
        }
        return there[kind][which % len(there[kind])] if there[kind] else (0, 0, 0) if kind == "blocks" else 0

    @initialize()
    def at_once(self) -> None:
        """Nothing is put off because of the time."""
        patch = pytest.MonkeyPatch()
        clock = itertools.count(1)
        patch.setattr(state_module, "monotonic", lambda: float(next(clock)))
        patch.setattr(state_module, "RETRY_SECONDS", 0.0)
        patch.setattr(state_module, "SWEEP_SECONDS", 0.0)
        self.patch = patch

    # ---------------------------------------------------------------------------------------------------- processes

    @rule(foreign=st.booleans())
    def hello(self, foreign: bool) -> None:
        try:
            slot = self.state.add_client(100, 7, foreign)
        except Refusal:
            assert len(self.state.clients) == 6
            return
        assert slot not in self.living | self.children.keys() | self.unannounced.keys() and slot != 0
        self.living.add(slot)

    @rule(parent=WHICH)
    def claim(self, parent: int) -> None:
        parent = self._pick("clients", parent)
        if parent not in self.living:
            return
        slot, _generation = self.group.claim(_native.SLOT_EMBRYO, 0, 0, parent)
        self.unannounced[slot] = parent

    @rule(slot=WHICH, parent=WHICH)
    def announce(self, slot: int, parent: int) -> None:
        """By the parent; by somebody else, or twice, it is refused."""
        slot = self._pick("embryos", slot)
        parent = self._pick("clients", parent)
        if parent not in self.living:
            return
        try:
            self.state.add_embryo(slot, self.group.slot(slot).generation, parent)
        except Refusal:
            assert self.unannounced.get(slot) != parent
        else:
            assert self.unannounced.pop(slot) == parent
            self.children[slot] = parent

    @rule(slot=WHICH)
    def born(self, slot: int) -> None:
        slot = self._pick("embryos", slot)
        if slot not in self.children:
            return
        del self.children[slot]
        self.state.identify(slot, self.group.slot(slot).generation, 200, 9, False)
        self.living.add(slot)

    @rule(slot=WHICH)
    def die(self, slot: int) -> None:
        """Told once or twice, of the living and of the long dead, of nobody at all."""
        slot = self._pick("embryos" if slot % 4 == 0 else "clients", slot // 4) if slot < 17 else slot
        self._end(slot)

    def _end(self, slot: int) -> None:
        known = slot in self.living or slot in self.children
        if slot in self.children:
            self.state.embryo_gone(slot, self.state.embryos[slot] >> 32)
        else:
            self.state.gone(slot)
        self.living.discard(slot)
        self.children.pop(slot, None)
        if known:
            for child in [child for child, parent in self.unannounced.items() if parent == slot]:
                self.abandoned.add(child)
                del self.unannounced[child]

    @rule()
    def give_up(self) -> None:
        """Nobody has the sockets of the embryos that were never announced."""
        for slot in self.state.awaited & self.abandoned:
            self.state.embryo_gone(slot, self.state.embryos[slot] >> 32)
            self.abandoned.remove(slot)

    @rule(slot=WHICH, state=st.sampled_from([0, 1, 2, 3, 4]), parent=st.integers(0, 9))
    def forge(self, slot: int, state: int, parent: int) -> None:
        """Somebody writes into the table what a living client is."""
        slot = self._pick("clients", slot)
        if slot not in self.living:
            return
        try:
            self.state.add_embryo(slot, self.group.slot(slot).generation, parent)
        except Refusal:
            pass
        else:
            raise AssertionError("a living client was taken for a child")

    # ------------------------------------------------------------------------------------------------------- memory

    @rule(owner=WHICH)
    def create(self, owner: int) -> None:
        owner = self._pick("clients", owner)
        if owner not in self.living:
            return
        metadata = SegmentMetadata()
        number = self.group.take_segment_number()
        segment = self.state.add_segment(number, metadata, 10, 1 << 30, False, owner, b"")  # type: ignore[arg-type]
        self.metadata[segment.id] = metadata

    @rule(owner=WHICH)
    def create_ring(self, owner: int) -> None:
        owner = self._pick("clients", owner)
        if owner not in self.living:
            return
        number = self.state.ring_number()
        assert number not in self.state.rings
        metadata = SegmentMetadata()
        metadata.add(0, 0, 4096, (owner, _native.HOLD_CLIENT))
        ring = Ring(Memory(number))  # type: ignore[arg-type]
        segment = self.state.add_ring(self.group.take_segment_number(), metadata, 11, ring)  # type: ignore[arg-type]
        self.metadata[segment.id] = metadata

    def _add(self, number: int, holds: set[Hold]) -> None:
        self.block += 1
        self.metadata[number].add(self.block, self.block * 65536, 65536, *holds)
        self.made.append((number, self.block, 1))

    def _is_owned(self, number: int) -> bool:
        segment = self.state.segments.get(number)
        return segment is not None and segment.owner in self.living

    @rule(number=WHICH, holder=WHICH)
    def allocate(self, number: int, holder: int) -> None:
        number = self._pick("segments", number)
        holder = self._pick("clients", holder)
        if not self._is_owned(number) or holder not in self.living:
            return
        self._add(number, {(holder, _native.HOLD_CLIENT)})

    @rule(number=WHICH, ring=WHICH)
    def put(self, number: int, ring: int) -> None:
        """A message inside a ring that somebody holds."""
        number = self._pick("segments", number)
        ring = self._pick("rings", ring)
        known = self.state.rings.get(ring)
        if not self._is_owned(number) or known is None or not self._held(self.metadata[known.segment]):
            return
        self._add(number, {(ring, _native.HOLD_MESSAGE)})

    @rule(number=WHICH)
    def send(self, number: int) -> None:
        number = self._pick("segments", number)
        if not self._is_owned(number):
            return
        self._add(number, {(0, _native.HOLD_TICKET)})

    @rule(slot=WHICH, ring=WHICH, number=WHICH)
    def stop_inside(self, slot: int, ring: int, number: int) -> None:
        """A transfer that is under way."""
        slot = self._pick("clients", slot)
        ring = self._pick("rings", ring)
        number = self._pick("segments", number)
        known = self.state.rings.get(ring)
        if slot in self.living and known is not None and self._held(self.metadata[known.segment]):
            memory: Any = known.memory
            memory.unfinished[slot] = [number]

    @rule(number=WHICH, locked=st.booleans())
    def lock(self, number: int, locked: bool) -> None:
        number = self._pick("rings" if number % 2 else "segments", number // 2)
        if number in self.state.rings:
            memory: Any = self.state.rings[number].memory
            memory.locked = locked
        elif number in self.metadata:
            self.metadata[number].locked = locked

    @rule(number=WHICH, slot=WHICH)
    def give_back(self, number: int, slot: int) -> None:
        number = self._pick("segments", number)
        slot = self._pick("clients", slot)
        if slot not in self.living:
            return
        try:
            self.state.return_segment(number, slot)
        except Refusal:
            segment = self.state.segments.get(number)
            assert segment is None or segment.owner != slot or self._held(self.metadata[number])

    # -------------------------------------------------------------------------------------------------------- names

    @rule(triple=WHICH, slot=WHICH)
    def export(self, triple: Any, slot: int) -> None:
        triple, slot = self._pick("blocks", triple), self._pick("clients", slot)
        if slot not in self.living:
            return
        try:
            name = self.state.names.export(*triple, slot)
        except Refusal:
            assert not self._is_live(triple)
        else:
            assert self._is_live(triple)
            self._note_name(name, triple, slot)

    def _note_name(self, name: bytes, triple: Any, slot: int) -> None:
        if self.named.get(name) != triple:
            self.giver[name] = slot, self.group.slot(slot).generation
        self.named[name] = triple

    @rule(triple=WHICH, slot=WHICH, name=st.sampled_from([b"/one", b"/two", b"/torch_1_2"]))
    def bind(self, triple: Any, slot: int, name: bytes) -> None:
        triple, slot = self._pick("blocks", triple), self._pick("clients", slot)
        if slot not in self.living:
            return
        try:
            self.state.names.bind(name, *triple, slot)
        except Refusal as problem:
            if problem.code == protocol.EXISTS:
                assert self._is_live(self.named[name])
            else:
                assert not self._is_live(triple) or name == b"/torch_1_2"
        else:
            assert self._is_live(triple)
            self._note_name(name, triple, slot)

    @rule(which=WHICH, forget=WHICH)
    def look_up(self, which: int, forget: int) -> None:
        if not self.named:
            return
        name = list(self.named)[which % len(self.named)]
        triple = self.named[name]
        try:
            assert self.state.names.lookup(name)[:3] == triple
        except Refusal as problem:
            assert not self._is_live(triple)
            assert problem.code in (protocol.STALE, protocol.UNKNOWN)
        else:
            assert self._is_live(triple)
        slot = self._pick("clients", forget)
        if slot in self.living:
            giver, generation = self.giver[name]
            lives = giver in self.living and self.group.slot(giver).generation == generation
            try:
                self.state.names.unexport(name, slot)
                assert giver == slot or not lives
            except Refusal as problem:
                if problem.code == protocol.DENIED:
                    assert giver != slot and lives
                    return
                assert not self._is_live(triple)  # purged before
            del self.named[name], self.giver[name]

    # --------------------------------------------------------------------------------------------------------- time

    @rule(seconds=st.sampled_from([0.5, 3.5, 1e9]))
    def work(self, seconds: float) -> None:
        """Each look at the clock takes a second."""
        self.state.work(seconds)

    @rule(seconds=st.sampled_from([-1.0, 0.0, 60.0]))
    def collect(self, seconds: float) -> None:
        self.state.collect(seconds)

    @rule()
    def look(self) -> None:
        listing = report.listing(self.state)
        assert len(listing["segments"]) == len(self.state.segments)
        assert report.figures(self.state)["clients"] == len(self.living)

    # --------------------------------------------------------------------------------------------------- invariants

    @staticmethod
    def _held(metadata: SegmentMetadata) -> bool:
        return bool(metadata.held)

    def _is_live(self, triple: tuple[int, int, int]) -> bool:
        return triple[0] in self.state.segments and self.metadata[triple[0]].live(*triple[1:]) is not None

    @invariant()
    def slots(self) -> None:
        state = self.state
        assert set(state.clients) == self.living and not state.unannounced
        assert state.embryos.keys() == self.children.keys() | state.awaited
        assert state.awaited <= self.unannounced.keys() | self.abandoned
        dying = (
            state._undo_pending
            | {owner for owner in state._left if owner < _native.FIRST_RING}
            | state._unchecked_parents
        )
        for slot in range(1, 64):
            kind, _pid, _start, parent, _generation = self.group.slot(slot)
            if slot in self.living:
                assert kind == _native.SLOT_CLIENT and slot not in dying
            elif slot in self.children or slot in self.unannounced:
                assert kind == _native.SLOT_EMBRYO and slot not in dying
            elif kind == _native.SLOT_EMBRYO:
                assert slot in self.abandoned
                assert parent in dying or slot in state.awaited, "an embryo that nobody knows"
            else:
                assert (kind == _native.SLOT_DEAD) == (slot in dying)

    @invariant()
    def names(self) -> None:
        assert all(self.state.names.by_name.get(name) == triple for triple, name in self.state.names.by_block.items())
        assert self.state.names.givers.keys() == self.state.names.by_name.keys()

    @invariant()
    def orphans(self) -> None:
        state = self.state
        assert state.orphans == {number for number, segment in state.segments.items() if segment.owner is None}
        assert all(
            s.owner is None or s.owner in self.living or not self._is_free(s.owner) for s in state.segments.values()
        )
        assert set(self.metadata) - set(state.segments) == set(self.outside.destroyed)

    def _is_free(self, slot: int) -> bool:
        return self.group.slot(slot).state == _native.SLOT_FREE

    @invariant()
    def rings_and_segments(self) -> None:
        state = self.state
        found = {s.ring.number: s for s in state.segments.values() if isinstance(s, Segment) and s.ring is not None}
        assert {number: ring.segment for number, ring in state.rings.items()} == {n: s.id for n, s in found.items()}

    @invariant()
    def nobody_inherits(self) -> None:
        """A hold names one who lives, one who is dying, the group, or a ring that is there."""
        dying = self.state._undo_pending | set(self.state._left)
        for number in self.state.segments:
            for _offset, _size, holds in self.metadata[number].held.values():
                for owner, kind in holds:
                    if kind == _native.HOLD_CLIENT:
                        assert owner in self.living or owner in dying
                    elif kind == _native.HOLD_MESSAGE:
                        assert owner in self.state.rings

    def teardown(self) -> None:
        """Everybody dies, nothing is locked any more: nothing is left but what is in flight."""
        for slot in [*self.living, *self.children]:
            self._end(slot)
        for metadata in self.metadata.values():
            metadata.locked = False
        for ring in self.state.rings.values():
            memory: Any = ring.memory
            memory.locked = False
        for _ in range(50):
            self.state.work(1e9)
            self.give_up()
        self.state.collect(0.0)
        self.state.work(1e9)
        for check in (self.slots, self.names, self.orphans, self.rings_and_segments, self.nobody_inherits):
            check()
        assert not self.state.segments and not self.state.rings and not self.state.dying
        assert self.group.occupied() == [0]
        self.patch.undo()


TestManager = Manager.TestCase
TestManager.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
