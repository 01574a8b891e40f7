"""State of optimizers in the form of checkpoints: torch's keys, and numbers for parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from .._tensor.core import Tensor, wrap
from .._tensor.creation import asarray
from ..errors import InvalidArgument

Groups: TypeAlias = list[dict[str, Any]]
States: TypeAlias = defaultdict[Any, dict[str, Any]]


def packed(groups: Groups, state: States) -> dict[str, Any]:
    """Groups and state with numbers in place of parameters."""
    numbers: dict[int, int] = {}
    given: Groups = []
    first = 0
    for group in groups:
        params = group["params"]
        for i, p in enumerate(params, first):
            numbers.setdefault(id(p), i)
        first += len(params)
        options = {name: value for name, value in group.items() if name != "params"}
        given.append({**options, "params": [numbers[id(p)] for p in params]})
    kept = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in state.items()}
    return {"state": kept, "param_groups": given}


def loaded(given: dict[str, Any], groups: Groups, state: States) -> tuple[States, Groups]:
    """State and groups of a checkpoint with parameters in place of numbers.

    Args:
        given: the checkpoint.
        groups: the optimizer's groups, with the parameters.
        state: the optimizer's state; values are copied into its shared tensors.

    Raises:
        InvalidArgument: groups with other numbers of parameters.
    """
    saved = deepcopy(given["param_groups"])
    if len(saved) != len(groups):
        raise InvalidArgument(
            f"loaded state dict has a different number of parameter groups: {len(saved)}, the optimizer {len(groups)}; "
            "make the optimizer with the groups it had when it was saved"
        )
    for one, group in zip(saved, groups, strict=True):
        if len(one["params"]) != len(group["params"]):
            raise InvalidArgument(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                f"{len(one['params'])} parameters, the optimizer's {len(group['params'])}; "
                "make it with the parameters it had when it was saved"
            )
    numbers = chain.from_iterable(one["params"] for one in saved)
    params = dict(zip(numbers, chain.from_iterable(group["params"] for group in groups), strict=True))
    made: States = defaultdict(dict)
    for key, value in given["state"].items():
        p = params.get(key)
        if p is None:
            made[key] = value
        else:
            made[p] = _in_place(_converted(p, value), state.get(p, {}))
    for one, group in zip(saved, groups, strict=True):
        one["params"] = group["params"]
        if "param_names" in group:
            one.setdefault("param_names", group["param_names"])
        for name, value in one.items():
            one[name] = _into(value, group.get(name))
    return made, saved


def _converted(p: Tensor, value: Any, name: Any = None) -> Any:
    """A value of the state of a parameter, of its type; the number of steps keeps its own."""
    if not isinstance(value, Tensor) and hasattr(value, "__dlpack__"):
        value = asarray(value, copy=True)
    if isinstance(value, Tensor):
        a, dtype = value._live(), p._live().dtype
        is_other = name != "step" and dtype.kind not in "ciub" and a.dtype != dtype
        return wrap(a.astype(dtype)) if is_other else value
    if isinstance(value, dict):
        return {key: _converted(p, one, key) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return type(value)(_converted(p, one) for one in value)  # type: ignore[call-arg]
    return value


def _in_place(new: Any, old: dict[str, Any]) -> Any:
    """New state whose values are copied into shared tensors of the old one."""
    return {name: _into(value, old.get(name)) for name, value in new.items()} if isinstance(new, dict) else new


def _into(value: Any, old: Any) -> Any:
    if not isinstance(old, Tensor) or not old.is_shared():
        return value
    source = value._live() if isinstance(value, Tensor) else np.asarray(value)
    if source.shape != old.shape:
        return value
    np.copyto(old._live(), source, casting="unsafe")
    return old
