"""Elementwise operations: one line for each, with the function of NumPy that computes it.

From each line come a function of the namespace, a method of the same name, and an in-place method with an underscore;
for some a Python operator, too. They take tensors, arrays and numbers, broadcast, and promote types as torch does
(docs/tensors.md, "Promotion"). Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from ..errors import InvalidArgument
from . import elementwise_rules as rules
from .core import Tensor, index_of
from .creation import zeros_like
from .dispatch import (
    Array,
    Gradient,
    Module,
    Operand,
    Out,
    Promotion,
    Result,
    Row,
    composed,
    export,
    make_form,
    operation,
    register,
    takes_module,
)
from .outputs import require_shape
from .result_types import common_type, multiple

_ndarray = np.ndarray
_BOOL: Final = np.dtype(bool)
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


def other_operand(x1: Operand, x2: Operand, /) -> Array:
    """The parameters of an operator."""


def unary(
    name: str,
    compute: Callable[..., Any],
    *aliases: str,
    method: bool = True,
    in_place: bool = True,
    operator: str = "",
    floats: bool = False,
    gradient: Gradient | None = None,
) -> Unary:
    """The operation `name` on one tensor, computed by `compute(array)` and `compute(array, out=array)`.

    Args:
        compute: a ufunc of NumPy, or an implementation that takes the array module first.
        floats: integers give the default floating-point type, as they do where NumPy computes with such numbers only.
        operator: the method that is Python's operator.
        gradient: the gradient rule; its parameter is `x`.
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
    row.gradient = gradient
    how: dict[str, Any] = {"tensors": 1, "module": module, "shown": one_operand}
    if floats or _gives_floats(compute):
        how["promotion"] = Promotion.FLOATS
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
    floats: bool = False,
    wider: Callable[..., Any] | None = None,
    gradient: Gradient | None = None,
) -> Binary:
    """The operation `name` on two operands, computed by `compute(array, array)` and `compute(array, array, out=array)`.

    Args:
        compute: a ufunc of NumPy, or a function that takes the same arguments.
        module: where the function is to be found.
        operator: "add" for `__add__`, `__radd__` and `__iadd__`.
        in_place: results have the shape that both broadcast to, and there is an in-place form.
        compares: "lt" for `__lt__`, which has no such other forms.
        floats: as for `unary`.
        wider: the implementation, for callers, of calls with more keyword arguments: takes (x1, x2, out, **them).
        gradient: the gradient rule; its parameters are `x1` and `x2`.
    """

    def into(a: Any, b: Any, *, out: Any) -> Any:
        if in_place and not (type(a) is type(b) is _ndarray and a.shape == b.shape == out.shape):
            on_host = type(out) is _ndarray  # where this is faster
            shape = np.broadcast(a, b).shape if on_host else np.broadcast_shapes(np.shape(a), np.shape(b))
            require_shape(out, shape, name)
        return compute(a, b, out=out)

    row = _row(name, compute, aliases, "{name} with", module)
    row.gradient = gradient
    promotion = Promotion.FLOATS if floats or _gives_floats(compute) else Promotion.MIXED
    how: dict[str, Any] = {
        "operands": 0b11, "shown": two_operands, "rejects": "of a tensor and a", "promotion": promotion
    }  # fmt: skip
    if wider is not None:
        how["shown"] = wider
        wider.__qualname__ = name  # Python's messages show it
    row.function = make_form(row, name, into=into, wider=wider, **how)
    row.methods.update(dict.fromkeys(row.names, row.function))
    place = {**how, "method": True, "fails": f"{name} in place on", "out": Out.PLACE, "shown": wider or other_operand}
    if in_place:
        doc = f"`{name}` in place. Returns self.\n\n{RAISES}"
        made = make_form(row, f"{name}_", doc=doc, wider=_placed(wider), **place)
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


def _placed(wider: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The in-place form of a function with more keyword arguments."""
    if wider is None:
        return None

    def placed(x: Any, other: Any, **how: Any) -> Any:
        return wider(x, other, out=x, **how)

    placed.__qualname__ = f"{wider.__qualname__}_"  # Python's messages show it
    return placed


def _gives_floats(compute: Callable[..., Any]) -> bool:
    """Whether a function of NumPy gives floating-point numbers for integers."""
    if not isinstance(compute, np.ufunc):
        return False
    return all(kinds[-1] in np.typecodes["Float"] for kinds in compute.types if kinds[0] in np.typecodes["AllInteger"])


def _row(name: str, compute: Callable[..., Any], aliases: tuple[str, ...], fails: str, module: str) -> Row:
    doc = f"{_source(compute)}, into `out` or a new tensor.\n\n{RAISES}"
    return Row(name, compute, Result.CREATED, Out.PASSED, module, doc, fails.replace("{name}", name), aliases)


def _source(compute: Callable[..., Any]) -> str:
    return f"`numpy.{compute.__name__}`" if isinstance(compute, np.ufunc) else f"{compute.__doc__}".rstrip(".")


# -- functions that NumPy has under another shape ----------------------------------------------------------------------


def _sigmoid(xp: Module, a: Array, out: Array | None = None) -> Array:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):  # exp(-x) is inf where the result is 0
        grown = xp.exp(-a) + 1
    return xp.reciprocal(grown, out)


def _rsqrt(xp: Module, a: Array, out: Array | None = None) -> Array:
    """1 / sqrt(x)."""
    return xp.reciprocal(xp.sqrt(a), out)


def _frac(xp: Module, a: Array, out: Array | None = None) -> Array:
    """The fractional part."""
    return xp.subtract(a, xp.trunc(a), out)


def _copied(xp: Module, a: Array, out: Array | None) -> Array:
    return xp.positive(a, out) if a.dtype.kind != "b" else xp.logical_or(a, a, out)


def _sign(xp: Module, a: Array, out: Array | None = None) -> Array:
    """-1, 0 or 1; for a complex number, the number divided by its absolute value."""
    return _copied(xp, a, out) if a.dtype.kind == "b" else xp.sign(a, out)


def _square(xp: Module, a: Array, out: Array | None = None) -> Array:
    """The product with itself; int64 for bool."""
    return xp.square(a.astype(xp.int64) if a.dtype.kind == "b" else a, out)


def _power(a: Any, b: Any, out: Any = None) -> Any:
    """The first to the power of the second; for integers, 0 where the result is a fraction."""
    kinds = getattr(a, "dtype", _BOOL).kind, getattr(b, "dtype", _BOOL).kind
    if kinds[1] != "i" or kinds[0] in "fcV" or np.all(b >= 0):
        return np.power(a, b, out)
    whole = np.power(a, np.maximum(b, 0))
    kept = np.where(np.equal(a, -1), 1 - 2 * (b & 1), np.equal(a, 1)).astype(whole.dtype)
    return np.positive(np.where(b < 0, kept, whole), out)


def log_of_sum(a: Any, b: Any, out: Any = None) -> Any:
    """log(exp(a) + exp(b))."""
    if "c" not in (np.asarray(a).dtype.kind, np.asarray(b).dtype.kind):
        return np.logaddexp(a, b, out)
    is_larger = np.real(a) >= np.real(b)
    top, low = np.where(is_larger, a, b), np.where(is_larger, b, a)
    with np.errstate(all="ignore"):
        found = np.log1p(np.exp(low - top)) + top
        endless = (top.real == low.real) & ~np.isfinite(top.real)
        if endless.any():
            found = np.where(endless, np.where(top.real < 0, low, np.log(np.exp(low) + np.exp(top))), found)
    return np.positive(found, out)


# -- the table ---------------------------------------------------------------------------------------------------------

abs = unary("abs", np.absolute, "absolute", operator="__abs__", gradient=lambda g, x: g * rules.unconjugated(x).sgn())
acos = unary("acos", np.arccos, "arccos", gradient=lambda g, x: -g * (1 - x * x).rsqrt())
acosh = unary("acosh", np.arccosh, "arccosh", gradient=rules.acosh)
asin = unary("asin", np.arcsin, "arcsin", gradient=lambda g, x: g * (1 - x * x).rsqrt())
asinh = unary("asinh", np.arcsinh, "arcsinh", gradient=lambda g, x: g * (1 + x * x).rsqrt())
atan = unary("atan", np.arctan, "arctan", gradient=lambda g, x: g / (1 + x * x))
atanh = unary("atanh", np.arctanh, "arctanh", gradient=lambda g, x: g / (1 - x * x))
bitwise_invert = unary("bitwise_invert", np.invert, "bitwise_not", operator="__invert__")
cbrt = unary("cbrt", np.cbrt, gradient=lambda g, result: g / (3 * result * result))
ceil = unary("ceil", np.ceil, gradient=lambda g: zeros_like(g))
cos = unary("cos", np.cos, gradient=lambda g, x: -g * x.sin())
cosh = unary("cosh", np.cosh, gradient=lambda g, x: g * x.sinh())
deg2rad = unary("deg2rad", np.deg2rad, gradient=lambda g: g.deg2rad())
exp = unary("exp", np.exp, gradient=lambda g, result: g * result)
exp2 = unary("exp2", np.exp2, gradient=lambda g, result: g * result * rules.LOG_2)
expm1 = unary("expm1", np.expm1, gradient=lambda g, result: g * (result + 1))
floor = unary("floor", np.floor, gradient=lambda g: zeros_like(g))
frac = unary("frac", _frac, gradient=lambda g: g)
isfinite = unary("isfinite", np.isfinite, in_place=False)
isinf = unary("isinf", np.isinf, in_place=False)
isnan = unary("isnan", np.isnan, in_place=False)
log = unary("log", np.log, gradient=lambda g, x: g / x)
log10 = unary("log10", np.log10, gradient=lambda g, x: g / (x * rules.LOG_10))
log1p = unary("log1p", np.log1p, gradient=lambda g, x: g / (1 + x))
log2 = unary("log2", np.log2, gradient=lambda g, x: g / (x * rules.LOG_2))
logical_not = unary("logical_not", np.logical_not)
negative = unary("negative", np.negative, "neg", operator="__neg__", gradient=lambda g: -g)
rad2deg = unary("rad2deg", np.rad2deg, gradient=lambda g: g.rad2deg())
reciprocal = unary("reciprocal", np.reciprocal, "cinv", floats=True, gradient=lambda g, result: -g * (result * result))
rsqrt = unary("rsqrt", _rsqrt, floats=True, gradient=lambda g, result: -0.5 * g * result * result * result)
sigmoid = unary("sigmoid", _sigmoid, floats=True, gradient=lambda g, result: g * (1 - result) * result)
sign = unary("sign", _sign, gradient=rules.sgn)
signbit = unary("signbit", np.signbit, in_place=False)
sin = unary("sin", np.sin, gradient=lambda g, x: g * x.cos())
sinh = unary("sinh", np.sinh, gradient=lambda g, x: g * x.cosh())
sqrt = unary("sqrt", np.sqrt, gradient=lambda g, result: g / (2 * result))
square = unary("square", _square, gradient=lambda g, x: g * (2 * x))
tan = unary("tan", np.tan, gradient=lambda g, result: g * (1 + result * result))
tanh = unary("tanh", np.tanh, gradient=lambda g, result: g * (1 - result * result))
trunc = unary("trunc", np.trunc, "fix", gradient=lambda g: zeros_like(g))


@operation(out=Out.COPIED, in_place=True, fails="rounding to {decimals} decimals", gradient=lambda g: zeros_like(g))
def round(xp: Module, x: Array, /, *, decimals: int = 0) -> Array:
    """Round to a number of decimals, ties to even; `decimals` below 0 round to powers of ten.

    Raises InvalidArgument: decimals that are not an integer; DTypeError: types that cannot be rounded so.
    """
    if decimals or x.dtype.kind == "c":
        return xp.round(x, index_of(decimals, "number of decimals"))
    return xp.rint(x) if x.dtype.kind not in "iub" else x.copy()


@composed(function=False)
def __round__(self: Tensor, ndigits: int | None = None) -> Tensor:
    """`round(x)` and `round(x, 2)`: a tensor of the same type. Raises InvalidArgument: not an integer."""
    return round(self, decimals=0 if ndigits is None else ndigits)


def _given(function: Any, x1: Operand, x2: Operand, out: Any) -> Array:
    """A function of two operands; in place, if `out` is the first, so that its gradient is recorded."""
    if out is not None and out is x1:
        return getattr(out, f"{function.__name__}_")(x2)
    return function(x1, x2, out=out)


@operation(name="assign", function=False, method=False, out=Out.PLACED, gradient={"value": lambda g: g})
def _assign(xp: Module, x: Array, value: Array) -> Array:
    """Put values into a tensor; returns it."""
    return value


def _add_scaled(x1: Operand, x2: Operand, /, *, alpha: float = 1, out: Array | None = None) -> Array:
    """The sum with a multiple of the second operand."""
    return _given(add, x1, x2 if alpha == 1 else _multiple("add", x1, x2, alpha), out)


def _subtract_scaled(x1: Operand, x2: Operand, /, *, alpha: float = 1, out: Array | None = None) -> Array:
    """The difference from a multiple of the second operand."""
    return _given(subtract, x1, x2 if alpha == 1 else _multiple("subtract", x1, x2, alpha), out)


@operation(
    name="multiple",
    function=False,
    method=False,
    fails="a multiple of",
    gradient={"x2": lambda g, alpha: g if alpha == 1 else g * alpha},
)
def _multiple(xp: Module, name: str, x1: Operand, x2: Operand, alpha: complex) -> Array:
    """`alpha * x2` in the type of the result, in which operands without axes are as others. Raises DTypeError."""
    dtype = common_type(*[one.reshape(-1) if isinstance(one, _ndarray) else one for one in (x1, x2)])
    return multiple(xp, name, dtype, x2, alpha)


@operation(name="divide_truncated", function=False, method=False, gradient=rules.CONSTANT)
def _whole_part(xp: Module, quotient: Array, x1: Operand, x2: Operand) -> Array:
    """The quotient of the others, rounded towards zero."""
    return xp.trunc(quotient)


def _truncated(x1: Operand, x2: Operand, out: Any) -> Array:
    """The quotient, rounded towards zero."""
    whole = floor_divide(x1, x2)
    if whole.dtype.kind not in "iu":
        plain = [one.detach() if isinstance(one, Tensor) else one for one in (x1, x2)]
        result = _whole_part(divide(*plain), x1, x2)
        if out is None:
            return result
        return _assign(x1, result) if out is x1 else trunc(result, out=out)
    is_too_low = logical_and(less(whole, 0), not_equal(remainder(x1, x2), 0))
    return add(whole, is_too_low, out=out)


def _divide_rounded(
    x1: Operand, x2: Operand, /, *, rounding_mode: str | None = None, out: Array | None = None
) -> Array:
    """The quotient; `rounding_mode`: "trunc" to round it towards zero, "floor" downwards."""
    if rounding_mode is None:
        return _given(divide, x1, x2, out)
    if rounding_mode == "floor":
        return _given(floor_divide, x1, x2, out)
    if rounding_mode == "trunc":
        return _truncated(x1, x2, out)
    raise InvalidArgument(f"divide with rounding_mode {rounding_mode!r}; give None, 'trunc' or 'floor'")


add = binary("add", np.add, operator="add", wider=_add_scaled, gradient={"x1": lambda g: g, "x2": lambda g: g})
atan2 = binary("atan2", np.arctan2, "arctan2", gradient=rules.ATAN2)
bitwise_and = binary("bitwise_and", np.bitwise_and, operator="and")
bitwise_left_shift = binary("bitwise_left_shift", np.left_shift, operator="lshift")
bitwise_or = binary("bitwise_or", np.bitwise_or, operator="or")
bitwise_right_shift = binary("bitwise_right_shift", np.right_shift, operator="rshift")
bitwise_xor = binary("bitwise_xor", np.bitwise_xor, operator="xor")
copysign = binary("copysign", np.copysign, gradient=rules.COPYSIGN)
divide = binary(
    "divide", np.true_divide, "div", "true_divide", operator="truediv", wider=_divide_rounded, gradient=rules.DIVIDE
)
eq = binary("eq", np.equal, compares="eq")
floor_divide = binary("floor_divide", np.floor_divide, operator="floordiv", gradient=rules.CONSTANT)
fmax = binary("fmax", np.fmax, gradient=rules.FMAX)
fmin = binary("fmin", np.fmin, gradient=rules.FMIN)
fmod = binary(
    "fmod",
    np.fmod,
    gradient={"x1": lambda g: g, "x2": lambda g, x1, x2: -g * _divide_rounded(x1, x2, rounding_mode="trunc")},
)
gcd = binary("gcd", np.gcd)
greater = binary("greater", np.greater, "gt", compares="gt")
greater_equal = binary("greater_equal", np.greater_equal, "ge", compares="ge")
hypot = binary(
    "hypot",
    np.hypot,
    gradient={"x1": lambda g, x1, result: g * (x1 / result), "x2": lambda g, x2, result: g * (x2 / result)},
)
lcm = binary("lcm", np.lcm)
less = binary("less", np.less, "lt", compares="lt")
less_equal = binary("less_equal", np.less_equal, "le", compares="le")
logaddexp = binary(
    "logaddexp",
    log_of_sum,
    floats=True,
    gradient={"x1": lambda g, x1, x2: g / (1 + exp(x2 - x1)), "x2": lambda g, x1, x2: g / (1 + exp(x1 - x2))},
)
logaddexp2 = binary(
    "logaddexp2",
    np.logaddexp2,
    gradient={"x1": lambda g, x1, x2: g / (1 + exp2(x2 - x1)), "x2": lambda g, x1, x2: g / (1 + exp2(x1 - x2))},
)
logical_and = binary("logical_and", np.logical_and)
logical_or = binary("logical_or", np.logical_or)
logical_xor = binary("logical_xor", np.logical_xor)
maximum = binary("maximum", np.maximum, gradient=rules.MAXIMUM)
minimum: Binary = binary("minimum", np.minimum, gradient=rules.MINIMUM)
multiply = binary(
    "multiply", np.multiply, "mul", operator="mul", gradient={"x1": lambda g, x2: g * x2, "x2": lambda g, x1: g * x1}
)
nextafter = binary("nextafter", np.nextafter, gradient=rules.NEXTAFTER)
not_equal = binary("not_equal", np.not_equal, "ne", compares="ne")
pow = binary("pow", _power, operator="pow", gradient=rules.POWER)
remainder = binary(
    "remainder",
    np.remainder,
    operator="mod",
    gradient={"x1": lambda g: g, "x2": lambda g, x1, x2: -g * _divide_rounded(x1, x2, rounding_mode="floor")},
)
subtract = binary(
    "subtract",
    np.subtract,
    "sub",
    operator="sub",
    wider=_subtract_scaled,
    gradient={"x1": lambda g: g, "x2": lambda g: -g},
)

__all__ = export(globals())
