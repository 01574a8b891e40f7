"""The memory of a storage: where it lies, how it moves, and who else has it.

Everything about its elements is in `content`, what other processes open it by in `handles`; both extend this class.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from .._native import VIEW_FROZEN, VIEW_LENT, VIEW_PERSONAL, VIEW_READONLY, Block, View
from ..allocators import MapAllocator, default_allocator
from ..allocators.managed import allocate
from ..allocators.protocol import Allocator, Region
from ..dtypes import DEFAULT, DType, require_same, require_supported
from ..errors import DTypeError, InvalidArgument, ShmTensorError, type_name
from .arguments import INTEGERS, read_only
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
    region_over,
    shared_block,
    shared_by,
    traits_of,
)

STORAGE_CLASSES: Final[dict[DType, type[Any]]] = {}
"""The class for each type that is there."""

# The storage of a block, while one lives: what was sent to this process twice is one storage. The key holds an id, so
# whoever looks up compares the block too.
_of_block: Final[weakref.WeakValueDictionary[tuple[int, DType], StorageBase]] = weakref.WeakValueDictionary()
# The same of those with a view of the block that other processes have too, by the kind of view.
_of_view: Final[weakref.WeakValueDictionary[tuple[int, int, DType], StorageBase]] = weakref.WeakValueDictionary()


class StorageBase:
    """The part of Storage that deals with its memory."""

    __slots__ = (
        "__weakref__", "_allocator", "_bases", "_epoch", "_export", "_flags", "_flat", "_region", "_tickets", "_view",
        "_views",
    )  # fmt: skip

    dtype: ClassVar[DType] = DEFAULT
    """Type of the elements."""

    RESIZABLE: ClassVar[int] = StorageFlags.RESIZABLE
    REFCOUNTED: ClassVar[int] = StorageFlags.REFCOUNTED
    VIEW: ClassVar[int] = StorageFlags.VIEW
    FREEMEM: ClassVar[int] = StorageFlags.FREEMEM

    _flat: NDArray[Any]  # every element, in order
    _region: Region  # what the allocator gave; a native Block, or a View of one, when shared by the manager
    _allocator: Allocator
    _flags: StorageFlags
    _epoch: int  # raised when the memory moves; tensors compare it with theirs
    _bases: dict[int, int] | None  # epoch that has ended -> address the memory had in it
    _view: tuple[Self, int] | None  # VIEW: the storage this is a part of, and the first element
    _views: list[weakref.ref[Self]] | None  # the VIEWs of this one
    _export: tuple[bytes, bytes] | None  # manager address and handle, once shared by name
    _tickets: list[tuple[int, int]] | None  # holds made by _shared_incref

    def __init__(self, content: Any = 0, *, allocator: Allocator | None = None) -> None:
        if isinstance(content, INTEGERS):
            self._allocate(element_count(content, self.dtype), allocator or default_allocator)
            return
        values = flat_values(content, self.dtype)
        if values.dtype.kind == "c" and self.dtype.kind != "c":
            raise DTypeError(
                f"{values.dtype.name} values in a storage of {self.dtype.name} would lose their imaginary parts; take "
                "the real part, or say so by copy_ or a conversion"
            )
        self._allocate(values.size, allocator or default_allocator)
        np.copyto(self._flat, values, casting="unsafe")

    def _allocate(self, size: int, allocator: Allocator) -> None:
        region, flat = fresh_array(allocator, size, self.dtype)
        shared = shared_by(allocator) or isinstance(allocator, MapAllocator)
        self._adopt(flat, region, allocator, OWN if shared else OWN | StorageFlags.RESIZABLE)
        if type(region) is Block:
            with moving:
                _of_block[id(region), self.dtype] = self

    def _adopt(self, flat: NDArray[Any], region: Region, allocator: Allocator, flags: StorageFlags) -> None:
        self._flat = flat
        self._region = region
        self._allocator = allocator
        self._flags = flags
        self._epoch = 0
        self._bases = self._view = self._views = self._export = self._tickets = None

    # -- what it is ---------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Number of elements. Does not block."""
        return len(self._flat)

    __len__ = size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._flat.nbytes

    def element_size(self) -> int:
        """Bytes of one element. Does not block."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """Address of the first element in this process. Does not block."""
        return address_of(self._flat)

    @property
    def allocator(self) -> Allocator:
        """The allocator of the memory. For memory that NumPy made it is the default one."""
        return self._allocator

    @property
    def flags(self) -> StorageFlags:
        """RESIZABLE, REFCOUNTED, FREEMEM, VIEW."""
        return self._flags

    def set_flag(self, flag: int) -> None:
        """Set flags (THStorage_setFlag). Does not block.

        Raises:
            InvalidArgument: only RESIZABLE can be set, and only where the memory can be replaced: not for shared or
                mapped memory, nor for a view.
        """
        if not isinstance(flag, int) or flag & ~StorageFlags.RESIZABLE:
            raise InvalidArgument(f"asked to set {flag!r}; only RESIZABLE can be set and cleared")
        if flag and (self.is_shared() or isinstance(self._allocator, MapAllocator) or self._view is not None):
            raise InvalidArgument(f"{self._describe()} cannot become resizable; copy it into a storage of its own")
        self._flags |= StorageFlags(flag)

    def clear_flag(self, flag: int) -> None:
        """Clear flags (THStorage_clearFlag): RESIZABLE alone. Does not block.

        Raises:
            InvalidArgument: another flag; the others state facts.
        """
        if not isinstance(flag, int) or flag & ~StorageFlags.RESIZABLE:
            raise InvalidArgument(f"asked to clear {flag!r}; only RESIZABLE can be set and cleared")
        self._flags &= ~StorageFlags(flag)

    def _named(self, manager: bytes, handle: bytes) -> tuple[bytes, bytes]:
        """Remember the name that other processes know this storage by; gives it."""
        self._export = (manager, handle)
        return self._export

    @staticmethod
    def _class_of(dtype: DType) -> type[Any]:
        """The class for elements of `dtype`. Raises DTypeError."""
        found = STORAGE_CLASSES.get(dtype)
        return STORAGE_CLASSES[require_supported(dtype)] if found is None else found

    @classmethod
    def _typed(cls) -> type[Self]:
        """This class, or FloatStorage for a bare Storage."""
        return cls

    def _describe(self) -> str:
        part = "a part of a " if self._view is not None else ""
        return f"{part}{type(self).__name__} of {self.size()} elements in {self._place()} memory"

    def _place(self) -> str:
        """Where it lives, in a word: heap, shared, lent, read-only, frozen, private, map ..."""
        if isinstance(self._region, Block | View):
            return PLACES[getattr(self._region, "kind", 0)]
        return "heap" if self._allocator is default_allocator else str(getattr(self._allocator, "name", "other"))

    def _require_writable(self, doing: str) -> None:
        if not self._flat.flags.writeable:
            raise read_only(f"{doing} {self._describe()}")

    def _root(self) -> tuple[Self, int]:
        """The storage that owns the memory, and this one's first element in it."""
        return (self, 0) if self._view is None else self._view

    # -- changing it --------------------------------------------------------------------------------------------------

    def resize_(self, size: int) -> Self:
        """Change the number of elements; keeps those that fit, new ones are arbitrary; gives self.

        The memory moves. Tensors follow (one that reaches beyond the end raises when used); NumPy arrays taken earlier
        keep the old memory. Does not block.

        Args:
            size: elements, 0 or more.

        Raises:
            InvalidArgument: not RESIZABLE (shared, mapped, foreign memory, a view), a size that is out of range, or
                parts of this storage that would lose their elements.
            OutOfMemory: no memory; nothing has changed then.
        """
        size = element_count(size, self.dtype)
        with moving:
            if size == self.size():
                return self
            if not self._flags & StorageFlags.RESIZABLE:
                raise InvalidArgument(f"asked to resize {self._describe()} to {size}; it is not resizable: copy it")
            for part in self._living_views():
                first = part._view[1] if part._view else 0
                if first + part.size() > size:
                    raise InvalidArgument(
                        f"asked to resize {self._describe()} to {size}, but a part of it reaches to element "
                        f"{first + part.size()}; drop that part first"
                    )
            region, flat = fresh_array(self._allocator, size, self.dtype)
            kept = min(size, self.size())
            np.copyto(flat[:kept], self._flat[:kept])
            self._move(flat, region, self._allocator, self._flags)
        return self

    def _living_views(self) -> list[Self]:
        return [part for ref in self._views or () if (part := ref()) is not None]

    def _move(self, flat: NDArray[Any], region: Region, allocator: Allocator, flags: StorageFlags) -> None:
        """Take `flat` as the memory from now on. The old memory lives on with the arrays over it. Under `moving`."""
        self._take(flat, region, allocator)
        if self._view is None:
            self._flags = flags
        for part in self._living_views():
            first = part._view[1] if part._view else 0
            part._move(flat[first : first + part.size()], region, allocator, flags)

    def _take(self, flat: NDArray[Any], region: Region, allocator: Allocator) -> None:
        bases = {} if self._bases is None else self._bases
        bases[self._epoch] = address_of(self._flat)
        self._bases = bases
        self._flat = flat
        self._region = region
        self._allocator = allocator
        self._epoch += 1

    def swap_(self, other: Self) -> Self:
        """Exchange memory, size, flags and allocator with another storage (THStorage_swap); gives self.

        Whoever refers to a storage goes on doing so: tensors on this one see what the other one had. Parts (slices)
        stay with the memory that they are parts of. Does not block.

        Raises:
            DTypeError: a storage of another type; names both.
            InvalidArgument: memory shared through the manager, which keeps its storage as it keeps its size, since
                tensors in this process and others refer to it; or two storages over the same memory.
        """
        if not isinstance(other, StorageBase):
            raise DTypeError(f"a {type(self).__name__} swaps with another one, not with a {type_name(other)}")
        require_same(self.dtype, other.dtype, other._describe())
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
        """Take what `other` had, parts and all. Under `moving`."""
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
        """Whether other processes can have this memory: managed, or mapped shared. Does not block."""
        return shared_by(self._allocator)

    def share_memory_(self, *, readonly: bool = False, copy_on_write: bool = False) -> Self:
        """Move into shared memory of this process's manager; gives self. Nothing moves when it is shared already.

        One copy. Tensors on this storage follow; NumPy arrays taken earlier keep the old memory and do not see later
        writes. The first call in a process blocks until the manager is ready.

        Receivers see each other's writes and ours, unless one of the arguments says otherwise for what is sent from
        now on. With neither, what was said before stays as it is; what was restricted does not get wider again. A
        forked child is a receiver of all that its parent has.

        Args:
            readonly: receivers cannot write: their memory faults, and their arrays are not writable. We still can.
            copy_on_write: each receiver gets memory of its own, of which pages are copied when they are written to.
                Ours is read-only from now on, since pages that nobody has written to yet would show our writes.

        Raises:
            OutOfMemory: the system or a quota refused; nothing has changed then.
            ManagerError: no manager can be reached or started.
            InvalidArgument: both arguments, or one of them for memory that is shared without the manager.
        """
        if readonly and copy_on_write:
            raise InvalidArgument(
                "asked to share readonly and copy_on_write at once; a receiver's memory is one of both"
            )
        kind = VIEW_LENT if readonly else VIEW_FROZEN if copy_on_write else 0
        root, _ = self._root()
        if not root.is_shared():
            # Not under `moving`: the first allocation starts a process, and a fork takes that lock too.
            block = allocate(root.nbytes)
            with moving:
                if root.nbytes > block.nbytes:
                    raise InvalidArgument(f"{root._describe()} was resized by another thread while it was being shared")
                if not root.is_shared():  # another thread may have been quicker
                    np.copyto(block.array(self.dtype, root._flat.shape), root._flat)
                    root._settle(block, kind)
        if kind:
            root._restrict(kind)
        return self

    def _restrict(self, kind: int) -> None:
        """Let others have no more of this shared memory than `kind` says."""
        with moving:
            block, present = shared_block(self._region)
            if block is None:
                raise InvalidArgument(
                    f"{self._describe()} is not the manager's, and only that can be shared readonly or copy_on_write; "
                    "copy it into a storage of its own"
                )
            if kind == VIEW_LENT and present in (VIEW_READONLY, VIEW_FROZEN):
                kind = VIEW_READONLY  # we cannot write either, and that stays
            if kind != present:
                # Storages of other types over the same memory are no way around it.
                for storage in [*_of_block.values(), *_of_view.values()]:
                    if storage is not self and shared_block(storage._region) == (block, present):
                        storage._settle(block, kind)
                self._settle(block, kind)

    def _settle(self, block: Block, kind: int) -> None:
        """Have the memory of `block` from now on, in the way that `kind` says. Under `moving`."""
        if kind == VIEW_LENT:
            region_over(block, VIEW_READONLY)  # mapped now, so that a forked child need not ask for it
        region = region_over(block, kind)
        flat = region.array(self.dtype, self._flat.shape)
        self._move(flat, region, *traits_of(kind))
        self._enlist(block, kind)

    def _enlist(self, block: Block, kind: int) -> None:
        """Be the storage that whoever asks for this block in this way gets. Under `moving`."""
        if not kind:
            _of_block[id(block), self.dtype] = self
        elif kind != VIEW_PERSONAL:
            _of_view[id(block), kind, self.dtype] = self

    @classmethod
    def _from_block(cls, block: Block, dtype: DType, size: int, kind: int = 0) -> Self:
        """The storage of a block; the same object as long as one lives in this process, but for private ones.

        There is one for each type. Bytes at the end that make no whole element are left out. Does not block.

        Args:
            kind: which view of the block this process may have; 0: the block itself, with all rights.

        Raises:
            InvalidArgument: `size` is not the number of elements of `dtype` that the block has room for.
            OutOfMemory: no room for the view.
        """
        if size != block.nbytes // dtype.itemsize and (size or block.nbytes != 1):  # no block has 0 bytes
            raise InvalidArgument(
                f"asked for {size} elements of {dtype.name} ({size * dtype.itemsize} bytes), but the shared block has "
                f"{block.nbytes} bytes; open it with the type and size it was made with"
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


def _receive() -> None:
    """In a forked child, which is a receiver of what its parent has: take its views instead of the parent's."""
    with moving:
        for storage in list(_of_view.values()):
            block, kind = shared_block(storage._region)
            # What cannot be had stays read-only, or the process cannot use shared memory at all.
            with contextlib.suppress(ShmTensorError):
                if block is not None and RECEIVED[kind] != kind:
                    storage._settle(block, RECEIVED[kind])


os.register_at_fork(after_in_child=_receive)
