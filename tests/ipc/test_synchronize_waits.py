"""Waits for locks and similar objects: Ctrl-C ends them, and they use almost no processor time."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from locks_world import FORK, is_in
from manager_world import BOUND, World, until
from tiers import first

WAITS = {
    "lock": "lock = mp.Lock(); lock.acquire(); go(); lock.acquire()",
    "rlock": "lock = mp.RLock()\nimport threading\n"
    "t = threading.Thread(target=lock.acquire); t.start(); t.join(); go(); lock.acquire()",
    "semaphore": "semaphore = mp.Semaphore(0); go(); semaphore.acquire()",
    "condition": "condition = mp.Condition()\nwith condition:\n        go(); condition.wait()",
    "event": "event = mp.Event(); go(); event.wait()",
    "barrier": "barrier = mp.Barrier(2); go(); barrier.wait()",
}


@pytest.mark.parametrize("kind", first(WAITS, 2))
def test_ctrl_c_ends_a_wait(here: World, kind: str) -> None:
    code = (
        "import signal\nimport shmtensor.multiprocessing as mp\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may start us with it ignored
        "def go():\n    print('waits', flush=True)\n"
        "try:\n    "
        + WAITS[kind].replace("\nimport", "\n    import").replace("\nt =", "\n    t =").replace("\nwith", "\n    with")
        + "\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    process = here.script(code)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "waits\n", process.stderr.read()
    until(lambda: is_in(process.pid, "S"), "it to sleep")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_an_interrupted_waiter_passes_its_notification_on() -> None:
    condition = FORK.Condition()
    place = condition._wait_queue.enter()
    assert place is not None
    with condition:
        condition.notify()
    assert place.leave() is True
    assert place.leave() is False
    assert condition._sleeping_count.get_value() == 0


def test_taking_what_is_free_makes_no_system_call(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = """
import os
import shmtensor.multiprocessing as mp
lock, rlock, semaphore, event, condition = mp.Lock(), mp.RLock(), mp.Semaphore(3), mp.Event(), mp.Condition()
def work():
    for _ in range(1000):
        with lock, rlock, rlock, semaphore, condition:
            condition.notify()
        event.set(); event.wait(); event.is_set(); event.clear()
        lock.acquire(True, 5); lock.release()
work()
os.write(2, b"BEGIN")
work()
os.write(2, b"END")
"""
    log = tmp_path / "calls"
    done = subprocess.run(
        ["strace", "-o", log, sys.executable, "-c", code], timeout=BOUND * 2, check=False, capture_output=True
    )
    if done.returncode != 0 and b"ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if '"BEGIN"' in line)
    end = next(i for i, line in enumerate(lines) if '"END"' in line)
    assert lines[begin + 1 : end] == []


@pytest.mark.exhaustive
def test_who_waits_uses_hardly_any_time_of_a_processor() -> None:
    lock, semaphore, event, condition = FORK.Lock(), FORK.Semaphore(0), FORK.Event(), FORK.Condition()
    lock.acquire()
    barrier = FORK.Barrier(2)

    def wait_for(condition: Any) -> None:
        with condition:
            condition.wait(2)

    def meet() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(2)

    waits = [lambda: lock.acquire(timeout=2), lambda: semaphore.acquire(timeout=2), lambda: event.wait(2), meet]
    threads = [threading.Thread(target=each) for each in (*waits, lambda: wait_for(condition))]
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Five waits that spin use five times the time; looking ten times in a second is a thousandth of it.
    assert used < 0.5 * (time.monotonic() - begin)
