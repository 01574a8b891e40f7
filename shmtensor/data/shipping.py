"""Arguments for workers that are not forked: large arrays are copied once for all of them.

A forked worker has the memory of its parent, and pages are copied on write. Other workers get the same: each array is
in shared memory once, and each worker maps it as private memory, whose pages are copied on write.
"""

from __future__ import annotations

import io
import pickle
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.creation import empty
from ..dtypes import BY_DTYPE
from ..errors import OutOfMemory

__all__ = ["Shipment"]

_LARGE: Final = 1 << 16
"""An array of at least this many bytes gets its own block."""


class Shipment:
    """A value that arrives in each process to which it is sent, with its large arrays copied once for all.

    Without enough shared memory, an array is sent by value.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._frozen: dict[int, tuple[NDArray[Any], Tensor]] = {}  # by the id of the array, which is stored with it

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        pickler = _Pickler(file, self._frozen)
        pickler.dump(self._value)
        return _opened, (file.getvalue(), pickler.others)


class _Pickler(pickle.Pickler):
    """Leaves out objects for which multiprocessing's pickler has reducers, such as tensors; they are sent apart."""

    def __init__(self, file: io.BytesIO, frozen: dict[int, tuple[NDArray[Any], Tensor]]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.others: list[Any] = []
        self._frozen = frozen
        self._special = frozenset(ForkingPickler._extra_reducers)  # type: ignore[attr-defined]

    def reducer_override(self, value: Any) -> Any:
        """Pickle arrays, and objects that are left out."""
        kind = type(value)
        if kind is np.ndarray:
            return self._array(value)
        return self._left_out(value) if kind in self._special else NotImplemented

    def _array(self, array: NDArray[Any]) -> Any:
        if array.nbytes < _LARGE or array.dtype not in BY_DTYPE:
            return NotImplemented
        by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
        found = self._frozen.get(id(array))
        if found is None:
            try:
                found = self._frozen[id(array)] = array, _frozen(array.T if by_columns else array)
            except OutOfMemory:
                return NotImplemented
        self.others.append(found[1])
        return _thawed, (len(self.others) - 1, by_columns)

    def _left_out(self, value: Any) -> Any:
        self.others.append(value)
        return _other, (len(self.others) - 1,)


_arriving = threading.local()


def _opened(data: bytes, others: list[Any]) -> Any:
    _arriving.others = others
    try:
        return pickle.loads(data)
    finally:
        del _arriving.others


def _other(place: int) -> Any:
    return _arriving.others[place]


def _frozen(array: NDArray[Any]) -> Tensor:
    tensor = empty(array.shape, dtype=array.dtype, shared=True)
    np.copyto(tensor._live(), array)
    return tensor.share_memory_(copy_on_write=True)


def _thawed(place: int, by_columns: bool) -> NDArray[Any]:
    array: NDArray[Any] = _other(place).numpy()
    return array.T if by_columns else array
