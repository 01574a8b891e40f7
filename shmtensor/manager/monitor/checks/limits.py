"""Checks of the limits of processes (setrlimit(2)), and of the kernel's limits of memory maps."""

from __future__ import annotations

from shmtensor import _native
from shmtensor.manager.monitor.checks.machine import Finding, Machine, counted
from shmtensor.manager.shortage import size

FEW_DESCRIPTORS = 256
"""A lower limit of descriptors gives a warning: each segment that a program maps takes two."""
MANAGER_DESCRIPTORS = 2 * 4096
"""Descriptors for the default maximum number of clients: a connection and a pidfd each."""
MANY_USED = 0.8
"""Fraction of a limit from which it counts as nearly reached."""
FEW_MAPS = 65_530
"""The kernel's default of vm.max_map_count."""
ADDRESS_SPACE = 8 * _native.ARENA_BYTES
"""A smaller address space gives a warning."""


def open_files(machine: Machine) -> list[Finding]:
    """Check RLIMIT_NOFILE of clients (as this process has it), and of the managers."""
    name, limit = "open files", machine.limit("Max open files")
    if limit is None:
        return [Finding(name, "note", "/proc/self/limits cannot be read, so the limit is not known")]
    soft, hard = limit
    found = f"a program may have {counted(soft)}, a manager, which raises its limit, {counted(hard)}"
    if soft < FEW_DESCRIPTORS:
        advice = "each segment (an arena of 1 GiB, or one large tensor) takes two: raise it (ulimit -n, LimitNOFILE=)"
        findings = [Finding(name, "warning", found, advice)]
    elif hard < MANAGER_DESCRIPTORS:
        advice = (
            f"enough for {(hard - 16) / 2:.0f} clients without a segment: raise the hard limit of what starts the "
            "manager (ulimit -Hn, LimitNOFILE=) if there will be more"
        )
        findings = [Finding(name, "note", found, advice)]
    else:
        findings = [Finding(name, "ok", found)]
    for one in machine.managers:
        if one.stats is not None and one.stats["descriptors"] > MANY_USED * one.stats["max_descriptors"]:
            findings.append(
                Finding(
                    name,
                    "warning",
                    f"the manager at {one.address} uses {one.stats['descriptors']} of {one.stats['max_descriptors']}",
                    "soon it refuses clients: raise LimitNOFILE= of its service, or ulimit -Hn of the "
                    "program that starts it, and run `shmtensor-manager restart`",
                )
            )
    return findings


def address_space(machine: Machine) -> list[Finding]:
    """Check RLIMIT_AS: an arena is mapped completely, even if little of it is used."""
    name, limit = "address space", machine.limit("Max address space")
    if limit is None or limit[0] == float("inf"):
        return [Finding(name, "ok", "not limited")]
    found = f"limited to {size(limit[0])}"
    if limit[0] >= ADDRESS_SPACE:
        return [Finding(name, "note", found, "each arena takes 1 GiB of it in every process that maps it")]
    advice = (
        "each arena takes 1 GiB of it in every process that maps it, even if little is used: `ulimit -v unlimited`; "
        "limit memory by a cgroup or by --max-bytes"
    )
    return [Finding(name, "warning", found, advice)]


def file_size(machine: Machine) -> list[Finding]:
    """Check RLIMIT_FSIZE, which applies to memfds too."""
    name, limit = "file size", machine.limit("Max file size")
    if limit is None or limit[0] == float("inf"):
        return [Finding(name, "ok", "not limited")]
    found, advice = f"limited to {size(limit[0])}", "memory files count as files: `ulimit -f unlimited`"
    return [Finding(name, "problem" if limit[0] < _native.ARENA_BYTES else "warning", found, advice)]


def locked_memory(machine: Machine) -> list[Finding]:
    """Check RLIMIT_MEMLOCK where there is a GPU. Returns nothing where there is none."""
    if not list(machine.path("dev").glob("nvidia[0-9]*")):
        return []
    name, limit = "locked memory", machine.limit("Max locked memory")
    if limit is None or limit[0] == float("inf"):
        return [Finding(name, "ok", "not limited")]
    advice = (
        "memory that CUDA pins is usually not counted; raise it (ulimit -l, LimitMEMLOCK=) if pinning is refused, or "
        "for mlock(2) and RDMA"
    )
    return [Finding(name, "note", f"limited to {size(limit[0])}", advice)]


def memory_maps(machine: Machine) -> list[Finding]:
    """Check vm.max_map_count."""
    name, count = "memory maps", machine.number("proc/sys/vm/max_map_count")
    if count is None:
        return [Finding(name, "note", "vm.max_map_count cannot be read")]
    found = f"vm.max_map_count is {count}"
    if count >= FEW_MAPS:
        return [Finding(name, "ok", found)]
    advice = "each segment takes two or three in every process that maps it: `sysctl vm.max_map_count=65530`, or more"
    return [Finding(name, "warning", found, advice)]


def overcommit(machine: Machine) -> list[Finding]:
    """Check vm.overcommit_memory: mode 2 refuses memory that is free."""
    name, mode = "overcommit", machine.number("proc/sys/vm/overcommit_memory")
    if mode is None:
        return [Finding(name, "note", "vm.overcommit_memory cannot be read")]
    if mode != 2:
        return [Finding(name, "ok", f"vm.overcommit_memory is {mode}; segments reserve their pages in either case")]
    bound, used = machine.memory("CommitLimit") or 0, machine.memory("Committed_AS") or 0
    found = f"vm.overcommit_memory is 2: {size(max(0, bound - used))} of {size(bound)} may still be committed"
    advice = (
        "reserved shared memory counts, and so does memory that programs allocate and never use; memory may be refused "
        "although it is free: raise vm.overcommit_ratio, or use mode 0"
    )
    return [Finding(name, "problem" if used >= bound else "warning", found, advice)]


CHECKS = (open_files, address_space, file_size, locked_memory, memory_maps, overcommit)
