"""Windows for signals: `hann_window` and others. They block only with `shared=True`, as `empty` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import dtype_of
from ..errors import DTypeError, InvalidArgument
from .core import FAILURES, Tensor, failed, index_of
from .creation import made_of
from .dispatch import composed, export
from .options import with_options


def _window(name: str, shape: Callable[[int], Any], length: Any, periodic: bool, dtype: Any, shared: bool) -> Tensor:
    """`length` values of a window; if `periodic`, the first ones of a window that is longer by 1."""
    kind = dtype_of(dtype)
    if kind.kind != "f":
        raise DTypeError(f"{name} in {kind.name}; give a floating-point type")
    count = index_of(length, "length")
    if count < 0:
        raise InvalidArgument(f"{name} of {count} points; give 0 or more")
    try:
        values: NDArray[Any] = np.ones(1) if count == 1 else shape(count + 1)[:-1] if periodic else shape(count)
        return made_of(values.astype(kind), shared)
    except FAILURES as error:
        raise failed(error, f"{name} of {count} points for", np.empty(0, kind)) from error


@composed(method=False)
@with_options(out=False)
def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """Bartlett's window, a triangle.

    Args:
        window_length: number of values.
        periodic: the window without its last value, to be repeated; False: symmetric.
        dtype: default float32, or what `set_default_dtype` was given.
        shared: as `empty`.

    Raises:
        InvalidArgument: a negative length. DTypeError: not a floating-point type.
    """
    return _window("bartlett_window", np.bartlett, window_length, periodic, dtype, shared)


@composed(method=False)
@with_options(out=False)
def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """Blackman's window. Other arguments and errors as bartlett_window."""
    return _window("blackman_window", np.blackman, window_length, periodic, dtype, shared)


@composed(method=False)
@with_options(out=False)
def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, shared: bool = False) -> Tensor:
    """Hann's window: half a period of 1 - cos. Other arguments and errors as bartlett_window."""
    return _window("hann_window", np.hanning, window_length, periodic, dtype, shared)


@composed(method=False)
@with_options(out=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    shared: bool = False,
) -> Tensor:
    """Hamming's window, `alpha - beta * cos`. Other arguments and errors as bartlett_window."""

    def shape(count: int) -> NDArray[Any]:
        return alpha - beta * np.cos(2 * np.pi * np.arange(count) / max(count - 1, 1))

    return _window("hamming_window", shape, window_length, periodic, dtype, shared)


@composed(method=False)
@with_options(out=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, shared: bool = False
) -> Tensor:
    """Kaiser's window of shape `beta`. Other arguments and errors as bartlett_window."""
    return _window("kaiser_window", lambda count: np.kaiser(count, beta), window_length, periodic, dtype, shared)


__all__ = export(globals())
