"""What is computed element by element: one line for each function, from NumPy's to ours.

Each line becomes a function of the namespace, a method of the same name, and a method with an underscore that puts the
result into the tensor itself; `OPERATORS` says which of them Python's operators mean. A function takes tensors, arrays
and numbers, broadcasts, promotes types as NumPy does, and does not block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .._native import tensor as _tensor
from ..dtypes import BY_DTYPE, require_supported
from ..errors import DTypeError, tensor_advice, type_name
from .core import FAILURES, OPERANDS, Tensor, again, array_of, failed, require_shape, wrap

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2",
    "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "cbrt", "ceil", "cinv", "conj", "copysign",
    "cos", "cosh", "deg2rad", "div", "divide", "eq", "equal", "exp", "exp2", "expm1", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frac", "gcd", "ge", "greater", "greater_equal", "gt", "hypot", "imag", "isfinite", "isinf",
    "isnan", "lcm", "ldexp", "le", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logaddexp2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "multiply", "ne",
    "neg", "negative", "nextafter", "not_equal", "positive", "pow", "rad2deg", "real", "reciprocal", "remainder",
    "round", "rsqrt", "sigmoid", "sign", "signbit", "sin", "sinh", "sqrt", "square", "sub", "subtract", "tan", "tanh",
    "true_divide", "trunc",
]  # fmt: skip
_ndarray = np.ndarray
RAISES: Final = "Raises InvalidArgument (shapes), DTypeError (types), LayoutError (memory that cannot be written)."


class Unary(Protocol):
    """A function of one tensor."""

    def __call__(self, x: Any, /, *, out: Tensor | None = None) -> Tensor: ...


class Binary(Protocol):
    """A function of two tensors, or of a tensor and a number."""

    def __call__(self, x1: Any, x2: Any, /, *, out: Tensor | None = None) -> Tensor: ...


BINARY: Final[dict[Callable[..., Any], tuple[str, Callable[..., Any], Callable[..., Any]]]] = {}
"""Function of two tensors -> its name, NumPy's function, and the method that is its operator."""


def unary(name: str, function: Callable[..., Any]) -> Unary:
    """The function `name` of one tensor, computed by `function(array)` and `function(array, out)`."""

    def compute(x: Any, /, *, out: Tensor | None = None) -> Tensor:
        a = array_of(x)
        target = a if out is None else array_of(out)
        if target.shape != a.shape:
            require_shape(target, a.shape, name)
        try:
            if out is None:
                return wrap(function(a))
            function(a, out=target)
        except FAILURES as error:
            if out is None:
                return wrap(again(error, f"{name} of", a, function, a))
            raise failed(error, f"{name} of", a if target.flags.writeable else target) from error
        return out

    return _described(compute, name, function)  # type: ignore[no-any-return]


def binary(name: str, function: Callable[..., Any]) -> Binary:
    """The function `name` of two tensors, computed by `function(array, array)` and `function(array, array, out)`."""
    operate = _operator(name, function)
    elementwise = getattr(function, "signature", None) is None

    def compute(x1: Any, x2: Any, /, *, out: Tensor | None = None) -> Tensor:
        if out is None and isinstance(x1, Tensor):
            result: Tensor = operate(x1, x2)
            if result is NotImplemented:
                raise DTypeError(f"{name} of a tensor and a {type_name(x2)}; {tensor_advice(x2)}")
            return result
        a, b = _operand(name, x1), _operand(name, x2)
        target = None if out is None else array_of(out)
        try:
            if target is None:
                return wrap(function(a, b))
            if elementwise and not (type(a) is type(b) is _ndarray and a.shape == b.shape == target.shape):
                require_shape(target, np.broadcast(a, b).shape, name)
            function(a, b, out=target)
        except FAILURES as error:
            raise failed(error, f"{name} with", np.empty(()) if target is None else target) from error
        return out  # type: ignore[return-value]

    BINARY[compute] = (name, function, operate)
    return _described(compute, name, function)  # type: ignore[no-any-return]


def _operand(name: str, x: Any) -> Any:
    if isinstance(x, Tensor):
        return x._live()
    if isinstance(x, OPERANDS):
        return x
    raise DTypeError(f"{name} of a {type_name(x)}; {tensor_advice(x)}")


def _described(compute: Any, name: str, function: Callable[..., Any]) -> Any:
    compute.__name__ = compute.__qualname__ = name
    source = f"`numpy.{function.__name__}`" if isinstance(function, np.ufunc) else f"{function.__doc__}".rstrip(".")
    compute.__doc__ = f"{source}, into `out` or a new tensor. Does not block.\n\n{RAISES}"
    return compute


def operators_of(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """(`__op__`, `__rop__`, `__iop__`) of a function of two tensors. Does not block."""
    name, numpys, operate = BINARY[function]
    return operate, _reflected(name, numpys), _inplace(name, numpys)


def _operator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method that an operator is. The whole way is written out: each call would cost as much as a small tensor."""

    def operate(self: Tensor, other: Any) -> Any:
        storage = self._storage
        a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
        if isinstance(other, Tensor):
            storage = other._storage
            other = other._array if storage is None or storage._epoch == other._epoch else other._follow()
        elif not isinstance(other, OPERANDS):
            return NotImplemented
        try:
            r = function(a, other)
        except FAILURES as error:
            r = again(error, f"{name} with", a, function, a, other)
        if type(r) is not _ndarray:
            r = np.asarray(r)
        if r.dtype not in BY_DTYPE:
            require_supported(r.dtype)
        return _tensor(r)

    return operate


def _reflected(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tensor, other: Any) -> Any:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        a = self._live()
        try:
            return wrap(function(other, a))
        except FAILURES as error:
            return wrap(again(error, f"{name} with", a, function, other, a))

    return operate


def _inplace(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tensor, other: Any) -> Any:
        storage = self._storage
        a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
        if isinstance(other, Tensor):
            storage = other._storage
            other = other._array if storage is None or storage._epoch == other._epoch else other._follow()
        elif not isinstance(other, OPERANDS):
            return NotImplemented
        try:
            function(a, other, out=a)
        except FAILURES as error:
            raise failed(error, f"{name} in place on", a) from error
        return self

    return operate


# -- functions that NumPy has under another shape ----------------------------------------------------------------------


def _sigmoid(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """1 / (1 + exp(-x))."""
    kind = a.dtype if a.dtype.isbuiltin == 2 else np.result_type(a.dtype, np.float16)
    with np.errstate(over="ignore"):  # exp(-x) is inf where the result is 0
        grown = np.exp(np.negative(a, dtype=kind)) + 1
    return np.reciprocal(grown, out)  # type: ignore[no-any-return]


def _rsqrt(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """1 / sqrt(x)."""
    return np.reciprocal(np.sqrt(a), out)  # type: ignore[no-any-return]


def _frac(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """What is behind the point."""
    return np.subtract(a, np.trunc(a), out)  # type: ignore[no-any-return]


def _copied(a: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
    return np.positive(a, out) if a.dtype.kind != "b" else np.logical_or(a, a, out)  # type: ignore[no-any-return]


def _real(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """The real part."""
    return _copied(a.real, out)


def _imag(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """The imaginary part."""
    return _copied(a.imag, out)


def _round(a: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """The nearest whole number, the even one of two."""
    if a.dtype.kind in "iub":
        return _copied(a, out)
    return np.round(a, out=out) if a.dtype.kind == "c" else np.rint(a, out)


# -- the table ---------------------------------------------------------------------------------------------------------

abs = unary("abs", np.absolute)
acos = unary("acos", np.arccos)
acosh = unary("acosh", np.arccosh)
asin = unary("asin", np.arcsin)
asinh = unary("asinh", np.arcsinh)
atan = unary("atan", np.arctan)
atanh = unary("atanh", np.arctanh)
bitwise_invert = unary("bitwise_invert", np.invert)
cbrt = unary("cbrt", np.cbrt)
ceil = unary("ceil", np.ceil)
conj = unary("conj", np.conjugate)
cos = unary("cos", np.cos)
cosh = unary("cosh", np.cosh)
deg2rad = unary("deg2rad", np.deg2rad)
exp = unary("exp", np.exp)
exp2 = unary("exp2", np.exp2)
expm1 = unary("expm1", np.expm1)
floor = unary("floor", np.floor)
frac = unary("frac", _frac)
imag = unary("imag", _imag)
isfinite = unary("isfinite", np.isfinite)
isinf = unary("isinf", np.isinf)
isnan = unary("isnan", np.isnan)
log = unary("log", np.log)
log10 = unary("log10", np.log10)
log1p = unary("log1p", np.log1p)
log2 = unary("log2", np.log2)
logical_not = unary("logical_not", np.logical_not)
negative = unary("negative", np.negative)
positive = unary("positive", np.positive)
rad2deg = unary("rad2deg", np.rad2deg)
real = unary("real", _real)
reciprocal = unary("reciprocal", np.reciprocal)
round = unary("round", _round)
rsqrt = unary("rsqrt", _rsqrt)
sigmoid = unary("sigmoid", _sigmoid)
sign = unary("sign", np.sign)
signbit = unary("signbit", np.signbit)
sin = unary("sin", np.sin)
sinh = unary("sinh", np.sinh)
sqrt = unary("sqrt", np.sqrt)
square = unary("square", np.square)
tan = unary("tan", np.tan)
tanh = unary("tanh", np.tanh)
trunc = unary("trunc", np.trunc)

add = binary("add", np.add)
atan2 = binary("atan2", np.arctan2)
bitwise_and = binary("bitwise_and", np.bitwise_and)
bitwise_left_shift = binary("bitwise_left_shift", np.left_shift)
bitwise_or = binary("bitwise_or", np.bitwise_or)
bitwise_right_shift = binary("bitwise_right_shift", np.right_shift)
bitwise_xor = binary("bitwise_xor", np.bitwise_xor)
copysign = binary("copysign", np.copysign)
divide = binary("divide", np.true_divide)
equal = binary("equal", np.equal)
floor_divide = binary("floor_divide", np.floor_divide)
fmax = binary("fmax", np.fmax)
fmin = binary("fmin", np.fmin)
fmod = binary("fmod", np.fmod)
gcd = binary("gcd", np.gcd)
greater = binary("greater", np.greater)
greater_equal = binary("greater_equal", np.greater_equal)
hypot = binary("hypot", np.hypot)
lcm = binary("lcm", np.lcm)
ldexp = binary("ldexp", np.ldexp)
less = binary("less", np.less)
less_equal = binary("less_equal", np.less_equal)
logaddexp = binary("logaddexp", np.logaddexp)
logaddexp2 = binary("logaddexp2", np.logaddexp2)
logical_and = binary("logical_and", np.logical_and)
logical_or = binary("logical_or", np.logical_or)
logical_xor = binary("logical_xor", np.logical_xor)
maximum = binary("maximum", np.maximum)
minimum = binary("minimum", np.minimum)
multiply = binary("multiply", np.multiply)
nextafter = binary("nextafter", np.nextafter)
not_equal = binary("not_equal", np.not_equal)
pow = binary("pow", np.power)
remainder = binary("remainder", np.remainder)
subtract = binary("subtract", np.subtract)

# The names that torch and NumPy have for the same.
absolute = abs
arccos, arccosh, arcsin, arcsinh, arctan, arctanh = acos, acosh, asin, asinh, atan, atanh
arctan2 = atan2
bitwise_not = bitwise_invert
cinv = reciprocal
div = true_divide = divide
eq, ne, lt, le, gt, ge = equal, not_equal, less, less_equal, greater, greater_equal
mul = multiply
neg = negative
sub = subtract

UNARY_OPERATORS: Final = {
    "__neg__": negative, "__pos__": positive, "__abs__": abs, "__invert__": bitwise_invert,
}  # fmt: skip
OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder,
    "pow": pow, "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor, "lshift": bitwise_left_shift,
    "rshift": bitwise_right_shift,
}  # fmt: skip
"""Of `__add__`, `__radd__`, `__iadd__` and so on: the function."""
COMPARISONS: Final[dict[str, Callable[..., Any]]] = {
    "eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal,
}  # fmt: skip
"""Of `__lt__` and so on, which have no other forms."""
