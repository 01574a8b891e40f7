"""Norms of gradients, and gradients limited in norm or value. Nothing is recorded; nothing here blocks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

from ..._tensor.creation import tensor
from ..._tensor.joining import stack
from ..._tensor.methods import Tensor
from ...autograd.modes import no_grad
from ...errors import InvalidArgument
from ...linalg import vector_norm


def _all(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else [*tensors]


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [one.grad for one in _all(parameters) if one.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm of all elements of several tensors, as if they were one vector.

    Args:
        tensors: the tensors.
        norm_type: the norm; `float("inf")`: the largest absolute value.
        error_if_nonfinite: refuse a norm that is infinite or NaN.
        foreach: has no effect.

    Raises:
        InvalidArgument: the norm is infinite or NaN, and error_if_nonfinite.
    """
    with no_grad():
        norms = [vector_norm(one, float(norm_type)) for one in _all(tensors)]
        total = vector_norm(stack(norms), float(norm_type)) if norms else tensor(0.0)
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise InvalidArgument(
                f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
                "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
                "`error_if_nonfinite=False`"
            )
        return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Multiply gradients in place by max_norm / total_norm, if that is below 1.

    Args:
        parameters: the parameters.
        max_norm: the largest norm.
        total_norm: the norm of all gradients.
        foreach: has no effect.
    """
    factor = float(max_norm) / (float(total_norm) + 1e-6)
    if factor >= 1:
        return
    with no_grad():
        for grad in _gradients(parameters):
            grad.mul_(factor)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Limit the norm of all gradients of parameters together, in place. Returns the norm before.

    Args:
        parameters: the parameters.
        max_norm: the largest norm.
        norm_type: the norm; `float("inf")`: the largest absolute value.
        error_if_nonfinite: refuse a norm that is infinite or NaN.
        foreach: has no effect.

    Raises:
        InvalidArgument: the norm is infinite or NaN, and error_if_nonfinite.
    """
    every = _all(parameters)
    total = get_total_norm(_gradients(every), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(every, max_norm, total)
    return total


def clip_grad_norm(*args: Any, **how: Any) -> Tensor:
    """clip_grad_norm_ by its older name."""
    warnings.warn(
        "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **how)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients of parameters in place.

    Args:
        parameters: the parameters.
        clip_value: the largest absolute value.
        foreach: has no effect.
    """
    bound = float(clip_value)
    with no_grad():
        for grad in _gradients(parameters):
            grad.clamp_(-bound, bound)
