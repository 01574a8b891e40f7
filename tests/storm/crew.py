"""The processes that play the roles: start, stop, kill, and restart."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any, Final

import shmtensor.multiprocessing as mp

from . import board as notes
from . import processes, roles
from .board import Board, Row
from .stage import Journal, Stage

CAST: Final = (
    "producer", "consumer", "trainer", "threads", "pool", "forker", "producer", "consumer", "trainer",
    "keeper", "keeper",
)  # fmt: skip
"""The roles of a storm, in the order of slots. With the pool's two workers, the forker's child and the manager, 15
processes."""
_SPAWNED: Final = 0.03
"""Part of the processes that are spawned; the others are forked."""


class Member:
    """A place in the crew, and the process that is in it now."""

    def __init__(self, slot: int, role: str, rows: list[Row]) -> None:
        self.slot = slot
        self.role = role
        self.rows = rows
        self.process: Any = None
        self.is_polite = False
        self.orphans: list[int] = []
        """Children of the process that was here last, which must end before the next one starts."""
        self.ended_at = 0.0

    @property
    def row(self) -> Row:
        return self.rows[0]

    @property
    def resting_rows(self) -> list[Row]:
        return self.rows[: roles.THREADS[self.role]]

    def __str__(self) -> str:
        return f"{self.role} {self.slot} (pid {self.row[notes.PID]})"


class Crew:
    """All members. Their processes are children of this one."""

    def __init__(
        self, cast: tuple[str, ...], stage: Stage, board: Board, journal: Journal, choose: random.Random, pace: float
    ) -> None:
        self.stage = stage
        self._board = board
        self._journal = journal
        self._choose = choose
        self._pace = pace
        self.members = [
            Member(slot, role, board.rows[slot * roles.ROWS : (slot + 1) * roles.ROWS])
            for slot, role in enumerate(cast)
        ]
        self.started = self.spawned = 0

    def start(self, member: Member) -> None:
        """A new process for a place. What it chooses follows from the storm's seed."""
        spawned = self._choose.random() < _SPAWNED
        member.is_polite = self._choose.random() < 0.5
        seed = self._choose.randrange(2**32)
        for row in member.rows:
            row.forget_process()
        member.row[notes.INCARNATION] += 1
        context = mp.get_context("spawn" if spawned else "fork")
        member.process = context.Process(
            target=roles.play,
            args=(
                member.role, member.slot, self.stage, self._board.path, self._journal.directory, seed, self._pace,
                member.is_polite,
            ),
        )  # fmt: skip
        member.process.start()
        member.row[notes.PID] = member.process.pid
        self.started += 1
        self.spawned += spawned

    def wait_for(self, member: Member) -> int:
        """Wait for a process that has ended or is about to end, and return its exit code."""
        process, member.process = member.process, None
        process.join()
        code: int = process.exitcode
        process.close()
        member.ended_at = time.monotonic()
        return code

    def restart(self) -> None:
        """Start the processes that have ended, unless children of the previous one still run. Does not block."""
        for member in self.members:
            if member.process is None:
                for pid in member.orphans:
                    processes.reap(pid)
                member.orphans = [pid for pid in member.orphans if processes.is_running(pid)]
                if not member.orphans:
                    self.start(member)

    def living(self) -> list[Member]:
        """Those whose process has not been waited for."""
        return [member for member in self.members if member.process is not None]

    def is_complete(self) -> bool:
        """Every process runs and has begun."""
        return all(
            member.process is not None and all(row[notes.READY] for row in member.resting_rows)
            for member in self.members
        )

    def reap_strangers(self) -> None:
        """Children that this process got by adoption and that nobody else waits for, a manager among them."""
        known = {member.process.pid for member in self.living()}
        known.update(pid for member in self.members for pid in member.orphans)
        for pid in processes.children(os.getpid()):
            if pid not in known and not processes.is_running(pid):
                processes.reap(pid)

    def kill_all(self) -> None:
        """The end, if need be by force."""
        for member in self.living():
            os.kill(member.process.pid, signal.SIGKILL)
            self.wait_for(member)
        for member in self.members:
            for pid in member.orphans:
                if processes.is_running(pid):
                    os.kill(pid, signal.SIGKILL)
