"""Checkpoints: parts of a graph that save no tensors, and are computed again when the backward pass reaches them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .._native import saving_hooks
from .._tensor.methods import Tensor
from ..errors import GradientError
from ..random import get_rng_state, set_rng_state
from . import modes
from .graph import saved_tensors_hooks
from .saving import Kept, require_unchanged


class _Holder:
    """The place of a tensor that a node of a checkpoint needs; filled only during a backward pass."""

    __slots__ = ("__weakref__", "found", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.found: tuple[Tensor, int] | None = None
        """The tensor and its version when it was computed."""


class _Checkpoint:
    """A call of a function that can be repeated. Nodes keep holders in place of tensors.

    Holders refer to this object by the hooks of what is kept; it refers to holders weakly.
    """

    def __init__(self, function: Callable[..., Any], args: Any, how: dict[str, Any], keep_rng: bool) -> None:
        hooks = saving_hooks()  # of a checkpoint around this one, which keeps the arguments
        self._function = function
        self._args = [Kept(one, hooks) if isinstance(one, Tensor) else one for one in args]
        self._how = {name: Kept(one, hooks) if isinstance(one, Tensor) else one for name, one in how.items()}
        self._rng = get_rng_state() if keep_rng else None
        self._holders: list[weakref.ref[_Holder]] = []
        self._forms: list[Any] = []
        self._complete = False

    def first(self, args: Any, how: dict[str, Any]) -> Any:
        """The results of the function."""
        with saved_tensors_hooks(self._pack, self._unpack):
            results = self._function(*args, **how)
        self._complete = True
        return results

    def _pack(self, x: Tensor) -> _Holder:
        holder = _Holder(len(self._holders))
        self._holders.append(weakref.ref(holder))
        self._forms.append(x._form())
        return holder

    def _unpack(self, holder: _Holder) -> Tensor:
        found, holder.found = holder.found, None
        if found is None:
            found = self._again(holder.number)
        require_unchanged(*found)
        return found[0]

    def _again(self, wanted: int) -> tuple[Tensor, int]:
        """Compute everything again, and fill the other holders in use. Raises GradientError: it saves other tensors."""
        found: list[tuple[Tensor, int] | None] = []
        forms: list[Any] = []

        def pack(x: Tensor) -> tuple[Tensor, int]:
            number, pair = len(found), (x, x._version)
            used = number < len(self._holders) and self._holders[number]() is not None
            found.append(pair if used else None)
            forms.append(x._form())
            return pair

        def unpack(pair: tuple[Tensor, int]) -> Tensor:
            require_unchanged(*pair)
            return pair[0]

        args = [one.get() if isinstance(one, Kept) else one for one in self._args]
        how = {name: one.get() if isinstance(one, Kept) else one for name, one in self._how.items()}
        with modes.enable_grad(), saved_tensors_hooks(pack, unpack):
            self._repeat(args, how)
        self._require_same(forms)
        for reference, pair in zip(self._holders, found, strict=False):
            holder = reference()
            if holder is not None and holder.number != wanted:
                holder.found = pair
        mine = found[wanted]
        assert mine is not None
        return mine

    def _repeat(self, args: list[Any], how: dict[str, Any]) -> None:
        """Call the function with the random state of the first call; what it records is released at once."""
        if self._rng is None:
            self._function(*args, **how)
            return
        now = get_rng_state()
        try:
            set_rng_state(self._rng)
            self._function(*args, **how)
        finally:
            set_rng_state(now)

    def _require_same(self, forms: list[Any]) -> None:
        if self._forms == (forms if self._complete else forms[: len(self._forms)]):
            return
        at = next((i for i, (a, b) in enumerate(zip(self._forms, forms, strict=False)) if a != b), None)
        if at is None:
            first, second = f"{len(self._forms)} tensors", str(len(forms))
        else:
            first, second = f"a tensor of shape and type {self._forms[at]}", f"one of {forms[at]}"
        raise GradientError(
            f"the function of a checkpoint saved {first} for its gradients the first time, and {second} when it was "
            "computed again; it must do the same each time"
        )


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **how: Any,
) -> Any:
    """Return `function(*args, **how)`; its gradients compute it again instead of saving the tensors that they need.

    The graph and all gradients are those of a call without checkpoint. The arguments of the function, and leaves that
    require grad, are kept.

    Args:
        function: may return anything; must do the same each time.
        args: its arguments.
        use_reentrant: has no effect; checkpoints are those of False in torch.
        preserve_rng_state: restore the random state of the first call before the second.
        **how: its keyword arguments.

    The backward pass raises GradientError if the function saves other tensors the second time, or an argument was
    changed in place.
    """
    if not modes.is_grad_enabled():
        return function(*args, **how)
    return _Checkpoint(function, args, how, preserve_rng_state).first(args, how)


def checkpoint_sequential(functions: Any, segments: int, input: Any, **how: Any) -> Any:
    """Call functions one after the other, in segments; all segments but the last are checkpoints.

    Args:
        functions: a sequence of functions of one tensor, or a Sequential.
        segments: number of segments.
        input: argument of the first function.
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
