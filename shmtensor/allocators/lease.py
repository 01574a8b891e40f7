"""Leases, which free a region of an allocator after the last array over it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument, LayoutError, type_name
from .protocol import Allocator, Region


class Lease:
    """Base object of the arrays over one region. Frees the region after the last of them."""

    __slots__ = ("__array_interface__", "__weakref__", "_view", "allocator", "region")

    def __init__(self, allocator: Allocator, region: Region, view: memoryview, address: int) -> None:
        self.allocator: Allocator = allocator
        self.region: Any = region
        self._view = view
        # NumPy keeps the object that has this attribute as the base of the array it makes of it.
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "typestr": "|u1", "shape": (view.nbytes,), "data": (address, view.readonly),
        }  # fmt: skip

    def __del__(self) -> None:
        self._view.release()  # so that a mapping can be closed
        if self.region is not None:
            self.allocator.free(self.region)

    def resized(self, nbytes: int) -> Region:
        """Have the allocator resize the region, and give up the lease. Blocks only if the allocator does.

        No array over the region may be used afterwards: the old memory is freed.

        Raises:
            Exception: as the allocator's realloc; then nothing has changed.
        """
        self._view.release()  # some memory cannot be resized while a view of it exists
        try:
            region = self.allocator.realloc(self.region, nbytes or 1)
        except BaseException:
            self._view = memoryview(self.region).cast("B")
            raise
        self.region = None
        return region


def allocate_array(allocator: Allocator, nbytes: int) -> tuple[Region, NDArray[Any]]:
    """Allocate a region, and return it with an array of its first `nbytes` bytes.

    The region is freed after the last array over it.

    Blocks only if the allocator does.

    Args:
        allocator: an object with malloc and free.
        nbytes: at least 0; for 0, 1 byte is allocated.

    Raises:
        InvalidArgument: the region is not a buffer, too small, or not aligned to 8 bytes.
        LayoutError: the region is not contiguous, or read-only although the allocator's `readonly` is not True.
        Exception: as the allocator's malloc.
    """
    if not (callable(getattr(allocator, "malloc", None)) and callable(getattr(allocator, "free", None))):
        raise InvalidArgument(f"{allocator!r} is not an allocator; give an object with malloc and free, or None")
    region = allocator.malloc(nbytes or 1)
    try:
        return region, lease(allocator, region, nbytes)
    except BaseException:
        allocator.free(region)
        raise


def lease(allocator: Allocator, region: Region, nbytes: int) -> NDArray[Any]:
    """Return an array of the first `nbytes` bytes of a region, which `allocator` frees after the last array over it.

    Does not block. Raises InvalidArgument and LayoutError as `allocate_array`; then the caller still owns the region.
    """
    try:
        view = memoryview(region).cast("B")
    except (TypeError, ValueError, BufferError) as error:  # ValueError: a released memoryview
        raise InvalidArgument(
            f"the {_name(allocator)} allocator returned a {type_name(region)}, which has no contiguous bytes; "
            "return an object with the buffer protocol"
        ) from error
    try:
        array = np.frombuffer(view, np.uint8)
    except BaseException:
        view.release()
        raise
    address = int(array.ctypes.data)
    problem: InvalidArgument | LayoutError | None = None
    if view.nbytes < nbytes:
        problem = InvalidArgument(
            f"the {_name(allocator)} allocator returned {view.nbytes} bytes instead of {nbytes}; fix its malloc"
        )
    elif view.readonly and not getattr(allocator, "readonly", False):
        problem = LayoutError(
            f"the {_name(allocator)} allocator returned read-only memory; a storage needs writable memory"
        )
    elif address % 8:
        problem = InvalidArgument(
            f"the {_name(allocator)} allocator returned memory at {address:#x}; align it to 8 or, better, 64 bytes"
        )
    del array
    if problem is not None:
        view.release()
        raise problem
    return np.asarray(Lease(allocator, region, view, address))[:nbytes]


def _name(allocator: Allocator) -> str:
    return str(getattr(allocator, "name", type(allocator).__name__))
