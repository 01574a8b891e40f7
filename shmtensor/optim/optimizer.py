"""Optimizer: groups of parameters with options, state of each parameter, hooks. The base of all optimizers.

An optimizer of this package has `_advance`, which makes a step for one group. Subclasses outside of this package may
define `step` instead, as in torch.
"""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import copy
from functools import wraps
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from .._native import count_change
from .._tensor.core import Tensor
from ..autograd.hooks import RemovableHandle
from ..autograd.modes import enable_grad
from ..errors import DTypeError, InvalidArgument, NotSupported
from ..storage.arguments import is_writable, read_only
from .arrays import Array, Scratch, scalar, sparse_parts
from .groups import checked_group
from .states import loaded, packed

Params: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
"""Parameters; or groups of them, each a dict with "params" and options; or pairs of a name and a parameter."""
Hook: TypeAlias = Callable[..., Any]
Hooks: TypeAlias = OrderedDict[Hashable, Hook]

required: Final = object()
"""The default of an option that every group must give."""

_before_steps: Final[Hooks] = OrderedDict()
_after_steps: Final[Hooks] = OrderedDict()
_HOOKS: Final = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Register a hook that is called before each step of every optimizer, as `Optimizer.register_step_pre_hook`."""
    return _registered(_before_steps, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Register a hook that is called after each step of every optimizer, as `Optimizer.register_step_post_hook`."""
    return _registered(_after_steps, hook)


def _registered(hooks: Hooks, hook: Hook, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _with_hooks(function: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` that calls the hooks, but not again for another `step` that it calls."""

    @wraps(function)
    def step(self: Optimizer, *args: Any, **how: Any) -> Any:
        if self._stepping:
            return function(self, *args, **how)
        self._stepping = self._opt_called = True
        try:
            if not (_before_steps or self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks or _after_steps):
                return function(self, *args, **how)
            given: tuple[Any, Any] = (self, *args), how
            for hook in (*_before_steps.values(), *self._optimizer_step_pre_hooks.values()):
                other = hook(self, *given)
                if other is not None:
                    given = _pair(other)
            result = function(*given[0], **given[1])
            for hook in (*self._optimizer_step_post_hooks.values(), *_after_steps.values()):
                hook(self, *given)
            return result
        finally:
            self._stepping = False

    step.has_hooks = True  # type: ignore[attr-defined]
    return step


def _pair(other: Any) -> tuple[Any, Any]:
    if isinstance(other, tuple) and len(other) == 2:
        return other
    raise InvalidArgument(f"a hook before steps must return None or a tuple of (new_args, new_kwargs), but got {other}")


class Optimizer:
    """Base of all optimizers.

    Args:
        params: parameters; or groups, each a dict with "params" and options of its own; or (name, parameter) pairs, as
            `named_parameters()` gives them.
        defaults: options of groups that do not give them.

    Attributes:
        defaults: the options.
        state: the state of each parameter, a dict by parameter.
        param_groups: the groups.

    Raises:
        InvalidArgument: no parameters, a duplicate, one that is computed from others, or names for only some.
        DTypeError: something that is not a tensor, or a set, which has no order.
    """

    defaults: dict[str, Any]
    state: defaultdict[Any, dict[str, Any]]
    param_groups: list[dict[str, Any]]
    _stepping = False
    _shared_by: int | None = None  # the process that called share_memory()
    _opt_called = False  # schedulers warn of programs that never make a step
    _scratch: Scratch
    _optimizer_step_pre_hooks: Hooks
    _optimizer_step_post_hooks: Hooks
    _optimizer_state_dict_pre_hooks: Hooks
    _optimizer_state_dict_post_hooks: Hooks
    _optimizer_load_state_dict_pre_hooks: Hooks
    _optimizer_load_state_dict_post_hooks: Hooks
    _OPTIONS: ClassVar[dict[str, Any]] = {}
    """Options that checkpoints of older versions lack."""

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        step = vars(cls).get("step")
        if step is not None and not hasattr(step, "has_hooks"):
            cls.step = _with_hooks(step)  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._prepare()
        if isinstance(params, Tensor):
            raise DTypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a Tensor; "
                "give a list that contains it"
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        groups: list[Any] = list(params)
        if not groups:
            raise InvalidArgument(
                "optimizer got an empty parameter list; give module.parameters() or a list of tensors"
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _prepare(self) -> None:
        """Create the attributes that are neither sent to other processes nor saved."""
        self._scratch = Scratch()
        for name in _HOOKS:
            setattr(self, name, OrderedDict())

    def __getstate__(self) -> dict[str, Any]:
        state = {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}
        return state if self._shared_by is None else {**state, "_shared_by": self._shared_by}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_scratch" not in self.__dict__:
            self._prepare()
        for group in self.param_groups:
            for name, value in self._OPTIONS.items():
                group.setdefault(name, value)

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {i}"]
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return f"{type(self).__name__} (" + "\n".join(lines) + "\n)"

    # -- steps --------------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters.

        Args:
            set_to_none: set them to None. Otherwise they are set to 0 in place, and steps still change their
                parameters.
        """
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none or sparse_parts(grad) is not None:
                    p.grad = None
                else:
                    if grad.requires_grad:
                        grad.detach_()
                    grad._live().fill(0)
                    count_change(grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change all parameters that have a gradient, in place.

        Args:
            closure: computes the loss and its gradients again, and returns the loss.

        Returns:
            What `closure` returned; None without one.

        Raises:
            LayoutError: a parameter is read-only.
            NotSupported: a gradient is sparse, and the optimizer does not support that.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._advance_groups()
        return loss

    step = _with_hooks(step)

    @np.errstate(all="ignore")  # infinities and NaNs are results, as in torch
    def _advance_groups(self) -> None:
        for group in self.param_groups:
            try:
                self._advance(group)
            except (TypeError, ValueError) as error:
                self._explain(group, error)
                raise

    def _advance(self, group: dict[str, Any]) -> None:
        """Make a step for the parameters of a group."""
        raise NotSupported(f"{type(self).__name__} has no step(); define one")

    def _each(self, group: dict[str, Any]) -> Iterator[tuple[Tensor, Array, Array]]:
        """The parameters that have a gradient, with arrays of both. Sparse gradients go to `_advance_sparse`."""
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            parts = None if isinstance(grad, Tensor) else sparse_parts(grad)
            if parts is None:
                yield p, p._live(), grad._live()
            else:
                self._advance_sparse(group, p, *parts)
            count_change(p)

    def _advance_sparse(self, group: dict[str, Any], p: Tensor, indices: Array, values: Array) -> None:
        """Make a step for a parameter with a sparse gradient."""
        raise NotSupported(f"{type(self).__name__} does not support sparse gradients; SGD, Adagrad and SparseAdam do")

    def _explain(self, group: dict[str, Any], error: Exception) -> None:
        """Raise an error of this package in place of NumPy's, if a parameter is the cause."""
        for i, p in enumerate(group["params"]):
            a = p._live()
            if not is_writable(a):
                raise read_only(f"a step of parameter {i}, of shape {a.shape},") from error
            if a.dtype.kind not in "fcV":
                raise DTypeError(
                    f"parameter {i} is of {a.dtype.name}, and steps need floating-point numbers; convert it with to()"
                ) from error

    # -- sharing ------------------------------------------------------------------------------------------------------

    def share_memory(self) -> None:
        """Move the state of all parameters into shared memory, so that processes that receive the optimizer have one.

        State that later steps would create is created here, counts of steps become tensors, and options that are
        tensors (`lr=tensor(0.1)`) are shared, too. Parameters are not: share them with `share_memory_()`. Call it
        before you start processes.

        Groups that are added later, and states that are loaded, are shared at once. In a process that received the
        optimizer, both raise InvalidArgument if other processes would not have the state of a shared parameter.

        Raises:
            NotSupported: LBFGS, whose state belongs to one process.
            OutOfMemory, ManagerError: as `Tensor.share_memory_`.
        """
        self._shared_by = os.getpid()
        for group in self.param_groups:
            self._share(group)

    def _share(self, group: dict[str, Any]) -> None:
        """Share the state of a group's parameters; create it if there is none. Raises as `_begin`."""
        for value in group.values():
            if isinstance(value, Tensor):
                value.share_memory_()
        for p in group["params"]:
            state = self.state.get(p)
            if not state or any(value is None for value in state.values()):
                self._begin(p, group)
            else:
                self._share_state(p, state)

    def _begin(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Make the state of a parameter, shared if the optimizer is. Returns it.

        Raises:
            InvalidArgument: other processes change the parameter, and would not have the state.
        """
        state = self._start(p, group)
        if self._shared_by is not None:
            self._share_state(p, state)
        return state

    def _share_state(self, p: Tensor, state: dict[str, Any]) -> None:
        if "step" in state and not isinstance(state["step"], Tensor):
            state["step"] = scalar(state["step"])
        private = [value for value in state.values() if isinstance(value, Tensor) and not value.is_shared()]
        if private and p.is_shared() and self._shared_by != os.getpid():
            self.state.pop(p, None)
            raise InvalidArgument(
                f"state of a shared parameter of shape {p.shape} would be private to this process, because process "
                f"{self._shared_by} shared the optimizer without it; add groups and load states there, before "
                "processes are started"
            )
        for value in private:
            value.share_memory_()

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Make the state of a parameter. Returns it."""
        return {}

    # -- groups -------------------------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters.

        Args:
            param_group: a dict with "params", and options that differ from the defaults.

        Raises:
            InvalidArgument, DTypeError: as the class, and as `share_memory`.
        """
        group = checked_group(param_group, self.param_groups, self.defaults, required)
        if self._shared_by is not None:
            self._share(group)
        self.param_groups.append(group)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state as in torch's optimizers: `{"state": ..., "param_groups": ...}`, with numbers for parameters.

        Its tensors are those of the optimizer: copy or save them before the next step.
        """
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        made = packed(self.param_groups, self.state)
        for after in self._optimizer_state_dict_post_hooks.values():
            other = after(self, made)
            if other is not None:
                made = other
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state and the options in a `state_dict()`, also in that of a torch optimizer.

        Parameters are matched by their order. Tensors are converted to the types of their parameters; those of
        another library are copied. State that is shared stays where it is: values are copied into it.

        Raises:
            InvalidArgument: groups with other numbers of parameters; or as described at `share_memory`.
        """
        state_dict = copy(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            other = before(self, state_dict)
            if other is not None:
                state_dict = other
        state, groups = loaded(state_dict, self.param_groups, self.state)
        self.__setstate__({"state": state, "param_groups": groups})
        if self._shared_by is not None:
            for group in self.param_groups:
                self._share(group)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Register a hook that is called before each step: `hook(optimizer, args, kwargs)`.

        It returns None, or a pair of other arguments. `args` begins with the optimizer.
        """
        return _registered(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Register a hook that is called after each step: `hook(optimizer, args, kwargs)`."""
        return _registered(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Register a hook that is called before `state_dict`: `hook(optimizer)`; `prepend`: before all others."""
        return _registered(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Register a hook that is called with the result of `state_dict`, and may return a replacement.

        `hook(optimizer, state_dict)`; `prepend`: before all others.
        """
        return _registered(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Register a hook that is called with the argument of `load_state_dict`, and may return a replacement.

        `hook(optimizer, state_dict)`; `prepend`: before all others.
        """
        return _registered(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Register a hook that is called after `load_state_dict`: `hook(optimizer)`; `prepend`: before all others."""
        return _registered(self._optimizer_load_state_dict_post_hooks, hook, prepend)
