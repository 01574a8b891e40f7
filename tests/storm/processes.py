"""Information from /proc: children, the processes of a storm, and what is left of one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """From now on, children of this process's children become its own when their parent is killed."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Cores:
    """What the machine's cores have done so far, in seconds of one core."""

    own: float
    """For this process, and for those that have ended and that it has waited for."""
    all: float
    """For all processes, and for other machines on the same processor (steal)."""
    there: float
    """What they could have done."""

    @classmethod
    def now(cls) -> Cores:
        usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # but idle and iowait
        return cls(own, busy, time.monotonic() * (os.cpu_count() or 1))

    def shares_since(self, before: Cores) -> tuple[float, float]:
        """Which shares of the cores were used from `before` to this by (this process and its own, others)."""
        there = self.there - before.there
        own = self.own - before.own
        return own / there, max(0.0, self.all - before.all - own) / there


def children(pid: int) -> list[int]:
    """Pids of the children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text().split())
    return found


def command(pid: int) -> str:
    """The command line; "" of a zombie and of no process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def reap(pid: int) -> None:
    """Take leave of a child that has ended, if it has."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def is_running(pid: int) -> bool:
    """True while the process runs or is stopped; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def queued(pid: int) -> float:
    """Seconds that a process's main thread has waited for a core so far; 0 where the kernel does not count that."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def belonging(directory: Path) -> list[int]:
    """Other processes that were started with this runtime directory."""
    mark = b"SHMTENSOR_RUNTIME_DIR=" + os.fsencode(directory)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid() or not is_running(int(entry.name)):
            continue
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words:
            found.append(int(entry.name))
    return found


def descriptors(pid: int | str = "self") -> list[str]:
    """What the descriptors of a process lead to."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return found


def mappings(pid: int | str = "self") -> list[str]:
    """What the mappings of a process are of: a path, or "" for anonymous memory."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [line[73:].strip() for line in lines]


def shm_names() -> set[str]:
    """Names in /dev/shm that may be of shmtensor, but for those of other programs that run at the same time."""
    names = {entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(("torch_", "shmt"))}
    makers = {name: name.split("_")[1] for name in names if name.startswith("torch_")}
    living = {
        name for name, pid in makers.items() if pid.isdigit() and int(pid) != os.getpid() and is_running(int(pid))
    }
    return names - living
