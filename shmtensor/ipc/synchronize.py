"""Locks, semaphores, conditions, events and barriers between processes, which survive the death of their owners.

They have the standard interface. Each is a block of shared memory with one word that names its owner
(native/base/layout.hpp, "Synchronisation"). An uncontended acquire makes no system call. If the owner of a lock is
killed, a waiting process gets the lock within 100 ms and can see that from `owner_died`. A semaphore has no owner,
since any process may release it; units that a killed process acquired stay acquired, as in the standard library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import isnan
from multiprocessing import process
from operator import index
from time import monotonic
from typing import Any, TypeVar

from .. import _native
from ..errors import ClientUnavailable, InvalidArgument, QuotaExceeded
from ..manager import client, naming
from . import reductions

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore"]

SEM_VALUE_MAX = 2**31 - 1
_LOOK = 0.1  # seconds between checks whether a process that waits in a barrier has died
_MAX_PARTIES = 4096  # of a barrier
_NOT_HELD = "not held by this process"
Made = TypeVar("Made")


def _whole(value: Any, what: str) -> int:
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"the number of {what} must be an integer, not {value!r}") from None


def _make(
    nbytes: int,
    over: Callable[[_native.Block, bool], Made],
    name: str | None = None,
    create: bool | None = None,
    timeout: float | None = None,
) -> Made:
    """Return `over(block, fresh)` for a new block, or for the named one, as naming.open_or_create does."""
    manager = client.default()

    def make() -> _native.Block:
        block = manager.allocate(nbytes)
        over(block, True)
        return block

    known = None if name is None else reductions.name_of(name)
    block, _ = naming.open_or_create(manager, known, make, create, timeout)
    try:
        return over(block, False)
    except ValueError as problem:
        raise InvalidArgument(f"{name!r} is the name of another kind of object ({problem}); use another name") from None


def _received(state: Any) -> _native.Block:
    return reductions.received(state)[1]


def _shown(thing: object, facts: Callable[[], str]) -> str:
    """Return a repr without raising, also if __init__ failed or a forked process does not hold the object."""
    try:
        known = facts()
    except (AttributeError, ClientUnavailable):
        known = _NOT_HELD
    name = vars(thing).get("_name")
    return f"<{type(thing).__name__}({known}{'' if name is None else f', name={name!r}'})>"


class SemLock(reductions.Shared):
    """Base of locks and semaphores."""

    _semlock: Any

    def _use(self, semlock: Any) -> None:
        self._semlock = semlock
        self.acquire: Callable[..., bool] = semlock.acquire
        self.release: Callable[..., None] = semlock.release

    def __enter__(self) -> bool:
        return self._semlock.acquire()  # type: ignore[no-any-return]

    def __exit__(self, *args: object) -> None:
        self._semlock.release()

    def __getstate__(self) -> Any:
        return self._share(self._semlock.block)

    def _holder(self) -> tuple[str, Any]:
        """Return (owner, recursion count) as in the repr of the standard locks."""
        if self._semlock._is_mine():
            name = process.current_process().name
            if threading.current_thread().name != "MainThread":
                name += "|" + threading.current_thread().name
            return name, self._semlock._count()
        if self._semlock._get_value() == 1:
            return "None", 0
        return ("SomeOtherThread" if self._semlock._count() > 0 else "SomeOtherProcess"), "nonzero"


class Lock(SemLock):
    """A lock: `acquire(block=True, timeout=None)`, `release()`, `with`. Any process or thread may release it.

    If its owner is killed, the next one gets it within 100 ms, and its `owner_died` is True until it releases the lock:
    the data that the lock protects may be inconsistent.

    Raises:
        ValueError: released while not held.
        OutOfMemory, ManagerError: no shared memory for it.
        InvalidArgument: `name` is malformed, or used for another kind of object.
        NameTaken, UnknownHandle, ManagerUnavailable: as SimpleQueue, for a name.
    """

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        """Create a lock, or open an existing one by name.

        Args:
            ctx: the context that creates it; not used.
            name: letters, digits, '_', '-' and '.'.
            create: as for SimpleQueue.
            timeout: as for SimpleQueue.
        """

        def over(block: _native.Block, fresh: bool) -> _native.Mutex:
            return _native.Mutex(block, False, fresh)

        self._use(_make(_native.LOCK_BYTES, over, name, create, timeout))
        self._name = name

    def __setstate__(self, state: Any) -> None:
        self._use(_native.Mutex(_received(state), False, False))

    @property
    def owner_died(self) -> bool:
        """Whether the current owner took the lock from a process that died: data it protects may be inconsistent."""
        return bool(self._semlock.owner_died)

    @property
    def owner_pid(self) -> int | None:
        """Process id of the owner, for a program that hangs: a snapshot. Does not block.

        None: the lock is free, or its owner has died and nobody has acquired the lock since, or is in a PID namespace
        that the manager does not see. It is the id in the manager's PID namespace, but this process's own id here.
        """
        return self._semlock.owner_pid  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return _shown(self, lambda: f"owner={self._holder()[0]}")


class RLock(SemLock):
    """A lock that its owner, a thread of a process, may acquire several times. Otherwise as Lock.

    Raises:
        AssertionError: released by a thread or process that is not its owner.
    """

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        """Create a lock, or open an existing one by name. Arguments as for Lock."""

        def over(block: _native.Block, fresh: bool) -> _native.Mutex:
            return _native.Mutex(block, True, fresh)

        self._use(_make(_native.LOCK_BYTES, over, name, create, timeout))
        self._name = name

    def __setstate__(self, state: Any) -> None:
        self._use(_native.Mutex(_received(state), True, False))

    @property
    def owner_died(self) -> bool:
        """Whether the current owner took the lock from a process that died, as Lock.owner_died."""
        return bool(self._semlock.owner_died)

    @property
    def owner_pid(self) -> int | None:
        """Process id of the owner, as Lock.owner_pid."""
        return self._semlock.owner_pid  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return _shown(self, lambda: "{}, {}".format(*self._holder()))


class Semaphore(SemLock):
    """A semaphore: `acquire(block=True, timeout=None)`, `release()`. Any process or thread may release it.

    Raises:
        ValueError: the value is below 0 or above SEM_VALUE_MAX.
        OutOfMemory, ManagerError, InvalidArgument: as Lock.
    """

    _BOUNDED = False

    def __init__(
        self,
        value: int | None = None,
        *,
        ctx: Any = None,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a semaphore with `value` free units, or open an existing one by name.

        Args:
            value: None: 1, or the value that another process gives for this name. The first process to give one sets
                it; units that were acquired by then stay acquired.
            ctx: the context that creates it; not used.
            name: as for Lock.
            create: as for SimpleQueue.
            timeout: as for SimpleQueue.

        Raises:
            InvalidArgument: another value was set for this name, or more units are acquired already.
        """
        if value is not None:
            value = _whole(value, "units of a semaphore")
        if value is not None and not 0 <= value <= SEM_VALUE_MAX:
            raise ValueError(f"the value of a semaphore must be 0 to {SEM_VALUE_MAX}, not {value}")
        first = 1 if value is None and (name is None or create) else value

        def over(block: _native.Block, fresh: bool) -> _native.Units:
            units = _native.Units(block, self._BOUNDED, fresh)
            if fresh and first is not None:
                units.first(first)
            return units

        self._use(_make(_native.LOCK_BYTES, over, name, create, timeout))
        found = first if first is None else self._semlock.first(first)
        if found != first:
            has = f"exists with value {found}" if found is not None else "already had more units acquired or released"
            raise InvalidArgument(
                f"the semaphore {name!r} {has}, not {first}; leave the value out, or use another name"
            )
        self._name = name

    def __setstate__(self, state: Any) -> None:
        self._use(_native.Units(_received(state), self._BOUNDED, False))

    def get_value(self) -> int:
        """Return the number of free units. Does not block."""
        return self._semlock._get_value()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return _shown(self, lambda: f"value={self.get_value()}")


class BoundedSemaphore(Semaphore):
    """A semaphore whose value never exceeds its initial value.

    Raises:
        ValueError: released more often than acquired, or as Semaphore.
    """

    _BOUNDED = True

    def __repr__(self) -> str:
        return _shown(self, lambda: f"value={self.get_value()}, maxvalue={self._semlock.maxvalue}")


class _Number:
    """A stand-in for a semaphore of the standard condition, whose value programs read."""

    def __init__(self, value: Callable[[], int]) -> None:
        self.get_value = value


class Condition(reductions.Shared):
    """A condition variable: `wait`, `wait_for`, `notify`, `notify_all` with its lock held. Up to 504 threads can wait.

    A waiting process that is killed consumes no notification and does not block `notify`.

    Raises:
        AssertionError: the lock is not held.
        OutOfMemory, ManagerError, InvalidArgument: as Lock.
    """

    def __init__(
        self,
        lock: Any = None,
        *,
        ctx: Any = None,
        name: str | None = None,
        create: bool | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a condition, or open an existing one by name.

        Args:
            lock: a Lock or RLock; None: a new RLock. Not with a name, which includes a lock.
            ctx: the context that creates it; not used.
            name: as for Lock.
            create: as for SimpleQueue.
            timeout: as for SimpleQueue.
        """
        if lock is not None and name is not None:
            raise InvalidArgument("a named condition has its own lock; give lock or name, not both")
        if name is not None:
            reductions.name_of(name)  # checked here, so that an error shows the name as given
        known = None if name is None else f"{name}.waiters"
        wait_queue = _make(
            _native.wait_queue_bytes(_native.WAIT_QUEUE_ENTRIES), _native.WaitQueue, known, create, timeout
        )
        self._use(lock or RLock(name=name), wait_queue)
        self._name = name

    def _use(self, lock: Any, wait_queue: _native.WaitQueue) -> None:
        self._lock = lock
        self._wait_queue = wait_queue
        self.acquire: Callable[..., bool] = lock.acquire
        self.release: Callable[..., None] = lock.release
        self._sleeping_count = _Number(wait_queue.waiting)
        self._woken_count = self._wait_semaphore = _Number(lambda: 0)

    def __getstate__(self) -> Any:
        return self._share(self._wait_queue.block), self._lock

    def __setstate__(self, state: Any) -> None:
        block, lock = state
        self._use(lock, _native.WaitQueue(_received(block), False))

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *args: object) -> Any:
        return self._lock.__exit__(*args)

    def __repr__(self) -> str:
        return _shown(self, lambda: f"{self._lock}, {self._wait_queue.waiting()}")

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, block until notified or for `timeout` seconds, then acquire the lock again.

        Returns:
            Whether it was notified.

        Raises:
            QuotaExceeded: the maximum number of threads wait for this condition.
        """
        semlock = self._lock._semlock
        assert semlock._is_mine(), "must acquire() condition before using wait()"
        place = self._wait_queue.enter()
        if place is None:
            raise QuotaExceeded(
                f"{self._wait_queue.capacity} threads wait for this condition, which is the maximum; use several ones"
            )
        count = semlock._count()
        for _ in range(count):
            self._lock.release()
        try:
            return place.wait(timeout)
        except BaseException:
            if place.leave():  # notified after all: pass the notification on
                self._wait_queue.notify(1)
            raise
        finally:
            for _ in range(count):
                self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until `predicate()` is true, up to `timeout` seconds. Returns its last value."""
        end = None if timeout is None else monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """Wake the `n` threads that have waited longest. Does not block."""
        assert self._lock._semlock._is_mine(), "lock is not owned"
        self._wait_queue.notify(max(0, min(n, SEM_VALUE_MAX)))

    def notify_all(self) -> None:
        """Wake all waiting threads. Does not block."""
        self.notify(SEM_VALUE_MAX)


class Event(reductions.Shared):
    """A flag that processes can wait for: `set`, `clear`, `is_set`, `wait`.

    Raises:
        OutOfMemory, ManagerError, InvalidArgument: as Lock.
    """

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        """Create an event that is not set, or open an existing one by name.

        Args:
            ctx: the context that creates it; not used.
            name: as for Lock.
            create: as for SimpleQueue.
            timeout: as for SimpleQueue.
        """
        self._flag = _make(_native.LOCK_BYTES, _native.Flag, name, create, timeout)
        self._name = name

    def __getstate__(self) -> Any:
        return self._share(self._flag.block)

    def __setstate__(self, state: Any) -> None:
        self._flag = _native.Flag(_received(state), False)

    def is_set(self) -> bool:
        """Whether the event is set. Does not block."""
        return self._flag.is_set()

    def set(self) -> None:
        """Set the event and wake all waiting threads. Does not block."""
        self._flag.set()

    def clear(self) -> None:
        """Reset the event. Does not block."""
        self._flag.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the event is set, up to `timeout` seconds. Returns whether it is set."""
        return self._flag.wait(timeout)

    def __repr__(self) -> str:
        try:
            status = "set" if self.is_set() else "unset"
        except (AttributeError, ClientUnavailable):
            status = _NOT_HELD
        name = vars(self).get("_name")
        return f"<{type(self).__qualname__} at {id(self):#x} {'' if name is None else f'name={name!r} '}{status}>"


class Barrier(reductions.Shared, threading.Barrier):
    """A barrier for a fixed number of threads. If one dies while it waits, the barrier breaks for the others.

    Raises:
        threading.BrokenBarrierError: from `wait`, if the barrier is broken or reset, timed out, or a waiter died.
        ValueError: `parties` is out of range.
        OutOfMemory, ManagerError: as Lock.
    """

    def __init__(
        self, parties: int, action: Callable[[], Any] | None = None, timeout: float | None = None, *, ctx: Any = None
    ) -> None:
        """Create a barrier, as threading.Barrier does.

        Args:
            parties: number of threads, 1 to 4,096.
            action: called by one of them when all have arrived.
            timeout: default timeout of `wait` in seconds; None: none.
            ctx: the context that creates it; not used.
        """
        parties = _whole(parties, "parties of a barrier")
        if not 1 <= parties <= _MAX_PARTIES:
            raise ValueError(f"the number of parties of a barrier must be 1 to {_MAX_PARTIES}, not {parties!r}")
        wait_queue = _make(_native.wait_queue_bytes(parties), _native.WaitQueue)
        # All parties may wait in the condition, and those of the next round for them to leave.
        cond = Condition.__new__(Condition)
        cond._use(Lock(), _make(_native.wait_queue_bytes(2 * parties), _native.WaitQueue))
        self._use(parties, action, timeout, cond, wait_queue)

    def _use(
        self, parties: int, action: Any, timeout: float | None, cond: Condition, wait_queue: _native.WaitQueue
    ) -> None:
        self._parties = parties
        self._action = action
        self._timeout = timeout
        self._cond: Any = cond
        self._wait_queue = wait_queue

    def __getstate__(self) -> Any:
        return self._parties, self._action, self._timeout, self._cond, self._share(self._wait_queue.block)

    def __setstate__(self, state: Any) -> None:
        parties, action, timeout, cond, block = state
        self._use(parties, action, timeout, cond, _native.WaitQueue(_received(block), False))

    def __repr__(self) -> str:
        try:
            return super().__repr__()
        except (AttributeError, ClientUnavailable):
            return f"<{type(self).__qualname__} at {id(self):#x}: {_NOT_HELD}>"

    # The standard class has these two as attributes. Here the count includes only waiting threads that are alive.

    @property
    def _state(self) -> int:
        return self._wait_queue.state

    @_state.setter
    def _state(self, value: int) -> None:
        self._wait_queue.state = value

    @property
    def _count(self) -> int:
        return self._wait_queue.waiting()

    def wait(self, timeout: float | None = None) -> int:
        """Block until all parties have arrived, up to `timeout` seconds.

        Returns:
            A number from 0 to parties - 1, different for each thread.
        """
        if timeout is None:
            timeout = self._timeout
        if timeout is not None and isnan(timeout):
            raise ValueError("timeout is not a number")
        with self._cond:
            self._enter()
            if self._wait_queue.forget_dead(False):
                self._break()
                raise threading.BrokenBarrierError
            place = self._wait_queue.enter()
            if place is None:
                raise ValueError(
                    f"more than {self._parties} threads wait in this barrier, which is for {self._parties}"
                )
            index = self._count - 1
            try:
                if index + 1 == self._parties:
                    self._release()  # type: ignore[attr-defined]  # of the standard class
                else:
                    self._await(place, timeout)
                return index
            finally:
                place.leave()
                self._exit()

    def _enter(self) -> None:
        # Wait while threads of the previous round are leaving; those that died do not count.
        while self._state in (-1, 1):
            self._cond.wait(_LOOK)
            self._exit()
        if self._state < 0:
            raise threading.BrokenBarrierError

    def _await(self, place: _native.WaitQueueEntry, timeout: float | None) -> None:
        end = None if timeout is None else monotonic() + timeout
        while self._state == 0:
            left = _LOOK if end is None else min(_LOOK, end - monotonic())
            if left <= 0 or place.has_dead():
                self._break()
                break
            self._cond.wait(left)
        if self._state < 0:
            raise threading.BrokenBarrierError

    def _exit(self) -> None:
        if self._state in (-1, 1):
            self._wait_queue.forget_dead(False)
            if self._count == 0:
                self._state = 0
                self._cond.notify_all()

    def _break(self) -> None:
        self._wait_queue.forget_dead(True)
        self._state = -2
        self._cond.notify_all()
