"""What lies under storages: sizes, flat arrays over regions, and which arrays a tensor can use as they are."""

from __future__ import annotations

import os
import sys
import threading
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._native import VIEW_FROZEN, VIEW_LENT, VIEW_PERSONAL, VIEW_READONLY, Block, View
from ..allocators import MapAllocator, MapFlags, default_allocator, managed_allocator
from ..allocators.lease import Lease, allocate_array
from ..allocators.managed import allocate
from ..allocators.protocol import MAX_BYTES, Allocator, Region
from ..dtypes import BY_DTYPE, DType, require_supported
from ..errors import DTypeError, InvalidArgument, LayoutError, MappingError, OutOfMemory, tensor_advice, type_name
from .arguments import integer

FD_FLAGS: Final = MapFlags.SHAREDMEM | MapFlags.KEEPFD
"""How a storage that is shared by descriptor is mapped."""


class StorageFlags(IntFlag):
    """What may be done with a storage's memory: TH_STORAGE_*, values and meanings as there."""

    REFCOUNTED = 1
    """The memory lives as long as something refers to it."""
    RESIZABLE = 2
    """`resize_` is allowed."""
    FREEMEM = 4
    """The memory goes back to the allocator with the last reference; without, it belongs to someone else."""
    VIEW = 8
    """A part of another storage."""


OWN: Final = StorageFlags.REFCOUNTED | StorageFlags.FREEMEM
"""Flags of memory that belongs to its storage."""

RECEIVED: Final = {0: 0, VIEW_LENT: VIEW_READONLY, VIEW_READONLY: VIEW_READONLY, VIEW_FROZEN: VIEW_PERSONAL}
"""Kind of view that a process has of a block (0: none, the block itself) -> what those have whom it sends it to."""
PLACES: Final = {
    0: "shared", VIEW_LENT: "lent", VIEW_READONLY: "read-only", VIEW_FROZEN: "frozen", VIEW_PERSONAL: "private",
}  # fmt: skip
"""Kind of view -> where that memory is, in a word."""


def array_over(
    flat: NDArray[Any], shape: tuple[int, ...], dtype: Any, offset: int, strides: tuple[int, ...]
) -> NDArray[Any]:
    """An array over a part of `flat`; offset and strides in bytes. Raises ValueError, TypeError: it reaches beyond."""
    array: NDArray[Any] = np.ndarray(shape, dtype, flat, offset, strides)
    if not flat.nbytes and array.size:  # NumPy looks at strides only where there is a buffer of at least a byte
        raise ValueError("strides is incompatible with shape of requested array and size of buffer")
    return array


def empty_cache() -> int:
    """Give the memory that this process has freed, and keeps for what it allocates next, back to the system.

    Tensors, and what other processes hold, are untouched. What is allocated next is reserved again: the first time is
    slower. It also happens by itself before an allocation is refused, here or in another process of the group.

    Does not block, but for some milliseconds where another process has a lock that is needed.

    Returns:
        Bytes given back; 0 in a process that has shared nothing.
    Raises:
        ForkedWithoutHold.
    """
    client = sys.modules.get("shmtensor.manager.client")
    return client.trim() if client else 0


pinned_allocator: Allocator | None = None
"""Where `pin_memory` takes page-locked memory from; has `pinned`, True. The CUDA part sets it, where there is a GPU."""

moving: Final = threading.RLock()
"""Guards moves and the making of storages; re-entrant, because a finalizer may get there while it is held."""
os.register_at_fork(before=moving.acquire, after_in_parent=moving.release, after_in_child=moving.release)


def span(array: NDArray[Any]) -> NDArray[Any]:
    """The memory from the first to the last element of `array`, wherever its axes begin, flat."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.size == 0:
        return np.empty(0, array.dtype)
    if min(array.strides) < 0:  # from the lowest address on
        array = array[tuple([slice(None, None, -1 if stride < 0 else 1) for stride in array.strides])]
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (last + 1,), (array.itemsize,))


def flat_bytes(buffer: Any) -> NDArray[np.uint8]:
    """All bytes of a storage, array or other buffer, without a copy. Raises DTypeError (no buffer), LayoutError."""
    flat = getattr(buffer, "_flat", buffer)
    if isinstance(flat, np.ndarray):
        if flat.flags.c_contiguous:
            return flat.reshape(-1).view(np.uint8)
        raise LayoutError(f"an array of shape {flat.shape} and strides {flat.strides} has gaps; pass a copy")
    try:
        view = memoryview(buffer)
    except TypeError as error:
        raise DTypeError(f"a {type_name(buffer)} is no buffer; give bytes, an array or a storage") from error
    if not view.c_contiguous:
        raise LayoutError(f"a buffer of shape {view.shape} has gaps; pass bytes(buffer)")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def put_bytes(flat: NDArray[Any], raw: NDArray[np.uint8]) -> None:
    """Have the elements of `flat` be these bytes; as many."""
    if flat.dtype.kind == "b":
        np.not_equal(raw, 0, out=flat)  # a bool of another byte would be neither true nor false
    else:
        np.copyto(flat.view(np.uint8), raw)


def owner_of(array: NDArray[Any]) -> Any:
    """The object under the views of an array, with which its memory goes: an ndarray, a lease, a block, a buffer."""
    base: Any = array
    while True:
        # NumPy takes a tensor's memory as a memoryview, which is over the tensor's array.
        found = base.obj if type(base) is memoryview else base
        if not isinstance(found, np.ndarray):
            return base
        if found.base is None:
            return found
        base = found.base


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element in this process."""
    address: int = array.__array_interface__["data"][0]
    return address


def region_address(region: Region) -> int:
    """Address of the first byte of a region."""
    return address_of(np.frombuffer(region, np.uint8, 1))


def shared_block(region: Any) -> tuple[Block | None, int]:
    """(block, kind of view) of memory that other processes have by handle; (None, 0) of any other. Does not block."""
    if type(region) is Block:
        return region, 0
    if type(region) is View and region.kind != VIEW_PERSONAL:
        return region.block, region.kind
    return None, 0


def region_over(block: Block, kind: int) -> Block | View:
    """The memory of `block`, as a process has it that may use it in this way. Does not block.

    Raises:
        OutOfMemory: no memory for a copy, or the system refused a mapping.
    """
    if not kind:
        return block
    try:
        return View(block, kind)
    except OSError as problem:
        raise OutOfMemory(
            f"{block.nbytes} bytes of shared memory cannot be had as {PLACES[kind]} memory: {problem.strerror}; raise "
            "the limit of address space (ulimit -v) or of mappings (vm.max_map_count), or free memory"
        ) from None


def traits_of(kind: int) -> tuple[Allocator, StorageFlags]:
    """(allocator, flags) of a storage with this view of a block. A private one is like memory on the heap."""
    return (default_allocator, OWN | StorageFlags.RESIZABLE) if kind == VIEW_PERSONAL else (managed_allocator, OWN)


def lease_of(array: NDArray[Any]) -> Lease:
    """The lease under an array that `fresh_array` made of an allocator's region."""
    lease = owner_of(array)
    assert isinstance(lease, Lease)
    return lease


def shared_by(allocator: Allocator) -> bool:
    """Whether other processes can have what the allocator gives; one that does not say so is private."""
    return bool(getattr(allocator, "shared", False))


def anonymous() -> MapAllocator:
    """Memory files without a name, one for each storage."""
    return MapAllocator(None, FD_FLAGS | MapFlags.EXCLUSIVE | MapFlags.UNLINK)


def fresh_array(allocator: Allocator, size: int, dtype: DType) -> tuple[Region, NDArray[Any]]:
    """A region for `size` elements and the array over it."""
    if allocator is managed_allocator:
        block = allocate(size * dtype.itemsize)
        return block, block.array(dtype, (size,))
    region, data = allocate_array(allocator, size * dtype.itemsize)
    if type(region) is Block:
        # A managed allocator of the user's own making: the block is its own owner.
        return region, region.array(dtype, (size,))
    return region, data.view(dtype)


def element_count(size: Any, dtype: DType) -> int:
    """`size` as a number of elements that can exist."""
    try:
        count = integer(size)
    except TypeError:
        raise InvalidArgument(f"size {size!r} is not an integer; give a number of elements") from None
    if not 0 <= count <= MAX_BYTES // dtype.itemsize:
        raise InvalidArgument(f"asked for {count} elements of {dtype.name}; ask for 0 to {MAX_BYTES // dtype.itemsize}")
    return count


def flat_values(content: Any, dtype: DType) -> NDArray[Any]:
    """`content` as a flat array of a numeric type."""
    try:
        # Python values are checked against the type's range; arrays are converted as TH's typed copies are.
        values = np.asarray(content) if hasattr(content, "__array__") else np.asarray(content, dtype)
        if values.dtype != dtype:
            require_supported(values.dtype)
    except OverflowError as error:
        raise InvalidArgument(f"a value does not fit into {dtype.name}: {error}") from error
    except (TypeError, ValueError) as error:
        if isinstance(error, DTypeError):
            raise
        raise unfit(content, dtype, error) from error
    if values.ndim != 1:
        raise InvalidArgument(f"storage content has shape {values.shape}; a storage is flat, so give one dimension")
    return values


def unfit(value: object, dtype: DType, error: Exception) -> InvalidArgument | DTypeError:
    """Our error for one of NumPy's about values: InvalidArgument for a wrong number or nesting, else DTypeError."""
    shown = repr(value) if len(repr(value)) < 80 else f"a {type_name(value)}"
    nesting = any(word in str(error) for word in ("broadcast", "inhomogeneous", "sequence"))
    kind = InvalidArgument if isinstance(error, ValueError) and nesting else DTypeError
    return kind(f"{shown} cannot be stored as {dtype.name}: {error}; give values of that type, as many as asked for")


def file_bytes(path: str | os.PathLike[str]) -> int:
    """Bytes of a file. Does not block. Raises MappingError, InvalidArgument (a path that cannot be one)."""
    try:
        return os.stat(os.fspath(path)).st_size  # noqa: PTH116
    except OSError as error:
        raise MappingError(error.errno, f"opening {os.fspath(path)}: {error.strerror}; check the path") from error
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{path!r} is no path: {error}; give the path of a file") from error


def checked_array(array: NDArray[Any]) -> NDArray[Any]:
    """`array` as an exact ndarray whose memory a tensor can use without a copy. Does not block.

    Raises:
        DTypeError: an object, structured, byte-swapped or unsupported dtype.
        LayoutError: read-only, or strides that are no multiples of the item size.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"expected a numpy.ndarray, found {type_name(array)}; {tensor_advice(array)}")
    if array.dtype not in BY_DTYPE:
        require_supported(array.dtype)
    if not array.flags.writeable:
        raise LayoutError("the array is read-only, and a tensor over it would write; pass array.copy()")
    if not array.flags.aligned:
        raise LayoutError("the array is not aligned to its item size; pass array.copy()")
    if any(stride % array.itemsize for stride in array.strides) and array.size:
        raise LayoutError(
            f"the array has strides {array.strides} bytes; a tensor needs multiples of its item size "
            f"({array.itemsize}): pass array.copy()"
        )
    return array.view(np.ndarray)
