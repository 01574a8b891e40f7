"""`make storm`: kill and stop processes under real traffic, and audit the result. Exit status 1: an error was found."""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from . import audit, processes, report, roles
from . import board as notes
from .board import Board
from .crew import CAST
from .stage import Journal
from .supervisor import Supervisor

TITLE = "The storm: last audit"


OTHERS: Final = 0.05
"""Where others use a larger share of the cores, who is late is excused: the bounds are for a machine at rest."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m storm", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="processes to kill (default: 200)")
    parser.add_argument("--manager-kills", type=int, default=0, help="how many of these are the manager (default: 0)")
    parser.add_argument("--restarts", type=int, default=0, help="restarts of the manager on purpose (default: 0)")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule; default: a random one, which is printed")
    parser.add_argument("--pace", type=float, default=0.004, help="most seconds a process rests between two turns")
    parser.add_argument("--report", type=Path, help="write the audit to this file as Markdown")
    parser.add_argument("--keep", action="store_true", help="keep the journals, and say where they are")
    asked = parser.parse_args()
    seed = asked.seed or random.SystemRandom().randrange(1, 2**31)
    print(f"seed {seed}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="storm-", dir="/tmp"))  # short: a socket's path has a limit
    try:
        return _run(asked, seed, place)
    finally:
        if asked.keep:
            print(f"journals: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)


def _run(asked: argparse.Namespace, seed: int, place: Path) -> int:
    runtime = place / "run"
    runtime.mkdir(mode=0o700)
    for variable in ("SHMTENSOR_MANAGER", "SHMTENSOR_GROUP"):
        os.environ.pop(variable, None)
    os.environ["SHMTENSOR_RUNTIME_DIR"] = str(runtime)
    board = Board(place / "board", len(CAST) * roles.ROWS)
    before = audit.Before.now()
    began, cores = time.monotonic(), processes.Cores.now()
    journal = Journal(place)
    supervisor = Supervisor(CAST, board, journal, seed, asked.pace)
    try:
        supervisor.start()
        supervisor.storm(asked.kills, asked.manager_kills, asked.restarts, lambda line: print(line, flush=True))
        supervisor.end()
    finally:
        supervisor.crew.kill_all()
    seconds = time.monotonic() - began

    findings, crew = supervisor.findings, supervisor.crew
    wrong_counts, figures = audit.check_counts(board, supervisor.stage, findings.killed)
    broken = audit.check_invariants(supervisor.stage)
    _taken, duplicates, lost = journal.balance()
    most_lost = supervisor.most_lost() + board.total(notes.LOST)
    manager = supervisor.manager
    del supervisor
    crew.stage = None  # type: ignore[assignment]
    gc.collect()
    manager.close()
    del manager
    journal.close()
    left, left_problems = audit.leftovers(runtime, before)
    own, others = processes.Cores.now().shares_since(cores)

    problems = [*journal.problems(), *wrong_counts, *broken, *left_problems]
    figures["used of the cores"] = f"{own:.0%} by the storm, {others:.0%} by other programs"
    if others <= OTHERS:
        problems += findings.late
    elif findings.late:
        figures["late beside other programs"] = "; ".join(findings.late)
    if duplicates:
        problems.append(f"{duplicates} messages came twice")
    if not 0 <= lost <= most_lost:
        problems.append(f"{lost} messages lost, at most {most_lost} can have been with killed processes")
    if noise := _noise(place / "stderr"):
        problems.append(f"on the standard error of the processes:\n{noise}")
    sections = [
        (
            "what must hold",
            report.promises(findings, board.total(notes.WRONG), left, duplicates, lost, most_lost),
        ),
        ("what was done", report.traffic(findings, board, crew.started, crew.spawned, figures)),
    ]
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    how = f"{findings.killed:,} kills in {seconds:.0f} s, seed {seed}, {when}; {report.machine()}"
    print(report.text(how, sections, board, problems), flush=True)
    if asked.report:
        asked.report.write_text(report.markdown(TITLE, f"`make storm`: {how}.", sections, board, problems))
    return 1 if problems else 0


def _noise(path: Path) -> str:
    """What the processes said, but for a SystemExit of SIGTERM that came in a finalizer or hook, which swallows it."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return re.sub(r"Exception ignored in.*?\nSystemExit: 0\n", "", text, flags=re.DOTALL).strip()[-4000:]


if __name__ == "__main__":
    sys.exit(main())
