"""What is in a storage: its elements, one by one and all of them; from memory that exists, copied, and written out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final, Self, overload

import numpy as np
from numpy.typing import NDArray

from ..allocators import MapAllocator, default_allocator
from ..allocators.lease import lease
from ..allocators.protocol import Allocator
from ..dtypes import require_same
from ..errors import DeviceUnavailable, DTypeError, IndexOutOfRange, InvalidArgument, LayoutError, type_name
from . import regions
from .arguments import integer
from .base import StorageBase
from .regions import (
    OWN,
    StorageFlags,
    checked_array,
    flat_bytes,
    flat_values,
    moving,
    owner_of,
    put_bytes,
    shared_by,
    unfit,
)

BYTE_ORDERS: Final = {"native": "=", "little": "<", "big": ">"}
"""Names of byte orders, as NumPy writes them."""


class Content(StorageBase):
    """The part of Storage that deals with its elements."""

    __slots__ = ()

    # -- elements -----------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        """An element as a Python value, or for a slice of step 1 a storage that is a VIEW of this one.

        Does not block.

        Raises:
            IndexOutOfRange: no such element.
            InvalidArgument: a slice with another step.
        """
        if isinstance(index, slice):
            return self._part(index)
        return self._flat.item(self._position(index))

    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Write an element, or a slice from a value, sequence, array or storage.

        Does not block.

        Raises:
            IndexOutOfRange: no such element.
            InvalidArgument: a value outside the range of the type, or another number of values.
            DTypeError: a value that is no number.
            LayoutError: the memory is read-only here; so for all that writes.
        """
        self._require_writable("writing to")
        target = self._flat[index] if isinstance(index, slice) else self._position(index)
        try:
            if isinstance(target, int):
                self._flat[target] = value
            else:
                target[...] = value._flat if isinstance(value, StorageBase) else value
        except OverflowError as error:
            raise InvalidArgument(f"{value!r} does not fit into {self.dtype.name}: {error}") from error
        except (TypeError, ValueError) as error:
            raise unfit(value, self.dtype, error) from error

    def _position(self, index: Any) -> int:
        size = self._flat.shape[0]
        try:
            at = integer(index)
        except TypeError:
            raise InvalidArgument(f"storage index {index!r} is neither an integer nor a slice") from None
        if not -size <= at < size:
            raise IndexOutOfRange(f"asked for element {at} of a storage of {size}; use {-size} to {size - 1}")
        return at + size if at < 0 else at

    def _part(self, index: slice) -> Self:
        try:
            start, stop, step = index.indices(self.size())
        except TypeError as error:
            raise InvalidArgument(f"storage slice {index!r}: {error}") from error
        if step != 1:
            raise InvalidArgument(f"asked for a slice of step {step}; a storage is flat memory, so use step 1")
        with moving:
            root, offset = self._root()
            part = object.__new__(type(self))
            part._adopt(
                self._flat[start : max(start, stop)],
                root._region,
                root._allocator,
                StorageFlags.REFCOUNTED | StorageFlags.VIEW,
            )
            part._view = (root, offset + start)
            root._views = [ref for ref in root._views or () if ref() is not None]
            root._views.append(weakref.ref(part))
        return part

    def __iter__(self) -> Iterator[Any]:
        return (self._flat.item(i) for i in range(self.size()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._flat.view(), dtype=dtype, copy=copy)  # the object itself stays ours

    def __eq__(self, other: object) -> bool:
        """Same type, same size, same values."""
        if not isinstance(other, StorageBase):
            return NotImplemented
        return self.dtype == other.dtype and bool(np.array_equal(self._flat, other._flat))

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content changes

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

    def copy_(self, source: StorageBase | Sequence[Any] | NDArray[Any]) -> Self:
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
        if regions.pinned_allocator is None:
            raise DeviceUnavailable(
                "pinned memory is made by the CUDA driver, and this process has none: it needs an NVIDIA GPU, its "
                "driver (libcuda.so.1) and the extra shmtensor[cuda]; without them use the storage as it is"
            )
        return type(self)(self, allocator=regions.pinned_allocator)

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
