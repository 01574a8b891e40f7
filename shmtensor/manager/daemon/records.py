"""Types that the parts of the manager's state share: clients, segments, the interface to the outside, refusals."""

from __future__ import annotations

from shmtensor.manager import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from shmtensor._native import SegmentMetadata
    from shmtensor.manager.daemon.rings import Ring

    BlockId = tuple[int, int, int]
    """A block: its segment, index and generation."""

    class Outside(Protocol):
        """Operations that the state cannot do itself."""

        def keep(self, segment: Segment) -> None:
            """Take note of a new segment, or of one that was taken over."""

        def destroy(self, segment: Segment) -> None:
            """Give back the memory, close the descriptors and unlink the name."""

        def release(self, segment: Segment) -> None:
            """Close the descriptors. Processes that have it mapped keep the memory, and its name stays."""

        def punch(self, segment: Segment, offset: int, nbytes: int) -> None:
            """Give back the pages of a range of the payload."""

        def name(self, name: bytes, triple: BlockId, giver: tuple[int, int]) -> None:
            """Record in the journal the block of a name, and the client that asked for it. Raises OSError."""

        def forget(self, name: bytes) -> None:
            """Record that a name is no longer in use."""


class Refusal(Exception):
    """A request is refused: protocol error code, text for the user, detail."""

    def __init__(self, code: int, text: str, detail: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.detail = detail


class Client:
    """A process with a slot. `detached`: it has no connection to this manager but still uses its memory.

    `pid` is 0 when the process is not visible from here; then only its connection shows its death. `foreign`: it is, or
    may be, in another PID namespace, where its threads have other ids.
    """

    __slots__ = ("detached", "foreign", "pid", "slot", "start_time", "word")

    def __init__(self, slot: int, word: int, pid: int, start_time: int, foreign: bool, detached: bool) -> None:
        self.slot: int = slot
        self.word: int = word
        self.pid: int = pid
        self.start_time: int = start_time
        self.foreign: bool = foreign
        self.detached: bool = detached


class Segment:
    """A segment: its metadata, the descriptor of its payload, and the slot that allocates from it (None: orphan).

    `ring`: its payload is that ring. `device`: the UUID of the device whose memory the payload is; empty: the host's.
    The descriptor of such a payload is -1 in the successor of another manager, until a client gives it.
    """

    __slots__ = ("dedicated", "device", "id", "metadata", "name", "nbytes", "owner", "payload", "ring", "trimmed_at")

    def __init__(
        self,
        number: int,
        metadata: SegmentMetadata,
        payload: int,
        nbytes: int,
        dedicated: bool,
        owner: int | None,
        name: bytes,
        ring: Ring | None = None,
        device: bytes = b"",
    ) -> None:
        self.id: int = number
        self.metadata: SegmentMetadata = metadata
        self.payload: int = payload
        self.nbytes: int = nbytes
        self.dedicated: bool = dedicated
        self.owner: int | None = owner
        self.name: bytes = name
        self.ring: Ring | None = ring
        self.device: bytes = device
        self.trimmed_at: int = -1  # number of live blocks when its gaps were last given back

    @property
    def flags(self) -> int:
        """The flags of a SEGMENT message."""
        return (
            (protocol.DEDICATED if self.dedicated else 0)
            | (protocol.NAMED if self.name else 0)
            | (protocol.RING if self.ring is not None else 0)
            | (protocol.DEVICE if self.device else 0)
        )

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors of metadata and payload that this manager has."""
        return (self.metadata.fd, self.payload) if self.payload >= 0 else (self.metadata.fd,)

    @property
    def host_bytes(self) -> int:
        """Bytes of the host's memory that are reserved for its payload, a snapshot."""
        return 0 if self.device else self.figures()[2]

    def figures(self) -> tuple[int, int, int]:
        """(live blocks, bytes in them, bytes reserved), a snapshot. A ring counts with its reserved bytes."""
        counted = self.metadata.stats()
        live, nbytes, reserved = counted.live_blocks, counted.live_bytes, counted.reserved_bytes
        if self.ring is not None:
            reserved = self.ring.memory.stats().reserved_bytes
            nbytes = reserved if live else 0
        return live, nbytes, min(reserved, self.nbytes)
