"""The objects that all processes of a storm share, and the notes that must not be lost."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import shmtensor
import shmtensor.multiprocessing as mp

WEIGHTS: Final = 64
# Cells of `counters`.
FIRST, SECOND, INSIDE, ADDED = range(4)
"""FIRST and SECOND are equal and INSIDE is 0 whenever nobody has the lock. ADDED is changed without a lock."""
MOST_TAKEN: Final = 4
"""Messages in one get_many, so at most as many die with a consumer."""
_RECORD: Final = struct.Struct("<q")


def identity(row: int, incarnation: int, count: int) -> int:
    """The number of a message: which thread of which process, and its how-manieth."""
    return row << 54 | (incarnation & 0x3FFFFFF) << 28 | count


def series(number: int) -> tuple[int, int]:
    """(all but the count, the count) of a message's number."""
    return number >> 28, number & 0xFFFFFFF


@dataclass
class Stage:
    """The objects that traffic goes through. A spawned process gets it as an argument, a forked one inherits it."""

    work: Any
    """Queue: producers and forked children to consumers."""
    side: Any
    """Queue between threads."""
    news: Any
    """Broadcast: producers to all consumers."""
    objects: Any
    """Store: of 4 MiB, from which what nobody reads goes to files."""
    mail: Any
    """Queue: senders that have ended to the supervisor, over a restart of the manager."""
    lock: Any
    semaphore: Any
    condition: Any
    counters: shmtensor.Tensor
    """Four int64, see FIRST."""
    weights: shmtensor.Tensor
    """(WEIGHTS,) float32, trained by many without a lock."""

    @classmethod
    def build(cls, directory: Path) -> Stage:
        """`directory`: for the files of the store."""
        return cls(
            work=mp.Queue(24, maxbytes=64 << 20),
            side=mp.Queue(8),
            news=mp.Broadcast(8, policy="block"),
            objects=shmtensor.Store(max_bytes="4M", spill=directory / "spilled", spill_bytes="16M"),
            mail=mp.Queue(),
            lock=mp.Lock(),
            semaphore=mp.Semaphore(0),
            condition=mp.Condition(),
            counters=shmtensor.zeros(4, dtype=shmtensor.int64, shared=True),
            weights=shmtensor.zeros(WEIGHTS, dtype=shmtensor.float32, shared=True),
        )


class Journal:
    """Files that processes append to, each note by one write, so that a kill leaves it whole or absent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._put, self._taken, self._problems = (
            os.open(directory / name, flags, 0o600) for name in ("put", "taken", "problems")
        )

    def close(self) -> None:
        for fd in (self._put, self._taken, self._problems):
            os.close(fd)

    def put(self, number: int) -> None:
        """The message `number` of its series is in, and so are those before it."""
        os.write(self._put, _RECORD.pack(number))

    def taken(self, numbers: Iterable[int]) -> None:
        """These messages were taken."""
        os.write(self._taken, b"".join(_RECORD.pack(number) for number in numbers))

    def problem(self, text: str) -> None:
        """Something is wrong; the audit fails."""
        os.write(self._problems, text.strip().encode() + b"\n\0")

    def problems(self) -> list[str]:
        text = (self.directory / "problems").read_text(errors="replace")
        return [problem.strip() for problem in text.split("\0") if problem.strip()]

    def _read(self, name: str) -> Counter[int]:
        data = (self.directory / name).read_bytes()
        return Counter(number for (number,) in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]))

    def balance(self) -> tuple[int, int, int]:
        """(messages taken, of these more than once, messages that are in no journal of a taker)."""
        taken = self._read("taken")
        promised: dict[int, int] = {}
        # What was taken before its producer could say so counts as put.
        for number in (*self._read("put"), *taken):
            of, count = series(number)
            promised[of] = max(promised.get(of, 0), count + 1)
        lost = sum(promised.values()) - len(taken)
        return taken.total(), taken.total() - len(taken), lost
