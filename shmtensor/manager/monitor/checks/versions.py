"""Checks of versions: of the installed packages, and of the managers that run."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from shmtensor import _native
from shmtensor.errors import ManagerTimeout, ProtocolError
from shmtensor.manager import protocol
from shmtensor.manager.monitor.checks.machine import Finding, Machine, Running

OLD_KERNEL = (5, 14)
"""From this version of Linux on, pages can be reserved through a mapping (MADV_POPULATE_WRITE)."""


def _version(package: str) -> str | None:
    """Return the version of an installed package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def installed(_machine: Machine) -> list[Finding]:
    """Report the versions of this interpreter and of the package."""
    own = getattr(sys.modules["shmtensor"], "__version__", "unknown")
    numpy = _version("numpy")
    found = (
        f"shmtensor {own} (protocol {protocol.PROTOCOL_VERSION}, layout {_native.LAYOUT_VERSION}), Python "
        f"{platform.python_version()}, " + (f"NumPy {numpy}" if numpy else "no NumPy")
    )
    advice = "" if numpy else "a manager does not need NumPy, but programs that use tensors do: pip install numpy"
    return [Finding("versions", "ok" if numpy else "note", found, advice)]


def kernel(machine: Machine) -> list[Finding]:
    """Check the version of Linux."""
    release = (machine.text("proc/sys/kernel/osrelease") or platform.release()).strip()
    numbers = release.split("-")[0].split(".")[:2]
    known = tuple(int(number) for number in numbers if number.isdecimal())
    if len(known) == 2 and known < OLD_KERNEL:
        advice = "programs that close all descriptors cannot reserve pages in queues that grow: use Linux 5.14 or later"
        return [Finding("kernel", "note", f"Linux {release}", advice)]
    return [Finding("kernel", "ok", f"Linux {release}")]


def managers(machine: Machine) -> list[Finding]:
    """Compare the managers that run with this version."""
    return [_compared(one) for one in machine.managers] or [_compared(Running(machine.directory))]


def _compared(one: Running) -> Finding:
    name = "manager"
    if isinstance(one.problem, ProtocolError):
        advice = (
            "programs of this version use a separate group meanwhile. To have one group again, install one version "
            "for all programs, end those of the other one, and run `shmtensor-manager restart`"
        )
        return Finding(name, "problem", str(one.problem), advice)
    if isinstance(one.problem, ManagerTimeout):
        advice = "if it is stopped, continue it (kill -CONT); else `shmtensor-manager restart` replaces it"
        return Finding(name, "problem", str(one.problem), advice)
    if one.problem is not None:
        return Finding(name, "problem", str(one.problem), "see docs/protocol.md, Finding the manager")
    if one.stats is None:
        return Finding(name, "ok", f"none runs at {one.address}; programs start one on demand")
    theirs, ours = one.stats["version"], getattr(sys.modules["shmtensor"], "__version__", "unknown")
    found = f"{one.address}: version {theirs}, pid {one.stats['pid']}, {one.stats['clients']} clients"
    if theirs != ours:
        return Finding(
            name, "note", found, f"`shmtensor-manager restart` replaces it by {ours}; its clients keep running"
        )
    return Finding(name, "ok", found)


CHECKS = (installed, kernel, managers)
