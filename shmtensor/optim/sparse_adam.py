"""SparseAdam: Adam for the rows of sparse gradients."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from .._tensor.core import Tensor
from ..errors import InvalidArgument, NotSupported
from .arrays import Array, add_rows, coalesced, count, number, zeros_like
from .checks import require_betas, require_rate
from .optimizer import Optimizer, Params


class SparseAdam(Optimizer):
    """Adam for sparse gradients: a step changes only the rows of the gradient and their means, each element atomically.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        betas: decay rates of the running means.
        eps: added to the denominator.
        maximize: go up instead of down.

    Raises:
        InvalidArgument: a number that is out of range, or complex parameters.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        require_rate(lr)
        for what, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0:
                raise InvalidArgument(f"Invalid {what}: {value}; give more than 0")
        require_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        found = [
            [i, j]
            for i, group in enumerate(self.param_groups)
            for j, p in enumerate(group["params"])
            if p._live().dtype.kind == "c"
        ]
        if found:
            raise InvalidArgument(
                f"Complex params at indices {found}: SparseAdam does not support complex parameters; use Adam"
            )

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = 0
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        for _ in self._each(group):
            raise NotSupported("SparseAdam does not support dense gradients, please consider Adam instead")

    def _advance_sparse(self, group: dict[str, Any], p: Tensor, indices: Array, values: Array) -> None:
        beta1, beta2 = group["betas"]
        state = self.state[p] or self._begin(p, group)
        steps = count(state)
        if not values.size:
            return
        indices, values = coalesced(indices, -values if group.get("maximize", False) else values)
        m, v = state["exp_avg"]._live(), state["exp_avg_sq"]._live()
        old_m, old_v = m[indices], v[indices]
        more_m, more_v = (values - old_m) * (1 - beta1), (values * values - old_v) * (1 - beta2)
        add_rows(m, indices, more_m, 1)
        add_rows(v, indices, more_v, 1)
        rate = number(group["lr"]) * sqrt(1 - beta2**steps) / (1 - beta1**steps)
        change = (old_m + more_m) / (np.sqrt(old_v + more_v) + group["eps"])
        add_rows(p._live(), indices, change, -rate)
