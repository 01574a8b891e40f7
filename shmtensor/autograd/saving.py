"""The tensors that nodes save while `saved_tensors_hooks` are set. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._native import detach as _detach
from .._native import saving_hooks, set_output, set_saving_hooks
from .._tensor.methods import Tensor
from ..errors import DTypeError, GradientError, type_name
from . import modes

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]
"""pack and unpack."""


class without_hooks:  # noqa: N801  # a context
    """The context in which hooks run: without recording, and without hooks."""

    __slots__ = ("_hooks", "_mode")

    def __enter__(self) -> None:
        self._hooks, self._mode = saving_hooks(), modes.no_grad()
        self._mode.__enter__()
        set_saving_hooks(None)

    def __exit__(self, *error: Any) -> None:
        set_saving_hooks(self._hooks)
        self._mode.__exit__(*error)


class Kept:
    """A saved tensor: the result of the pack hook; without hooks, or for a leaf that requires grad, the tensor."""

    __slots__ = ("_content", "_node", "_output", "_unpack", "_version")

    def __init__(self, x: Tensor, hooks: Hooks | None) -> None:
        self._unpack: Callable[[Any], Tensor] | None = None
        if hooks is None or (x.requires_grad and x.is_leaf):
            self._content: Any = x
            self._version = x._version
            return
        self._node, self._output = x.grad_fn, x.output_nr
        self._unpack = hooks[1]
        with without_hooks():
            self._content = hooks[0](_detach(x))

    def get(self) -> Tensor:
        """The tensor, with its node.

        Raises GradientError: it was changed in place; DTypeError: unpack did not return a tensor.
        """
        if self._unpack is None:
            kept: Tensor = self._content
            require_unchanged(kept, self._version)
            return kept
        with without_hooks():
            found = self._unpack(self._content)
        if not isinstance(found, Tensor):
            raise DTypeError(f"unpack of saved_tensors_hooks returned a {type_name(found)}; it must return a tensor")
        made = _detach(found)
        if self._node is not None:
            set_output(made, self._node, self._output)
        return made


def require_unchanged(x: Tensor, version: int) -> None:
    """Raise GradientError: a tensor was changed in place since it had this version."""
    if x._version != version:
        raise GradientError(
            f"a gradient needs a tensor of {x.dtype.name} and shape {x.shape} that was changed in place since it was "
            "saved; clone() it before it is changed"
        )


def pack(value: Any, hooks: Hooks) -> Any:
    """What a node keeps in place of a tensor, or of tensors in tuples and lists; anything else is itself."""
    if isinstance(value, Tensor):
        return Kept(value, hooks)
    if type(value) not in (tuple, list):
        return value
    made = [pack(one, hooks) for one in value]
    return value if all(a is b for a, b in zip(made, value, strict=True)) else type(value)(made)


def unpack(value: Any) -> Any:
    """The value that `pack` was called with."""
    if isinstance(value, Kept):
        return value.get()
    return type(value)([unpack(one) for one in value]) if type(value) in (tuple, list) else value
