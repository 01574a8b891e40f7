"""Training examples whose workers are killed at any time: others replace them, and the network is as good."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples_world import BOUND, Place, a_place, pids_of, read_table
from tiers import first

pytestmark = pytest.mark.timeout(400)

SEED = 5
MOST_KILLS = 12

TRAINING = [
    ("hogwild.py", "--epochs", "150"),
    ("hogwild_cnn.py", "--epochs", "25"),
    ("word2vec_hogwild.py", "--epochs", "6"),
    ("a3c.py", "--steps", "2500"),
    ("hogwild_torch.py", "--epochs", "150"),
]
CASES = list(zip(TRAINING, itertools.cycle(("fork", "spawn", "forkserver")), strict=False))
"""Each program under one start method, in turn."""


@pytest.fixture
def place() -> Iterator[Place]:
    for name in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(name, reason="the extra 'examples' is not installed")
    with a_place() as made:
        yield made


class Staff:
    """The workers that a process has now, as it says on standard error."""

    def __init__(self, place: Place, process: subprocess.Popen[str]) -> None:
        self.place = place
        self.pids: list[int] = []
        self.lines: list[str] = []
        self.replaced = 0
        self.process = process
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.fullmatch(r"pids ([\d ]+): kill one, and it is replaced\n", line):
                self.pids = [int(pid) for pid in found[1].split()]
            elif found := re.fullmatch(r"worker (\d+) got SIGKILL; its place is taken by pid ([1-9]\d*)\n", line):
                self.pids[int(found[1])] = int(found[2])
                self.replaced += 1

    def kill(self, rank: int) -> bool:
        """Whether there was one to kill: it may have ended, and its pid may be another process's by now."""
        pid = self.pids[rank % len(self.pids)]
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if not self.place.owns(pid):
                return False
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(process)
        return True


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "method"),
    CASES,
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_training_goes_on_when_workers_are_killed(
    place: Place, tmp_path: Path, arguments: tuple[str, ...], method: str
) -> None:
    if "hogwild_torch.py" in arguments and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    plot = tmp_path / "plot.png"
    process = place.start(*arguments, "--processes", "2", "--start-method", method, "--plot", str(plot))
    staff = Staff(place, process)
    rng = random.Random(SEED)
    kills = 0
    while process.poll() is None:
        time.sleep(rng.uniform(0, 0.4))
        if staff.pids and kills < MOST_KILLS:
            kills += staff.kill(rng.randrange(2))
    staff.reader.join(BOUND)
    assert process.returncode == 0, staff.lines  # it has learnt enough
    assert process.stdout is not None
    table = read_table(process.stdout.read())
    assert [len(figures) >= 4 for _, figures in table] == [True, True]
    assert 0 < staff.replaced <= kills
    assert sum(figures[-1] for _, figures in table) == staff.replaced
    assert plot.exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", first(["fork", "spawn", "forkserver"]))
def test_workers_end_when_the_process_that_started_them_is_killed(place: Place, tmp_path: Path, method: str) -> None:
    process = place.start(
        "hogwild.py", "--epochs", "1000000", "--start-method", method, "--plot", str(tmp_path / "plot.png")
    )
    pids_of(process)
    process.kill()  # that nothing is left is seen as the place ends
