"""The manager's reports: the figures of STATS and the document of LIST."""

from __future__ import annotations

from itertools import zip_longest

from shmtensor._native import (
    FIRST_RING,
    HOLD_CLIENT,
    HOLD_MESSAGE,
    HOLD_NAME,
    HOLD_TICKET,
    MAX_SLOTS,
    SLOT_CLIENT,
    SLOT_DEAD,
    SLOT_EMBRYO,
    LockBusy,
)
from shmtensor.manager.daemon.names import OWN_NAMES
from shmtensor.manager.daemon.state import WALK_HOLDS
from shmtensor.manager.ring_kinds import STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmtensor._native import HeldBlock
    from shmtensor.manager.daemon.records import BlockId, Segment
    from shmtensor.manager.daemon.rings import Ring
    from shmtensor.manager.daemon.state import State

WALK_LISTING = 4 * WALK_HOLDS
"""Maximum number of blocks walked by one listing: each takes about 10 ns, in which no client is served."""
SHOW_HOLDS = 1_000
"""Maximum number of rows of `holds` in a listing."""
SHOW_IN_FLIGHT = 1_000
"""Maximum number of rows of `in_flight` in a listing."""
SHOW_NAMES = 1_000
"""Maximum number of rows of `names` in a listing."""
KINDS = {HOLD_CLIENT: "client", HOLD_TICKET: "ticket", HOLD_MESSAGE: "message", HOLD_NAME: "name"}


def figures(state: State) -> dict[str, Any]:
    """Return the fields of STATS that describe the state."""
    live_blocks = live_bytes = reserved = payload = on_devices = 0
    for segment in state.segments.values():
        blocks, nbytes, kept = segment.figures()
        live_blocks += blocks
        live_bytes += nbytes
        if segment.device:
            on_devices += segment.nbytes
            continue
        reserved += kept
        payload += segment.nbytes
    holds = [segment.metadata.count_holds() for segment in state.segments.values()]
    names = state.names.living()
    counters = state.group.counters()
    return {
        "clients": len(state.clients),
        "detached": sum(client.detached for client in state.clients.values()),
        "embryos": len(state.embryos),
        "dying": state.dying,
        "segments": len(state.segments),
        "rings": len(state.rings),
        "orphans": len(state.orphans) - len(state.rings),
        "names": len(names),
        "payload_bytes": payload,
        "device_bytes": on_devices,
        "reserved_bytes": reserved,
        "live_blocks": live_blocks,
        "live_bytes": live_bytes,
        "holds": {kind: sum(getattr(one, kind) for one in holds) for kind in KINDS.values()},
        "oldest_ticket_seconds": max((one.oldest_ticket for one in holds), default=0.0),
        **_named(state, names),
        "requests": counters.requests,
        "refused": counters.refused,
        "reaped": counters.reaped,
        "max_clients": state.max_clients,
        "max_bytes": state.group.quotas().max_bytes,
        "max_bytes_per_client": state.group.quotas().max_bytes_per_client,
        "charged_bytes": state.group.charged(),
    }


def _named(state: State, names: dict[bytes, BlockId]) -> dict[str, list[dict[str, Any]]]:
    """Return the messages in each named ring, and the content of each named store."""
    rings, stores = [], []
    for name, (number, _block, _generation) in names.items():
        ring = state.segments[number].ring
        if ring is None or name.startswith(OWN_NAMES):
            continue
        row = _ring(ring)
        if row["store"] is not None:
            stores.append({"name": name.decode(), **row["store"]})
        else:
            rings.append({"name": name.decode(), "messages": row["messages"], "bytes": row["bytes"]})
    return {"named_rings": rings, "named_stores": stores}


def listing(state: State) -> dict[str, Any]:
    """Return the document of LIST."""
    named: dict[int, list[str]] = {}
    chosen = []
    exported = set(state.names.by_block.values())
    for name, triple in state.names.living().items():
        named.setdefault(triple[0], []).append(name.decode())
        if name not in exported:
            chosen.append({"name": name.decode(), "segment": triple[0], "block": triple[1], "generation": triple[2]})
    in_flight: list[dict[str, Any]] = []
    holds: list[dict[str, Any]] = []
    segments = []
    left = WALK_LISTING
    for segment in state.segments.values():
        row = _segment(segment, len(named.get(segment.id, ())), in_flight, holds, min(left, WALK_HOLDS))
        if row["holders"] is not None:
            left -= row["live_blocks"]
        segments.append(row)
    in_flight.sort(key=_age, reverse=True)
    return {
        "clients": _clients(state),
        "segments": segments,
        "rings": [_ring(ring) for ring in state.rings.values()],
        "names": chosen[:SHOW_NAMES],
        "names_total": len(chosen),
        "holds": _divided(holds),
        "in_flight": in_flight[:SHOW_IN_FLIGHT],
        "in_flight_total": len(in_flight),
    }


def _clients(state: State) -> list[dict[str, Any]]:
    clients = []
    for slot in state.group.occupied():
        facts = state.group.slot(slot)
        if facts.state == SLOT_CLIENT:
            client = state.clients.get(slot)
            what = "detached" if client is not None and client.detached else "client"
        elif facts.state in (SLOT_EMBRYO, SLOT_DEAD):
            what = "embryo" if facts.state == SLOT_EMBRYO else "dead"
        else:
            continue
        clients.append(
            {
                "slot": slot,
                "pid": facts.pid,
                "start_time": facts.start_time,
                "state": what,
                "parent": facts.parent,
                "reserved_bytes": state.group.reserved(slot),
            }
        )
    return clients


def _ring(ring: Ring) -> dict[str, Any]:
    facts = ring.memory.stats()
    return {
        "ring": ring.number,
        "segment": ring.segment,
        "kind": facts.kind,
        "messages": facts.messages,
        "bytes": max(0, facts.put_bytes - facts.got_bytes),
        "put_bytes": facts.put_bytes,
        "got_bytes": facts.got_bytes,
        "capacity_bytes": facts.capacity_bytes,
        "reserved_bytes": facts.reserved_bytes,
        "max_messages": facts.max_messages,
        "max_bytes": facts.max_bytes,
        "peak_messages": facts.peak_messages,
        "put_messages": facts.put_messages,
        "got_messages": facts.got_messages,
        "put_lock_slot": _slot(facts.put_lock_slot),
        "get_lock_slot": _slot(facts.get_lock_slot),
        "store": _store(ring) if facts.kind == STORE else None,
    }


def _store(ring: Ring) -> dict[str, int]:
    facts = ring.memory.store_facts()
    return {
        "objects": facts.objects,
        "bytes": facts.nbytes,
        "max_bytes": facts.max_bytes,
        "spilled": facts.spilled,
        "spilled_bytes": facts.spilled_nbytes,
        "max_spilled_bytes": facts.max_spilled_bytes,
        "evicted": facts.evicted,
        "expired": facts.expired,
        "table_bytes": facts.reserved_bytes,
    }


def _segment(
    segment: Segment, names: int, in_flight: list[dict[str, Any]], holds: list[dict[str, Any]], walk: int
) -> dict[str, Any]:
    """Return a segment's row, and append to `in_flight` and `holds`.

    With more than `walk` live blocks, `holders` is None and nothing is appended.
    """
    live, nbytes, reserved = segment.figures()
    lock_slot = _slot(segment.metadata.stats().lock_slot)
    busy = False
    holders: list[dict[str, Any]] | None = None
    if live <= walk:
        try:
            found = segment.metadata.holders(WALK_HOLDS, max(SHOW_HOLDS, SHOW_IN_FLIGHT))
        except LockBusy:
            busy = True
        else:
            is_ring = segment.ring is not None
            for held in found.oldest:
                size = nbytes if is_ring else held.nbytes
                (in_flight if held.kind == HOLD_TICKET else holds).append(_hold(segment.id, held, size))
            holders = [
                {
                    **_owner(one.owner),
                    "kind": KINDS.get(one.kind, str(one.kind)),
                    "blocks": one.blocks,
                    "bytes": nbytes * one.blocks if is_ring else one.nbytes,
                    "unshared_bytes": 0 if is_ring else one.unshared_nbytes,
                    "oldest_seconds": one.oldest,
                }
                for one in found.sums
            ]
    return {
        "id": segment.id,
        "payload_bytes": segment.nbytes,
        "reserved_bytes": reserved,
        "live_blocks": live,
        "live_bytes": nbytes,
        "dedicated": segment.dedicated,
        "ring": None if segment.ring is None else segment.ring.number,
        "name": segment.name.decode() or None,
        "owner": segment.owner,
        "names": names,
        "busy": busy,
        "lock_slot": lock_slot,
        "holders": holders,
    }


def _hold(segment: int, held: HeldBlock, nbytes: int) -> dict[str, Any]:
    row = {
        "segment": segment,
        "block": held.block,
        "generation": held.generation,
        "bytes": nbytes,
        "age_seconds": held.age,
    }
    if held.kind == HOLD_TICKET:
        return {**row, "slot": held.owner}
    return {**row, **_owner(held.owner), "kind": KINDS.get(held.kind, str(held.kind))}


def _owner(owner: int) -> dict[str, int | None]:
    return {"slot": owner if owner < FIRST_RING else None, "ring": owner if owner >= FIRST_RING else None}


def _slot(found: int) -> int | None:
    """Return the slot of a lock's holder as read from shared memory, which may contain any value."""
    return found if 0 < found < MAX_SLOTS else None


def _divided(holds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most SHOW_HOLDS rows, the oldest of each owner, so that an owner of many does not hide the others."""
    by_owner: dict[tuple[int | None, int | None], list[dict[str, Any]]] = {}
    for row in sorted(holds, key=_age, reverse=True):
        by_owner.setdefault((row["slot"], row["ring"]), []).append(row)
    rows = [row for rank in zip_longest(*by_owner.values()) for row in rank if row is not None]
    return sorted(rows[:SHOW_HOLDS], key=_age, reverse=True)


def _age(row: dict[str, Any]) -> float:
    age: float = row["age_seconds"]
    return age
