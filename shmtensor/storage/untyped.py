"""A storage as bytes, as torch gives it for a tensor's memory."""

from __future__ import annotations

from typing import Any, Self

from ..devices import CPU, Device
from ..dtypes import dtype_of
from .storage import Storage


class UntypedStorage:
    """The bytes of a storage, whatever their type: `x.untyped_storage()`. It is a view, which follows the storage.

    Args:
        storage: the storage whose bytes these are; or how many bytes to allocate.

    Raises:
        InvalidArgument: no size.
        OutOfMemory: no memory.
    """

    __module__ = "shmtensor"
    __slots__ = ("_typed",)

    def __init__(self, storage: Any = 0) -> None:
        self._typed: Storage = (
            storage if isinstance(storage, Storage) else Storage._class_of(dtype_of("uint8"))(storage)
        )

    def nbytes(self) -> int:
        """Number of bytes."""
        return int(self._typed.nbytes)

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        """1: elements are bytes."""
        return 1

    def data_ptr(self) -> int:
        """Address of the first byte in this process."""
        return self._typed.data_ptr()

    def __getitem__(self, index: int) -> int:
        """A byte. Raises IndexOutOfRange."""
        width = self._typed.element_size()
        at = range(self.nbytes())[index]
        return self._typed._flat[at // width : at // width + 1].tobytes()[at % width]

    def tolist(self) -> list[int]:
        """All bytes."""
        return list(self._typed._flat.tobytes())

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return CPU

    @property
    def is_cuda(self) -> bool:
        """False: the memory is that of the CPU."""
        return False

    def is_shared(self) -> bool:
        """Whether other processes can have this memory."""
        return self._typed.is_shared()

    def share_memory_(self) -> Self:
        """Move the storage into shared memory; returns self. Blocks and raises as Storage.share_memory_."""
        self._typed.share_memory_()
        return self

    def __eq__(self, other: object) -> bool:
        return self.data_ptr() == other.data_ptr() if isinstance(other, UntypedStorage) else NotImplemented

    def __hash__(self) -> int:
        return self.data_ptr()

    def __repr__(self) -> str:
        return f"UntypedStorage(nbytes={self.nbytes()}, of={self._typed._describe()})"
