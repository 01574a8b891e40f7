"""The main function of a link process."""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic

from ...errors import ManagerError, ShmTensorError
from ...manager import client, launch
from ..end import LISTENING, End
from .connected import Connected
from .listening import Listening
from .process import Link

_LOCK_SECONDS = 2.0
_GUARD = (
    "import sys;sys.path+=sys.argv[4:];import shmtensor.channel.link.background as background;"
    "background.guard(*sys.argv[1:4])"
)


def work(address: str, name: str, guard_pid: int, line: int) -> int:
    """Link an end until no process needs it any more. Blocks.

    Args:
        address: address of the manager.
        name: name of the end's state.
        guard_pid: pid of the parent, which starts another link process if this one is killed.
        line: a descriptor to notify the starter that the link works, closed after that; -1: none.

    Returns:
        The exit code: 0 if no other link process is needed.
    """
    try:
        end = End.find(client.at(os.fsencode(address)), name)
    except ManagerError:
        end = None
    if end is None or end.state.ended or end.is_lost:
        _tell(line, launch.READY)
        return 0
    if not end.alive.acquire(timeout=_LOCK_SECONDS):  # another link process works for it
        _tell(line, launch.READY)
        return 0
    try:
        link: Link = (Listening if end.config["role"] == LISTENING else Connected)(end)
    except (OSError, ShmTensorError) as problem:
        reason = (isinstance(problem, OSError) and problem.strerror) or str(problem)
        end.state.lose(reason)
        end.alive.release()  # so that no caller who tries again at once takes this process for a working one
        _tell(line, launch.READY)
        return 0
    end.state.link_pid = os.getpid()
    _tell(line, launch.READY)
    _watch_guard(link, address, name, guard_pid)
    link.run()
    return 0


def _tell(line: int, text: bytes) -> None:
    if line >= 0:
        with suppress(OSError):
            os.write(line, text)
        os.close(line)


def _watch_guard(link: Link, address: str, name: str, guard_pid: int) -> None:
    """Start another guard once this one has ended."""
    import select

    try:
        watch = os.pidfd_open(guard_pid)
    except ProcessLookupError:
        watch = -1

    def ended(events: int = 0) -> None:
        if watch >= 0:
            link.loop.forget(watch)
            os.close(watch)
        link.thread(_start_guard, address, name)

    if watch < 0 or os.getppid() != guard_pid:
        ended()
    else:
        link.loop.watch(watch, select.EPOLLIN, ended)


def _start_guard(address: str, name: str) -> None:
    with suppress(launch.NotReady):
        launch.interpret(_GUARD, [address, name, str(os.getpid())], monotonic() + 30)
