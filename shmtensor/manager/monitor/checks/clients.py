"""Clients of the managers that others may wait for in vain."""

from __future__ import annotations

from shmtensor.manager.monitor.checks.machine import Finding, Machine

_STOPPED, _TRACED = "T", "t"
"""States of a process in proc(5): stopped by a signal, and by a debugger."""
_KEPT = (
    "while they are stopped they keep what they have: locks that others wait for, memory, messages that they have taken"
)


def stopped(machine: Machine) -> list[Finding]:
    """Find clients that a signal such as SIGSTOP, or a debugger, has stopped."""
    name, pids = "clients", sorted({pid for one in machine.managers for pid in one.pids})
    states = {pid: _state(machine, pid) for pid in pids}
    findings = []
    for state, how, advice in (
        (_STOPPED, "stopped by a signal", "continue them: kill -CONT {}"),
        (_TRACED, "stopped by a debugger", "continue them in the debugger, or detach it"),
    ):
        which = [str(pid) for pid in pids if states[pid] == state]
        if which:
            found = f"{how}: pid {', '.join(which)}"
            findings.append(Finding(name, "warning", found, f"{_KEPT}; {advice.format(' '.join(which))}"))
    return findings or [Finding(name, "ok", f"none of the {len(pids)} clients is stopped" if pids else "none")]


def _state(machine: Machine, pid: int) -> str:
    """Return the letter of a process's state; empty: it has ended, or is not visible from here."""
    fields = (machine.text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
    return fields[0] if fields else ""


CHECKS = (stopped,)
