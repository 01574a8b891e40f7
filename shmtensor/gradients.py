"""torch's modes of recording gradients. This version records none, so that they only say what was asked.

A program that says `with torch.no_grad():` runs as it is. Each thread has a mode of its own. Nothing in this module
blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class _State(threading.local):
    enabled = True
    inference = False


_state = _State()


class _Mode:
    """A mode, as a context and as a decorator."""

    __slots__ = ("_before", "_wanted")

    def __init__(self, enabled: bool, inference: bool) -> None:
        self._wanted = (enabled, inference)
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> Self:
        self._before.append((_state.enabled, _state.inference))
        _state.enabled, _state.inference = self._wanted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _state.enabled, _state.inference = self._before.pop()

    def __call__(self, function: Function) -> Function:
        @wraps(function)
        def within(*args: Any, **how: Any) -> Any:
            with _Mode(*self._wanted):
                return function(*args, **how)

        return within  # type: ignore[return-value]


def no_grad(function: Callable[..., Any] | None = None) -> Any:
    """The mode without gradients, as a context and as a decorator. Nothing changes, for none are recorded.

    Args:
        function: that is to run in this mode.
    """
    mode = _Mode(False, _state.inference)
    return mode if function is None else mode(function)


def enable_grad(function: Callable[..., Any] | None = None) -> Any:
    """The mode with gradients, as no_grad is the one without. None are recorded in it either."""
    mode = _Mode(True, _state.inference)
    return mode if function is None else mode(function)


def inference_mode(mode: Any = True) -> Any:
    """The mode for inference, in the same forms as no_grad; `mode=False` ends it inside."""
    if callable(mode):
        return _Mode(False, True)(mode)
    return _Mode(not mode, bool(mode))


class set_grad_enabled(_Mode):  # noqa: N801  # torch's name
    """Change the mode of this thread: at once, and as a context back at its end.

    Args:
        mode: whether gradients would be recorded.
    """

    __slots__ = ()

    def __init__(self, mode: bool) -> None:
        super().__init__(bool(mode), _state.inference)
        self._before.append((_state.enabled, _state.inference))
        _state.enabled = bool(mode)

    def __enter__(self) -> Self:
        _state.enabled = self._wanted[0]
        return self


def is_grad_enabled() -> bool:
    """Whether the mode of this thread is one with gradients."""
    return _state.enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is in `inference_mode`."""
    return _state.inference
