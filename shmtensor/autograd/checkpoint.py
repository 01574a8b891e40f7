"""Checkpoints: parts of a graph that are computed again in the pass backward, rather than kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._native import put_grad
from .._tensor.creation import empty
from .._tensor.methods import Tensor
from ..random import get_rng_state, set_rng_state
from . import modes
from .function import Function
from .passes import backward as run_backward


class _Checkpoint(Function):
    @staticmethod
    def forward(
        ctx: Any, recorded: Tensor, function: Callable[..., Any], how: dict[str, Any], keep_rng: bool, *args: Any
    ) -> Any:
        ctx.function, ctx.how = function, how
        ctx.rng = get_rng_state() if keep_rng else None
        ctx.args = [None if isinstance(one, Tensor) else one for one in args]
        ctx.places = [i for i, one in enumerate(args) if isinstance(one, Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return function(*args, **how)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        args = list(ctx.args)
        for i, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = tensor.detach()
            args[i].requires_grad = tensor.requires_grad
        outputs = _again(ctx, args)
        pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True)
                 if isinstance(y, Tensor) and y.requires_grad and g is not None]  # fmt: skip
        if pairs:
            run_backward([y for y, _ in pairs], [g for _, g in pairs])
        found = []
        for one in args:
            found.append(one.grad if isinstance(one, Tensor) else None)
            if isinstance(one, Tensor):
                put_grad(one, None)
        return None, None, None, None, *found


def _again(ctx: Any, args: list[Any]) -> tuple[Any, ...]:
    """The results, computed once more with the random numbers of the first time."""
    now = get_rng_state()
    try:
        if ctx.rng is not None:
            set_rng_state(ctx.rng)
        with modes.enable_grad():
            found = ctx.function(*args, **ctx.how)
    finally:
        if ctx.rng is not None:
            set_rng_state(now)
    return found if isinstance(found, tuple) else (found,)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **how: Any,
) -> Any:
    """`function(*args, **how)`, which is computed a second time for its gradients instead of keeping what they need.

    Args:
        function: gives a tensor or a tuple of tensors, and the same each time.
        args: its arguments; gradients go to the tensors among them, and to leaves that it uses.
        use_reentrant: has no effect.
        preserve_rng_state: the second time begins with the random state of the first.
        **how: its keyword arguments.
    """
    recorded = empty(0, requires_grad=True)  # the function may use leaves that are not among its arguments
    return _Checkpoint.apply(recorded, function, how, preserve_rng_state, *args)


def checkpoint_sequential(functions: Any, segments: int, input: Any, **how: Any) -> Any:
    """Call functions one after the other, in so many segments, of which all but the last are checkpoints.

    Args:
        functions: a sequence of functions of one tensor, or a Sequential.
        segments: number of segments.
        input: what the first function gets.
        how: keyword arguments of `checkpoint`.
    """
    several = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(several) // segments, 1)

    def run(first: int, last: int) -> Callable[[Any], Any]:
        def forward(x: Any) -> Any:
            for one in several[first:last]:
                x = one(x)
            return x

        return forward

    first = 0
    for _ in range(segments - 1):
        input = checkpoint(run(first, first + size), input, **how)
        first += size
    return run(first, len(several))(input)
