"""Hooks of a host program: into errors before they are raised, and into allocations that fail (TH's THGeneral).

TH tells a handler of each error and leaves it to the handler not to return. Here errors are exceptions, so a handler is
optional: it sees each error of ours, and where it raises one of its own, that one is raised instead. Argument errors
(InvalidArgument, IndexOutOfRange, DTypeError, LayoutError, MessageTooLarge) have handlers of their own, as in TH. A
handler of the thread comes before the default one, which is for all threads.

A handler is told when the error is made: before `raise`, when an error that another process sent arrives, and also of
the few errors that shmtensor handles itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from . import errors
from .errors import DTypeError, InvalidArgument, LayoutError, MessageTooLarge, ShmTensorError

ErrorHandler: TypeAlias = Callable[[ShmTensorError, Any], object]
"""Is called with the error and what was given as `data`. Its message is `str(error)`, its cause is its class."""
LowMemoryCallback: TypeAlias = Callable[[int], object]
"""Is called with the bytes that were refused."""

_ARGUMENT_ERRORS: Final = (InvalidArgument, DTypeError, LayoutError, MessageTooLarge)

__all__ = [
    "ErrorHandler",
    "LowMemoryCallback",
    "set_arg_error_handler",
    "set_default_arg_error_handler",
    "set_default_error_handler",
    "set_error_handler",
    "set_low_memory_callback",
]


class _Handlers:
    """(handler, data) of both kinds of errors."""

    other: tuple[ErrorHandler, Any] | None = None
    argument: tuple[ErrorHandler, Any] | None = None


class _OfThread(_Handlers, threading.local):
    busy = False
    """A hook is running in this thread: it is not called again for what happens in it."""


_default = _Handlers()
_thread = _OfThread()
_low_memory: LowMemoryCallback | None = None


def set_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """Have errors of this thread told to `handler(error, data)`, but for argument errors. Does not block.

    Args:
        handler: may raise an exception, which takes the error's place; what it returns does not matter. None: the
            default handler is told again.
        data: what the handler gets with each error.
    """
    _set(_thread, "other", handler, data)


def set_default_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """As `set_error_handler`, for all threads that have no handler of their own."""
    _set(_default, "other", handler, data)


def set_arg_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """As `set_error_handler`, for argument errors of this thread."""
    _set(_thread, "argument", handler, data)


def set_default_arg_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """As `set_error_handler`, for argument errors of all threads that have no handler of their own for them."""
    _set(_default, "argument", handler, data)


def _set(handlers: _Handlers, kind: str, handler: ErrorHandler | None, data: Any) -> None:
    if handler is not None and not callable(handler):
        raise DTypeError(f"an error handler is a function of (error, data) or None, not {handler!r}")
    setattr(handlers, kind, None if handler is None else (handler, data))
    errors.observer = _tell


def _tell(error: ShmTensorError) -> None:
    kind = "argument" if isinstance(error, _ARGUMENT_ERRORS) else "other"
    found: tuple[ErrorHandler, Any] | None = getattr(_thread, kind) or getattr(_default, kind)
    if found is not None and not _thread.busy:
        handler, data = found
        _thread.busy = True
        try:
            handler(error, data)
        finally:
            _thread.busy = False


def set_low_memory_callback(callback: LowMemoryCallback | None) -> None:
    """Have `callback(nbytes)` called when memory is refused, on the heap or shared; then it is tried once more.

    One for the process. It runs in the thread that allocates, and frees what it can: drops tensors, empties caches.
    What it raises comes out of the allocation. Does not block.

    Args:
        callback: a function, or None for no longer any.
    """
    global _low_memory
    if callback is not None and not callable(callback):
        raise DTypeError(f"a low-memory callback is a function of the number of bytes or None, not {callback!r}")
    _low_memory = callback


def relieve(nbytes: int) -> bool:
    """Call the low-memory callback for an allocation of `nbytes` that failed; whether there is one to call."""
    callback = _low_memory
    if callback is None or _thread.busy:
        return False
    _thread.busy = True
    try:
        callback(nbytes)
    finally:
        _thread.busy = False
    return True
