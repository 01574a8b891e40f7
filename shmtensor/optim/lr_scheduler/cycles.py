"""Schedules that go up and down, with the momentum in the opposite direction."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from math import cos, floor, pi
from typing import Any, ClassVar, Literal

from ...errors import InvalidArgument
from ..optimizer import Optimizer
from .base import LRScheduler, for_each_group, require_optimizer, set_rate


class WithMomentum(LRScheduler):
    """Base of schedules that also set the momentum, or `betas[0]`."""

    cycle_momentum: bool
    use_beta1: bool

    def _begin_momentum(self, optimizer: Optimizer, least: Any, most: Any, last_epoch: int) -> tuple[Any, Any]:
        """The lowest and the highest momentum of each group. Raises InvalidArgument: there is no momentum."""
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise InvalidArgument(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled; "
                "give cycle_momentum=False"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        most = for_each_group("max_momentum", optimizer, most)
        least = for_each_group("base_momentum", optimizer, least)
        if last_epoch == -1:
            self._set_momentum(optimizer, most)
            for group, low, high in zip(optimizer.param_groups, least, most, strict=True):
                group["max_momentum"], group["base_momentum"] = high, low
        return least, most

    def _set_momentum(self, optimizer: Optimizer, values: Iterable[Any]) -> None:
        for group, value in zip(optimizer.param_groups, values, strict=True):
            if self.use_beta1:
                group["betas"] = (value, *group["betas"][1:])
            else:
                group["momentum"] = value


class CyclicLR(WithMomentum):
    """Rates that go up from `base_lr` to `max_lr` and down again, in equal steps.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        base_lr: the lowest rate, or one for each group.
        max_lr: the highest rate, or one for each group.
        step_size_up: number of steps up.
        step_size_down: number of steps down; default that of steps up.
        mode: "triangular"; "triangular2": the height is halved in each cycle; "exp_range": times `gamma ** step`.
        gamma: for "exp_range".
        scale_fn: a function whose result the height is multiplied by, in place of `mode`.
        scale_mode: argument of `scale_fn`: the number of the "cycle" from 1, or of the step ("iterations").
        cycle_momentum: whether the momentum goes the other way.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest momentum, or one for each group.

    Raises:
        InvalidArgument: an unknown mode, an optimizer without momentum, or not one argument for each group.
        DTypeError: not an optimizer.
    """

    _OMITTED: ClassVar[tuple[str, ...]] = ("optimizer", "_scale_fn_ref", "_scale_fn_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        base_lrs = for_each_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_rate(group, rate)
        self.max_lrs: list[Any] = for_each_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size: float = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio: float = up / self.total_size
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise InvalidArgument(
                f"mode is invalid and scale_fn is None: {mode!r}; give 'triangular', 'triangular2' or 'exp_range'"
            )
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom: Any = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            found = self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums: Any = found[0]
            self.max_momentums: Any = found[1]
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The factor of the height, for a cycle or a step."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)  # type: ignore[no-any-return]
        if self.mode == "triangular2":
            return float(1 / 2.0 ** (x - 1))
        return float(self.gamma**x) if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[Any]:
        """The rates of the step. Sets the momentum."""
        self._warn_of_get_lr()
        cycle = floor(1 + self.last_epoch / self.total_size)
        place = 1 + self.last_epoch / self.total_size - cycle
        up = place <= self.step_ratio
        height = place / self.step_ratio if up else (place - 1) / (self.step_ratio - 1)
        factor = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            pairs = zip(self.base_momentums, self.max_momentums, strict=True)
            self._set_momentum(self.optimizer, [most - (most - least) * height * factor for least, most in pairs])
        rates = zip(self.base_lrs, self.max_lrs, strict=True)
        return [least + (most - least) * height * factor for least, most in rates]

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; of `scale_fn`, the attributes if it is an object."""
        function = self._scale_fn_custom
        plain = function is None or isinstance(function, types.FunctionType)
        return {**super().state_dict(), "_scale_fn_custom": None if plain else function.__dict__.copy()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the attributes in a `state_dict()`, and those of a `scale_fn` that is an object."""
        given = dict(state_dict)
        attributes = given.pop("_scale_fn_custom")
        super().load_state_dict(given)
        if attributes is not None:
            self._scale_fn_custom.__dict__.update(attributes)


class OneCycleLR(WithMomentum):
    """Rates that go up to `max_lr` once, and down to a small part of where they began.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        max_lr: the highest rate, or one for each group.
        total_steps: number of steps; or give `epochs` and `steps_per_epoch`, whose product it is.
        epochs, steps_per_epoch: see `total_steps`.
        pct_start: part of the steps in which the rate goes up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: whether the momentum goes the other way.
        base_momentum: the lowest momentum, or one for each group.
        max_momentum: the highest momentum, or one for each group.
        div_factor: the first rate is `max_lr` divided by it.
        final_div_factor: the last rate is the first one divided by it.
        three_phase: down to the first rate in as many steps as up, and only then to the last rate.

    Raises:
        InvalidArgument: no number of steps, numbers out of range, an optimizer without momentum.
        DTypeError: not an optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        require_optimizer(optimizer)
        self.total_steps: int = _number_of_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise InvalidArgument(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._schedule_phases = _phases(pct_start * self.total_steps, self.total_steps, three_phase)
        self._anneal_func_type = anneal_strategy
        rates = for_each_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: Any, end: Any, part: float) -> Any:
        if self._anneal_func_type == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2 * (cos(pi * part) + 1)

    def get_lr(self) -> list[Any]:
        """The rates of the step. Sets the momentum. Raises InvalidArgument: there are no more steps."""
        self._warn_of_get_lr()
        if self.last_epoch > self.total_steps:
            raise InvalidArgument(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}"
            )
        start, last = 0.0, self._schedule_phases[-1]
        for phase in self._schedule_phases:
            if self.last_epoch <= phase["end_step"] or phase is last:
                break
            start = phase["end_step"]
        part = (self.last_epoch - start) / (phase["end_step"] - start)
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            first, then = phase["start_momentum"], phase["end_momentum"]
            self._set_momentum(self.optimizer, [self._between(one[first], one[then], part) for one in groups])
        return [self._between(one[phase["start_lr"]], one[phase["end_lr"]], part) for one in groups]


def _number_of_steps(total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise InvalidArgument("You must define either total_steps OR (epochs AND steps_per_epoch)")
    given = {"total_steps": total_steps} if total_steps is not None else {
        "epochs": epochs, "steps_per_epoch": steps_per_epoch,
    }  # fmt: skip
    product = 1
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise InvalidArgument(f"Expected positive integer {name}, but got {value}")
        product *= value
    return product


def _phases(rise: float, total: int, three_phase: bool) -> list[dict[str, Any]]:
    """The end of each phase, and the options of groups between which it interpolates."""
    names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
    phases: list[tuple[Any, ...]] = [(float(rise) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
    if three_phase:
        phases += [
            (float(2 * rise) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
            (total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
        ]
    else:
        phases.append((total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"))
    return [dict(zip(names, phase, strict=True)) for phase in phases]
