"""Places of torch tensors in shared memory, as `places` for ours: as bits, so that every dtype is supported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

from ..._native import Block
from ..._tensor.core import Tensor
from ...errors import InvalidArgument, type_name
from ...storage.regions import RECEIVED, shared_block
from ..torch import conversions, memory, sharing
from . import places
from .places import Place

_BITS: Final = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
"""Our type with the same number of bytes, used to copy elements bit by bit."""


@dataclass(frozen=True)
class TorchPlace:
    """A torch tensor in shared memory."""

    bits: Place
    dtype: Any
    conj: bool
    neg: bool
    requires_grad: bool

    def parts(self) -> tuple[Any, ...]:
        """Return the argument of `of_parts`."""
        return *self.bits.parts(), str(self.dtype).removeprefix("torch."), self.conj, self.neg, self.requires_grad

    @classmethod
    def of_parts(cls, parts: tuple[Any, ...]) -> Self:
        """Return the place with these parts."""
        dtype, *flags = parts[-4:]
        return cls(Place(*parts[:-4]), getattr(torch, dtype), *flags)

    def open(self) -> Any:
        """Return the tensor, over the same memory. Blocks and raises as `Place.open_block`."""
        if self.bits.block is None:
            return self._finished(torch.empty(self.bits.size, dtype=self.dtype, device="cpu"))
        storage = memory.storage_at(memory.whole_of(self.bits.open_block(), self.bits.kind))
        return self._finished(
            torch.empty(0, dtype=self.dtype, device="cpu").set_(
                storage, self.bits.offset, self.bits.size, self.bits.stride
            )
        )

    def fetched(self, get: Callable[[Place], Tensor]) -> Any:
        """Return the tensor whose bits `get` returns."""
        if self.bits.block is None:
            return self.open()
        return self._finished(conversions.to_torch(get(self.bits)).view(self.dtype))

    def _finished(self, tensor: Any) -> Any:
        tensor = tensor.conj() if self.conj else tensor
        tensor = torch._neg_view(tensor) if self.neg else tensor
        return tensor.requires_grad_() if self.requires_grad else tensor


def place_of(tensor: Any, may_copy: bool = True) -> tuple[TorchPlace, Block | None]:
    """Return the place of a torch tensor, and the block that the caller must keep.

    Its storage is moved into shared memory first, as `share_tensor_` does; for memory that torch has shared, the place
    is that of a copy. The result of a recorded operation is described as a leaf.

    Args:
        tensor: a dense tensor in CPU memory.
        may_copy: whether the place may be that of a copy, which only the returned block keeps.

    Raises:
        InvalidArgument: a sparse or nested tensor, a subclass, or one on a device; or a copy would be needed, and
            `may_copy` is False.
        OutOfMemory, ManagerError: as `share_tensor_`.
    """
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        raise InvalidArgument(
            f"a {type_name(tensor)} of layout {tensor.layout} is not a dense torch.Tensor; convert it with to_dense()"
        )
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"a tensor on device {tensor.device} is not in CPU memory; return its cpu()")
    width = tensor.element_size()
    flags = tensor.dtype, tensor.is_conj(), tensor.is_neg(), bool(tensor.requires_grad)
    size = tuple(tensor.shape)
    if not tensor.numel():
        return TorchPlace(Place(None, 0, _BITS[width], 0, size, ()), *flags), None
    plain = _plain(tensor.detach(), *flags[1:3])
    _move(plain.untyped_storage())
    place = _in_block(plain)
    if place is None:
        if not may_copy:
            raise InvalidArgument(places.NEEDS_COPY)
        plain = sharing.shared_copy(plain)
        place = _in_block(plain)
        assert place is not None
    block, kind, offset = place
    name = block.segment, block.index, block.generation
    return TorchPlace(Place(name, RECEIVED[kind], _BITS[width], offset, size, tuple(plain.stride())), *flags), block


def _plain(tensor: Any, conj: bool, neg: bool) -> Any:
    """Return a view without the conjugate and negative bits."""
    tensor = torch._neg_view(tensor) if neg else tensor
    return tensor.conj() if conj else tensor


def _move(storage: Any) -> None:
    """Move a storage into our memory, unless torch has shared it, or cannot move it."""
    if memory.can_move() and not storage.is_shared():
        memory.move(storage)


def _in_block(tensor: Any) -> tuple[Block, int, int] | None:
    """Return (block, kind of view, first element) of a tensor; None: a receiver could not open it so."""
    place = memory.place_of(tensor.untyped_storage())
    if place is None:
        return None
    block, kind = shared_block(place.storage._region)
    if block is None or not places.is_of_default(block):
        return None
    memory.remember(place, tensor.untyped_storage())
    first, rest = divmod(place.first, tensor.element_size())
    return None if rest else (block, kind, first + tensor.storage_offset())
