"""Checks of a group of parameters that is added to an optimizer."""

from __future__ import annotations

import warnings
from typing import Any

from .._tensor.core import Tensor
from ..errors import DTypeError, InvalidArgument, type_name


def checked_group(group: Any, groups: list[dict[str, Any]], defaults: dict[str, Any], required: object) -> Any:
    """Complete a group: its parameters in a list, their names in another, and defaults for missing options.

    Args:
        group: the group, a dict.
        groups: groups of the optimizer.
        defaults: default options.
        required: the default of an option that must be given.

    Raises:
        InvalidArgument: a duplicate parameter, one that is computed from others, names for only some, a missing option.
        DTypeError: something that is not a tensor, a set of them, or not a dict.
    """
    if not isinstance(group, dict):
        raise DTypeError(f"param_group must be a dict, but got {type(group)}")
    params = group["params"]
    if isinstance(params, set):
        raise DTypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
            "will change between runs. Please use a list instead."
        )
    _take_names(group, [params] if isinstance(params, Tensor) else list(params))
    for p in group["params"]:
        _require_parameter(p)
    for name, default in defaults.items():
        if default is required and name not in group:
            raise InvalidArgument(
                f"parameter group didn't specify a value of required optimization parameter {name}; "
                "give it in the group, or to the optimizer"
            )
        group.setdefault(name, default)
    _require_new(group, groups)
    return group


def _take_names(group: dict[str, Any], params: list[Any]) -> None:
    names = [one[0] for one in params if isinstance(one, tuple)]
    if names and len(names) != len(params):
        raise InvalidArgument("all optimizer params should be with/without names. Some param names are missing")
    group["params"] = [one[1] for one in params] if names else params
    if names:
        group["param_names"] = names


def _require_parameter(p: Any) -> None:
    if not isinstance(p, Tensor):
        raise DTypeError(f"optimizer can only optimize Tensors, but one of the params is {type_name(p)}")
    if not (p.is_leaf or p.retains_grad):
        raise InvalidArgument("can't optimize a non-leaf Tensor; give the tensor that it was computed from")


def _require_new(group: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Refuse parameters that another group has, and names if others have none."""
    own = {id(p) for p in group["params"]}
    if len(own) != len(group["params"]):
        warnings.warn(
            "optimizer contains a parameter group with duplicate parameters; each step changes them several times",
            stacklevel=5,
        )
    for other in groups:
        if ("param_names" in group) != ("param_names" in other):
            found = "with" if "param_names" in group else "without"
            raise InvalidArgument(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group {found} names to the optimizer"
            )
        if not own.isdisjoint(map(id, other["params"])):
            raise InvalidArgument(
                "some parameters appear in more than one parameter group; leave them out of all groups but one"
            )
