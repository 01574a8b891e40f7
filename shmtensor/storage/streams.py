"""Storages in the files of torch's `_write_file`: the number of elements in 64 bits, then the elements, little-endian.

All methods block as reading and writing the file do.
"""

from __future__ import annotations

import errno
import io
import struct
import sys
from typing import IO, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import EndOfFile, FileDamaged, InvalidArgument
from .arguments import integer
from .base import StorageBase
from .regions import element_count, flat_bytes, put_bytes

_COUNT: Final = struct.Struct("<q")
_PIECE: Final = 1 << 24


class Streams(StorageBase):
    """The part of Storage that reads and writes files (torch's names)."""

    __slots__ = ()

    def _write_file(
        self, file: IO[bytes], is_real_file: bool = True, save_size: bool = True, element_size: int | None = None
    ) -> None:
        """Write the elements to a binary file, at its position.

        Args:
            file: the file.
            is_real_file: has no effect: everything is written with `file.write`.
            save_size: write the number of elements before them.
            element_size: bytes of an element; default that of this type.

        Raises:
            InvalidArgument: the size of the storage in bytes is not a multiple of `element_size`.
            OSError: an error of the file system.
        """
        width = self._width(element_size)
        if save_size:
            _write(file, memoryview(_COUNT.pack(self.nbytes // width)))
        _write(file, _little(flat_bytes(self), width).data)

    def _set_from_file(
        self,
        file: IO[bytes],
        offset: int | None = None,
        is_real_file: bool = True,
        element_size: int | None = None,
    ) -> Self:
        """Read the output of `_write_file(save_size=True)` into this storage, which must have that size. Returns self.

        Args:
            file: a binary file.
            offset: where to read; default its position.
            is_real_file: has no effect.
            element_size: bytes of an element; default that of this type.

        Raises:
            InvalidArgument: another number of elements.
            EndOfFile: the file ends too early.
            LayoutError: the memory is read-only.
            OSError: an error of the file system.
        """
        self._require_writable("reading a file into")
        width = self._width(element_size)
        if offset is not None:
            file.seek(offset)
        count = _count_in(file)
        if count * width != self.nbytes:
            raise InvalidArgument(
                f"the file has {count} elements of {width} bytes, and {self._describe()} has {self.nbytes} bytes; read "
                "it into a storage of that size, or use _new_with_file"
            )
        put_bytes(self._flat, _little(_read(file, self.nbytes), width))
        return self

    @classmethod
    def _new_with_file(cls, file: IO[bytes], element_size: int | None = None) -> Self:
        """Create a storage from the output of `_write_file(save_size=True)`, at the position of a binary file.

        Raises:
            EndOfFile: the file ends too early.
            FileDamaged: the number of elements is impossible.
            InvalidArgument: the bytes are not a whole number of elements.
            OutOfMemory: no memory.
            OSError: an error of the file system.
        """
        cls = cls._typed()
        own = cls._dtype.itemsize
        width = own if element_size is None else _whole(element_size)
        count = _count_in(file)
        size, rest = divmod(count * width, own)
        if rest or width <= 0:
            raise InvalidArgument(
                f"{count} elements of {width} bytes are not elements of {cls._dtype.name}; "
                "give the element_size with which they were written"
            )
        raw = _read(file, element_count(size, cls._dtype) * own)  # before allocating memory
        storage = cls(size)
        put_bytes(storage._flat, _little(raw, width))
        return storage

    def _width(self, element_size: int | None) -> int:
        width = self._dtype.itemsize if element_size is None else _whole(element_size)
        if width <= 0 or self.nbytes % width:
            raise InvalidArgument(
                f"{self._describe()} has {self.nbytes} bytes, which is not a multiple of {width}; "
                "give another element_size"
            )
        return width


def _whole(element_size: Any) -> int:
    try:
        return integer(element_size)
    except TypeError:
        raise InvalidArgument(
            f"element_size {element_size!r} is not a number of bytes; give an integer from 1, or None"
        ) from None


def _write(file: IO[bytes], data: memoryview) -> None:
    while data.nbytes:  # an unbuffered file may take a part
        taken = file.write(data)
        if taken is None and not isinstance(file, io.RawIOBase):
            return  # a user's file object, whose write() returns no number
        if taken is None:
            raise BlockingIOError(errno.EAGAIN, "the file is non-blocking and full; give a blocking file")
        data = data[taken:]


def _count_in(file: IO[bytes]) -> int:
    (count,) = _COUNT.unpack(_read(file, _COUNT.size).data)
    if count < 0:
        raise FileDamaged(f"impossible number of elements: {count}; read from where _write_file wrote")
    return int(count)


def _read(file: IO[bytes], nbytes: int) -> NDArray[np.uint8]:
    """Read `nbytes` bytes, in pieces, so that memory is allocated only for bytes that exist."""
    raw = bytearray()
    while (left := nbytes - len(raw)) and (part := file.read(min(left, _PIECE))):
        raw += part
    if left:
        raise EndOfFile(
            f"the file ends {left} bytes before the end of a storage of {nbytes} bytes; it was truncated, or "
            "_write_file did not write it"
        )
    return np.frombuffer(raw, np.uint8)


def _little(raw: NDArray[Any], width: int) -> NDArray[Any]:
    """Convert the bytes of elements from this machine's order to little-endian order, or back."""
    if sys.byteorder == "little" or width == 1:
        return raw
    return raw.reshape(-1, width)[:, ::-1].reshape(-1)
