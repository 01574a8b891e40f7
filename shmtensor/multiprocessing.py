"""The standard multiprocessing, with tensors crossing as handles: `import shmtensor.multiprocessing as mp`.

Everything that `multiprocessing` exports is here under its own name, submodules included (`mp.pool`, `mp.connection`).
The contexts are this module's. The default start method is the program's: to choose it here or there is the same.

Sending a tensor shares it: one that lies on the heap is moved into shared memory first (`share_memory_()`), and the
receiver's tensor is the same memory. The sender may drop it, or exit, as soon as the message is written.
`share_memory_(readonly=True)` and `share_memory_(copy_on_write=True)` leave receivers less: docs/sharing.md.
Only what a forked process inherits, its arguments included, is not sent: as in torch, share what it is to write to.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing as _standard
import multiprocessing.context as _context
from collections.abc import Callable, Iterable
from typing import Any

from . import broadcast as _broadcast
from . import connection as _connection
from . import pool as _pool
from . import queues as _queues
from . import reductions as _reductions
from . import synchronize as _synchronize
from .errors import ShmTensorError as _ShmTensorError
from .manager import client as _client
from .spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
    start_processes,
)


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_client.STRATEGIES)


def get_sharing_strategy() -> str:
    """How this process's new segments are made (`set_sharing_strategy`)."""
    return _client.strategy()


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how new segments of this process are made; those that exist stay as they are. Does not block.

    Args:
        new_strategy: "file_descriptor" (sealed memory files without a name, the default) or "file_system" (POSIX
            shared-memory objects, which other programs can open by name and which count against /dev/shm).

    Raises:
        InvalidArgument: another name.
    """
    _client.set_strategy(new_strategy)


# --------------------------------------------------------------------------------------------------- starting processes


def _launch(process_class: Any, process: Any) -> Any:
    """Start `process` as the standard class does; then the sockets of its embryos are the child's alone."""
    # A client before its children are: else what a child sends before it ends could be lost with the last client of its
    # manager. A program that never shares a tensor must not fail for want of one.
    with contextlib.suppress(_ShmTensorError):
        _client.default()
    popen = process_class._Popen(process)
    for embryo in _reductions.embryos_of(popen).values():
        embryo.close()
    return popen


class ForkProcess(_context.ForkProcess):
    """A process started by fork: it holds every block that its parent holds."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _launch(_context.ForkProcess, process_obj)


class SpawnProcess(_context.SpawnProcess):
    """A process started afresh: it holds the blocks that its arguments name."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _launch(_context.SpawnProcess, process_obj)


class ForkServerProcess(_context.ForkServerProcess):
    """A process forked by the fork server: it holds the blocks that its arguments name."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _launch(_context.ForkServerProcess, process_obj)


class Process(_context.Process):
    """A process started by the default method."""

    _start_method = None

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _default_context.get_context().Process._Popen(process_obj)


class _Objects(_context.BaseContext):
    """What contexts make of this package's own: the standard interface, in shared memory."""

    def Queue(self, maxsize: int = 0, *, maxbytes: int = 0, name: str | None = None, **how: Any) -> _queues.Queue:  # type: ignore[override]
        """See shmtensor.queues.Queue; `how`: create, timeout."""
        return _queues.Queue(maxsize, ctx=self, maxbytes=maxbytes, name=name, **how)

    def JoinableQueue(  # type: ignore[override]
        self, maxsize: int = 0, *, maxbytes: int = 0, name: str | None = None, **how: Any
    ) -> _queues.JoinableQueue:
        """See shmtensor.queues.JoinableQueue; `how`: create, timeout."""
        return _queues.JoinableQueue(maxsize, ctx=self, maxbytes=maxbytes, name=name, **how)

    def SimpleQueue(self, *, name: str | None = None, **how: Any) -> _queues.SimpleQueue:  # type: ignore[override]
        """See shmtensor.queues.SimpleQueue; `how`: create, timeout."""
        return _queues.SimpleQueue(ctx=self, name=name, **how)

    def Lock(self, *, name: str | None = None, **how: Any) -> _synchronize.Lock:  # type: ignore[override]
        """See shmtensor.synchronize.Lock; `how`: create, timeout."""
        return _synchronize.Lock(name=name, **how)

    def RLock(self, *, name: str | None = None, **how: Any) -> _synchronize.RLock:  # type: ignore[override]
        """See shmtensor.synchronize.RLock; `how`: create, timeout."""
        return _synchronize.RLock(name=name, **how)

    def Semaphore(  # type: ignore[override]
        self, value: int | None = None, *, name: str | None = None, **how: Any
    ) -> _synchronize.Semaphore:
        """See shmtensor.synchronize.Semaphore; `how`: create, timeout."""
        return _synchronize.Semaphore(value, name=name, **how)

    def BoundedSemaphore(  # type: ignore[override]
        self, value: int | None = None, *, name: str | None = None, **how: Any
    ) -> _synchronize.BoundedSemaphore:
        """See shmtensor.synchronize.BoundedSemaphore; `how`: create, timeout."""
        return _synchronize.BoundedSemaphore(value, name=name, **how)

    def Condition(self, lock: Any = None, *, name: str | None = None, **how: Any) -> _synchronize.Condition:  # type: ignore[override]
        """See shmtensor.synchronize.Condition; `how`: create, timeout."""
        return _synchronize.Condition(lock, name=name, **how)

    def Event(self, *, name: str | None = None, **how: Any) -> _synchronize.Event:  # type: ignore[override]
        """See shmtensor.synchronize.Event; `how`: create, timeout."""
        return _synchronize.Event(name=name, **how)

    def Barrier(self, parties: int, action: Any = None, timeout: float | None = None) -> _synchronize.Barrier:  # type: ignore[override]
        """See shmtensor.synchronize.Barrier."""
        return _synchronize.Barrier(parties, action, timeout)

    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> _pool.Pool:
        """See shmtensor.pool.Pool."""
        return _pool.Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context())

    def Pipe(self, duplex: bool = True) -> tuple[_connection.Connection, _connection.Connection]:
        """See shmtensor.connection.Pipe."""
        return _connection.Pipe(duplex)

    def Broadcast(
        self, maxsize: int = 0, *, policy: str | None = None, maxbytes: int = 0, name: str | None = None, **how: Any
    ) -> _broadcast.Broadcast:
        """See shmtensor.broadcast.Broadcast; `how`: create, timeout."""
        return _broadcast.Broadcast(maxsize, policy=policy, maxbytes=maxbytes, name=name, ctx=self, **how)


class ForkContext(_Objects, _context.ForkContext):
    """The standard fork context, starting this module's processes."""

    Process = ForkProcess


class SpawnContext(_Objects, _context.SpawnContext):
    """The standard spawn context, starting this module's processes."""

    Process = SpawnProcess


class ForkServerContext(_Objects, _context.ForkServerContext):
    """The standard forkserver context, starting this module's processes."""

    Process = ForkServerProcess


_contexts: dict[str, Any] = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


class DefaultContext(_Objects, _context.DefaultContext):
    """What this module's functions belong to. Its method is the standard module's: what comes from the standard
    submodules (`from multiprocessing.sharedctypes import Value`) is to fit to our processes, and a library that uses
    the standard module to the choice that the program makes here."""

    Process = Process

    def get_context(self, method: str | None = None) -> Any:
        """The context of a start method, or the one in use.

        Raises:
            ValueError: there is no such method here.
        """
        if method is None:
            method = self.get_start_method()
        context = _contexts.get(method)
        if context is None:
            raise ValueError(f"cannot find context for {method!r}; there are {', '.join(_contexts)}")
        context._check_available()
        return context

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Choose the default start method of this program; None with `force` takes the choice back. Does not block.

        Raises:
            RuntimeError: it has been chosen or used already, and `force` is False.
            ValueError: there is no such method here.
        """
        _standard.set_start_method(method, force)

    def get_start_method(self, allow_none: bool = False) -> Any:
        """The default start method's name; None with `allow_none` when it has not been chosen yet. Does not block."""
        return _standard.get_start_method(allow_none)


_default_context = DefaultContext(_contexts[_standard.get_all_start_methods()[0]])

_exported = [name for name in dir(_default_context) if not name.startswith("_")]
globals().update((name, getattr(_default_context, name)) for name in _exported)
SUBDEBUG = 5
SUBWARNING = 25

__all__ = [
    *_exported,
    "DefaultContext",
    "ForkContext",
    "ForkProcess",
    "ForkServerContext",
    "ForkServerProcess",
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "SpawnProcess",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


def __getattr__(name: str) -> Any:
    """The standard package's submodules, and what else of its names is not ours."""
    if hasattr(_standard, name):
        return getattr(_standard, name)
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"multiprocessing.{name}")
        except ModuleNotFoundError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reductions.register()
