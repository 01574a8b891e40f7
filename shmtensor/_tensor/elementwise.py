"""Elementwise operations: one line for each, with the function of NumPy that computes it.

From each line come a function of the namespace, a method of the same name, and an in-place method with an underscore;
for some a Python operator, too. They take tensors, arrays and numbers, broadcast, and promote types as NumPy does.
Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from .core import Tensor, require_shape
from .dispatch import Array, Module, Operand, Out, Result, Row, export, make_form, register, takes_module

_ndarray = np.ndarray
BINARY: Final[set[Callable[..., Any]]] = set()
"""The functions of two operands."""
RAISES: Final = "Raises InvalidArgument (shapes), DTypeError (types), LayoutError (memory that cannot be written)."


class Unary(Protocol):
    """A function of one tensor."""

    def __call__(self, x: Any, /, *, out: Tensor | None = None) -> Tensor: ...


class Binary(Protocol):
    """A function of two tensors, or of a tensor and a number."""

    def __call__(self, x1: Any, x2: Any, /, *, out: Tensor | None = None) -> Tensor: ...


def one_operand(x: Array, /, *, out: Array | None = None) -> Array:
    """The parameters of a function of one tensor."""


def two_operands(x1: Operand, x2: Operand, /, *, out: Array | None = None) -> Array:
    """The parameters of a function of two tensors."""


def other_operand(x: Operand, other: Operand) -> Array:
    """The parameters of an operator."""


def unary(
    name: str,
    compute: Callable[..., Any],
    *aliases: str,
    method: bool = True,
    in_place: bool = True,
    operator: str = "",
) -> Unary:
    """The operation `name` on one tensor, computed by `compute(array)` and `compute(array, out=array)`.

    Args:
        compute: a ufunc of NumPy, or an implementation that takes the array module first.
        operator: the method that is Python's operator.
    """
    module = takes_module(compute)

    if module:

        def into(xp: Any, a: Any, *, out: Any) -> Any:
            require_shape(out, a.shape, name)
            return compute(xp, a, out)
    else:

        def into(a: Any, *, out: Any) -> Any:  # type: ignore[misc]
            if out.shape != a.shape:
                require_shape(out, a.shape, name)
            return compute(a, out)

    row = _row(name, compute, aliases, "{name} of", compute.__module__ if module else __name__)
    how: dict[str, Any] = {"tensors": 1, "module": module, "shown": one_operand}
    row.function = make_form(row, name, into=into, **how)
    if method:
        row.methods.update(dict.fromkeys(row.names, row.function))
    if method and in_place:
        doc = f"{_source(compute)}, in place. Returns self."
        place = make_form(row, f"{name}_", method=True, doc=doc, out=Out.PLACE, **how)
        row.methods.update({f"{one}_": place for one in row.names})
    if operator:
        row.methods[operator] = row.function
    register(row)
    return row.function


def binary(
    name: str,
    compute: Callable[..., Any],
    *aliases: str,
    module: str = __name__,
    in_place: bool = True,
    operator: str = "",
    compares: str = "",
) -> Binary:
    """The operation `name` on two operands, computed by `compute(array, array)` and `compute(array, array, out=array)`.

    Args:
        compute: a ufunc of NumPy.
        module: where the function is to be found.
        operator: "add" for `__add__`, `__radd__` and `__iadd__`.
        compares: "lt" for `__lt__`, which has no such other forms.
    """
    elementwise = getattr(compute, "signature", None) is None

    def into(a: Any, b: Any, *, out: Any) -> Any:
        if elementwise and not (type(a) is type(b) is _ndarray and a.shape == b.shape == out.shape):
            require_shape(out, np.broadcast(a, b).shape, name)
        return compute(a, b, out=out)

    row = _row(name, compute, aliases, "{name} with", module)
    how: dict[str, Any] = {"operands": 0b11, "shown": two_operands, "rejects": "of a tensor and a"}
    row.function = make_form(row, name, into=into, **how)
    row.methods.update(dict.fromkeys(row.names, row.function))
    place = {**how, "method": True, "fails": f"{name} in place on", "out": Out.PLACE, "shown": other_operand}
    if in_place:
        doc = f"`{name}` in place. Returns self.\n\n{RAISES}"
        made = make_form(row, f"{name}_", doc=doc, **place)
        row.methods.update({f"{one}_": made for one in row.names})
    symbol = operator or compares
    if symbol:
        how = {**how, "method": True, "symbol": True}
        row.methods[f"__{symbol}__"] = make_form(row, f"__{symbol}__", out=Out.NONE, **how)
    if operator:
        row.methods[f"__r{symbol}__"] = make_form(row, f"__r{symbol}__", out=Out.NONE, reflected=True, **how)
        row.methods[f"__i{symbol}__"] = make_form(row, f"__i{symbol}__", symbol=True, **place)
    register(row)
    BINARY.add(row.function)
    return row.function


def _row(name: str, compute: Callable[..., Any], aliases: tuple[str, ...], fails: str, module: str) -> Row:
    doc = f"{_source(compute)}, into `out` or a new tensor.\n\n{RAISES}"
    return Row(name, compute, Result.CREATED, Out.PASSED, module, doc, fails.replace("{name}", name), aliases)


def _source(compute: Callable[..., Any]) -> str:
    return f"`numpy.{compute.__name__}`" if isinstance(compute, np.ufunc) else f"{compute.__doc__}".rstrip(".")


# -- functions that NumPy has under another shape ----------------------------------------------------------------------


def _widened(xp: Module, a: Array) -> Array:
    """Integers of one byte, and bool, as float32, where NumPy computes them as float16."""
    return a.astype(xp.float32) if a.dtype.itemsize == 1 and a.dtype.kind in "biu" else a


def _exp2(xp: Module, a: Array, out: Array | None = None) -> Array:
    """2 ** x; float32 at least for integers."""
    return xp.exp2(_widened(xp, a), out)


def _expm1(xp: Module, a: Array, out: Array | None = None) -> Array:
    """exp(x) - 1; float32 at least for integers."""
    return xp.expm1(_widened(xp, a), out)


def _log1p(xp: Module, a: Array, out: Array | None = None) -> Array:
    """log(1 + x); float32 at least for integers."""
    return xp.log1p(_widened(xp, a), out)


def _sigmoid(xp: Module, a: Array, out: Array | None = None) -> Array:
    """1 / (1 + exp(-x)); float32 at least for integers."""
    a = _widened(xp, a)
    kind = a.dtype if a.dtype.isbuiltin == 2 else np.result_type(a.dtype, np.float16)
    with np.errstate(over="ignore"):  # exp(-x) is inf where the result is 0
        grown = xp.exp(xp.negative(a, dtype=kind)) + 1
    return xp.reciprocal(grown, out)


def _rsqrt(xp: Module, a: Array, out: Array | None = None) -> Array:
    """1 / sqrt(x)."""
    return xp.reciprocal(xp.sqrt(a), out)


def _frac(xp: Module, a: Array, out: Array | None = None) -> Array:
    """What is behind the point."""
    return xp.subtract(a, xp.trunc(a), out)


def _copied(xp: Module, a: Array, out: Array | None) -> Array:
    return xp.positive(a, out) if a.dtype.kind != "b" else xp.logical_or(a, a, out)


def _real(xp: Module, a: Array, out: Array | None = None) -> Array:
    """The real part."""
    return _copied(xp, a.real, out)


def _imag(xp: Module, a: Array, out: Array | None = None) -> Array:
    """The imaginary part."""
    return _copied(xp, a.imag, out)


def _round(xp: Module, a: Array, out: Array | None = None) -> Array:
    """The nearest whole number, the even one of two."""
    if a.dtype.kind in "iub":
        return _copied(xp, a, out)
    return xp.round(a, out=out) if a.dtype.kind == "c" else xp.rint(a, out)


# -- the table ---------------------------------------------------------------------------------------------------------

abs = unary("abs", np.absolute, "absolute", operator="__abs__")
acos = unary("acos", np.arccos, "arccos")
acosh = unary("acosh", np.arccosh, "arccosh")
asin = unary("asin", np.arcsin, "arcsin")
asinh = unary("asinh", np.arcsinh, "arcsinh")
atan = unary("atan", np.arctan, "arctan")
atanh = unary("atanh", np.arctanh, "arctanh")
bitwise_invert = unary("bitwise_invert", np.invert, "bitwise_not", operator="__invert__")
cbrt = unary("cbrt", np.cbrt)
ceil = unary("ceil", np.ceil)
conj = unary("conj", np.conjugate)
cos = unary("cos", np.cos)
cosh = unary("cosh", np.cosh)
deg2rad = unary("deg2rad", np.deg2rad)
exp = unary("exp", np.exp)
exp2 = unary("exp2", _exp2)
expm1 = unary("expm1", _expm1)
floor = unary("floor", np.floor)
frac = unary("frac", _frac)
imag = unary("imag", _imag, method=False)
isfinite = unary("isfinite", np.isfinite, in_place=False)
isinf = unary("isinf", np.isinf, in_place=False)
isnan = unary("isnan", np.isnan, in_place=False)
log = unary("log", np.log)
log10 = unary("log10", np.log10)
log1p = unary("log1p", _log1p)
log2 = unary("log2", np.log2)
logical_not = unary("logical_not", np.logical_not)
negative = unary("negative", np.negative, "neg", operator="__neg__")
positive = unary("positive", np.positive, operator="__pos__")
rad2deg = unary("rad2deg", np.rad2deg)
real = unary("real", _real, method=False)
reciprocal = unary("reciprocal", np.reciprocal, "cinv")
round = unary("round", _round)
rsqrt = unary("rsqrt", _rsqrt)
sigmoid = unary("sigmoid", _sigmoid)
sign = unary("sign", np.sign)
signbit = unary("signbit", np.signbit, in_place=False)
sin = unary("sin", np.sin)
sinh = unary("sinh", np.sinh)
sqrt = unary("sqrt", np.sqrt)
square = unary("square", np.square)
tan = unary("tan", np.tan)
tanh = unary("tanh", np.tanh)
trunc = unary("trunc", np.trunc, "fix")

add = binary("add", np.add, operator="add")
atan2 = binary("atan2", np.arctan2, "arctan2")
bitwise_and = binary("bitwise_and", np.bitwise_and, operator="and")
bitwise_left_shift = binary("bitwise_left_shift", np.left_shift, operator="lshift")
bitwise_or = binary("bitwise_or", np.bitwise_or, operator="or")
bitwise_right_shift = binary("bitwise_right_shift", np.right_shift, operator="rshift")
bitwise_xor = binary("bitwise_xor", np.bitwise_xor, operator="xor")
copysign = binary("copysign", np.copysign)
divide = binary("divide", np.true_divide, "div", "true_divide", operator="truediv")
equal = binary("equal", np.equal, "eq", compares="eq")
floor_divide = binary("floor_divide", np.floor_divide, operator="floordiv")
fmax = binary("fmax", np.fmax)
fmin = binary("fmin", np.fmin)
fmod = binary("fmod", np.fmod)
gcd = binary("gcd", np.gcd)
greater = binary("greater", np.greater, "gt", compares="gt")
greater_equal = binary("greater_equal", np.greater_equal, "ge", compares="ge")
hypot = binary("hypot", np.hypot)
lcm = binary("lcm", np.lcm)
ldexp = binary("ldexp", np.ldexp)
less = binary("less", np.less, "lt", compares="lt")
less_equal = binary("less_equal", np.less_equal, "le", compares="le")
logaddexp = binary("logaddexp", np.logaddexp)
logaddexp2 = binary("logaddexp2", np.logaddexp2)
logical_and = binary("logical_and", np.logical_and)
logical_or = binary("logical_or", np.logical_or)
logical_xor = binary("logical_xor", np.logical_xor)
maximum = binary("maximum", np.maximum)
minimum = binary("minimum", np.minimum)
multiply = binary("multiply", np.multiply, "mul", operator="mul")
nextafter = binary("nextafter", np.nextafter)
not_equal = binary("not_equal", np.not_equal, "ne", compares="ne")
pow = binary("pow", np.power, operator="pow")
remainder = binary("remainder", np.remainder, operator="mod")
subtract = binary("subtract", np.subtract, "sub", operator="sub")

__all__ = export(globals())
