"""Views whose base was changed in place, and views that were changed themselves. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._native import Node, connect, connect_as, release_node, run_node, set_output
from .._tensor import scattering, shapes
from .._tensor.methods import Tensor
from ..errors import NotSupported
from . import modes


class Place(NamedTuple):
    """Where a view lies in the memory of its base.

    Attributes:
        order: the axes of the base in the order in which they lie in memory.
        back: the inverse permutation of `order`.
        shape: shape of the view.
        strides: strides of the view, in elements.
        offset: offset of the view's first element from the base's, in elements.
    """

    order: tuple[int, ...]
    back: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def window(self) -> tuple[Any, ...]:
        """Arguments of `as_strided` on a base in the order of memory."""
        return self.shape, self.strides, self.offset


def place_of(view: Tensor, base: Tensor) -> Place:
    """Return where a view lies in its base.

    Raises NotSupported: the types differ, or the elements of the base are not contiguous in memory, or overlap.
    """
    if view._array.dtype != base._array.dtype:
        raise NotSupported(
            f"an in-place change, with gradients recorded, of a view of {view.dtype.name} of a tensor of "
            f"{base.dtype.name}; change a clone() of the view"
        )
    strides = base._array.strides
    order = tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
    if not base._array.transpose(order).flags.c_contiguous:
        raise NotSupported(
            f"an in-place change, with gradients recorded, of a view of a tensor of shape {base.shape} and strides "
            f"{base.stride()}, whose elements are not contiguous; take the view of a clone() of that tensor"
        )
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return Place(order, back, view.shape, view.stride(), view.storage_offset() - base.storage_offset())


class CopySlices(Node):
    """The node of a tensor after another node changed a view of it in place."""

    def __init__(self, view: Tensor, base: Tensor, node: Node) -> None:
        self._place = place_of(view, base)
        self._node = node
        connect_as(self, node, base)

    def _run(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        place = self._place
        g = gradients[0].permute(place.order).contiguous()
        inner = run_node(self._node, (shapes.as_strided(g, *place.window),))
        first = inner[0] if inner[0] is not None else g.new_zeros(place.shape)
        return scattering.as_strided_scatter(g, first, *place.window).permute(place.back), *inner[1:]

    def _release(self) -> None:
        _release(self._node)


class _ViewFirst(Node):
    """A Python node in the form that CopySlices needs: its first input is the view that it changed."""

    def __init__(self, view: Tensor, node: Node, args: tuple[Any, ...]) -> None:
        self._node = node
        self._at = next((i for i, one in enumerate(args) if one is view), -1)
        others = [one for i, one in enumerate(args) if i != self._at]
        connect(self, (None if self._at < 0 else view, *others), 1)

    def _run(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        found = list(run_node(self._node, gradients))
        return (None if self._at < 0 else found.pop(self._at), *found)

    def _release(self) -> None:
        _release(self._node)


def _release(node: Node) -> None:
    own = getattr(node, "_release", None)  # a Python node
    if own is None:
        release_node(node)
    else:
        own()


def _base_of(view: Tensor) -> Tensor:
    base = view._base
    assert base is not None
    return base


def change_base(view: Tensor, node: Node) -> None:
    """Set the node of the base of a view that `node` changed in place."""
    base = _base_of(view)
    set_output(base, CopySlices(view, base, node), 0)


def change_base_by_function(view: Tensor, node: Node, args: tuple[Any, ...]) -> None:
    """As change_base, for a Function with one result that changed a view among its arguments in place."""
    change_base(view, node if args and args[0] is view else _ViewFirst(view, node, args))


def refresh(view: Tensor) -> None:
    """Rebuild the node of a view whose base was changed in place."""
    base = _base_of(view)
    place = place_of(view, base)
    with modes.enable_grad():
        first = base.storage_offset()
        made = shapes.as_strided(base.permute(place.order), place.shape, place.strides, place.offset + first)
    set_output(view, made.grad_fn, made.output_nr)
