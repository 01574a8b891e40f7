"""WorkerPool: persistent processes that run functions over streams, and simulations that live in them."""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import current_process
from typing import Any, Final, Self

from .._tensor.core import Tensor
from ..errors import InvalidArgument, ShmTensorError, TaskFailed
from ..ipc.processes import context_from
from ..storage.arguments import require_integer
from .failures import Failure, raise_failure
from .leaves import PLAIN
from .outputs import converted, converter
from .parcels import Opened, Parcel
from .pool_core import PoolCore, Task, User
from .randoms import draw_seed
from .simulations import Simulations

__all__ = ["PoolStats", "WorkerPool"]

_AHEAD: Final = 4
"""Chunks read ahead for each worker."""
_DEATHS: Final = ("raise", "restart")


@dataclass(frozen=True)
class PoolStats:
    """Statistics of a WorkerPool, a snapshot.

    Attributes:
        workers: number of workers.
        restarts: workers that were replaced.
        tasks: tasks of maps that were given to workers and have no result yet.
    """

    workers: int
    restarts: int
    tasks: int


class WorkerPool:
    """Persistent worker processes, which run functions over streams (`map`), and hold simulations. See docs/data.md.

    Arrays and tensors of results arrive as tensors in shared memory, which is moved to the program, not copied again.
    Workers ignore SIGINT and SIGTERM, and end with the pool (`close`, the end of a `with` statement, garbage
    collection) or with the program, however it ends. Several threads may use one pool.

    Args:
        workers: number of workers; default: the number of processors of this process.
        initializer: called by each worker at its start with its number, from 0; `get_worker_info()` has more.
        context: a start method, or a context that has one; default: the program's.
        output: type of the tensors of results: "shmtensor", "numpy", "torch" or "jax". Nothing is copied.
        on_worker_death: "raise": the task that a worker had when it died fails with WorkerDied. "restart": another
            worker repeats it. In both cases another worker takes its place, and the pool continues.
        timeout: maximum seconds that the program waits for a result; 0: no bound.
        seed: seed of the workers' random numbers and of `sample_generator()`; default: drawn once.

    Raises:
        InvalidArgument: a value out of range.
        MissingExtra: the library of `output` is not installed.
        OSError, OutOfMemory, ManagerError: a process could not be started, or there is no memory.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        initializer: Callable[[int], object] | None = None,
        context: Any = None,
        output: str = "shmtensor",
        on_worker_death: str = "raise",
        timeout: float = 0,
        seed: int | None = None,
    ) -> None:
        workers = require_integer("workers", len(os.sched_getaffinity(0)) if workers is None else workers, 1)
        if initializer is not None and not callable(initializer):
            raise InvalidArgument(f"initializer must be callable, and {initializer!r} is not")
        if on_worker_death not in _DEATHS:
            raise InvalidArgument(f"on_worker_death must be 'raise' or 'restart', not {on_worker_death!r}")
        if not isinstance(timeout, int | float) or not timeout >= 0:
            raise InvalidArgument(f"timeout is {timeout!r}; give seconds, 0 for no bound")
        seed = draw_seed() if seed is None else require_integer("seed", seed, 0)
        self._convert = converter(output)
        if current_process().daemon:
            raise InvalidArgument(
                "a worker of a pool, or another daemonic process, cannot start processes; make the WorkerPool outside "
                "of it"
            )
        self._core = PoolCore(
            context_from("context", context), workers, initializer, seed, on_worker_death == "restart", timeout
        )

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        in_order: bool = True,
        ahead: int | None = None,
        chunk: int = 1,
    ) -> Iterator[Any]:
        """Call a function with each item, in the workers. Returns before the first result is ready.

        `items` is read in this process, as results are requested. Workers process items that were read ahead. The
        function is sent once to each worker. An exception of the function is raised in place of its result, with the
        item's index and the worker's traceback; the iterator can still return further results. If the iterator is
        dropped, workers start no more of its items.

        Args:
            function: a function of a module, or any callable that can be pickled.
            items: an iterable, possibly infinite.
            in_order: return results in the order of items; else as they are complete.
            ahead: maximum number of items read and not handed out; default: 4 chunks for each worker.
            chunk: items that a worker takes at once; more than 1 for functions of less than about 0.1 ms.

        Returns:
            An iterator of results. Its `next` blocks until one is ready, and raises the function's exception, or
            TaskFailed if that cannot be raised here; WorkerDied with the worker, signal and item; TaskTimeout;
            InvalidArgument: the pool is closed, or belongs to another process. An exception of the iterator of `items`
            is raised after the results before it.

        Raises:
            InvalidArgument: the function cannot be sent, a value is out of range, or the pool is closed.
        """
        if not callable(function):
            raise InvalidArgument(f"function must be callable, and {function!r} is not")
        chunk = require_integer("chunk", chunk, 1)
        ahead = require_integer("ahead", _AHEAD * chunk * self._core.workers if ahead is None else ahead, 1)
        return _Map(self._core, function, iter(items), in_order, ahead, min(chunk, ahead), self._convert)

    def simulations(self, factory: Callable[[int], Any], count: int) -> Simulations:
        """Create simulations, or other stateful objects: simulation i is `factory(i)`, in worker i % workers.

        Returns at once. The simulations live as long as the returned object; at its end, `close` of each simulation is
        called, if it has one.

        Args:
            factory: a function of a module, or any callable that can be pickled.
            count: number of simulations.

        Raises:
            InvalidArgument: the factory cannot be sent, a value is out of range, or the pool is closed.
        """
        if not callable(factory):
            raise InvalidArgument(f"factory must be callable, and {factory!r} is not")
        return Simulations(self._core, factory, require_integer("count", count, 1), self._convert)

    def pids(self) -> list[int]:
        """Return the workers' process ids, by their numbers. Does not block."""
        return self._core.pids()

    def stats(self) -> PoolStats:
        """Return statistics, a snapshot. Does not block."""
        return PoolStats(self._core.workers, self._core.restarts, len(self._core.pending))

    def close(self) -> None:
        """End the workers, even in the middle of a task. Blocks for less than half a second. May be called again."""
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Error:
    """In place of the result of an item that failed."""

    def __init__(self, error: Exception | Failure, what: str) -> None:
        self.error, self.what = error, what


class _Map(User):
    """The results of a function over items."""

    def __init__(
        self,
        core: PoolCore,
        function: Callable[[Any], Any],
        items: Iterator[Any],
        in_order: bool,
        ahead: int,
        chunk: int,
        convert: Callable[[Tensor], Any],
    ) -> None:
        self._core, self._function, self._convert = core, function, convert
        self._items: Iterator[Any] | None = items
        self._ahead, self._chunk = ahead, chunk
        self._problem: Exception | None = None
        self._in_order = in_order
        self._read = self._taken = 0  # number of items that were read, and of those whose chunk was taken
        self._done: dict[int, list[Any]] = {}  # results of chunks by their first index, in order of arrival
        self._current: deque[Any] = deque()  # results of the chunk that was taken last
        self._reading = threading.RLock()  # held instead of `change` while items are read, which may take long
        core.add(self)
        weakref.finalize(self, core.remove, self.number).atexit = False
        self._submit()

    def __iter__(self) -> _Map:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                value = self._current.popleft()
                break
            except IndexError:
                pass  # `_next_chunk` is called outside, so that its exceptions do not get this one as context
            self._next_chunk()
        if type(value) in PLAIN:
            return value
        if type(value) is _Error:
            if isinstance(value.error, Exception):
                try:
                    raise value.error
                finally:
                    del value
            raise_failure(value.error, value.what, TaskFailed)
        return converted(value, self._convert)

    def _next_chunk(self) -> None:
        """Wait for a chunk of results. Raises StopIteration, or the exception of the iterator of items."""
        core = self._core
        core.require_open()
        self._submit()
        until = time.monotonic() + core.timeout if core.timeout else None
        found = core.wait(self._ready, until)
        if found is None:
            with core.change:
                core.late(f"no result of {self._named()} came")
        if not found:
            problem, self._problem = self._problem, None
            try:
                raise problem or StopIteration
            finally:
                del problem

    def _named(self) -> str:
        return getattr(self._function, "__qualname__", None) or repr(self._function)

    def _ready(self) -> bool | None:
        """Take a chunk of results. Returns whether there is one, or None if it is not done yet."""
        if self._current:  # another thread has taken one
            return True
        first = self._taken if self._in_order else next(iter(self._done), None)
        if first in self._done:
            chunk = self._done.pop(first)
            self._taken += len(chunk)
            self._current.extend(chunk)
            return True
        return False if self._taken == self._read and self._items is None else None

    def _submit(self) -> None:
        """Read as many chunks as may be read ahead, and give them to workers. Blocks as the iterator of items does."""
        with self._reading:
            while self._items is not None and self._read - self._taken + self._chunk <= self._ahead:
                items: list[Any] = []
                try:
                    items.extend(itertools.islice(self._items, self._chunk))
                except Exception as error:  # from the iterator of items; the items before it are in the list
                    self._problem = error
                is_over = len(items) < self._chunk
                with self._core.change:
                    if items:
                        self._give(items)
                    if is_over:
                        self._items = None

    def _give(self, items: list[Any]) -> None:
        task = Task(self.number, self._read, tuple(items))
        self._read += len(items)
        self._put(task)

    def _put(self, task: Task) -> None:
        try:
            self._core.submit(task)
        except Exception as error:  # an item cannot be sent
            if len(task.items) > 1 and not isinstance(error, ShmTensorError | OSError):
                self._put_separately(task)
            else:
                self.fail(task, error)

    def _put_separately(self, task: Task) -> None:
        """Give the items of a task to workers one by one, so that each can fail separately."""
        for index, item in enumerate(task.items, task.first):
            self._put(Task(self.number, index, (item,)))

    # -- what the pool calls

    def greeting(self, member: int) -> list[Any]:
        """Return the message with the function."""
        return [("function", self.number, Parcel(self._function))]

    def take(self, task: Task, values: list[Any], failures: dict[int, Failure] | None) -> None:
        """Take the results of a task."""
        if failures is None and Opened not in map(type, values):
            self._done[task.first] = values
            return
        for place, value in enumerate(values):
            index = task.first + place
            if failures is not None and place in failures:
                values[place] = _Error(failures[place], self._what(index))
            elif type(value) is Opened:
                what = f"the result of item {index} was read here, which raised"
                values[place] = value.value if value.failure is None else _Error(value.failure, what)
        self._done[task.first] = values

    def fail(self, task: Task, error: Exception | Failure) -> None:
        """Let all items of a task fail."""
        indices = range(task.first, task.first + len(task.items))
        self._done[task.first] = [_Error(error, self._what(index)) for index in indices]

    def fail_to_read(self, task: Task, error: Failure) -> None:
        """Send the items again one by one; a single item fails."""
        if len(task.items) > 1:
            self._put_separately(task)
        else:
            self.fail(task, error)

    def _what(self, index: int) -> str:
        return f"a worker called {self._named()} with item {index}, which raised"
