"""Recordings of the page: written frame by frame, and replayed.

A recording is text with one JSON object per line. The first line is `{"shmtensor_recording": 1, ...}`, each further
line is a frame (`picture`). A frame with all tables comes first and then every KEY_SECONDS, so that a replay can start
in between. A last line that was cut off, because the recorder was killed, is ignored.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from bisect import bisect_right
from math import isfinite
from pathlib import Path
from time import monotonic, sleep

from shmtensor.errors import FileDamaged, InvalidArgument
from shmtensor.manager.monitor.page.picture import Picture, apply, difference, is_empty

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from shmtensor.manager.monitor.page.live import Live
    from shmtensor.manager.monitor.page.picture import Frame

VERSION = 1
KEY_SECONDS = 30.0
"""Interval between frames with all tables."""
POINTS = 3600
"""Maximum number of points of the timeline of a recording."""
PLAY_SECONDS = 0.1
"""Interval between the frames of a replay; recorded frames that fall into one are joined."""


class Recorder:
    """Writes the frames of a running group to a file, in a thread, until the process ends."""

    def __init__(self, source: Live, path: str) -> None:
        """Create the file (mode 0600) and start. Raises InvalidArgument: it exists already, or cannot be created."""
        self._path = path
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise InvalidArgument(f"cannot record to {path}: {problem.strerror}; give the path of a new file") from None
        self._file = os.fdopen(fd, "wb", buffering=0)
        self._source = source
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="page_record", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._write({"shmtensor_recording": VERSION})
            picture = Picture()
            key_at = 0.0
            for frame in self._source.frames():
                if self._stopped:
                    return
                if frame is None:
                    continue
                frame.pop("history", None)
                apply(picture, frame)
                if picture.t >= key_at:
                    key_at = picture.t + KEY_SECONDS
                    frame = difference(None, picture)
                self._write(frame)
        except OSError as problem:
            print(f"shmtensor-manager: recording to {self._path} ended: {problem.strerror}", file=sys.stderr)
        finally:
            self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        data = memoryview(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        while data:
            data = data[self._file.write(data) :]

    def close(self) -> None:
        """End the recording after a complete line. Blocks up to two seconds."""
        self._stopped = True
        self._thread.join(2)


class Replay:
    """Replays a recording, for any number of watchers, each in its own thread."""

    def __init__(self, path: str) -> None:
        """Read the whole recording once, and record the offsets of its frames.

        Raises:
            FileDamaged: it is not a recording of this version, or a line in it is damaged.
            InvalidArgument: it cannot be read.
        """
        self._path = path
        self._times: list[float] = []
        self._places: list[int] = []  # offset of the line of each frame
        self._keys: list[int] = []  # indices of frames with all tables
        self._history: list[list[float]] = []
        try:
            with Path(path).open("rb") as file:
                self._scan(file)
        except OSError as problem:
            raise InvalidArgument(f"cannot read the recording {path}: {problem.strerror}") from None
        self._history = _thinned(self._history)

    @property
    def seconds(self) -> float:
        """Length of the recording."""
        return self._times[-1] - self._times[0]

    def _scan(self, file: BinaryIO) -> None:
        picture = Picture()
        place = 0
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                frame = _parsed(line)
                if number == 1:
                    if frame["shmtensor_recording"] != VERSION:
                        raise ValueError(f"it has version {frame['shmtensor_recording']}, and not {VERSION}")
                else:
                    self._note(picture, frame, place)
            except (ValueError, KeyError, TypeError) as problem:
                raise FileDamaged(f"{self._path} is not a recording of the page: line {number}: {problem}") from None
            place += len(line)
        if not self._times:
            raise FileDamaged(f"{self._path} is not a recording of the page: it has no frames")

    def _note(self, picture: Picture, frame: Frame, place: int) -> None:
        apply(picture, frame)
        if self._times and picture.t < self._times[-1]:
            picture.t = self._times[-1]  # the clock was set back
        if frame.get("reset"):
            self._keys.append(len(self._times))
        elif not self._times:
            raise ValueError("the first frame does not have all tables")
        self._times.append(picture.t)
        self._places.append(place)
        self._history.append(picture.totals())

    def frames(self, start: float = 0.0, speed: float = 1.0) -> Iterator[Frame | None]:
        """Yield frames from `start` seconds on, `speed` times as fast as recorded; the first has all tables.

        The last one has `end`. After it, None is yielded once a second.
        """
        begun = monotonic()
        with Path(self._path).open("rb") as file:
            picture = Picture()
            at = self._advance(file, picture, -1, self._times[0] + start)
            replay = {"start": self._times[0], "seconds": self.seconds, "speed": speed}
            first = difference(None, picture) | {"history": self._history, "replay": replay}
            has_ended = at == len(self._times) - 1
            yield first | {"end": True} if has_ended else first
            said = monotonic()
            while True:
                sleep(PLAY_SECONDS)
                before = picture.copy()
                at = self._advance(file, picture, at, self._times[0] + start + speed * (monotonic() - begun))
                frame = difference(before, picture)
                if at == len(self._times) - 1 and not has_ended:
                    has_ended = frame["end"] = True
                if not is_empty(frame):
                    said = monotonic()
                    yield frame
                elif monotonic() - said > 1:
                    said = monotonic()
                    yield None

    def _advance(self, file: BinaryIO, picture: Picture, at: int, until: float) -> int:
        """Apply the frames after number `at` up to the time `until`, at least one; returns the last one's number."""
        last = max(0, bisect_right(self._times, until) - 1)
        key = self._keys[bisect_right(self._keys, last) - 1]
        for number in range(max(at + 1, key), last + 1):
            file.seek(self._places[number])
            try:
                apply(picture, _parsed(file.readline()))
            except ValueError:
                raise FileDamaged(f"the recording {self._path} was changed while it is played") from None
        return max(at, last)


def _parsed(line: bytes) -> Any:
    """Return the object in a line. Raises ValueError: it is not JSON, or not JSON that can be sent on."""
    try:
        return json.loads(line, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not a number")
    return value


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """Return at most POINTS points, each with the largest values of the points that it replaces."""
    step = 1 + len(points) // POINTS
    groups = [points[at : at + step] for at in range(0, len(points), step)]
    return [[group[-1][0], *map(max, list(zip(*group, strict=True))[1:])] for group in groups]
