"""The arithmetic of tensors: a table from operator and method names to NumPy's functions.

Each entry becomes a method with the fast path written once: take the two views, call NumPy, wrap the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from .conversion import refused
from .dtypes import BY_DTYPE, require_supported
from .errors import DTypeError

if TYPE_CHECKING:
    from ._tensor import Tensor

_new = object.__new__
_ndarray = np.ndarray

ARITHMETIC: Final[dict[str, tuple[Callable[..., Any], str | None]]] = {
    "add": (np.add, "add"),
    "sub": (np.subtract, "sub"),
    "mul": (np.multiply, "mul"),
    "truediv": (np.true_divide, "div"),
    "floordiv": (np.floor_divide, "floor_divide"),
    "mod": (np.remainder, "remainder"),
    "pow": (np.power, "pow"),
    "matmul": (np.matmul, None),
    "and": (np.bitwise_and, "bitwise_and"),
    "or": (np.bitwise_or, "bitwise_or"),
    "xor": (np.bitwise_xor, "bitwise_xor"),
    "lshift": (np.left_shift, None),
    "rshift": (np.right_shift, None),
}
"""Operator -> NumPy's function and stem of its methods: `add` gives `__add__`, `__radd__`, `__iadd__`, add, add_."""
COMPARISON: Final[dict[str, Callable[..., Any]]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
"""Operator -> NumPy's function: `lt` gives `__lt__` and lt."""
UNARY: Final[dict[str, Callable[..., Any]]] = {
    "__neg__": np.negative, "__pos__": np.positive, "__abs__": np.absolute, "__invert__": np.invert,
    "neg": np.negative, "abs": np.absolute, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh,
}  # fmt: skip
"""Method -> NumPy's function; those without underscores have an in-place twin (`exp_`)."""
METHODS: Final[dict[str, Callable[..., Any]]] = {"matmul": np.matmul, "maximum": np.maximum, "minimum": np.minimum}
"""Method of two operands without an operator or in-place form -> NumPy's function."""


class Operators:
    """The methods that `install` makes from the tables, as type checkers see them."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __lshift__(self, other: Any) -> Tensor: ...
        def __rshift__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __iadd__(self, other: Any) -> Self: ...
        def __isub__(self, other: Any) -> Self: ...
        def __imul__(self, other: Any) -> Self: ...
        def __itruediv__(self, other: Any) -> Self: ...
        def __ifloordiv__(self, other: Any) -> Self: ...
        def __imod__(self, other: Any) -> Self: ...
        def __ipow__(self, other: Any) -> Self: ...
        def __iand__(self, other: Any) -> Self: ...
        def __ior__(self, other: Any) -> Self: ...
        def __ixor__(self, other: Any) -> Self: ...
        def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def add(self, other: Any) -> Tensor: ...
        def sub(self, other: Any) -> Tensor: ...
        def mul(self, other: Any) -> Tensor: ...
        def div(self, other: Any) -> Tensor: ...
        def floor_divide(self, other: Any) -> Tensor: ...
        def remainder(self, other: Any) -> Tensor: ...
        def pow(self, other: Any) -> Tensor: ...
        def bitwise_and(self, other: Any) -> Tensor: ...
        def bitwise_or(self, other: Any) -> Tensor: ...
        def bitwise_xor(self, other: Any) -> Tensor: ...
        def matmul(self, other: Any) -> Tensor: ...
        def maximum(self, other: Any) -> Tensor: ...
        def minimum(self, other: Any) -> Tensor: ...
        def eq(self, other: Any) -> Tensor: ...
        def ne(self, other: Any) -> Tensor: ...
        def lt(self, other: Any) -> Tensor: ...
        def le(self, other: Any) -> Tensor: ...
        def gt(self, other: Any) -> Tensor: ...
        def ge(self, other: Any) -> Tensor: ...
        def neg(self) -> Tensor: ...
        def abs(self) -> Tensor: ...
        def exp(self) -> Tensor: ...
        def log(self) -> Tensor: ...
        def sqrt(self) -> Tensor: ...
        def tanh(self) -> Tensor: ...
        def add_(self, other: Any) -> Self: ...
        def sub_(self, other: Any) -> Self: ...
        def mul_(self, other: Any) -> Self: ...
        def div_(self, other: Any) -> Self: ...
        def floor_divide_(self, other: Any) -> Self: ...
        def remainder_(self, other: Any) -> Self: ...
        def pow_(self, other: Any) -> Self: ...
        def bitwise_and_(self, other: Any) -> Self: ...
        def bitwise_or_(self, other: Any) -> Self: ...
        def bitwise_xor_(self, other: Any) -> Self: ...
        def neg_(self) -> Self: ...
        def abs_(self) -> Self: ...
        def exp_(self) -> Self: ...
        def log_(self) -> Self: ...
        def sqrt_(self) -> Self: ...
        def tanh_(self) -> Self: ...


def install(tensor: type[Tensor]) -> None:
    """Make the methods of the tables on the Tensor class. Does not block."""

    def define(name: str, method: Callable[..., Any], doc: str) -> None:
        method.__name__ = name
        method.__qualname__ = f"Tensor.{name}"
        method.__doc__ = doc
        setattr(tensor, name, method)

    raises = "Does not block. Raises InvalidArgument (shapes), DTypeError (types)."
    for op, (function, stem) in ARITHMETIC.items():
        named = getattr(function, "__name__", op)
        text = f"`numpy.{named}` of this tensor and another, an array or a number; a new tensor. {raises}"
        into = f"`numpy.{named}` with the result in this tensor; gives self. {raises}"
        define(f"__{op}__", _binary(tensor, function), text)
        define(f"__r{op}__", _reflected(tensor, function), text)
        if op != "matmul":
            define(f"__i{op}__", _inplace(tensor, function), into)
        if stem is not None:
            define(stem, _named(_binary(tensor, function), stem), text)
            define(f"{stem}_", _named(_inplace(tensor, function), f"{stem}_"), into)
    for op, function in COMPARISON.items():
        define(f"__{op}__", _binary(tensor, function), f"`numpy.{function.__name__}`, element by element. {raises}")
    for name, function in {**COMPARISON, **METHODS}.items():
        text = f"`numpy.{function.__name__}` of this tensor and another, an array or a number; a new tensor. {raises}"
        define(name, _named(_binary(tensor, function), name), text)
    for name, function in UNARY.items():
        define(name, _unary(tensor, function), f"`numpy.{function.__name__}`; a new tensor. {raises}")
        if not name.startswith("_"):
            define(f"{name}_", _unary_inplace(function), f"`numpy.{function.__name__}` in place; gives self. {raises}")


def _binary(cls: type[Tensor], function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        storage = self._storage
        a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
        if isinstance(other, cls):
            storage = other._storage
            other = other._array if storage is None or storage._epoch == other._epoch else other._follow()
        elif not isinstance(other, _OPERANDS):
            return NotImplemented
        try:
            r = function(a, other)
        except (OverflowError, TypeError, ValueError) as error:
            raise refused(error, "computing with", a) from error
        t = _new(cls)
        t._array = r if type(r) is _ndarray else np.asarray(r)
        t._storage = None
        t._epoch = 0
        t.requires_grad = False
        if t._array.dtype not in BY_DTYPE:
            require_supported(t._array.dtype)
        return t

    return method


def _named(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method that must not answer NotImplemented, as an operator may: nobody would look."""

    def named(self: Tensor, other: Any) -> Any:
        result = method(self, other)
        if result is NotImplemented:
            raise DTypeError(f"{name} of a tensor and a {type(other).__name__}; give a tensor, an array or a number")
        return result

    return named


def _reflected(cls: type[Tensor], function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        a = self._live()
        try:
            return _wrap(cls, function(other, a))
        except (OverflowError, TypeError, ValueError) as error:
            raise refused(error, "computing with", a) from error

    return method


def _inplace(cls: type[Tensor], function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        storage = self._storage
        a = self._array if storage is None or storage._epoch == self._epoch else self._follow()
        if isinstance(other, cls):
            storage = other._storage
            other = other._array if storage is None or storage._epoch == other._epoch else other._follow()
        elif not isinstance(other, _OPERANDS):
            return NotImplemented
        try:
            function(a, other, a)
        except (OverflowError, TypeError, ValueError) as error:
            raise refused(error, "computing in place on", a) from error
        return self

    return method


def _unary(cls: type[Tensor], function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor) -> Any:
        a = self._live()
        try:
            return _wrap(cls, function(a))
        except TypeError as error:
            raise refused(error, "computing with", a) from error

    return method


def _unary_inplace(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Tensor) -> Any:
        a = self._live()
        try:
            function(a, a)
        except (TypeError, ValueError) as error:
            raise refused(error, "computing in place on", a) from error
        return self

    return method


def _wrap(cls: type[Tensor], array: Any) -> Tensor:
    t = _new(cls)
    t._array = array if type(array) is _ndarray else np.asarray(array)
    t._storage = None
    t._epoch = 0
    t.requires_grad = False
    if t._array.dtype not in BY_DTYPE:
        require_supported(t._array.dtype)
    return t


_OPERANDS: Final = (int, float, np.ndarray, np.generic, list)
