"""Processes for tests of locks: start them, wait until they sleep, kill them, and end them in any case."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from manager_world import BOUND

import shmtensor.multiprocessing as mp

FORK = mp.get_context("fork")


@contextlib.contextmanager
def child(context: Any, target: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """A process that the test ends, unless it ended by itself."""
    process = context.Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        if process.is_alive():
            process.kill()
        process.join(BOUND)
        process.close()


def finish(process: Any) -> None:
    process.join(BOUND)
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"


def kill(process: Any) -> None:
    process.kill()
    process.join(BOUND)
    assert process.exitcode == -signal.SIGKILL


def is_in(pid: int, states: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in states


def hold(lock: Any, held: Any) -> None:
    """Acquires the lock, and stays."""
    lock.acquire()
    held.set()
    threading.Event().wait()
