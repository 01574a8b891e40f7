"""The manager's reports: the figures of STATS and the document of LIST."""

from __future__ import annotations

from shmtensor._native import (
    FIRST_RING,
    HOLD_CLIENT,
    HOLD_MESSAGE,
    HOLD_TICKET,
    SLOT_CLIENT,
    SLOT_DEAD,
    SLOT_EMBRYO,
    LockBusy,
)
from shmtensor.manager.daemon.state import WALK_BLOCKS, WALK_HOLDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shmtensor.manager.daemon.rings import Ring
    from shmtensor.manager.daemon.state import Segment, State

WALK_LISTING = 4 * WALK_BLOCKS
"""Blocks walked by one listing at most: each takes about 2 us, in which no client is served."""
SHOW_IN_FLIGHT = 1_000
"""Rows of `in_flight` in a listing at most."""
SHOW_NAMES = 1_000
"""Rows of `names` in a listing at most."""
KINDS = {HOLD_CLIENT: "client", HOLD_TICKET: "ticket", HOLD_MESSAGE: "message"}


def figures(state: State) -> dict[str, Any]:
    """Return the fields of STATS that describe the state."""
    live_blocks = live_bytes = reserved = payload = 0
    for segment in state.segments.values():
        blocks, nbytes, kept = segment.figures()
        live_blocks += blocks
        live_bytes += nbytes
        reserved += kept
        payload += segment.nbytes
    return {
        "clients": len(state.clients),
        "detached": sum(client.detached for client in state.clients.values()),
        "embryos": len(state.embryos),
        "dying": state.dying,
        "segments": len(state.segments),
        "rings": len(state.rings),
        "orphans": len(state.orphans) - len(state.rings),
        "names": len(state.living_names()),
        "payload_bytes": payload,
        "reserved_bytes": reserved,
        "live_blocks": live_blocks,
        "live_bytes": live_bytes,
        "max_clients": state.max_clients,
        "max_bytes": state.group.quotas()[0],
        "max_bytes_per_client": state.group.quotas()[1],
        "charged_bytes": state.group.charged(),
    }


def listing(state: State) -> dict[str, Any]:
    """Return the document of LIST."""
    named: dict[int, list[str]] = {}
    chosen = []
    exported = set(state.by_block.values())
    for name, triple in state.living_names().items():
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
        kind, pid, start_time, parent, _generation = state.group.slot(slot)
        if kind == SLOT_CLIENT:
            client = state.clients.get(slot)
            what = "detached" if client is not None and client.detached else "client"
        elif kind in (SLOT_EMBRYO, SLOT_DEAD):
            what = "embryo" if kind == SLOT_EMBRYO else "dead"
        else:
            continue
        clients.append(
            {
                "slot": slot,
                "pid": pid,
                "start_time": start_time,
                "state": what,
                "parent": parent,
                "reserved_bytes": state.group.reserved(slot),
            }
        )
    return clients


def _ring(ring: Ring) -> dict[str, Any]:
    messages, put, got, capacity, reserved, max_messages, max_bytes, peak, kind = ring.memory.stats()
    return {
        "ring": ring.number,
        "segment": ring.segment,
        "kind": kind,
        "messages": messages,
        "bytes": max(0, put - got),
        "put_bytes": put,
        "got_bytes": got,
        "capacity_bytes": capacity,
        "reserved_bytes": reserved,
        "max_messages": max_messages,
        "max_bytes": max_bytes,
        "peak_messages": peak,
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
            for index, _offset, size, generation, holds in blocks:
                for owner, kind, age in holds:
                    entry = sums.setdefault((owner, kind), [0, 0, 0.0])
                    entry[0] += 1
                    entry[1] += nbytes if segment.ring is not None else size
                    entry[2] = max(entry[2], age)
                    if kind == HOLD_TICKET:
                        in_flight.append(
                            {
                                "segment": segment.id,
                                "block": index,
                                "generation": generation,
                                "bytes": size if segment.ring is None else nbytes,
                                "slot": owner,
                                "age_seconds": age,
                            }
                        )
            holders = [
                {
                    "slot": owner if owner < FIRST_RING else None,
                    "ring": owner if owner >= FIRST_RING else None,
                    "kind": KINDS.get(kind, str(kind)),
                    "blocks": int(count),
                    "bytes": int(size),
                    "oldest_seconds": age,
                }
                for (owner, kind), (count, size, age) in sorted(sums.items())
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
