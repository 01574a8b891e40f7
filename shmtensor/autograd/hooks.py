"""Hooks: functions that see gradients, and may replace them. Nothing in this module blocks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from enum import IntEnum
from itertools import count
from typing import Any

from .._native import Node, hooks_of, put_grad, set_retains_grad
from .._tensor.methods import Tensor
from ..errors import DTypeError, GradientError, InvalidArgument, type_name

_numbers = count()


class _Order(IntEnum):
    """Order of the hooks that are called before a node runs."""

    TENSOR = 0
    KEEP = 1
    """Of retain_grad, which sees the gradient after all other hooks."""
    NODE = 2


class RemovableHandle:
    """A registered hook. `remove()` removes it; as a context manager, the handle removes it at the end."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: dict[Hashable, Any], hook: Any) -> None:
        self._hooks = hooks
        self.id: int = next(_numbers)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Remove the hook. A second call has no effect."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register(x: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Call `hook(gradient)` when the gradient of a tensor is known; what it returns, if not None, replaces it.

    That must be a tensor of the same shape and dtype; otherwise the backward pass raises InvalidArgument or DTypeError.
    Raises GradientError for a tensor that does not require grad.
    """
    if not x.requires_grad:
        raise GradientError("register_hook on a tensor that does not require grad; set requires_grad first")
    node = x.grad_fn
    if node is None:
        return RemovableHandle(hooks_of(x, False), hook)
    return RemovableHandle(_of(node), (_Order.TENSOR, x.output_nr, hook))


def register_post(x: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """Call `hook(x)` when a gradient has been added to `x.grad` of a leaf."""
    if not x.requires_grad or not x.is_leaf:
        raise GradientError(
            "register_post_accumulate_grad_hook on a tensor that is not a leaf that requires grad; use register_hook"
        )
    return RemovableHandle(hooks_of(x, True), hook)


def retain(x: Tensor) -> None:
    """Keep the gradient of the result of an operation in its `grad`."""
    own = weakref.ref(x)
    node = x.grad_fn
    assert node is not None
    number = node._sequence_nr

    def keep(gradient: Tensor) -> None:
        tensor = own()
        now = None if tensor is None else tensor.grad_fn
        if tensor is not None and now is not None and now._sequence_nr == number:  # it has the same node
            put_grad(tensor, gradient)

    set_retains_grad(x)
    _of(node)[next(_numbers)] = (_Order.KEEP, x.output_nr, keep)


def _of(node: Node) -> dict[Hashable, Any]:
    return node._extras.setdefault("hooks", {})  # type: ignore[no-any-return]


def register_before(node: Node, hook: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
    """Call `hook(gradients of outputs)` before a node runs."""
    return RemovableHandle(_of(node), (_Order.NODE, 0, hook))


def register_after(node: Node, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
    """Call `hook(gradients of inputs, gradients of outputs)` after a node has run."""
    return RemovableHandle(node._extras.setdefault("post_hooks", {}), hook)


def replacement(hook: Any, before: Any, given: Any) -> Any:
    """The gradient that a hook returned in place of another one: a tensor of the same shape and dtype, or None.

    Raises:
        DTypeError: it is not a tensor, or one of another dtype.
        InvalidArgument: it has another shape, or there was no gradient before.
    """
    if given is None or given is before:
        return given
    if not isinstance(given, Tensor) and not hasattr(given, "to_dense"):
        raise DTypeError(
            f"hook {name_of(hook)} returned a {type_name(given)} as gradient; it must return a tensor or None"
        )
    if before is None:
        raise InvalidArgument(f"hook {name_of(hook)} returned a tensor for a gradient that is None; return None")
    if given.shape != before.shape:
        raise InvalidArgument(
            f"hook {name_of(hook)} returned a gradient of shape {given.shape} in place of one of shape {before.shape}; "
            "give one of that shape"
        )
    if given.dtype != before.dtype:
        raise DTypeError(
            f"hook {name_of(hook)} returned a gradient of {given.dtype.name} in place of one of {before.dtype.name}; "
            "convert it with to(g.dtype)"
        )
    return given


def name_of(hook: Any) -> str:
    """The name of a hook for messages."""
    return str(getattr(hook, "__name__", None) or type_name(hook))


# -- called by the engine ---------------------------------------------------------------------------------------------


def apply(hooks: dict[Hashable, Any], gradient: Any) -> Any:
    """The gradient of a leaf after its hooks. Raises as `replacement`."""
    for hook in list(hooks.values()):
        given = hook(gradient)
        if given is not None:
            gradient = replacement(hook, gradient, given)
    return gradient


def apply_post(hooks: dict[Hashable, Any], x: Tensor) -> None:
    """Call the hooks of a leaf that has its gradient."""
    for hook in list(hooks.values()):
        hook(x)


def run(node: Node, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the outputs of a node after its hooks, before it runs.

    Raises as `replacement`, and InvalidArgument: a hook returns another number of gradients.
    """
    found = list(gradients)
    for order, output, hook in sorted(node._extras["hooks"].values(), key=lambda one: one[0]):
        if order is _Order.NODE:
            given = hook(tuple(found))
            if given is not None:
                found = list(_replacements(hook, tuple(found), given))
        elif found[output] is not None:
            given = hook(found[output])
            if given is not None:
                found[output] = replacement(hook, found[output], given)
    return tuple(found)


def run_post(node: Node, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the inputs of a node after its hooks, after it has run. Raises as `run`."""
    for hook in list(node._extras["post_hooks"].values()):
        given = hook(inputs, outputs)
        if given is not None:
            inputs = _replacements(hook, inputs, given)
    return inputs


def _replacements(hook: Any, before: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    if isinstance(given, Tensor):
        given = (given,)
    if not isinstance(given, tuple):
        raise DTypeError(
            f"hook {name_of(hook)} returned a {type_name(given)}; it must return None, or a tuple of as many "
            "gradients as it gets"
        )
    if len(given) != len(before):
        raise InvalidArgument(
            f"hook {name_of(hook)} returned {len(given)} gradients in place of {len(before)}; return one for each, or "
            "None"
        )
    return tuple([replacement(hook, old, new) for old, new in zip(before, given, strict=True)])
