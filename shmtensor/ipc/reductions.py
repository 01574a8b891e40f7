"""Reducers that send storages and tensors by handle, used only by multiprocessing's pickler.

A message refers to a block by its numbers and a *ticket*: a hold on the block, owned by the group while the message is
in flight, which the receiver turns into its own. So the sender may drop the tensor, or exit, once the message is
written. (If the manager is killed as well before another process has mapped the memory, receiving raises SegmentLost.)
While a process is being spawned, its tickets belong to its embryo slot, and end with that if the start fails. Queues
and locks are sent in the same way.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, TypeAlias

import numpy as np

from .._loading import load
from .._native import VIEW_PERSONAL, Block, Descriptor, Ticket
from .._tensor.methods import Tensor
from ..allocators import MapAllocator, MapFlags
from ..allocators.managed import allocate, manager_of
from ..dtypes import dtype_of, each_type
from ..errors import (
    GradientError,
    InvalidArgument,
    ManagerError,
    ManagerUnavailable,
    MessageDamaged,
    SegmentLost,
    StaleHandle,
    UnknownHandle,
    type_name,
)
from ..manager import client, protocol
from ..storage import STORAGE_CLASSES, Storage
from ..storage.regions import RECEIVED, region_address, shared_block

Rebuild: TypeAlias = tuple[Any, ...]


class Embryo:
    """A child that is being spawned, as a member of a group. Its slot holds the blocks that the parent passes to it.

    It is pickled into the child, where unpickling makes the child a client through the inherited socket.
    """

    def __init__(self, manager: client.Manager) -> None:
        self.address: bytes = manager.address
        made = manager.native.embryo()
        self.slot: int = made.slot
        self._socket = Descriptor(made.socket)
        self._place = manager.place_of(made.slot, made.generation)

    def close(self) -> None:
        """Close the parent's copy of the socket, once the child has its own or has failed to start."""
        self._socket.close()

    def __reduce__(self) -> Rebuild:
        if not self._socket.is_ours:
            raise ManagerError("this program closed the socket of a child that is being started; start the child again")
        return _arrive, (self.address, reduction.DupFd(self._socket.number), self._place)


_kept: list[Descriptor] = []
"""Sockets of embryos, in a process that became a client before its arguments arrived. They stay open, because the
manager releases what the embryo holds when its socket is closed."""


def _arrive(address: bytes, socket: Any, place: client.Place) -> bytes:
    fd: int = socket.detach()
    spare = Descriptor(os.dup(fd))
    try:
        client.adopt(address, fd, place)
    except InvalidArgument:  # already a client at this address; adopt() has closed its descriptor
        _kept.append(spare)
    return address


def embryos_of(popen: Any) -> dict[bytes, Embryo]:
    """Return the embryos of a process that is being spawned, by manager address."""
    found: dict[bytes, Embryo] = popen.__dict__.setdefault("_shmtensor_embryos", {})
    return found


def _destination(manager: client.Manager) -> tuple[Any, int]:
    """Return (what identifies the manager in the current message, slot that owns its tickets)."""
    popen = get_spawning_popen()
    if popen is None:
        return manager.address, 0
    embryos = embryos_of(popen)
    embryo = embryos.get(manager.address)
    if embryo is None:
        embryo = embryos[manager.address] = Embryo(manager)
    return embryo, embryo.slot


class _Message(threading.local):
    """The message that this thread is pickling."""

    tickets: list[tuple[Block, Ticket]] | None = None
    """Its tickets, each with its block; None: no message is being pickled."""
    refers: Callable[[Block], bool] | None = None
    """Whether the message can refer to a block itself, out of band, for the object that is being reduced."""
    starts: bool = False
    """Whether one of our processes is being started, and its arguments are being pickled."""


_message = _Message()


def is_sending() -> bool:
    """Whether this thread pickles a message of this package, or the arguments of one of its processes."""
    return _message.tickets is not None or _message.starts


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Start a process of this package in the block."""
    outer = _message.starts
    _message.starts = True
    try:
        yield
    finally:
        _message.starts = outer


def dump(pickler: pickle.Pickler, message: Any) -> None:
    """Pickle a message. If that fails, release its tickets."""
    outer = _message.tickets, _message.refers
    made: list[tuple[Block, Ticket]] = []
    _message.tickets, _message.refers = made, None
    try:
        pickler.dump(message)
    except BaseException:
        for block, ticket in made:
            manager_of(block).redeem(block.segment, block.index, block.generation, *ticket)
        raise
    finally:
        _message.tickets, _message.refers = outer


def name_of(name: str) -> bytes:
    """Convert a user's name of a shared object to the manager's form. Raises InvalidArgument."""
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a shared object must be a string such as 'jobs', not {name!r}")
    wanted = b"/" + name.removeprefix("/").encode(errors="replace")
    try:
        protocol.check_name(wanted)
    except protocol.Malformed:
        raise InvalidArgument(
            f"{name!r} is not a valid name of a shared object; use 1 to {protocol.MAX_NAME_BYTES - 1} letters, digits, "
            "'_', '-' and '.'"
        ) from None
    return wanted


def block_ticket(block: Block) -> Rebuild:
    """Make a ticket for the process that is being spawned, or for the receiver of the message.

    Returns:
        (where, numbers) for `client.at(where).redeem(*numbers)`.
    """
    manager = manager_of(block)
    where, owner = _destination(manager)
    ticket = manager.ticket(block, owner)
    if owner == 0 and _message.tickets is not None:
        _message.tickets.append((block, ticket))
    return where, (block.segment, block.index, block.generation, *ticket)


class Shared:
    """Base of objects in a block of shared memory that are sent by handle: queues, locks.

    A subclass puts `_share(block)` into its pickled state and gets the block back from `received`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reduction.ForkingPickler.register(cls, reduce_shared)

    def _share(self, block: Block) -> Any:
        """Return what represents the block in a message or a child's arguments. Raises RuntimeError in plain pickle."""
        if _message.refers is None and _message.tickets is None and get_spawning_popen() is None:
            raise RuntimeError(
                f"{type(self).__name__} objects should only be shared between processes through inheritance or in "
                "messages: pass it to a Process or Pool, or send it through a queue or pipe; plain pickle cannot copy "
                "it"
            )
        return reference(block)


def reference(block: Block) -> Any:
    """Return what represents a block in the message: the block, out of band, if it can refer to it; else a ticket."""
    if _message.refers is not None and _message.refers(block):
        return pickle.PickleBuffer(block)
    return block_ticket(block)


def reduce_shared(shared: Shared) -> Any:
    """Reduce an object that is in a message."""
    outer = _message.tickets
    if outer is None:
        _message.tickets = []  # the pickler is not ours: if it fails, nothing releases these tickets
    try:
        return shared.__reduce_ex__(5)
    finally:
        _message.tickets = outer


def reduce_out_of_band(reduce: Callable[[Any], Any], shared: Any, refers: Callable[[Block], bool]) -> Any:
    """Reduce an object to blocks out of band.

    Args:
        reduce: its reducer, `reduce_shared` or `reduce_storage`.
        shared: the queue, lock or storage.
        refers: whether the message can refer to a block. One that it cannot refer to gets a ticket.
    """
    outer = _message.refers
    _message.refers = refers
    try:
        return reduce(shared)
    finally:
        _message.refers = outer


def received(state: Any) -> tuple[client.Manager, Block]:
    """Return the manager and the block that `reference` represents.

    Raises:
        StaleHandle: the message was read before, and the block has been freed since.
        MessageDamaged: a block is missing.
        ManagerError, OutOfMemory: as Manager.redeem.
    """
    if isinstance(state, tuple):
        where, numbers = state
        manager = client.at(where)
        return manager, manager.redeem(*numbers)
    block = state.obj if isinstance(state, memoryview) else state
    if not isinstance(block, Block):
        raise MessageDamaged(f"a message has a {type_name(block)} instead of the block of a storage, queue or lock")
    return manager_of(block), block


def reduce_storage(shared: Storage) -> Rebuild:
    """Reduce a storage to a handle. Private memory is moved into shared memory first, as `share_memory_()` does.

    The access of receivers (read-only, copy on write) is sent along. The private copy of a storage that was shared
    copy_on_write cannot be mapped by others, so each receiver gets a copy of its current content.

    Raises:
        OutOfMemory, ManagerError: as share_memory_.
        InvalidArgument: the memory cannot be mapped by another process.
    """
    dtype = shared.dtype.name
    if shared._view is not None:  # a part: its root goes by handle
        return shared.__reduce_ex__(5)
    if shared.is_cuda:
        return _reduce_on_device(shared)
    if getattr(shared._region, "kind", 0) == VIEW_PERSONAL:  # private pages that no other process can map
        copy = allocate(shared.nbytes)
        np.copyto(copy.array(shared._dtype, (shared.size(),)), shared._flat)
        block: Block | None = copy
        theirs = VIEW_PERSONAL
    else:
        block, ours = shared_block(shared.share_memory_()._region)
        theirs = RECEIVED[ours]
    if block is not None:
        whole = (reference(block), dtype, shared.size())
        return rebuild_storage, (*whole, theirs) if theirs else whole
    region, allocator = shared._region, shared.allocator
    if isinstance(allocator, MapAllocator) and shared.data_ptr() == region_address(region):
        fd = getattr(region, "fd", -1)
        if fd >= 0:
            return rebuild_from_descriptor, (reduction.DupFd(fd), dtype, shared.size())
        if isinstance(allocator.context, str):
            whole_file = (allocator.context, int(allocator.flags), dtype, shared.size())
            return rebuild_from_name, (*whole_file, region.identity)
    raise InvalidArgument(
        f"a {type(shared).__name__} of {shared.size()} elements in memory of the {allocator.name} allocator cannot be "
        "sent to another process; send a clone() of it"
    )


def _reduce_on_device(shared: Storage) -> Rebuild:
    """Reduce a storage on a GPU to a handle and the point of the sender's stream at which its content is complete."""
    memory: Any = shared.share_memory_()._region
    point = load("gpu.messages").mark(memory)
    return rebuild_on_device, (reference(memory.block), shared.dtype.name, shared.size(), *point)


def rebuild_on_device(state: Any, dtype: str, size: int, timeline: int, point: int) -> Storage:
    """As `rebuild_storage`, for memory of a GPU. The current stream waits for its content.

    Raises:
        OwnerDied: the sender was killed before the content was computed.
        DeviceUnavailable: this process cannot use the GPU.
        InvalidArgument, SegmentLost, StaleHandle: as `rebuild_storage`.
    """
    block = _received(state, dtype, size)
    if block.device < 0 or size * dtype_of(dtype).itemsize > block.nbytes:
        raise InvalidArgument(
            f"a storage of {size} {dtype} elements was sent in a block of {block.nbytes} bytes, which does not fit; "
            "use the same version of shmtensor in both processes"
        )
    flat = load("gpu.messages").flat_of(block, dtype_of(dtype), size, timeline, point)
    return Storage._over_device(flat)  # type: ignore[return-value]


def rebuild_storage(state: Any, dtype: str, size: int, kind: int = 0) -> Storage:
    """Return the storage over a block that was sent; an existing one if this process has it.

    Args:
        state: result of `reference` for the block: the block itself, or a ticket, which is redeemed.
        dtype: name of the element type.
        size: number of elements.
        kind: the view that receivers may have of the block; 0: full access.

    Raises:
        InvalidArgument: an invalid ticket or kind, or a type or size that does not fit the block.
        MessageDamaged: a block is missing.
        OutOfMemory: no memory for the view.
        SegmentLost: the manager ended before this process had mapped the segment.
        StaleHandle: the message was read before, and its block has been freed since.
    """
    if kind not in RECEIVED.values():
        raise InvalidArgument(
            f"a storage was sent as a view of kind {kind!r}, which is not a kind for receivers; "
            "use the same version of shmtensor in both processes"
        )
    return Storage._from_block(_received(state, dtype, size), dtype_of(dtype), size, kind)


def _received(state: Any, dtype: str, size: int) -> Block:
    try:
        return received(state)[1]
    except (ManagerUnavailable, UnknownHandle) as error:  # no manager runs there, or one that began without the memory
        raise SegmentLost(
            f"the manager at {os.fsdecode(state[0])} ended before this process mapped a storage of {size} "
            f"{dtype_of(dtype)} elements; keep the sender or its manager alive until then ({error})"
        ) from error


def rebuild_from_descriptor(socket: Any, dtype: str, size: int) -> Storage:
    """Return a storage over a memory file whose descriptor was sent."""
    fd: int = socket.detach()
    try:
        opened: Storage = Storage._class_of(dtype_of(dtype))._new_shared_fd(fd, size)
        return opened
    finally:
        os.close(fd)


def rebuild_from_name(name: str, flags: int, dtype: str, size: int, identity: tuple[int, int]) -> Storage:
    """Return a storage over an existing file or POSIX shared-memory object.

    Raises:
        MappingError: it does not exist any more.
        StaleHandle: another file has the name.
    """
    kept = (MapFlags(flags) | MapFlags.NOCREATE) & ~(MapFlags.EXCLUSIVE | MapFlags.UNLINK)
    opened: Storage = Storage._class_of(dtype_of(dtype))(size, allocator=MapAllocator(name, kept))
    if opened._region.identity != identity:
        raise StaleHandle(
            f"a storage over {name} was sent, but another file has that name; keep the files of storages that "
            "are being sent, or send the storage again"
        )
    return opened


def reduce_tensor(tensor: Tensor) -> Rebuild:
    """Reduce a tensor to its storage, sent by handle, and its position in it. The receiver shares the memory.

    Raises GradientError: the result of a recorded operation, whose graph cannot be sent.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise GradientError(
            f"a tensor of shape {tensor.shape} with requires_grad, the result of an operation, was sent to another "
            "process; its graph stays here: send x.detach(), or a leaf"
        )
    return Tensor._rebuild, tensor._parts()


# In multiprocessing's pickler; plain pickle, copy and deepcopy are not changed.
each_type(lambda row: reduction.ForkingPickler.register(STORAGE_CLASSES[row.dtype], reduce_storage))
reduction.ForkingPickler.register(Tensor, reduce_tensor)
