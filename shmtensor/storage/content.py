"""What is in a storage: taken from buffers and memory that exists, copied, converted, and written out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from . import memory
from .allocators import MapAllocator, default_allocator
from .allocators.lease import lease
from .allocators.protocol import Allocator, Region
from .conversion import integer
from .dtypes import TABLE, DType, ElementType, dtype_of, require_same
from .errors import DeviceUnavailable, DTypeError, InvalidArgument, LayoutError, type_name
from .memory import OWN, StorageFlags, checked_array, flat_bytes, flat_values, owner_of, put_bytes, shared_by

if TYPE_CHECKING:
    from .storage import Storage

BYTE_ORDERS: Final = {"native": "=", "little": "<", "big": ">"}
"""Names of byte orders, as NumPy writes them."""


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


class Content(Conversions):
    """The part of Storage that deals with its elements as a whole."""

    __slots__ = ()

    dtype: ClassVar[DType]
    _flat: NDArray[Any]
    _region: Region
    _allocator: Allocator

    if TYPE_CHECKING:  # of Storage

        def __init__(self, content: Any = 0, *, allocator: Allocator | None = None) -> None: ...
        def __setitem__(self, index: int | slice, value: Any) -> None: ...
        def size(self) -> int: ...
        def _adopt(self, flat: NDArray[Any], region: Region, allocator: Allocator, flags: StorageFlags) -> None: ...
        def _describe(self) -> str: ...
        def _require_writable(self, doing: str) -> None: ...
        @classmethod
        def _typed(cls) -> type[Self]: ...
        @staticmethod
        def _class_of(dtype: DType) -> type[Storage]: ...

    # -- from what exists ---------------------------------------------------------------------------------------------

    @classmethod
    def with_data(cls, data: Any, *, allocator: Allocator | None = None) -> Self:
        """A storage over memory that exists, without a copy (THStorage_newWithData). Does not block.

        Args:
            data: a flat array of this class's type, or an object with the buffer protocol whose bytes are taken as
                elements: writable, contiguous, aligned to the element.
            allocator: None: the memory is somebody else's; the storage keeps `data` alive. Otherwise `data` is what the
                allocator's malloc gave: the storage owns it and gives it back by `free`
                (THStorage_newWithDataAndAllocator).

        Raises:
            DTypeError: an array of another type, or no buffer.
            LayoutError: read-only memory, or with gaps.
            InvalidArgument: bytes that are no whole number of elements, or not aligned.
        """
        cls = cls._typed()
        storage = object.__new__(cls)
        if isinstance(data, np.ndarray):
            if allocator is None or data.dtype != np.uint8:
                require_same(data.dtype, cls.dtype, f"a {cls.__name__}")
            if not checked_array(data).flags.c_contiguous:
                raise LayoutError(f"data of shape {data.shape} has gaps, and a storage is flat memory; pass a copy")
        raw = flat_bytes(data)
        width = cls.dtype.itemsize
        if raw.size % width:
            raise InvalidArgument(
                f"{raw.size} bytes are no whole number of {cls.dtype.name} elements; give all of them"
            )
        if allocator is not None:
            raw = lease(allocator, data, raw.size)
            shared = shared_by(allocator) or isinstance(allocator, MapAllocator)
            storage._adopt(raw.view(cls.dtype), data, allocator, OWN if shared else OWN | StorageFlags.RESIZABLE)
            return storage
        if not raw.flags.writeable:
            raise LayoutError("the data is read-only, and a storage over it would write; use from_buffer, which copies")
        flat = raw.view(cls.dtype)
        if not flat.flags.aligned:
            raise InvalidArgument(
                f"the data is not aligned to elements of {width} bytes; use from_buffer, which copies"
            )
        storage._adopt(flat, data, default_allocator, StorageFlags.REFCOUNTED)
        return storage

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0) -> Self:
        """A storage of a copy of elements that lie in a buffer (torch's). Does not block.

        Args:
            buffer: an object with the buffer protocol; contiguous.
            byte_order: "native", "little" or "big": of the elements in the buffer.
            count: elements; -1: all from `offset` to the end.
            offset: byte of the first one.

        Raises:
            InvalidArgument: no such byte order, or a range that is not there or is no whole number of elements.
            DTypeError: no buffer. LayoutError: one with gaps. OutOfMemory.
        """
        cls = cls._typed()
        width = cls.dtype.itemsize
        raw = flat_bytes(buffer)
        if not isinstance(byte_order, str) or byte_order not in BYTE_ORDERS:
            raise InvalidArgument(f"byte order {byte_order!r} is none of {', '.join(BYTE_ORDERS)}")
        try:
            first, wanted = integer(offset), integer(count)
        except TypeError:
            raise InvalidArgument(f"count {count!r} and offset {offset!r} are not both integers") from None
        left = raw.size - first
        if wanted == -1 and left % width == 0:
            wanted = left // width
        if first < 0 or wanted < 0 or wanted * width > left:
            raise InvalidArgument(
                f"asked for {count} elements of {cls.dtype.name} from byte {offset} of a buffer of {raw.size} bytes; "
                f"it must hold them, and with count -1 end with an element of {width} bytes"
            )
        storage = cls(wanted)
        put_bytes(storage._flat, raw[first : first + wanted * width])
        if not np.dtype(np.uint16).newbyteorder(BYTE_ORDERS[byte_order]).isnative:  # type: ignore[arg-type]
            number = width // 2 if cls.dtype.kind == "c" else width
            storage._flat.view(f"u{number}").byteswap(inplace=True)
        return storage

    # -- all elements -------------------------------------------------------------------------------------------------

    def data(self, dtype: Any = None) -> NDArray[Any]:
        """The elements as a flat array over the same memory, which it keeps alive (THStorage_data). Does not block.

        It does not follow when the storage moves (`share_memory_`, `resize_`).

        Raises:
            DTypeError: a type was asked for that is not the storage's; names both.
        """
        if dtype is not None:
            require_same(dtype, self.dtype, self._describe())
        return self._flat.view()

    def tolist(self) -> list[Any]:
        """All elements as Python values. Does not block."""
        values: list[Any] = self._flat.tolist()
        return values

    def fill_(self, value: Any) -> Self:
        """Set every element to `value`; gives self. Does not block.

        Raises:
            InvalidArgument, DTypeError: as for an element.
        """
        self[:] = value
        return self

    def copy_(self, source: Storage | Sequence[Any] | NDArray[Any]) -> Self:
        """Copy the values of `source`, converting their type as NumPy does; gives self. Does not block.

        A conversion that loses more than precision (the imaginary parts of complex numbers, NaN as an integer) is a
        warning of NumPy's.

        Raises:
            InvalidArgument: another number of elements.
            DTypeError: values that cannot be converted.
        """
        self._require_writable("copying to")
        values = flat_values(source, self.dtype)
        self._require_size(values.size, "elements", self.size())
        np.copyto(self._flat, values, casting="unsafe")
        return self

    def raw_copy_(self, source: Any) -> Self:
        """Copy the bytes of `source` as they are (THStorage_rawCopy); gives self. Does not block.

        Args:
            source: a storage or array of any type, or another object with the buffer protocol; contiguous.

        Raises:
            InvalidArgument: another number of bytes.
            DTypeError: no buffer. LayoutError: one with gaps.
        """
        self._require_writable("copying to")
        raw = flat_bytes(source)
        self._require_size(raw.size, "bytes", self._flat.nbytes)
        put_bytes(self._flat, raw)
        return self

    def _require_size(self, given: int, what: str, have: int) -> None:
        if given != have:
            raise InvalidArgument(
                f"asked to copy {given} {what} into {self._describe()}, which has {have}; copy as many as there are, "
                "or resize_"
            )

    def clone(self) -> Self:
        """A copy on the heap. Does not block. Raises OutOfMemory."""
        copy = type(self)(self.size())
        np.copyto(copy._flat, self._flat)
        return copy

    def to(self, dtype: Any) -> Storage:
        """This storage when it is of that type, else a copy on the heap, converted as by `copy_`. Does not block.

        `byte()`, `float()` and so on for each type do the same.

        Raises:
            DTypeError: no such type. OutOfMemory.
        """
        made = self._class_of(dtype_of(dtype))
        this: Any = self
        return this if made is type(self) else made(self.size()).copy_(this)

    def tofile(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the elements' bytes to a file; `from_file` and `from_buffer` read them. Blocks while it writes.

        Args:
            file: a path, whose file is written anew, or a binary file, which goes on from where it is.

        Raises:
            OSError: the file system's.
            InvalidArgument: neither a path nor a file.
        """
        data = flat_bytes(self).data
        if isinstance(file, str | PathLike):
            Path(file).write_bytes(data)
        elif hasattr(file, "write"):
            file.write(data)
        else:
            raise InvalidArgument(f"{file!r} is neither a path nor a file; give one of these")

    # -- the memory ---------------------------------------------------------------------------------------------------

    def is_pinned(self) -> bool:
        """Whether the memory is page-locked for a GPU's copies. Does not block."""
        return getattr(self._allocator, "pinned", False) is True

    def pin_memory(self) -> Self:
        """This storage when it is pinned, else a copy in page-locked memory. Does not block.

        Raises:
            DeviceUnavailable: there is no CUDA here.
            OutOfMemory.
        """
        if self.is_pinned():
            return self
        if memory.pinned_allocator is None:
            raise DeviceUnavailable(
                "pinned memory is made by the CUDA driver, and this process has none: it needs an NVIDIA GPU, its "
                "driver (libcuda.so.1) and the extra shmtensor[cuda]; without them use the storage as it is"
            )
        return type(self)(self, allocator=memory.pinned_allocator)

    def add_finalizer(self, function: Callable[..., object], *arguments: Any) -> weakref.finalize[..., Any]:
        """Have `function(*arguments)` called when the memory that this storage has now is freed. Does not block.

        That is when nothing in this process is over it any more: no storage, tensor or array; also when the storage
        moves to other memory and nothing stays behind, and at the latest when the process ends normally. Memory that
        other processes have too is only given up here.

        Returns:
            The `weakref.finalize`, by which it can be called off (`detach`).
        Raises:
            DTypeError: nothing to call, or memory of an object that Python cannot watch.
        """
        if not callable(function):
            raise DTypeError(f"a finalizer is a function, not {function!r}")
        owner = owner_of(self._flat)
        try:
            return weakref.finalize(owner, function, *arguments)
        except TypeError as error:
            raise DTypeError(f"the memory is that of a {type_name(owner)}, which cannot be watched: {error}") from error


def _conversion(row: ElementType) -> Callable[[Conversions], Storage]:
    def convert(self: Conversions) -> Storage:
        return self.to(row.dtype)

    convert.__name__ = row.method
    convert.__qualname__ = f"Conversions.{row.method}"
    convert.__doc__ = f"`to({row.name})`. Does not block. Raises as that does."
    return convert


for _row in TABLE:
    setattr(Conversions, _row.method, _conversion(_row))
