"""Hooks for the tensors that the graph saves. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from .._native import Node as Node
from .._native import saving_hooks, set_saving_hooks
from .._tensor.methods import Tensor
from .saving import Hooks


class saved_tensors_hooks:  # noqa: N801  # torch's name
    """In this context, recorded operations save `pack_hook(x)` in place of each tensor x that their gradients need.

    The backward pass calls `unpack_hook` to get the tensor. Both run without recording. Of nested contexts, the
    innermost applies. Leaves that require grad are saved themselves: the graph keeps them anyway.

    Args:
        pack_hook: is called with a tensor without its node; its result is saved.
        unpack_hook: is called with what `pack_hook` returned. Returns a tensor of the same values.
    """

    __slots__ = ("_before", "_hooks")

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self._hooks: Hooks = (pack_hook, unpack_hook)
        self._before: list[Hooks | None] = []

    def __enter__(self) -> Self:
        self._before.append(saving_hooks())
        set_saving_hooks(self._hooks)
        return self

    def __exit__(self, *error: object) -> None:
        set_saving_hooks(self._before.pop())
