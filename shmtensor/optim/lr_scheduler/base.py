"""LRScheduler: sets the learning rates of an optimizer's groups, step by step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from ..._tensor.core import Tensor, wrap
from ...errors import DTypeError, InvalidArgument, type_name
from ..arrays import number
from ..optimizer import Optimizer


def own(value: Any) -> Any:
    """A value that later steps do not change: a tensor is copied."""
    return wrap(value._live().copy()) if isinstance(value, Tensor) else value


def rates_of(optimizer: Optimizer, name: str = "lr") -> list[Any]:
    """An option of all groups."""
    return [own(group[name]) for group in optimizer.param_groups]


def set_rate(group: dict[str, Any], value: Any, name: str = "lr") -> None:
    """Set an option of a group; in place where it is a tensor."""
    if isinstance(group[name], Tensor):
        group[name]._live().fill(number(value))
    else:
        group[name] = value


def for_each_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """An argument that is given once, or for each group. Raises InvalidArgument: not one for each group."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        value = [value] * count
    if len(value) != count:
        raise InvalidArgument(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {count}."
        )
    return [own(one) for one in value]


def require_optimizer(optimizer: Any) -> None:
    """Refuse other objects. Raises DTypeError."""
    if not isinstance(optimizer, Optimizer):
        raise DTypeError(f"{type_name(optimizer)} is not an Optimizer")


class LRScheduler:
    """Base of schedulers. A subclass defines `get_lr`, which computes the rates for `last_epoch`.

    Args:
        optimizer: the optimizer whose rates are set. They are set to those of the first step at once.
        last_epoch: the last step that was made, to continue from there; -1: none. Otherwise the groups must have
            "initial_lr".

    Attributes:
        last_epoch: number of the step, from 0.
        base_lrs: the rates of the groups before the first step.

    Raises:
        DTypeError: not an optimizer.
        InvalidArgument: a group has no "initial_lr".
    """

    optimizer: Optimizer
    base_lrs: list[Any]
    last_epoch: int
    _last_lr: list[Any]
    _step_count: int
    _is_initial = False
    _get_lr_called_within_step = False
    _OMITTED: ClassVar[tuple[str, ...]] = ("optimizer",)
    """Attributes that `state_dict` leaves out."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        require_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", own(group["lr"]))
            elif "initial_lr" not in group:
                raise InvalidArgument(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0; load the state of the optimizer first, or begin with last_epoch=-1"
                )
        self.base_lrs = rates_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name not in self._OMITTED}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the attributes in a `state_dict()`, also in that of a torch scheduler."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates that were set last, one for each group."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """Compute the rates for `last_epoch`, one for each group. Called by `step`."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(); define one")

    def _warn_of_get_lr(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", stacklevel=3
            )

    def step(self, epoch: Any = None) -> None:
        """Advance by one step, and set the rates.

        Args:
            epoch: the number of the step to go to, which torch deprecates.
        """
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call `optimizer.step()` first; "
                "otherwise the first value of the learning rate schedule is skipped.",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warn_of_epoch(3)
        self._update_lr(epoch)

    def _update_lr(self, epoch: Any = None) -> None:
        with self._computing():
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if closed is None else closed()
        self._set(values)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _set(self, values: list[Any]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, value)
        self._last_lr = rates_of(self.optimizer)


def warn_of_epoch(level: int) -> None:
    """Warn that giving the number of the step is deprecated."""
    warnings.warn(
        "The epoch parameter in `scheduler.step()` is deprecated; call `scheduler.step()` without it",
        stacklevel=level + 1,
    )
