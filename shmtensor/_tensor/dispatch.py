"""Operations on tensors: one row for each, from which all its forms are made.

The design stands in docs/architecture.md, "One operation, one row". A row has an implementation that computes with
arrays; here are made of it the function, the method, the in-place method, Python's operator, `out=`, the signature that
help and type checkers see, and our errors for NumPy's.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, overload

import numpy as np

from .._native import Operation
from ..errors import DTypeError, InvalidArgument, ShmTensorError, tensor_advice, type_name
from ..storage.arguments import SEQUENCES
from .core import FAILURES, Tensor, again, failed, given, wrap

Array: TypeAlias = Any
"""Annotation of a parameter: a tensor is taken, its array computed with. Of a result: the array becomes a tensor."""
Operand: TypeAlias = Any
"""Annotation of a parameter: a tensor, an array, a number or a list of numbers."""
Arrays: TypeAlias = Any
"""Annotation of a first parameter: a list or tuple of tensors is taken, the list of their arrays computed with."""
Module: TypeAlias = Any
"""The array module `xp` that an implementation computes with: NumPy, for tensors in the processor's memory."""

Compute = TypeVar("Compute", bound=Callable[..., Any])


class Result(IntEnum):
    """What becomes of what an implementation gives (the numbers are native/python/operation.cpp's)."""

    CREATED = 0
    """Arrays, also in tuples and lists, become tensors of their own."""
    VIEW = 1
    """Arrays become tensors on the storage of the first tensor where they are views of its array."""
    SAME = 2
    """The first argument was written to, and is the result."""
    VALUE = 3
    """It is the result as it stands."""


class Out(IntEnum):
    """Where the tensor `out` goes (the numbers are native/python/operation.cpp's)."""

    NONE = 0
    PASSED = 1
    """To the implementation, which writes into its array and gives it back."""
    COPIED = 2
    """The result is copied to it."""
    PLACE = 3
    """The first tensor is the `out` that is passed: an in-place form."""
    PLACED = 4
    """The first tensor is the `out` that is copied to: an in-place form."""


@dataclass(slots=True, eq=False)
class Row:
    """An operation."""

    name: str
    compute: Callable[..., Any]
    """The implementation: computes with arrays, of the array module that it takes first, as `xp`."""
    result: Result
    out: Out
    module: str
    """Name of the module that the row is in."""
    doc: str
    fails: str
    """What an error of NumPy's says was done, before "a tensor of shape ...": a format, of the arguments' names."""
    aliases: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None
    """The function of the namespace; None: there is none."""
    methods: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """The methods by their names, in-place ones and operators among them."""
    properties: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """The properties that it is the value of, by their names."""
    gradient: Callable[..., Any] | None = None
    """The rule for its gradient, once gradients are recorded; None: it has none."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and the other ones."""
        return self.name, *self.aliases


ROWS: Final[list[Row]] = []
"""Every operation, in the order in which modules are imported."""


@dataclass(slots=True, eq=False)
class Form:
    """One callable of a row, and what is seldom done when it is called."""

    row: Row
    name: str
    qualname: str
    doc: str
    fails: str
    shown: Callable[..., Any]
    """The function whose parameters are its own."""
    out: Out
    rejects: str
    """What stands in a refusal between its name and the type of the argument."""

    @property
    def module(self) -> str:
        """Name of its module."""
        return self.row.module

    @property
    def signature(self) -> inspect.Signature:
        """What callers see: the implementation's parameters without the module, tensors for arrays, and `out`."""
        return signature_of(self.shown, self.out)

    def reject(self, argument: Any) -> NoReturn:
        """Raise the error for an argument that is not a tensor, or nothing that tensors compute with."""
        raise DTypeError(f"{self.name} {self.rejects} {type_name(argument)}; {tensor_advice(argument)}")

    def reject_sequence(self, argument: Any) -> NoReturn:
        """Raise the error for what is not a list of tensors, or an empty one."""
        found = "no tensors" if isinstance(argument, SEQUENCES) else f"a {type_name(argument)}"
        raise InvalidArgument(f"{self.name} of {found}; give a list")

    def recover(
        self, error: Exception, compute: Callable[..., Any], args: tuple[Any, ...], how: dict[str, Any], out: Any
    ) -> Any:
        """Compute again if memory was lacking, else raise our error for NumPy's.

        Args:
            error: the exception that `compute(*args, **how)` raised.
            compute: the implementation.
            args: its positional arguments.
            how: its keyword arguments.
            out: the array for the result, or None.

        Returns:
            The result; NotImplemented if `error` is to be raised as it is.
        """
        if isinstance(error, ShmTensorError) or not isinstance(error, FAILURES):
            return NotImplemented
        if isinstance(error, TypeError) and error.__traceback__ is None:  # the arguments were not even taken
            if "other" in how and isinstance(compute, np.ufunc):  # of an in-place form; ufuncs have no such name
                return compute(*args, how.pop("other"), **how)
            if inspect.isfunction(compute):
                self._require_arguments(args, how, error)
        array = (
            out if out is not None else next(_arrays_in([*args[takes_module(compute) :], *how.values()]), np.empty(()))
        )
        doing = self._doing(compute, args, how)
        if out is None and self.row.result is not Result.SAME:
            return again(error, doing, array, partial(compute, *args, **how))
        raise failed(error, doing, array) from error

    def _doing(self, compute: Callable[..., Any], args: tuple[Any, ...], how: dict[str, Any]) -> str:
        values: dict[str, Any] = {"name": self.name}
        if takes_module(compute):
            bound = inspect.signature(compute).bind_partial(*args, **how)
            bound.apply_defaults()
            values.update(bound.arguments)
        if values.get("dim") is not None:
            values["axis"] = values["dim"]
        return self.fails.format_map(values)

    def _require_arguments(self, args: tuple[Any, ...], how: dict[str, Any], error: Exception) -> None:
        try:
            self.signature.bind(*args[takes_module(self.shown) :], **how)
        except TypeError as problem:
            raise TypeError(f"{self.name}() {problem}") from error

    def place(self, result: Any, x: Tensor) -> Tensor:
        """A tensor of an array that may be a view of the first tensor's."""
        return x._share(result) if np.may_share_memory(result, x._array) else wrap(result)

    def put(self, result: Any, out: Tensor) -> Tensor:
        """Copy the result to `out`. Raises InvalidArgument, DTypeError, LayoutError."""
        return given(result, out, self.name)

    def wrap(self, result: Any) -> Tensor:
        """A tensor of a scalar, or of an array of another package's type."""
        return wrap(result)

    def module_of(self, array: Any) -> Any:
        """The array module of an array that is not NumPy's."""
        return sys.modules[type(array).__module__.partition(".")[0]]


def methods_of(module: str) -> tuple[str, ...]:
    """The names of the methods that the rows of a module have, without in-place ones and operators."""
    return tuple(name for row in ROWS if row.module == module for name in row.names if name in row.methods)


def _arrays_in(values: Any) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            yield value
        elif isinstance(value, SEQUENCES):
            yield from _arrays_in(value)


# -- what an implementation takes and gives ----------------------------------------------------------------------------


def takes_module(compute: Any) -> bool:
    """Whether the first parameter of an implementation is the array module."""
    code = getattr(compute, "__code__", None)
    return code is not None and code.co_argcount > 0 and code.co_varnames[0] == "xp"


def annotations_of(compute: Any) -> dict[str, str]:
    """The annotations of an implementation, as they are written."""
    return getattr(compute, "__annotations__", {})


def signature_of(compute: Callable[..., Any], out: Out) -> inspect.Signature:
    """The parameters that callers see, with annotations as they are written."""
    found = inspect.signature(compute)
    parameters = list(found.parameters.values())[takes_module(compute) :]
    if out not in (Out.PASSED, Out.COPIED):
        parameters = [one for one in parameters if one.name != "out"]
    elif all(one.name != "out" for one in parameters):
        new = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Array | None")
        end = len(parameters) - any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        parameters.insert(end, new)
    shown = [one.replace(annotation=_public(one.annotation)) for one in parameters]
    return found.replace(parameters=shown, return_annotation=_public(found.return_annotation))


def _public(annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    text = re.sub(r"\bArrays\b", "Sequence[Tensor]", annotation)
    return re.sub(r"\bArray\b", "Tensor", re.sub(r"\bOperand\b", "Any", text))


def _parameters(compute: Any) -> dict[str, Any]:
    """Which arguments must be tensors, as `Operation` takes it."""
    notes = annotations_of(compute)
    code = compute.__code__
    module = takes_module(compute)
    positional = code.co_varnames[module : code.co_argcount]
    every = code.co_varnames[module : code.co_argcount + code.co_kwonlyargcount]
    bits = {"tensors": 0, "optional": 0, "operands": 0}
    kinds = {
        "Array": ("tensors",), "Array | None": ("tensors", "optional"), "Operand": ("operands",),
        "Operand | None": ("operands", "optional"),
    }  # fmt: skip
    for i, name in enumerate(positional):
        for kind in kinds.get(notes.get(name, ""), ()):
            bits[kind] |= 1 << i
    if code.co_flags & inspect.CO_VARARGS and notes.get(code.co_varnames[len(every) + module]) == "Array":
        bits["tensors"] |= (1 << 64) - (1 << len(positional))
    named = tuple(
        name
        for name in every[code.co_posonlyargcount - module :]
        if notes.get(name, "").startswith("Array") and name != "out"
    )
    sequence = bool(positional) and notes.get(positional[0]) == "Arrays"
    return {**bits, "named": named or None, "module": module, "sequence": sequence}


# -- registering -------------------------------------------------------------------------------------------------------


def make_form(
    row: Row,
    name: str,
    *,
    method: bool = False,
    doc: str = "",
    fails: str = "",
    rejects: str = "of a",
    shown: Callable[..., Any] | None = None,
    **how: Any,
) -> Any:
    """A callable of a row. Does not block.

    Args:
        method: it is a method alone, and is pickled and shown so.
        doc, fails: where they are not the row's.
        rejects: what stands in a refusal between its name and the type of the argument.
        shown: the function whose parameters are its own, where the implementation is a ufunc.
        how: what else `Operation` takes.
    """
    how = {"compute": row.compute, "result": row.result, "out": row.out, **how}
    if shown is None:
        shown = how["compute"]
        how = {**_parameters(shown), **how}
    qualname = f"Tensor.{name}" if method else name
    form = Form(row, name, qualname, doc or row.doc, fails or row.fails, shown, how["out"], rejects)
    return Operation(form, **how)


def register(row: Row) -> None:
    """Add a row whose forms are made. Does not block."""
    ROWS.append(row)


def export(namespace: dict[str, Any]) -> list[str]:
    """Put the other names of a module's functions into its namespace; gives the names of all: its `__all__`."""
    names: list[str] = []
    for row in ROWS:
        if row.module == namespace["__name__"] and row.function is not None:
            namespace.update(dict.fromkeys(row.names, row.function))
            names += row.names
    return sorted(names)


Made = TypeVar("Made")
Register: TypeAlias = Callable[..., Callable[[Callable[..., Any]], Callable[..., Tensor]]]
"""Type of `operation` with some arguments given."""


@overload
def operation(
    *aliases: str, results: type[Made], out: Out = ..., fails: str = ..., function: bool = ..., method: bool = ...
) -> Callable[[Callable[..., Any]], Callable[..., Made]]: ...


@overload
def operation(
    *aliases: str,
    name: str = ...,
    result: Result = ...,
    out: Out = ...,
    fails: str = ...,
    function: bool = ...,
    method: bool | Callable[..., Any] = ...,
    in_place: bool = ...,
    properties: tuple[str, ...] = ...,
) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]: ...


def operation(
    *aliases: str,
    name: str = "",
    result: Result = Result.CREATED,
    results: Any = None,
    out: Out = Out.NONE,
    fails: str = "{name} of",
    function: bool = True,
    method: bool | Callable[..., Any] = True,
    in_place: bool = False,
    properties: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an implementation that computes with arrays as an operation; gives its function.

    Args:
        aliases: other names.
        name: where it is not the implementation's: of a method that takes other arguments than the function.
        results: the class of named results.
        out: COPIED where results go to `out` afterwards, PASSED where the implementation takes it.
        fails: what an error of NumPy's says was done.
        function, method: whether there is a function of the namespace, and a method.
        in_place: whether there is a method with an underscore, which puts the result into the tensor.
        properties: properties of tensors.
    """

    def decorate(compute: Callable[..., Any]) -> Callable[..., Any]:
        doc = compute.__doc__ or ""
        row = Row(name or compute.__name__, compute, result, out, compute.__module__, doc, fails, aliases)
        made = make_form(
            row,
            row.name,
            method=not function,
            results=results,
        )
        if function:
            row.function = made
        if callable(method):
            other = make_form(row, row.name, method=True, doc=method.__doc__ or "", compute=method)
            row.methods.update(dict.fromkeys(row.names, other))
        elif method:
            row.methods.update(dict.fromkeys(row.names, made))
        if in_place:
            place = make_form(
                row,
                f"{row.name}_",
                method=True,
                doc=f"`{row.name}` in place; gives self. Does not block. Raises as {row.name} does, and LayoutError.",
                out=Out.PLACE if out is Out.PASSED else Out.PLACED,
            )
            row.methods.update({f"{name}_": place for name in row.names})
        row.properties.update(dict.fromkeys(properties, made))
        register(row)
        return made  # type: ignore[no-any-return]

    return decorate


def composed(*aliases: str, function: bool = True, method: bool = True) -> Callable[[Compute], Compute]:
    """Register a function of tensors, which is written with other operations or makes tensors; gives it.

    What there is to say of it (its gradient, its device) the operations say that it calls.

    Args:
        function, method: whether there is a function of the namespace, and a method.
    """

    def decorate(compute: Compute) -> Compute:
        name, module, doc = compute.__name__, compute.__module__, compute.__doc__ or ""
        row = Row(name, compute, Result.VALUE, Out.NONE, module, doc, "", aliases)
        if function:
            row.function = compute
        else:
            compute.__qualname__ = f"Tensor.{name}"
        if method:
            row.methods.update(dict.fromkeys(row.names, compute))
        register(row)
        return compute

    return decorate
