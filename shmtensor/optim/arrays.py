"""Shared by the steps of all optimizers: blocks of arrays, intermediate results, constants, sparse gradients.

A step computes with arrays, in place. Large arrays are divided into blocks that stay in a core's cache while all
operations of the step pass over them. Numbers are arrays without axes, which NumPy converts faster than Python's
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._native import atomic_add, atomic_index_add, has_device_arrays, is_device_array
from .._tensor.core import Tensor, wrap
from ..dtypes import default_float

BLOCK: Final = 1 << 17
"""Bytes of one array that a step works on at a time."""
_VIEWS: Final = 4096  # maximum number of cached views of intermediate results

Array = NDArray[Any]


def sparse_parts(grad: Any) -> tuple[Array, Array] | None:
    """(indices, values) of a sparse gradient: row `indices[i]` has `values[i]`; None for a tensor."""
    if isinstance(grad, Tensor):
        return None
    return grad._indices()._live().reshape(-1), grad._values()._live()


def number(value: Any) -> Any:
    """A number that may be given as a tensor of one element."""
    return value.item() if isinstance(value, Tensor) else value


def count(state: dict[str, Any]) -> float:
    """Add one to the step of a parameter. Returns the sum; of a shared counter, with the steps of all processes."""
    step = state["step"]
    if isinstance(step, Tensor):
        a = step._live()
        atomic_add(a, (), 1.0)
        return float(a)
    state["step"] = step = step + 1
    return step  # type: ignore[no-any-return]


def scalar(value: float) -> Tensor:
    """A number as a tensor without axes: of float64 if that is the default type, else of float32, as in torch."""
    return wrap(np.array(value, np.float64 if default_float() == np.float64 else np.float32))


def zeros_like(p: Tensor) -> Tensor:
    """Zeros of the type, the sizes and the order of a parameter."""
    return wrap(np.zeros_like(p._live()))


def full_like(p: Tensor, value: float) -> Tensor:
    """A tensor like a parameter, filled with a number; both parts of complex numbers have it."""
    a = p._live()
    return wrap(np.full_like(a, complex(value, value) if a.dtype.kind == "c" else value))


def real_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that steps compute in: of the parts of complex numbers, and float32 for floats of 16 bits.

    Also a type for integers, so that a step refuses to write to them.
    """
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def constants(dtype: np.dtype[Any], *values: float) -> list[Array]:
    """Numbers as arrays of the type that a step computes with for parameters of a type."""
    kind = real_type(dtype)
    if has_device_arrays():  # CuPy takes NumPy's scalars, and not its arrays
        return [kind.type(value) for value in values]
    return [np.array(value, kind) for value in values]


def as_real(a: Array) -> Array:
    """Complex numbers as pairs of real ones, in an additional axis."""
    return a[..., None].view(real_type(a.dtype))


def toward(g: Array, p: Array, decay: Array | None, maximize: bool, into: Array) -> Array:
    """The gradient to descend: `g` or its negative, plus `decay` times the parameter; in `into`, or `g` itself."""
    if decay is not None:
        np.multiply(p, decay, into)
        return np.subtract(into, g, into) if maximize else np.add(into, g, into)
    return np.negative(g, into) if maximize else g


def approach(mean: Array, g: Array, part: Array, into: Array) -> None:
    """Move a running mean by a part of its distance to `g`."""
    np.subtract(g, mean, into)
    np.multiply(into, part, into)
    np.add(mean, into, mean)


def approach_square(mean: Array, g: Array, keep: Array, part: Array, into: Array) -> None:
    """Keep a part of a running mean of squares, and add another part of the square of `g`."""
    np.multiply(mean, keep, mean)
    np.multiply(g, g, into)
    np.multiply(into, part, into)
    np.add(mean, into, mean)


class Scratch:
    """Memory for intermediate results, which every block and every step reuses."""

    __slots__ = ("_buffers", "_views")

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, np.dtype[Any]], Array] = {}
        self._views: dict[tuple[int, tuple[int, ...], np.dtype[Any]], list[Array]] = {}

    def blocks(self, spare: int, *arrays: Array) -> Iterable[Any]:
        """Divide arrays of equal shapes into blocks.

        Args:
            spare: how many intermediate results a block needs.
            *arrays: complex ones are divided as real ones.

        Returns:
            For each block, its part of each array, and as many arrays of arbitrary content.
        """
        first = arrays[0]
        if is_device_array(first):
            if first.dtype.kind == "c":
                arrays = tuple([as_real(a) for a in arrays])
            dtype = real_type(first.dtype)
            return ((*arrays, *[np.empty_like(arrays[0], dtype) for _ in range(spare)]),)
        views = self._views.get((spare, first.shape, first.dtype))
        return self._divide(spare, arrays) if views is None else ((*arrays, *views),)

    def _divide(self, spare: int, arrays: tuple[Array, ...]) -> Iterator[tuple[Array, ...]]:
        if arrays[0].dtype.kind == "c":
            arrays = tuple([as_real(a) for a in arrays])
        first = arrays[0]
        if first.nbytes <= BLOCK:
            if len(self._views) >= _VIEWS:
                self._views.clear()
            views = self._views[spare, first.shape, first.dtype] = self._spare(spare, first)
            yield (*arrays, *views)
            return
        if all(a.flags.c_contiguous for a in arrays):
            arrays = tuple([a.reshape(-1) for a in arrays])
        rows = max(1, BLOCK * len(arrays[0]) // first.nbytes)
        part: list[Array] = []
        for start in range(0, len(arrays[0]), rows):
            known = part and len(arrays[0]) - start >= rows
            part = [a[start : start + rows] for a in arrays]
            if not known:
                views = self._spare(spare, part[0])
            yield (*part, *views)

    def _spare(self, spare: int, like: Array) -> list[Array]:
        dtype = real_type(like.dtype)
        if like.nbytes > BLOCK:  # a long row of an array that is not contiguous
            return [np.empty(like.shape, dtype) for _ in range(spare)]
        buffers = []
        for i in range(spare):
            buffer = self._buffers.get((i, dtype))
            if buffer is None:
                buffer = self._buffers[i, dtype] = np.empty(2 * BLOCK // dtype.itemsize, dtype)
            buffers.append(buffer[: like.size].reshape(like.shape))
        return buffers


# -- sparse gradients --------------------------------------------------------------------------------------------------


def coalesced(indices: Array, values: Array) -> tuple[Array, Array]:
    """Rows of a sparse gradient in order, each once; rows that occur several times are added."""
    order = np.argsort(indices, kind="stable")
    indices = indices[order]
    first = np.flatnonzero(np.diff(indices, prepend=-1))
    if not len(first):
        return indices, values[order]
    return indices[first], np.add.reduceat(values[order], first, axis=0)


def add_rows(a: Any, indices: Array, values: Array, factor: float) -> None:
    """Add `factor` times rows to rows of `a`; each element atomically, so that no process's addition is lost."""
    if is_device_array(a):
        a.scatter_add(indices, (values * factor).astype(a.dtype, copy=False))
    elif a.dtype.char in "fd":
        atomic_index_add(a, indices, values.astype(a.dtype, copy=False), factor)
    else:  # no atomic operations for such elements
        np.add.at(a, indices, (values * factor).astype(a.dtype, copy=False))
