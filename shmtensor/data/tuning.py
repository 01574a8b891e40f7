"""Measurement of the fastest number of workers and of batches loaded ahead, by trials on the dataset."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..errors import QuotaExceeded
from ..storage.arguments import require_integer

_PREFETCH: Final = (2, 4)
_GAIN: Final = 1.05
"""Speedup at which more workers are preferred."""


@dataclass(frozen=True)
class Trial:
    """One setting, and its result.

    Attributes:
        num_workers, prefetch_factor: the setting; the factor is None without workers.
        samples_per_second: the measured speed; 0 if the batches did not fit into `max_bytes`.
        nbytes: bytes of the batches that are loaded ahead.
    """

    num_workers: int
    prefetch_factor: int | None
    samples_per_second: float
    nbytes: int


@dataclass(frozen=True)
class Tuning:
    """The trials of `DataLoader.tune`.

    Attributes:
        best: the fastest setting; of equally fast ones the smallest.
        trials: all trials, in the order of their measurement.
    """

    best: Trial
    trials: tuple[Trial, ...]

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the best arguments for a DataLoader."""
        chosen: dict[str, Any] = {"num_workers": self.best.num_workers}
        if self.best.prefetch_factor is not None:
            chosen["prefetch_factor"] = self.best.prefetch_factor
        return chosen

    def __str__(self) -> str:
        lines = ["workers  ahead  samples/s  MB ahead"]
        for trial in self.trials:
            mark = "  <- best" if trial is self.best else ""
            ahead = "-" if trial.prefetch_factor is None else str(trial.prefetch_factor)
            rate = f"{trial.samples_per_second:,.0f}" if trial.samples_per_second else "too large"
            lines.append(f"{trial.num_workers:7}  {ahead:>5}  {rate:>9}  {trial.nbytes / 1e6:8.1f}{mark}")
        return "\n".join(lines)


def tuned(make: Callable[..., Any], max_bytes: int | None, max_workers: int | None, seconds: float) -> Tuning:
    """Measure settings, with more workers as long as these help. Blocks for about `seconds` for each.

    Args:
        make: returns a loader with the arguments num_workers, prefetch_factor and max_bytes.
        max_bytes: maximum bytes of the batches that are loaded ahead.
        max_workers: maximum number of workers; None: the number of processors.
        seconds: seconds for each setting.
    """
    processors = len(os.sched_getaffinity(0))
    most = require_integer("max_workers", processors if max_workers is None else max_workers, 0)
    trials = [_trial(make, 0, None, None, seconds)]
    best = trials[0]
    for workers in _counts(most):
        before = best
        for prefetch in _PREFETCH:
            trial = _trial(make, workers, prefetch, max_bytes, seconds)
            trials.append(trial)
            if trial.samples_per_second > _GAIN * best.samples_per_second:
                best = trial
        if workers > 1 and best is before:
            break
    return Tuning(best, tuple(trials))


def _counts(most: int) -> Iterator[int]:
    """Yield 1, 2, 4, ... and finally `most`."""
    count = 1
    while count < most:
        yield count
        count *= 2
    if most:
        yield most


def _trial(
    make: Callable[..., Any], workers: int, prefetch: int | None, max_bytes: int | None, seconds: float
) -> Trial:
    """Time a setting from its first batch on."""
    loader = make(num_workers=workers, prefetch_factor=prefetch, max_bytes=max_bytes)
    begun = start = now = time.perf_counter()
    first = 0
    try:
        for number in _endless(loader):
            now = time.perf_counter()
            if number == 0:
                start, first = now, loader.stats().samples
            if now - start > seconds:
                break
    except QuotaExceeded:
        return Trial(workers, prefetch, 0.0, max_bytes or 0)
    stats = loader.stats()
    if stats.samples == first:  # a single batch
        start, first = begun, 0
    rate = (stats.samples - first) / max(now - start, 1e-9)
    each = stats.nbytes // stats.batches if stats.batches else 0
    return Trial(workers, prefetch, rate, each * workers * (prefetch or 0))


def _endless(loader: Any) -> Iterator[int]:
    """Yield the numbers of the batches of one epoch after another. Ends if an epoch has none."""
    number = 0
    while True:
        before = number
        for _ in loader:
            yield number
            number += 1
        if number == before:
            return
