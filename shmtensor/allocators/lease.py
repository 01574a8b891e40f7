"""The lease: ties a region of any allocator to the arrays over it, so that it is freed after the last of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument, LayoutError, type_name
from .protocol import Allocator, Region


class Lease:
    """Base object of the arrays over one region; gives the region back to its allocator when the last has gone."""

    __slots__ = ("__array_interface__", "__weakref__", "_view", "allocator", "region")

    def __init__(self, allocator: Allocator, region: Region, view: memoryview, address: int) -> None:
        self.allocator = allocator
        self.region = region
        self._view = view
        # NumPy keeps the object that has this attribute as the base of the array it makes of it.
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (view.nbytes,), "data": (address, view.readonly),
        }  # fmt: skip

    def __del__(self) -> None:
        self._view.release()  # so that a mapping can be closed
        self.allocator.free(self.region)


def allocate_array(allocator: Allocator, nbytes: int) -> tuple[Region, NDArray[Any]]:
    """A region of `allocator` and an array of its first `nbytes` bytes, which gives it back when it has gone.

    Blocks only if the allocator does.

    Args:
        allocator: anything with malloc and free.
        nbytes: 0 or more. An allocator is asked for 0 bytes only where that is what it means, so 0 asks for 1.

    Raises:
        InvalidArgument: what the allocator gave is no buffer, too small, or not aligned to 8 bytes.
        LayoutError: it is not contiguous, or read-only and the allocator does not say so (by an attribute `readonly`).
        Whatever its malloc raises.
    """
    if not callable(getattr(allocator, "malloc", None)):
        raise InvalidArgument(f"{allocator!r} is no allocator; give an object with malloc and free, or None")
    region = allocator.malloc(nbytes or 1)
    try:
        return region, lease(allocator, region, nbytes)
    except BaseException:
        allocator.free(region)
        raise


def lease(allocator: Allocator, region: Region, nbytes: int) -> NDArray[Any]:
    """An array of the first `nbytes` bytes of a region that `allocator` gave, to which it goes back after the array.

    Does not block. Raises InvalidArgument and LayoutError as `allocate_array`; the region is the caller's then.
    """
    try:
        view = memoryview(region).cast("B")
        try:
            array = np.frombuffer(view, np.uint8)
        except BaseException:
            view.release()
            raise
        address = int(array.ctypes.data)
        problem: InvalidArgument | LayoutError | None = None
        if view.nbytes < nbytes:
            problem = InvalidArgument(
                f"the {_name(allocator)} allocator was asked for {nbytes} bytes and gave {view.nbytes}; mend its malloc"
            )
        elif view.readonly and not getattr(allocator, "readonly", False):
            problem = LayoutError(
                f"the {_name(allocator)} allocator gave read-only memory; a storage needs memory it can write"
            )
        elif address % 8:
            problem = InvalidArgument(
                f"the {_name(allocator)} allocator gave memory at {address:#x}; align it to 8 bytes (64 is better)"
            )
        del array
        if problem is not None:
            view.release()
            raise problem
    except TypeError as error:
        raise InvalidArgument(
            f"the {_name(allocator)} allocator gave a {type_name(region)}, which has no contiguous bytes; "
            "return an object with the buffer protocol"
        ) from error
    return np.asarray(Lease(allocator, region, view, address))[:nbytes]


def _name(allocator: Allocator) -> str:
    return str(getattr(allocator, "name", type(allocator).__name__))
