"""The manager's reports: the figures of STATS and the document of LIST."""

from __future__ import annotations

from shmtensor._native import (
    FIRST_RING,
    HOLD_CLIENT,
    HOLD_MESSAGE,
    HOLD_NAME,
    HOLD_TICKET,
    SLOT_CLIENT,
    SLOT_DEAD,
    SLOT_EMBRYO,
    LockBusy,
)
from shmtensor.manager.daemon.names import OWN_NAMES
from shmtensor.manager.daemon.state import WALK_BLOCKS, WALK_HOLDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmtensor.manager.daemon.records import BlockId, Segment
    from shmtensor.manager.daemon.rings import Ring
    from shmtensor.manager.daemon.state import State

WALK_LISTING = 4 * WALK_BLOCKS
"""Blocks walked by one listing at most: each takes about 2 us, in which no client is served."""
SHOW_IN_FLIGHT = 1_000
"""Rows of `in_flight` in a listing at most."""
SHOW_NAMES = 1_000
"""Rows of `names` in a listing at most."""
KINDS = {HOLD_CLIENT: "client", HOLD_TICKET: "ticket", HOLD_MESSAGE: "message", HOLD_NAME: "name"}


def figures(state: State) -> dict[str, Any]:
    """Return the fields of STATS that describe the state."""
    live_blocks = live_bytes = reserved = payload = 0
    for segment in state.segments.values():
        blocks, nbytes, kept = segment.figures()
        live_blocks += blocks
        live_bytes += nbytes
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
        "reserved_bytes": reserved,
        "live_blocks": live_blocks,
        "live_bytes": live_bytes,
        "holds": {kind: sum(getattr(one, kind) for one in holds) for kind in KINDS.values()},
        "oldest_ticket_seconds": max((one.oldest_ticket for one in holds), default=0.0),
        "named_rings": _named_rings(state, names),
        "requests": counters.requests,
        "refused": counters.refused,
        "reaped": counters.reaped,
        "max_clients": state.max_clients,
        "max_bytes": state.group.quotas().max_bytes,
        "max_bytes_per_client": state.group.quotas().max_bytes_per_client,
        "charged_bytes": state.group.charged(),
    }


def _named_rings(state: State, names: dict[bytes, BlockId]) -> list[dict[str, Any]]:
    """Return the messages in each ring that users named."""
    rows = []
    for name, (number, _block, _generation) in names.items():
        ring = state.segments[number].ring
        if ring is not None and not name.startswith(OWN_NAMES):
            row = _ring(ring)
            rows.append({"name": name.decode(), "messages": row["messages"], "bytes": row["bytes"]})
    return rows


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
    segments = []
    left = WALK_LISTING
    for segment in state.segments.values():
        row = _segment(segment, len(named.get(segment.id, ())), in_flight, min(left, WALK_BLOCKS))
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
    }


def _segment(segment: Segment, names: int, in_flight: list[dict[str, Any]], walk: int) -> dict[str, Any]:
    """Return a segment's row and append to `in_flight`. With more than `walk` live blocks, `holders` is None."""
    live, nbytes, reserved = segment.figures()
    busy = False
    holders: list[dict[str, Any]] | None = None
    if live <= walk:
        try:
            blocks = segment.metadata.blocks(WALK_HOLDS)
        except LockBusy:
            busy = True
        else:
            sums: dict[tuple[int, int], list[float]] = {}
            for block in blocks:
                size = nbytes if segment.ring is not None else block.nbytes
                for hold in block.holds:
                    entry = sums.setdefault((hold.owner, hold.kind), [0, 0, 0.0])
                    entry[0] += 1
                    entry[1] += size
                    entry[2] = max(entry[2], hold.age)
                    if hold.kind == HOLD_TICKET:
                        in_flight.append(
                            {
                                "segment": segment.id,
                                "block": block.block,
                                "generation": block.generation,
                                "bytes": size,
                                "slot": hold.owner,
                                "age_seconds": hold.age,
                            }
                        )
            holders = [
                {
                    "slot": owner if owner < FIRST_RING else None,
                    "ring": owner if owner >= FIRST_RING else None,
                    "kind": KINDS.get(kind, str(kind)),
                    "blocks": int(count),
                    "bytes": int(total),
                    "oldest_seconds": age,
                }
                for (owner, kind), (count, total, age) in sorted(sums.items())
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
        "holders": holders,
    }


def _age(row: dict[str, Any]) -> float:
    age: float = row["age_seconds"]
    return age
