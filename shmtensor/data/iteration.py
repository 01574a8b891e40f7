"""The iterators of an epoch: with workers, and without."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .._tensor.core import Tensor
from ..errors import SampleFailed, type_name
from .failures import KeyedError
from .fetching import Fetcher, Task, loads_many, many_size
from .layouts import Layout
from .outputs import bounded
from .pipeline import Batch, Pipeline, Slots, batch_of, collated, counted, naming, require_fork
from .randoms import _current
from .state import Portion, Progress, listed


@dataclass
class Epoch:
    """The parts of a loader that an iterator needs.

    Attributes:
        task: how samples are loaded.
        portions: the keys of the remaining batches.
        progress: the batches that the program has.
        run: number of the iterator.
        convert: converts a tensor to the output type.
        slots: the known layout and limits of the samples.
        drop_last: whether an incomplete last batch of a stream is dropped.
        ahead: number of batches that are loaded ahead.
        in_order: whether batches are handed out in order.
        timeout: seconds to wait for one; 0: no bound.
    """

    task: Task
    portions: Iterator[Portion]
    progress: Progress
    run: int
    convert: Callable[[Tensor], Any]
    slots: Slots
    drop_last: bool
    ahead: int
    in_order: bool
    timeout: float

    def handed(self, portion: Portion, rows: int) -> None:
        """Count a batch that `_following` of an iterator returns. Warns if len() of the stream promised fewer."""
        self.progress.handed(portion.ordinal, rows)
        self.slots.counts.handed(rows)
        promised = self.slots.promised
        if promised is not None and self.progress.handed_out == promised + 1:  # once in an epoch
            warnings.warn(
                f"len() of this loader said {promised} batches, by __len__ of its {type_name(self.task.dataset)}, but "
                "the stream has more; let __len__ return the number of samples that __iter__ yields, or remove it",
                stacklevel=4,
            )


class LocalIterator:
    """Loads batches in the program's own process. Several threads may use one, and each batch goes to one of them."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._fetcher = Fetcher(epoch.task)
        self._lock = threading.RLock()
        self._next: Portion | None = None
        epoch.slots.counts.begin()

    def __iter__(self) -> LocalIterator:
        return self

    @property
    def is_over(self) -> bool:
        """Whether there are no more batches."""
        return self._epoch.progress.is_over

    def __next__(self) -> Any:
        with self._lock:
            return self._following()

    def _following(self) -> Any:
        epoch = self._epoch
        portion = self._next or next(epoch.portions, None)
        if portion is None or epoch.progress.is_over:
            epoch.progress.is_over = True
            raise StopIteration
        slots, length = epoch.slots, len(portion.keys)
        self._next = portion  # kept for the next call if `admit` raises
        slots.admit(slots.need(self._layout(portion), length), 0, may_wait=False)
        self._next = None
        begun = time.perf_counter()
        outer = _current.sample, _current.generator  # set if this loader is used inside a dataset of another one
        failed: BaseException | None = None
        try:
            with self._fetcher.preserved():
                batch, rows = self._load(portion)
        except KeyedError as caught:
            failed = caught.error
            with suppress(Exception):  # an exception may refuse it
                failed.add_note(f"({caught.subject})")
            if isinstance(failed, StopIteration):
                raise SampleFailed(
                    f"{caught.subject} raised StopIteration; catch it in the dataset or collate_fn, or raise another "
                    "exception"
                ) from failed
        finally:
            _current.sample, _current.generator = outer
        if failed is not None:
            try:
                raise failed  # outside of `except`, which would replace its context
            finally:
                del failed
        if rows < length and (not rows or epoch.drop_last):
            epoch.progress.is_over = True
            raise StopIteration
        slots.counts.waited += time.perf_counter() - begun
        if rows < length:
            epoch.portions = iter(())
        epoch.handed(portion, rows)
        return batch

    def _layout(self, portion: Portion) -> Layout | None:
        """Return the layout of the batch's slots, if it gets some."""
        task = self._epoch.task
        return None if task.finishes or task.stream or not len(portion.keys) else self._epoch.slots.layout

    def _load(self, portion: Portion) -> tuple[Any, int]:
        """Return (batch, samples)."""
        epoch, fetcher, keys = self._epoch, self._fetcher, portion.keys
        number = epoch.progress.epoch
        fetcher.begin_epoch(number)
        begun = time.perf_counter()
        slots = epoch.slots
        layout = self._layout(portion)
        made: list[Tensor] = []
        fits = False
        if epoch.task.stream:
            samples = fetcher.take(epoch.run, number, portion.start, len(keys))
        else:
            some = listed(keys)
            step = len(some) if epoch.task.finishes or not loads_many(epoch.task.dataset) else many_size(len(some))
            if layout is not None:
                made = slots.empty(layout, len(some), shared=False)
            arrays = Layout.arrays(made)
            samples, fits = [], layout is not None
            for first in range(0, len(some), max(1, step)):
                part = some[first : first + step]
                if layout is None:
                    samples += fetcher.samples(number, part)
                else:
                    more, fit = fetcher.write(layout, arrays, number, first, part)
                    samples += more
                    fits = fits and fit
        rows = len(samples) if epoch.task.stream else len(keys)
        slots.counts.loaded(rows, time.perf_counter() - begun)
        if not rows and epoch.task.stream:
            return None, 0
        if epoch.task.finishes:
            result = fetcher.finished(samples, keys)
            with bounded(keys):
                return counted(result, epoch.convert, slots), rows
        if layout is not None:
            slots.judge(fits)
        with bounded(keys), naming(keys, {}):
            if fits and layout is not None:
                rests = [layout.rest(sample) for sample in samples] if layout.others else []
                return batch_of(layout, made, rests, epoch.convert, slots), rows
            if samples and not epoch.task.stream and (layout is not None or slots.is_unknown):
                slots.learn(samples[0])
            return counted(collated(samples), epoch.convert, slots), rows


class WorkerIterator:
    """Hands out batches that workers load. The workers end with it, unless they are the loader's own.

    Several threads may use one, and each batch goes to one of them.
    """

    def __init__(self, epoch: Epoch, pipeline: Pipeline, owns: bool) -> None:
        self._epoch, self._pipeline = epoch, pipeline
        self._waiting: deque[Batch] = deque()
        self._next: Portion | None = None
        self._problem: Exception | None = None
        self._is_over = False
        self._broken: str | None = None
        self._lock = threading.RLock()
        self._end = weakref.finalize(self, _abandon, pipeline, self._waiting, epoch.run, owns)
        self._end.atexit = False  # the crew has its own finalizer
        epoch.slots.counts.begin()
        self._prefetch(epoch.ahead)

    def __iter__(self) -> WorkerIterator:
        return self

    @property
    def is_over(self) -> bool:
        """Whether there are no more batches, at the end of the epoch or after an error that ends it."""
        return self._is_over

    def __next__(self) -> Any:
        require_fork(self._pipeline)
        with self._lock:
            return self._following()

    def _following(self) -> Any:
        if self._broken is not None:
            raise SampleFailed(
                f"this iterator has ended before its last batch, with {self._broken}; iter(loader) begins the next "
                "epoch, or continues this one after loader.load_state_dict(loader.state_dict())"
            )
        while not self._is_over:
            self._prefetch(1)
            if not self._waiting:
                if self._problem is not None:
                    problem, self._problem = self._problem, None
                    try:
                        raise problem
                    finally:
                        del problem  # nothing of its traceback and this frame may be kept
                self._submit(1, may_raise=True)
                if not self._waiting:
                    self._pipeline.require_open()
                    break
            batch = self._ready()
            if batch.rows < batch.job.length:
                self._stop_submitting()
                if batch.failure is None and (not batch.rows or self._epoch.drop_last):
                    continue
            if batch.failure is None:
                self._epoch.handed(batch.portion, batch.rows)
            return self._collected(batch)
        self._finish()
        raise StopIteration

    def _prefetch(self, most: int) -> None:
        """Call `_submit`. An exception of the sampler or of a stream's reader is raised after the batches before it."""
        if self._problem is None:
            try:
                self._submit(most, may_raise=False)
            except Exception as problem:
                self._problem = problem

    def _submit(self, most: int, may_raise: bool) -> None:
        """Give workers up to `most` more batches to load ahead.

        While the samples' layout is not known, only one batch is loaded. After that, their number grows by a few with
        each batch that is handed out, so that the program does not wait until the memory of all is allocated. With
        max_bytes, only one batch is loaded also while the size of batches without slots is not known.

        Lack of memory raises only if no batch is left to wait for, and the program asks for one (`may_raise`).
        """
        epoch, slots = self._epoch, self._epoch.slots
        ahead = min(epoch.ahead, len(self._waiting) + most)
        while len(self._waiting) < ahead and not self._pipeline.is_closed:
            if self._waiting and (slots.is_unsized if epoch.task.finishes else slots.is_unknown):
                return
            if self._next is None:
                self._next = next(epoch.portions, None)
                if self._next is None:
                    return
            batch = self._pipeline.submit(self._next, epoch.run, epoch.progress.epoch, self._waiting, may_raise)
            if batch is None:
                return
            self._next = None
            self._waiting.append(batch)

    def _ready(self) -> Batch:
        """Wait for the next batch."""
        epoch = self._epoch
        counts = epoch.slots.counts
        wanted = [self._waiting[0]] if epoch.in_order else list(self._waiting)
        begun = time.perf_counter()
        try:
            batch = self._pipeline.wait(wanted, epoch.timeout)
        except BaseException as error:
            # Ctrl-C may have lost a message; a timeout or a death also ends the epoch.
            self._fail(error)
            raise
        counts.waited += time.perf_counter() - begun
        self._waiting.remove(batch)
        return batch

    def _collected(self, batch: Batch) -> Any:
        slots, convert = self._epoch.slots, self._epoch.convert
        if slots.max_bytes is None:
            self._prefetch(1)  # before the batch is collated, which may take long
            return batch.collected(convert, slots)
        found = batch.collected(convert, slots)
        self._prefetch(1)  # in the room that this batch leaves
        return found

    def _stop_submitting(self) -> None:
        self._epoch.portions = iter(())
        self._next = None

    def _finish(self) -> None:
        if not self._is_over:
            self._is_over = self._epoch.progress.is_over = True
            self._end()

    def _fail(self, error: BaseException) -> None:
        """End the epoch after an error. Workers are ended, since a message may be lost."""
        self._is_over = True
        self._stop_submitting()  # the process that reads a stream ends as well
        self._broken = f"{type_name(error)}: {error}" if str(error) else type_name(error)
        self._end.detach()
        self._waiting.clear()
        self._pipeline.close()


def _abandon(pipeline: Pipeline, waiting: deque[Batch], run: int, owns: bool) -> None:
    if owns:
        pipeline.close()
    elif not pipeline.is_closed:
        pipeline.drop(waiting)
        pipeline.end_run(run)
    waiting.clear()
