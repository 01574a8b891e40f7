"""Schedules of several schedulers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar

from ...errors import DTypeError, InvalidArgument
from ..optimizer import Optimizer
from .base import LRScheduler, rates_of, set_rate
from .plateau import ReduceLROnPlateau


class OfSchedulers(LRScheduler):
    """Base of schedulers that call others. Checkpoints contain those of the others."""

    _schedulers: Sequence[LRScheduler]
    _OMITTED: ClassVar[tuple[str, ...]] = ("optimizer", "_schedulers")

    def _require(self, schedulers: Sequence[Any], optimizer: Optimizer | None) -> Optimizer:
        """Refuse schedulers that cannot be combined. Returns their optimizer."""
        name = type(self).__name__
        if len(schedulers) < 1:
            raise InvalidArgument(f"{name} expects at least one scheduler, but got no scheduler.")
        for i, one in enumerate(schedulers):
            if not hasattr(one, "optimizer"):
                raise DTypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            optimizer = optimizer or one.optimizer
            if isinstance(one, ReduceLROnPlateau):
                raise InvalidArgument(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
                )
            if one.optimizer is not optimizer:
                raise InvalidArgument(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(one).__name__} at index {i} with another one."
                )
        assert optimizer is not None
        return optimizer

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer, with the state of each scheduler."""
        return {**super().state_dict(), "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the attributes in a `state_dict()`, and those of each scheduler."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for one, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            one.load_state_dict(state)


class SequentialLR(OfSchedulers):
    """One scheduler after another.

    Args:
        optimizer: of all schedulers.
        schedulers: in their order.
        milestones: the first step of each but the first.
        last_epoch: the last step that was made; -1: none.

    Raises:
        InvalidArgument: schedulers of other optimizers, ReduceLROnPlateau, or not as many milestones.
        DTypeError: something that is not a scheduler.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        self._require(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise InvalidArgument(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch: int = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        for one in schedulers:  # each has made its first step; only one of them should
            _take_back(one)
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go on by one step, and set the rates."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            now._update_lr(0)
        else:
            now.step()
        self._last_lr = now.get_last_lr()

    def _update_lr(self, epoch: Any = None) -> None:
        """Restart, as a part of another sequence."""
        self.last_epoch = epoch
        self._schedulers[0]._update_lr(epoch)
        self._last_lr = self._schedulers[0].get_last_lr()


def _take_back(scheduler: LRScheduler) -> None:
    """Undo the count of the first step, also of schedulers that another one calls."""
    inner = getattr(scheduler, "_schedulers", None)
    if inner is None:
        scheduler.last_epoch -= 1
    else:
        for one in inner:
            _take_back(one)


class ChainedScheduler(OfSchedulers):
    """Several schedulers at once: each changes the rates that the one before has set.

    Args:
        schedulers: in their order.
        optimizer: of all schedulers; default that of the first.

    Raises:
        InvalidArgument: schedulers of other optimizers, or ReduceLROnPlateau.
        DTypeError: something that is not a scheduler.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.optimizer: Optimizer = self._require(schedulers, optimizer)
        self._schedulers = schedulers
        self._last_lr = rates_of(self.optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Go on by one step, and set the rates."""
        for one in self._schedulers:
            one.step()
        self._last_lr = rates_of(self.optimizer)

    def _update_lr(self, epoch: Any = None) -> None:
        """Begin, as a part of a sequence."""
        for one in self._schedulers:
            one._update_lr(epoch)
        self._last_lr = rates_of(self.optimizer)
