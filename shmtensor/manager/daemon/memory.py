"""The memory that the manager creates and frees: metadata and payloads of segments, documents."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import fcntl
import json
import os
import sys

from shmtensor import _native
from shmtensor.manager.daemon import notify
from shmtensor.manager.daemon.journal import Journal
from shmtensor.manager.daemon.records import Segment
from shmtensor.manager.daemon.rings import Ring
from shmtensor.posix_shm import open_shm, unlink_shm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

_F_ADD_SEALS = 1033
_ALL_SEALS = 1 | 2 | 4 | 8  # SEAL, SHRINK, GROW, WRITE


def metadata_name(group_id: int, number: int) -> str:
    """Return the name of the memfd with a segment's metadata, by which a successor finds it in /proc."""
    return f"shmtensor-{group_id:016x}-{number}-metadata"


def group_name(group_id: int, epoch: int) -> str:
    """Return the name under which a supervisor keeps the group segment for the manager with that epoch."""
    return f"shmtensor-{group_id:016x}.{epoch}"


def payload_name(group_id: int, number: int) -> str:
    """Return the name of the memfd with a segment's payload, under which a supervisor also keeps the segment."""
    return f"shmtensor-{group_id:016x}-{number}"


class Made:
    """The parts of a new segment: metadata, descriptor of the payload, shm name (empty for a memfd)."""

    __slots__ = ("metadata", "name", "payload")

    def __init__(self, metadata: _native.SegmentMetadata, payload: int, name: bytes) -> None:
        self.metadata: _native.SegmentMetadata = metadata
        self.payload: int = payload
        self.name: bytes = name


class Memory:
    """Creates and frees segments; the `Outside` of `state.State`."""

    def __init__(self, group_id: int, journal: Journal, kept: Container[int] | None = None) -> None:
        """Create memory for a group.

        Args:
            group_id: the group.
            journal: records the names of POSIX shm objects.
            kept: numbers of the segments whose descriptors the supervisor has; it keeps those of all segments as long
                as they exist. None: there is no such supervisor.
        """
        self._group_id = group_id
        self._journal = journal
        self._kept = kept

    def make(self, number: int, owner: tuple[int, int], pid: int, nbytes: int, dedicated: bool, named: bool) -> Made:
        """Create segment `number` for the client `owner` (slot, generation), process `pid`. Raises OSError."""
        if named:
            name, payload = self._named_payload(number, pid, nbytes)
        else:
            name, payload = b"", _native.make_payload(payload_name(self._group_id, number), nbytes)
        try:
            return Made(self._make_metadata(number, owner, nbytes, dedicated), payload, name)
        except BaseException:
            os.close(payload)
            if name:
                remove_shm(name)
            raise

    def make_on_device(
        self, number: int, owner: tuple[int, int], nbytes: int, dedicated: bool, device: bytes
    ) -> _native.SegmentMetadata:
        """Create the metadata of a segment whose payload is memory of the device with that UUID. Raises OSError."""
        return self._make_metadata(number, owner, nbytes, dedicated, device)

    def _make_metadata(
        self, number: int, owner: tuple[int, int], nbytes: int, dedicated: bool, device: bytes = b""
    ) -> _native.SegmentMetadata:
        name = metadata_name(self._group_id, number)
        return _native.SegmentMetadata.create(name, number, *owner, nbytes, dedicated, device)

    def make_ring(self, number: int, ring: int, slot: int) -> tuple[_native.SegmentMetadata, int, Ring]:
        """Create ring `ring` as segment `number`, held by `slot`. Returns (metadata, payload, ring). Raises OSError.

        The hold is added before the client knows the ring, so that nothing is left if the client dies meanwhile.
        """
        payload = _native.make_payload(payload_name(self._group_id, number), _native.RING_BYTES)
        try:
            memory = _native.RingMemory.make(payload, ring)
            metadata = self._make_metadata(number, (0, 0), _native.RING_BYTES, True)
            metadata.hand_out(slot)
        except BaseException:
            os.close(payload)
            raise
        return metadata, payload, Ring(memory)

    def _named_payload(self, number: int, pid: int, nbytes: int) -> tuple[bytes, int]:
        while True:
            name = b"/torch_%d_%d" % (pid, int.from_bytes(os.urandom(8), "little") >> 1)
            # Recorded before it exists, so that after a kill a successor knows every name.
            self._journal.shm(name, number)
            try:
                fd = open_shm(name.decode(), os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            try:
                os.ftruncate(fd, nbytes)
            except BaseException:
                os.close(fd)
                remove_shm(name)
                raise
            return name, fd

    def keep(self, segment: Segment) -> None:
        """Have the supervisor keep a segment that is new to this manager. Blocks up to a second.

        Segments on a device are excluded: reopening such a descriptor gives another object, useless to the next
            manager.
        """
        if self._kept is not None and segment.id not in self._kept and not segment.device:
            notify.keep(payload_name(self._group_id, segment.id), (segment.metadata.fd, segment.payload))

    def destroy(self, segment: Segment) -> None:
        """Destroy a segment. Its pages are freed first, because clients may still have it mapped."""
        segment.metadata.retire()  # clients unmap it when they next map a segment or trim
        self.punch(segment, 0, segment.nbytes)
        if segment.name:
            remove_shm(segment.name)
            self._journal.gone(segment.name)
        if self._kept is not None:
            notify.drop(payload_name(self._group_id, segment.id))
        self.release(segment)

    def release(self, segment: Segment) -> None:
        """Close a segment's descriptors. Clients that have it mapped keep its content, and its name stays."""
        segment.metadata.close()
        if segment.ring is not None:
            segment.ring.close()
        if segment.payload >= 0:
            os.close(segment.payload)

    def name(self, name: bytes, triple: tuple[int, int, int], giver: tuple[int, int]) -> None:
        """Record in the journal the block of a name, and the client that asked for it. Raises OSError."""
        self._journal.name(name, triple, giver)

    def forget(self, name: bytes) -> None:
        """Record that a name is no longer in use."""
        self._journal.gone(name)

    def punch(self, segment: Segment, offset: int, nbytes: int) -> None:
        """Give the pages of a range of the payload back to the system. Memory of a device is only freed as a whole."""
        if segment.device:
            return
        try:
            _native.punch(segment.payload, offset, nbytes)
            segment.metadata.note_reserved(segment.payload)
        except OSError as problem:
            text = f"cannot give pages of segment {segment.id} back: {problem.strerror}"
            print(f"shmtensor-manager[{os.getpid()}]: {text}", file=sys.stderr, flush=True)


def remove_shm(name: bytes) -> None:
    """Unlink a POSIX shm object if it exists and belongs to this user."""
    try:
        unlink_shm(os.fsdecode(name))
    except (FileNotFoundError, PermissionError, ValueError):
        pass


def document(content: dict[str, Any]) -> tuple[int, int]:
    """Write `content` as JSON in UTF-8 into a sealed memfd. Returns (descriptor, bytes). Raises OSError."""
    data = json.dumps(content).encode("utf-8", "backslashreplace")
    fd = os.memfd_create("shmtensor-document", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        at = 0
        while at < len(data):
            at += os.write(fd, data[at : at + (1 << 24)])
        fcntl.fcntl(fd, _F_ADD_SEALS, _ALL_SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd, len(data)
