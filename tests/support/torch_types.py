"""The element types of results by torch's rule, written independently for tests, for the types torch computes with."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np

KINDS = (
    ("bool",),
    ("uint8", "int8", "int16", "int32", "int64"),
    ("float16", "float32", "float64"),
    ("complex64", "complex128"),
)
"""The categories in ascending order: a result has a type of the highest one among its operands."""
EVERY = tuple(itertools.chain(*KINDS))


def rank(dtype: str) -> int:
    """The category of a type."""
    return {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[np.dtype(dtype).kind]


def common(*types: str) -> str:
    """The type of a result of several tensors with axes."""
    return reduce(_common, types)


def _common(one: str, other: str) -> str:
    low, high = sorted((one, other), key=rank)
    if rank(low) == rank(high) or (rank(low), rank(high)) == (2, 3):
        return np.promote_types(one, other).name
    return high


def with_number(dtype: str, number: complex) -> str:
    """The type of a result of a tensor and a number: the number counts only if its category is higher."""
    types = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}
    return dtype if rank(types[type(number)]) <= rank(dtype) else common(dtype, types[type(number)])


def floats(dtype: str) -> str:
    """The type of functions that have no integer results, such as sqrt."""
    return dtype if rank(dtype) >= 2 else "float32"


def real(dtype: str) -> str:
    """The type of the real part."""
    return np.empty(0, dtype).real.dtype.name
