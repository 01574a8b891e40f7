"""Variable, the class of tensors with gradients in early torch: another name of Tensor. Nothing here blocks."""

from __future__ import annotations

from typing import Any

from .._tensor.methods import Tensor


class _Variables(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_Variables):
    """A leaf tensor over the memory of `data`. Every tensor is an instance of this class.

    Args:
        data: a tensor.
        requires_grad: whether gradients are recorded.
        volatile: gradients are not recorded, whatever requires_grad is.

    Raises DTypeError: data that is not a tensor; integers that require grad.
    """

    def __new__(  # noqa: D102  # of the class
        cls, data: Tensor, requires_grad: bool = False, volatile: bool = False
    ) -> Any:
        made = data.detach()
        made.requires_grad = requires_grad and not volatile
        return made
