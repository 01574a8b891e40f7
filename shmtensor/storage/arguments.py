"""From what callers write to shapes, arrays and errors: the checks that tensors and creation functions share."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._native import overlaps
from ..allocators.default import again
from ..allocators.protocol import MAX_BYTES
from ..dtypes import DEFAULT, DType, require_supported
from ..errors import DTypeError, InvalidArgument, LayoutError

SEQUENCES: Final = (tuple, list)
INTEGERS: Final = (int, np.integer)
MAX_AXES: Final = 64
"""Axes of an array at most: NumPy's bound."""


def integer(value: Any) -> int:
    """An integer, of whatever class but bool. Does not block. Raises TypeError."""
    if isinstance(value, bool):
        raise TypeError("a truth value is no number of anything")
    return operator.index(value)


def shape_from(sizes: tuple[Any, ...], itemsize: int) -> tuple[tuple[int, ...], int]:
    """The shape that `f(*sizes)` or `f(sizes)` means, and its bytes. Does not block.

    Args:
        sizes: integers from 0, or one sequence of them.
        itemsize: bytes of an element.

    Raises:
        InvalidArgument: a size that is no integer or negative, or more bytes than can exist.
    """
    if len(sizes) == 1 and type(sizes[0]) is not int and isinstance(sizes[0], SEQUENCES):
        sizes = tuple(sizes[0])
    nbytes = bound = itemsize
    for size in sizes:
        if type(size) is not int:
            return shape_from(_integers(sizes), itemsize)
        if size < 0:
            raise InvalidArgument(f"sizes {sizes} have a negative one; give sizes from 0")
        nbytes *= size
        # Axes count even beside an empty one: NumPy refuses such arrays too.
        bound *= size or 1
    if bound > MAX_BYTES:
        raise InvalidArgument(
            f"sizes {sizes} with {itemsize} bytes an element are {bound} bytes; at most {MAX_BYTES} can exist"
        )
    check_axes(len(sizes))
    return sizes, nbytes


def check_axes(count: int) -> None:
    """Raises InvalidArgument for more axes than an array can have. Does not block."""
    if count > MAX_AXES:
        raise InvalidArgument(f"{count} axes were asked for; there can be {MAX_AXES}")


def _integers(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    try:
        return tuple([integer(size) for size in sizes])
    except TypeError:
        raise InvalidArgument(f"sizes {sizes} are not all integers; give integers or one tuple of them") from None


def view_shape(sizes: tuple[Any, ...], array: NDArray[Any]) -> tuple[int, ...]:
    """The shape that `view(*sizes)` or `view(sizes)` means for `array`, with -1 resolved. Does not block.

    Raises:
        InvalidArgument: sizes that do not multiply to the number of elements, or leave -1 open; too many of them.
    """
    if len(sizes) == 1 and isinstance(sizes[0], SEQUENCES):
        sizes = tuple(sizes[0])
    known = 1
    for size in sizes:
        if type(size) is not int or size < 0:
            break
        known *= size
    else:
        if known == array.size and len(sizes) <= MAX_AXES:
            return sizes
    shape = _integers(sizes)
    check_axes(len(shape))
    known = 1
    unknown = None
    for axis, size in enumerate(shape):
        if size >= 0:
            known *= size
        elif size == -1 and unknown is None:
            unknown = axis
        else:
            raise InvalidArgument(f"a view of shape {shape}: sizes are from 0, and -1 once")
    if unknown is not None and known and array.size % known == 0:
        shape = (*shape[:unknown], array.size // known, *shape[unknown + 1 :])
    elif unknown is not None or known != array.size:
        raise InvalidArgument(
            f"a view of shape {shape} was asked of a tensor of shape {array.shape} ({array.size} elements); "
            "the sizes must multiply to that number"
        )
    return shape


def empty_array(shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
    """An uninitialised heap array. Does not block. Raises OutOfMemory."""
    try:
        return np.empty(shape, dtype)
    except MemoryError as error:
        return again(partial(np.empty, shape, dtype), math.prod(shape) * dtype.itemsize, error)


def array_from(content: Any, dtype: DType | None) -> NDArray[Any]:
    """A fresh array of the values of `content`, of `dtype` or of the type that they have.

    Python floats (and nested lists of them) have the default type, float32; complex numbers complex64.

    Raises:
        InvalidArgument: ragged nesting, or values outside the range of the type.
        DTypeError: values that are no numbers, or of a type that is not supported.
    """
    try:
        if hasattr(content, "__array__"):
            found = np.asarray(content)
            require_supported(found.dtype)
            return np.array(found, dtype, order="C")
        array = np.array(content, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        if isinstance(error, DTypeError):
            raise
        ragged = isinstance(error, OverflowError) or "inhomogeneous" in str(error)
        kind = InvalidArgument if ragged else DTypeError
        raise kind(f"these values make no tensor of {dtype.name if dtype else 'numbers'}: {error}") from error
    if dtype is None and array.dtype.char in "dD" and not _has_types(content):
        return array.astype(DEFAULT if array.dtype.char == "d" else np.complex64)
    require_supported(array.dtype)
    return array


def _has_types(content: Any) -> bool:
    """Whether there are values in nested sequences that have a type of their own, which Python's numbers have not."""
    if isinstance(content, SEQUENCES):
        return any(_has_types(one) for one in content)
    return hasattr(content, "dtype")


def refused(error: Exception, doing: str, array: NDArray[Any]) -> InvalidArgument | DTypeError | LayoutError:
    """Our error for one of NumPy's: DTypeError for types, LayoutError for read-only memory, else InvalidArgument."""
    if "read-only" in str(error) and not array.flags.writeable:
        if overlaps(array):
            return LayoutError(
                f"{doing} a tensor of shape {array.shape} and strides {array.strides} bytes: several of its elements "
                "are the same memory, as expand() makes them; write to a clone()"
            )
        return read_only(f"{doing} a tensor of shape {array.shape} and dtype {array.dtype.name}")
    kind = DTypeError if isinstance(error, TypeError | AttributeError) else InvalidArgument
    return kind(f"{doing} a tensor of shape {array.shape} and dtype {array.dtype.name}: {error}")


def read_only(doing: str) -> LayoutError:
    """The error of a write to memory that this process cannot write."""
    return LayoutError(
        f"{doing}: this memory is read-only here, because it was shared readonly or copy_on_write, came so over "
        "DLPack, or is of a file that was mapped so; change a clone()"
    )
