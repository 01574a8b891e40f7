"""The elements of a storage: access, creation from existing memory, copies, and output."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import IO, Any, Final, Self, overload

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import VIEW_LENT
from ..allocators import MapAllocator, default_allocator
from ..allocators.lease import lease
from ..allocators.protocol import Allocator
from ..dtypes import require_same
from ..errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError, type_name
from .arguments import integer
from .base import StorageBase
from .regions import (
    OWN,
    StorageFlags,
    checked_array,
    flat_bytes,
    flat_values,
    owner_of,
    put_bytes,
    shared_block,
    shared_by,
    unfit,
)

BYTE_ORDERS: Final = {"native": "=", "little": "<", "big": ">"}
"""Names of byte orders, as NumPy writes them."""


class Content(StorageBase):
    """The part of Storage that operates on elements."""

    __slots__ = ()

    # -- elements -----------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return an element as a Python value, or for a slice with step 1 a storage that is a VIEW of this one.

        Does not block.

        Raises:
            IndexOutOfRange: the element does not exist.
            InvalidArgument: a slice with another step.
        """
        if isinstance(index, slice):
            return self._part(index)
        at = self._position(index)
        return self._flat[at].item() if self._is_on_device() else self._flat.item(at)

    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Write an element, or a slice from a value, sequence, array or storage.

        Does not block.

        Raises:
            IndexOutOfRange: the element does not exist.
            InvalidArgument: a value out of the range of the type, or another number of values.
            DTypeError: a value that is not a number.
            LayoutError: the memory is read-only in this process (also in all other methods that write).
        """
        self._require_writable("writing to")
        target = self._flat[index] if isinstance(index, slice) else self._position(index)
        if self._is_on_device():
            value = load("gpu.arrays").operand(value._flat if isinstance(value, StorageBase) else value, self._flat)
        try:
            if isinstance(target, int):
                self._flat[target] = value
            else:
                target[...] = value._flat if isinstance(value, StorageBase) else value
        except OverflowError as error:
            raise InvalidArgument(
                f"{value!r} does not fit into {self._dtype.name}: {error}; "
                "give a number in its range, or use another type"
            ) from error
        except (TypeError, ValueError) as error:
            raise unfit(value, self._dtype, error) from error

    def _position(self, index: Any) -> int:
        size = self._flat.shape[0]
        try:
            at = integer(index)
        except TypeError:
            raise InvalidArgument(f"a storage index must be an integer or slice, not {index!r}") from None
        if not -size <= at < size:
            raise IndexOutOfRange(
                f"index {at} is out of range for a storage of {size} elements; use {-size} to {size - 1}"
            )
        return at + size if at < 0 else at

    def _part(self, index: slice) -> Self:
        try:
            start, stop, step = index.indices(self.size())
        except TypeError as error:
            raise InvalidArgument(f"storage slice {index!r}: {error}") from error
        if step != 1:
            raise InvalidArgument(f"a slice of a storage must have step 1, not {step}")
        part: Self = self._section(start * self._dtype.itemsize, max(start, stop) - start, self._dtype)
        return part

    def __iter__(self) -> Iterator[Any]:
        flat = self._flat
        if self._is_on_device():
            flat = load("gpu.arrays").to_host(flat)
        return (flat.item(i) for i in range(self.size()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self._is_on_device():
            raise DTypeError(f"{self._describe()} cannot be converted to a NumPy array; use cpu() first")
        return np.array(self._flat.view(), dtype=dtype, copy=copy)  # a view, so that nobody else gets `_flat` itself

    # -- from what exists ---------------------------------------------------------------------------------------------

    @classmethod
    def with_data(cls, data: Any, *, allocator: Allocator | None = None) -> Self:
        """Create a storage over existing memory without a copy (THStorage_newWithData). Does not block.

        Args:
            data: a flat array of this class's type, or an object with the buffer protocol whose bytes are the
                elements: writable, contiguous, aligned to the element.
            allocator: None: the storage keeps `data` alive. Otherwise `data` was returned by the allocator's malloc,
                and the storage owns it and frees it (THStorage_newWithDataAndAllocator).

        Raises:
            DTypeError: an array of another type, or not a buffer.
            LayoutError: the memory is read-only or not contiguous.
            InvalidArgument: the bytes are not a whole number of elements, or not aligned.
        """
        cls = cls._typed()
        storage = object.__new__(cls)
        if isinstance(data, np.ndarray):
            if allocator is None or data.dtype != np.uint8:
                require_same(data.dtype, cls._dtype, f"a {cls.__name__}")
            if not checked_array(data).flags.c_contiguous:
                raise LayoutError(f"data of shape {data.shape} is not contiguous, as a storage must be; pass a copy")
        raw = flat_bytes(data)
        width = cls._dtype.itemsize
        if raw.size % width:
            raise InvalidArgument(
                f"{raw.size} bytes are not a whole number of {cls._dtype.name} elements of {width} bytes; "
                f"give a multiple of {width} bytes"
            )
        if allocator is not None:
            raw = lease(allocator, data, raw.size)
            shared = shared_by(allocator) or isinstance(allocator, MapAllocator)
            storage._adopt(raw.view(cls._dtype), data, allocator, OWN if shared else OWN | StorageFlags.RESIZABLE)
            return storage
        if not raw.flags.writeable:
            raise LayoutError("the data is read-only, and a storage must be writable; use from_buffer, which copies")
        flat = raw.view(cls._dtype)
        if not flat.flags.aligned:
            raise InvalidArgument(
                f"the data is not aligned to elements of {width} bytes; use from_buffer, which copies"
            )
        storage._adopt(flat, data, default_allocator, StorageFlags.REFCOUNTED)
        return storage

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0) -> Self:
        """Create a storage from a copy of the elements in a buffer (as in torch). Does not block.

        Args:
            buffer: a contiguous object with the buffer protocol.
            byte_order: byte order of the elements in the buffer: "native", "little" or "big".
            count: number of elements; -1: all from `offset` to the end.
            offset: offset of the first element in bytes.

        Raises:
            InvalidArgument: an unknown byte order, or a range that is out of bounds or not a whole number of elements.
            DTypeError: not a buffer.
            LayoutError: the buffer is not contiguous.
            OutOfMemory: no memory.
        """
        cls = cls._typed()
        width = cls._dtype.itemsize
        raw = flat_bytes(buffer)
        if not isinstance(byte_order, str) or byte_order not in BYTE_ORDERS:
            raise InvalidArgument(f"byte_order must be one of {', '.join(BYTE_ORDERS)}, not {byte_order!r}")
        try:
            first, wanted = integer(offset), integer(count)
        except TypeError:
            raise InvalidArgument(f"count and offset must be integers, not {count!r} and {offset!r}") from None
        left = raw.size - first
        if wanted == -1 and left % width == 0:
            wanted = left // width
        if first < 0 or wanted < 0 or wanted * width > left:
            raise InvalidArgument(
                f"a buffer of {raw.size} bytes does not hold {count} {cls._dtype.name} elements of {width} bytes from "
                f"byte {offset} (with count -1 it must end with an element)"
            )
        storage = cls(wanted)
        put_bytes(storage._flat, raw[first : first + wanted * width])
        if not np.dtype(np.uint16).newbyteorder(BYTE_ORDERS[byte_order]).isnative:  # type: ignore[arg-type]
            number = width // 2 if cls._dtype.kind == "c" else width
            storage._flat.view(f"u{number}").byteswap(inplace=True)
        return storage

    # -- all elements -------------------------------------------------------------------------------------------------

    def data(self, dtype: Any = None) -> NDArray[Any]:
        """Return the elements as a flat array over the same memory (THStorage_data). Does not block.

        The array keeps the memory alive. It does not follow when the storage moves (`share_memory_`, `resize_`).

        Raises:
            DTypeError: `dtype` is not the storage's type.
        """
        if dtype is not None:
            require_same(dtype, self._dtype, self._describe())
        return self._flat.view()

    def tolist(self) -> list[Any]:
        """Return all elements as Python values. Does not block."""
        values: list[Any] = self.cpu()._flat.tolist()  # type: ignore[attr-defined]
        return values

    def fill_(self, value: Any) -> Self:
        """Set every element to `value`. Does not block. Returns self.

        Raises:
            InvalidArgument, DTypeError: as for an element.
        """
        self[:] = value
        return self

    def copy_(self, source: StorageBase | Sequence[Any] | NDArray[Any]) -> Self:
        """Copy the values of `source`, converted to this type as in NumPy. Does not block. Returns self.

        NumPy warns if a conversion loses more than precision (imaginary parts, NaN as an integer).

        Raises:
            InvalidArgument: another number of elements.
            DTypeError: values that cannot be converted.
        """
        self._require_writable("copying to")
        if isinstance(source, StorageBase) and (source._is_on_device() or self._is_on_device()):
            self._require_size(source.size(), "elements", self.size())
            arrays = load("gpu.arrays")
            if self._is_on_device():
                self._flat[...] = arrays.operand(source._flat, self._flat)
                return self
            source = arrays.to_host(source._flat)
        values = flat_values(source, self._dtype)
        self._require_size(values.size, "elements", self.size())
        if self._is_on_device():
            load("gpu.arrays").copy_in(self._flat, values)
            return self
        np.copyto(self._flat, values, casting="unsafe")
        return self

    def raw_copy_(self, source: Any) -> Self:
        """Copy the bytes of `source` without conversion (THStorage_rawCopy). Does not block. Returns self.

        Args:
            source: a storage or array of any type, or another object with the buffer protocol; contiguous.

        Raises:
            InvalidArgument: another number of bytes.
            DTypeError: not a buffer. LayoutError: not contiguous.
        """
        self._require_writable("copying to")
        raw = flat_bytes(source)
        self._require_size(raw.size, "bytes", self._flat.nbytes)
        put_bytes(self._flat, raw)
        return self

    def _require_size(self, given: int, what: str, have: int) -> None:
        if given != have:
            raise InvalidArgument(
                f"cannot copy {given} {what} into {self._describe()}, which has {have}; the numbers must be equal, so "
                "slice or resize_ one of them"
            )

    def clone(self) -> Self:
        """Return a copy in private memory, on the same device. Does not block. Raises OutOfMemory."""
        if self._is_on_device():
            return self._over_device(self._flat.copy())  # type: ignore[return-value]
        copy = type(self)(self.size())
        np.copyto(copy._flat, self._flat)
        return copy

    def tofile(self, file: str | PathLike[str] | IO[bytes]) -> None:
        """Write the bytes of the elements to a file; `from_file` and `from_buffer` read them. Blocks as writing does.

        Args:
            file: a path, whose file is overwritten, or a binary file, which is written at its position.

        Raises:
            OSError: an error of the file system.
            InvalidArgument: neither a path nor a file.
        """
        data = flat_bytes(self).data
        if isinstance(file, str | PathLike):
            with open(file, "wb") as target:  # noqa: PTH123 - pathlib costs time at the first tensor
                target.write(data)
        elif hasattr(file, "write"):
            file.write(data)
        else:
            raise InvalidArgument(f"file must be a path or binary file, not {file!r}")

    # -- the memory ---------------------------------------------------------------------------------------------------

    def is_pinned(self) -> bool:
        """Whether the memory is page-locked for copies to a GPU. Does not block."""
        if getattr(self._allocator, "pinned", False) is True:
            return True
        registered = sys.modules.get("shmtensor.gpu.registered")
        return registered is not None and registered.is_registered(getattr(self._region, "address", 0))

    def pin_memory(self, device: Any = "cuda") -> Self:
        """Return the elements in page-locked memory: this storage if it is pinned or can be, else a copy.

        Shared memory of 64 KiB or more is pinned in place, as long as this process uses it; if the driver refuses, a
        warning is issued and the memory stays unpinned. Other memory is copied into private memory. Initialises CUDA if
        necessary.

        Args:
            device: as in torch, where it is deprecated; it must be a GPU.

        Raises:
            DeviceUnavailable: this process cannot use a GPU; the message says why.
            OutOfMemory: no memory for the copy.
            InvalidArgument: another kind of device.
        """
        if device is not None and not str(device).startswith("cuda"):
            raise InvalidArgument(
                f"memory is pinned for copies to a GPU, and not to device {str(device)!r}; "
                "leave the device out, or give a GPU"
            )
        if self.is_pinned():
            return self
        block, kind = shared_block(self._region)
        if block is not None and kind in (0, VIEW_LENT):
            registered = load("gpu.registered")
            if block.nbytes >= registered.PAGED_FROM:
                registered.pin(block)
                return self
        return type(self)(self, allocator=load("allocators.pinned").cuda_host_allocator)

    def add_finalizer(self, function: Callable[..., object], *arguments: Any) -> weakref.finalize[..., Any]:
        """Call `function(*arguments)` when the current memory of this storage is freed. Does not block.

        The memory is freed when no storage, tensor or array in this process uses it any more, at the latest when the
        process ends normally. Other processes may still hold it.

        Args:
            function: the function to call.
            arguments: its arguments.

        Returns:
            The `weakref.finalize`, whose `detach` cancels the call.

        Raises:
            DTypeError: `function` is not callable, or the owner of the memory does not support weak references.
        """
        if not callable(function):
            raise DTypeError(f"a finalizer must be callable, not {function!r}")
        owner = owner_of(self._flat)
        try:
            return weakref.finalize(owner, function, *arguments)
        except TypeError as error:
            raise DTypeError(
                f"the memory belongs to a {type_name(owner)}, which has no weak references: {error}; "
                "give memory of an object that has them"
            ) from error
