"""The managed allocator: shared memory from this process's manager."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from .. import _native
from .._loading import load
from .._native import LockBusy, Refused
from ..errors import InvalidArgument, ManagerError
from ..manager import address
from .protocol import AllocatorStats, Region, require_size

if TYPE_CHECKING:
    import numpy as np

    from .._native import Block
    from ..manager.client import Manager

with suppress(InvalidArgument):  # raised again when it is needed
    address.group_token()  # exported for all descendants of a program with quotas, however they are started

_client: ModuleType | None = None  # shmtensor.manager.client, once something is shared


class ManagedAllocator:
    """Blocks of shared memory that any process of the group can open.

    A block is released with its last reference in this process, so `free` does nothing. Other processes that hold the
    block keep it alive.
    """

    __slots__ = ()

    name = "managed"
    context = None
    shared = True

    def malloc(self, nbytes: int) -> Region:
        """Allocate a block of shared memory with arbitrary content; for 0 bytes, a block of 1 byte.

        The first call in a process blocks until its manager is found or started; later calls make no system call if
        cached memory fits.

        Args:
            nbytes: 0 to the maximum size of a segment.

        Raises:
            InvalidArgument: nbytes is negative or too large.
            OutOfMemory: the system or a quota refused.
            ManagerError: no manager can be reached or started.
        """
        return allocate(require_size(nbytes, self.name))

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Raise an error: other processes may have the block open with its size.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(
            f"cannot resize a shared block of {region.nbytes} bytes to {nbytes}, because other processes may have it "
            "open; allocate a new block and copy"
        )

    def free(self, region: Region) -> None:
        """Do nothing: the last reference to the block releases this process's hold. Does not block."""

    def stats(self) -> AllocatorStats:
        """Return the blocks of the default manager that this process holds, including received ones.

        Peak and totals are not counted; they repeat the current figures.
        """
        from ..manager import client

        now = client.default().native.stats()
        return AllocatorStats(now.blocks, now.nbytes, now.nbytes, now.blocks, now.nbytes)


def allocate(nbytes: int) -> Block:
    """Allocate a block of at least 1 byte from the default manager, as `ManagedAllocator.malloc` without checks."""
    global _client
    if _client is None:
        # On first use: a program that shares no memory must not load the client.
        _client = load("manager.client")
    block: Block = _client.default().allocate(nbytes or 1)
    return block


def allocate_tensor(dtype: np.dtype[Any], shape: Any) -> Any:
    """Return a tensor in a new block, made in one native call; None: see `_native.allocate_tensor`.

    Blocks and raises as `ManagedAllocator.malloc`.
    """
    if _client is None:
        return None
    manager = _client.default()
    try:
        return _native.allocate_tensor(manager.native, dtype, shape)
    except (Refused, LockBusy) as problem:
        manager._translate(problem)


def manager_of(block: Block) -> Manager:
    """Return the manager to whose group `block` belongs. Does not block.

    Raises:
        ManagerError: this process has left that group.
    """
    from ..manager import client

    manager = client.of(block.client)
    if manager is None:
        raise ManagerError(f"this process has left the group of the block in segment {block.segment}; copy the tensor")
    return manager


managed_allocator: Final = ManagedAllocator()
"""The allocator of `shared=True` and `share_memory_()`."""
