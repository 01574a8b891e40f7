"""Schedules along a cosine."""

from __future__ import annotations

from math import cos, floor, log, pi
from typing import Any

from ...errors import InvalidArgument
from ..optimizer import Optimizer
from .base import LRScheduler, rates_of


class CosineAnnealingLR(LRScheduler):
    """Rates that go down to `eta_min` in `T_max` steps, along half of a cosine, and up again.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        T_max: number of steps.
        eta_min: the lowest rate.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the step."""
        self._warn_of_get_lr()
        if self._is_initial:
            return rates_of(self.optimizer)
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        groups, least = self.optimizer.param_groups, self.eta_min
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the step before had the lowest rates
            rise = (1 - cos(pi / self.T_max)) / 2
            return [group["lr"] + (rate - least) * rise for rate, group in zip(self.base_lrs, groups, strict=True)]
        now, before = (1 + cos(pi * step / self.T_max) for step in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (group["lr"] - least) + least for group in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        part = (1 + cos(pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (rate - self.eta_min) * part for rate in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Rates that go down to `eta_min` along half of a cosine, and begin again; each time in `T_mult` times the steps.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        T_0: number of steps until the first restart.
        T_mult: factor of the number of steps at each restart.
        eta_min: the lowest rate.

    Raises:
        InvalidArgument: T_0 or T_mult is not an integer of at least 1, or eta_min is not a number.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise InvalidArgument(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise InvalidArgument(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, float | int):
            raise InvalidArgument(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i: Any = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: Any = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates of the step."""
        self._warn_of_get_lr()
        part = (1 + cos(pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (rate - self.eta_min) * part for rate in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Advance by one step, and set the rates.

        Args:
            epoch: the number of the step to go to; a fraction is allowed, such as `epoch + batch / batches`.

        Raises:
            InvalidArgument: below 0.
        """
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._go_to(epoch or 0)
        self.last_epoch: int = floor(epoch or 0)
        with self._computing():
            values = self.get_lr()
        self._set(values)

    def _go_to(self, epoch: Any) -> None:
        if epoch < 0:
            raise InvalidArgument(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            beginnings = int(log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_i = self.T_0 * self.T_mult**beginnings
            self.T_cur = epoch - self.T_0 * (self.T_mult**beginnings - 1) / (self.T_mult - 1)
