"""DataLoader: torch's arguments and semantics, with batches in shared memory that several workers fill together."""

from __future__ import annotations

import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TextIO, TypeVar

import numpy as np

from ..errors import InvalidArgument, type_name
from ..ipc.processes import context_from
from ..storage.arguments import require_integer
from . import samplers
from .datasets import IterableDataset
from .fetching import Item, Task
from .iteration import Epoch, LocalIterator, WorkerIterator
from .outputs import converter
from .pinning import pinning_for
from .pipeline import Pipeline, Slots
from .prefetching import Prefetched
from .randoms import Reseeding, draw_seed
from .samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .state import (
    Portion,
    Progress,
    order_facts,
    order_of,
    portions,
    progress_of,
    require_order,
    set_order,
    stream_portions,
)
from .stats import LoaderStats
from .tuning import Tuning, tuned

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)

_PREFETCH: Final = 2
_DEATHS: Final = ("raise", "restart")
_TOOLS: Final = ("_context", "_convert", "_iterator", "_slots", "_reader_slots", "_pipelines", "_lock")
"""Attributes that are not pickled: they are created again when a loader is unpickled."""


class DataLoader(Generic[T_co]):
    """Batches of a dataset, loaded ahead by worker processes. See docs/data.md.

    Arguments up to `in_order` are torch's. Workers write samples directly into shared memory, and several fill one
    batch. A batch's memory is reused only when nothing refers to it any more, so batches can be kept.

    Args:
        dataset: map-style (`__getitem__`, `__len__`; optionally `__getitems__(keys)` for many samples at once, and
            `fill(key, out)`, which writes a sample into the tree of arrays `out`) or iterable (`__iter__`; optionally
            `load(item)`, which workers call with each raw item). An iterable is read by one process.
        batch_size: samples of a batch; None: no batches, single samples.
        shuffle: whether the order is random, different in each epoch.
        sampler: yields the keys in order.
        batch_sampler: yields lists of keys, one for each batch.
        num_workers: number of processes that load; 0: load in the program's own process.
        collate_fn: returns the batch of a list of samples, called in the worker; default: `default_collate`'s result.
        pin_memory: put batches into pinned memory, from which a GPU copies fast and asynchronously: workers write
            directly into it. Without a GPU it has no effect, with a warning.
        drop_last: drop a last batch of fewer samples.
        timeout: seconds to wait for a batch; 0: no bound.
        worker_init_fn: called with the worker's number at its start.
        multiprocessing_context: a start method, or a context that has one; default: the program's.
        generator: generator from which the seed is drawn; default `shmtensor.default_generator`.
        prefetch_factor: batches loaded ahead for each worker; default 2.
        persistent_workers: keep the workers for further epochs.
        pin_memory_device: "cuda", or "" for the same.
        in_order: return batches in order; else as they are complete.
        output: type of a batch's tensors: "shmtensor" (the default), "numpy", "torch" or "jax". Nothing is copied.
        threads: number of threads that load samples in each worker, for decoders that release the GIL.
        max_bytes: maximum bytes of batches that are being loaded or still held: their tensors and arrays in mappings
            and sequences. Other objects, and torch's tensors in private memory, are not counted. A batch without slots,
            as made by collate_fn, is loaded if there is room for the largest of these so far.
        seed: seed of the order and of samples' random numbers; default: drawn once from `generator`.
        reseed: libraries that are seeded before each sample: "python", "numpy", "shmtensor", "torch".
        on_worker_death: "raise", or "restart": another worker takes over, and no sample is lost or repeated.

    Raises:
        InvalidArgument: arguments that exclude each other, or values out of range.
        MissingExtra: the library of `output` or `reseed` is not installed.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        output: str = "shmtensor",
        threads: int = 1,
        max_bytes: int | None = None,
        seed: int | None = None,
        reseed: str | Iterable[str] = (),
        on_worker_death: str = "raise",
    ) -> None:
        self.dataset = dataset
        self.is_iterable: bool = _is_iterable(dataset)
        self.num_workers: int = require_integer("num_workers", num_workers, 0)
        self.threads: int = require_integer("threads", threads, 1)
        self.prefetch_factor: int = _prefetch(prefetch_factor, self.num_workers)
        self.persistent_workers: bool = bool(persistent_workers)
        self.pin_memory: bool = pin_memory
        self.pin_memory_device: str = pin_memory_device
        self.timeout: float = timeout
        self.in_order: bool = in_order
        self.worker_init_fn: Callable[[int], object] | None = worker_init_fn
        self.generator: Any = generator
        self.collate_fn = collate_fn
        self.output = output
        self.max_bytes: int | None = None if max_bytes is None else require_integer("max_bytes", max_bytes, 1)
        self.reseed: tuple[str, ...] = Reseeding(reseed).names
        self.on_worker_death = on_worker_death
        self._check()
        self.multiprocessing_context = multiprocessing_context
        self._set_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self._seed = None if seed is None else require_integer("seed", seed)
        self._epoch, self._runs = 0, 0
        self._is_epoch_set = False
        self._resumed: Progress | None = None
        self._progress = Progress(0)
        self._set_tools()

    def _set_tools(self) -> None:
        """Create the attributes that are not pickled."""
        self._context = _context(self.multiprocessing_context, self.num_workers)
        self._convert = converter(self.output)
        self._iterator: Callable[[], Any] = _nothing
        self._slots = Slots(self.max_bytes, pinning_for(self.pin_memory, self.pin_memory_device, self.output))
        self._reader_slots = Slots(None)
        self._pipelines: dict[str, Pipeline] = {}
        self._lock = threading.RLock()  # held in `iter()`

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments and the position, without iterators, workers and statistics."""
        state = self.__dict__.copy()
        for name in _TOOLS:
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_tools()

    def _check(self) -> None:
        if not isinstance(self.timeout, int | float) or not self.timeout >= 0:
            raise InvalidArgument(f"timeout is {self.timeout!r}; give seconds, 0 for no bound")
        if self.persistent_workers and not self.num_workers:
            raise InvalidArgument("persistent_workers needs num_workers above 0; give num_workers, or leave it out")
        if self.on_worker_death not in _DEATHS:
            raise InvalidArgument(f"on_worker_death must be 'raise' or 'restart', not {self.on_worker_death!r}")
        for name in ("collate_fn", "worker_init_fn"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise InvalidArgument(f"{name} must be callable, and {value!r} is not")
        if self.reseed and self.threads > 1:
            raise InvalidArgument(
                "reseed with threads above 1: threads share the generators of libraries; use sample_generator()"
            )

    def _set_order(
        self, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
    ) -> None:
        """Set the samplers. Raises InvalidArgument: arguments that exclude each other."""
        if shuffle not in (None, False, True):
            raise InvalidArgument(f"shuffle must be True, False or None, not {shuffle!r}")
        for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if value is not None and not (hasattr(value, "__iter__") or hasattr(value, "__getitem__")):
                raise InvalidArgument(f"{name} must be iterable, and {value!r} is not")
        if self.is_iterable:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value not in (None, False):
                    raise InvalidArgument(
                        f"{name} cannot be used with an iterable dataset, whose order is its own; leave it out"
                    )
        if sampler is not None and shuffle:
            raise InvalidArgument("sampler option is mutually exclusive with shuffle; give one of them")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise InvalidArgument(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if batch_sampler is None and batch_size is None and drop_last:
            raise InvalidArgument(
                "batch_size=None disables batches, and is mutually exclusive with drop_last; "
                "give a batch_size, or leave drop_last out"
            )
        if batch_size is not None:
            batch_size = require_integer("batch_size", batch_size, 1)
        self._own_sampler: RandomSampler | None = None
        self._has_theirs = sampler is not None or batch_sampler is not None
        if sampler is None and not self.is_iterable and batch_sampler is None:
            if shuffle:
                sampler = self._own_sampler = RandomSampler(self.dataset, generator=self.generator)
            else:
                sampler = SequentialSampler(self.dataset)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        elif batch_size is not None and not self.is_iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size: int | None = batch_size
        self.drop_last: bool = drop_last
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        self._batched = batch_sampler is not None or batch_size is not None

    # -- epochs

    @property
    def seed(self) -> int:
        """The seed of the order and of the samples' random numbers."""
        if self._seed is None:
            self._seed = draw_seed(self.generator)
        return self._seed

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the next `iter()` begins; by default epochs are counted from 0. Does not block.

        The epoch is passed to the workers, and to the sampler by `set_epoch`, also to one of the program. After
        `load_state_dict`, the epoch of the state continues at its position. Any other epoch begins at its first batch,
        with a warning.
        """
        epoch = require_integer("epoch", epoch)
        resumed = self._resumed
        if resumed is not None and resumed.epoch == epoch:
            self._is_epoch_set = resumed.sampler is None
            return
        if resumed is not None and resumed.samples:
            warnings.warn(
                f"set_epoch({epoch}) drops the position of the loaded state, after {resumed.samples} samples of "
                f"epoch {resumed.epoch}; to continue there, call set_epoch({resumed.epoch})",
                stacklevel=2,
            )
        self._epoch, self._is_epoch_set, self._resumed = epoch, True, None

    def state_dict(self) -> dict[str, Any]:
        """Seed, epoch, batches and samples that were handed out, sampler's state and kind of order. Does not block.

        Batches that were loaded ahead do not count. A loader with another number of workers can load the state. Warns
        in the middle of an epoch whose order depends on a sampler without state.
        """
        order = self._order_facts()
        if self._resumed is not None:
            return self._resumed.state(self.seed, order)
        if self._progress.is_over or self._progress.epoch != self._epoch - 1:
            fresh = Progress(self._epoch)
            self._begin_order(fresh)
            return fresh.state(self.seed, order)
        self._check_order(self._progress, "are to be skipped")
        return self._progress.state(self.seed, order)

    def _order_facts(self) -> dict[str, Any]:
        if not self._batched:
            return order_facts(self.sampler, 1)
        if self.batch_sampler is None:
            return order_facts(None, self.batch_size)
        size = getattr(self.batch_sampler, "batch_size", None)
        return order_facts(self.batch_sampler, size if isinstance(size, int) else None)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next `iter()` continue where `state_dict` was called. Samplers get their state now. Does not block.

        The seed of the state is used. At the start of an epoch, the loader may have another order or batch size.

        Raises:
            InvalidArgument: an iterator is in use and would not see the change; or `state_dict` does not come from
                `state_dict()`, or is that of a longer epoch; or batches of its epoch were handed out in an order that
                this loader does not have (another kind or length of sampler, another batch size).

        Warns if the order depends on a sampler without state.
        """
        iterator = self._iterator()
        if iterator is not None and not iterator.is_over:
            raise InvalidArgument(
                "load_state_dict after iter(): the iterator would not notice; load the state before, or finish or drop "
                "the iterator"
            )
        seed, progress, order = progress_of(state_dict)
        require_order(order, self._order_facts(), progress.handed_out)
        self._check_place(progress)
        self._check_order(progress, "are skipped")
        if progress.sampler is not None:
            set_order(self.batch_sampler if self.batch_sampler is not None else self.sampler, progress.sampler)
        self._seed, self._resumed, self._is_epoch_set = seed, progress, False

    def _check_place(self, progress: Progress) -> None:
        """Raise InvalidArgument if an epoch has no such position."""
        done = max((progress.batches, *(ordinal + 1 for ordinal in progress.beyond)))
        try:
            length = done if self.is_iterable else len(self)  # the length of a stream is a guess
        except TypeError:
            length = done
        if done > length:
            raise InvalidArgument(
                f"the state is after batch {done} of an epoch, and this loader has {length} batches; "
                "load it into a loader of the same dataset and batch_size"
            )
        self._check_sizes(progress, length)

    def _check_order(self, progress: Progress, skipped: str) -> None:
        """Warn if batches were handed out in an order that cannot be restored. A public method calls it directly."""
        if not progress.handed_out or self.is_iterable or not self._has_theirs:
            return
        sampler: Any = self.batch_sampler if self.batch_sampler is not None else self.sampler
        below = getattr(sampler, "sampler", sampler)
        if progress.sampler is None and not isinstance(below, Sequence | SequentialSampler | np.ndarray):
            name = type(below).__name__
            ours = getattr(samplers, name, None)
            has_ours = isinstance(ours, type) and issubclass(ours, samplers.Sampler) and ours is not samplers.Sampler
            advice = f"use shmtensor.data.{name}" if has_ours else "define both"
            warnings.warn(
                f"{type_name(below)} has no state_dict() and load_state_dict(): batches that were handed out {skipped} "
                f"by number, so the rest is correct only if it repeats the same order; {advice}",
                stacklevel=3,
            )

    def _check_sizes(self, progress: Progress, length: int) -> None:
        """Raise InvalidArgument if the batches that were handed out did not have this loader's size."""
        size = self.batch_size if self._batched else 1
        batches = progress.batches + len(progress.beyond)
        if size is None or not batches:  # the program's own batches may have any size
            return
        last = max((progress.batches - 1, *progress.beyond))  # only the last batch of an epoch may be smaller
        is_full = self.drop_last or (last < length - 1 and not self.is_iterable)
        least = batches * size if is_full else (batches - 1) * size + 1
        if not least <= progress.samples <= batches * size:
            raise InvalidArgument(
                f"the state has {progress.samples} samples in {batches} batches, and this loader makes batches of "
                f"{size}; use the batch_size of the loader that made the state"
            )

    def stats(self) -> LoaderStats:
        """Return statistics, a snapshot. Does not block."""
        return self._slots.counts.snapshot()

    def tune(self, max_bytes: int | None = None, max_workers: int | None = None, seconds: float = 1.0) -> Tuning:
        """Measure settings of num_workers and prefetch_factor on the dataset. Blocks; does not change this loader.

        Workers are added as long as this makes loading faster. Each trial iterates the sampler, also one of the
        program.

        Args:
            max_bytes: maximum bytes of batches; default: that of this loader.
            max_workers: maximum number of workers; default: the number of processors of this process.
            seconds: seconds for each setting.

        Returns:
            The trials; `print` shows a table, and `arguments` has the best arguments for a DataLoader.

        Raises as loading does.
        """
        return tuned(self._like, self.max_bytes if max_bytes is None else max_bytes, max_workers, seconds)

    def _like(self, num_workers: int, prefetch_factor: int | None, max_bytes: int | None) -> DataLoader[T_co]:
        """Return a loader like this one, except for some arguments."""
        own = self._own_sampler is not None or isinstance(self.sampler, SequentialSampler)
        with_batches = self._batched and self.batch_size is None
        return DataLoader(
            self.dataset, 1 if with_batches else self.batch_size, shuffle=self._own_sampler is not None or None,
            sampler=None if own or with_batches else self.sampler,
            batch_sampler=self.batch_sampler if with_batches else None, num_workers=num_workers,
            collate_fn=self.collate_fn, pin_memory=self.pin_memory,
            pin_memory_device=self.pin_memory_device, drop_last=self.drop_last, timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context if num_workers else None,
            prefetch_factor=prefetch_factor, persistent_workers=num_workers > 0, in_order=self.in_order,
            output=self.output, threads=self.threads, max_bytes=max_bytes, seed=self.seed, reseed=self.reseed,
            on_worker_death=self.on_worker_death,
        )  # fmt: skip

    def prefetch_to(self, device: Any = "cuda") -> Iterator[T_co]:
        """Begin an epoch whose batches are on a GPU: the next one is copied while the program computes with the last.

        Tensors, ours or torch's, are copied on a separate stream. A batch is safe to use on the stream that is current
        when it is handed out. Copies overlap with computation if the loader has pin_memory=True. `state_dict()` counts
        the batch that is being copied as handed out.

        Args:
            device: "cuda", or "cuda:1" and so on.

        Raises:
            DeviceUnavailable: no GPU can be used; the message says why.
            InvalidArgument: there is no such GPU, or the loader's output is "numpy" or "jax".
        """
        if self.output not in ("shmtensor", "torch"):
            raise InvalidArgument(
                f"prefetch_to copies tensors, and this loader has output={self.output!r}; use 'shmtensor' or 'torch'"
            )
        return Prefetched(self, device)

    def progress(self, file: TextIO | None = None, seconds: float = 0.5) -> Iterator[T_co]:
        """Yield the batches of an epoch and update a status line: `for batch in loader.progress()`.

        Args:
            file: where the line is written; default: standard error.
            seconds: interval between two updates.
        """
        out = sys.stderr if file is None else file
        try:
            total = f" of {len(self)}"
        except TypeError:
            total = ""
        shown = time.monotonic()
        number = 0
        for number, batch in enumerate(self, 1):
            yield batch
            now = time.monotonic()
            if now - shown >= seconds:
                shown = now
                out.write(f"\r\x1b[Kepoch {self._progress.epoch}, batch {number}{total}: {self.stats()}")
                out.flush()
        out.write(f"\r\x1b[Kepoch {self._progress.epoch}, {number} batches: {self.stats()}\n")

    def __len__(self) -> int:
        """The number of batches of an epoch. Raises TypeError: the dataset has no length."""
        if not self.is_iterable:
            return len(self.batch_sampler if self._batched else self.sampler)
        length, size = len(self.dataset), self.batch_size or 1
        self._slots.promised = length // size if self.drop_last else -(-length // size)
        return self._slots.promised

    def __iter__(self) -> Iterator[T_co]:
        """Begin an epoch. With workers, returns before the first batch is loaded; raises as starting processes does."""
        with self._lock:
            return self._begun()

    def _begun(self) -> Iterator[T_co]:
        resumed, self._resumed = self._resumed, None
        progress = Progress(self._epoch) if resumed is None else resumed
        self._begin_order(progress)
        self._is_epoch_set = False
        self._epoch = progress.epoch + 1
        self._runs += 1
        loads = self.is_iterable and hasattr(type(self.dataset), "load")
        if loads:
            stream: Iterator[Portion] = self._read(progress)
        else:
            stream = self._portions(progress)
        task = self._task(self.collate_fn, progress.epoch, stream=self.is_iterable and not loads, loads=loads)
        iterator = self._iterate("load", task, stream, progress, self._slots, self.num_workers)
        self._progress, self._iterator = progress, weakref.ref(iterator)
        return iterator  # type: ignore[no-any-return]

    def _begin_order(self, progress: Progress) -> None:
        """Pass the epoch to the samplers, and record the state that they need to begin it again.

        Samplers of the program count epochs, or the program sets them, unless it has called this loader's `set_epoch`.
        """
        if self._own_sampler is not None:
            self._own_sampler.seed = self.seed
        sampler = self.batch_sampler if self.batch_sampler is not None else self.sampler
        if (self._is_epoch_set or not self._has_theirs) and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(progress.epoch)
        progress.sampler = order_of(sampler)

    def _portions(self, progress: Progress) -> Iterator[Portion]:
        if self.is_iterable:
            return stream_portions(self.batch_size or 1, set(progress.beyond), progress.batches)
        if not self._batched:
            assert self.sampler is not None
            return portions(([key] for key in self.sampler), set(progress.beyond), progress.batches)
        sampler: Any = self.batch_sampler
        batches = sampler.batches() if isinstance(sampler, Sampler) and hasattr(sampler, "batches") else iter(sampler)
        return portions(batches, set(progress.beyond), progress.batches)

    def _read(self, progress: Progress) -> Iterator[Portion]:
        """Yield batches of raw items, read by a separate process."""
        wanted = self._portions(progress)
        source = stream_portions(self.batch_size or 1, set(progress.beyond), progress.batches)
        task = self._task(list, progress.epoch, stream=True, loads=False)
        task.batched, task.reseed = True, ()
        reader = self._iterate(
            "read", task, source, Progress(progress.epoch), self._reader_slots, min(self.num_workers, 1)
        )
        return _RawItems(wanted, reader, self.drop_last)

    def _task(self, collate_fn: Callable[[list[Any]], Any] | None, epoch: int, stream: bool, loads: bool) -> Task:
        return Task(
            self.dataset, collate_fn, self._batched, stream, self.seed, self.reseed, self.threads,
            self.worker_init_fn, 1 if stream else self.num_workers, loads, epoch,
        )  # fmt: skip

    def _iterate(
        self, name: str, task: Task, source: Iterator[Portion], progress: Progress, slots: Slots, workers: int
    ) -> Any:
        ahead = max(1, self.prefetch_factor * self.num_workers)
        epoch = Epoch(
            task, source, progress, self._runs, self._convert, slots, self.drop_last, ahead, self.in_order,
            self.timeout,
        )  # fmt: skip
        if not workers:
            return LocalIterator(epoch)
        if task.stream:
            workers = 1
        pipeline = self._pipelines.get(name)
        if pipeline is None or not pipeline.is_usable():
            self._pipelines.pop(name, None)
            pipeline = Pipeline(task, workers, self._context, slots, self.on_worker_death == "restart")
            if self.persistent_workers:
                self._pipelines[name] = pipeline
        return WorkerIterator(epoch, pipeline, not self.persistent_workers)


class _RawItems:
    """Batches of raw items from a reader. It continues after an error of the reader, if the reader does."""

    def __init__(self, wanted: Iterator[Portion], reader: Iterator[Any], drop_last: bool) -> None:
        self._wanted, self._reader, self._drop_last = wanted, reader, drop_last

    def __iter__(self) -> Iterator[Portion]:
        return self

    def __next__(self) -> Portion:
        portion = next(self._wanted)
        items = next(self._reader)
        if self._drop_last and len(items) < len(portion.keys):
            raise StopIteration
        keys = [Item(portion.start + place, item) for place, item in enumerate(items)]
        return Portion(portion.ordinal, portion.start, keys)


def _is_iterable(dataset: Any) -> bool:
    torch_data = sys.modules.get("torch.utils.data")
    kinds = (IterableDataset,) if torch_data is None else (IterableDataset, torch_data.IterableDataset)
    return isinstance(dataset, kinds) or (hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__"))


def _nothing() -> None:
    """In place of a weak reference to an iterator, if there is none."""


def _prefetch(value: int | None, workers: int) -> int:
    if value is None:
        return _PREFETCH
    if not workers:
        raise InvalidArgument("prefetch_factor needs num_workers above 0: without workers nothing is loaded ahead")
    return require_integer("prefetch_factor", value, 1)


def _context(given: Any, workers: int) -> Any:
    """Return the context that starts workers, if there are any. Raises InvalidArgument: no such start method."""
    if workers:
        return context_from("multiprocessing_context", given)
    if given is not None:
        raise InvalidArgument("multiprocessing_context needs num_workers above 0; give num_workers, or leave it out")
    return None
