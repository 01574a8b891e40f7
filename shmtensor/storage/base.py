"""The memory of a storage: allocation, moves, and sharing.

`content` has the operations on elements, `handles` those for opening a storage in other processes; both extend this
class.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from .._loading import load
from .._native import VIEW_FROZEN, VIEW_LENT, VIEW_PERSONAL, VIEW_READONLY, Block, View, is_device_array
from ..allocators import MapAllocator, default_allocator
from ..allocators.lease import Lease, lease
from ..allocators.managed import allocate
from ..allocators.protocol import Allocator, Region
from ..dtypes import DEFAULT, DTYPES, DType, NumpyType, require_same, require_supported
from ..errors import DTypeError, InvalidArgument, NotSupported, ShmTensorError, type_name
from .arguments import INTEGERS, is_writable, read_only
from .regions import (
    OWN,
    PLACES,
    RECEIVED,
    StorageFlags,
    address_of,
    element_count,
    flat_values,
    fresh_array,
    moving,
    owner_of,
    region_over,
    section_of,
    shared_block,
    shared_by,
    traits_of,
)

STORAGE_CLASSES: Final[dict[NumpyType, type[Any]]] = {}
"""The storage class of each loaded element type."""

# The existing storage of a block, so that a block that is received twice is one storage. The key contains an id, so a
# lookup must compare the block as well.
_of_block: Final[weakref.WeakValueDictionary[tuple[int, NumpyType], StorageBase]] = weakref.WeakValueDictionary()
# The same for shared memory of GPUs, by the id of its BlockMemory.
_of_memory: Final[weakref.WeakValueDictionary[tuple[int, NumpyType], StorageBase]] = weakref.WeakValueDictionary()
# The same for storages over a View of a block, by the kind of view.
_of_view: Final[weakref.WeakValueDictionary[tuple[int, int, NumpyType], StorageBase]] = weakref.WeakValueDictionary()


class Bytes(int):
    """`storage.nbytes`: an int that returns itself when it is called."""

    def __call__(self) -> int:  # noqa: D102
        return int(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class StorageBase:
    """The part of Storage that manages its memory."""

    __slots__ = (
        "__weakref__", "_allocator", "_bases", "_counter", "_epoch", "_export", "_flags", "_flat", "_region",
        "_tickets", "_view", "_views",
    )  # fmt: skip

    dtype: ClassVar[DType] = DTYPES[DEFAULT]
    """Type of the elements."""
    _dtype: ClassVar[NumpyType] = DEFAULT
    """The same for arrays."""

    RESIZABLE: ClassVar[int] = StorageFlags.RESIZABLE
    REFCOUNTED: ClassVar[int] = StorageFlags.REFCOUNTED
    VIEW: ClassVar[int] = StorageFlags.VIEW
    FREEMEM: ClassVar[int] = StorageFlags.FREEMEM

    _flat: NDArray[Any]  # all elements, in order
    _region: Region  # what the allocator returned; for the manager's memory a native Block, or a View of one
    _allocator: Allocator
    _flags: StorageFlags
    _epoch: int  # incremented when the memory moves; tensors compare it with theirs
    _counter: Any  # counts in-place changes through tensors; not set until one is asked for it
    _bases: dict[int, int] | None  # previous epoch -> address of the memory in it
    _view: tuple[StorageBase, int] | None  # VIEW: the storage that this is a part of, and the first byte
    _views: list[weakref.ref[StorageBase]] | None  # the VIEWs of this one
    _export: tuple[bytes, bytes] | None  # manager address and handle, once shared by name
    _tickets: list[tuple[int, int]] | None  # holds made by _shared_incref

    def __init__(self, content: Any = 0, *, allocator: Allocator | None = None) -> None:
        if isinstance(content, INTEGERS):
            self._allocate(element_count(content, self._dtype), allocator or default_allocator)
            return
        values = flat_values(content, self._dtype)
        if values.dtype.kind == "c" and self._dtype.kind != "c":
            raise DTypeError(
                f"cannot store {values.dtype.name} values as {self._dtype.name} without losing their imaginary parts; "
                "take the real part, or use copy_ or a conversion"
            )
        self._allocate(values.size, allocator or default_allocator)
        np.copyto(self._flat, values, casting="unsafe")

    def _allocate(self, size: int, allocator: Allocator) -> None:
        region, flat = fresh_array(allocator, size, self._dtype)
        shared = shared_by(allocator) or isinstance(allocator, MapAllocator)
        self._adopt(flat, region, allocator, OWN if shared else OWN | StorageFlags.RESIZABLE)
        if type(region) is Block:
            with moving:
                _of_block[id(region), self._dtype] = self

    def _is_on_device(self) -> bool:
        return is_device_array(self._flat)

    @classmethod
    def _over_device(cls, flat: Any) -> StorageBase:
        """Return the storage over a flat array on a GPU; for a shared block, the existing one of that type, if any."""
        dtype, memory = flat.dtype, flat.data.mem
        shared = hasattr(memory, "block")
        with moving:
            known = _of_memory.get((id(memory), dtype)) if shared else None
            if known is not None and known._region is memory:
                return known
            storage: StorageBase = object.__new__(cls._class_of(dtype))
            allocator = load("allocators.cuda").of(int(flat.device.id), shared)
            storage._adopt(flat, memory, allocator, OWN if shared else StorageFlags.REFCOUNTED)
            if shared:
                _of_memory[id(memory), dtype] = storage
        return storage

    def _share_on_device(self) -> None:
        """Move the memory of a root storage into shared memory of its GPU."""
        cuda = load("allocators.cuda")
        number = int(self._flat.device.id)  # type: ignore[attr-defined]
        memory = cuda.allocate(number, self._flat.nbytes)
        with moving:
            if not self.is_shared():  # another thread may have been quicker
                flat = memory.array(self._dtype, self._flat.shape)
                flat[...] = self._flat
                self._move(flat, memory, cuda.of(number, True), OWN)
                _of_memory[id(memory), self._dtype] = self

    def _adopt(self, flat: NDArray[Any], region: Region, allocator: Allocator, flags: StorageFlags) -> None:
        self._flat = flat
        self._region = region
        self._allocator = allocator
        self._flags = flags
        self._epoch = 0
        self._bases = self._view = self._views = self._export = self._tickets = None

    # -- properties ----------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Return the number of elements. Does not block."""
        return len(self._flat)

    __len__ = size

    @property
    def nbytes(self) -> Bytes:
        """Bytes of all elements; as in torch, it can be called: `nbytes()`."""
        return Bytes(self._flat.nbytes)

    def element_size(self) -> int:
        """Return the size of an element in bytes. Does not block."""
        return self._dtype.itemsize

    def data_ptr(self) -> int:
        """Return the address of the first element in this process. Does not block."""
        return address_of(self._flat)

    @property
    def allocator(self) -> Allocator:
        """The allocator of the memory; for memory allocated by NumPy, the default allocator."""
        return self._allocator

    @property
    def flags(self) -> StorageFlags:
        """The flags: RESIZABLE, REFCOUNTED, FREEMEM, VIEW."""
        return self._flags

    def set_flag(self, flag: int) -> None:
        """Set flags (THStorage_setFlag). Does not block.

        Raises:
            InvalidArgument: a flag other than RESIZABLE, or the memory is shared, mapped, or a part of another storage.
        """
        if not isinstance(flag, int) or flag & ~StorageFlags.RESIZABLE:
            raise InvalidArgument(f"cannot set {flag!r}; only RESIZABLE can be set and cleared")
        if flag and (self.is_shared() or isinstance(self._allocator, MapAllocator) or self._view is not None):
            raise InvalidArgument(f"{self._describe()} cannot be made resizable; copy it to a new storage")
        self._flags |= StorageFlags(flag)

    def clear_flag(self, flag: int) -> None:
        """Clear flags (THStorage_clearFlag). Does not block.

        Raises:
            InvalidArgument: a flag other than RESIZABLE.
        """
        if not isinstance(flag, int) or flag & ~StorageFlags.RESIZABLE:
            raise InvalidArgument(f"cannot clear {flag!r}; only RESIZABLE can be set and cleared")
        self._flags &= ~StorageFlags(flag)

    def _named(self, manager: bytes, handle: bytes) -> tuple[bytes, bytes]:
        """Record the name by which other processes open this storage, and return it."""
        self._export = (manager, handle)
        return self._export

    @staticmethod
    def _class_of(dtype: NumpyType) -> type[Any]:
        """Return the storage class for elements of `dtype`. Raises DTypeError."""
        found = STORAGE_CLASSES.get(dtype)
        return STORAGE_CLASSES[require_supported(dtype)] if found is None else found

    @classmethod
    def _typed(cls) -> type[Self]:
        """Return this class, or FloatStorage for Storage itself."""
        return cls

    def _describe(self) -> str:
        part = "a part of a " if self._view is not None else ""
        return f"{part}{type(self).__name__} of {self.size()} elements in {self._place()} memory"

    def _place(self) -> str:
        """Return the kind of memory in a word: heap, shared, lent, read-only, frozen, private, map, ..."""
        if isinstance(self._region, Block | View):
            return PLACES[getattr(self._region, "kind", 0)]
        return "heap" if self._allocator is default_allocator else str(getattr(self._allocator, "name", "other"))

    def _require_writable(self, doing: str) -> None:
        if not is_writable(self._flat):
            raise read_only(f"{doing} {self._describe()}")

    def _root(self) -> tuple[Any, int]:
        """Return the storage that owns the memory, and the position of this one's first byte in it."""
        return (self, 0) if self._view is None else self._view

    def _whole(self) -> Any:
        """Return the storage that owns the memory if this one has all of its bytes, else this one."""
        if self._view is None:
            return self
        root, first = self._view
        return root if first == 0 and self._flat.nbytes == root._flat.nbytes else self

    def _section(self, first: int, size: int, dtype: NumpyType) -> Any:
        """Return `size` elements from byte `first` on as a storage that is a VIEW of this one."""
        with moving:
            root, offset = self._root()
            part = object.__new__(self._class_of(dtype))
            flat = section_of(root._flat, offset + first, size, dtype)
            part._adopt(flat, root._region, root._allocator, StorageFlags.REFCOUNTED | StorageFlags.VIEW)
            part._view = (root, offset + first)
            views = [] if root._views is None else root._views
            if len(views) & (len(views) - 1) == 0:  # not each time, which would take n * n steps for n parts
                views = [ref for ref in views if ref() is not None]
            views.append(weakref.ref(part))
            root._views = views
        return part

    # -- changing it --------------------------------------------------------------------------------------------------

    def resize_(self, size: int) -> Self:
        """Change the number of elements. Existing elements are kept if they fit; new ones are arbitrary. Returns self.

        The memory moves. Tensors on this storage follow (one that exceeds the new end raises when used); NumPy arrays
        taken earlier keep the old memory. If no tensor, array or other storage refers to the memory, the allocator's
        `realloc` resizes it; meanwhile other threads find the storage empty. Otherwise, or if `realloc` refuses with
        InvalidArgument, the elements are copied to new memory. Does not block.

        Args:
            size: number of elements, at least 0.

        Raises:
            InvalidArgument: the storage is not RESIZABLE (shared, mapped or foreign memory, or a view), the size is
                out of range, or a part of this storage exceeds it.
            OutOfMemory: no memory; nothing was changed.
        """
        size = element_count(size, self._dtype)
        with moving:
            if size == self.size():
                return self
            if not self._flags & StorageFlags.RESIZABLE:
                raise InvalidArgument(f"cannot resize {self._describe()} to {size}: it is not resizable; copy it")
            for part in self._living_views():
                first = part._view[1] if part._view else 0
                if first + part.nbytes > size * self._dtype.itemsize:
                    raise InvalidArgument(
                        f"cannot resize {self._describe()} to {size}: a part of it ends at element "
                        f"{(first + part.nbytes) // self._dtype.itemsize}; delete that part first"
                    )
            if not self._reallocated(size):
                region, flat = self._copied(size)
                self._move(flat, region, self._allocator, self._flags)
        return self

    def _copied(self, size: int) -> tuple[Region, NDArray[Any]]:
        """Return new memory with the elements that fit. Raises OutOfMemory."""
        region, flat = fresh_array(self._allocator, size, self._dtype)
        kept = min(size, self.size())
        np.copyto(flat[:kept], self._flat[:kept])
        return region, flat

    def _reallocated(self, size: int) -> bool:
        """Have the allocator resize the memory. False: it cannot, or something else refers to the memory.

        Raises as the allocator's realloc; then nothing has changed. The caller holds `moving`.
        """
        held, storages = owner_of(self._flat), [self, *self._living_views()]
        flats = [storage._flat for storage in storages]
        if type(held) is not Lease or not hasattr(self._allocator, "realloc") or not _alone(flats, 1):
            return False
        # From here on, other threads and finalizers find an empty storage, because the memory may be freed.
        self._take_each(storages, [np.empty(0, flat.dtype) for flat in flats], self._region, self._allocator)
        nbytes = size * self._dtype.itemsize
        region = None
        try:
            if _alone(flats, 0):  # no thread was quicker
                region = held.resized(nbytes)
        except InvalidArgument:  # memory of this kind cannot be resized
            pass
        finally:
            if region is None:
                self._take_each(storages, flats, self._region, self._allocator)
        if region is None:
            return False
        try:
            flat = lease(self._allocator, region, nbytes).view(self._dtype)
        except BaseException:
            self._allocator.free(region)
            self._take_each(storages, [each._flat for each in storages], b"", default_allocator)  # the region is gone
            raise
        places = zip(storages[1:], flats[1:], strict=True)
        parts = [section_of(flat, part._root()[1], old.size, part._dtype) for part, old in places]
        self._take_each(storages, [flat, *parts], region, self._allocator)
        return True

    @staticmethod
    def _take_each(
        storages: list[StorageBase], flats: list[NDArray[Any]], region: Region, allocator: Allocator
    ) -> None:
        for storage, flat in zip(storages, flats, strict=True):
            storage._take(flat, region, allocator)

    def _living_views(self) -> list[StorageBase]:
        return [part for ref in self._views or () if (part := ref()) is not None]

    def _move(self, flat: NDArray[Any], region: Region, allocator: Allocator, flags: StorageFlags) -> None:
        """Switch to the memory `flat`. Arrays over the old memory keep it. The caller holds `moving`."""
        self._take(flat, region, allocator)
        if self._view is None:
            self._flags = flags
        for part in self._living_views():
            first = part._view[1] if part._view else 0
            part._move(section_of(flat, first, part.size(), part._dtype), region, allocator, flags)

    def _take(self, flat: NDArray[Any], region: Region, allocator: Allocator) -> None:
        bases = {} if self._bases is None else self._bases
        bases[self._epoch] = address_of(self._flat)
        self._bases = bases
        self._flat = flat
        self._region = region
        self._allocator = allocator
        self._epoch += 1

    def swap_(self, other: Self) -> Self:
        """Exchange memory, size, flags and allocator with another storage (THStorage_swap). Returns self.

        Tensors on this storage then see the other's elements. Parts (slices) stay with their memory. Does not block.

        Raises:
            DTypeError: the storage has another type.
            InvalidArgument: memory shared through the manager, which tensors here and elsewhere refer to; or two
                storages over the same memory.
        """
        if not isinstance(other, StorageBase):
            raise DTypeError(
                f"cannot swap a {type(self).__name__} with a {type_name(other)}; give a storage of the same type"
            )
        require_same(self._dtype, other._dtype, other._describe())
        if self is other:
            return self
        with moving:
            for storage in (self, other):
                if shared_block(storage._region)[0] is not None:
                    raise InvalidArgument(f"{storage._describe()} cannot be swapped; swap clones, or copy the values")
            if self._root()[0] is other._root()[0]:
                raise InvalidArgument(f"{self._describe()} cannot be swapped with another part of its memory; copy_ it")
            mine, theirs = self._state(), other._state()
            self._assume(other, theirs)
            other._assume(self, mine)
        return self

    def _state(self) -> tuple[Any, ...]:
        return self._flat, self._region, self._allocator, self._flags, self._view, self._living_views()

    def _assume(self, other: Self, state: tuple[Any, ...]) -> None:
        """Take over the state of `other`, including its parts. The caller holds `moving`."""
        flat, region, allocator, self._flags, self._view, parts = state
        self._take(flat, region, allocator)
        self._views = [weakref.ref(part) for part in parts]
        for part in parts:
            part._view = (self, part._view[1])
        if self._view is not None:
            root = self._view[0]
            root._views = [weakref.ref(self) if ref() is other else ref for ref in root._views or ()]

    # -- sharing ------------------------------------------------------------------------------------------------------

    def is_shared(self) -> bool:
        """Whether other processes can map this memory: managed, or mapped as shared. Does not block."""
        return shared_by(self._allocator)

    def share_memory_(self, *, readonly: bool = False, copy_on_write: bool = False) -> Self:
        """Move the memory into shared memory of this process's manager, unless it is shared already. Returns self.

        The elements are copied once. Tensors on this storage follow; NumPy arrays taken earlier keep the old memory
        and do not see later writes. The first call in a process blocks until the manager is ready.

        By default, receivers and this process see each other's writes. The arguments restrict this for everything sent
        from now on. Restrictions cannot be removed; a call without arguments does not change them. A forked child is a
        receiver of everything that its parent has.

        Args:
            readonly: receivers cannot write: their pages and arrays are read-only. This process still can.
            copy_on_write: each receiver gets a private copy, whose pages are copied on write. The memory becomes
                read-only in this process, because receivers would see writes to pages not copied yet.

        Raises:
            OutOfMemory: the system or a quota refused; nothing was changed.
            ManagerError: no manager can be reached or started.
            InvalidArgument: both arguments, or one of them for memory that is shared without the manager.
        """
        if readonly and copy_on_write:
            raise InvalidArgument("readonly and copy_on_write exclude each other")
        kind = VIEW_LENT if readonly else VIEW_FROZEN if copy_on_write else 0
        root, _ = self._root()
        if root._is_on_device():
            if kind:
                raise NotSupported("readonly and copy_on_write are not available for memory of a GPU; share a clone()")
            if not root.is_shared():
                root._share_on_device()
            return self
        if not root.is_shared():
            # Not under `moving`: the first allocation starts a process, and a fork takes that lock too.
            block = allocate(root.nbytes)
            with moving:
                if root.nbytes > block.nbytes:
                    raise InvalidArgument(
                        f"another thread resized {root._describe()} while it was being shared; "
                        "share it again, and resize it afterwards"
                    )
                if not root.is_shared():  # another thread may have been quicker
                    np.copyto(block.array(root._dtype, root._flat.shape), root._flat)
                    root._move_to_block(block, kind)
        if kind:
            root._restrict(kind)
        return self

    def _restrict(self, kind: int) -> None:
        """Restrict the access of receivers to `kind`."""
        with moving:
            block, present = shared_block(self._region)
            if block is None:
                raise InvalidArgument(
                    f"{self._describe()} cannot be shared with readonly or copy_on_write, because it is not the "
                    "manager's memory; copy it to a new storage"
                )
            if kind == VIEW_LENT and present in (VIEW_READONLY, VIEW_FROZEN):
                kind = VIEW_READONLY  # it stays read-only in this process, too
            if kind != present:
                # Storages of other types over the same memory are restricted, too.
                for storage in [*_of_block.values(), *_of_view.values()]:
                    if storage is not self and shared_block(storage._region) == (block, present):
                        storage._move_to_block(block, kind)
                self._move_to_block(block, kind)

    def _move_to_block(self, block: Block, kind: int) -> None:
        """Switch to the memory of `block`, with the access of `kind`. The caller holds `moving`."""
        if kind == VIEW_LENT:
            region_over(block, VIEW_READONLY)  # mapped here, so that a forked child need not request it
        region = region_over(block, kind)
        flat = region.array(self._dtype, self._flat.shape)
        self._move(flat, region, *traits_of(kind))
        self._enlist(block, kind)

    def _enlist(self, block: Block, kind: int) -> None:
        """Register this storage as the one over the block with that access. The caller holds `moving`."""
        if not kind:
            _of_block[id(block), self._dtype] = self
        elif kind != VIEW_PERSONAL:
            _of_view[id(block), kind, self._dtype] = self

    @classmethod
    def _from_block(cls, block: Block, dtype: NumpyType, size: int, kind: int = 0) -> Self:
        """Return the storage over a block: an existing one for the same type and access, except for private views.

        Bytes at the end that are not a whole element are left out. Does not block.

        Args:
            block: the block.
            dtype: type of the elements.
            size: number of elements.
            kind: the kind of view that this process may have; 0: the block itself, with full access.

        Raises:
            InvalidArgument: `size` is not the number of elements of `dtype` that fit into the block.
            OutOfMemory: no memory for the view.
        """
        if size != block.nbytes // dtype.itemsize and (size or block.nbytes != 1):  # no block has 0 bytes
            raise InvalidArgument(
                f"{size} elements of {dtype.name} ({size * dtype.itemsize} bytes) do not match the shared block of "
                f"{block.nbytes} bytes; open it with its original type and size"
            )
        with moving:
            known = _of_view.get((id(block), kind, dtype)) if kind else _of_block.get((id(block), dtype))
            if known is not None and shared_block(known._region) == (block, kind):
                return known  # type: ignore[return-value]
            storage: Self = object.__new__(cls._class_of(dtype))
            region = region_over(block, kind)
            storage._adopt(region.array(dtype, (size,)), region, *traits_of(kind))
            storage._enlist(block, kind)
        return storage


def _alone(flats: list[NDArray[Any]], kept: int) -> bool:
    """Whether no tensor and no array refers to the memory of these, each of which `kept` storages refer to."""
    alone = all(sys.getrefcount(flats[i]) == 2 + kept for i in range(len(flats)))
    return alone and sys.getrefcount(flats[0].base) == 1 + len(flats)


def _receive() -> None:
    """Replace the parent's views by those of a receiver, in a forked child."""
    with moving:
        for storage in list(_of_view.values()):
            block, kind = shared_block(storage._region)
            # On failure the memory stays read-only, or the process cannot use shared memory at all.
            with contextlib.suppress(ShmTensorError):
                if block is not None and RECEIVED[kind] != kind:
                    storage._move_to_block(block, RECEIVED[kind])


os.register_at_fork(after_in_child=_receive)
