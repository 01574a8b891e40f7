"""The order of work on devices between processes: timelines, and releases that wait for streams (docs/gpu.md, "Order").

`put` marks a point in the sender's stream, and `get` makes the receiver's stream wait for it; the CPU does not wait.
Objects that a stream may still use are kept until its work has ended (`keep_until_done`).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from multiprocessing import util
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from .. import _native
from ..errors import OwnerDied, ShmTensorError
from . import driver

if TYPE_CHECKING:
    from ..manager.membership import Manager

BATCH_SECONDS: Final = 0.001
"""Releases within this time share one point; also the pause between two checks of pending points."""
LONGEST_PAUSE: Final = 0.020
EXIT_SECONDS: Final = 10.0
"""Maximum time that a process waits for its streams at its end, because others may wait for tensors that it sent."""
LINES: Final = 64
"""Maximum number of timelines of a process; further streams share them."""


class Order:
    """The timelines of one client, and the objects that its streams still use. Thread-safe."""

    def __init__(self, manager: Manager) -> None:
        """Register the table of timelines with the driver. Raises DeviceUnavailable."""
        self._native = manager.native
        self._timelines = _native.Timelines(manager.native.group)
        self._lines: dict[tuple[int, int], int] = {}  # (device, stream) -> timeline
        self._lock = threading.RLock()
        self._waiting: dict[int, deque[tuple[int, list[Any]]]] = {}  # timeline -> (point, kept objects), in order
        self._driver = current = driver.current()
        current.register(0, self._timelines.address, _native.TIMELINES_BYTES)
        self._timelines.use(current.stream_functions, current.device_pointer(self._timelines.address))

    def mark(self, device: int, stream: int) -> tuple[int, int]:
        """Return (timeline, point) that a stream reaches after the work submitted so far. Does not block.

        If the stream has no work left, it is point 0, which always counts as reached.

        Raises:
            DeviceUnavailable: the driver refused, or all timelines of the group are in use.
        """
        line = self._lines.get((device, stream))
        if line is None:
            line = self._line_of(device, stream)
        point = self._timelines.mark(line, self._driver.context(device), stream)
        if point < 0:
            raise driver.DriverError("cuStreamWriteValue64", -point, f"for stream {stream:#x} of cuda:{device}")
        return line, point

    def is_idle(self, device: int, stream: int) -> bool:
        """Whether a stream has no work left, according to the driver. Does not block."""
        return self._timelines.is_idle(self._driver.context(device), stream)

    def _line_of(self, device: int, stream: int) -> int:
        with self._lock:
            if len(self._lines) >= LINES:
                self._drop_idle()
            line = self._timelines.claim(self._native.slot, self._native.generation)
            if line < 0:
                raise driver.DriverError(
                    "a timeline",
                    driver.NOT_SUPPORTED,
                    f"all {_native.TIMELINES} of the group are in use; use fewer streams",
                )
            self._lines[device, stream] = line
            return line

    def _drop_idle(self) -> None:
        """Give back the timelines of streams without pending points: many of these streams do not exist any more."""
        for key, line in list(self._lines.items()):
            facts = self._timelines.facts(line)
            if facts.completed >= facts.issued:
                del self._lines[key]
                self._timelines.give_back(line)

    def wait(self, timeline: int, point: int, device: int, stream: int) -> bool:
        """Make the later work of a stream wait for a point. Does not block.

        Returns:
            False: it has been reached already, and nothing was done.

        Raises:
            OwnerDied: the work before that point was lost.
            DeviceUnavailable: the driver refused.
        """
        if self._timelines.is_reached(timeline, point):
            self.check(timeline, point)
            return False
        code = self._timelines.wait(timeline, point, self._driver.context(device), stream)
        if code:
            raise driver.DriverError("cuStreamWaitValue64", code, f"for stream {stream:#x} of cuda:{device}")
        return True

    def is_over(self, timeline: int, point: int) -> bool:
        """Whether a point has been reached. Does not block. Raises OwnerDied: the work before it was lost."""
        if not self._timelines.is_reached(timeline, point):
            return False
        self.check(timeline, point)
        return True

    def check(self, timeline: int, point: int) -> None:
        """Raise OwnerDied if the work before a point was lost, because its process was killed."""
        if self._timelines.is_lost(timeline, point):
            raise OwnerDied(
                "the content of a tensor on a GPU is lost: the process that sent it was killed before the GPU had "
                "computed it; send it again, or make the sender call shmtensor.cuda.synchronize() before it sends"
            )

    def facts(self, timeline: int) -> _native.TimelineFacts:
        """Return a line of the table."""
        return self._timelines.facts(timeline)

    # -- what streams still use ------------------------------------------------------------------------------------

    def keep(self, kept: list[Any], device: int, stream: int) -> None:
        """Keep objects until a stream has passed its work so far. May block if the stream does not exist any more."""
        try:
            line, point = self.mark(device, stream)
        except driver.DriverError:  # the stream was destroyed, with work left
            self._driver.synchronize(device)
            return
        with self._lock:
            self._waiting.setdefault(line, deque()).append((point, kept))

    def collect(self) -> bool:
        """Release objects that no stream uses any more. Returns whether any are left. Does not block."""
        done = []
        with self._lock:
            for line, waiting in list(self._waiting.items()):
                while waiting and self._timelines.is_reached(line, waiting[0][0]):
                    done.append(waiting.popleft())
                if not waiting:
                    del self._waiting[line]
            left = bool(self._waiting)
        del done  # outside of the lock, because finalizers may release more
        return left

    def settle(self) -> None:
        """Release all objects that were given up so far and that no stream uses any more. Does not block."""
        flush()
        if self.collect():
            _wakes.put(None)  # the thread releases the others
            _ensure_thread()

    def close(self) -> None:
        """Give the timelines back, and end the registration of the table."""
        for line in self._lines.values():
            self._timelines.give_back(line)
        self._lines.clear()
        self._driver.unregister(self._timelines.address)

    def finish(self) -> None:
        """Wait until the streams have reached all points, since other processes wait for them. Blocks."""
        deadline = monotonic() + EXIT_SECONDS
        for line in self._lines.values():
            while monotonic() < deadline:
                facts = self._timelines.facts(line)
                if facts.completed >= facts.issued:
                    break
                sleep(BATCH_SECONDS)


# ------------------------------------------------------------------------------------------------ of this process

_orders: dict[int, tuple[Manager, Order]] = {}
_released: Final[deque[tuple[Any, int, Any]]] = deque()
"""Released objects: (owner, device, stream). Finalizers append to it."""
_wakes: SimpleQueue[None] = SimpleQueue()
"""Queue on which the thread waits, and into which finalizers put."""
_thread: threading.Thread | None = None
_is_working = False
"""Whether the thread may be processing objects. It sets this before it takes any from `_released`."""
_starting: Final = threading.Lock()


def of(manager: Manager) -> Order:
    """Return the order of a client. Raises DeviceUnavailable."""
    found = _orders.get(id(manager))
    if found is None:
        with _starting:
            found = _orders.get(id(manager))
            if found is None:
                if not _orders:
                    util.Finalize(None, _finish, exitpriority=100)
                found = _orders[id(manager)] = manager, Order(manager)
    return found[1]


def forget(manager: Manager) -> None:
    """End the order of a client that leaves its group. Blocks until its streams have reached all points."""
    found = _orders.get(id(manager))
    if found is not None and driver.is_in_use():
        flush()
        found[1].finish()
        found[1].collect()
        found[1].close()
        del _orders[id(manager)]


def _default() -> Order:
    from ..manager import client

    return of(client.default())


def keep_until_done(owner: Any, device: int, stream: Any) -> None:
    """Keep `owner` alive until the work that was submitted to a stream so far has ended. Does not block.

    It may be called from a finalizer.

    Args:
        owner: any object; the hold of a block of shared memory ends with it.
        device: number of the device.
        stream: handle of the stream, or an object with the handle as its attribute `ptr`.
    """
    _released.append((owner, device, stream))
    _wakes.put(None)
    _ensure_thread()


def _ensure_thread() -> None:
    global _thread
    if _thread is not None or driver.is_shutting_down():
        return
    if not _starting.acquire(blocking=False):  # a finalizer may interrupt this
        return
    try:
        if _thread is None:
            thread = threading.Thread(target=_run, name="shmtensor-gpu-release", daemon=True)
            thread.start()
            _thread = thread
    except RuntimeError:  # the interpreter is ending
        pass
    finally:
        _starting.release()


def order_of_owner(owner: Any) -> Order:
    """Return the order of the client of a block; any client's, if it has none yet or the owner is another object."""
    if isinstance(owner, _native.Block):
        for manager, order in list(_orders.values()):
            if manager.native is owner.client:
                return order
    return next(iter(_orders.values()))[1] if _orders else _default()


def flush() -> None:
    """Set points for all objects released so far: one for each client and stream. Does not block."""
    groups: dict[tuple[int, int, int], tuple[Order, list[Any]]] = {}
    with suppress(IndexError):
        while True:
            owner, device, stream = _released.popleft()
            order = order_of_owner(owner)
            handle = stream if isinstance(stream, int) else int(stream.ptr)
            groups.setdefault((id(order), device, handle), (order, []))[1].append((owner, stream))
    for (_, device, handle), (order, kept) in groups.items():
        order.keep(kept, device, handle)


def is_idle() -> bool:
    """Whether no released objects are kept any more. Does not block."""
    waiting = any(order._waiting for _, order in list(_orders.values()))
    return not _released and not _is_working and not waiting


def _run() -> None:
    """Set points for released objects, and free these once the points are reached. Runs in a thread."""
    global _thread, _is_working
    while True:
        _wakes.get()
        _is_working = True
        sleep(BATCH_SECONDS)
        with suppress(Empty):
            while True:
                _wakes.get_nowait()
        try:
            flush()
            pause = BATCH_SECONDS
            while [order for _, order in list(_orders.values()) if order.collect()]:
                sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                flush()
        except ShmTensorError:
            if driver.is_shutting_down():
                return
            _thread = None  # the next release starts another one
            raise
        finally:
            _is_working = False


def _finish() -> None:
    """Wait for the streams before this process ends, because other processes may wait for them."""
    if not driver.is_in_use():
        return
    with suppress(ShmTensorError):
        flush()
        for _, order in _orders.values():
            order.finish()


def _after_fork() -> None:
    """In a forked child, forget the parent's state: the driver does not work here, and no thread runs."""
    global _thread, _wakes, _starting, _is_working
    _orders.clear()
    _thread = None
    _is_working = False
    _released.clear()
    _wakes = SimpleQueue()
    _starting = threading.Lock()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
