"""Random kills of producers and consumers on one queue, with checksums; `make kills` is the long version.

No message arrives damaged or twice, at most the message that a killed consumer had taken is lost, no process hangs, and
all memory is freed.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND, World, live_in_arenas, until

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor.ipc import queues
from shmtensor.manager import client

KILLS = int(os.environ.get("SHMTENSOR_KILLS", "100"))
SEED = int(os.environ.get("SHMTENSOR_KILLS_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
PRODUCERS = CONSUMERS = 3
RECORD = struct.Struct("<II")
"""Of a journal: the producer's number, the message's."""


def checksum(value: Any) -> int:
    """Of everything in a message."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return zlib.crc32(repr([checksum(item) for item in value]).encode())
    if isinstance(value, shmtensor.Tensor):
        value = value.numpy()
    if isinstance(value, queues.SimpleQueue):  # in a message; it has one
        inside = value.get()
        value.put(inside)
        return checksum(inside)
    return zlib.crc32(value.tobytes() if isinstance(value, np.ndarray) else value)


def make_value(kind: int, size: int, fill: int) -> Any:
    """Every way that data takes: tensors, arrays inline and in blocks, short and long bodies, plain and pickled."""
    if kind == 0:
        return shmtensor.full((size,), fill)
    if kind == 1:
        return np.full(size, fill, np.int64)
    if kind == 2:
        return os.urandom(size * 4)
    if kind == 3:  # many holds: long in the moving
        return [shmtensor.full((4,), fill + i) for i in range(min(size, 500))]
    if kind == 5:  # lives in the message alone, and once in itself too
        inner = mp.SimpleQueue()
        inner.put(shmtensor.full((size,), fill))
        if fill % 2:
            inner.put(inner)
        return inner
    values = {"t": shmtensor.full((size,), fill), "a": np.full(size % 100, fill), "b": bytes(size % 300)}
    values["t2"] = values["t"]  # twice: goes through pickle
    return values


def produce(q: Any, number: int, journal: int, seed: int) -> None:
    """Put until killed; a message is noted once it is in."""
    choose = random.Random(seed)
    message = 0
    while True:
        batch = []
        for i in range(choose.choice((1, 1, 1, 4))):
            value = make_value(choose.randrange(6), choose.choice((1, 50, 1000, 20_000)), choose.randrange(256))
            batch.append((number, message + i, checksum(value), value))
        if len(batch) == 1:
            q.put(batch[0])
        else:
            q.put_many(batch)
        del value
        message += len(batch)
        os.write(journal, RECORD.pack(number, message))


def consume(q: Any, journal: int) -> None:
    """Take until killed, or told to end; a message is noted once it has been found right."""
    while (taken := q.get()) is not None:
        number, message, expected, value = taken
        assert checksum(value) == expected, (number, message)
        os.write(journal, RECORD.pack(number, message))
        del taken, value


def stop_inside(q: Any, choose: random.Random, processes: list[Any]) -> int | None:
    """Stop one of them while it has a lock of the queue; gives its place. None: not hit in so many tries."""
    for _ in range(100):
        place = choose.randrange(len(processes))
        process = processes[place]
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        stats = q.stats()
        if process.pid in (stats.put_lock_pid, stats.get_lock_pid):
            return place
        os.kill(process.pid, signal.SIGCONT)
    return None


def until_more(q: Any, seen: int) -> int:
    """Wait until messages were taken beyond `seen`; gives how many that are now."""
    until(lambda: q.stats().taken != seen, f"a message to be taken (seed {SEED})")
    return int(q.stats().taken)


def read(journal: Path) -> list[tuple[int, int]]:
    data = journal.read_bytes()
    return list(RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]))


class Crew:
    """Producers and consumers of one queue. Each that is killed is replaced."""

    def __init__(self, q: Any, directory: Path, choose: random.Random) -> None:
        self.q = q
        self.choose = choose
        self.context = mp.get_context("fork")
        self.journals = {name: directory / name for name in ("put", "taken")}
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self.fds = {name: os.open(path, flags) for name, path in self.journals.items()}
        self.numbers = iter(range(10**9))
        roles = [True] * PRODUCERS + [False] * CONSUMERS
        self.running = [(producer, self.start(producer)) for producer in roles]
        self.killed: Counter[bool] = Counter()
        """By role: True: producers."""
        self.inside = 0
        """How many of them had a lock of the queue."""

    def start(self, producer: bool) -> Any:
        if producer:
            arguments: Any = (self.q, next(self.numbers), self.fds["put"], self.choose.randrange(2**31))
            process = self.context.Process(target=produce, args=arguments)
        else:
            process = self.context.Process(target=consume, args=(self.q, self.fds["taken"]))
        process.start()
        return process

    def kill_one(self) -> None:
        """Kill one of them and start another in its place. Each fourth is killed with a lock if one is met so."""
        place = None
        if self.killed.total() % 4 == 0:
            place = stop_inside(self.q, self.choose, [process for _producer, process in self.running])
            self.inside += place is not None
        if place is None:
            time.sleep(self.choose.uniform(0, 0.03))
            place = self.choose.randrange(len(self.running))
        producer, process = self.running[place]
        assert process.exitcode is None, f"{process} ended by itself (seed {SEED})"
        process.kill()
        process.join()
        self.killed[producer] += 1
        self.running[place] = (producer, self.start(producer))

    def finish(self) -> None:
        """Kill the producers, and let the consumers take what is left."""
        for producer, process in self.running:
            if producer:
                process.kill()
                process.join()
        for _ in range(CONSUMERS):
            self.q.put(None, timeout=BOUND)
        for producer, process in self.running:
            if not producer:
                process.join(BOUND)
                assert process.exitcode == 0, f"a consumer {process.exitcode} (seed {SEED})"

    def close(self) -> None:
        for _producer, process in self.running:
            process.kill()
            process.join()
        for fd in self.fds.values():
            os.close(fd)

    def audit(self, record_property: Any) -> str:
        """Compare what was put with what was taken. Returns a report."""
        taken = Counter(read(self.journals["taken"]))
        promised: Counter[int] = Counter()
        for number, count in read(self.journals["put"]):
            promised[number] = max(promised[number], count)
        for number, message in taken:  # in the queue before the producer could say so
            promised[number] = max(promised[number], message + 1)
        lost = {(number, message) for number, count in promised.items() for message in range(count)} - taken.keys()
        stats, killed = self.q.stats(), self.killed
        report = (
            f"seed {SEED}: killed {killed[True]} producers and {killed[False]} consumers, {self.inside} with a lock; "
            f"{stats.put} messages put, {taken.total()} verified, {len(lost)} lost, most inside {stats.peak_messages}"
        )
        record_property("audit", report)
        print(report)
        assert max(taken.values()) == 1, report
        assert len(lost) <= killed[False], report
        assert self.q.empty()
        assert stats.put - CONSUMERS - taken.total() <= killed[False], report
        return report


@pytest.mark.exhaustive
@pytest.mark.timeout(120 * max(1, KILLS // 1000))
def test_random_kills(here: World, monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    address = here.serve()
    manager = client.at(address)
    monkeypatch.setattr(client, "default", lambda: manager)
    q = mp.Queue(40)
    crew = Crew(q, here.directory, random.Random(SEED))
    seen = 0
    try:
        while crew.killed.total() < KILLS:
            crew.kill_one()
            if crew.killed.total() % 20 == 0:  # they get on, whoever was killed
                seen = until_more(q, seen)
        crew.finish()
    finally:
        crew.close()
    report = crew.audit(record_property)
    until(lambda: live_in_arenas(here.observe(address)) == 0, f"the memory of the dead, {report}")
    del q, crew
    until(lambda: manager.stats().live_blocks == 0, f"the memory of the queue, {report}")
    listing = here.observe(address)
    assert listing["stats"]["live_bytes"] == 0, listing
    assert not any(row["holders"] for row in listing["segments"]), listing
