"""Tensors in arguments and results of Ray as bare handles: what the caller keeps, the receiver opens."""

from __future__ import annotations

from typing import Any, Final

from ..._tensor.core import Tensor
from .fetching import Address, Connection, own_address
from .places import Group, Place, own_group, place_of

_ADDRESS: Final = len(Address._fields)


class Handle:
    """A tensor that is pickled as a description of where it is; unpickled, it is the tensor. See `handle`."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        """Describe the tensor by numbers and texts alone: each object in a pickle of Ray's costs 10 us."""
        if isinstance(self.tensor, Tensor):
            open_it: Any = open_handle
            place: Any = place_of(self.tensor, may_copy=False)[0]
        else:
            from . import torch_places

            open_it = open_torch_handle
            place = torch_places.place_of(self.tensor, may_copy=False)[0]
        return open_it, (*own_group(), *own_address(), *place.parts())


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


def open_handle(boot: str, number: int, *parts: Any) -> Any:
    """Return the tensor of a handle, from the parts of its group, address and place. Blocks while it is fetched.

    Raises:
        StaleHandle, SegmentLost: nobody keeps it any more.
        NotSupported: it is on another machine, and there are no keys (docs/cluster.md).
        OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
    """
    return _opened(Place(*parts[_ADDRESS:]), Group(boot, number), parts[:_ADDRESS])


def open_torch_handle(boot: str, number: int, *parts: Any) -> Any:
    """Return the tensor of a handle of torch's, as `open_handle`."""
    from .torch_places import TorchPlace

    return _opened(TorchPlace.of_parts(parts[_ADDRESS:]), Group(boot, number), parts[:_ADDRESS])


def _opened(place: Any, group: Group, address: tuple[Any, ...]) -> Any:
    if group == own_group():
        return place.open()
    with Connection(Address(*address)) as connection:
        return place.fetched(connection.fetch)
