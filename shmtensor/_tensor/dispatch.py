"""Operations on tensors: one row for each, from which all its forms are made.

The design is in docs/architecture.md, "One operation, one row". A row has an implementation that computes with arrays.
This module makes from it the function, the method, the in-place method, Python's operator, `out=`, the signature that
`help` and type checkers show, and shmtensor's errors in place of NumPy's. Nothing in this module blocks.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache, partial, wraps
from string import Formatter
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, overload

import numpy as np

from .._loading import load
from .._native import Operation
from ..errors import DTypeError, InvalidArgument, NotSupported, ShmTensorError, tensor_advice, type_name
from ..storage.arguments import SEQUENCES
from .core import FAILURES, again, array_of, failed, wrap
from .keywords import as_torch, other_names, own_arguments, torch_names
from .methods import Tensor  # before any row is installed
from .outputs import given, given_each
from .signatures import Shown

Array: TypeAlias = Any
"""Annotation of a parameter or result: a tensor for the caller, its array for the implementation."""
Operand: TypeAlias = Any
"""Annotation of a parameter: a tensor, an array, a number or a list of numbers."""
Arrays: TypeAlias = Any
"""Annotation of a first parameter: the caller passes a list of tensors, the implementation gets their arrays."""
Module: TypeAlias = Any
"""The array module `xp` that an implementation computes with: NumPy, for tensors in the processor's memory."""

Compute = TypeVar("Compute", bound=Callable[..., Any])
Gradient: TypeAlias = "Callable[..., Any] | dict[str | tuple[str, ...], Callable[..., Any]]"
"""Gradient rule of a row: a function, or functions by the names of the parameters whose gradients they compute
(docs/autograd.md, "Rules")."""


class Result(IntEnum):
    """How the result of an implementation is returned (the numbers are those of native/python/operation.cpp)."""

    CREATED = 0
    """Arrays, also in tuples and lists, become new tensors."""
    VIEW = 1
    """Arrays that are views of the first tensor's array become tensors on its storage; others become new tensors."""
    SAME = 2
    """The first argument, which was written to, is returned."""
    VALUE = 3
    """Returned unchanged."""


class Out(IntEnum):
    """How an operation uses `out` (the numbers are those of native/python/operation.cpp)."""

    NONE = 0
    PASSED = 1
    """It is passed to the implementation, which writes to it and returns it."""
    COPIED = 2
    """The result is copied to it."""
    PLACE = 3
    """The first tensor is the `out` that is passed: an in-place form."""
    PLACED = 4
    """The first tensor is the `out` that is copied to: an in-place form."""


class Promotion(IntEnum):
    """Which operands are converted before NumPy promotes the rest (numbers as in native/python/array.hpp)."""

    NONE = 0
    MIXED = 1
    """Integers take the type of an inexact operand: int64 and float32 give float32, as in torch."""
    FLOATS = 2
    """And where all operands are integers, the default floating-point type."""


class Row:
    """An operation.

    Args:
        name: its name.
        compute: the implementation, which computes with arrays. Its first parameter is their array module, `xp`.
        result: how the result is returned.
        out: how `out` is used.
        module: name of the module that the row is in.
        doc: the docstring of its forms.
        fails: format, with the names of arguments, for messages of NumPy's errors: what was done to "a tensor of
            shape ...".
        aliases: other names.
    """

    __slots__ = (
        "aliases", "compute", "doc", "fails", "function", "gradient", "methods", "module", "name", "out", "properties",
        "result",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        compute: Callable[..., Any],
        result: Result,
        out: Out,
        module: str,
        doc: str,
        fails: str,
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.name, self.compute, self.result, self.out = name, compute, result, out
        self.module, self.doc, self.fails, self.aliases = module, doc, fails, aliases
        self.function: Callable[..., Any] | None = None
        """The function of the namespace; None: there is none."""
        self.methods: dict[str, Callable[..., Any]] = {}
        """Methods by name, including in-place methods and operators."""
        self.properties: dict[str, Callable[..., Any]] = {}
        """Properties by name."""
        self.gradient: Gradient | None = None
        """Gradient rule; None: the operation has no gradient."""

    @property
    def names(self) -> tuple[str, ...]:
        """Name and aliases."""
        return self.name, *self.aliases


ROWS: Final[dict[str, list[Row]]] = {}
"""The operations of each module that has been imported."""


class _Doing(Formatter):
    """What an operation was doing, with arrays by their shapes."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        is_array = getattr(value, "ndim", 0) and not format_spec
        return f"an array of shape {value.shape}" if is_array else super().format_field(value, format_spec)


class Form:
    """One callable of a row, with the parts of a call that are rarely needed.

    Args:
        row: the operation.
        name: name of the callable.
        qualname: the name in its module; of a method, `Tensor.` and its name.
        doc: its docstring.
        fails: as of the row.
        shown: the function that has the parameters of this form.
        out: how it uses `out`.
        rejects: words between its name and the type of a refused argument, in the message.
    """

    __slots__ = ("doc", "fails", "name", "out", "qualname", "rejects", "row", "shown")

    def __init__(
        self,
        row: Row,
        name: str,
        qualname: str,
        doc: str,
        fails: str,
        shown: Callable[..., Any],
        out: Out,
        rejects: str,
    ) -> None:
        self.row, self.name, self.qualname, self.doc = row, name, qualname, doc
        self.fails, self.shown, self.out, self.rejects = fails, shown, out, rejects

    @property
    def module(self) -> str:
        """Name of its module; a method is found in its class."""
        return "shmtensor" if self.qualname.startswith("Tensor.") else self.row.module

    @property
    def signature(self) -> inspect.Signature:
        """Parameters for callers: those of the implementation without `xp`, with tensors for arrays, and `out`."""
        return _shown_signature(self.row.name, self.row.module, self.shown, self.out)

    @property
    def keywords(self) -> dict[str, str]:
        """Names of the implementation's parameters by torch's names for them."""
        return _keywords_of(self.row.name, self.row.module, self.shown)

    @property
    def rule(self) -> Any:
        """The gradient rule, for calls of this form."""
        from .rules import rule_of

        is_function = inspect.isfunction(self.row.compute)  # and not a ufunc
        first = next(iter(_own_signature(self.row.compute, Out.NONE).parameters), "") if is_function else ""
        notes = annotations_of(self.shown)
        signature = _own_signature(self.shown, Out.NONE)
        names = {**other_names(signature.parameters), **self.keywords}
        return rule_of(
            self.row.name, self.row.gradient, signature, first, names,
            lambda name: notes.get(name) == "Arrays",
        )  # fmt: skip

    @property
    def takes_sequence(self) -> bool:
        """Whether the first argument is a list of tensors."""
        first = self.shown.__code__.co_varnames[takes_module(self.shown)]
        return annotations_of(self.shown).get(first) == "Arrays"

    def named_as_torch(self, operation: Callable[..., Any], wider: Callable[..., Any] | None) -> Callable[..., Any]:
        """A callable for calls of a form on ufuncs with some operand given by name.

        Args:
            operation: handles calls with no keyword except `out`.
            wider: handles calls with more parameters; None: there are none.
        """
        named = {*(self.shown.__kwdefaults__ or ())}
        if self.out not in (Out.PASSED, Out.COPIED):
            named -= {"out"}

        def call(*args: Any, **how: Any) -> Any:
            if wider is not None and len(args) == 2 and how.keys() <= named:  # add(x, y, alpha=2)
                return wider(*args, **how)
            args, how = self.own_arguments(args, how)
            return (operation if how.keys() <= {"out"} else wider or operation)(*args, **how)

        return call

    def own_arguments(self, args: tuple[Any, ...], how: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with the implementation's names in place of torch's. Raises TypeError: they do not match."""
        own = _own_signature(self.shown, self.out).parameters
        try:
            positional, values = own_arguments(own, self.keywords, args, how)
        except TypeError as problem:
            raise TypeError(f"{self.name}() {problem}") from None
        self.require_arguments(*positional, **values)
        return tuple(positional), values

    def reject(self, argument: Any) -> NoReturn:
        """Raise DTypeError for an argument that is neither a tensor nor another operand."""
        raise DTypeError(f"{self.name} {self.rejects} {type_name(argument)}; {tensor_advice(argument)}")

    def reject_sequence(self, argument: Any) -> NoReturn:
        """Raise InvalidArgument for an argument that is not a list of tensors, or is empty."""
        found = "no tensors" if isinstance(argument, SEQUENCES) else f"a {type_name(argument)}"
        raise InvalidArgument(f"{self.name} of {found}; give a list")

    def recover(
        self, error: Exception, compute: Callable[..., Any], args: tuple[Any, ...], how: dict[str, Any], out: Any
    ) -> Any:
        """Compute again if memory was lacking, else raise this package's error for NumPy's.

        Args:
            error: the exception that `compute(*args, **how)` raised.
            compute: the implementation.
            args: its positional arguments.
            how: its keyword arguments.
            out: the array for the result, or None.

        Returns:
            The result; NotImplemented if `error` is to be raised as it is.
        """
        if isinstance(error, ShmTensorError) or not isinstance(error, (*FAILURES, NotImplementedError)):
            return NotImplemented
        if _lacks_device(error, [*args, *how.values()]):
            raise NotSupported(
                f"{self.name} is not available for tensors on a GPU in this version ({error}); use x.cpu()"
            ) from error
        if not isinstance(error, FAILURES):
            return NotImplemented
        if isinstance(error, TypeError) and inspect.isfunction(compute) and _is_of_call(error, compute):
            return self._renamed(compute, args, how, out)
        array = (
            out if out is not None else next(_arrays_in([*args[takes_module(compute) :], *how.values()]), np.empty(()))
        )
        doing = self._doing(compute, args, how)
        if out is None and self.row.result is not Result.SAME:
            return again(error, doing, array, partial(compute, *args, **how))
        raise failed(error, doing, array) from error

    def _renamed(self, compute: Callable[..., Any], args: tuple[Any, ...], how: dict[str, Any], out: Any) -> Any:
        """Compute with the implementation's names for torch's and others. Raises TypeError: they do not match."""
        count = takes_module(compute)
        place = {"out": how.pop("out")} if self.out in (Out.PLACE, Out.PLACED) and "out" in how else {}
        by_position = len(args) - count
        positional, how = self.own_arguments(args[count:], how)
        for i, parameter in enumerate([*_own_signature(self.shown, self.out).parameters.values()][: len(positional)]):
            if i >= by_position and parameter.annotation == "Tensor" and positional[i] is None:
                self.reject(None)
        if not by_position and positional and self.takes_sequence:
            positional = (self._arrays_of(positional[0]), *positional[1:])
        args = (*args[:count], *positional)
        try:
            return compute(*args, **how, **place)
        except Exception as error:
            result = self.recover(error, compute, args, {**how, **place}, out)
            if result is NotImplemented:
                raise
            return result

    def _arrays_of(self, tensors: Any) -> list[Any]:
        """The arrays of a list of tensors that was given by name. Raises InvalidArgument, DTypeError."""
        if not isinstance(tensors, SEQUENCES) or not len(tensors):
            self.reject_sequence(tensors)
        return [array_of(one) if isinstance(one, Tensor) else self.reject(one) for one in tensors]

    def _doing(self, compute: Callable[..., Any], args: tuple[Any, ...], how: dict[str, Any]) -> str:
        values: dict[str, Any] = {"name": self.name}
        if takes_module(compute):
            bound = inspect.signature(compute).bind_partial(*args, **how)
            bound.apply_defaults()
            values.update(bound.arguments)
        if values.get("dim") is not None or "axis" not in values:
            values["axis"] = values.get("dim")
        doing: str = _Doing().vformat(self.fails, (), values)
        return doing

    def require_arguments(self, /, *args: Any, **how: Any) -> None:
        """Raise TypeError for arguments that the form does not take."""
        try:
            self.signature.bind(*args, **how)
        except TypeError as problem:
            raise TypeError(f"{self.name}() {problem}") from None

    def place(self, result: Any, x: Tensor) -> Tensor:
        """Make a tensor of an array that may be a view of the first tensor's array."""
        place: Any = x._located()
        shares = (
            np.may_share_memory(result, place[0])
            if isinstance(result, np.ndarray)
            else result.data.mem is place[0].data.mem  # on a GPU
        )
        return x._share(result, *place) if shares else wrap(result)

    def put(self, result: Any, out: Tensor) -> Tensor:
        """Copy the result to `out`. Raises InvalidArgument, DTypeError, LayoutError."""
        return given(result, out, self.name)

    def wrap(self, result: Any) -> Tensor:
        """Make a tensor of a scalar, or of an array with an element type of another package."""
        return wrap(result)

    def module_of(self, array: Any) -> Any:
        """Return the array module of an array that is not NumPy's."""
        return sys.modules[type(array).__module__.partition(".")[0]]


def methods_of(module: str) -> tuple[str, ...]:
    """Return the names of the methods of a module's rows, without in-place methods and operators."""
    return tuple(name for row in ROWS[module] for name in row.names if name in row.methods)


def all_rows() -> list[Row]:
    """Every operation. Imports the modules of all."""
    from pkgutil import iter_modules

    for package in ("_tensor", "linalg", "random", "special"):
        for module in iter_modules(load(package).__path__):
            load(f"{package}.{module.name}")
    return [row for rows in ROWS.values() for row in rows]


def _is_of_call(error: TypeError, compute: Callable[..., Any]) -> bool:
    """Whether the arguments did not match the parameters of an implementation."""
    trace = error.__traceback__
    return trace is None or (hasattr(compute, "__wrapped__") and trace.tb_next is None)


def _lacks_device(error: Exception, values: Any) -> bool:
    """Whether CuPy lacks what an implementation uses, or would have to copy to the host for it."""
    if all(isinstance(one, np.ndarray) for one in _arrays_in(values)):
        return False
    text = str(error)
    return (
        isinstance(error, NotImplementedError)
        or (isinstance(error, AttributeError) and ("cupy" in text or "ndarray" in text or "flagsobj" in text.lower()))
        or (isinstance(error, TypeError) and ("Implicit conversion" in text or "Unsupported type" in text))
    )


def _arrays_in(values: Any) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            yield value
        elif isinstance(value, SEQUENCES):
            yield from _arrays_in(value)


# -- parameters and results of an implementation -----------------------------------------------------------------------


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


_own_signature: Final = cache(signature_of)


@cache
def _shown_signature(name: str, module: str, shown: Callable[..., Any], out: Out) -> inspect.Signature:
    """The parameters of a form for callers, with torch's names."""
    return as_torch(_own_signature(shown, out), _keywords_of(name, module, shown))


@cache
def _keywords_of(name: str, module: str, shown: Callable[..., Any]) -> dict[str, str]:
    """Names of an implementation's parameters by torch's names for them."""
    code = shown.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    parameters = code.co_varnames[takes_module(shown) : count]
    has_first = code.co_argcount > takes_module(shown)
    return torch_names(name, module, parameters, annotations_of(shown).get(parameters[0], "Any") if has_first else "")


def _public(annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    text = re.sub(r"\bArrays\b", "Sequence[Tensor]", annotation)
    return re.sub(r"\bArray\b", "Tensor", re.sub(r"\bOperand\b", "Any", text))


def _parameters(compute: Any, keywords: dict[str, str]) -> dict[str, Any]:
    """Which arguments must be tensors, as `Operation` takes it; `keywords`: torch's names for them."""
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
    tensors = [one for one in every if notes.get(one, "").partition(" ")[0] == "Array" and one != "out"]
    named = (*tensors, *[torch for torch, own in keywords.items() if own in tensors])
    sequence = bool(positional) and notes.get(positional[0]) == "Arrays"
    return {**bits, "named": named or None, "module": module, "sequence": sequence}


def lifted(compute: Callable[..., Any]) -> Callable[..., Any]:
    """An implementation that treats a tensor without axes as one of one axis, as torch's operations on an axis do."""

    @wraps(compute)
    def lift(xp: Module, x: Any, *args: Any, **how: Any) -> Any:
        if x.ndim:
            return compute(xp, x, *args, **how)
        args = tuple([_with_axis(one) for one in args])
        result = compute(xp, _with_axis(x), *args, **{name: _with_axis(one) for name, one in how.items()})
        return tuple([one.reshape(()) for one in result]) if isinstance(result, tuple) else _without_axis(result)

    return lift


def _with_axis(value: Any) -> Any:
    return value.reshape(1) if isinstance(value, np.ndarray) and not value.ndim else value


def _without_axis(result: Any) -> Any:
    return result.reshape(()) if isinstance(result, np.ndarray) and result.shape == (1,) else result


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
    shown_by: Callable[..., Any] | None = None,
    **how: Any,
) -> Any:
    """Make a callable of a row.

    Args:
        row: the operation.
        name: name of the callable.
        method: it is only a method, and is pickled as one.
        doc: its docstring, if not the row's.
        fails: format for messages, if not the row's.
        rejects: words between its name and the type of a refused argument.
        shown: the function that has its parameters, if the implementation is a ufunc.
        shown_by: the implementation that has its parameters, if that is not the one that computes.
        **how: other arguments of `Operation`.
    """
    how = {"compute": row.compute, "result": row.result, "out": row.out, **how}
    if shown is None:
        shown = shown_by or how["compute"]
        how = {**_parameters(shown, _keywords_of(row.name, row.module, shown)), **how}
    else:
        count = shown.__code__.co_argcount
        how = {"least": count, "most": count, **how}
    qualname = f"Tensor.{name}" if method else name
    form = Form(row, name, qualname, doc or row.doc, fails or row.fails, shown, how["out"], rejects)
    if "most" not in how or how.get("symbol"):
        return Operation(form, **how)
    wider = how.pop("wider", None)
    plain = Operation(form, **how)
    return Operation(form, wider=form.named_as_torch(plain, wider), **how)


def register(row: Row) -> None:
    """Add a row, with its forms, to `ROWS`."""
    ROWS.setdefault(row.module, []).append(row)


def export(namespace: dict[str, Any]) -> list[str]:
    """End a module that has rows: install their methods and properties, and add aliases of functions to its namespace.

    Returns the names of the functions, for `__all__`.
    """
    names: list[str] = []
    for row in ROWS.get(namespace["__name__"], ()):
        for name, method in row.methods.items():
            setattr(Tensor, name, method)
        for name, value in row.properties.items():
            setattr(Tensor, name, property(value, doc=row.doc))
        if row.function is not None:
            namespace.update(dict.fromkeys(row.names, row.function))
            names += row.names
    return sorted(names)


Made = TypeVar("Made")
Register: TypeAlias = Callable[..., Callable[[Callable[..., Any]], Callable[..., Tensor]]]
"""Type of `operation` with some arguments given."""


@overload
def operation(
    *aliases: str,
    name: str = ...,
    results: type[Made],
    out: Out = ...,
    fails: str = ...,
    function: bool = ...,
    method: bool = ...,
    lifts: bool = ...,
    gradient: Gradient | None = ...,
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
    lifts: bool = ...,
    properties: tuple[str, ...] = ...,
    gradient: Gradient | None = ...,
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
    lifts: bool = False,
    properties: tuple[str, ...] = (),
    gradient: Gradient | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an implementation, which computes with arrays, as an operation. Returns its function.

    Args:
        *aliases: other names.
        name: the name, if not the implementation's.
        result: how the result is returned.
        results: the class of named results. They may be copied to `out`, as many tensors.
        out: COPIED if the result is copied to `out`, PASSED if the implementation takes it.
        fails: format for messages of NumPy's errors: what was being done.
        function: whether there is a function of the namespace.
        method: whether there is a method; an implementation, if the method takes other arguments than the function.
        in_place: whether there is an in-place method, with an underscore.
        lifts: a tensor without axes is computed as one of one axis.
        properties: names of properties of tensors.
        gradient: the gradient rule.
    """

    def decorate(compute: Callable[..., Any]) -> Callable[..., Any]:
        doc = compute.__doc__ or ""
        row = Row(name or compute.__name__, compute, result, out, compute.__module__, doc, fails, aliases)
        row.gradient = gradient
        computes: dict[str, Any] = {"compute": lifted(compute)} if lifts else {}
        made = make_form(row, row.name, method=not function, results=results, shown_by=compute, **computes)
        if results is not None and (function or method):
            made = _filling(made, compute)
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
                doc=f"`{row.name}` in place. Returns self. Raises as {row.name} does, and LayoutError.",
                out=Out.PLACE if out is Out.PASSED else Out.PLACED,
                shown_by=compute,
                **computes,
            )
            row.methods.update({f"{name}_": place for name in row.names})
        row.properties.update(dict.fromkeys(properties, made))
        register(row)
        return made  # type: ignore[no-any-return]

    return decorate


def _filling(made: Any, compute: Callable[..., Any]) -> Callable[..., Any]:
    """A form with several results, which are copied to the tensors of `out` if these are given."""

    @wraps(compute)
    def fill(*args: Any, out: Any = None, **how: Any) -> Any:
        return given_each(made(*args, **how), out, compute.__name__)

    def signature() -> inspect.Signature:
        found = as_torch(signature_of(compute, Out.COPIED), made.form.keywords)
        parameters = [
            one.replace(annotation="Sequence[Tensor] | None") if one.name == "out" else one
            for one in found.parameters.values()
        ]
        return found.replace(parameters=parameters)

    fill.__wrapped__ = Shown(compute, signature)  # type: ignore[assignment]
    return fill


def composed(
    *aliases: str, function: bool = True, method: bool | Callable[..., Any] = True
) -> Callable[[Compute], Compute]:
    """Register a function that calls other operations or creates tensors. Returns it.

    Its gradients and devices are those of the operations that it calls.

    Args:
        *aliases: other names.
        function: whether there is a function of the namespace.
        method: whether there is a method; another function, if the method takes other arguments.
    """

    def decorate(compute: Compute) -> Compute:
        name, module, doc = compute.__name__, compute.__module__, compute.__doc__ or ""
        row = Row(name, compute, Result.VALUE, Out.NONE, module, doc, "", aliases)
        if function:
            row.function = compute
        else:
            compute.__qualname__ = f"Tensor.{name}"
        if callable(method):
            method.__name__, method.__qualname__ = name, f"Tensor.{name}"
        if method:
            row.methods.update(dict.fromkeys(row.names, method if callable(method) else compute))
        register(row)
        return compute

    return decorate
