"""Functions that move torch tensors and modules into our shared memory, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from ...errors import DTypeError, InvalidArgument, type_name
from . import memory

_COMPRESSED: Final = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def share_tensor_(tensor: torch.Tensor) -> torch.Tensor:
    """Move a torch tensor into our shared memory, unless it is there already. Returns the tensor.

    Its whole storage moves, with all tensors on it: views, tied parameters, parameters of an optimizer. Existing arrays
    of NumPy and other libraries keep the old memory, which then stays as long as the storage. All parts of sparse and
    nested tensors move; a tensor without elements has no memory to move. (A torch without
    `UntypedStorage._swap_data_ptr_` moves this tensor alone; views of it keep the old memory.)

    Raises:
        DTypeError: not a torch tensor.
        InvalidArgument: a tensor on a device, or in torch's own shared memory, which other processes may have open; a
            tensor of opaque layout (MKL-DNN); a parameter of a lazy module without a shape. Nothing was moved.
        OutOfMemory, ManagerError: no shared memory; nothing was changed.
    """
    if not isinstance(tensor, torch.Tensor):
        raise DTypeError(f"share_tensor_ takes a torch.Tensor, not a {type_name(tensor)}")
    if is_lazy(tensor):
        raise InvalidArgument("a lazy parameter has no shape yet: call its module once with an input, then share it")
    for part in _movable(tensor):
        share_part(part)
    return tensor


def share_module(module: torch.nn.Module) -> torch.nn.Module:
    """Move all parameters and buffers of a torch module into our shared memory. Returns the module.

    Each storage gets one block. Tensors on it follow, as with `share_tensor_`: tied weights stay tied, and optimizers
    and the results of `state_dict` keep the same tensors. Gradients stay private.

    Raises:
        DTypeError: not a torch module.
        InvalidArgument: as share_tensor_; a lazy module whose parameters have no shape yet. Nothing was moved.
        OutOfMemory, ManagerError: as share_tensor_; tensors that were moved before stay moved.
    """
    if not isinstance(module, torch.nn.Module):
        raise DTypeError(f"share_module takes a torch.nn.Module, not a {type_name(module)}")
    named = [*module.named_parameters(), *module.named_buffers()]
    for name, tensor in named:
        if is_lazy(tensor):
            raise InvalidArgument(
                f"{name!r} of a {type(module).__name__} has no shape yet: call the module once, then share it"
            )
    parts = []
    for name, tensor in named:
        try:
            parts += _movable(tensor)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{name!r} of a {type(module).__name__} cannot be shared, so nothing was moved: {error}"
            ) from None
    for part in parts:
        share_part(part)
    return module


def shared_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in our shared memory, without gradients; for sparse, nested and empty tensors the detached tensor.

    Raises:
        OutOfMemory, ManagerError: no shared memory.
    """
    tensor = tensor.detach()
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
        return tensor
    return torch.empty(0, dtype=tensor.dtype).set_(memory.fresh(tensor.nbytes), 0, tensor.shape).copy_(tensor)


def _movable(tensor: Any) -> list[Any]:
    """The dense tensors with memory that a tensor consists of. Raises InvalidArgument if one cannot be moved."""
    parts = [part for part in dense_parts(tensor) if part.untyped_storage().nbytes()]
    for part in parts:
        memory.require_movable(part.untyped_storage())
    return parts


def dense_parts(tensor: Any) -> Iterator[Any]:
    """The dense tensors that a tensor consists of."""
    if tensor.device.type != "cpu":
        raise InvalidArgument(
            f"a tensor on device {tensor.device} cannot be moved into CPU shared memory; share tensor.cpu()"
        )
    if hasattr(tensor, "__tensor_flatten__"):  # subclasses that consist of other tensors
        for name in tensor.__tensor_flatten__()[0]:
            yield from dense_parts(getattr(tensor, name))
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in _COMPRESSED:
        yield from (getattr(tensor, name)() for name in _COMPRESSED[tensor.layout])
        yield tensor.values()
    elif tensor.is_nested:
        yield tensor.values()
    elif tensor.layout is not torch.strided:
        raise InvalidArgument(
            f"a tensor of layout {tensor.layout} has no memory that can be shared; share tensor.to_dense()"
        )
    else:
        yield tensor


def share_part(tensor: Any) -> None:
    """Move a dense tensor with memory into ours, unless it is there. Raises as `share_tensor_`."""
    storage = tensor.untyped_storage()
    if memory.can_move():
        memory.move(storage)
    elif memory.place_of(storage) is None:
        memory.require_private(storage)
        reseat(tensor)


# -- a torch that cannot move a storage -------------------------------------------------------------------------------

_successors: Final[dict[int, tuple[Any, Any]]] = {}
"""(Reference to an old storage, storage in our memory) by the number of the old one, to keep its tensors together."""


def reseat(tensor: Any) -> None:
    """Move a single dense tensor to a storage in our memory, unless its storage is ours already, or shared by torch."""
    old = tensor.untyped_storage()
    if not old.nbytes() or old.is_shared():
        return
    known = _successors.get(old._cdata)
    if known is None or known[0].expired():
        for number in [number for number, (left, _) in _successors.items() if left.expired()]:
            _successors.pop(number, None)
        new = memory.fresh(old.nbytes())
        lent = memory.is_lent(old)
        memory.copy(new, old)
        if lent:
            memory.keep(new, old)
        known = _successors[old._cdata] = StorageWeakRef(old), new
    seat = torch.empty(0, dtype=tensor.dtype, device="cpu")
    tensor.data = seat.set_(known[1], tensor.storage_offset(), tensor.size(), tensor.stride())
