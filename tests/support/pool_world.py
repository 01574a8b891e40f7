"""Functions and simulations for tests of WorkerPool: they report their worker, take long, fail, kill."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import UserDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shmtensor as st
from shmtensor.data import get_worker_info, sample_generator, simulation_group

BAD = 5
"""The item or simulation with the special behaviour."""


VARIOUS = (1, 0.1, True, np.float32(0.5), np.full((), 2**53 + 1), 3)
"""Results of `various` of each simulation."""


class Pair(NamedTuple):
    one: Any
    two: Any


def square(x: Any) -> Any:
    return x * x


def tree(i: int) -> Any:
    return {"array": np.full((2, 3), i), "pair": Pair(st.full((2,), float(i)), str(i)), "empty": [None, True]}


def own_pid(_: Any) -> int:
    return os.getpid()


def noise(_: Any) -> float:
    return float(sample_generator().random())


def stopping(i: int) -> int:
    if i == BAD:
        os.kill(os.getpid(), signal.SIGSTOP)
    return i


class Waiting:
    """Items wait until a file exists, except those that need not wait."""

    def __init__(self, gate: Path, items: tuple[int, ...]) -> None:
        self.gate, self.items = gate, items

    def __call__(self, i: int) -> int:
        while i in self.items and not self.gate.exists():
            time.sleep(0.002)
        return i


class Marked:
    """Marks each item that it begins with a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, i: int) -> int:
        (self.folder / str(i)).touch()
        return i


class Loud(Exception):
    """An exception whose constructor cannot be called with its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Unreadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise OSError("cannot be read")


class ExitsWhenRead:
    """Can be pickled, and calls sys.exit() when it is unpickled."""

    def __reduce__(self) -> Any:
        return sys.exit, (4,)


class Leaving:
    """Raises an exception of a type that is not an Exception for one item, as a function or a simulation."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __call__(self, i: int) -> Any:
        if i == BAD:
            raise self.kind
        return i

    def simulation(self, i: int) -> Any:
        return Leaver(self.kind)


class Leaver:
    """A simulation with a method that raises an exception of a type that is not an Exception."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def leave(self) -> None:
        raise self.kind

    def stay(self) -> int:
        return os.getpid()


def give_unreadable(i: int) -> Any:
    return Unreadable() if i == BAD else i


def give_lambda(i: int) -> Any:
    return (lambda: i) if i == BAD else i


def failing(i: int) -> Any:
    if i == BAD:
        raise KeyError("no such thing")
    return i


def failing_loudly(i: int) -> Any:
    if i == BAD:
        raise Loud(1, 2)
    return i


def stop_iteration(i: int) -> Any:
    if i == BAD:
        raise StopIteration
    return i


class DiesOnce:
    """Kills the worker that has one item, the first `times` times."""

    def __init__(self, marks: Path, times: int = 1, bad: int = BAD) -> None:
        self.marks, self.times, self.bad = marks, times, bad

    def __call__(self, i: int) -> int:
        if i == self.bad:
            for number in range(self.times):
                try:
                    (self.marks / f"died{number}").touch(exist_ok=False)
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return i


class Counter:
    """A simulation: counts its steps."""

    def __init__(self, number: int) -> None:
        self.number, self.count = number, 0
        self.noise = sample_generator().random()

    def step(self, action: Any = 0) -> Any:
        self.count += 1
        return {"state": np.array([self.number, self.count], np.float32), "action": action, "text": str(self.number)}

    def slow(self) -> int:
        time.sleep(0.002)
        return self.number

    def reset(self) -> int:
        self.count = 0
        return self.number

    def worker(self) -> tuple[int, int]:
        info = get_worker_info()
        assert info is not None
        return info.id, os.getpid()

    def drawn(self) -> float:
        return self.noise

    def kind_of(self, value: Any) -> list[str]:
        return [type(value["a"]).__name__, type(value["b"]).__name__, str(value["a"].dtype)]

    def keep(self, value: Any) -> Any:
        before, self.kept = getattr(self, "kept", np.zeros_like(value)), value
        return before

    def nothing(self) -> None:
        pass

    def uneven(self) -> Any:
        return np.zeros(3 if self.number == 2 else 2)

    def various(self) -> Any:
        """Numbers of one type or another."""
        return VARIOUS[self.number]

    def sometimes_unusable(self) -> Any:
        """One simulation returns something that cannot be collated."""
        return object() if self.number == 2 else self.number

    def told_unevenly(self) -> Any:
        """A row for the array, and a leaf without a slot whose length depends on the simulation."""
        return np.zeros(2), Told(a=["x"] * (1 + self.number))

    def partly_unreadable(self) -> Any:
        return Unreadable() if self.number == 1 else self.number

    def fails(self) -> int:
        if self.number == 2:
            raise KeyError("no such move")
        return self.number

    def dies(self) -> int:
        if self.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.number

    def stops(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class Told(UserDict[str, Any]):
    """A mapping that a layout takes as one leaf."""


class Various(Counter):
    """A simulation with results of objects."""

    def told(self, value: Any = None) -> Any:
        self.count += 1
        if value is not None:
            return {"count": float(value), "told": Told(by=self.number)}
        return {"count": self.count, "told": Told(by=self.number)}

    def mixed(self) -> Any:
        self.count += 1
        return np.zeros(2), Told(a=1) if self.count == 1 else Unreadable()

    def puts_and_dies(self) -> Any:
        """Its worker dies after sending the result, before the state is set."""
        simulation_group._now = lambda: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,return-value]
        return "of the dead"


class Gated(Counter):
    """Simulations, some of which wait until a file exists."""

    def __init__(self, gate: Path, slow: tuple[int, ...], number: int) -> None:
        super().__init__(number)
        self.gate, self.slow = gate, slow

    def wait(self) -> int:
        while self.number in self.slow and not self.gate.exists():
            time.sleep(0.002)
        return self.number


class Closing(Counter):
    """A simulation that marks its end."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(number)
        self.folder = folder

    def close(self) -> None:
        (self.folder / str(self.number)).touch()


class Unmade(Counter):
    """Simulations, one of which cannot be made."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        if number == 2:
            raise OSError("no such world")


def start_badly(number: int) -> None:
    if number == 1:
        raise OSError("no such disk")
