"""How a storage is named to another process and opened there: by handle, by descriptor, by path, and by hand."""

from __future__ import annotations

import os
import weakref
from typing import Self, TypeVar

import numpy as np

from .._loading import load
from ..allocators import MapAllocator, MapFlags
from ..allocators.managed import allocate, manager_of
from ..allocators.refcounted import RefcountedMapAllocator
from ..errors import InvalidArgument
from .base import StorageBase
from .regions import (
    FD_FLAGS,
    OWN,
    anonymous,
    element_count,
    file_bytes,
    fresh_array,
    lease_of,
    moving,
    region_address,
    shared_block,
)

_Kind = TypeVar("_Kind", bound=StorageBase)


class Handles(StorageBase):
    """The part of Storage that deals with other processes (torch's names)."""

    __slots__ = ()

    def _share_filename_(self) -> tuple[bytes, bytes, int]:
        """(manager address, handle, size in elements): what another process opens with `_new_shared_filename`.

        Moves into shared memory first when needed. The handle is a name and holds nothing: it is good while some
        process holds the memory. Blocks for one request to the manager the first time.

        Raises:
            InvalidArgument: a part of a storage, memory that is shared without the manager, or that receivers may not
                have with all rights.
            OutOfMemory, ManagerError: as share_memory_.
        """
        if self._view is not None:
            raise InvalidArgument(f"{self._describe()} has no handle; share the whole storage and the offset")
        block, kind = shared_block(self.share_memory_()._region)
        if kind:
            raise InvalidArgument(
                f"{self._describe()} is not for everyone to write to, as a handle would allow; send it through a queue "
                "or pipe of shmtensor.multiprocessing, or share a clone()"
            )
        if block is None:
            raise InvalidArgument(f"{self._describe()} is not the manager's; send its descriptor (_share_fd_) or path")
        export = self._export
        if export is None:
            manager = manager_of(block)
            export = self._named(manager.address, manager.export(block))
        return (*export, self.size())

    @classmethod
    def _new_shared_filename(cls, manager: bytes, handle: bytes, size: int) -> Self:
        """Open the storage that `_share_filename_` named, in whatever process.

        Blocks for one request to the manager. In a process that has the storage open, gives that same Storage.

        Args:
            manager: address of its manager (path of a socket).
            handle: `/torch_<pid>_<random>`.
            size: elements of this class's type.

        Raises:
            InvalidArgument: malformed arguments, or a size whose bytes are not those of the storage.
            UnknownHandle, StaleHandle: the manager does not know the handle; what it named has been freed.
            SegmentLost, ManagerError: the memory or the manager is gone.
        """
        cls = cls._typed()
        if not isinstance(manager, bytes) or not isinstance(handle, bytes):
            raise InvalidArgument(
                f"manager address {manager!r} and handle {handle!r} must be bytes, as _share_filename_ gives them"
            )
        size = element_count(size, cls.dtype)
        block = load("manager.client").at(manager).open(handle)
        storage = cls._from_block(block, cls.dtype, size)
        if storage._export is None:
            storage._named(manager, handle)
        return storage

    def _share_fd_(self) -> tuple[int, int]:
        """(descriptor, size in elements). The descriptor is the storage's own: duplicate it to keep it.

        Heap memory moves into a memory file of its own; tensors follow. Does not block.

        Raises:
            InvalidArgument: shared already in another way (the manager's memory lies inside an arena whose descriptor
                has more in it: use `_share_filename_`), or a part of a storage.
            OutOfMemory, MappingError: the system refused.
        """
        with moving:
            if self._view is None and not self.is_shared():
                region, flat = fresh_array(anonymous(), self.size(), self.dtype)
                np.copyto(flat, self._flat)
                self._move(flat, region, lease_of(flat).allocator, OWN)
            fd = getattr(self._region, "fd", -1) if self._view is None else -1
            if fd < 0 or self.data_ptr() != region_address(self._region):
                raise InvalidArgument(
                    f"{self._describe()} has no descriptor of its own, and shared memory cannot move; share it with "
                    "_share_filename_, or copy it into Storage._new_using_fd(size)"
                )
            return fd, self.size()

    @classmethod
    def _new_shared_fd(cls, fd: int, size: int) -> Self:
        """Open the storage behind a descriptor, which is duplicated. Does not block.

        Args:
            fd: descriptor of a file or memory file.
            size: elements of this class's type; they start at byte 0.

        Raises:
            InvalidArgument: a size that is out of range or beyond the end.
            MappingError: the descriptor cannot be mapped writable.
        """
        cls = cls._typed()
        allocator = MapAllocator(fd, FD_FLAGS | MapFlags.NOCREATE | MapFlags.FROMFD)
        return cls(element_count(size, cls.dtype), allocator=allocator)

    @classmethod
    def _new_using_fd(cls, size: int) -> Self:
        """A fresh storage in a memory file of its own, which `_share_fd_` gives. Does not block. Raises OutOfMemory."""
        return cls(element_count(size, cls._typed().dtype), allocator=anonymous())

    @classmethod
    def _new_using_filename(cls, size: int) -> Self:
        """A fresh storage in the manager's memory. Blocks and raises as share_memory_ does."""
        dtype = cls._typed().dtype
        size = element_count(size, dtype)
        return cls._from_block(allocate(size * dtype.itemsize), dtype, size)

    _new_shared = _new_using_filename

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], shared: bool = False, size: int = 0) -> Self:
        """Map a file as a storage. Blocks while the file system reserves pages.

        Args:
            path: the file.
            shared: True: writes reach the file, which is created or grown to `size` when needed. False: private,
                copy-on-write.
            size: elements; 0 is the whole file (as in Torch7).

        Raises:
            MappingError: no such file, or no rights.
            InvalidArgument: a file that is empty or shorter than `size`, or (size 0) whose bytes are not a whole
                number of elements.
            OutOfMemory: the file system is full.
        """
        cls = cls._typed()
        size = element_count(size, cls.dtype)
        flags = MapFlags.SHARED if shared else MapFlags(0)
        if size == 0:
            nbytes = file_bytes(path)
            allocator = MapAllocator(path, flags | MapFlags.NOCREATE)
            size, rest = divmod(nbytes, cls.dtype.itemsize)
            if rest or not size:
                raise InvalidArgument(
                    f"{os.fspath(path)} has {nbytes} bytes, which is not a whole number of {cls.dtype.name} elements; "
                    "give the size"
                )
        else:
            allocator = MapAllocator(path, flags)
        return cls(size, allocator=allocator)

    def _shared_incref(self) -> Self:
        """Count one reference in flight by hand, so that the memory outlives this process. Nothing on the heap.

        Does not block (managed) or for a file lock (refcounted).
        """
        root, _ = self._root()
        block, _ = shared_block(root._region)
        if block is not None:
            with moving:
                root._tickets = [*(root._tickets or ()), manager_of(block).ticket(block)]
        elif isinstance(root._allocator, RefcountedMapAllocator):
            root._allocator.incref(root._region)
        return self

    def _shared_decref(self) -> Self:
        """Take back one `_shared_incref` of this process. Blocks as that does.

        Raises:
            InvalidArgument: there is none to take back.
        """
        root, _ = self._root()
        block, _ = shared_block(root._region)
        if block is not None:
            with moving:
                if not root._tickets:
                    raise InvalidArgument(f"{self._describe()} has no reference in flight; call _shared_incref first")
                hold, mark = root._tickets.pop()
            manager_of(block).redeem(block.segment, block.index, block.generation, hold, mark)
        elif isinstance(root._allocator, RefcountedMapAllocator):
            root._allocator.decref(root._region)
        return self

    # -- weak references ----------------------------------------------------------------------------------------------

    def _weak_ref(self) -> weakref.ref[Self]:
        """A reference that does not keep the storage. Does not block."""
        return weakref.ref(self)

    @staticmethod
    def _new_with_weak_ptr(ref: weakref.ref[_Kind]) -> _Kind | None:
        """The storage of a weak reference, or None when it has gone. Does not block."""
        return ref()

    @staticmethod
    def _expired(ref: weakref.ref[StorageBase]) -> bool:
        """Whether the storage of a weak reference has gone. Does not block."""
        return ref() is None

    @staticmethod
    def _free_weak_ref(ref: weakref.ref[StorageBase]) -> None:
        """Nothing: weak references are Python's own. Does not block."""
