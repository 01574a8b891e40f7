"""Sparse gradients: that of an embedding is 0 except in the rows that were looked up. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._tensor.core import Tensor
from .._tensor.creation import zeros
from .._tensor.dispatch import Array, Module, operation
from ..dtypes import DType
from ..errors import InvalidArgument


class SparseGradient:
    """A gradient of which few rows are not 0: the indices of these rows in the first axis, and their values.

    An index may occur several times; the gradient of that row is the sum of the values. `coalesce` adds them up.

    Args:
        indices: indices of the rows, (n,) int64.
        values: the rows, (n, ...).
        shape: shape of the tensor that the gradient belongs to.

    Raises InvalidArgument: the shapes do not match.
    """

    __slots__ = ("_coalesced", "_index", "_rows", "shape")

    is_sparse: Final = True

    def __init__(self, indices: Tensor, values: Tensor, shape: tuple[int, ...], *, coalesced: bool = False) -> None:
        if indices.ndim != 1 or values.shape != (indices.shape[0], *shape[1:]):
            raise InvalidArgument(
                f"a sparse gradient of shape {tuple(shape)} with indices of shape {indices.shape} and values of shape "
                f"{values.shape}; give (n) and (n, ...)"
            )
        self._index = indices
        self._rows = values
        self._coalesced = coalesced
        self.shape: tuple[int, ...] = tuple(shape)

    @property
    def dtype(self) -> DType:
        """Type of the values."""
        return self._rows.dtype

    def _indices(self) -> Tensor:
        """The indices of the rows, (1, n) as in torch."""
        return self._index.reshape(1, -1)

    def _values(self) -> Tensor:
        """The rows, (n, ...)."""
        return self._rows

    def indices(self) -> Tensor:
        """As `_indices`. Raises InvalidArgument: it is not coalesced."""
        self._require_coalesced("indices")
        return self._indices()

    def values(self) -> Tensor:
        """As `_values`. Raises InvalidArgument: it is not coalesced."""
        self._require_coalesced("values")
        return self._rows

    def _require_coalesced(self, name: str) -> None:
        if not self._coalesced:
            raise InvalidArgument(f"{name}() of a sparse gradient with rows that may occur twice; call coalesce()")

    def is_coalesced(self) -> bool:
        """Whether each index occurs once, in order."""
        return self._coalesced

    def coalesce(self) -> SparseGradient:
        """The same gradient with each index once, in order; self if it is coalesced."""
        if self._coalesced:
            return self
        indices, values = _coalesced(self._rows, self._index)
        return SparseGradient(indices, values, self.shape, coalesced=True)

    def to_dense(self) -> Tensor:
        """The whole gradient as a tensor."""
        made = zeros(self.shape, dtype=self.dtype)
        return _added_rows(made, self._rows, self._index)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of an axis."""
        return self.shape if dim is None else self.shape[dim]

    def clone(self) -> SparseGradient:
        """A copy with memory of its own."""
        return SparseGradient(self._index.clone(), self._rows.clone(), self.shape, coalesced=self._coalesced)

    def detach(self) -> SparseGradient:
        """Return self, which is not part of a graph."""
        return self

    def __add__(self, other: Any) -> Any:
        """The sum: of two sparse gradients sparse, with a tensor a tensor. Raises InvalidArgument: other shapes."""
        if isinstance(other, SparseGradient):
            if other.shape != self.shape:
                raise InvalidArgument(
                    f"adding sparse gradients of shapes {self.shape} and {other.shape}; give gradients of one shape"
                )
            return SparseGradient(_joined(self._index, other._index), _joined(self._rows, other._rows), self.shape)
        if isinstance(other, Tensor):
            return _added_rows(other.clone(), self._rows, self._index)
        return NotImplemented

    __radd__ = __add__

    def __mul__(self, factor: Any) -> SparseGradient:
        """Times a number."""
        return SparseGradient(self._index, self._rows * factor, self.shape, coalesced=self._coalesced)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> SparseGradient:
        """Divided by a number."""
        return SparseGradient(self._index, self._rows / divisor, self.shape, coalesced=self._coalesced)

    def __repr__(self) -> str:
        return f"SparseGradient(indices={self._index}, values={self._rows}, shape={self.shape})"


@operation(name="coalesced_rows", function=False, method=False)
def _coalesced(xp: Module, values: Array, at: Array) -> tuple[Array, Array]:
    """Each index once, and the sum of its rows."""
    if not at.size:
        return at.copy(), values.copy()
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[first], np.add.reduceat(values[order], first, axis=0)


@operation(name="added_rows", function=False, method=False)
def _added_rows(xp: Module, whole: Array, values: Array, at: Array) -> Array:
    """The tensor with rows added to some of its rows."""
    made = whole.copy()
    np.add.at(made, at, values)
    return made


@operation(name="joined_rows", function=False, method=False)
def _joined(xp: Module, first: Array, second: Array) -> Array:
    """The rows of two tensors."""
    return xp.concatenate([first, second])
