"""A progress bar of the steps that processes take together, with their recent mean loss."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from shmtensor.hogwild import Counter, Metrics


class Progress:
    """A tqdm bar on standard error; not shown if that is not a terminal. A context manager.

    Args:
        label: the text before the bar.
        counter: counts the steps.
        steps: the total number of steps.
        metrics: the metrics of all processes, including "loss".
    """

    def __init__(self, label: str, counter: Counter, steps: int, metrics: Metrics) -> None:
        shown = "{desc} {percentage:3.0f}%|{bar}| {rate_fmt}{postfix}"
        self._bar = tqdm(total=steps, desc=label, unit=" steps", bar_format=shown, disable=None, dynamic_ncols=True)
        self._counter, self._metrics = counter, metrics
        self._before = metrics.totals()
        self._loss = ""

    def show(self, **more: Any) -> None:
        """Show the number of steps and some more values. Updates a few times a second, however often it is called."""
        if not self._bar.update(min(self._counter.value, self._bar.total) - self._bar.n):
            return
        now = self._metrics.totals()
        if now.counts["loss"] > self._before.counts["loss"]:
            self._loss = f"{now.means(since=self._before)['loss']:.4f}"
            self._before = now
        self._bar.set_postfix({"loss": self._loss} | more, refresh=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.update(min(self._counter.value, self._bar.total) - self._bar.n)
        self._bar.close()
