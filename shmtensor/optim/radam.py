"""RAdam: Adam that does not scale steps until its mean of squares is accurate enough."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, multiply, subtract

from .._tensor.core import Tensor
from .arrays import approach, approach_square, constants, count, number, scalar, toward, zeros_like
from .checks import require_betas, require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class RAdam(Optimizer):
    """RAdam: Adam with a factor that corrects for the variance of the mean of squares; the first steps are not scaled.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        betas: decay rates of the running means.
        eps: added to the denominator.
        weight_decay: factor of the parameter that is added to its gradient.
        decoupled_weight_decay: shrink the parameter by `1 - lr * weight_decay` instead, as AdamW does.
        foreach, capturable: accepted; steps are always fused.
        maximize: go up instead of down.
        differentiable: must be False.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {
        "foreach": None, "maximize": False, "differentiable": False, "decoupled_weight_decay": False,
        "capturable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_rate(lr)
        require_not_negative("epsilon value", eps)
        require_betas(betas)
        require_not_negative("weight_decay value", weight_decay)
        require_plain(differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        decay, decoupled, maximize = group["weight_decay"], group["decoupled_weight_decay"], group["maximize"]
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            steps = count(state)
            scaling = _scaling(beta2, steps)
            shrink, part, m_part, v_keep, v_part, rate, eps = constants(
                a.dtype, 1 - lr * decay, decay, 1 - beta1, beta2, 1 - beta2, lr * (scaling or 1) / (1 - beta1**steps),
                group["eps"],
            )  # fmt: skip
            moments = state["exp_avg"]._live(), state["exp_avg_sq"]._live()
            for x, d, m, v, s, t in self._scratch.blocks(2, a, g, *moments):
                if decay and decoupled:
                    multiply(x, shrink, x)
                d = toward(d, x, part if decay and not decoupled else None, maximize, t)
                approach(m, d, m_part, s)
                approach_square(v, d, v_keep, v_part, s)
                change = multiply(m, rate, t)
                if scaling is not None:
                    divide(change, add(np.sqrt(v, s), eps, s), change)
                subtract(x, change, x)


def _scaling(beta2: float, steps: float) -> float | None:
    """Factor of a step that is scaled; None for the first steps, which are not."""
    kept = beta2**steps
    most = 2 / (1 - beta2) - 1
    seen = most - 2 * steps * kept / (1 - kept)
    if seen <= 5:
        return None
    return sqrt((1 - kept) * (seen - 4) * (seen - 2) * most / ((most - 4) * (most - 2) * seen))
