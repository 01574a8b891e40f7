"""The engine: visits every state that a model can reach, breadth first, so that the first trace found is a shortest."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

State = Any  # a NamedTuple of hashable fields
Step = tuple[str, State]


class Result(NamedTuple):
    """The result of an exploration."""

    states: int
    seconds: float
    violation: str | None
    trace: list[str]


class Model:
    """An initial state, the steps from a state, and its checks. A step is one store, and a kill may follow any of them.

    `safeguards` names deliberate parts of the design; `without` names one to leave out. A sound model then finds a
    violation: a safeguard without which nothing goes wrong is either not needed or not modelled.
    """

    safeguards: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()  # other designs that must be found sound as well

    def __init__(self, kills: int, without: str | None = None) -> None:
        if without is not None and without not in self.safeguards + self.alternatives:
            raise ValueError(f"{type(self).__name__} has no safeguard {without!r}; it has {', '.join(self.safeguards)}")
        self.kills = kills
        self.without = without

    def start(self) -> State:
        """The first state."""
        raise NotImplementedError

    def steps(self, s: State) -> Iterator[Step]:
        """Yield (label, next state) for every store that a process may do next."""
        raise NotImplementedError

    def broken(self, s: State) -> str | None:
        """Return what is wrong with a state, or None."""
        raise NotImplementedError

    def keeps(self, safeguard: str) -> bool:
        """Whether this safeguard is in place."""
        return self.without != safeguard


def explore(model: Model, limit: int = 20_000_000) -> Result:
    """Visit every reachable state until one is broken. Raises MemoryError past `limit` states."""
    began = time.process_time()
    start = model.start()
    came_from: dict[State, State] = {start: None}
    layer = [start]
    while layer:
        following = []
        for s in layer:
            if why := model.broken(s):
                return Result(len(came_from), time.process_time() - began, why, trace(model, came_from, s))
            for _, n in model.steps(s):
                if n not in came_from:
                    came_from[n] = s
                    following.append(n)
        layer = following
        if len(came_from) > limit:
            raise MemoryError(f"{type(model).__name__}: more than {limit} states; lower its bounds")
    return Result(len(came_from), time.process_time() - began, None, [])


def trace(model: Model, came_from: dict[State, State], end: State) -> list[str]:
    """The labels on the way from the start to a state; found by expanding again, as labels are not kept."""
    labels = []
    while (before := came_from[end]) is not None:
        labels.append(next(label for label, n in model.steps(before) if n == end))
        end = before
    return labels[::-1]


def put(row: tuple[Any, ...], i: int, value: Any) -> tuple[Any, ...]:
    """A copy of a tuple with one item changed: a store to row[i]."""
    return (*row[:i], value, *row[i + 1 :])
