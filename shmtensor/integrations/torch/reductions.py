"""Torch storages in messages and arguments: as handles of our shared memory.

Everything else keeps torch's reducers, plus two flags that these omit: lazy conjugation and negation of a tensor.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions as theirs

from ...errors import StaleHandle
from ...ipc import reductions as ipc
from ...storage import Storage
from . import memory
from .memory import Place
from .sharing import reseat
from .storages import is_torch_shared


def reduce_storage(storage: Any) -> ipc.Rebuild:
    """Reduce an untyped storage: to a handle if it is in our memory, or is sent by this package.

    Private memory that is sent by this package is moved first, as torch moves it into its own.

    Raises:
        OutOfMemory, ManagerError: no shared memory.
        Exception: as torch's reducer, for other memory: its own storages on devices, or memory that it has shared.
    """
    place = memory.place_of(storage)
    if place is not None:
        memory.remember(place, storage)
    elif storage.device.type == "cpu" and ipc.is_sending():
        if not storage.nbytes():
            return theirs.rebuild_storage_empty, (type(storage),)
        if is_torch_shared(storage):
            return rebuild_theirs, theirs.reduce_storage(storage)
        if memory.can_move():
            place = memory.move(storage)
    if place is None:
        return theirs.reduce_storage(storage)  # type: ignore[no-any-return]
    return rebuild_storage, tuple(place)


def rebuild_storage(ours: Storage, first: int, nbytes: int) -> Any:
    """Return the torch storage over bytes of one of ours; the existing one if this process has it."""
    return memory.storage_at(Place(ours, first, nbytes))


def rebuild_theirs(rebuild: Any, arguments: Any) -> Any:
    """Return a storage in torch's shared memory, which was sent by torch's reducer.

    Raises:
        StaleHandle: the sender has ended, or the message was received before.
    """
    try:
        return rebuild(*arguments)
    except (EOFError, ConnectionError, FileNotFoundError) as problem:
        raise StaleHandle(
            "a tensor in torch's shared memory can be received once, while its sender lives; use shmtensor's instead: "
            f"shmtensor.integrations.torch.share_tensor_, not share_memory_() ({type(problem).__name__})"
        ) from problem


def reduce_flagged(tensor: Any) -> ipc.Rebuild:
    """Reduce a tensor as torch does, with its conjugate and negative bits, which torch does not send."""
    conj, neg = tensor.is_conj(), tensor.is_neg()
    if _is_plain(tensor) and not (conj or neg) and ipc.is_sending():
        place = tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
        return rebuild_plain, (tensor.untyped_storage(), tensor.dtype, *place)
    graph = tensor.requires_grad and not tensor.is_leaf  # which torch refuses
    if not (conj or neg) or graph or not ipc.is_sending():
        if not graph and _is_on_our_device(tensor):
            place = tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
            return theirs.rebuild_tensor, (type(tensor), tensor._typed_storage(), (*place, tensor.requires_grad))
        return theirs.reduce_tensor(tensor)  # type: ignore[no-any-return]
    return rebuild_flagged, (_flipped(tensor.detach(), conj, neg), conj, neg, tensor.requires_grad)


def _is_plain(tensor: Any) -> bool:
    """Whether storage, type and position describe a tensor completely for a message."""
    is_dense = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.is_nested
    return bool(is_dense and tensor.device.type == "cpu" and not tensor.requires_grad)


def _is_on_our_device(tensor: Any) -> bool:
    """Whether a tensor is in our memory of a GPU, which torch would export as its own."""
    is_dense = tensor.device.type == "cuda" and tensor.layout is torch.strided and not tensor.is_nested
    return is_dense and memory.place_of(tensor.untyped_storage()) is not None


def rebuild_plain(storage: Any, dtype: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """Return the tensor at a position in a storage."""
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, size, stride)


def rebuild_flagged(tensor: Any, conj: bool, neg: bool, requires_grad: bool) -> Any:
    """Return a view of a tensor with these bits."""
    return _flipped(tensor, conj, neg).requires_grad_(requires_grad)


def _flipped(tensor: Any, conj: bool, neg: bool) -> Any:
    tensor = tensor.conj() if conj else tensor
    return torch._neg_view(tensor) if neg else tensor


def reduce_tensor(tensor: Any) -> ipc.Rebuild:
    """Move a tensor and reduce it: for a torch that cannot move a storage with all tensors on it."""
    if ipc.is_sending() and tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type == "cpu":
        reseat(tensor)
    return reduce_flagged(tensor)


def install() -> None:
    """Register the reducers in multiprocessing's pickler, on which ours is based."""
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    ForkingPickler.register(torch.Tensor, reduce_flagged)
    if not memory.can_move():
        for cls in (*torch._tensor_classes, torch.Tensor, torch.nn.Parameter):
            ForkingPickler.register(cls, reduce_tensor)
