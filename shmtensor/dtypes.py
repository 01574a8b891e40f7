"""The element types: one table, from which storage classes, tensor classes and the dtype objects are generated.

A dtype object is a `numpy.dtype`, so that NumPy, and whatever understands NumPy, takes it as it is; each is an
attribute of this module by NumPy's name (`dtypes.float32`). A type that the table lacks is refused by name rather than
converted in silence.

Some types come from another package, which is imported when such a type is asked for first, or has been by whoever
made an array of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np

from .errors import DTypeError, MissingExtra

DType: TypeAlias = np.dtype[Any]
"""What `tensor.dtype` and `storage.dtype` are."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One row: a type that storages and tensors can have."""

    prefix: str
    """`Float` gives FloatStorage and FloatTensor (the names of TH)."""
    name: str
    """NumPy's name of the type, which is torch's too."""
    method: str
    """The method that converts to it: `storage.float()`."""
    package: str | None = None
    """The package that has the type, where NumPy has not; the extra's name is the same with dashes."""

    @property
    def dtype(self) -> DType:
        """The type, in the byte order of this machine. Raises MissingExtra without its package."""
        found = _loaded.get(self.name)
        return _load(self) if found is None else found


TABLE: Final = (
    ElementType("Byte", "uint8", "byte"),
    ElementType("Char", "int8", "char"),
    ElementType("Short", "int16", "short"),
    ElementType("Int", "int32", "int"),
    ElementType("Long", "int64", "long"),
    ElementType("Half", "float16", "half"),
    ElementType("Float", "float32", "float"),
    ElementType("Double", "float64", "double"),
    ElementType("Bool", "bool", "bool"),
    ElementType("UInt16", "uint16", "uint16"),
    ElementType("UInt32", "uint32", "uint32"),
    ElementType("UInt64", "uint64", "uint64"),
    ElementType("ComplexFloat", "complex64", "complex_float"),
    ElementType("ComplexDouble", "complex128", "complex_double"),
    ElementType("BFloat16", "bfloat16", "bfloat16", "ml_dtypes"),
    ElementType("Float8E4M3", "float8_e4m3fn", "float8_e4m3fn", "ml_dtypes"),
    ElementType("Float8E5M2", "float8_e5m2", "float8_e5m2", "ml_dtypes"),
)
"""Every type. Those of another package are in BY_DTYPE once they were needed."""

ELEMENT_TYPES: Final = tuple(row for row in TABLE if row.package is None)
"""The types that are always there."""

BY_DTYPE: Final[dict[DType, ElementType]] = {}
"""The row of a supported dtype. A byte-swapped dtype is not equal to its native one, so it is not found here."""

BY_NAME: Final[dict[str, ElementType]] = {row.name: row for row in TABLE}
BY_PREFIX: Final[dict[str, ElementType]] = {row.prefix: row for row in TABLE}

_loaded: dict[str, DType] = {}  # by name
_known: dict[DType, DType] = {}  # the one without metadata, which is equal
_makers: list[Callable[[ElementType], None]] = []
_loading = threading.RLock()


def _load(row: ElementType) -> DType:
    """Make a type known."""
    source: Any = np
    if row.package is not None:
        try:
            source = import_module(row.package)
        except ImportError as error:
            raise MissingExtra(
                f"elements of {row.name} need the package {row.package}, which cannot be imported ({error}); "
                f"pip install 'shmtensor[{row.package.replace('_', '-')}]'"
            ) from error
    dtype: DType = np.dtype(getattr(source, row.name))
    with _loading:
        if row.name not in _loaded:
            _loaded[row.name] = dtype
            for make in _makers:
                make(row)
            _known[dtype] = dtype
            BY_DTYPE[dtype] = row  # last: who finds it here finds its classes too
    return _loaded[row.name]


def each_type(make: Callable[[ElementType], None]) -> None:
    """Call `make` for every type that is there, and for each other one when it comes. Does not block."""
    with _loading:
        for row in BY_DTYPE.values():
            make(row)
        _makers.append(make)


for _row in ELEMENT_TYPES:
    _load(_row)


def class_named(namespace: dict[str, Any], name: str, suffix: str) -> Any:
    """The class `name` that a maker puts into its module's `namespace`: what a module's `__getattr__` answers.

    Raises:
        AttributeError: no type gives a class of this name. MissingExtra: one of a package that is not installed.
    """
    row = BY_PREFIX.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
    if row is None:
        raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
    _load(row)
    return namespace[name]


DEFAULT: Final[DType] = np.dtype(np.float32)
"""The type of a bare Storage or Tensor, as in TH and torch."""


def __getattr__(name: str) -> DType:
    row = BY_NAME.get("bool" if name == "bool_" else name)
    if row is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return row.dtype


def supported_names() -> str:
    """The names of all supported types, for messages. Does not block."""
    return ", ".join(BY_NAME)


def dtype_of(spec: object) -> DType:
    """The supported dtype that `spec` means.

    Does not block.

    Args:
        spec: a dtype object of this module, anything that `numpy.dtype` takes (a NumPy scalar type, `"float32"`,
            `float`), or None for the default type, float32.

    Returns:
        The dtype, always one of the table.

    Raises:
        DTypeError: `spec` names no type, or one that the table lacks (object, structured, byte-swapped ...).
        MissingExtra: a type of a package that is not installed.
    """
    if spec is None:
        return DEFAULT
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec].dtype
    try:
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:  # ValueError: an object with the `dtype` of another library
        raise DTypeError(f"{spec!r} is not a dtype; use one of {supported_names()}") from error
    return require_supported(dtype)


def require_supported(dtype: DType) -> DType:
    """`dtype` itself, without metadata, when the table has it.

    Does not block.

    Raises:
        DTypeError: the table lacks it; the message says which kind of type it is and what to convert it to.
    """
    known = _known.get(dtype)
    if known is not None:
        return known
    row = BY_NAME.get(dtype.name)  # of a package whose types nobody has asked us for yet
    if row is not None and row.dtype == dtype:
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


def require_same(asked: object, have: DType, what: str) -> None:
    """Nothing, when `asked` is the type that `what` has. Does not block. Raises DTypeError, which names both types."""
    wanted = dtype_of(asked)
    if wanted != have:
        raise DTypeError(
            f"asked for data of {wanted.name}, but {what} has {have.name}; ask for that, or convert with to()"
        )
