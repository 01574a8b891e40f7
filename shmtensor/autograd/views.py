"""Views whose base was changed in place, and views that were changed themselves. Nothing in this module blocks."""

from __future__ import annotations

from typing import Any

from .._native import Node, connect_as, release_node, run_node, set_output
from .._tensor import scattering, shapes
from .._tensor.methods import Tensor
from ..errors import NotSupported
from . import modes


def _geometry(view: Tensor, base: Tensor) -> tuple[Any, ...]:
    """Sizes, strides and offset of a view in the elements of its base. Raises NotSupported."""
    if view._array.dtype != base._array.dtype or not base._array.flags.c_contiguous:
        raise NotSupported(
            f"in-place changes of a view of {view.dtype.name} of a tensor of {base.dtype.name}, or of one that is not "
            "contiguous, with gradients recorded; change a clone() and put it together again"
        )
    return view.shape, view.stride(), view.storage_offset() - base.storage_offset()


class CopySlices(Node):
    """The node of a tensor of which a view was changed in place by another node."""

    def __init__(self, view: Tensor, base: Tensor, node: Node) -> None:
        self._place = _geometry(view, base)
        self._node = node
        connect_as(self, node, base)

    def _run(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        g = gradients[0].contiguous()
        inner = run_node(self._node, (shapes.as_strided(g, *self._place),))
        first = inner[0] if inner[0] is not None else g.new_zeros(self._place[0])
        return scattering.as_strided_scatter(g, first, *self._place), *inner[1:]

    def _release(self) -> None:
        release_node(self._node)


def _base_of(view: Tensor) -> Tensor:
    base = view._base
    assert base is not None
    return base


def change_base(view: Tensor, node: Node) -> None:
    """A view was changed in place by a node: the node of its base follows from that."""
    base = _base_of(view)
    set_output(base, CopySlices(view, base, node), 0)


def refresh(view: Tensor) -> None:
    """Make the node of a view again, for its base was changed in place."""
    base = _base_of(view)
    size, stride, offset = _geometry(view, base)
    with modes.enable_grad():
        made = shapes.as_strided(base, size, stride, offset + base.storage_offset())
    set_output(view, made.grad_fn, made.output_nr)
