"""The element types: one table, from which storage classes, tensor classes and dtype objects are generated.

Each type is an attribute of this module with NumPy's name, a DType (`dtypes.float32`); the library itself computes with
`numpy.dtype`. Types that are not in the table are refused and never converted silently.

Some types come from another package, which is imported when such a type is used for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ._native import set_default_type
from .errors import DTypeError, MissingExtra
from .fixed import Fixed

NumpyType: TypeAlias = np.dtype[Any]
"""The types of arrays. Public types, such as `tensor.dtype`, are DType."""


class DType(Fixed):
    """An element type, such as `shmtensor.float32`. There is one object of each type; nothing here blocks.

    It is equal to the same type of NumPy (`np.dtype("float32")`, `np.float32`, `"float32"`), and NumPy's functions
    accept it in place of a `numpy.dtype`.
    """

    __slots__ = ("dtype", "is_complex", "is_floating_point", "is_signed", "itemsize", "kind", "name")

    name: str
    """NumPy's and torch's name: `"float32"`."""
    dtype: np.dtype[Any]
    """The `numpy.dtype`; NumPy asks for this attribute."""
    itemsize: int
    """Bytes of an element."""
    kind: str
    """NumPy's letter: `b` bool, `i` and `u` integers, `f` floating-point, `c` complex, `V` types of ml_dtypes."""
    is_floating_point: bool
    is_complex: bool
    is_signed: bool
    """Whether it has negative values; True for complex types."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        is_complex = dtype.kind == "c"
        is_real = dtype.kind == "f" or dtype.isbuiltin == 2
        self._fix(
            name=dtype.name, dtype=dtype, itemsize=dtype.itemsize, kind=dtype.kind, is_floating_point=is_real,
            is_complex=is_complex, is_signed=is_real or is_complex or dtype.kind == "i",
        )  # fmt: skip

    def to_real(self) -> DType:
        """Return the type of the parts of a complex type; other types return themselves."""
        return DTYPES[np.dtype(f"f{self.itemsize // 2}")] if self.is_complex else self

    def to_complex(self) -> DType:
        """Return the complex type with parts of this type, or wider. Raises DTypeError: integers, bool and float16."""
        if self.is_complex:
            return self
        if not self.is_floating_point or self.name == "float16":
            raise DTypeError(f"there is no complex type with parts of {self.name}; use float32 or float64")
        return DTYPES[np.dtype(np.complex128 if self.itemsize == 8 else np.complex64)]

    def __repr__(self) -> str:
        return f"shmtensor.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        if isinstance(other, np.dtype | str) or (isinstance(other, type) and issubclass(other, np.generic)):
            try:
                return self.dtype == other
            except TypeError:  # not the name of a type
                return False
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return _dtype_named, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: Any) -> DType:
        return self


dtype = DType
"""Its name in `shmtensor`."""


class ElementType(NamedTuple):
    """A row of the table: an element type of storages and tensors."""

    prefix: str
    """Prefix of class names: `Float` for FloatStorage and FloatTensor (TH's names)."""
    name: str
    """NumPy's and torch's name of the type."""
    method: str
    """The method that converts to it, as `storage.float()`."""
    package: str | None = None
    """The package with the type if NumPy lacks it; the extra has the same name with dashes."""

    @property
    def dtype(self) -> NumpyType:
        """NumPy's type, in the byte order of this machine. Raises MissingExtra without its package."""
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
"""All types. Types of another package are in BY_DTYPE once they have been used."""

ELEMENT_TYPES: Final = tuple(row for row in TABLE if row.package is None)
"""The types that are always available."""

BY_DTYPE: Final[dict[NumpyType, ElementType]] = {}
"""The row of each supported dtype. Byte-swapped dtypes differ from native ones, so they are not found here."""

DTYPES: Final[dict[NumpyType, DType]] = {}
"""The public DType of each of those."""

BY_NAME: Final[dict[str, ElementType]] = {row.name: row for row in TABLE}
BY_PREFIX: Final[dict[str, ElementType]] = {row.prefix: row for row in TABLE}

_loaded: dict[str, NumpyType] = {}  # by name
_known: dict[NumpyType, NumpyType] = {}  # the equal dtype without metadata
_makers: list[Callable[[ElementType], None]] = []
_loading = threading.RLock()


def _load(row: ElementType) -> NumpyType:
    """Load a type and create its classes."""
    source: Any = np
    if row.package is not None:
        try:
            source = import_module(row.package)
        except ImportError as error:
            raise MissingExtra(
                f"elements of {row.name} need the package {row.package}, which cannot be imported ({error}); "
                f"pip install 'shmtensor[{row.package.replace('_', '-')}]'"
            ) from error
    dtype: NumpyType = np.dtype(getattr(source, row.name))
    with _loading:
        if row.name not in _loaded:
            _loaded[row.name] = dtype
            DTYPES[dtype] = DType(dtype)
            for make in _makers:
                make(row)
            _known[dtype] = dtype
            BY_DTYPE[dtype] = row  # last, when its classes exist
    return _loaded[row.name]


def each_type(make: Callable[[ElementType], None]) -> None:
    """Call `make` for each loaded type, and for others when they are loaded. Does not block."""
    with _loading:
        for row in BY_DTYPE.values():
            make(row)
        _makers.append(make)


for _row in ELEMENT_TYPES:
    _load(_row)


def class_named(namespace: dict[str, Any], name: str, suffix: str) -> Any:
    """Return the generated class `name` of a module's `namespace`, for the module's `__getattr__`.

    Raises:
        AttributeError: no type has a class of this name.
        MissingExtra: the type needs a package that is not installed.
    """
    row = BY_PREFIX.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
    if row is None:
        raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
    _load(row)
    return namespace[name]


ALIASES: Final = {
    "bool_": "bool", "short": "int16", "int": "int32", "long": "int64", "half": "float16", "float": "float32",
    "double": "float64", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
"""Other names of types: torch's, and NumPy's `bool_`."""


def named(spec: Any, suffix: str) -> NumpyType:
    """Return the type of a type argument or of the name of a generated class, such as 'shmtensor.FloatTensor'.

    Args:
        spec: as for `dtype_of`, or the name of a class, optionally with the prefix `shmtensor.` or `torch.`.
        suffix: "Tensor" or "Storage".

    Raises:
        DTypeError: no such type or class.
    """
    if not isinstance(spec, str) or not spec.endswith(suffix):
        return dtype_of(spec)
    module, _, name = spec.rpartition(".")
    row = BY_PREFIX.get(name.removesuffix(suffix))
    if row is None or module not in ("", "shmtensor", "torch"):
        kind = suffix.lower()
        raise DTypeError(f"{spec!r} is not a class of {kind}s; give a name such as 'shmtensor.Float{suffix}'")
    return row.dtype


def __getattr__(name: str) -> DType:
    row = BY_NAME.get(ALIASES.get(name, name))
    if row is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return DTYPES[row.dtype]


def _dtype_named(name: str) -> DType:
    return DTYPES[BY_NAME[name].dtype]


# -- the default type --------------------------------------------------------------------------------------------------

DEFAULT: Final[NumpyType] = np.dtype(np.float32)
"""The type of a bare Storage, and of a bare Tensor unless the default is changed, as in TH and torch."""
default: NumpyType = DEFAULT
"""The type of new tensors of floating-point numbers; `set_default_dtype` changes it."""


def default_float() -> NumpyType:
    """Return the type of new tensors of floating-point numbers (`set_default_dtype`)."""
    return default


def default_complex() -> NumpyType:
    """Return the type of new tensors of complex numbers: complex128 if the default type is float64, else complex64."""
    return np.dtype(np.complex128 if default == np.float64 else np.complex64)


def get_default_dtype() -> DType:
    """Return the default type of new floating-point tensors: float32 unless it was changed."""
    return DTYPES[default]


def set_default_dtype(d: object) -> None:
    """Set the default type of new floating-point tensors. Does not block.

    Functions that create tensors use it in all threads, and integers become this type in arithmetic (`1 / x`, `sqrt`).

    Args:
        d: a floating-point type.

    Raises:
        DTypeError: `d` is not a floating-point type.
    """
    global default
    dtype = dtype_of(d)
    if not is_float(dtype):
        raise DTypeError(f"the default type cannot be {dtype.name}; use a floating-point type such as float32")
    set_default_type(dtype)
    default = dtype


def is_float(dtype: NumpyType) -> bool:
    """Whether a supported type is floating-point, but not complex. Does not block."""
    return dtype.kind == "f" or dtype.isbuiltin == 2


# -- promotion of two types --------------------------------------------------------------------------------------------


def category_of(dtype: NumpyType) -> int:
    """Return the rank of a supported type in promotion: 0 bool, 1 integers, 2 floating-point, 3 complex types."""
    return 2 if dtype.isbuiltin == 2 else {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[dtype.kind]


def promoted(first: NumpyType, second: NumpyType) -> NumpyType:
    """Return the promoted type of two types, as in torch. Does not block.

    The type of the higher category wins, regardless of the width of the other: int64 and float16 give float16. Within a
    category NumPy's rule applies. A complex type becomes as wide as the other, floating-point type.

    Raises:
        DTypeError: NumPy has no type for both.
    """
    if first == second:
        return first
    ranks = category_of(first), category_of(second)
    if ranks[0] != ranks[1] and min(ranks) < 2:
        return first if ranks[0] > ranks[1] else second
    if ranks in ((2, 3), (3, 2)):
        part, whole = (first, second) if ranks[0] == 2 else (second, first)
        return np.dtype(np.complex128) if part.itemsize == 8 else whole
    try:
        return require_supported(np.result_type(first, second))
    except TypeError as error:
        raise DTypeError(f"{first.name} and {second.name} have no type in common: {error}") from error


def supported_names() -> str:
    """Return the names of all supported types, for messages. Does not block."""
    return ", ".join(BY_NAME)


def dtype_of(spec: object) -> NumpyType:
    """Return NumPy's type for `spec`, if it is supported. Does not block.

    Args:
        spec: a DType, anything that `numpy.dtype` accepts (a NumPy scalar type, `"float32"`,
            `float`), or None for the default type (`get_default_dtype`).

    Returns:
        The dtype, which is in the table.

    Raises:
        DTypeError: `spec` is not a type, or not in the table (object, structured, byte-swapped, ...).
        MissingExtra: the type needs a package that is not installed.
    """
    if isinstance(spec, DType):
        return spec.dtype
    if spec is None:
        return default
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec].dtype
    try:
        dtype = np.dtype(spec)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:  # ValueError: an object with another library's `dtype`
        raise DTypeError(f"{spec!r} is not a dtype; use one of {supported_names()}") from error
    return require_supported(dtype)


def require_supported(dtype: NumpyType) -> NumpyType:
    """Return `dtype` without metadata if it is in the table. Does not block.

    Raises:
        DTypeError: it is not in the table; the message has the kind of type and advice for a conversion.
    """
    known = _known.get(dtype)
    if known is not None:
        return known
    row = BY_NAME.get(dtype.name)  # a type of a package that is not imported yet
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


def require_same(asked: object, have: NumpyType, what: str) -> None:
    """Raise DTypeError, with both types, unless `asked` is the type `have` of `what`. Does not block."""
    wanted = dtype_of(asked)
    if wanted != have:
        raise DTypeError(f"{what} has type {have.name}, not {wanted.name}; use that type, or convert with to()")
