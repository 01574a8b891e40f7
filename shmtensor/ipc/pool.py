"""A pool of worker processes, with the standard interface, that does not hang when a worker is killed.

Tasks and results each go through one ring. A task is identified by its number in the task ring. Each worker has a
`Receipt` in shared memory: it is set to the task's number + 1 before the task leaves the ring, and cleared after the
result was put. So a task is lost if it was taken, has no result, and is on no live worker's receipt:
`_PoolCore._audit`.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing import connection, pool, util
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, NoReturn

import numpy as np

from .._tensor.methods import Tensor
from ..errors import SegmentLost, ShmTensorError, WorkerDied
from .codec import decode_from_wire, encode_for_wire
from .processes import context_of
from .queues import Empty, SimpleQueue
from .receipts import Receipt, take

__all__ = ["Pool"]

_NUMBERS: Final = 2**32  # counts of messages wrap here
_LOOK: Final = 0.5  # seconds between a worker's checks whether its parent is alive
_AGAIN: Final = 1.0  # seconds until the next attempt to start a worker
# Bounds of waiting tasks; beyond these, iterables are not read further.
_MAX_TASKS: Final = 4096
_MAX_BYTES: Final = 2**26
_AUDIT: Final = True  # a marker among the results: losses found before it was put can be decided when it is read
_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None), np.ndarray, Tensor})
"""Results of these types can always be unpickled if there is memory; others may raise."""


class _Arriving(threading.local):
    """The result that this thread is unpickling."""

    number: int | None = None


_arriving = _Arriving()


class _Number(int):
    """A task's number, pickled before a result that may fail to unpickle, so that the task is known in that case."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (int(self),)


def _arrive(number: int) -> int:
    _arriving.number = number
    return number


# ---------------------------------------------------------------------------------------------------------- the worker


def _orphaned() -> Callable[[], bool]:
    """Return a function that returns whether this process's parent has ended.

    A direct child compares the parent's pid, because the parent's sentinel is a pipe that later children inherit.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return lambda: False
    if os.getppid() == parent.pid:
        return lambda: os.getppid() != parent.pid
    return lambda: not parent.is_alive()


def _outcome(func: Any, args: Any, kwds: Any) -> tuple[bool, Any]:
    try:
        return True, func(*args, **kwds)
    except Exception as error:
        return False, _portable(error, func)


def _portable(error: Exception, func: Any) -> Exception:
    """Return the error as the caller will see it, with its traceback as the cause."""
    if func is pool._helper_reraises_exception:  # type: ignore[attr-defined]
        return error
    wrapped: Any = pool.ExceptionWithTraceback(error, error.__traceback__)  # type: ignore[attr-defined]
    try:
        decode_from_wire(encode_for_wire(wrapped))
    except Exception as problem:
        wrapped = pool.MaybeEncodingError(problem, error)  # type: ignore[attr-defined]
    return wrapped  # type: ignore[no-any-return]


def work(tasks: SimpleQueue, results: SimpleQueue, receipt: Receipt, start: Any, max_tasks: int | None) -> None:
    """Run a worker until it takes None, has done `max_tasks` tasks, or its parent has ended.

    A task that cannot be unpickled fails with the exception of unpickling.
    """
    initializer, initargs = start
    if initializer is not None:
        initializer(*initargs)
    is_orphan = _orphaned()
    looked = time.monotonic()
    done = 0
    while max_tasks is None or done < max_tasks:
        if time.monotonic() - looked > _LOOK:
            if is_orphan():
                return
            looked = time.monotonic()
        try:
            task = take(tasks, receipt, _LOOK)
        except Empty:
            receipt.clear()  # it may name a task that another worker has taken
            continue
        except Exception as error:
            if not receipt.read():
                raise
            outcome: tuple[bool, Any] = False, _portable(error, None)
        else:
            if task is None:
                return
            outcome = _outcome(*task)
        number = receipt.read() - 1
        if type(outcome[1]) not in _PLAIN:
            number = _Number(number)
        try:
            results.put((number, *outcome))
        except Exception as error:
            problem = pool.MaybeEncodingError(error, outcome[1])  # type: ignore[attr-defined]
            results.put((number, False, problem))
        receipt.clear()
        task = outcome = None  # type: ignore[assignment]
        done += 1


# ------------------------------------------------------------------------------------------------------------ the pool


class _PoolCore:
    """The workers of a pool and the state of its three threads. It has no reference to the pool, which can be dropped.

    Attributes:
        tasks: number -> (job, index in the job) of tasks that were put and have no result yet.
        receipts: of all workers that may be alive.
    """

    def __init__(self, ctx: Any, size: int, initializer: Any, initargs: Any, max_tasks: int | None) -> None:
        self._ctx = ctx
        self._size = size
        self._start = initializer, tuple(initargs)
        self._max_tasks = max_tasks
        self.incoming: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.inqueue: SimpleQueue = SimpleQueue(ctx=ctx)
        self.outqueue: SimpleQueue = SimpleQueue(ctx=ctx)
        self.change: SimpleQueue = SimpleQueue(ctx=ctx)
        self.cache: Any = pool._PoolCache(notifier=self.change)  # type: ignore[attr-defined]
        self.workers: list[Any] = []
        self.room = threading.Event()
        self._receipts: dict[Any, Receipt] = {}
        self._tasks: dict[int, tuple[int, int]] = {}
        self._losses: dict[int, Exception] = {}  # tasks that may be lost, with their exceptions
        self._result_lost: SegmentLost | None = None  # the error of a result whose task is unknown
        self._audits: queue.SimpleQueue[dict[int, Exception]] = queue.SimpleQueue()

    # -- workers

    def fill(self) -> None:
        """Start workers up to the pool's size. Raises as starting a process does."""
        while len(self.workers) < self._size:
            receipt = Receipt()
            arguments = self.inqueue, self.outqueue, receipt, self._start, self._max_tasks
            worker = self._ctx.Process(target=work, args=arguments)
            worker.name = worker.name.replace("Process", "PoolWorker")
            worker.daemon = True
            self._receipts[worker] = receipt  # before it can take a task
            try:
                worker.start()
            except BaseException:
                del self._receipts[worker]
                raise
            self.workers.append(worker)

    def tend(self) -> None:
        """Replace workers that have ended, until the pool is closed and has no tasks. Runs in a thread."""
        thread: Any = threading.current_thread()
        while thread._state == pool.RUN or (self.cache and thread._state != pool.TERMINATE):
            try:
                self.remove_ended()
                self.fill()
                patience = _LOOK if self._losses else None
            except (OSError, ShmTensorError):  # no process or no memory available
                patience = _AGAIN
            connection.wait([*(worker.sentinel for worker in self.workers), self.change._reader], patience)  # type: ignore[list-item]
            while not self.change.empty():
                self.change.get()
        self.incoming.put(None)

    def remove_ended(self) -> None:
        """Remove workers that have ended, and audit the tasks they had taken."""
        for worker in [worker for worker in self.workers if worker.exitcode is not None]:
            worker.join()
            self.workers.remove(worker)
            taken = self._receipts.pop(worker).read()
            if taken:
                self._losses[taken - 1] = _death_of(worker)
        if self._losses or self._result_lost:
            self._audit()

    def _audit(self) -> None:
        """Find lost tasks and let them fail, once the results that are already in the ring have been read.

        The order matters. A worker sets its receipt before a task counts as taken, and puts the result before it
        changes the receipt. So a task that was taken and is on no receipt has its result in the ring by now, or never
        gets one. A task on a receipt is checked again later if a result was lost, which may have been its own.
        """
        if error := self._result_lost:
            self._result_lost = None
            self._losses = dict.fromkeys(list(self._tasks), error) | self._losses
        taken = self.inqueue._ring.stats().taken
        in_hand = {receipt.read() - 1 for receipt in list(self._receipts.values())}
        losses = {
            number: error for number, error in self._losses.items() if 0 < (taken - number) % _NUMBERS <= _NUMBERS // 2
        }
        lost = {number: error for number, error in losses.items() if number not in in_hand}
        if lost:
            self.outqueue.put(_AUDIT)
            self._audits.put(lost)
        self._losses = {number: losses[number] for number in losses.keys() & in_hand}

    # -- tasks and results

    def feed(self) -> None:
        """Put tasks until None comes, then tell `collect` and the workers to end. Runs in a thread."""
        thread: Any = threading.current_thread()
        for tasks, set_length in iter(self.incoming.get, None):
            index = -1
            for job, index, *task in tasks:
                if not self._await_room(thread):
                    break
                self._put(job, index, tuple(task))
            else:
                if set_length:
                    set_length(index + 1)
                tasks = task = None
                continue
            break
        self.outqueue.put(None)
        for _ in list(self.workers):
            self.inqueue.put(None)

    def _await_room(self, thread: Any) -> bool:
        """Block until there is room for another task. False: the pool is terminated."""
        while thread._state == pool.RUN:
            stats = self.inqueue._ring.stats()
            if len(self._tasks) < _MAX_TASKS and (stats.nbytes < _MAX_BYTES or stats.messages <= self._size):
                return True
            self.room.clear()
            self.room.wait(0.05)
        return False

    def _put(self, job: int, index: int, task: Any) -> None:
        number = self.inqueue._ring.stats().put  # only this thread puts tasks
        self._tasks[number] = job, index
        try:
            self.inqueue.put(task)
        except Exception as error:
            self._set_result(number, False, error)

    def _set_result(self, number: int, success: bool, value: Any) -> None:
        """Set the only result of a task."""
        job, index = self._tasks.pop(number, (None, 0))  # None: it has a result, and its worker died after that
        if not self.room.is_set() and len(self._tasks) < _MAX_TASKS // 2:
            self.room.set()
        result = self.cache.get(job)
        if result is not None:
            result._set(index, (success, value))

    def collect(self) -> None:
        """Set results as they arrive, until the pool is closed and all are set. Runs in a thread."""
        thread: Any = threading.current_thread()
        is_over = False
        while thread._state != pool.TERMINATE and not (is_over and not self.cache):
            _arriving.number = None
            try:
                message = self.outqueue.get()
            except Exception as error:
                if _arriving.number is not None:
                    self._set_result(_arriving.number, False, error)
                elif isinstance(error, SegmentLost):
                    self._result_lost = error  # the receipts tell which task it was
                    self.change.put(None)
                else:
                    raise
                continue
            if thread._state == pool.TERMINATE:
                return
            if message is None:
                is_over = True
            elif message is _AUDIT:
                for number, death in self._audits.get().items():
                    self._set_result(number, False, death)
            else:
                self._set_result(*message)
            message = None


def _refuse_result(result: Any) -> NoReturn:
    raise NotImplementedError(
        f"a {type(result).__name__} cannot be sent: it belongs to the process of its pool; send what its get() returns"
    )


for _result in (pool.ApplyResult, pool.MapResult, pool.IMapIterator, pool.IMapUnorderedIterator):
    ForkingPickler.register(_result, _refuse_result)


def _death_of(worker: Any) -> WorkerDied:
    code = worker.exitcode
    name = None
    if code < 0:
        known = {number.value: number.name for number in signal.Signals}
        name = known.get(-code, f"signal {-code}")
    how = f"ended with exit code {code}" if name is None else f"was killed by {name}"
    return WorkerDied(
        f"the worker with pid {worker.pid} {how} during this task, which may be partly done; the pool continues, so "
        "submit the task again if that is safe",
        worker.pid,
        code,
        name,
    )


class Pool(pool.Pool):
    """A pool of worker processes with the standard interface, whose tasks and results go through shared memory.

    When a worker is killed or exits, the task that it was running raises WorkerDied. Another worker is started, and all
    other tasks are done as usual. In `imap` the task's whole chunk is lost, and with a chunksize above 1 the iterator
    ends there; `map` raises, and gives no other results. To keep the results of the others, use `apply_async` for each
    task, or `imap` with chunksize 1. Workers end when the process of the pool ends.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
    ) -> None:
        """Start the workers.

        Args:
            processes: number of workers, at least 1; None: the number of usable cores.
            initializer: called first in every worker, as `initializer(*initargs)`.
            initargs: arguments of `initializer`.
            maxtasksperchild: tasks after which a worker is replaced; None: never.
            context: a context of shmtensor.multiprocessing; None: its default.

        Raises:
            ValueError, TypeError: an invalid argument.
            OSError, OutOfMemory, ManagerError: a process could not be started, or there is no memory.
        """
        self._pool = []  # for __del__
        self._state = pool.INIT
        if context is None:
            context = context_of()
        if processes is None:
            count: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)  # 3.13 has the first
            processes = count() or 1
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        core = _PoolCore(context, processes, initializer, initargs, maxtasksperchild)
        # The names that the standard class's methods use.
        self._ctx = context
        self._core = core
        self._processes = processes
        self._pool = core.workers
        self._cache = core.cache
        self._taskqueue = core.incoming
        self._inqueue, self._outqueue, self._change_notifier = core.inqueue, core.outqueue, core.change
        try:
            core.fill()
        except Exception:
            for worker in core.workers:
                worker.terminate()
            for worker in core.workers:
                worker.join()
            raise
        threads: list[Any] = [
            threading.Thread(target=target, name=f"shmtensor-pool-{target.__name__}", daemon=True)
            for target in (core.tend, core.feed, core.collect)
        ]
        self._worker_handler, self._task_handler, self._result_handler = threads
        for thread in threads:
            thread._state = pool.RUN
        for thread in threads:
            thread.start()
        self._terminate = util.Finalize(self, _terminate, args=(core, *threads), exitpriority=15)
        self._state = pool.RUN

    def _repopulate_pool(self) -> None:
        self._core.fill()


def _terminate(core: _PoolCore, tending: Any, feeding: Any, collecting: Any) -> None:
    """End threads and workers. May run in any thread, also in one of these, since any may drop the pool."""
    for thread in (tending, feeding, collecting):
        thread._state = pool.TERMINATE
    core.change.put(None)
    core.incoming.put(None)
    core.room.set()
    core.outqueue.put(None)
    own = threading.current_thread()
    if own is not tending:  # it starts workers
        tending.join()
    for worker in core.workers:
        if worker.exitcode is None:
            worker.terminate()
    for thread in (feeding, collecting):
        if own is not thread:
            thread.join()
    for worker in core.workers:
        worker.join()
