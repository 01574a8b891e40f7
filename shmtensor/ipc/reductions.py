"""How storages and tensors cross between processes: by handle, through multiprocessing's pickler and no other.

A message names the block and carries a *ticket*: a hold on it, owned by the group while the message is under way, which
the receiver turns into its own. So the sender may drop the tensor, or exit, as soon as the message is written. (If the
manager is killed as well before another process has mapped the memory, receiving raises SegmentLost.) While a process
is being spawned, the ticket belongs to the child in the making (its embryo slot), and ends with it should it never come
to life. Queues, locks and the like cross in the same way.
"""

from __future__ import annotations

import os
import pickle
import threading
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, TypeAlias

import numpy as np

from .._native import VIEW_PERSONAL, Block, Client, Descriptor
from .._tensor.methods import Tensor
from ..allocators import MapAllocator, MapFlags
from ..allocators.managed import allocate, manager_of
from ..dtypes import BY_DTYPE, dtype_of, each_type
from ..errors import InvalidArgument, ManagerError, ManagerUnavailable, MessageDamaged, SegmentLost, StaleHandle
from ..manager import client, protocol
from ..storage import STORAGE_CLASSES, Storage
from ..storage.regions import RECEIVED, region_address, shared_block

Rebuild: TypeAlias = tuple[Any, ...]


class Embryo:
    """A child about to be spawned, as a member of the group at `address`: what the parent gives it is held by its slot.

    Pickled into the child, where the first storage that arrives makes the child a client through the socket that it
    inherits.
    """

    def __init__(self, manager: client.Manager) -> None:
        self.address = manager.address
        self.slot, generation, socket = manager.native.embryo()
        self._socket = Descriptor(socket)
        self._place = manager.place_of(self.slot, generation)

    def close(self) -> None:
        """Close the parent's copy of the socket, once the child has its own or has failed to start."""
        self._socket.close()

    def __reduce__(self) -> Rebuild:
        if not self._socket.is_ours:
            raise ManagerError("the socket of a child that is being started was closed by this program; start it again")
        return _arrive, (self.address, reduction.DupFd(self._socket.number), self._place)


_kept: list[Descriptor] = []
"""Sockets of embryos in a process that had become a client on its own before its arguments arrived. Each stays open:
the manager takes its end of file as the end of what the embryo holds."""


def _arrive(address: bytes, socket: Any, place: client.Place) -> bytes:
    fd: int = socket.detach()
    spare = Descriptor(os.dup(fd))
    try:
        client.adopt(address, fd, place)
    except InvalidArgument:  # a client at this address already; adopt() has closed its descriptor
        _kept.append(spare)
    return address


def embryos_of(popen: Any) -> dict[bytes, Embryo]:
    """The embryos of a process that is being spawned, by manager address."""
    found: dict[bytes, Embryo] = popen.__dict__.setdefault("_shmtensor_embryos", {})
    return found


def _traveller(manager: client.Manager) -> tuple[Any, int]:
    """Where a message leads: (what names the manager in it, slot that owns its tickets)."""
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

    tickets: list[tuple[Block, int, int]] | None = None
    """(block, hold, mark) of the tickets in it; None: no message is being pickled."""
    native: Client | None = None
    """The client whose blocks leave the pickle out of band, for the object that is being reduced."""


_message = _Message()


def dump(pickler: pickle.Pickler, message: Any) -> None:
    """ForkingPickler.dump, which takes the tickets of a message back that it could not pickle to its end."""
    outer = _message.tickets
    made: list[tuple[Block, int, int]] = []
    _message.tickets = made
    try:
        pickle.Pickler.dump(pickler, message)
    except BaseException:
        for block, hold, mark in made:
            manager_of(block).redeem(block.segment, block.index, block.generation, hold, mark)
        raise
    finally:
        _message.tickets = outer


def name_of(name: str) -> bytes:
    """The manager's form of the name that a user gave a shared object. Raises InvalidArgument."""
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a shared object is a string, as 'jobs', not {name!r}")
    wanted = b"/" + name.removeprefix("/").encode(errors="replace")
    try:
        protocol.check_name(wanted)
    except protocol.Malformed:
        raise InvalidArgument(
            f"{name!r} cannot be the name of a shared object; 1 to {protocol.MAX_NAME_BYTES - 1} letters, digits, '_', "
            "'-' and '.' can"
        ) from None
    return wanted


def block_ticket(block: Block) -> Rebuild:
    """What names `block` to the process that is being spawned, or to whoever reads the message: (where, numbers) for
    `client.at(where).redeem(*numbers)`."""
    manager = manager_of(block)
    where, owner = _traveller(manager)
    hold, mark = manager.ticket(block, owner)
    if owner == 0 and _message.tickets is not None:
        _message.tickets.append((block, hold, mark))
    return where, (block.segment, block.index, block.generation, hold, mark)


shared_classes: set[type[Shared]] = set()
"""The classes that follow, and their subclasses."""


class Shared:
    """An object in a block of shared memory that crosses by handle, as tensors do: a queue, a lock.

    A subclass puts `_share(block)` into its state, and takes the block back by `received`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        shared_classes.add(cls)

    def _share(self, block: Block) -> Any:
        """What stands for the block in a message, or in what a child is given. Raises RuntimeError: in plain pickle."""
        if block.client is _message.native:
            return pickle.PickleBuffer(block)
        if _message.tickets is None and get_spawning_popen() is None:
            raise RuntimeError(
                f"{type(self).__name__} objects should only be shared between processes through inheritance or in "
                "messages: give it to a Process or Pool, or send it through a queue or pipe; plain pickle goes by "
                "value, and this has none"
            )
        return block_ticket(block)


def reduce_out_of_band(shared: Shared, native: Client) -> Any:
    """Reduce an object whose block, if it is of that client, leaves the pickle out of band."""
    outer = _message.native
    _message.native = native
    try:
        return shared.__reduce_ex__(5)
    finally:
        _message.native = outer


def received(state: Any) -> tuple[client.Manager, Block]:
    """The block that `Shared._share` named, and its manager.

    Raises:
        StaleHandle: the message was read before, and the block has been freed since. MessageDamaged: no block came.
        ManagerError, OutOfMemory: as Manager.redeem.
    """
    if isinstance(state, tuple):
        where, numbers = state
        manager = client.at(where)
        return manager, manager.redeem(*numbers)
    block = state.obj if isinstance(state, memoryview) else state
    if not isinstance(block, Block):
        raise MessageDamaged(f"a message names the block of a queue or lock where it has a {type(block).__name__}")
    return manager_of(block), block


def reduce_storage(shared: Storage) -> Rebuild:
    """A storage by handle; one on this process's heap is moved into shared memory first, as `share_memory_()` does.

    How receivers may use it goes along. A private copy (of what was shared copy_on_write) cannot be mapped by others:
    they get one each of what it holds now.

    Raises:
        OutOfMemory, ManagerError: as share_memory_.
        InvalidArgument: memory that is shared in a way that no other process can follow.
    """
    dtype = BY_DTYPE[shared.dtype].name
    if shared._view is not None:  # a part: its root goes by handle
        return shared.__reduce_ex__(5)
    if getattr(shared._region, "kind", 0) == VIEW_PERSONAL:  # pages of ours that no other process can map
        copy = allocate(shared.nbytes)
        np.copyto(copy.array(shared.dtype, (shared.size(),)), shared._flat)
        block: Block | None = copy
        theirs = VIEW_PERSONAL
    else:
        block, ours = shared_block(shared.share_memory_()._region)
        theirs = RECEIVED[ours]
    if block is not None:
        manager = manager_of(block)
        where, owner = _traveller(manager)
        hold, mark = manager.ticket(block, owner)
        if owner == 0 and _message.tickets is not None:
            _message.tickets.append((block, hold, mark))
        name = (block.segment, block.index, block.generation, hold, mark)
        whole = (where, name, dtype, shared.size())
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


def rebuild_storage(
    where: bytes, name: tuple[int, int, int, int, int], dtype: str, size: int, kind: int = 0
) -> Storage:
    """Redeem a ticket; gives the storage that this process has over the block already, if any.

    Args:
        kind: the view that we may have of the block; 0: all rights.

    Raises:
        InvalidArgument: what is no ticket, or another type or size than the block's, or no view that is ever sent.
        OutOfMemory: no room for the view.
        SegmentLost: the manager has ended and this process had not mapped the segment.
        StaleHandle: the message was read before and its block has been freed since.
    """
    if kind not in RECEIVED.values():
        raise InvalidArgument(f"a storage was sent as a view of kind {kind!r}, which receivers do not have")
    try:
        block = client.at(where).redeem(*name)
    except ManagerUnavailable as error:
        raise SegmentLost(
            f"a storage of {size} {dtype_of(dtype)} elements was sent through the manager at {os.fsdecode(where)}, "
            "which has ended before this process mapped the memory; keep the sender or its manager alive until then "
            f"({error})"
        ) from error
    return Storage._from_block(block, dtype_of(dtype), size, kind)


def rebuild_from_descriptor(socket: Any, dtype: str, size: int) -> Storage:
    """A storage over a memory file, whose descriptor came along."""
    fd: int = socket.detach()
    try:
        opened: Storage = Storage._class_of(dtype_of(dtype))._new_shared_fd(fd, size)
        return opened
    finally:
        os.close(fd)


def rebuild_from_name(name: str, flags: int, dtype: str, size: int, identity: tuple[int, int]) -> Storage:
    """A storage over a file or a POSIX shared-memory object that exists.

    Raises:
        MappingError: it exists no more.
        StaleHandle: the name stands for another one by now.
    """
    kept = (MapFlags(flags) | MapFlags.NOCREATE) & ~(MapFlags.EXCLUSIVE | MapFlags.UNLINK)
    opened: Storage = Storage._class_of(dtype_of(dtype))(size, allocator=MapAllocator(name, kept))
    if opened._region.identity != identity:
        raise StaleHandle(
            f"a storage over {name} was sent, and another file has its name by now; keep files that are being sent, or "
            "load and send it again"
        )
    return opened


def reduce_tensor(tensor: Tensor) -> Rebuild:
    """A tensor as its storage, which goes by handle, and its place in it; the receiver's aliases the sender's."""
    return Tensor._rebuild, tensor._parts()


def register() -> None:
    """Teach multiprocessing's pickler. Plain pickle, copy and deepcopy know nothing of it and go by value."""
    each_type(lambda row: reduction.ForkingPickler.register(STORAGE_CLASSES[row.dtype], reduce_storage))
    reduction.ForkingPickler.register(Tensor, reduce_tensor)
    reduction.ForkingPickler.dump = dump  # type: ignore[method-assign]
