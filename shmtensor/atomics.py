"""Atomic operations on elements of tensors, for counters, flags and sparse updates without locks (TH's THAtomic).

They work on any tensor, and between processes on shared tensors (`share_memory_()`). No function blocks. If a process
is killed during an operation, the element has its value from before or after it. Only these functions are atomic:
`t[0] += 1` is not, and plain reads and writes of the same element are not ordered with them.

An `index` is an integer for a tensor of one axis, else a tuple with an integer for each axis; negative integers count
from the end. An `order` determines which other memory accesses become visible, as C++'s std::memory_order:

* "relaxed": none; only the element itself is consistent (statistics, counters that are read at the end).
* "acquire" (for reads): after reading a released value, everything that its writer wrote before is visible.
* "release" (for writes): everything written before is visible to processes that acquire the value.
* "acq_rel" (for both): acquire and release.
* "seq_cst" (the default): acq_rel, and all such operations have one order for all processes.

Every function raises InvalidArgument for an invalid index, order or value (IndexOutOfRange if the element does not
exist), DTypeError for elements or values of another type, LayoutError for memory that is not aligned or not writable.
Then nothing has been read or written.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._tensor.core import Tensor, index_of
from .errors import DTypeError, GradientError, IndexOutOfRange, InvalidArgument, tensor_advice, type_name

Index: TypeAlias = int | tuple[int, ...]
Order: TypeAlias = Literal["relaxed", "acquire", "release", "acq_rel", "seq_cst"]
LoadOrder: TypeAlias = Literal["relaxed", "acquire", "seq_cst"]
StoreOrder: TypeAlias = Literal["relaxed", "release", "seq_cst"]

_INDEX_TYPES: Final = "iu"  # kinds of dtype: signed and unsigned integers


def load(tensor: Tensor, index: Index, order: LoadOrder = "seq_cst") -> int:
    """Return the value of an int32 or int64 element. Raises as described above."""
    return _native.atomic_load(_array(tensor), index, order)


def store(tensor: Tensor, index: Index, value: int, order: StoreOrder = "seq_cst") -> None:
    """Set an int32 or int64 element. Raises as described above."""
    _native.atomic_store(_array(tensor), index, value, order)


def exchange(tensor: Tensor, index: Index, value: int, order: Order = "seq_cst") -> int:
    """Set an int32 or int64 element. Returns the previous value. Raises as described above."""
    return _native.atomic_exchange(_array(tensor), index, value, order)


def fetch_add(tensor: Tensor, index: Index, value: int, order: Order = "seq_cst") -> int:
    """Add to an int32 or int64 element. Returns the previous value.

    Args:
        tensor: a tensor of int32 or int64.
        index: the element.
        value: in the range of the type; negative to subtract. Sums out of range wrap around.
        order: order of the read and the write.

    Raises:
        InvalidArgument, DTypeError, LayoutError: as described above.
    """
    return _native.atomic_fetch_add(_array(tensor), index, value, order)


def compare_exchange(
    tensor: Tensor, index: Index, expected: int, desired: int, order: Order = "seq_cst"
) -> tuple[bool, int]:
    """Set an int32 or int64 element if it has the expected value. Never fails spuriously.

    Args:
        tensor: a tensor of int32 or int64.
        index: the element.
        expected: the value to compare with.
        desired: the value to set.
        order: the order if the element is set; otherwise it is only read, with the read part of `order`.

    Returns:
        (whether it was set, the previous value).

    Raises:
        InvalidArgument, DTypeError, LayoutError: as described above.
    """
    return _native.atomic_compare_exchange(_array(tensor), index, expected, desired, order)


def add_(tensor: Tensor, index: Index, value: float) -> Tensor:
    """Add to a float32 or float64 element, in the order "seq_cst". Returns the tensor.

    Each addition rounds, so the sum depends on the order of additions. Raises as described above.
    """
    _native.atomic_add(_array(tensor), index, value)
    return tensor


def index_add_atomic_(tensor: Tensor, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
    """Add slices of `source` to slices of `tensor`, each element atomically. Returns the tensor.

    `tensor.select(dim, index[i]) += alpha * source.select(dim, i)` for every i, as torch's `index_add_`. It may run in
    several processes and threads at once without losing additions. A slice as a whole is not atomic, and the order is
    "relaxed": use another operation (a queue, a lock, a "release" store) to tell when the sums are complete. Releases
    the GIL for large tensors.

    Args:
        tensor: a tensor of int32, int64, float32 or float64, with at least one axis.
        dim: the axis; a negative number counts from the end.
        index: integers of at least 0, in a tensor, array or list of one axis, in any order and with repetitions.
        source: of the type and sizes of `tensor`, but with one slice for each index along `dim`. If it overlaps
            `tensor`, its values from before the call are used.
        alpha: factor; an integer for integer tensors, whose products and sums wrap around.

    Raises:
        InvalidArgument: sizes that do not match, or an index that is not a list of integers.
        IndexOutOfRange: an entry of the index, or `dim`, is out of range; nothing was added.
        DTypeError: an unsupported type, or types that differ.
        LayoutError: the memory is not aligned or not writable.
        GradientError: a gradient would be recorded for one of the tensors.
    """
    out = _array(tensor)
    added = _array(source)
    if _native.is_recorded((tensor, source)):
        raise GradientError(
            "index_add_atomic_ with a tensor that requires grad; it records no gradients: use index_add_, or no_grad()"
        )
    axis = index_of(dim)
    for array in (out, added):
        if not -array.ndim <= axis < array.ndim:
            raise IndexOutOfRange(
                f"asked for axis {dim} of a tensor of shape {array.shape}, which has {array.ndim}; "
                f"use {-array.ndim} to {array.ndim - 1}"
            )
    if axis < 0 or axis:
        out, added = np.moveaxis(out, axis, 0), np.moveaxis(added, axis, 0)
    if np.may_share_memory(out, added):
        added = added.copy()
    _native.atomic_index_add(out, _index_array(index), added, alpha)
    _native.count_change(tensor)
    return tensor


def _index_array(index: Any) -> NDArray[np.int64]:
    try:
        array = index._live() if isinstance(index, Tensor) else np.asarray(index)
    except ValueError as error:
        raise InvalidArgument(f"the index is not a list of integers: {error}") from error
    if array.size == 0 and not hasattr(index, "dtype"):  # [] has no type
        array = array.astype(np.int64)
    if array.dtype.kind not in _INDEX_TYPES:
        raise DTypeError(f"the index must contain integers, preferably int64, not {array.dtype}")
    return array.astype(np.int64, copy=False)


def _array(tensor: Tensor) -> NDArray[Any]:
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"atomic operations need a Tensor, not {type_name(tensor)}; {tensor_advice(tensor)}")
    return tensor._live()
