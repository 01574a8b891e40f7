"""Simulations in the workers of a pool: inputs and results are written to rows of shared memory.

Each simulation has its own row in the inputs, and in the results of each method. It has at most one pending call, so
its rows are free once the program has its result. A call takes one message for each worker. A result takes none, except
one to wake the program if it waits (simulation_group.py describes the shared words).
"""

from __future__ import annotations

import builtins
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from .. import _native
from .._tensor.core import Tensor
from .._tensor.creation import empty, zeros
from ..errors import (
    InvalidArgument,
    ManagerError,
    SampleError,
    ShmTensorError,
    TaskFailed,
    WorkerDied,
)
from ..storage.arguments import require_integer
from .collate import COLLATION_ADVICE, PADDING_ADVICE, collate, unordered_collate_fn_map
from .failures import Failure, raise_failure
from .layouts import Layout, layout_of
from .leaves import numbers_of
from .outputs import converted
from .parcels import Parcel, flattened, received
from .pool_core import INTERRUPTED, PoolCore, Task, User
from .simulation_group import FAILED, FINISHED, FORM, IDLE, IN_MESSAGE, IN_ROW, NOTHING, RUNNING, SENT, STATES, WANTED

__all__ = ["Simulations"]

_TRIES: Final = 3
"""Workers that may die in a row while they run one simulation."""
_LOOK: Final = 0.05
"""Seconds between checks for a message that another thread may have read."""
_SHOWN: Final = 8
"""Maximum number of ids in a message."""
_NONE: Final = np.empty(0, np.int64)


class _Slots:
    """Rows of one layout, one for each simulation."""

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout = layout
        self.tensors = tuple(layout.empty(count))
        self.arrays = Layout.arrays(self.tensors)


class Simulations(User):
    """Objects that live in the workers of a WorkerPool, created by its method `simulations`. See docs/data.md.

    Use it in a `with` statement, or drop it, to end the simulations.
    """

    def __init__(
        self, core: PoolCore, factory: Callable[[int], Any], count: int, convert: Callable[[Tensor], Any]
    ) -> None:
        self._core, self._factory, self._count, self._convert = core, factory, count, convert
        self._words_tensor = zeros(STATES + count, dtype="int64", shared=True)
        self._words = self._words_tensor._live()
        self._states = self._words[STATES:]
        self._methods: list[str] = []
        self._method_of = np.zeros(count, np.int64)  # index in `_methods` of the last call
        self._slots: dict[str, _Slots | None] = {}  # by method; None: not useful
        self._untold: list[Any] = []  # messages about slots, which are sent with the next call
        self._inputs: _Slots | None = None
        self._structure: Any = None  # structure of the inputs, with shapes and types
        self._messages: dict[int, Any] = {}  # results, or their parts without a slot
        self._is_restarted = np.zeros(count, np.bool_)
        self._deaths = np.zeros(count, np.int64)  # consecutive deaths of workers, by simulation
        self._death: WorkerDied | None = None  # not raised yet
        self._is_closed = False
        core.add(self)
        self._end = weakref.finalize(self, core.remove, self.number)
        self._end.atexit = False

    def __len__(self) -> int:
        """Number of simulations."""
        return self._count

    @property
    def waiting(self) -> NDArray[np.int64]:
        """Ids of simulations that have a call whose result was not gathered. Does not block."""
        return np.flatnonzero(self._states != IDLE)

    @property
    def restarted(self) -> NDArray[np.int64]:
        """Ids of simulations that were created again after the death of their worker, until their next call."""
        return np.flatnonzero(self._is_restarted)

    def close(self) -> None:
        """End the simulations; the workers stay. Does not block. May be called again."""
        self._is_closed = True
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- calls

    def send(self, inputs: Any = None, ids: Iterable[int] | None = None, method: str = "step") -> None:
        """Call a method of simulations. Does not wait for them; blocks only for memory.

        Each simulation's method gets its row of the inputs as NumPy arrays and numbers, which it may keep. It is called
        without arguments if `inputs` is None.

        Args:
            inputs: a tree (dicts, lists, tuples) of arrays or tensors, each with a first axis of length len(ids), or
                None.
            ids: ids of the simulations, in the order of `inputs`; default: all.
            method: name of the method.

        Raises:
            InvalidArgument: an unknown id; a simulation that has a call whose result was not gathered; a first axis of
                another length; the pool is closed, or belongs to another process.
            OutOfMemory: not enough memory for inputs of a new shape.
        """
        core = self._core
        core.require_open()
        with core.change:
            self._require_open()
            if not isinstance(method, str):
                raise InvalidArgument(f"method must be the name of a method, not {method!r}")
            places = self._places(ids)
            if not len(places):
                return
            if inputs is not None:
                self._write(inputs, places)
            self._tell_untold()
            if method not in self._methods:
                self._methods.append(method)
            try:
                self._call(method, places, inputs is not None)
            except KeyboardInterrupt:  # some workers may not have the call
                core.close(INTERRUPTED)
                raise

    def _call(self, method: str, places: NDArray[np.int64], has_inputs: bool) -> None:
        core = self._core
        self._method_of[places] = self._methods.index(method)
        self._states[places] = SENT
        self._is_restarted[places] = False
        workers = places % core.workers
        for number in range(min(core.workers, self._count)):
            some = places[workers == number]
            if len(some):
                core.tell(("call", self.number, method, some.tobytes(), has_inputs), [number])

    def _require_open(self) -> None:
        self._core.require_open()
        if self._is_closed:
            raise InvalidArgument("these simulations are closed; create new ones with pool.simulations")

    def _places(self, ids: Iterable[int] | None) -> NDArray[np.int64]:
        if ids is None:
            places = np.arange(self._count)
        else:
            given = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids) if isinstance(ids, Iterable) else ids)
            if given.ndim != 1 or (given.dtype.kind not in "iu" and len(given)):
                raise InvalidArgument(f"ids must be integers, in a sequence or an array of one axis, not {ids!r}")
            places = given.astype(np.int64)
            unknown = places[(places < 0) | (places >= self._count)]
            if len(unknown):
                raise InvalidArgument(f"there is no simulation {unknown[0]}: ids are 0 to {self._count - 1}")
        busy = places[self._states[places] != IDLE]
        if len(busy):
            raise InvalidArgument(
                f"simulation {busy[0]} has a call whose result was not gathered; call gather before the next send "
                f"({len(busy)} of {len(places)} ids have one)"
            )
        if len(np.unique(places)) < len(places):
            raise InvalidArgument("ids has a duplicate; a simulation can have one call at a time")
        return places

    def _write(self, inputs: Any, places: NDArray[np.int64]) -> None:
        """Write inputs into the rows of their simulations. Raises InvalidArgument."""
        arrays: list[NDArray[Any]] = []
        structure = flattened(inputs, _array, arrays)
        for array in arrays:
            if not array.ndim or len(array) != len(places):
                raise InvalidArgument(
                    f"an array of the inputs has shape {array.shape}; its first axis must be {len(places)}, one row "
                    "for each simulation that is called"
                )
        described = structure, [(array.shape[1:], array.dtype) for array in arrays]
        if self._inputs is None or described != self._structure:
            rows = iter(arrays)
            self._inputs = _Slots(layout_of(_rebuilt(inputs, lambda _: next(rows)[0])), self._count)
            if len(self._inputs.arrays) != len(arrays):
                raise InvalidArgument(f"the inputs have {len(arrays)} arrays; the maximum is 128, so join some of them")
            self._structure = described
            self._untold.append(("inputs", self.number, Parcel(self._inputs.layout), self._inputs.tensors))
        for into, array in zip(self._inputs.arrays, arrays, strict=True):
            into[places] = array

    def _tell_untold(self) -> None:
        """Send new slots to the workers. Raises InvalidArgument: the tree of inputs cannot be sent."""
        try:
            for message in self._untold:
                self._core.tell(message)
        except (ShmTensorError, OSError):
            raise
        except Exception as error:
            self._inputs = self._structure = None
            raise InvalidArgument(
                f"the inputs cannot be sent to workers: {error}; use dicts, lists, tuples, and namedtuples of a module"
            ) from error
        finally:
            self._untold.clear()

    # -- results

    def gather(
        self, min: int = 1, max: int | None = None, deadline: float | None = None
    ) -> tuple[NDArray[np.int64], Any]:
        """Wait until at least `min` results are ready, and return them in order of arrival.

        One gather returns results of one method, that of the oldest result; others stay for the next gather. It also
        returns if results that it waits for will not come, because a worker died: see `restarted`.

        Args:
            min: number of results to wait for; 0: do not wait.
            max: maximum number of results to return; default: all that are ready.
            deadline: maximum seconds to wait; then fewer results are returned, or none.

        Returns:
            (ids, values). ids: int64, (n,). values: a tree of the results, whose tensors have a new first axis of
            length n, in shared memory. It is collated as by `default_collate`, but types do not depend on the order:
            Python's floats count as float64. None if there are no results, or all are None.

        Raises:
            InvalidArgument: `min` is larger than the number of calls without a gathered result, or than `max`; the pool
                is closed, or belongs to another process.
            Exception: the exception of the method or the factory, with the id and the worker's traceback; or
                TaskFailed. Other results stay for the next gather, and that simulation can be called again.
            WorkerDied: with on_worker_death="raise", a worker died; its calls are lost, and other workers continue.
            SampleMismatch: results of unequal shapes.
            DTypeError: results that are not numbers, arrays or trees of these, or have types that do not go together.
                After this error and SampleMismatch, the results stay, and `gather(1, 1)` returns them one by one. A
                single result that cannot be used is dropped.
            TaskTimeout: no result came within the pool's `timeout`.
        """
        core = self._core
        core.require_open()
        min = require_integer("min", min, 0)
        max = None if max is None else require_integer("max", max, 1)
        with core.change:
            self._require_open()
            self._check(min, max, deadline)
        begun = time.monotonic()
        until = None if deadline is None else begun + deadline
        bound = begun + core.timeout if core.timeout else None
        limit = until if bound is None else bound if until is None else builtins.min(until, bound)
        found = core.wait(lambda: self._ready(min), limit)
        with core.change:
            if found is None:
                if bound is not None and limit == bound and limit != until:
                    core.late(f"fewer than {min} results came")
                core.drain()  # the queue may have the message about results of an earlier call
                found = self._finished()
            if self._death is not None:
                death, self._death = self._death, None
                try:
                    raise death
                finally:
                    del death
            try:
                return self._taken(found[:max])
            except KeyboardInterrupt:  # messages of results may be lost
                core.close(", after KeyboardInterrupt while results were taken")
                raise

    def _check(self, least: int, most: int | None, deadline: float | None) -> None:
        """Raise InvalidArgument for bounds that cannot be satisfied."""
        if deadline is not None and (not isinstance(deadline, int | float | np.number) or deadline != deadline):
            raise InvalidArgument(f"deadline is {deadline!r}; give seconds, 0 not to wait, None for no bound")
        if most is not None and least > most:
            raise InvalidArgument(f"min={least} is more than max={most}; give a min of at most max")
        under_way = int(np.count_nonzero(self._states))
        if least > under_way and self._death is None and not self._is_restarted.any():
            raise InvalidArgument(
                f"gather waits for {least} results, and only {under_way} simulations have a call: send to more, or "
                "give a smaller min"
            )

    def _finished(self) -> NDArray[np.int64]:
        """Return the ids of results that can be taken, in order of arrival."""
        places = np.flatnonzero(self._states > 0)
        return places[np.argsort(self._states[places], kind="stable")]

    def _ready(self, least: int) -> NDArray[np.int64] | None:
        """Return the ids of the results, if there are enough, or if no more will come."""
        if self._is_closed:  # by another thread
            self._require_open()
        words = self._words
        while True:
            finished = _native.atomic_load(words, FINISHED, "seq_cst")
            places = self._finished()
            if len(places) >= builtins.min(least, int(np.count_nonzero(self._states))) or self._death is not None:
                _native.atomic_store(words, WANTED, 0, "seq_cst")
                return places
            wanted = finished + least - len(places)
            _native.atomic_store(words, WANTED, wanted, "seq_cst")
            if _native.atomic_load(words, FINISHED, "seq_cst") < wanted:
                return None

    def _taken(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any]:
        """Return (ids, values) of results. Their simulations can be called again."""
        if not len(places):
            return _NONE, None
        forms = np.array(
            [_native.atomic_load(self._words, STATES + place, "acquire") & FORM for place in places.tolist()]
        )
        failed = places[forms == FAILED]
        if len(failed):
            place = int(failed[0])
            failure = self._message(place)
            self._release(failed[:1])
            raise_failure(
                failure,
                f"{self._methods[self._method_of[place]]!r} of simulation {place} was called by worker "
                f"{place % self._core.workers}, which raised",
                TaskFailed,
            )
        number = self._method_of[places[0]]
        same = self._method_of[places] == number
        places, forms = places[same], forms[same]
        values = self._values(places, forms, self._methods[number])
        return places, values

    def _values(self, places: NDArray[np.int64], forms: NDArray[np.int64], method: str) -> Any:
        """Return the tree of results. Those that cannot be joined stay; one that cannot be read or used is dropped."""
        slots = self._slots.get(method)
        messages = {
            place: self._message(place)
            for place, form in zip(places.tolist(), forms.tolist(), strict=True)
            if form == IN_MESSAGE or (form == IN_ROW and slots is not None and slots.layout.others)
        }
        try:
            opened = {place: received(message) for place, message in messages.items()}
            for place, one in opened.items():
                if one.failure is not None:
                    del messages[place]
                    self._release(np.array([place]))
                    what = f"the result of simulation {place} was read here, which raised"
                    raise_failure(one.failure, what, TaskFailed)
            values = {place: one.value for place, one in opened.items()}
            try:
                tree = self._joined(places, forms, method, slots, values)
            except (MemoryError, ManagerError):
                raise
            except Exception as error:
                if len(places) == 1:
                    messages.clear()
                    self._release(places)
                raise _unjoined(error, places) from None
        except Exception:
            self._messages.update(messages)
            raise
        self._release(places)
        return converted(tree, self._convert)

    def _joined(
        self,
        places: NDArray[np.int64],
        forms: NDArray[np.int64],
        method: str,
        slots: _Slots | None,
        values: dict[int, Any],
    ) -> Any:
        """Return the tree of results; `values` has their parts from messages."""
        if (forms == NOTHING).all():
            return None
        functions = unordered_collate_fn_map()
        if slots is not None and (forms == IN_ROW).all():
            leaves = []
            for array in slots.arrays:
                leaf = empty((len(places), *array.shape[1:]), dtype=array.dtype, shared=True)
                np.take(array, places, 0, leaf._live(), "clip")
                leaves.append(leaf)
            return slots.layout.batch(leaves, list(values.values()), functions)
        results = []
        for place, form in zip(places.tolist(), forms.tolist(), strict=True):
            result = values.get(place)
            if form == IN_ROW:
                assert slots is not None
                result = slots.layout.sample(slots.arrays, place, result or ())
            results.append(result)
        self._learn(method, results[0])
        return collate(results, collate_fn_map=functions)

    def _message(self, place: int) -> Any:
        """Return the message that a worker put before it set the state of a simulation."""
        while place not in self._messages:
            self._core.drain()
            if place not in self._messages:  # another thread has read it, and stores it next
                self._core.change.wait(_LOOK)
                self._core.require_open()
        return self._messages.pop(place)

    def _learn(self, method: str, sample: Any) -> None:
        """Make slots for the results of a method, from its first result."""
        if method not in self._slots:
            layout = layout_of(sample)
            slots = self._slots[method] = _Slots(layout, self._count) if layout.dtypes else None
            if slots is not None:
                self._untold.append(("slots", self.number, method, layout, slots.tensors))

    def _release(self, places: NDArray[np.int64]) -> None:
        self._deaths[places] = 0
        self._states[places] = IDLE

    # -- what the pool calls

    def greeting(self, member: int) -> list[Any]:
        """Return messages with the factory, and the slots of inputs and results."""
        places = list(range(member, self._count, self._core.workers))
        found: list[Any] = [("group", self.number, Parcel(self._factory), places, self._words_tensor)]
        if self._inputs is not None:
            found.append(("inputs", self.number, Parcel(self._inputs.layout), self._inputs.tensors))
        for method, slots in self._slots.items():
            if slots is not None:
                found.append(("slots", self.number, method, slots.layout, slots.tensors))
        return found

    def take(self, kind: str, place: int = 0, content: Any = None) -> None:
        """Take a message of a worker."""
        if kind != "ready":
            self._messages[place] = content

    def fail(self, task: Task, error: Exception | Failure) -> None:
        """Do nothing: simulations have no tasks."""

    def held_by(self, member: int) -> str:
        """Describe the simulation that a worker is running."""
        places = np.arange(member, self._count, self._core.workers)
        running = places[self._states[places] == RUNNING]
        if len(running):
            place = int(running[0])
            return f"simulation {place}, of which it called {self._methods[self._method_of[place]]!r}"
        called = np.count_nonzero(self._states[places] == SENT)
        if called:
            return f"calls of {called} simulations"
        return ""

    def lose(self, member: int, death: Callable[[], WorkerDied]) -> None:
        """Have another worker create the simulations of a dead one again; calls in progress get no result."""
        places = np.arange(member, self._count, self._core.workers)
        if not len(places):
            return
        running = places[self._states[places] == RUNNING]
        self._deaths[running] += 1
        if not self._core.restart or (self._deaths >= _TRIES).any():
            self._deaths[running] = 0
            self._death = death()
        unfinished = places[self._states[places] < 0]
        self._states[unfinished] = IDLE
        for place in unfinished.tolist():
            self._messages.pop(place, None)  # the message of a result whose state the worker did not set
        self._is_restarted[places] = True


def _unjoined(error: Exception, places: NDArray[np.int64]) -> Exception:
    """The error for results that cannot be joined, with their ids and what to do."""
    positions = error.positions if isinstance(error, SampleError) else ()
    found = [int(places[position]) for position in positions] or places.tolist()
    ids = ", ".join(map(str, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
    if len(places) == 1:
        advice = f"id of this simulation: {ids}; its result is dropped"
    else:
        advice = (
            f"ids of these simulations: {ids}; the results stay: gather(1, 1) returns them one by one, or let the "
            "method return results of one shape"
        )
    if isinstance(error, SampleError):
        text = str(error).removesuffix(PADDING_ADVICE).removesuffix(COLLATION_ADVICE)
        return type(error)(f"{text} ({advice})", positions)
    with suppress(Exception):  # it refuses attributes
        error.add_note(advice)
    return error


def _array(value: Any) -> NDArray[Any]:
    array = numbers_of(value)
    if array is None:
        raise InvalidArgument(
            f"inputs must be a tree (dicts, lists, tuples) of arrays or tensors with a row for each simulation, and it "
            f"has {value!r}"
        )
    return array


def _rebuilt(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return the tree with `leaf()` of each leaf, in the order of `flattened`."""
    kind = type(tree)
    if kind is dict:
        return {key: _rebuilt(part, leaf) for key, part in tree.items()}
    if kind in (list, tuple):
        return kind([_rebuilt(part, leaf) for part in tree])
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return kind(*[_rebuilt(part, leaf) for part in tree])
    return leaf(tree)
