"""What a manager writes down beside its socket for the one that follows, should it be killed.

A line is one fact: `group ID`, `shm NAME SEGMENT`, `name NAME SEGMENT BLOCK GENERATION`, `gone NAME`. It is written
before what it says is done, by one write each, so that a kill leaves whole lines; what is no line is skipped.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH104, PTH123, SIM105

from __future__ import annotations

import errno
import os

KEEP_LINES = 4_096
"""A shorter journal is never written anew."""


class Past:
    """What a journal says: the group, the POSIX shm objects by name, the names of blocks."""

    __slots__ = ("group", "names", "shm")

    def __init__(self) -> None:
        self.group: int | None = None
        self.shm: dict[bytes, int] = {}
        self.names: dict[bytes, tuple[int, int, int]] = {}

    @property
    def facts(self) -> list[bytes]:
        lines = [] if self.group is None else [b"group %d" % self.group]
        lines += [b"shm %s %d" % row for row in self.shm.items()]
        lines += [b"name %s %d %d %d" % (name, *triple) for name, triple in self.names.items()]
        return lines


def read(path: bytes) -> Past:
    """The journal at `path`; an empty one when there is none."""
    past = Past()
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return past
    for line in lines[:-1]:  # after the last one's end, or what a kill left of it
        kind, *words = line.split(b" ")
        try:
            if kind == b"group":
                past.group = int(words[0])
            elif kind == b"shm":
                past.shm[words[0]] = int(words[1])
            elif kind == b"name":
                past.names[words[0]] = (int(words[1]), int(words[2]), int(words[3]))
            elif kind == b"gone":
                past.shm.pop(words[0], None)
                past.names.pop(words[0], None)
        except (ValueError, IndexError):
            pass
    return past


class Journal:
    """The journal of this manager. Each call raises OSError, and then nothing has been written."""

    def __init__(self, path: bytes, past: Past) -> None:
        """Begin with what `past` says."""
        self._path = path
        self._fd = -1
        self._now = past
        self._lines = 0
        self._is_torn = False  # the last line was not written whole
        self._write_anew()

    def _write_anew(self) -> None:
        facts = self._now.facts
        fresh = self._path + b".new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(b"".join(line + b"\n" for line in facts))
            os.rename(fresh, self._path)
        except BaseException:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._lines = fd, len(facts)

    def _write(self, line: bytes) -> None:
        data = (b"\n" if self._is_torn else b"") + line + b"\n"
        self._is_torn = True
        if os.write(self._fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_torn = False
        self._lines += 1
        if self._lines > KEEP_LINES + 4 * (len(self._now.shm) + len(self._now.names)):
            self._write_anew()

    def shm(self, name: bytes, segment: int) -> None:
        """A POSIX shm object of that name is about to be made."""
        self._now.shm[name] = segment
        self._write(b"shm %s %d" % (name, segment))

    def name(self, name: bytes, triple: tuple[int, int, int]) -> None:
        """The name stands for that block."""
        self._now.names[name] = triple
        self._write(b"name %s %d %d %d" % (name, *triple))

    def gone(self, name: bytes) -> None:
        """The name, or the object of that name, is no more. Raises nothing: what stays is found out to be stale."""
        self._now.shm.pop(name, None)
        self._now.names.pop(name, None)
        try:
            self._write(b"gone " + name)
        except OSError:
            pass

    def close(self) -> None:
        """Close the file, which stays."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
