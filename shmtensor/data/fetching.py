"""How workers process a job: they load samples, write them into the batch or collate them, and notify the parent.

A job is one batch. Its `words` are shared memory: for each *chunk* of samples a claim and its time in nanoseconds, the
number of chunks that are not done yet, and the keys of the samples if these are integers. Each worker gets each job. It
claims a chunk by exchanging FREE for its own word, loads the chunk, and sets DONE. So several workers fill one batch,
and a claim is never lost, because it names its owner. Chunks of a job without slots are LOOSE, and their samples are
sent. Once the first of them have shown the layout, the parent makes the others FREE, and sends the job again, with
slots.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._loading import load
from .._tensor.core import Tensor
from .._tensor.creation import empty
from ..errors import ManagerError, OutOfMemory, SampleFailed
from ..ipc.codec import encode_for_wire, withdraw
from .collate import default_convert
from .datasets import method_of, tell_epoch
from .failures import KeyedError, batch_of_keys, failure_of, sample_of, samples_of
from .layouts import Layout
from .outputs import bounded, detached
from .randoms import Reseeding, WorkerInfo, begin_sample, begin_worker, end_samples, mixed
from .state import listed

FREE: Final = 0
DONE: Final = -1
CANCELLED: Final = -2
LOOSE: Final = -3
_MAPPED: Final = 1 << 16
"""Bytes that Linux maps at the first read of one of their pages, if they are in memory (fault-around)."""

Claims = NDArray[np.int64]

_cas = _native.atomic_compare_exchange
_store = _native.atomic_store
_add = _native.atomic_fetch_add
_now = time.perf_counter_ns


class Item(NamedTuple):
    """The key of a sample that is loaded from a raw item of a stream."""

    position: int
    item: Any


class Job(NamedTuple):
    """One batch to be loaded.

    Attributes:
        number: number of the batch.
        run: number of the iterator that requested it.
        epoch: epoch for the random numbers of samples.
        start: number of samples of the epoch before it.
        length: number of its samples.
        chunks, size: number of chunks, and of the samples of each but the last.
        words: int64: a claim for each chunk, its nanoseconds, the number of chunks that are not done, integer keys.
        keys: keys of the samples if they are not in `words`, else None.
        slots: a tensor for each leaf of the layout; None: samples are sent.
    """

    number: int
    run: int
    epoch: int
    start: int
    length: int
    chunks: int
    size: int
    words: Tensor
    keys: list[Any] | None
    slots: tuple[Tensor, ...] | None

    @property
    def free(self) -> int:
        """The word of a chunk that can be claimed."""
        return LOOSE if self.slots is None else FREE

    def keys_of(self, words: Claims, chunk: int) -> tuple[int, list[Any]]:
        """Return (first row, keys) of a chunk."""
        first = chunk * self.size
        last = min(first + self.size, self.length)
        if self.keys is not None:
            return first, self.keys[first:last]
        base = 2 * self.chunks + 1
        return first, words[base + first : base + last].tolist()


def new_words(chunks: int, keys: Sequence[Any], free: int) -> tuple[Tensor, list[Any] | None]:
    """Return (words of a job whose chunks are free, keys that are not in them)."""
    if isinstance(keys, np.ndarray):
        plain = keys.ndim == 1 and keys.dtype == np.int64
    else:
        plain = set(map(type, keys)) <= {int} and all(-(2**63) <= key < 2**63 for key in keys)
    words = empty(2 * chunks + 1 + len(keys) * plain, dtype=np.int64, shared=True)
    array = words._live()
    array[:chunks] = free
    array[chunks : 2 * chunks] = 0
    array[2 * chunks] = chunks
    if plain:
        array[2 * chunks + 1 :] = keys
    return words, None if plain else list(keys)


@dataclass
class Task:
    """How samples are loaded; workers get it once, at their start.

    Attributes:
        dataset: the dataset, or the iterable.
        collate_fn: collates a whole batch in the worker; None: samples go into slots.
        batched: whether keys are those of a batch; False: each job is one key, whose sample is converted.
        stream: whether the dataset is iterated, without keys.
        seed: seed of the loader.
        reseed: libraries to seed before each sample.
        threads: number of threads that load the samples of a chunk.
        init: called with the worker's number at its start.
        loads: whether keys are Items, which are passed to `load` of the dataset.
        workers: number of workers.
        epoch: epoch in which the workers were started; their own random numbers differ in each.
    """

    dataset: Any
    collate_fn: Callable[[list[Any]], Any] | None
    batched: bool
    stream: bool
    seed: int
    reseed: tuple[str, ...]
    threads: int
    init: Callable[[int], object] | None
    workers: int
    loads: bool = False
    epoch: int = 0

    @property
    def finishes(self) -> bool:
        """Whether a worker computes the result of a whole batch, and sends it."""
        return self.collate_fn is not None or not self.batched

    @property
    def is_whole(self) -> bool:
        """Whether a batch is one chunk."""
        return self.finishes or self.stream


_WRAPPERS: Final = ("Subset", "StackDataset")
"""Datasets, ours and torch's, whose `__getitems__` is useful only if the datasets inside them have it."""


def loads_many(dataset: Any) -> bool:
    """Whether several samples should be requested at once."""
    if method_of(dataset, "__getitems__") is None:
        return False
    kind = type(dataset)
    if kind.__name__ not in _WRAPPERS or kind.__module__.partition(".")[0] not in ("shmtensor", "torch"):
        return True
    inner = getattr(dataset, "datasets", None) or [dataset.dataset]
    return any(loads_many(one) for one in (inner.values() if isinstance(inner, dict) else inner))


def many_size(length: int) -> int:
    """Return the number of samples of a batch that are requested at once.

    It does not depend on measured times, because `__getitems__` may draw random numbers once for all of them.
    """
    return max(1, -(-length // 4))


@dataclass
class _Stream:
    """An iterator of the dataset, the number of its samples so far, and whether it has ended (it is not used again)."""

    iterator: Iterator[Any]
    position: int = 0
    is_over: bool = False


class Fetcher:
    """Loads samples as a task says. Used by workers, and by loaders without workers.

    Args:
        task: how samples are loaded.
        caught: exceptions that are raised as KeyedError. In a worker these are all, since sys.exit() there is a
            failure.
    """

    def __init__(self, task: Task, caught: type[BaseException] = Exception) -> None:
        self.task: Task = task
        self._caught = caught
        self._reseed = Reseeding(task.reseed) if task.reseed else None
        self._pool = ThreadPoolExecutor(task.threads, "shmtensor-load") if task.threads > 1 else None
        dataset = task.dataset
        self._get = self._load if task.loads else getattr(dataset, "__getitem__", None)
        self._get_many = method_of(dataset, "__getitems__") if loads_many(dataset) and not task.loads else None
        self._fill = None if task.loads else method_of(dataset, "fill")
        self._epoch: int | None = None
        self._streams: dict[int, _Stream] = {}

    def begin_epoch(self, epoch: int) -> None:
        """Call `set_epoch` of the dataset, if it has it."""
        if epoch != self._epoch:
            self._epoch = epoch
            tell_epoch([self.task.dataset], epoch)

    def preserved(self) -> Any:
        """Return a context manager for loading in the program's process: it preserves the libraries' generators."""
        return nullcontext() if self._reseed is None else self._reseed.preserved()

    def _load(self, key: Item) -> Any:
        return self.task.dataset.load(key.item)

    def _begin(self, epoch: int, key: Any) -> None:
        if type(key) is Item:
            key = key.position
        begin_sample(self.task.seed, epoch, key)
        if self._reseed is not None:
            self._reseed(self.task.seed, epoch, key)

    def _one(self, epoch: int, key: Any) -> Any:
        self._begin(epoch, key)
        try:
            return self._get(key)  # type: ignore[misc]
        except self._caught as error:
            raise KeyedError(sample_of(key), error) from error

    def samples(self, epoch: int, keys: Sequence[Any]) -> list[Any]:
        """Load samples. Raises KeyedError."""
        if self._get_many is not None and keys:
            return self._several(epoch, list(keys))
        if self._pool is not None and len(keys) > 1:
            return list(self._pool.map(self._one, [epoch] * len(keys), keys))
        return [self._one(epoch, key) for key in keys]

    def _several(self, epoch: int, keys: list[Any]) -> list[Any]:
        self._begin(epoch, keys[0])
        try:
            found = list(self._get_many(keys))  # type: ignore[misc]
        except self._caught as error:
            raise KeyedError(samples_of(keys), error) from error
        if len(found) != len(keys):
            wrong = SampleFailed(
                f"__getitems__ of the dataset returned {len(found)} samples for {len(keys)} keys; "
                "return one for each key, in their order"
            )
            raise KeyedError(samples_of(keys), wrong)
        return found

    def take(self, run: int, epoch: int, start: int, length: int) -> list[Any]:
        """Return the next samples of the iterable, from position `start` on, a multiple of `length`; fewer at its end.

        Raises KeyedError. The samples of this batch before the error are lost; the next batch continues after it.
        """
        stream = self._streams.get(run)
        if stream is None:
            try:
                stream = self._streams[run] = _Stream(iter(self.task.dataset))
            except self._caught as error:
                raise KeyedError(sample_of(0), error) from error
        found = []
        while not stream.is_over and stream.position < start + length:
            position = stream.position
            self._begin(epoch, position)
            try:
                sample = next(stream.iterator)
            except StopIteration:
                stream.is_over = True
                break
            except self._caught as error:
                stream.position += length - position % length
                if position >= start:
                    raise KeyedError(sample_of(position), error) from error
                continue
            stream.position += 1
            if position >= start:
                found.append(sample)
        return found

    def end_run(self, run: int) -> None:
        """Forget the iterator of a run."""
        self._streams.pop(run, None)

    def finished(self, samples: list[Any], keys: Sequence[Any]) -> Any:
        """What a job of one chunk gives: samples collated by the user's function, or one sample converted.

        Raises KeyedError.
        """
        collate, batched = self.task.collate_fn, self.task.batched
        try:
            if collate is not None:
                return collate(samples if batched else samples[0])
            with bounded(keys):
                return detached(default_convert(samples[0]))
        except self._caught as error:
            some = listed(keys)
            raise KeyedError(batch_of_keys(some) if batched else sample_of(some[0]), error) from error

    def write(
        self, layout: Layout, arrays: Sequence[NDArray[Any]], epoch: int, first: int, keys: Sequence[Any]
    ) -> tuple[list[Any], bool]:
        """Load samples into rows of slots, from row `first` on. Raises KeyedError.

        Returns:
            (the samples, whether all fit the layout); no samples if `fill` of the dataset wrote them in place.
        """
        if self._fill is not None and not layout.others:
            for row, key in enumerate(keys, first):
                self._begin(epoch, key)
                try:
                    self._fill(key, layout.row(arrays, row))
                except self._caught as error:
                    raise KeyedError(sample_of(key), error) from error
            return [], True
        if self._get_many or self._pool or self._reseed or self.task.loads:
            samples = self.samples(epoch, keys)
            return samples, write_all(layout, arrays, first, samples)
        write, get, seed = layout.write, self._get, self.task.seed
        samples = []
        fits = True
        for row, key in enumerate(keys, first):
            begin_sample(seed, epoch, key)
            try:
                sample = get(key)  # type: ignore[misc]
            except self._caught as error:
                raise KeyedError(sample_of(key), error) from error
            fits = fits and write(arrays, row, sample)
            samples.append(sample)
        return samples, fits


def map_rows(arrays: Sequence[NDArray[Any]], first: int, count: int) -> None:
    """Map large rows of slots into this process before it writes them. Does not block.

    A read maps many pages at once, a write only one: for memory that was in use before, this takes a new worker a sixth
    of the time. (Shared memory is mapped writable in either case.)
    """
    for array in arrays:
        rows = array[first : first + count]
        if rows.nbytes >= _MAPPED:
            flat = rows.reshape(-1).view(np.uint8)
            flat[::_MAPPED].max()
            flat[-1].item()


def write_all(layout: Layout, arrays: Sequence[NDArray[Any]], first: int, samples: list[Any]) -> bool:
    """Write samples into rows of slots. Returns whether all fit the layout."""
    return all(layout.write(arrays, row, sample) for row, sample in enumerate(samples, first))


# ---------------------------------------------------------------------------------------------------------- the worker


def copied(tree: Any) -> Any:
    """Return the tree with copies of torch's tensors in shared memory. Sending a view would move its whole base."""
    torch = sys.modules.get("torch")
    if torch is None:
        return tree
    kind = type(tree)
    if kind is torch.Tensor:
        return load("integrations.torch.sharing").shared_copy(tree)
    if kind in (list, tuple):
        return kind([copied(part) for part in tree])
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return kind._make(map(copied, tree))
    if kind is dict:
        return {key: copied(part) for key, part in tree.items()}
    return tree


class _Worker:
    """One worker that processes jobs."""

    def __init__(self, word: int, number: int, results: Any, fetcher: Fetcher) -> None:
        self._word, self._number, self._results, self._fetcher = word, number, results, fetcher
        self._layout: Layout | None = None

    def set_layout(self, layout: Layout | None) -> None:
        self._layout = layout

    def end_run(self, run: int) -> None:
        self._fetcher.end_run(run)

    def run(self, job: Job) -> None:
        """Claim and load chunks of a job until none is free."""
        words, free = job.words._live(), job.free
        arrays = None if job.slots is None else Layout.arrays(job.slots)
        for chunk in range(job.chunks):
            if words[chunk] != free or not _cas(words, chunk, free, self._word, "acq_rel")[0]:
                continue
            begun = _now()
            try:
                self._do(job, words, arrays, chunk)
            except BaseException as error:  # also sys.exit()
                self._results.put(("failed", job.number, chunk, failure_of(error), self._number))
            finally:
                end_samples()
            words[job.chunks + chunk] = _now() - begun
            _store(words, chunk, DONE, "seq_cst")
            if _add(words, 2 * job.chunks, -1, "seq_cst") == 1:
                self._results.put(("done", job.number))

    def _do(self, job: Job, words: Claims, arrays: Sequence[NDArray[Any]] | None, chunk: int) -> None:
        """Load a chunk, and send the part of it that is not in the slots."""
        fetcher, layout = self._fetcher, None if arrays is None else self._layout
        fetcher.begin_epoch(job.epoch)
        fits = False
        keys: Sequence[Any]
        if fetcher.task.stream:
            first, keys = 0, range(job.start, job.start + job.length)
            samples = fetcher.take(job.run, job.epoch, job.start, job.length)
            if len(samples) < job.length:
                self._results.put(("short", job.number, len(samples)))
                if not samples:
                    return
            if layout is not None and not fetcher.task.finishes:
                map_rows(arrays or (), 0, len(samples))
                fits = write_all(layout, arrays or (), 0, samples)
        else:
            first, keys = job.keys_of(words, chunk)
            if layout is not None:
                map_rows(arrays or (), first, len(keys))
                samples, fits = fetcher.write(layout, arrays or (), job.epoch, first, keys)
            else:
                samples = fetcher.samples(job.epoch, keys)
        result = fetcher.finished(samples, keys) if fetcher.task.finishes else None
        with bounded(keys):
            if fetcher.task.finishes:
                self._send("result", job, chunk, [result], keys, result)
            elif not fits:
                parts = [copied(detached(one)) for one in samples]
                self._send("part", job, chunk, parts, keys, first, parts, self._number)
            elif layout is not None and layout.others:
                rests = [detached(layout.rest(sample)) for sample in samples]
                self._send("rest", job, chunk, rests, keys, first, rests)

    def _send(self, kind: str, job: Job, chunk: int, parts: list[Any], keys: Sequence[Any], *content: Any) -> None:
        """Send what was made of a chunk. Raises KeyedError with the keys of those `parts` that cannot be sent."""
        try:
            self._results.put((kind, job.number, chunk, *content))
        except (RecursionError, MemoryError, OutOfMemory, ManagerError):  # not because of what is sent
            raise
        except Exception as error:
            some = listed(keys) if kind == "result" else listed(keys)[: len(parts)]  # a stream may have ended
            if len(parts) == 1:
                raise KeyedError(samples_of(some), error) from error
            refused = [key for key, part in zip(some, parts, strict=False) if not _can_be_sent(part)]
            raise KeyedError(samples_of(refused or some), error) from error


def _can_be_sent(part: Any) -> bool:
    try:
        withdraw(encode_for_wire(part))
    except Exception:  # pickle runs code of the objects
        return False
    return True


def work(word: int, number: int, jobs: Any, results: Any, task: Task) -> None:
    """Run a worker until it takes None.

    Other messages are the fields of a Job, ("layout", the layout of the next slots), or ("ended", a run).
    """
    try:
        begin_worker(WorkerInfo(number, task.workers, mixed(task.seed, task.epoch, word) >> 1, task.dataset))
        if task.init is not None:
            task.init(number)
        worker = _Worker(word, number, results, Fetcher(task, BaseException))
    except BaseException as error:
        results.put(("broken", number, failure_of(error)))
        while jobs.get() is not None:
            pass
        return
    while True:
        message = jobs.get()
        if message is None:
            return
        if message[0] == "layout":
            worker.set_layout(message[1])
        elif message[0] == "ended":
            worker.end_run(message[1])
        else:
            worker.run(Job(*message))
        message = None
