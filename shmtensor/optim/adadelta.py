"""Adadelta: steps scaled by running means of squares of gradients and of changes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, multiply, subtract

from .._tensor.core import Tensor
from ..errors import InvalidArgument
from .arrays import approach_square, constants, count, number, scalar, toward, zeros_like
from .checks import require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class Adadelta(Optimizer):
    """Adadelta: `p -= lr * d`, where `d = gradient * sqrt(u + eps) / sqrt(v + eps)`.

    v is a running mean of squares of gradients, u one of squares of changes d.

    Args:
        params: as for `Optimizer`.
        lr: factor of the changes; a tensor of one element may be changed while training goes on.
        rho: decay rate of the running means.
        eps: added to the means.
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
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_rate(lr)
        if not 0 <= rho <= 1:
            raise InvalidArgument(f"Invalid rho value: {rho}; give a number from 0 to 1")
        require_not_negative("epsilon value", eps)
        require_not_negative("weight_decay value", weight_decay)
        require_plain(differentiable)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["square_avg"] = zeros_like(p)
        state["acc_delta"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        decay, maximize, rho = group["weight_decay"], group["maximize"], group["rho"]
        dtype = None
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            count(state)
            if a.dtype is not dtype:
                dtype = a.dtype
                rate, part, keep, taken, eps = constants(dtype, number(group["lr"]), decay, rho, 1 - rho, group["eps"])
            moments = state["square_avg"]._live(), state["acc_delta"]._live()
            for x, d, v, u, s, t in self._scratch.blocks(2, a, g, *moments):
                d = toward(d, x, part if decay else None, maximize, t)
                approach_square(v, d, keep, taken, s)
                np.sqrt(add(v, eps, s), s)
                divide(d, s, s)  # before `t` is written to, which may be `d`
                multiply(np.sqrt(add(u, eps, t), t), s, t)
                approach_square(u, t, keep, taken, s)
                subtract(x, multiply(t, rate, t), x)
