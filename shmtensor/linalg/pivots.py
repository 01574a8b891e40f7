"""Exchanges of rows, as LAPACK counts them. Nothing here blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._tensor.dispatch import Array, Module, operation
from ..errors import DTypeError


def pivots_of(name: str, pivots: Array) -> Array:
    """The array of pivots. Raises DTypeError: not integers."""
    if pivots.dtype.kind not in "iu":
        raise DTypeError(f"{name} with pivots of {pivots.dtype.name}; they must be integers, from 1")
    return pivots.astype(np.int32, copy=False)


def permutation_of(pivots: NDArray[Any], rows: int, dtype: Any) -> NDArray[Any]:
    """The matrices P that exchange rows as pivots (from 1) say: P @ L @ U is the matrix that was factored."""
    lead = pivots.shape[:-1]
    order = np.broadcast_to(np.arange(rows), (*lead, rows)).copy()
    for i in range(pivots.shape[-1]):  # row i came from there, after the exchanges before it
        other = pivots[..., i, None] - 1
        here = order[..., i].copy()
        order[..., i] = np.take_along_axis(order, other, -1)[..., 0]
        np.put_along_axis(order, other, here[..., None], -1)
    made: NDArray[Any] = (order[..., None, :] == np.arange(rows)[:, None]).astype(dtype)
    return made


@operation(function=False, method=False)
def permutation(xp: Module, pivots: Array, rows: int, dtype: Any) -> Array:
    """What `permutation_of` gives."""
    return permutation_of(pivots, rows, dtype)
