"""MemoryFile: numbers and strings in a CharStorage (THMemoryFile)."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np

from ..errors import DTypeError, InvalidArgument, type_name
from ..storage import STORAGE_CLASSES, Storage
from .file import File


class MemoryFile(File):
    """A file in the memory of a CharStorage. As in TH, the storage ends in a 0 that is not part of the file.

    A resizable storage grows with the file. A shared storage cannot grow: writing beyond its end is an error, and
    other processes see writes at once.

    Args:
        mode: "r", "w" or "rw". No mode truncates the storage.
        storage: a CharStorage whose last element is 0; default: a new one with an empty file.

    Raises:
        InvalidArgument: an unknown mode, or a storage that does not end in 0.
        DTypeError: `storage` is not a CharStorage.
    """

    _storage: Storage | None = None  # None: closed

    def __init__(self, mode: str = "rw", storage: Storage | None = None) -> None:
        super().__init__(mode, ("r", "w", "rw"), False)
        if storage is None:
            storage = STORAGE_CLASSES[np.dtype(np.int8)]([0])
        elif not isinstance(storage, Storage) or storage.dtype != np.int8:
            raise DTypeError(f"a memory file needs a CharStorage (int8), not a {type_name(storage)}")
        elif not storage.size() or storage[-1] != 0:
            raise InvalidArgument(
                "the CharStorage of a memory file must end in 0, which is not part of the file; append a 0"
            )
        self._size = storage.size() - 1
        self._position = 0
        self._storage = storage

    @property
    def name(self) -> str:
        """The constant "memory file"."""
        return "memory file"

    def is_opened(self) -> bool:
        """Whether the file is open. Does not block."""
        return self._storage is not None

    def storage(self) -> Storage:
        """Return the storage, which the file continues to use, resized to the file and the 0 after it.

        A storage that is not resizable keeps its size. Does not block.

        Raises:
            InvalidArgument: the file is closed.
        """
        storage = self._memory()
        if storage.flags & Storage.RESIZABLE:
            storage.resize_(self._size + 1)
        return storage

    def close(self) -> None:
        """Close the file and release the storage. Does not block. Raises InvalidArgument: it is closed already."""
        self._memory()
        self._storage = None

    def synchronize(self) -> None:
        """Do nothing, since memory is written at once. Does not block. Raises InvalidArgument: the file is closed."""
        self._memory()

    def position(self) -> int:
        """Return the position in bytes. Does not block. Raises InvalidArgument: the file is closed."""
        self._memory()
        return self._position

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _memory(self) -> Storage:
        self._require_open()
        assert self._storage is not None
        return self._storage

    def _bytes(self) -> memoryview:
        """Return the bytes of the file without the rest of the storage, which may have been resized elsewhere."""
        storage = self._memory()
        self._size = min(self._size, max(0, storage.size() - 1))
        self._position = min(self._position, self._size)
        return storage._flat[: self._size].view(np.uint8).data

    def _window(self, wanted: int) -> tuple[Any, int, int]:
        return self._bytes(), self._position, self._size

    def _skip(self, count: int) -> None:
        self._position += count

    def _read_into(self, target: memoryview) -> int:
        part = self._bytes()[self._position : self._position + len(target)]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)

    def _left(self) -> int:
        self._bytes()
        return self._size - self._position

    def _write_bytes(self, data: Any) -> int:
        storage = self._memory()
        storage._require_writable("writing a memory file to")
        self._bytes()
        view = memoryview(data).cast("B")
        needed = self._position + len(view) + 1
        if needed > storage.size() and storage.flags & Storage.RESIZABLE:
            storage.resize_(max(needed, storage.size() + storage.size() // 2))
        count = min(len(view), storage.size() - 1 - self._position)
        if count < len(view):
            self._problem = OSError(
                errno.ENOSPC, f"the storage has {storage.size()} bytes and cannot grow ({storage._place()} memory)"
            )
        storage._flat.view(np.uint8).data[self._position : self._position + count] = view[:count]
        self._position += count
        if self._position > self._size:
            self._size = self._position
            storage._flat[self._size] = 0
        return count

    def _move(self, position: int | None) -> None:
        self._bytes()
        if position is not None and position > self._size:
            raise OSError(errno.EINVAL, f"the file has {self._size} bytes")
        self._position = self._size if position is None else position
