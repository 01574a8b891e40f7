"""Entries: the positions of tensors in a file, and the two ways to load them: read into memory, or map."""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .._tensor.creation import empty
from .._tensor.methods import Tensor
from ..allocators import MapAllocator, MapFlags
from ..allocators.protocol import MAX_BYTES
from ..dtypes import NumpyType, require_supported
from ..errors import EndOfFile, FileDamaged, LayoutError
from ..storage import STORAGE_CLASSES, Storage
from ..storage.arguments import MAX_AXES

_PIECE: Final = 1 << 26  # bytes read or checked at once


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file. Its creator has checked that its bytes exist."""

    name: str
    """Its key, which messages show."""
    dtype: NumpyType
    """Type of its elements in the file, possibly in the other byte order."""
    shape: tuple[int, ...]
    """Sizes of its axes."""
    offset: int
    """Offset in bytes in the file, or in the stream of `inflate`."""
    fortran: bool = False
    """Whether the first axis varies fastest."""
    inflate: Callable[[], Any] | None = None
    """Opens a stream of the uncompressed bytes."""
    checksum: tuple[int, int] | None = None
    """CRC-32 of the bytes before the elements, and the expected CRC-32 including them."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def checked_shape(sizes: Any, itemsize: int, label: str) -> tuple[int, ...]:
    """Check a shape in a file. Does not block. Raises FileDamaged: no tensor can have this shape."""
    if not isinstance(sizes, tuple | list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise FileDamaged(f"{label}: shape {_shown(sizes)} is not a list of sizes of at least 0")
    bound = itemsize
    for size in sizes:
        bound *= size or 1
        if bound > MAX_BYTES or len(sizes) > MAX_AXES:
            raise FileDamaged(f"{label}: no tensor can have the shape {_shown(sizes)}")
    return tuple(sizes)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number with too many digits
        return "of enormous sizes"
    return text if len(text) < 100 else text[:97] + "..."


def read_exactly(file: io.RawIOBase, offset: int, target: memoryview, label: str) -> None:
    """Fill `target` from an offset in a file. Blocks as reading does. Raises EndOfFile, OSError."""
    file.seek(offset)
    done = 0
    while done < len(target):
        count = file.readinto(target[done : done + _PIECE])
        if not count:
            raise EndOfFile(f"{label}: the file ends after {done} of {len(target)} bytes at byte {offset}")
        done += count


def read_tensor(path: str, file: io.RawIOBase, entry: Entry, shared: bool) -> Tensor:
    """Read an entry into the memory of a new tensor. Blocks as reading does.

    Raises:
        DTypeError: tensors cannot have its type.
        FileDamaged: the checksum is wrong.
        OutOfMemory, ManagerError: as `shmtensor.empty`.
    """
    label = f"{path}: {entry.name!r}"
    backwards = entry.fortran and len(entry.shape) > 1
    tensor = empty(
        entry.shape[::-1] if backwards else entry.shape,
        dtype=require_supported(entry.dtype.newbyteorder("=")),
        shared=shared,
    )
    place = tensor._located()
    array = place[0]
    data = array.reshape(-1).view(np.uint8).data
    if entry.inflate is None:
        read_exactly(file, entry.offset, data, label)
    else:
        _inflate(entry, data, label)
    if entry.checksum is not None:
        found, wanted = entry.checksum
        for start in range(0, len(data), _PIECE):
            found = zlib.crc32(data[start : start + _PIECE], found)
        if found != wanted:
            raise FileDamaged(f"{label}: the checksum of the elements is {found:#x} instead of {wanted:#x}")
    if not entry.dtype.isnative:
        array.byteswap(inplace=True)
    return tensor._share(array.transpose(), *place) if backwards else tensor


def _inflate(entry: Entry, data: memoryview, label: str) -> None:
    assert entry.inflate is not None
    try:
        with entry.inflate() as stream:
            stream.read(entry.offset)
            done = 0
            while done < len(data):
                count = stream.readinto(data[done : done + _PIECE])
                if not count:
                    raise EndOfFile(f"{label}: the file ends after {done} of {len(data)} bytes")
                done += count
            if stream.read(1):  # at the end, the checksum is verified
                raise FileDamaged(f"{label}: there are more bytes than the header says")
    except FileDamaged:
        raise
    except Exception as error:  # zlib and zipfile raise exceptions of many types
        raise FileDamaged(f"{label}: the compressed data is damaged: {error}") from error


class Mapping:
    """A file whose entries are mapped as tensors. Blocks only where pages have to be reserved.

    Args:
        path: absolute path, which processes that receive the tensors open themselves.
        file: the file at that path.
        writable: whether the tensors can be written to.

    Raises:
        LayoutError: an entry cannot be mapped.
        FileDamaged: the file was replaced meanwhile.
        MappingError, OutOfMemory: the system refused.
    """

    def __init__(self, path: str, file: io.RawIOBase, writable: bool) -> None:
        self._path = path
        self._status = os.fstat(file.fileno())
        self._writable = writable
        flags = MapFlags.SHARED | MapFlags.NOCREATE
        self._allocator = MapAllocator(path, flags if writable else flags | MapFlags.READONLY)
        self._storages: dict[NumpyType, Storage] = {}

    def tensor(self, entry: Entry) -> Tensor:
        """Return the tensor over an entry."""
        dtype = require_supported(entry.dtype.newbyteorder("="))
        if not entry.nbytes:
            return empty(entry.shape, dtype=dtype)
        problem = self._problem(entry)
        if problem is not None:
            raise LayoutError(
                f"{self._path}: {entry.name!r} {problem}; load it without mmap, or save it as .safetensors"
            )
        strides = np.cumprod([1, *(entry.shape if entry.fortran else entry.shape[::-1])])[:-1].tolist()
        return Tensor._rebuild(
            self._storage(dtype),
            entry.offset // dtype.itemsize,
            entry.shape,
            tuple(strides if entry.fortran else strides[::-1]),
        )

    def _problem(self, entry: Entry) -> str | None:
        width = entry.dtype.itemsize
        if entry.inflate is not None:
            return "is compressed"
        if not entry.dtype.isnative:
            return "is in the other byte order"
        if entry.offset % width:
            return f"begins at byte {entry.offset}, which is not a multiple of its item size {width}"
        if self._writable and entry.checksum is not None:
            return "has a checksum in its file, which writes would not update"
        return None

    def _storage(self, dtype: NumpyType) -> Storage:
        storage = self._storages.get(dtype)
        if storage is None:
            storage = STORAGE_CLASSES[dtype](self._status.st_size // dtype.itemsize, allocator=self._allocator)
            if storage._region.identity != (self._status.st_dev, self._status.st_ino):
                raise FileDamaged(f"{self._path} was replaced while it was being loaded; load it again")
            self._storages[dtype] = storage
        return storage
