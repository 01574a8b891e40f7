"""Tensors in arguments and results of Ray as bare handles: what the caller keeps, the receiver opens."""

from __future__ import annotations

from typing import Any

from ..._tensor.core import Tensor
from .fetching import Address, Connection, own_address
from .places import Group, own_group, place_of


class Handle:
    """A tensor that is pickled as a description of where it is; unpickled, it is the tensor. See `handle`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.tensor, Tensor):
            place: Any = place_of(self.tensor, may_copy=False)[0]
        else:
            from . import torch_places

            place = torch_places.place_of(self.tensor, may_copy=False)[0]
        return open_handle, (own_group(), own_address(), place)


def handle(tensor: Any) -> Handle:
    """Return what arrives as this tensor, of shmtensor or torch, in an argument of a Ray call: some hundred bytes.

    The receiver's tensor is over the same memory where it is in the same group, else it is a copy. Ray knows nothing of
    it, so it does not keep the memory: keep the tensor until the call has ended. Where it has gone before the receiver
    opened it, the call fails with `StaleHandle`. `tensor_transport` keeps tensors by itself, for an additional call of
    the receiving actor. Private memory is moved into shared memory when the handle is pickled. Does not block.

    Pickling raises InvalidArgument where a receiver could not open the tensor's own memory: it is shared by other means
    than the default manager, or, of torch, no dense tensor on the processor.

    Example: `ray.get(actor.learn.remote(handle(batch)))`, where `learn` gets a tensor.
    """
    return Handle(tensor)


def open_handle(group: Group, address: Address, place: Any) -> Any:
    """Return the tensor of a handle. Blocks while it is fetched, in another group.

    Raises:
        StaleHandle, SegmentLost: nobody keeps it any more.
        NotSupported: it is on another machine, and there are no keys (docs/cluster.md).
        OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
    """
    if group == own_group():
        return place.open()
    with Connection(address) as connection:
        return place.fetched(connection.fetch)
