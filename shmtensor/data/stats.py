"""What a loader has done, and what its batches hold."""

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
"""Stands for a batch, of memory in which several batches lie."""


@dataclass(frozen=True)
class LoaderStats:
    """Statistics of a DataLoader since it was made, a snapshot.

    Attributes:
        batches, samples, nbytes: handed out; bytes are those of tensors and arrays.
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
    """The batches whose memory somebody in this process still has: tensors, or arrays of other libraries over them.

    Memory in which several batches lie is not theirs, but the dataset's, and is not counted.
    """

    def __init__(self) -> None:
        self._memory: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        """By id of the owner: (a reference to it, number of the batch, bytes).

        All that is told follows from it, and each change is one store: Ctrl-C may come between any two.
        """
        self._last = _NOBODY

    @property
    def nbytes(self) -> int:
        """Bytes of them. Takes about 50 ns for each array that is held."""
        return sum(nbytes for _, _, nbytes in list(self._memory.values()))

    @property
    def batches(self) -> int:
        """How many batches."""
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
                    # No code of Python, in which Ctrl-C would be raised and ignored.
                    reference = weakref.ref(owner, functools.partial(self._memory.pop, key))
                except TypeError:
                    continue
                self._memory[key] = reference, batch, nbytes
        return total

    def _see_again(self, key: int, batch: int, nbytes: int) -> int:
        """Count an array over memory that is known, no longer if it is that of several batches. Returns its bytes."""
        reference, owner, counted = self._memory[key]
        if owner == batch:
            whole = getattr(reference(), "nbytes", counted)
            nbytes = max(0, min(nbytes, whole - counted))  # views of one part count once
            self._memory[key] = reference, batch, counted + nbytes
        elif owner != _NOBODY:
            self._memory[key] = reference, _NOBODY, 0
        return nbytes


class Counts:
    """The numbers behind `LoaderStats`, as they are counted."""

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
        """An epoch begins, or goes on."""
        self._since = time.perf_counter()

    def handed(self, samples: int) -> None:
        """A batch is handed out."""
        self.batches += 1
        self.samples += samples
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
