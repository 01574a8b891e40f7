"""The frames of a running group. While there are watchers, one thread reads its memory, and another asks its manager.

The manager gets one request a second (STATS), regardless of the number of blocks and watchers, and none without
watchers.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from time import CLOCK_MONOTONIC, clock_gettime_ns, monotonic, time

from shmtensor.errors import ManagerError, ManagerTimeout, ShmTensorError
from shmtensor.manager import protocol
from shmtensor.manager.connection import Observer
from shmtensor.manager.monitor.page.picture import Picture, difference, is_empty
from shmtensor.manager.monitor.page.sampler import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shmtensor.manager.monitor.page.picture import Frame

ASK_SECONDS = 1.0
"""Interval between requests to the manager."""
CONNECT_SECONDS = 5.0
"""How long a manager may take to accept a connection."""
SILENT_SECONDS = 3.0
"""A manager without an answer for this long is shown as one that does not answer."""
HISTORY_POINTS = 3600
"""Length of the timeline that a new watcher gets, one point a second."""
FRAMES_KEPT = 64
"""A watcher that is behind by more frames gets all tables again."""
FIGURES = (
    "address",
    "pid",
    "version",
    "epoch",
    "uptime_seconds",
    "max_bytes",
    "max_bytes_per_client",
    "charged_bytes",
    "names",
    "requests",
    "refused",
)
"""Fields of STATS in a picture."""


class Live:
    """Frames of the group of the manager at one address, for any number of watchers, each in its own thread."""

    def __init__(self, address: bytes, rate: float) -> None:
        """Prepare; nothing is read before `frames` is used.

        Args:
            address: path of the manager's socket. While no manager runs there, the pictures are empty.
            rate: pictures per second.
        """
        self._address = address
        self._interval = 1 / rate
        self._lock = threading.Lock()
        self._watch: _Watch | None = None
        self._history: deque[list[float]] = deque(maxlen=HISTORY_POINTS)

    def frames(self, start: float = 0.0, speed: float = 1.0) -> Iterator[Frame | None]:
        """Yield frames as they are made, without end; the first has all tables. `start` and `speed` are ignored.

        None is yielded after each second without a frame.
        """
        with self._lock:
            watch = self._watch = self._watch or _Watch(self._address, self._interval, self._history)
            watch.watchers += 1
        try:
            yield from watch.frames()
        finally:
            with self._lock:
                watch.watchers -= 1
                if not watch.watchers:
                    watch.ended.set()
                    self._watch = None


class _Watch:
    """The threads that make frames, from the first watcher to the last."""

    def __init__(self, address: bytes, interval: float, history: deque[list[float]]) -> None:
        self.watchers = 0
        self.ended = threading.Event()
        self._address = address
        self._interval = interval
        self._history = history
        self._manager: tuple[int, int] | None = None  # pid and group
        self._figures: dict[str, Any] = {}
        self._problem = ""
        self._asked = monotonic()
        self._changed = threading.Condition()
        self._picture: Picture | None = None
        self._frames: deque[Frame] = deque(maxlen=FRAMES_KEPT)  # the last ones that led to `_picture`
        self._count = 0
        for work in (self._ask, self._look):
            threading.Thread(target=work, name=f"page{work.__name__}", daemon=True).start()

    def frames(self) -> Iterator[Frame | None]:
        seen = -1
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._count not in (0, seen), ASK_SECONDS):  # noqa: B023
                    ready: list[Frame] | None = None
                elif seen < 0 or self._count - seen > len(self._frames):
                    ready = [difference(None, self._picture or Picture()) | {"history": list(self._history)}]
                else:
                    ready = list(self._frames)[seen - self._count :]
                seen = self._count or -1
            if ready is None:
                yield None
            else:
                yield from ready

    def _ask(self) -> None:
        """Find the manager, and keep its figures up to date."""
        while not self.ended.is_set():
            try:
                with Observer(self._address, CONNECT_SECONDS) as observer:
                    while not self.ended.is_set():
                        stats = json.loads(observer.document(protocol.Stats()))
                        self._manager = (observer.welcome.pid, observer.welcome.group)
                        self._figures = {name: stats[name] for name in FIGURES}
                        self._asked = monotonic()
                        self.ended.wait(ASK_SECONDS)
            except ManagerTimeout as problem:
                self._problem = str(problem)
                continue  # it is stopped; its known memory can still be read
            except ShmTensorError as problem:
                self._manager, self._problem = None, str(problem)
            self.ended.wait(ASK_SECONDS)

    def _look(self) -> None:
        """Make a frame in each interval."""
        sampler: Sampler | None = None
        of: tuple[int, int] | None = None
        while not self.ended.is_set():
            begun = monotonic()
            if of != self._manager:
                if sampler is not None:
                    sampler.close()
                sampler, of = None, self._manager
                try:
                    sampler = of and Sampler(*of)
                except ManagerError as problem:
                    of, self._problem = None, str(problem)
            picture = sampler.picture() if sampler else Picture()
            picture.t, picture.now = time(), clock_gettime_ns(CLOCK_MONOTONIC) // 1_000_000_000
            picture.tables["manager"]["manager"] = self._row() if sampler else {"problem": self._problem}
            if sampler or self._problem:
                self._publish(picture)
            self.ended.wait(max(0.0, begun + self._interval - monotonic()))
        if sampler is not None:
            sampler.close()

    def _row(self) -> dict[str, Any]:
        silent = monotonic() - self._asked > SILENT_SECONDS
        return {**self._figures, "problem": "the manager does not answer; it may be stopped" if silent else ""}

    def _publish(self, picture: Picture) -> None:
        with self._changed:
            if self._picture is not None:
                frame = difference(self._picture, picture)
                if is_empty(frame):
                    return
                self._frames.append(frame)
            self._picture = picture
            self._count += 1
            if not self._history or picture.t - self._history[-1][0] >= 1:
                self._history.append(picture.totals())
            self._changed.notify_all()
