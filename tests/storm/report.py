"""The figures of a storm: a table on the terminal, the same as Markdown in a file."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING

from . import board as notes
from .board import Board

if TYPE_CHECKING:
    from .supervisor import Findings

Rows = list[tuple[str, str]]


def machine() -> str:
    """Cores, memory, kernel, interpreter."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (
        f"{len(os.sched_getaffinity(0))} cores, {pages / 2**30:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def counts(counted: dict[str, int]) -> str:
    """ "3 a, 2 b", most first."""
    return (
        ", ".join(f"{count:,} {what}" for what, count in sorted(counted.items(), key=lambda item: -item[1])) or "none"
    )


def promises(findings: Findings, wrong: int, left: dict[str, int], duplicates: int, lost: int, most_lost: int) -> Rows:
    """What was promised, and what was found."""
    released = findings.releases or [0.0]
    rows = [
        ("wrong or torn bytes (0)", f"{wrong:,}"),
        ("waits past their bound (0)", f"{findings.overdue:,}"),
        ("messages delivered twice (0)", f"{duplicates:,}"),
        (f"messages lost (at most {most_lost:,}: those that a killed process was receiving)", f"{lost:,}"),
        (
            "stranded while the group lived (0)",
            f"{findings.stranded_bytes:,} bytes in {findings.stranded_blocks:,} blocks, at most, "
            f"at {len(findings.quiet)} quiet points",
        ),
        (
            "kept by workers of the pool (what their parent held when it forked them)",
            f"{max(findings.inherited, default=0):,} bytes at most, at {len(findings.inherited)} quiet points",
        ),
        (
            "a dead process's memory is free (within 1 s, median below 100 ms)",
            f"median {1000 * statistics.median(released):.1f} ms, longest {1000 * max(released):.0f} ms, "
            f"of {len(findings.releases):,}",
        ),
    ]
    if findings.managers:
        rows.append(
            (
                "a new manager answers (within 1 s)",
                f"median {1000 * statistics.median(findings.managers):.0f} ms, "
                f"longest {1000 * max(findings.managers):.0f} ms, of {len(findings.managers):,}",
            )
        )
    if findings.restarts:
        rows.append(
            (
                "a restart on purpose has returned",
                f"median {1000 * statistics.median(findings.restarts):.0f} ms, "
                f"longest {1000 * max(findings.restarts):.0f} ms, of {len(findings.restarts):,}",
            )
        )
    rows.append(("left over at the end (nothing)", counts({what: n for what, n in left.items() if n}) or "nothing"))
    return rows


def traffic(findings: Findings, board: Board, started: int, spawned: int, figures: dict[str, str]) -> Rows:
    """What was done."""
    return [
        ("killed", f"{findings.killed:,}: {counts(findings.kills)}"),
        ("by", counts(findings.signals)),
        ("at the moment", counts(findings.moments)),
        ("stopped and continued", f"{findings.stops:,}"),
        ("probes of timeouts, Ctrl-C and manager", counts(findings.probes)),
        ("processes started", f"{started:,}, of them {spawned:,} spawned, the others forked"),
        ("messages put", f"{board.total(notes.PUT_COUNT):,}"),
        ("messages and tensors verified", f"{board.total(notes.VERIFIED):,}"),
        ("tasks of the pool whose worker died", f"{board.total(notes.WORKERS_DIED):,}"),
        ("messages whose memory went with sender and manager", f"{board.total(notes.LOST):,}"),
        *figures.items(),
    ]


def waits(board: Board) -> list[tuple[str, str, str, str, str]]:
    """(operation, how often, longest, bound, meaning) of each that may wait."""
    rows = []
    for number, operation in enumerate(notes.OPERATIONS):
        if not operation.bound:
            continue
        count = sum(row.count(number) for row in board.rows)
        longest = max(row.longest(number) for row in board.rows) / notes.SECOND
        rows.append((operation.name, f"{count:,}", f"{longest:.3f} s", f"{operation.bound:g} s", operation.meaning))
    return rows


def text(title: str, sections: list[tuple[str, Rows]], board: Board, problems: list[str]) -> str:
    """For a terminal."""
    lines = [title]
    for heading, rows in sections:
        width = max(len(what) for what, _ in rows)
        lines += ["", heading, *(f"  {what.ljust(width)}  {found}" for what, found in rows)]
    lines += ["", "waits, less the time that somebody was stopped or traffic rested"]
    table = [("operation", "times", "longest", "bound", ""), *waits(board)]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        lines.append(
            f"  {row[0].ljust(widths[0])}  {row[1].rjust(widths[1])}  {row[2].rjust(widths[2])}  "
            f"{row[3].rjust(widths[3])}  {row[4]}".rstrip()
        )
    lines += ["", f"{len(problems)} problems" if problems else "nothing is wrong"]
    lines += [f"- {problem}" for problem in problems]
    return "\n".join(lines)


def markdown(title: str, intro: str, sections: list[tuple[str, Rows]], board: Board, problems: list[str]) -> str:
    """For docs/."""
    lines = [f"# {title}", "", intro]
    for heading, rows in sections:
        lines += ["", f"## {heading.capitalize()}", "", "| | found |", "| --- | --- |"]
        lines += [f"| {what} | {found} |" for what, found in rows]
    lines += [
        "",
        "## Waits",
        "",
        "Less the time that somebody was stopped or traffic rested; operations with a timeout of their own count that "
        "time, too, if it was another process that was stopped.",
        "",
        "| operation | times | longest | bound | |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    lines += [f"| {' | '.join(row)} |" for row in waits(board)]
    lines += ["", "## Problems", "", *(f"- {problem.splitlines()[0]}" for problem in problems or ["none"])]
    return "\n".join(lines) + "\n"
