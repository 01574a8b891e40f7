"""The input of the checks, `Machine`, and their result, `Finding`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATES = ("ok", "note", "warning", "problem")
"""States of a finding, from good to bad. A note matters only to some programs; a warning may become a problem."""


@dataclass(frozen=True)
class Finding:
    """The result of a check: a state of STATES, one line of what was found, and what to do (empty: nothing)."""

    name: str
    state: str
    found: str
    advice: str = ""

    @property
    def document(self) -> dict[str, str]:
        """The fields, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo: where it is mounted, the type of the file system, all options."""

    at: str
    root: str
    type: str
    options: frozenset[str]


@dataclass(frozen=True)
class Running:
    """A manager at an address: its reports, or why there are none.

    Attributes:
        address: path of its socket.
        stats: document of STATS; None if it could not be read.
        pids: processes that are its clients.
        problem: why `stats` is None; None: no manager runs there.
    """

    address: str
    stats: dict[str, Any] | None = None
    pids: tuple[int, ...] = ()
    problem: Exception | None = None


@dataclass(frozen=True)
class Machine:
    """The machine, as this user's processes see it.

    Attributes:
        directory: path of the runtime directory.
        managers: the managers to look at.
        root: directory with proc, sys, dev and etc; "/" is the system's own.
        uid: the user.
    """

    directory: str
    managers: tuple[Running, ...] = ()
    root: str = "/"
    uid: int = field(default_factory=os.geteuid)

    def path(self, path: str) -> Path:
        """Return the path of a system file, such as "proc/meminfo", below the root."""
        return Path(self.root, path)

    def text(self, path: str) -> str | None:
        """Return the content of a file below the root, its bytes as in paths; None if it cannot be read."""
        try:
            return os.fsdecode(self.path(path).read_bytes())
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the number in a file below the root; None if there is none."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def memory(self, key: str) -> int | None:
        """Return an entry of /proc/meminfo in bytes; None if there is none."""
        for line in (self.text("proc/meminfo") or "").splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        return None

    def limit(self, title: str, pid: int | str = "self") -> tuple[float, float] | None:
        """Return (soft, hard) limit of a process by its title in /proc/<pid>/limits; None if it cannot be read."""
        for line in (self.text(f"proc/{pid}/limits") or "").splitlines():
            if line.startswith(title + "  "):
                soft, hard = line.removeprefix(title).split()[:2]
                return float(soft.replace("unlimited", "inf")), float(hard.replace("unlimited", "inf"))
        return None

    def mounts(self) -> list[Mount]:
        """Return the mounts that this process sees; of two at one mount point, the later one is on top."""
        found = []
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            # 36 31 0:32 /root /mounted/at options ... - type source options-of-the-file-system
            before, dash, after = (part.split() for part in line.partition(" - "))
            if dash and len(before) > 5 and len(after) > 2:
                options = frozenset([*before[5].split(","), *after[2].split(",")])
                found.append(Mount(_unescaped(before[4]), _unescaped(before[3]), after[0], options))
        return found

    def mount_at(self, path: str) -> Mount | None:
        """Return the mount on which a path lies."""
        best = None
        for mount in self.mounts():
            below = mount.at.rstrip("/") + "/"
            if (path + "/").startswith(below) and (best is None or len(mount.at) >= len(best.at)):
                best = mount
        return best

    def pids(self) -> list[int]:
        """Return the pids of this user's processes."""
        found = []
        for entry in self.path("proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if entry.stat().st_uid == self.uid:
                    found.append(int(entry.name))
        return found

    def files_of(self, pid: int) -> set[str]:
        """Return the targets of a process's descriptors. Raises OSError: they may not be read, or it has ended."""
        found = set()
        for entry in self.path(f"proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found.add(str(entry.readlink()))
        return found


def _unescaped(path: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def counted(value: float) -> str:
    """Format a limit that is a count."""
    return "unlimited" if value == float("inf") else f"{value:.0f}"
