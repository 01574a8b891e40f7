"""Schedules by functions of the step."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, ClassVar

from ...errors import DTypeError, InvalidArgument, type_name
from ..optimizer import Optimizer
from .base import LRScheduler, rates_of

Factor = Callable[[int], float]


class OfFunctions(LRScheduler):
    """Base of schedules by functions. Checkpoints contain the attributes of functions that are objects."""

    lr_lambdas: list[Any]
    _OMITTED: ClassVar[tuple[str, ...]] = ("optimizer", "lr_lambdas")

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        count = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * count
        if len(functions) != count:
            raise InvalidArgument(f"Expected {count} lr_lambdas, but got {len(functions)}; give one for each group")
        for function in functions:
            if not callable(function):
                raise DTypeError(f"lr_lambda should be a function, but got {type_name(function)}")
        self.lr_lambdas = functions
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; of functions, the attributes of those that are objects."""
        kept = [None if isinstance(one, types.FunctionType) else one.__dict__.copy() for one in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the attributes in a `state_dict()`, and those of functions that are objects."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)


class LambdaLR(OfFunctions):
    """The rates before the first step, times a function of the step.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        lr_lambda: the function, or one for each group.

    Raises:
        InvalidArgument: not one for each group.
        DTypeError: not a function.
    """

    def get_lr(self) -> list[Any]:
        """The rates of the step."""
        self._warn_of_get_lr()
        return [rate * function(self.last_epoch) for function, rate in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(OfFunctions):
    """The rates of the step before, times a function of the step.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        lr_lambda: the function, or one for each group.

    Raises:
        InvalidArgument: not one for each group.
        DTypeError: not a function.
    """

    def get_lr(self) -> list[Any]:
        """The rates of the step."""
        self._warn_of_get_lr()
        if self._is_initial:
            return rates_of(self.optimizer)
        groups = self.optimizer.param_groups
        return [
            group["lr"] * function(self.last_epoch) for function, group in zip(self.lr_lambdas, groups, strict=True)
        ]
