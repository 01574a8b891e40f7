"""Tensors in arguments and results of Ray as bare handles: what the caller keeps, the receiver opens."""

from __future__ import annotations

from typing import Any, Final

from ..._tensor.core import Tensor
from ...errors import InvalidArgument, MessageDamaged, type_name
from ...ipc.codec import decode_from_wire, encode_for_wire
from .fetching import Address, Connection, own_address
from .places import Group, Place, own_group, place_of

_FIRST: Final = len(Group._fields) + 1
_PLACE: Final = _FIRST + len(Address._fields)


class Handle:
    """A tensor that is pickled as a description of where it is; unpickled, it is the tensor. See `handle`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor: Any = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        """Describe the tensor by bytes alone: each object in a pickle of Ray's costs 10 us."""
        return open_handle, (pack_handle(self.tensor),)


def handle(tensor: Any) -> Handle:
    """Return what arrives as this tensor, of shmtensor or torch, in an argument of a Ray call: some hundred bytes.

    The receiver's tensor is over the same memory where it is in the same group, else it is a copy. Ray knows nothing of
    it, so it does not keep the memory: keep the tensor until the call has ended. Where it has gone before the receiver
    opened it, the call fails with `StaleHandle`. `tensor_transport` keeps tensors by itself, for an additional call of
    the receiving actor. Private memory is moved into shared memory when the handle is pickled. Does not block.

    Pickling raises as `pack_handle`.

    Example: `ray.get(actor.learn.remote(handle(batch)))`, where `learn` gets a tensor.
    """
    return Handle(tensor)


def pack_handle(tensor: Any) -> bytes:
    """Return the handle of a tensor as bytes, which Ray passes without pickling them; the receiver calls `open_handle`.

    Such a call takes less time than one with `handle(tensor)`. Keep the tensor, as there, until the receiver has opened
    the handle. Blocks as `share_memory_`, if the tensor is private.

    Example: `ray.get(actor.learn.remote(pack_handle(batch)))`, where `learn` begins with `batch = open_handle(batch)`.

    Raises:
        InvalidArgument: a receiver could not open the tensor's own memory: it is shared by other means than the default
            manager, or, of torch, no dense tensor on the processor.
        OutOfMemory, ManagerError: as `share_memory_`.
    """
    is_torch = not isinstance(tensor, Tensor)
    if is_torch:
        from . import torch_places

        place: Any = torch_places.place_of(tensor, may_copy=False)[0]
    else:
        place = place_of(tensor, may_copy=False)[0]
    group = own_group()
    return encode_for_wire((is_torch, group.boot, str(group.number), *own_address(), *place.parts()))


def open_handle(data: bytes) -> Any:
    """Return the tensor of a handle, of shmtensor or torch: over the same memory in the same group, else a copy.

    Blocks while it is fetched. It can be opened as often as you like.

    Args:
        data: what `pack_handle` returned in another process, from one who may run code here.

    Raises:
        StaleHandle, SegmentLost: nobody keeps it any more.
        NotSupported: it is on another machine, and there are no keys (docs/cluster.md).
        OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
        InvalidArgument: not the bytes of a handle.
    """
    try:
        parts = decode_from_wire(bytes(data))
        if parts[0]:
            from .torch_places import TorchPlace

            place: Any = TorchPlace.of_parts(parts[_PLACE:])
        else:
            place = Place(*parts[_PLACE:])
        group, address = Group(parts[1], int(parts[2])), Address(*parts[_FIRST:_PLACE])
    except (TypeError, ValueError, LookupError, AttributeError, MessageDamaged) as problem:
        raise InvalidArgument(
            f"{type_name(data)} {data!r:.60} is not the bytes of a handle: {problem}; "
            "pass what the sender's handle() returned"
        ) from None
    if group == own_group():
        return place.open()
    with Connection(address) as connection:
        return place.fetched(connection.fetch)
