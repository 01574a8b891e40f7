"""Adamax: Adam with the infinity norm of gradients in place of the mean of squares."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, maximum, multiply, subtract

from .._tensor.core import Tensor
from .arrays import approach, constants, count, number, scalar, toward, zeros_like
from .checks import require_betas, require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class Adamax(Optimizer):
    """Adamax: `p -= lr * m / u`, with a bias-corrected mean m of gradients and `u = max(beta2 * u, |g| + eps)`.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        betas: decay rates of the mean and of the infinity norm.
        eps: added to the absolute value of a gradient.
        weight_decay: factor of the parameter that is added to its gradient.
        foreach, capturable: accepted; steps are always fused.
        maximize: go up instead of down.
        differentiable: must be False.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {
        "foreach": None, "maximize": False, "differentiable": False, "capturable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        require_rate(lr)
        require_not_negative("epsilon value", eps)
        require_betas(betas)
        require_not_negative("weight_decay value", weight_decay)
        require_plain(differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["exp_avg"] = zeros_like(p)
        state["exp_inf"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        decay, maximize = group["weight_decay"], group["maximize"]
        dtype, done = None, 0.0
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            steps = count(state)
            if steps != done or a.dtype is not dtype:
                dtype, done = a.dtype, steps
                rate, part, m_part, keep, eps = constants(
                    dtype, lr / (1 - beta1**steps), decay, 1 - beta1, beta2, group["eps"]
                )
            moments = state["exp_avg"]._live(), state["exp_inf"]._live()
            for x, d, m, u, s, t in self._scratch.blocks(2, a, g, *moments):
                d = toward(d, x, part if decay else None, maximize, t)
                approach(m, d, m_part, s)
                multiply(u, keep, u)
                maximum(u, add(np.abs(d, s), eps, s), out=u)
                subtract(x, multiply(divide(m, u, s), rate, s), x)
