"""The journal beside the socket: the facts that a successor needs if the manager is killed.

Each line is one record: `group ID`, `namespace INODE` (the PID namespace of the manager), `shm NAME SEGMENT`, `gone
NAME`, or `name NAME SEGMENT BLOCK GENERATION SLOT GENERATION` (the last two identify the client that asked for the
name). A record is written before the action that it describes, with a single write, so that a kill leaves complete
lines; malformed lines are skipped.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH104, PTH108, PTH116, PTH123, SIM105

from __future__ import annotations

import errno
import os

from shmtensor.manager.lockfile import head, open_regular

KEEP_LINES = 4_096
"""A journal with fewer lines is never rewritten."""


class Past:
    """The content of a journal: the group, the POSIX shm objects, the names of blocks and the clients that asked."""

    __slots__ = ("group", "names", "namespace", "shm")

    def __init__(self) -> None:
        self.group: int | None = None
        self.namespace: int | None = None
        """The PID namespace of the manager that wrote it."""
        self.shm: dict[bytes, int] = {}
        self.names: dict[bytes, tuple[tuple[int, int, int], tuple[int, int]]] = {}

    @property
    def facts(self) -> list[bytes]:
        """The lines of a journal with this content."""
        lines = [] if self.group is None else [b"group %d" % self.group, b"namespace %d" % pid_namespace()]
        lines += [b"shm %s %d" % row for row in self.shm.items()]
        lines += [b"name %s %d %d %d %d %d" % (name, *triple, *giver) for name, (triple, giver) in self.names.items()]
        return lines


def pid_namespace() -> int:
    """Return a number that identifies the PID namespace of this process; 0 if it is not visible."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def is_free(path: bytes) -> bool:
    """Whether a journal may be written or removed at `path`: there is no file, an empty file, or a journal.

    A journal is created complete by a rename and then only grows, so after a kill it still begins with its group.
    """
    found = head(path)
    if not found:
        return found is not None
    kind, *words = found.split(b"\n")[0].split(b" ")
    return kind == b"group" and len(words) == 1 and words[0].isdigit()


def read(path: bytes) -> Past:
    """Return the journal at `path`; an empty one if there is none, or no regular file. Does not block."""
    past = Past()
    try:
        with open(open_regular(path), "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return past
    for line in lines[:-1]:  # the last item is empty, or a line that a kill cut off
        kind, *words = line.split(b" ")
        try:
            if kind == b"group":
                past.group = int(words[0])
            elif kind == b"namespace":
                past.namespace = int(words[0])
            elif kind == b"shm":
                past.shm[words[0]] = int(words[1])
            elif kind == b"name":
                segment, block, generation, slot, born = map(int, words[1:])
                past.names[words[0]] = (segment, block, generation), (slot, born)
            elif kind == b"gone":
                past.shm.pop(words[0], None)
                past.names.pop(words[0], None)
        except (ValueError, IndexError):
            pass
    return past


class Journal:
    """Writes the journal of this manager. Each call may raise OSError; then nothing was written."""

    def __init__(self, path: bytes, past: Past, may_wait: bool = False) -> None:
        """Create the journal with the content of `past`.

        Args:
            path: path of the file.
            past: the content, which this object updates from then on.
            may_wait: if the file cannot be written now, leave that to `keep`.
        """
        self._path = path
        self._fd = -1
        self._now = past
        self._lines = 0
        self._nbytes = 0
        self._is_torn = False  # the last line was not written completely
        try:
            self._write_anew()
        except OSError:
            if not may_wait:
                raise

    def _write_anew(self) -> None:
        facts = self._now.facts
        data = b"".join(line + b"\n" for line in facts)
        fresh = self._path + b".new"
        if not (is_free(self._path) and is_free(fresh)):
            raise FileExistsError(errno.EEXIST, "a file of another program is in its place")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                file.write(data)
            os.rename(fresh, self._path)
        except BaseException:
            os.close(fd)
            try:
                os.unlink(fresh)
            except OSError:
                pass
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._lines, self._nbytes, self._is_torn = fd, len(facts), len(data), False

    def keep(self) -> bool:
        """Write the file again if it is missing or was changed. Returns whether it was.

        Raises:
            FileExistsError: another file is in its place, and is left alone.
            OSError: the journal cannot be written.
        """
        try:
            found = os.stat(self._path, follow_symlinks=False)
            ours = os.fstat(self._fd) if self._fd >= 0 else None
            if ours is not None and (found.st_dev, found.st_ino, found.st_size) == (
                ours.st_dev,
                ours.st_ino,
                self._nbytes,
            ):
                return False
        except FileNotFoundError:
            pass
        if read(self._path).group not in (None, self._now.group):
            raise FileExistsError(errno.EEXIST, "the journal of another group is in its place")
        self._write_anew()
        return True

    def _write(self, line: bytes) -> None:
        data = (b"\n" if self._is_torn else b"") + line + b"\n"
        self._is_torn = True
        written = os.write(self._fd, data)
        self._nbytes += written
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_torn = False
        self._lines += 1
        if self._lines > KEEP_LINES + 4 * (len(self._now.shm) + len(self._now.names)):
            self._write_anew()

    def shm(self, name: bytes, segment: int) -> None:
        """Record that a POSIX shm object is about to be created."""
        self._now.shm[name] = segment
        self._write(b"shm %s %d" % (name, segment))

    def name(self, name: bytes, triple: tuple[int, int, int], giver: tuple[int, int]) -> None:
        """Record the block of a name, and the (slot, generation) of the client that asked for it."""
        self._now.names[name] = triple, giver
        self._write(b"name %s %d %d %d %d %d" % (name, *triple, *giver))

    def gone(self, name: bytes) -> None:
        """Record the end of a name or shm object. Raises nothing: a successor detects stale records."""
        self._now.shm.pop(name, None)
        self._now.names.pop(name, None)
        try:
            self._write(b"gone " + name)
        except OSError:
            pass

    def close(self) -> None:
        """Close the file without removing it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
