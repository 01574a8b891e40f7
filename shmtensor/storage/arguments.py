"""Checks and conversions of arguments: shapes, arrays, and errors from NumPy's exceptions."""

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
from ..dtypes import NumpyType, default_complex, default_float, require_supported
from ..errors import DTypeError, InvalidArgument, LayoutError, ShmTensorError

SEQUENCES: Final = (tuple, list)
INTEGERS: Final = (int, np.integer)
MAX_AXES: Final = 64
"""Maximum number of axes, as in NumPy."""


def integer(value: Any) -> int:
    """Convert an integer of any class except bool to int. Does not block. Raises TypeError."""
    if isinstance(value, bool):
        raise TypeError("bool is not an integer")
    return operator.index(value)


def require_integer(
    name: str, value: Any, least: int | None = None, refusal: type[ShmTensorError] = InvalidArgument
) -> int:
    """Convert an argument to int, as `integer` does. Does not block.

    Args:
        name: name of the argument, for the message.
        value: an integer of any class except bool.
        least: the smallest one that is allowed; None: all are.
        refusal: the error for a value that is not an integer.

    Raises:
        InvalidArgument: less than `least`.
        refusal: not an integer.
    """
    bound = "" if least is None else f" of at least {least}"
    try:
        found = integer(value)
    except TypeError:
        raise refusal(f"{name} must be an integer{bound}, not {value!r}") from None
    if least is not None and found < least:
        raise InvalidArgument(f"{name} must be an integer{bound}, not {value!r}")
    return found


def shape_from(sizes: tuple[Any, ...], itemsize: int) -> tuple[tuple[int, ...], int]:
    """Return the shape that `f(*sizes)` or `f(sizes)` means, and its number of bytes. Does not block.

    Args:
        sizes: integers of at least 0, or one sequence of them.
        itemsize: bytes of an element.

    Raises:
        InvalidArgument: a size is negative or not an integer, or there are too many bytes.
    """
    if len(sizes) == 1 and type(sizes[0]) is not int and isinstance(sizes[0], SEQUENCES):
        sizes = tuple(sizes[0])
    nbytes = bound = itemsize
    for size in sizes:
        if type(size) is not int:
            return shape_from(_integers(sizes), itemsize)
        if size < 0:
            raise InvalidArgument(f"sizes must not be negative: {sizes}; give sizes from 0")
        nbytes *= size
        # Other axes count even if one is empty, as in NumPy.
        bound *= size or 1
    if bound > MAX_BYTES:
        raise InvalidArgument(
            f"sizes {sizes} with {itemsize} bytes per element need {bound} bytes; the maximum is {MAX_BYTES}"
        )
    check_axes(len(sizes))
    return sizes, nbytes


def check_axes(count: int) -> None:
    """Raise InvalidArgument for more axes than an array can have. Does not block."""
    if count > MAX_AXES:
        raise InvalidArgument(f"cannot have {count} axes; the maximum is {MAX_AXES}")


def _integers(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    try:
        return tuple([integer(size) for size in sizes])
    except TypeError:
        raise InvalidArgument(
            f"sizes must be integers or one tuple of them, not {sizes}; give a type as dtype="
        ) from None


def view_shape(sizes: tuple[Any, ...], array: NDArray[Any]) -> tuple[int, ...]:
    """Return the shape that `view(*sizes)` or `view(sizes)` means for `array`, with -1 resolved. Does not block.

    Raises:
        InvalidArgument: the sizes do not match the number of elements, -1 is ambiguous, or there are too many sizes.
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
            raise InvalidArgument(f"cannot view as shape {shape}: sizes must be at least 0, with at most one -1")
    if unknown is not None and known and array.size % known == 0:
        shape = (*shape[:unknown], array.size // known, *shape[unknown + 1 :])
    elif unknown is not None or known != array.size:
        raise InvalidArgument(
            f"cannot view a tensor of shape {array.shape} as shape {shape}: the product of the sizes must be "
            f"{array.size}"
        )
    return shape


def empty_array(shape: tuple[int, ...], dtype: NumpyType) -> NDArray[Any]:
    """Return an uninitialised array in private memory. Does not block. Raises OutOfMemory."""
    try:
        return np.empty(shape, dtype)
    except MemoryError as error:
        return again(partial(np.empty, shape, dtype), math.prod(shape) * dtype.itemsize, error)


def array_from(content: Any, dtype: NumpyType | None) -> NDArray[Any]:
    """Return a new array of the values of `content`, of type `dtype` or of their own type.

    Python floats, and nested lists of them, get the default type, float32; complex numbers get complex64.

    Raises:
        InvalidArgument: ragged nesting, or values out of the range of the type.
        DTypeError: values that are not numbers, or of an unsupported type.
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
        raise kind(f"cannot convert the values to a tensor of {dtype.name if dtype else 'numbers'}: {error}") from error
    if dtype is None and array.dtype.char in "dD" and not _has_types(content):
        return array.astype(default_float() if array.dtype.char == "d" else default_complex())
    require_supported(array.dtype)
    return array


def _has_types(content: Any) -> bool:
    """Whether nested sequences contain values with a dtype, which Python's numbers do not have."""
    if isinstance(content, SEQUENCES):
        return any(_has_types(one) for one in content)
    return hasattr(content, "dtype")


def is_writable(array: Any) -> bool:
    """Whether the elements of an array may be written. Those on a GPU always may."""
    return array.flags.writeable if isinstance(array, np.ndarray) else True


def refused(error: Exception, doing: str, array: NDArray[Any]) -> InvalidArgument | DTypeError | LayoutError:
    """Convert an error of NumPy: DTypeError for types, LayoutError for read-only memory, else InvalidArgument."""
    if "read-only" in str(error) and not is_writable(array):
        if overlaps(array):
            return LayoutError(
                f"{doing} a tensor of shape {array.shape} and strides {array.strides} bytes: several elements share "
                "memory, as after expand(); write to a clone()"
            )
        return read_only(f"{doing} a tensor of shape {array.shape} and dtype {array.dtype.name}")
    kind = DTypeError if isinstance(error, TypeError | AttributeError) else InvalidArgument
    return kind(f"{doing} a tensor of shape {array.shape} and dtype {array.dtype.name}: {error}")


def read_only(doing: str) -> LayoutError:
    """Return the error for a write to read-only memory."""
    return LayoutError(
        f"{doing}: the memory is read-only in this process, because it was shared with readonly or copy_on_write, "
        "imported as read-only over DLPack, or mapped read-only from a file; write to a clone()"
    )
