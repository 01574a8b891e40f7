"""Arithmetic that NumPy has no ufunc for with torch's types: powers in double, reversed differences, steps, exponents.

Nothing in this module blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import DTypeError
from . import elementwise
from . import elementwise_rules as rules
from .core import Tensor
from .dispatch import Array, Module, Operand, Out, Result, composed, export, operation
from .result_types import (
    COMPLEX,
    category,
    common_type,
    converted,
    floating_type,
    multiple,
    number_of,
    require_floating,
    require_real,
    widened,
)


class FrexpResult(NamedTuple):
    """Mantissas, from 0.5 to below 1, and exponents of 2."""

    mantissa: Tensor
    exponent: Tensor


def _signed(a: Array) -> Array:
    if a.dtype.kind == "b":
        raise DTypeError("positive of a tensor of bool; convert it with to()")
    return a


@operation(result=Result.VIEW, gradient=lambda g: g)
def positive(xp: Module, input: Array) -> Array:
    """Itself. Raises DTypeError: bool."""
    return _signed(input)


@operation(name="__pos__", result=Result.VIEW, function=False, gradient=lambda g: g)
def _pos(xp: Module, self: Array) -> Array:
    """Itself. Raises DTypeError: bool."""
    return _signed(self)


def _of_base(g: Tensor, input: Tensor, exponent: Any) -> Tensor:
    return rules.of_base(g, rules.as_type_of(g, input), exponent)


@operation(
    out=Out.COPIED,
    in_place=True,
    fails="a power of",
    gradient={
        "input": _of_base,
        "exponent": lambda g, input, exponent, result: rules.of_exponent(g, input, exponent, result),
    },
)
def float_power(xp: Module, input: Operand, exponent: Operand) -> Array:
    """`input ** exponent` in float64, or complex128 if one of them is complex.

    Raises InvalidArgument: incompatible shapes.
    """
    dtype = xp.complex128 if category(common_type(input, exponent)) == COMPLEX else xp.float64
    with np.errstate(all="ignore"):
        return xp.power(*converted(xp, xp.dtype(dtype), input, exponent))


def _power_of_2(g: Tensor, other: Any) -> Tensor:
    return elementwise.exp2(rules.as_type_of(g, other))


@operation(
    out=Out.COPIED,
    in_place=True,
    fails="ldexp of",
    gradient={
        "input": lambda g, other: g * _power_of_2(g, other),
        "other": lambda g, input, other: g * input * _power_of_2(g, other) * rules.LOG_2,
    },
)
def ldexp(xp: Module, input: Operand, other: Operand) -> Array:
    """`input * 2 ** other`; float32 for integers. Raises InvalidArgument: incompatible shapes."""
    dtype = floating_type(input, other)
    a, power = converted(xp, widened(xp, dtype), input, other)
    with np.errstate(all="ignore"):
        return (a * xp.power(xp.asarray(2, a.dtype), power)).astype(dtype, copy=False)


@operation(
    method=False,
    fails="subtracting",
    gradient={"input": lambda g, alpha: g * -alpha, "other": lambda g: g},
)
def rsub(xp: Module, input: Array, other: Operand, *, alpha: complex = 1) -> Array:
    """`other - alpha * input`; types promote as torch's do.

    Raises DTypeError: bool, or an alpha of a higher kind than the tensors; InvalidArgument: shapes, alpha.
    """
    dtype = common_type(input, other)
    if dtype.kind == "b" or input.dtype.kind == "b":
        raise DTypeError("rsub of a tensor of bool; use logical_xor, or convert it with to()")
    number_of("rsub with alpha", alpha)
    with np.errstate(all="ignore"):
        return converted(xp, dtype, other)[0] - multiple(xp, "rsub", dtype, input, alpha)


@operation(out=Out.COPIED, in_place=True, fails="heaviside with values of shape {values.shape} and")
def heaviside(xp: Module, input: Array, values: Array) -> Array:
    """0 below 0, 1 above 0, and an element of `values` at 0; 0 for NaN. Both have one type.

    Raises DTypeError: two types, complex numbers; InvalidArgument: incompatible shapes.
    """
    if input.dtype != values.dtype:
        raise DTypeError(
            f"heaviside of a tensor of {input.dtype.name} with values of {values.dtype.name}; convert one of them"
        )
    require_real("heaviside", input.dtype)
    return xp.where(input == 0, values, (input > 0).astype(input.dtype))


@operation(results=FrexpResult, gradient=lambda g, result: ldexp(g[0], -result[1]))
def frexp(xp: Module, input: Array) -> FrexpResult:
    """Mantissas, from 0.5 to below 1 (0 for 0), and exponents: `input = mantissa * 2 ** exponent`.

    Raises DTypeError: integers and complex numbers.
    """
    require_floating("frexp", input)
    return xp.frexp(input)  # type: ignore[no-any-return]


# -- operators that Python 3 does not have -----------------------------------------------------------------------------


@composed(function=False)
def __div__(self: Tensor, other: Any) -> Tensor:
    """`divide`. Raises as that function does."""
    return elementwise.divide(self, other)


@composed(function=False)
def __rdiv__(self: Tensor, other: Any) -> Tensor:
    """`other / self`. Raises as `divide` does."""
    return elementwise.divide(other, self)


@composed(function=False)
def __idiv__(self: Tensor, other: Any) -> Tensor:
    """`divide` in place; returns self. Raises as divide does, and LayoutError."""
    return self.divide_(other)


@composed()
def addcmul(input: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1, out: Any = None) -> Tensor:
    """`input + value * tensor1 * tensor2`. Raises InvalidArgument: shapes."""
    return elementwise.add(input, elementwise.multiply(elementwise.multiply(tensor1, tensor2), value), out=out)


@composed()
def addcdiv(input: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1, out: Any = None) -> Tensor:
    """`input + value * tensor1 / tensor2`. Raises InvalidArgument: shapes."""
    return elementwise.add(input, elementwise.multiply(elementwise.divide(tensor1, tensor2), value), out=out)


@composed(function=False)
def addcmul_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """`addcmul` in place; returns self. Raises InvalidArgument: shapes."""
    return self.add_(elementwise.multiply(elementwise.multiply(tensor1, tensor2), value))


@composed(function=False)
def addcdiv_(self: Tensor, tensor1: Any, tensor2: Any, *, value: float = 1) -> Tensor:
    """`addcdiv` in place; returns self. Raises InvalidArgument: shapes."""
    return self.add_(elementwise.multiply(elementwise.divide(tensor1, tensor2), value))


__all__ = export(globals())
