"""NumPy's functions accept tensors and return tensors. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..dtypes import BY_DTYPE
from .core import FAILURES, NUMPYS, OPERANDS, Tensor, failed, target_of, wrap
from .dispatch import composed, export


@composed(function=False)
def __array_ufunc__(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Call a ufunc of NumPy with tensors; its results are tensors."""
    found: list[Tensor] = []
    values = (inputs[0], *inputs[2:]) if method == "at" else inputs  # the other one of `at` is an index
    if not all(isinstance(one, (Tensor, *OPERANDS)) for one in values):
        return NotImplemented
    if method == "at" and isinstance(inputs[0], Tensor):
        target_of(inputs[0])  # NumPy does not look whether it can be written
    outs = kwargs.get("out", ())
    arguments, options = _unwrapped(inputs, found), _unwrapped(kwargs, found)
    try:
        result = getattr(ufunc, method)(*arguments, **options)
    except FAILURES as error:
        written = [one for one in (*outs, *inputs[:1]) if isinstance(one, Tensor)] if outs or method == "at" else []
        raise failed(error, f"numpy.{ufunc.__name__} with", (written or found)[0]._array) from error
    if not outs:
        return _wrapped(result, found)
    results = result if isinstance(result, tuple) else (result,)
    given = [_wrapped(one, found) if out is None else out for one, out in zip(results, outs, strict=True)]
    return tuple(given) if len(given) > 1 else given[0]


@composed(function=False)
def __array_function__(self: Tensor, function: Any, types: Iterable[type], args: Any, kwargs: Any) -> Any:
    """Call another function of NumPy with tensors; its results are tensors, and views are on the storage viewed."""
    if not all(issubclass(one, (Tensor, np.ndarray)) for one in types):
        return NotImplemented
    found: list[Tensor] = []
    arguments, options = _unwrapped(args, found), _unwrapped(kwargs, found)
    if not found:  # they are inside of something that is not a list; NumPy would only ask again
        return NotImplemented
    try:
        return _wrapped(function(*arguments, **options), found)
    except FAILURES as error:
        if type(error).__module__ not in NUMPYS:
            raise
        raise failed(error, f"numpy.{function.__name__} with", found[0]._array) from error


def _unwrapped(value: Any, found: list[Tensor]) -> Any:
    """`value` with the arrays of its tensors, which are noted in `found`."""
    if isinstance(value, Tensor):
        found.append(value)
        return value._live()
    if isinstance(value, tuple | list):
        return (list if isinstance(value, list) else tuple)([_unwrapped(one, found) for one in value])
    if type(value) is dict:
        return {key: _unwrapped(one, found) for key, one in value.items()}
    return value


def _wrapped(value: Any, found: list[Tensor]) -> Any:
    """`value` with tensors for its arrays: the one whose array it is, or on the storage that it is a view of."""
    if isinstance(value, np.ndarray | np.generic):
        for tensor in found:
            if value is tensor._array:
                return tensor
        if value.dtype not in BY_DTYPE:
            return value
        if isinstance(value, np.ndarray) and value.base is not None:
            for tensor in found:
                place = tensor._located()
                if np.may_share_memory(value, place[0]):
                    return tensor._share(value.view(np.ndarray), *place)
        return wrap(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_wrapped(one, found) for one in value])
    if type(value) is tuple or type(value) is list:
        return type(value)([_wrapped(one, found) for one in value])
    return value


__all__ = export(globals())
