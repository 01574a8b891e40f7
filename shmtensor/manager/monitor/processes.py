"""Facts about a process from /proc."""

# pathlib costs time at every start of a manager.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from shmtensor.manager.shortage import command_line

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessFacts:
    """A process as /proc shows it. Values that are not visible are None or empty."""

    command: str
    """Command line, in one line of printable characters."""
    age_seconds: float
    """Seconds since it started."""
    threads: dict[str, int]
    """Threads by the letter of their state (proc(5)): R running, S sleeping, D waiting for a disk, T stopped."""
    pss_bytes: int | None
    """Memory that it has mapped; a page that several processes map counts in equal parts."""


def look(pid: int, start_time: int, pss: bool) -> ProcessFacts | None:
    """Return the facts of a process. Does not block.

    Args:
        pid: its process id.
        start_time: its start in clock ticks since boot, because the process id may have been reused.
        pss: also read `pss_bytes`, for which the kernel visits the process's page tables.

    Returns:
        None: it has ended, or is another process, or is not visible from here.
    """
    stat = _stat(f"/proc/{pid}/stat") if pid > 0 and start_time > 0 else None
    if stat is None or int(stat[19]) != start_time:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - start_time / _TICKS
    return ProcessFacts(command_line(pid), max(0.0, age), _threads(pid), _pss(pid) if pss else None)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _stat(path: str) -> list[bytes] | None:
    """Return the fields of a `stat` file from the third, the state, on."""
    fields = _read(path).rpartition(b")")[2].split()
    return fields or None


def _threads(pid: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return counts
    for task in tasks:
        stat = _stat(f"/proc/{pid}/task/{task}/stat")
        if stat is not None:
            state = stat[0].decode()
            counts[state] = counts.get(state, 0) + 1
    return dict(sorted(counts.items()))


def _pss(pid: int) -> int | None:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None
