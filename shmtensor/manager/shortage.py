"""Messages for refused memory requests: size asked for, free memory, limit hit, largest holders."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH123

from __future__ import annotations

import os
from errno import EDQUOT

from shmtensor import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(nbytes: float) -> str:
    """Format a number of bytes: "512 B", "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def parse_size(text: str) -> int:
    """Parse a size: "4096", "512M", "1.5GiB"; K, M, G and T are powers of 1024. Returns bytes.

    Raises:
        ValueError: it is not a size, or less than one byte.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:] in UNITS else ""
    nbytes = float(number.removesuffix(unit)) * UNITS[unit]
    if not 1 <= nbytes < 1 << 63:
        raise ValueError(f"{text} is not a size of at least one byte")
    return int(nbytes)


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def available() -> int | None:
    """Return the memory available without swapping (MemAvailable) in bytes, or None if unknown."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def command_of(pid: int) -> str:
    """Return the command line of a process, shortened to one line; empty if it is not visible."""
    words = " ".join(_read(f"/proc/{pid}/cmdline").replace("\0", " ").split()) if pid > 0 else ""
    return words if len(words) <= 60 else words[:57] + "..."


def holders(listing: dict[str, Any]) -> list[tuple[int, int]]:
    """Return (bytes held, pid) from a LIST document, largest first; pid 0 stands for messages in flight."""
    pids = {row["slot"]: row["pid"] for row in listing["clients"]}
    sums: dict[int, int] = {}
    for segment in listing["segments"]:
        for row in segment["holders"] or ():
            pid = pids.get(row["slot"], 0)
            sums[pid] = sums.get(pid, 0) + row["bytes"]
    return sorted(((nbytes, pid) for pid, nbytes in sums.items()), reverse=True)


def reservers(listing: dict[str, Any]) -> list[tuple[int, int]]:
    """Return (bytes reserved, pid) from a LIST document, largest first. Quotas count these bytes."""
    return sorted(((row["reserved_bytes"], row["pid"]) for row in listing["clients"]), reverse=True)


def _process(pid: int) -> str:
    return f"pid {pid} ({command_of(pid) or 'command unknown'})" if pid else "messages in flight"


def _largest(rows: list[tuple[int, int]]) -> str:
    top = [f"{size(nbytes)} by {_process(pid)}" for nbytes, pid in rows[:3] if nbytes]
    return "; ".join(top) if top else "none"


def describe_holds(segment: int, listing: dict[str, Any] | None) -> str:
    """Return the message of a QuotaExceeded for a segment whose table of holds is full.

    Args:
        segment: number of the segment.
        listing: a LIST document, or None if the manager did not return one.
    """
    row = next((row for row in listing["segments"] if row["id"] == segment), None) if listing else None
    pids = {client["slot"]: client["pid"] for client in listing["clients"]} if listing else {}
    counts: dict[str, int] = {}
    for holder in (row and row["holders"]) or ():
        pid = pids.get(holder["slot"], 0)
        who = _process(pid) if holder["ring"] is None else f"messages in ring {holder['ring']}"
        counts[who] = counts.get(who, 0) + holder["blocks"]
    largest = sorted(counts.items(), key=lambda item: -item[1])[:3]
    has = "" if row is None else f", all {_native.DEDICATED_HOLDS if row['dedicated'] else _native.ARENA_HOLDS} entries"
    return (
        f"the table of holds of segment {segment} is full{has}. It has one entry for each process and each message "
        "that holds a block of the segment, and cannot grow. Most entries: "
        + ("; ".join(f"{count} by {who}" for who, count in largest) if largest else "too many to list")
        + ". What to do: receive the messages that wait in queues (`shmtensor-manager ls` lists their rings), bound "
        "the queues (maxsize), or send a clone() of the tensor"
    )


def describe(
    what: str,
    number: int,
    asked: int,
    limit: str,
    named: bool,
    listing: dict[str, Any] | None,
    group: _native.Group,
    slot: int,
) -> str:
    """Return the message of an OutOfMemory or QuotaExceeded.

    Args:
        what: the operation that was refused.
        number: its errno.
        asked: bytes asked for.
        limit: the limit that was hit, from the native core; may be empty.
        named: True for the strategy `file_system`, whose memory is in /dev/shm.
        listing: a LIST document, or None if the manager did not return one.
        group: the group, for its quotas.
        slot: the slot of this process in the group.
    """
    why = "the quota does not allow it" if number == EDQUOT else os.strerror(number)
    parts = [f"no shared memory for {asked} bytes ({size(asked)}): {what}: {why}"]
    if limit:
        parts.append(f"limit hit: {limit}")
    free = available()
    facts = [] if free is None else [f"{size(free)} available on this machine"]
    if named:
        try:
            room = os.statvfs("/dev/shm")
            facts.append(
                f"{size(room.f_bavail * room.f_frsize)} of {size(room.f_blocks * room.f_frsize)} free in /dev/shm"
            )
        except OSError:
            pass
    facts += [
        f"{size(max(0, one.limit - one.used))} of {size(one.limit)} free in cgroup {one.path}"
        for one in _native.memory_cgroups()
    ]
    limits = group.quotas()
    charges = (
        (limits.max_bytes, group.charged(), "all clients"),
        (limits.max_bytes_per_client, group.reserved(slot), "this process"),
    )
    quotas = [(bound, max(0, bound - charged), whose) for bound, charged, whose in charges if bound]
    facts += [f"{size(room)} of the quota of {size(bound)} for {whose}" for bound, room, whose in quotas]
    if facts:
        parts.append("free: " + ", ".join(facts))
    if listing is not None:
        parts.append("largest holders: " + _largest(holders(listing)))
        if number == EDQUOT:
            parts.append("reserved, including caches: " + _largest(reservers(listing)))
    advice = "release tensors, or raise the limit"
    if number == EDQUOT and all(room >= asked for _, room, _ in quotas):
        advice = "enough has been released since then: try again, or raise the limit"
    if named:
        advice += ", or use the strategy file_descriptor, which does not depend on /dev/shm"
    return ". ".join(parts) + f". What to do: {advice}"
