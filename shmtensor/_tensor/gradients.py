"""Methods of tensors for gradients, which call `shmtensor.autograd`. Only `backward` blocks, until it is done."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .._loading import load
from ..errors import GradientError
from .core import Tensor
from .dispatch import composed, export


@cache
def _autograd() -> Any:
    return load("autograd")


@composed(function=False)
def backward(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Add its gradients to `grad` of the leaves that it was computed from: `autograd.backward`, which has the errors.

    Args:
        gradient: a tensor of its shape; may be left out for one real element.
        retain_graph, create_graph, inputs: as for `autograd.backward`.
    """
    _autograd().backward(self, gradient, retain_graph, create_graph, inputs=inputs)


@composed(function=False)
def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> Any:
    """Call `hook(gradient)` when its gradient is known; a result that is not None replaces the gradient.

    Returns a handle, whose `remove()` removes the hook. Raises GradientError: it does not require grad.
    """
    return load("autograd.hooks").register(self, hook)


@composed(function=False)
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> Any:
    """Call `hook(self)` when a gradient has been added to `grad` of this leaf. Returns a handle, as register_hook.

    Raises GradientError: not a leaf that requires grad.
    """
    return load("autograd.hooks").register_post(self, hook)


@composed(function=False)
def retain_grad(self: Tensor) -> None:
    """Keep its gradient in `grad`, though it is the result of an operation. Raises GradientError: no gradient."""
    if not self.requires_grad:
        raise GradientError("retain_grad of a tensor that does not require grad; set requires_grad before")
    if not self.is_leaf and not self.retains_grad:
        load("autograd.hooks").retain(self)


__all__ = export(globals())
