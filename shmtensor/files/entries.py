"""Entries: where the tensors of a file lie in it, and the two ways to have them: read into memory, or mapped."""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .._tensor.creation import empty
from .._tensor.methods import Tensor
from ..allocators import MapAllocator, MapFlags
from ..allocators.protocol import MAX_BYTES
from ..dtypes import DType, require_supported
from ..errors import EndOfFile, FileDamaged, LayoutError
from ..storage import STORAGE_CLASSES, Storage
from ..storage.arguments import MAX_AXES

_PIECE: Final = 1 << 26  # bytes that are read or checked at once


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file. Whoever makes one has checked that its bytes are there."""

    name: str
    """Its key; in messages, too."""
    dtype: DType
    """Type of its elements as they lie there: perhaps in the other byte order."""
    shape: tuple[int, ...]
    """Sizes of its axes."""
    offset: int
    """Byte of the file, or of `inflate`'s stream, where it begins."""
    fortran: bool = False
    """First axis fastest."""
    inflate: Callable[[], Any] | None = None
    """Opens a stream of what lies compressed."""
    checksum: tuple[int, int] | None = None
    """CRC-32 of what is before the elements, and what it is after them."""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def checked_shape(sizes: Any, itemsize: int, label: str) -> tuple[int, ...]:
    """The shape that a file claims. Does not block. Raises FileDamaged: there can be no such tensor."""
    if not isinstance(sizes, tuple | list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise FileDamaged(f"{label}: shape {_shown(sizes)} is no list of sizes from 0")
    bound = itemsize
    for size in sizes:
        bound *= size or 1
        if bound > MAX_BYTES or len(sizes) > MAX_AXES:
            raise FileDamaged(f"{label}: there can be no tensor of shape {_shown(sizes)}")
    return tuple(sizes)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number of too many digits
        return "of enormous sizes"
    return text if len(text) < 100 else text[:97] + "..."


def read_exactly(file: io.FileIO, offset: int, target: memoryview, label: str) -> None:
    """Fill `target` from a place in a file. Blocks as reading does. Raises EndOfFile, OSError."""
    file.seek(offset)
    done = 0
    while done < len(target):
        count = file.readinto(target[done : done + _PIECE])
        if not count:
            raise EndOfFile(f"{label}: wanted {len(target)} bytes at byte {offset}, found {done}: the file ends there")
        done += count


def read_tensor(path: str, file: io.FileIO, entry: Entry, shared: bool) -> Tensor:
    """A tensor of what an entry has, read straight into its memory. Blocks as reading does.

    Raises:
        DTypeError: no tensor can have its type.
        FileDamaged: the bytes are not those that were written.
        OutOfMemory, ManagerError: as `shmtensor.empty`.
    """
    label = f"{path}: {entry.name!r}"
    backwards = entry.fortran and len(entry.shape) > 1
    tensor = empty(
        entry.shape[::-1] if backwards else entry.shape,
        dtype=require_supported(entry.dtype.newbyteorder("=")),
        shared=shared,
    )
    array = tensor._live()
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
            raise FileDamaged(f"{label}: the checksum of the elements is {found:#x}, and {wanted:#x} was written")
    if not entry.dtype.isnative:
        array.byteswap(inplace=True)
    return tensor._share(array.transpose()) if backwards else tensor


def _inflate(entry: Entry, data: memoryview, label: str) -> None:
    assert entry.inflate is not None
    try:
        with entry.inflate() as stream:
            stream.read(entry.offset)
            done = 0
            while done < len(data):
                count = stream.readinto(data[done : done + _PIECE])
                if not count:
                    raise EndOfFile(f"{label}: wanted {len(data)} bytes, found {done}: the file ends there")
                done += count
            if stream.read(1):  # the end of it, where its checksum is looked at
                raise FileDamaged(f"{label}: more bytes than the header says")
    except FileDamaged:
        raise
    except Exception as error:  # whatever zlib and zipfile think of it
        raise FileDamaged(f"{label}: what is compressed there is damaged: {error}") from error


def map_tensors(path: str, file: io.FileIO, entries: Sequence[Entry], writable: bool) -> dict[str, Tensor]:
    """Tensors over a mapping of the file. Does not block, but where pages have to be reserved.

    Args:
        path: absolute: processes that these tensors are sent to open it themselves.
        file: the file at that path, which the entries are of.

    Raises:
        LayoutError: an entry that cannot be used where it lies.
        FileDamaged: the file was replaced meanwhile.
        MappingError, OutOfMemory: the system refused.
    """
    status = os.fstat(file.fileno())
    flags = MapFlags.SHARED | MapFlags.NOCREATE
    allocator = MapAllocator(path, flags if writable else flags | MapFlags.READONLY)
    storages: dict[DType, Storage] = {}
    tensors: dict[str, Tensor] = {}
    for entry in entries:
        dtype = require_supported(entry.dtype.newbyteorder("="))
        if not entry.nbytes:
            tensors[entry.name] = empty(entry.shape, dtype=dtype)
            continue
        problem = None
        if entry.inflate is not None:
            problem = "is compressed"
        elif not entry.dtype.isnative:
            problem = "is in the other byte order"
        elif entry.offset % dtype.itemsize:
            problem = f"begins at byte {entry.offset}, which is no multiple of its {dtype.itemsize} bytes an element"
        elif writable and entry.checksum is not None:
            problem = "has a checksum in its archive, which writes would not follow"
        if problem is not None:
            raise LayoutError(f"{path}: {entry.name!r} {problem}; load it without mmap, or save it as .safetensors")
        storage = storages.get(dtype)
        if storage is None:
            storage = storages[dtype] = STORAGE_CLASSES[dtype](status.st_size // dtype.itemsize, allocator=allocator)
            if storage._region.identity != (status.st_dev, status.st_ino):
                raise FileDamaged(f"{path} was replaced while it was being loaded; load it again")
        strides = np.cumprod([1, *(entry.shape if entry.fortran else entry.shape[::-1])])[:-1].tolist()
        tensors[entry.name] = Tensor._rebuild(
            storage, entry.offset // dtype.itemsize, entry.shape, tuple(strides if entry.fortran else strides[::-1])
        )
    return tensors
