"""DiskFile: numbers and strings in a file on disk (THDiskFile)."""

from __future__ import annotations

import errno
import io
import os
import stat
from typing import Any, Final, Self

from ..errors import InvalidArgument
from .file import File

_BUFFER: Final = 1 << 16  # bytes of the buffer for reading or writing


class StreamFile(File):
    """A buffered file of the operating system."""

    _name: str
    _raw: io.FileIO | None = None  # None: closed
    _ahead: bytes = b""  # bytes read ahead; the system's position is at their end
    _at: int = 0  # number of those that were consumed
    _behind: bytearray  # bytes that are not written to the system yet
    _place: int = 0  # the system's position
    _buffer: int = _BUFFER

    def _open(self, raw: io.FileIO) -> None:
        self._raw = raw
        self._behind = bytearray()

    @property
    def name(self) -> str:
        """The path or command as given."""
        return self._name

    def is_opened(self) -> bool:
        """Whether the file is open. Does not block."""
        return self._raw is not None

    def no_buffer(self) -> Self:
        """Read and write without a buffer from now on. May block as a write does. Returns self."""
        self.synchronize()
        self._buffer = 1
        return self

    def position(self) -> int:
        """Return the position in bytes; for a pipe, the bytes read or written so far. Does not block."""
        self._require_open()
        return self._place - (len(self._ahead) - self._at) + len(self._behind)

    def synchronize(self) -> None:
        """Write buffered bytes to the system (fflush). May block as a write does.

        Raises:
            InvalidArgument: the file is closed.
            OSError: the bytes cannot be written.
        """
        self._require_open()
        pending = len(self._behind)
        if not self._flush():
            self._full("pending byte", pending - len(self._behind), pending)

    def close(self) -> None:
        """Write buffered bytes and close the file. May block as a write does.

        Raises:
            InvalidArgument: the file is closed already.
            OSError: buffered bytes cannot be written; the file is closed.
        """
        self._require_open()
        try:
            self.synchronize()
        finally:
            raw, self._raw = self._raw, None
            self._ahead, self._at = b"", 0
            self._behind.clear()
            assert raw is not None
            raw.close()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _system(self) -> io.FileIO:
        self._require_open()
        assert self._raw is not None
        return self._raw

    def _flush(self) -> bool:
        while self._behind:
            count = self._hand_over(memoryview(self._behind))
            del self._behind[:count]
            if self._problem is not None:
                return False
        return True

    def _hand_over(self, data: memoryview) -> int:
        """Write bytes to the system. Returns the number written."""
        raw = self._system()
        done = 0
        try:
            while done < len(data):
                done += raw.write(data[done:]) or 0
        except OSError as error:
            self._problem = error
        finally:
            data.release()
            self._place += done
        return done

    def _write_bytes(self, data: Any) -> int:
        if len(self._ahead) > self._at:  # not all bytes read ahead were consumed
            self._drop_ahead()
        view = memoryview(data)
        if len(self._behind) + len(view) < self._buffer:
            self._behind += view
            return len(view)
        return self._hand_over(view) if self._flush() else 0

    def _drop_ahead(self) -> None:
        self._place = self._system().seek(self._place - (len(self._ahead) - self._at))
        self._ahead, self._at = b"", 0

    def _window(self, wanted: int) -> tuple[Any, int, int]:
        if len(self._ahead) - self._at < wanted and (not self._behind or self._flush()):
            raw = self._system()
            parts = [self._ahead[self._at :]]
            missing = wanted - len(parts[0])
            try:
                while missing > 0:
                    part = raw.read(max(missing, self._buffer))
                    if not part:
                        break
                    parts.append(part)
                    missing -= len(part)
                    self._place += len(part)
            except OSError as error:
                self._problem = error
            self._ahead, self._at = b"".join(parts), 0
        return self._ahead, self._at, len(self._ahead)

    def _skip(self, count: int) -> None:
        self._at += count

    def _read_into(self, target: memoryview) -> int:
        if len(target) < self._buffer:
            buffer, start, stop = self._window(len(target))
            done = min(stop - start, len(target))
            target[:done] = buffer[start : start + done]
            self._at += done
            return done
        done = len(self._ahead) - self._at
        target[:done] = self._ahead[self._at :]
        self._ahead, self._at = b"", 0
        if self._behind and not self._flush():
            return done
        raw = self._system()
        try:
            while done < len(target):
                count = raw.readinto(target[done:])
                if not count:
                    break
                done += count
                self._place += count
        except OSError as error:
            self._problem = error
        return done

    def _left(self) -> int | None:
        status = os.fstat(self._system().fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        return max(0, status.st_size - self.position()) if self._flush() else 0

    def _move(self, position: int | None) -> None:
        raw = self._system()
        if not self._flush():
            self._full("pending byte", 0, len(self._behind))
            return
        self._place = raw.seek(0, os.SEEK_END) if position is None else raw.seek(position)
        self._ahead, self._at = b"", 0


class DiskFile(StreamFile):
    """Numbers and strings in a file on disk.

    Args:
        path: the file. "w" truncates or creates it, "rw" creates it if it does not exist.
        mode: "r", "w" or "rw".
        quiet: errors set `has_error()` instead of raising. If the file cannot be opened, the new object is closed and
            has the error set (TH returns NULL).

    Raises:
        InvalidArgument: an unknown mode, or an invalid path.
        FileNotFoundError, PermissionError, OSError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], mode: str = "r", quiet: bool = False) -> None:
        super().__init__(mode, ("r", "w", "rw"), quiet)
        try:
            self._name = os.fsdecode(path)
        except TypeError as error:
            raise InvalidArgument(f"{path!r} is not a path; give the path of a file") from error
        try:
            self._open(_opened(self._name, mode))
        except OSError as error:
            self._fail(OSError(error.errno, f"cannot open in mode {mode!r}: {error.strerror}", self._name))
        except ValueError as error:
            raise InvalidArgument(f"{self._name!r} is not a path: {error}; give the path of a file") from error


def _opened(name: str, mode: str) -> io.FileIO:
    if mode != "rw":
        return io.FileIO(name, mode)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))
    return io.FileIO(descriptor, "r+")
