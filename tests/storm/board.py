"""The notes of the processes, which the supervisor reads: 64-bit numbers in a file that all have mapped.

It uses nothing of shmtensor, which it judges. Each row has one writer, a thread of a role; a process that is killed
leaves its row as it was, and its replacement continues it. A store of an aligned number is one instruction.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECOND: Final = 1_000_000_000


@dataclass(frozen=True)
class Operation:
    """Something that may wait, and for how long."""

    name: str
    bound: float
    """Seconds. Far above what it takes, and far below a hang: the machine may be busy with other things."""
    is_timed: bool
    """It has a timeout of its own, so it ends in time although another process is stopped; the others may wait for
    that one to go on."""
    meaning: str


OPERATIONS: Final = (
    Operation("idle", 0.0, False, "nothing that may wait"),
    Operation("put", 5.0, False, "Queue.put, unbounded wait, while consumers live"),
    Operation("put, timeout", 3.0, True, "Queue.put(timeout=0.3): done, or Full"),
    Operation("put_many", 5.0, False, "Queue.put_many of 4, while consumers live"),
    Operation("get", 5.0, False, "Queue.get, unbounded wait, while producers live"),
    Operation("get, timeout", 3.0, True, "Queue.get(timeout=0.3): a message, or Empty"),
    Operation("get_many", 5.0, False, "Queue.get_many of up to 4, while producers live"),
    Operation("broadcast put", 5.0, False, "Broadcast.put with the policy block: readers live or are dead"),
    Operation("broadcast get", 3.0, True, "BroadcastReader.get(timeout=0.2): a message, or Empty"),
    Operation("lock", 5.0, False, "Lock.acquire(), whose holders are killed"),
    Operation("lock, timeout", 3.0, True, "Lock.acquire(timeout=0.2), whose holders are killed or stopped"),
    Operation("semaphore", 3.0, True, "Semaphore.acquire(timeout=0.02)"),
    Operation("condition", 5.0, False, "Condition.wait(timeout=0.02), with its lock taken before and after"),
    Operation("allocate", 5.0, False, "a shared tensor of 64 B to 1.6 MiB, filled; now and then asks the manager"),
    Operation("fork", 5.0, False, "os.fork with shared memory"),
    Operation("child", 10.0, False, "a forked child: checks what it inherited, sends it, ends"),
    Operation("pool", 10.0, False, "the result of a task of the Pool, or WorkerDied"),
    Operation("store", 30.0, False, "Store.put, get, create, put_many, delete, expire, some of which write files"),
    Operation("leave", 5.0, False, "SIGTERM raises SystemExit in the middle of anything: until the process has ended"),
)
(
    IDLE, PUT, PUT_TIMED, PUT_MANY, GET, GET_TIMED, GET_MANY, CAST_PUT, CAST_GET, LOCK, LOCK_TIMED, SEMAPHORE,
    CONDITION, ALLOCATE, FORK, CHILD, POOL, STORE, LEAVE,
) = range(len(OPERATIONS))  # fmt: skip

# Of the whole board.
PAUSE, DRAIN, HALT_TOTAL, HALT_SINCE = range(4)
"""PAUSE: the number of the quiet point at which traffic is to rest; 0: go on. DRAIN: the same number once those
who send rest, so that those who receive rest when nothing is left. HALT_*: nanoseconds during which traffic was not
meant to flow, because a process was stopped or all were told to rest; and since when just now, or 0."""
_HEADER: Final = 16

# Of a row.
(
    PID, INCARNATION, READY, RESTING, OPERATION, STARTED, HALTED_AT, SERIAL, OWN_HALT, PLEDGE, INSIDE,
    DONE, VERIFIED, WRONG, LOST, WORKERS_DIED, OWNERS_DIED, BEFORE_LOCKED, AFTER_LOCKED, BEFORE_ADDED, AFTER_ADDED,
    GIVEN, TAKEN, PUT_COUNT,
) = range(24)  # fmt: skip
"""PID to HALTED_AT: of the process now. SERIAL: how many operations were begun. OWN_HALT: nanoseconds it was stopped.
PLEDGE: it has noted the block that it holds and nobody else does. INSIDE: it is in the locked section. The rest are
counts over all incarnations; BEFORE_ counts what may have been done, AFTER_ what has been."""
_PLEDGE: Final = 24  # segment, index, generation
_COUNTS: Final = 32  # of each operation
_LONGEST: Final = _COUNTS + len(OPERATIONS)  # wait, nanoseconds
_ROW: Final = 128
assert _LONGEST + len(OPERATIONS) <= _ROW


class Board:
    """All rows. Made by the supervisor; others open it by path."""

    def __init__(self, path: Path, rows: int = 0) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if rows:
                os.ftruncate(fd, 8 * (_HEADER + rows * _ROW))
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self.path = path
        self.cells = memoryview(self._map).cast("q")
        self.rows = [Row(self, number) for number in range((len(self.cells) - _HEADER) // _ROW)]

    def halted(self, now: int) -> int:
        """Nanoseconds during which traffic was not meant to flow, up to `now`."""
        since = self.cells[HALT_SINCE]
        return self.cells[HALT_TOTAL] + (max(0, now - since) if since else 0)

    @contextmanager
    def halt(self, row: Row | None = None) -> Iterator[None]:
        """Traffic is not meant to flow meanwhile; `row`: because that one is stopped. Nested, the outer one counts."""
        start = time.monotonic_ns()
        outer = self.cells[HALT_SINCE] == 0
        if outer:
            self.cells[HALT_SINCE] = start
        try:
            yield
        finally:
            now = time.monotonic_ns()
            if row is not None:
                row[OWN_HALT] += now - start
            if outer:
                self.cells[HALT_TOTAL] += now - start
                self.cells[HALT_SINCE] = 0

    def total(self, field: int) -> int:
        """Sum of a field over all rows."""
        return sum(row[field] for row in self.rows)


class Row:
    """What one thread of a role notes."""

    def __init__(self, board: Board, number: int) -> None:
        self.board = board
        self.number = number
        self._cells = board.cells
        self._at = _HEADER + number * _ROW

    def __getitem__(self, field: int) -> int:
        return self._cells[self._at + field]

    def __setitem__(self, field: int, value: int) -> None:
        self._cells[self._at + field] = value

    def begin(self, operation: int) -> None:
        """Note that something which may wait begins."""
        self[SERIAL] += 1
        now = time.monotonic_ns()
        self[HALTED_AT] = self._halted(operation, now)
        self[STARTED] = now
        self[OPERATION] = operation

    def end(self) -> None:
        """Note that it has ended, and how long it took."""
        operation, waited = self[OPERATION], self.waited()
        self[OPERATION] = IDLE
        if operation:
            self[_COUNTS + operation] += 1
            self[_LONGEST + operation] = max(self[_LONGEST + operation], waited)

    @contextmanager
    def doing(self, operation: int) -> Iterator[None]:
        """`begin` and `end`."""
        self.begin(operation)
        try:
            yield
        finally:
            self.end()

    def _halted(self, operation: int, now: int) -> int:
        return self[OWN_HALT] if OPERATIONS[operation].is_timed else self.board.halted(now)

    def waited(self) -> int:
        """Nanoseconds that the operation under way has waited, less what it was meant to wait. 0: there is none."""
        operation, started, before, serial = self[OPERATION], self[STARTED], self[HALTED_AT], self[SERIAL]
        if not operation:
            return 0
        now = time.monotonic_ns()
        waited = now - started - (self._halted(operation, now) - before)
        return waited if serial == self[SERIAL] else 0

    def count(self, operation: int) -> int:
        """How often the operation has ended."""
        return self[_COUNTS + operation]

    def longest(self, operation: int) -> int:
        """The longest wait of the operation so far, nanoseconds."""
        return self[_LONGEST + operation]

    def pledge(self, numbers: tuple[int, int, int] | None) -> None:
        """Note the block whose release shows how soon a dead process's memory is free; None: there is none."""
        self[PLEDGE] = 0
        if numbers is not None:
            for place, number in enumerate(numbers):
                self[_PLEDGE + place] = number
            self[PLEDGE] = 1

    def pledged(self) -> tuple[int, int, int] | None:
        """The block of `pledge`."""
        if not self[PLEDGE]:
            return None
        return self[_PLEDGE], self[_PLEDGE + 1], self[_PLEDGE + 2]

    def forget_process(self) -> None:
        """What a process noted of itself and its replacement has not."""
        for field in (PID, READY, RESTING, OPERATION, PLEDGE, INSIDE):
            self[field] = 0
