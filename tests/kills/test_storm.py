"""A short storm passes its audit, and the audit detects errors. `make storm` is the long version."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manager_world import ROOT, until
from storm import board as notes
from storm import content, processes
from storm.board import Board, Row
from storm.stage import Journal, identity

pytestmark = pytest.mark.any_python

KILLS = int(os.environ.get("SHMTENSOR_STORM_KILLS", "40"))


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shmt-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.mark.exhaustive
def test_storm(record_property: Any) -> None:
    command = [sys.executable, "-m", "storm", "--kills", str(KILLS)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    record_property("audit", done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not done.stderr, done.stderr
    assert "nothing is wrong" in done.stdout


@pytest.mark.parametrize("kind", range(content.KINDS))
def test_a_wrong_byte_is_seen(kind: int) -> None:
    number, size = identity(5, 3, 7), 1030
    assert content.wrong_bytes(number, kind, size, content.make(number, kind, size)) == 0
    assert content.wrong_bytes(number, kind, size, content.make(number + 1, kind, size)) > 0
    value = content.make(number, kind, size)
    if kind == 2:
        value = value[:-1] + bytes([value[-1] ^ 1])
    else:
        item = value[-1] if kind == 3 else value["array"] if kind == 4 else value
        array = item if isinstance(item, np.ndarray) else item.numpy()
        array.view(np.uint8)[-1] ^= 1
    assert content.wrong_bytes(number, kind, size, value) == 1


def test_lost_and_doubled_messages_are_counted(place: Path) -> None:
    journal = Journal(place)
    journal.put(identity(4, 1, 2))  # three of them: 0, 1, 2
    journal.taken([identity(4, 1, 0), identity(4, 1, 1), identity(4, 1, 1)])
    journal.taken([identity(8, 1, 0)])  # its producer was killed before it could say so
    assert journal.balance() == (4, 1, 1)
    journal.problem("one\nin two lines")
    assert journal.problems() == ["one\nin two lines"]
    journal.close()


def waiting(place: Path, operation: int) -> tuple[Board, Row]:
    board = Board(place / "board", 1)
    board.rows[0].begin(operation)
    board.rows[0][notes.STARTED] -= 10 * notes.SECOND  # it began then
    return board, board.rows[0]


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def test_waiting_for_a_core_is_told_from_doing_nothing() -> None:
    core = {min(os.sched_getaffinity(0))}
    codes = {"spins": "while True: pass", "spins too": "while True: pass", "sleeps": "time.sleep(1000)"}
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", f"import time; print(flush=True)\n{code}"],
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        for name, code in codes.items()
    }
    try:
        for process in started.values():
            assert process.stdout is not None and process.stdout.readline()
        until(lambda: is_asleep(started["sleeps"].pid), "it to sleep")
        before = {name: processes.queued(process.pid) for name, process in started.items()}
        until(lambda: processes.queued(started["spins"].pid) - before["spins"] > 0.2, "one to wait for the other")
        assert processes.queued(started["sleeps"].pid) == before["sleeps"]
    finally:
        for process in started.values():
            process.kill()
            process.communicate()
    assert processes.queued(started["spins"].pid) == 0.0


def test_what_other_programs_compute_is_told_from_what_the_storm_does() -> None:
    code = "import time; print(flush=True)\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    before = processes.Cores.now()
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None and other.stdout is not None
    assert other.stdout.readline() and other.stdout.readline()
    during = processes.Cores.now()
    assert during.all - before.all > 0.4 and during.own - before.own < 0.4
    assert during.shares_since(before)[1] > 0
    other.communicate(b"\n")
    after = processes.Cores.now()
    assert after.own - before.own > 0.4  # waited for, it is ours


def test_a_long_wait_is_seen(place: Path) -> None:
    _, row = waiting(place, notes.GET)
    assert row.waited() >= 10 * notes.SECOND
    row.end()
    assert row.waited() == 0
    assert row.count(notes.GET) == 1
    assert row.longest(notes.GET) >= 10 * notes.SECOND


def test_a_stop_of_others_excuses_waits_without_a_timeout_only(place: Path) -> None:
    for operation, is_excused in ((notes.GET, True), (notes.GET_TIMED, False)):
        board, row = waiting(place, operation)
        board.cells[notes.HALT_TOTAL] += 9 * notes.SECOND
        assert (row.waited() < 2 * notes.SECOND) == is_excused
        row[notes.OWN_HALT] += 9 * notes.SECOND  # itself was stopped: that excuses both
        assert (row.waited() < 2 * notes.SECOND) == (is_excused or notes.OPERATIONS[operation].is_timed)
