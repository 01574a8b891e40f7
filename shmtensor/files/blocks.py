"""Blocks: the memory of storages in checkpoints, to which their tensors refer by offset, sizes and strides."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import Block
from .._tensor.core import wrap
from .._tensor.methods import Tensor
from ..allocators import MapAllocator
from ..allocators.protocol import MAX_BYTES
from ..dtypes import NumpyType, require_supported
from ..errors import FileDamaged, LayoutError
from ..storage import Storage
from ..storage.arguments import MAX_AXES
from ..storage.regions import address_of
from .entries import Entry, Mapping, checked_shape, read_tensor

# -- saving -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's elements are."""

    block: int
    """Number of the block."""
    dtype: NumpyType
    """Type of the elements, which may differ from the block's."""
    offset: int
    """First element, in elements of the tensor."""
    shape: tuple[int, ...]
    """Sizes of the axes."""
    stride: tuple[int, ...]
    """Steps of the axes in elements."""


class Blocks:
    """The memory of the tensors and storages that are saved, each block once."""

    def __init__(self, *, backwards: bool) -> None:
        self.arrays: Final[list[NDArray[Any]]] = []
        """All blocks, as arrays of one axis."""
        self._kept: list[Any] = []
        self._backwards = backwards  # whether strides may be negative
        self._numbers: dict[tuple[Any, ...], int] = {}

    def tensor(self, value: Any) -> Place:
        """Return the place of a tensor or array, whose whole storage becomes a block. Does not block.

        A tensor over a mapped file, whose storage is the file, is saved alone, and so is one whose elements do not lie
        at multiples of its item size.

        Raises:
            DTypeError: an array of a type that tensors do not have.
        """
        array = value._live() if isinstance(value, Tensor) else value
        require_supported(array.dtype)
        width = array.itemsize
        strides = array.strides
        if not any(step % width or (step < 0 and not self._backwards) for step in strides):
            root, _ = (value if isinstance(value, Tensor) else wrap(array)).storage()._root()
            start = address_of(array) - address_of(root._flat) if array.size else 0
            if start % width == 0 and not isinstance(root.allocator, MapAllocator):
                steps = tuple(step // width for step in strides)
                return Place(self._number(root._flat), array.dtype, start // width, array.shape, steps)
        array = np.asarray(array, order="C")
        steps = tuple(step // width for step in array.strides)
        return Place(self._number(array.reshape(-1)), array.dtype, 0, array.shape, steps)

    def storage(self, storage: Storage, *, parts: bool) -> tuple[int, int]:
        """Return (block, first byte) of a storage, where the block may have another type.

        Without `parts`, a part becomes a block of its own, and the block has the storage's type.
        """
        root, first = storage._root()
        if isinstance(root.allocator, MapAllocator) or not (parts or storage is root):
            root, first = storage, 0
        return self._number(root._flat, typed=not parts), first

    def _number(self, flat: NDArray[Any], *, typed: bool = False) -> int:
        """Return the number of the block of an array, which is copied if it is on a GPU."""
        key: tuple[Any, ...] = (address_of(flat), flat.nbytes) if flat.nbytes else (id(flat), 0)
        number = self._numbers.setdefault(key, len(self.arrays))
        if typed and number < len(self.arrays) and self.arrays[number].dtype != flat.dtype:
            number = self._numbers.setdefault((*key, flat.dtype), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(flat if isinstance(flat, np.ndarray) else load("gpu.arrays").to_host(flat))
            self._kept.append(flat)  # so that its address and id are not reused
        return number


# -- loading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loaded:
    """A block of a file that is in memory, or mapped."""

    memory: Storage
    """The storage with its elements."""
    start: int
    """First byte of the block in that storage."""
    nbytes: int
    """Bytes of the block."""

    def storage(self, first: int, size: int, label: str) -> Storage:
        """Return `size` elements as a storage: all of the memory itself, or a part of it. Raises FileDamaged."""
        width = self.memory._dtype.itemsize
        if type(first) is not int or type(size) is not int or not 0 <= first <= first + size <= self.nbytes // width:
            raise FileDamaged(f"{label}: a storage of {size!r:.50} elements is not in its block of {self.nbytes} bytes")
        begin = self.start // width + first
        return self.memory if size == self.memory.size() else self.memory[begin : begin + size]

    def section(self, first: Any, size: Any, dtype: NumpyType, label: str) -> Storage:
        """Return `size` elements of any type from byte `first` on, as a part of the memory. Raises FileDamaged."""
        width = dtype.itemsize
        if type(first) is not int or type(size) is not int or not 0 <= first <= first + size * width <= self.nbytes:
            raise FileDamaged(f"{label}: {size!r:.50} elements of {dtype} are not in a block of {self.nbytes} bytes")
        begin = self.start + first
        if begin % width:
            raise LayoutError(f"{label}: elements of {width} bytes begin at byte {begin}; load it without mmap")
        if dtype == np.uint8 and size == self.memory.nbytes:
            return self.memory.untyped()
        part: Storage = self.memory._section(begin, size, dtype)
        return part

    def tensor(self, dtype: NumpyType, offset: Any, shape: Any, stride: Any, label: str) -> Tensor:
        """Return a tensor over elements of the block. Raises FileDamaged: they are not all in it."""
        width = dtype.itemsize
        steps = isinstance(stride, tuple | list) and len(stride) <= MAX_AXES
        if not steps or not isinstance(shape, tuple | list) or len(shape) != len(stride):
            raise FileDamaged(f"{label}: a tensor needs as many sizes as strides, at most {MAX_AXES}")
        if not all(type(number) is int and abs(number) <= MAX_BYTES for number in (offset, *stride)):
            raise FileDamaged(f"{label}: offset and strides of a tensor must be integers")
        sizes = checked_shape(shape, width, label)
        if 0 in sizes:
            offset = 0
        else:
            reach = [(size - 1) * step for size, step in zip(sizes, stride, strict=True)]
            low = offset + sum(min(0, one) for one in reach)
            high = offset + sum(max(0, one) for one in reach)
            if low < 0 or (high + 1) * width > self.nbytes:
                raise FileDamaged(f"{label}: a tensor of {dtype}{list(sizes)} reaches beyond its {self.nbytes} bytes")
        if self.start % width:
            raise LayoutError(f"{label}: elements of {width} bytes begin at byte {self.start}; load it without mmap")
        other = None if dtype == self.memory._dtype else dtype.name
        return Tensor._rebuild(self.memory, self.start // width + offset, sizes, tuple(stride), False, other)

    def retyped(self, dtype: NumpyType) -> Loaded:
        """Return the same memory as a storage of another type; itself if it is mapped. Does not block."""
        memory = self.memory
        if dtype == memory._dtype or self.nbytes != memory.nbytes or self.nbytes % dtype.itemsize:
            return self
        size = self.nbytes // dtype.itemsize
        if isinstance(memory._region, Block):
            return Loaded(Storage._from_block(memory._region, dtype, size), 0, self.nbytes)
        storage: Storage = object.__new__(Storage._class_of(dtype))
        storage._adopt(memory._flat.view(dtype), memory._region, memory._allocator, memory._flags)
        return Loaded(storage, 0, self.nbytes)


class Loader:
    """Reads or maps blocks. Blocks as reading does.

    Args:
        label: what messages call the file; to map it, its absolute path.
        file: the file.
        shared: read into shared memory.
        mmap: map instead of reading.
        writable: map it so that writes change the file.
    """

    def __init__(self, label: str, file: io.RawIOBase, *, shared: bool, mmap: bool, writable: bool) -> None:
        self.label: Final = label
        self.file: Final = file
        read: Callable[[Entry], Tensor] = lambda entry: read_tensor(label, file, entry, shared)  # noqa: E731
        self._tensor = Mapping(label, file, writable).tensor if mmap else read

    def tensor(self, entry: Entry) -> Tensor:
        """Return the tensor of an entry. Raises as read_tensor, or as Mapping."""
        return self._tensor(entry)

    def block(self, entry: Entry) -> Loaded:
        """Return an entry of one axis as a block. Raises as `tensor`."""
        tensor = self._tensor(entry)
        start = tensor.storage_offset() * tensor.element_size()
        return Loaded(tensor.storage(), start, tensor.nbytes)
