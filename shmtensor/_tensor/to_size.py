"""Sums that undo broadcasting. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgument
from .core import indices_of
from .dispatch import Array, Module, Result, export, operation


@operation(result=Result.VIEW, function=False, gradient=lambda g, self_shape: g.expand(self_shape))
def sum_to_size(xp: Module, self: Array, *size: Any) -> Array:
    """The sum over all axes along which a tensor of sizes `size` would be broadcast to this one's shape.

    Sums of integers and bool are int64. Itself where there is nothing to sum.

    Raises InvalidArgument: such a tensor does not broadcast to this shape.
    """
    wanted = indices_of(size[0] if len(size) == 1 and isinstance(size[0], list | tuple) else size)
    lead = self.ndim - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, self.shape[lead:], strict=True)):
        raise InvalidArgument(f"sum_to_size({wanted}) of a tensor of shape {self.shape}; it does not broadcast to it")
    axes = [*range(lead), *[lead + i for i, n in enumerate(wanted) if n == 1 and self.shape[lead + i] != 1]]
    if not axes and wanted:
        return self
    kind = xp.int64 if self.dtype.kind in "biu" else self.dtype
    return xp.sum(self, axis=tuple(axes), dtype=kind, keepdims=True).reshape(wanted)


__all__ = export(globals())
