"""A bar of the steps that processes take together, with their mean loss of late."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from shmtensor.hogwild import Counter, Metrics


class Progress:
    """A tqdm bar on standard error; nothing if that is not a terminal. Use it in `with`.

    Args:
        label: what is said before the bar.
        counter: of the steps.
        steps: where it ends.
        metrics: of all processes, with one that is called "loss".
    """

    def __init__(self, label: str, counter: Counter, steps: int, metrics: Metrics) -> None:
        shown = "{desc} {percentage:3.0f}%|{bar}| {rate_fmt}{postfix}"
        self._bar = tqdm(total=steps, desc=label, unit=" steps", bar_format=shown, disable=None, dynamic_ncols=True)
        self._counter, self._metrics = counter, metrics
        self._before = metrics.totals()
        self._loss = ""

    def show(self, **more: Any) -> None:
        """Show how far the steps have come, and some more values. Does so some times a second, however often called."""
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
