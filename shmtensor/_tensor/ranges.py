"""Functions that make tensors of evenly spaced values. They block only with `shared=True`, as `empty` does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import NumpyType, category_of, default_complex, default_float, dtype_of
from ..errors import DTypeError, InvalidArgument
from .core import FAILURES, Tensor, failed, index_of
from .creation import made_of
from .dispatch import composed, export
from .options import with_options


def _number(value: Any) -> Any:
    """A bound: a number, or a tensor of one element."""
    return value.item() if isinstance(value, Tensor) else value


def _whole(*bounds: Any) -> bool:
    return all(isinstance(one, int | np.integer) for one in bounds)


@composed(method=False)
@with_options
def arange(
    start: Any = None, end: Any = None, step: Any = 1, *, stop: Any = None, dtype: Any = None, shared: bool = False
) -> Tensor:
    """Values from `start` (0 if only one is given) below `end`, `step` apart.

    Args:
        start, end, step: numbers, or tensors of one element.
        stop: another name of `end`.
        dtype: default int64 when all are integers, else float32. With an integer type, start and step are truncated
            to it, and values outside its range wrap around, as in torch.

    Raises:
        InvalidArgument: step 0, or bounds that are not finite or outside 64 bits.
        DTypeError: not numbers, or a complex or bool type.
    """
    end = stop if end is None else end
    if end is None:
        start, end = 0, start
    start, end, step = _number(0 if start is None else start), _number(end), _number(step)
    whole = _whole(start, end, step)
    kind = (np.dtype(np.int64) if whole else default_float()) if dtype is None else dtype_of(dtype)
    _require_real("arange", kind)
    doing = f"arange({start!r}, {end!r}, {step!r}) for"
    try:
        if kind == np.int64:  # as torch, which truncates the end only here
            start, end, step, whole = int(start), int(end), int(step), True
        if whole and category_of(kind) == 1:
            wide = kind if kind.itemsize == 8 else np.dtype(np.int64)
            return _made(np.arange(start, end, step, dtype=wide), kind, shared)
        return _made(_steps(start, max(0, math.ceil((end - start) / step)), step, kind), kind, shared)
    except (*FAILURES, ZeroDivisionError) as error:
        raise failed(error, doing, np.empty(0, kind)) from error


@composed(method=False)
@with_options
def range(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """Values from `start` to `end`, inclusive if the steps reach it exactly (TH's and torch's).

    Default type float32, also for integers. Other arguments and errors as `arange`.
    """
    if end is None:
        start, end = 0, start
    start, end, step = _number(start), _number(end), _number(step)
    kind = dtype_of(dtype)
    _require_real("range", kind)
    try:
        return _made(_steps(start, max(0, math.floor((end - start) / step) + 1), step, kind), kind, shared)
    except (*FAILURES, ZeroDivisionError) as error:
        raise failed(error, f"range({start!r}, {end!r}, {step!r}) for", np.empty(0, kind)) from error


def _steps(start: Any, count: int, step: Any, kind: NumpyType) -> NDArray[Any]:
    """`count` values in int64 or double; with an integer type start and step are truncated first."""
    if category_of(kind) == 1:
        start, step = int(start), int(step)
    return start + step * np.arange(count)  # type: ignore[no-any-return]


def _require_real(name: str, kind: NumpyType) -> None:
    if category_of(kind) in (0, 3):
        raise DTypeError(f"{name} in {kind.name}; it takes integer and floating-point types")


def _made(values: NDArray[Any], kind: NumpyType, shared: bool) -> Tensor:
    with np.errstate(all="ignore"):  # values out of range become infinite, or wrap, as in C
        return made_of(values.astype(kind, copy=False), shared)


@composed(method=False)
@with_options
def linspace(
    start: Any,
    end: Any = None,
    steps: Any = None,
    *,
    stop: Any = None,
    num: Any = None,
    endpoint: bool = True,
    dtype: Any = None,
    shared: bool = False,
) -> Tensor:
    """`steps` evenly spaced values from `start` to `end`.

    Args:
        start, end: numbers, or tensors of one element.
        steps: how many; default 100.
        stop, num: other names of `end` and `steps`.
        endpoint: False: the last value is the one before `end`.
        dtype: default float32, or complex64. With an integer type, `start`, `end` and the values are truncated to it.

    Raises:
        InvalidArgument: steps negative or not an integer; bounds that are not finite.
        DTypeError: not numbers, or complex numbers in another type.
    """
    kind, values = _spaced(
        "linspace", start, stop if end is None else end, steps if num is None else num, dtype, endpoint
    )
    return _made(values, kind, shared)


@composed(method=False)
@with_options
def logspace(
    start: Any,
    end: Any = None,
    steps: Any = None,
    base: float = 10.0,
    *,
    stop: Any = None,
    num: Any = None,
    dtype: Any = None,
    shared: bool = False,
) -> Tensor:
    """`base` to the power of `steps` evenly spaced values from `start` to `end`. Other arguments as `linspace`."""
    kind, powers = _spaced("logspace", start, stop if end is None else end, steps if num is None else num, dtype, True)
    try:
        with np.errstate(all="ignore"):
            values = np.power(complex(base) if kind.kind == "c" else float(base), powers)
    except FAILURES as error:
        raise failed(error, f"logspace of base {base!r} for", powers) from error
    return _made(values, kind, shared)


def _spaced(name: str, start: Any, end: Any, steps: Any, dtype: Any, endpoint: bool) -> tuple[NumpyType, NDArray[Any]]:
    """The type of a result, and equally spaced values in double."""
    start, end = _bound(name, start), _bound(name, end)
    count = index_of(_number(100 if steps is None else steps), "steps")
    is_complex = isinstance(start, complex) or isinstance(end, complex)
    kind = (default_complex() if is_complex else default_float()) if dtype is None else dtype_of(dtype)
    if is_complex and kind.kind != "c":
        raise DTypeError(f"{name}({start!r}, {end!r}) as {kind.name}; complex numbers need a complex type")
    try:
        if category_of(kind) == 1 and count != 1:
            start, end = int(start), int(end)
        convert = complex if is_complex else float
        with np.errstate(all="ignore"):
            return kind, _between(convert(start), convert(end), count, endpoint)
    except (*FAILURES, OverflowError) as error:
        raise failed(error, f"{name}({start!r}, {end!r}, {steps!r}) for", np.empty(0, kind)) from error


def _bound(name: str, value: Any) -> Any:
    if isinstance(value, Tensor) and value.ndim:
        raise InvalidArgument(f"{name} with a bound of shape {value.shape}; give a number or a tensor without axes")
    return _number(value)


def _between(start: Any, end: Any, count: int, endpoint: bool) -> NDArray[Any]:
    """`count` values, the second half counted from the end, as torch computes them."""
    if count < 0:
        raise ValueError(f"the number of steps, {count}, is negative")
    if not endpoint:
        return _between(start, end, count + 1, True)[:-1]
    if count == 1:
        return np.full(1, start + 0.0)
    step = (end - start) / max(count - 1, 1)
    at = np.arange(count)
    result: NDArray[Any] = np.where(at < count // 2, start + step * at, end - step * (count - 1 - at))
    return result


__all__ = export(globals())
