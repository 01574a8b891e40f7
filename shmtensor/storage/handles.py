"""Opening storages in other processes: by handle, descriptor or path, and manual reference counts."""

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
    """The part of Storage that opens storages in other processes (torch's names)."""

    __slots__ = ()

    def _share_filename_(self) -> tuple[bytes, bytes, int]:
        """Return (manager address, handle, size in elements), the arguments of `_new_shared_filename` elsewhere.

        Private memory is moved into shared memory first. The handle does not hold the memory: it is valid while some
        process holds it. The first call blocks for one request to the manager.

        Raises:
            InvalidArgument: a part of a storage, memory that is shared without the manager, or shared with
                restrictions.
            OutOfMemory, ManagerError: as share_memory_.
        """
        whole = self._whole()
        if whole._view is not None:
            raise InvalidArgument(f"{self._describe()} has no handle; send the whole storage and the offset")
        block, kind = shared_block(whole.share_memory_()._region)
        if kind:
            raise InvalidArgument(
                f"{self._describe()} has no handle, because it is shared with restrictions and a handle gives full "
                "access; send it through a queue or pipe of shmtensor.multiprocessing, or share a clone()"
            )
        if block is None:
            raise InvalidArgument(f"{self._describe()} is not managed memory; send its descriptor (_share_fd_) or path")
        export = whole._export
        if export is None:
            manager = manager_of(block)
            export = whole._named(manager.address, manager.export(block))
        return (*export, self.size())

    @classmethod
    def _new_shared_filename(cls, manager: bytes, handle: bytes, size: int) -> Self:
        """Open the storage of `_share_filename_` in any process.

        Blocks for one request to the manager. If this process has the storage open, returns the same object.

        Args:
            manager: address of its manager (path of a socket).
            handle: `/torch_<pid>_<random>`.
            size: number of elements of this class's type.

        Raises:
            InvalidArgument: malformed arguments, or a size that does not match the memory.
            UnknownHandle: the manager does not know the handle.
            StaleHandle: the memory has been freed.
            SegmentLost, ManagerError: the memory is lost, or the manager is not available.
        """
        cls = cls._typed()
        if not isinstance(manager, bytes) or not isinstance(handle, bytes):
            raise InvalidArgument(
                f"manager address and handle must be bytes, as from _share_filename_, not {manager!r} and {handle!r}"
            )
        size = element_count(size, cls._dtype)
        block = load("manager.client").at(manager).open(handle)
        storage = cls._from_block(block, cls._dtype, size)
        if storage._export is None:
            storage._named(manager, handle)
        return storage

    def _share_fd_(self) -> tuple[int, int]:
        """Return (descriptor, size in elements). The storage owns the descriptor: duplicate it to keep it.

        Private memory is moved into a memory file; tensors follow. Does not block.

        Raises:
            InvalidArgument: a part of a storage, or memory that is shared in another way (for the manager's memory,
                use `_share_filename_`).
            OutOfMemory, MappingError: the system refused.
        """
        with moving:
            whole = self._whole()
            if whole._view is None and not self.is_shared():
                region, flat = fresh_array(anonymous(), whole.size(), whole._dtype)
                np.copyto(flat, whole._flat)
                whole._move(flat, region, lease_of(flat).allocator, OWN)
            fd = getattr(self._region, "fd", -1) if whole._view is None else -1
            if fd < 0 or self.data_ptr() != region_address(self._region):
                raise InvalidArgument(
                    f"{self._describe()} does not have its own descriptor, and shared memory cannot move; use "
                    "_share_filename_, or copy it into Storage._new_using_fd(size)"
                )
            return fd, self.size()

    @classmethod
    def _new_shared_fd(cls, fd: int, size: int) -> Self:
        """Open the storage behind a descriptor, which is duplicated. Does not block.

        Args:
            fd: descriptor of a file or memory file.
            size: number of elements of this class's type, from byte 0.

        Raises:
            InvalidArgument: the size is out of range or beyond the end.
            MappingError: the descriptor cannot be mapped as writable.
        """
        cls = cls._typed()
        allocator = MapAllocator(fd, FD_FLAGS | MapFlags.NOCREATE | MapFlags.FROMFD)
        return cls(element_count(size, cls._dtype), allocator=allocator)

    @classmethod
    def _new_using_fd(cls, size: int) -> Self:
        """Create a storage in its own memory file, for `_share_fd_`. Does not block. Raises OutOfMemory."""
        return cls(element_count(size, cls._typed()._dtype), allocator=anonymous())

    @classmethod
    def _new_using_filename(cls, size: int) -> Self:
        """Create a storage in the manager's memory. Blocks and raises as share_memory_ does."""
        dtype = cls._typed()._dtype
        size = element_count(size, dtype)
        return cls._from_block(allocate(size * dtype.itemsize), dtype, size)

    _new_shared = _new_using_filename
    _share_fd_cpu_, _share_filename_cpu_ = _share_fd_, _share_filename_
    _new_shared_fd_cpu, _new_shared_filename_cpu = _new_shared_fd, _new_shared_filename
    _new_using_fd_cpu, _new_using_filename_cpu = _new_using_fd, _new_using_filename

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], shared: bool = False, size: int = 0) -> Self:
        """Map a file as a storage. Blocks while the file system reserves pages.

        Args:
            path: the file.
            shared: True: writes change the file, which is created or extended to `size` if needed. False: private,
                copy-on-write.
            size: number of elements; 0: the whole file (as in Torch7).

        Raises:
            MappingError: the file does not exist, or access is denied.
            InvalidArgument: the file is empty or shorter than `size`, or (size 0) is not a whole number of elements.
            OutOfMemory: the file system is full.
        """
        cls = cls._typed()
        size = element_count(size, cls._dtype)
        flags = MapFlags.SHARED if shared else MapFlags(0)
        if size == 0:
            nbytes = file_bytes(path)
            allocator = MapAllocator(path, flags | MapFlags.NOCREATE)
            size, rest = divmod(nbytes, cls._dtype.itemsize)
            if rest or not size:
                raise InvalidArgument(
                    f"{os.fspath(path)} has {nbytes} bytes, which is not a whole number of {cls._dtype.name} elements; "
                    "give the size"
                )
        else:
            allocator = MapAllocator(path, flags)
        return cls(size, allocator=allocator)

    def _shared_incref(self) -> Self:
        """Add a reference in flight by hand, so that the memory outlives this process. Returns self.

        Has no effect on private memory. Blocks only for refcounted maps, for a file lock.
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
        """Remove one reference of `_shared_incref` by this process. Blocks as that does. Returns self.

        Raises:
            InvalidArgument: there is no such reference.
        """
        root, _ = self._root()
        block, _ = shared_block(root._region)
        if block is not None:
            with moving:
                if not root._tickets:
                    raise InvalidArgument(f"{self._describe()} has no reference in flight; call _shared_incref first")
                ticket = root._tickets.pop()
            manager_of(block).redeem(block.segment, block.index, block.generation, *ticket)
        elif isinstance(root._allocator, RefcountedMapAllocator):
            root._allocator.decref(root._region)
        return self

    # -- weak references ----------------------------------------------------------------------------------------------

    def _weak_ref(self) -> weakref.ref[Self]:
        """Return a weak reference to the storage. Does not block."""
        return weakref.ref(self)

    @staticmethod
    def _new_with_weak_ptr(ref: weakref.ref[_Kind]) -> _Kind | None:
        """Return the storage of a weak reference, or None if it was freed. Does not block."""
        return ref()

    @staticmethod
    def _expired(ref: weakref.ref[StorageBase]) -> bool:
        """Whether the storage of a weak reference was freed. Does not block."""
        return ref() is None

    @staticmethod
    def _free_weak_ref(ref: weakref.ref[StorageBase]) -> None:
        """Do nothing, since weak references are Python's. Does not block."""
