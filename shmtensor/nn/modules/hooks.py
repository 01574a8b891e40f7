"""Hooks of modules: their handles, hooks of all modules, and the calls of backward hooks.

A backward hook needs the gradients of all inputs, or of all outputs, of a call at once. So tensors are passed through
one operation that only observes their gradients, `_observed`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ..._tensor.dispatch import Array, Module, Result, operation
from ..._tensor.methods import Tensor
from ...autograd.hooks import RemovableHandle, name_of, replacement
from ...autograd.modes import is_grad_enabled
from ...errors import DTypeError, InvalidArgument, type_name

Hooks: TypeAlias = "OrderedDict[int, Callable[..., Any]]"


def add(hooks: Hooks, hook: Callable[..., Any], prepend: bool = False, *marks: dict[int, bool]) -> RemovableHandle:
    """Add a hook to the existing ones, and its number to `marks`; `prepend`: as the first."""
    handle = RemovableHandle(hooks, hook)  # type: ignore[arg-type]
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    for mark in marks:
        mark[handle.id] = True
    return handle


# -- hooks of all modules ----------------------------------------------------------------------------------------------

FORWARD_PRE: Final[Hooks] = OrderedDict()
FORWARD: Final[Hooks] = OrderedDict()
FORWARD_WITH_KWARGS: Final[OrderedDict[int, bool]] = OrderedDict()
FORWARD_ALWAYS: Final[OrderedDict[int, bool]] = OrderedDict()
BACKWARD_PRE: Final[Hooks] = OrderedDict()
BACKWARD: Final[Hooks] = OrderedDict()
BUFFERS: Final[Hooks] = OrderedDict()
PARAMETERS: Final[Hooks] = OrderedDict()
MODULES: Final[Hooks] = OrderedDict()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before `forward` of every module; a result that is not None replaces the arguments."""
    return add(FORWARD_PRE, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after `forward` of every module; a result replaces the output.

    Args:
        hook: the hook.
        with_kwargs: call `hook(module, args, kwargs, output)`.
        always_call: also if `forward` raises.
    """
    marks = [mark for mark, wanted in ((FORWARD_WITH_KWARGS, with_kwargs), (FORWARD_ALWAYS, always_call)) if wanted]
    return add(FORWARD, hook, False, *marks)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` when the gradients of a module's outputs are known; a result replaces them."""
    return add(BACKWARD_PRE, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` when the gradients of a module's inputs are known."""
    return add(BACKWARD, hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` for every buffer that a module registers; a result replaces the buffer."""
    return add(BUFFERS, hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` for every parameter that a module registers; a result replaces it."""
    return add(PARAMETERS, hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` for every module that a module registers; a result replaces it."""
    return add(MODULES, hook)


def replaced(hooks: Hooks, module: Any, name: str, member: Any) -> Any:
    """A member after the registration hooks."""
    for hook in [*hooks.values()]:
        result = hook(module, name, member)
        member = member if result is None else result
    return member


# -- backward hooks ----------------------------------------------------------------------------------------------------


def _watch(g: Any, observer: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> list[Any]:
    return list(observer(tuple(g)))


@operation(
    name="_observed", result=Result.VIEW, function=False, method=False, gradient={"tensors": _watch}, fails="observing"
)
def _observed(xp: Module, *tensors: Array, observer: Any) -> Any:
    """Views of tensors. `observer` gets their gradients together, and may replace them."""
    return tuple([one.view() for one in tensors])


class BackwardHooks:
    """The backward hooks of one call of a module.

    Args:
        module: the module.
        before: hooks for the gradients of the outputs.
        after: hooks for the gradients of the inputs.
    """

    def __init__(self, module: Any, before: list[Callable[..., Any]], after: list[Callable[..., Any]]) -> None:
        self._module = module
        self._before = before
        self._after = after
        self._inputs: int | None = None
        self._places: list[int] = []
        self._grad_output: tuple[Any, ...] | None = None

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `forward`, with tensors replaced by views whose gradients the hooks get."""
        self._inputs = len(args)
        self._places, observed = self._observe(args, self._with_input)
        return observed

    def outputs(self, result: Any) -> Any:
        """The result of `forward`, with tensors replaced by such views. Raises DTypeError: not tensors."""
        if isinstance(result, Tensor):
            return self._observe((result,), self._with_output)[1][0]
        if not isinstance(result, tuple):
            if isinstance(result, list | dict):
                return result  # torch's hooks do not see these either
            raise DTypeError(f"backward hooks of a module whose result is a {type_name(result)}; return tensors")
        observed = self._observe(result, self._with_output)[1]
        return type(result)(*observed) if hasattr(result, "_fields") else observed

    def _observe(self, values: tuple[Any, ...], observer: Callable[..., Any]) -> tuple[list[int], tuple[Any, ...]]:
        places = [i for i, one in enumerate(values) if isinstance(one, Tensor) and one.requires_grad]
        if not places or not is_grad_enabled():
            return [], values
        count = len(values)

        def seen(grads: tuple[Any, ...]) -> tuple[Any, ...]:
            every: list[Any] = [None] * count
            for i, grad in zip(places, grads, strict=True):
                every[i] = grad
            wanted = observer(tuple(every))
            return tuple([wanted[i] for i in places])

        made = [*values]
        passed = _observed(*[values[i] for i in places], observer=seen)
        for i, tensor in zip(places, passed, strict=True):
            made[i] = tensor
        return places, tuple(made)

    def _with_output(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self._before:
            grads = self._replaced(hook, "outputs", grads, hook(self._module, grads))
        self._grad_output = grads
        if not self._places:  # no input has a gradient
            for hook in self._after:
                hook(self._module, (None,) * (self._inputs or 0), grads)
        return grads

    def _with_input(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._grad_output is None:  # they did not pass through the observed outputs
            return grads
        for hook in self._after:
            grads = self._replaced(hook, "inputs", grads, hook(self._module, grads, self._grad_output))
        self._grad_output = None
        return grads

    def _replaced(self, hook: Any, what: str, grads: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
        """The gradients that a hook returned. Raises InvalidArgument, DTypeError: they do not match."""
        if given is None:
            return grads
        given = given if isinstance(given, tuple) else (given,)
        if len(given) != len(grads):
            raise InvalidArgument(
                f"backward hook {name_of(hook)} of {type(self._module).__name__} returned {len(given)} gradients for "
                f"{len(grads)} {what}; return one for each, or None"
            )
        return tuple([
            old if old is None else replacement(hook, old, new) for old, new in zip(grads, given, strict=True)
        ])  # fmt: skip
