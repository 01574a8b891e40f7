"""What a storage is, and other storages of its kind: type, device, bytes (torch's names). Nothing here blocks."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..devices import CPU, Device
from ..dtypes import BY_DTYPE, NumpyType, dtype_of, named
from ..errors import DeviceUnavailable
from .base import StorageBase
from .regions import StorageFlags


class Kinds(StorageBase):
    """The part of Storage that says what it is and converts it."""

    __slots__ = ()

    def new(self, *content: Any, **how: Any) -> Self:
        """Return what the storage's class makes: `storage.new(5)`, `storage.new([1, 2])`; an empty one without content.

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
        """Return the name of its class, such as 'shmtensor.FloatStorage'; with a type, `to` that.

        Args:
            dtype: a type, a class such as `shmtensor.FloatStorage`, or the name of such a class.
            non_blocking: has no effect.

        Raises:
            DTypeError: an unknown type.
        """
        if dtype is None:
            return f"shmtensor.{BY_DTYPE[self._dtype].prefix}Storage"
        return self.to(_type_named(dtype))

    def untyped(self) -> Any:
        """Return the bytes of this storage: a ByteStorage that is a VIEW of it; the same one while that is alive.

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
        return CPU

    @property
    def is_cuda(self) -> bool:
        """False: the memory is not a GPU's."""
        return False

    def get_device(self) -> int:
        """Return the number of its device: -1, for the CPU has none."""
        return -1

    def cpu(self) -> Self:
        """Return this storage, which is in the memory of the CPU."""
        return self

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Self:
        """Raise an error: this version has storages in the memory of the CPU only.

        Raises:
            DeviceUnavailable: always.
        """
        raise DeviceUnavailable(
            "cuda(): storages of shmtensor are in the memory of the CPU; have torch copy it to a GPU: "
            "torch.from_dlpack(shmtensor.Tensor(storage)).cuda()"
        )


def _type_named(spec: Any) -> NumpyType:
    """The type that a type, a class of storages or the name of such a class means. Raises DTypeError."""
    if isinstance(spec, type) and issubclass(spec, StorageBase):
        return spec._typed()._dtype
    return named(spec, "Storage")
