"""Messages for refused memory requests: size asked for, free memory, limit hit, largest holders."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH123

from __future__ import annotations

import os
from errno import EDQUOT

from shmtensor import _native
from shmtensor.manager.ring_kinds import STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SHOWN = 3
"""Maximum number of holders, stores and processes that a message names, each."""
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
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def available() -> int | None:
    """Return the memory available without swapping (MemAvailable) in bytes, or None if unknown."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def command_line(pid: int) -> str:
    """Return the command line of a process, in one line of printable characters; empty if it is not visible."""
    words = _read(f"/proc/{pid}/cmdline").replace("\0", " ").split() if pid > 0 else []
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(words))


def command_of(pid: int) -> str:
    """Return the command line of a process, shortened to 60 letters; empty if it is not visible."""
    line = command_line(pid)
    return line if len(line) <= 60 else line[:57] + "..."


def _holders(listing: dict[str, Any]) -> list[tuple[int, str]]:
    """Return (bytes held, holder) from a LIST document, largest first."""
    sums: dict[str, int] = {}
    for segment in listing["segments"]:
        for row in segment["holders"] or ():
            who = _holder(row, listing)
            sums[who] = sums.get(who, 0) + row["bytes"]
    return sorted(((nbytes, who) for who, nbytes in sums.items()), reverse=True)


def _holder(row: dict[str, Any], listing: dict[str, Any]) -> str:
    """Return the owner of the holds in a row of `holders`: a process, a ring, or unloaded pickles."""
    if row["kind"] == "ticket":
        return "pickles that were not loaded yet"
    if row["ring"] is not None:
        return _ring(row["ring"], listing)
    return _process(next((client["pid"] for client in listing["clients"] if client["slot"] == row["slot"]), 0))


def _ring(number: int, listing: dict[str, Any]) -> str:
    """Describe a ring, with its name or number."""
    ring = next((row for row in listing["rings"] if row["ring"] == number), None)
    named = _names(number, listing)
    if ring is not None and ring["kind"] == STORE:
        return f"the store {named[0]!r}" if named else f"a store without a name (ring {number})"
    return f"messages in {named[0]!r}" if named else f"messages in ring {number}"


def _names(number: int, listing: dict[str, Any]) -> list[str]:
    segments = [row["segment"] for row in listing["rings"] if row["ring"] == number]
    return [row["name"].removeprefix("/") for row in listing["names"] if row["segment"] in segments]


def _evictable(listing: dict[str, Any]) -> list[tuple[int, int]]:
    """Return (bytes, ring) of the objects of stores that have no readers, from a LIST document, largest first."""
    sums: dict[int, int] = {}
    stores = {row["ring"] for row in listing["rings"] if row["kind"] == STORE}
    for segment in listing["segments"]:
        for row in segment["holders"] or ():
            if row["ring"] in stores and row["kind"] == "message":
                sums[row["ring"]] = sums.get(row["ring"], 0) + row["unshared_bytes"]
    return sorted(((nbytes, number) for number, nbytes in sums.items() if nbytes), reverse=True)


def _reservers(listing: dict[str, Any]) -> list[tuple[int, str]]:
    """Return (bytes reserved, process) from a LIST document, largest first. Quotas count these bytes."""
    rows = sorted(((row["reserved_bytes"], row["pid"]) for row in listing["clients"]), reverse=True)
    return [(nbytes, _process(pid)) for nbytes, pid in rows[:_SHOWN]]


def _process(pid: int) -> str:
    return f"pid {pid} ({command_of(pid) or 'command unknown'})" if pid else "a process that has ended"


def _largest(rows: list[tuple[int, str]]) -> str:
    top = [f"{size(nbytes)} by {who}" for nbytes, who in rows[:_SHOWN] if nbytes]
    return "; ".join(top) if top else "none"


def describe_holds(segment: int, listing: dict[str, Any] | None) -> str:
    """Return the message of a QuotaExceeded for a segment whose table of holds is full.

    Args:
        segment: number of the segment.
        listing: a LIST document, or None if the manager did not return one.
    """
    row = next((row for row in listing["segments"] if row["id"] == segment), None) if listing else None
    counts: dict[str, int] = {}
    for holder in (row and row["holders"]) or ():
        who = _holder(holder, listing or {})
        counts[who] = counts.get(who, 0) + holder["blocks"]
    largest = sorted(counts.items(), key=lambda item: -item[1])[:_SHOWN]
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
    parts = []
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
        parts.append("largest holders: " + _largest(_holders(listing)))
        if number == EDQUOT:
            parts.append("reserved, including caches: " + _largest(_reservers(listing)))
    advice = "release tensors, or raise the limit"
    if listing is not None and (evictable := _evictable(listing)):
        rows = ", ".join(f"{size(nbytes)} in {_ring(number, listing)}" for nbytes, number in evictable[:_SHOWN])
        parts.append(f"objects without readers, including pinned ones: {rows}")
        names = [name for _, number in evictable[:_SHOWN] for name in _names(number, listing)[:1]]
        how = f" (`shmtensor-manager store rm {names[0]}`)" if names else ""
        advice = f"delete objects of stores{how}, {advice}"
    if number == EDQUOT and all(room >= asked for _, room, _ in quotas):
        advice = "enough has been released since then: try again, or raise the limit"
    if named:
        advice += ", or use the strategy file_descriptor, which does not depend on /dev/shm"
    found = "".join(f". {part}" for part in parts)
    return f"no shared memory for {asked} bytes ({size(asked)}): {what}: {why}{found}. What to do: {advice}"
