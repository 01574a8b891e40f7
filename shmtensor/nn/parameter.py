"""Parameter and Buffer: tensors that become members of the module that they are assigned to."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from .._tensor.creation import empty
from .._tensor.methods import Tensor
from ..errors import DTypeError, tensor_advice, type_name

_T = TypeVar("_T", bound=Tensor)


def _over(kind: type[Tensor], data: Any) -> Any:
    """A tensor of a subclass, over the memory of another tensor. Raises DTypeError: not a tensor."""
    if data is None:
        data = empty(0)
    elif not isinstance(data, Tensor):
        raise DTypeError(f"a {kind.__name__} of a {type_name(data)}; {tensor_advice(data)}")
    made = object.__new__(kind)
    made.data = data
    return made


def _copied(tensor: _T) -> _T:
    """A tensor of the same class over the same memory, with the same attributes."""
    made: _T = _over(type(tensor), tensor.detach())
    made.__dict__.update(tensor.__dict__)
    return made


class Parameter(Tensor):
    """A tensor that a module registers when it is assigned to one of its attributes, and that requires gradients.

    It shares its memory with `data`. `module.parameters()` yields it.

    Args:
        data: the tensor; None: one without elements.
        requires_grad: whether gradients are recorded.

    Raises:
        DTypeError: data is not a tensor, or requires gradients and is not of a floating-point or complex type.
    """

    _keeps_gradient = False  # copies of a model begin without gradients, as in torch

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        """Make it."""
        made: Self = _over(cls, data)
        made.requires_grad = requires_grad
        return made

    def __repr__(self) -> str:
        text = repr(self.detach())
        return (
            f"Parameter containing:\n{text[:-1]}, requires_grad=True)"
            if self.requires_grad
            else f"Parameter containing:\n{text}"
        )

    def __copy__(self) -> Self:
        """A parameter over the same memory, as in torch."""
        made = _copied(self)
        made.requires_grad = self.requires_grad
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_parameter, (type(self), self.detach(), self.requires_grad), self.__dict__ or None


class Buffer(Tensor):
    """A tensor that a module registers as a buffer when it is assigned to one of its attributes.

    It shares its memory with `data`.

    Args:
        data: the tensor; None: one without elements.
        persistent: whether it is part of the module's `state_dict()`.

    Raises:
        DTypeError: data is not a tensor.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        """Make it."""
        made: Self = _over(cls, data)
        made.persistent = persistent
        return made

    def __copy__(self) -> Self:
        """A buffer over the same memory, as in torch."""
        return _copied(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_buffer, (type(self), self.detach()), self.__dict__


def _rebuild_parameter(kind: type[Parameter], data: Tensor, requires_grad: bool) -> Parameter:
    made: Parameter = _over(kind, data)
    made.requires_grad = requires_grad
    return made


def _rebuild_buffer(kind: type[Buffer], data: Tensor) -> Buffer:
    made: Buffer = _over(kind, data)
    return made
