"""RMSprop: steps scaled by a running mean of squares of gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, multiply, subtract

from .._tensor.core import Tensor
from .arrays import approach, approach_square, constants, count, number, scalar, toward, zeros_like
from .checks import require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class RMSprop(Optimizer):
    """RMSprop: `p -= lr * gradient / (sqrt(v) + eps)`, with a running mean v of squares of gradients.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        alpha: decay rate of the running mean.
        eps: added to the denominator.
        weight_decay: factor of the parameter that is added to its gradient.
        momentum: momentum factor.
        centered: use the variance in place of the mean of squares: subtract the square of the mean.
        capturable, foreach: accepted; steps are always fused.
        maximize: go up instead of down.
        differentiable: must be False.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {
        "momentum": 0, "centered": False, "foreach": None, "maximize": False, "differentiable": False,
        "capturable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_rate(lr)
        require_not_negative("epsilon value", eps)
        require_not_negative("momentum value", momentum)
        require_not_negative("weight_decay value", weight_decay)
        require_not_negative("alpha value", alpha)
        require_plain(differentiable)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["square_avg"] = zeros_like(p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        decay, maximize, alpha = group["weight_decay"], group["maximize"], group["alpha"]
        momentum, centered = group["momentum"], group["centered"]
        dtype = None
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            count(state)
            if a.dtype is not dtype:
                dtype = a.dtype
                rate, part, v_keep, v_part, eps, keep = constants(
                    dtype, number(group["lr"]), decay, alpha, 1 - alpha, group["eps"], momentum
                )
            squares = state["square_avg"]._live()
            mean = state["grad_avg"]._live() if centered else squares
            last = state["momentum_buffer"]._live() if momentum > 0 else squares
            for x, d, v, m, u, s, t in self._scratch.blocks(2, a, g, squares, mean, last):
                d = toward(d, x, part if decay else None, maximize, t)
                approach_square(v, d, v_keep, v_part, s)
                if centered:
                    approach(m, d, v_part, s)
                    subtract(v, multiply(m, m, s), s)
                divide(d, add(np.sqrt(s if centered else v, s), eps, s), s)
                if momentum > 0:
                    add(multiply(u, keep, u), s, u)
                    multiply(u, rate, s)
                else:
                    multiply(s, rate, s)
                subtract(x, s, x)
