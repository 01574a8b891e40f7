"""Window: a file object of the caller, from its position on, as a file that begins at byte 0."""

from __future__ import annotations

import io
import os
from typing import Any

from ..errors import InvalidArgument, type_name


class Window(io.RawIOBase):
    """A file object as a file for the readers and writers of formats. It is not closed with the window.

    Args:
        file: an object with `read` or `readinto`, `seek` and `tell`, or, to write to it, with `write`.
        doing: "load" or "save".

    Raises:
        InvalidArgument: another object, or one that is closed.
    """

    def __init__(self, file: Any, doing: str) -> None:
        needed = ("read", "seek", "tell") if doing == "load" else ("write",)
        lacking = [name for name in needed if not callable(getattr(file, name, None))]
        if lacking:
            raise InvalidArgument(
                f"cannot {doing}: {file!r:.100} is not a path or a binary file, because a {type_name(file)} has no "
                f"{lacking[0]}; give one, or io.BytesIO"
            )
        self._file = file
        self._start = 0
        try:
            if self.seekable() or doing == "load":
                self._start = file.tell()
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"cannot {doing}: {file!r:.100}: {error}; give an open file that can seek") from error

    def seekable(self) -> bool:
        """Whether the file can seek. Does not block."""
        found = getattr(self._file, "seekable", None)
        return bool(found()) if callable(found) else hasattr(self._file, "seek") and hasattr(self._file, "tell")

    def readable(self) -> bool:
        """True: reading is up to the file."""
        return True

    def writable(self) -> bool:
        """True: writing is up to the file."""
        return True

    def size(self) -> int:
        """Return the number of bytes. Does not block. Raises InvalidArgument: the file cannot seek."""
        try:
            return max(0, int(self.seek(0, os.SEEK_END)))
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"cannot load: {self._file!r:.100}: {error}; read it into io.BytesIO") from error

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position from the start of the window, from here, or from the end. Returns the position."""
        self._file.seek(position + self._start if whence == os.SEEK_SET else position, whence)
        return self.tell()

    def tell(self) -> int:
        """Return the position. Does not block."""
        return int(self._file.tell()) - self._start

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer. Returns the number of bytes. Blocks as the file does."""
        view = memoryview(buffer).cast("B")
        into = getattr(self._file, "readinto", None)
        if into is not None:
            return into(view) or 0
        data = self._file.read(len(view))
        if not isinstance(data, bytes):
            raise InvalidArgument(f"cannot load: {self._file!r:.100} gives {type_name(data)}; open it in binary mode")
        view[: len(data)] = data
        return len(data)

    def write(self, data: Any, /) -> int:
        """Write bytes. Returns their number. Blocks as the file does."""
        try:
            done = self._file.write(data)
        except TypeError as error:
            raise InvalidArgument(f"cannot save: {self._file!r:.100}: {error}; open it in binary mode") from error
        return len(data) if done is None else int(done)

    def finish(self) -> None:
        """Write what the file has buffered. Blocks as the file does."""
        flush = getattr(self._file, "flush", None)
        if flush is not None:
            flush()
