"""Checks of hyperparameters, with torch's messages."""

from __future__ import annotations

from typing import Any

from .._tensor.core import Tensor
from ..errors import InvalidArgument, NotSupported


def require_rate(lr: Any) -> None:
    """Refuse a learning rate. Raises InvalidArgument: below 0, or a tensor of several elements."""
    require_single(lr, "lr")
    require_not_negative("learning rate", lr)


def require_single(value: Any, what: str) -> None:
    """Refuse a tensor of several elements. Raises InvalidArgument."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise InvalidArgument(f"Tensor {what} must be 1-element, and has shape {value.shape}")


def require_not_negative(what: str, value: Any) -> None:
    """Refuse numbers below 0. Raises InvalidArgument."""
    if not value >= 0:
        raise InvalidArgument(f"Invalid {what}: {value}; give 0 or more")


def require_betas(betas: Any) -> None:
    """Refuse decay rates outside of 0 <= beta < 1. Raises InvalidArgument."""
    for i, beta in enumerate(betas):
        require_single(beta, f"betas[{i}]")
        if not 0 <= beta < 1:
            raise InvalidArgument(f"Invalid beta parameter at index {i}: {beta}; give a number from 0 to below 1")


def require_plain(differentiable: bool, foreach: bool | None = None, fused: bool | None = None) -> None:
    """Check options of torch. Raises NotSupported: differentiable; InvalidArgument: both `foreach` and `fused`."""
    if differentiable:
        raise NotSupported(
            "differentiable=True is not supported, because steps compute in place; compute the parameters by hand"
        )
    if fused and foreach:
        raise InvalidArgument("`fused` and `foreach` cannot be `True` together; leave both out, steps are always fused")
