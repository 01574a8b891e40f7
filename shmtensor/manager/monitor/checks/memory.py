"""Checks of the memory of the machine, of its cgroups, and of /dev/shm."""

from __future__ import annotations

import os

from shmtensor import _native
from shmtensor.manager.monitor.checks.machine import Finding, Machine
from shmtensor.manager.shortage import size

SPARE_BYTES = 32 << 20
"""Bytes that a reservation leaves to other processes (kSpareMemory in native/base/limits.cpp)."""
LITTLE_LEFT = 0.1
"""Fraction of a limit below which little is left."""
SMALL_SHM = 1 << 30
"""A smaller /dev/shm gives a warning; containers have 64 MiB by default."""
_CHARGED = "shared memory is charged to the cgroup of the process that reserves it first, whichever process reads it"


def machine_memory(machine: Machine) -> list[Finding]:
    """Check the memory that may be reserved on this machine."""
    name = "memory"
    free, total = machine.memory("MemAvailable"), machine.memory("MemTotal")
    if free is None or not total:
        advice = "mount /proc with its top-level files (no subset=pid), or set --max-bytes"
        found = "/proc/meminfo cannot be read, so memory is not checked before it is reserved"
        return [Finding(name, "warning", found, advice)]
    room = max(0, free - total // 64 - SPARE_BYTES)
    found = f"{size(room)} of {size(total)} may be reserved"
    if room >= LITTLE_LEFT * total:
        return [Finding(name, "ok", found)]
    advice = "end programs, or release tensors: `shmtensor-manager ls` lists the holders"
    return [Finding(name, "warning" if room else "problem", found, advice)]


def cgroups(machine: Machine) -> list[Finding]:
    """Check the limits of the memory cgroups of this process, up to the root."""
    name = "cgroups"
    limited = _native.memory_cgroups(machine.root.rstrip("/") + "/")
    findings = [_limited(name, one) for one in limited] or [Finding(name, "ok", "no memory limit up to the root")]
    return findings + [_throttled(name, *one) for one in _high(machine)]


def _limited(name: str, one: _native.Cgroup) -> Finding:
    room = max(0, one.limit - one.used)
    found = f"{one.path}: {size(room)} of {size(one.limit)} free"
    if room <= SPARE_BYTES:
        return Finding(
            name, "problem", found, f"allocations are refused: raise its limit, or release memory; {_CHARGED}"
        )
    if room < LITTLE_LEFT * one.limit:
        return Finding(name, "warning", found, f"raise its limit, or release memory; {_CHARGED}")
    return Finding(name, "note", found, _CHARGED)


def _throttled(name: str, path: str, high: int, used: int) -> Finding:
    found = f"{path}: memory.high is {size(high)}, {size(used)} used"
    if used < high:
        return Finding(name, "note", found, "above it processes are slowed down; it is not checked before allocations")
    return Finding(
        name, "warning", found, "the processes in it are being slowed down: raise memory.high, or free memory"
    )


def _high(machine: Machine) -> list[tuple[str, int, int]]:
    """Return (path, memory.high, memory.current) of each version 2 cgroup with such a bound, our own first."""
    own = next((line[3:] for line in (machine.text("proc/self/cgroup") or "").splitlines() if line[:3] == "0::"), None)
    mount = next((mount for mount in machine.mounts() if mount.type == "cgroup2"), None)
    if own is None or mount is None:
        return []
    path = own.removeprefix(mount.root) if mount.root != "/" else own
    parts = [part for part in path.split("/") if part]
    found = []
    for depth in range(len(parts), -1, -1):
        inner = "/".join(parts[:depth])
        place = f"{mount.at.strip('/')}/{inner}".rstrip("/")
        high, used = machine.number(f"{place}/memory.high"), machine.number(f"{place}/memory.current")
        if high is not None and used is not None:
            found.append((f"/{inner}", high, used))
    return found


def dev_shm(machine: Machine) -> list[Finding]:
    """Check /dev/shm, which only the strategy `file_system` needs."""
    name = "/dev/shm"
    path, mount = machine.path("dev/shm"), machine.mount_at("/dev/shm")
    other = "; or use the strategy file_descriptor (the default), which does not need it"
    try:
        room = os.statvfs(path)
    except OSError as problem:
        return [Finding(name, "warning", f"missing: {problem.strerror}", "mount a tmpfs there" + other)]
    if mount is None or mount.at != "/dev/shm":
        found = f"no file system is mounted there; it lies on {mount.type if mount else 'an unknown one'}"
        return [Finding(name, "warning", found, "mount a tmpfs there" + other)]
    if "ro" in mount.options:
        return [Finding(name, "warning", "mounted read-only", "remount it (mount -o remount,rw /dev/shm)" + other)]
    if not os.access(path, os.W_OK | os.X_OK):
        return [Finding(name, "warning", "this user may not create files there", "chmod 1777 /dev/shm" + other)]
    all_bytes, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    found = f"{mount.type}, {size(free)} of {size(all_bytes)} free"
    if room.f_files and not room.f_favail:
        return [Finding(name, "warning", found + ", no inodes left", "remove files there, or raise nr_inodes=" + other)]
    if all_bytes < SMALL_SHM or free < LITTLE_LEFT * all_bytes:
        advice = "remount it larger (mount -o remount,size=8G /dev/shm; docker run --shm-size=8g)"
        return [Finding(name, "warning", found, advice + other)]
    return [Finding(name, "ok", found + " (noexec, nosuid and nodev do not matter)")]


CHECKS = (machine_memory, cgroups, dev_shm)
