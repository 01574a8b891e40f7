"""Inspection of types and of the namespace, as in the array API. Nothing in this module blocks."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np

from ..devices import CPU, device_of
from ..dtypes import (
    BY_DTYPE,
    DTYPES,
    DType,
    NumpyType,
    category_of,
    default_complex,
    default_float,
    dtype_of,
    is_float,
    promoted,
)
from ..errors import DTypeError, InvalidArgument
from ..storage.arguments import MAX_AXES
from .core import Tensor, array_of
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


class FloatInfo(NamedTuple):
    """The result of `finfo`."""

    resolution: float
    min: float
    max: float
    eps: float
    smallest_normal: float
    tiny: float
    dtype: str
    """Name of the type; of the parts of a complex one."""
    bits: int

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):.6g}' for name in names)}, dtype={self.dtype})"


class IntInfo(NamedTuple):
    """The result of `iinfo`."""

    min: int
    max: int
    dtype: str
    """Name of the type."""
    bits: int

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def _dtype(spec: Any) -> NumpyType:
    return spec._array.dtype if isinstance(spec, Tensor) else dtype_of(spec)


@operation(result=Result.VIEW, fails="converting", gradient=lambda g: g)
def astype(xp: Module, x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The values as another type, truncated where they must be. Raises DTypeError.

    Args:
        copy: False: itself, when it has the type already.
    """
    device_of(device)
    wanted = dtype_of(dtype)
    return x if not copy and x.dtype == wanted else x.astype(wanted)


@composed(method=False)
def can_cast(from_: Any, to: Any) -> bool:
    """Whether a type (or a tensor's type) may be converted to another in an operation, as in torch. Raises DTypeError.

    Complex numbers may not become real, floating-point ones integers, nor anything bool. Narrower types are allowed.
    """
    source, target = category_of(_dtype(from_)), category_of(_dtype(to))
    return not (source == 3 > target or (source == 2 and target == 1) or (source != 0 and target == 0))


@composed(method=False)
def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that tensors, types and numbers promote to. Raises DTypeError.

    As in torch integers take the type of a floating-point operand (int64 and float32: float32), and a Python number
    changes the type only if it is of a higher kind: then to int64, the default type or its complex type. Tensors
    without axes count like others, as in the array API.
    """
    numbers = [one for one in arrays_and_dtypes if isinstance(one, bool | int | float | complex)]
    dtypes = [_dtype(one) for one in arrays_and_dtypes if not isinstance(one, bool | int | float | complex)]
    if not arrays_and_dtypes:
        raise DTypeError("result_type of nothing; give tensors, types or numbers")
    found = reduce(promoted, dtypes) if dtypes else np.dtype(bool)
    for rank in sorted({category_of(_type_of(one)) for one in numbers}):
        if rank > category_of(found):
            width = found if category_of(found) == 2 else default_float()
            found = (np.dtype(np.int64), width, promoted(width, np.dtype(np.complex64)))[rank - 1]
    return DTYPES[found]


def _type_of(number: complex) -> NumpyType:
    return np.dtype(type(number))


@composed(method=False)
def promote_types(type1: Any, type2: Any) -> DType:
    """The type that two types promote to, as `result_type`. Raises DTypeError."""
    return DTYPES[promoted(dtype_of(type1), dtype_of(type2))]


@composed(method=False)
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a type is of a kind: a name of the array API's, a type, or a tuple of these. Raises DTypeError."""
    found = dtype_of(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise DTypeError(f"{kind!r} is not a kind of types; use one of {', '.join(KINDS)}")
        return ("f" if found.isbuiltin == 2 else found.kind) in KINDS[kind]
    return found == dtype_of(kind)


@composed(method=False)
def finfo(type: Any = None) -> FloatInfo:
    """Range and precision of a floating-point type, or of a tensor's, or of the parts of a complex one.

    Raises DTypeError: another kind of type.

    Args:
        type: default: the default type.
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
    smallest = float(info.smallest_normal)
    return FloatInfo(
        float(f"1e-{info.precision}"), float(info.min), float(info.max), float(info.eps), smallest, smallest,
        info.dtype.name, int(info.bits),
    )  # fmt: skip


@composed(method=False)
def iinfo(type: Any) -> IntInfo:
    """Range of an integer type, or of a tensor's. Raises DTypeError: another kind of type."""
    dtype = _dtype(type)
    if dtype.kind not in "iu":
        raise DTypeError(f"{dtype.name} is not an integer type; use finfo")
    info = np.iinfo(dtype)
    return IntInfo(int(info.min), int(info.max), dtype.name, info.bits)


@composed()
def is_floating_point(input: Tensor) -> bool:
    """Whether a tensor is of a floating-point type; complex ones are not. Raises DTypeError: not a tensor."""
    return is_float(array_of(input).dtype)


@composed()
def is_complex(input: Tensor) -> bool:
    """Whether a tensor is of a complex type. Raises DTypeError: not a tensor."""
    return array_of(input).dtype.kind == "c"


@composed()
def is_signed(input: Tensor) -> bool:
    """Whether the type of a tensor has negative numbers. Raises DTypeError: not a tensor."""
    return array_of(input).dtype.kind not in "bu"


@composed()
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element of a tensor is not zero.

    Raises DTypeError: not a tensor; InvalidArgument: several elements, or none.
    """
    a = array_of(input)
    if a.size != 1:
        raise InvalidArgument(f"is_nonzero of a tensor of shape {a.shape}; it takes one element: use any() or all()")
    return bool(a.item())


@composed()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape. Raises DTypeError: not tensors."""
    return array_of(input).shape == array_of(other).shape


@composed(method=False)
def is_tensor(obj: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(obj, Tensor)


class NamespaceInfo:
    """The result of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Properties that the array API leaves open."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_AXES}

    def default_device(self) -> Any:
        """The default device of new tensors."""
        return CPU

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The default types of new tensors. Raises InvalidArgument: no such device."""
        device_of(device)
        whole = DTYPES[np.dtype(np.int64)]
        return {
            "real floating": DTYPES[default_float()],
            "complex floating": DTYPES[default_complex()],
            "integral": whole,
            "indexing": whole,
        }

    def devices(self) -> tuple[Any, ...]:
        """Where tensors can be."""
        return (CPU,)

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The array API's types by their names, of all kinds or some. Raises InvalidArgument: no such device."""
        device_of(device)
        return {
            dtype.name: DTYPES[dtype]
            for dtype in list(BY_DTYPE)
            if dtype.isbuiltin == 1 and dtype != np.float16 and (kind is None or isdtype(dtype, kind))
        }


@composed(method=False)
def __array_namespace_info__() -> NamespaceInfo:
    """Information on this namespace."""
    return NamespaceInfo()


@composed(function=False)
def __array_namespace__(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The module `shmtensor.array_api`. Raises InvalidArgument: not in this version."""
    from .._loading import load

    if api_version is not None and api_version not in API_VERSIONS:
        raise InvalidArgument(f"array API {api_version!r} was asked for; use one of {', '.join(API_VERSIONS)}")
    return load("array_api")


__all__ = sorted([*export(globals()), "__array_api_version__", "e", "inf", "nan", "newaxis", "pi"])
