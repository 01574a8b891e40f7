"""torch's optimizers with their state in our shared memory."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ...errors import DTypeError, InvalidArgument, NotSupported, type_name
from .sharing import dense_parts, share_part


def share_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Move the state and the parameters of a torch optimizer into our shared memory. Returns the optimizer.

    Call it before processes are started that get the optimizer, by fork or in their arguments: their steps change one
    state. State that the first step of torch's optimizers would make is made now, as it is before that step; weights
    and gradients stay as they are. The momentum of SGD begins with 0, so dampening applies to the first gradient, too.
    Steps that are counted by Python's numbers are counted in tensors. Options that are tensors, such as `lr`, are
    shared, too. What torch has shared already stays there.

    State that is made or loaded later is private: call this again then. An optimizer that is not one of torch's has to
    have made its state by a step.

    Raises:
        DTypeError: not a torch optimizer.
        NotSupported: LBFGS, whose state is not in tensors alone.
        InvalidArgument: parameters or state on a device or of an opaque layout; a parameter of a lazy module that has
            no shape yet. Nothing was moved.
        OutOfMemory, ManagerError: as share_tensor_; what was moved before stays moved.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise DTypeError(f"share_optimizer takes a torch.optim.Optimizer, not a {type_name(optimizer)}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise NotSupported(
            "the state of LBFGS cannot be shared: part of it is Python's numbers and lists; use another optimizer"
        )
    for group in optimizer.param_groups:
        if any(map(is_lazy, group["params"])):
            raise InvalidArgument(
                f"a {type_name(optimizer)} has a parameter without a shape: call its module once, then share it"
            )
    _private_parts(optimizer)  # raises before anything has changed
    for group in optimizer.param_groups:
        _begin(optimizer, group)
    for part in _private_parts(optimizer):
        share_part(part)
    return optimizer


def _private_parts(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return the dense tensors of an optimizer that are in private memory. Raises InvalidArgument."""
    parts = []
    for name, tensor in _named(optimizer):
        try:
            parts += [part for part in dense_parts(tensor) if _is_private(part.untyped_storage())]
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{name} of a {type_name(optimizer)} cannot be shared, so nothing was moved: {error}"
            ) from None
    return parts


def _is_private(storage: Any) -> bool:
    return bool(storage.nbytes()) and not storage.is_shared()


def _begin(optimizer: Any, group: dict[str, Any]) -> None:
    """Make the state of a group's parameters, where there is none, as the first step begins with it."""
    params = [p for p in group["params"] if p.requires_grad]
    method = getattr(type(optimizer), "_init_group", None)
    if method is not None and method.__module__.startswith("torch.optim."):
        _begin_by_torch(optimizer, group, [p for p in params if p.grad is None])
    for p in params:
        state = dict(optimizer.state.get(p, ()))
        if isinstance(optimizer, torch.optim.SGD) and group["momentum"] and state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(p, requires_grad=False)
        elif isinstance(optimizer, torch.optim.SparseAdam) and not state:
            state = {
                "step": 0,
                **{name: torch.zeros_like(p, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")},
            }
        if type(state.get("step")) in (int, float):
            state["step"] = torch.tensor(state["step"], dtype=torch.float64)  # powers are as exact as of Python's
        if state:
            optimizer.state[p].update(state)


def _begin_by_torch(optimizer: Any, group: dict[str, Any], without: list[Any]) -> None:
    """Let torch make the state, as its `step` does for parameters that have a gradient. `without`: those that do not.

    The method fills lists for the step, as many as it has arguments.
    """
    lists = len(inspect.signature(optimizer._init_group).parameters) - 1
    try:
        for p in without:
            p.grad = torch.zeros((), dtype=p.dtype, device=p.device).expand_as(p)
        with torch.no_grad():
            optimizer._init_group(group, *([] for _ in range(lists)))
    finally:
        for p in without:
            p.grad = None


def _named(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """All tensors of an optimizer, with names for messages. A tensor may come more than once."""
    for number, group in enumerate(optimizer.param_groups):
        for place, p in enumerate(group["params"]):
            yield f"parameter {place} of group {number}", p
            for name, value in optimizer.state.get(p, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{name!r} of parameter {place} of group {number}", value
        for name, value in group.items():
            if isinstance(value, torch.Tensor):
                yield f"{name!r} of group {number}", value
