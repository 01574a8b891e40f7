"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, multiply, subtract

from .._tensor.core import Tensor
from .arrays import approach, approach_square, constants, count, number, scalar, toward, zeros_like
from .checks import require_betas, require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class NAdam(Optimizer):
    """NAdam: Adam whose steps combine the gradient and the running mean, weighted with the momentum of the next step.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        betas: decay rates of the running means.
        eps: added to the denominator.
        weight_decay: factor of the parameter that is added to its gradient.
        momentum_decay: the momentum of step n is `betas[0] * (1 - 0.96 ** (n * momentum_decay) / 2)`.
        decoupled_weight_decay: shrink the parameter by `1 - lr * weight_decay` instead, as AdamW does.
        foreach, capturable: accepted; steps are always fused.
        maximize: go up instead of down.
        differentiable: must be False.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        require_not_negative("momentum_decay value", momentum_decay)
        require_plain(differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["mu_product"] = scalar(1)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, (beta1, beta2), slope = number(group["lr"]), group["betas"], group["momentum_decay"]
        decay, decoupled, maximize = group["weight_decay"], group["decoupled_weight_decay"], group["maximize"]
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            steps = count(state)
            mu = beta1 * (1 - 0.5 * 0.96 ** (steps * slope))
            next_mu = beta1 * (1 - 0.5 * 0.96 ** ((steps + 1) * slope))
            products = state["mu_product"]._live()
            products *= mu
            product = float(products)
            shrink, part, m_part, v_keep, v_part, bias, eps, g_rate, m_rate = constants(
                a.dtype, 1 - lr * decay, decay, 1 - beta1, beta2, 1 - beta2, 1 - beta2**steps, group["eps"],
                lr * (1 - mu) / (1 - product), lr * next_mu / (1 - product * next_mu),
            )  # fmt: skip
            moments = state["exp_avg"]._live(), state["exp_avg_sq"]._live()
            for x, d, m, v, s, t in self._scratch.blocks(2, a, g, *moments):
                if decay and decoupled:
                    multiply(x, shrink, x)
                d = toward(d, x, part if decay and not decoupled else None, maximize, t)
                approach(m, d, m_part, s)
                approach_square(v, d, v_keep, v_part, s)
                add(np.sqrt(divide(v, bias, s), s), eps, s)
                multiply(d, g_rate, t)
                subtract(x, divide(t, s, t), x)
                subtract(x, divide(multiply(m, m_rate, t), s, t), x)
