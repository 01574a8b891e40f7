"""`shmtensor-manager doctor`: checks of the machine, its limits and files of dead managers. It changes nothing."""

from __future__ import annotations

import json
import os

from shmtensor._loading import load
from shmtensor.errors import ShmTensorError
from shmtensor.manager import address as addresses
from shmtensor.manager import protocol
from shmtensor.manager.connection import NothingThere, Observer
from shmtensor.manager.lockfile import runs_at
from shmtensor.manager.monitor.checks.machine import STATES, Finding, Machine, Running
from shmtensor.manager.selection import ANSWER_SECONDS, candidates

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_CHECKS = ("versions", "clients", "limits", "memory", "kernel", "files", "login")
"""Modules of `checks`; each has its functions in CHECKS."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments: all commands have `--address` and `--json`."""
    parser.description = "Checks limits, memory, versions, clients and files, and says what to do. Changes nothing."


def run(options: argparse.Namespace) -> int:
    """Print the findings. Returns 1 if one of them is a problem, else 0. Blocks until the managers have answered."""
    directory = addresses.runtime_path()
    findings = examine(Machine(directory, tuple(_look(path) for path in candidates(options.address))))
    if options.json:
        document = {"state": worst(findings), "checks": [finding.document for finding in findings]}
        print(json.dumps(document, indent=2))
    else:
        print(text(findings))
    return 1 if worst(findings) == "problem" else 0


def examine(machine: Machine) -> list[Finding]:
    """Return the findings of all checks."""
    modules = [load(f"manager.monitor.checks.{module}") for module in _CHECKS]
    return [finding for module in modules for check in module.CHECKS for finding in check(machine)]


def worst(findings: list[Finding]) -> str:
    """Return the worst state."""
    return max((finding.state for finding in findings), key=STATES.index, default="ok")


def text(findings: list[Finding]) -> str:
    """Return the findings as lines, each followed by its advice, and a summary."""
    wide = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.name:<{wide}} {finding.found}")
        if finding.advice:
            lines.append(f"{'':<8} {'':<{wide}} -> {finding.advice}")
    counts = {state: sum(finding.state == state for finding in findings) for state in reversed(STATES)}
    lines += [
        "",
        ", ".join(f"{count} {state}{'s' * (count != 1 and state != 'ok')}" for state, count in counts.items()),
    ]
    return "\n".join(lines)


def _look(address: bytes) -> Running:
    """Return the reports of the manager at an address. Does not connect if none runs: systemd would start one."""
    shown = os.fsdecode(address)
    if not runs_at(address):
        return Running(shown)
    try:
        with Observer(address, ANSWER_SECONDS) as observer:
            stats = json.loads(observer.document(protocol.Stats()))
            clients = json.loads(observer.document(protocol.List()))["clients"]
    except NothingThere:
        return Running(shown)  # it has ended meanwhile
    except ShmTensorError as problem:
        return Running(shown, problem=problem)
    return Running(shown, stats, tuple(row["pid"] for row in clients if row["pid"] > 0))
