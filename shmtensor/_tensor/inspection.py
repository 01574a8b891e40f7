"""What types can do, and what this namespace has: the array API's questions. Nothing in this module blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..devices import CPU, device_of
from ..dtypes import BY_DTYPE, DEFAULT, DType, dtype_of, require_supported
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import MAX_AXES
from .core import Tensor
from .dispatch import Array, Module, Result, composed, export, operation

API_VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""Versions of the array API that this library follows."""
__array_api_version__: Final = API_VERSIONS[-1]
e: Final = math.e
pi: Final = math.pi
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None

KINDS: Final[dict[str, str]] = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "c", "numeric": "iufc",
}  # fmt: skip
"""The array API's kinds of types, as NumPy's letters."""


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """What `finfo` gives."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntInfo:
    """What `iinfo` gives."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype(spec: Any) -> DType:
    return spec._array.dtype if isinstance(spec, Tensor) else dtype_of(spec)


@operation(result=Result.VIEW, method=False, fails="converting")
def astype(xp: Module, x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The values as another type, truncated where they must be. Raises DTypeError.

    Args:
        copy: False: itself, when it has the type already.
    """
    device_of(device)
    wanted = dtype_of(dtype)
    return x if not copy and x.dtype == wanted else x.astype(wanted)


@composed(method=False)
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether every value of a type (or a tensor's type) has its place in another. Raises DTypeError."""
    return np.can_cast(_dtype(from_), dtype_of(to))


@composed(method=False)
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that tensors, types and numbers promote to. Raises DTypeError."""
    parts = [one if isinstance(one, bool | int | float | complex) else _dtype(one) for one in arrays_and_dtypes]
    try:
        return require_supported(np.result_type(*parts))
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{arrays_and_dtypes} have no type in common: {error}") from error


@composed(method=False)
def promote_types(type1: Any, type2: Any, /) -> DType:
    """The type that two types promote to. Raises DTypeError."""
    return result_type(type1, type2)


@composed(method=False)
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of a kind: a name of the array API's, a type, or a tuple of these. Raises DTypeError."""
    found = dtype_of(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise DTypeError(f"{kind!r} is not a kind of types; there is {', '.join(KINDS)}")
        return ("f" if found.isbuiltin == 2 else found.kind) in KINDS[kind]
    return found == dtype_of(kind)


@composed(method=False)
def finfo(type: Any, /) -> FloatInfo:
    """Range and precision of a floating-point type, or of a tensor's, or of the parts of a complex one.

    Raises DTypeError: another kind of type.
    """
    dtype = _dtype(type)
    try:
        if dtype.isbuiltin == 2:
            import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

            info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call, unused-ignore]
        else:
            info = np.finfo(dtype)
    except ValueError as error:
        raise DTypeError(f"{dtype.name} is not a floating-point type; use iinfo") from error
    return FloatInfo(
        int(info.bits), float(info.eps), float(info.max), float(info.min), float(info.smallest_normal), info.dtype
    )


@composed(method=False)
def iinfo(type: Any, /) -> IntInfo:
    """Range of an integer type, or of a tensor's. Raises DTypeError: another kind of type."""
    dtype = _dtype(type)
    if dtype.kind not in "iu":
        raise DTypeError(f"{dtype.name} is not an integer type; use finfo")
    info = np.iinfo(dtype)
    return IntInfo(info.bits, int(info.max), int(info.min), dtype)


@composed(method=False)
def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


class NamespaceInfo:
    """What `__array_namespace_info__()` gives."""

    def capabilities(self) -> dict[str, Any]:
        """What the array API leaves open."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_AXES}

    def default_device(self) -> Any:
        """Where tensors are made when nothing is said."""
        return CPU

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The types of tensors when nothing is said. Raises InvalidArgument: no such device."""
        device_of(device)
        whole = np.dtype(np.int64)
        return {
            "real floating": DEFAULT, "complex floating": np.dtype(np.complex64), "integral": whole, "indexing": whole,
        }  # fmt: skip

    def devices(self) -> tuple[Any, ...]:
        """Where tensors can be."""
        return (CPU,)

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The array API's types by their names, of all kinds or some. Raises InvalidArgument: no such device."""
        device_of(device)
        return {
            dtype.name: dtype
            for dtype in list(BY_DTYPE)
            if dtype.isbuiltin == 1 and dtype != np.float16 and (kind is None or isdtype(dtype, kind))
        }


@composed(method=False)
def __array_namespace_info__() -> NamespaceInfo:
    """What this namespace can do."""
    return NamespaceInfo()


@composed(function=False)
def __array_namespace__(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The module `shmtensor.array_api`. Raises InvalidArgument: not in this version."""
    from .._loading import load

    if api_version is not None and api_version not in API_VERSIONS:
        raise InvalidArgument(f"array API {api_version!r} was asked for; there is {', '.join(API_VERSIONS)}")
    return load("array_api")


__all__ = sorted([*export(globals()), "__array_api_version__", "e", "inf", "nan", "newaxis", "pi"])
