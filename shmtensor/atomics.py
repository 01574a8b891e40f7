"""Atomic operations on elements of tensors, for counters, flags and sparse updates without locks (TH's THAtomic).

They work on any tensor; between processes on one that they share (`share_memory_()`). None of them blocks, and a
process that is killed in one leaves the element as it was before or after it. Only these functions are atomic:
`t[0] += 1` is not, and a plain read or write of the same element from elsewhere is in no order with them.

An `index` is an integer for a tensor of one axis, else a tuple with an integer for each axis; negative ones count from
the end. An `order` says what else becomes visible with an operation, as C++'s std::memory_order does:

* "relaxed": nothing; only the element itself is consistent (statistics, counters that are read at the end).
* "acquire" (what reads): whoever sees a value that was released sees all that its writer wrote before it.
* "release" (what writes): all that was written before is visible to who acquires the value.
* "acq_rel" (what does both): acquire and release.
* "seq_cst" (the default): that, and all such operations appear in one order to everybody.

Every function raises InvalidArgument for an index, order or value that cannot be (IndexOutOfRange where there is no
such element), DTypeError for elements or values of another type, LayoutError for memory that is not aligned or not
writable; nothing has been read or written then.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._tensor.core import Tensor, index_of
from .errors import DTypeError, IndexOutOfRange, InvalidArgument, tensor_advice, type_name

Index: TypeAlias = int | tuple[int, ...]
Order: TypeAlias = Literal["relaxed", "acquire", "release", "acq_rel", "seq_cst"]
LoadOrder: TypeAlias = Literal["relaxed", "acquire", "seq_cst"]
StoreOrder: TypeAlias = Literal["relaxed", "release", "seq_cst"]

_INDEX_TYPES: Final = "iu"  # kinds of dtype: integers, signed and not


def load(tensor: Tensor, index: Index, order: LoadOrder = "seq_cst") -> int:
    """The value of an int32 or int64 element. Does not block. Raises as the module says."""
    return _native.atomic_load(_array(tensor), index, order)


def store(tensor: Tensor, index: Index, value: int, order: StoreOrder = "seq_cst") -> None:
    """Set an int32 or int64 element. Does not block. Raises as the module says."""
    _native.atomic_store(_array(tensor), index, value, order)


def exchange(tensor: Tensor, index: Index, value: int, order: Order = "seq_cst") -> int:
    """Set an int32 or int64 element; gives the value before. Does not block. Raises as the module says."""
    return _native.atomic_exchange(_array(tensor), index, value, order)


def fetch_add(tensor: Tensor, index: Index, value: int, order: Order = "seq_cst") -> int:
    """Add to an int32 or int64 element; gives the value before. Does not block.

    Args:
        tensor: of int32 or int64.
        index: the element.
        value: in the range of the type, negative to subtract. A sum outside of it wraps around.
        order: of the read and the write.

    Raises:
        InvalidArgument, DTypeError, LayoutError: as the module says.
    """
    return _native.atomic_fetch_add(_array(tensor), index, value, order)


def compare_exchange(
    tensor: Tensor, index: Index, expected: int, desired: int, order: Order = "seq_cst"
) -> tuple[bool, int]:
    """Set an int32 or int64 element if it has the expected value. Does not block; never fails without cause.

    Args:
        tensor: of int32 or int64.
        index: the element.
        expected, desired: in the range of the type.
        order: where the value was the expected one; else the element is only read, in the reading half of `order`.

    Returns:
        (whether it was set, the value before).

    Raises:
        InvalidArgument, DTypeError, LayoutError: as the module says.
    """
    return _native.atomic_compare_exchange(_array(tensor), index, expected, desired, order)


def add_(tensor: Tensor, index: Index, value: float) -> Tensor:
    """Add to a float32 or float64 element, in the order "seq_cst"; gives the tensor. Does not block.

    Each addition rounds by itself, so that the sum depends on the order of additions as any sum of floats does.
    Raises as the module says.
    """
    _native.atomic_add(_array(tensor), index, value)
    return tensor


def index_add_atomic_(tensor: Tensor, dim: int, index: Any, source: Tensor, alpha: float = 1) -> Tensor:
    """Add slices of `source` to the slices of `tensor` that `index` names, each element atomically; gives the tensor.

    `tensor.select(dim, index[i]) += alpha * source.select(dim, i)` for every i, as torch's `index_add_`, which may run
    in many processes and threads at once: no addition is lost. A slice as a whole is not atomic, and the order is
    "relaxed": let another operation (a queue, a lock, a "release" store) say when the sums are complete. Does not
    block; lets other threads run during large ones.

    Args:
        tensor: of int32, int64, float32 or float64, with at least one axis.
        dim: the axis; negative ones count from the end.
        index: integers from 0, in a tensor, array or list of one axis, in any order and with repetitions.
        source: of the same type and sizes as `tensor`, but with one slice for each index along `dim`. Where it overlaps
            with `tensor`, the values are those from before.
        alpha: factor; an integer for integer tensors, whose products and sums wrap around.

    Raises:
        InvalidArgument: sizes that do not match, or an index that is no list of integers.
        IndexOutOfRange: an entry of the index, or `dim`, that is not there; nothing was added.
        DTypeError: a type that is not allowed, or two that differ.
        LayoutError: memory that is not aligned or not writable.
    """
    out = _array(tensor)
    added = _array(source)
    axis = index_of(dim)
    for array in (out, added):
        if not -array.ndim <= axis < array.ndim:
            raise IndexOutOfRange(f"asked for axis {dim} of a tensor of shape {array.shape}, which has {array.ndim}")
    if axis < 0 or axis:
        out, added = np.moveaxis(out, axis, 0), np.moveaxis(added, axis, 0)
    if np.may_share_memory(out, added):
        added = added.copy()
    _native.atomic_index_add(out, _index_array(index), added, alpha)
    return tensor


def _index_array(index: Any) -> NDArray[np.int64]:
    try:
        array = index._live() if isinstance(index, Tensor) else np.asarray(index)
    except ValueError as error:
        raise InvalidArgument(f"the index is no list of integers: {error}") from error
    if array.size == 0 and not hasattr(index, "dtype"):  # [] has no type of its own
        array = array.astype(np.int64)
    if array.dtype.kind not in _INDEX_TYPES:
        raise DTypeError(f"the index has {array.dtype}; use integers, int64 at best")
    return array.astype(np.int64, copy=False)


def _array(tensor: Tensor) -> NDArray[Any]:
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"atomic operations are on a Tensor, not on {type_name(tensor)}; {tensor_advice(tensor)}")
    return tensor._live()
