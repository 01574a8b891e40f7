"""The worker's side of a WorkerPool: tasks of maps, and groups of simulations.

A worker waits only on its own queue. Tasks of maps are in one queue for all workers, so that each takes the next one as
soon as it is free. A worker that finds that queue empty sets its word of `awake` to 0, and sleeps; when there is a task
again, the program sets the word to 1 and puts WAKE into the worker's own queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .. import _native
from .._tensor.core import Tensor
from ..ipc.queues import Empty, SimpleQueue
from ..ipc.receipts import Receipt, take
from .failures import Failure, failure_of
from .leaves import PLAIN
from .parcels import Opened, Parcel, sendable
from .randoms import WorkerInfo, begin_sample, begin_worker, end_samples, mixed
from .simulation_group import Group

WAKE: Final = ("wake",)
_LINGER: Final = 0.0005
"""Seconds that a worker without simulations waits for the next task, before the program has to wake it."""


class _Worker:
    """One worker that processes messages and tasks."""

    def __init__(
        self,
        number: int,
        seed: int,
        jobs: SimpleQueue[Any],
        results: SimpleQueue[Any],
        tasks: SimpleQueue[Any],
        awake: Tensor,
        receipt: Receipt,
    ) -> None:
        self._number, self._seed = number, seed
        self._jobs, self._results, self._tasks = jobs, results, tasks
        self._awake, self._receipt = awake._live(), receipt
        self._is_awake = False
        self._functions: dict[int, Opened] = {}
        self._groups: dict[int, Group] = {}

    def run(self) -> None:
        """Work until None comes."""
        while True:
            if self._is_awake and not self._jobs._ring.size():
                self._do_task()
            elif not self._obey(self._jobs.get()):
                break
        for group in self._groups.values():
            group.close()

    def _obey(self, message: Any) -> bool:
        """Carry out a message of the worker's own queue. False: the worker has to end."""
        if message is None:
            return False
        kind, *content = message
        if kind == "wake":
            self._is_awake = True
        elif kind == "function":
            self._functions[content[0]] = content[1]
        elif kind == "group":
            number, factory, places, words = content
            self._groups[number] = Group(number, self._seed, self._results, factory, places, words)
        elif kind == "ended":
            self._functions.pop(content[0], None)
            group = self._groups.pop(content[0], None)
            if group is not None:
                group.close()
        else:  # of simulations
            self._groups[content[0]].obey(kind, *content[1:])
        return True

    # -- tasks

    def _do_task(self) -> None:
        """Take a task and do it; sleep if there is none."""
        try:
            task = take(self._tasks, self._receipt, 0 if self._groups else _LINGER)
        except Empty:
            self._receipt.clear()  # it may have the number of a task that another worker has taken
            self._rest()
            return
        except BaseException as error:  # an item cannot be unpickled; the receipt says of which task
            number = self._receipt.read() - 1
            if number < 0:
                raise
            self._results.put(("unread", number, failure_of(error)))
        else:
            self._call(*task)
        self._receipt.clear()

    def _rest(self) -> None:
        """Sleep, unless a task has arrived."""
        self._is_awake = False
        _native.atomic_store(self._awake, self._number, 0, "seq_cst")
        if self._tasks._ring.size():
            self._is_awake = _native.atomic_compare_exchange(self._awake, self._number, 0, 1, "seq_cst")[0]

    def _call(self, number: int, user: int, first: int, items: tuple[Any, ...]) -> None:
        function = self._function(user)
        if function is None:
            return  # the program has dropped the map
        if function.failure is not None:
            self._results.put(("spoilt", number, function.failure))
            return
        values: list[Any] = []
        failures: dict[int, Failure] = {}
        call, seed = function.value, self._seed
        for index, item in enumerate(items, first):
            begin_sample(seed, user, index)
            try:
                value = call(item)
                values.append(value if type(value) in PLAIN else sendable(value))
            except BaseException as error:  # also sys.exit()
                values.append(None)
                failures[index - first] = failure_of(error)
        end_samples()
        try:
            self._results.put(("done", number, values, failures or None))
        except BaseException as error:
            self._put_separately(number, values, failures, error)

    def _put_separately(
        self, number: int, values: list[Any], failures: dict[int, Failure], error: BaseException
    ) -> None:
        """Put results, and let those that cannot be sent fail."""
        for place, value in enumerate(values):
            try:
                Parcel(value).__reduce__()
            except BaseException as its_error:
                values[place] = None
                failures[place] = failure_of(its_error)
        try:
            self._results.put(("done", number, values, failures))
        except BaseException:
            self._results.put(("spoilt", number, failure_of(error)))

    def _function(self, user: int) -> Opened | None:
        """Return the function of a map, which is in the own queue before any of its tasks; None: the map has ended."""
        while user not in self._functions and self._jobs._ring.size():
            message = self._jobs.get()
            if message is None:
                self._jobs.put(None)  # for `run`
                return None
            self._obey(message)
        return self._functions.get(user)


def work(
    word: int,
    number: int,
    jobs: SimpleQueue[Any],
    results: SimpleQueue[Any],
    tasks: SimpleQueue[Any],
    awake: Tensor,
    receipts: list[Receipt],
    initializer: Callable[[int], object] | None,
    seed: int,
) -> None:
    """Run a worker until it takes None."""
    try:
        begin_worker(WorkerInfo(number, len(receipts), mixed(seed, word) >> 1, None))
        if initializer is not None:
            initializer(number)
    except BaseException as error:
        results.put(("broken", number, failure_of(error)))
        while jobs.get() is not None:
            pass
        return
    _Worker(number, seed, jobs, results, tasks, awake, receipts[number]).run()
