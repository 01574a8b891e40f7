"""What the manager knows: clients, segments, names, and the dead whose holds are still to be released. No I/O.

The server tells it what happened and asks what to answer; what must be done outside (closing descriptors, giving pages
back) it asks for through the `Outside` it was made with. It never waits: a segment whose books are locked is
tried again by a later `work()`.

    SLOT   a slot is in `clients` or `embryos`, or dying (in `_left`), or none of these and FREE in the group table
           (an embryo that was claimed but not announced yet is the one exception; it goes with its parent)
    NAME   names[n] == t  exactly when  by_block[t] == n
    ORPHAN s in orphans  exactly when  segments[s].owner is None
"""

from __future__ import annotations

from collections import deque
from os import urandom
from time import monotonic

from shmtensor._native import HOLD_TICKET, SLOT_CLIENT, SLOT_DEAD, SLOT_EMBRYO, LockBusy
from shmtensor.manager import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    from shmtensor._native import Books, Group

    class Outside(Protocol):
        """What the state cannot do itself."""

        def destroy(self, segment: Segment) -> None:
            """Give back the memory, close the descriptors and unlink the name."""

        def release(self, segment: Segment) -> None:
            """Close the descriptors and unlink the name; whoever has it mapped keeps the memory."""

        def punch(self, segment: Segment, offset: int, nbytes: int) -> None:
            """Give back the pages of a range of the payload."""


RETRY_SECONDS = 0.010
"""A segment that was locked is tried again after this."""
SWEEP_SECONDS = 0.25
"""Orphans are looked at this often: nobody tells when the last block of one is released."""
WALK_BLOCKS = 65_536
"""Segments with more live blocks are not walked one by one, which would keep everyone waiting."""
WALK_LISTING = 4 * WALK_BLOCKS
"""A listing walks no more blocks than this in all: it takes about 2 us for each, in which nobody else is served."""
SHOW_IN_FLIGHT = 1_000
"""Rows of `in_flight` in a listing."""
TRIM_BYTES = 65_536
"""Smaller gaps in an orphan keep their pages until it is destroyed."""
PURGE_NAMES = 1_024
"""The table of names is never purged below this size."""
PAGE = 4_096


class Refusal(Exception):
    """A request that is refused: a code of the protocol, a text for the user and a detail."""

    def __init__(self, code: int, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.detail = detail


class Client:
    """A process with a slot. `detached`: it has no connection any more but still uses its memory."""

    __slots__ = ("detached", "pid", "slot", "start_time")

    def __init__(self, slot: int, pid: int, start_time: int) -> None:
        self.slot = slot
        self.pid = pid
        self.start_time = start_time
        self.detached = False


class Segment:
    """A segment: its books, the descriptor of its payload, and the slot that allocates from it (None: an orphan)."""

    __slots__ = ("books", "dedicated", "id", "name", "nbytes", "owner", "payload", "trimmed_at")

    def __init__(
        self, number: int, books: Books, payload: int, nbytes: int, dedicated: bool, owner: int | None, name: bytes
    ) -> None:
        self.id = number
        self.books = books
        self.payload = payload
        self.nbytes = nbytes
        self.dedicated = dedicated
        self.owner = owner
        self.name = name
        self.trimmed_at = -1  # live blocks when its gaps were last given back

    @property
    def flags(self) -> int:
        return (protocol.DEDICATED if self.dedicated else 0) | (protocol.NAMED if self.name else 0)


class State:
    """See the module. Single-threaded; no call blocks."""

    def __init__(self, group: Group, outside: Outside, max_clients: int) -> None:
        self.group = group
        self.outside = outside
        self.max_clients = max_clients
        self.clients: dict[int, Client] = {}
        self.embryos: dict[int, int] = {}  # slot -> parent
        self.segments: dict[int, Segment] = {}
        self.orphans: set[int] = set()
        self.names: dict[bytes, tuple[int, int, int]] = {}
        self.by_block: dict[tuple[int, int, int], bytes] = {}
        self.next_segment = 1
        self._purge_at = PURGE_NAMES
        self._left: dict[int, int] = {}  # dying slot -> segments still to be reaped of it
        self._reaps: deque[tuple[int, int]] = deque()  # (slot, segment)
        self._busy: deque[tuple[int, int]] = deque()
        self._childless: set[int] = set()  # dead slots whose unannounced embryos are still to be found
        self._retry_at = 0.0
        self._sweep_at = 0.0

    # ------------------------------------------------------------------------------------------------------- clients

    def add_client(self, pid: int, start_time: int) -> int:
        """A slot for a process that said hello. Raises Refusal."""
        if len(self.clients) >= self.max_clients:
            raise Refusal(
                protocol.LIMIT,
                f"this manager serves {self.max_clients} clients and has as many; raise --max-clients or let some end",
            )
        try:
            slot = self.group.claim(SLOT_CLIENT, pid, start_time)
        except LookupError:
            raise Refusal(
                protocol.LIMIT,
                f"the slot table is full: {len(self.group.occupied())} clients and embryos; let some end",
            ) from None
        self.clients[slot] = Client(slot, pid, start_time)
        return slot

    def add_embryo(self, slot: int, parent: int) -> None:
        """Note that `parent` is making a child in `slot`. Raises Refusal."""
        try:
            kind, _pid, _start, claimed_by = self.group.slot(slot)
        except IndexError:
            raise Refusal(protocol.INVALID, f"there is no slot {slot}") from None
        if kind != SLOT_EMBRYO or claimed_by != parent or slot in self.embryos:
            raise Refusal(protocol.INVALID, f"slot {slot} is not an unannounced embryo of slot {parent}")
        self.embryos[slot] = parent

    def embryo_born(self, slot: int, pid: int, start_time: int) -> None:
        """The child in `slot` said hello."""
        del self.embryos[slot]
        self.group.become_client(slot, pid, start_time)
        self.clients[slot] = Client(slot, pid, start_time)

    def gone(self, slot: int) -> None:
        """The client or embryo in `slot` is dead: everything it holds will be released by `work()`."""
        if self.clients.pop(slot, None) is None and self.embryos.pop(slot, None) is None:
            return
        self._childless.add(slot)
        self._bury(slot)

    def _bury(self, slot: int) -> None:
        self.group.mark_dead(slot)
        self._left[slot] = len(self.segments)
        if self.segments:
            self._reaps.extend((slot, number) for number in self.segments)
        else:
            self._release_slot(slot)

    def _bury_unannounced(self) -> None:
        """Embryos whose parent died before it announced them were never forked: they go with it."""
        parents, self._childless = self._childless, set()
        for slot in self.group.occupied():
            kind, _pid, _start, parent = self.group.slot(slot)
            if kind == SLOT_EMBRYO and parent in parents and slot not in self.embryos:
                self._bury(slot)
        for slot in parents:
            if slot not in self._left:
                self.group.free(slot)

    def _release_slot(self, slot: int) -> None:
        del self._left[slot]
        # A parent's slot stays DEAD until its unannounced embryos were looked for, or a new owner would inherit them.
        if slot not in self._childless:
            self.group.free(slot)

    def work(self, seconds: float = 0.005) -> None:
        """Go on with what deaths left to do, for at most about `seconds`."""
        now = monotonic()
        if self._childless:
            self._bury_unannounced()
        if self._busy and now >= self._retry_at:
            self._reaps.extend(self._busy)
            self._busy.clear()
        deadline = now + seconds
        count = 0
        while self._reaps:
            slot, number = self._reaps.popleft()
            self._reap(slot, number)
            count += 1
            if count % 16 == 0 and monotonic() > deadline:
                break
        if self.orphans and now >= self._sweep_at:
            self._sweep_at = now + SWEEP_SECONDS
            for number in list(self.orphans):
                self._settle(self.segments[number])

    def _reap(self, slot: int, number: int) -> None:
        segment = self.segments.get(number)
        if segment is not None:
            try:
                segment.books.reap(slot)
            except LockBusy:
                if not self._busy:
                    self._retry_at = monotonic() + RETRY_SECONDS
                self._busy.append((slot, number))
                return
            if segment.owner == slot:
                segment.owner = None
                self.orphans.add(number)
            if segment.owner is None:
                self._settle(segment)
        self._left[slot] -= 1
        if not self._left[slot]:
            self._release_slot(slot)

    def next_work(self, now: float) -> float | None:
        """Seconds until `work()` has something to do; None: not before something happens."""
        if self._reaps or self._childless:
            return 0.0
        waits = []
        if self._busy:
            waits.append(self._retry_at - now)
        if self.orphans:
            waits.append(self._sweep_at - now)
        return max(0.0, min(waits)) if waits else None

    @property
    def dying(self) -> int:
        """Slots whose holds are not all released yet."""
        return len(self._left)

    # ------------------------------------------------------------------------------------------------------ segments

    def add_segment(self, books: Books, payload: int, nbytes: int, dedicated: bool, owner: int, name: bytes) -> Segment:
        """Keep a segment that was made under the number `next_segment`."""
        segment = Segment(self.next_segment, books, payload, nbytes, dedicated, owner, name)
        self.segments[segment.id] = segment
        self.next_segment += 1
        return segment

    def segment(self, number: int) -> Segment:
        """Raises Refusal: STALE for one that is gone, UNKNOWN for one that never was."""
        segment = self.segments.get(number)
        if segment is not None:
            return segment
        if 0 < number < self.next_segment:
            raise Refusal(
                protocol.STALE,
                f"segment {number} is gone: every block in it was freed; ask its sender for a new handle",
            )
        raise Refusal(protocol.UNKNOWN, f"this manager never made a segment {number}")

    def return_segment(self, number: int, slot: int) -> None:
        """Take an empty segment back from its owner. Raises Refusal."""
        segment = self.segment(number)
        if segment.owner != slot:
            raise Refusal(protocol.DENIED, f"segment {number} belongs to slot {segment.owner} and not to slot {slot}")
        live, nbytes, _reserved = segment.books.stats()
        if live:
            raise Refusal(
                protocol.INVALID, f"segment {number} still has {live} live blocks ({nbytes} bytes); release them first"
            )
        self._destroy(segment)

    def _settle(self, segment: Segment) -> None:
        """Destroy an orphan without live blocks; give back the gaps of one that lost some."""
        live, _bytes, _reserved = segment.books.stats()
        if not live:
            self._destroy(segment)
        elif live != segment.trimmed_at and live <= WALK_BLOCKS:
            try:
                blocks = segment.books.blocks()
            except LockBusy:
                return
            # Nobody allocates from an orphan, so what is free now stays free.
            end = 0
            for offset, nbytes in sorted((block[1], block[2]) for block in blocks):
                self._give_back(segment, end, offset)
                end = max(end, offset + nbytes)
            self._give_back(segment, end, segment.nbytes)
            segment.trimmed_at = live

    def _give_back(self, segment: Segment, start: int, end: int) -> None:
        start = (start + PAGE - 1) // PAGE * PAGE
        end = end // PAGE * PAGE
        if end - start >= TRIM_BYTES:
            self.outside.punch(segment, start, end - start)

    def _destroy(self, segment: Segment) -> None:
        del self.segments[segment.id]
        self.orphans.discard(segment.id)
        self.outside.destroy(segment)

    def release_all(self) -> None:
        """The manager ends. Peers keep what they have mapped; names and descriptors go."""
        for segment in list(self.segments.values()):
            self.outside.release(segment)
        self.segments.clear()
        self.orphans.clear()

    # --------------------------------------------------------------------------------------------------------- names

    def _is_live(self, triple: tuple[int, int, int]) -> int | None:
        segment = self.segments.get(triple[0])
        return None if segment is None else segment.books.live(triple[1], triple[2])

    def export(self, number: int, block: int, generation: int, pid: int) -> bytes:
        """The name of a live block, made up on first use. Raises Refusal."""
        triple = (number, block, generation)
        if self.segment(number).books.live(block, generation) is None:
            raise Refusal(protocol.STALE, f"block {block} of segment {number} (generation {generation}) is not live")
        name = self.by_block.get(triple)
        if name is not None:
            return name
        if len(self.names) >= self._purge_at:
            self.purge_names()
        name = b"/torch_%d_%d" % (pid, int.from_bytes(urandom(8), "little") >> 1)
        self.names[name] = triple
        self.by_block[triple] = name
        return name

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

    def unexport(self, name: bytes) -> None:
        """Forget a name. Raises Refusal."""
        triple = self.names.pop(name, None)
        if triple is None:
            raise Refusal(protocol.UNKNOWN, f"no block has the name {name.decode('ascii', 'replace')} here")
        del self.by_block[triple]

    def purge_names(self) -> int:
        """Forget the names of dead blocks; gives how many."""
        stale = [name for name, triple in self.names.items() if self._is_live(triple) is None]
        for name in stale:
            del self.by_block[self.names.pop(name)]
        self._purge_at = max(PURGE_NAMES, 2 * len(self.names))
        return len(stale)

    # ------------------------------------------------------------------------------------------------------- reports

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
        for number in list(self.orphans):
            segment = self.segments[number]
            live, _bytes, reserved = segment.books.stats()
            if not live:
                self._destroy(segment)
                count += 1
                freed += reserved
        return protocol.Collected(tickets, self.purge_names(), count, freed, busy)

    def figures(self) -> dict[str, Any]:
        """The part of STATS that the state knows."""
        live_blocks = live_bytes = reserved = payload = 0
        for segment in self.segments.values():
            blocks, nbytes, kept = segment.books.stats()
            live_blocks += blocks
            live_bytes += nbytes
            reserved += kept
            payload += segment.nbytes
        return {
            "clients": len(self.clients),
            "detached": sum(client.detached for client in self.clients.values()),
            "embryos": len(self.embryos),
            "dying": self.dying,
            "segments": len(self.segments),
            "orphans": len(self.orphans),
            "names": len(self.names),
            "payload_bytes": payload,
            "reserved_bytes": reserved,
            "live_blocks": live_blocks,
            "live_bytes": live_bytes,
            "max_clients": self.max_clients,
        }

    def listing(self) -> dict[str, Any]:
        """The document of LIST."""
        clients = []
        for slot in self.group.occupied():
            kind, pid, start_time, parent = self.group.slot(slot)
            if kind == SLOT_CLIENT:
                client = self.clients.get(slot)
                state = "detached" if client is not None and client.detached else "client"
            elif kind in (SLOT_EMBRYO, SLOT_DEAD):
                state = "embryo" if kind == SLOT_EMBRYO else "dead"
            else:
                continue
            clients.append({"slot": slot, "pid": pid, "start_time": start_time, "state": state, "parent": parent})
        exported: dict[int, int] = {}
        for triple in self.names.values():
            exported[triple[0]] = exported.get(triple[0], 0) + 1
        in_flight: list[dict[str, Any]] = []
        segments = []
        left = WALK_LISTING
        for segment in self.segments.values():
            row = self._describe(segment, exported.get(segment.id, 0), in_flight, min(left, WALK_BLOCKS))
            if row["holders"] is not None:
                left -= row["live_blocks"]
            segments.append(row)
        in_flight.sort(key=_age, reverse=True)
        return {
            "clients": clients,
            "segments": segments,
            "in_flight": in_flight[:SHOW_IN_FLIGHT],
            "in_flight_total": len(in_flight),
        }

    def _describe(self, segment: Segment, exported: int, in_flight: list[dict[str, Any]], walk: int) -> dict[str, Any]:
        """A row of the listing; adds to `in_flight`. A segment of more than `walk` live blocks has no holders in it."""
        live, nbytes, reserved = segment.books.stats()
        busy = False
        holders: list[dict[str, Any]] | None = None
        if live <= walk:
            try:
                blocks = segment.books.blocks()
            except LockBusy:
                busy = True
            else:
                sums: dict[tuple[int, int], list[float]] = {}
                for index, _offset, size, generation, holds in blocks:
                    for slot, kind, age in holds:
                        entry = sums.setdefault((slot, kind), [0, 0, 0.0])
                        entry[0] += 1
                        entry[1] += size
                        entry[2] = max(entry[2], age)
                        if kind == HOLD_TICKET:
                            in_flight.append(
                                {
                                    "segment": segment.id,
                                    "block": index,
                                    "generation": generation,
                                    "bytes": size,
                                    "slot": slot,
                                    "age_seconds": age,
                                }
                            )
                holders = [
                    {
                        "slot": slot,
                        "kind": "ticket" if kind == HOLD_TICKET else "client",
                        "blocks": int(count),
                        "bytes": int(size),
                        "oldest_seconds": age,
                    }
                    for (slot, kind), (count, size, age) in sorted(sums.items())
                ]
        return {
            "id": segment.id,
            "payload_bytes": segment.nbytes,
            "reserved_bytes": reserved,
            "live_blocks": live,
            "live_bytes": nbytes,
            "dedicated": segment.dedicated,
            "name": segment.name.decode() or None,
            "owner": segment.owner,
            "names": exported,
            "busy": busy,
            "holders": holders,
        }


def _age(row: dict[str, Any]) -> float:
    age: float = row["age_seconds"]
    return age
