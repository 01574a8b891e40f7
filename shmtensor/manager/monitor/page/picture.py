"""Pictures, which the page shows, and frames, the changes from one picture to the next.

A picture has tables, each a dict of rows by their keys, and the blocks of each segment:

    manager   one row, "manager": fields of STATS, and `problem`, empty if there is none
    clients   by slot: pid, state, command, reserved (bytes)
    segments  by number: owner (slot or null), payload, reserved, live (bytes), blocks, dedicated, ring (or null),
              holders (lists of owner, kind, blocks, bytes, since)
    rings     by number: the fields of LIST
    blocks    by segment: bytes, one row of ROW_BYTES for each block record, zeros where no block lives

Tables and blocks are changed by frames (`difference`, `apply`). A frame is JSON, and contains only what changed:

    t         seconds since the epoch now       seconds of CLOCK_MONOTONIC, in which `since` counts reset     true:
    discard the previous picture; the frame has all tables manager, clients, segments, rings    changed rows by key;
    null: the row is gone blocks    [[segment, first row, rows in base64], ...]: rows that changed; a segment that is
    gone has none
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from math import isfinite

from shmtensor.manager.ring_kinds import STORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Frame = dict[str, Any]

TABLES = ("manager", "clients", "segments", "rings")
ROW_BYTES = 24
"""Row of a block: offset / 64, owner << 8 | kind (u32 each), bytes (u64), since, holds (u32 each); little endian."""
CHUNK_BYTES = 16 * ROW_BYTES
"""Blocks are sent in pieces of this size."""
SPLIT = 16
"""Number of pieces that are compared together first."""
MAX_ROWS = 1 << 20


class Picture:
    """The tables and blocks of one moment."""

    def __init__(self) -> None:
        self.t: float = 0.0
        self.now = 0
        self.tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
        self.blocks: dict[str, bytes] = {}

    def copy(self) -> Picture:
        """Return a picture that shares the rows, which are never changed in place."""
        other = Picture()
        other.t, other.now = self.t, self.now
        other.tables = {name: dict(rows) for name, rows in self.tables.items()}
        other.blocks = dict(self.blocks)
        return other

    def totals(self) -> list[float]:
        """Return a point of the timeline: t, live bytes, reserved bytes, live blocks, messages in queues."""
        segments = self.tables["segments"].values()
        queues = [row for row in self.tables["rings"].values() if row.get("kind") != STORE]
        return [
            self.t,
            sum(row["live"] for row in segments),
            sum(row["reserved"] for row in segments),
            sum(row["blocks"] for row in segments),
            sum(row["messages"] for row in queues),
        ]


def difference(before: Picture | None, after: Picture) -> Frame:
    """Return the frame that leads from one picture to the next; `before` None: from nothing, with all tables."""
    frame: Frame = {"t": round(after.t, 3), "now": after.now}
    if before is None:
        frame["reset"] = True
        before = Picture()
    for name in TABLES:
        old, new = before.tables[name], after.tables[name]
        changed = {key: row for key, row in new.items() if old.get(key) != row}
        changed |= dict.fromkeys(old.keys() - new.keys())
        if changed:
            frame[name] = changed
    pieces: list[list[Any]] = []
    for key, rows in after.blocks.items():
        _compare(key, before.blocks.get(key, b""), rows, pieces)
    if pieces:
        frame["blocks"] = pieces
    return frame


def is_empty(frame: Frame) -> bool:
    """Whether nothing changed."""
    return len(frame) == 2


def _compare(key: str, old: bytes, new: bytes, pieces: list[list[Any]]) -> None:
    """Append the pieces in which the blocks of a segment differ; adjacent pieces are joined."""
    if old == new:
        return
    new = new.ljust(len(old), b"\0")
    old = old.ljust(len(new), b"\0")
    ranges: list[list[int]] = []
    for at in range(0, len(new), SPLIT * CHUNK_BYTES):
        end = at + SPLIT * CHUNK_BYTES
        if old[at:end] == new[at:end]:
            continue
        for start in range(at, min(end, len(new)), CHUNK_BYTES):
            stop = start + CHUNK_BYTES
            if old[start:stop] != new[start:stop]:
                if ranges and ranges[-1][1] == start:
                    ranges[-1][1] = stop
                else:
                    ranges.append([start, stop])
    pieces += [[key, start // ROW_BYTES, b64encode(new[start:stop]).decode()] for start, stop in ranges]


def apply(picture: Picture, frame: Frame) -> None:
    """Apply a frame to a picture. Raises ValueError: it is not a frame."""
    try:
        if frame.get("reset"):
            picture.__init__()  # type: ignore[misc]
        picture.t, picture.now = float(frame["t"]), int(frame["now"])
        if not isfinite(picture.t):
            raise ValueError("t is not a time")
        for name in TABLES:
            rows = picture.tables[name]
            for key, row in frame.get(name, {}).items():
                if row is None:
                    rows.pop(key, None)
                elif isinstance(row, dict):
                    rows[key] = row
                else:
                    raise ValueError(f"a row of {name} is not an object")
        changed: dict[str, bytearray] = {}
        for key, first, text in frame.get("blocks", ()):
            if key not in changed:
                changed[key] = bytearray(picture.blocks.get(key, b""))
            _put(changed[key], first, b64decode(text, validate=True))
        picture.blocks |= {key: bytes(rows) for key, rows in changed.items()}
        for key in picture.blocks.keys() - picture.tables["segments"].keys():
            del picture.blocks[key]
    except (KeyError, TypeError, AttributeError, OverflowError) as problem:
        raise ValueError(f"not a frame: {problem!r}") from None


def _put(blocks: bytearray, first: int, rows: bytes) -> None:
    at = first * ROW_BYTES
    if not 0 <= first < MAX_ROWS or len(rows) % ROW_BYTES or len(rows) > MAX_ROWS * ROW_BYTES:
        raise ValueError("blocks beyond the end of a table")
    blocks.extend(bytes(max(0, at - len(blocks))))
    blocks[at : at + len(rows)] = rows
