"""`shmtensor-manager leaks`: memory held, or in flight, for long; by process and by the line that made it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

from shmtensor.manager import display
from shmtensor.manager.monitor.snapshot import take
from shmtensor.manager.monitor.tables import ring_text, shortened, stores
from shmtensor.manager.selection import ANSWER_SECONDS, observe, seconds
from shmtensor.manager.shortage import size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmtensor.manager.monitor.snapshot import Hold, Snapshot


@dataclass(frozen=True)
class Group:
    """Old holds of one owner and one origin."""

    pid: int | None
    """Process that holds them; None: they are in flight."""
    ring: int | None
    """Ring whose messages hold them."""
    command: str | None
    what: str
    """"block", or the kind of the queue whose memory is held."""
    site: str | None
    """file:line that made the blocks; None: not sampled."""
    holds: int
    bytes: int
    oldest_seconds: float

    @property
    def in_flight(self) -> bool:
        """Whether they were sent and not received."""
        return self.pid is None


@dataclass(frozen=True)
class Unlisted:
    """Holds of an owner that are not listed one by one, because there are too many; some of them may be old."""

    pid: int | None
    ring: int | None
    holds: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--older", type=seconds, default=60.0, metavar="S", help="only holds at least S seconds old (default 60)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the old holds. Returns 0, even if there are some. Raises ShmTensorError."""
    with observe(options.address, ANSWER_SECONDS) as observer:
        snapshot = take(observer, pss=False, sampled=True)
    groups, unlisted = old_holds(snapshot, options.older), unlisted_holds(snapshot, options.older)
    if options.json:
        document = {
            "older_seconds": options.older,
            "groups": [asdict(group) for group in groups],
            "unlisted": [asdict(one) for one in unlisted],
            "unlisted_segments": snapshot.unlisted_segments,
        }
        print(json.dumps(document, indent=2))
    else:
        print(text(groups, unlisted, snapshot, options.older))
    return 0


def old_holds(snapshot: Snapshot, older: float) -> list[Group]:
    """Return the listed holds that are at least `older` seconds old, in groups, the one with most bytes first."""
    commands = {row.slot: row.command for row in snapshot.processes}
    kinds = {ring.segment: ring.kind for ring in snapshot.rings}
    groups: dict[tuple[object, ...], list[Hold]] = {}
    kept = stores(snapshot)
    for hold in snapshot.holds:
        if hold.age_seconds >= older and hold.kind != "name" and hold.ring not in kept:
            key = (hold.kind, hold.slot, hold.ring, kinds.get(hold.segment, "block"), hold.site)
            groups.setdefault(key, []).append(hold)
    found = [
        Group(
            pid=holds[0].pid if holds[0].kind == "client" else None,
            ring=holds[0].ring,
            command=commands.get(holds[0].slot or 0) if holds[0].kind == "client" else None,
            what=kinds.get(holds[0].segment, "block"),
            site=holds[0].site,
            holds=len(holds),
            bytes=sum(hold.bytes for hold in holds),
            oldest_seconds=max(hold.age_seconds for hold in holds),
        )
        for holds in groups.values()
    ]
    return sorted(found, key=lambda group: (-group.bytes, -group.oldest_seconds))


def unlisted_holds(snapshot: Snapshot, older: float) -> list[Unlisted]:
    """Return the owners with unlisted holds that may be at least `older` seconds old."""
    listed: dict[tuple[object, ...], list[float]] = {}
    for hold in snapshot.holds:
        listed.setdefault((hold.kind, hold.slot, hold.ring), []).append(hold.age_seconds)
    found = []
    kept = stores(snapshot)
    for holder in snapshot.holders:
        if holder.kind == "name" or holder.ring in kept:
            continue
        ages = listed.get((holder.kind, holder.slot, holder.ring), [])
        missing = holder.blocks - len(ages)
        if missing > 0 and min(ages, default=older) >= older:
            found.append(Unlisted(holder.pid if holder.kind == "client" else None, holder.ring, missing))
    return found


def text(groups: list[Group], unlisted: list[Unlisted], snapshot: Snapshot, older: float) -> str:
    """Return the report for people."""
    age = display.duration(older)
    held = [group for group in groups if not group.in_flight]
    sent = [group for group in groups if group.in_flight]
    lines = (
        [f"held for {age} or longer:", *_table(held, snapshot)] if held else [f"nothing is held for {age} or longer"]
    )
    lines.append("")
    lines += (
        [f"sent {age} ago or earlier and not received:", *_table(sent, snapshot)]
        if sent
        else [f"nothing that was sent {age} ago or earlier is still in flight"]
    )
    if any(group.site is None and group.what == "block" for group in groups):
        lines += [
            "",
            "not sampled: set SHMTENSOR_SITES=100 for a program to record the line that makes every 100th block",
        ]
    for one in unlisted:
        who = _who(one.pid, one.ring, snapshot)
        lines += ["", f"{who} has {one.holds} more holds, which are not listed one by one"]
    if snapshot.unlisted_segments:
        lines += ["", f"{snapshot.unlisted_segments} segments were locked or have too many blocks to list; see `ls`"]
    return "\n".join(lines)


def _table(groups: list[Group], snapshot: Snapshot) -> list[str]:
    rows = [
        [
            str(group.holds),
            size(group.bytes),
            display.duration(group.oldest_seconds),
            _who(group.pid, group.ring, snapshot),
            group.site or ("not sampled" if group.what == "block" else f"the memory of a {group.what}"),
            shortened(group.command) or "-",
        ]
        for group in groups
    ]
    return display.table(["HOLDS", "BYTES", "OLDEST", "BY", "MADE AT", "COMMAND"], rows, {0, 1, 2})


def _who(pid: int | None, ring: int | None, snapshot: Snapshot) -> str:
    if pid is not None:
        return f"pid {pid}"
    return "a pickle" if ring is None else ring_text(ring, snapshot)
