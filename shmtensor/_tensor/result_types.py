"""Element types of results, by torch's rules, and operands converted to these types.

A tensor with axes takes precedence over one without, and that over a Python number, unless the other is of a higher
category (bool, integer, floating-point, complex). Nothing in this module blocks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..dtypes import NumpyType, default_complex, default_float
from ..errors import DTypeError, InvalidArgument, type_name
from .dispatch import Array, Module, Operand

_CATEGORIES: Final = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}  # V: the types of ml_dtypes
_OF_NUMBERS: Final = (
    lambda: np.dtype(bool), lambda: np.dtype(np.int64), default_float, default_complex,
)  # fmt: skip
FLOATING: Final = 2
COMPLEX: Final = 3


def category(dtype: NumpyType) -> int:
    """0 for bool, 1 for integers, 2 for floating-point numbers, 3 for complex ones. Raises DTypeError: not numbers."""
    found = _CATEGORIES.get(dtype.kind)
    if found is None:
        raise DTypeError(
            f"an operand of NumPy's type {dtype}; give tensors, and numbers from {-(2**63)} to {2**64 - 1}"
        )
    return found


def common_type(*operands: Operand) -> NumpyType:
    """The type of the result of an operation on arrays, numbers and lists of numbers."""
    found: list[NumpyType | None] = [None, None, None]  # of arrays with axes, of those without, of numbers
    for one in operands:
        if isinstance(one, bool | int | float | complex | list | tuple):
            level, dtype = 2, _OF_NUMBERS[category(np.asarray(one).dtype)]()
        else:
            level, dtype = (0 if one.ndim else 1), one.dtype
        found[level] = _promoted(found[level], dtype)
    result = _combined(found[0], _combined(found[1], found[2]))
    assert result is not None, "there are operands"
    return result


def _promoted(one: NumpyType | None, other: NumpyType | None) -> NumpyType | None:
    if one is None or other is None:
        return other if one is None else one
    first, second = category(one) >= FLOATING, category(other) >= FLOATING
    if first != second:
        return one if first else other
    return np.promote_types(one, other)


def _combined(higher: NumpyType | None, lower: NumpyType | None) -> NumpyType | None:
    """The type of two kinds of operands, of which the first takes precedence."""
    if higher is None or lower is None or category(lower) <= category(higher):
        return lower if higher is None else higher
    if category(higher) == FLOATING:  # with complex numbers
        return np.promote_types(higher, np.complex64)
    return _promoted(higher, lower)


def floating_type(*operands: Operand) -> NumpyType:
    """`common_type`, with the default floating-point type for integers and bool."""
    dtype = common_type(*operands)
    return dtype if category(dtype) >= FLOATING else default_float()


def converted(xp: Module, dtype: NumpyType, *operands: Operand) -> list[Array]:
    """Operands as arrays of a type; those of this type are not copied. Numbers outside it wrap around, as in C."""
    return [xp.asarray(one).astype(dtype, copy=False) for one in operands]


def multiple(xp: Module, name: str, dtype: NumpyType, values: Operand, alpha: complex) -> Array:
    """`alpha * values` in a type, in which integers wrap around. Raises DTypeError: alpha is of a higher category."""
    if category(np.asarray(alpha).dtype) > category(dtype):
        raise DTypeError(f"{name} of tensors of {dtype.name} with alpha {alpha!r}; convert them with to()")
    scaled, factor = converted(xp, dtype, values, alpha)
    return scaled if alpha == 1 else xp.multiply(scaled, factor)


def widened(xp: Module, dtype: NumpyType) -> NumpyType:
    """The type to compute in: float32 for narrower floating-point types."""
    return xp.dtype(xp.float32) if dtype.itemsize < 4 else dtype


def is_narrow(dtype: NumpyType) -> bool:
    """Whether it is a floating-point type that sums are not computed in: float16, bfloat16 and float8."""
    return dtype.kind in "fV" and dtype.itemsize < 4


def as_type(values: Array, dtype: NumpyType) -> Array:
    """Values in a type, inf where they exceed its range; those of this type are not copied."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype, copy=False)


def norms_of_vectors(xp: Module, a: Array, axis: Any, keepdims: bool, ord: Any) -> Array:
    """`numpy.linalg.vector_norm`, also of arrays of CuPy, which lacks it."""
    if isinstance(a, np.ndarray):
        return np.linalg.vector_norm(a, axis=axis, keepdims=keepdims, ord=ord)
    axes = range(a.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    along = tuple([one % a.ndim for one in axes])
    others = [size for one, size in enumerate(a.shape) if one not in along]
    found = xp.linalg.norm(xp.moveaxis(a, along, range(-len(along), 0)).reshape(*others, -1), ord, axis=-1)
    if keepdims:
        found = found.reshape([1 if one in along else size for one, size in enumerate(a.shape)])
    return found


def sortable(xp: Module, a: Array) -> Array:
    """The same values in a type that NumPy sorts with NaN last, which it does not do in types of other packages."""
    return a.astype(xp.float32) if a.dtype.kind == "V" else a


def number_of(what: str, value: Any) -> Any:
    """A Python number, also from a tensor or array without axes. Raises InvalidArgument: another object."""
    number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
    if isinstance(number, int | float | complex):
        return number
    raise InvalidArgument(f"{what} {value!r:.100}, a {type_name(value)}; give a number")


def element_of(what: str, value: Any, dtype: NumpyType) -> Array:
    """A real number as an element of a type: fractions are cut off, negative integers wrap around.

    Raises InvalidArgument: not a real number, or the type does not have it.
    """
    number = number_of(what, value)
    if isinstance(number, complex):
        raise InvalidArgument(f"{what} {value!r:.100}; give a real number")
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        whole = isinstance(number, int)
        least = -int(bounds.max) if whole and dtype.kind == "u" else int(bounds.min)
        if not least <= number <= int(bounds.max):
            raise InvalidArgument(
                f"{what} {value!r:.100}, which {dtype.name} does not have; convert the tensor with to()"
            )
        return np.asarray(int(number) & (1 << bounds.bits) - 1, f"u{dtype.itemsize}").astype(dtype)
    try:
        with np.errstate(all="ignore"):
            element = np.asarray(float(number)).astype(dtype)
    except OverflowError:
        element = np.asarray(np.inf)
    if np.isinf(element) and abs(number) != np.inf:
        raise InvalidArgument(f"{what} {value!r:.100}, which {dtype.name} does not have; convert the tensor with to()")
    return element


def require_real(name: str, dtype: NumpyType) -> None:
    """Refuse complex types. Raises DTypeError."""
    if dtype.kind == "c":
        raise DTypeError(f"{name} of a tensor of {dtype.name}; it takes real numbers: use .real, .imag or abs")


def require_floating(name: str, a: Array, *, complex_too: bool = False) -> None:
    """Refuse types that are not floating-point. Raises DTypeError."""
    found = category(a.dtype)
    if found < FLOATING:
        raise DTypeError(f"{name} of a tensor of {a.dtype.name}; convert it to a floating-point type with to()")
    if not complex_too:
        require_real(name, a.dtype)


def floats(xp: Module, name: str, *operands: Any) -> tuple[NumpyType, list[Array]]:
    """The type of the result, and real operands in the type to compute in. Raises DTypeError: complex ones."""
    dtype = floating_type(*operands)
    require_real(name, dtype)
    return dtype, converted(xp, widened(xp, dtype), *operands)
