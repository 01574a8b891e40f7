"""Changing the memory or the sizes of a tensor, in its storage or another one. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, tensor_advice, type_name
from ..storage import Storage
from ..storage.arguments import shape_from
from .core import Tensor, index_of, indices_of
from .dispatch import composed, export


@composed(function=False)
def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Become a view of another storage (all of it, unless sizes are given), or that of another tensor; returns self.

    Without arguments, become an empty tensor. Raises InvalidArgument: it would reach beyond the storage.
    """
    whole = size is None and stride is None and not storage_offset
    if isinstance(source, Tensor) and whole:
        other = source
    elif source is None:
        other = Tensor._construct((0,), self._array.dtype)
    elif isinstance(source, Storage | Tensor):
        storage = source if isinstance(source, Storage) else source.storage()
        first = index_of(storage_offset)
        shape = (len(storage) - first,) if size is None else indices_of(size)
        steps = _dense(shape) if stride is None else indices_of(stride, "strides")
        other = Tensor._rebuild(storage, first, shape, steps)
    else:
        raise DTypeError(f"set_ to a {type_name(source)}; give a storage or a tensor: {tensor_advice(source)}")
    self._array, self._storage, self._epoch = other._live(), other.storage(), other._epoch
    return self


@composed(function=False)
def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Change the sizes, dense, from the first element on; the storage grows if necessary. Returns self.

    New elements are arbitrary. Raises InvalidArgument: the storage cannot grow (shared memory, for example).
    """
    shape, nbytes = shape_from(sizes, self._array.itemsize)
    storage, offset = self.storage(), self.storage_offset()
    needed = offset * self._array.itemsize + nbytes
    if needed > storage.nbytes:
        storage.resize_(-(-needed // storage.element_size()))
    other = Tensor._rebuild(storage, offset, shape, _dense(shape), dtype=self._array.dtype)
    self._array, self._epoch = other._array, other._epoch
    return self


@composed(function=False)
def resize_as_(input: Tensor, the_template: Tensor) -> Tensor:
    """`resize_` to the sizes of another tensor; returns self. Raises as resize_ does."""
    return resize_(input, the_template.shape)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


__all__ = export(globals())
