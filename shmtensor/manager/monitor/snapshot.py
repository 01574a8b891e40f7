"""A snapshot of a group: its manager's documents STATS and LIST, and /proc. The one source of `top` and `leaks`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from shmtensor.manager import protocol, ring_kinds, sites
from shmtensor.manager.membership import Stats
from shmtensor.manager.monitor import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmtensor.manager.connection import Observer

    Row = dict[str, Any]


@dataclass(frozen=True)
class Process:
    """A client, or an embryo (a child that has not connected yet). Values that are not visible are None."""

    slot: int
    pid: int
    state: str
    """client, detached (without a connection), embryo or dead."""
    command: str | None
    age_seconds: float | None
    threads: dict[str, int]
    """Threads by the letter of their state."""
    pss_bytes: int | None
    """Proportional set size of all its memory; None also if it was not requested."""
    reserved_bytes: int
    """Reserved bytes of the segments from which it allocates."""
    held_blocks: int
    held_bytes: int
    oldest_seconds: float | None
    """Age of its oldest hold."""
    locks: int
    """Number of locks of segments and rings that it holds at the moment."""


@dataclass(frozen=True)
class Segment:
    """A segment. `owner` is the slot that allocates from it; None: its process has ended, or it is a ring."""

    id: int
    kind: str
    """arena, dedicated, or the kind of a ring."""
    owner: int | None
    owner_pid: int | None
    payload_bytes: int
    reserved_bytes: int
    live_blocks: int
    live_bytes: int
    holders: int | None
    """Owners of holds; None: not listed, because the segment was locked or has too many blocks."""
    names: int
    shm_name: str | None


@dataclass(frozen=True)
class Rates:
    """Messages and bytes per second through a ring, between two snapshots."""

    put_bytes: float
    got_bytes: float
    put_messages: float
    got_messages: float


@dataclass(frozen=True)
class Store:
    """The content of a store. A limit of 0 means no limit."""

    objects: int
    bytes: int
    """Bytes of the objects in memory."""
    max_bytes: int
    spilled: int
    """Objects in files."""
    spilled_bytes: int
    max_spilled_bytes: int
    evicted: int
    """Objects removed so far to make room; `expired`: because they had expired."""
    expired: int
    table_bytes: int


@dataclass(frozen=True)
class Ring:
    """The ring of a queue, a broadcast or a store. Counts start when it is created; those of messages wrap at 2**32."""

    number: int
    segment: int
    kind: str
    name: str | None
    processes: int | None
    """Processes that have it open; None: not listed."""
    messages: int
    bytes: int
    max_messages: int
    """0: no bound was set."""
    peak_messages: int
    reserved_bytes: int
    put_bytes: int
    got_bytes: int
    put_messages: int
    got_messages: int
    rates: Rates | None
    """None in the first snapshot that has the ring."""
    store: Store | None
    """None: it is not a store."""


@dataclass(frozen=True)
class Name:
    """A name that a program gave to a block, a queue or a lock."""

    name: str
    kind: str
    """block, or the kind of the ring."""
    segment: int
    block: int
    generation: int


@dataclass(frozen=True)
class Lock:
    """A lock that a client holds at the moment. Most are held for microseconds."""

    place: str
    """segment N; ring N, put; ring N, get."""
    slot: int
    pid: int | None
    command: str | None
    threads: dict[str, int]
    looks: int
    """Number of consecutive snapshots in which the same client held it, including this one."""


@dataclass(frozen=True)
class Hold:
    """One reference to a block. The snapshot has the oldest ones."""

    kind: str
    """client: held by a process; message: by a message in a ring; ticket: by a pickle in flight."""
    slot: int | None
    ring: int | None
    pid: int | None
    segment: int
    block: int
    generation: int
    bytes: int
    age_seconds: float
    site: str | None
    """file:line that made the block, if it was sampled (docs/operating.md)."""


@dataclass(frozen=True)
class Holder:
    """All holds of one kind of one owner."""

    kind: str
    slot: int | None
    ring: int | None
    pid: int | None
    blocks: int
    bytes: int
    unshared_bytes: int
    """Bytes of the blocks that have no other holder."""
    oldest_seconds: float


@dataclass(frozen=True)
class Snapshot:
    """A group at one moment. Sizes are bytes, never sums of resident memory."""

    address: str
    taken: float
    """Seconds since the epoch."""
    clock: float
    """Seconds of a monotonic clock."""
    stats: Stats
    processes: tuple[Process, ...]
    segments: tuple[Segment, ...]
    rings: tuple[Ring, ...]
    names: tuple[Name, ...]
    locks: tuple[Lock, ...]
    holders: tuple[Holder, ...]
    holds: tuple[Hold, ...]
    """Oldest first: at most 1,000 of processes and rings, divided among them, and 1,000 tickets."""
    unlisted_segments: int
    """Number of segments whose holders are missing here, because they were locked or have too many blocks."""


def take(observer: Observer, before: Snapshot | None = None, pss: bool = True, sampled: bool = False) -> Snapshot:
    """Ask a manager for STATS and LIST, and /proc for the processes. Blocks for the two requests.

    Args:
        observer: a connection.
        before: an earlier snapshot of the same group, for rates, and for values that are not read again.
        pss: read the PSS of each process; otherwise it is that of `before`.
        sampled: read the sampled sites of blocks; otherwise they are those of `before`.

    Raises:
        ShmTensorError: as `Observer.request`.
    """
    stats = json.loads(observer.document(protocol.Stats()))
    return read(
        {name: stats[name] for name in Stats.__dataclass_fields__},
        json.loads(observer.document(protocol.List())),
        before,
        pss,
        sampled,
    )


def read(stats: Row, listing: Row, before: Snapshot | None = None, pss: bool = True, sampled: bool = False) -> Snapshot:
    """Return the snapshot of two documents, as `take`."""
    return _Reader(stats, listing, before, pss, sampled).snapshot()


class _Reader:
    """Reads the documents. Keys that older managers do not have are looked up with a default."""

    def __init__(self, stats: Row, listing: Row, before: Snapshot | None, pss: bool, sampled: bool) -> None:
        self._stats = Stats(**{field: stats.get(field, 0) for field in Stats.__dataclass_fields__})
        self._listing = listing
        if before is not None and before.stats.group != self._stats.group:
            before = None
        self._before = before
        self._clock = time.monotonic()
        self._pids: dict[int, int] = {row["slot"]: row["pid"] for row in listing["clients"]}
        self._pss = {(row.slot, row.pid): row.pss_bytes for row in before.processes} if before and not pss else None
        self._facts = {
            row["slot"]: processes.look(row["pid"], row["start_time"], pss)
            for row in listing["clients"]
            if row["state"] in ("client", "detached")
        }
        group = int(self._stats.group, 16)
        self._sites = sites.of_processes(self._pids.values(), group) if sampled else _known_sites(before)
        self._rings = {row["segment"]: row for row in listing["rings"]}

    def snapshot(self) -> Snapshot:
        listing = self._listing
        locks = tuple(self._locks())
        holders = tuple(self._holders())
        return Snapshot(
            address=self._stats.address,
            taken=time.time(),
            clock=self._clock,
            stats=self._stats,
            processes=tuple(self._process(row, holders, locks) for row in listing["clients"]),
            segments=tuple(self._segment(row) for row in listing["segments"]),
            rings=tuple(self._ring(row) for row in listing["rings"]),
            names=tuple(self._name(row) for row in listing["names"]),
            locks=locks,
            holders=holders,
            holds=self._holds(),
            unlisted_segments=sum(row["holders"] is None for row in listing["segments"]),
        )

    def _process(self, row: Row, holders: tuple[Holder, ...], locks: tuple[Lock, ...]) -> Process:
        slot, pid = row["slot"], row["pid"]
        facts = self._facts.get(slot)
        own = [one for one in holders if one.slot == slot]
        pss = facts.pss_bytes if facts else None
        return Process(
            slot=slot,
            pid=pid,
            state=row["state"],
            command=facts.command if facts else None,
            age_seconds=facts.age_seconds if facts else None,
            threads=facts.threads if facts else {},
            pss_bytes=pss if self._pss is None else self._pss.get((slot, pid)),
            reserved_bytes=row["reserved_bytes"],
            held_blocks=sum(one.blocks for one in own),
            held_bytes=sum(one.bytes for one in own),
            oldest_seconds=max((one.oldest_seconds for one in own), default=None),
            locks=sum(lock.slot == slot for lock in locks),
        )

    def _holders(self) -> list[Holder]:
        """Sum the holders of all segments."""
        sums: dict[tuple[str, int | None, int | None], list[float]] = {}
        for segment in self._listing["segments"]:
            for row in segment["holders"] or ():
                entry = sums.setdefault((row["kind"], row["slot"], row["ring"]), [0, 0, 0, 0.0])
                entry[0] += row["blocks"]
                entry[1] += row["bytes"]
                entry[2] += row.get("unshared_bytes", 0)
                entry[3] = max(entry[3], row["oldest_seconds"])
        return [
            Holder(kind, slot, ring, self._pid(slot), int(blocks), int(nbytes), int(unshared), oldest)
            for (kind, slot, ring), (blocks, nbytes, unshared, oldest) in sums.items()
        ]

    def _pid(self, slot: int | None) -> int | None:
        return self._pids.get(slot) if slot else None

    def _kind(self, row: Row) -> str:
        ring = self._rings.get(row["id"])
        if ring is not None:
            return ring_kinds.NAMES.get(ring["kind"], "ring")
        return "dedicated" if row["dedicated"] else "arena"

    def _segment(self, row: Row) -> Segment:
        owners = row["holders"]
        return Segment(
            id=row["id"],
            kind=self._kind(row),
            owner=row["owner"],
            owner_pid=self._pid(row["owner"]),
            payload_bytes=row["payload_bytes"],
            reserved_bytes=row["reserved_bytes"],
            live_blocks=row["live_blocks"],
            live_bytes=row["live_bytes"],
            holders=None if owners is None else len({(one["slot"], one["ring"]) for one in owners}),
            names=row["names"],
            shm_name=row["name"],
        )

    def _ring(self, row: Row) -> Ring:
        segment = next((one for one in self._listing["segments"] if one["id"] == row["segment"]), None)
        owners = segment["holders"] if segment else None
        name = next((one["name"] for one in self._listing["names"] if one["segment"] == row["segment"]), None)
        counts = {key: row.get(key, 0) for key in ("put_bytes", "got_bytes", "put_messages", "got_messages")}
        return Ring(
            number=row["ring"],
            segment=row["segment"],
            kind=ring_kinds.NAMES.get(row["kind"], "ring"),
            name=name,
            processes=None if owners is None else len({one["slot"] for one in owners if one["slot"]}),
            messages=row["messages"],
            bytes=row["bytes"],
            max_messages=row["max_messages"],
            peak_messages=row["peak_messages"],
            reserved_bytes=row["reserved_bytes"],
            rates=self._rates(row["segment"], counts),
            store=Store(**row["store"]) if row.get("store") else None,
            **counts,
        )

    def _rates(self, segment: int, counts: dict[str, int]) -> Rates | None:
        seconds = self._clock - self._before.clock if self._before else 0.0
        ring = next((one for one in self._before.rings if one.segment == segment), None) if self._before else None
        if ring is None or seconds <= 0:
            return None
        moved = {key: counts[key] - getattr(ring, key) for key in counts}
        for key in ("put_messages", "got_messages"):
            moved[key] %= 1 << 32
        return Rates(**{key: max(0, count) / seconds for key, count in moved.items()})

    def _name(self, row: Row) -> Name:
        ring = self._rings.get(row["segment"])
        kind = "block" if ring is None else ring_kinds.NAMES.get(ring["kind"], "ring")
        return Name(row["name"], kind, row["segment"], row["block"], row["generation"])

    def _locks(self) -> list[Lock]:
        held = [(f"segment {row['id']}", row.get("lock_slot")) for row in self._listing["segments"]]
        for row in self._listing["rings"]:
            held.append((f"ring {row['ring']}, put", row.get("put_lock_slot")))
            held.append((f"ring {row['ring']}, get", row.get("get_lock_slot")))
        looks = {(lock.place, lock.slot): lock.looks for lock in self._before.locks} if self._before else {}
        locks = []
        for place, slot in held:
            if slot is not None:
                facts = self._facts.get(slot)
                command, threads = (facts.command, facts.threads) if facts else (None, {})
                locks.append(Lock(place, slot, self._pid(slot), command, threads, looks.get((place, slot), 0) + 1))
        return locks

    def _holds(self) -> tuple[Hold, ...]:
        holds = [
            Hold(
                kind=row.get("kind", "ticket"),
                slot=row["slot"],
                ring=row.get("ring"),
                pid=self._pid(row["slot"]),
                segment=row["segment"],
                block=row["block"],
                generation=row["generation"],
                bytes=row["bytes"],
                age_seconds=row["age_seconds"],
                site=self._sites.get((row["segment"], row["block"], row["generation"])),
            )
            for row in [*self._listing.get("holds", ()), *self._listing["in_flight"]]
        ]
        return tuple(sorted(holds, key=lambda hold: -hold.age_seconds))


def _known_sites(before: Snapshot | None) -> dict[tuple[int, int, int], str]:
    if before is None:
        return {}
    return {(hold.segment, hold.block, hold.generation): hold.site for hold in before.holds if hold.site}
