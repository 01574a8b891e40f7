"""The program's side of a WorkerPool: tasks, messages and deaths of workers, for all its maps and simulations."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

from .. import _native
from .._tensor.creation import zeros
from ..errors import InvalidArgument, ShmTensorError, TaskFailed, TaskTimeout, WorkerDied
from ..ipc.queues import SimpleQueue
from ..ipc.receipts import Receipt
from .failures import Failure, raise_failure
from .pool_worker import WAKE, work
from .workers import Crew, Member

T = TypeVar("T")

INTERRUPTED: Final = ", after KeyboardInterrupt while workers were told what to do"

_LOOK: Final = 0.05
"""Seconds between checks whether a worker has ended."""
_TRIES: Final = 3
"""Workers that may die with the same task, or in a row for each place without a result."""
_NUMBERS: Final = 2**32
"""Counts of messages wrap here."""


@dataclass
class Task:
    """Items of a map that a worker takes at once.

    Attributes:
        user: number of the map.
        first: index of the first item.
        items: the items.
        deaths: number of workers that died while they had it.
    """

    user: int
    first: int
    items: tuple[Any, ...]
    deaths: int = 0

    def __str__(self) -> str:
        last = self.first + len(self.items) - 1
        return f"item {self.first}" if last == self.first else f"items {self.first} to {last}"


class User:
    """A user of a pool's workers: a map, or a set of simulations. The pool does not keep it alive.

    Attributes:
        number: identifies it in messages.
    """

    number: int

    def greeting(self, member: int) -> list[Any]:
        """Return the messages that a new worker in this place gets first."""
        raise NotImplementedError

    def take(self, *content: Any) -> None:
        """Take a message of a worker."""
        raise NotImplementedError

    def fail(self, task: Task, error: Exception | Failure) -> None:
        """Let the items of a task fail."""
        raise NotImplementedError

    def fail_to_read(self, task: Task, error: Failure) -> None:
        """Let those items of a task fail that a worker cannot unpickle. `error`: raised when all were unpickled."""
        raise NotImplementedError

    def held_by(self, member: int) -> str:
        """Describe what a worker is doing for it, or holds for it, apart from tasks; empty: nothing."""
        return ""

    def lose(self, member: int, death: Callable[[], WorkerDied]) -> None:
        """Handle the end of a worker, before another one is started in its place. `death` returns the error."""


class PoolCore:
    """The workers of a pool, and its pending tasks. Attributes may only be used while `change` is held.

    Args:
        context: context of shmtensor.multiprocessing.
        workers: number of workers.
        initializer: called by each worker with its number.
        seed: seed of the workers' random numbers.
        restart: whether tasks of dead workers are done by others; else they fail.
        timeout: seconds that a result may take; 0: no bound.

    Raises as starting a process does.
    """

    def __init__(
        self,
        context: Any,
        workers: int,
        initializer: Callable[[int], object] | None,
        seed: int,
        restart: bool,
        timeout: float,
    ) -> None:
        self.restart: bool = restart
        self.timeout: float = timeout
        self.change: threading.Condition = threading.Condition()
        self.users: weakref.WeakValueDictionary[int, User] = weakref.WeakValueDictionary()
        self.pending: dict[int, Task] = {}
        self.restarts: int = 0
        self._tasks: SimpleQueue[Any] = SimpleQueue(ctx=context)
        self._put = self._last_user = self._deaths = 0
        self._awake_tensor = zeros(workers, dtype="int64", shared=True)
        self._awake = self._awake_tensor._live()
        self._receipts = [Receipt() for _ in range(workers)]
        self._crew = Crew(context, workers, work, (self._tasks, self._awake_tensor, self._receipts, initializer, seed))
        self._is_read = False  # a thread waits for messages
        self._looked = time.monotonic()
        self._closed_by: str | None = None

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self._receipts)

    def pids(self) -> list[int]:
        """The workers' process ids."""
        self.require_open()
        return [member.pid for member in self._crew.members]

    def require_open(self) -> None:
        """Raise InvalidArgument if the pool cannot be used here."""
        if self._crew.is_inherited():
            raise InvalidArgument("this WorkerPool belongs to the process that created it; create one in this process")
        if self._closed_by is not None:
            raise InvalidArgument(f"this WorkerPool is closed{self._closed_by}; create a new one")

    def close(self, reason: str = "") -> None:
        """End the workers, if this process started them. Blocks for less than half a second. May be called again."""
        if self._crew.is_inherited():
            return
        with self.change:
            if self._closed_by is None:
                self._closed_by = reason
            self.pending.clear()
            self._crew.stop()
            self.change.notify_all()

    # -- users and tasks

    def add(self, user: User) -> None:
        """Give a user its number, and send its messages to the workers.

        Raises InvalidArgument: a message cannot be sent.
        """
        self.require_open()
        with self.change:
            self._last_user += 1
            user.number = self._last_user
            for member in self._crew.members:
                self.greet(user, member)
            self.users[user.number] = user

    def greet(self, user: User, member: Member) -> None:
        """Send a user's messages to a worker. Raises InvalidArgument: one cannot be sent."""
        for message in user.greeting(member.number):
            try:
                member.jobs.put(message)
            except (ShmTensorError, OSError):
                raise
            except Exception as error:
                raise InvalidArgument(
                    f"{message[2].value!r} cannot be sent to workers: {error}; use a function or class of a module, or "
                    "functools.partial of one"
                ) from error

    def remove(self, number: int) -> None:
        """Remove a user; workers skip its tasks."""
        if self._closed_by is not None or self._crew.is_inherited():
            return
        with self.change:
            self.users.pop(number, None)
            for key in [key for key, task in list(self.pending.items()) if task.user == number]:
                del self.pending[key]
            self.tell(("ended", number))

    def tell(self, message: Any, members: list[int] | None = None) -> None:
        """Put a message into the own queues of workers (None: of all)."""
        for number in range(self.workers) if members is None else members:
            with suppress(IndexError):  # closed meanwhile
                self._crew.members[number].jobs.put(message)

    def submit(self, task: Task) -> None:
        """Give a task to the workers. Raises as `SimpleQueue.put`."""
        self.require_open()
        number = self._put % _NUMBERS
        try:
            self._tasks.put((number, task.user, task.first, task.items))
            self._put += 1
            self.pending[number] = task
            self._wake()
        except KeyboardInterrupt:
            self.close(INTERRUPTED)
            raise

    def _wake(self) -> None:
        """Wake a worker that sleeps, if there is one."""
        number = int(self._awake.argmin())
        if _native.atomic_compare_exchange(self._awake, number, 0, 1, "seq_cst")[0]:
            self._crew.members[number].jobs.put(WAKE)

    # -- waiting

    def wait(self, ready: Callable[[], T | None], until: float | None = None) -> T | None:
        """Wait until `ready()` returns a value other than None, and return it; None if `until` (of monotonic()) passes.

        `ready` is called while `change` is held. Several threads may wait.
        """
        while True:
            self.require_open()  # before the lock, which a fork may have inherited locked
            with self.change:
                self.require_open()  # another thread may have closed it meanwhile
                now = time.monotonic()
                if now - self._looked > _LOOK and not self._is_read:
                    try:
                        self._tend()
                    except KeyboardInterrupt:  # a new worker may not have all messages
                        self.close(INTERRUPTED)
                        raise
                found = ready()
                if found is not None:
                    return found
                left = _LOOK if until is None else min(_LOOK, until - now)
                if left <= 0:
                    return None
                if self._is_read:  # by another thread, which takes the messages for all
                    self.change.wait(left)
                    continue
                self._is_read = True
            try:
                message = self._crew.wait(left)
                if message is not None:
                    with self.change:
                        self._take(message)
            except BaseException as error:  # for example Ctrl-C, which may have lost a message
                self.close(f", after {type(error).__name__} while it waited for results")
                raise
            finally:
                with self.change:
                    self._is_read = False
                    self.change.notify_all()

    def late(self, what: str) -> NoReturn:
        """Raise TaskTimeout with what each worker is doing."""
        who = []
        for member in self._crew.members:
            doing = self._held_by(member)
            state = " is stopped by a signal" if member.is_stopped() else ""
            if doing or state:
                who.append(
                    f"worker {member.number} (pid {member.pid}){state}{' and' * bool(doing and state)}"
                    f"{' has ' if doing else ''}{doing}"
                )
        raise TaskTimeout(
            f"{what} in {self.timeout:g} seconds: {'; '.join(who) or 'no worker has begun it'}; check what they wait "
            "for, or raise timeout"
        )

    def drain(self) -> None:
        """Take the messages that have arrived."""
        while self._crew.results._ring.size():
            message = self._crew.wait(0)
            if message is None:
                return
            self._take(message)

    def _take(self, message: Any) -> None:
        kind, number, *content = message
        if kind == "broken":
            self.close(f", because worker {number} could not start")
            raise_failure(content[0], f"worker {number} called the initializer, which raised", TaskFailed)
        self._deaths = 0
        if kind == "group":
            user = self.users.get(number)
        else:
            task = self.pending.pop(number, None)
            user = None if task is None else self.users.get(task.user)
            content.insert(0, task)
        if user is None:
            return
        if kind == "unread":
            user.fail_to_read(*content)
        elif kind == "spoilt":
            user.fail(*content)
        else:
            user.take(*content)

    # -- deaths

    def _tend(self) -> None:
        """Replace workers that have ended. Raises WorkerDied if the replacements end as well."""
        self._looked = time.monotonic()
        for member in self._crew.ended():
            self._replace(member)
        if self._tasks._ring.size():
            self._wake()

    def _replace(self, member: Member) -> None:
        self.drain()  # the messages that it had put
        number = member.number
        doing = self._held_by(member)
        task = self._lost_task(member)
        self._receipts[number].clear()
        self._awake[number] = 1  # it has a WAKE before its first task
        self._deaths += 1
        if self._deaths > _TRIES * self.workers:
            self.close(", because its workers died one after the other")
            raise member.death("as all that were started in its place")

        def death() -> WorkerDied:
            advice = "" if self.restart else "; with on_worker_death='restart' another worker continues"
            return member.death(f"while it had {doing or 'nothing to do'}{advice}")

        if task is not None:
            task.deaths += 1
            user = self.users.get(task.user)
            if user is not None and (not self.restart or task.deaths >= _TRIES):
                user.fail(task, death())
            elif user is not None:
                self.submit(task)
        users = list(self.users.values())
        for user in users:
            user.lose(number, death)
        new = self._crew.replace(member)
        self.restarts += 1
        for user in users:
            self.greet(user, new)
        new.jobs.put(WAKE)

    def _held_by(self, member: Member) -> str:
        """Describe what a worker is doing."""
        task = self.pending.get(self._receipts[member.number].read() - 1)
        found = ["" if task is None else str(task)]
        found += [user.held_by(member.number) for user in list(self.users.values())]
        return ", ".join(filter(None, found))

    def _lost_task(self, member: Member) -> Task | None:
        """Return the unfinished task of a dead worker, and remove it from the pending ones.

        The number on its receipt may be that of a task which it did not take in the end. The order of checks matters:
        if the task was taken, and is on no other receipt, its result has been put by now, or never will be.
        """
        number = self._receipts[member.number].read() - 1
        if number not in self.pending:
            return None
        taken = self._tasks._ring.stats().taken
        if not 0 < (taken - number) % _NUMBERS <= _NUMBERS // 2:
            return None
        others = (receipt for place, receipt in enumerate(self._receipts) if place != member.number)
        if any(receipt.read() == number + 1 for receipt in others):
            return None
        self.drain()
        return self.pending.pop(number, None)
