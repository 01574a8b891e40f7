"""Storage: typed, flat memory over one region of an allocator; what tensors are views of.

A storage is a shared object: every tensor on it refers to the same Storage, and when its memory moves (into shared
memory, or by a resize) they follow. NumPy arrays that were taken earlier do not follow; they keep the old memory,
which stays valid as long as they live.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..allocators import default_allocator, managed_allocator
from ..allocators.lease import Lease
from ..allocators.protocol import Allocator
from ..dtypes import BY_DTYPE, DEFAULT, TABLE, ElementType, dtype_of
from .base import STORAGE_CLASSES
from .content import Content
from .handles import Handles
from .regions import OWN, StorageFlags, address_of, flat_bytes, owner_of, shared_block, span

plain_reducer: Callable[[Storage], tuple[Any, ...] | None] | None = None
"""How plain pickle writes a storage, or None for by value; `plain_pickle` sets it once somebody asks for handles."""


class Conversions:
    """`to(type)` as a method of each type's name: one for each row of dtypes.TABLE, made at the end of this file."""

    __slots__ = ()

    if TYPE_CHECKING:

        def to(self, dtype: Any) -> Storage: ...
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


class Storage(Conversions, Content, Handles):
    """Flat memory of `size` elements of one type. A bare Storage is a FloatStorage (float32).

    Args:
        content: number of elements (content arbitrary), or a sequence, array or storage whose values are copied.
        allocator: where the memory comes from; default: this process's heap. Anything with malloc and free will do.

    Raises:
        InvalidArgument: a negative or impossible size, or an allocator whose memory cannot be used.
        DTypeError: values that are not of this type and cannot be converted.
        OutOfMemory: no memory for it.
    """

    __module__ = "shmtensor.storage"  # pickles name it so
    __slots__ = ()

    def __new__(cls, content: Any = 0, *, allocator: Allocator | None = None) -> Self:
        return object.__new__(STORAGE_CLASSES[DEFAULT] if cls is Storage else cls)

    @classmethod
    def _typed(cls) -> type[Self]:
        return STORAGE_CLASSES[DEFAULT] if cls is Storage else cls

    def __repr__(self) -> str:
        values = np.array2string(self._flat, threshold=20, separator=", ")
        return f"{type(self).__name__}({values}, size={self.size()}, memory={self._place()})"

    def to(self, dtype: Any) -> Storage:
        """This storage when it is of that type, else a copy on the heap, converted as by `copy_`. Does not block.

        `byte()`, `float()` and so on for each type do the same.

        Raises:
            DTypeError: no such type. OutOfMemory.
        """
        made: type[Storage] = self._class_of(dtype_of(dtype))
        this: Any = self
        return this if made is type(self) else made(self.size()).copy_(this)

    # -- by value -----------------------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """By value, unless `shmtensor.pickling` says otherwise.

        Tensors and parts pickled together keep sharing, since pickle makes one copy of an object.
        """
        if self._view is not None:
            root, first = self._view
            return _rebuild_part, (root, first, self.size())
        if plain_reducer is not None and (reduced := plain_reducer(self)) is not None:
            return reduced
        data = pickle.PickleBuffer(flat_bytes(self).data) if protocol >= 5 else self._flat.tobytes()
        return _rebuild_storage, (BY_DTYPE[self.dtype].name, data)

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._view is not None:
            root, first = self._view
            copied = memo[id(root)] if id(root) in memo else root.__deepcopy__(memo)
            part: Any = copied[first : first + self.size()]
            memo[id(self)] = part
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
    """A storage over the memory of `array`: the whole shared block when it lies in one, else what the array spans.

    Does not block. The array has strides that are multiples of the item size. Raises DTypeError.
    """
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


def _rebuild_storage(name: str, data: Any) -> Storage:
    """Unpickle: a heap storage with these bytes.

    Its memory is the bytearray in which an in-band buffer arrives, or an out-of-band buffer itself, as an array's is:
    read-only if that is. Copied are `bytes`, which come of older protocols and of read-only memory, and a PickleBuffer,
    which is the sender's own memory.
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


def _rebuild_part(root: Storage, first: int, size: int) -> Storage:
    return root[first : first + size]


_rebuild_storage.__module__ = _rebuild_part.__module__ = Storage.__module__  # pickles name them so
