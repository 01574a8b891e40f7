"""Averages of a model's parameters during training, and a schedule for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from math import cos, pi
from typing import Any, Literal, TypeAlias

import numpy as np

from .._native import count_change
from .._tensor.creation import tensor
from .._tensor.methods import Tensor
from ..autograd.modes import no_grad
from ..dtypes import int64
from ..errors import InvalidArgument
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from .lr_scheduler.base import LRScheduler, for_each_group
from .optimizer import Optimizer

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

Average: TypeAlias = Callable[[Tensor, Tensor, Tensor | int], Tensor]
"""Computes the new average from the old one, the current value, and the number of values so far."""
Averages: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]
"""Updates averages in place, as Average computes one."""


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the function of exponential averages: `decay * average + (1 - decay) * value`.

    Raises InvalidArgument: decay is not from 0 to 1.
    """
    _require_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        with no_grad():
            return ema_param * decay + current_param * (1 - decay)

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """Return the function of exponential averages of many tensors, in place, as `get_ema_avg_fn`."""
    _require_decay(decay)

    def ema_update(averages: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Tensor | int) -> None:
        _approach(averages, current, 1 - decay)

    return ema_update


def get_swa_avg_fn() -> Average:
    """Return the function of equal averages: `average + (value - average) / (number + 1)`."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        with no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_swa_multi_avg_fn() -> Averages:
    """Return the function of equal averages of many tensors, in place, as `get_swa_avg_fn`."""

    def swa_update(averages: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Tensor | int) -> None:
        _approach(averages, current, 1 / (float(num_averaged) + 1))

    return swa_update


def _require_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise InvalidArgument(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _approach(averages: Sequence[Tensor], current: Sequence[Tensor], part: float) -> None:
    """Move tensors by a part of their distance to others; integers are rounded towards 0."""
    for average, value in zip(averages, current, strict=True):
        a, b = average._live(), value._live()
        np.copyto(a, a + (b - a) * part, casting="unsafe")
        count_change(average)


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's over time.

    The state has torch's keys: "n_averaged", and those of the model with the prefix "module.".

    Args:
        model: the model.
        device: the device of the copy; None: that of the model.
        avg_fn: computes an average; default: equal averages.
        multi_avg_fn: updates many averages in place; give it instead of `avg_fn`.
        use_buffers: average buffers, too; otherwise they are copied from the model at each update.

    Attributes:
        module: the copy.
        n_averaged: how many times it was updated, an int64 tensor.

    Raises:
        InvalidArgument: both functions.
    """

    module: Any
    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise InvalidArgument("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model) if device is None else deepcopy(model).to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the copy."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Update the averages with the current parameters of the model. The first time, these become the averages."""
        with no_grad():
            self._update(model)

    def _update(self, model: Module) -> None:
        averages, current = self._tensors_of(self.module), self._tensors_of(model)
        if self.n_averaged == 0:
            for average, value in zip(averages, current, strict=True):
                average.copy_(value)
        elif self.avg_fn is None:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, current, self.n_averaged)
        else:
            for average, value in zip(averages, current, strict=True):
                average.copy_(self.avg_fn(average, value, self.n_averaged))
        if not self.use_buffers:
            for buffer, value in zip(self.module.buffers(), model.buffers(), strict=True):
                buffer.copy_(value)
        self.n_averaged.add_(1)

    def _tensors_of(self, model: Module) -> list[Tensor]:
        found = chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()
        return [one.detach() for one in found]


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of batch normalization again, from all data.

    Args:
        loader: batches; of a list or tuple, the first item is the input.
        model: the model; its batch normalization modules get new statistics.
        device: the device to copy inputs to; None: they are not copied.
    """
    layers = [one for one in model.modules() if isinstance(one, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    if not layers:
        return
    was_training = model.training
    model.train()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # equal averages
    with no_grad():
        for batch in loader:
            given = batch[0] if isinstance(batch, list | tuple) else batch
            model(given if device is None else given.to(device))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Rates that go to `swa_lr` in `anneal_epochs` steps, and stay there.

    Args:
        optimizer, last_epoch: as for `LRScheduler`.
        swa_lr: the rate at the end, or one for each group.
        anneal_epochs: number of steps.
        anneal_strategy: "cos" or "linear".

    Raises:
        InvalidArgument: an unknown strategy, a number of steps below 0, not one rate for each group.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, for_each_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise InvalidArgument(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """The progress from the first rates to `swa_lr`, from 0 to 1."""
        part = max(0, min(1, step / max(1, self.anneal_epochs)))
        return part if self._anneal_strategy == "linear" else (1 - cos(pi * part)) / 2

    def get_lr(self) -> list[Any]:
        """The rates of the step."""
        self._warn_of_get_lr()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            begin = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + begin * (1 - now))
        return rates
