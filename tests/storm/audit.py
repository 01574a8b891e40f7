"""The checks of a storm: at quiet points, when all are dead, and of the counts kept meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shmtensor.manager import client

from . import board as notes
from . import processes
from .board import Board
from .roles import TARGET
from .stage import ADDED, FIRST, SECOND, Stage

if TYPE_CHECKING:
    from .crew import Member

LEAVE_BOUND: Final = 10.0
"""Seconds until a manager on demand has left after its last client."""
KEPT: Final = frozenset({"start.lock"})
"""Files that stay in a runtime directory."""
MEMORY: Final = "memfd:shmtensor"
"""In the name of every memory file."""
EXPECTED: Final = (
    " took over ",
    " is not an unannounced embryo of slot ",
    " stopped by pid ",
    " restarts at the request of pid ",
)
"""What managers may write to their logs: that one took over a group, that it knew of a forked child from the table of
the group before the parent's news of it came, and that one was asked to end or restart."""


@dataclass(frozen=True)
class Holdings:
    """What the manager reports at a quiet point. Rings grow and keep their size, so they are only counted."""

    blocks: int
    nbytes: int
    rings: int
    clients: int
    dead: int
    """Slots of the dead, and of children that were never born."""
    in_flight: int
    detail: str = field(compare=False, repr=False)

    @classmethod
    def of(cls, manager: client.Manager) -> Holdings:
        """Asks the manager."""
        listing = manager.list()
        segments = [row for row in listing["segments"] if row["ring"] is None]
        states = Counter(row["state"] for row in listing["clients"])
        messages = sum(row["messages"] for row in listing["rings"])
        return cls(
            blocks=sum(row["live_blocks"] for row in segments),
            nbytes=sum(row["live_bytes"] for row in segments),
            rings=len(listing["rings"]),
            clients=states["client"] + states["detached"],  # the latter have not come back to a new manager yet
            dead=states["dead"] + states["embryo"],
            in_flight=listing["in_flight_total"] + messages,
            detail=_holders(listing),
        )


def _holders(listing: dict[str, Any]) -> str:
    """Who holds what, a line each."""
    pids = {row["slot"]: f"{row['state']} {row['pid']}" for row in listing["clients"]}
    lines = []
    for row in listing["segments"]:
        owner = pids.get(row["owner"], "nobody")
        held = "; ".join(
            f"{holder['blocks']} blocks, {holder['bytes']} B by "
            f"{pids.get(holder['slot'], 'ring ' + str(holder['ring']) if holder['ring'] else 'the group')}"
            f" ({holder['kind']})"
            for holder in row["holders"] or ()
        )
        if row["live_blocks"] and row["ring"] is None:
            lines.append(f"  arena of {owner}: {row['live_blocks']} blocks, {row['live_bytes']} B: {held}")
    for row in listing["rings"]:
        lines += [
            f"  ring {row['ring']}: {lock} {pids.get(row[lock], row[lock])}"
            for lock in ("put_lock_slot", "get_lock_slot")
            if row[lock] is not None
        ]
    return "\n".join(lines)


def where(member: Member) -> str:
    """Where a process is: its state in the kernel and the stacks of its threads."""
    pid = member.process.pid
    path = Path("/proc") / str(pid)
    try:
        threads = [
            f"{task.name}: {(task / 'stat').read_text().rsplit(')', 1)[1].split()[0]} in {(task / 'wchan').read_text()}"
            for task in (path / "task").iterdir()
        ]
        os.kill(pid, signal.SIGUSR1)  # faulthandler
    except (OSError, ProcessLookupError) as problem:
        return f"gone: {problem}"
    time.sleep(0.3)
    return "; ".join(threads)


def check_counts(board: Board, stage: Stage, killed: int) -> tuple[list[str], dict[str, str]]:
    """(problems, figures) of the counters, the semaphore and the weights."""
    problems = []
    first, second = int(stage.counters.numpy()[FIRST]), int(stage.counters.numpy()[SECOND])
    added = int(stage.counters.numpy()[ADDED])
    units = stage.semaphore.get_value()
    before, after = board.total(notes.BEFORE_LOCKED), board.total(notes.AFTER_LOCKED)
    if first != second or not after <= first <= before:
        problems.append(f"lock: counters {first} and {second}, where {after} to {before} were counted under the lock")
    low, high = board.total(notes.AFTER_ADDED), board.total(notes.BEFORE_ADDED)
    if not low <= added <= high:
        problems.append(f"atomics: the sum is {added}, where {low} to {high} were added")
    given, taken = board.total(notes.GIVEN), board.total(notes.TAKEN)
    if not given - killed <= taken + units <= given:
        problems.append(f"semaphore: {taken} taken and {units} left of {given} given, with {killed} killed")
    error = float(np.abs(stage.weights.numpy() - TARGET).max())
    figures = {
        "sections under the lock": f"{first:,}, of them {board.total(notes.OWNERS_DIED):,} after a death inside",
        "atomic additions": f"{added:,}",
        "units through the semaphore": f"{taken:,} of {given:,}",
        "largest error of the trained weights": f"{error:.3g}",
    }
    return problems, figures


def check_invariants(stage: Stage) -> list[str]:
    """What of the queues, the broadcast and the locks contradicts itself. Nobody may use them any more."""
    rings = {name: getattr(stage, name)._ring for name in ("work", "side", "news", "mail")}
    rings["objects"] = stage.objects._native
    locks = {
        "lock": stage.lock._semlock,
        "semaphore": stage.semaphore._semlock,
        "condition": stage.condition._wait_queue,
        "lock of the condition": stage.condition._lock._semlock,
    }
    problems = []
    for name, thing in {**rings, "readers of the news": stage.news._broadcast_ring, **locks}.items():
        try:
            thing.check_invariants()
        except AssertionError as wrong:
            problems.append(f"{name}: {wrong}")
    return problems


@dataclass(frozen=True)
class Before:
    """What was there before the storm."""

    names: frozenset[str]
    descriptors: int

    @classmethod
    def now(cls) -> Before:
        return cls(frozenset(processes.shm_names()), len(processes.descriptors()))


def leftovers(directory: Path, before: Before) -> tuple[dict[str, int], list[str]]:
    """(how many of each are left, what they are) once this process has left the group as the last one."""
    gc.collect()
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # came with the first spawned process
    until = time.monotonic() + LEAVE_BOUND
    while processes.belonging(directory) and time.monotonic() < until:
        for pid in processes.children(os.getpid()):
            processes.reap(pid)
        time.sleep(0.02)
    open_now, mapped = (_without_table(paths) for paths in (processes.descriptors(), processes.mappings()))
    left: dict[str, list[str]] = {
        "processes": [f"{pid}: {processes.command(pid)}" for pid in processes.belonging(directory)],
        "names in /dev/shm": sorted(processes.shm_names() - before.names),
        "files in the runtime directory": [_shown(path) for path in directory.iterdir() if not _is_expected(path)],
        "memory files open": [path for path in open_now if MEMORY in path],
        "segments mapped": [path for path in mapped if MEMORY in path],
    }
    more = len(open_now) - before.descriptors
    left["descriptors"] = [f"{more} more than before: {open_now}"] if more > 0 else []
    problems = [f"left over, {what}: {item}" for what, items in left.items() for item in items]
    return {what: len(items) for what, items in left.items()}, problems


def _without_table(paths: list[str]) -> list[str]:
    """All but the table of the group: a client that has left keeps it, once, until its process ends."""
    for path in paths:
        if MEMORY in path and not path.rsplit("-", 1)[-1].split()[0].isdecimal():  # segments have numbers
            return [other for other in paths if other is not path]
    return paths


def _is_expected(path: Path) -> bool:
    """What may lie in a runtime directory that nobody uses."""
    if path.suffix == ".log":
        lines = path.read_text(errors="replace").splitlines()
        return all(any(text in line for text in EXPECTED) for line in lines)
    return path.name in KEPT


def _shown(path: Path) -> str:
    """A file's name; of a log, what it says."""
    return f"{path.name}\n{path.read_text(errors='replace')}" if path.suffix == ".log" else path.name
