"""The actual use of shared memory, for tests: the pages of a manager's segments, as the kernel counts them."""

from __future__ import annotations

import re
from pathlib import Path

PAYLOAD = re.compile(r"/memfd:shmtensor-[0-9a-f]{16}-\d+ ")


def reserved_pages(manager: int) -> int:
    """Bytes that have pages in the payloads of all segments of a manager (by pid), its rings among them."""
    found: dict[tuple[int, int], int] = {}
    for entry in Path(f"/proc/{manager}/fd").iterdir():
        try:
            if PAYLOAD.match(str(entry.readlink())):
                status = entry.stat()
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue  # closed meanwhile
    return sum(found.values())


def mappings(pid: int | str = "self") -> int:
    """The mappings of shmtensor's shared memory in a process."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum("/memfd:shmtensor" in line or "/torch_" in line for line in lines)
