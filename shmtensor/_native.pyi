"""The C++ core: the group segment, the books of a segment, the heap of a client.

Imports no NumPy until an array is asked for.
"""

import mmap
from collections.abc import Callable
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from ._tensor.core import Tensor
from .errors import ForkedWithoutHold
from .storage import Storage

ARENA_BYTES: int
"""Payload of an arena, in bytes of address space."""
DEDICATED_FROM: int
"""Larger blocks get a segment of their own, in bytes."""
ARENA_HOLDS: int
DEDICATED_HOLDS: int
"""Entries of the table of holds of an arena, and of a segment with a single block."""
LAYOUT_VERSION: int
"""Version of every struct in shared memory (native/layout.hpp). Group, manager and clients must agree on it."""
PAGE: int
"""Unit of reservation, and alignment of blocks from 64 KiB on, in bytes: 4096, also where pages are larger."""
MAX_SLOTS: int
"""Entries of a group's slot table: clients, embryos and the group itself (slot 0)."""
MAX_SEGMENT_BYTES: int
"""Largest payload of one segment, in bytes."""

# kinds of a slot, and of the owner of a hold
SLOT_FREE: int
SLOT_GROUP: int  # slot 0: owns what is in flight through plain pickles; ends with the group
SLOT_CLIENT: int
SLOT_EMBRYO: int  # a child that is being forked or spawned and has not said hello yet
SLOT_DEAD: int  # gone; the manager has still to release what it held

# kinds of a hold
HOLD_CLIENT: int  # a process that has the block open
HOLD_TICKET: int  # in flight: pickled and not yet unpickled
HOLD_MESSAGE: int  # in flight through a ring: the sender's until it is published, then the ring's

FIRST_RING_BYTES: int
"""Bytes of a new ring that are reserved."""
RING_BYTES: int
"""Payload of a ring's segment, in bytes of address space."""
FIRST_RING: int
"""Owner numbers from here to LAST_RING are those of rings, and no slots."""
LAST_RING: int

# kinds of a View: how this process has a block, and what those get whom it sends the view to
VIEW_LENT: int  # the block's own bytes; they get READONLY
VIEW_READONLY: int  # pages that cannot be written; they get the same
VIEW_FROZEN: int  # pages that cannot be written; they get PERSONAL
VIEW_PERSONAL: int  # bytes of this process alone, which begin as the block's; not to be sent by handle

class LockBusy(Exception):
    """The books are locked by another process just now; try again later. Only the manager's calls raise it."""

class BlockGone(Exception):
    """The block with this generation is not live any more, or never was."""

class Refused(Exception):
    """A system call refused memory, or (segment is not 0) the table of holds of that segment is full.

    args = (what, errno, bytes asked, name of limit, segment)."""

class NotHeld(ForkedWithoutHold):
    """This process was cloned without the fork hooks, or its fork could not be registered, or the client is closed."""

@final
class Descriptor:
    """A descriptor that is kept, and the file it was opened for.

    A program may close every descriptor that it did not open, and have a file of its own under the number.
    """
    def __init__(self, fd: int) -> None:
        """Takes fd over, and closes it when this object goes. Raises OSError if it is closed."""
    @property
    def number(self) -> int:
        """-1 once closed. Whether it still stands for the same file is another matter."""
    @property
    def is_ours(self) -> bool:
        """Whether the number still stands for the file that it was opened for."""
    def close(self) -> None:
        """Close it, if it is ours."""

@final
class Group:
    """The group segment: a header and the table of slots, mapped by the manager and by every client."""
    @staticmethod
    def create(group_id: int) -> Group:
        """Make the sealed memfd, map and initialise it (manager only). Raises OSError."""
    @staticmethod
    def open(fd: int) -> Group:
        """Map the group segment behind fd (duplicated). Raises ValueError if magic, version or size are off."""
    @property
    def fd(self) -> int: ...
    def regain(self, fd: int) -> None:
        """Keep a duplicate of fd, if it is of the same segment and this program closed the one that was kept."""
    @property
    def group_id(self) -> int: ...
    @property
    def epoch(self) -> int:
        """How many managers this group has had."""
    @property
    def is_led(self) -> bool:
        """False: the group's manager was killed, or has left. A plain load."""
    @property
    def is_foreign(self) -> bool:
        """Whether the group is of another PID namespace, where process ids mean others."""
    @property
    def leader(self) -> int:
        """The thread that is the manager, by its number in its own PID namespace; 0: there is none."""
    @property
    def leads(self) -> bool:
        """Whether this thread's process is the manager still; False once it was replaced."""
    def lead(self) -> int:
        """The calling thread becomes the manager until it ends or calls `leave`; gives the epoch. Raises OSError: as
        many managers before as a group can have are stopped."""
    def leave(self) -> None: ...
    @property
    def next_segment(self) -> int:
        """Numbers of segments from here on were never given out."""
    def take_segment_number(self) -> int: ...
    @property
    def next_ring(self) -> int:
        """Numbers of rings from here on were never given out."""
    def take_ring_number(self) -> int: ...
    def claim(self, kind: int, pid: int, start_time: int, parent: int = 0) -> tuple[int, int]:
        """FREE -> kind; gives the slot's index and generation. Raises LookupError when the table is full."""
    def name(self, slot: int, pid: int, start_time: int) -> None:
        """Say which process has the slot (0: it is not known)."""
    def move(self, slot: int, expected: int, kind: int, pid: int = 0) -> bool:
        """The slot's next state, of a client with its pid as the manager sees it, by one compare-and-swap of its word.
        False: the word is not `expected` any more."""
    def socket(self, slot: int) -> int:
        """Inode of the socket on which an embryo's child will speak."""
    def word(self, slot: int) -> int:
        """Generation, state and parent in one. Raises IndexError."""
    def slot(self, index: int) -> tuple[int, int, int, int, int]:
        """(state, pid, start time in clock ticks since boot, parent slot, generation). Raises IndexError."""
    def occupied(self) -> list[int]:
        """Indices of all slots that are not FREE, ascending."""
    def set_quotas(self, all: int, each: int) -> None:
        """Bytes of payload that may be reserved in all and by each client, 0: no bound (manager only)."""
    def quotas(self) -> tuple[int, int]:
        """(bytes in all, bytes of each client), 0: no bound."""
    def charged(self) -> int:
        """Bytes that count for the quota in all, just now."""
    def reserved(self, slot: int) -> int:
        """Bytes that count for a slot; slot 0: rings, and segments without an owner. Raises IndexError."""
    def charge(self, nbytes: int) -> tuple[str, int] | None:
        """Count bytes for slot 0 before they are reserved. (limit that this would pass, bytes left): not counted, and
        every client is asked to give back what it keeps for later."""
    def account(self, known: int, found: int) -> None:
        """Let `found` bytes count for slot 0, if still `known` do (manager only)."""

@final
class Books:
    """The control part of one segment, as the manager sees it. Trusts no value it reads; never waits for a lock."""
    @staticmethod
    def create(name: str, segment: int, owner: int, generation: int, payload_bytes: int, dedicated: bool) -> Books:
        """Make the sealed control memfd, of that name, for a segment of payload_bytes owned by slot `owner` of that
        generation. Raises OSError."""
    @staticmethod
    def found(fd: int) -> Books:
        """Map the books behind fd, which another manager has made; takes fd over, unless it raises ValueError (they are
        none of this layout version) or OSError."""
    @property
    def fd(self) -> int: ...
    @property
    def facts(self) -> tuple[int, int, int, int, bool, bool]:
        """(segment, owner, its generation, payload bytes, dedicated, retired)."""
    def hand_out(self, slot: int) -> None:
        """Give the one block (index 0, generation 1) of an unused dedicated segment, whole, to `slot` by hold 0.
        Raises OSError, LockBusy, ValueError."""
    def reap(self, slot: int, group: Group, rebuild: bool = False) -> int:
        """Release every hold of `slot`, or of the ring of that number; gives how many there were. `rebuild`: then
        derive counts, totals and chains from the holds that are left. Raises LockBusy, or PermissionError (this process
        is not the group's manager any more): nothing was done."""
    def expire_tickets(self, seconds: int) -> int:
        """Release the in-flight holds of slot 0 that are at least `seconds` old; gives how many. Raises LockBusy."""
    @property
    def is_lent(self) -> bool:
        """Whether messages may hold blocks of it, or may have."""
    def has_ended(self, group: Group) -> bool:
        """Whether `end_unreached` has ended the ring that the segment is."""
    def retire(self) -> None:
        """Tell every process that maps the segment to unmap it as soon as nothing of it is held there."""
    def live(self, block: int, generation: int) -> int | None:
        """Size in bytes of the live block with this generation, or None."""
    def stats(self) -> tuple[int, int, int]:
        """(live blocks, bytes in them, bytes of payload reserved). A racy snapshot: to show, and for 'is it empty'."""
    def note_reserved(self, payload: int) -> None:
        """Look how much of the payload is reserved; of a segment whose owner is dead. Raises OSError."""
    def blocks(self, limit: int = ...) -> list[tuple[int, int, int, int, list[tuple[int, int, float]]]]:
        """Every live block: (index, offset, size, generation, holds), a hold being (owner slot, hold kind, age in s).
        Raises LockBusy, also when there are more than `limit` holds."""
    def close(self) -> None:
        """Unmap and close; every later call raises ValueError."""

def end_unreached(group: Group, rings: list[tuple[RingMemory, Books]]) -> int:
    """End those rings that only messages in one another hold, and give how many these are: nobody opens them any more,
    and what they hold is to be released. All that are lent must be among the rings. Does not wait: what is locked is
    left for the next time, and so is all as long as one that ended before is among the rings."""

@final
class RingMemory:
    """A ring (native/layout.hpp, "Ring") as the manager sees it. Trusts no value it reads; never waits for a lock."""
    def __init__(self, fd: int) -> None:
        """Map the ring behind fd, which must stay open meanwhile. Raises ValueError if it is none, OSError."""
    @staticmethod
    def make(fd: int, number: int) -> RingMemory:
        """Make a ring in the fresh payload fd of RING_BYTES; its first pages are reserved. Raises OSError."""
    @property
    def number(self) -> int: ...
    def size(self) -> int:
        """Messages inside, just now."""
    def stats(self) -> tuple[int, int, int, int, int, int, int, int, int]:
        """(messages inside, bytes ever put, bytes ever taken, capacity in bytes, reserved bytes, most messages allowed,
        most bytes allowed, most messages inside so far, kind). A racy snapshot, to show."""
    @property
    def event(self) -> int:
        """Inode of the pipe that is the ring's event; 0: it has none."""
    def watch(self, event: int) -> None:
        """Ask those who put messages to say so on the ring's event, the pipe with that inode."""
    def names(self, slot: int) -> bool:
        """Whether a transfer of this slot is unfinished."""
    def segments_to_undo(self, slot: int) -> list[int]:
        """The segments of this slot's unfinished transfers, whose books `settle` needs."""
    def settle(self, slot: int, books: dict[int, Books | None]) -> None:
        """Undo what a dead slot left unfinished. None stands for a segment that is gone. Raises LockBusy: the ring is
        locked just now, or the segments to undo have changed."""
    def close(self) -> None:
        """Unmap; every later call raises ValueError."""

@final
class Ring:
    """A ring as a client uses it: a queue of values, for any number of processes.

    Waits let the GIL go, run signal handlers, and look again every 100 ms. Where a method raises queue.Full or
    queue.Empty, `block` and `timeout` (seconds; None: no bound) are those of the standard queues.
    """
    def __init__(self, client: Client, block: Block, need_event: Callable[[float], int]) -> None:
        """Args:
        block: of RING_BYTES, as create_ring of the manager's client gives it.
        need_event: gives a descriptor of the ring's event, the Ring's to close, within so many seconds.

        Raises QueueDamaged if the block holds no ring."""
    def bound(self, messages: int, nbytes: int) -> tuple[int, int]:
        """Set the bounds that nobody has set so far (0: leave it as it is). Returns those that the ring has then."""
    def policy(self, wanted: int = ...) -> int:
        """The POLICY_ that a broadcast has; `wanted` if nobody has chosen one so far."""
    @property
    def block(self) -> Block: ...
    kind: int
    """What the ring is. Set only before another process knows of it."""
    def put(self, value: Any, block: bool = True, timeout: float | None = None) -> bool:
        """Raises queue.Full, MessageTooLarge, QueueDamaged, NotHeld, Refused, LockBusy, and what pickling raises."""
    def put_many(self, values: list[Any], block: bool = True, timeout: float | None = None) -> int:
        """Gives how many were put. Raises as put; nothing is put when a value cannot be pickled."""
    def get(self, block: bool = True, timeout: float | None = None, receipt: Block | None = None) -> Any:
        """`receipt`: 8 bytes that are set to the message's number + 1 before it is taken.

        Raises queue.Empty, SegmentLost, QueueDamaged, MessageDamaged, NotHeld, and what unpickling raises."""
    def get_many(self, most: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """At least one, as get; then what is there, up to `most`."""
    def size(self) -> int: ...
    def is_full(self) -> bool: ...
    def task_done(self) -> bool:
        """False: called more often than there were messages."""
    def await_message(self, timeout: float | None = None) -> bool: ...
    def taken(self) -> int: ...
    def await_room(self, timeout: float | None, taken: int) -> bool: ...
    def await_done(self, timeout: float | None = None) -> bool: ...
    def event(self) -> int:
        """A descriptor that is readable while there are messages; the Ring's own."""
    def limits(self) -> tuple[int, int]:
        """(messages, bytes), 0: nobody has set a bound."""
    def stats(self) -> tuple[int, int, int, int, int, int, int, int, int, int]:
        """(messages inside, most so far, ever put, ever taken, bytes inside, bytes ever put, capacity in bytes, not yet
        done, pid that is putting, pid that is taking). Counts of messages wrap at 2**32."""

def dlpack_export(array: NDArray[Any], versioned: bool, copied: bool) -> Any:
    """A DLPack capsule that keeps the array. Raises BufferError: a dtype that DLPack has not; read-only, and not
    versioned."""

def dlpack_import(object: Any, device: tuple[int, int] | None, copy: bool | None) -> NDArray[Any]:
    """An array over the memory of an object with `__dlpack__`, or of a capsule. Its base is a Block or View where the
    memory is one's, else what keeps the other library's. Raises as shmtensor.from_dlpack, which names all."""

def make_payload(name: str, nbytes: int) -> int:
    """A memfd of nbytes (sparse), sealed against shrinking and growing, close-on-exec; gives the descriptor."""

def punch(fd: int, offset: int, nbytes: int) -> None:
    """Give the pages of a range back to the system; the file keeps its size. Raises OSError."""

def map_over(buffer: mmap.mmap, fd: int, shared: bool, writable: bool) -> None:
    """Let the whole pages of buffer be those of a file, from its start. Raises OSError."""

def set_threads_visible(visible: bool) -> None:
    """Say whether every thread that may hold a lock shows in this process's PID namespace: then a lock whose word names
    a thread that does not exist is told to be garbage, and taken."""

def memory_available(root: str = "/") -> tuple[int, str]:
    """(bytes that may be reserved, what bounds them): the least of MemAvailable and every memory cgroup up the tree.
    `root` ends with a slash: where proc and the mounts lie."""

def memory_cgroups(root: str = "/") -> list[tuple[str, int, int]]:
    """(path, bytes used, limit in bytes) of each memory cgroup of this process that has a limit, its own first."""

def process_start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot (field 22 of /proc/pid/stat). Raises ProcessLookupError."""

def directory_watch() -> int:
    """A new descriptor, the caller's to close, that is readable once `watch_directory` has something to tell. Reading
    it does not block. Raises OSError."""

def watch_directory(watch: int, path: bytes) -> None:
    """Make `watch` readable when a file is removed from the directory or moved out of it, or the directory is itself
    removed or moved. Raises OSError."""

def atomic_load(array: NDArray[Any], index: int | tuple[int, ...], order: str, /) -> int:
    """Of an int32 or int64 element. All of these raise InvalidArgument, IndexOutOfRange, DTypeError, LayoutError of
    shmtensor.errors, and then have touched nothing; an ndarray is needed (TypeError)."""

def atomic_store(array: NDArray[Any], index: int | tuple[int, ...], value: int, order: str, /) -> None: ...
def atomic_exchange(array: NDArray[Any], index: int | tuple[int, ...], value: int, order: str, /) -> int: ...
def atomic_fetch_add(array: NDArray[Any], index: int | tuple[int, ...], value: int, order: str, /) -> int: ...
def atomic_compare_exchange(
    array: NDArray[Any], index: int | tuple[int, ...], expected: int, desired: int, order: str, /
) -> tuple[bool, int]: ...
def atomic_add(array: NDArray[Any], index: int | tuple[int, ...], value: float, /) -> None:
    """Of a float32 or float64 element, in the order seq_cst."""

def atomic_index_add(out: NDArray[Any], index: NDArray[np.int64], source: NDArray[Any], alpha: float, /) -> None:
    """out[index[r], ...] += alpha * source[r, ...], each element atomic and relaxed. Without the GIL when large."""

RANDOM_STATE_BYTES: int
"""Bytes of what Twister.save gives: TH's THGenerator."""

@final
class Twister:
    """The Mersenne Twister with TH's distributions (native/random.hpp). Not for two threads at once.

    A distribution gives one value, or fills a contiguous float64 array of one axis with the values of as many calls;
    without the GIL when there are many. Arguments are not checked.
    """

    def __init__(self, seed: int) -> None: ...
    def seed(self, seed: int) -> None: ...
    @property
    def initial_seed(self) -> int: ...
    def draw(self) -> int: ...
    def save(self) -> bytes: ...
    def restore(self, state: bytes) -> bool: ...
    def integers(self, range: int, low: int, array: NDArray[np.int64]) -> None:
        """`low` plus a draw modulo `range`, both modulo 2**64."""

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
    """One hold of this process on one block. Supports the buffer protocol (writable bytes).

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
    def client(self) -> Client: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def array(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int = 0, strides: tuple[int, ...] | None = None
    ) -> NDArray[Any]:
        """A writable ndarray over the block, `offset` and `strides` in bytes; its base is this Block.

        Raises ValueError out of bounds, TypeError for a dtype of Python objects."""

def overlaps(array: NDArray[Any], /) -> bool:
    """Whether several elements of an ndarray may be the same memory, so that writing to it means nothing."""

def strided(array: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
    """A view of an ndarray with other sizes and strides (bytes), `offset` bytes from its first element on.

    It cannot be written where several of its elements may be the same memory.

    Raises ValueError: it would reach beyond the memory from the array's lowest to its highest element.
    """

def tensor(array: NDArray[Any], storage: Storage | None = None, epoch: int = 0, /) -> Tensor:
    """A tensor with the view `array` of `storage` as that lies since `epoch`; nothing is checked."""

@final
class Operation:
    """Computes with the arrays of tensors, and makes tensors of what comes of it; a method where a class has it.

    Its name, documentation and signature, its refusals and errors are those of `form` (shmtensor._tensor.dispatch).
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
    ) -> None:
        """What each means stands beside the fields in native/python/operation.cpp."""
    def __call__(self, *args: Any, **how: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    @property
    def form(self) -> Any: ...

class TensorBase:
    """What programs call for each element, and the buffer protocol; only Tensor is derived from it."""
    def __getitem__(self, key: Any, /) -> Tensor:
        """A view without axes for one element; what is not an integer goes to `Tensor._index`."""
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def item(self) -> Any:
        """The only element as a Python value. Does not block. Raises InvalidArgument: there is not exactly one."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class View:
    """A block as receivers may use it: docs/sharing.md. Supports the buffer protocol (writable if LENT or PERSONAL).

    Keeps its block, but for a PERSONAL one of less than 64 KiB, whose bytes are copied. Two Views are two objects;
    READONLY and FROZEN ones of a block have the same address.
    """
    def __init__(self, block: Block, kind: int) -> None:
        """Raises OSError (ENOMEM: no memory, address space or mappings left), ValueError: no such kind."""
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
        """An ndarray over the view, as Block.array; writable if the view is. Its base is this View."""

@final
class Client:
    """This process in one group: the segments it has mapped, the arenas it owns, the blocks it holds."""
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
        """Args:
        epoch: of the manager at the other end of it.
        connection: descriptor of the socket to the manager; owned by the Client from now on.
        need_segment: called with (client, bytes) when no segment has room; must add_segment(owned=True) an arena for up
            to DEDICATED_FROM bytes, else a dedicated segment of just that size, or raise.
        need_mapping: called with (client, segment id, required) to attach to an unknown segment; must add_segment, or
            raise. Of one that is not there any more it may return what there is to say, if not required.
        need_manager: called, at most each 100 ms, by allocations and waits that find the manager gone or another one.
        """
    @property
    def is_led(self) -> bool:
        """False: the manager that this process is connected to is gone, or another one has taken its place."""
    def reconnect(self, connection: int, epoch: int, close: bool) -> None:
        """Go on with another connection. `close` the old one, whose descriptor is ours still."""
    @property
    def generation(self) -> int:
        """Of the slot, when it became this process's."""
    @property
    def group(self) -> Group: ...
    @property
    def slot(self) -> int:
        """This process's slot; another one in a forked child."""
    @property
    def connection(self) -> int:
        """Descriptor of the socket; another one in a forked child, -1 once closed."""
    def add_segment(
        self, segment: int, control: int, payload: int, payload_bytes: int, dedicated: bool, owned: bool
    ) -> None:
        """Map a segment; takes over both descriptors. Of one that is known they replace those that are lost, or are
        closed."""
    def lost(self) -> list[int]:
        """Segments of which this program closed a descriptor, so that the next manager cannot find them here."""
    def allocate(self, nbytes: int) -> Block:
        """A block of at least 1 byte; 64-byte aligned, page-aligned from 64 KiB. No system call when warm memory fits.
        The content is arbitrary. Raises Refused, ValueError, and what need_segment raises."""
    def array(self, nbytes: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """The array over a fresh block: allocate(nbytes).array(dtype, shape) in one call. Raises as both."""
    def attach(self, segment: int, index: int, generation: int) -> Block:
        """Open a live block. No system call when its segment is mapped. Raises BlockGone, what need_mapping raises."""
    def ticket(self, block: Block, owner: int = 0) -> tuple[int, int]:
        """Add an in-flight hold for slot `owner`; gives (hold index, mark), which redeem() takes."""
    def redeem(self, segment: int, index: int, generation: int, hold: int, mark: int) -> Block:
        """Turn an in-flight hold into one of this process; a ticket that was redeemed already attaches instead.
        Raises BlockGone."""
    def receive(self, segment: int, index: int, generation: int, hold: int) -> Block:
        """The block of a hold that is this process's already, made for it by somebody else. Raises BlockGone."""
    def embryo(self) -> tuple[int, int, int]:
        """(slot, its generation, socket descriptor) for a child about to be spawned: holds given to the slot are the
        child's; it says hello on the socket. The caller closes its copy of the descriptor after the start."""
    def trim(self) -> int:
        """Give the pages of free ranges back to the system; gives the bytes. Slow; the memory is cold afterwards."""
    def stats(self) -> tuple[int, int, int, int, int, int]:
        """(segments mapped, segments owned, blocks held, bytes in them, bytes reserved here, of which free)."""
    def check_invariants(self) -> None:
        """Raise AssertionError if the books or the private lists of an owned segment contradict each other. Slow."""
    def close(self) -> None:
        """Release everything held, unmap, close the connection. Raises ValueError while Blocks are alive."""

def pack(client: Client | None, value: Any, /) -> tuple[bytes, list[Block]]:
    """A value as the body of a message and the blocks that it names (native/codec.hpp). Tensors are moved and ndarrays
    copied into shared memory of `client`; None: of the default manager's, looked for when it is needed.

    Raises what pickle raises, Refused, LockBusy, and what need_segment or the default manager raise."""

def unpack(body: bytes | memoryview, blocks: list[Block], /) -> Any:
    """The value of a body. Raises MessageDamaged, and what unpickling raises."""

def pack_tickets(client: Client | None, value: Any, /) -> tuple[bytes, bytes]:
    """As pack, with a ticket for each block (struct "<QIIII": segment, block, generation, hold, mark; owned by slot 0).

    Raises as pack; no ticket is left then."""

def unpack_tickets(client: Client, body: bytes | memoryview, tickets: bytes | memoryview, /) -> Any:
    """As unpack. Redeems every ticket, also when it raises: BlockGone, LockBusy, Refused, what need_mapping raises."""

LOCK_BYTES: int
"""Bytes of the block of a Mutex, Units or Flag."""
CROWD: int
"""Threads that can wait for a condition."""

def crowd_bytes(entries: int) -> int: ...

class _SemLock:
    """What the standard library expects under a lock or semaphore; `block` and `timeout` as there."""
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
    def _after_fork(self) -> None: ...

@final
class Mutex(_SemLock):
    """A lock in a block; `fresh`: written now, otherwise ValueError if it is none of this kind."""
    def __init__(self, block: Block, recursive: bool, fresh: bool) -> None: ...
    @property
    def owner_died(self) -> bool: ...

@final
class Units(_SemLock):
    """A semaphore in a block. `fresh`: written now, of one unit until somebody says how many; otherwise ValueError if
    it is not one. `bounded`: never more free units than at first."""
    def __init__(self, block: Block, bounded: bool, fresh: bool) -> None: ...
    def first(self, units: int) -> int | None:
        """The number of units at first, which is `units` if nobody has set it so far; None: so many cannot be, as too
        many are taken, or were released, already."""

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

@final
class Crowd:
    """Threads of any process that wait to be notified, in a block; those that died do not count."""
    def __init__(self, block: Block, fresh: bool) -> None: ...
    @property
    def block(self) -> Block: ...
    @property
    def capacity(self) -> int: ...
    state: int
    def enter(self) -> Place | None:
        """A place, which ends with this object at the latest; None: the crowd is full."""
    def notify(self, most: int) -> int:
        """Wake those who have waited longest; gives how many they were."""
    def waiting(self) -> int: ...
    def forget_dead(self, thorough: bool) -> int:
        """End the places of those that died; `thorough` asks /proc about each, beside the manager."""

@final
class Place:
    """One thread's place in a crowd."""
    def wait(self, timeout: float | None) -> bool:
        """Whether it was notified in time; the place is left then."""
    def leave(self) -> bool:
        """Whether it had been notified."""
    def has_dead(self) -> bool: ...

MAX_READERS: int
"""Readers of a broadcast at most."""

# what becomes of a broadcast's readers that are slower than its writer
POLICY_UNSET: int
POLICY_BLOCK: int
POLICY_DROP_OLDEST: int
POLICY_RAISE: int

@final
class Cast:
    """A ring as a broadcast: while this lives, `put` of the Ring makes room as the policy says."""
    def __init__(self, ring: Ring) -> None: ...
    def reader(self, from_oldest: bool) -> CastReader:
        """Raises QuotaExceeded, QueueDamaged, NotHeld, LockBusy."""
    def readers(self) -> list[tuple[int, int]]:
        """(pid, messages not read yet) of every reader whose process lives."""

@final
class CastReader:
    """A reader of a broadcast, in the process that made it: elsewhere all but close() raises ForeignReader, and once
    closed ValueError."""
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As Ring.get; arrays are read-only."""
    def latest(self, block: bool = True, timeout: float | None = None) -> Any:
        """As get, but of the newest message; those before it are passed over and count as `skipped`."""
    def event(self) -> int:
        """Descriptor that is readable while there is something to read for this reader, and as long as the reader is
        there. Asks the manager the first time, by the Ring's need_event. Raises as that, and OSError."""
    @property
    def closed(self) -> bool: ...
    @property
    def missed(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def lag(self) -> int:
        """Messages that are there and not read yet."""
    def close(self) -> None: ...
