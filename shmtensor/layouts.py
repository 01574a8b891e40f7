"""Layouts and memory formats, torch's names for the order of elements in memory, as values of keyword arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .errors import InvalidArgument, NotSupported, type_name
from .fixed import Fixed

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Named(Fixed):
    """A value with a name in `shmtensor`. There is one object of each."""

    __slots__ = ("name",)

    name: str

    def __init__(self, name: str) -> None:
        self._fix(name=name)

    def __repr__(self) -> str:
        return f"shmtensor.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class Layout(Named):
    """The way a tensor stores its elements. `strided` is the only one."""

    __slots__ = ()


class MemoryFormat(Named):
    """The order of a new tensor's elements in memory."""

    __slots__ = ()


layout = Layout
memory_format = MemoryFormat
strided: Final = Layout("strided")
"""Elements have a constant distance along each axis, as in all tensors here."""
contiguous_format: Final = MemoryFormat("contiguous_format")
"""C order: the last axis is dense, and each axis encloses those after it."""
preserve_format: Final = MemoryFormat("preserve_format")
"""Axes have the order of those of the input tensor, without gaps."""
channels_last: Final = MemoryFormat("channels_last")
"""Four axes (N, C, H, W) with C dense."""
channels_last_3d: Final = MemoryFormat("channels_last_3d")
"""Five axes (N, C, D, H, W) with C dense."""

_CHANNELS: Final = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def require_strided(layout: Any) -> None:
    """Refuse torch's layouts that tensors here cannot have. Does not block.

    Raises:
        NotSupported: a layout other than `strided`.
    """
    if layout is not None and layout is not strided:
        raise NotSupported(f"asked for layout {layout!r}; tensors are shmtensor.strided: leave it out")


def is_ordered(a: NDArray[Any], memory_format: Any) -> bool:
    """Whether an array is contiguous in a memory format; False for another number of axes. Does not block.

    Raises InvalidArgument: not a memory format.
    """
    if isinstance(memory_format, MemoryFormat) and len(_CHANNELS.get(memory_format, ())) not in (0, a.ndim):
        return False
    order = axes_in_memory(memory_format, a.ndim)
    return bool((a if order is None else a.transpose(order)).flags.c_contiguous)


def axes_in_memory(memory_format: Any, ndim: int) -> tuple[int, ...] | None:
    """Return the axes from the outermost in memory to the dense one; None: in order of number. Does not block.

    Raises:
        InvalidArgument: not a memory format, or one for another number of axes.
    """
    if memory_format is None or memory_format is contiguous_format or memory_format is preserve_format:
        return None
    order = _CHANNELS.get(memory_format) if isinstance(memory_format, MemoryFormat) else None
    if order is None:
        raise InvalidArgument(
            f"memory_format is a {type_name(memory_format)}; give shmtensor.contiguous_format, preserve_format, "
            "channels_last or channels_last_3d"
        )
    if len(order) != ndim:
        raise InvalidArgument(
            f"{memory_format!r} is for {len(order)} axes, and the tensor has {ndim}; "
            f"use contiguous_format, or a format for {ndim}"
        )
    return order


def dense_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of a tensor as `axes_in_memory` does, by their strides. Does not block.

    Axes whose strides do not decide (0, or equal) stay in the order of their numbers.
    """
    order = list(reversed(range(len(shape))))  # from the dense one
    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            inner, outer = order[before], order[at]
            if not strides[inner] or not strides[outer]:
                continue
            if (strides[inner], shape[inner]) > (strides[outer], shape[outer]):
                order[before], order[at] = outer, inner
                at = before
            elif strides[inner] < strides[outer]:
                break
    order.reverse()
    return None if order == sorted(order) else tuple(order)
