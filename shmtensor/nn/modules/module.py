"""Module: the base class of the parts of a neural network, with torch's names, meanings and state.

Parameters, buffers and modules that are assigned to attributes are members: they are in `_parameters`, `_buffers` and
`_modules`, and are ordinary attributes too (`members.py`). A call without hooks only calls `forward`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Self

from ..._missing import MissingName
from ..._tensor.conversions import type_named
from ..._tensor.creation import empty
from ..._tensor.methods import Tensor
from ...autograd.hooks import RemovableHandle
from ...autograd.modes import no_grad
from ...devices import device_of, names_device
from ...dtypes import DType
from ...errors import DTypeError, InvalidArgument, NotSupported, type_name
from ..parameter import Buffer, Parameter
from . import hooks, state
from .hooks import BACKWARD as _EVERY_BACKWARD
from .hooks import BACKWARD_PRE as _EVERY_BACKWARD_PRE
from .hooks import FORWARD as _EVERY_FORWARD
from .hooks import FORWARD_PRE as _EVERY_FORWARD_PRE
from .hooks import BackwardHooks
from .hooks import register_module_backward_hook as register_module_backward_hook
from .hooks import register_module_buffer_registration_hook as register_module_buffer_registration_hook
from .hooks import register_module_forward_hook as register_module_forward_hook
from .hooks import register_module_forward_pre_hook as register_module_forward_pre_hook
from .hooks import register_module_full_backward_hook as register_module_full_backward_hook
from .hooks import register_module_full_backward_pre_hook as register_module_full_backward_pre_hook
from .hooks import register_module_module_registration_hook as register_module_module_registration_hook
from .hooks import register_module_parameter_registration_hook as register_module_parameter_registration_hook
from .members import Members
from .state import IncompatibleKeys

_KINDS: Final = ("_parameters", "_buffers", "_modules")
_HOOKS: Final = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


class Module:
    """Base class of all modules. A subclass assigns its members in `__init__`, and computes in `forward`.

    `module(x)` calls `forward(x)`, and the hooks that are registered. Modules may contain modules: `parameters()`,
    `state_dict()`, `to()`, `train()` and others include those.
    """

    training: bool
    call_super_init: bool = False
    _version: int = 1
    _parameters: Members
    _buffers: Members
    _modules: Members
    _non_persistent_buffers_set: set[str]
    _forward_hooks: hooks.Hooks
    _forward_pre_hooks: hooks.Hooks
    _backward_hooks: hooks.Hooks
    _backward_pre_hooks: hooks.Hooks
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    _state_dict_hooks: hooks.Hooks
    _state_dict_pre_hooks: hooks.Hooks
    _load_state_dict_pre_hooks: hooks.Hooks
    _load_state_dict_post_hooks: hooks.Hooks

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            found = f"argument {next(iter(kwargs))!r}" if kwargs else f"{len(args)} positional arguments"
            raise TypeError(f"{type(self).__name__}.__init__() passed {found} to Module.__init__(), which takes none")
        own = self.__dict__
        own["training"] = True
        for kind in _KINDS:
            own[kind] = Members(self)
        own["_non_persistent_buffers_set"] = set()
        for kind in _HOOKS:
            own[kind] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- members -------------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        for base, kind, register in _BY_CLASS:
            members = own.get(kind)
            if isinstance(value, base):
                if members is None:
                    raise AttributeError(f"cannot assign {_WORDS[kind]} before Module.__init__() call")
                if name not in members:
                    self._forget(name)
                register(self, name, value)
                return
            if members is not None and name in members:
                if value is not None and not (kind == "_buffers" and isinstance(value, Tensor)):
                    raise DTypeError(
                        f"cannot assign {type_name(value)!r} as {_ONE[kind]} {name!r} "
                        f"({_WANTED[kind]} or None expected)"
                    )
                register(self, name, value, *[name not in own["_non_persistent_buffers_set"]] * (kind == "_buffers"))
                return
        if name in _KINDS and not isinstance(value, Members):
            value = Members(self, value)
        object.__setattr__(self, name, value)

    def _forget(self, name: str) -> None:
        """Remove whatever has this name, except properties of the class."""
        for kind in _KINDS:
            self.__dict__[kind].pop(name, None)
        self._non_persistent_buffers_set.discard(name)
        self.__dict__.pop(name, None)

    def __delattr__(self, name: str) -> None:
        for kind in _KINDS:
            members = self.__dict__.get(kind, ())
            if name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:  # called only if the ordinary look-up fails
        if hasattr(type(self), name):  # a property, which raised an AttributeError that Python has dropped
            return object.__getattribute__(self, name)

        def names() -> list[str]:
            return [one for one in dir(self) if not one.startswith("_")]

        raise MissingName(f"{type(self).__name__!r} object has no attribute {name!r}", name, names)

    def __dir__(self) -> Iterable[str]:
        return [name for name in object.__dir__(self) if not name[:1].isdigit()]

    def _require_name(self, kind: str, name: Any, members: Members) -> None:
        if not isinstance(name, str):
            raise DTypeError(f"{_ONE[kind]} name should be a string. Got {type_name(name)}")
        if "." in name:
            raise InvalidArgument(f"""{_ONE[kind]} name can't contain ".", got: {name}""")
        if not name:
            raise InvalidArgument(f"""{_ONE[kind]} name can't be empty string \"\"""")
        if name not in members and hasattr(self, name):
            raise InvalidArgument(f"attribute {name!r} already exists")

    def _members(self, kind: str) -> Members:
        members: Members | None = self.__dict__.get(kind)
        if members is None:
            raise AttributeError(f"cannot assign {_WORDS[kind]} before Module.__init__() call")
        return members

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None in its place.

        Raises:
            InvalidArgument: a name that is empty, contains a dot, or is that of another attribute.
            DTypeError: not a Parameter.
        """
        members = self._members("_parameters")
        self._require_name("_parameters", name, members)
        if param is not None and not isinstance(param, Parameter):
            raise DTypeError(
                f"cannot assign {type_name(param)!r} object to parameter {name!r} (Parameter or None required)"
            )
        members[name] = hooks.replaced(hooks.PARAMETERS, self, name, param) if hooks.PARAMETERS else param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer: a tensor that is part of the state but not a parameter.

        Args:
            name: its name.
            tensor: the tensor; None: no tensor, which is left out of the state.
            persistent: whether `state_dict()` has it.

        Raises:
            InvalidArgument: a name that is empty, contains a dot, or is that of another attribute.
            DTypeError: not a tensor.
        """
        members = self._members("_buffers")
        self._require_name("_buffers", name, members)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(f"cannot assign {type_name(tensor)!r} object to buffer {name!r} (Tensor or None required)")
        members[name] = hooks.replaced(hooks.BUFFERS, self, name, tensor) if hooks.BUFFERS else tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module, or None in its place.

        Raises:
            InvalidArgument: a name that is empty, contains a dot, or is that of another attribute.
            DTypeError: not a Module.
        """
        members = self._members("_modules")
        if module is not None and not isinstance(module, Module):
            raise DTypeError(f"{type_name(module)} is not a Module subclass")
        self._require_name("_modules", name, members)
        _set_module(self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Same as add_module."""
        self.add_module(name, module)

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as `"encoder.0"`; the module itself at `""`. Raises AttributeError."""
        found: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise MissingName(f"{type(found).__name__} has no attribute `{name}`", name, [*found._modules])
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found  # type: ignore[no-any-return]

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Set the module at a path such as `"encoder.0"`.

        Args:
            target: the path.
            module: the module.
            strict: refuse a name that the module around it does not have.

        Raises:
            InvalidArgument: an empty path, or `module` is not a module.
            AttributeError: there is no module around it; if strict, or a path of one name, none at the path.
        """
        if not target:
            raise InvalidArgument("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise InvalidArgument(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        around = self.get_submodule(path)
        if (strict or not path) and not hasattr(around, name):
            raise MissingName(f"{type(around).__name__} has no attribute `{name}`", name, [*around._modules])
        if hasattr(around, name) and not isinstance(getattr(around, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(around, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as `"encoder.0.weight"`. Raises AttributeError."""
        return self._get(target, "_parameters", "an nn.Parameter")  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path such as `"encoder.1.running_mean"`. Raises AttributeError."""
        return self._get(target, "_buffers", "a buffer")  # type: ignore[no-any-return]

    def _get(self, target: str, kind: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise MissingName(f"{type(module).__name__} has no attribute `{name}`", name, [*getattr(module, kind)])
        found = getattr(module, name)
        if found is not getattr(module, kind).get(name, self):
            raise AttributeError(f"`{name}` is not {what}")
        return found

    # -- computing -----------------------------------------------------------------------------------------------------

    def forward(self, *input: Any, **how: Any) -> Any:
        """Compute the result of a call. Subclasses define it. Raises NotSupported: the class does not."""
        raise NotSupported(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of `forward`, with the changes of hooks."""
        if (
            self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
            or _EVERY_FORWARD or _EVERY_FORWARD_PRE or _EVERY_BACKWARD or _EVERY_BACKWARD_PRE
        ):  # fmt: skip
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called: set[int] = set()
        try:
            return self._call_each(args, kwargs, called)
        except Exception:
            always = [(hooks.FORWARD, hooks.FORWARD_ALWAYS, hooks.FORWARD_WITH_KWARGS)]
            always.append((self._forward_hooks, self._forward_hooks_always_called, self._forward_hooks_with_kwargs))
            for every, marked, with_kwargs in always:
                for number, hook in [*every.items()]:
                    if number in marked and number not in called:
                        hook(self, args, *[kwargs] * (number in with_kwargs), None)
            raise

    def _call_each(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
        for number, hook in [*hooks.FORWARD_PRE.items(), *self._forward_pre_hooks.items()]:
            if number in self._forward_pre_hooks_with_kwargs:
                result = hook(self, args, kwargs)
                if result is not None:
                    if not isinstance(result, tuple) or len(result) != 2:
                        raise DTypeError(
                            f"forward pre-hook must return None or (new_args, new_kwargs), but got {result}."
                        )
                    args, kwargs = result
            else:
                result = hook(self, args)
                if result is not None:
                    args = result if isinstance(result, tuple) else (result,)
        backward = None
        before = [*hooks.BACKWARD_PRE.values(), *self._backward_pre_hooks.values()]
        after = [*hooks.BACKWARD.values(), *self._backward_hooks.values()]
        if before or after:
            backward = BackwardHooks(self, before, after)
            args = backward.inputs(args)
        output = self.forward(*args, **kwargs)
        for number, hook in [*hooks.FORWARD.items(), *self._forward_hooks.items()]:
            called.add(number)
            if number in hooks.FORWARD_WITH_KWARGS or number in self._forward_hooks_with_kwargs:
                result = hook(self, args, kwargs, output)
            else:
                result = hook(self, args, output)
            output = output if result is None else result
        return output if backward is None else backward.outputs(output)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before `forward`. A result that is not None replaces the arguments.

        Args:
            hook: the hook.
            prepend: before the existing hooks.
            with_kwargs: call `hook(module, args, kwargs)`, which may return both.
        """
        return hooks.add(
            self._forward_pre_hooks, hook, prepend, *[self._forward_pre_hooks_with_kwargs] * bool(with_kwargs)
        )

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after `forward`. A result that is not None replaces the output.

        Args:
            hook: the hook.
            prepend: before the existing hooks.
            with_kwargs: call `hook(module, args, kwargs, output)`.
            always_call: also if `forward` raises, with None as the output.
        """
        marks = [self._forward_hooks_with_kwargs] * bool(with_kwargs)
        marks += [self._forward_hooks_always_called] * bool(always_call)
        return hooks.add(self._forward_hooks, hook, prepend, *marks)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of the outputs are known; a result replaces them."""
        return hooks.add(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        A result that is not None replaces the gradients of the inputs. The gradient of an argument that is not a tensor
        is None.
        """
        return hooks.add(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Same as register_full_backward_hook."""
        return self.register_full_backward_hook(hook)

    # -- all members ---------------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(path, module) of this module, and of all modules in it.

        Args:
            memo: modules to leave out.
            prefix: prefix of the paths.
            remove_duplicate: yield each module once.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module, and all modules in it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules that are members, each module once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules that are members, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, get_members_fn: Callable[[Module], Iterable[tuple[str, Any]]], prefix: str = "", recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        """(path, member) of the members that a function returns for each module, except None."""
        seen: set[Any] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else ((prefix, self),)
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) of all parameters; `recurse`: with those of the modules in it."""
        return self._named_members(lambda one: one._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once; `recurse`: with those of the modules in it."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer) of all buffers; `recurse`: with those of the modules in it."""
        return self._named_members(lambda one: one._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, each once; `recurse`: with those of the modules in it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with each module in it, and finally with the module itself. Returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # -- modes ---------------------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Change to training, or to evaluation, with all modules in it. Returns self. Raises InvalidArgument."""
        if not isinstance(mode, bool):
            raise InvalidArgument("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """`train(False)`. Returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Change whether gradients of the parameters are recorded. Returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters; with set_to_none=False, set them to 0."""
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                parameter.grad = grad.detach().zero_()

    # -- memory and types ----------------------------------------------------------------------------------------------

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the memory of each parameter and buffer by the result of a function. Returns self."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    made = fn(parameter)
                    if made is not parameter:
                        parameter.data = made
                    if parameter.grad is not None:
                        parameter.grad.data = fn(parameter.grad)
            for name, buffer in [*self._buffers.items()]:
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def share_memory(self) -> Self:
        """Move parameters and buffers into shared memory, never gradients. Returns self. Blocks as share_memory_."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating-point and complex parameters and buffers. Returns self.

        `to(dtype)`, `to(device)`, `to(device, dtype)` and `to(tensor)`, each with `non_blocking`, `copy` and
        `memory_format` as in `Tensor.to`.

        Raises:
            DTypeError: a type that is neither floating-point nor complex.
            InvalidArgument: no such device, or incompatible arguments.
        """
        given = [*args, *[kwargs.pop(name) for name in ("other", "tensor") if name in kwargs]]
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        for one in given[:2]:
            if isinstance(one, Tensor):
                dtype = one.dtype
            elif isinstance(one, DType):
                dtype = one
            elif names_device(one):
                device = one
            elif one is not None and not isinstance(one, bool):
                raise InvalidArgument(f"to({one!r}): give a type, a device, both or a tensor")
        target = None if device is None else device_of(device)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise DTypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired {dtype=}")
        how = {name: kwargs[name] for name in ("copy", "memory_format", "non_blocking") if name in kwargs}
        wanted = how.pop("memory_format", None)

        def convert(x: Tensor) -> Tensor:
            ordered = {**how, "memory_format": wanted} if wanted is not None and x.dim() in (4, 5) else how
            kind = dtype if x.is_floating_point() or x.is_complex() else None
            kept = x.dtype if kind is None else kind
            return x.to(kept, **ordered) if target is None else x.to(target, kept, **ordered)

        return self._apply(convert)

    def type(self, dst_type: Any) -> Self:
        """Convert all parameters and buffers. Returns self. Raises DTypeError: no such type."""
        kind = type_named(dst_type)
        return self._apply(lambda x: x.to(kind))

    def float(self) -> Self:
        """Convert floating-point parameters and buffers to float32. Returns self."""
        return self._apply(lambda x: x.float() if x.is_floating_point() else x)

    def double(self) -> Self:
        """Convert floating-point parameters and buffers to float64. Returns self."""
        return self._apply(lambda x: x.double() if x.is_floating_point() else x)

    def half(self) -> Self:
        """Convert floating-point parameters and buffers to float16. Returns self."""
        return self._apply(lambda x: x.half() if x.is_floating_point() else x)

    def bfloat16(self) -> Self:
        """Convert floating-point parameters and buffers to bfloat16. Returns self."""
        return self._apply(lambda x: x.bfloat16() if x.is_floating_point() else x)

    def cpu(self) -> Self:
        """Move parameters and buffers to the processor's memory. Returns self."""
        return self._apply(lambda x: x.cpu())

    def cuda(self, device: Any = None) -> Self:
        """Move parameters and buffers to a GPU; None: the current one. Returns self.

        Raises:
            DeviceUnavailable: no GPU can be used; the message says why.
            InvalidArgument: there is no such GPU.
        """
        return self._apply(lambda x: x.cuda(device))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Give parameters and buffers new memory of arbitrary content. Returns self. Raises InvalidArgument: device."""
        target = device_of(device)
        return self._apply(lambda x: empty(x.shape, dtype=x.dtype, device=target), recurse)

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """Return what a subclass saves besides tensors. Raises NotSupported: not in this class."""
        raise NotSupported(f"{type(self).__name__} has no extra state; define get_extra_state in the class")

    def set_extra_state(self, state: Any) -> None:
        """Restore what `get_extra_state` returned. Raises NotSupported: not in this class."""
        raise NotSupported(f"{type(self).__name__} takes no extra state; define set_extra_state in the class")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        state.save_own(self, destination, prefix, keep_vars)

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers by their paths, in an OrderedDict. They share the memory of the module.

        Args:
            *args: the other arguments by position, as older programs give them.
            destination: a dict to put them into.
            prefix: prefix of the paths.
            keep_vars: return the parameters themselves, not detached tensors.
        """
        for value, name in zip(args, ("destination", "prefix", "keep_vars"), strict=False):
            if name == "destination":
                destination = value if destination is None else destination
            elif name == "prefix":
                prefix = prefix or value
            else:
                keep_vars = keep_vars or value
        return state.gather(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        state.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy tensors of a `state_dict()`, or of a torch checkpoint, to the parameters and buffers of the same paths.

        Args:
            state_dict: tensors by path.
            strict: refuse other paths than those of this module.
            assign: use the tensors themselves instead of copying their values.

        Returns:
            (missing_keys, unexpected_keys)

        Raises:
            DTypeError: state_dict is not a mapping.
            StateDictMismatch: a tensor of another shape; if strict, other paths.
        """
        return state.load(self, state_dict, strict, assign)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` at the end of state_dict; a result replaces it."""
        return hooks.add(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` at the end of `state_dict`."""
        return hooks.add(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects anything."""
        return hooks.add(self._state_dict_pre_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call a hook before `load_state_dict` copies anything.

        Its arguments: module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        return hooks.add(self._load_state_dict_pre_hooks, _Bound(hook, self) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after `load_state_dict`. The hook may change the lists of keys."""
        return hooks.add(self._load_state_dict_post_hooks, hook)

    def __getstate__(self) -> dict[str, Any]:
        members = {name for kind in _KINDS for name in self.__dict__.get(kind, ())}
        return {name: value for name, value in self.__dict__.items() if name not in members}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = self.__dict__
        own.update(state)
        for kind in _KINDS:
            own[kind] = Members(self, own.get(kind, ()))
        own.setdefault("_non_persistent_buffers_set", set())
        for kind in _HOOKS:
            own.setdefault(kind, OrderedDict())

    # -- text ----------------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return self.__class__.__name__

    def extra_repr(self) -> str:
        """Text for `repr` between the parentheses; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        if not children and len(lines) < 2:
            return f"{self._get_name()}({extra})"
        return "\n  ".join([f"{self._get_name()}(", *lines, *children]) + "\n)"


class _Bound:
    """A hook whose first argument is its module."""

    def __init__(self, hook: Callable[..., Any], module: Module) -> None:
        self._hook = hook
        self._module = module

    def __call__(self, *args: Any) -> Any:
        return self._hook(self._module, *args)


def _indented(text: str, spaces: int = 2) -> str:
    return text.replace("\n", "\n" + " " * spaces)


def _register_buffer(module: Module, name: str, value: Any, persistent: bool | None = None) -> None:
    if isinstance(value, Buffer):
        persistent = value.persistent
    module.register_buffer(name, value, True if persistent is None else persistent)


def _set_module(module: Module, name: str, value: Module | None) -> None:
    module._modules[name] = hooks.replaced(hooks.MODULES, module, name, value) if hooks.MODULES else value


_BY_CLASS: Final[Any] = (
    (Parameter, "_parameters", Module.register_parameter),
    (Module, "_modules", _set_module),
    (Buffer, "_buffers", _register_buffer),
)
"""Kinds of members: (class, kind, function that registers it)."""
_WORDS: Final = {"_parameters": "parameters", "_modules": "module", "_buffers": "buffer"}
_ONE: Final = {"_parameters": "parameter", "_modules": "module", "_buffers": "buffer"}
_WANTED: Final = {"_parameters": "Parameter", "_modules": "Module", "_buffers": "Buffer, Tensor"}
