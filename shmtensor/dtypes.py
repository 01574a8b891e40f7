"""The element types: one table, from which storage classes, tensor classes and the dtype objects are generated.

A dtype object is a `numpy.dtype`, so that NumPy, and whatever understands NumPy, takes it as it is. A type that the
table lacks is refused by name rather than converted in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from .errors import DTypeError

DType: TypeAlias = np.dtype[Any]
"""What `tensor.dtype` and `storage.dtype` are."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One row: a type that storages and tensors can have."""

    prefix: str
    """`Float` gives FloatStorage and FloatTensor (the names of TH)."""
    dtype: DType
    """The NumPy type, in the byte order of this machine."""
    torch_name: str
    """The name of the type in torch, where it is not NumPy's."""


uint8: Final[DType] = np.dtype(np.uint8)
int8: Final[DType] = np.dtype(np.int8)
int16: Final[DType] = np.dtype(np.int16)
int32: Final[DType] = np.dtype(np.int32)
int64: Final[DType] = np.dtype(np.int64)
float16: Final[DType] = np.dtype(np.float16)
float32: Final[DType] = np.dtype(np.float32)
float64: Final[DType] = np.dtype(np.float64)
bool_: Final[DType] = np.dtype(np.bool_)
bool = bool_
uint16, uint32, uint64, complex64, complex128 = (
    np.dtype(n) for n in ("uint16", "uint32", "uint64", "complex64", "complex128")
)

ELEMENT_TYPES: Final[tuple[ElementType, ...]] = (
    ElementType("Byte", uint8, "uint8"),
    ElementType("Char", int8, "int8"),
    ElementType("Short", int16, "int16"),
    ElementType("Int", int32, "int32"),
    ElementType("Long", int64, "int64"),
    ElementType("Half", float16, "float16"),
    ElementType("Float", float32, "float32"),
    ElementType("Double", float64, "float64"),
    ElementType("Bool", bool_, "bool"),
    ElementType("UInt16", np.dtype("uint16"), "uint16"),
    ElementType("UInt32", np.dtype("uint32"), "uint32"),
    ElementType("UInt64", np.dtype("uint64"), "uint64"),
    ElementType("ComplexFloat", np.dtype("complex64"), "complex64"),
    ElementType("ComplexDouble", np.dtype("complex128"), "complex128"),
)

BY_DTYPE: Final[dict[DType, ElementType]] = {row.dtype: row for row in ELEMENT_TYPES}
"""The row of a supported dtype. A byte-swapped dtype is not equal to its native one, so it is not found here."""

DEFAULT: Final[DType] = float32
"""The type of a bare Storage or Tensor, as in TH and torch."""


def supported_names() -> str:
    """The names of all supported types, for messages. Does not block."""
    return ", ".join(row.dtype.name for row in ELEMENT_TYPES)


def dtype_of(spec: object) -> DType:
    """The supported dtype that `spec` means.

    Does not block.

    Args:
        spec: a dtype object of this module, anything that `numpy.dtype` takes (a NumPy scalar type, `"float32"`,
            `float`), or None for the default type, float32.

    Returns:
        The dtype, always one of the table.

    Raises:
        DTypeError: `spec` names no type, or one that the table lacks (object, structured, byte-swapped, complex ...).
    """
    if spec is None:
        return DEFAULT
    try:
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except TypeError as error:
        raise DTypeError(f"{spec!r} is not a dtype; use one of {supported_names()}") from error
    return require_supported(dtype)


def require_supported(dtype: DType) -> DType:
    """`dtype` itself, without metadata, when the table has it.

    Does not block.

    Raises:
        DTypeError: the table lacks it; the message says which kind of type it is and what to convert it to.
    """
    row = BY_DTYPE.get(dtype)
    if row is not None:
        return row.dtype
    if dtype.hasobject:
        found, advice = f"dtype {dtype} holds Python objects", "convert the values to a numeric dtype"
    elif dtype.names is not None:
        found, advice = f"dtype {dtype} is structured", "make one tensor of each field"
    elif not dtype.isnative:
        found, advice = f"dtype {dtype!r} has the other byte order", "use array.astype(array.dtype.newbyteorder('='))"
    else:
        found, advice = f"dtype {dtype} is not supported", "convert with array.astype"
    raise DTypeError(f"{found}; {advice}, to one of {supported_names()}")
