"""Tensors in arguments and results of Ray as bare handles: the caller keeps the memory, and the receiver opens it."""

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
    """A tensor that is pickled as a description of its place, and unpickled as the tensor. See `handle`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor: Any = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        """Describe the tensor by one bytes object: each object in a pickle of Ray costs 10 us."""
        return open_handle, (pack_handle(self.tensor),)


def handle(tensor: Any) -> Handle:
    """Return an object that arrives as this tensor, of shmtensor or torch, in an argument of a Ray call.

    Its pickle has a few hundred bytes. The receiver's tensor is over the same memory if both processes are in the same
    group, else it is a copy. Ray does not keep the memory: keep the tensor until the call has ended. If it is freed
    before the receiver opens it, the call fails with `StaleHandle`. `tensor_transport` keeps tensors by itself, but
    takes an additional call of the receiving actor. Private memory is moved into shared memory when the handle is
    pickled. Does not block.

    Pickling raises as `pack_handle`.

    Example: `ray.get(actor.learn.remote(handle(batch)))`, where `learn` receives a tensor.
    """
    return Handle(tensor)


def pack_handle(tensor: Any) -> bytes:
    """Return the handle of a tensor as bytes, which Ray passes without pickling them; the receiver calls `open_handle`.

    Such a call takes less time than one with `handle(tensor)`. Keep the tensor until the receiver has opened the
    handle. Blocks as `share_memory_`, if the tensor is private.

    Example: `ray.get(actor.learn.remote(pack_handle(batch)))`, where `learn` begins with `batch = open_handle(batch)`.

    Raises:
        InvalidArgument: a receiver could not open the tensor's memory: it is shared by other means than the default
            manager, or it is a torch tensor that is not dense or not in CPU memory.
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

    Blocks while it is fetched. A handle can be opened several times.

    Args:
        data: the result of `pack_handle` in another process; it must come from a trusted sender, since it can run code.

    Raises:
        StaleHandle, SegmentLost: its memory has been freed.
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
            "pass the result of the sender's pack_handle()"
        ) from None
    if group == own_group():
        return place.open()
    with Connection(address) as connection:
        return place.fetched(connection.fetch)
