"""Storages in the files of torch's `_write_file`: the number of elements in 64 bits, then the elements, little-endian.

All of it blocks as reading and writing of the file do.
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
            is_real_file: has no effect: all is written by `file.write`.
            save_size: write the number of elements before them.
            element_size: bytes of an element; default those of this type.

        Raises:
            InvalidArgument: an element size of which the storage is not a multiple.
            OSError: the file system's.
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
        """Read what `_write_file` wrote with the size into this storage, which must have that size. Returns self.

        Args:
            file: a binary file.
            offset: where to read; default its position.
            is_real_file: has no effect.
            element_size: bytes of an element; default those of this type.

        Raises:
            InvalidArgument: another number of elements.
            EndOfFile: the file ends before.
            LayoutError: the memory is read-only.
            OSError: the file system's.
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
        """Create a storage of what `_write_file` wrote with the size, at the position of a binary file.

        Raises:
            EndOfFile, FileDamaged: the file ends before; an impossible number.
            InvalidArgument: the bytes are not a whole number of elements.
            OutOfMemory: no memory.
            OSError: the file system's.
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
        raw = _read(file, element_count(size, cls._dtype) * own)  # before memory is taken for what may not be there
        storage = cls(size)
        put_bytes(storage._flat, _little(raw, width))
        return storage

    def _width(self, element_size: int | None) -> int:
        width = self._dtype.itemsize if element_size is None else _whole(element_size)
        if width <= 0 or self.nbytes % width:
            raise InvalidArgument(
                f"{self._describe()} has {self.nbytes} bytes, no whole elements of {width} bytes; "
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
            return  # a file of one's own, whose write says nothing
        if taken is None:
            raise BlockingIOError(errno.EAGAIN, "a file that does not block takes no more; give one that blocks")
        data = data[taken:]


def _count_in(file: IO[bytes]) -> int:
    (count,) = _COUNT.unpack(_read(file, _COUNT.size).data)
    if count < 0:
        raise FileDamaged(f"a file says that a storage has {count} elements; read it where _write_file wrote")
    return int(count)


def _read(file: IO[bytes], nbytes: int) -> NDArray[np.uint8]:
    """Read so many bytes, in pieces, so that memory is only taken for what is there."""
    raw = bytearray()
    while (left := nbytes - len(raw)) and (part := file.read(min(left, _PIECE))):
        raw += part
    if left:
        raise EndOfFile(
            f"a file ends {left} bytes before the {nbytes} of a storage; it was cut off, or is no such file"
        )
    return np.frombuffer(raw, np.uint8)


def _little(raw: NDArray[Any], width: int) -> NDArray[Any]:
    """Bytes of elements in little-endian order for those of this machine, and the other way round."""
    if sys.byteorder == "little" or width == 1:
        return raw
    return raw.reshape(-1, width)[:, ::-1].reshape(-1)
