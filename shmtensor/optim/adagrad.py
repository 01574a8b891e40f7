"""Adagrad: steps scaled by the sum of squares of all gradients so far."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, multiply, subtract

from .._tensor.core import Tensor
from ..errors import NotSupported
from .arrays import Array, add_rows, coalesced, constants, count, full_like, number, scalar, toward
from .checks import require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class Adagrad(Optimizer):
    """Adagrad: `p -= rate * gradient / (sqrt(sum) + eps)`, where `sum` is the sum of squares of all gradients.

    A sparse gradient changes only its rows, each element atomically.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        lr_decay: the rate of step n, from 0, is `lr / (1 + n * lr_decay)`.
        weight_decay: factor of the parameter that is added to its gradient.
        initial_accumulator_value: the initial sum of squares.
        eps: added to the denominator.
        foreach, fused: accepted; steps are always fused.
        maximize: go up instead of down.
        differentiable: must be False.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        require_rate(lr)
        require_not_negative("lr_decay value", lr_decay)
        require_not_negative("weight_decay value", weight_decay)
        require_not_negative("initial_accumulator_value value", initial_accumulator_value)
        require_not_negative("epsilon value", eps)
        require_plain(differentiable, foreach, fused)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                self._start(p, group)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["sum"] = full_like(p, self.defaults["initial_accumulator_value"])
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, decay, maximize = number(group["lr"]), group["weight_decay"], group["maximize"]
        dtype, done = None, 0.0
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            steps = count(state)
            if steps != done or a.dtype is not dtype:
                dtype, done = a.dtype, steps
                part, rate, eps = constants(dtype, decay, lr / (1 + (steps - 1) * group["lr_decay"]), group["eps"])
            for x, d, total, s, t in self._scratch.blocks(2, a, g, state["sum"]._live()):
                d = toward(d, x, part if decay else None, maximize, t)
                add(total, multiply(d, d, s), total)
                add(np.sqrt(total, s), eps, s)
                multiply(divide(d, s, s), rate, s)
                subtract(x, s, x)

    def _advance_sparse(self, group: dict[str, Any], p: Tensor, indices: Array, values: Array) -> None:
        if group["weight_decay"]:
            raise NotSupported("weight_decay option is not compatible with sparse gradients; leave it out")
        state = self.state[p] or self._begin(p, group)
        rate = number(group["lr"]) / (1 + (count(state) - 1) * group["lr_decay"])
        indices, values = coalesced(indices, values)
        total = state["sum"]._live()
        add_rows(total, indices, values * values, 1)
        change = values / (np.sqrt(total[indices]) + group["eps"])
        add_rows(p._live(), indices, change, rate if group["maximize"] else -rate)
