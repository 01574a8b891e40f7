"""L-BFGS: steps by an approximation of the inverse of the second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._native import count_change
from .._tensor.core import Tensor, wrap
from ..autograd.modes import enable_grad
from ..errors import InvalidArgument, NotSupported
from .arrays import Array, as_real, number, sparse_parts
from .checks import require_rate
from .line_search import Point, Search
from .optimizer import Optimizer, Params

_CURVED = 1e-10  # smaller changes of gradients along a step are ignored


class LBFGS(Optimizer):
    """L-BFGS: quasi-Newton steps from the last changes of parameters and gradients.

    A step computes the loss several times. There is one group. All parameters and gradients are joined in
    vectors: memory for `2 * history_size` of them.

    Args:
        params: as for `Optimizer`, one group.
        lr: factor of steps, or the first one of a line search.
        max_iter: maximum number of directions that one step follows.
        max_eval: maximum number of losses that one step computes; default `max_iter * 5 / 4`.
        tolerance_grad: the step ends when no element of the gradient is larger.
        tolerance_change: the step ends when the loss or the parameters change by less.
        history_size: number of changes that are kept.
        line_search_fn: "strong_wolfe", or None: no search, steps of `lr`.

    Raises:
        InvalidArgument: a number that is out of range, several groups.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        require_rate(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise InvalidArgument("LBFGS doesn't support per-parameter options (parameter groups); give one group")

    def share_memory(self) -> None:
        """Always raise NotSupported: the state belongs to one process."""
        raise NotSupported("LBFGS has a history of its own steps, which processes cannot share; use SGD or Adam")

    # -- parameters as one vector -------------------------------------------------------------------------------------

    def _arrays(self) -> list[tuple[Tensor, Array]]:
        found = [(p, p._live()) for p in self.param_groups[0]["params"]]
        return [(p, as_real(a) if a.dtype.kind == "c" else a) for p, a in found]

    def _gradient(self) -> Array:
        parts = []
        for p, a in self._arrays():
            grad = p.grad
            sparse = None if grad is None else sparse_parts(grad)
            if grad is None or sparse is not None:
                part = np.zeros(a.shape, a.dtype)
                if sparse is not None:
                    np.add.at(part, *sparse)
            else:
                g = grad._live()
                part = as_real(g) if g.dtype.kind == "c" else g
            parts.append(part.reshape(-1))
        return np.concatenate(parts)

    def _move(self, direction: Array, step: float) -> None:
        first = 0
        for p, a in self._arrays():
            a += (step * direction[first : first + a.size]).reshape(a.shape)
            first += a.size
            count_change(p)

    def _loss(self, closure: Callable[[], Any]) -> tuple[float, Array]:
        return float(closure()), self._gradient()

    def _along(self, closure: Callable[[], Any], direction: Array) -> Callable[[float], Point]:
        """The function that computes a point of the line from the present parameters."""
        arrays = self._arrays()
        here = [a.copy() for _, a in arrays]

        def evaluate(step: float) -> Point:
            self._move(direction, step)
            loss, gradient = self._loss(closure)
            for (p, a), old in zip(arrays, here, strict=True):
                a[...] = old
                count_change(p)
            return Point(step, loss, gradient, float(gradient @ direction))

        return evaluate

    # -- the step -----------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Follow up to `max_iter` directions.

        Args:
            closure: computes the loss and its gradients again, and returns the loss.

        Returns:
            The loss before the step.

        Raises:
            InvalidArgument: an unknown line search.
        """
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise InvalidArgument(f"only 'strong_wolfe' is supported, not {group['line_search_fn']!r}")
        closure = enable_grad(closure)
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        before = closure()
        state["func_evals"] += 1
        gradient = self._gradient()
        if np.abs(gradient).max() > group["tolerance_grad"]:
            with np.errstate(all="ignore"):
                self._follow(closure, group, state, float(before), gradient)
        return before

    def _follow(
        self, closure: Callable[[], Any], group: dict[str, Any], state: dict[str, Any], loss: float, gradient: Array
    ) -> None:
        lr, tolerance = number(group["lr"]), group["tolerance_change"]
        evaluations = 1
        for i in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, gradient, group["history_size"])
            state["prev_flat_grad"], state["prev_loss"] = wrap(gradient.copy()), loss
            previous = loss
            step = min(1.0, 1.0 / float(np.abs(gradient).sum())) * lr if state["n_iter"] == 1 else lr
            state["d"], state["t"] = wrap(d), step
            slope = float(gradient @ d)
            if slope > -tolerance:
                break
            more = 0
            if group["line_search_fn"] is not None:
                size, limit = float(np.abs(d).max()), group["max_eval"] - evaluations
                search = Search(self._along(closure, d), Point(0, loss, gradient, slope), size, tolerance, limit)
                step, loss, gradient, _ = search.find(step)
                more = search.evaluations
                self._move(d, step)
                state["t"] = step
            else:
                self._move(d, step)
                if i != group["max_iter"]:  # not needed after the last direction
                    loss, gradient = self._loss(closure)
                    more = 1
            evaluations += more
            state["func_evals"] += more
            if evaluations >= group["max_eval"] or np.abs(gradient).max() <= group["tolerance_grad"]:
                break
            if np.abs(d * step).max() <= tolerance or abs(loss - previous) < tolerance:
                break

    @staticmethod
    def _direction(state: dict[str, Any], gradient: Array, history: int) -> Array:
        """The direction of the next step. Adds the last step to the history first."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        y = gradient - state["prev_flat_grad"]._live()
        s = state["d"]._live() * gradient.dtype.type(number(state["t"]))
        dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        ys = float(y @ s)
        if ys > _CURVED:
            if len(dirs) == history:
                for kept in (dirs, steps, ro):
                    kept.pop(0)
            dirs.append(wrap(y))
            steps.append(wrap(s))
            ro.append(1 / ys)
            state["H_diag"] = ys / float(y @ y)
        al = state.setdefault("al", [None] * history)
        q = -gradient
        for i in reversed(range(len(dirs))):
            al[i] = float(steps[i]._live() @ q) * number(ro[i])
            q -= dirs[i]._live() * gradient.dtype.type(al[i])
        q *= gradient.dtype.type(number(state["H_diag"]))
        for i in range(len(dirs)):
            be = float(dirs[i]._live() @ q) * number(ro[i])
            q += steps[i]._live() * gradient.dtype.type(al[i] - be)
        return q
