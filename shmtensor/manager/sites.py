"""Sampling of sites: which line of a program made a shared block. Off unless SHMTENSOR_SITES is set.

A process that samples writes to a table in its own memory file, which no other process maps. Readers open it through
/proc/<pid>/fd, as a new manager does with segments: without the process's help, while the process lives. A forked child
keeps the descriptor of its parent's table, and has its own table.

The table is hashed by block and has a fixed size. An entry has the generation of its block, so it need not be removed
when the block is freed; a later block may take its place.

    header    u64: magic, bytes of text in use
    entries   u64: group id, segment, block << 32 | generation, number of the site + 1 (0: unused)
    text      a line for each site, file:line
"""

# pathlib costs time at every start of a client.
# ruff: noqa: PTH115, PTH120, PTH208

from __future__ import annotations

import mmap
import os
import sys
import threading

from shmtensor import _native
from shmtensor.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

VARIABLE = "SHMTENSOR_SITES"
ENTRIES = 1 << 15
"""Entries that a block may use; a block that finds all four in use replaces one of them."""
TEXT_BYTES = 1 << 18
"""Bytes for the text of all sites of a process; blocks of further sites are not recorded."""
_MAGIC = 0x315345544953485A
_HEADER_WORDS, _ENTRY_WORDS, _PROBES = 2, 4, 4
_TEXT_AT = (_HEADER_WORDS + ENTRIES * _ENTRY_WORDS) * 8
TABLE_BYTES = _TEXT_AT + TEXT_BYTES
_FILE = "shmtensor-sites"
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep

_table: _Table | None = None


def _place(segment: int, block: int) -> int:
    return (segment * 0x9E3779B1 + block * 0x85EBCA6B) % ENTRIES


class _Table:
    """The table of this process. Raises OSError if there is no memory for it."""

    def __init__(self) -> None:
        fd = os.memfd_create(_FILE, os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, TABLE_BYTES)
            self._map = mmap.mmap(fd, TABLE_BYTES)
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        self._words = memoryview(self._map)[:_TEXT_AT].cast("Q")
        self._numbers: dict[tuple[str, int], int] = {}  # of sites
        self._used = 0
        self._lock = threading.RLock()  # a signal handler may make blocks as well
        self._words[0] = _MAGIC

    def add(self, group: int, segment: int, block: int, generation: int, site: tuple[str, int]) -> None:
        with self._lock:
            number = self._numbers.get(site)
            if number is None:
                number = self._new_site(site)
            if number is None:
                return
            words, at = self._words, self._choose(segment, block)
            words[at + 3] = 0  # until the entry is complete
            words[at], words[at + 1], words[at + 2] = group, segment, block << 32 | generation
            words[at + 3] = number + 1

    def _choose(self, segment: int, block: int) -> int:
        """Return where the block's entry is or may be: its own, an unused one, or else the first."""
        words, unused = self._words, -1
        first = _place(segment, block)
        for probe in range(_PROBES):
            at = _HEADER_WORDS + (first + probe) % ENTRIES * _ENTRY_WORDS
            if words[at + 3] == 0:
                unused = at if unused < 0 else unused
            elif words[at + 1] == segment and words[at + 2] >> 32 == block:
                return at
        return unused if unused >= 0 else _HEADER_WORDS + first * _ENTRY_WORDS

    def _new_site(self, site: tuple[str, int]) -> int | None:
        file = "".join(letter if letter.isprintable() else "?" for letter in site[0])
        text = f"{file}:{site[1]}\n".encode(errors="backslashreplace")
        if self._used + len(text) > TEXT_BYTES:
            return None
        at = _TEXT_AT + self._used
        self._map[at : at + len(text)] = text
        self._used += len(text)
        self._words[1] = self._used
        number = self._numbers[site] = len(self._numbers)
        return number


def sample(every: int) -> None:
    """Start to record which line makes every `every`-th shared block of this process; 0: stop. Does not block."""
    _native.sample_blocks(every, _note if every else None)


def sample_as_told() -> None:
    """Start to sample at the rate in SHMTENSOR_SITES. Raises InvalidArgument: it is not a number of blocks."""
    text = os.environ.get(VARIABLE, "")
    if not (text.isascii() and text.isdecimal() and int(text) < 1 << 32):
        raise InvalidArgument(
            f"{VARIABLE} must be a number of blocks, not {text!r}: 100 records the line that makes every 100th shared "
            "block, and 0 none"
        )
    sample(int(text))


def _note(group: int, segment: int, block: int, generation: int) -> None:
    global _table
    if _table is None:
        try:
            _table = _Table()
        except OSError:  # no memory or no descriptor for the table
            sample(0)
            return
    _table.add(group, segment, block, generation, _site(sys._getframe(1)))


def _site(innermost: FrameType) -> tuple[str, int]:
    """Return file and line of the first frame outside of this package, or else of the innermost one."""
    frame: FrameType | None = innermost
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return innermost.f_code.co_filename, innermost.f_lineno


def _after_fork() -> None:
    global _table
    _table = None  # the parent's, which the parent still writes; its descriptor stays open for readers


os.register_at_fork(after_in_child=_after_fork)


def of_processes(pids: Iterable[int], group: int) -> dict[tuple[int, int, int], str]:
    """Return the recorded sites: (segment, block, generation) -> file:line. Does not block.

    Args:
        pids: the processes whose tables are read, if they are alive and visible.
        group: id of the group of the blocks.
    """
    found: dict[tuple[int, int, int], str] = {}
    seen: set[int] = set()
    for pid in pids:
        directory = f"/proc/{pid}/fd"
        try:
            entries = os.listdir(directory)
        except OSError:
            continue
        for entry in entries:
            try:
                if os.readlink(f"{directory}/{entry}").startswith(f"/memfd:{_FILE}"):
                    _read(f"{directory}/{entry}", group, seen, found)
            except OSError:
                continue  # closed meanwhile
    return found


def _read(path: str, group: int, seen: set[int], found: dict[tuple[int, int, int], str]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        inode = os.fstat(fd).st_ino
        if inode in seen:
            return  # inherited
        seen.add(inode)
        content = os.pread(fd, TABLE_BYTES, 0)
    finally:
        os.close(fd)
    if len(content) != TABLE_BYTES:
        return
    words = memoryview(content)[:_TEXT_AT].cast("Q")
    if words[0] != _MAGIC:
        return
    lines = content[_TEXT_AT : _TEXT_AT + words[1]].decode(errors="replace").split("\n")
    for index, number in enumerate(words[_HEADER_WORDS + 3 :: _ENTRY_WORDS].tolist()):
        at = _HEADER_WORDS + index * _ENTRY_WORDS
        if 0 < number < len(lines) and words[at] == group:
            found[words[at + 1], words[at + 2] >> 32, words[at + 2] & 0xFFFFFFFF] = lines[number - 1]
