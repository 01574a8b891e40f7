"""Hooks of what the graph keeps. Nothing in this module blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from .._native import Node as Node
from .._native import saving_hooks, set_saving_hooks
from .._tensor.methods import Tensor
from .saving import Hooks


class saved_tensors_hooks:  # noqa: N801  # torch's name
    """In this context, recorded operations keep what `pack(x)` gives for the tensors that their gradients need.

    In the pass `unpack` gets that, and gives the tensor. Both run without recording. Of contexts in one another the
    innermost counts. Leaves that require grad are kept as they are: the graph keeps them anyway.

    Args:
        pack_hook: gets a tensor without its node; what it gives is kept.
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
