"""A program with a DataLoader that is killed, interrupted or ends halfway: it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from manager_world import BOUND, World, is_alive, is_one_interrupt, kill, line_of, until
from tiers import first

KINDS = {
    "map": "Slow(640, 0.02), 8",
    "texts": "Numbered(100000), 8",
    "collated": "Slow(640, 0.002), 8, collate_fn=np.stack",
    "stream": "Stream(10 ** 6), 8",
    "dealt": "Decoded(10 ** 6), 8",
    "long samples": "Slow(64, 60.0), 8",
}
PROGRAM = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np
from loader_world import Decoded, Numbered, Slow, Stream
from shmtensor.data import DataLoader

def main():
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loader = DataLoader({loader}, num_workers=2, multiprocessing_context="{method}", {more})
    iterator = iter(loader)
    kept = [] if "60.0" in "{loader}" else [next(iterator), next(iterator)]
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    {ending}

if __name__ == "__main__":
    main()
"""
CASES = [("map", "fork"), ("dealt", "fork"), ("texts", "fork"), ("collated", "fork"), ("stream", "fork")]
CASES += [("map", "spawn"), ("dealt", "forkserver")]


class Program:
    """A program that loads, with a manager of its own."""

    def __init__(self, here: World, kind: str, method: str, ending: str, more: str = "") -> None:
        self.here, self.address = here, here.serve()
        code = PROGRAM.format(loader=KINDS[kind], method=method, ending=ending, more=more)
        self.process = here.script(code, env={"SHMTENSOR_MANAGER": os.fsdecode(self.address)})
        self.pids = [int(pid) for pid in line_of(self.process).split()]
        assert len(self.pids) == (3 if kind == "dealt" else 1 if kind == "stream" else 2)

    def nothing_is_left(self) -> None:
        until(lambda: not any(map(is_alive, self.pids)), "the workers to end")
        until(self.is_forgotten, "the manager to free what they had")

    def is_forgotten(self) -> bool:
        found = self.here.observe(self.address)
        return not found["clients"] and not found["segments"]


@pytest.mark.parametrize(("kind", "method"), first([*CASES, ("long samples", "fork")]))
def test_a_program_that_is_killed(here: World, kind: str, method: str) -> None:
    program = Program(here, kind, method, "for batch in iterator: kept.append(batch)", "on_worker_death='restart'")
    kill(program.process)
    program.nothing_is_left()


@pytest.mark.parametrize(("kind", "method"), first([*CASES, ("long samples", "fork")]))
def test_ctrl_c_in_the_midst(here: World, kind: str, method: str) -> None:
    program = Program(here, kind, method, "for batch in iterator: kept.append(batch)", "persistent_workers=True")
    os.killpg(program.process.pid, signal.SIGINT)
    _, text = program.process.communicate(timeout=BOUND)
    assert is_one_interrupt(text), text
    assert program.process.returncode == -signal.SIGINT
    program.nothing_is_left()


ENDINGS = {
    "thread": "thread = threading.Thread(target=lambda: kept.extend(iterator)); thread.daemon = True; thread.start()",
    "end": "pass",
    "exit": "raise SystemExit(0)",
    "global": "globals().update(loader=loader, iterator=iterator, kept=kept)",
    "cycle": "kept.append([loader, iterator, kept])",
    "another": "other = iter(loader); next(other)",
}
EXITS = [(ending, "map", "fork") for ending in ENDINGS]
EXITS += [(ending, *case) for ending in ENDINGS for case in (("dealt", "fork"), ("texts", "spawn"))]


@pytest.mark.parametrize(("ending", "kind", "method"), first(EXITS))
def test_the_interpreters_exit_in_the_midst_is_quiet(here: World, ending: str, kind: str, method: str) -> None:
    program = Program(here, kind, method, ENDINGS[ending], f"persistent_workers={ending != 'end'}")
    out, text = program.process.communicate(timeout=BOUND)
    assert program.process.returncode == 0 and not out and not text, text
    program.nothing_is_left()


class Beginning:
    """A dataset that takes a while to arrive in a worker: until the test lets it."""

    def __init__(self, marks: str) -> None:
        self.marks = marks

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return index

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        (Path(self.marks) / "begun").touch()
        until((Path(self.marks) / "go on").exists, "the test", 2 * BOUND)


STARTING = """
import os, signal, sys
from shmtensor.data import DataLoader
from test_loader_ends import Beginning
os.setpgrp()
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
list(DataLoader(Beginning(sys.argv[1]), 4, num_workers=1, multiprocessing_context="spawn"))
"""


@pytest.mark.exhaustive
def test_ctrl_c_while_workers_start(here: World, tmp_path: Path) -> None:
    paths = f"{Path(__file__).parent}:{here.env['PYTHONPATH']}"
    process = here.script(STARTING, str(tmp_path), env={"PYTHONPATH": paths})
    line_of(process)
    until((tmp_path / "begun").exists, "a worker to begin")
    os.killpg(process.pid, signal.SIGINT)
    (tmp_path / "go on").touch()
    _, text = process.communicate(timeout=BOUND)
    assert is_one_interrupt(text), text


BEGINNING = """
import os, signal, sys, warnings
import numpy as np
warnings.simplefilter("ignore", ResourceWarning)  # Ctrl-C may come between an open() and its `with`
import shmtensor.multiprocessing
from loader_world import Rows
from pool_world import square
from shmtensor.data import DataLoader, WorkerPool

def main():
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kind, method = sys.argv[1:]
    print("ready", flush=True)
    if kind == "loader":
        loader = DataLoader(Rows(), 4, num_workers=2, multiprocessing_context=method, persistent_workers=True)
        while True:
            list(loader)
    with WorkerPool(2, context=method) as pool:
        for result in pool.map(square, iter(int, 1)):
            pass

if __name__ == "__main__":
    main()
"""
MOMENTS = [(kind, method) for method in ("forkserver", "spawn", "fork") for kind in ("loader", "pool")]


@pytest.mark.parametrize(("kind", "method"), first(MOMENTS, 2))
@pytest.mark.parametrize(
    "delay", first([(0.08,), (0.15,), (0.0,), (0.02,), (0.04,), (0.06,), (0.1,), (0.12,), (0.2,), (0.3,)])
)
def test_ctrl_c_at_any_moment_of_the_start(here: World, kind: str, method: str, delay: float) -> None:
    """The moment is not the same twice, so a fault shows in some of the cases."""
    process = here.script(BEGINNING, kind, method)
    line_of(process)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGINT)
    _, text = process.communicate(timeout=BOUND)
    assert is_one_interrupt(text), text
    assert process.returncode == -signal.SIGINT


SERVED = """
import multiprocessing, signal
from functools import partial
import shmtensor.multiprocessing
from shmtensor.data import WorkerPool

def main():
    blocked = partial(signal.pthread_sigmask, signal.SIG_BLOCK)
    with WorkerPool(1, context="forkserver") as pool:
        print(list(pool.map(blocked, [()])), end=" ")
        for context in (multiprocessing.get_context("forkserver"), shmtensor.multiprocessing.get_context("forkserver")):
            with context.Pool(1) as other:
                print(other.map(blocked, [()]), end=" ")
        print(list(pool.map(abs, [-9])))

if __name__ == "__main__":
    main()
"""


def test_other_processes_of_fork_servers_get_signals(here: World) -> None:
    out, text = here.script(SERVED).communicate(timeout=BOUND)
    assert (out, text) == ("[set()] [set()] [set()] [9]\n", "")
