"""The worker's side of simulations: the objects of one worker, and the delivery of their results.

`words` are shared int64: the total number of results (FINISHED), the number at which the program wants to be woken
(WANTED), and a state for each simulation. Only the program sets a state to IDLE or SENT, and only the simulation's
worker changes it from SENT to RUNNING and then to a result: the time of the result, above 0, with its form in the two
lowest bits.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np

from .. import _native
from .._tensor.core import Tensor
from ..errors import InvalidArgument
from .failures import Failure, failure_of
from .layouts import Layout
from .parcels import Opened, sendable
from .randoms import begin_sample, end_samples

FINISHED, WANTED, STATES = 0, 1, 2
"""Indices in the words."""
IDLE, SENT, RUNNING = 0, -1, -2
"""States without a result."""
IN_ROW, IN_MESSAGE, NOTHING, FAILED = range(4)
"""Forms of results: in the row of the slots, in a message that was put before, None, an exception in a message."""
FORM: Final = 3
"""Mask of the form."""
TIME_BITS: Final = 2

_now = time.monotonic_ns


class _Unmade:
    """Replaces a simulation that the factory could not create: each call fails."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Group:
    """The simulations of one worker."""

    def __init__(self, number: int, seed: int, results: Any, factory: Opened, places: list[int], words: Tensor) -> None:
        self._number, self._seed, self._results = number, seed, results
        self._keep, self._words = words, words._live()
        self._slots: dict[str, tuple[Layout, list[Any]]] = {}
        self._inputs: tuple[Opened, list[Any]] | None = None
        self._objects = {place: self._made(factory, place) for place in places}

    def _made(self, factory: Opened, place: int) -> Any:
        failure = factory.failure
        if failure is None:
            begin_sample(self._seed, self._number, place)
            try:
                return factory.value(place)
            except BaseException as error:
                failure = failure_of(error)
            finally:
                end_samples()
        return _Unmade(failure)

    def close(self) -> None:
        """Call `close` of the simulations that have it."""
        for thing in self._objects.values():
            if hasattr(thing, "close"):
                with suppress(BaseException):
                    thing.close()
        self._objects.clear()

    def obey(self, kind: str, *content: Any) -> None:
        """Carry out a message."""
        if kind == "call":
            self._call(*content)
        elif kind == "slots":
            method, layout, slots = content
            self._slots[method] = layout, Layout.arrays(slots)
        else:
            layout, slots = content
            self._inputs = layout, Layout.arrays(slots)

    def _call(self, method: str, places: bytes, has_inputs: bool) -> None:
        words = self._words
        slots = self._slots.get(method)
        rows = np.frombuffer(places, np.int64)
        inputs: Iterator[tuple[Any, ...]] = itertools.repeat(())
        unread: Failure | None = None
        if has_inputs:
            assert self._inputs is not None
            layout, arrays = self._inputs
            unread = layout.failure
            if unread is None:
                inputs = zip(layout.value.rows(arrays, rows), strict=False)
        for place, arguments in zip(rows.tolist(), inputs, strict=False):
            words[STATES + place] = RUNNING
            form = self._run(place, method, arguments, unread, slots)
            _native.atomic_store(words, STATES + place, _now() << TIME_BITS | form, "seq_cst")
            finished = _native.atomic_fetch_add(words, FINISHED, 1, "seq_cst") + 1
            if finished == _native.atomic_load(words, WANTED, "seq_cst"):
                self._results.put(("group", self._number, "ready"))

    def _run(self, place: int, method: str, arguments: tuple[Any, ...], unread: Failure | None, slots: Any) -> int:
        """Call a simulation, and deliver its result. Returns the result's form."""
        thing = self._objects[place]
        failure = thing.failure if type(thing) is _Unmade else unread
        if failure is not None:
            self._results.put(("group", self._number, "failed", place, failure))
            return FAILED
        try:
            function = getattr(thing, method, None)
            if function is None:
                raise InvalidArgument(
                    f"simulation {place}, a {type(thing).__qualname__}, has no method {method!r}; "
                    "define it, or call another one"
                )
            value = function(*arguments)
            if value is None:
                return NOTHING
            if slots is not None and slots[0].write(slots[1], place, value):
                if slots[0].others:
                    self._results.put(("group", self._number, "rest", place, sendable(slots[0].rest(value))))
                return IN_ROW
            self._results.put(("group", self._number, "value", place, sendable(value)))
        except BaseException as error:
            self._results.put(("group", self._number, "failed", place, failure_of(error)))
            return FAILED
        return IN_MESSAGE
