"""Adam and AdamW: steps scaled by running means of gradients and of their squares."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy import add, divide, maximum, multiply, subtract

from .._native import adam_step
from .._tensor.core import Tensor
from ..errors import InvalidArgument
from .arrays import approach, approach_square, constants, count, number, scalar, toward, zeros_like
from .checks import require_betas, require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class Adam(Optimizer):
    """Adam: `p -= lr * m / (sqrt(v) + eps)`, with bias-corrected running means m of gradients and v of squares.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        betas: decay rates of the running means.
        eps: added to the denominator.
        weight_decay: factor of the parameter that is added to its gradient.
        amsgrad: use the largest mean of squares so far.
        foreach, fused, capturable: accepted; steps are always fused.
        maximize: go up instead of down.
        differentiable: must be False.
        decoupled_weight_decay: shrink the parameter by `1 - lr * weight_decay` instead, as AdamW does.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {
        "amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False, "fused": None,
    }  # fmt: skip

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        require_rate(lr)
        require_not_negative("epsilon value", eps)
        require_betas(betas)
        require_not_negative("weight_decay value", weight_decay)
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
            raise InvalidArgument("betas must be either both floats or both Tensors")
        require_plain(differentiable, foreach, fused)
        defaults = {
            "lr": lr, "betas": tuple([number(beta) for beta in betas]), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        decay, decoupled, maximize = group["weight_decay"], group["decoupled_weight_decay"], group["maximize"]
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")
        dtype, done = None, 0.0
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            steps = count(state)
            if steps != done or a.dtype is not dtype:
                dtype, done = a.dtype, steps
                bias = sqrt(1 - beta2**steps)
                shrink, part, m_part, v_keep, v_part, rate, eps = constants(
                    dtype, 1 - lr * decay, decay, 1 - beta1, beta2, 1 - beta2, lr * bias / (1 - beta1**steps),
                    group["eps"] * bias,
                )  # fmt: skip
            added = part if decay and not decoupled else None
            moments = [state[name]._live() for name in names]
            if adam_step(
                a, g, moments[0], moments[1], moments[2] if len(moments) > 2 else None, lr / (1 - beta1**steps), bias,
                beta1, beta2, group["eps"], 0 if decoupled else decay, 1 - lr * decay if decoupled else 1, maximize,
            ):  # fmt: skip
                continue
            for x, d, m, v, *top, s, t in self._scratch.blocks(2, a, g, *moments):
                if decay and decoupled:
                    multiply(x, shrink, x)
                d = toward(d, x, added, maximize, t)
                approach(m, d, m_part, s)
                approach_square(v, d, v_keep, v_part, s)
                v = maximum(top[0], v, out=top[0]) if top else v
                add(np.sqrt(v, s), eps, s)
                multiply(divide(m, s, s), rate, s)
                subtract(x, s, x)


class AdamW(Adam):
    """Adam with decoupled weight decay: each step first shrinks the parameter by `1 - lr * weight_decay`.

    Args:
        params: as for `Optimizer`.
        lr, betas, eps, amsgrad, maximize, foreach, capturable, differentiable, fused: as for `Adam`.
        weight_decay: the factor in `1 - lr * weight_decay`.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # checkpoints of Adam have False
            group["decoupled_weight_decay"] = True
