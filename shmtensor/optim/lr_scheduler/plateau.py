"""A schedule that reduces the rates when a metric stops improving."""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar, Literal, SupportsFloat

from ...errors import InvalidArgument
from ..optimizer import Optimizer
from .base import LRScheduler, rates_of, require_optimizer, set_rate, warn_of_epoch


class ReduceLROnPlateau(LRScheduler):
    """Multiply the rates by `factor` when a metric has not improved for more than `patience` steps.

    Args:
        optimizer: the optimizer whose rates are set.
        mode: "min": lower is better; "max": higher.
        factor: below 1.
        patience: number of steps without improvement to wait for.
        threshold: smallest change that is an improvement.
        threshold_mode: "rel": as a part of the best value; "abs": as it is.
        cooldown: number of steps after a change during which none are counted.
        min_lr: the lowest rate, or one for each group.
        eps: smaller changes of rates are not made.

    Raises:
        InvalidArgument: a factor of 1 or more, an unknown mode, not one rate for each group.
        DTypeError: not an optimizer.
    """

    _MODES: ClassVar[tuple[str, ...]] = ("min", "max")

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1:
            raise InvalidArgument(f"Factor should be < 1.0. It is {factor}")
        require_optimizer(optimizer)
        self.factor = factor
        self.optimizer = optimizer
        self.default_min_lr: float | None = None if isinstance(min_lr, list | tuple) else min_lr
        count = len(optimizer.param_groups)
        self.min_lrs: list[Any] = list(min_lr) if isinstance(min_lr, list | tuple) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise InvalidArgument(f"expected {count} min_lrs, got {len(self.min_lrs)}; give one for each group")
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = rates_of(optimizer)
        if mode not in self._MODES:
            raise InvalidArgument(f"mode {mode} is unknown! Give 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise InvalidArgument(f"threshold mode {threshold_mode} is unknown! Give 'rel' or 'abs'")
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse: float = inf if mode == "min" else -inf
        self._reset()

    def _reset(self) -> None:
        self.best: float = self.mode_worse
        self.cooldown_counter: int = 0
        self.num_bad_epochs: int = 0

    def step(self, metrics: SupportsFloat, epoch: Any = None) -> None:  # type: ignore[override]
        """Count a step, and reduce the rates if the metric has stopped improving.

        Args:
            metrics: the metric, a number or a tensor of one element.
            epoch: the number of the step, which torch deprecates.
        """
        if epoch is not None:
            warn_of_epoch(2)
        self.last_epoch: int = self.last_epoch + 1 if epoch is None else epoch
        current = float(metrics)
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = rates_of(self.optimizer)

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise InvalidArgument(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}); set `min_lrs` to one for each group"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)

    @property
    def in_cooldown(self) -> bool:
        """Whether steps are not counted, because the rates were reduced within the last `cooldown` steps."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        limit = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return value > limit if sign > 0 else value < limit
