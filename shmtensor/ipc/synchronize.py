"""Locks, semaphores, conditions, events and barriers between processes: the standard ones, which no death can hold.

Each is a block of shared memory with one word that says who holds it (native/base/layout.hpp, "Synchronisation").
Taking one that is free makes no system call. Where a holder was killed, the next taker has the lock, and can ask
whether that was so (`owner_died`); a wait sees that within 100 ms. A semaphore has no holder: whoever likes may release
what another acquired, so units that a killed process took stay taken, as in the standard library.
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
from ..errors import ForkedWithoutHold, InvalidArgument, QuotaExceeded
from ..manager import client
from . import reductions

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore"]

SEM_VALUE_MAX = 2**31 - 1
_LOOK = 0.1  # seconds between two looks whether a party of a barrier has died
_PARTIES = 4096  # of a barrier at most
_NOT_HELD = "not held by this process"
Made = TypeVar("Made")


def _whole(value: Any, what: str) -> int:
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"the {what} are a whole number, not {value!r}") from None


def _make(
    nbytes: int,
    over: Callable[[_native.Block, bool], Made],
    name: str | None = None,
    create: bool | None = None,
    timeout: float | None = None,
) -> Made:
    """`over(block, fresh)` for a fresh block; or for the one of this name, as Manager.open_or_create has it."""
    manager = client.default()

    def make() -> _native.Block:
        block = manager.allocate(nbytes)
        over(block, True)
        return block

    known = None if name is None else reductions.name_of(name)
    block, _ = manager.open_or_create(known, make, create, timeout)
    try:
        return over(block, False)
    except ValueError as problem:
        raise InvalidArgument(f"{name!r} is the name of an object of another kind ({problem}); use another") from None


def _received(state: Any) -> _native.Block:
    return reductions.received(state)[1]


def _shown(thing: object, facts: Callable[[], str]) -> str:
    """A repr that raises nothing: also of what could not be made, or what a forked process does not hold."""
    try:
        known = facts()
    except (AttributeError, ForkedWithoutHold):
        known = _NOT_HELD
    name = vars(thing).get("_name")
    return f"<{type(thing).__name__}({known}{'' if name is None else f', name={name!r}'})>"


class SemLock(reductions.Shared):
    """What locks and semaphores share."""

    _semlock: Any

    def _use(self, semlock: Any) -> None:
        self._semlock = semlock
        self.acquire = semlock.acquire
        self.release = semlock.release

    def __enter__(self) -> bool:
        return self._semlock.acquire()  # type: ignore[no-any-return]

    def __exit__(self, *args: object) -> None:
        self._semlock.release()

    def __getstate__(self) -> Any:
        return self._share(self._semlock.block)

    def _holder(self) -> tuple[str, Any]:
        """(who holds it, how often), as the standard locks are shown."""
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

    Raises:
        ValueError: released while nobody holds it.
        OutOfMemory, ManagerError: no shared memory for it.
        InvalidArgument: `name` cannot be one, or is something else's.
        NameTaken, UnknownHandle, ManagerUnavailable: as SimpleQueue, for a name.
    """

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        """Make a lock, or open the one of this `name` (letters, digits, '_', '-' and '.').

        Args:
            create, timeout: as SimpleQueue's: make it, or open it and wait for it.
        """

        def over(block: _native.Block, fresh: bool) -> _native.Mutex:
            return _native.Mutex(block, False, fresh)

        self._use(_make(_native.LOCK_BYTES, over, name, create, timeout))
        self._name = name

    def __setstate__(self, state: Any) -> None:
        self._use(_native.Mutex(_received(state), False, False))

    @property
    def owner_died(self) -> bool:
        """Whether who holds the lock took it from a process that died: what it guards may be half done."""
        return bool(self._semlock.owner_died)

    def __repr__(self) -> str:
        return _shown(self, lambda: f"owner={self._holder()[0]}")


class RLock(SemLock):
    """A lock that its holder, a thread of a process, may take several times. As Lock, but for:

    Raises:
        AssertionError: released by another thread or process than its holder.
    """

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        """Make a lock, or open the one of this `name`, as Lock does."""

        def over(block: _native.Block, fresh: bool) -> _native.Mutex:
            return _native.Mutex(block, True, fresh)

        self._use(_make(_native.LOCK_BYTES, over, name, create, timeout))
        self._name = name

    def __setstate__(self, state: Any) -> None:
        self._use(_native.Mutex(_received(state), True, False))

    @property
    def owner_died(self) -> bool:
        """As Lock.owner_died."""
        return bool(self._semlock.owner_died)

    def __repr__(self) -> str:
        return _shown(self, lambda: "{}, {}".format(*self._holder()))


class Semaphore(SemLock):
    """A number of units: `acquire(block=True, timeout=None)` takes one, `release()` gives one, by whomever.

    Raises:
        ValueError: a value below 0 or above SEM_VALUE_MAX.
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
        """Make a semaphore of `value` free units, or open the one of this `name`.

        Args:
            value: None: 1, or the one that another process gives the same name. The first to give one sets it; units
                that were taken by then stay taken.
            create, timeout: as SimpleQueue's: make it, or open it and wait for it.

        Raises:
            InvalidArgument: another value was given with this name, or more units are taken already.
        """
        if value is not None:
            value = _whole(value, "units of a semaphore")
        if value is not None and not 0 <= value <= SEM_VALUE_MAX:
            raise ValueError(f"a semaphore has 0 to {SEM_VALUE_MAX} units, not {value}")
        first = 1 if value is None and (name is None or create) else value

        def over(block: _native.Block, fresh: bool) -> _native.Units:
            units = _native.Units(block, self._BOUNDED, fresh)
            if fresh and first is not None:
                units.first(first)
            return units

        self._use(_make(_native.LOCK_BYTES, over, name, create, timeout))
        found = first if first is None else self._semlock.first(first)
        if found != first:
            has = (
                f"exists with {found} units" if found is not None else "has had more units taken, or released, already"
            )
            raise InvalidArgument(
                f"{name!r} {has}, and {first} were asked for; leave the value out, or use another name"
            )
        self._name = name

    def __setstate__(self, state: Any) -> None:
        self._use(_native.Units(_received(state), self._BOUNDED, False))

    def get_value(self) -> int:
        """Free units just now. Does not block."""
        return self._semlock._get_value()  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return _shown(self, lambda: f"value={self.get_value()}")


class BoundedSemaphore(Semaphore):
    """A semaphore that never has more free units than at first.

    Raises:
        ValueError: released more often than acquired; and as Semaphore.
    """

    _BOUNDED = True

    def __repr__(self) -> str:
        return _shown(self, lambda: f"value={self.get_value()}, maxvalue={self._semlock.maxvalue}")


class _Number:
    """A number that programs read from a standard condition's semaphores."""

    def __init__(self, value: Callable[[], int]) -> None:
        self.get_value = value


class Condition(reductions.Shared):
    """A condition: `wait`, `wait_for`, `notify`, `notify_all` with its lock held. At most 504 threads can wait.

    A waiter that is killed takes no notification with it, and keeps nobody who notifies.

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
        """Make a condition over `lock` (default: an RLock of its own), or open the one of this `name`.

        Args:
            create, timeout: as SimpleQueue's: make it, or open it and wait for it.
        """
        if lock is not None and name is not None:
            raise InvalidArgument("a condition of this name has a lock already; give one or the other")
        if name is not None:
            reductions.name_of(name)  # what is wrong with it is said of the name that was given
        known = None if name is None else f"{name}.crowd"
        crowd = _make(_native.crowd_bytes(_native.CROWD), _native.Crowd, known, create, timeout)
        self._use(lock or RLock(name=name), crowd)
        self._name = name

    def _use(self, lock: Any, crowd: _native.Crowd) -> None:
        self._lock = lock
        self._crowd = crowd
        self.acquire = lock.acquire
        self.release = lock.release
        self._sleeping_count = _Number(crowd.waiting)
        self._woken_count = self._wait_semaphore = _Number(lambda: 0)

    def __getstate__(self) -> Any:
        return self._share(self._crowd.block), self._lock

    def __setstate__(self, state: Any) -> None:
        block, lock = state
        self._use(lock, _native.Crowd(_received(block), False))

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *args: object) -> Any:
        return self._lock.__exit__(*args)

    def __repr__(self) -> str:
        return _shown(self, lambda: f"{self._lock}, {self._crowd.waiting()}")

    def wait(self, timeout: float | None = None) -> bool:
        """Let the lock go until notified, at most `timeout` seconds; then take it again.

        Returns:
            Whether it was notified.

        Raises:
            QuotaExceeded: as many wait as can.
        """
        semlock = self._lock._semlock
        assert semlock._is_mine(), "must acquire() condition before using wait()"
        place = self._crowd.enter()
        if place is None:
            raise QuotaExceeded(
                f"{self._crowd.capacity} threads wait for this condition, as many as can; use several conditions"
            )
        count = semlock._count()
        for _ in range(count):
            self._lock.release()
        try:
            return place.wait(timeout)
        except BaseException:
            if place.leave():  # what we were told is for somebody who still wants to know
                self._crowd.notify(1)
            raise
        finally:
            for _ in range(count):
                self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """`wait` until `predicate()` is true, at most `timeout` seconds; gives its last value."""
        end = None if timeout is None else monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """Wake the `n` who have waited longest. Does not block."""
        assert self._lock._semlock._is_mine(), "lock is not owned"
        self._crowd.notify(max(0, min(n, SEM_VALUE_MAX)))

    def notify_all(self) -> None:
        """Wake all who wait. Does not block."""
        self.notify(SEM_VALUE_MAX)


class Event(reductions.Shared):
    """A flag that processes wait for: `set`, `clear`, `is_set`, `wait`.

    Raises:
        OutOfMemory, ManagerError, InvalidArgument: as Lock.
    """

    def __init__(
        self, *, ctx: Any = None, name: str | None = None, create: bool | None = None, timeout: float | None = None
    ) -> None:
        """Make an event, not set, or open the one of this `name`.

        Args:
            create, timeout: as SimpleQueue's: make it, or open it and wait for it.
        """
        self._flag = _make(_native.LOCK_BYTES, _native.Flag, name, create, timeout)
        self._name = name

    def __getstate__(self) -> Any:
        return self._share(self._flag.block)

    def __setstate__(self, state: Any) -> None:
        self._flag = _native.Flag(_received(state), False)

    def is_set(self) -> bool:
        """Whether it is set. Does not block."""
        return self._flag.is_set()

    def set(self) -> None:
        """Set it: whoever waits goes on. Does not block."""
        self._flag.set()

    def clear(self) -> None:
        """It is not set any more. Does not block."""
        self._flag.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, at most `timeout` seconds; gives whether it was."""
        return self._flag.wait(timeout)

    def __repr__(self) -> str:
        try:
            status = "set" if self.is_set() else "unset"
        except (AttributeError, ForkedWithoutHold):
            status = _NOT_HELD
        name = vars(self).get("_name")
        return f"<{type(self).__qualname__} at {id(self):#x} {'' if name is None else f'name={name!r} '}{status}>"


class Barrier(reductions.Shared, threading.Barrier):
    """A number of parties that wait for each other. Should one die while it waits, the barrier breaks for the others.

    Raises:
        threading.BrokenBarrierError: from `wait`, when it is broken, reset, timed out, or a party died.
        ValueError: no parties, or too many.
        OutOfMemory, ManagerError: as Lock.
    """

    def __init__(
        self, parties: int, action: Callable[[], Any] | None = None, timeout: float | None = None, *, ctx: Any = None
    ) -> None:
        """As threading.Barrier.

        Args:
            parties: how many, 1 to 4,096.
            action: called by one of them when all have come.
            timeout: seconds that `wait` waits if it is not told.
        """
        parties = _whole(parties, "parties of a barrier")
        if not 1 <= parties <= _PARTIES:
            raise ValueError(f"a barrier is for 1 to {_PARTIES} parties, not {parties!r}")
        crowd = _make(_native.crowd_bytes(parties), _native.Crowd)
        # All parties may wait in the condition, and those of the next time for these to leave.
        cond = Condition.__new__(Condition)
        cond._use(Lock(), _make(_native.crowd_bytes(2 * parties), _native.Crowd))
        self._use(parties, action, timeout, cond, crowd)

    def _use(self, parties: int, action: Any, timeout: float | None, cond: Condition, crowd: _native.Crowd) -> None:
        self._parties = parties
        self._action = action
        self._timeout = timeout
        self._cond: Any = cond
        self._crowd = crowd

    def __getstate__(self) -> Any:
        return self._parties, self._action, self._timeout, self._cond, self._share(self._crowd.block)

    def __setstate__(self, state: Any) -> None:
        parties, action, timeout, cond, block = state
        self._use(parties, action, timeout, cond, _native.Crowd(_received(block), False))

    def __repr__(self) -> str:
        try:
            return super().__repr__()
        except (AttributeError, ForkedWithoutHold):
            return f"<{type(self).__qualname__} at {id(self):#x}: {_NOT_HELD}>"

    # The standard class keeps these two in attributes; the number of those who wait is here the number of those who
    # wait and live.

    @property
    def _state(self) -> int:
        return self._crowd.state

    @_state.setter
    def _state(self, value: int) -> None:
        self._crowd.state = value

    @property
    def _count(self) -> int:
        return self._crowd.waiting()

    def wait(self, timeout: float | None = None) -> int:
        """Block until all parties are here, at most `timeout` seconds.

        Returns:
            A number from 0 to parties - 1, another one for each.
        """
        if timeout is None:
            timeout = self._timeout
        if timeout is not None and isnan(timeout):
            raise ValueError("a timeout is not a number")
        with self._cond:
            self._enter()
            if self._crowd.forget_dead(False):
                self._break()
                raise threading.BrokenBarrierError
            place = self._crowd.enter()
            if place is None:
                raise ValueError(f"more than {self._parties} parties came to this barrier at once")
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
        # While those of the last time are still leaving. Who died leaving does not count.
        while self._state in (-1, 1):
            self._cond.wait(_LOOK)
            self._exit()
        if self._state < 0:
            raise threading.BrokenBarrierError

    def _await(self, place: _native.Place, timeout: float | None) -> None:
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
            self._crowd.forget_dead(False)
            if self._count == 0:
                self._state = 0
                self._cond.notify_all()

    def _break(self) -> None:
        self._crowd.forget_dead(True)
        self._state = -2
        self._cond.notify_all()
