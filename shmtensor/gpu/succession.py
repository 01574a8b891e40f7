"""Descriptors of device memory for the next manager, which cannot reopen them by itself (docs/gpu.md, "Memory").

A client usually notices the end of its manager when it next needs one. Other processes may need its descriptors
earlier, so each process that has some also has a thread that sleeps until its manager ends, and joins the next one.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING, Final

from ..errors import ShmTensorError

if TYPE_CHECKING:
    from ..manager.connection import Requests
    from ..manager.membership import Manager

FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.25
"""Pauses (seconds) between searches for the next manager, which is started by a process that needs it."""

_watches: Final[dict[int, _Watch]] = {}
"""Watches by the id of their client, which a watch keeps alive."""
_starting = threading.Lock()


class _Watch:
    """The thread of one client."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="shmtensor-gpu-succession", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        manager = self._manager
        while not self._sleep_until_it_ends(broken := manager.requests):
            pause = FIRST_PAUSE
            while broken is manager.requests and broken.is_current():
                if self._sleep(seconds=pause):
                    return
                pause = min(2 * pause, LONGEST_PAUSE)
            try:
                manager.rejoin(broken)
            except (ShmTensorError, OSError):  # that one ended as well, or has no room: search again
                if self._sleep(seconds=LONGEST_PAUSE):
                    return

    def _sleep_until_it_ends(self, requests: Requests) -> bool:
        """Sleep until the manager or the watch has ended. Returns whether the watch has."""
        try:
            socket = os.dup(self._manager.native.connection)
        except OSError:  # no descriptors are left
            return self._sleep(seconds=LONGEST_PAUSE)
        try:
            return requests is self._manager.requests and self._sleep(socket)
        finally:
            os.close(socket)

    def _sleep(self, socket: int = -1, seconds: float | None = None) -> bool:
        """Sleep until a socket's other end is closed, `seconds` pass, or the watch ends. Returns whether it ended."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if socket >= 0:
            poll.register(socket, select.POLLRDHUP)
        return any(number == self._end for number, _ in poll.poll(None if seconds is None else 1000 * seconds))

    def end(self) -> None:
        """End the thread. Blocks until it has ended, which takes at most as long as a handshake with a manager."""
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)

    def forget(self) -> None:
        """Close a forked child's copies of its descriptors."""
        os.close(self._end)


def watch(manager: Manager) -> None:
    """Make this process give its descriptors to the successors of a manager. Does not block."""
    with _starting:
        if id(manager) not in _watches:
            _watches[id(manager)] = _Watch(manager)


def leave(manager: Manager) -> None:
    """End the watch, before a client leaves its group. Blocks for the thread."""
    with _starting:
        found = _watches.pop(id(manager), None)
    if found is not None:
        found.end()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()
    for watched in _watches.values():
        watched.forget()
    _watches.clear()


os.register_at_fork(after_in_child=_after_fork)
