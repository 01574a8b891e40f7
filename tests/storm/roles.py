"""The work of the processes. Each role continues until it is killed, or told to leave at any point."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import atomics, errors
from shmtensor.manager import client
from shmtensor.multiprocessing import queues

from . import board as notes
from . import content
from .board import Board, Row
from .stage import ADDED, FIRST, INSIDE, MOST_TAKEN, SECOND, WEIGHTS, Journal, Stage, identity

ROWS: Final = 4
"""Rows of the board for each process: row 0 is its main thread's."""
PLEDGE_BYTES: Final = 65_536
TOKEN: Final = None
"""In the queue `work`: who takes it rests until the quiet point is over."""
TARGET: Final = np.linspace(-1, 1, WEIGHTS, dtype=np.float32)
"""What the weights are trained to."""


class Player:
    """A process in its role."""

    def __init__(self, slot: int, stage: Stage, board: Board, journal: Journal, seed: int, pace: float) -> None:
        self.stage = stage
        self.board = board
        self.journal = journal
        self.choose = random.Random(seed)
        self.rows = board.rows[slot * ROWS : (slot + 1) * ROWS]
        self._pace = pace
        self._parent = os.getppid()
        self._is_leaving = False

    def leave(self, *_: object) -> None:
        """SIGTERM: end in order, from wherever the main thread is."""
        self._is_leaving = True
        raise SystemExit(0)

    def goes_on(self) -> bool:
        """Until told to leave, or the supervisor has ended."""
        return not self._is_leaving and os.getppid() == self._parent

    def breathe(self) -> None:
        """Between two turns, so that a storm leaves some of the machine to others."""
        time.sleep(self.choose.uniform(0, self._pace))

    def resting(self) -> int:
        """The number of the quiet point that is on; 0: none."""
        return self.board.cells[notes.PAUSE]

    def draining(self) -> bool:
        """Nobody sends any more: who has taken everything may rest."""
        return 0 != self.board.cells[notes.DRAIN] == self.resting()

    def rest(self, row: Row) -> None:
        """Stay at a quiet point, if one is on, holding nothing but what every process of this role holds."""
        point = self.resting()
        if not point:
            return
        gc.collect()
        client.default().allocate(64)  # releases what a finalizer had to leave because a lock was busy
        row[notes.RESTING] = point
        while self.resting() == point and self.goes_on():
            time.sleep(0.002)
        row[notes.RESTING] = 0

    def check(self, row: Row, number: int, kind: int, size: int, value: Any) -> None:
        """Look at every byte of a message."""
        wrong = content.wrong_bytes(number, kind, size, value)
        row[notes.VERIFIED] += 1
        if wrong:
            row[notes.WRONG] += wrong
            self.journal.problem(f"wrong data: {wrong} bytes of message {number:#x}, kind {kind}, size {size}")

    def message(self, row: Row, number: int, has_many: bool = False) -> tuple[int, int, int, Any]:
        """A message of some kind and size; `has_many`: of as many tensors as there are in any."""
        kind, size = self.choose.randrange(content.KINDS), self.choose.choice(content.SIZES)
        if self.choose.random() < 0.02:
            size = content.LARGE
        if has_many:
            kind, size = content.MANY, content.LARGE
        with row.doing(notes.ALLOCATE):
            return number, kind, size, content.make(number, kind, size)

    def thread(self, work: Callable[[Player, Row], None], place: int) -> threading.Thread:
        """Start a thread in row `place`; an error in it is a problem, and ends the process."""
        row = self.rows[place]

        def run() -> None:
            try:
                work(self, row)
            except BaseException:
                self.journal.problem(f"in a thread of process {os.getpid()}:\n{traceback.format_exc()}")
                os._exit(70)

        started = threading.Thread(target=run, daemon=True)
        started.start()
        return started


def play(
    role: str, slot: int, stage: Stage, path: Path, directory: Path, seed: int, pace: float, is_polite: bool
) -> None:
    """The whole life of a process of the storm.

    Args:
        role: a key of ROLES. slot: its place in the crew.
        path: of the board. directory: of the journals.
        seed: of all it chooses.
        pace: most seconds between two turns.
        is_polite: SIGTERM raises SystemExit; else it ends the process at once.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    journal = Journal(directory)
    player = Player(slot, stage, Board(path), journal, seed, pace)
    signal.signal(signal.SIGTERM, player.leave if is_polite else signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (directory / "stderr").open("a") as file:
        os.dup2(file.fileno(), 2)
    faulthandler.register(signal.SIGUSR1)  # the supervisor asks where it hangs
    row = player.rows[0]
    try:
        block = client.default().allocate(PLEDGE_BYTES)
        row.pledge((block.segment, block.index, block.generation))
        ROLES[role](player)
        del block
    except SystemExit:
        raise
    except BaseException:
        journal.problem(f"{role} {os.getpid()}:\n{traceback.format_exc()}")
        raise


# ------------------------------------------------------------------------------------------------------------- messages


def produce(player: Player) -> None:
    """Put messages into `work` in every way, and now and then one into `news`."""
    row, news_row = player.rows[:2]
    stage, choose = player.stage, player.choose
    count = news = 0
    row[notes.READY] = 1
    while player.goes_on():
        player.rest(row)
        roll = choose.random()
        if roll < 0.15:
            number = identity(news_row.number, row[notes.INCARNATION], news)
            message = player.message(row, number)
            with row.doing(notes.CAST_PUT):
                stage.news.put(message)
            news += 1
            done = 1
        elif roll < 0.3:
            numbers = [identity(row.number, row[notes.INCARNATION], count + i) for i in range(MOST_TAKEN)]
            has_many = choose.random() < 0.5  # so that the ring's lock is held for a while
            batch = [player.message(row, number, has_many) for number in numbers]
            with row.doing(notes.PUT_MANY):
                done = stage.work.put_many(batch)
            batch.clear()
            count += done
        else:
            message = player.message(row, identity(row.number, row[notes.INCARNATION], count))
            done = 1
            if roll < 0.5:
                with row.doing(notes.PUT_TIMED):
                    try:
                        stage.work.put(message, timeout=0.3)
                    except queues.Full:
                        done = 0
            else:
                with row.doing(notes.PUT):
                    stage.work.put(message)
            count += done
        message = None  # type: ignore[assignment]
        row[notes.PUT_COUNT] += done
        if count:
            player.journal.put(identity(row.number, row[notes.INCARNATION], count - 1))
        player.breathe()


def consume(player: Player) -> None:
    """Take messages from `work`, look at them when they come and again later, and read `news` in a thread."""
    row = player.rows[0]
    player.thread(listen, 1)
    kept: deque[Any] = deque()
    row[notes.READY] = 1
    while player.goes_on():
        messages = take(player, row)
        is_told = TOKEN in [message if message is TOKEN else 0 for message in messages]
        for message in messages:
            if message is not TOKEN:
                player.check(row, *message)
                kept.append(message)
        if is_told:
            for _ in range(sum(message is TOKEN for message in messages) - 1):
                player.stage.work.put(TOKEN)  # one each
        messages = message = None  # type: ignore[assignment]
        while len(kept) > (0 if is_told else 3):
            player.check(row, *kept.popleft())  # while held, its memory is nobody else's
        if is_told:
            player.rest(row)
        player.breathe()


def take(player: Player, row: Row) -> list[Any]:
    """Messages from `work`, noted as taken."""
    work, roll = player.stage.work, player.choose.random()
    try:
        if roll < 0.2:
            with row.doing(notes.GET_TIMED):
                messages = [work.get(timeout=0.3)]
        elif roll < 0.4:
            with row.doing(notes.GET_MANY):
                messages = work.get_many(MOST_TAKEN)
        else:
            with row.doing(notes.GET):
                messages = [work.get()]
    except queues.Empty:
        return []
    except errors.SegmentLost:
        row[notes.LOST] += 1
        return []
    player.journal.taken(message[0] for message in messages if message is not TOKEN)
    return messages


def listen(player: Player, row: Row) -> None:
    """Read `news`: nothing is missing between two messages of one process."""
    last: dict[int, int] = {}
    with player.stage.news.reader() as reader:
        row[notes.READY] = 1
        while player.goes_on():
            message = await_message(player, row, notes.CAST_GET, reader.get)
            if message is None:
                continue
            player.check(row, *message)
            series, count = message[0] >> 28, message[0] & 0xFFFFFFF
            if last.get(series, count - 1) != count - 1:
                player.journal.problem(f"news of {series:#x}: message {count} after {last[series]}")
            last[series] = count
            message = None


def await_message(player: Player, row: Row, doing: int, get: Callable[..., Any]) -> Any:
    """A message. None: a TOKEN; one whose memory is lost; or none came for a while, and a quiet point may be over."""
    try:
        with row.doing(doing):
            return get(timeout=0.3)
    except queues.Empty:
        if player.draining():
            player.rest(row)
    except errors.SegmentLost:
        row[notes.LOST] += 1
    return None


def juggle(player: Player) -> None:
    """Three threads: one puts into `side`, one takes, one makes and drops tensors."""
    row = player.rows[0]
    threads = [player.thread(put_aside, 1), player.thread(take_aside, 2)]
    row[notes.READY] = 1
    while player.goes_on():
        player.rest(row)
        churn(player, row)
        player.breathe()
    for thread in threads:
        thread.join()


def put_aside(player: Player, row: Row) -> None:
    row[notes.READY] = 1
    count = 0
    while player.goes_on():
        player.rest(row)
        message = player.message(row, identity(row.number, player.rows[0][notes.INCARNATION], count))
        try:
            with row.doing(notes.PUT_TIMED):
                player.stage.side.put(message, timeout=0.3)
        except queues.Full:
            pass
        else:
            player.journal.put(message[0])
            count += 1
            row[notes.PUT_COUNT] += 1
        message = None  # type: ignore[assignment]
        player.breathe()


def take_aside(player: Player, row: Row) -> None:
    row[notes.READY] = 1
    while player.goes_on():
        message = await_message(player, row, notes.GET_TIMED, player.stage.side.get)
        if message is None:
            continue
        player.journal.taken([message[0]])
        player.check(row, *message)
        message = None


def churn(player: Player, row: Row) -> None:
    """Some tensors at once, each of which must keep its content."""
    made = [player.message(row, row.number << 40 | row[notes.SERIAL] << 8 | i) for i in range(4)]
    player.choose.shuffle(made)
    for message in made:
        player.check(row, *message)


def posted(seed: int, count: int) -> list[tuple[int, int, int]]:
    """(number, kind, size) of the messages that `post` puts."""
    choose = random.Random(seed)
    return [(seed << 8 | i, choose.randrange(content.KINDS), choose.choice(content.SIZES)) for i in range(count)]


def post(mail: Any, seed: int, count: int) -> None:
    """Put messages that nobody waits for, and end."""
    for number, kind, size in posted(seed, count):
        mail.put((number, content.make(number, kind, size)))


# ------------------------------------------------------------------------------------------- shared state and its locks


def train(player: Player) -> None:
    """Hogwild steps on the weights, sums with and without a lock, a semaphore, a condition."""
    row, stage, choose = player.rows[0], player.stage, player.choose
    turns = [count_locked, count_locked, count_atomic, step, step, pass_units, meet, churn]
    row[notes.READY] = 1
    while player.goes_on():
        player.rest(row)
        choose.choice(turns)(player, row)
        if not np.isfinite(stage.weights.numpy()).all():
            player.journal.problem("the weights are not finite any more")
        player.breathe()


def count_locked(player: Player, row: Row) -> None:
    """Two counters that only differ while somebody has the lock, or when its holder died.

    When SIGTERM raises SystemExit in here the lock stays taken, as with a kill: its holder is about to end.
    """
    lock, cells = player.stage.lock, player.stage.counters.numpy()
    if player.choose.random() < 0.4:
        with row.doing(notes.LOCK_TIMED):
            if not lock.acquire(timeout=0.2):
                return
    else:
        with row.doing(notes.LOCK):
            lock.acquire()
    row[notes.INSIDE] = 1
    me = os.getpid()
    found = int(cells[FIRST]), int(cells[SECOND]), int(cells[INSIDE])
    if lock.owner_died:
        row[notes.OWNERS_DIED] += 1
        cells[FIRST] = cells[SECOND] = max(found[:2])
        cells[INSIDE] = 0
    elif found[0] != found[1] or found[2]:
        player.journal.problem(f"lock: counters {found[:2]} and process {found[2]} inside, but no owner died")
        cells[FIRST] = cells[SECOND] = max(found[:2])
    cells[INSIDE] = me
    row[notes.BEFORE_LOCKED] += 1
    cells[FIRST] += 1
    if player.choose.random() < 0.3:
        time.sleep(player.choose.uniform(0, 0.003))  # long enough to be stopped or killed in here
    cells[SECOND] += 1
    row[notes.AFTER_LOCKED] += 1
    if cells[INSIDE] != me:
        player.journal.problem(f"lock: process {cells[INSIDE]} came in while {me} had it")
    cells[INSIDE] = 0
    row[notes.INSIDE] = 0
    lock.release()


def count_atomic(player: Player, row: Row) -> None:
    row[notes.BEFORE_ADDED] += 1
    atomics.fetch_add(player.stage.counters, ADDED, 1)
    row[notes.AFTER_ADDED] += 1


def step(player: Player, _row: Row) -> None:
    """A step of stochastic gradient descent on eight of the weights, while others make theirs."""
    index = player.choose.sample(range(WEIGHTS), 8)
    x = np.array([player.choose.gauss(0, 1) for _ in index], np.float32)
    weights = player.stage.weights
    error = float(x @ (weights.numpy()[index] - TARGET[index]))
    change = shmtensor.from_numpy(-0.05 * error * x)
    if player.choose.random() < 0.8:
        atomics.index_add_atomic_(weights, 0, index, change)
    else:
        weights.numpy()[index] += change.numpy()


def pass_units(player: Player, row: Row) -> None:
    semaphore = player.stage.semaphore
    if player.choose.random() < 0.4:
        row[notes.GIVEN] += 1
        semaphore.release()
        return
    with row.doing(notes.SEMAPHORE):
        is_mine = semaphore.acquire(timeout=0.02)
    if is_mine:
        row[notes.TAKEN] += 1


def meet(player: Player, row: Row) -> None:
    condition = player.stage.condition
    with row.doing(notes.CONDITION), condition:
        if player.choose.random() < 0.5:
            condition.notify()
        else:
            condition.wait(timeout=0.02)


# ------------------------------------------------------------------------------------------------ objects by their keys


def keep(player: Player) -> None:
    """Put objects into the store, read those of others, hold some, and remove some."""
    row = player.rows[0]
    turns = [put_object, put_object, read_object, read_object, read_object, make_object, put_several, remove_object]
    kept: deque[Any] = deque()
    count = 0
    row[notes.READY] = 1
    while player.goes_on():
        if player.resting():
            kept.clear()
        player.rest(row)
        number = identity(row.number, row[notes.INCARNATION], count)
        count += 1
        try:
            with row.doing(notes.STORE):
                found = player.choose.choice(turns)(player, row, number)
        except errors.QuotaExceeded:  # what the others read may not go
            found = None
            kept.clear()
        except errors.SegmentLost:
            row[notes.LOST] += 1
            found = None
        if found is not None:
            player.check(row, *found)
            kept.append(found)
        found = None
        while len(kept) > 3:
            player.check(row, *kept.popleft())  # while held, its memory is nobody else's
        player.breathe()


def _object(player: Player, number: int) -> tuple[int, int, int, Any]:
    """What a store takes, of some kind and size."""
    kind, size = player.choose.choice((0, 1, 2, content.MANY, 5)), player.choose.choice(content.SIZES)
    if player.choose.random() < 0.05 and kind != content.MANY:
        size = content.LARGE
    return number, kind, size, content.make(number, kind, size)


def _key(player: Player) -> str:
    return f"one/{player.choose.randrange(40)}"


def put_object(player: Player, _row: Row, number: int) -> None:
    ttl = player.choose.uniform(0, 0.2) if player.choose.random() < 0.2 else None
    with suppress(errors.NameTaken):
        player.stage.objects.put(_key(player), _object(player, number), ttl=ttl, replace=player.choose.random() < 0.8)


def read_object(player: Player, _row: Row, _number: int) -> Any:
    try:
        return player.stage.objects.get(_key(player))
    except shmtensor.store.ObjectNotFound:
        return None


def make_object(player: Player, row: Row, number: int) -> None:
    """Seal an object or, now and then, give it up."""
    size = player.choose.choice(content.SIZES)
    key = f"made/{player.choose.randrange(8)}"
    try:
        with player.stage.objects.create(key, size, shmtensor.int64) as tensor:
            tensor.numpy()[:] = content.pattern(number, size)
            if player.choose.random() < 0.2:
                raise LookupError
    except (LookupError, errors.NameTaken):
        return
    try:
        found = player.stage.objects.get(key)
    except shmtensor.store.ObjectNotFound:
        return
    if len(found) == size and found[0].item() == content.pattern(number, 1)[0]:  # nobody was faster
        player.check(row, number, 0, size, found)
    player.stage.objects.delete(key)


def put_several(player: Player, _row: Row, number: int) -> None:
    """Three objects at once, so of one number, or else of the next one that somebody puts."""
    player.stage.objects.put_many({f"group/{place}": _object(player, number) for place in range(3)}, replace=True)


def remove_object(player: Player, _row: Row, _number: int) -> None:
    if player.choose.random() < 0.1:
        player.stage.objects.expire()
    player.stage.objects.delete(_key(player))


# -------------------------------------------------------------------------------------------------- processes of theirs


def beget(player: Player) -> None:
    """Fork children that look at what they inherited, send it, and end; the parent may have dropped it by then."""
    row, child_row = player.rows[:2]
    context = mp.get_context("fork")
    row[notes.READY] = 1
    while player.goes_on():
        player.rest(row)
        child_row[notes.INCARNATION] += 1
        message: Any = player.message(row, identity(child_row.number, child_row[notes.INCARNATION], 0))
        if player.choose.random() < 0.5:
            with row.doing(notes.FORK):
                pid = os.fork()
            if pid == 0:
                code = 71
                try:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
                    hand_on(player, child_row, message)
                    code = 0
                finally:
                    os._exit(code)
            if player.choose.random() < 0.5:
                message = None
            with row.doing(notes.CHILD):
                _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
        else:
            process = context.Process(target=hand_on, args=(player, child_row, message))
            with row.doing(notes.FORK):
                process.start()
            if player.choose.random() < 0.5:
                message = process._args = None
            with row.doing(notes.CHILD):
                process.join()
            code = process.exitcode
            process.close()
            del process
        child_row[notes.OPERATION] = notes.IDLE  # of a child that was killed
        message = None
        if code not in (0, -signal.SIGKILL):
            player.journal.problem(f"a forked child ended with {code}")
        player.breathe()


def hand_on(player: Player, row: Row, message: Any) -> None:
    """In the child."""
    try:
        player.check(row, *message)
        with row.doing(notes.PUT):
            player.stage.work.put(message)
        player.journal.put(message[0])
        row[notes.PUT_COUNT] += 1
    except Exception:
        player.journal.problem(f"in a forked child:\n{traceback.format_exc()}")
        sys.exit(71)


def employ(player: Player) -> None:
    """A Pool whose workers are killed: each task has a result or raises WorkerDied."""
    row = player.rows[0]
    count = 0
    with mp.get_context("fork").Pool(2, initializer=_calm) as workers:
        row[notes.READY] = 1
        pending: deque[Any] = deque()
        while player.goes_on():
            while len(pending) > (0 if player.resting() else 3):
                collect(player, row, *pending.popleft())
            player.rest(row)
            number = identity(row.number, row[notes.INCARNATION], count)
            count += 2
            message: Any = player.message(row, number)
            pending.append((*message[:3], workers.apply_async(answer, message)))
            message = None
            player.breathe()


def collect(player: Player, row: Row, number: int, kind: int, size: int, result: Any) -> None:
    try:
        with row.doing(notes.POOL):
            wrong, value = result.get(notes.OPERATIONS[notes.POOL].bound)
    except errors.WorkerDied:
        row[notes.WORKERS_DIED] += 1
    except errors.SegmentLost:
        row[notes.LOST] += 1
    else:
        player.check(row, number + 1, kind, size, value)
        if wrong:
            row[notes.WRONG] += wrong
            player.journal.problem(f"wrong data: {wrong} bytes of a task's argument, kind {kind}, size {size}")


def answer(number: int, kind: int, size: int, value: Any) -> tuple[int, Any]:
    """The task: how many bytes of the argument are wrong, and content of the next number. Some take their time."""
    time.sleep(0.02 * random.random() ** 8)
    return content.wrong_bytes(number, kind, size, value), content.make(number + 1, kind, size)


def _calm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


ROLES: Final[dict[str, Callable[[Player], None]]] = {
    "producer": produce,
    "consumer": consume,
    "trainer": train,
    "threads": juggle,
    "forker": beget,
    "pool": employ,
    "keeper": keep,
}
THREADS: Final = {"producer": 1, "consumer": 2, "trainer": 1, "threads": 3, "forker": 1, "pool": 1, "keeper": 1}
"""How many rows of a role are of threads that rest at quiet points."""
USERS: Final = {"queue": frozenset({"producer", "consumer"}), "lock": frozenset({"trainer"})}
"""Who can be stopped inside of what."""
PARENTS: Final = frozenset({"forker", "pool"})
"""Roles with children, which hold what their parent held when it was killed."""
