"""Axes as torch numbers them, and elements by axes for operations that write."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgument
from .core import axis_of, index_of
from .dispatch import Array


def lined(a: Any) -> Any:
    """The array, or for one without axes a view with one."""
    return a if getattr(a, "ndim", 1) else a.reshape(1)


def dim_of(a: Array, dim: Any) -> int:
    """The number of an axis; 0 for a tensor without axes, of which `dim` is 0 or -1. Raises as axis_of."""
    return axis_of(lined(a), dim)


def along(axis: int, key: Any) -> tuple[Any, ...]:
    """The index that is `key` on an axis, and everything on the others."""
    return (*(slice(None),) * axis, key)


def part_of(a: Array, dim: Any, start: int | None, end: int | None, step: int) -> tuple[Any, ...]:
    """The index of the steps from `start` below `end` of an axis. Raises IndexOutOfRange, InvalidArgument."""
    if index_of(step, "step") < 1:
        raise InvalidArgument(f"a slice in steps of {step}; give a step from 1")
    return along(dim_of(a, dim), slice(start, end, step))
