"""Whether this thread records gradients. Each thread has a mode of its own. Nothing in this module blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from .._native import grad_modes, set_grad_modes

Function = TypeVar("Function", bound=Callable[..., Any])


class _Mode:
    """A mode, as a context manager and as a decorator."""

    __slots__ = ("_before", "_wanted")

    def __init__(self, enabled: bool | None, inference: bool | None) -> None:
        self._wanted = (enabled, inference)  # None: unchanged
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> Self:
        before = grad_modes()
        self._before.append(before)
        set_grad_modes(*[old if new is None else new for old, new in zip(before, self._wanted, strict=True)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        set_grad_modes(*self._before.pop())

    def __call__(self, function: Function) -> Function:
        wanted = self._wanted
        if inspect.isgeneratorfunction(function):
            return _steps_within(wanted, function)  # type: ignore[return-value]

        @wraps(function)
        def within(*args: Any, **how: Any) -> Any:
            with _Mode(*wanted):
                return function(*args, **how)

        return within  # type: ignore[return-value]


def _steps_within(wanted: tuple[bool | None, bool | None], function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose steps run in a mode that does not affect the caller."""

    @wraps(function)
    def within(*args: Any, **how: Any) -> Generator[Any, Any, Any]:
        steps = function(*args, **how)
        resume, value = steps.send, None  # what continues it, and with what
        while True:
            try:
                with _Mode(*wanted):
                    found = resume(value)
            except StopIteration as end:
                return end.value
            try:
                resume, value = steps.send, (yield found)
            except GeneratorExit:
                with _Mode(*wanted):
                    steps.close()
                raise
            except BaseException as error:
                resume, value = steps.throw, error

    return within


@overload
def no_grad(function: Function) -> Function: ...
@overload
def no_grad(function: None = None) -> _Mode: ...
def no_grad(function: Callable[..., Any] | None = None) -> Any:
    """Record no gradients: as a context manager `no_grad()`, or as a decorator, with or without parentheses.

    Args:
        function: the function to decorate.
    """
    mode = _Mode(False, None)
    return mode if function is None else mode(function)


@overload
def enable_grad(function: Function) -> Function: ...
@overload
def enable_grad(function: None = None) -> _Mode: ...
def enable_grad(function: Callable[..., Any] | None = None) -> Any:
    """Record gradients inside of no_grad; used in the same forms."""
    mode = _Mode(True, None)
    return mode if function is None else mode(function)


@overload
def inference_mode(mode: Function) -> Function: ...
@overload
def inference_mode(mode: bool = True) -> _Mode: ...
def inference_mode(mode: Any = True) -> Any:
    """Record no gradients; used in the same forms as no_grad. Inside, `mode=False` switches it off."""
    if callable(mode):
        return _Mode(False, True)(mode)
    return _Mode(not mode, bool(mode))


class set_grad_enabled(_Mode):  # noqa: N801  # torch's name
    """Change the mode of this thread, at once. As a context manager, it restores the previous mode at its end.

    Args:
        mode: whether gradients are recorded.
    """

    __slots__ = ()

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode), None)
        before = grad_modes()
        self._before.append(before)
        set_grad_modes(bool(mode), before[1])

    def __enter__(self) -> Self:
        set_grad_modes(bool(self._wanted[0]), grad_modes()[1])
        return self

    def __call__(self, function: Function) -> Function:  # noqa: D102  # as of _Mode
        set_grad_modes(*self._before.pop())  # it decorates
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """Whether this thread records gradients."""
    return grad_modes()[0]


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in `inference_mode`."""
    return grad_modes()[1]
