"""A worker of a DataLoader that is killed or stopped at each step of its work on a batch."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_world import Filled, Numbered, Rows, Stream
from manager_world import until

from shmtensor.data import DataLoader, fetching, get_worker_info
from shmtensor.errors import LoaderTimeout, WorkerDied
from shmtensor.ipc.queues import SimpleQueue

pytestmark = pytest.mark.usefixtures("in_time")

HOLDING = ("after claim", "in a sample", "in a row", "before sending", "after sending", "before DONE")
"""Steps at which the worker has a chunk that nobody else loads."""
FREE = ("before claim", "after DONE", "after counting", "after telling")
STEPS = HOLDING + FREE


class Trap:
    """Sends a signal to the worker that comes to a step as the nth of all."""

    def __init__(self, marks: Path, step: str, number: signal.Signals, nth: int = 7) -> None:
        self.marks, self.step, self.number, self.nth = marks, step, number, nth

    def __call__(self, step: str) -> None:
        if step != self.step or get_worker_info() is None:
            return
        for count in itertools.count(1):
            try:
                (self.marks / str(count)).touch(exist_ok=False)
            except FileExistsError:
                continue
            break
        if count == self.nth:
            os.kill(os.getpid(), self.number)

    def has_sprung(self) -> bool:
        """Whether a worker has got the signal."""
        return (self.marks / str(self.nth)).exists()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have forked workers come here at each step that is the loader's."""
        patch.setattr(fetching, "_cas", self._around(fetching._cas, "before claim", "after claim", lambda it: it[0]))
        patch.setattr(fetching, "_store", self._around(fetching._store, "before DONE", "after DONE"))
        patch.setattr(fetching, "_add", self._around(fetching._add, "", "after counting"))
        put = SimpleQueue.put

        def told(queue: Any, message: Any) -> None:
            is_end = type(message) is tuple and message[0] == "done"
            self("" if is_end else "before sending")
            put(queue, message)
            self("after telling" if is_end else "after sending")

        patch.setattr(SimpleQueue, "put", told)

    def _around(self, call: Any, before: str, after: str, counts: Callable[[Any], bool] = lambda _: True) -> Any:
        def called(*arguments: Any) -> Any:
            self(before)
            found = call(*arguments)
            if counts(found):
                self(after)
            return found

        return called


def nowhere(step: str) -> None:
    """No trap."""


class Written(Filled):
    """Rows that are written in place, in two steps."""

    trap: Any = staticmethod(nowhere)

    def fill(self, index: int, out: Any) -> None:
        self.trap("in a sample")
        out[:2] = self.x[index][:2]
        self.trap("in a row")
        out[2:] = self.x[index][2:]


class Loaded(Rows):
    trap: Any = staticmethod(nowhere)

    def __getitem__(self, index: int) -> Any:
        self.trap("in a sample")
        return self.x[index]


class Texts(Numbered):
    """Samples of which a part is sent."""

    trap: Any = staticmethod(nowhere)

    def __getitem__(self, index: int) -> Any:
        self.trap("in a sample")
        return super().__getitem__(index)


class Unequal(Loaded):
    """Batches of another shape each, which are sent."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[: 1 + index // 4 % 5]


class Flowing(Stream):
    trap: Any = staticmethod(nowhere)

    def __iter__(self) -> Any:
        for array in super().__iter__():
            self.trap("in a sample")
            yield array


class Dealt(Stream):
    """A stream of which workers make the samples."""

    trap: Any = staticmethod(nowhere)

    def __iter__(self) -> Any:
        return iter(range(self.length))

    def load(self, item: int) -> Any:
        self.trap("in a sample")
        return np.full(3, item)


KINDS: dict[str, Any] = {
    "slots": (lambda: Written(64), {}),
    "rests": (lambda: Texts(64), {}),
    "parts": (lambda: Unequal(64), {}),
    "results": (lambda: Loaded(64), {"collate_fn": np.stack}),
    "stream": (lambda: Flowing(63), {}),
    "dealt": (lambda: Dealt(63), {}),
}
SILENT = {(kind, f"{when} sending") for kind in ("slots", "stream", "dealt") for when in ("before", "after")}
"""Of samples that fit their slots nothing is sent."""
QUICK = r"slots .*|rests before sending|parts after sending|dealt in.*"


def cases(steps: tuple[str, ...], quick: str) -> list[Any]:
    """Each step of each kind of samples; those that `quick` matches for every run."""
    return [
        pytest.param(kind, step, marks=() if re.fullmatch(quick, f"{kind} {step}") else pytest.mark.exhaustive)
        for kind in KINDS
        for step in steps
        if (kind, step) not in SILENT and (step != "in a row" or kind == "slots")
    ]


def plain(tree: Any) -> Any:
    """A batch as lists and numbers."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(value) for value in tree]
    return tree.tolist() if hasattr(tree, "tolist") else tree


def wanted(kind: str) -> Any:
    make, arguments = KINDS[kind]
    return plain(list(DataLoader(make(), 4, **arguments)))


def trapped(patch: pytest.MonkeyPatch, trap: Trap, kind: str, **more: Any) -> Any:
    """A loader with a trap for its workers."""
    make, arguments = KINDS[kind]
    dataset = make()
    dataset.trap = trap
    trap.install(patch)
    return DataLoader(dataset, 4, num_workers=2, multiprocessing_context="fork", **arguments, **more)


@pytest.mark.parametrize(("kind", "step"), cases(STEPS, QUICK))
def test_another_worker_takes_over(monkeypatch, tmp_path, kind, step):
    trap = Trap(tmp_path, step, signal.SIGKILL)
    loader = trapped(monkeypatch, trap, kind, on_worker_death="restart", persistent_workers=True)
    assert plain(list(loader)) == wanted(kind) and trap.has_sprung()
    assert plain(list(loader)) == wanted(kind)
    assert step not in HOLDING or loader.stats().restarts == 1


@pytest.mark.parametrize(("kind", "step"), cases(STEPS, r"slots (in a row|after DONE|before DONE)"))
def test_a_death_is_told_and_the_loader_can_be_used_again(monkeypatch, tmp_path, kind, step):
    trap = Trap(tmp_path, step, signal.SIGKILL)
    loader = trapped(monkeypatch, trap, kind)
    try:
        assert plain(list(loader)) == wanted(kind), "the worker was not needed any more"
        assert step in FREE
    except WorkerDied as error:
        assert error.signal_name == "SIGKILL"
        assert re.search("while it loaded ind" if step in HOLDING else "had no sample", str(error))
    assert trap.has_sprung()
    assert plain(list(loader)) == wanted(kind)


@pytest.mark.parametrize(("kind", "step"), cases(STEPS, r"slots (in a row|after DONE)"))
def test_a_worker_that_is_stopped_and_continued(monkeypatch, tmp_path, kind, step):
    trap = Trap(tmp_path, step, signal.SIGSTOP)
    loader = trapped(monkeypatch, trap, kind)
    iterator = iter(loader)
    over = threading.Event()
    thread = threading.Thread(target=go_on, args=(over,))
    thread.start()
    try:
        assert plain(list(iterator)) == wanted(kind) and trap.has_sprung()
    finally:
        over.set()
        thread.join()


def go_on(over: threading.Event) -> None:
    """Continue a worker once it has stopped, unless it is over before."""

    def stopped() -> list[int]:
        return [process.pid for process in multiprocessing.active_children() if is_stopped(process.pid)]

    for pid in until(lambda: stopped() or (over.is_set() and [0]), "a worker to stop"):
        if pid:
            os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    return False


@pytest.mark.parametrize(("kind", "step"), cases(STEPS, r"slots (in a row|after counting)"))
def test_a_worker_that_stays_stopped(monkeypatch, tmp_path, kind, step):
    trap = Trap(tmp_path, step, signal.SIGSTOP)
    loader = trapped(monkeypatch, trap, kind, timeout=0.5)
    try:
        assert plain(list(loader)) == wanted(kind), "the other one does all"
        assert step in FREE
    except LoaderTimeout as error:
        assert step in HOLDING or kind in ("stream", "dealt"), "of which one worker reads all"
        assert re.search(r"worker \d \(pid \d+\), which is stopped by a signal, has (ind.*\d+|none of it)", str(error))
    assert trap.has_sprung()
    assert plain(list(loader)) == wanted(kind)
