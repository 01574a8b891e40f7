"""Processes that can receive shared tensors from their parent, and a basic context for each start method.

The contexts of `shmtensor.multiprocessing` add factories of queues, locks, pools and so on.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.context as _context
import signal
from collections.abc import Callable
from typing import Any, ClassVar, Final

from .._loading import integrate
from ..errors import InvalidArgument, ShmTensorError, type_name
from ..manager import client
from . import reductions

_SIGNALS: Final = signal.valid_signals()


def _launch(start: Callable[[Any], Any], process: Any) -> Any:
    """Start `process` by `start(process)`, then close the parent's copies of its embryos' sockets."""
    # The parent becomes a client before its children. Otherwise a message that a child sends before it ends could be
    # lost when the manager's last client ends. A program that shares nothing must not fail without a manager.
    with contextlib.suppress(ShmTensorError):
        client.default()
    popen = start(process)
    for embryo in reductions.embryos_of(popen).values():
        embryo.close()
    return popen


def start_pickled(start: Callable[[Any], Any], process: Any) -> Any:
    """Start `process` by a method that pickles its arguments."""
    integrate()
    with reductions.starting():
        return _launch(start, process)


def _fork(process: Any) -> Any:
    """Start `process` as the standard class does, so that no signal to the child is lost.

    Where the parent has a handler, the child's interpreter drops signals that come before it has set up its own state:
    a `terminate()` right after the start would have no effect. They stay pending until then.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def after_fork() -> None:
        del process._after_fork
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        process._after_fork()

    process._after_fork = after_fork
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the handler of an earlier signal may raise here
        return _context.ForkProcess._Popen(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # first: each of these calls may raise in this way
        del process._after_fork


class ForkProcess(_context.ForkProcess):
    """A process started by fork. It holds every block that its parent holds."""

    __module__ = "shmtensor.multiprocessing"  # in pickles, so that a child that loads one imports that module

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _launch(_fork, process_obj)


class SpawnProcess(_context.SpawnProcess):
    """A process started in a new interpreter. It holds the blocks in its arguments."""

    __module__ = ForkProcess.__module__

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return start_pickled(_context.SpawnProcess._Popen, process_obj)


class ForkServerProcess(_context.ForkServerProcess):
    """A process forked by the fork server. It holds the blocks in its arguments."""

    __module__ = ForkProcess.__module__

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return start_pickled(_context.ForkServerProcess._Popen, process_obj)


class Process(_context.Process):
    """A process started by the default method."""

    __module__ = ForkProcess.__module__
    _start_method = None

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return context_of().Process._Popen(process_obj)


class ForkContext(_context.ForkContext):
    """The standard fork context, starting this package's processes."""

    Process: ClassVar[type[ForkProcess]] = ForkProcess


class SpawnContext(_context.SpawnContext):
    """The standard spawn context, starting this package's processes."""

    Process: ClassVar[type[SpawnProcess]] = SpawnProcess


class ForkServerContext(_context.ForkServerContext):
    """The standard forkserver context, starting this package's processes."""

    Process: ClassVar[type[ForkServerProcess]] = ForkServerProcess


_CONTEXTS: Final[dict[str, Any]] = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


def context_of(method: str | None = None) -> Any:
    """Return the basic context of a start method; None: of the default method, set here or in the standard module."""
    found = _CONTEXTS[multiprocessing.get_start_method() if method is None else method]
    found._check_available()
    return found


def context_from(name: str, given: Any) -> Any:
    """Return the basic context of an argument: a start method, a context that has one, or None for the default method.

    Args:
        name: of the argument, for the message.
        given: its value.

    Raises:
        InvalidArgument: `given` is none of these.
    """
    if given is None:
        return context_of()
    method = given if isinstance(given, str) else getattr(given, "get_start_method", lambda: None)()
    if method not in _CONTEXTS:
        what = repr(given) if isinstance(given, str) else f"an object of {type_name(given)}"
        raise InvalidArgument(f"{name} must be a start method ({', '.join(_CONTEXTS)}) or a context, not {what}")
    return context_of(method)
