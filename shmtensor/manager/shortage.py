"""What to say when a request for memory is refused: what was asked, what is free, which limit, who holds most."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH118, PTH120, PTH123

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CGROUP = "/sys/fs/cgroup"


def size(nbytes: float) -> str:
    """Bytes in the unit that suits them: "512 B", "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def available() -> int | None:
    """Bytes that the machine could give without swapping (MemAvailable), or None."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def cgroup_limits() -> list[tuple[str, int, int]]:
    """(path, bytes used, limit in bytes) of each memory cgroup (version 2) of this process that has a limit."""
    found = []
    for line in _read("/proc/self/cgroup").splitlines():
        if not line.startswith("0::"):
            continue
        path = line[3:].strip("/")
        while True:
            base = os.path.join(CGROUP, path)
            limit, used = _read(f"{base}/memory.max").strip(), _read(f"{base}/memory.current").strip()
            if limit.isdigit() and used.isdigit():
                found.append((f"/{path}", int(used), int(limit)))
            if not path:
                break
            path = os.path.dirname(path)
    return found


def command_of(pid: int) -> str:
    """Command line of a process, shortened; empty when it cannot be seen."""
    words = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip() if pid > 0 else ""
    return words if len(words) <= 60 else words[:57] + "..."


def holders(listing: dict[str, Any]) -> list[tuple[int, int]]:
    """(bytes held, pid) from a LIST document, largest first; pid 0 is what is in flight."""
    pids = {row["slot"]: row["pid"] for row in listing["clients"]}
    sums: dict[int, int] = {}
    for segment in listing["segments"]:
        for row in segment["holders"] or ():
            pid = pids.get(row["slot"], 0)
            sums[pid] = sums.get(pid, 0) + row["bytes"]
    return sorted(((nbytes, pid) for pid, nbytes in sums.items()), reverse=True)


def describe(what: str, number: int, asked: int, limit: str, named: bool, listing: dict[str, Any] | None) -> str:
    """The message of an OutOfMemory.

    Args:
        what: the operation that was refused.
        number: its errno.
        asked: bytes.
        limit: the limit that was hit, as the native core knows it; may be empty.
        named: True for the strategy `file_system`, whose memory lives in /dev/shm.
        listing: a LIST document, or None when the manager did not give one.
    """
    parts = [f"no shared memory for {asked} bytes ({size(asked)}): {what}: {os.strerror(number)}"]
    if limit:
        parts.append(f"limit hit: {limit}")
    free = available()
    facts = [] if free is None else [f"{size(free)} available on this machine"]
    if named:
        try:
            room = os.statvfs("/dev/shm")
            facts.append(
                f"{size(room.f_bavail * room.f_frsize)} of {size(room.f_blocks * room.f_frsize)} free in /dev/shm"
            )
        except OSError:
            pass
    facts += [f"{size(most - used)} of {size(most)} free in cgroup {path}" for path, used, most in cgroup_limits()]
    if facts:
        parts.append("free: " + ", ".join(facts))
    if listing is not None:
        top = [
            f"{size(nbytes)} by "
            + (f"pid {pid} ({command_of(pid) or 'command unknown'})" if pid else "messages in flight")
            for nbytes, pid in holders(listing)[:3]
        ]
        parts.append("largest holders: " + ("; ".join(top) if top else "nobody holds any"))
    advice = "release tensors, or raise the limit"
    if named:
        advice += ", or use the strategy file_descriptor, which does not depend on /dev/shm"
    return ". ".join(parts) + f". What to do: {advice}"
