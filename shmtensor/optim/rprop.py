"""Rprop: steps whose sizes depend on the signs of gradients alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy import multiply

from .._tensor.core import Tensor
from ..errors import InvalidArgument
from .arrays import Array, constants, count, full_like, number, scalar, toward, zeros_like
from .checks import require_plain, require_rate
from .optimizer import Optimizer, Params


class Rprop(Optimizer):
    """Resilient backpropagation: each element has a step size, which grows while its gradient keeps its sign.

    It is meant for whole data sets: signs of gradients of small batches change by chance.

    Args:
        params: as for `Optimizer`.
        lr: the initial step sizes.
        etas: factors of step sizes, when the sign changed and when it did not.
        step_sizes: the smallest and the largest step size.
        capturable, foreach: accepted; steps are always fused.
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
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        require_rate(lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise InvalidArgument(
                f"Invalid eta values: {etas[0]}, {etas[1]}; give one between 0 and 1, and one above 1"
            )
        require_plain(differentiable)
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = scalar(0)
        state["prev"] = zeros_like(p)
        state["step_size"] = full_like(p, number(group["lr"]))
        return state

    def _advance(self, group: dict[str, Any]) -> None:
        dtype = None
        for p, a, g in self._each(group):
            state = self.state[p] or self._begin(p, group)
            count(state)
            if a.dtype is not dtype:
                dtype = a.dtype
                numbers = constants(dtype, *group["etas"], *group["step_sizes"])
            moments = state["prev"]._live(), state["step_size"]._live()
            for x, d, last, size, s, t in self._scratch.blocks(2, a, g, *moments):
                _descend(x, toward(d, x, None, group["maximize"], t), last, size, s, t, numbers)


def _descend(x: Array, d: Array, last: Array, size: Array, s: Array, t: Array, numbers: list[Array]) -> None:
    less, more, smallest, largest = numbers
    multiply(d, last, s)
    opposite = s < 0
    multiply(size, more, size, where=s > 0)
    multiply(size, less, size, where=opposite)
    np.clip(size, smallest, largest, out=size)
    np.copyto(last, d, casting="same_kind")
    last[opposite] = 0  # where the sign changed, the next gradient is not compared
    multiply(np.sign(last, t), size, t)
    np.subtract(x, t, x)
