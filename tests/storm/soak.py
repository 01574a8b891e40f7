"""`make soak`: the traffic of the storm without kills, sampled every second and drawn. Exit status 1: memory grows."""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shmtensor.manager import client

from . import processes, report, roles
from .board import Board
from .crew import CAST
from .stage import Journal
from .supervisor import Supervisor

MIB: Final = 1 << 20
MOST_GROWTH: Final = {"private": 2 * MIB, "shared": 8 * MIB, "descriptors": 1, "mappings": 2}
"""From the middle third of a run to the last one, for each process; the first third is for caches to fill. "private":
bytes of RssAnon; "shared": RssShmem, which has a step whenever more large messages wait at once than ever before, and
pages are used that never were."""
MOST_GROWTH_OF_GROUP: Final = {"segments": 1, "reserved": 8 * MIB, "live": 1 * MIB}
"""The same for what the manager counts. That no block is left over is seen exactly, at the quiet point at the end."""
SAMPLER: Final = "supervisor"
"""It keeps the samples until they are written, so its private memory grows."""


@dataclass(frozen=True)
class Sample:
    """A process at one moment. Sizes in bytes."""

    second: float
    process: str
    private: int
    shared: int
    descriptors: int
    mappings: int


@dataclass(frozen=True)
class GroupSample:
    """What the manager counts at one moment. Sizes in bytes; in flight: in rings and on the way."""

    second: float
    segments: int
    reserved: int
    live: int
    in_flight: int


def sample(second: float, name: str, pid: int) -> Sample | None:
    """None: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    private, shared = (int(status.get(key, "0 kB").split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))
    return Sample(second, name, private, shared, descriptors, len(processes.mappings(pid)))


def sample_group(second: float, manager: client.Manager) -> GroupSample:
    """Asks the manager."""
    stats, listing = manager.stats(), manager.list()
    in_flight = sum(row["bytes"] for row in (*listing["rings"], *listing["in_flight"]))
    return GroupSample(second, stats.segments, stats.reserved_bytes, stats.live_bytes, in_flight)


def population(supervisor: Supervisor) -> dict[str, int]:
    """Name -> pid of everything that lives long."""
    found = {SAMPLER: os.getpid(), "manager": supervisor.manager_pid}
    for member in supervisor.crew.living():
        found[f"{member.role} {member.slot}"] = member.process.pid
        if member.role == "pool":
            found |= {f"worker {i}": pid for i, pid in enumerate(sorted(processes.children(member.process.pid)))}
    return found


def growth(values: list[float]) -> float:
    """How much higher the lowest value of the last third is than that of the middle third.

    A leak raises the lowest; what comes and goes with the traffic does not.
    """
    third = len(values) // 3
    if not third:
        return 0.0
    return min(values[2 * third :]) - min(values[third : 2 * third])


def judge(samples: list[Sample], group: list[GroupSample]) -> tuple[list[str], list[tuple[str, dict[str, float]]]]:
    """(what grows too much, growth of each process and of the group)."""
    by_process: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        by_process[one.process].append(one)
    series: list[tuple[str, list[Any], dict[str, int]]] = [
        *((name, rows, MOST_GROWTH) for name, rows in by_process.items()),
        ("group", group, MOST_GROWTH_OF_GROUP),
    ]
    problems, table = [], []
    for name, rows, bounds in series:
        found = {what: growth([getattr(row, what) for row in rows]) for what in bounds}
        table.append((name, found))
        problems += [
            f"{name}: {what} grows by {found[what]:,.1f}, more than {most:,.1f}"
            for what, most in bounds.items()
            if found[what] > most and (name, what) != (SAMPLER, "private")
        ]
    return problems, table


def write(path: Path, rows: list[Any]) -> None:
    """As CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0].__dataclass_fields__)
        writer.writerows([getattr(row, field) for field in row.__dataclass_fields__] for row in rows)


def draw(path: Path, title: str, samples: list[Sample], group: list[GroupSample]) -> None:
    """Six small pictures over one axis of time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_process: dict[str, list[Sample]] = defaultdict(list)
    for one in samples:
        by_process[one.process].append(one)
    figure, axes = pyplot.subplots(3, 2, figsize=(12, 10), sharex=True, layout="constrained")
    colours = pyplot.get_cmap("tab20").colors  # type: ignore[attr-defined]
    panels = [
        (axes[0, 0], "private", MIB, "private memory, MiB"),
        (axes[0, 1], "shared", MIB, "shared memory touched, MiB"),
        (axes[1, 0], "descriptors", 1, "descriptors"),
        (axes[1, 1], "mappings", 1, "mappings"),
    ]
    for panel, field, unit, label in panels:
        for colour, (name, rows) in zip(colours, by_process.items(), strict=False):
            panel.plot(
                [row.second / 60 for row in rows],
                [getattr(row, field) / unit for row in rows],
                color=colour,
                linewidth=1.2,
                label=name,
            )
        panel.set_title(label, loc="left")
        panel.set_ylim(bottom=0)
    minutes = [row.second / 60 for row in group]
    for field, unit, label in (("reserved", MIB, "reserved"), ("live", MIB, "live"), ("in_flight", MIB, "in flight")):
        axes[2, 0].plot(minutes, [getattr(row, field) / unit for row in group], linewidth=1.2, label=label)
    axes[2, 0].set_title("the group's memory, MiB", loc="left")
    axes[2, 0].legend(fontsize=8)
    axes[2, 0].set_ylim(bottom=0)
    axes[2, 1].plot(minutes, [row.segments for row in group], linewidth=1.2, color="black")
    axes[2, 1].set_title("segments", loc="left")
    axes[2, 1].set_ylim(bottom=0)
    for panel in axes.flat:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes[2]:
        panel.set_xlabel("minutes")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=7, fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=100)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m storm.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.004, help="most seconds a process rests between two turns")
    parser.add_argument(
        "--roles",
        nargs="+",
        choices=sorted(set(CAST)),
        default=CAST,
        help="a process for each (default: all of a storm)",
    )
    parser.add_argument("--picture", type=Path, help="draw to this file")
    parser.add_argument("--samples", type=Path, help="write the samples to this directory, as CSV")
    asked = parser.parse_args()
    seed = asked.seed or random.SystemRandom().randrange(1, 2**31)
    place = Path(tempfile.mkdtemp(prefix="soak-", dir="/tmp"))
    try:
        return _run(asked, seed, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(asked: argparse.Namespace, seed: int, place: Path) -> int:
    (place / "run").mkdir(mode=0o700)
    for variable in ("SHMTENSOR_MANAGER", "SHMTENSOR_GROUP"):
        os.environ.pop(variable, None)
    os.environ["SHMTENSOR_RUNTIME_DIR"] = str(place / "run")
    cast = tuple(asked.roles)
    board = Board(place / "board", len(cast) * roles.ROWS)
    journal = Journal(place)
    supervisor = Supervisor(cast, board, journal, seed, asked.pace)
    samples: list[Sample] = []
    group: list[GroupSample] = []
    began = time.monotonic()
    try:
        supervisor.start()
        while (second := time.monotonic() - began) < 60 * asked.minutes:
            found = [sample(second, name, pid) for name, pid in population(supervisor).items()]
            samples += [one for one in found if one is not None]
            group.append(sample_group(second, supervisor.manager))
            supervisor.idle(max(0.0, 1 - (time.monotonic() - began - second)))
        supervisor.end()
    finally:
        supervisor.crew.kill_all()
    grown, table = judge(samples, group)
    _, duplicates, lost = journal.balance()
    problems = [*journal.problems(), *grown]
    if duplicates or lost:
        problems.append(f"{duplicates} messages came twice, and {lost} are lost, though nobody was killed")
    title = f"{asked.minutes:g} minutes, seed {seed}; {report.machine()}"
    print(f"{title}: growth of the lowest, from the middle third to the last")
    for name, growths in table:
        shown = (
            f"{what} {value / MIB:+.3f} MiB" if abs(value) > 1024 else f"{what} {value:+.1f}"
            for what, value in growths.items()
        )
        print(f"  {name.ljust(12)} {', '.join(shown)}")
    sections = [("what was done", report.traffic(supervisor.findings, board, supervisor.crew.started, 0, {}))]
    print(report.text(title, sections, board, problems))
    if asked.samples:
        asked.samples.mkdir(parents=True, exist_ok=True)
        write(asked.samples / "processes.csv", samples)
        write(asked.samples / "group.csv", group)
    if asked.picture:
        draw(asked.picture, f"Traffic without kills, {title}", samples, group)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
