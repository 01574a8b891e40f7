"""Places of tensors in shared memory: descriptions with which another process opens them, without a hold.

The process that describes a tensor must keep its block until the others have opened it. A block that is opened too late
raises `StaleHandle`; it is never taken for other memory, because a block has a generation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, Self

from ..._native import Block
from ..._tensor.core import Tensor
from ..._tensor.creation import empty
from ...allocators.managed import manager_of
from ...channel.handshake import boot_id
from ...dtypes import dtype_of
from ...errors import InvalidArgument
from ...manager import client
from ...storage import Storage
from ...storage.regions import RECEIVED, address_of, region_address, shared_block

NEEDS_COPY: Final = (
    "a handle needs memory that shmtensor's default manager shares, and this tensor is shared by other means, such as "
    "a mapped file, torch's own share_memory_() or another manager; pass a handle of its clone(), and keep the clone"
)


class Group(NamedTuple):
    """The group of a manager, on one machine. Processes of one group can open each other's memory."""

    boot: str
    number: int


def own_group() -> Group:
    """Return the group of this process. Blocks until its manager has been found or started."""
    return Group(boot_id(), client.default().native.group.group_id)


@dataclass(frozen=True)
class Place:
    """A tensor in shared memory: the numbers of its block, and its position in the block."""

    block: tuple[int, int, int] | None
    """Segment, index and generation; None: a tensor without elements, which has no memory."""
    kind: int
    """The view of the block that receivers may have; 0: the block itself."""
    dtype: str
    offset: int
    """Elements before its first one."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False

    def open_block(self) -> Block:
        """Return the block. Blocks if its segment has to be requested from the manager.

        Raises:
            StaleHandle: it has been freed, because the process that described it has ended or released it.
            UnknownHandle, SegmentLost, ManagerError, OutOfMemory: see `shmtensor.errors`.
        """
        assert self.block is not None
        return client.default().attach(*self.block)

    def open(self) -> Tensor:
        """Return the tensor, over the same memory. Blocks and raises as `open_block`."""
        dtype = dtype_of(self.dtype)
        if self.block is None:
            return empty(self.size, dtype=dtype, requires_grad=self.requires_grad)
        block = self.open_block()
        storage = Storage._from_block(block, dtype, block.nbytes // dtype.itemsize, self.kind)
        return Tensor._rebuild(storage, self.offset, self.size, self.stride, self.requires_grad)

    def fetched(self, fetch: Callable[[Place], Tensor]) -> Tensor:
        """Return a copy of the tensor, whose elements `fetch` returns. Blocks and raises as `fetch`."""
        if self.block is None:
            return self.open()
        return fetch(self).requires_grad_(self.requires_grad)

    def parts(self) -> tuple[Any, ...]:
        """Return the arguments of `Place`."""
        return tuple(vars(self).values())

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: Any) -> Self:
        """Return the place of a `document` from another process. Raises InvalidArgument: it is not one."""
        try:
            kind, offset = int(document["kind"]), int(document["offset"])
            size, stride = (tuple(int(n) for n in document[name]) for name in ("size", "stride"))
            block = document["block"]
            if block is not None:
                segment, index, generation = (int(number) for number in block)
                block = segment, index, generation
            return cls(block, kind, str(document["dtype"]), offset, size, stride)
        except (LookupError, TypeError, ValueError):
            raise InvalidArgument(
                f"{document!r} does not describe a tensor in shared memory; "
                "use the same version of shmtensor on both sides"
            ) from None


def place_of(tensor: Tensor, may_copy: bool = True) -> tuple[Place, Block | None]:
    """Return the place of a tensor, and the block that the caller must keep.

    Private memory is moved into shared memory first, as `share_memory_()` does. For memory that is shared without the
    default manager (mapped files, another group) the place is that of a copy. The result of a recorded operation is
    described as a leaf. Blocks as `share_memory_`.

    Args:
        tensor: a tensor on any storage.
        may_copy: whether the place may be that of a copy, which only the returned block keeps.

    Raises:
        InvalidArgument: a copy would be needed, and `may_copy` is False.
        OutOfMemory, ManagerError: as `share_memory_`.
    """
    dtype, size, grad = tensor.dtype.name, tuple(tensor.shape), bool(tensor.requires_grad)
    if not tensor.numel():
        return Place(None, 0, dtype, 0, size, (), grad), None
    place = _in_block(tensor.share_memory_())
    if place is None:
        if not may_copy:
            raise InvalidArgument(NEEDS_COPY)
        tensor = tensor.detach().clone()
        place = _in_block(tensor.share_memory_())
        assert place is not None
    block, kind, offset = place
    name = block.segment, block.index, block.generation
    return Place(name, RECEIVED[kind], dtype, offset, size, tuple(tensor.stride()), grad), block


def _in_block(tensor: Tensor) -> tuple[Block, int, int] | None:
    """Return (block, kind of view, first element) of a shared tensor; None: a receiver could not open it so."""
    storage = tensor.storage()._root()[0]
    block, kind = shared_block(storage._region)
    if block is None or not is_of_default(block):
        return None
    offset, rest = divmod(address_of(tensor._live()) - region_address(storage._region), tensor.itemsize)
    return None if rest else (block, kind, offset)  # it may begin at any byte here, but not in the receiver


def is_of_default(block: Block) -> bool:
    """Whether a block belongs to the group of the default manager. Does not block."""
    return manager_of(block) is client.default()
