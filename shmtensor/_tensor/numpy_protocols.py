"""NumPy's functions accept tensors and return tensors. Nothing in this module blocks.

Where gradients are recorded, a ufunc is computed by the operation of the same meaning; other functions are refused if
gradients of their results would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from .._loading import load
from .._native import count_change, is_recorded
from ..dtypes import BY_DTYPE
from ..errors import GradientError
from .core import FAILURES, NUMPYS, OPERANDS, Tensor, failed, wrap
from .dispatch import composed, export
from .outputs import target_of

_OURS: Final = {
    "conjugate": "conj_physical", "degrees": "rad2deg", "fabs": "abs", "power": "pow", "radians": "deg2rad",
    "rint": "round",
}  # fmt: skip
"""Names of operations by NumPy's names of ufuncs, where they differ."""
_WRITING: Final = (np.copyto, np.fill_diagonal, np.place, np.put, np.put_along_axis, np.putmask)
"""Functions that write to their first argument."""


def _lost(function: Any, instead: str) -> GradientError:
    """The error for a function of NumPy that records no gradients."""
    return GradientError(
        f"numpy.{function.__name__} with a tensor that requires grad; NumPy records no gradients: {instead}, or "
        "detach() the tensor, or use no_grad()"
    )


def _recorded_ufunc(ufunc: Any, method: str, inputs: Any, kwargs: Any) -> Any:
    """Call the operation that is a ufunc, so that gradients are recorded. Raises GradientError: there is none."""
    name = _OURS.get(ufunc.__name__, ufunc.__name__)
    functions = load("_tensor.functions")
    if method != "__call__" or kwargs or not hasattr(functions, name):
        raise _lost(ufunc, f"use shmtensor.{name}" if hasattr(functions, name) else "compute it by other operations")
    return getattr(functions, name)(*inputs)


@composed(function=False)
def __array_ufunc__(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Call a ufunc of NumPy with tensors; its results are tensors."""
    found: list[Tensor] = []
    values = (inputs[0], *inputs[2:]) if method == "at" else inputs  # the other one of `at` is an index
    if not all(isinstance(one, (Tensor, *OPERANDS)) for one in values):
        return NotImplemented
    outs = kwargs.get("out", ())
    arguments, options = _unwrapped(inputs, found), _unwrapped(kwargs, found)
    if is_recorded(tuple(found)) and not {one[-1] for one in ufunc.types} <= {"?", "O"}:  # as comparisons
        return _recorded_ufunc(ufunc, method, inputs, kwargs)
    if method == "at" and isinstance(inputs[0], Tensor):
        target_of(inputs[0])  # NumPy does not check whether it can be written
    for one in inputs[:1] if method == "at" else outs:
        if isinstance(one, Tensor):
            count_change(one)
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
    recorded = is_recorded(tuple(found))
    if function in _WRITING and isinstance(args[0], Tensor):
        if recorded:
            raise _lost(function, "use a method that writes in place")
        count_change(args[0])
    try:
        made = _wrapped(function(*arguments, **options), found)
        if recorded and _has_gradients(made, found):
            raise _lost(function, "use shmtensor's operations")
        return made
    except FAILURES as error:
        if type(error).__module__ not in NUMPYS:
            raise
        raise failed(error, f"numpy.{function.__name__} with", found[0]._array) from error


def _has_gradients(value: Any, found: list[Tensor]) -> bool:
    """Whether some result, other than a tensor that was given, is of a type that has gradients."""
    if isinstance(value, Tensor):
        return value._array.dtype.kind not in "biu" and all(value is not one for one in found)
    return isinstance(value, tuple | list) and any(_has_gradients(one, found) for one in value)


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
