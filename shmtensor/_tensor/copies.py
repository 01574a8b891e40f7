"""Copying forms of functions that return views: `transpose_copy` is `transpose`, as a tensor with memory of its own.

Nothing in this module blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from . import shapes
from .axes import part_of
from .core import Tensor
from .creation import zeros
from .dispatch import Array, Module, Result, composed, export, operation
from .outputs import placed
from .parts import split, split_with_sizes, unbind
from .scattering import slice_scatter
from .shapes import clone

_INTO = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")


def _copy(name: str, view: Callable[..., Any], *, method: bool = False) -> Callable[..., Any]:
    """The function `name`, which copies the result of `view`."""

    def compute(*args: Any, out: Any = None, **how: Any) -> Any:
        made = view(*args, **how)
        if not isinstance(made, list | tuple):
            return clone(made) if out is None else placed(made, out, name)
        if out is None:
            return tuple([clone(one) for one in made])
        for one, into in zip(made, out, strict=True):
            placed(one, into, name)
        return None

    found = inspect.signature(view)
    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`{name.removesuffix('_copy')}` as a copy, with memory of its own. Raises as that does."
    several = str(found.return_annotation).startswith(("list", "tuple"))
    compute.__signature__ = found.replace(  # type: ignore[attr-defined]
        parameters=[*found.parameters.values(), _INTO], return_annotation="Any" if several else "Tensor"
    )
    return composed(method=method)(compute)


def _expanded(input: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    return input.expand(size)


def _viewed(input: Tensor, size: Any) -> Tensor:
    return input.view(size)


def _sliced(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    return _slice(input, dim, start, end, step)


def _of_slice(g: Tensor, x_shape: tuple[int, ...], dim: int, start: int | None, end: int | None, step: int) -> Tensor:
    return slice_scatter(zeros(x_shape, dtype=g.dtype), g, dim, start, end, step)


def _detached(self: Tensor) -> Tensor:
    return self.detach()


@operation(name="slice", result=Result.VIEW, function=False, method=False, fails="a slice of", gradient=_of_slice)
def _slice(
    xp: Module, x: Array, /, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    """The view of the indices from `start` below `end`, `step` apart, of an axis. Raises IndexOutOfRange."""
    return x[part_of(x, dim, start, end, step)]


alias_copy = _copy("alias_copy", clone)
as_strided_copy = _copy("as_strided_copy", shapes.as_strided)
detach_copy = _copy("detach_copy", _detached)
diagonal_copy = _copy("diagonal_copy", shapes.diagonal)
expand_copy = _copy("expand_copy", _expanded)
narrow_copy = _copy("narrow_copy", shapes.narrow, method=True)
permute_copy = _copy("permute_copy", shapes.permute_dims)
select_copy = _copy("select_copy", shapes.select)
slice_copy = _copy("slice_copy", _sliced)
split_copy = _copy("split_copy", split)
split_with_sizes_copy = _copy("split_with_sizes_copy", split_with_sizes)
squeeze_copy = _copy("squeeze_copy", shapes.squeeze)
t_copy = _copy("t_copy", shapes.t)
transpose_copy = _copy("transpose_copy", shapes.transpose)
unbind_copy = _copy("unbind_copy", unbind)
unfold_copy = _copy("unfold_copy", shapes.unfold)
unsqueeze_copy = _copy("unsqueeze_copy", shapes.unsqueeze)
view_copy = _copy("view_copy", _viewed)

__all__ = export(globals())
