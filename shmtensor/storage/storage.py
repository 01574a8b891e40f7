"""Storage: typed, flat memory over one region of an allocator. Tensors are views of storages.

All tensors on a storage refer to the same Storage object. When its memory moves (into shared memory, or by a resize),
they follow. NumPy arrays that were taken earlier do not follow; they keep the old memory, which stays valid.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import is_device_array
from ..allocators import default_allocator, managed_allocator
from ..allocators.lease import Lease
from ..allocators.protocol import Allocator
from ..dtypes import DEFAULT, TABLE, ElementType, dtype_of
from ..errors import InvalidArgument
from .base import STORAGE_CLASSES
from .content import Content
from .handles import Handles
from .kinds import Kinds
from .regions import OWN, StorageFlags, address_of, flat_bytes, owner_of, shared_block, span
from .streams import Streams

plain_reducer: Callable[[Storage], tuple[Any, ...] | None] | None = None
"""Reduces a storage to a handle for plain pickle; None: by value. Set by `plain_pickle` on first use."""
LISTED: Final = 1000
"""A storage of more elements is printed in part: its first and last elements."""
ENDS: Final = 3
"""The number of first elements, and of last elements, that are printed then."""


class Conversions:
    """A method for each element type that calls `to(type)`; generated from dtypes.TABLE at the end of this file."""

    __slots__ = ()

    if TYPE_CHECKING:
        # ruff: disable[D102]
        def to(self, dtype: Any) -> Storage: ...
        def untyped(self) -> Storage: ...
        def byte(self) -> Storage: ...
        def char(self) -> Storage: ...
        def short(self) -> Storage: ...
        def int(self) -> Storage: ...
        def long(self) -> Storage: ...
        def half(self) -> Storage: ...
        def float(self) -> Storage: ...
        def double(self) -> Storage: ...
        def bool(self) -> Storage: ...
        def uint16(self) -> Storage: ...
        def uint32(self) -> Storage: ...
        def uint64(self) -> Storage: ...
        def complex_float(self) -> Storage: ...
        def complex_double(self) -> Storage: ...
        def bfloat16(self) -> Storage: ...
        def float8_e4m3fn(self) -> Storage: ...
        def float8_e5m2(self) -> Storage: ...

        # ruff: enable[D102]


class Storage(Conversions, Content, Handles, Kinds, Streams):
    """Flat memory of `size` elements of one type. A bare Storage is a FloatStorage (float32).

    Storages are equal if they are the same object, and hashable, as in torch; compare their content with `tolist()`, or
    compare tensors over them.

    Args:
        content: number of elements, whose values are arbitrary; or a sequence, array or storage whose values are
            copied.
        allocator: an object with malloc and free; default: private memory of this process.

    Raises:
        InvalidArgument: an invalid size, or an allocator whose memory cannot be used.
        DTypeError: values that cannot be converted to this type.
        OutOfMemory: no memory.
    """

    __module__ = "shmtensor.storage"  # in pickles
    __slots__ = ()

    def __new__(cls, content: Any = 0, *, allocator: Allocator | None = None) -> Self:
        """Create a FloatStorage for Storage itself."""
        return object.__new__(STORAGE_CLASSES[DEFAULT] if cls is Storage else cls)

    @classmethod
    def _typed(cls) -> type[Self]:
        return STORAGE_CLASSES[DEFAULT] if cls is Storage else cls

    def __repr__(self) -> str:
        """Return a line for each element (of a long storage, for the first and last ones), then class and size."""
        flat = self.cpu()._flat
        values = [*flat[:ENDS].tolist(), "...", *flat[-ENDS:].tolist()] if flat.size > LISTED else flat.tolist()
        place = f", memory={self._place()}" if self.is_shared() else ""
        lines = "\n ".join(map(str, values))
        return f" {lines}\n[shmtensor.{type(self).__name__} of size {flat.size}{place}]"

    # -- by value -----------------------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Reduce by value, unless `shmtensor.pickling` chooses handles.

        Tensors and parts that are pickled together still share memory, since pickle copies each object once.
        """
        if self._view is not None:
            root, first = self._view
            if root._dtype == self._dtype:
                return _rebuild_part, (root, first // self._dtype.itemsize, self.size())
            return _rebuild_part, (root, first, self.size(), self._dtype.name)
        if self._is_on_device():
            return _rebuild_on_device, (self.cpu(), self.get_device())
        if plain_reducer is not None and (reduced := plain_reducer(self)) is not None:
            return reduced
        data = pickle.PickleBuffer(flat_bytes(self).data) if protocol >= 5 else self._flat.tobytes()
        return _rebuild_storage, (self._dtype.name, data)

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._view is not None:
            root, first = self._root()
            copied = memo[id(root)] if id(root) in memo else root.__deepcopy__(memo)
            part = memo[id(self)] = copied._section(first, self.size(), self._dtype)
            return part  # type: ignore[no-any-return]
        copy = memo[id(self)] = self.clone()
        return copy


def _conversion(row: ElementType) -> Callable[[Conversions], Storage]:
    def convert(self: Conversions) -> Storage:
        return self.to(row.dtype)

    convert.__name__ = row.method
    convert.__qualname__ = f"Conversions.{row.method}"
    convert.__doc__ = f"`to({row.name})`. Does not block. Raises as that does."
    return convert


for _row in TABLE:
    setattr(Conversions, _row.method, _conversion(_row))


# -- from arrays ------------------------------------------------------------------------------------------------------


def storage_of(array: NDArray[Any]) -> Storage:
    """Return a storage over the memory of `array`: its whole shared block if it is in one, else the span of the array.

    Does not block. The strides of the array must be multiples of the item size. Raises DTypeError.
    """
    if is_device_array(array):
        return _on_device(array)
    base: Any = owner_of(array)
    owned = array.base is None
    dtype = array.dtype
    block, kind = shared_block(base)
    if block is not None:
        if array.size == 0 and base.nbytes == 1:
            return Storage._from_block(block, dtype, 0, kind)
        offset = 0 if array.nbytes == base.nbytes else address_of(array) - base.address
        if offset % dtype.itemsize == 0:
            return Storage._from_block(block, dtype, base.nbytes // dtype.itemsize, kind)
    storage: Storage = object.__new__(Storage._class_of(dtype))
    flat = span(array)
    if type(base) is Lease:
        storage._adopt(flat, base.region, base.allocator, StorageFlags.REFCOUNTED)
    elif block is not None:
        storage._adopt(flat, base, managed_allocator, StorageFlags.REFCOUNTED)
    else:
        flags = OWN | StorageFlags.RESIZABLE if owned else StorageFlags.REFCOUNTED
        storage._adopt(flat, array, default_allocator, flags)
    return storage


def _on_device(array: Any) -> Storage:
    """Return a storage over the memory of an array on a GPU: its whole shared block, else the memory of the array."""
    memory, dtype = array.data.mem, array.dtype
    arrays = load("gpu.arrays")
    shared = hasattr(memory, "block")
    if shared and (array.data.ptr - memory.ptr) % dtype.itemsize == 0:
        count = memory.nbytes // dtype.itemsize if array.size or memory.nbytes > 1 else 0
        return Storage._over_device(arrays.over(memory, (count,), dtype, 0, (dtype.itemsize,)))  # type: ignore[return-value]
    root = array if array.base is None else array.base
    if root.size and root.dtype == dtype and root.data.mem is memory:  # what the array is a view of
        count, offset = root.nbytes // dtype.itemsize, root.data.ptr - memory.ptr
    else:
        count, offset = (memory.size - (array.data.ptr - memory.ptr)) // dtype.itemsize, array.data.ptr - memory.ptr
        count = min(count, array.size)
    flat = arrays.over(memory, (count,), dtype, offset, (dtype.itemsize,))
    return Storage._over_device(flat)  # type: ignore[return-value]


def _rebuild_on_device(storage: Storage, device: int) -> Storage:
    """Unpickle a storage that was on a GPU: onto that GPU, or into the processor's memory if this process has none."""
    if load("gpu.driver").status():
        warnings.warn(
            f"a storage from cuda:{device} is loaded into the processor's memory: no GPU can be used", stacklevel=2
        )
        return storage
    return storage.cuda(device)


def _rebuild_storage(name: str, data: Any) -> Storage:
    """Unpickle a storage in private memory.

    It uses the bytearray of an in-band buffer, or an out-of-band buffer itself, and is read-only if that is. `bytes`,
    from older protocols and read-only memory, and a PickleBuffer, which is the sender's memory, are copied.
    """
    dtype = dtype_of(name)
    flat = np.frombuffer(data, dtype) if len(memoryview(data)) else np.empty(0, dtype)
    flags = OWN | StorageFlags.RESIZABLE
    if type(data) in (bytes, pickle.PickleBuffer) or not flat.flags.aligned:
        flat = flat.copy()
    elif type(data) is not bytearray:
        flags = StorageFlags.REFCOUNTED
    storage: Storage = object.__new__(Storage._class_of(dtype))
    storage._adopt(flat, flat, default_allocator, flags)
    return storage


def _rebuild_part(root: Storage, first: int, size: int, dtype: str | None = None) -> Storage:
    """Unpickle a part: `size` elements from element `first`; with the name of another type, from byte `first`."""
    if dtype is None:
        return root[first : first + size]
    kind = dtype_of(dtype)
    if not 0 <= first <= first + size * kind.itemsize <= root.nbytes:
        raise InvalidArgument(f"{size} elements of {dtype} from byte {first} on are not in {root._describe()}")
    part: Storage = root._section(first, size, kind)
    return part


_rebuild_storage.__module__ = _rebuild_part.__module__ = _rebuild_on_device.__module__ = (
    Storage.__module__
)  # in pickles
