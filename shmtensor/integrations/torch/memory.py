"""torch storages over our shared memory: find them, create them, and move others there.

A storage on a GPU is in our memory if torch got it from one of our tensors. Its streams and ours wait for each other as
DLPack specifies, so a message has a point of CuPy's current stream, as for our own tensors.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import SharedCache, StorageWeakRef
from torch.utils.dlpack import to_dlpack

from ... import _native
from ..._loading import load
from ..._native import Block
from ..._tensor.core import Tensor, wrap
from ..._tensor.creation import empty
from ..._tensor.dlpack import from_dlpack
from ...errors import InvalidArgument
from ...storage import Storage
from ...storage.regions import shared_block

_SWAP: Final = "_swap_data_ptr_"
"""The method that moves all tensors on a storage to other memory. Private, and not in every version of torch."""
_FOUND: Final = "_shmtensor_place"
"""The attribute of a storage that caches its address and place (None: not ours)."""
_LENT: Final = "_shmtensor_lent"
"""The attribute of a storage that was exported to another library by DLPack."""
_LEFT: Final = "_shmtensor_left"
"""The attribute of a moved storage with the storage over its old memory, if other libraries' arrays may use that."""
_DEFAULT_STREAM: Final = 1
"""CUDA's default stream, as the array API numbers it."""
_users: Final = getattr(torch._C, "_storage_Use_Count", None)


class Place(NamedTuple):
    """The place of a torch storage in our memory."""

    storage: Storage
    """The bytes of the block."""
    first: int
    nbytes: int

    @property
    def key(self) -> tuple[int, int, int, int]:
        """The key of the memory, valid while it is in use."""
        region = self.storage._region
        block, kind = shared_block(region)
        return id(region if block is None else block), kind, self.first, self.nbytes


_known: Final = SharedCache()
"""The torch storage over each place, so that memory that arrives again gets the same storage. A key contains an id; the
storage keeps the block alive, so a live reference belongs to that block."""

_moving: Final = threading.RLock()
os.register_at_fork(before=_moving.acquire, after_in_parent=_moving.release, after_in_child=_moving.release)


def bytes_of(storage: Any) -> Any:
    """Return a torch tensor of all bytes of an untyped storage."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def place_of(storage: Any) -> Place | None:
    """Return the place of an untyped torch storage in our shared memory; None: it is elsewhere. Does not block."""
    if not storage.nbytes():
        return None
    if storage.device.type != "cpu":
        return place_on_device(storage) if storage.device.type == "cuda" else None
    address = storage.data_ptr()
    found: tuple[int, Place | None] | None = vars(storage).get(_FOUND)
    if found is not None and found[0] == address:  # otherwise it was swapped or set to other memory
        return found[1]
    ours = from_dlpack(to_dlpack(bytes_of(storage)))
    place = Place(ours.storage(), ours.storage_offset(), storage.nbytes()) if ours.is_shared() else None
    setattr(storage, _FOUND, (address, place))
    return place


def place_on_device(storage: Any) -> Place | None:
    """Return the place of an untyped torch storage in our memory of a GPU; None: it is elsewhere. Does not block.

    CuPy's current stream waits for the work submitted to torch's so far.
    """
    if _native.device_block_at(storage.data_ptr(), storage.nbytes()) is None:
        return None
    array = from_dlpack(bytes_of(storage))._array
    ours = load("gpu.memory").block_memory(array)
    flat = ours.array(np.uint8, (ours.nbytes,))
    whole: Any = Storage._over_device(flat)
    return Place(whole, storage.data_ptr() - ours.ptr, storage.nbytes())


def on_device(tensor: Tensor) -> Any:
    """Return a torch tensor over the memory of a tensor on a GPU. torch's current stream waits for CuPy's."""
    array: Any = tensor._array
    device = array.device.id
    stream = torch.cuda.current_stream(device).cuda_stream if torch.cuda.is_available() else 0
    return torch.from_dlpack(tensor.__dlpack__(stream=stream or _DEFAULT_STREAM))


def whole_of(block: Block, kind: int) -> Place:
    """Return the place of all bytes of a block, with that kind of view. Does not block."""
    return Place(Storage._from_block(block, np.dtype(np.uint8), block.nbytes, kind), 0, block.nbytes)


def remember(place: Place, storage: Any) -> None:
    """Make `storage_at` return this storage for that place, as long as it lives."""
    _known[place.key] = StorageWeakRef(storage)


def storage_at(place: Place) -> Any:
    """Return the torch storage over a place: the existing one, else a new one that keeps the block.

    Raises:
        BufferError: the memory is read-only, and this torch's DLPack has no flag for that.
    """
    with _moving:
        known = _known.get(place.key)
        found = None if known is None else torch.UntypedStorage._new_with_weak_ptr(known.cdata)
        if found is None:
            part = place.storage._flat[place.first : place.first + place.nbytes]
            if place.storage.is_cuda:
                whole = on_device(wrap(part))
            else:
                whole = torch.from_numpy(part) if part.flags.writeable else torch.from_dlpack(wrap(part))
            found = whole.untyped_storage()
            if place.storage.is_cuda or shared_block(place.storage._region)[0] is not None:
                remember(place, found)
        return found


def fresh(nbytes: int) -> Any:
    """Return a new torch storage in our shared memory, uninitialised.

    Raises:
        OutOfMemory, ManagerError: as `shmtensor.empty(..., shared=True)`.
    """
    return _fresh(nbytes)[0]


def _fresh(nbytes: int) -> tuple[Any, Place]:
    """Return (new storage, its place). Raises as `fresh`."""
    ours = empty(nbytes, dtype="uint8", shared=True)
    return torch.from_numpy(ours._live()).untyped_storage(), Place(ours.storage(), 0, nbytes)


def copy(target: Any, source: Any) -> None:
    """Copy all bytes from one storage to another of that size, in this thread. Afterwards neither can be resized."""
    np.copyto(bytes_of(target).numpy(), bytes_of(source).numpy())


def lend(storage: Any) -> None:
    """Record that another library got the memory of a storage by DLPack, and is not notified when the storage moves."""
    setattr(storage, _LENT, True)


def is_lent(storage: Any) -> bool:
    """Whether another library's array may use the memory of a storage. Does not block.

    A storage whose memory was exported to NumPy cannot be resized afterwards; an array over it has a tensor on the
    storage, in addition to that of the caller and the storage object.
    """
    if hasattr(storage, _LENT):
        return True
    return not storage.resizable() and (_users is None or _users(storage._cdata) > 2)


def keep(storage: Any, left: Any) -> None:
    """Keep the old memory of a moved storage as long as the storage, because other libraries' arrays may use it."""
    setattr(storage, _LEFT, left)


def can_move() -> bool:
    """Whether this torch can move a storage with all tensors on it."""
    return hasattr(torch.UntypedStorage, _SWAP)


def move(storage: Any) -> Place:
    """Move an untyped storage into our shared memory, with all tensors on it. Returns its place.

    A write by another thread meanwhile may be lost, as with torch's `share_memory_()`. Arrays of other libraries over
    the old memory stay valid: that memory is then kept as long as the storage.

    Raises:
        InvalidArgument: a storage without elements or on a device; one that torch has shared already.
        OutOfMemory, ManagerError: nothing was changed.
    """
    if storage.device.type != "cpu" or not storage.nbytes():
        raise InvalidArgument(
            f"a torch storage of {storage.nbytes()} bytes on device {storage.device} cannot be moved into shared "
            "memory, which is CPU memory"
        )
    place = place_of(storage)
    if place is None:
        ours, ours_place = _fresh(storage.nbytes())
        with _moving:
            place = place_of(storage)  # another thread may have moved it
            if place is None:
                require_private(storage)
                lent = is_lent(storage)
                copy(ours, storage)
                getattr(storage, _SWAP)(ours)
                if lent:
                    keep(storage, ours)
                place = ours_place
                setattr(storage, _FOUND, (storage.data_ptr(), place))
    remember(place, storage)
    return place


def require_movable(storage: Any) -> None:
    """Raise InvalidArgument for a storage that torch has shared. Blocks while another thread moves one."""
    with _moving:
        if place_of(storage) is None:
            require_private(storage)


def require_private(storage: Any) -> None:
    """Raise InvalidArgument for a storage that is shared."""
    if storage.is_shared():
        raise InvalidArgument(
            f"a torch storage of {storage.nbytes()} bytes is in torch's shared memory, where other processes may have "
            "it; make it with shmtensor.integrations.torch.share_tensor_ from the start, or share a clone()"
        )
