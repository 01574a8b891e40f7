"""The event loop of a link process, and threads that wait for it in shared memory."""

from __future__ import annotations

import heapq
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any

Callback = Callable[..., None]


class Loop:
    """Runs callbacks in one thread, until `stop`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = count()
        self._calls: deque[tuple[Callback, tuple[Any, ...]]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._running = True
        self.watch(self._wake, select.EPOLLIN, lambda events: None)

    def watch(self, descriptor: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back when an event happens to a descriptor."""
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        """Change the events of a descriptor."""
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed."""
        if self._callbacks.pop(descriptor, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    def later(self, seconds: float, callback: Callback) -> None:
        """Call back once, after `seconds`."""
        heapq.heappush(self._timers, (monotonic() + seconds, next(self._numbers), callback))

    def call(self, callback: Callback, *arguments: Any) -> None:
        """Call back soon. May be called from any thread."""
        self._calls.append((callback, arguments))
        with suppress(BlockingIOError, OSError):
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Let `run` return."""
        self._running = False

    def run(self, after: Callback) -> None:
        """Run until `stop`. `after` is called after each round of callbacks."""
        while self._running:
            timeout = max(0.0, self._timers[0][0] - monotonic()) if self._timers else None
            for descriptor, events in self._epoll.poll(timeout):
                if descriptor == self._wake:
                    with suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                elif (callback := self._callbacks.get(descriptor)) is not None:
                    callback(events)
            for _ in range(len(self._calls)):
                call, arguments = self._calls.popleft()
                call(*arguments)
            now = monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            after()

    def close(self) -> None:
        """Close the descriptors of the loop itself."""
        self._epoll.close()
        os.close(self._wake)


class Waiter:
    """A thread that, once armed, waits for a change in shared memory, for which there is no descriptor."""

    _SLICE = 0.5  # seconds between checks whether the link ends

    def __init__(self, loop: Loop, wait: Callable[[float, int], bool], callback: Callback) -> None:
        """Does not wait yet.

        Args:
            loop: loop in which `callback` is called after the change.
            wait: `wait(seconds, seen)` blocks up to `seconds` and returns whether the change has happened.
            callback: called without arguments.
        """
        self._loop = loop
        self._wait = wait
        self._callback = callback
        self._seen = 0
        self._waiting = False
        self._armed = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def arm(self, seen: int = 0) -> None:
        """Wait for the next change after `seen`, and call back once. A wait in progress continues."""
        if not self._waiting:
            self._seen = seen
            self._waiting = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._armed.set()

    def _run(self) -> None:
        while not self._closed:
            self._armed.wait()
            self._armed.clear()
            while not self._closed and not self._wait(self._SLICE, self._seen):
                pass
            self._waiting = False
            if not self._closed:
                self._loop.call(self._callback)

    def close(self) -> None:
        """End the thread. Blocks for half a second at most."""
        self._closed = True
        self._armed.set()
        if self._thread is not None:
            self._thread.join()
