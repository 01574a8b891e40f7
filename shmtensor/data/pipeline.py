"""The parent's side of workers: pending batches, messages about them, and deaths of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, NoReturn

import numpy as np

from .. import _native
from .._tensor.core import Tensor
from ..errors import (
    InvalidArgument,
    LoaderTimeout,
    OutOfMemory,
    QuotaExceeded,
    SampleError,
    SampleFailed,
)
from .collate import default_collate
from .failures import Failure, batch_of_keys, indices, raise_failure
from .fetching import (
    CANCELLED,
    DONE,
    FREE,
    LOOSE,
    Job,
    Task,
    loads_many,
    many_size,
    map_rows,
    new_words,
    work,
    write_all,
)
from .layouts import Layout, layout_of
from .outputs import arrays_in, bounded, converted, detached
from .pinning import Pinning
from .state import Portion, listed
from .stats import Counts
from .workers import Crew, Member

_LOOK: Final = 0.05
"""Seconds between checks whether a worker has ended."""
_CHUNK: Final = 0.0002
"""Seconds that a chunk of samples should take: much longer than its claim, but short for waiting workers."""
_TRIES: Final = 3
"""Workers that may die with the same chunk."""
_BEHIND: Final = 8
"""Messages that a worker may have unread beyond two for each batch that is being loaded."""
_NAMED: Final = 8
"""Samples that an error names at most."""
_MISFITS: Final = 3
"""Batches in a row that do not fit their slots, after which slots are no longer tried."""


class Slots:
    """The known layout of one dataset's samples, and the limits of the memory of batches.

    Attributes:
        layout: layout of the slots of new batches; None: not known, or not useful.
        counts: counters of the loader.
        max_bytes: maximum bytes of batches that are loaded or held; None: no bound.
        promised: batches of an epoch, if `len()` of a loader of a stream was called; None: it was not.
        largest: bytes of the largest batch so far with parts outside of slots; None: there was none.
        pinning: makes slots in pinned memory, and copies other tensors into it; None: memory is not pinned.
    """

    def __init__(self, max_bytes: int | None, pinning: Pinning | None = None) -> None:
        self.layout: Layout | None = None
        self.counts: Counts = Counts()
        self.max_bytes = max_bytes
        self.promised: int | None = None
        self.largest: int | None = None
        self._misfits = 0
        self.pinning = pinning

    @property
    def is_unknown(self) -> bool:
        """Whether no sample has been seen so far."""
        return self.layout is None and self._misfits < _MISFITS

    @property
    def is_unsized(self) -> bool:
        """Whether memory is bounded, and the size of batches without slots is not known."""
        return self.max_bytes is not None and self.largest is None

    def learn(self, sample: Any) -> None:
        """Adopt the layout of a sample that did not fit, unless too many did not."""
        self.layout = layout_of(sample) if self._misfits < _MISFITS else None

    def judge(self, fitted: bool) -> None:
        """Count batches in a row that did not fit."""
        self._misfits = 0 if fitted else self._misfits + 1
        if self._misfits >= _MISFITS:
            self.layout = None

    def hand(self, arrays: Iterable[Any], has_slots: bool) -> None:
        """Count the arrays of a batch that is handed out."""
        nbytes = self.counts.held.add(arrays)
        self.counts.nbytes += nbytes
        if not has_slots:
            self.largest = max(self.largest or 0, nbytes)

    def need(self, layout: Layout | None, length: int) -> int:
        """Return the bytes that a batch will take: if not known, those of the largest such batch so far."""
        known = 0 if layout is None else layout.nbytes * length
        return known if layout is not None and not layout.others else max(known, self.largest or 0)

    def admit(self, need: int, loading: int, may_wait: bool) -> bool:
        """Whether a batch has room within `max_bytes` now.

        Args:
            need: bytes that it takes.
            loading: bytes of batches that are not handed out yet.
            may_wait: whether there are such batches; else lack of room raises QuotaExceeded.
        """
        held = self.counts.held
        if self.max_bytes is None or held.nbytes + loading + need <= self.max_bytes:
            return True
        if may_wait:
            return False
        raise QuotaExceeded(
            f"a batch of {need} bytes, with max_bytes={self.max_bytes}; {held.batches} batches of this loader are "
            f"still held, {held.nbytes} bytes; drop them or copy the parts that you need, or raise max_bytes"
        )

    def allocate(self, length: int, loading: int, may_wait: bool) -> tuple[Tensor, ...] | None:
        """Return the slots of a batch, or None if there is not enough memory now.

        Args:
            length: how many samples.
            loading: bytes of batches that are not handed out yet.
            may_wait: whether there are such batches; else lack of memory raises OutOfMemory.
        """
        assert self.layout is not None
        if not self.admit(self.need(self.layout, length), loading, may_wait):
            return None
        try:
            return tuple(self.empty(self.layout, length))
        except OutOfMemory:
            if may_wait:
                return None
            raise

    def empty(self, layout: Layout, length: int, shared: bool = True) -> list[Tensor]:
        """Make slots without checking `max_bytes`: pinned, else in shared or private memory. Raises as `empty`."""
        if self.pinning is None:
            return layout.empty(length, shared)
        make = self.pinning.empty
        return [make((length, *shape), dtype) for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)]


@dataclass(eq=False)
class Batch:
    """A batch that is being loaded.

    Attributes:
        job: the job that workers get.
        portion: its keys.
        layout: layout of its slots.
        words: the array of the job's words.
        rows: how many samples it has in the end.
        nbytes: that it is going to take, as far as that is known.
        parts: (first row, samples) by chunk, of what does not fit the slots.
        senders: numbers of the workers that sent these, by row.
        rests: the same, of leaves without a slot.
        result: (what the collate function gave,).
        failure: the first exception.
        failed_in: number of the worker that it is of.
        blame: deaths by chunk.
        is_seen: whether a check of all chunks has found them done.
        is_told: whether the message has come that all chunks are done, after all other messages about the batch.
    """

    job: Job
    portion: Portion
    layout: Layout | None
    words: Any
    rows: int
    nbytes: int
    parts: dict[int, tuple[int, list[Any]]] = field(default_factory=dict)
    senders: dict[int, int] = field(default_factory=dict)
    rests: dict[int, tuple[int, list[Any]]] = field(default_factory=dict)
    result: tuple[Any] | None = None
    failure: Failure | None = None
    failed_in: int = 0
    blame: dict[int, int] = field(default_factory=dict)
    is_seen: bool = False
    is_told: bool = False

    def is_counted_done(self) -> bool:
        """Whether all chunks have been counted as done. A worker that was killed may not have counted its own."""
        return _native.atomic_load(self.words, 2 * self.job.chunks, "acquire") == 0

    def is_done(self) -> bool:
        """Whether all chunks are done or cancelled."""
        chunks = range(self.job.chunks)
        return all(_native.atomic_load(self.words, chunk, "acquire") in (DONE, CANCELLED) for chunk in chunks)

    def cancel(self) -> None:
        """Prevent workers from starting another chunk."""
        for chunk in self.free_chunks():
            if _native.atomic_compare_exchange(self.words, chunk, self.job.free, CANCELLED, "seq_cst")[0]:
                _native.atomic_fetch_add(self.words, 2 * self.job.chunks, -1, "seq_cst")

    def free_chunks(self) -> list[int]:
        """Return the chunks that no worker has claimed."""
        found: list[int] = np.flatnonzero(self.words[: self.job.chunks] == self.job.free).tolist()
        return found

    def give_slots(self, layout: Layout, slots: tuple[Tensor, ...]) -> None:
        """Have unclaimed chunks written into slots, by workers that get the job again."""
        loose = self.free_chunks()
        self.layout, self.job = layout, self.job._replace(slots=slots)
        self.nbytes = layout.nbytes * self.job.length
        for chunk in loose:
            _native.atomic_compare_exchange(self.words, chunk, LOOSE, FREE, "seq_cst")

    def take(self, chunk: int, first: int, samples: list[Any], sender: int) -> None:
        """Take samples that a worker has sent: into the slots, if they fit."""
        if self.layout is not None and self.job.slots is not None:
            arrays = Layout.arrays(self.job.slots)
            map_rows(arrays, first, len(samples))
            if write_all(self.layout, arrays, first, samples):
                self.rests[chunk] = first, [self.layout.rest(sample) for sample in samples]
                return
        self.parts[chunk] = first, samples
        self.senders.update(dict.fromkeys(range(first, first + len(samples)), sender))

    def keys_of(self, chunks: Iterable[int]) -> list[Any]:
        """Return the keys of some chunks."""
        if isinstance(self.portion.keys, range):  # positions in a stream
            return list(self.portion.keys)
        return [key for chunk in chunks for key in self.job.keys_of(self.words, chunk)[1]]

    def collected(self, convert: Callable[[Tensor], Any], known: Slots) -> Any:
        """Return the batch, pinned and counted by `known`. Raises the exception of a worker, or of collation."""
        if self.failure is not None:
            raise_loading(self.failure, self.failed_in)
        with bounded(self.portion.keys), naming(self.portion.keys, self.senders):
            return self._collected(convert, known)

    def _collected(self, convert: Callable[[Tensor], Any], known: Slots) -> Any:
        if self.result is not None:
            return counted(self.result[0], convert, known)
        if not self.parts and self.layout is not None and self.job.slots is not None:
            slots = self.job.slots
            if self.rows < self.job.length:
                slots = tuple(slot[: self.rows] for slot in slots)
            rests = [rest for _, some in sorted(self.rests.values(), key=lambda pair: pair[0]) for rest in some]
            return batch_of(self.layout, slots, rests, convert, known)
        return counted(collated(self._samples()), convert, known)

    def _samples(self) -> list[Any]:
        """Return all samples, from messages and from the slots."""
        samples: list[Any] = [None] * self.rows
        arrays = None if self.job.slots is None else Layout.arrays(self.job.slots)
        for chunk in range(self.job.chunks):
            if chunk in self.parts:
                first, some = self.parts[chunk]
                samples[first : first + len(some)] = some
            elif self.layout is not None and arrays is not None:
                first = chunk * self.job.size
                _, rests = self.rests.get(chunk, (0, []))
                for row in range(first, min(first + self.job.size, self.rows)):
                    samples[row] = self.layout.sample(arrays, row, rests[row - first] if rests else ())
        return samples


def batch_of(
    layout: Layout, slots: Sequence[Tensor], rests: list[Any], convert: Callable[[Tensor], Any], known: Slots
) -> Any:
    """Return the batch of slots and leaves without a slot, counted and converted. Raises as `collate`."""
    if layout.others:  # which may contain tensors
        return counted(layout.batch(slots, rests), convert, known)
    known.hand(Layout.arrays(slots), True)
    return layout.batch([convert(slot) for slot in slots])


def counted(tree: Any, convert: Callable[[Tensor], Any], known: Slots) -> Any:
    """Return a batch whose size was not known before, pinned and counted by `known` and converted."""
    if known.pinning is not None:
        tree = converted(tree, known.pinning)
    known.hand(arrays_in(tree), False)
    return converted(tree, convert)


def collated(samples: list[Any]) -> Any:
    """Return the batch of samples as `default_collate` does, without gradients. Raises as `default_collate`."""
    return detached(default_collate(samples))


class naming:  # noqa: N801 - a context manager, as those of contextlib
    """Add the indices of samples to errors of collation in a `with` statement, as far as these say which they are.

    It is a class because errors that a generator raises keep its frames, and iterators, alive in CPython 3.13.

    Args:
        keys: of the batch.
        senders: numbers of the workers that loaded its samples, by position, where they are known.
    """

    def __init__(self, keys: Any, senders: Mapping[int, int]) -> None:
        self._keys, self._senders = keys, senders

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if isinstance(error, SampleError):
                found, places = listed(self._keys), error.positions[:_NAMED]
                if max(places, default=-1) < len(found):  # else a registered function has collated other sequences
                    names = ", ".join(self._named(found[place], place) for place in places)
                    raise type(error)(f"{error} (indices of these samples: {names})", error.positions) from None
            if isinstance(error, Exception):
                _note(error, self._keys)
        finally:
            del error  # of its own traceback: the cycle would keep iterators alive

    def _named(self, key: Any, place: int) -> str:
        return f"{key!r} (worker {self._senders[place]})" if place in self._senders else repr(key)


def _note(error: Exception, keys: Any) -> None:
    with suppress(Exception):  # an exception may refuse it
        error.add_note(f"({batch_of_keys(listed(keys))})")


def raise_loading(failure: Failure, worker: int) -> NoReturn:
    """Raise the exception of a worker, or SampleFailed if that is not possible; both have its traceback."""
    subject = failure[0]
    what = f"worker {worker} raised" if subject is None else f"worker {worker}, for {subject}, raised"
    raise_failure(failure, what, SampleFailed)


class Pipeline:
    """Workers with their batches. Several iterators may use one, also in several threads.

    Args:
        task: how samples are loaded.
        workers: number of workers.
        context: context of shmtensor.multiprocessing.
        slots: the known layout and limits of the samples.
        restart: whether workers that die are replaced; else a death raises.

    Raises as starting a process does.
    """

    def __init__(self, task: Task, workers: int, context: Any, slots: Slots, restart: bool) -> None:
        self.slots: Slots = slots
        self._task, self._restart = task, restart
        self._loads_many = loads_many(task.dataset) and not task.loads
        self._crew = Crew(context, workers, work, (task,))
        self._pending: dict[int, Batch] = {}
        self._number = 0
        self._sent: Layout | None = None
        self._ended: list[int] = []  # runs that workers are told about with the next job
        self._idle_deaths = 0
        self._looked = time.monotonic()
        self._change = threading.Condition()  # also the lock of the attributes below; a finalizer may take it again
        self._is_read = False  # a thread waits for messages
        self.is_closed: bool = False

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self._crew.members)

    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [member.pid for member in self._crew.members]

    def is_usable(self) -> bool:
        """Whether this process can use it."""
        return bool(self._crew.members) and not self.is_closed and not self._crew.is_inherited()

    def require_open(self) -> None:
        """Raise SampleFailed if the workers were ended. If Python exits, ends threads other than the main one."""
        if self.is_closed:
            raise SampleFailed(
                "the workers of this loader were ended, after an error in another iterator of it; "
                "create a new iterator: iter(loader)"
            )
        if not self._crew.members:
            if threading.current_thread() is threading.main_thread():
                raise SampleFailed("the workers of this loader were ended, because the interpreter exits")
            raise SystemExit  # ends the thread without a message

    def close(self) -> None:
        """End the workers, if this process started them. Blocks for less than half a second. May be called again."""
        if self._crew.is_inherited():
            return
        with self._change:
            self.is_closed = True
            self.drop(list(self._pending.values()))
            self._crew.stop()
            self._change.notify_all()

    # -- jobs

    def submit(self, portion: Portion, run: int, epoch: int, waiting: Sequence[Batch], may_raise: bool) -> Batch | None:
        """Give a batch to the workers. Returns None if there is not enough memory now.

        In that case raises OutOfMemory only if none of the iterator's batches is `waiting`, and `may_raise`.
        """
        with self._change:
            return self._submitted(portion, run, epoch, waiting, may_raise)

    def _submitted(
        self, portion: Portion, run: int, epoch: int, waiting: Sequence[Batch], may_raise: bool
    ) -> Batch | None:
        keys = portion.keys
        length = len(keys)
        layout = self.slots.layout if length and not self._task.finishes else None
        slots, need = None, self.slots.need(layout, length)
        loading, may_wait = sum(batch.nbytes for batch in waiting), bool(waiting) or not may_raise
        if layout is not None:
            slots = self.slots.allocate(length, loading, may_wait)
            if slots is None:
                return None
        elif not self.slots.admit(need, loading, may_wait):
            return None
        for member in self._crew.members:
            if member.jobs._ring.size() > 2 * len(self._pending) + _BEHIND:
                self._catch_up(member)
        size = self._chunk_size(length)
        chunks = max(1, -(-length // size))
        words, rest = new_words(chunks, () if self._task.stream else keys, LOOSE if slots is None else FREE)
        self._number += 1
        job = Job(self._number, run, epoch, portion.start, length, chunks, size, words, rest, slots)
        batch = Batch(job, portion, layout, words._live(), length, need)
        self._pending[self._number] = batch
        while self._ended:
            self._crew.send(("ended", self._ended.pop()))
        self._send(batch)
        return batch

    def _send(self, batch: Batch) -> None:
        """Send a job to all workers, after its layout if that is new."""
        if batch.layout is not self._sent and batch.layout is not None:
            self._crew.send(("layout", batch.layout))
            self._sent = batch.layout
        self._crew.send(tuple(batch.job))  # a plain tuple is sent without pickle

    def _chunk_size(self, length: int) -> int:
        if self._task.is_whole:
            return max(1, length)
        if self._loads_many:
            return many_size(length)
        workers = self.workers
        most = -(-length // (2 * workers)) if workers > 1 else length
        each = self.slots.counts.sample_seconds
        wanted = -(-length // (32 * workers)) if not each else int(_CHUNK * self._task.threads / each)
        return max(1, min(most, max(wanted, self._task.threads)))

    def drop(self, batches: Iterable[Batch]) -> None:
        """Forget batches. Workers finish chunks that they have started. Has no effect in another process."""
        if self._crew.is_inherited():
            return
        with self._change:
            for batch in batches:
                if self._pending.pop(batch.job.number, None) is not None:
                    batch.cancel()

    def end_run(self, run: int) -> None:
        """Record that an iterator needs no more batches."""
        self._ended.append(run)

    # -- results

    def wait(self, batches: Sequence[Batch], timeout: float) -> Batch:
        """Wait until one of the batches is done, and return it. It is then no longer pending.

        Args:
            batches: in the order of preference.
            timeout: seconds; 0: no bound.

        Raises:
            LoaderTimeout: none was done in time.
            WorkerDied: a worker has ended, and may not be replaced, or not again.
        """
        begun = time.monotonic()
        while True:
            with self._change:
                self._look()
                found = self._complete(batches)
                if found is not None:
                    return found
                if timeout and time.monotonic() - begun > timeout:
                    raise LoaderTimeout(self._lateness(batches[0], timeout))
                if self._is_read:  # by another thread, which takes messages for all
                    self._change.wait(_LOOK)
                    continue
                self._is_read = True
            try:
                message = self._crew.wait(_LOOK)
                if message is not None:
                    with self._change:
                        self._take(message)
            finally:
                with self._change:
                    self._is_read = False
                    self._change.notify_all()

    def _complete(self, batches: Sequence[Batch]) -> Batch | None:
        """Return the first batch that is done. A thread that reads may have messages that are not processed yet."""
        self.require_open()
        for batch in batches:
            if batch.is_told or (not self._is_read and (batch.is_seen or batch.is_counted_done())):
                return self._taken(batch)
        return None

    def _drain(self) -> None:
        """Take the messages that have arrived."""
        while self._crew.results._ring.size():
            message = self._crew.wait(0)
            if message is not None:
                self._take(message)

    def _taken(self, batch: Batch) -> Batch:
        if not batch.is_told:
            self._drain()  # messages sent before the last chunk was done
        del self._pending[batch.job.number]
        self._idle_deaths = 0
        chunks = batch.job.chunks
        self.slots.counts.loaded(batch.rows, float(batch.words[chunks : 2 * chunks].sum()) * 1e-9)
        if batch.layout is not None and batch.rows:
            self.slots.judge(len(batch.parts) < chunks)
        return batch

    def _take(self, message: Any) -> None:
        kind, number, *content = message
        if kind == "broken":
            self.close()
            raise_loading(content[0], number)
        batch = self._pending.get(number)
        if batch is None:
            return
        if kind == "done":
            batch.is_told = True
        elif kind == "part":
            chunk, first, samples, sender = content
            if samples and self.slots.layout is batch.layout:
                self._learn(batch, samples[0])
            batch.take(chunk, first, samples, sender)
        elif kind == "rest":
            chunk, first, rests = content
            batch.rests[chunk] = first, rests
        elif kind == "result":
            batch.result = (content[1],)
        elif kind == "short":
            batch.rows = content[0]
        elif batch.failure is None:
            _, batch.failure, batch.failed_in = content
            batch.cancel()

    def _learn(self, batch: Batch, sample: Any) -> None:
        """Adopt the layout of a sample that was sent. If it is the first one, the rest of the batch gets slots."""
        self.slots.learn(sample)
        layout = self.slots.layout
        if batch.layout is None and layout is not None and batch.free_chunks():
            slots = self.slots.allocate(batch.job.length, 0, may_wait=True)
            if slots is not None:
                batch.give_slots(layout, slots)
                self._send(batch)

    def _lateness(self, batch: Batch, timeout: float) -> str:
        words = batch.words[: batch.job.chunks]
        who = []
        for member in self._crew.members:
            chunks = np.flatnonzero(words == member.word).tolist()
            state = ", which is stopped by a signal," if member.is_stopped() else ""
            if chunks:
                who.append(f"worker {member.number} (pid {member.pid}){state} has {indices(batch.keys_of(chunks))}")
            elif state:
                who.append(f"worker {member.number} (pid {member.pid}){state} has none of it")
        return (
            f"DataLoader timed out after {timeout:g} seconds: "
            + "; ".join(who or ["no worker has begun the batch"])
            + "; check what these samples wait for, or raise timeout"
        )

    # -- deaths

    def _look(self) -> None:
        """Check for batches that are done, and replace workers that have ended. Raises WorkerDied.

        Does so at intervals, regardless of the number of messages. The thread that waits for messages leaves this to
        others.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK or self._is_read:
            return
        self._looked = now
        self.require_open()
        for batch in self._pending.values():
            batch.is_seen = batch.is_done()
        for member in self._crew.ended():
            lost = [
                (batch, chunk)
                for batch in self._pending.values()
                for chunk in np.flatnonzero(batch.words[: batch.job.chunks] == member.word).tolist()
            ]
            self._judge_death(member, lost)
            for batch, chunk in lost:
                _native.atomic_compare_exchange(batch.words, chunk, member.word, batch.job.free, "seq_cst")
            self._give_all(self._crew.replace(member))
            self.slots.counts.restarts += 1

    def _catch_up(self, member: Member) -> None:
        """Remove finished jobs from the queue of a worker that is far behind or stopped: they hold batches' memory."""
        ended = [message for message in member.unread() if message[0] == "ended"]
        for message in ended:
            member.jobs.put(message)
        self._give_all(member)

    def _give_all(self, member: Member) -> None:
        """Give a worker all unfinished jobs."""
        layout = None
        for batch in self._pending.values():
            if not batch.is_done():
                if batch.layout is not layout and batch.layout is not None:
                    layout = batch.layout
                    member.jobs.put(("layout", layout))
                member.jobs.put(tuple(batch.job))
        if self._sent is not None and self._sent is not layout:
            member.jobs.put(("layout", self._sent))

    def _judge_death(self, member: Member, lost: list[tuple[Batch, int]]) -> None:
        keys = [key for batch, chunk in lost for key in batch.keys_of([chunk])]
        doing = f"while it loaded {indices(keys)}" if keys else "while it had no sample"
        again = ""
        for batch, chunk in lost:
            batch.blame[chunk] = batch.blame.get(chunk, 0) + 1
            if batch.blame[chunk] >= _TRIES:
                again = f", as {_TRIES} workers did in a row"
        if not lost:
            self._idle_deaths += 1
            if self._idle_deaths > _TRIES * self.workers:
                again = ", as all that were started in its place"
        if not self._restart or again:
            advice = "" if self._restart else "; on_worker_death='restart' continues without loss"
            self.close()
            raise member.death(f"{doing}{again}{advice}")


def require_fork(pipeline: Pipeline) -> None:
    """Raise InvalidArgument if an iterator of another process, inherited by fork, is used here."""
    if pipeline._crew.is_inherited():
        raise InvalidArgument("this iterator belongs to the process that created it; call iter(loader) in this one")
