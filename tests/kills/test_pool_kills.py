"""Pool with kills at every line: of its workers, and while its threads are at any of their lines.

The pool has no hooks: a trace function stops at the places, which are read from the compiled module, so that a new line
is a new place. Each function must be assigned to a thread or worker below, and each place that no run reaches be named.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from manager_world import BOUND, until

import shmtensor.multiprocessing as mp
from shmtensor.errors import WorkerDied
from shmtensor.ipc import pool as pools
from shmtensor.manager import client

SEED = 4
EXIT_CODE = 70
LOOK = 0.01
"""Seconds between two looks of a worker for its parent, here."""
PARTS = pytest.mark.parametrize("part", [slice(i, None, 4) for i in range(4)], ids=range(4))
"""Which of the places a test takes: each some 50 kills."""

Place = tuple[str, int]
"""A function's qualified name and a line."""

IN_WORKERS = {"_Number.__reduce__", "_orphaned", "_outcome", "_portable", "_take", "work"} | {
    "Receipt.read",
    "Receipt.clear",
    "Receipt._open",
    "Receipt.__setstate__",
}
IN_THREADS = {"_death_of"} | {
    f"_PoolCore.{name}"
    for name in ("_audit", "_await_room", "_put", "_set_result", "collect", "feed", "fill", "remove_ended", "tend")
}
ELSEWHERE = {"<module>", "_Arriving", "Receipt", "_PoolCore", "_Number", "Pool"}  # bodies of classes, run once
ELSEWHERE |= {
    "Receipt.__init__",
    "Receipt.__getstate__",
    "_PoolCore.__init__",
    "Pool.__init__",
    "Pool._repopulate_pool",
}
ELSEWHERE |= {"_arrive", "_terminate", "_refuse_result"}

NOT_REACHED = {
    ("work", "return"): "its parent has ended: test_workers_end_with_the_process_that_made_the_pool",
    ("work", "raise"): "damage of the ring",
    ("_orphaned", "return lambda: False"): "work is not called but in children",
    ("_orphaned.<locals>.<lambda>", "return lambda: False"): "as above",
    ("_take", "except (Refused, BlockGone, LockBusy) as problem:"): "no memory, or a lock that stays taken",
    ("_take", "tasks._manager._translate(problem)"): "as above",
    ("_PoolCore.fill", "except BaseException:"): "no process to be had",
    ("_PoolCore.fill", "del self._receipts[worker]"): "as above",
    ("_PoolCore.fill", "raise"): "as above",
    ("_PoolCore.tend", "except (OSError, ShmTensorError):  # no process or no memory available"): "as above",
    ("_PoolCore.tend", "patience = _AGAIN"): "as above",
    ("_PoolCore._await_room", "self.room.clear()"): "4096 tasks wait: test_iterables_are_read_as_far_as_tasks_may_wait",
    ("_PoolCore._await_room", "self.room.wait(0.05)"): "as above",
    ("_PoolCore._await_room", "return False"): "the pool is terminated",
    ("_PoolCore.feed", "break"): "as above",
    ("_PoolCore.collect", "return"): "as above",
    ("_PoolCore.collect", "elif isinstance(error, SegmentLost):"): "test_pool.py: memory that was truncated",
    ("_PoolCore.collect", "self._result_lost = error  # the receipts tell which task it was"): "as above",
    ("_PoolCore.collect", "self.change.put(None)"): "as above",
    ("_PoolCore._audit", "self._result_lost = None"): "as above",
    ("_PoolCore._audit", "self._losses = dict.fromkeys(list(self._tasks), error) | self._losses"): "as above",
    ("_PoolCore.collect", "raise"): "damage of the ring",
}
"""Function and line -> why no run here gets there."""

SOURCE = Path(pools.__file__).read_text()


def places() -> dict[Place, str]:
    """Every line of the pool that has instructions -> its text."""
    text = SOURCE.splitlines()
    found: dict[Place, str] = {}
    waiting = [compile(SOURCE, pools.__file__, "exec")]
    while waiting:
        code = waiting.pop()
        if code.co_name == "__annotate__":  # evaluates annotations, from Python 3.14 on
            continue
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for _start, _end, line in code.co_lines():
            if line:
                found[code.co_qualname, line] = text[line - 1].strip()
    return found


def belongs(place: Place, functions: set[str]) -> bool:
    return place[0].split(".<locals>")[0] in functions


PLACES = places()


def test_every_function_is_somebodys() -> None:
    known = IN_WORKERS | IN_THREADS | ELSEWHERE
    assert not [place for place in PLACES if not belongs(place, known)], "say whose it is"


# --------------------------------------------------------------------------------------------------------------- tasks


class Board:
    """What the processes of a run tell each other, in a file."""

    VICTIM, GATE, OPEN, LOOKS, RAN = 0, 8, 16, 24, 64

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("a+b") as file:
            file.truncate(mmap.PAGESIZE)
            self.bytes = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def pid(self, where: int) -> int:
        return int.from_bytes(self.bytes[where : where + 4], "little")

    def sign(self, where: int) -> None:
        self.bytes[where : where + 4] = os.getpid().to_bytes(4, "little")

    def is_sprung(self) -> bool:
        return self.pid(Board.VICTIM) != 0

    def ran(self, number: int) -> int:
        return self.bytes[Board.RAN + number]


board: Board


def note(number: int) -> None:
    board.bytes[Board.RAN + number] += 1


def square(number: int) -> int:
    note(number)
    return number * number


def wrapped(number: int) -> list[int]:
    note(number)
    return [number]


def fail(number: int) -> None:
    note(number)
    raise KeyError(number)


def gate(number: int) -> int:
    note(number)
    board.sign(Board.GATE)
    until(lambda: board.bytes[Board.OPEN], "the gate to open")
    return number


class TooManyArguments(Exception):
    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(one)


def raise_too_many(number: int) -> None:
    note(number)
    raise TooManyArguments(1, 2)


def unpicklable(number: int) -> Any:
    note(number)
    return lambda: number


class Here:
    """Can be unpickled in one process alone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __reduce__(self) -> Any:
        return here, (self.pid,)


def here(pid: int) -> Here:
    if os.getpid() != pid:
        raise ImportError("not here")
    return Here(pid)


def only_here(number: int) -> Here:
    note(number)
    return Here(os.getpid())


def is_right(number: int, value: Any) -> Callable[[Any], bool]:
    return lambda found: found() == value


def raises(kind: type[Exception]) -> Callable[[Any], bool]:
    def check(found: Any) -> bool:
        with pytest.raises(kind):
            found()
        return True

    return check


Task = tuple[Any, tuple[Any, ...], Callable[[Any], bool], bool]
"""Function, arguments, check of what its result's get gives, whether it runs."""


def all_kinds() -> list[Task]:
    """One task for every way that one can go, by number."""
    reraise = pools.pool._helper_reraises_exception  # type: ignore[attr-defined]
    return [
        (square, (0,), is_right(0, 0), True),
        (wrapped, (1,), is_right(1, [1]), True),
        (fail, (2,), raises(KeyError), True),
        (raise_too_many, (3,), raises(pools.pool.MaybeEncodingError), True),
        (square, (Here(os.getpid()),), raises(ImportError), False),
        (unpicklable, (5,), raises(pools.pool.MaybeEncodingError), True),
        (only_here, (6,), raises(ImportError), True),
        (reraise, (OSError("told"),), raises(OSError), False),
        (square, (8,), is_right(8, 64), True),
    ]


def check(number: int, task: Task, result: Any, killed: dict[int, str]) -> int:
    """Right, or its worker's death; gives whether the task was lost. `killed`: pid -> how."""
    _function, _arguments, is_right, runs = task

    def get() -> Any:
        return result.get(BOUND)

    try:
        result.wait(BOUND)
        error = None if result.successful() else result._value
        if isinstance(error, WorkerDied):
            raise error
        assert is_right(get)
        assert board.ran(number) == runs
        return 0
    except WorkerDied as death:
        assert death.pid in killed, (death, killed)
        how = killed[death.pid]
        assert (death.exit_code, death.signal_name) == ((EXIT_CODE, None) if how == "exit" else (-9, "SIGKILL"))
        assert board.ran(number) <= runs
        return 1


def check_one(found: Any, killed: dict[int, str]) -> int:
    """As check, of one that each_once found."""
    if not isinstance(found, WorkerDied):
        return 0
    assert found.pid in killed
    return 1


def each_once(pool: Any) -> list[Any]:
    """The outcomes of eight tasks more: each has one."""
    results = pool.imap_unordered(abs, range(-8, 0))
    found: list[Any] = []
    for _ in range(8):
        try:
            found.append(results.next(BOUND))
        except WorkerDied as death:
            found.append(death)
    with pytest.raises(StopIteration):
        results.next(BOUND)
    right = [one for one in found if not isinstance(one, WorkerDied)]
    assert len(set(right)) == len(right)
    assert set(right) <= set(range(1, 9))
    return found


def memory() -> tuple[int, int]:
    """In transit, and live blocks of this process."""
    manager = client.default()
    in_flight: int = manager.list()["in_flight_total"]
    return in_flight, manager.stats().live_blocks


@contextmanager
def nothing_left() -> Iterator[None]:
    gc.collect()  # what earlier tests left in cycles would be missed later
    before = memory()
    yield
    gc.collect()  # what errors and their frames have of the pool
    until(lambda: memory() == before, f"the memory to come back: {before}, {memory()}")


# ------------------------------------------------------------------------------------------------------------- workers


class Trap:
    """Target of a pool's workers: `work`, where the first that passes `place` for the nth time ends or stops."""

    def __init__(self, path: Path, place: Place, nth: int, action: str) -> None:
        self.plan = path, place, nth, action

    def __reduce__(self) -> Any:  # a spawned worker arms it while it unpickles, and so before its receipt
        return arm, self.plan

    def __call__(self, *arguments: Any) -> None:
        arm(*self.plan)(*arguments)


WORK = pools.work


def arm(path: Path, place: Place, nth: int, action: str) -> Any:
    global board
    board = Board(path)
    name, line = place
    passed = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal passed
        code = frame.f_code
        if code.co_filename != pools.__file__:
            return None
        if frame.f_lineno == line and code.co_qualname == name and event in ("call", "line"):
            passed += 1
            if passed == nth:
                spring(action)
        if event == "call" and code.co_qualname.startswith("_orphaned.<locals>"):
            board.bytes[Board.LOOKS] = 1
        return trace

    sys.settrace(trace)
    return WORK


def spring(action: str) -> None:
    sys.settrace(None)
    try:
        os.close(os.open(f"{board.path}.sprung", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    board.sign(Board.VICTIM)
    if action == "exit":
        os._exit(EXIT_CODE)
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


def kill_stopped(board: Board, is_over: threading.Event) -> None:
    """A thread: kill the victim once it has stopped; there is none if the run ends before."""
    until(lambda: board.is_sprung() or is_over.is_set(), "the victim")
    pid = board.pid(Board.VICTIM)
    if pid == 0:
        return
    until(lambda: has_stopped(pid), "it to stop")
    os.kill(pid, signal.SIGKILL)


def has_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def play(path: Path, monkeypatch: pytest.MonkeyPatch, method: str, place: Place, nth: int, action: str) -> bool:
    """One pool with a trap in it; gives whether that was passed."""
    global board
    board = Board(path)
    monkeypatch.setattr(pools, "work", Trap(path, place, nth, action))
    what = f"{method} {place} {PLACES[place]!r} {nth} {action} (seed {SEED})"
    is_over = threading.Event()
    killer = threading.Thread(target=kill_stopped, args=(board, is_over), daemon=True)
    if action == "stop":
        killer.start()
    try:
        with mp.get_context(method).Pool(2, abs, (0,), maxtasksperchild=4) as pool:
            tasks = all_kinds()
            results = [pool.apply_async(function, arguments) for function, arguments, *_ in tasks]
            for result in results:
                result.wait(BOUND)
                assert result.ready(), what
            found = each_once(pool)
            until(lambda: board.is_sprung() or board.bytes[Board.LOOKS], "an idle worker to look for its parent")
            pool.close()
            pool.join()
            assert not pool._core._tasks, what
            assert not pool._cache, what
        killed = {board.pid(Board.VICTIM): action} if board.is_sprung() else {}
        lost = sum(check(number, tasks[number], result, killed) for number, result in enumerate(results))
        lost += sum(check_one(one, killed) for one in found)
        assert lost <= len(killed), what
    except AssertionError as error:
        raise AssertionError(what) from error
    finally:
        is_over.set()
        if action == "stop":
            killer.join(BOUND)
    return board.is_sprung()


def reached_in_workers(
    path: Path, monkeypatch: pytest.MonkeyPatch, method: str, tried: list[Place], sampled: int
) -> set[Place]:
    """Kill at every place, and stop and exit at some of those that are reached."""
    rng = random.Random(SEED)
    runs = iter(range(10**6))

    def run(place: Place, nth: int, action: str) -> bool:
        with nothing_left():
            return play(path / f"{method}{next(runs)}", monkeypatch, method, place, nth, action)

    reached = [place for place in tried if run(place, 1, "kill")]
    for action in ("stop", "exit"):
        for place in rng.sample(reached, min(sampled, len(reached))):
            assert any(run(place, 1, action) for _ in range(5)), place  # some lie behind a wait that may end early
    for place in rng.sample(reached, min(sampled, len(reached))):
        run(place, 2, "kill")
    return set(reached)


@pytest.mark.any_python
@pytest.mark.exhaustive
@PARTS
def test_workers_killed_at_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: slice) -> None:
    monkeypatch.setattr(pools, "_LOOK", LOOK)
    tried = [place for place in PLACES if belongs(place, IN_WORKERS)][part]
    reached: set[Place] = set()
    for method, sampled in (("fork", 3), ("forkserver", 0), ("spawn", 0)):
        left = [place for place in tried if place not in reached and (place[0], PLACES[place]) not in NOT_REACHED]
        reached |= reached_in_workers(tmp_path, monkeypatch, method, left, sampled)
    assert not missed(tried, reached), "no run gets there: say why, or have one that does"


def missed(tried: list[Place], reached: set[Place]) -> set[tuple[str, str]]:
    return {(place[0], PLACES[place]) for place in tried if place not in reached} - NOT_REACHED.keys()


# --------------------------------------------------------------------------------------------------- the pool's threads


class Watch:
    """Traces the pool's threads; the first that reaches `place` once it is set calls `disturb(core)` and goes on."""

    def __init__(self, place: Place, disturb: Callable[[Any], None]) -> None:
        self.place = place
        self.disturb = disturb
        self.core: Any = None
        self.is_set = False
        self.reached = False
        self.problem: BaseException | None = None
        self.held = threading.Event()
        self.held.set()
        self._maker = os.getpid()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if os.getpid() != self._maker:
            sys.settrace(None)
            return None
        code = frame.f_code
        if code.co_filename != pools.__file__:
            return None
        if event in ("call", "line"):
            if code.co_qualname == "_PoolCore._set_result" and event == "call":
                self.held.wait(BOUND)
            if self.is_set and not self.reached and (code.co_qualname, frame.f_lineno) == self.place:
                self.reached = True
                try:
                    self.disturb(frame.f_locals.get("self") or self.core)
                except BaseException as problem:
                    self.problem = problem
        return self


class Victims:
    """The workers that a run kills, by pid."""

    def __init__(self) -> None:
        self.killed: dict[int, str] = {}

    def kill(self, worker: Any) -> None:
        self.killed[worker.pid] = "kill"
        worker.kill()

    @property
    def lost_the_gate(self) -> bool:
        """Whether the worker in the middle of a task was killed."""
        return board.pid(Board.GATE) in self.killed

    def disturb(self, core: Any) -> None:
        """Kill the worker in the middle of a task, or else another one, and wait until its death is seen."""
        worker = next((worker for worker in list(core.workers) if worker.pid == board.pid(Board.GATE)), None)
        worker = worker or next(iter(core.workers), None)
        if worker is None:
            return
        self.kill(worker)
        tending = next((thread for thread in threading.enumerate() if thread.name == "shmtensor-pool-tend"), None)
        if threading.current_thread() is tending:
            until(lambda: worker.exitcode is not None, "its death")
        else:
            until(lambda: worker not in core.workers or not tending or not tending.is_alive(), "its death to be seen")

    def kill_idle(self, pool: Any) -> None:
        """Kill a worker that has done all it took, as if it had put the first result just now."""
        others = [worker for worker in list(pool._pool) if worker.pid != board.pid(Board.GATE)]
        idle = next(worker for worker in others if worker.pid not in self.killed)
        os.kill(idle.pid, signal.SIGSTOP)
        until(lambda: has_stopped(idle.pid), "it to stop")
        pool._core._receipts[idle]._cell[0] = 1 + 1
        self.kill(idle)
        until(lambda: idle not in pool._pool and len(pool._pool) == 3, "another worker")


def watched_pool(watcher: Watch) -> Any:
    """A pool of three whose threads are traced by `watcher`."""
    threading.settrace(watcher)
    try:
        pool = mp.get_context("fork").Pool(3)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    watcher.core = pool._core
    return pool


def submit_more(pool: Any) -> tuple[list[Task], list[Any]]:
    """Tasks after the one at the gate, some of which fail, and their results."""
    tasks: list[Task] = []
    results = []
    for number in range(1, 7):
        tasks.append((square, (number,), is_right(number, number * number), True))
        results.append(pool.apply_async(square, (number,)))
    tasks += [(only_here, (7,), raises(ImportError), True), (square, (note,), raises(TypeError), False)]
    results += [pool.apply_async(only_here, (7,)), pool.apply_async(square, (threading.Lock(),))]
    return tasks, results


def watch(path: Path, place: Place, from_start: bool) -> bool:
    """One pool whose threads are watched: workers die, with and without a task, while results wait to be seen.

    While no result is seen, a worker that has done all it took is killed; at the place, one in the middle of a task is.
    """
    global board
    board = Board(path)
    what = f"{place} {PLACES[place]!r}"
    victims = Victims()
    watcher = Watch(place, victims.disturb)
    watcher.is_set = from_start
    with watched_pool(watcher) as pool:
        core = pool._core
        at_gate: Task = (gate, (0,), is_right(0, 0), True)
        gate_result = pool.apply_async(gate, (0,))
        until(lambda: board.pid(Board.GATE), "a worker in the middle of a task")
        watcher.held.clear()
        watcher.is_set = True
        tasks, results = submit_more(pool)
        tasks, results = [at_gate, *tasks], [gate_result, *results]
        until(lambda: core.outqueue.stats().put == 7 + victims.lost_the_gate, "results, and the mark for a death")
        victims.kill_idle(pool)
        watcher.held.set()
        board.bytes[Board.OPEN] = 1
        killed = victims.killed
        lost = sum(check(number, tasks[number], result, killed) for number, result in enumerate(results))
        assert lost <= victims.lost_the_gate, what
        found = each_once(pool)
        pool.close()
        pool.join()
        assert not core._tasks, what
        assert watcher.problem is None, what
        assert sum(check_one(one, killed) for one in found) <= len(killed) - lost, what
    return watcher.reached


@pytest.mark.any_python
@pytest.mark.exhaustive
@PARTS
def test_workers_killed_while_a_thread_is_at_every_line(tmp_path: Path, part: slice) -> None:
    tried = [place for place in PLACES if belongs(place, IN_THREADS)][part]
    reached: set[Place] = set()
    runs = iter(range(10**6))
    for from_start in (False, True):
        for place in tried:
            if place in reached or (place[0], PLACES[place]) in NOT_REACHED:
                continue
            with nothing_left():
                if watch(tmp_path / str(next(runs)), place, from_start):
                    reached.add(place)
    assert not missed(tried, reached), "no run gets there: say why, or have one that does"
