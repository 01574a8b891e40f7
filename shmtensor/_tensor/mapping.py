"""Functions of Python over the elements of tensors, as slow as Python. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DTypeError, type_name
from ..storage.arguments import array_from
from .dispatch import Array, Module, Result, export, operation


def _put(xp: Module, name: str, function: Callable[..., Any], a: Array, *others: Array) -> None:
    """Put `function(element, others' elements)` in the place of each element. Raises DTypeError."""
    if not callable(function):
        raise DTypeError(f"{name} with a {type_name(function)}; give a function of {1 + len(others)} elements")
    rows = [xp.broadcast_to(other, a.shape).reshape(-1).tolist() for other in others]
    found = [function(*elements) for elements in zip(a.reshape(-1).tolist(), *rows, strict=True)]
    xp.copyto(a, array_from(found, a.dtype).reshape(a.shape), casting="unsafe")


@operation(result=Result.SAME, function=False, fails="writing to")
def map_(xp: Module, self: Array, tensor: Array, callable: Callable[[Any, Any], Any]) -> Array:
    """Put `callable(element, other)` in the place of each element; returns self. `tensor` broadcasts to self.

    Raises DTypeError: not a function, or its result is not a number; InvalidArgument: shapes; LayoutError.
    """
    _put(xp, "map_", callable, self, tensor)


@operation(result=Result.SAME, function=False, fails="writing to")
def map2_(xp: Module, self: Array, x: Array, y: Array, callable: Callable[[Any, Any, Any], Any]) -> Array:
    """`map_` of a function of three elements, of this tensor and two others. Raises as map_ does."""
    _put(xp, "map2_", callable, self, x, y)


@operation(result=Result.SAME, function=False, fails="writing to")
def apply_(xp: Module, self: Array, function: Callable[[Any], Any]) -> Array:
    """Put `function(element)` in the place of each element; returns self. As slow as Python."""
    if not callable(function):
        raise DTypeError(f"apply_ of {function!r}; give a function of one element")
    values = array_from([function(value) for value in self.reshape(-1).tolist()], self.dtype)
    xp.copyto(self, values.reshape(self.shape), casting="unsafe")


__all__ = export(globals())
