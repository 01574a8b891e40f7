"""The text output of `shmtensor-manager`, made from the documents of STATS and LIST."""

from __future__ import annotations

from shmtensor.manager.shortage import command_of, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHOW_HOLDERS = 5
"""Holders shown for each segment; the others are added up."""
SHOW_IN_FLIGHT = 20
"""Rows shown for holds in flight."""
SHOW_NAMES = 20
"""Rows shown for the names that users bound."""


def duration(seconds: float) -> str:
    """Format a number of seconds: "0.4 s", "3 min 5 s", "2 h 10 min", "4 d 3 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def table(header: list[str], rows: list[list[str]], right: set[int]) -> list[str]:
    """Return aligned lines; the columns in `right` are right-aligned."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def status(figures: dict[str, Any]) -> str:
    """Return the text of `status`."""
    clients = f"{figures['clients']} of at most {figures['max_clients']}"
    extra = [f"{figures[key]} {key}" for key in ("detached", "embryos", "dying") if figures[key]]
    segments = f"{figures['segments']}"
    if figures["rings"]:
        segments += f", {figures['rings']} of them rings"
    if figures["orphans"]:
        segments += f", {figures['orphans']} without an owner"
    quotas = [
        f"{size(figures[key])} {whose}"
        for key, whose in (("max_bytes", "in all"), ("max_bytes_per_client", "for each client"))
        if figures[key]
    ]
    rows = [
        ("address", figures["address"]),
        ("pid", str(figures["pid"])),
        ("version", f"{figures['version']} (protocol {figures['protocol']}, layout {figures['layout']})"),
        ("kind", _manager_kind(figures)),
        ("uptime", duration(figures["uptime_seconds"])),
        ("log", figures["log"]),
        ("clients", ", ".join([clients, *extra])),
        ("segments", segments),
        (
            "memory",
            f"{size(figures['reserved_bytes'])} reserved, "
            f"{size(figures['live_bytes'])} in {figures['live_blocks']} blocks",
        ),
        ("quota", f"{size(figures['charged_bytes'])} counted of {', '.join(quotas)}" if quotas else "none"),
        ("names", str(figures["names"])),
        ("requests", f"{figures['requests']}, {figures['refused']} refused"),
        ("descriptors", f"{figures['descriptors']} of {figures['max_descriptors']}"),
    ]
    return "\n".join(f"{key:<12} {value}" for key, value in rows)


def _manager_kind(figures: dict[str, Any]) -> str:
    """Describe how a manager runs and when it ends."""
    if figures.get("left"):
        return "continues in the background for a `serve` that has ended, until its last client has ended"
    ends = "until it is stopped"
    if figures["idle_exit"] is not None:
        ends = f"ends {duration(figures['idle_exit'])} after its last client"
    if not figures["private"]:
        return f"{'supervised service' if figures.get('supervised') else 'in the foreground'}, {ends}"
    return f"{'in the background' if figures['idle_exit'] is None else 'started on demand'}, {ends}"


def listing(document: dict[str, Any]) -> str:
    """Return the text of `ls`."""
    people = {row["slot"]: row for row in document["clients"]}
    lines = _segments(document["segments"], people)
    lines += ["", *_holders(document["segments"], people)]
    if document["rings"]:
        lines += ["", *_rings(document["rings"])]
    if document["names"]:
        lines += ["", *_names(document)]
    lines += ["", *_in_flight(document, people)]
    return "\n".join(lines)


def _who(slot: int | None, people: dict[int, dict[str, Any]]) -> str:
    if slot is None:
        return "nobody"
    if slot == 0:
        return "in flight"
    row = people.get(slot)
    if row is None:
        return f"slot {slot}"
    return f"pid {row['pid']}" if row["state"] in ("client", "detached") else f"slot {slot} ({row['state']})"


def _kind(row: dict[str, Any]) -> str:
    if row["ring"] is not None:
        return f"ring {row['ring']}"
    return "dedicated" if row["dedicated"] else "arena"


def _segments(segments: list[dict[str, Any]], people: dict[int, dict[str, Any]]) -> list[str]:
    if not segments:
        return ["no segments"]
    rows = [
        [
            str(row["id"]),
            _kind(row),
            size(row["payload_bytes"]),
            size(row["reserved_bytes"]),
            str(row["live_blocks"]),
            size(row["live_bytes"]),
            str(row["names"]),
            _who(row["owner"], people),
            row["name"] or "-",
        ]
        for row in segments
    ]
    header = ["SEGMENT", "KIND", "SIZE", "RESERVED", "BLOCKS", "LIVE", "NAMES", "OWNER", "SHM NAME"]
    return table(header, rows, {0, 2, 3, 4, 5, 6})


def _holders(segments: list[dict[str, Any]], people: dict[int, dict[str, Any]]) -> list[str]:
    rows = []
    for segment in segments:
        if segment["holders"] is None:
            why = "locked" if segment["busy"] else "too many blocks to list"
            rows.append([str(segment["id"]), f"({why})", "", "", "", ""])
            continue
        holders = sorted(segment["holders"], key=lambda row: -row["bytes"])
        for holder in holders[:SHOW_HOLDERS]:
            pid = people.get(holder["slot"], {}).get("pid", 0)
            rows.append(
                [
                    str(segment["id"]),
                    _holder(holder, people),
                    str(holder["blocks"]),
                    size(holder["bytes"]),
                    duration(holder["oldest_seconds"]),
                    command_of(pid) or "-",
                ]
            )
        rest = holders[SHOW_HOLDERS:]
        if rest:
            blocks, nbytes = sum(row["blocks"] for row in rest), sum(row["bytes"] for row in rest)
            rows.append([str(segment["id"]), f"and {len(rest)} more", str(blocks), size(nbytes), "", ""])
    if not rows:
        return ["no blocks are held"]
    return table(["SEGMENT", "HELD BY", "BLOCKS", "BYTES", "OLDEST", "COMMAND"], rows, {0, 2, 3, 4})


def _holder(holder: dict[str, Any], people: dict[int, dict[str, Any]]) -> str:
    if holder["ring"] is not None:
        return f"messages in ring {holder['ring']}"
    if holder["kind"] == "name":
        return "the group, by its name"
    who = _who(holder["slot"], people)
    return who if holder["kind"] == "client" or holder["slot"] == 0 else f"{who} ({holder['kind']})"


def _rings(rings: list[dict[str, Any]]) -> list[str]:
    rows = [
        [
            str(row["ring"]),
            str(row["segment"]),
            str(row["messages"]),
            size(row["bytes"]),
            str(row["max_messages"] or "-"),
            size(row["reserved_bytes"]),
        ]
        for row in rings
    ]
    return table(["RING", "SEGMENT", "MESSAGES", "BYTES", "AT MOST", "RESERVED"], rows, {0, 1, 2, 3, 4, 5})


def _names(document: dict[str, Any]) -> list[str]:
    rows = [[row["name"], str(row["segment"]), str(row["block"])] for row in document["names"][:SHOW_NAMES]]
    lines = table(["NAME", "SEGMENT", "BLOCK"], rows, {1, 2})
    if document["names_total"] > len(rows):
        lines.append(f"and {document['names_total'] - len(rows)} more")
    return lines


def _in_flight(document: dict[str, Any], people: dict[int, dict[str, Any]]) -> list[str]:
    total = document["in_flight_total"]
    if not total:
        return ["nothing is in flight"]
    rows = [
        [
            str(row["segment"]),
            str(row["block"]),
            size(row["bytes"]),
            duration(row["age_seconds"]),
            "any receiver" if row["slot"] == 0 else _who(row["slot"], people),
        ]
        for row in document["in_flight"][:SHOW_IN_FLIGHT]
    ]
    lines = table(["SEGMENT", "BLOCK", "BYTES", "SENT AGO", "FOR"], rows, {0, 1, 2, 3})
    if total > len(rows):
        lines.append(f"and {total - len(rows)} more")
    return [f"{total} in flight (sent and not yet received):", *lines]
