"""The tasks of an event loop that wait for messages of one queue, or of one reader of a broadcast.

Imported by the first coroutine that uses a queue: asyncio takes a fifth of the time that importing queues takes.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from queue import Empty
from typing import Any, Final, Protocol


def of_running_loop(known: MutableMapping[asyncio.AbstractEventLoop, Tasks]) -> Tasks:
    """Return the tasks of the running loop, of those known or new ones. Raises RuntimeError: none is running."""
    loop = asyncio.get_running_loop()
    return known.get(loop) or known.setdefault(loop, Tasks(loop))


class _Source(Protocol):
    """A source of messages: a queue, or a reader of a broadcast."""

    def qsize(self) -> int: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any: ...
    def fileno(self) -> int: ...


class Tasks:
    """The state that the tasks of one event loop share for one queue."""

    MOMENT: Final = 0.001
    """Seconds that a task may block its loop while another process holds the lock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.put_lock: asyncio.Lock = asyncio.Lock()
        self.get_lock: asyncio.Lock = asyncio.Lock()
        self._loop = weakref.ref(loop)
        self._waiting: asyncio.Future[None] | None = None

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that blocks, in a thread of the loop's default executor."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)

    async def get(self, source: _Source) -> Any:
        """Return the next message. Tasks take turns in the order of their calls."""
        async with self.get_lock:
            while True:
                some = source.qsize() > 0
                try:
                    return source.get(some, self.MOMENT)
                except Empty:
                    if some:  # another process holds the lock
                        await asyncio.sleep(10 * self.MOMENT)
                    else:
                        await self._readable(source.fileno())

    async def _readable(self, descriptor: int) -> None:
        """Wait until there may be a message, or the queue is closed. The caller holds `get_lock`."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        loop.add_reader(descriptor, self._wake)
        try:
            await self._waiting
        finally:
            loop.remove_reader(descriptor)
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def look_again(self) -> None:
        """Make a task that waits for a message check again. May be called from any thread."""
        loop = self._loop()
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._wake)
