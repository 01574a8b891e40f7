"""Statistics of a loader, and the memory that its batches hold."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from .._native import Block
from ..storage.regions import owner_of

_NOBODY: Final = 0
"""In place of a batch number, for memory that contains several batches."""


@dataclass(frozen=True)
class LoaderStats:
    """Statistics of a DataLoader since it was created, a snapshot.

    Attributes:
        batches, samples, nbytes: batches, samples and bytes handed out; bytes are those of tensors and arrays.
        seconds: time during which an epoch was iterated.
        waited: seconds of this time in which the program waited for batches.
        worked: seconds of loading, the sum over all workers.
        restarts: workers that were replaced.
        held, held_nbytes: batches that are still in use, and their bytes.
        sample_seconds: seconds to load a sample, a moving mean.
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
        """Samples per second that the program received."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def nbytes_per_second(self) -> float:
        """Bytes per second that the program received."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    def bottleneck(self) -> str:
        """The slower side: "loader" if the program waits for more than a tenth of the time, else "program"."""
        return "loader" if self.waited > 0.1 * self.seconds else "program"

    def __str__(self) -> str:
        waited = self.waited / self.seconds if self.seconds else 0.0
        note = "" if self.bottleneck() == "loader" else "; the program, not the loader, is the bottleneck"
        return (
            f"{self.samples_per_second:,.0f} samples/s, {self.nbytes_per_second / 1e6:,.0f} MB/s, "
            f"waited {waited:.0%}, {self.held} batches held ({self.held_nbytes / 1e6:,.0f} MB){note}"
        )


class Held:
    """The batches whose memory is still in use in this process: by tensors, or by other libraries' arrays over them.

    Memory that contains several batches belongs to the dataset, and is not counted.
    """

    def __init__(self) -> None:
        self._memory: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        """By id of the owner: (a reference to it, number of the batch, bytes).

        All figures are derived from it, and each change is a single store, since Ctrl-C may come between any two.
        """
        self._last = _NOBODY

    @property
    def nbytes(self) -> int:
        """Bytes of the held batches. Takes about 50 ns for each array that is held."""
        return sum(nbytes for _, _, nbytes in list(self._memory.values()))

    @property
    def batches(self) -> int:
        """Number of held batches."""
        return len({batch for _, batch, _ in list(self._memory.values())} - {_NOBODY})

    def add(self, arrays: Iterable[NDArray[Any]]) -> int:
        """Count a batch that is handed out, and return its bytes. Does not block.

        Arrays whose memory has an owner without weak references are not counted as held.
        """
        self._last += 1
        batch, total = self._last, 0
        for array in arrays:
            nbytes = array.nbytes
            owner: Any = array.base
            if type(owner) is not Block:
                owner = owner_of(array)
            key = id(owner)
            if key in self._memory:
                total += self._see_again(key, batch, nbytes)
            elif nbytes:
                total += nbytes
                try:
                    # Not Python code, in which Ctrl-C would be raised and ignored.
                    reference = weakref.ref(owner, functools.partial(self._memory.pop, key))
                except TypeError:
                    continue
                self._memory[key] = reference, batch, nbytes
        return total

    def _see_again(self, key: int, batch: int, nbytes: int) -> int:
        """Count an array over known memory; memory of several batches stops counting. Returns the array's bytes."""
        reference, owner, counted = self._memory[key]
        if owner == batch:
            whole = getattr(reference(), "nbytes", counted)
            nbytes = max(0, min(nbytes, whole - counted))  # views of one part count once
            self._memory[key] = reference, batch, counted + nbytes
        elif owner != _NOBODY:
            self._memory[key] = reference, _NOBODY, 0
        return nbytes


class Counts:
    """The counters behind `LoaderStats`."""

    def __init__(self) -> None:
        self.held: Held = Held()
        self.batches: int = 0
        self.samples: int = 0
        self.nbytes: int = 0
        self.restarts: int = 0
        self.seconds: float = 0.0
        self.waited: float = 0.0
        self.worked: float = 0.0
        self.sample_seconds: float = 0.0
        self._since: float | None = None

    def begin(self) -> None:
        """Count the beginning or continuation of an epoch."""
        self._since = time.perf_counter()

    def handed(self, samples: int) -> None:
        """Count a batch that is handed out."""
        self.batches += 1
        self.samples += samples
        now = time.perf_counter()
        if self._since is not None:
            self.seconds += now - self._since
        self._since = now

    def loaded(self, samples: int, seconds: float) -> None:
        """Count the time that workers took for a batch."""
        self.worked += seconds
        if samples:
            each = seconds / samples
            self.sample_seconds = each if not self.sample_seconds else 0.75 * self.sample_seconds + 0.25 * each

    def snapshot(self) -> LoaderStats:
        """Return the current statistics."""
        return LoaderStats(
            self.batches, self.samples, self.nbytes, self.seconds, self.waited, self.worked, self.restarts,
            self.held.batches, self.held.nbytes, self.sample_seconds,
        )  # fmt: skip
