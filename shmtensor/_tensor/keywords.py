"""Names of keyword arguments: torch's, NumPy's and the array API's, for parameters that implementations name otherwise.

Calls with positional arguments, or with the implementation's names, do not use this module. Nothing in this module
blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

_AXES: Final = ("dim", "dims", "axis", "axes")
_SYNONYMS: Final = {
    **dict.fromkeys(_AXES, _AXES), "keepdim": ("keepdims",), "keepdims": ("keepdim",), "other": ("x2",),
    "repetitions": ("dims",), "reps": ("dims", "repetitions"), "dims": (*_AXES, "repetitions"),
    "size": ("shape", "sizes"),
    "shape": ("size", "sizes"), "shift": ("shifts",),
}  # fmt: skip
"""Other names of NumPy, the array API or torch for a parameter, accepted if a form has that parameter."""

_PARTS: Final = {"sections": "indices_or_sections", "indices": "indices_or_sections"}
_TORCH: Final[dict[str, dict[str, str]]] = {
    "broadcast_to": {"size": "shape"}, "concat": {"dim": "axis"}, "cross": {"input": "x"}, "dsplit": _PARTS,
    "hsplit": _PARTS, "isin": {"element": "elements", "test_element": "test_elements"},
    "lu_unpack": {"LU_data": "LU_data"}, "norm": {"input": "x"}, "pow": {"exponent": "x2"},
    "scatter_": {"value": "src"}, "searchsorted": {"input": "values"},
    "split": {"tensor": "x", "input": "x", "split_size_or_sections": "split_size"}, "take": {"index": "indices"},
    "tensor_split": {**_PARTS, "tensor_indices_or_sections": "indices_or_sections"}, "tensordot": {"a": "x"},
    "tensorsolve": {"B": "other"}, "tile": {"dims": "repetitions"}, "transpose": {"axis0": "dim0", "axis1": "dim1"},
    "random_": {"from": "low", "to": "high"}, "uniform_": {"from": "low", "to": "high"}, "vector_norm": {"x": "x"},
    "view": {"dtype": "shape"}, "vsplit": _PARTS,
}  # fmt: skip
"""torch's names for parameters here, by function, where they do not follow the rule of `torch_names`."""


def torch_names(name: str, module: str, parameters: Sequence[str], first: str) -> dict[str, str]:
    """Our parameters by torch's names for them, in functions whose implementations name them otherwise.

    The rule: the first tensor is `input` (in `linalg` `A`, too), the second operand `other`, a list of them `tensors`.
    Torch also takes the array API's names `x`, `x1` and `x2`, and NumPy's `a`.

    Args:
        name: name of the function.
        module: name of its module.
        parameters: our parameters.
        first: annotation of the first one; empty if that cannot be given by name.
    """
    if ".array_api" in module or not first:
        return {}
    own_first = parameters[0]
    table = _TORCH.get(name) or _TORCH.get(name.removesuffix("_"), {})
    names = {torch: own for torch, own in table.items() if own in parameters and torch not in {*parameters} - {own}}
    if own_first not in names.values() or ".linalg" in module:
        usual = ("input",) if ".linalg" not in module else ("input", "A") if "routines" in module else ("A", "input")
        usual = ("tensors",) if first == "Arrays" else (*usual, "x", "x1", "a")
        others = {*parameters, *names} - {own_first}
        names |= {one: own_first for one in usual if one not in others}
    if "x2" in parameters and "other" not in parameters and "x2" not in names.values():
        names |= {"other": "x2", "x2": "x2"}
    return names


def other_names(parameters: Mapping[str, inspect.Parameter]) -> dict[str, str]:
    """Our parameters by NumPy's and others' names for them, where a form does not use these names itself."""
    found = {name: [one for one in own if one in parameters] for name, own in _SYNONYMS.items()}
    return {name: own[0] for name, own in found.items() if own and name not in parameters}


def as_torch(signature: inspect.Signature, names: Mapping[str, str]) -> inspect.Signature:
    """The parameters as callers see them: what was only positional has torch's name, and may be given by it."""
    shown = {own: torch for torch, own in reversed([*names.items()])}
    only = inspect.Parameter.POSITIONAL_ONLY
    parameters = [
        one.replace(name=shown.get(one.name, one.name), kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if names and one.kind is only
        else one
        for one in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def own_arguments(
    parameters: Mapping[str, inspect.Parameter],
    names: Mapping[str, str],
    args: Sequence[Any],
    how: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments with our names in place of those of torch and others; as many as possible by position.

    Args:
        parameters: our parameters.
        names: as `torch_names` gives them.
        args: positional arguments.
        how: keyword arguments.

    Returns:
        Positional and keyword arguments.

    Raises:
        TypeError: a parameter is given twice.
    """
    by_position = [one.name for one in parameters.values() if one.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    taken = set(by_position[: len(args)])
    hidden = {own for own in names.values() if parameters[own].kind is inspect.Parameter.POSITIONAL_ONLY}
    values: dict[str, Any] = {}
    for name, value in how.items():
        own = name
        if name in names:
            own = names[name]
        elif name not in parameters or name in hidden:
            own = next((one for one in _SYNONYMS.get(name, ()) if one in parameters), name)
        if own in taken or own in values:
            raise TypeError(f"multiple values for argument {name!r}")
        values[own] = value
    positional = [*args]
    for name in by_position[len(args) :]:
        if name not in values:
            return positional, values
        positional.append(values.pop(name))
    several = [one.name for one in parameters.values() if one.kind is inspect.Parameter.VAR_POSITIONAL]
    positional += [values.pop(name) for name in several if name in values]  # sizes may be given as one list
    return positional, values
