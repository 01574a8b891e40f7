"""Hooks for a host program: error handlers, and a callback for failed allocations (TH's THGeneral).

In TH an error handler must not return. Here errors are exceptions and handlers are optional: a handler is called with
each exception of shmtensor, and an exception that it raises replaces that one. As in TH, there are separate handlers
for argument errors (InvalidArgument, IndexOutOfRange, DTypeError, LayoutError, MessageTooLarge). A thread's handler has
precedence over the default handler of all threads.

A handler is called when the exception is created: before `raise`, when an exception from another process is received,
and also for the few exceptions that shmtensor handles itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from . import errors
from .errors import DTypeError, InvalidArgument, LayoutError, MessageTooLarge, ShmTensorError

ErrorHandler: TypeAlias = Callable[[ShmTensorError, Any], object]
"""Called with the error and `data`. `str(error)` is the message; the class of the error tells the cause."""
LowMemoryCallback: TypeAlias = Callable[[int], object]
"""Called with the number of bytes that were refused."""

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
    """(handler, data) for both kinds of errors."""

    other: tuple[ErrorHandler, Any] | None = None
    argument: tuple[ErrorHandler, Any] | None = None


class _OfThread(_Handlers, threading.local):
    busy = False
    """Whether a hook is running in this thread; hooks are not called recursively."""


_default = _Handlers()
_thread = _OfThread()
_low_memory: LowMemoryCallback | None = None


def set_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """Set the handler of this thread for errors except argument errors. Does not block.

    Args:
        handler: called as `handler(error, data)`. An exception that it raises replaces the error; its result is
            ignored. None: use the default handler.
        data: passed to the handler.
    """
    _set(_thread, "other", handler, data)


def set_default_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """Set the default handler for errors except argument errors, as `set_error_handler`."""
    _set(_default, "other", handler, data)


def set_arg_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """Set the handler of this thread for argument errors, as `set_error_handler`."""
    _set(_thread, "argument", handler, data)


def set_default_arg_error_handler(handler: ErrorHandler | None, data: Any = None) -> None:
    """Set the default handler for argument errors, as `set_error_handler`."""
    _set(_default, "argument", handler, data)


def _set(handlers: _Handlers, kind: str, handler: ErrorHandler | None, data: Any) -> None:
    if handler is not None and not callable(handler):
        raise DTypeError(f"an error handler must be a function of (error, data) or None, not {handler!r}")
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
    """Set the callback for failed allocations, private or shared; after it the allocation is tried again.

    There is one callback for the process. It runs in the allocating thread and should free memory: delete tensors,
    empty caches. Its exceptions are raised by the allocation. Does not block.

    Args:
        callback: called as `callback(nbytes)`; None: no callback.
    """
    global _low_memory
    if callback is not None and not callable(callback):
        raise DTypeError(f"a low-memory callback must be a function of the number of bytes or None, not {callback!r}")
    _low_memory = callback


def relieve(nbytes: int) -> bool:
    """Call the low-memory callback for a failed allocation of `nbytes`. Returns whether there is a callback."""
    callback = _low_memory
    if callback is None or _thread.busy:
        return False
    _thread.busy = True
    try:
        callback(nbytes)
    finally:
        _thread.busy = False
    return True
