"""What a loader has done, and what its batches hold."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._tensor.core import Tensor


@dataclass(frozen=True)
class LoaderStats:
    """Statistics of a DataLoader since it was made, a snapshot.

    Attributes:
        batches, samples, nbytes: handed out; bytes are those of slots.
        seconds: during which an epoch was iterated.
        waited: seconds of these that the program waited for batches.
        worked: seconds that workers loaded, all together.
        restarts: workers that were replaced.
        held, held_nbytes: batches that are still in use, and their bytes.
        sample_seconds: what loading a sample takes, a moving mean.
    """

    batches: int
    samples: int
    nbytes: int
    seconds: float
    waited: float
    worked: float
    restarts: int
    held: int
    held_nbytes: int
    sample_seconds: float

    @property
    def samples_per_second(self) -> float:
        """Samples that the program got in a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def nbytes_per_second(self) -> float:
        """Bytes that the program got in a second."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    def bottleneck(self) -> str:
        """What the time goes to: "loader" if the program waits for more than a tenth of it, else "program"."""
        return "loader" if self.waited > 0.1 * self.seconds else "program"

    def __str__(self) -> str:
        waited = self.waited / self.seconds if self.seconds else 0.0
        note = "" if self.bottleneck() == "loader" else "; the program, not the loader, is the bottleneck"
        return (
            f"{self.samples_per_second:,.0f} samples/s, {self.nbytes_per_second / 1e6:,.0f} MB/s, "
            f"waited {waited:.0%}, {self.held} batches held ({self.held_nbytes / 1e6:,.0f} MB){note}"
        )


class Held:
    """The batches whose memory somebody in this process still has: tensors, or arrays of other libraries over them."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._blocks: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._numbers: dict[int, int] = {}
        self._last = 0

    @property
    def batches(self) -> int:
        """How many batches."""
        return len(self._numbers)

    def add(self, slots: Iterable[Tensor]) -> None:
        """Count a batch that is handed out. Does not block."""
        self._last += 1
        batch = self._last
        for slot in slots:
            array = slot._live()
            block = array.base
            if block is None or id(block) in self._blocks:
                continue
            key = id(block)
            self._blocks[key] = weakref.ref(block, functools.partial(self._gone, key, batch)), array.nbytes
            self.nbytes += array.nbytes
            self._numbers[batch] = self._numbers.get(batch, 0) + 1

    def _gone(self, key: int, batch: int, _: Any) -> None:
        self.nbytes -= self._blocks.pop(key)[1]
        self._numbers[batch] -= 1
        if not self._numbers[batch]:
            del self._numbers[batch]


class Counts:
    """The numbers behind `LoaderStats`, as they are counted."""

    def __init__(self) -> None:
        self.held = Held()
        self.batches = self.samples = self.nbytes = self.restarts = 0
        self.seconds = self.waited = self.worked = self.sample_seconds = 0.0
        self._since: float | None = None

    def begin(self) -> None:
        """An epoch begins, or goes on."""
        self._since = time.perf_counter()

    def handed(self, samples: int, nbytes: int) -> None:
        """A batch is handed out."""
        self.batches += 1
        self.samples += samples
        self.nbytes += nbytes
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since
        self._since = now

    def loaded(self, samples: int, seconds: float) -> None:
        """Workers took so long for a batch."""
        self.worked += seconds
        if samples:
            each = seconds / samples
            self.sample_seconds = each if not self.sample_seconds else 0.75 * self.sample_seconds + 0.25 * each

    def snapshot(self) -> LoaderStats:
        """The statistics now."""
        return LoaderStats(
            self.batches, self.samples, self.nbytes, self.seconds, self.waited, self.worked, self.restarts,
            self.held.batches, self.held.nbytes, self.sample_seconds,
        )  # fmt: skip
