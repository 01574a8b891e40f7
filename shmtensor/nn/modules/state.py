"""Saving and loading the state of a module as a dict of tensors, with torch's keys.

These functions do the work of `Module.state_dict` and `Module.load_state_dict`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..._tensor.methods import Tensor
from ...autograd.modes import no_grad
from ...errors import DTypeError, ShmTensorError, StateDictMismatch
from ..parameter import Parameter

EXTRA: Final = "_extra_state"
"""Last part of the key of the extra state."""


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` returns: the keys that only one side had."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def overrides(module: Any, method: str) -> bool:
    """Whether a module's class overrides a method of Module."""
    found = getattr(type(module), method, None)
    return getattr(found, "__module__", None) != "shmtensor.nn.modules.module"


def gather(module: Any, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """Put the state of a module, and of those in it, into a dict. Returns the dict."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    local = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local
    for hook in [*module._state_dict_pre_hooks.values()]:
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in [*module._state_dict_hooks.values()]:
        result = hook(module, destination, prefix, local)
        destination = destination if result is None else result
    return destination


def save_own(module: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
    """Put a module's own parameters, persistent buffers and extra state into a dict."""
    for name, tensor in persistent(module).items():
        destination[prefix + name] = tensor if keep_vars else tensor.detach()
    if overrides(module, "get_extra_state"):
        destination[f"{prefix}{EXTRA}"] = module.get_extra_state()


def persistent(module: Any) -> dict[str, Tensor]:
    """Parameters and persistent buffers of a module itself that are not None."""
    left_out = module._non_persistent_buffers_set
    named = [*module._parameters.items(), *((n, b) for n, b in module._buffers.items() if n not in left_out)]
    return {name: tensor for name, tensor in named if tensor is not None}


def load(module: Any, state_dict: Any, strict: bool, assign: bool) -> IncompatibleKeys:
    """Load the state of a module and of those in it.

    Raises:
        DTypeError: state_dict is not a mapping.
        StateDictMismatch: a tensor of another shape; if strict, other keys.
    """
    if not isinstance(state_dict, Mapping):
        raise DTypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    keys = IncompatibleKeys([], [])
    errors: list[str] = []
    metadata = getattr(state_dict, "_metadata", None) or {}
    _load_each(module, OrderedDict(state_dict), "", metadata, assign, keys, errors)
    if strict and keys.unexpected_keys:
        errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(keys.unexpected_keys)}. ")
    if strict and keys.missing_keys:
        errors.insert(0, f"Missing key(s) in state_dict: {_quoted(keys.missing_keys)}. ")
    if errors:
        raise StateDictMismatch("Error(s) in loading state_dict for {}:\n\t{}".format(
            type(module).__name__, "\n\t".join(errors)))  # fmt: skip
    return keys


def _load_each(
    module: Any, state: Any, prefix: str, metadata: Any, assign: bool, keys: IncompatibleKeys, errors: list[str]
) -> None:
    """Load a module, and then those in it, from the part of the state whose keys begin with a prefix."""
    local = {**metadata.get(prefix[:-1], {}), "assign_to_params_buffers": assign}
    module._load_from_state_dict(state, prefix, local, True, keys.missing_keys, keys.unexpected_keys, errors)
    for name, child in module._modules.items():
        if child is not None:
            start = f"{prefix}{name}."
            part = {key: value for key, value in state.items() if key.startswith(start)}
            _load_each(child, part, start, metadata, assign, keys, errors)
    for hook in [*module._load_state_dict_post_hooks.values()]:
        hook(module, keys)


def _quoted(keys: list[str]) -> str:
    return ", ".join([f'"{key}"' for key in keys])


def load_own(
    module: Any,
    state_dict: Any,
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Load a module's own parameters, persistent buffers and extra state. Problems are added to the lists."""
    for hook in [*module._load_state_dict_pre_hooks.values()]:
        hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    own = persistent(module)
    for name, tensor in own.items():
        key = prefix + name
        if key in state_dict:
            _load_tensor(module, name, tensor, state_dict[key], key, local_metadata, error_msgs)
        elif strict:
            missing_keys.append(key)
    extra = f"{prefix}{EXTRA}"
    if overrides(module, "set_extra_state"):
        if extra in state_dict:
            module.set_extra_state(state_dict[extra])
        elif strict:
            missing_keys.append(extra)
    elif strict and extra in state_dict:
        unexpected_keys.append(extra)
    if strict:
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (module._modules if dot else own):
                    unexpected_keys.append(key)


def _load_tensor(
    module: Any, name: str, tensor: Tensor, given: Any, key: str, local_metadata: dict[str, Any], errors: list[str]
) -> None:
    if not isinstance(given, Tensor):
        errors.append(
            f'While copying the parameter named "{key}", expected a Tensor from checkpoint but received {type(given)}'
        )
        return
    if not tensor.shape and given.shape == (1,):  # of versions of torch before 0.4
        given = given[0]
    if tensor.shape != given.shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
        return
    try:
        if local_metadata.get("assign_to_params_buffers"):
            if isinstance(tensor, Parameter) and not isinstance(given, Parameter):
                given = Parameter(given, requires_grad=tensor.requires_grad)
            setattr(module, name, given)
        else:
            with no_grad():
                tensor.copy_(given)
    except ShmTensorError as error:
        errors.append(
            f'While copying the parameter named "{key}", whose dimensions in the model are {tensor.shape} and whose '
            f"dimensions in the checkpoint are {given.shape}, an exception occurred : {error.args}."
        )
