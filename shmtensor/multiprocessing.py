"""The standard multiprocessing module, with tensors sent as handles: `import shmtensor.multiprocessing as mp`.

All names of `multiprocessing` are here, including submodules (`mp.pool`, `mp.connection`). The contexts are this
module's. The default start method is that of the program: it can be set here or in the standard module.

Sending a tensor shares it: a tensor in private memory is moved into shared memory first (`share_memory_()`), and the
receiver's tensor is the same memory. The sender may drop the tensor, or exit, once the message is written. (If the
sender and the manager are both killed before another process has mapped that memory, receiving raises SegmentLost.)
`share_memory_(readonly=True)` and `share_memory_(copy_on_write=True)` restrict receivers: see docs/sharing.md.
A forked process inherits its arguments, so they are not sent: as in torch, share tensors before the fork if the child
is to write to them.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing as _standard
import multiprocessing.context as _context
import re
from collections.abc import Callable, Iterable
from multiprocessing import reduction as reducer
from multiprocessing.context import AuthenticationError, BufferTooShort, ProcessError, TimeoutError
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, overload

from .ipc import broadcast as _broadcast
from .ipc import connection as _connection
from .ipc import pool as _pool
from .ipc import processes as _processes
from .ipc import queues as _queues
from .ipc import synchronize as _synchronize
from .ipc.processes import ForkProcess, ForkServerProcess, Process, SpawnProcess
from .ipc.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
    start_processes,
)
from .manager import client as _client


def get_all_sharing_strategies() -> set[str]:
    """Return the arguments that `set_sharing_strategy` accepts."""
    return set(_client.STRATEGIES)


def get_sharing_strategy() -> str:
    """Return the strategy for new segments of this process (`set_sharing_strategy`)."""
    return _client.strategy()


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose the strategy for new segments of this process. Existing segments are not changed. Does not block.

    Args:
        new_strategy: "file_descriptor" (sealed memory files without a name, the default) or "file_system" (POSIX
            shared-memory objects, which other programs can open by name and which count against /dev/shm).

    Raises:
        InvalidArgument: an unknown strategy.
    """
    _client.set_strategy(new_strategy)


_Factory = TypeVar("_Factory", bound=Callable[..., Any])


def _shown_as(made: Callable[..., Any]) -> Callable[[_Factory], _Factory]:
    """Give a factory the documentation of the class that it instantiates, or of the function that it calls."""

    def decorate(factory: _Factory) -> _Factory:
        parts = [made.__doc__, made.__init__.__doc__ if isinstance(made, type) else None]  # type: ignore[misc]
        text = "\n\n".join(inspect.cleandoc(part) for part in parts if part)
        factory.__doc__ = re.sub(r"^ +(ctx|context): .*\n", "", text, flags=re.MULTILINE)  # set by the factory
        return factory

    return decorate


class _Objects(_context.BaseContext):
    """The factories of contexts: queues, locks and pools with the standard interface, in shared memory."""

    @_shown_as(_queues.Queue)
    def Queue(  # type: ignore[override]
        self,
        maxsize: int = 0,
        *,
        maxbytes: int = 0,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> _queues.Queue:
        return _queues.Queue(maxsize, ctx=self, maxbytes=maxbytes, name=name, create=create, timeout=timeout)

    @_shown_as(_queues.JoinableQueue)
    def JoinableQueue(  # type: ignore[override]
        self,
        maxsize: int = 0,
        *,
        maxbytes: int = 0,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> _queues.JoinableQueue:
        return _queues.JoinableQueue(maxsize, ctx=self, maxbytes=maxbytes, name=name, create=create, timeout=timeout)

    @_shown_as(_queues.SimpleQueue)
    def SimpleQueue(  # type: ignore[override]
        self, *, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> _queues.SimpleQueue:
        return _queues.SimpleQueue(ctx=self, name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.Lock)
    def Lock(  # type: ignore[override]
        self, *, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> _synchronize.Lock:
        return _synchronize.Lock(name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.RLock)
    def RLock(  # type: ignore[override]
        self, *, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> _synchronize.RLock:
        return _synchronize.RLock(name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.Semaphore)
    def Semaphore(  # type: ignore[override]
        self,
        value: int | None = None,
        *,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> _synchronize.Semaphore:
        return _synchronize.Semaphore(value, name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.BoundedSemaphore)
    def BoundedSemaphore(  # type: ignore[override]
        self,
        value: int | None = None,
        *,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> _synchronize.BoundedSemaphore:
        return _synchronize.BoundedSemaphore(value, name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.Condition)
    def Condition(  # type: ignore[override]
        self, lock: Any = None, *, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> _synchronize.Condition:
        return _synchronize.Condition(lock, name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.Event)
    def Event(  # type: ignore[override]
        self, *, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> _synchronize.Event:
        return _synchronize.Event(name=name, create=create, timeout=timeout)

    @_shown_as(_synchronize.Barrier)
    def Barrier(self, parties: int, action: Any = None, timeout: float | None = None) -> _synchronize.Barrier:  # type: ignore[override]
        return _synchronize.Barrier(parties, action, timeout)

    @_shown_as(_pool.Pool)
    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> _pool.Pool:
        return _pool.Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context())

    @_shown_as(_connection.Pipe)
    def Pipe(self, duplex: bool = True) -> tuple[_connection.Connection, _connection.Connection]:
        return _connection.Pipe(duplex)

    @_shown_as(_broadcast.Broadcast)
    def Broadcast(
        self,
        maxsize: int = 0,
        *,
        policy: str | None = None,
        maxbytes: int = 0,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> _broadcast.Broadcast:
        return _broadcast.Broadcast(
            maxsize, policy=policy, maxbytes=maxbytes, name=name, create=create, timeout=timeout, ctx=self
        )

    @overload  # type: ignore[override]
    def get_context(self, method: Literal["fork"]) -> ForkContext: ...
    @overload
    def get_context(self, method: Literal["spawn"]) -> SpawnContext: ...
    @overload
    def get_context(self, method: Literal["forkserver"]) -> ForkServerContext: ...
    @overload
    def get_context(self, method: str | None = None) -> ForkContext | SpawnContext | ForkServerContext: ...
    def get_context(self, method: str | None = None) -> Any:
        """Return the context of a start method, or the one in use.

        Raises:
            ValueError: the method is not available on this system.
        """
        if method is None:
            method = self.get_start_method()
        context = _contexts.get(method)
        if context is None:
            raise ValueError(f"cannot find context for {method!r}; choose one of {', '.join(_contexts)}")
        context._check_available()
        return context


class ForkContext(_Objects, _processes.ForkContext):
    """The standard fork context, starting this module's processes."""


class SpawnContext(_Objects, _processes.SpawnContext):
    """The standard spawn context, starting this module's processes."""


class ForkServerContext(_Objects, _processes.ForkServerContext):
    """The standard forkserver context, starting this module's processes."""


_contexts: dict[str, Any] = {
    "fork": ForkContext(),
    "spawn": SpawnContext(),
    "forkserver": ForkServerContext(),
}


class DefaultContext(_Objects, _context.DefaultContext):
    """The context whose methods are this module's functions.

    It shares the start method with the standard module, so that objects of the standard submodules
    (`multiprocessing.sharedctypes.Value`) work with its processes, and libraries that use the standard module follow
    the program's choice.
    """

    Process: ClassVar[type[Process]] = Process

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Set the default start method of this program; None with `force` resets it. Does not block.

        Raises:
            RuntimeError: it has been set or used already, and `force` is False.
            ValueError: the method is not available on this system.
        """
        _standard.set_start_method(method, force)

    @overload  # type: ignore[override]
    def get_start_method(self, allow_none: Literal[False] = False) -> str: ...
    @overload
    def get_start_method(self, allow_none: bool) -> str | None: ...
    def get_start_method(self, allow_none: bool = False) -> str | None:
        """Return the default start method; None with `allow_none` if it is not set yet. Does not block."""
        return _standard.get_start_method(allow_none)


_default_context = DefaultContext(_contexts[_standard.get_all_start_methods()[0]])

SUBDEBUG = 5
SUBWARNING = 25
# The names that the standard module takes from its default context.
Array: Final = _default_context.Array
Barrier: Final = _default_context.Barrier
BoundedSemaphore: Final = _default_context.BoundedSemaphore
Condition: Final = _default_context.Condition
Event: Final = _default_context.Event
Lock: Final = _default_context.Lock
Manager: Final = _default_context.Manager
Pipe: Final = _default_context.Pipe
Pool: Final = _default_context.Pool
RLock: Final = _default_context.RLock
RawArray: Final = _default_context.RawArray
RawValue: Final = _default_context.RawValue
Semaphore: Final = _default_context.Semaphore
Value: Final = _default_context.Value
active_children: Final = _default_context.active_children
allow_connection_pickling: Final = _default_context.allow_connection_pickling
cpu_count: Final = _default_context.cpu_count
current_process: Final = _default_context.current_process
freeze_support: Final = _default_context.freeze_support
get_all_start_methods: Final = _default_context.get_all_start_methods
get_context: Final = _default_context.get_context
get_logger: Final = _default_context.get_logger
get_start_method: Final = _default_context.get_start_method
log_to_stderr: Final = _default_context.log_to_stderr
parent_process: Final = _default_context.parent_process
set_executable: Final = _default_context.set_executable
set_forkserver_preload: Final = _default_context.set_forkserver_preload
set_start_method: Final = _default_context.set_start_method


def _standard_name(name: str) -> Any:
    """Return a submodule of the standard package, or another of its names."""
    if hasattr(_standard, name):
        return getattr(_standard, name)
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"multiprocessing.{name}")
        except ModuleNotFoundError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if TYPE_CHECKING:
    # As in the standard module's stub these are classes, so that `queue: mp.Queue[int]` is valid.
    from multiprocessing import connection as connection
    from multiprocessing import context as context
    from multiprocessing import dummy as dummy
    from multiprocessing import forkserver as forkserver
    from multiprocessing import heap as heap
    from multiprocessing import managers as managers
    from multiprocessing import pool as pool
    from multiprocessing import process as process
    from multiprocessing import queues as queues
    from multiprocessing import reduction as reduction
    from multiprocessing import resource_sharer as resource_sharer
    from multiprocessing import resource_tracker as resource_tracker
    from multiprocessing import shared_memory as shared_memory
    from multiprocessing import sharedctypes as sharedctypes
    from multiprocessing import synchronize as synchronize
    from multiprocessing import util as util

    from .ipc.broadcast import Broadcast as Broadcast
    from .ipc.queues import JoinableQueue as JoinableQueue
    from .ipc.queues import Queue as Queue
    from .ipc.queues import SimpleQueue as SimpleQueue
else:
    Broadcast = _default_context.Broadcast
    JoinableQueue = _default_context.JoinableQueue
    Queue = _default_context.Queue
    SimpleQueue = _default_context.SimpleQueue
    __getattr__ = _standard_name  # hidden from type checkers, which would accept any name
    del TYPE_CHECKING  # not an exported name

__all__ = [
    "Array",
    "AuthenticationError",
    "Barrier",
    "BoundedSemaphore",
    "Broadcast",
    "BufferTooShort",
    "Condition",
    "DefaultContext",
    "Event",
    "ForkContext",
    "ForkProcess",
    "ForkServerContext",
    "ForkServerProcess",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "ProcessContext",
    "ProcessError",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "SimpleQueue",
    "SpawnContext",
    "SpawnProcess",
    "TimeoutError",
    "Value",
    "active_children",
    "allow_connection_pickling",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_all_sharing_strategies",
    "get_all_start_methods",
    "get_context",
    "get_logger",
    "get_sharing_strategy",
    "get_start_method",
    "log_to_stderr",
    "parent_process",
    "reducer",
    "set_executable",
    "set_forkserver_preload",
    "set_sharing_strategy",
    "set_start_method",
    "spawn",
    "start_processes",
]
