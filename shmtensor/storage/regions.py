"""The memory under storages: sizes, flat arrays over regions, and checks of foreign arrays."""

from __future__ import annotations

import os
import sys
import threading
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import VIEW_FROZEN, VIEW_LENT, VIEW_PERSONAL, VIEW_READONLY, Block, View
from ..allocators import MapAllocator, MapFlags, default_allocator, managed_allocator
from ..allocators.lease import Lease, allocate_array
from ..allocators.managed import allocate
from ..allocators.protocol import MAX_BYTES, Allocator, Region
from ..dtypes import BY_DTYPE, NumpyType, require_supported
from ..errors import DTypeError, InvalidArgument, LayoutError, MappingError, OutOfMemory, tensor_advice, type_name
from .arguments import integer

FD_FLAGS: Final = MapFlags.SHAREDMEM | MapFlags.KEEPFD
"""Flags for mapping a storage that is shared by descriptor."""


class StorageFlags(IntFlag):
    """Properties of a storage's memory: TH_STORAGE_*, with the values and meanings of TH."""

    REFCOUNTED = 1
    """The memory is kept while something refers to it."""
    RESIZABLE = 2
    """`resize_` is allowed."""
    FREEMEM = 4
    """The memory is freed by the allocator after the last reference; otherwise it has another owner."""
    VIEW = 8
    """A part of another storage."""


OWN: Final = StorageFlags.REFCOUNTED | StorageFlags.FREEMEM
"""Flags of memory that belongs to its storage."""

RECEIVED: Final = {0: 0, VIEW_LENT: VIEW_READONLY, VIEW_READONLY: VIEW_READONLY, VIEW_FROZEN: VIEW_PERSONAL}
"""Kind of view that a process has of a block (0: the block itself) -> kind of view that receivers get."""
PLACES: Final = {
    0: "shared", VIEW_LENT: "lent", VIEW_READONLY: "read-only", VIEW_FROZEN: "frozen", VIEW_PERSONAL: "private",
}  # fmt: skip
"""Kind of view -> the kind of memory in a word."""


def array_over(
    flat: NDArray[Any], shape: tuple[int, ...], dtype: Any, offset: int, strides: tuple[int, ...]
) -> NDArray[Any]:
    """Return an array over a part of `flat`; offset and strides in bytes. Raises ValueError, TypeError."""
    if not isinstance(flat, np.ndarray):
        return load("gpu.arrays").part_of(flat, shape, dtype, offset, strides)
    array: NDArray[Any] = np.ndarray(shape, dtype, flat, offset, strides)
    if not flat.nbytes and array.size:  # NumPy does not check strides if the buffer is empty
        raise ValueError("strides is incompatible with shape of requested array and size of buffer")
    return array


def empty_cache() -> int:
    """Give the freed shared memory that this process caches back to the system.

    Tensors are not affected. The next allocations are slower, because memory is reserved again. Caches are also emptied
    automatically before an allocation is refused, here or in another process of the group. Blocks for some milliseconds
    at most, while another process holds a lock.

    Returns:
        Bytes given back; 0 in a process that has shared nothing.

    Raises:
        ClientUnavailable: see `shmtensor.errors`.
    """
    pinned = sys.modules.get("shmtensor.gpu.registered")
    if pinned is not None:
        pinned.trim()
    client = sys.modules.get("shmtensor.manager.client")
    return client.trim() if client else 0


moving: Final = threading.RLock()
"""Guards moves and creation of storages. Re-entrant, because a finalizer may run while it is held."""
os.register_at_fork(before=moving.acquire, after_in_parent=moving.release, after_in_child=moving.release)


def section_of(flat: NDArray[Any], first: int, size: int, dtype: NumpyType) -> NDArray[Any]:
    """Return an array of `size` elements over the memory of `flat`, from byte `first` on."""
    return flat.view(np.uint8)[first : first + size * dtype.itemsize].view(dtype)


def span(array: NDArray[Any]) -> NDArray[Any]:
    """Return a flat array from the lowest to the highest element of `array` in memory."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.size == 0:
        return np.empty(0, array.dtype)
    if min(array.strides) < 0:  # start at the lowest address
        array = array[tuple([slice(None, None, -1 if stride < 0 else 1) for stride in array.strides])]
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (last + 1,), (array.itemsize,))


def flat_bytes(buffer: Any) -> NDArray[np.uint8]:
    """Return all bytes of a storage, array or other buffer, without a copy. Raises DTypeError, LayoutError."""
    flat = getattr(buffer, "_flat", buffer)
    if isinstance(flat, np.ndarray):
        if flat.flags.c_contiguous:
            return flat.reshape(-1).view(np.uint8)
        raise LayoutError(f"an array of shape {flat.shape} and strides {flat.strides} is not contiguous; pass a copy")
    try:
        view = memoryview(buffer)
    except TypeError as error:
        raise DTypeError(f"a {type_name(buffer)} is not a buffer; give bytes, an array or a storage") from error
    if not view.c_contiguous:
        raise LayoutError(f"a buffer of shape {view.shape} is not contiguous; pass bytes(buffer)")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def put_bytes(flat: NDArray[Any], raw: NDArray[np.uint8]) -> None:
    """Copy bytes into the elements of `flat`."""
    if flat.dtype.kind == "b":
        np.not_equal(raw, 0, out=flat)  # a bool must be 0 or 1
    else:
        np.copyto(flat.view(np.uint8), raw)


def owner_of(array: NDArray[Any]) -> Any:
    """Return what owns the memory of an array: an ndarray, a lease, a block or a buffer; on a GPU, CuPy's memory."""
    if not isinstance(array, np.ndarray):
        return array.data.mem
    base: Any = array
    while True:
        # NumPy gets a tensor's memory as a memoryview of the tensor's array.
        found = base.obj if type(base) is memoryview else base
        if not isinstance(found, np.ndarray):
            return base
        if found.base is None:
            return found
        base = found.base


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first element in this process."""
    if not isinstance(array, np.ndarray):
        return int(array.data.ptr)  # on a GPU
    address: int = array.__array_interface__["data"][0]
    return address


def region_address(region: Region) -> int:
    """Return the address of the first byte of a region."""
    return address_of(np.frombuffer(region, np.uint8, 1))


def shared_block(region: Any) -> tuple[Block | None, int]:
    """Return (block, kind of view) of the manager's memory; (None, 0) for other memory. Does not block."""
    if type(region) is Block:
        return region, 0
    if type(region) is View and region.kind != VIEW_PERSONAL:
        return region.block, region.kind
    return None, 0


def region_over(block: Block, kind: int) -> Block | View:
    """Return the memory of `block` with the access of `kind`. Does not block.

    Raises:
        OutOfMemory: no memory for a copy, or the system refused a mapping.
    """
    if not kind:
        return block
    try:
        return View(block, kind)
    except OSError as problem:
        raise OutOfMemory(
            f"cannot map {block.nbytes} bytes of shared memory as {PLACES[kind]} memory: {problem.strerror}; raise "
            "the limit of address space (ulimit -v) or of mappings (vm.max_map_count), or free memory"
        ) from None


def traits_of(kind: int) -> tuple[Allocator, StorageFlags]:
    """Return (allocator, flags) of a storage with this view of a block. A private view counts as heap memory."""
    return (default_allocator, OWN | StorageFlags.RESIZABLE) if kind == VIEW_PERSONAL else (managed_allocator, OWN)


def lease_of(array: NDArray[Any]) -> Lease:
    """Return the lease under an array of `fresh_array`."""
    lease = owner_of(array)
    assert isinstance(lease, Lease)
    return lease


def shared_by(allocator: Allocator) -> bool:
    """Whether other processes can map the allocator's memory; False if it has no attribute `shared`."""
    return bool(getattr(allocator, "shared", False))


def anonymous() -> MapAllocator:
    """Return an allocator of memory files without a name, one for each storage."""
    return MapAllocator(None, FD_FLAGS | MapFlags.EXCLUSIVE | MapFlags.UNLINK)


def fresh_array(allocator: Allocator, size: int, dtype: NumpyType) -> tuple[Region, NDArray[Any]]:
    """Allocate a region for `size` elements. Returns the region and an array over it."""
    if allocator is managed_allocator:
        block = allocate(size * dtype.itemsize)
        return block, block.array(dtype, (size,))
    region, data = allocate_array(allocator, size * dtype.itemsize)
    if type(region) is Block:
        # A managed allocator that the user created: the block owns its memory.
        return region, region.array(dtype, (size,))
    return region, data.view(dtype)


def element_count(size: Any, dtype: NumpyType) -> int:
    """Check a number of elements. Raises InvalidArgument."""
    try:
        count = integer(size)
    except TypeError:
        raise InvalidArgument(f"size {size!r} is not an integer; give a number of elements") from None
    if not 0 <= count <= MAX_BYTES // dtype.itemsize:
        raise InvalidArgument(f"size must be 0 to {MAX_BYTES // dtype.itemsize} elements of {dtype.name}, not {count}")
    return count


def flat_values(content: Any, dtype: NumpyType) -> NDArray[Any]:
    """Convert `content` to a flat array of a numeric type."""
    try:
        # Python values are checked against the type's range; arrays are converted as TH's typed copies are.
        values = np.asarray(content) if hasattr(content, "__array__") else np.asarray(content, dtype)
        if values.dtype != dtype:
            require_supported(values.dtype)
    except OverflowError as error:
        raise InvalidArgument(
            f"a value does not fit into {dtype.name}: {error}; give numbers in its range, or use another type"
        ) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, DTypeError):
            raise
        raise unfit(content, dtype, error) from error
    if values.ndim != 1:
        raise InvalidArgument(f"the content of a storage must have one dimension, not shape {values.shape}")
    return values


def unfit(value: object, dtype: NumpyType, error: Exception) -> InvalidArgument | DTypeError:
    """Convert an error of NumPy about values: InvalidArgument for a wrong number or nesting, else DTypeError."""
    shown = repr(value) if len(repr(value)) < 80 else f"a {type_name(value)}"
    nesting = any(word in str(error) for word in ("broadcast", "inhomogeneous", "sequence"))
    kind = InvalidArgument if isinstance(error, ValueError) and nesting else DTypeError
    return kind(f"{shown} cannot be stored as {dtype.name}: {error}; give the right number of values of that type")


def file_bytes(path: str | os.PathLike[str]) -> int:
    """Return the size of a file in bytes. Does not block. Raises MappingError, InvalidArgument (an invalid path)."""
    try:
        return os.stat(os.fspath(path)).st_size  # noqa: PTH116
    except OSError as error:
        raise MappingError(error.errno, f"opening {os.fspath(path)}: {error.strerror}; check the path") from error
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{path!r} is not a path: {error}; give the path of a file") from error


def checked_array(array: NDArray[Any]) -> NDArray[Any]:
    """Check that a tensor can use the memory of `array` without a copy; returns a plain ndarray. Does not block.

    Raises:
        DTypeError: an object, structured, byte-swapped or unsupported dtype.
        LayoutError: read-only memory, or strides that are not multiples of the item size.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"expected a numpy.ndarray, found {type_name(array)}; {tensor_advice(array)}")
    if array.dtype not in BY_DTYPE:
        require_supported(array.dtype)
    if not array.flags.writeable:
        raise LayoutError("the array is read-only, and a tensor must be writable; pass array.copy()")
    if not array.flags.aligned:
        raise LayoutError("the array is not aligned to its item size; pass array.copy()")
    if any(stride % array.itemsize for stride in array.strides) and array.size:
        raise LayoutError(
            f"the array has strides {array.strides} bytes; a tensor needs multiples of its item size "
            f"({array.itemsize}): pass array.copy()"
        )
    return array.view(np.ndarray)
