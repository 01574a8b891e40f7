"""File: the base of disk, memory and pipe files (THFile), which read and write numbers and strings.

Subclasses read and write bytes (the methods under "implemented by subclasses"); everything else is here. A file is not
thread-safe.
"""

from __future__ import annotations

import errno
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ..dtypes import NumpyType
from ..errors import DTypeError, EndOfFile, FileDamaged, InvalidArgument, type_name
from ..storage import STORAGE_CLASSES, Storage
from ..storage.arguments import empty_array, integer
from ..storage.regions import element_count
from . import text
from .numbers import Numbers

_BLOCK: Final = 1 << 20  # bytes converted or searched at once
_FIRST: Final = 1 << 16  # elements allocated first, if their number is unknown
_NEWLINE: Final = 10
_INT64: Final = np.dtype(np.int64)
_SHOWN: Final = 20  # bytes of the found data shown in a message


class File(Numbers):
    """Numbers and strings in a file. The default format is text, with spaces between numbers and newlines after writes.

    In pedantic mode, the default, errors raise. In quiet mode they set `has_error()`, and methods return the number of
    elements read or written (a scalar read returns 0, a string read ""). Invalid arguments, and the use of a closed
    file, raise in both modes.
    """

    _readable: bool
    _writable: bool
    _quiet: bool
    _error: bool
    _binary: bool
    _spacing: bool
    _order: Literal["=", "<", ">"]  # of binary numbers
    _long: NumpyType  # of a binary long
    _problem: OSError | None  # the system's error in the last read or write, until it is reported

    def __init__(self, mode: str, modes: tuple[str, ...], quiet: bool) -> None:
        if mode not in modes:
            raise InvalidArgument(f"unknown file mode {mode!r}; use one of {', '.join(map(repr, modes))}")
        self._readable = "r" in mode
        self._writable = "w" in mode
        self._quiet = quiet
        self._binary = False
        self._spacing = True
        self._error = False
        self._order = "="
        self._long = _INT64
        self._problem = None

    # -- implemented by subclasses ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The path, the command, or "memory file", as messages show it (THDiskFile_name)."""
        raise NotImplementedError

    @abstractmethod
    def is_opened(self) -> bool:
        """Whether the file is open. Does not block."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Write buffered bytes and close the file. May block as a write does.

        Raises:
            InvalidArgument: the file is closed already.
            OSError: buffered bytes cannot be written.
        """
        raise NotImplementedError

    def synchronize(self) -> None:
        """Write buffered bytes to the system. May block as a write does.

        Raises:
            OSError: the bytes cannot be written.
        """
        raise NotImplementedError

    def position(self) -> int:
        """Return the position in bytes from the start of the file. Does not block."""
        raise NotImplementedError

    # The three methods that move bytes set _problem on an error of the system, and return what they have.

    def _window(self, wanted: int) -> tuple[Any, int, int]:
        """Return (buffer, start, stop) of the next bytes: at least `wanted`, unless the file ends before."""
        raise NotImplementedError

    def _read_into(self, target: memoryview) -> int:
        """Fill `target` with the next bytes. Returns their number."""
        raise NotImplementedError

    def _write_bytes(self, data: Any) -> int:
        """Write the bytes of a buffer. Returns the number written."""
        raise NotImplementedError

    def _skip(self, count: int) -> None:
        """Consume `count` bytes of the window."""
        raise NotImplementedError

    def _left(self) -> int | None:
        """Return the number of bytes to the end of the file; None if unknown."""
        raise NotImplementedError

    def _move(self, position: int | None) -> None:
        """Move to a position, or to the end (None). Raises OSError."""
        raise NotImplementedError

    # -- modes and errors ---------------------------------------------------------------------------------------------

    def is_readable(self) -> bool:
        """Whether the file was opened for reading. Does not block."""
        return self._readable

    def is_writable(self) -> bool:
        """Whether the file was opened for writing. Does not block."""
        return self._writable

    def is_quiet(self) -> bool:
        """Whether errors set `has_error()` instead of raising. Does not block."""
        return self._quiet

    def is_binary(self) -> bool:
        """Whether numbers are binary. Does not block."""
        return self._binary

    def is_auto_spacing(self) -> bool:
        """Whether text has spaces and newlines. Does not block."""
        return self._spacing

    def has_error(self) -> bool:
        """Whether an error occurred since `clear_error()`. Does not block."""
        return self._error

    def clear_error(self) -> Self:
        """Clear `has_error()`. Does not block. Returns self."""
        self._error = False
        return self

    def quiet(self) -> Self:
        """Do not raise if reading or writing fails. Does not block. Returns self."""
        self._quiet = True
        return self

    def pedantic(self) -> Self:
        """Raise if reading or writing fails (the default). Does not block. Returns self."""
        self._quiet = False
        return self

    def binary(self) -> Self:
        """Read and write numbers in binary from now on. Does not block. Returns self."""
        self._binary = True
        return self

    def ascii(self) -> Self:
        """Read and write numbers as text (the default); bytes and chars stay raw. Does not block. Returns self."""
        self._binary = False
        return self

    def auto_spacing(self) -> Self:
        """Write text with spaces between numbers and a newline after each write (the default).

        A read consumes a newline after its last number. Does not block. Returns self.
        """
        self._spacing = True
        return self

    def no_auto_spacing(self) -> Self:
        """Write text without separators. Does not block. Returns self."""
        self._spacing = False
        return self

    def native_endian_encoding(self) -> Self:
        """Use the byte order of this machine for binary numbers (the default). Does not block. Returns self."""
        return self._ordered("=")

    def little_endian_encoding(self) -> Self:
        """Use little-endian binary numbers. Does not block. Returns self."""
        return self._ordered("<")

    def big_endian_encoding(self) -> Self:
        """Use big-endian binary numbers. Does not block. Returns self."""
        return self._ordered(">")

    def _ordered(self, order: Literal["=", "<", ">"]) -> Self:
        self._require_open()
        self._order = order
        return self

    @staticmethod
    def is_little_endian_cpu() -> bool:
        """Whether this machine is little-endian. Does not block."""
        return sys.byteorder == "little"

    @staticmethod
    def is_big_endian_cpu() -> bool:
        """Whether this machine is big-endian. Does not block."""
        return sys.byteorder == "big"

    def long_size(self, size: int) -> Self:
        """Set the size of a binary long in bytes: 4, 8, or 0 for this machine's (8). Does not block. Returns self.

        Raises:
            InvalidArgument: another size.
        """
        self._require_open()
        if size not in (0, 4, 8):
            raise InvalidArgument(f"the size of a long must be 0 (this machine's), 4 or 8, not {size!r}")
        self._long = np.dtype(np.int32) if size == 4 else _INT64
        return self

    # -- positions ----------------------------------------------------------------------------------------------------

    def seek(self, position: int) -> None:
        """Move to a position in bytes from the start. Blocks while buffered bytes are written.

        Raises:
            InvalidArgument: a negative position.
            OSError: the position does not exist, or the file cannot seek (pipes).
        """
        self._require_open()
        try:
            position = integer(position)
        except TypeError:
            raise InvalidArgument(f"position {position!r} is not an integer; give bytes from the start") from None
        if not 0 <= position < 1 << 63:
            raise InvalidArgument(f"position {position} is out of range; give bytes from the start")
        self._go(position)

    def seek_end(self) -> None:
        """Move to the end. Blocks as `seek` does. Raises OSError (pipes)."""
        self._require_open()
        self._go(None)

    def _go(self, position: int | None) -> None:
        try:
            self._move(position)
        except OSError as error:
            where = "to the end" if position is None else f"to byte {position}"
            self._fail(OSError(error.errno, f"{self.name}: unable to seek {where}: {error.strerror}"))

    # -- strings ------------------------------------------------------------------------------------------------------

    def read_string(self, form: str = "*a") -> str:
        """Read the rest of the file (`"*a"`), or the next line without its newline (`"*l"`). May block as a read does.

        Bytes that are not UTF-8 become surrogates, which `write_string` converts back.

        Raises:
            InvalidArgument: an unknown form.
            EndOfFile: the file has ended.
        """
        self._require("r")
        if not isinstance(form, str) or form[:2] not in ("*a", "*l"):
            raise InvalidArgument(f"unknown string form {form!r}; use '*a' for the rest or '*l' for a line")
        line = form[1] == "l"
        found = bytearray()
        while True:
            buffer, start, stop = self._window(1)
            piece = bytes(buffer[start : min(stop, start + _BLOCK)])
            end = piece.find(b"\n") if line else -1
            found += piece if end < 0 else piece[:end]
            self._skip(len(piece) if end < 0 else end + 1)
            if end >= 0 or not piece:
                break
        if not found and end < 0:
            self._missing("line" if line else "string", 0, 1)
        return found.decode("utf-8", "surrogateescape")

    def write_string(self, string: str | bytes) -> int:
        """Write a string in UTF-8. Returns the number of bytes written. May block as a write does. Raises OSError."""
        self._require("w")
        if not isinstance(string, str | bytes):
            raise DTypeError(f"write_string takes str or bytes, not {type_name(string)}")
        data = string.encode("utf-8", "surrogateescape") if isinstance(string, str) else string
        done = self._write_bytes(data)
        if done != len(data):
            self._full("byte", done, len(data))
        return done

    # -- numbers ------------------------------------------------------------------------------------------------------

    def _wire(self, dtype: NumpyType) -> NumpyType:
        """Return the type in the file of binary numbers of `dtype`."""
        return (self._long if dtype == _INT64 else dtype).newbyteorder(self._order)

    def _fill(self, target: NDArray[Any]) -> int:
        """Read into `target`, of one axis. Returns the number of elements read."""
        if not self._binary and target.itemsize > 1:
            return self._fill_text(target)
        wire = self._wire(target.dtype)
        if wire == target.dtype:
            return self._read_into(target.view(np.uint8).data) // wire.itemsize
        block = empty_array((min(len(target), _BLOCK // wire.itemsize),), wire)
        done = 0
        while done < len(target):
            part = block[: len(target) - done]
            found = self._read_into(part.view(np.uint8).data) // wire.itemsize
            target[done : done + found] = part[:found]
            done += found
            if found < len(part):
                break
        return done

    def _fill_text(self, target: NDArray[Any]) -> int:
        done = rest = 0
        while done < len(target):
            # A number and a space are two bytes; at least one byte more than an incomplete number.
            wanted = max(rest + 1, min(_BLOCK, 2 * (len(target) - done) - 1))
            buffer, start, stop = self._window(wanted)
            final = stop - start < wanted
            if stop - start > _BLOCK:
                stop, final = start + _BLOCK, False
            found = text.scan(buffer, start, stop, final, target[done:])
            self._skip(found.used)
            done += found.count
            if found.stopped or final:
                break
            rest = stop - start - found.used
        return done

    def _finish(self, what: str, done: int, wanted: int) -> int:
        """Finish a read: consume the newline after the numbers, and report missing elements."""
        if wanted and not self._binary and self._spacing:
            buffer, start, stop = self._window(1)
            if stop > start and buffer[start] == _NEWLINE:
                self._skip(1)
        if done != wanted:
            self._missing(what, done, wanted)
        return done

    def _read_fresh(self, what: str, count: int, dtype: NumpyType) -> Storage:
        """Read into a new storage. Memory is allocated only for elements that the file can have."""
        count = element_count(count, dtype)
        left = self._left()
        if left is None:
            room = min(count, _FIRST)
        elif self._binary or dtype.itemsize == 1:
            room = min(count, left // self._wire(dtype).itemsize)
        else:
            room = min(count, left)  # a number has at least one byte
        fresh: Storage = STORAGE_CLASSES[dtype](room)
        done = self._fill(fresh._flat)
        while left is None and done == fresh.size() < count:
            fresh.resize_(min(count, 2 * done))
            done += self._fill(fresh._flat[done:])
        self._finish(what, done, count)
        return fresh if done == fresh.size() else fresh.resize_(done)

    def _write(self, what: str, values: NDArray[Any]) -> int:
        """Write an array of one axis. Returns the number of elements written."""
        raw = self._binary or values.itemsize == 1
        done = 0
        for data, elements in self._encoded(values) if raw else text.written(values, self._spacing):
            size = memoryview(data).nbytes
            wrote = self._write_bytes(data)
            if wrote != size:
                # In text, the numbers of a block that was cut off are not counted.
                done += wrote * elements // size if raw else 0
                break
            done += elements
        if done != len(values):
            self._full(what, done, len(values))
        elif done and raw and not self._binary and self._spacing and not self._write_bytes(b"\n"):
            self._full("newline", 0, 1)
        return done

    def _encoded(self, values: NDArray[Any]) -> Iterator[tuple[Any, int]]:
        """Yield (buffer, number of elements) of `values` as binary numbers."""
        wire = self._wire(values.dtype)
        if wire == values.dtype:
            yield np.ascontiguousarray(values).view(np.uint8).data, len(values)
            return
        if wire.itemsize < values.itemsize and len(values):
            bounds = np.iinfo(wire)
            if values.min() < bounds.min or values.max() > bounds.max:
                raise InvalidArgument(
                    f"{self.name}: longs from {values.min()} to {values.max()} do not fit into {wire.itemsize} bytes, "
                    "the long_size(); use long_size(8)"
                )
        step = _BLOCK // wire.itemsize
        for start in range(0, len(values), step):
            block = values[start : start + step].astype(wire)
            yield block.view(np.uint8).data, len(block)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if not self.is_opened():
            raise InvalidArgument(f"{self.name}: the file is closed; open it again")

    def _require(self, right: Literal["r", "w"]) -> None:
        self._require_open()
        if right == "r" and not self._readable:
            raise InvalidArgument(f"{self.name}: cannot read a file that was opened for writing; open it with 'rw'")
        if right == "w" and not self._writable:
            raise InvalidArgument(f"{self.name}: cannot write to a file that was opened for reading; use 'w' or 'rw'")

    def _fail(self, error: Exception) -> None:
        """Set `has_error()` in quiet mode, else raise the error."""
        self._error = True
        if not self._quiet:
            raise error

    def _told(self) -> OSError | None:
        """Return the system's error and clear it."""
        problem, self._problem = self._problem, None
        return problem

    def _missing(self, what: str, done: int, wanted: int) -> None:
        """Report that a read found only `done` of `wanted` elements."""
        asked = f"{self.name} at byte {self.position()}: wanted {_counted(what, wanted)}"
        problem = self._told()
        if problem is not None:
            self._fail(OSError(problem.errno, f"{asked}, read {done}: {problem.strerror}"))
            return
        buffer, start, stop = self._window(1)
        found = bytes(buffer[start : min(stop, start + _SHOWN)])
        if found and not self._binary:
            text_found = found.decode("ascii", "backslashreplace")
            self._fail(FileDamaged(f"{asked}, found {done} and then {text_found!r}; check the format of the file"))
        else:
            self._fail(EndOfFile(f"{asked}, found {done}: the file ends here"))

    def _full(self, what: str, done: int, wanted: int) -> None:
        """Report that a write wrote only `done` of `wanted` elements."""
        problem = self._told() or OSError(errno.EIO, os.strerror(errno.EIO))
        self._fail(
            OSError(
                problem.errno,
                f"{self.name} at byte {self.position()}: wrote {done} of {_counted(what, wanted)}: {problem.strerror}",
            )
        )

    # -- lifetime -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.is_opened():
            self.close()

    def __del__(self) -> None:
        if self.is_opened():
            self.close()

    def __repr__(self) -> str:
        mode = ("r" if self._readable else "") + ("w" if self._writable else "")
        state = "open" if self.is_opened() else "closed"
        return f"<{type(self).__name__} {self.name!r} mode={mode} {'binary' if self._binary else 'ascii'} {state}>"


def _counted(what: str, count: int) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
