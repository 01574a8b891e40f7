"""In-place methods that change the shape of a tensor (its view of its storage), or its values.

Nothing in this module blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._native import is_recorded, set_output
from ..errors import GradientError, InvalidArgument
from ..storage.arguments import is_writable
from . import shapes
from .core import Tensor
from .creation import zeros
from .dispatch import Array, Module, Result, composed, export, operation
from .selection import tril, triu
from .shapes import clone
from .statistical import cumprod, cumsum


def _become(self: Tensor, other: Tensor) -> Tensor:
    """Make a tensor the same view as `other`, a view of it. Raises GradientError: a leaf that requires grad."""
    if other.requires_grad:
        if self.is_leaf:
            raise GradientError(
                "cannot change the shape of a leaf that requires grad in place; use no_grad(), or a view of it"
            )
        set_output(self, other.grad_fn, other.output_nr)
    storage = other.storage()
    self._array, self._storage, self._epoch = other._live(), storage, other._epoch
    return self


@composed(function=False)
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """Insert a new axis of size 1 at `dim`; returns self. Raises IndexOutOfRange, InvalidArgument."""
    return _become(self, shapes.unsqueeze(self, dim))


@composed(function=False)
def squeeze_(self: Tensor, dim: Any = None) -> Tensor:
    """Remove axes of size 1: all of them, or those named; returns self. Raises as squeeze does."""
    return _become(self, shapes.squeeze(self, dim))


@composed("swapaxes_", "swapdims_", function=False)
def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two axes; returns self. Raises IndexOutOfRange."""
    return _become(self, shapes.transpose(self, dim0, dim1))


@composed(function=False)
def t_(self: Tensor) -> Tensor:
    """Exchange the axes of a matrix; returns self. Raises InvalidArgument: more than two axes."""
    return _become(self, shapes.t(self))


@composed(function=False)
def as_strided_(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Set sizes and strides (elements); returns self. Raises InvalidArgument: beyond the storage."""
    return _become(input, shapes.as_strided(input, size, stride, storage_offset))


@composed(function=False)
def cumsum_(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """`cumsum` in place; returns self. Raises IndexOutOfRange."""
    return self.copy_(cumsum(self, dim, dtype=dtype))


@composed(function=False)
def cumprod_(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """`cumprod` in place; returns self. Raises IndexOutOfRange."""
    kept = clone(self) if is_recorded((self,)) else self  # the gradient needs the previous values
    return self.copy_(cumprod(kept, dim, dtype=dtype))


@composed(function=False)
def tril_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Set what lies above a diagonal to zero; returns self. Raises InvalidArgument: fewer than two axes."""
    return self.copy_(tril(self, diagonal=diagonal))


@composed(function=False)
def triu_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Set what lies below a diagonal to zero; returns self. Raises InvalidArgument: fewer than two axes."""
    return self.copy_(triu(self, diagonal=diagonal))


def _off_diagonal(g: Tensor, wrap: bool) -> Tensor:
    return g.masked_fill(zeros(g.shape, dtype=bool).fill_diagonal_(True, wrap), 0)


@operation(result=Result.SAME, function=False, fails="filling a diagonal of", gradient=_off_diagonal)
def fill_diagonal_(xp: Module, self: Array, fill_value: Any, wrap: bool = False) -> Array:
    """Set the main diagonal; returns self.

    Args:
        wrap: in a matrix with more rows than columns, the diagonal begins again after each square and one row.

    Raises:
        InvalidArgument: fewer than two axes; more than two that differ in size.
    """
    if self.ndim < 2:
        raise InvalidArgument(f"fill_diagonal_ of a tensor of shape {self.shape}; it needs two axes")
    if not is_writable(self):
        raise ValueError("read-only")
    if self.size:
        xp.fill_diagonal(self, fill_value, wrap)


__all__ = export(globals())
