"""Functions that make tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._tensor import SETTLED, Tensor
from .allocators.default import out_of_heap
from .allocators.managed import allocate, allocate_array
from .conversion import array_from, empty_array, refused, shape_from
from .dtypes import BY_DTYPE, DEFAULT, DType, dtype_of
from .memory import checked_array

_new = object.__new__
_PLAIN = 1 << 40  # elements; larger sizes are looked at more closely


def from_numpy(array: NDArray[Any]) -> Tensor:
    """A tensor over the memory of an array, without a copy; each keeps it alive and sees the other's writes.

    Does not block. Each call makes a storage of its own, so `share_memory_` of one tensor does not move another that
    was made from the same array, nor the array.

    Args:
        array: any shape; writable, native byte order, strides non-negative multiples of the item size.

    Raises:
        DTypeError: no ndarray, or an object, structured, byte-swapped or unsupported dtype.
        LayoutError: read-only, or strides that a tensor cannot have; the message says to copy.
    """
    if type(array) is not np.ndarray or not array.flags.carray or array.dtype not in BY_DTYPE:
        view = checked_array(array)
    else:
        view = array.view()  # the caller may set shape or flags of its own object
    t = _new(Tensor)
    t._array = view
    t._storage = None
    t._epoch = 0
    t.requires_grad = False
    return t


def empty(*size: Any, dtype: Any = None, shared: bool = False, requires_grad: bool = False) -> Tensor:
    """A tensor of arbitrary content.

    Args:
        size: integers from 0, or one sequence of them.
        dtype: default float32.
        shared: in shared memory of this process's manager (the first one blocks until the manager is ready) instead of
            the heap.
        requires_grad: see Tensor.

    Raises:
        InvalidArgument: sizes that are negative or impossible.
        DTypeError: no such type.
        OutOfMemory: no memory, or a quota was reached.
        ManagerError: shared, and no manager can be reached or started.
    """
    kind = DEFAULT if dtype is None else dtype_of(dtype)
    shape: tuple[int, ...] = size
    if len(size) == 1 and type(size[0]) is int and 0 <= size[0] <= _PLAIN:  # most are
        nbytes = size[0] * kind.itemsize
    else:
        shape, nbytes = shape_from(size, kind.itemsize)
    t = _new(Tensor)
    t._array = allocate_array(nbytes, kind, shape) if shared else empty_array(shape, kind)
    t._storage = None
    t._epoch = SETTLED if shared else 0
    t.requires_grad = requires_grad
    return t


def zeros(*size: Any, dtype: Any = None, shared: bool = False, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros. Arguments, blocking and errors as `empty`."""
    if shared:
        return empty(*size, dtype=dtype, shared=True, requires_grad=requires_grad).zero_()
    kind = dtype_of(dtype)
    shape, nbytes = shape_from(size, kind.itemsize)
    try:
        t = _plain(np.zeros(shape, kind))
    except MemoryError as error:
        raise out_of_heap(nbytes) from error
    t.requires_grad = requires_grad
    return t


def ones(*size: Any, dtype: Any = None, shared: bool = False, requires_grad: bool = False) -> Tensor:
    """A tensor of ones. Arguments, blocking and errors as `empty`."""
    t = empty(*size, dtype=dtype, shared=shared, requires_grad=requires_grad)
    t._array.fill(1)
    return t


def full(size: Any, value: Any, dtype: Any = None, shared: bool = False, requires_grad: bool = False) -> Tensor:
    """A tensor of one value. Arguments, blocking and errors as `empty`.

    Args:
        size: an integer, or a sequence of them.
        dtype: default by the value: bool, int64 for integers, float32.

    Raises:
        InvalidArgument: also a value outside the range of the type.
    """
    if dtype is None:
        dtype = array_from(value, None).dtype
    t = empty(size, dtype=dtype, shared=shared, requires_grad=requires_grad)
    return t.fill_(value)


def tensor(data: Any, dtype: Any = None, shared: bool = False, requires_grad: bool = False) -> Tensor:
    """A tensor of a copy of values.

    Args:
        data: a number, nested sequences, an array or a tensor.
        dtype: default: an array's own, else bool, int64 for integers, float32.
        shared, requires_grad: as `empty`.

    Raises:
        InvalidArgument: ragged nesting, or values outside the range of the type.
        DTypeError: values that are no numbers, or of an unsupported type.
        OutOfMemory, ManagerError: as `empty`.
    """
    values = array_from(data, None if dtype is None else dtype_of(dtype))
    if shared:
        target = allocate(values.nbytes).array(values.dtype, values.shape)
        np.copyto(target, values)
        values = target
    t = _plain(values)
    t.requires_grad = requires_grad
    return t


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, shared: bool = False) -> Tensor:
    """Values from `start` (0 if only one is given) below `stop`, `step` apart.

    Default type int64 when all are integers, else float32. Errors as `tensor`.
    """
    if stop is None:
        start, stop = 0, start
    kind: DType | None = None if dtype is None else dtype_of(dtype)
    try:
        values: NDArray[Any] = np.arange(start, stop, step, dtype=kind)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise refused(error, f"arange({start!r}, {stop!r}, {step!r}) for", np.empty(0, kind)) from error
    except MemoryError as error:
        raise out_of_heap(int((stop - start) / step) * (kind.itemsize if kind else 8)) from error
    if kind is None and values.dtype.kind == "f":
        values = values.astype(DEFAULT)
    return tensor(values, shared=shared)


def _plain(array: NDArray[Any]) -> Tensor:
    t = _new(Tensor)
    t._array = array
    t._storage = None
    t._epoch = 0
    t.requires_grad = False
    return t
