"""Checks of system calls and rights that managers and clients need. They are tried, and undone at once."""

from __future__ import annotations

import errno
import fcntl
import os
import socket

from shmtensor import _native
from shmtensor.manager.monitor.checks.machine import Finding, Machine

_SO_PEERPIDFD = 77  # Linux 6.5


def memory_files(machine: Machine) -> list[Finding]:
    """Check memfd_create with seals, as the core creates segments."""
    name = "memory files"
    try:
        fd = os.memfd_create("shmtensor-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as problem:
        mode = machine.number("proc/sys/vm/memfd_noexec")
        advice = "a container's seccomp profile may forbid it: allow memfd_create"
        if mode:
            advice = f"vm.memfd_noexec is {mode}, which refuses memory files without a seal: set it to 1 or 0"
        return [Finding(name, "problem", f"memfd_create is refused: {problem.strerror}", advice)]
    try:
        os.ftruncate(fd, _native.PAGE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        os.posix_fallocate(fd, 0, _native.PAGE)
    except OSError as problem:
        found = f"a memory file cannot be sealed or reserved: {problem.strerror}"
        return [Finding(name, "problem", found, "use Linux 5.4 or later, outside of an emulator (gVisor)")]
    finally:
        os.close(fd)
    return [Finding(name, "ok", "memfd_create, seals and reserving pages work")]


def process_descriptors(_machine: Machine) -> list[Finding]:
    """Check pidfds, with which the manager detects the end of a client."""
    name = "pidfds"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as problem:
        advice = "use Linux 5.3 or later; a container's seccomp profile may forbid pidfd_open: allow it"
        return [Finding(name, "problem", f"pidfd_open is refused: {problem.strerror}", advice)]
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
        except OSError as problem:
            if problem.errno != errno.ENOPROTOOPT:
                return [Finding(name, "note", f"SO_PEERPIDFD is refused: {problem.strerror}")]
            advice = "clients in other PID namespaces are only known by their connections; Linux 6.5 has SO_PEERPIDFD"
            return [Finding(name, "note", "pidfd_open works; the kernel has no SO_PEERPIDFD", advice)]
    return [Finding(name, "ok", "pidfd_open and SO_PEERPIDFD work")]


def processes(machine: Machine) -> list[Finding]:
    """Check that the files of the managers and their clients can be reopened, as a manager that takes over does."""
    name = "taking over"
    scope = machine.number("proc/sys/kernel/yama/ptrace_scope")
    aside = "" if scope is None else f" (kernel.yama.ptrace_scope is {scope}, which does not matter: nothing is traced)"
    refused: list[str] = []
    pids = [pid for one in machine.managers for pid in ((one.stats or {}).get("pid", 0), *one.pids) if pid > 0]
    for pid in pids:
        try:
            machine.files_of(pid)
        except PermissionError:
            refused.append(str(pid))
        except OSError:
            pass  # it has ended
    if refused:
        advice = (
            "if the manager is killed, the next one does not find the memory that only these processes have: do not "
            "change their user or capabilities without exec, nor set PR_SET_DUMPABLE to 0"
        )
        return [Finding(name, "warning", f"/proc/<pid>/fd of pid {', '.join(refused)} cannot be read{aside}", advice)]
    if not machine.path("proc/self/fd").exists():
        return [Finding(name, "problem", "/proc is not mounted", "mount it: the next manager finds memory there")]
    whose = f"of the {len(pids)} processes of the running managers" if pids else "of this user's processes"
    return [Finding(name, "ok", f"the descriptors {whose} can be reopened through /proc{aside}")]


def file_watches(machine: Machine) -> list[Finding]:
    """Check inotify, with which a manager notices that its files were removed."""
    name = "inotify"
    try:
        os.close(_native.directory_watch())
    except OSError as problem:
        bound = machine.number("proc/sys/fs/inotify/max_user_instances")
        advice = (
            "a manager then checks its files once a second while there is traffic, else once a minute: raise "
            f"fs.inotify.max_user_instances ({bound})"
        )
        return [Finding(name, "note", f"refused: {problem.strerror}", advice)]
    return [Finding(name, "ok", "available")]


CHECKS = (memory_files, process_descriptors, processes, file_watches)
