"""Properties and conversions of storages: type, device, bytes (torch's names). Only copies between devices block."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._loading import load
from ..devices import CPU, Device, device_of, of_array
from ..dtypes import BY_DTYPE, NumpyType, dtype_of, named
from ..errors import InvalidArgument
from .base import StorageBase
from .regions import StorageFlags


class Kinds(StorageBase):
    """The part of Storage with its properties and conversions."""

    __slots__ = ()

    def new(self, *content: Any, **how: Any) -> Self:
        """Create a storage of the same class: `storage.new(5)`, `storage.new([1, 2])`; without content, an empty one.

        Raises as the class.
        """
        return self.__class__(*content, **how)

    def to(self, dtype: Any) -> Any:
        """Return this storage if it has that type, else a converted copy in private memory. Does not block.

        The methods `byte()`, `float()` and so on do the same for each type.

        Raises:
            DTypeError: an unknown type.
            OutOfMemory: no memory.
        """
        made = self._class_of(dtype_of(dtype))
        return self if made is self.__class__ else made(self.size()).copy_(self)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Return the name of its class, such as 'shmtensor.FloatStorage'; with a type, return `to(dtype)`.

        Args:
            dtype: a type, a class such as `shmtensor.FloatStorage`, or the name of such a class.
            non_blocking: has no effect.

        Raises:
            DTypeError: an unknown type.
        """
        if dtype is None:
            place = "cuda." if self._is_on_device() else ""
            return f"shmtensor.{place}{BY_DTYPE[self._dtype].prefix}Storage"
        return self.to(_type_named(dtype))

    def untyped(self) -> Any:
        """Return the bytes of this storage: a ByteStorage that is a VIEW of it, and the same object while it is alive.

        It has this storage's handles (`_share_fd_`, `_share_filename_`) with sizes in bytes, and `share_memory_` of
        either one moves both.
        """
        if self._dtype == np.uint8:
            return self
        root, first = self._root()
        for part in root._living_views():
            if part._dtype == np.uint8 and part._root()[1] == first and part.nbytes == self.nbytes:
                return part
        return self._section(0, self.nbytes, dtype_of("uint8"))

    def resizable(self) -> bool:
        """Whether `resize_` is allowed."""
        return bool(self._flags & StorageFlags.RESIZABLE)

    # -- device -------------------------------------------------------------------------------------------------------

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return of_array(self._flat) if self._is_on_device() else CPU

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is a GPU's."""
        return self._is_on_device()

    def get_device(self) -> int:
        """Return the number of its GPU; -1: it is in the processor's memory."""
        return int(self._flat.device.id) if self._is_on_device() else -1  # type: ignore[attr-defined]

    def cpu(self) -> Self:
        """Return this storage if it is in the processor's memory, else a copy there. Blocks until that is done."""
        if not self._is_on_device():
            return self
        return type(self)(load("gpu.arrays").to_host(self._flat))

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Self:
        """Return this storage if it is on that GPU, else a copy there.

        Args:
            device: a GPU, or its number; None: the current one.
            non_blocking: do not wait for a copy from pinned memory.

        Raises:
            DeviceUnavailable: no GPU can be used; the message says why.
            InvalidArgument: there is no such GPU.
            OutOfMemory: it has no memory left.
        """
        target = device_of("cuda" if device is None else device)
        if target is CPU:
            raise InvalidArgument(f"cuda({device!r}): give a GPU, or use cpu()")
        if self.device == target:
            return self
        flat = load("gpu.arrays").to_device(self._flat, target.index, non_blocking)
        return self._over_device(flat)  # type: ignore[return-value]


def _type_named(spec: Any) -> NumpyType:
    """Return the type that a type, a storage class or the name of a storage class means. Raises DTypeError."""
    if isinstance(spec, type) and issubclass(spec, StorageBase):
        return spec._typed()._dtype
    return named(spec, "Storage")
