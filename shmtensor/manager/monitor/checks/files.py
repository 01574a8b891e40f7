"""Checks of the runtime directory, and of files that dead managers left there and in /dev/shm."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from shmtensor.manager import address as addresses
from shmtensor.manager import lockfile
from shmtensor.manager.daemon import journal
from shmtensor.manager.monitor.checks.machine import Finding, Machine
from shmtensor.manager.protocol import MAX_ADDRESS_BYTES

SHOW = 5
"""Maximum number of names shown of a list; the others are counted."""
_SUFFIXES = (".sock.lock", ".sock", ".journal")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "lustre")
_LISTENING = "00010000"  # __SO_ACCEPTCON
_SHM_NAME = re.compile(r"torch_\d+_\d+")


def runtime_directory(machine: Machine) -> list[Finding]:
    """Check owner, mode, file system and length of the runtime directory."""
    name, path = "directory", Path(machine.directory)
    other = f"set {addresses.RUNTIME_VARIABLE} to another directory"
    if len(os.fsencode(path / "manager.sock")) > MAX_ADDRESS_BYTES:
        advice = f"sockets have at most {MAX_ADDRESS_BYTES} bytes: {other} with a shorter path"
        return [Finding(name, "problem", f"{path} is too long", advice)]
    try:
        found = path.lstat()
    except FileNotFoundError:
        return [Finding(name, "ok", f"{path} does not exist yet; the first manager creates it")]
    except OSError as problem:
        return [Finding(name, "problem", f"{path}: {problem.strerror}", other)]
    if not stat.S_ISDIR(found.st_mode):
        return [Finding(name, "problem", f"{path} is not a directory", other)]
    if found.st_uid != machine.uid:
        return [Finding(name, "problem", f"{path} belongs to uid {found.st_uid}, not {machine.uid}", other)]
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        shown, advice = f"{path} has mode {mode:04o}, so other users have access", f"chmod 700 {path}, or {other}"
        return [Finding(name, "problem", shown, advice)]
    mount = machine.mount_at(str(path))
    if mount is not None and (mount.type in _REMOTE or mount.type.startswith("fuse")):
        advice = f"locks and sockets may not work there: {other} on a local file system"
        return [Finding(name, "warning", f"{path} is on {mount.type}", advice)]
    return [Finding(name, "ok", f"{path}, mode {mode:04o}")]


def stale_files(machine: Machine) -> list[Finding]:
    """Find files in the runtime directory whose manager has ended, and files in the way of a manager."""
    name, directory = "stale files", Path(machine.directory)
    try:
        entries = sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return []
    listening = _listening(machine)
    findings, stale = [], []
    for base in sorted({_base(entry) for entry in entries if entry.endswith(_SUFFIXES)}):
        sock = directory / f"{base}.sock"
        if sock.exists() and not stat.S_ISSOCK(sock.lstat().st_mode):
            advice = "a manager with this address cannot start: move the file"
            findings.append(Finding(name, "warning", f"{sock} is not a socket", advice))
        elif str(sock) not in listening and not _is_held(machine, sock):
            stale += [entry for entry in entries if entry.endswith(_SUFFIXES) and _base(entry) == base]
    if stale:
        advice = "the next manager that starts there takes over memory that clients still have, and removes the rest"
        findings.append(Finding(name, "note", f"no manager runs for {_some(stale)} in {directory}", advice))
    return findings or [Finding(name, "ok", "none")]


def _base(entry: str) -> str:
    for suffix in _SUFFIXES:
        if entry.endswith(suffix):
            return entry.removesuffix(suffix)
    return entry


def _listening(machine: Machine) -> set[str]:
    """Return the paths of the sockets on which a process listens."""
    rows = (line.split(None, 7) for line in (machine.text("proc/net/unix") or "").splitlines())
    return {row[7] for row in rows if len(row) == 8 and row[3] == _LISTENING}


def _is_held(machine: Machine, sock: Path) -> bool:
    """Whether the process that a lock file names is alive and has it open."""
    lock = f"{sock}.lock"
    found = lockfile.head(os.fsencode(lock)) or b""
    if not lockfile.is_life(found):
        return False
    try:
        return lock in machine.files_of(int(found.split()[0]))
    except OSError:
        return False


def left_names(machine: Machine) -> list[Finding]:
    """Find names of ours in /dev/shm that no process of this user has open or mapped."""
    name, left = "names left", []
    try:
        entries = list(machine.path("dev/shm").iterdir())
    except OSError:
        return []
    for entry in entries:
        with suppress(OSError):  # removed meanwhile
            if _SHM_NAME.fullmatch(entry.name) and entry.lstat().st_uid == machine.uid:
                left.append(entry.name)
    if left:
        used = _used(machine, {f"/dev/shm/{entry}" for entry in left})
        left = sorted(entry for entry in left if f"/dev/shm/{entry}" not in used)
    if not left:
        return [Finding(name, "ok", "none in /dev/shm")]
    known = {
        shm.decode(errors="replace").lstrip("/")
        for path in Path(machine.directory).glob("*.journal")
        for shm in journal.read(os.fsencode(path)).shm
    }
    findings = []
    listed, others = [entry for entry in left if entry in known], [entry for entry in left if entry not in known]
    if listed:
        advice = "a journal lists them: the next manager that starts in the runtime directory removes them"
        findings.append(Finding(name, "note", f"{_some(listed)} in /dev/shm", advice))
    if others:
        advice = "no process of this user that is visible here has them open: " + " ".join(
            ["rm", *(f"/dev/shm/{each}" for each in others[:SHOW])]
        )
        findings.append(Finding(name, "warning", f"{_some(others)} in /dev/shm", advice))
    return findings


def _used(machine: Machine, paths: set[str]) -> set[str]:
    """Return those of the paths that a process of this user has open or mapped."""
    used: set[str] = set()
    for pid in machine.pids():
        with suppress(OSError):  # it has ended, or may not be read
            used |= paths & machine.files_of(pid)
        for line in (machine.text(f"proc/{pid}/maps") or "").splitlines():
            if "/dev/shm/" in line:
                used |= paths & {line.split(None, 5)[-1]}
    return used


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOW} more" if len(names) > SHOW else ""
    return ", ".join(names[:SHOW]) + more


CHECKS = (runtime_directory, stale_files, left_names)
