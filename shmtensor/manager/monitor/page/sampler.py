"""Reads the memory of a group without asking its manager: it reopens the manager's descriptors through /proc.

Segment metadata is opened for reading only, and is read without its lock. So a picture may be inconsistent: a block
that was freed and allocated again meanwhile may be shown with its previous holder, until the next picture.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from time import monotonic

from shmtensor import _native
from shmtensor.errors import ManagerError
from shmtensor.manager.monitor.page.picture import Picture
from shmtensor.manager.ring_kinds import STORE
from shmtensor.manager.shortage import command_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SEARCH_SECONDS = 0.25
"""Interval between searches for segments that were created or destroyed."""
SEARCH_SHARE = 20
"""A long search is repeated only after this multiple of its duration."""

_MEMFD = re.compile(r"/memfd:shmtensor-([0-9a-f]{16})(?:-(\d+)(-metadata)?)?(?: \(deleted\))?")
_STATES = {_native.SLOT_CLIENT: "client", _native.SLOT_EMBRYO: "embryo", _native.SLOT_DEAD: "dead"}


class _Segment:
    """A segment that the manager has, opened by our own descriptors."""

    def __init__(self, metadata: int) -> None:
        self.metadata = metadata
        self.ring: _native.RingMemory | None = None
        self.payload = -1

    def close(self) -> None:
        if self.ring is not None:
            self.ring.close()
        for fd in (self.metadata, self.payload):
            if fd >= 0:
                os.close(fd)


class Sampler:
    """The memory of one manager's group. Close it, or use it in a `with`."""

    def __init__(self, pid: int, group_id: int) -> None:
        """Open the group of the manager with this pid.

        Raises:
            ManagerError: its descriptors cannot be opened from this process.
        """
        self._pid = pid
        self._name = f"{group_id:016x}"
        self._segments: dict[int, _Segment] = {}
        self._commands: dict[tuple[int, int], str] = {}
        self._search_at = 0.0
        self._group = self._open_group()

    def _open_group(self) -> _native.Group:
        for match, path in self._descriptors():
            if match[2] is None:
                fd = _open(path, os.O_RDWR)
                if fd >= 0:
                    try:
                        group = _native.Group.open(fd)
                    finally:
                        os.close(fd)
                    if not group.is_foreign:
                        return group
        raise ManagerError(
            f"the memory of the manager (pid {self._pid}) cannot be seen from here; run the page as its user, in its "
            "PID namespace"
        )

    def _descriptors(self) -> list[tuple[re.Match[str], Path]]:
        """Return the manager's descriptors of the group, as (name, path that reopens it). Empty if it has ended."""
        found = []
        try:
            paths = list(Path(f"/proc/{self._pid}/fd").iterdir())
        except OSError:
            return []
        for path in paths:
            try:
                match = _MEMFD.fullmatch(str(path.readlink()))
            except OSError:
                continue  # closed meanwhile
            if match is not None and match[1] == self._name:
                found.append((match, path))
        return found

    def picture(self) -> Picture:
        """Return the current content of the group, without the time and the table `manager`."""
        begun = monotonic()
        if begun >= self._search_at:
            self._search()
            took = monotonic() - begun
            self._search_at = begun + max(SEARCH_SECONDS, SEARCH_SHARE * took)
        picture = Picture()
        picture.tables["clients"] = self._clients()
        for number, segment in self._segments.items():
            try:
                seen = _native.observe_segment(segment.metadata)
            except (ValueError, OSError):
                continue  # damaged, or no memory is left here for a copy
            row = {
                "owner": seen.owner,
                "payload": seen.payload_bytes,
                "reserved": min(seen.reserved_bytes, seen.payload_bytes),
                "live": seen.live_bytes,
                "blocks": seen.live_blocks,
                "dedicated": seen.dedicated,
                "ring": None,
                "holders": [list(holder) for holder in seen.holders],
            }
            if segment.ring is not None:
                ring = _ring(segment.ring, number)
                picture.tables["rings"][str(segment.ring.number)] = ring
                row |= _counted_as_ring(row, segment.ring.number, ring["reserved"])
            picture.tables["segments"][str(number)] = row
            picture.blocks[str(number)] = seen.blocks
        return picture

    def _clients(self) -> dict[str, Any]:
        rows = {}
        for slot in self._group.occupied():
            facts = self._group.slot(slot)
            if facts.state in _STATES:
                rows[str(slot)] = {
                    "pid": facts.pid,
                    "state": _STATES[facts.state],
                    "parent": facts.parent,
                    "command": self._command(facts.pid, facts.start_time),
                    "reserved": self._group.reserved(slot),
                }
        return rows

    def _command(self, pid: int, start_time: int) -> str:
        key = (pid, start_time)
        if key not in self._commands:
            if len(self._commands) > 2 * _native.MAX_SLOTS:
                self._commands.clear()
            self._commands[key] = command_of(pid)
        return self._commands[key]

    def _search(self) -> None:
        """Open segments that the manager has made, and close those that it has given up."""
        metadata: dict[int, Path] = {}
        payloads: dict[int, Path] = {}
        for match, path in self._descriptors():
            if match[2] is not None:
                (metadata if match[3] else payloads)[int(match[2])] = path
        for number in self._segments.keys() - metadata.keys():
            self._segments.pop(number).close()
        for number in sorted(metadata.keys() - self._segments.keys()):
            fd = _open(metadata[number], os.O_RDONLY)
            if fd < 0:
                continue
            segment = _Segment(fd)
            try:
                facts = _native.observe_segment(fd)
                if facts.dedicated and facts.payload_bytes == _native.RING_BYTES and number in payloads:
                    _open_ring(segment, payloads[number])
            except (ValueError, OSError):  # its name matches, but its content does not
                segment.close()
                continue
            self._segments[number] = segment

    def close(self) -> None:
        """Close all descriptors."""
        while self._segments:
            self._segments.popitem()[1].close()

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path, flags: int) -> int:
    """Reopen a descriptor of the manager; -1 if it was closed meanwhile, or no descriptors are left here."""
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:
        return -1


def _open_ring(segment: _Segment, path: Path) -> None:
    """Map the ring in a segment, if it is one."""
    segment.payload = _open(path, os.O_RDWR)
    if segment.payload >= 0:
        with suppress(ValueError):  # an ordinary block of the same size
            segment.ring = _native.RingMemory(segment.payload)


def _counted_as_ring(row: dict[str, Any], number: int, reserved: int) -> dict[str, Any]:
    """Return the fields that differ for a segment that is a ring: its only block counts with the reserved bytes."""
    holders = [[owner, kind, blocks, blocks * reserved, since] for owner, kind, blocks, _, since in row["holders"]]
    live = reserved if row["blocks"] else 0
    return {"owner": None, "ring": number, "reserved": reserved, "live": live, "holders": holders}


def _ring(memory: _native.RingMemory, segment: int) -> dict[str, Any]:
    facts = memory.stats()
    return {
        "segment": segment,
        "kind": facts.kind,
        "messages": facts.messages,
        "bytes": max(0, facts.put_bytes - facts.got_bytes),
        "put_bytes": facts.put_bytes,
        "capacity": facts.capacity_bytes,
        "reserved": facts.reserved_bytes,
        "max_messages": facts.max_messages,
        "max_bytes": memory.store_facts().max_bytes if facts.kind == STORE else facts.max_bytes,
        "peak_messages": facts.peak_messages,
    }
