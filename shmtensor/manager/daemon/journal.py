"""What a manager writes down beside its socket for the one that follows, should it be killed.

A line is one fact: `group ID`, `shm NAME SEGMENT`, `gone NAME`, `name NAME SEGMENT BLOCK GENERATION SLOT GENERATION`
(the last two: of the client that asked for the name). It is written before what it says is done, by one write each, so
that a kill leaves whole lines; what is no line is skipped.
"""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH104, PTH108, PTH116, PTH123, SIM105

from __future__ import annotations

import errno
import os

from shmtensor.manager.lockfile import head

KEEP_LINES = 4_096
"""A shorter journal is never written anew."""


class Past:
    """What a journal says: the group, the POSIX shm objects by name, the names of blocks and who asked for them."""

    __slots__ = ("group", "names", "shm")

    def __init__(self) -> None:
        self.group: int | None = None
        self.shm: dict[bytes, int] = {}
        self.names: dict[bytes, tuple[tuple[int, int, int], tuple[int, int]]] = {}

    @property
    def facts(self) -> list[bytes]:
        lines = [] if self.group is None else [b"group %d" % self.group]
        lines += [b"shm %s %d" % row for row in self.shm.items()]
        lines += [b"name %s %d %d %d %d %d" % (name, *triple, *giver) for name, (triple, giver) in self.names.items()]
        return lines


def is_free(path: bytes) -> bool:
    """Whether a journal may be written at `path`, or removed: nothing lies there, an empty file, or a journal.

    A journal is put there whole and then only grows, so whatever a kill leaves of one begins with its group.
    """
    found = head(path)
    if not found:
        return found is not None
    kind, *words = found.split(b"\n")[0].split(b" ")
    return kind == b"group" and len(words) == 1 and words[0].isdigit()


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
                segment, block, generation, slot, born = map(int, words[1:])
                past.names[words[0]] = (segment, block, generation), (slot, born)
            elif kind == b"gone":
                past.shm.pop(words[0], None)
                past.names.pop(words[0], None)
        except (ValueError, IndexError):
            pass
    return past


class Journal:
    """The journal of this manager. Each call raises OSError, and then nothing has been written."""

    def __init__(self, path: bytes, past: Past, may_wait: bool = False) -> None:
        """Begin with what `past` says.

        Args:
            may_wait: where it cannot be written now, `keep` is to try again.
        """
        self._path = path
        self._fd = -1
        self._now = past
        self._lines = 0
        self._nbytes = 0
        self._is_torn = False  # the last line was not written whole
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
            raise FileExistsError(errno.EEXIST, "the file of another program lies there")
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
        """Put the file back if it is not there any more, or is not as it was written; False: it was all right.

        Raises:
            OSError: it cannot be written. FileExistsError: something else lies there, which stays.
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
            raise FileExistsError(errno.EEXIST, "the journal of another group lies there")
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
        """A POSIX shm object of that name is about to be made."""
        self._now.shm[name] = segment
        self._write(b"shm %s %d" % (name, segment))

    def name(self, name: bytes, triple: tuple[int, int, int], giver: tuple[int, int]) -> None:
        """The name stands for that block, as the client in that slot, of that generation, asked for."""
        self._now.names[name] = triple, giver
        self._write(b"name %s %d %d %d %d %d" % (name, *triple, *giver))

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
