"""ASGD: stochastic gradient descent, with the average of the parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import multiply, subtract

from .._tensor.core import Tensor
from .arrays import approach, constants, count, number, scalar, toward, zeros_like
from .checks import require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class ASGD(Optimizer):
    """Averaged stochastic gradient descent. The average of a parameter is `optimizer.state[p]["ax"]`.

    Args:
        params: as for `Optimizer`.
        lr: initial learning rate.
        lambd: each step multiplies the parameter by `1 - lambd * rate`.
        alpha: the rate of step n is `lr / (1 + lambd * lr * n) ** alpha`.
        t0: step at which averaging begins.
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
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        require_rate(lr)
        require_not_negative("weight_decay value", weight_decay)
        require_plain(differentiable)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["eta"] = scalar(number(group["lr"]))
        state["mu"] = scalar(1)
        state["ax"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, lambd, decay = number(group["lr"]), group["lambd"], group["weight_decay"]
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            steps = count(state)
            eta, mu = state["eta"]._live(), state["mu"]._live()
            rate, average = float(eta), float(mu)
            shrink, part, rated, averaged = constants(a.dtype, 1 - lambd * rate, decay, rate, average)
            for x, d, ax, s, t in self._scratch.blocks(2, a, g, state["ax"]._live()):
                d = toward(d, x, part if decay else None, group["maximize"], t)
                multiply(x, shrink, x)
                subtract(x, multiply(d, rated, s), x)
                if average == 1:
                    np.copyto(ax, x)
                else:
                    approach(ax, x, averaged, s)
            eta[...] = lr / (1 + lambd * lr * steps) ** group["alpha"]
            mu[...] = 1 / max(1, steps - group["t0"])
