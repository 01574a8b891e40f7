"""The managed allocator: shared memory from this process's manager."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from .._loading import load
from .._native import LockBusy, Refused
from ..errors import InvalidArgument, ManagerError
from ..manager import address
from .protocol import AllocatorStats, Region, require_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .._native import Block
    from ..manager.client import Manager

with suppress(InvalidArgument):  # said again where it is needed
    address.group_token()  # of a program with quotas of its own goes to all its descendants, however they are started

_client: ModuleType | None = None  # shmtensor.manager.client, once something was shared


class ManagedAllocator:
    """Blocks of shared memory that the manager accounts for and that any process of the group can open.

    A block is its own owner: it is given back when its last reference in this process goes, so `free` has nothing to
    do, and other processes that hold the block keep it alive.
    """

    __slots__ = ()

    name = "managed"
    context = None
    shared = True

    def malloc(self, nbytes: int) -> Region:
        """A block of shared memory, content arbitrary. A request for 0 bytes gives a block of 1.

        Starts or finds the manager when this process has none yet (blocks until it is ready); afterwards makes no
        system call when warm memory fits.

        Args:
            nbytes: 0 to the largest segment the manager makes.

        Raises:
            InvalidArgument: nbytes is negative or too large.
            OutOfMemory: the system or a quota refused.
            ManagerError: no manager can be reached or started.
        """
        return allocate(require_size(nbytes, self.name))

    def realloc(self, region: Region, nbytes: int) -> Region:
        """Always an error: other processes may have the block open at its size.

        Raises:
            InvalidArgument: always.
        """
        raise InvalidArgument(
            f"asked to resize a shared block of {region.nbytes} bytes to {nbytes}; shared memory keeps its size, "
            "because other processes have it open: allocate a new one and copy"
        )

    def free(self, region: Region) -> None:
        """Nothing: dropping the block releases this process's hold. Does not block."""

    def stats(self) -> AllocatorStats:
        """What this process holds of the default manager's memory, blocks received from others included.

        Peak and totals are not counted, so that allocation stays free of locks: they repeat the present figures.
        """
        from ..manager import client

        _, _, blocks, held, _, _ = client.default().native.stats()
        return AllocatorStats(blocks, held, held, blocks, held)


def allocate(nbytes: int) -> Block:
    """A block of `nbytes` (at least 1) from the default manager; what `ManagedAllocator.malloc` does, unchecked."""
    global _client
    if _client is None:
        # On first use: a program that never shares memory must not load the client, let alone start a daemon.
        _client = load("manager.client")
    block: Block = _client.default().allocate(nbytes or 1)
    return block


def allocate_array(nbytes: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """`allocate(nbytes).array(dtype, shape)` in one call, for those who make many."""
    manager = _client.default() if _client is not None else None
    if manager is not None:
        try:
            return manager.native.array(nbytes or 1, dtype, shape)  # type: ignore[no-any-return]
        except (Refused, LockBusy) as problem:
            manager._translate(problem)
        except ValueError:
            pass  # the long way says what is wrong
    return allocate(nbytes).array(dtype, shape)


def manager_of(block: Block) -> Manager:
    """The manager whose group `block` belongs to: the default one, or the one it was opened through. Does not block.

    Raises:
        ManagerError: this process has left that group.
    """
    from ..manager import client

    manager = client.of(block.client)
    if manager is None:
        raise ManagerError(f"this process has left the group of the block in segment {block.segment}; copy the tensor")
    return manager


managed_allocator: Final = ManagedAllocator()
"""The one behind `shared=True` and `share_memory_()`."""
