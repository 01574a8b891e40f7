"""Starting processes: no signal to a forked child is lost, whichever handler its parent has."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from manager_world import BOUND

import shmtensor.multiprocessing as mp

pytestmark = pytest.mark.any_python
PROCESSES = {"of a fork context": mp.get_context("fork").Process, "of the default": mp.Process}


@pytest.fixture
def leaves_on_sigterm() -> Iterator[None]:
    def leave(*_: object) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, leave)
    yield
    signal.signal(signal.SIGTERM, before)


def end(process: Any) -> int | None:
    process.join(BOUND)
    code: int | None = process.exitcode
    process.kill()
    process.join()
    return code


def linger() -> None:
    """Sleep in short steps: a signal between Python's last look and the system call is handled after the sleep."""
    until = time.monotonic() + 2 * BOUND
    while time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_child_that_is_terminated_at_once_ends(leaves_on_sigterm: None, kind: str) -> None:
    if kind == "of the default" and mp.get_start_method() != "fork":
        pytest.skip("the default start method is another one")
    for _ in range(10):
        process = PROCESSES[kind](target=linger)
        process.start()
        process.terminate()
        assert end(process) == 3


def test_a_pool_that_is_terminated_at_once_ends(leaves_on_sigterm: None) -> None:
    for _ in range(5):
        mp.get_context("fork").Pool(2).terminate()


def test_blocked_signals_stay_blocked() -> None:
    def report(there: Any) -> None:
        there.put(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        queue = mp.Queue()
        process = mp.get_context("fork").Process(target=report, args=(queue,))
        process.start()
        assert queue.get(timeout=BOUND) == before | {signal.SIGUSR2}
        assert end(process) == 0
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before | {signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_handler_that_raises_in_the_start_leaves_signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting the mask runs handlers of signals that came before, as this does."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    real = signal.pthread_sigmask

    def interrupted(how: int, mask: Any) -> Any:
        found = real(how, mask)
        if how == signal.SIG_BLOCK and mask:
            raise KeyboardInterrupt
        return found

    process = mp.get_context("fork").Process(target=time.sleep, args=(0,))
    with monkeypatch.context() as patch:
        patch.setattr(signal, "pthread_sigmask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.start()
    assert signal.pthread_sigmask(signal.SIG_SETMASK, before) == before
    process.start()
    assert end(process) == 0


def test_the_first_spawned_process_shares_tensors_whichever_module_started_it() -> None:
    code = """
import io
from multiprocessing.reduction import ForkingPickler

import shmtensor as st
from shmtensor.ipc import processes

file = io.BytesIO()
ForkingPickler(file).dump(st.zeros(100_000, shared=True))
print(len(file.getvalue()) < 1000)
ForkingPickler.loads(file.getvalue())  # else the message stays under way
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True"
