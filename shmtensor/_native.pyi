"""The C++ core: the group segment, segment metadata, the heap of a client, rings, locks, atomics, random numbers.

NumPy is imported only when an array is needed.
"""

import mmap
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self, final, overload

import numpy as np
from numpy.typing import NDArray

from ._tensor.core import Tensor
from .errors import ClientUnavailable
from .storage import Storage

ARENA_BYTES: int
"""Payload of an arena, in bytes of address space."""
DEDICATED_FROM: int
"""Larger blocks get a dedicated segment, in bytes."""
ARENA_HOLDS: int
DEDICATED_HOLDS: int
"""Entries of the table of holds of an arena, and of a segment with a single block."""
LAYOUT_VERSION: int
"""Version of every struct in shared memory (native/base/layout.hpp). Manager and clients must use the same one."""
PROTOCOL_VERSION: int
"""Version of the messages between clients and managers (native/heap/protocol.hpp, docs/protocol.md)."""
PAGE: int
"""Unit of reservation, and alignment of blocks of at least 64 KiB, in bytes: 4096, even if pages are larger."""
DEVICE_ARENA_BYTES: int
"""Payload of an arena on a device, in bytes, all allocated."""
DEVICE_DEDICATED_FROM: int
"""As DEDICATED_FROM, on a device."""
TIMELINES: int
"""Entries of a group's table of timelines."""
TIMELINES_BYTES: int
"""Size of that table in bytes; it begins at a page."""
MAX_SLOTS: int
"""Entries of a group's slot table: clients, embryos and the group itself (slot 0)."""
MAX_SEGMENT_BYTES: int
"""Largest payload of one segment, in bytes."""

# kinds of a slot, and of the owner of a hold
SLOT_FREE: int
SLOT_GROUP: int  # slot 0: owns holds in flight through plain pickles; ends with the group
SLOT_CLIENT: int
SLOT_EMBRYO: int  # a child that is being forked or spawned and has not sent HELLO yet
SLOT_DEAD: int  # a process that has ended and whose holds the manager has not released yet

# kinds of a segment
SEGMENT_ARENA: int
SEGMENT_DEDICATED: int  # with a single block
SEGMENT_RING: int

# kinds of a hold
HOLD_CLIENT: int  # a process that has the block open
HOLD_TICKET: int  # in flight: pickled and not yet unpickled
HOLD_NAME: int  # of a named object that exists without processes
HOLD_MESSAGE: int  # in flight through a ring: owned by the sender until the message is published, then by the ring

FIRST_RING_BYTES: int
"""Reserved bytes of a new ring."""
RING_BYTES: int
"""Payload of a ring's segment, in bytes of address space."""
FIRST_RING: int
"""Owner numbers from here to LAST_RING are rings; smaller ones are slots."""
LAST_RING: int

# kinds of a View: how this process may use a block, and the kind that receivers get
VIEW_LENT: int  # the block's own bytes; receivers get READONLY
VIEW_READONLY: int  # read-only pages; receivers get the same
VIEW_FROZEN: int  # read-only pages; receivers get PERSONAL
VIEW_PERSONAL: int  # a private copy of the block's bytes; cannot be sent by handle

class LockBusy(Exception):
    """The segment's metadata is locked by another process; try again later. Only the manager's calls raise it."""

class BlockGone(Exception):
    """The block with this generation is not live."""

class Refused(Exception):
    """A system call refused memory, or (segment is not 0) the table of holds of that segment is full.

    args = (what, errno, bytes asked for, name of limit, segment).
    """

class NotHeld(ClientUnavailable):
    """This process was cloned without the fork hooks, or its fork could not be registered, or the client is closed."""

@final
class Descriptor:
    """A file descriptor, with the identity of the file it was opened for.

    A program may close descriptors that it did not open, and reuse their numbers for other files.
    """
    def __init__(self, fd: int) -> None:
        """Take fd over, and close it with this object. Raises OSError if it is closed."""
    @property
    def number(self) -> int:
        """The number; -1 once closed. It may refer to another file (`is_ours`)."""
    @property
    def is_ours(self) -> bool:
        """Whether the number still refers to the original file."""
    def close(self) -> None:
        """Close it, if it is ours."""

# Functions with several results return named tuples, like os.stat().

class ClaimedSlot(NamedTuple):
    slot: int
    generation: int

class SlotFacts(NamedTuple):
    state: int  # SLOT_
    pid: int  # as the manager sees it; 0: not known
    start_time: int  # clock ticks since boot
    parent: int  # slot of an embryo's claimer
    generation: int

class Quotas(NamedTuple):
    """Bytes of payload that may be reserved; 0: no bound."""

    max_bytes: int
    max_bytes_per_client: int

class OverQuota(NamedTuple):
    limit: str
    left: int  # bytes

class Counters(NamedTuple):
    """Totals of all managers that the group has had."""

    requests: int
    refused: int  # requests and connections
    reaped: int  # clients that ended

class Packed(NamedTuple):
    body: bytes
    blocks: list[Block]

class TicketedValue(NamedTuple):
    body: bytes
    tickets: bytes  # struct "<QIIII" each: segment, block, generation, hold, mark

class SegmentFacts(NamedTuple):
    segment: int
    owner: int  # slot
    generation: int  # of the owner
    payload_bytes: int
    dedicated: bool
    retired: bool
    device: bytes  # UUID of the device whose memory the payload is; empty: the host's

class SegmentStats(NamedTuple):
    live_blocks: int
    live_bytes: int
    reserved_bytes: int  # of the payload
    lock_slot: int  # client that holds the lock of the metadata; 0: none

class HoldFacts(NamedTuple):
    owner: int  # slot, or from FIRST_RING on a ring
    kind: int  # HOLD_
    age: float  # seconds

class HoldKinds(NamedTuple):
    """The number of holds of each kind."""

    client: int
    ticket: int
    message: int
    name: int
    oldest_ticket: float  # its age in seconds; 0: there are none

class BlockFacts(NamedTuple):
    block: int  # its index
    offset: int
    nbytes: int
    generation: int
    holds: list[HoldFacts]

class ObservedHolder(NamedTuple):
    """All holds of one owner and kind in a segment, as seen by a process that only observes."""

    owner: int  # slot, or from FIRST_RING on a ring
    kind: int  # HOLD_
    blocks: int
    nbytes: int
    since: int  # seconds of CLOCK_MONOTONIC when the oldest was made

class SegmentObservation(NamedTuple):
    """A segment as seen by a process that only observes."""

    segment: int
    owner: int  # slot
    payload_bytes: int
    dedicated: bool
    live_blocks: int
    live_bytes: int
    reserved_bytes: int  # of the payload
    blocks: bytes  # struct "<IIQII" each, by index: offset / 64, owner << 8 | HOLD_, bytes, since, holds; 0: not live
    holders: list[ObservedHolder]

class HolderSum(NamedTuple):
    """All holds of one owner and kind in a segment."""

    owner: int  # slot, or from FIRST_RING on a ring
    kind: int  # HOLD_
    blocks: int
    nbytes: int
    unshared_nbytes: int  # of the blocks without other holders
    oldest: float  # seconds

class HeldBlock(NamedTuple):
    block: int  # its index
    generation: int
    nbytes: int
    owner: int  # slot, or from FIRST_RING on a ring
    kind: int  # HOLD_
    age: float  # seconds

class Holders(NamedTuple):
    sums: list[HolderSum]
    oldest: list[HeldBlock]

class RunOfMessages(NamedTuple):
    """Messages as bytes (native/ipc/ring.hpp, FrameHeader) and the blocks of a single one."""

    number: int  # of the first message; wraps at 2**32
    messages: int
    nbytes: int  # bytes that count against bounds
    lost: bool  # the memory of the message does not exist any more
    frames: bytes
    blocks: list[Block]

class RingFacts(NamedTuple):
    """A ring as seen by the manager."""

    messages: int  # inside
    put_bytes: int  # ever
    got_bytes: int  # ever
    capacity_bytes: int
    reserved_bytes: int
    max_messages: int
    max_bytes: int
    peak_messages: int
    kind: int
    put_messages: int  # ever; wraps at 2**32
    got_messages: int
    put_lock_slot: int  # client that is putting at the moment; 0: none
    get_lock_slot: int

class RingBounds(NamedTuple):
    """0: no bound has been set."""

    maxsize: int
    maxbytes: int

class RingStats(NamedTuple):
    """A ring as seen by a client."""

    messages: int  # inside
    peak_messages: int
    put: int  # ever
    taken: int  # ever
    nbytes: int  # of the messages inside
    put_nbytes: int  # ever
    capacity_nbytes: int
    unfinished: int
    put_lock_pid: int  # process that is putting at the moment; 0: none
    get_lock_pid: int

class ReaderFacts(NamedTuple):
    pid: int
    lag: int  # messages not read yet

class Ticket(NamedTuple):
    """An in-flight hold."""

    hold: int  # index
    mark: int

class EmbryoSlot(NamedTuple):
    slot: int
    generation: int
    socket: int  # descriptor

class ClientStats(NamedTuple):
    mapped: int  # segments
    owned: int  # segments
    blocks: int  # held
    nbytes: int  # in them
    reserved: int  # bytes
    free: int  # of these

class TimelineFacts(NamedTuple):
    """A timeline (native/base/layout.hpp)."""

    completed: int  # the last point that its stream has reached
    issued: int  # the last point assigned
    slot: int  # its owner; 0: it is free
    generation: int  # of that slot
    lost_from: int  # points after this one
    lost_to: int  # up to this one were never reached; 0: none is lost

class AvailableMemory(NamedTuple):
    nbytes: int
    limit: str  # name of the limit that determines it

class Cgroup(NamedTuple):
    path: str
    used: int  # bytes
    limit: int  # bytes

@final
class Group:
    """The group segment: a header and the table of slots, mapped by the manager and by every client."""
    @staticmethod
    def create(group_id: int) -> Group:
        """Create, map and initialise the sealed memfd (manager only). Raises OSError."""
    @staticmethod
    def open(fd: int) -> Group:
        """Map the group segment behind fd (duplicated). Raises ValueError if magic, version or size are wrong."""
    @property
    def fd(self) -> int: ...
    def regain(self, fd: int) -> None:
        """Keep a duplicate of fd if it is the same segment and this program closed the earlier one."""
    @property
    def group_id(self) -> int: ...
    @property
    def epoch(self) -> int:
        """Number of managers that this group has had."""
    @property
    def is_led(self) -> bool:
        """Whether the group has a manager. False: it was killed or has ended. A plain load."""
    @property
    def is_foreign(self) -> bool:
        """Whether the group belongs to another PID namespace, where process ids differ."""
    @property
    def leader(self) -> int:
        """Thread id of the manager in its own PID namespace; 0: there is none."""
    @property
    def leads(self) -> bool:
        """Whether this process is still the manager; False once it was replaced."""
    def lead(self) -> int:
        """Make the calling thread the manager until it ends or calls `leave`. Returns the epoch.

        Raises OSError: too many previous managers of the group are stopped.
        """
    def leave(self) -> None: ...
    @property
    def next_segment(self) -> int:
        """The smallest segment number that was never assigned."""
    def take_segment_number(self) -> int: ...
    @property
    def next_ring(self) -> int:
        """The smallest ring number that was never assigned."""
    def take_ring_number(self) -> int: ...
    def claim(self, kind: int, pid: int, start_time: int, parent: int = 0) -> ClaimedSlot:
        """Set a FREE slot to `kind`. Raises LookupError: the table is full."""
    def name(self, slot: int, pid: int, start_time: int) -> None:
        """Record the process of a slot (0: unknown)."""
    def move(self, slot: int, expected: int, kind: int, pid: int = 0) -> bool:
        """Change a slot's state by one compare-and-swap of its word; `pid`: that of a client, as seen by the manager.

        False: the word is not `expected` any more.
        """
    def socket(self, slot: int) -> int:
        """Inode of the socket on which an embryo's child will connect."""
    def word(self, slot: int) -> int:
        """A slot's word: generation, state and parent. Raises IndexError."""
    def slot(self, index: int) -> SlotFacts:
        """Return a slot's entry in the slot table. Raises IndexError."""
    def occupied(self) -> list[int]:
        """Return the indices of all slots that are not FREE, ascending."""
    def set_quotas(self, all: int, each: int) -> None:
        """Set the limits of reserved payload in bytes, in total and for each client; 0: none (manager only)."""
    def quotas(self) -> Quotas:
        """Return the limits."""
    def charged(self) -> int:
        """Return the bytes charged to the total quota."""
    def end_timelines(self, slot: int, generation: int) -> None:
        """End the timelines of a client that has ended (manager only): points that they had not reached are lost."""
    def reserved(self, slot: int) -> int:
        """Return the bytes charged to a slot; slot 0: rings and orphans. Raises IndexError."""
    def charge(self, nbytes: int) -> OverQuota | None:
        """Charge slot 0 with bytes before they are reserved.

        If refused, returns the limit that would be exceeded, and every client is asked to free its caches.
        """
    def account(self, known: int, found: int) -> None:
        """Set the bytes charged to slot 0 to `found`, if they are still `known` (manager only)."""
    def count_request(self) -> None:
        """Count a request (manager only, as the next two)."""
    def count_refused(self) -> None:
        """Count a request or connection that was refused."""
    def count_reaped(self) -> None:
        """Count a client that ended."""
    def counters(self) -> Counters:
        """Return the counters. They never decrease."""

def observe_segment(fd: int) -> SegmentObservation:
    """Read the metadata of a segment without its lock, through a descriptor that may be read-only.

    The result may be inconsistent: a block that is allocated or released meanwhile may be missing, or have its previous
    holder. Raises ValueError: it is not segment metadata of this layout version. Raises OSError.
    """

@final
class SegmentMetadata:
    """The metadata of one segment, for the manager. Checks every value it reads; never waits for a lock."""
    @staticmethod
    def create(
        name: str,
        segment: int,
        owner: int,
        generation: int,
        payload_bytes: int,
        dedicated: bool,
        device: bytes = b"",
    ) -> SegmentMetadata:
        """Create the sealed memfd for a segment of payload_bytes, owned by slot `owner` of that generation.

        Raises OSError.
        """
    @staticmethod
    def found(fd: int) -> SegmentMetadata:
        """Map the metadata behind fd, which another manager created. Takes fd over unless it raises.

        Raises ValueError: it is not segment metadata of this layout version. Raises OSError.
        """
    @property
    def fd(self) -> int: ...
    @property
    def facts(self) -> SegmentFacts: ...
    def hand_out(self, slot: int) -> None:
        """Give the one block (index 0, generation 1) of an unused dedicated segment to `slot` by hold 0.

        Raises OSError, LockBusy, ValueError.
        """
    def release_holds(self, slot: int, group: Group, rebuild: bool = False) -> int:
        """Release every hold of a slot, or of the ring of that number. Returns their number.

        `rebuild`: afterwards derive counts, totals and chains from the remaining holds. Raises LockBusy, or
        PermissionError if this process is not the group's manager any more; then nothing was done.
        """
    def expire_tickets(self, seconds: int) -> int:
        """Release in-flight holds of slot 0 that are at least `seconds` old. Returns their number. Raises LockBusy."""
    @property
    def is_lent(self) -> bool:
        """Whether messages hold, or have held, blocks of this segment."""
    @property
    def is_kept(self) -> bool:
        """Whether a name holds one of its blocks, which then exists without processes. Reads each hold."""
    def has_ended(self, group: Group) -> bool:
        """Whether `end_unreached` has ended the ring in this segment."""
    def retire(self) -> None:
        """Ask every process that maps the segment to unmap it once it holds none of its blocks."""
    def live(self, block: int, generation: int) -> int | None:
        """Return the size in bytes of the live block with this generation, or None."""
    def stats(self) -> SegmentStats:
        """Return statistics, a racy snapshot."""
    def note_reserved(self, payload: int) -> None:
        """Update the number of reserved bytes of a segment whose owner is dead. Raises OSError."""
    def blocks(self, limit: int = ...) -> list[BlockFacts]:
        """Return every live block. Raises LockBusy, also if there are more than `limit` holds."""
    def count_holds(self) -> HoldKinds:
        """Return the numbers of holds, a racy snapshot. Takes no lock."""

    def holders(self, limit: int, rows: int) -> Holders:
        """Return the holders of blocks, the numbers and sizes of these blocks, and the oldest holds of each holder.

        About 10 ns for each hold. Raises LockBusy, also if there are more than `limit` holds.

        Args:
            limit: maximum number of holds in the segment.
            rows: maximum number of returned holds of clients and messages, divided among their owners, and of tickets.
        """
    def close(self) -> None:
        """Unmap and close; every later call raises ValueError."""

def sample_blocks(every: int, note: Callable[[int, int, int, int], object] | None) -> None:
    """Call note(group id, segment, index, generation) after every `every`-th block that this process makes; 0: stop.

    An exception of `note` fails the allocation.
    """

def end_unreached(group: Group, rings: list[tuple[RingMemory, SegmentMetadata]]) -> int:
    """End the rings that are held only by messages in one another. Returns their number.

    They cannot be opened any more, and the caller must release their holds. `rings` must contain all rings that are
    lent. Does not wait: locked rings are left for the next call, and so are all rings while `rings` contains one that
    has ended before.
    """

@final
class RingMemory:
    """A ring (native/base/layout.hpp), for the manager. Checks every value it reads; never waits for a lock."""
    def __init__(self, fd: int) -> None:
        """Map the ring behind fd, which must stay open. Raises ValueError: it is not a ring. Raises OSError."""
    @staticmethod
    def make(fd: int, number: int) -> RingMemory:
        """Create a ring in a new payload of RING_BYTES; its first pages are reserved. Raises OSError."""
    @property
    def number(self) -> int: ...
    def size(self) -> int:
        """Return the number of messages inside."""
    def stats(self) -> RingFacts:
        """Return statistics, a racy snapshot."""
    def store_facts(self) -> StoreFacts:
        """Return statistics of a ring of kind STORE, a racy snapshot; for other kinds they are meaningless."""
    @property
    def event(self) -> int:
        """Inode of the pipe that is the ring's event; 0: none."""
    def watch(self, event: int) -> None:
        """Make producers write to the ring's event, the pipe with that inode."""
    def names(self, slot: int) -> bool:
        """Whether a transfer of this slot is unfinished."""
    def segments_to_undo(self, slot: int) -> list[int]:
        """The segments of this slot's unfinished transfers, whose metadata `undo_transfers` needs."""
    def undo_transfers(self, slot: int, metadata: dict[int, SegmentMetadata | None]) -> None:
        """Undo the unfinished transfers of a dead slot. None: the segment does not exist any more.

        Raises LockBusy: the ring is locked, or the segments to undo have changed.
        """
    def close(self) -> None:
        """Unmap; every later call raises ValueError."""

# forms of messages, for Ring.put
COPY_TENSORS: int
REFUSE_PICKLE: int
PICKLE_BY_VALUE: int

@final
class Ring:
    """A ring, for clients: a queue of values for any number of processes.

    Waits release the GIL, run signal handlers, and check again every 100 ms. In methods that raise queue.Full or
    queue.Empty, `block` and `timeout` (seconds; None: no bound) are those of the standard queues.
    """
    def __init__(self, client: Client, block: Block, need_event: Callable[[float], int]) -> None:
        """Open a ring. Raises QueueDamaged: the block is not a ring.

        Args:
            client: the client that holds the block.
            block: a block from the manager's `create_ring`.
            need_event: called with seconds; returns a descriptor of the ring's event, which the Ring closes.
        """
    def bound(self, messages: int, nbytes: int) -> RingBounds:
        """Set bounds that are not set yet (0: leave unchanged). Returns the resulting bounds."""
    def policy(self, wanted: int = ...) -> int:
        """Return the POLICY_ of a broadcast; set it to `wanted` if it is not set yet."""
    @property
    def block(self) -> Block: ...
    kind: int
    """The kind of the ring. Set only before other processes can open it."""
    form: int
    """The form in which this object puts values: 0, or COPY_TENSORS plus one of REFUSE_PICKLE (values that need pickle
    raise DTypeError) and PICKLE_BY_VALUE."""
    copied: bool
    """Whether tensors are copied when they are put with a form other than 0, by any process."""
    look: Callable[[bool], object] | None
    """Called with False at every 64th put or get through this object, and with True every 100 ms while one waits. The
    put or get raises its exceptions."""
    def put(self, value: Any, block: bool = True, timeout: float | None = None) -> bool:
        """Put a value. Raises queue.Full, MessageTooLarge, QueueDamaged, NotHeld, Refused, LockBusy, or as pickling."""
    def put_many(self, values: list[Any], block: bool = True, timeout: float | None = None) -> int:
        """Put values; returns the number put. Raises as `put`; none is put if a value cannot be pickled."""
    def get(self, block: bool = True, timeout: float | None = None, receipt: Block | None = None) -> Any:
        """Take a value. `receipt`: 8 bytes that are set to the message's number + 1 before it is taken.

        Raises queue.Empty, SegmentLost, QueueDamaged, MessageDamaged, NotHeld, or as unpickling does.
        """
    def get_many(self, max_items: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Take at least one value, as `get`, and then further available ones, up to `max_items`."""
    def peek(self, max_bytes: int, max_messages: int) -> RunOfMessages | None:
        """Return the oldest messages without taking them: a run of messages without blocks, or one with blocks."""
    def take(self, number: int, messages: int, commit: int) -> bool:
        """Take the messages of a run. False: another process took them. `commit`: the commit number of the last one."""
    def put_frames(self, frames: bytes | memoryview, blocks: list[Block], commit: int, pickled: bool) -> int:
        """Put the messages of a run without waiting for room; returns the number put.

        `commit`: the commit number of the first one. `pickled`: whether pickles are allowed. Raises MessageDamaged, and
        as `put`.
        """
    def commit_number(self, of_puts: bool) -> int:
        """Return the last commit number of a put or take, once no transfer is left to undo."""
    def size(self) -> int: ...
    def is_full(self) -> bool: ...
    def task_done(self) -> bool:
        """Count a message as done. False: called more often than there were messages."""
    def await_message(self, timeout: float | None = None) -> bool: ...
    def taken(self) -> int: ...
    def await_room(self, timeout: float | None, taken: int) -> bool: ...
    def await_done(self, timeout: float | None = None) -> bool: ...
    def await_beyond(self, timeout: float | None, put: int) -> bool:
        """Wait until the total number of messages put differs from `put`."""
    def event(self) -> int:
        """Return a descriptor, owned by the Ring, that is readable while there are messages."""
    def limits(self) -> RingBounds:
        """Return the bounds."""
    def stats(self) -> RingStats:
        """Return statistics, a racy snapshot. Counts of messages wrap at 2**32."""
    def check_invariants(self) -> None:
        """Check the ring, and the metadata of the blocks that its messages hold. Slow.

        No process may use the ring meanwhile. Raises AssertionError: they are inconsistent (native/base/layout.hpp, R1
        to R5).
        """

def dlpack_export(array: NDArray[Any], versioned: bool, copied: bool) -> Any:
    """Return a DLPack capsule that keeps the array alive.

    Raises BufferError: DLPack lacks the dtype, or the array is read-only and the capsule is not versioned.
    """

def dlpack_import(object: Any, device: tuple[int, int] | None, copy: bool | None) -> NDArray[Any]:
    """Return an array over the memory of an object with `__dlpack__`, or of a capsule.

    Its base is a Block or View if the memory belongs to one, else an object that keeps the other library's memory.
    Raises as shmtensor.from_dlpack.
    """

def make_payload(name: str, nbytes: int) -> int:
    """Create a sparse memfd of nbytes, sealed against shrinking and growing, close-on-exec. Returns the descriptor."""

def punch(fd: int, offset: int, nbytes: int) -> None:
    """Give the pages of a range back to the system; the file keeps its size. Raises OSError."""

def map_over(buffer: mmap.mmap, fd: int, shared: bool, writable: bool) -> None:
    """Map a file, from its start, over the complete pages of buffer. Raises OSError."""

def set_threads_visible(visible: bool) -> None:
    """Set whether every thread that may hold a lock is visible in this process's PID namespace.

    If so, a lock whose word names a thread that does not exist counts as damaged, and is taken over.
    """

def memory_available(root: str = "/") -> AvailableMemory:
    """Return the bytes that may be reserved: the minimum of MemAvailable and all memory cgroups.

    `root`, with a trailing slash, is the directory that contains proc and the mounts.
    """

def memory_cgroups(root: str = "/") -> list[Cgroup]:
    """Return each memory cgroup of this process that has a limit, its own first."""

def process_start_time(pid: int) -> int:
    """Return a process's start time in clock ticks since boot (/proc/pid/stat, 22). Raises ProcessLookupError."""

def directory_watch() -> int:
    """Return a new non-blocking inotify descriptor for `watch_directory`; the caller must close it. Raises OSError."""

def watch_directory(watch: int, path: bytes) -> None:
    """Make `watch` readable when a file is removed from the directory, or the directory is removed or moved.

    Raises OSError.
    """

def atomic_load(array: NDArray[Any], index: int | tuple[int, ...], order: str, /) -> int:
    """Load an int32 or int64 element.

    All atomic functions raise InvalidArgument, IndexOutOfRange, DTypeError or LayoutError of shmtensor.errors, and
    TypeError for an argument that is not an ndarray; then nothing was changed.
    """

def atomic_store(array: NDArray[Any], index: int | tuple[int, ...], value: int, order: str, /) -> None: ...
def atomic_exchange(array: NDArray[Any], index: int | tuple[int, ...], value: int, order: str, /) -> int: ...
def atomic_fetch_add(array: NDArray[Any], index: int | tuple[int, ...], value: int, order: str, /) -> int: ...
def atomic_compare_exchange(
    array: NDArray[Any], index: int | tuple[int, ...], expected: int, desired: int, order: str, /
) -> tuple[bool, int]: ...
def atomic_add(array: NDArray[Any], index: int | tuple[int, ...], value: float, /) -> None:
    """Add to a float32 or float64 element, in the order seq_cst."""

def atomic_index_add(out: NDArray[Any], index: NDArray[np.int64], source: NDArray[Any], alpha: float, /) -> None:
    """out[index[r], ...] += alpha * source[r, ...], each element atomic and relaxed. Releases the GIL if large."""

RANDOM_STATE_BYTES: int
"""Size in bytes of the result of Twister.save: TH's THGenerator."""

@final
class Twister:
    """The Mersenne Twister with TH's distributions (native/tensor/random.hpp). Not thread-safe.

    A distribution returns one value, or fills a contiguous one-dimensional float64 array with the values of as many
    calls; it releases the GIL for large arrays. Arguments are not checked.
    """

    def __init__(self, seed: int) -> None: ...
    def seed(self, seed: int) -> None: ...
    @property
    def initial_seed(self) -> int: ...
    def draw(self) -> int: ...
    def save(self) -> bytes: ...
    def restore(self, state: bytes) -> bool: ...
    def integers(self, range: int, low: int, array: NDArray[np.int64]) -> None:
        """Fill with `low` plus a draw modulo `range`. Both arguments are given modulo 2**64."""

    def permutation(self, array: NDArray[np.int64]) -> None: ...
    @overload
    def uniform(self, low: float, high: float, /) -> float: ...
    @overload
    def uniform(self, low: float, high: float, array: NDArray[np.float64], /) -> None: ...
    @overload
    def normal(self, mean: float, stdv: float, /) -> float: ...
    @overload
    def normal(self, mean: float, stdv: float, array: NDArray[np.float64], /) -> None: ...
    @overload
    def log_normal(self, mean: float, stdv: float, /) -> float: ...
    @overload
    def log_normal(self, mean: float, stdv: float, array: NDArray[np.float64], /) -> None: ...
    @overload
    def exponential(self, rate: float, unused: float, /) -> float: ...
    @overload
    def exponential(self, rate: float, unused: float, array: NDArray[np.float64], /) -> None: ...
    @overload
    def cauchy(self, median: float, sigma: float, /) -> float: ...
    @overload
    def cauchy(self, median: float, sigma: float, array: NDArray[np.float64], /) -> None: ...
    @overload
    def geometric(self, p: float, unused: float, /) -> float: ...
    @overload
    def geometric(self, p: float, unused: float, array: NDArray[np.float64], /) -> None: ...
    @overload
    def bernoulli(self, p: float, unused: float, /) -> float: ...
    @overload
    def bernoulli(self, p: float, unused: float, array: NDArray[np.float64], /) -> None: ...

@final
class Block:
    """A hold of this process on a block. Supports the buffer protocol (writable bytes).

    Dropping the last reference releases the hold; a NumPy array over it keeps it alive. Two Blocks of one process on
    one block are the same object.
    """
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def segment(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def offset(self) -> int: ...
    """Byte offset of the block in its segment's payload."""
    @property
    def device(self) -> int:
        """Number of the device with its memory, for which there is no buffer or array; -1: host memory."""
    @property
    def holds(self) -> int:
        """Holds on the block: this one, those of other processes, and of messages. A racy snapshot."""
    @property
    def client(self) -> Client: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def array(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0, strides: tuple[int, ...] | None = None
    ) -> NDArray[Any]:
        """Return a writable ndarray over the block, with `offset` and `strides` in bytes. Its base is this Block.

        Raises ValueError: out of bounds. Raises TypeError: a dtype of Python objects.
        """

def overlaps(array: NDArray[Any], /) -> bool:
    """Whether several elements of an ndarray may share memory, so the result of writing is undefined."""

def strided(array: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
    """Return a view of an ndarray with other sizes and strides (bytes), `offset` bytes after its first element.

    It is read-only if several of its elements may share memory.

    Raises ValueError: the view would exceed the memory from the array's lowest to its highest element.
    """

def set_default_type(dtype: np.dtype[Any], /) -> None:
    """Set the type that integers get in operations with inexact results; it also determines the complex type."""

def tensor(array: NDArray[Any], storage: Storage | None = None, epoch: int = 0, /) -> Tensor:
    """Return a tensor with the view `array` of `storage`, which has not moved since `epoch`. Checks nothing."""

def allocate_tensor(client: Client, dtype: np.dtype[Any], shape: int | tuple[int, ...], /) -> Tensor | None:
    """Return an uninitialised tensor in a new block. Raises as Client.allocate.

    None if the dtype is not built into NumPy, a size is not an `int`, or the number of elements is 0 or too large.
    """

@final
class Operation:
    """An operation: computes with the arrays of tensors, and returns tensors. As a class attribute it is a method.

    Its name, documentation, signature and errors are those of `form` (shmtensor._tensor.dispatch).
    """
    def __init__(
        self,
        form: Any,
        compute: Callable[..., Any],
        into: Callable[..., Any] | None = None,
        result: int = 0,
        out: int = 0,
        tensors: int = 0,
        optional: int = 0,
        operands: int = 0,
        named: tuple[str, ...] | None = None,
        results: Callable[..., Any] | None = None,
        module: bool = False,
        sequence: bool = False,
        reflected: bool = False,
        symbol: bool = False,
        least: int = 0,
        most: int = -1,
        promotion: int = 0,
        wider: Callable[..., Any] | None = None,
    ) -> None:
        """The arguments are described beside the fields in native/python/operation.cpp."""
    def __call__(self, *args: Any, **how: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    @property
    def form(self) -> Any: ...

class TensorBase:
    """Base of Tensor with the methods that are called for each element, and the buffer protocol."""
    def __getitem__(self, key: Any, /) -> Tensor:
        """Return a 0-dimensional view of one element; keys other than integers are passed to `Tensor._index`."""
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def item(self) -> Any:
        """Return the only element as a Python value. Raises InvalidArgument: there is not exactly one element."""
    def numpy(self) -> NDArray[Any]:
        """Return an ndarray over the same memory, which it keeps alive."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __setitem__(self, key: Any, value: Any, /) -> None:
        """Write a value to the elements that `key` selects: `Tensor._assign`."""
    requires_grad: bool
    grad: Any
    retains_grad: bool
    @property
    def grad_fn(self) -> Node | None: ...
    @property
    def creator(self) -> Node | None: ...
    @property
    def is_leaf(self) -> bool: ...
    @property
    def output_nr(self) -> int: ...
    @property
    def _version(self) -> int: ...

class Node:
    """A recorded operation: `grad_fn` of its results."""
    def __new__(cls, *args: Any, **how: Any) -> Self: ...
    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]: ...
    @property
    def previous_functions(self) -> tuple[tuple[Node | None, int], ...]: ...
    @property
    def metadata(self) -> dict[Any, Any]: ...
    def name(self) -> str: ...
    def register_hook(self, hook: Any, /) -> Any: ...
    def register_prehook(self, hook: Any, /) -> Any: ...
    @property
    def _extras(self) -> dict[str, Any]: ...
    @property
    def _rule(self) -> Rule | None: ...
    @property
    def _sequence_nr(self) -> int: ...

class AccumulateGrad(Node):
    """The node of a leaf, which adds up its gradient."""
    @property
    def variable(self) -> Tensor: ...

class Rule:
    """A gradient rule, created by shmtensor/_tensor/rules.py."""
    def __init__(self, *parts: Any) -> None: ...
    @property
    def name(self) -> str: ...

def sgd_step(
    p: NDArray[Any],
    gradient: NDArray[Any],
    buffer: NDArray[Any] | None,
    lr: float,
    momentum: float,
    taken: float,
    decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
    /,
) -> bool:
    """Perform a step of SGD in place. Returns False, with nothing done, for unsupported arrays."""

def adam_step(
    p: NDArray[Any],
    gradient: NDArray[Any],
    m: NDArray[Any],
    v: NDArray[Any],
    largest: NDArray[Any] | None,
    size: float,
    root: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    shrink: float,
    maximize: bool,
    /,
) -> bool:
    """Perform a step of Adam in place. Returns False, with nothing done, for unsupported arrays."""

def with_bias(product: NDArray[Any], bias: NDArray[Any] | None, /) -> NDArray[Any] | None:
    """Add `bias[i]` to column i of a matrix; None for unsupported arrays.

    A matrix in C order is changed, and returned. For one in Fortran order, the result is a new array in C order.
    """

def sum_rows(matrix: NDArray[Any], /) -> NDArray[Any] | None:
    """Return the sum of each column; None for unsupported arrays."""

def relu(x: NDArray[Any], /) -> NDArray[Any] | None:
    """Return the larger of x and 0, and NaN where x is NaN; None for unsupported arrays."""

def relu_back(gradient: NDArray[Any], result: NDArray[Any], /) -> NDArray[Any] | None:
    """Return 0 where the result is not above 0, else the gradient; None for unsupported arrays."""

def softmax_entropy(
    input: NDArray[Any], targets: NDArray[Any], reduction: str, /
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Return (-log of the softmax of each row at the target, or its sum or mean; the softmax).

    None for unsupported arrays.
    """

def softmax_entropy_back(
    softmax: NDArray[Any], targets: NDArray[Any], output: NDArray[Any], reduction: str, /
) -> NDArray[Any] | None:
    """Return the gradient of the input of softmax_entropy from that of the loss; None as above."""

def gather_windows(array: NDArray[Any], into: NDArray[Any], windows: tuple[Any, ...], /) -> bool:
    """Write the elements of windows of (samples, channels, lengths) to (channels, sizes, samples, counts).

    `windows` is (sizes, strides, dilations, ((before, after) of each axis)), of one to three axes. This function and
    the following ones write to an array argument. All arrays must be float32 or float64 in C order, of one type and
    matching shapes; otherwise they return False, with nothing done.
    """

def scatter_windows(array: NDArray[Any], into: NDArray[Any], windows: tuple[Any, ...], /) -> bool:
    """Write sums of (channels, sizes, samples, counts) at the elements' places in (samples, channels, lengths)."""

def max_pool(array: NDArray[Any], into: NDArray[Any], windows: tuple[Any, ...], /) -> bool:
    """Write the largest element of each window of (..., lengths) to (..., counts)."""

def max_pool_places(array: NDArray[Any], into: NDArray[Any], windows: tuple[Any, ...], /) -> bool:
    """Write the positions of these elements, as flat indices in the last axes, to an array of int64."""

def max_pool_back(array: NDArray[Any], gradient: NDArray[Any], into: NDArray[Any], windows: tuple[Any, ...], /) -> bool:
    """Write the sums of a gradient (..., counts) at the largest elements of windows of (..., lengths)."""

def channel_sums(array: NDArray[Any], into: NDArray[Any], /) -> bool:
    """Write the sums of (samples, channels, ...) over all axes but the channels."""

def exchange_channels(array: NDArray[Any], bias: NDArray[Any] | None, into: NDArray[Any], /) -> bool:
    """Write (a, b, ...) as (b, a, ...), plus a bias (a)."""

def batch_norm(
    x: NDArray[Any],
    weight: NDArray[Any] | None,
    bias: NDArray[Any] | None,
    eps: float,
    into: NDArray[Any],
    mean: NDArray[Any],
    variance: NDArray[Any],
    /,
) -> bool:
    """Write the normalized channels of (samples, channels, ...), and their means and variances."""

def batch_norm_back(
    gradient: NDArray[Any],
    x: NDArray[Any],
    weight: NDArray[Any] | None,
    mean: NDArray[Any],
    variance: NDArray[Any],
    eps: float,
    dx: NDArray[Any],
    dweight: NDArray[Any],
    dbias: NDArray[Any],
    /,
) -> bool:
    """Write the gradients of x, weight and bias of batch_norm."""

def lstm_step(gates: NDArray[Any], state: NDArray[Any], copy: NDArray[Any], /) -> bool:
    """Change gates (rows, 4 * hidden), after tanh, and cell states (rows, hidden) in place, and copy the new states."""

def lstm_step_back(
    whole: NDArray[Any],
    gates: NDArray[Any],
    tanh: NDArray[Any],
    before: NDArray[Any],
    state: NDArray[Any],
    into: NDArray[Any],
    /,
) -> bool:
    """Write the gradients of gates, and update that of the cell state, from those of outputs and of the cell state."""

def grad_modes() -> tuple[bool, bool]:
    """Return whether this thread records gradients, and whether it is in inference mode."""

def set_grad_modes(enabled: bool, inference: bool) -> None: ...
def saving_hooks() -> tuple[Any, Any] | None:
    """Return (pack, unpack) of this thread, which recorded operations apply to the tensors that they save."""

def set_saving_hooks(hooks: tuple[Any, Any] | None, /) -> None: ...
def count_change(tensor: Tensor, /) -> None:
    """Count an in-place change of the memory of a tensor."""

def share_counter(tensor: Tensor, /) -> None:
    """Use the change counter of a tensor for its storage as well."""

def own_counter(tensor: Tensor, /) -> None:
    """Give a tensor its own change counter."""

def detach(tensor: Tensor, /) -> Tensor:
    """Return a tensor over the same array that is not part of the graph, and shares the change counter."""

def is_recorded(tensors: Any, /) -> bool:
    """Return whether operations on these tensors are recorded: one requires gradients, and the mode permits it."""

def connect(node: Node, inputs: tuple[Any, ...], outputs: int, /) -> None:
    """Give a node its edges, to the nodes of the tensors among its inputs, and its number of outputs."""

def connect_as(node: Node, other: Node, tensor: Tensor, /) -> None:
    """Give a node the edges of another one, except for the first, which leads to the node of `tensor`."""

def set_output(tensor: Tensor, node: Node | None, output: int, /) -> None:
    """Make a tensor an output of a node; None: a leaf that does not require grad."""

def hooks_of(tensor: Tensor, after: bool, /) -> dict[Any, Any]:
    """Return the hooks of a leaf, before or after its gradient is added."""

def set_retains_grad(tensor: Tensor, /) -> None: ...
def put_grad(tensor: Tensor, gradient: Any, /) -> None:
    """Set `grad` without checks."""

def backward(
    roots: tuple[tuple[Tensor, Any], ...], keep: bool, create: bool, targets: tuple[Tensor, ...], /
) -> tuple[Any, ...]:
    """Run a backward pass from tensors with their gradients.

    Returns the gradients of the targets. Without targets, leaves accumulate theirs.
    """

def with_zeros(gradients: tuple[Any, ...], forms: list[Any], /) -> tuple[Any, ...]:
    """Return gradients with zeros in place of None; `forms` has (shape, dtype) of each, or None to leave it None."""

def run_node(node: Node, gradients: tuple[Any, ...], /) -> tuple[Any, ...]:
    """Return the gradients of the inputs of a node from those of its outputs. The node keeps its saved tensors."""

def release_node(node: Node, /) -> None:
    """Release the tensors that a node has saved."""

def interrupt_passes() -> None:
    """Mark the backward passes of other threads as interrupted, after a fork."""

def set_tracing(mode: int, /) -> int:
    """Set whether operations record where they are called (1), and NaN is an error too (2). Returns the old mode."""

@final
class Timelines:
    """The timelines of a group (docs/gpu.md), for one of its clients. A number may be any below TIMELINES."""
    def __init__(self, group: Group) -> None: ...
    @property
    def address(self) -> int:
        """Address of the table in this process."""
    def use(self, functions: Sequence[int], base: int) -> None:
        """Use a driver: addresses of its functions (shmtensor/gpu/driver.py), and the table's address on devices."""
    def claim(self, slot: int, generation: int) -> int:
        """Assign a free line to a client; returns its number. -1: all are in use."""
    def give_back(self, index: int) -> bool:
        """Free a line of this client. False: it has pending points, or is not this client's."""
    def is_idle(self, context: int, stream: int) -> bool:
        """Whether all work of a stream is done, according to the driver. `context` is its device's, or 0."""
    def mark(self, index: int, context: int, stream: int) -> int:
        """Return the next point of a line, which a stream reaches after its work so far.

        0: the stream has no work left. Below 0: the driver refused, with that number negated.
        """
    def wait(self, index: int, point: int, context: int, stream: int) -> int:
        """Make later work of a stream wait for a point, unless it is reached. Returns the driver's result; 0: done."""
    def is_reached(self, index: int, point: int) -> bool:
        """Whether the work before a point is over, done or lost."""
    def is_lost(self, index: int, point: int) -> bool:
        """Whether the work before a point was lost. Known once the point is reached."""
    def facts(self, index: int) -> TimelineFacts:
        """Return a line."""

def device_block_at(address: int, nbytes: int) -> Block | None:
    """Return the block of device memory that contains a range, if this process holds it."""

def set_device_arrays(type: type[Any], module: Any) -> None:
    """Set the class of arrays on devices, and the module that computes with them."""

def has_device_arrays() -> bool:
    """Whether it was set."""

def is_device_array(object: Any) -> bool:
    """Whether an object is an array on a device."""

@final
class BlockUse:
    """A use of a block by this process without a memoryview or array. It keeps the block, even after its `Block` ends.

    The owner of reused memory hands out the block with `renew`, and its uses end like those of any block.
    """
    def __init__(self, block: Block) -> None: ...
    def again(self) -> BlockUse:
        """Return another use of the same block."""
    def renew(self) -> Block | None:
        """Return the block with a new generation, as if it was freed and allocated again. Does not block.

        None: it has another user, in this process or in another one, or its segment is locked at the moment; or this
        use has ended.
        """
    def close(self) -> None:
        """End this use. May be called again."""
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

@final
class View:
    """A block with restricted access (docs/sharing.md). Supports the buffer protocol (writable if LENT or PERSONAL).

    It keeps its block alive, except a PERSONAL view of less than 64 KiB, whose bytes are copied. READONLY and FROZEN
    views of a block have the same address.
    """
    def __init__(self, block: Block, kind: int) -> None:
        """Map a view. Raises OSError (ENOMEM: no memory, address space or mappings left), ValueError: unknown kind."""
    @property
    def kind(self) -> int: ...
    @property
    def block(self) -> Block | None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def array(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0, strides: tuple[int, ...] | None = None
    ) -> NDArray[Any]:
        """Return an ndarray over the view, as Block.array; writable if the view is. Its base is this View."""

@final
class Client:
    """The membership of this process in one group: mapped segments, owned arenas, held blocks."""
    def __init__(
        self,
        group: Group,
        slot: int,
        connection: int,
        epoch: int,
        need_segment: Callable[[Client, int], None],
        need_mapping: Callable[[Client, int, bool], str | None],
        need_manager: Callable[[], None],
    ) -> None:
        """Become a client.

        Args:
            group: the group.
            slot: this process's slot.
            connection: descriptor of the socket to the manager; owned by the Client from now on.
            epoch: the epoch of the manager at the other end of the connection.
            need_segment: called with (client, bytes) when no segment has room; must call add_segment(owned=True) with
                an arena for up to DEDICATED_FROM bytes, else a dedicated segment of that size, or raise.
            need_mapping: called with (client, segment id, required) to map an unknown segment; must call add_segment
                or raise. If the segment does not exist any more and is not required, it may return a message.
            need_manager: called, at most every 100 ms, by allocations and waits that find a different manager or none.
        """
    @property
    def is_led(self) -> bool:
        """Whether the manager that this process is connected to is still the group's manager."""
    def reconnect(self, connection: int, epoch: int, close: bool) -> None:
        """Switch to another connection. `close`: close the old one, whose descriptor is still ours."""
    @property
    def generation(self) -> int:
        """The generation of this process's slot."""
    @property
    def group(self) -> Group: ...
    @property
    def slot(self) -> int:
        """This process's slot. It changes in a forked child."""
    @property
    def connection(self) -> int:
        """Descriptor of the socket; -1 once closed. It changes in a forked child."""
    def add_segment(self, segment: int, control: int, payload: int, payload_bytes: int, kind: int, owned: bool) -> None:
        """Map a segment of a SEGMENT_ kind and take over both descriptors.

        If it is mapped already, they replace lost ones or are closed.
        """
    def add_device_segment(
        self,
        segment: int,
        control: int,
        payload: int,
        payload_bytes: int,
        kind: int,
        owned: bool,
        device: int,
        address: int,
    ) -> bool:
        """As add_segment, for a segment on a device, whose payload the caller has mapped at `address`.

        False: it is known already, with another mapping, which stays. Takes over both descriptors.
        """
    def device_segments(self) -> list[tuple[int, int]]:
        """Return (number, new descriptor of the payload) of each segment on a device; the caller must close them."""
    def give_up_unused(self, device: int) -> list[int]:
        """Return the numbers of unused owned segments of a device; they are not owned any more."""
    def take_unmapped(self) -> list[tuple[int, int]]:
        """Return (address, bytes) of each device segment that is not known any more, for the caller to unmap."""
    def device_stats(self, device: int) -> ClientStats:
        """Return `stats` for the segments of one device."""
    def lost(self) -> list[int]:
        """Segments whose descriptor this program closed, so that a successor cannot find them here."""
    def allocate(self, nbytes: int, device: int = -1) -> Block:
        """Allocate a block of at least 1 byte with arbitrary content, 64-byte aligned, page-aligned from 64 KiB.

        Makes no system call if cached memory fits. Raises Refused, ValueError, or as need_segment.
        """
    def attach(self, segment: int, index: int, generation: int) -> Block:
        """Open a live block. Makes no system call if its segment is mapped. Raises BlockGone, or as need_mapping."""
    def ticket(self, block: Block, owner: int = 0) -> Ticket:
        """Add an in-flight hold for slot `owner`. Its fields are the last arguments of redeem()."""
    def keep(self, block: Block, kept: bool = True) -> None:
        """Make the group hold a block, even without processes; or release it. Raises LockBusy, Refused, NotHeld."""
    def redeem(self, segment: int, index: int, generation: int, hold: int, mark: int) -> Block:
        """Turn an in-flight hold into one of this process; if it was redeemed already, attach. Raises BlockGone."""
    def receive(self, segment: int, index: int, generation: int, hold: int) -> Block:
        """Return the block of a hold that another process created for this one. Raises BlockGone."""
    def embryo(self) -> EmbryoSlot:
        """Create an embryo for a child that is being spawned.

        Holds given to the slot become the child's, which sends HELLO on the socket. The caller closes its copy of the
        descriptor after the start.
        """
    def trim(self) -> int:
        """Give pages of free ranges back to the system. Returns their bytes. Slow; the memory is cold afterwards."""
    def finish_releases(self) -> None:
        """End holds whose release found the metadata locked by another process. Blocks for milliseconds at most."""
    def stats(self) -> ClientStats:
        """Return statistics."""
    def check_invariants(self) -> None:
        """Raise AssertionError if the metadata or private lists of an owned segment are inconsistent. Slow."""
    def close(self) -> None:
        """Release everything held, unmap, close the connection. Raises ValueError while Blocks are alive."""

def pack(client: Client | None, value: Any, /) -> Packed:
    """Encode a value as the body of a message and the blocks that it refers to (native/python/codec.hpp).

    Tensors are moved and ndarrays copied into shared memory of `client`; None: of the default manager's client, found
    when it is needed. Raises Refused, LockBusy, or as pickle, need_segment or the default manager.
    """

def unpack(body: bytes | memoryview, blocks: list[Block], /) -> Any:
    """Decode a body. Raises MessageDamaged, or as unpickling does."""

def pack_tickets(client: Client | None, value: Any, /) -> TicketedValue:
    """Encode as `pack`, with a ticket for each block (struct "<QIIII": segment, block, generation, hold, mark; slot 0).

    Raises as `pack`; then no ticket is left.
    """

def unpack_tickets(client: Client, body: bytes | memoryview, tickets: bytes | memoryview, /) -> Any:
    """Decode as `unpack` and redeem all tickets. Raises BlockGone, LockBusy, Refused, or as need_mapping."""

LOCK_BYTES: int
"""Bytes of the block of a Mutex, Units or Flag."""
WAIT_QUEUE_ENTRIES: int
"""Maximum number of threads that wait for a condition."""

def wait_queue_bytes(entries: int) -> int: ...

class _SemLock:
    """The interface of multiprocessing's _SemLock; `block` and `timeout` as there."""
    @property
    def block(self) -> Block: ...
    @property
    def handle(self) -> int: ...
    @property
    def name(self) -> None: ...
    @property
    def maxvalue(self) -> int: ...
    @property
    def kind(self) -> int: ...
    def acquire(self, block: bool = True, timeout: float | None = None) -> bool: ...
    def release(self) -> None: ...
    def _is_mine(self) -> bool: ...
    def _count(self) -> int: ...
    def _get_value(self) -> int: ...
    def _is_zero(self) -> bool: ...
    def check_invariants(self) -> None:
        """Raise AssertionError if the content of the block is inconsistent. No call on it may be in progress."""
    def _after_fork(self) -> None: ...

@final
class Mutex(_SemLock):
    """A lock in a block. `fresh`: initialise it; otherwise raises ValueError if it is another kind of object."""
    def __init__(self, block: Block, recursive: bool, fresh: bool) -> None: ...
    @property
    def owner_died(self) -> bool: ...
    @property
    def owner_pid(self) -> int | None: ...

@final
class Units(_SemLock):
    """A semaphore in a block. `fresh`: initialise it with one unit; otherwise raises ValueError if it is not one.

    `bounded`: never more free units than initially.
    """
    def __init__(self, block: Block, bounded: bool, fresh: bool) -> None: ...
    def first(self, units: int) -> int | None:
        """Return the initial number of units, which is set to `units` if it is not set yet.

        None: it cannot be set, because too many units are acquired, or were released, already.
        """

@final
class Flag:
    """An event in a block."""
    def __init__(self, block: Block, fresh: bool) -> None: ...
    @property
    def block(self) -> Block: ...
    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def check_invariants(self) -> None: ...

@final
class WaitQueue:
    """Threads of any process that wait to be notified, in a block. Threads that died do not count."""
    def __init__(self, block: Block, fresh: bool) -> None: ...
    @property
    def block(self) -> Block: ...
    @property
    def capacity(self) -> int: ...
    state: int
    def enter(self) -> WaitQueueEntry | None:
        """Return an entry, which ends with this object at the latest; None: the queue is full."""
    def notify(self, max_threads: int) -> int:
        """Wake the threads that have waited longest. Returns their number."""
    def waiting(self) -> int: ...
    def check_invariants(self) -> None: ...
    def forget_dead(self, thorough: bool) -> int:
        """End the entries of threads that died. `thorough`: check each in /proc as well."""

@final
class WaitQueueEntry:
    """One thread's entry in a wait queue."""
    def wait(self, timeout: float | None) -> bool:
        """Wait to be notified. Returns whether it was, within `timeout`; then the entry has ended."""
    def leave(self) -> bool:
        """End the entry. Returns whether it had been notified."""
    def has_dead(self) -> bool: ...

MAX_READERS: int
"""Maximum number of readers of a broadcast."""

# policy of a full broadcast for slow readers
POLICY_UNSET: int
POLICY_BLOCK: int
POLICY_DROP_OLDEST: int
POLICY_RAISE: int

@final
class BroadcastRing:
    """A ring as a broadcast: while this object exists, `put` of the Ring makes room according to the policy."""
    def __init__(self, ring: Ring) -> None: ...
    def reader(self, from_oldest: bool) -> BroadcastReader:
        """Create a reader. Raises QuotaExceeded, QueueDamaged, NotHeld, LockBusy."""
    def kept_reader(self, id: int) -> KeptReader:
        """Return the reader with this id, from 1 to 2**48 - 1, that belongs to no process; create it if it is missing.

        Raises QuotaExceeded, QueueDamaged, NotHeld, LockBusy.
        """
    def readers(self) -> list[ReaderFacts]:
        """Return every reader whose process is alive."""
    def check_invariants(self) -> None:
        """Check the readers, as Ring.check_invariants does the ring."""

@final
class KeptReader:
    """A reader that keeps its position until `leave`, for any process that reads with it."""
    @property
    def next(self) -> int:
        """The number of the message that it reads next; wraps at 2**32."""
    @property
    def lag(self) -> int: ...
    def peek(self, max_bytes: int, max_messages: int) -> RunOfMessages | None:
        """Return the next messages, as Ring.peek."""
    def skip_to(self, number: int) -> None:
        """Count all messages before `number` as read."""
    def leave(self) -> None: ...

STORE_REFUSE: int
STORE_REPLACE: int
STORE_SEAL: int
STORE_PUT: int
STORE_EXISTS: int
STORE_FULL: int
STORE_TOO_LARGE: int
STORE_NOT_RESERVED: int

class StoreFacts(NamedTuple):
    objects: int
    nbytes: int
    max_bytes: int
    evicted: int
    expired: int
    reserved_bytes: int
    spilled: int
    spilled_nbytes: int
    max_spilled_bytes: int
    dropped: int
    evicts: bool

class StoredFacts(NamedTuple):
    version: int
    nbytes: int
    created_ns: int
    expires_ns: int
    holders: int
    pinned: bool
    spilled: bool

class Spilled(Exception):
    """An object is in a file; the argument is its version, which names the file."""

class PutResult(NamedTuple):
    """`status`: a STORE_ constant from STORE_PUT on; `which`: the first that was not put; `nbytes`: bytes of all."""

    status: int
    which: int
    versions: list[int]
    nbytes: int

@final
class StoreRing:
    """A ring as a store. Each call raises QueueDamaged, NotHeld, and as Ring.put does; keys are str."""
    def __init__(self, ring: Ring) -> None: ...
    def is_new(self) -> bool: ...
    def make(self, max_bytes: int, evicts: bool, spill_path: str = "", max_spilled_bytes: int = 0) -> None:
        """Turn an empty ring that no other process has into a store. Raises InvalidArgument: the path is too long."""
    @property
    def spill_path(self) -> str: ...
    def choose(self, but: list[str]) -> tuple[str, int] | None:
        """Return (key, version) of the object to spill next; ("", 0): one was evicted instead; None: there is none."""
    def spill(self, key: str, version: int) -> int:
        """Record that an object is in its file. Returns STORE_PUT, STORE_FULL, or STORE_EXISTS: in use or removed."""
    def spilled(self) -> list[int]:
        """Return the versions of all spilled objects."""
    writing: bool
    """Whether a process is writing files, or was killed while it was. Guarded by the lock of the directory."""
    def take_dropped(self) -> list[int] | None:
        """Return the versions of spilled objects that were removed since the last call; None: too many."""
    def forget_dropped(self) -> None: ...
    def put(
        self,
        keys: list[str],
        values: list[Any],
        expires: int,
        pinned: bool,
        present: int,
        copies: bool = True,
        reservation: int = 0,
    ) -> PutResult:
        """Put all objects or none. `expires`: ns of CLOCK_BOOTTIME, 0: never. Raises TypeError: a bad value."""
    def get(self, key: str, version: int = 0, timeout: float | None = None) -> Any:
        """Return an object, read-only. Raises KeyError, Spilled."""
    def remove(self, key: str) -> bool: ...
    def expire(self) -> int: ...
    def reserve_key(self, key: str) -> int:
        """Return the version of the reservation, for `give_up` and the put that seals it; 0: the key is in use."""
    def give_up(self, key: str, version: int) -> None: ...
    def touch(self, key: str, expires: int | None, pinned: bool | None) -> bool: ...
    def stat(self, key: str) -> StoredFacts | None: ...
    @overload
    def keys(self, prefix: str, details: Literal[False] = False) -> list[str]: ...
    @overload
    def keys(self, prefix: str, details: Literal[True]) -> list[tuple[str, int, int]]:
        """Return (key, version, ns of CLOCK_BOOTTIME at which it expires, or 0)."""
    def changes(self) -> int: ...
    def await_change(self, seen: int, timeout: float | None) -> int: ...
    def stats(self) -> StoreFacts: ...
    def check_invariants(self) -> None: ...

@final
class BroadcastReader:
    """A reader of a broadcast, in the process that created it.

    In other processes all methods except close() raise ForeignReader, and ValueError once it is closed.
    """
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Read a value, as Ring.get; arrays are read-only."""
    def latest(self, block: bool = True, timeout: float | None = None) -> Any:
        """Read the newest value; earlier ones are skipped and counted in `skipped`."""
    def event(self) -> int:
        """Return a descriptor, owned by the reader, that is readable while this reader has messages.

        The first call uses the Ring's need_event. Raises as that, and OSError.
        """
    @property
    def closed(self) -> bool: ...
    @property
    def missed(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def lag(self) -> int:
        """Messages that are not read yet."""
    def close(self) -> None: ...
