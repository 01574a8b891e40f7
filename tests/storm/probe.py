"""What must work while the owner of a lock is stopped: timeouts, and Ctrl-C in a wait without one."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Final

from .stage import Journal

TIMEOUT: Final = 0.1
SLACK: Final = 1.0
"""Seconds more than asked for that anything here may take."""
INTERRUPTED: Final = 42


def probe(lock: Any, journal: Journal, begun: int) -> None:
    """In a process of its own: try the lock with a timeout; say so on the descriptor `begun`; wait until Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before = time.monotonic()
    if lock.acquire(timeout=TIMEOUT):
        journal.problem("lock: taken although its owner is stopped inside")
        os._exit(INTERRUPTED)
    waited = time.monotonic() - before
    if not TIMEOUT <= waited < TIMEOUT + SLACK:
        journal.problem(f"lock: a timeout of {TIMEOUT} s took {waited:.3f} s with its owner stopped")
    try:
        os.write(begun, b"1")
        lock.acquire()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    journal.problem("lock: taken although its owner is stopped inside")


def run(context: Any, lock: Any, journal: Journal) -> None:
    """`probe` in a child, which Ctrl-C has to end. Blocks for about half a second."""
    reading, writing = os.pipe()
    process = context.Process(target=probe, args=(lock, journal, writing))
    process.start()
    os.close(writing)
    os.read(reading, 1)  # or the end of file
    os.close(reading)
    process.join(TIMEOUT)  # until it waits
    if process.exitcode is None:
        os.kill(process.pid, signal.SIGINT)
        process.join(SLACK)
    if process.exitcode is None:
        journal.problem("hang: Ctrl-C does not end a wait for a lock whose owner is stopped")
        process.kill()
        process.join()
    elif process.exitcode != INTERRUPTED:
        journal.problem(f"the probe of a lock ended with {process.exitcode}")
    process.close()
