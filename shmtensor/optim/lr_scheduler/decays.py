"""Schedules that multiply the rates by factors which depend on the step alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ...errors import InvalidArgument
from ..optimizer import Optimizer
from .base import LRScheduler, rates_of


class Decay(LRScheduler):
    """Base of schedules by factors: multiplies the current rates by `_factor()`; None: leaves them unchanged."""

    def _factor(self) -> float | None:
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        """The rates of the step."""
        self._warn_of_get_lr()
        factor = self._factor()
        if factor is None:
            return rates_of(self.optimizer)
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _whole(self) -> float:
        """The product of all factors up to the step."""
        raise NotImplementedError

    def _get_closed_form_lr(self) -> list[Any]:
        factor = self._whole()
        return [rate * factor for rate in self.base_lrs]


class StepLR(Decay):
    """Multiply the rates by `gamma` every `step_size` steps.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        step_size: number of steps between two changes.
        gamma: the factor.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else None

    def _whole(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(Decay):
    """Multiply the rates by `gamma` at each of several steps.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        milestones: numbers of these steps.
        gamma: the factor.
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones: Counter[int] = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        times = self.milestones.get(self.last_epoch, 0)
        return self.gamma**times if times else None

    def _whole(self) -> float:
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(Decay):
    """Multiply the rates by a factor until a step, and divide them by it then.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        factor: from 0 to 1.
        total_iters: number of the step from which the factor is 1.

    Raises:
        InvalidArgument: another factor.
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise InvalidArgument(f"Constant multiplicative factor expected to be between 0 and 1, not {factor}.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.factor
        return 1 / self.factor if self.last_epoch == self.total_iters else None

    def _whole(self) -> float:
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(Decay):
    """Rates times a factor that goes from one number to another in equal steps.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        start_factor: above 0, to 1.
        end_factor: from 0 to 1.
        total_iters: number of the first step with `end_factor`.

    Raises:
        InvalidArgument: other factors.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise InvalidArgument(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1, "
                f"not {start_factor}."
            )
        if not 0 <= end_factor <= 1:
            raise InvalidArgument(f"Ending multiplicative factor expected to be between 0 and 1, not {end_factor}.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        slope = self.end_factor - self.start_factor
        return 1 + slope / (self.total_iters * self.start_factor + (self.last_epoch - 1) * slope)

    def _whole(self) -> float:
        slope = self.end_factor - self.start_factor
        return self.start_factor + slope * min(self.total_iters, self.last_epoch) / self.total_iters


class ExponentialLR(Decay):
    """Multiply the rates by `gamma` in each step.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        gamma: the factor.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        return None if self._is_initial else self.gamma

    def _whole(self) -> float:
        return self.gamma**self.last_epoch


class PolynomialLR(Decay):
    """Rates that fall to 0 as `(1 - step / total_iters) ** power`.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        total_iters: number of the first step with rate 0.
        power: the exponent.
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float | None:
        if self._is_initial or self.last_epoch > self.total_iters:
            return None
        left, before = (1 - step / self.total_iters for step in (self.last_epoch, self.last_epoch - 1))
        return (left / before) ** self.power  # type: ignore[no-any-return]

    def _whole(self) -> float:
        left = 1 - min(self.total_iters, self.last_epoch) / self.total_iters
        return left**self.power  # type: ignore[no-any-return]
