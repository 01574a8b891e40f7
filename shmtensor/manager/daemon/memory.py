"""The memory that the manager makes and gives back: books and payloads of segments, documents."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: SIM105

from __future__ import annotations

import fcntl
import json
import os
import sys

from shmtensor import _native
from shmtensor.manager import protocol
from shmtensor.manager.daemon.journal import Journal
from shmtensor.manager.daemon.rings import Ring
from shmtensor.manager.daemon.state import Refusal, Segment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_F_ADD_SEALS = 1033
_ALL_SEALS = 1 | 2 | 4 | 8  # SEAL, SHRINK, GROW, WRITE


def books_name(group_id: int, number: int) -> str:
    """Name of the memfd that is the control part of a segment: by these the next manager finds them in /proc."""
    return f"shmtensor-{group_id:016x}-{number}-books"


def payload_name(group_id: int, number: int) -> str:
    """Name of the memfd that is the payload of a segment."""
    return f"shmtensor-{group_id:016x}-{number}"


class Made:
    """A new segment's parts: the books, the payload's descriptor, and its shm name (empty for a memfd)."""

    __slots__ = ("books", "name", "payload")

    def __init__(self, books: _native.Books, payload: int, name: bytes) -> None:
        self.books = books
        self.payload = payload
        self.name = name


class Memory:
    """Makes segments, and gives them back for `state.State`."""

    def __init__(self, group_id: int, journal: Journal) -> None:
        self._group_id = group_id
        self._journal = journal

    def make(self, number: int, owner: tuple[int, int], pid: int, nbytes: int, dedicated: bool, named: bool) -> Made:
        """Memory for segment `number` of a client: its slot and generation, its process. Raises OSError, Refusal."""
        if named:
            name, payload = self._named_payload(number, pid, nbytes)
        else:
            name, payload = b"", _native.make_payload(payload_name(self._group_id, number), nbytes)
        try:
            return Made(self._books(number, owner, nbytes, dedicated), payload, name)
        except BaseException:
            os.close(payload)
            if name:
                unlink_shm(name)
            raise

    def _books(self, number: int, owner: tuple[int, int], nbytes: int, dedicated: bool) -> _native.Books:
        return _native.Books.create(books_name(self._group_id, number), number, *owner, nbytes, dedicated)

    def make_ring(self, number: int, ring: int, slot: int) -> tuple[_native.Books, int, Ring]:
        """A ring of number `ring` as segment `number`, held by `slot`: (books, payload, ring). Raises OSError.

        Held before anyone has heard of it, so that a client that dies on the way leaves nothing.
        """
        payload = _native.make_payload(payload_name(self._group_id, number), _native.RING_BYTES)
        try:
            memory = _native.RingMemory.make(payload, ring)
            books = self._books(number, (0, 0), _native.RING_BYTES, True)
            books.hand_out(slot)
        except BaseException:
            os.close(payload)
            raise
        return books, payload, Ring(memory)

    def _named_payload(self, number: int, pid: int, nbytes: int) -> tuple[bytes, int]:
        try:
            import posix_ipc
        except ImportError:
            raise Refusal(
                protocol.UNSUPPORTED,
                "the strategy file_system needs posix_ipc, which the manager cannot import; install it, or use the "
                "strategy file_descriptor",
            ) from None
        while True:
            name = b"/torch_%d_%d" % (pid, int.from_bytes(os.urandom(8), "little") >> 1)
            # Written down before it exists, so that whoever comes after a kill finds every name.
            self._journal.shm(name, number)
            try:
                memory = posix_ipc.SharedMemory(name.decode(), posix_ipc.O_CREX, 0o600)
            except posix_ipc.ExistentialError:
                continue
            fd: int = memory.fd
            try:
                os.ftruncate(fd, nbytes)
                os.set_inheritable(fd, False)
            except BaseException:
                os.close(fd)
                unlink_shm(name)
                raise
            return name, fd

    def destroy(self, segment: Segment) -> None:
        """Give a segment back. The pages go first: a peer may have it mapped still, and must not keep the memory."""
        segment.books.retire()  # peers unmap it when they next add or trim
        self.punch(segment, 0, segment.nbytes)
        if segment.name:
            unlink_shm(segment.name)
            self._journal.gone(segment.name)
        self.release(segment)

    def release(self, segment: Segment) -> None:
        """Let go of a segment; peers that have it mapped keep it, with its content, and its name stays."""
        segment.books.close()
        if segment.ring is not None:
            segment.ring.close()
        os.close(segment.payload)

    def name(self, name: bytes, triple: tuple[int, int, int], giver: tuple[int, int]) -> None:
        """Remember beyond this process that a name stands for a block, and who asked for it. Raises OSError."""
        self._journal.name(name, triple, giver)

    def forget(self, name: bytes) -> None:
        """A name stands for nothing any more."""
        self._journal.gone(name)

    def punch(self, segment: Segment, offset: int, nbytes: int) -> None:
        """Give back the pages of a range."""
        try:
            _native.punch(segment.payload, offset, nbytes)
            segment.books.note_reserved(segment.payload)
        except OSError as problem:
            text = f"pages of segment {segment.id} cannot be given back: {problem.strerror}"
            print(f"shmtensor-manager[{os.getpid()}]: {text}", file=sys.stderr, flush=True)


def unlink_shm(name: bytes) -> None:
    """Remove a POSIX shm name; one that is gone is fine."""
    import posix_ipc

    try:
        posix_ipc.unlink_shared_memory(name.decode("ascii", "replace"))
    except (posix_ipc.ExistentialError, posix_ipc.PermissionsError, ValueError):
        pass


def document(content: dict[str, Any]) -> tuple[int, int]:
    """(descriptor, bytes) of a sealed memfd with `content` as JSON in UTF-8. Raises OSError."""
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
