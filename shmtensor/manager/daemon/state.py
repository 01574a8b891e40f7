"""The manager's state: clients, segments, rings, the holds of dead clients. `names` is a part, `report` formats it.

The server reports events and asks for replies. Side effects (closing descriptors, giving pages back) go through the
`Outside` object given to the constructor. No call waits: a segment or ring that is locked is retried by a later
`work()`.

An *owner* of holds is a slot or a ring. A dead client is reclaimed in four steps:

    1. mark dead        its slot becomes DEAD
    2. undo transfers   its unfinished operations in rings are undone
    3. release holds    its holds are released, segment by segment; its segments become orphans
    4. free the slot    the slot becomes FREE

A ring without holders ends in the same way: its messages' holds are released in every segment, its own segment is
destroyed, and its number can be reused. The same applies to rings that are held only by messages in one another.

    SLOT   a slot is in `clients`, in `embryos` or in `_dead`, or FREE in the group table (the only exception is an
           embryo or forked child that was not announced: see `unannounced`)
    FENCE  a slot is changed only from the word that this manager knows, so a replaced manager changes nothing
    ORPHAN s in orphans  exactly when  segments[s].owner is None
    RING   rings[n] is r  exactly when  segments[r.segment].ring is r and r.number == n; its segment is an orphan
"""

from __future__ import annotations

from collections import deque
from errno import EDQUOT
from time import monotonic

from shmtensor._native import (
    FIRST_RING,
    FIRST_RING_BYTES,
    LAST_RING,
    MAX_SLOTS,
    RING_BYTES,
    SLOT_CLIENT,
    SLOT_DEAD,
    SLOT_EMBRYO,
    SLOT_FREE,
    LockBusy,
    end_unreached,
    set_threads_visible,
)
from shmtensor.manager import protocol
from shmtensor.manager.daemon.names import Names
from shmtensor.manager.daemon.records import Client, Refusal, Segment
from shmtensor.manager.daemon.rings import Numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmtensor._native import Group, SegmentMetadata
    from shmtensor.manager.daemon.records import BlockId, Outside
    from shmtensor.manager.daemon.rings import Ring

RETRY_SECONDS = 0.010
"""Delay before a locked segment or ring is tried again."""
SWEEP_SECONDS = 0.25
"""Interval between checks of orphans: the release of an orphan's last block is not reported."""
MAX_LOST_RINGS = 65_536
"""After a takeover, at most this many numbers of lost rings are recovered for reuse."""
WALK_BLOCKS = 65_536
"""A segment with more live blocks is not walked block by block, because all clients would wait meanwhile."""
WALK_HOLDS = 4 * WALK_BLOCKS
"""Nor is a segment with more holds, regardless of its number of live blocks."""
TRIM_BYTES = 65_536
"""Smaller gaps in an orphan keep their pages until it is destroyed."""
PAGE = 4_096
_NUMBERS = 2**32
"""Bound of block indices and generations."""


class State:
    """The state of one manager (see the module's description). Single-threaded; no call blocks."""

    def __init__(self, group: Group, outside: Outside, max_clients: int) -> None:
        self.group = group
        self.outside = outside
        self.max_clients = max_clients
        self.clients: dict[int, Client] = {}
        self.embryos: dict[int, int] = {}  # slot -> its word
        self.awaited: set[int] = set()  # embryos of whose socket this manager has no end
        self.segments: dict[int, Segment] = {}
        self.orphans: set[int] = set()
        self.rings: dict[int, Ring] = {}  # by number
        self._numbers = Numbers(group)
        self.names: Names = Names(self.clients, outside, self._live_bytes, self._check_live)
        self.unannounced: list[Client] = []  # clients found in the slot table that the server does not watch yet
        self._mark = group.epoch & 0xFFFFFF
        """Part of the word of each slot that this manager marks DEAD, so that its predecessor cannot free that slot."""
        self.is_complete: bool = True
        """False: clients of the previous manager may still reconnect with the segments in its last replies."""
        self._dead: dict[int, int] = {}  # slot -> its word, until it is free
        self._undo_pending: set[int] = set()  # dead slots whose transfers are still to be undone
        self._left: dict[int, int] = {}  # dying owner -> segments in which its holds are still to be released
        self._releases: deque[tuple[int, int]] = deque()  # (owner, segment)
        self._busy: deque[tuple[int, int]] = deque()
        self._unchecked_parents: set[int] = set()  # dead slots whose unannounced embryos have not been looked for yet
        self._look = False  # whether to look for unannounced clients
        self._retry_at = 0.0
        self._sweep_at = 0.0
        self._accounted = False  # whether the reserved bytes of slot 0 are up to date

    # ------------------------------------------------------------------------------------------------------- clients

    def add_client(self, pid: int, start_time: int, foreign: bool = False) -> int:
        """Give a slot to a process that said HELLO; returns its index. Raises Refusal."""
        if len(self.clients) >= self.max_clients:
            raise Refusal(
                protocol.LIMIT,
                f"this manager already has its maximum of {self.max_clients} clients; raise --max-clients or end some",
            )
        try:
            # At first an embryo without a parent: a CLIENT slot always names its process.
            while self._knows((claimed := self.group.claim(SLOT_EMBRYO, 0, 0)).slot):
                pass  # the table is shared: a slot that is free there may be known here
        except LookupError:
            raise Refusal(
                protocol.LIMIT,
                f"the slot table is full: {len(self.group.occupied())} clients and embryos; end some clients",
            ) from None
        return self.identify(claimed.slot, claimed.generation, pid, start_time, foreign).slot

    def _add_client(self, slot: int, pid: int, start_time: int, foreign: bool, detached: bool = False) -> Client:
        client = self.clients[slot] = Client(slot, self.group.word(slot), pid, start_time, foreign, detached)
        return client

    def _add_unseen(self, slot: int) -> Client:
        """Register a client that has no connection here, from its entry in the slot table."""
        facts = self.group.slot(slot)
        return self._add_client(slot, facts.pid, facts.start_time, foreign=not facts.start_time, detached=True)

    def _knows(self, slot: int) -> bool:
        return slot in self.clients or slot in self.embryos or slot in self._dead

    def add_embryo(self, slot: int, generation: int, parent: int) -> None:
        """Record that `parent` is creating a child in `slot`. Raises Refusal."""
        try:
            facts = self.group.slot(slot)
        except IndexError:
            raise Refusal(protocol.INVALID, f"slot {slot} does not exist") from None
        # A forked child turns its slot into a client by itself, possibly before the announcement arrives.
        known = self.clients.get(slot)
        claimed = facts.state == SLOT_CLIENT and (known is None or known.detached)
        claimed = claimed or (facts.state == SLOT_EMBRYO and facts.parent == parent)
        is_announced = slot in self.embryos and slot not in self.awaited
        if not claimed or generation != facts.generation or is_announced or slot in self._dead:
            raise Refusal(protocol.INVALID, f"slot {slot} is not an unannounced embryo of slot {parent}")
        self.awaited.discard(slot)
        if known is None:
            self.embryos[slot] = self.group.word(slot)

    def is_connected(self, slot: int, generation: int) -> bool:
        """Whether the client of that slot and generation has a connection of its own."""
        client = self.clients.get(slot)
        return client is not None and not client.detached and self.group.slot(slot).generation == generation

    def identify(self, slot: int, generation: int, pid: int, start_time: int, foreign: bool) -> Client:
        """Assign the slot of that generation, an embryo or a client, to this process, which is now connected.

        Raises Refusal: the slot was reclaimed.
        """
        for _ in range(2):  # twice, because a forked child may turn its slot into a client in between
            word = self.group.word(slot)
            facts = self.group.slot(slot)
            is_living = facts.state in (SLOT_CLIENT, SLOT_EMBRYO)
            if not is_living or facts.generation != generation or word >> 32 != generation:
                break
            # The next manager reads the pid from the word; clients use the one below, valid in their own /proc.
            if self.group.move(slot, word, SLOT_CLIENT, pid):
                self.group.name(slot, 0 if foreign else pid, 0 if foreign else start_time)
                self.embryos.pop(slot, None)
                self.awaited.discard(slot)
                return self._add_client(slot, pid, start_time, foreign)
        raise Refusal(protocol.DENIED, f"slot {slot} was reclaimed before its process connected; start another process")

    def rejoin(self, slot: int, generation: int) -> Client | None:
        """Return the client of that slot and generation, or None for an embryo. Raises Refusal if it is neither.

        The client may be unknown to this manager so far.
        """
        facts = self.group.slot(slot) if 0 < slot < MAX_SLOTS and slot not in self._dead else None
        if facts is None or facts.generation != generation or facts.state not in (SLOT_CLIENT, SLOT_EMBRYO):
            raise Refusal(
                protocol.DENIED,
                f"slot {slot} no longer belongs to a live client: it was reclaimed because its process was considered "
                "dead, or connected too late; restart the process",
            )
        if facts.state == SLOT_EMBRYO:
            self.embryos[slot] = self.group.word(slot)
            return None
        self.embryos.pop(slot, None)
        self.awaited.discard(slot)
        self._look = True  # it may have forked while it had no connection
        return self.clients.get(slot) or self._add_unseen(slot)

    def embryo_gone(self, slot: int, generation: int) -> Client | None:
        """No process has the socket of that embryo any more; returns the client if the child has become one."""
        if self.embryos.get(slot, 0) >> 32 != generation:  # a later embryo has the slot
            return None
        word = self.embryos.pop(slot)
        self.awaited.discard(slot)
        if self._mark_dead(slot, word):
            return None
        self._look = True
        facts = self.group.slot(slot)
        is_client = facts.state == SLOT_CLIENT and facts.generation == generation
        return self._add_unseen(slot) if is_client else None

    def gone(self, slot: int) -> None:
        """Mark the client in `slot` dead; `work()` then releases everything it holds."""
        client = self.clients.pop(slot, None)
        if client is not None and (self._mark_dead(slot, client.word) or self._mark_dead(slot, self.group.word(slot))):
            self._unchecked_parents.add(slot)  # the second call, if it has overwritten its own slot
            self.group.count_reaped()

    def _mark_dead(self, slot: int, word: int) -> bool:
        """Set the slot to DEAD and start to reclaim it. False: its word is not `word` any more."""
        if not self.group.move(slot, word, SLOT_DEAD, self._mark):
            return False
        self._dead[slot] = self.group.word(slot)
        self.group.end_timelines(slot, word >> 32)
        for ring in self.rings.values():
            ring.show()  # the client may have put or taken a message without updating the event
        self._undo_pending.add(slot)
        self._retry_at = 0.0
        return True

    def _find_unannounced(self) -> None:
        """Find children that were not announced: clients unknown to this manager, and embryos that may connect."""
        parents, self._unchecked_parents = self._unchecked_parents, set()
        self._look = False
        for slot in self.group.occupied():
            facts = self.group.slot(slot)
            if slot == 0 or self._knows(slot):
                continue
            if facts.state == SLOT_CLIENT:
                self.unannounced.append(self._add_unseen(slot))
            elif facts.state == SLOT_DEAD or (facts.state == SLOT_EMBRYO and facts.parent == 0):
                self._mark_dead(slot, self.group.word(slot))
            elif facts.state == SLOT_EMBRYO:
                self._await(slot)
        for slot in parents:
            if self.is_complete and slot in self._dead and slot not in self._undo_pending and slot not in self._left:
                self._free(slot)

    def _await(self, slot: int) -> None:
        self.embryos[slot] = self.group.word(slot)
        self.awaited.add(slot)

    def _free(self, slot: int) -> None:
        """Free a dead slot that nothing refers to any more."""
        self._account()  # the bytes that the slot counted for are now charged to slot 0
        self.group.name(slot, 0, 0)
        self.group.move(slot, self._dead.pop(slot), SLOT_FREE)

    # ---------------------------------------------------------------------------------------------------- taking over

    def take_over(self) -> list[Client]:
        """Start from the slot table that the previous manager left; returns the clients that may be alive."""
        found = []
        self.is_complete = False
        for slot in self.group.occupied():
            facts = self.group.slot(slot)
            if facts.state == SLOT_CLIENT:
                found.append(self._add_unseen(slot))
            elif facts.state == SLOT_DEAD or (facts.state == SLOT_EMBRYO and facts.parent == 0):
                self._mark_dead(slot, self.group.word(slot))  # an embryo whose HELLO was never answered
            elif facts.state == SLOT_EMBRYO:
                self._await(slot)
        return found

    def adopt_segment(self, metadata: SegmentMetadata, payload: int, name: bytes, ring: Ring | None) -> Segment | None:
        """Register a segment that the previous manager made. None: it was retired, or is known already."""
        facts = metadata.facts
        number = facts.segment
        if facts.retired or number in self.segments or not 0 < number < self.group.next_segment:
            return None
        slot = self.group.slot(facts.owner) if facts.owner < MAX_SLOTS else None
        alive = slot is not None and slot.state == SLOT_CLIENT and slot.generation == facts.generation
        owner = facts.owner if alive else None
        segment = Segment(
            number, metadata, payload, facts.payload_bytes, facts.dedicated, owner, name, ring, facts.device
        )
        if ring is not None:
            # This is too late if the ring was counted as lost and its messages' holds were released.
            if ring.number in self.rings or self.is_complete:
                return None
            ring.segment = number
            self.rings[ring.number] = ring
        self.segments[number] = segment
        if not alive:
            self.orphans.add(number)
        for dead in {*self._dead, *self._left}:
            if dead not in self._undo_pending:
                self._left[dead] = self._left.get(dead, 0) + 1
                self._releases.append((dead, number))
        self.outside.keep(segment)
        return segment

    def pass_on(self, successor: State) -> None:
        """Pass all segments to the state of the next manager in the same process."""
        for segment in self.segments.values():
            if successor.adopt_segment(segment.metadata, segment.payload, segment.name, segment.ring) is None:
                self.outside.release(segment)  # it was destroyed already
        self.segments.clear()

    def complete(self) -> None:
        """End the recovery: each segment of the previous manager has been found, or is lost.

        Slots of clients that died meanwhile become free, and `work()` releases the holds of lost rings.
        """
        if self.is_complete:
            return
        self.is_complete = True
        for slot in list(self._dead):
            if slot not in self._undo_pending and slot not in self._left and slot not in self._unchecked_parents:
                self._free(slot)
        for number in range(FIRST_RING, min(self.group.next_ring, LAST_RING + 1, FIRST_RING + MAX_LOST_RINGS)):
            if number not in self.rings and number not in self._left:
                self._release(number)

    def _undo_transfers(self, slot: int) -> bool:
        """Undo what a dead slot left unfinished in rings. False: a ring is locked; try again later."""
        for ring in self.rings.values():
            if not ring.memory.names(slot):
                continue
            metadata: dict[int, SegmentMetadata | None] = {}
            for number in ring.memory.segments_to_undo(slot):
                segment = self.segments.get(number)
                metadata[number] = None if segment is None else segment.metadata
            try:
                ring.memory.undo_transfers(slot, metadata)
            except LockBusy:
                return False
        return True

    def _release(self, owner: int) -> None:
        """Start to release the holds of `owner` in every segment: a dead slot, or a ring without holders."""
        numbers: Iterable[int] = self.segments
        if owner >= FIRST_RING:  # most rings never were in a message
            numbers = [number for number, one in self.segments.items() if one.ring is None or one.metadata.is_lent]
        before = len(self._releases)
        self._releases.extend((owner, number) for number in numbers)
        self._left[owner] = len(self._releases) - before
        if not self._left[owner]:
            self._released(owner)

    def _released(self, owner: int) -> None:
        del self._left[owner]
        if owner >= FIRST_RING:
            if owner in self.rings:
                self._destroy(self.segments[self.rings[owner].segment])
            else:
                self._give_back_number(owner)  # a lost ring: only its number is left
        # A parent's slot stays DEAD until its unannounced embryos are found; otherwise its next owner would be their
        # parent.
        elif owner not in self._unchecked_parents and self.is_complete:
            self._free(owner)

    def _account(self) -> None:
        """If there is a quota, charge slot 0 with the reserved bytes of rings and orphans."""
        self._accounted = True
        if not self.group.quotas().max_bytes:
            return
        known = self.group.reserved(0)
        found = sum(self.segments[number].host_bytes for number in self.orphans)
        if found != known:
            self.group.account(known, found)  # no effect if a ring grew just now; corrected the next time

    def charge_ring(self) -> None:
        """If there is a quota, charge it with a ring that is about to be made. Raises Refusal."""
        if not self.group.quotas().max_bytes:
            return
        refused = self.group.charge(FIRST_RING_BYTES)
        self._accounted = False
        if refused is not None:
            bound = self.group.quotas().max_bytes
            raise Refusal(
                protocol.LIMIT,
                f"no shared memory for a queue of {FIRST_RING_BYTES} bytes: limit hit: {refused.limit} ({bound} bytes, "
                f"{refused.left} of them free); release tensors or queues, or raise the limit",
                EDQUOT,
            )

    def work(self, seconds: float = 0.005) -> None:
        """Continue to reclaim dead clients, for about `seconds` at most. Raises PermissionError: we were replaced."""
        now = monotonic()
        deadline = now + seconds
        if self._unchecked_parents or self._look:
            self._find_unannounced()
        if self._releases or self._busy or self._undo_pending or self.orphans:
            set_threads_visible(not any(client.foreign for client in self.clients.values()) and not self.embryos)
        if (self._busy or self._undo_pending) and now >= self._retry_at:
            self._retry_at = now + RETRY_SECONDS
            self._releases.extend(self._busy)
            self._busy.clear()
            for slot in list(self._undo_pending):
                if self._undo_transfers(slot):
                    self._undo_pending.discard(slot)
                    self._release(slot)
                if monotonic() > deadline:
                    self._retry_at = now
                    break
        count = 0
        while self._releases:
            owner, number = self._releases.popleft()
            self._release_in(owner, number)
            count += 1
            if count % 16 == 0 and monotonic() > deadline:
                break
        if self.orphans and now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            for number in list(self.orphans):
                self._tidy(self.segments[number])
            self._end_unreached()
            self._accounted = False
        if not self._accounted:
            self._account()

    def _release_in(self, owner: int, number: int) -> None:
        segment = self.segments.get(number)
        if segment is not None:
            try:
                # No process allocates from an orphan: its totals are derived again from its holds.
                segment.metadata.release_holds(owner, self.group, segment.owner in (owner, None))
            except LockBusy:
                self._busy.append((owner, number))
                return
            if segment.owner == owner:
                segment.owner = None
                self.orphans.add(number)
                self._accounted = False
            if segment.owner is None:
                self._tidy(segment)
        self._left[owner] -= 1
        if not self._left[owner]:
            self._released(owner)

    def next_work(self, now: float) -> float | None:
        """Seconds until `work()` has something to do; None: not before the next event."""
        if self._releases or self._unchecked_parents or self._look:
            return 0.0
        waits = []
        if self._busy or self._undo_pending:
            waits.append(self._retry_at - now)
        if self.orphans:
            waits.append(self._sweep_at - now)
        return max(0.0, min(waits)) if waits else None

    @property
    def keeps_names(self) -> bool:
        """Whether any object is kept by a name, even without processes."""
        return any(self.segments[ring.segment].metadata.is_kept for ring in self.rings.values())

    @property
    def dying(self) -> int:
        """Number of slots whose holds are not all released yet."""
        return len(self._undo_pending) + sum(owner < FIRST_RING for owner in self._left)

    # ------------------------------------------------------------------------------------------------------ segments

    def add_segment(
        self,
        number: int,
        metadata: SegmentMetadata,
        payload: int,
        nbytes: int,
        dedicated: bool,
        owner: int,
        name: bytes,
        device: bytes = b"",
    ) -> Segment:
        """Register a new segment."""
        segment = self.segments[number] = Segment(
            number, metadata, payload, nbytes, dedicated, owner, name, None, device
        )
        self.outside.keep(segment)
        return segment

    def ring_number(self) -> int:
        """A number for a new ring. Raises Refusal."""
        try:
            return self._numbers.take()
        except LookupError as problem:
            raise Refusal(protocol.LIMIT, f"{problem}: {len(self.rings)} rings exist; release some queues") from None

    def ring_not_made(self, number: int) -> None:
        """Give back a number of `ring_number` whose ring could not be made."""
        self._give_back_number(number)

    def _give_back_number(self, number: int) -> None:
        if self.is_complete:  # before that, `complete` recovers it with the others
            self._numbers.give_back(number)

    def add_ring(self, number: int, metadata: SegmentMetadata, payload: int, ring: Ring) -> Segment:
        """Register a new ring. Its segment is an orphan from the start."""
        segment = self.segments[number] = Segment(number, metadata, payload, RING_BYTES, True, None, b"", ring)
        ring.segment = number
        self.rings[ring.number] = ring
        self.orphans.add(number)
        self.outside.keep(segment)
        return segment

    def ring(self, number: int) -> Ring:
        """Return the ring in a segment. Raises Refusal: it is not a ring."""
        ring = self.segment(number).ring
        if ring is None:
            raise Refusal(protocol.INVALID, f"segment {number} is not a ring, so it has no event")
        return ring

    def segment(self, number: int) -> Segment:
        """Return a segment by its id. Raises Refusal: STALE if it was destroyed, UNKNOWN if it never existed."""
        segment = self.segments.get(number)
        if segment is not None:
            return segment
        if 0 < number < self.group.next_segment:
            raise Refusal(
                protocol.STALE,
                f"segment {number} does not exist any more: all its blocks were freed, or its owner and the previous "
                "manager ended before another process had mapped it; ask its sender for a new handle",
            )
        raise Refusal(protocol.UNKNOWN, f"this manager never made a segment {number}")

    def return_segment(self, number: int, slot: int) -> None:
        """Take an empty segment back from its owner, or release a client's holds on a ring. Raises Refusal."""
        segment = self.segment(number)
        if segment.ring is not None:
            try:
                segment.metadata.release_holds(slot, self.group)
            except LockBusy:
                raise Refusal(
                    protocol.INVALID, f"ring {number} is locked by another process; return it again"
                ) from None
            self._tidy(segment)
            return
        if segment.owner != slot:
            raise Refusal(protocol.DENIED, f"segment {number} belongs to slot {segment.owner}, not to slot {slot}")
        left = segment.metadata.stats()
        if left.live_blocks:
            raise Refusal(
                protocol.INVALID,
                f"segment {number} still has {left.live_blocks} live blocks ({left.live_bytes} bytes); release them "
                "first",
            )
        self._destroy(segment)

    def _tidy(self, segment: Segment) -> None:
        """End an orphan without live blocks or an unreachable ring; give back the free pages of any other orphan."""
        live = segment.metadata.stats().live_blocks
        if not live or self._has_ended(segment):
            self._end(segment)
        elif segment.ring is None and not segment.device and live != segment.trimmed_at and live <= WALK_BLOCKS:
            try:
                blocks = segment.metadata.blocks(WALK_HOLDS)
            except LockBusy:
                return
            # No process allocates from an orphan, so free ranges stay free.
            end = 0
            for offset, nbytes in sorted((block.offset, block.nbytes) for block in blocks):
                self._give_back(segment, end, min(offset, segment.nbytes))
                end = max(end, offset + nbytes)
            self._give_back(segment, end, segment.nbytes)
            segment.trimmed_at = live

    def _has_ended(self, segment: Segment) -> bool:
        return segment.ring is not None and segment.metadata.has_ended(self.group)

    def _end_unreached(self) -> None:
        """End rings that are held only by messages in one another."""
        if not self.is_complete:  # a ring that is recovered later may hold any of them
            return
        segments = [self.segments[ring.segment] for ring in self.rings.values()]
        lent = [segment for segment in segments if segment.metadata.is_lent]
        if lent and end_unreached(
            self.group, [(one.ring.memory, one.metadata) for one in lent if one.ring is not None]
        ):
            for segment in lent:
                self._tidy(segment)

    def _end(self, segment: Segment) -> bool:
        """Destroy an unused orphan. False: a ring, which is destroyed once its messages' holds are released."""
        if segment.ring is None:
            self._destroy(segment)
        elif segment.ring.number not in self._left:
            # No process can reach the ring, so no message is put into it, and its number gets no further holds.
            self._release(segment.ring.number)
        return segment.id not in self.segments

    def _give_back(self, segment: Segment, start: int, end: int) -> None:
        start = (start + PAGE - 1) // PAGE * PAGE
        end = end // PAGE * PAGE
        if end - start >= TRIM_BYTES:
            self._accounted = False
            self.outside.punch(segment, start, end - start)

    def _destroy(self, segment: Segment) -> None:
        del self.segments[segment.id]
        self.orphans.discard(segment.id)
        self._accounted = False
        if segment.ring is not None:
            del self.rings[segment.ring.number]
            self._give_back_number(segment.ring.number)
        self.outside.destroy(segment)

    def release_all(self) -> None:
        """Close all descriptors when the manager ends. Clients keep what they map; a successor finds it there."""
        for segment in list(self.segments.values()):
            self.outside.release(segment)
        self.segments.clear()
        self.orphans.clear()
        self.rings.clear()

    def _live_bytes(self, triple: BlockId) -> int | None:
        """Return the size of a live block in bytes, else None. Clients and journals may give any numbers."""
        number, block, generation = triple
        segment = self.segments.get(number)
        if segment is None or self._has_ended(segment) or not (0 <= block < _NUMBERS and 0 <= generation < _NUMBERS):
            return None
        return segment.metadata.live(block, generation)

    def _check_live(self, triple: BlockId) -> None:
        """Raise Refusal unless the block is live."""
        number, block, generation = triple
        self.segment(number)
        if self._live_bytes(triple) is None:
            raise Refusal(protocol.STALE, f"block {block} of segment {number} (generation {generation}) is not live")

    def collect(self, seconds: float) -> protocol.Collected:
        """Release unused memory; with seconds >= 0 also holds that have been in flight for at least that time."""
        tickets = busy = count = freed = 0
        if seconds >= 0:
            whole = int(-(-min(seconds, 1e9) // 1))  # rounded up: nothing younger may be released
            for segment in self.segments.values():
                try:
                    tickets += segment.metadata.expire_tickets(whole)
                except LockBusy:
                    busy += 1
        self._end_unreached()
        for number in list(self.orphans):
            segment = self.segments[number]
            left = segment.metadata.stats()
            if not left.live_blocks and self._end(segment):
                count += 1
                freed += left.reserved_bytes
        return protocol.Collected(tickets, self.names.purge(), count, freed, busy)
