"""Bounding, replacing and finding values that are too large, too small or NaN.

Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .complex_parts import complex
from .core import Tensor
from .dispatch import Array, Module, Operand, Out, export, operation
from .elementwise import isfinite
from .elementwise_rules import kept
from .result_types import common_type, converted, require_real


def _bounded(xp: Module, name: str, function: Callable[..., Array], a: Array, bound: Operand) -> Array:
    dtype = common_type(a, bound)
    require_real(name, dtype)
    return function(*converted(xp, dtype, a, bound))


@operation(
    out=Out.COPIED,
    in_place=True,
    fails="bounding by {min}",
    gradient={
        "input": lambda g, input, min: kept(g, input >= min),
        "min": lambda g, input, min: kept(g, input < min),
    },
)
def clamp_min(xp: Module, input: Array, min: Operand) -> Array:
    """The larger of each element and `min`, a number or tensor; NaN stays. Types promote as torch's do.

    Raises DTypeError: complex numbers; InvalidArgument: incompatible shapes.
    """
    return _bounded(xp, "clamp_min", xp.maximum, input, min)


@operation(
    out=Out.COPIED,
    in_place=True,
    fails="bounding by {max}",
    gradient={
        "input": lambda g, input, max: kept(g, input <= max),
        "max": lambda g, input, max: kept(g, input > max),
    },
)
def clamp_max(xp: Module, input: Array, max: Operand) -> Array:
    """The smaller of each element and `max`, a number or tensor; NaN stays. Types promote as torch's do.

    Raises DTypeError: complex numbers; InvalidArgument: incompatible shapes.
    """
    return _bounded(xp, "clamp_max", xp.minimum, input, max)


def _where_finite(g: Tensor, input: Tensor) -> Tensor:
    """Gradient of nan_to_num: 0 where a number, or a part of a complex one, was replaced."""
    if input.dtype.kind == "c":
        return complex(kept(g.real, isfinite(input.real)), kept(g.imag, isfinite(input.imag)))
    return kept(g, isfinite(input))


@operation(out=Out.COPIED, in_place=True, gradient=_where_finite)
def nan_to_num(
    xp: Module, input: Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """Numbers for NaN (default 0), infinity and minus infinity (defaults: the largest and the least of the type).

    In complex numbers, both parts are replaced.
    """
    if input.dtype.kind in "biu":
        return input.copy()
    if input.dtype.kind == "c":
        result = xp.empty(input.shape, input.dtype)
        result.real = _replaced(xp, input.real, nan, posinf, neginf)
        result.imag = _replaced(xp, input.imag, nan, posinf, neginf)
        return result
    return _replaced(xp, input, nan, posinf, neginf)


def _replaced(xp: Module, a: Array, nan: Any, posinf: Any, neginf: Any) -> Array:
    of_type = a.dtype.type
    if posinf is None or neginf is None:
        largest = _largest(xp, a)
        posinf = largest if posinf is None else posinf
        neginf = -largest if neginf is None else neginf
    replaced = xp.where(a == xp.inf, of_type(posinf), xp.where(a == -xp.inf, of_type(neginf), a))
    return xp.where(xp.isnan(a), of_type(0 if nan is None else nan), replaced)


def _largest(xp: Module, a: Array) -> Any:
    if a.dtype.isbuiltin == 1:
        return xp.finfo(a.dtype).max
    import ml_dtypes

    return ml_dtypes.finfo(a.dtype).max  # type: ignore[no-untyped-call, unused-ignore]


def _is_infinity(xp: Module, name: str, a: Array, value: float) -> Array:
    require_real(name, a.dtype)
    return xp.zeros(a.shape, bool) if a.dtype.kind in "biu" else a == value


@operation(out=Out.COPIED)
def isneginf(xp: Module, input: Array) -> Array:
    """Whether each element is minus infinity. Raises DTypeError: complex numbers."""
    return _is_infinity(xp, "isneginf", input, -xp.inf)


@operation(out=Out.COPIED)
def isposinf(xp: Module, input: Array) -> Array:
    """Whether each element is infinity. Raises DTypeError: complex numbers."""
    return _is_infinity(xp, "isposinf", input, xp.inf)


__all__ = export(globals())
