"""Gradient rules of rows, made ready for native/python/autograd_rules.cpp at the first recorded call of a form.

A rule is written as functions whose parameters say what they need (docs/autograd.md, "Rules"). This module finds where
each of these values comes from in a call: which argument, by position or by name. Nothing in it blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from .._native import Rule


class Kind(IntEnum):
    """Kinds of arguments of a function of a rule (the numbers are those of native/python/autograd_rules.hpp)."""

    GRADIENT = 0
    RESULT = 1
    ARGUMENT = 2
    SHAPE = 3
    TYPE = 4


class _Parameters:
    """The parameters of an implementation, by their place."""

    def __init__(self, signature: inspect.Signature, first: str) -> None:
        found = [one for one in signature.parameters.values() if one.name != "out"]
        kinds = {one.name: one.kind for one in found}
        keyword = inspect.Parameter.KEYWORD_ONLY
        rest = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL]
        by_position = [name for name, kind in kinds.items() if kind is not keyword and name not in rest]
        self.names = (*by_position, *rest, *[name for name, kind in kinds.items() if kind is keyword])
        self.positional = len(by_position)
        self.rest = len(by_position) if rest else -1
        self.first = first
        self.defaults = tuple([() if name in rest else _default(signature.parameters[name]) for name in self.names])

    def place_of(self, name: str) -> int:
        """Where a parameter stands. Raises LookupError: there is none of that name."""
        if name in self.names:
            return self.names.index(name)
        if name == self.first:  # a method may name the tensor otherwise
            return 0
        raise LookupError(name)


def _default(parameter: inspect.Parameter) -> Any:
    return None if parameter.default is inspect.Parameter.empty else parameter.default


def rule_of(
    name: str,
    gradient: Callable[..., Any] | dict[Any, Callable[..., Any]] | None,
    signature: inspect.Signature,
    first: str,
    synonyms: dict[str, str],
    is_list: Callable[[str], bool],
) -> Rule:
    """Make the rule of a form.

    Args:
        name: name of the operation.
        gradient: the gradient of its row.
        signature: the parameters of the implementation.
        first: name of the first parameter of the row's implementation.
        synonyms: names of parameters by torch's names for them.
        is_list: whether a parameter is a list of tensors.

    Raises:
        TypeError: the rule is for a parameter, or asks for one, that the operation does not have.
    """
    parameters = _Parameters(signature, first)
    if gradient is None:
        gradient = {}
    elif not isinstance(gradient, dict):
        gradient = {parameters.names[0]: gradient}
    inputs: list[int] = []
    values: list[tuple[int, int]] = []
    parts = []
    sequence = -1
    for key, function in gradient.items():
        keys = key if isinstance(key, tuple) else (key,)
        places = [_input(name, one, parameters) for one in keys]
        lists = [p for one, p in zip(keys, places, strict=True) if p == parameters.rest or is_list(one)]
        sequence = lists[0] if lists else sequence
        needs = [_value(name, one, parameters) for one in _names(function)]
        values += [one for one in needs if one not in values]
        numbers = tuple([values.index(one) for one in needs])
        parts.append((function, tuple(range(len(inputs), len(inputs) + len(places))), isinstance(key, tuple), numbers))
        inputs += places
    if not parts:  # the edges of an operation without a rule lead to an error
        inputs = list(range(len(parameters.names)))
        lists = [i for i in inputs if i == parameters.rest or is_list(parameters.names[i])]
        sequence = lists[0] if lists else -1
    return Rule(name, parameters.names, parameters.defaults, synonyms, parameters.positional, parameters.rest, sequence,
                tuple(inputs), tuple(values), tuple(parts))  # fmt: skip


def _names(function: Callable[..., Any]) -> Sequence[str]:
    return tuple(inspect.signature(function).parameters)


def _input(operation: str, name: str, parameters: _Parameters) -> int:
    """Where the parameter stands whose gradient a function of a rule computes."""
    try:
        return parameters.place_of(name)
    except LookupError:
        raise TypeError(f"the gradient rule of {operation} is for {name!r}, which is not a parameter of it") from None


def _value(operation: str, name: str, parameters: _Parameters) -> tuple[int, int]:
    """Which value a parameter of a function of a rule is."""
    if name == "g":
        return Kind.GRADIENT, 0
    if name == "result":
        return Kind.RESULT, 0
    kinds = [(Kind.ARGUMENT, name)]
    kinds += [(kind, name[:-6]) for kind, end in ((Kind.SHAPE, "_shape"), (Kind.TYPE, "_dtype")) if name.endswith(end)]
    for kind, parameter in kinds:
        try:
            return kind, parameters.place_of(parameter)
        except LookupError:
            continue
    raise TypeError(f"the gradient rule of {operation} asks for {name!r}, which is not a parameter of it")
