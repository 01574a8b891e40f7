"""The program of a link process, and its guard: the parent, which restarts the link process if it was killed.

    process --> guard (parent of the link, in no group) --> link process

The guard only waits. If it is killed, the link process starts another one. Both terminate with the end of the channel.
"""

# pathlib and contextlib cost time at every start.
# ruff: noqa: PTH123

from __future__ import annotations

import os
import select
import signal
from time import sleep

READY = b"ready"
_PAUSES = (0.0, 0.05, 0.2, 1.0)
"""Seconds before a link process is restarted, by the number of times that it ended at once."""
_AT_ONCE_SECONDS = 5.0
_MOST_STARTS = 20
"""A guard gives up after this many link processes that have ended at once."""


def run(address: str, name: str) -> None:
    """Run a guard, whose first child reports its start to stdout or stderr. Does not return."""
    ours, theirs = os.pipe()
    if os.fork() != 0:  # the starter waits for this process
        os.close(theirs)
        said = b"".join(iter(lambda: os.read(ours, 4096), b""))
        stream = 1 if said == READY else 2
        os.write(stream, said or b"it died while it started\n")
        os._exit(0 if said == READY else 1)
    os.close(ours)
    _close_standard()
    _guard(address, name, theirs)


def _close_standard() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    if null > 2:
        os.close(null)


def _guard(address: str, name: str, line: int, watched: int = 0) -> None:
    """Start link processes until one ends in order. `watched`: the process id of one that works already."""
    from time import monotonic

    quick = 0
    if watched:
        _await_end(watched)
    while quick < _MOST_STARTS:
        sleep(_PAUSES[min(quick, len(_PAUSES) - 1)])
        began = monotonic()
        pid = os.fork()
        if pid == 0:
            _link(address, name, line)
        if line >= 0:
            os.close(line)
            line = -1
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            break
        quick = quick + 1 if monotonic() - began < _AT_ONCE_SECONDS else 0
    os._exit(0)


def _await_end(pid: int) -> None:
    try:
        watch = os.pidfd_open(pid)
    except OSError:
        return
    select.select([watch], [], [])
    os.close(watch)


def guard(address: str, name: str, watched: str) -> None:
    """Run a guard for a link process that works already. Does not return."""
    if os.fork() != 0:
        os.write(1, READY)
        os._exit(0)
    _close_standard()
    _guard(address, name, -1, int(watched))


def _link(address: str, name: str, line: int) -> None:
    """Run the link process. Does not return."""
    guard_pid = os.getppid()
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from .start import work

        code = work(address, name, guard_pid, line)
    except BaseException as problem:
        _say(line, f"{type(problem).__name__}: {problem}\n".encode())
        if os.environ.get("SHMTENSOR_CHANNEL_LOG"):
            import traceback

            with open(os.environ["SHMTENSOR_CHANNEL_LOG"], "a") as log:
                traceback.print_exc(file=log)
    finally:
        os._exit(code)


def _say(line: int, text: bytes) -> None:
    if line >= 0:
        os.write(line, text)
