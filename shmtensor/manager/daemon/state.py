"""What the manager knows: clients, segments, rings, names, and what the dead still hold. `report` shows it.

The server tells it what happened and asks what to answer; what must be done outside (closing descriptors, giving pages
back) it asks for through the `Outside` it was made with. It never waits: a segment or ring that is locked is
tried again by a later `work()`.

An *owner* of holds is a slot or a ring. Undo first, then release: what a dead slot left unfinished in rings is undone
before anything it holds is released. A ring that nobody holds any more ends likewise: what its messages hold is
released in every segment, then its own segment goes, then its number may be another ring's. So do rings that only
messages in one another hold.

    SLOT   a slot is in `clients` or `embryos`, or dying (in `_dead`), or none of these and FREE in the group table (an
           embryo or forked child that was not announced is the one exception: `strangers`)
    NAME   names[n] == t  for each by_block[t] == n; the other names are those that users bound; givers has each name
    FENCE  a slot changes only from the word that this manager knows: one that was replaced changes nothing
    ORPHAN s in orphans  exactly when  segments[s].owner is None
    RING   rings[n] is r  exactly when  segments[r.segment].ring is r and r.number == n; its segment is an orphan
"""

from __future__ import annotations

from collections import deque
from errno import EDQUOT
from os import urandom
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
from shmtensor.manager.daemon.rings import Numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from shmtensor._native import Books, Group
    from shmtensor.manager.daemon.rings import Ring

    class Outside(Protocol):
        """What the state cannot do itself."""

        def destroy(self, segment: Segment) -> None:
            """Give back the memory, close the descriptors and unlink the name."""

        def release(self, segment: Segment) -> None:
            """Close the descriptors; whoever has it mapped keeps the memory, and its name stays."""

        def punch(self, segment: Segment, offset: int, nbytes: int) -> None:
            """Give back the pages of a range of the payload."""

        def name(self, name: bytes, triple: tuple[int, int, int], giver: tuple[int, int]) -> None:
            """Remember beyond this process that a name stands for a block, and who asked for it. Raises OSError."""

        def forget(self, name: bytes) -> None:
            """A name stands for nothing any more."""


RETRY_SECONDS = 0.010
"""A segment or ring that was locked is tried again after this."""
SWEEP_SECONDS = 0.25
"""Orphans are looked at this often: nobody tells when the last block of one is released."""
MOST_RINGS = 65_536
"""Numbers of lost rings beyond so many are never used again."""
WALK_BLOCKS = 65_536
"""Segments with more live blocks are not walked one by one, which would keep everyone waiting."""
WALK_HOLDS = 4 * WALK_BLOCKS
"""Nor are those with more holds, whatever they say of their blocks."""
TRIM_BYTES = 65_536
"""Smaller gaps in an orphan keep their pages until it is destroyed."""
PURGE_NAMES = 1_024
"""The table of names is never purged below this size."""
OWN_NAMES = b"/torch_"
"""How the names begin that the manager makes up."""
PAGE = 4_096
_NUMBERS = 2**32
"""Blocks of a segment, and their generations, have smaller numbers."""


class Refusal(Exception):
    """A request that is refused: a code of the protocol, a text for the user and a detail."""

    def __init__(self, code: int, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.detail = detail


class Client:
    """A process with a slot. `detached`: it has no connection, or none any more, but uses its memory.

    `pid` is 0 when it cannot be seen from here; then only its connection tells of its death. `foreign`: it lives in
    another PID namespace, or may: its threads have other numbers than we know.
    """

    __slots__ = ("detached", "foreign", "pid", "slot", "start_time", "word")

    def __init__(self, slot: int, word: int, pid: int, start_time: int, foreign: bool, detached: bool) -> None:
        self.slot = slot
        self.word = word
        self.pid = pid
        self.start_time = start_time
        self.foreign = foreign
        self.detached = detached


class Segment:
    """A segment: its books, the descriptor of its payload, and the slot that allocates from it (None: an orphan).

    `ring`: its payload is that ring.
    """

    __slots__ = ("books", "dedicated", "id", "name", "nbytes", "owner", "payload", "ring", "trimmed_at")

    def __init__(
        self,
        number: int,
        books: Books,
        payload: int,
        nbytes: int,
        dedicated: bool,
        owner: int | None,
        name: bytes,
        ring: Ring | None = None,
    ) -> None:
        self.id = number
        self.books = books
        self.payload = payload
        self.nbytes = nbytes
        self.dedicated = dedicated
        self.owner = owner
        self.name = name
        self.ring = ring
        self.trimmed_at = -1  # live blocks when its gaps were last given back

    @property
    def flags(self) -> int:
        return (
            (protocol.DEDICATED if self.dedicated else 0)
            | (protocol.NAMED if self.name else 0)
            | (protocol.RING if self.ring is not None else 0)
        )

    def figures(self) -> tuple[int, int, int]:
        """(live blocks, bytes in them, bytes reserved), just now. A ring counts for what it has reserved."""
        live, nbytes, reserved = self.books.stats()
        if self.ring is not None:
            reserved = self.ring.memory.stats()[4]
            nbytes = reserved if live else 0
        return live, nbytes, min(reserved, self.nbytes)


class State:
    """See the module. Single-threaded; no call blocks."""

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
        self.names: dict[bytes, tuple[int, int, int]] = {}
        self.by_block: dict[tuple[int, int, int], bytes] = {}
        self.givers: dict[bytes, tuple[int, int]] = {}  # name -> slot and generation of the client that asked for it
        self.strangers: list[Client] = []  # found, and still to be watched by the server
        self._mark = group.epoch & 0xFFFFFF
        """In the words of those this manager buries, so that one it has followed cannot free their slots."""
        self.is_complete = True
        """False: clients of the manager before may still bring what it had sent them last."""
        self._dead: dict[int, int] = {}  # slot -> its word, until it is free
        self._purge_at = PURGE_NAMES
        self._unsettled: set[int] = set()  # dead slots whose transfers are still to be undone
        self._left: dict[int, int] = {}  # dying owner -> segments still to be reaped of it
        self._reaps: deque[tuple[int, int]] = deque()  # (owner, segment)
        self._busy: deque[tuple[int, int]] = deque()
        self._childless: set[int] = set()  # dead slots whose unannounced embryos are still to be found
        self._look = False  # for strangers
        self._retry_at = 0.0
        self._sweep_at = 0.0
        self._accounted = False  # whether slot 0 counts what it should, as far as is known here

    # ------------------------------------------------------------------------------------------------------- clients

    def add_client(self, pid: int, start_time: int, foreign: bool = False) -> int:
        """A slot for a process that said hello. Raises Refusal."""
        if len(self.clients) >= self.max_clients:
            raise Refusal(
                protocol.LIMIT,
                f"this manager serves {self.max_clients} clients and has as many; raise --max-clients or let some end",
            )
        try:
            slot = generation = 0
            while not slot or self._knows(slot):  # the table says that a slot is free; others write there too
                # An embryo of nobody at first: a client always says who it is.
                slot, generation = self.group.claim(SLOT_EMBRYO, 0, 0)
        except LookupError:
            raise Refusal(
                protocol.LIMIT,
                f"the slot table is full: {len(self.group.occupied())} clients and embryos; let some end",
            ) from None
        return self.identify(slot, generation, pid, start_time, foreign).slot

    def _add_client(self, slot: int, pid: int, start_time: int, foreign: bool, detached: bool = False) -> Client:
        client = self.clients[slot] = Client(slot, self.group.word(slot), pid, start_time, foreign, detached)
        return client

    def _add_unseen(self, slot: int) -> Client:
        """Keep a client that has no connection here, by what the table says of it."""
        _kind, pid, start_time, _parent, _generation = self.group.slot(slot)
        return self._add_client(slot, pid, start_time, foreign=not start_time, detached=True)

    def _knows(self, slot: int) -> bool:
        return slot in self.clients or slot in self.embryos or slot in self._dead

    def add_embryo(self, slot: int, generation: int, parent: int) -> None:
        """Note that `parent` is making a child in `slot`. Raises Refusal."""
        try:
            kind, _pid, _start, claimed_by, born = self.group.slot(slot)
        except IndexError:
            raise Refusal(protocol.INVALID, f"there is no slot {slot}") from None
        # A forked child makes itself a client, and may be faster than the news of it.
        known = self.clients.get(slot)
        claimed = kind == SLOT_CLIENT and (known is None or known.detached)
        claimed = claimed or (kind == SLOT_EMBRYO and claimed_by == parent)
        is_announced = slot in self.embryos and slot not in self.awaited
        if not claimed or generation != born or is_announced or slot in self._dead:
            raise Refusal(protocol.INVALID, f"slot {slot} is not an unannounced embryo of slot {parent}")
        self.awaited.discard(slot)
        if known is None:
            self.embryos[slot] = self.group.word(slot)

    def is_connected(self, slot: int, generation: int) -> bool:
        """Whether that client is here, by a connection of its own."""
        client = self.clients.get(slot)
        return client is not None and not client.detached and self.group.slot(slot)[4] == generation

    def identify(self, slot: int, generation: int, pid: int, start_time: int, foreign: bool) -> Client:
        """The slot of that generation, an embryo or a client, is that of this process, which is connected now.

        Raises Refusal: it was taken back.
        """
        for _ in range(2):  # once more, for a forked child that has just made itself a client
            word = self.group.word(slot)
            kind, *_, now = self.group.slot(slot)
            if kind not in (SLOT_CLIENT, SLOT_EMBRYO) or now != generation or word >> 32 != generation:
                break
            # The next manager reads the process there; clients read below whom they can look for in their own /proc.
            if self.group.move(slot, word, SLOT_CLIENT, pid):
                self.group.name(slot, 0 if foreign else pid, 0 if foreign else start_time)
                self.embryos.pop(slot, None)
                self.awaited.discard(slot)
                return self._add_client(slot, pid, start_time, foreign)
        raise Refusal(protocol.DENIED, f"whoever comes for slot {slot} comes too late; start another process")

    def rejoin(self, slot: int, generation: int) -> Client | None:
        """The client of that generation; None: an embryo of it. Raises Refusal: it is neither.

        It may be one that this manager has not heard of yet.
        """
        kind, _pid, _start, _parent, now = self.group.slot(slot) if slot < MAX_SLOTS else (SLOT_FREE, 0, 0, 0, 0)
        if generation != now or kind not in (SLOT_CLIENT, SLOT_EMBRYO) or slot == 0 or slot in self._dead:
            raise Refusal(
                protocol.DENIED,
                f"slot {slot} is not that of a living client any more: it was taken for dead, or a child that came for "
                "it too late; restart the process",
            )
        if kind == SLOT_EMBRYO:
            self.embryos[slot] = self.group.word(slot)
            return None
        self.embryos.pop(slot, None)
        self.awaited.discard(slot)
        self._look = True  # it may have forked while it had no connection
        return self.clients.get(slot) or self._add_unseen(slot)

    def embryo_gone(self, slot: int, generation: int) -> Client | None:
        """Nobody has the socket of that embryo any more: it is dead, or the client that it made of itself."""
        if self.embryos.get(slot, 0) >> 32 != generation:  # of a later embryo there, that says nothing
            return None
        word = self.embryos.pop(slot)
        self.awaited.discard(slot)
        if self._bury(slot, word):
            return None
        self._look = True
        kind, *_, now = self.group.slot(slot)
        return self._add_unseen(slot) if kind == SLOT_CLIENT and now == generation else None

    def gone(self, slot: int) -> None:
        """The client in `slot` is dead: everything it holds will be released by `work()`."""
        client = self.clients.pop(slot, None)
        if client is not None and (self._bury(slot, client.word) or self._bury(slot, self.group.word(slot))):
            self._childless.add(slot)  # the second, should it have written over its own slot

    def _bury(self, slot: int, word: int) -> bool:
        """False: the slot's word has changed."""
        if not self.group.move(slot, word, SLOT_DEAD, self._mark):
            return False
        self._inter(slot)
        return True

    def _inter(self, slot: int) -> None:
        """`slot` is DEAD, and to be reaped."""
        self._dead[slot] = self.group.word(slot)
        for ring in self.rings.values():
            ring.show()  # the dead may have put or taken a message and not said so
        self._unsettled.add(slot)
        self._retry_at = 0.0

    def _look_for_strangers(self) -> None:
        """Find children that were not announced: clients that nobody told this manager of, embryos that may come."""
        parents, self._childless = self._childless, set()
        self._look = False
        for slot in self.group.occupied():
            kind, _pid, _start, parent, _generation = self.group.slot(slot)
            if slot == 0 or self._knows(slot):
                continue
            if kind == SLOT_CLIENT:
                self.strangers.append(self._add_unseen(slot))
            elif kind == SLOT_DEAD or (kind == SLOT_EMBRYO and parent == 0):
                self._bury(slot, self.group.word(slot))
            elif kind == SLOT_EMBRYO:
                self._await(slot)
        for slot in parents:
            if self.is_complete and slot in self._dead and slot not in self._unsettled and slot not in self._left:
                self._free(slot)

    def _await(self, slot: int) -> None:
        self.embryos[slot] = self.group.word(slot)
        self.awaited.add(slot)

    def _free(self, slot: int) -> None:
        """Nothing names the dead slot any more."""
        self._account()  # what the slot counted for is another's by now
        self.group.name(slot, 0, 0)
        self.group.move(slot, self._dead.pop(slot), SLOT_FREE)

    # ---------------------------------------------------------------------------------------------------- taking over

    def take_over(self) -> list[Client]:
        """Begin with what the group's table says, after another manager; gives those who may live."""
        found = []
        self.is_complete = False
        for slot in self.group.occupied():
            kind, _pid, _start, parent, _generation = self.group.slot(slot)
            if kind == SLOT_CLIENT:
                found.append(self._add_unseen(slot))
            elif kind == SLOT_DEAD or (kind == SLOT_EMBRYO and parent == 0):  # its HELLO was never answered
                self._bury(slot, self.group.word(slot))
            elif kind == SLOT_EMBRYO:
                self._await(slot)
        return found

    def adopt_segment(self, books: Books, payload: int, name: bytes, ring: Ring | None) -> Segment | None:
        """Keep a segment that the manager before had made. None: it was given up, or is here already."""
        number, owner, generation, nbytes, dedicated, retired = books.facts
        if retired or number in self.segments or not 0 < number < self.group.next_segment:
            return None
        kind, *_, now = self.group.slot(owner) if owner < MAX_SLOTS else (SLOT_FREE, 0)
        alive = kind == SLOT_CLIENT and now == generation
        segment = Segment(number, books, payload, nbytes, dedicated, owner if alive else None, name, ring)
        if ring is not None:
            # Too late, when what the ring's messages held has been released as that of a lost one.
            if ring.number in self.rings or self.is_complete:
                return None
            ring.segment = number
            self.rings[ring.number] = ring
        self.segments[number] = segment
        if not alive:
            self.orphans.add(number)
        for dead in {*self._dead, *self._left}:
            if dead not in self._unsettled:
                self._left[dead] = self._left.get(dead, 0) + 1
                self._reaps.append((dead, number))
        return segment

    def pass_on(self, heir: State) -> None:
        """Give all segments to the state of the next manager, which is in the same process."""
        for segment in self.segments.values():
            if heir.adopt_segment(segment.books, segment.payload, segment.name, segment.ring) is None:
                self.outside.release(segment)  # the last one had destroyed it
        self.segments.clear()

    def complete(self) -> None:
        """All that the manager before had sent has been found: now its numbers may be others'.

        Slots of those who died meanwhile become free, and what is held by rings that nobody has any more will be
        released by `work()`.
        """
        if self.is_complete:
            return
        self.is_complete = True
        for slot in list(self._dead):
            if slot not in self._unsettled and slot not in self._left and slot not in self._childless:
                self._free(slot)
        for number in range(FIRST_RING, min(self.group.next_ring, LAST_RING + 1, FIRST_RING + MOST_RINGS)):
            if number not in self.rings and number not in self._left:
                self._release(number)

    def adopt_names(self, names: dict[bytes, tuple[tuple[int, int, int], tuple[int, int]]]) -> None:
        """Keep the names of live blocks that the manager before gave out."""
        for name, (triple, giver) in names.items():
            if self._is_live(triple) is not None:
                self.names[name], self.givers[name] = triple, giver
                if name.startswith(OWN_NAMES):
                    self.by_block[triple] = name

    def _settle_transfers(self, slot: int) -> bool:
        """Undo what a dead slot left unfinished in rings. False: a ring is locked, and the slot must wait."""
        for ring in self.rings.values():
            if not ring.memory.names(slot):
                continue
            books: dict[int, Books | None] = {}
            for number in ring.memory.segments_to_undo(slot):
                segment = self.segments.get(number)
                books[number] = None if segment is None else segment.books
            try:
                ring.memory.settle(slot, books)
            except LockBusy:
                return False
        return True

    def _release(self, owner: int) -> None:
        """Begin to release what a settled slot, or a ring that nobody holds any more, holds in every segment."""
        numbers: Iterable[int] = self.segments
        if owner >= FIRST_RING:  # most rings never were in a message
            numbers = [number for number, one in self.segments.items() if one.ring is None or one.books.is_lent]
        before = len(self._reaps)
        self._reaps.extend((owner, number) for number in numbers)
        self._left[owner] = len(self._reaps) - before
        if not self._left[owner]:
            self._released(owner)

    def _released(self, owner: int) -> None:
        del self._left[owner]
        if owner >= FIRST_RING:
            if owner in self.rings:
                self._destroy(self.segments[self.rings[owner].segment])
            else:
                self._give_back_number(owner)  # nobody has it any more
        # A parent's slot stays DEAD until its unannounced embryos were found, or they would be its next owner's.
        elif owner not in self._childless and self.is_complete:
            self._free(owner)

    def _account(self) -> None:
        """Let slot 0 count what rings, and segments without an owner, have reserved, when there is a quota."""
        self._accounted = True
        if not self.group.quotas()[0]:
            return
        known = self.group.reserved(0)
        found = sum(self.segments[number].figures()[2] for number in self.orphans)
        if found != known:
            self.group.account(known, found)  # not if somebody made a ring larger just now; then the next time

    def charge_ring(self) -> None:
        """Count a ring that is about to be made, when there is a quota. Raises Refusal."""
        if not self.group.quotas()[0]:
            return
        refused = self.group.charge(FIRST_RING_BYTES)
        self._accounted = False
        if refused is not None:
            most, left = self.group.quotas()[0], refused[1]
            raise Refusal(
                protocol.LIMIT,
                f"no shared memory for a queue of {FIRST_RING_BYTES} bytes: limit hit: {refused[0]} ({most} bytes), of "
                f"which {left} are free; release tensors or drop queues, or raise the limit",
                EDQUOT,
            )

    def work(self, seconds: float = 0.005) -> None:
        """Go on with what deaths left to do, for at most about `seconds`. Raises PermissionError: we were replaced."""
        now = monotonic()
        deadline = now + seconds
        if self._childless or self._look:
            self._look_for_strangers()
        if self._reaps or self._busy or self._unsettled or self.orphans:
            set_threads_visible(not any(client.foreign for client in self.clients.values()) and not self.embryos)
        if (self._busy or self._unsettled) and now >= self._retry_at:
            self._retry_at = now + RETRY_SECONDS
            self._reaps.extend(self._busy)
            self._busy.clear()
            for slot in list(self._unsettled):
                if self._settle_transfers(slot):
                    self._unsettled.discard(slot)
                    self._release(slot)
                if monotonic() > deadline:
                    self._retry_at = now
                    break
        count = 0
        while self._reaps:
            owner, number = self._reaps.popleft()
            self._reap(owner, number)
            count += 1
            if count % 16 == 0 and monotonic() > deadline:
                break
        if self.orphans and now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            for number in list(self.orphans):
                self._settle(self.segments[number])
            self._end_unreached()
            self._accounted = False
        if not self._accounted:
            self._account()

    def _reap(self, owner: int, number: int) -> None:
        segment = self.segments.get(number)
        if segment is not None:
            try:
                # Nobody allocates from an orphan, so that it is looked at by its holds alone, whatever its totals say.
                segment.books.reap(owner, self.group, segment.owner in (owner, None))
            except LockBusy:
                self._busy.append((owner, number))
                return
            if segment.owner == owner:
                segment.owner = None
                self.orphans.add(number)
                self._accounted = False
            if segment.owner is None:
                self._settle(segment)
        self._left[owner] -= 1
        if not self._left[owner]:
            self._released(owner)

    def next_work(self, now: float) -> float | None:
        """Seconds until `work()` has something to do; None: not before something happens."""
        if self._reaps or self._childless or self._look:
            return 0.0
        waits = []
        if self._busy or self._unsettled:
            waits.append(self._retry_at - now)
        if self.orphans:
            waits.append(self._sweep_at - now)
        return max(0.0, min(waits)) if waits else None

    @property
    def dying(self) -> int:
        """Slots whose holds are not all released yet."""
        return len(self._unsettled) + sum(owner < FIRST_RING for owner in self._left)

    # ------------------------------------------------------------------------------------------------------ segments

    def add_segment(
        self, number: int, books: Books, payload: int, nbytes: int, dedicated: bool, owner: int, name: bytes
    ) -> Segment:
        """Keep a new segment."""
        segment = self.segments[number] = Segment(number, books, payload, nbytes, dedicated, owner, name)
        return segment

    def ring_number(self) -> int:
        """A number for a new ring. Raises Refusal."""
        try:
            return self._numbers.take()
        except LookupError as problem:
            raise Refusal(protocol.LIMIT, f"{problem}: {len(self.rings)} rings live; drop some queues") from None

    def ring_not_made(self, number: int) -> None:
        """The number is not needed after all."""
        self._give_back_number(number)

    def _give_back_number(self, number: int) -> None:
        if self.is_complete:  # before, it waits as all the others do
            self._numbers.give_back(number)

    def add_ring(self, number: int, books: Books, payload: int, ring: Ring) -> Segment:
        """Keep a new ring. Nobody allocates from it."""
        segment = self.segments[number] = Segment(number, books, payload, RING_BYTES, True, None, b"", ring)
        ring.segment = number
        self.rings[ring.number] = ring
        self.orphans.add(number)
        return segment

    def ring(self, number: int) -> Ring:
        """The ring that a segment is. Raises Refusal."""
        ring = self.segment(number).ring
        if ring is None:
            raise Refusal(protocol.INVALID, f"segment {number} is not a ring, which an event is asked for")
        return ring

    def segment(self, number: int) -> Segment:
        """Raises Refusal: STALE for one that is gone, UNKNOWN for one that never was."""
        segment = self.segments.get(number)
        if segment is not None:
            return segment
        if 0 < number < self.group.next_segment:
            raise Refusal(
                protocol.STALE,
                f"segment {number} is gone: every block in it was freed, or its owner and the manager before this one "
                "ended before anybody else had mapped it; ask its sender for a new handle",
            )
        raise Refusal(protocol.UNKNOWN, f"this manager never made a segment {number}")

    def return_segment(self, number: int, slot: int) -> None:
        """Take an empty segment back from its owner, or what a client holds of a ring. Raises Refusal."""
        segment = self.segment(number)
        if segment.ring is not None:
            try:
                segment.books.reap(slot, self.group)
            except LockBusy:
                raise Refusal(protocol.INVALID, f"ring {number} is locked just now; return it again") from None
            self._settle(segment)
            return
        if segment.owner != slot:
            raise Refusal(protocol.DENIED, f"segment {number} belongs to slot {segment.owner} and not to slot {slot}")
        live, nbytes, _reserved = segment.books.stats()
        if live:
            raise Refusal(
                protocol.INVALID, f"segment {number} still has {live} live blocks ({nbytes} bytes); release them first"
            )
        self._destroy(segment)

    def _settle(self, segment: Segment) -> None:
        """End an orphan without live blocks, or a ring out of reach; give back the gaps of one that lost some."""
        live, _bytes, _reserved = segment.books.stats()
        if not live or self._has_ended(segment):
            self._end(segment)
        elif segment.ring is None and live != segment.trimmed_at and live <= WALK_BLOCKS:
            try:
                blocks = segment.books.blocks(WALK_HOLDS)
            except LockBusy:
                return
            # Nobody allocates from an orphan, so what is free now stays free.
            end = 0
            for offset, nbytes in sorted((block[1], block[2]) for block in blocks):
                self._give_back(segment, end, min(offset, segment.nbytes))
                end = max(end, offset + nbytes)
            self._give_back(segment, end, segment.nbytes)
            segment.trimmed_at = live

    def _has_ended(self, segment: Segment) -> bool:
        return segment.ring is not None and segment.books.has_ended(self.group)

    def _end_unreached(self) -> None:
        """End the rings that only messages in one another hold."""
        if not self.is_complete:  # one that comes late may hold any of them
            return
        segments = [self.segments[ring.segment] for ring in self.rings.values()]
        lent = [segment for segment in segments if segment.books.is_lent]
        if lent and end_unreached(self.group, [(one.ring.memory, one.books) for one in lent if one.ring is not None]):
            for segment in lent:
                self._settle(segment)

    def _end(self, segment: Segment) -> bool:
        """Destroy an orphan that nobody needs. False: a ring, which goes once its messages' holds are released."""
        if segment.ring is None:
            self._destroy(segment)
        elif segment.ring.number not in self._left:
            # Nobody can reach the ring, so nobody puts into it, and what its number holds becomes no more.
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
        """The manager ends. Peers keep what they have mapped, for the next manager to find."""
        for segment in list(self.segments.values()):
            self.outside.release(segment)
        self.segments.clear()
        self.orphans.clear()
        self.rings.clear()

    # --------------------------------------------------------------------------------------------------------- names

    def _is_live(self, triple: tuple[int, int, int]) -> int | None:
        """The bytes of a live block; None: it is not live. The numbers may be any, from a client or the journal."""
        number, block, generation = triple
        segment = self.segments.get(number)
        if segment is None or self._has_ended(segment) or not (0 <= block < _NUMBERS and 0 <= generation < _NUMBERS):
            return None
        return segment.books.live(block, generation)

    def _check_live(self, triple: tuple[int, int, int]) -> None:
        """Raises Refusal."""
        number, block, generation = triple
        self.segment(number)
        if self._is_live(triple) is None:
            raise Refusal(protocol.STALE, f"block {block} of segment {number} (generation {generation}) is not live")

    def living_names(self) -> dict[bytes, tuple[int, int, int]]:
        """The names that stand for something. That of a block that was freed stays known, for LOOKUP to say so."""
        return {name: triple for name, triple in self.names.items() if self._is_live(triple) is not None}

    def _name(self, name: bytes, triple: tuple[int, int, int], slot: int) -> None:
        """From now on the name stands for the block, and may be taken back by the client in `slot`."""
        if len(self.names) >= self._purge_at:
            self.purge_names()
        giver = slot, self.clients[slot].word >> 32
        self.outside.name(name, triple, giver)
        self.names[name], self.givers[name] = triple, giver

    def export(self, number: int, block: int, generation: int, slot: int) -> bytes:
        """The name of a live block, made up for the client in `slot` if it has none. Raises Refusal."""
        triple = (number, block, generation)
        self._check_live(triple)
        name = self.by_block.get(triple)
        if name is not None:
            return name
        name = OWN_NAMES + b"%d_%d" % (self.clients[slot].pid, int.from_bytes(urandom(8), "little") >> 1)
        self._name(name, triple, slot)
        self.by_block[triple] = name
        return name

    def bind(self, name: bytes, number: int, block: int, generation: int, slot: int) -> None:
        """Let a name that the client in `slot` chose stand for a live block. Raises Refusal: it stands for another."""
        shown = name.decode("ascii", "replace")
        if name.startswith(OWN_NAMES):
            raise Refusal(
                protocol.INVALID,
                f"names that begin with {OWN_NAMES.decode()} are the manager's own, as {shown} would be",
            )
        triple = (number, block, generation)
        self._check_live(triple)
        known = self.names.get(name)
        if known == triple:  # asked once more, after the answer was lost with the manager before
            return
        if known is not None and self._is_live(known) is not None:
            raise Refusal(
                protocol.EXISTS, f"the name {shown} stands for another object already; open it, or choose another"
            )
        self._name(name, triple, slot)

    def lookup(self, name: bytes) -> tuple[int, int, int, int]:
        """(segment, block, generation, bytes) of a name. Raises Refusal."""
        triple = self.names.get(name)
        if triple is None:
            raise Refusal(
                protocol.UNKNOWN,
                f"no block has the name {name.decode('ascii', 'replace')} here: this manager never gave it out, or "
                "it was "
                f"released; check the handle's manager address, and that its sender still lives",
            )
        nbytes = self._is_live(triple)
        if nbytes is None:
            raise Refusal(
                protocol.STALE,
                f"the block named {name.decode('ascii', 'replace')} has been freed; its sender must keep it until "
                "it is opened",
            )
        return (*triple, nbytes)

    def unexport(self, name: bytes, slot: int) -> None:
        """Forget a name for the client in `slot`. Raises Refusal."""
        shown = name.decode("ascii", "replace")
        if name not in self.names:
            raise Refusal(protocol.UNKNOWN, f"no block has the name {shown} here")
        giver, generation = self.givers[name]
        client = self.clients.get(giver)
        if giver != slot and client is not None and client.word >> 32 == generation:
            raise Refusal(
                protocol.DENIED,
                f"the name {shown} was given out for pid {client.pid} (slot {giver}) and not for slot {slot}; while "
                "that process lives, it alone can take the name back",
            )
        self._forget(name)

    def _forget(self, name: bytes) -> None:
        triple = self.names.pop(name)
        del self.givers[name]
        self.outside.forget(name)
        if self.by_block.get(triple) == name:
            del self.by_block[triple]

    def purge_names(self) -> int:
        """Forget the names of dead blocks; gives how many."""
        stale = [name for name, triple in self.names.items() if self._is_live(triple) is None]
        for name in stale:
            self._forget(name)
        self._purge_at = max(PURGE_NAMES, 2 * len(self.names))
        return len(stale)

    def collect(self, seconds: float) -> protocol.Collected:
        """Clear what nothing needs; with seconds >= 0 also what has been in flight for longer."""
        tickets = busy = count = freed = 0
        if seconds >= 0:
            whole = int(-(-min(seconds, 1e9) // 1))  # rounded up: what is younger must stay
            for segment in self.segments.values():
                try:
                    tickets += segment.books.expire_tickets(whole)
                except LockBusy:
                    busy += 1
        self._end_unreached()
        for number in list(self.orphans):
            segment = self.segments[number]
            live, _bytes, reserved = segment.books.stats()
            if not live and self._end(segment):
                count += 1
                freed += reserved
        return protocol.Collected(tickets, self.purge_names(), count, freed, busy)
