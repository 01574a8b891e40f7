"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import add, multiply, subtract

from .._native import sgd_step
from .._tensor.core import Tensor
from ..errors import InvalidArgument, NotSupported
from .arrays import Array, add_rows, constants, number, toward, zeros_like
from .checks import require_not_negative, require_plain, require_rate
from .optimizer import Optimizer, Params


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum: `p -= lr * v`, where `v = momentum * v + gradient`.

    A sparse gradient changes only its rows, each element atomically.

    Args:
        params: as for `Optimizer`.
        lr: learning rate; a tensor of one element may be changed while training goes on, by other processes, too.
        momentum: momentum factor.
        dampening: part of the gradient that does not go into the momentum. State that `share_memory()` made begins
            with 0, so that the first gradient is damped, too.
        weight_decay: factor of the parameter that is added to its gradient.
        nesterov: use Nesterov momentum.
        maximize: go up instead of down.
        foreach, fused: accepted; steps are always fused.
        differentiable: must be False.

    Raises:
        InvalidArgument: a number that is out of range.
        NotSupported: differentiable.
    """

    _OPTIONS: ClassVar[dict[str, Any]] = {
        "nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False,
    }  # fmt: skip

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        require_rate(lr)
        require_not_negative("momentum value", momentum)
        require_not_negative("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise InvalidArgument("Nesterov momentum requires a momentum and zero dampening")
        require_plain(differentiable, foreach, fused)
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        if group["momentum"] != 0:
            state["momentum_buffer"] = zeros_like(p)
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        lr, momentum, decay = number(group["lr"]), group["momentum"], number(group["weight_decay"])
        taken, maximize, nesterov = 1 - group["dampening"], group["maximize"], group["nesterov"]
        buffer, first = None, False
        for p, a, g in self._each(group):
            if momentum:
                state = self.state[p]
                first = state.get("momentum_buffer") is None
                if first:
                    self._begin(p, group)
                buffer = state["momentum_buffer"]._live()
            if not sgd_step(a, g, buffer, lr, momentum, taken, decay, nesterov, maximize, first):
                self._advance_blocks(a, g, buffer, lr, momentum, taken, decay, nesterov, maximize, first)

    def _advance_blocks(
        self, a: Array, g: Array, buffer: Array | None, lr: float, momentum: float, taken: float, decay: float,
        nesterov: bool, maximize: bool, first: bool,
    ) -> None:  # fmt: skip
        """Steps for arrays that `sgd_step` does not support."""
        rate, keep, share, part = constants(a.dtype, lr, momentum, taken, decay)
        decayed = part if decay else None
        if buffer is None:
            for x, d, s in self._scratch.blocks(1, a, g):
                multiply(toward(d, x, decayed, maximize, s), rate, s)
                subtract(x, s, x)
            return
        for x, d, v, s, t in self._scratch.blocks(2, a, g, buffer):
            d = toward(d, x, decayed, maximize, s)
            _gather(v, d, t, keep, None if first else share)
            if nesterov:
                multiply(add(d, multiply(v, keep, t), t), rate, t)
            else:
                multiply(v, rate, t)
            subtract(x, t, x)

    def _advance_sparse(self, group: dict[str, Any], p: Tensor, indices: Array, values: Array) -> None:
        lr, momentum, a = number(group["lr"]), group["momentum"], p._live()
        if group["maximize"]:
            lr = -lr
        if number(group["weight_decay"]) or group["nesterov"]:
            raise NotSupported(
                "weight_decay and nesterov are not compatible with sparse gradients; leave them out, or use dense ones"
            )
        if not momentum:
            add_rows(a, indices, values, -lr)
            return
        state = self.state[p]
        first = state.get("momentum_buffer") is None
        if first:
            self._begin(p, group)
        v = state["momentum_buffer"]._live()
        multiply(v, momentum, v)
        add_rows(v, indices, values, 1 if first else 1 - group["dampening"])
        subtract(a, v * constants(a.dtype, lr)[0], a)


def _gather(v: Array, d: Array, into: Array, keep: Array, taken: Array | None) -> None:
    """Set the momentum `v` to `keep * v + taken * d`; in the first step, where `taken` is None, to `d`."""
    if taken is None:
        np.copyto(v, d, casting="same_kind")
        return
    multiply(v, keep, v)
    add(v, d if taken == 1 else multiply(d, taken, into), v)
