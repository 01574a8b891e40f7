"""The methods of files for numbers of each type, generated from a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..dtypes import BY_NAME, NumpyType
from ..errors import DTypeError, InvalidArgument, LayoutError, type_name
from ..storage import STORAGE_CLASSES, Storage
from ..storage.arguments import integer

_NAMES: Final = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
NUMBERS: Final[dict[str, NumpyType]] = {BY_NAME[name].method: BY_NAME[name].dtype for name in _NAMES}
"""The types of numbers in TH's files, by the names in their methods."""


class Numbers(ABC):
    """Base of files with the methods that read and write numbers of each type."""

    @abstractmethod
    def _require(self, right: Literal["r", "w"]) -> None:
        """Raise InvalidArgument if the file is closed, or was not opened for reading or writing."""
        raise NotImplementedError

    @abstractmethod
    def _fill(self, target: NDArray[Any]) -> int:
        """Read into `target`, of one axis. Returns the number of elements read."""
        raise NotImplementedError

    @abstractmethod
    def _finish(self, what: str, done: int, wanted: int) -> int:
        """Finish a read: report missing elements. Returns `done`."""
        raise NotImplementedError

    @abstractmethod
    def _read_fresh(self, what: str, count: int, dtype: NumpyType) -> Storage:
        """Read into a new storage."""
        raise NotImplementedError

    @abstractmethod
    def _write(self, what: str, values: NDArray[Any]) -> int:
        """Write an array of one axis. Returns the number of elements written."""
        raise NotImplementedError

    if TYPE_CHECKING:  # the methods that are generated below

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


_BLOCKS: Final = "May block as the file does."
_SHORT: Final = "EndOfFile, FileDamaged: the file has fewer numbers. OSError: an error of the system."

Generated = dict[str, tuple[Callable[..., Any], str]]
"""Methods and their docstrings, by name."""


def _readers(what: str, dtype: NumpyType) -> Generated:
    """Generate the methods that read numbers of a type."""
    kind = STORAGE_CLASSES[dtype].__name__

    def read(self: Numbers, count: int | None = None) -> Any:
        self._require("r")
        if count is not None:
            return self._read_fresh(what, count, dtype)
        target = np.zeros(1, dtype)
        self._finish(what, self._fill(target), 1)
        return target.item()

    def read_storage(self: Numbers, storage: Storage) -> int:
        self._require("r")
        storage = _storage(storage, dtype)
        storage._require_writable(f"reading {what}s into")
        return self._finish(what, self._fill(storage._flat), storage.size())

    def read_raw(self: Numbers, buffer: Any) -> int:
        self._require("r")
        target = _flat(buffer, dtype, False)
        return self._finish(what, self._fill(target), len(target))

    return {
        f"read_{what}": (
            read,
            f"Read the next {what} ({dtype.name}), or a {kind} of the next `count` ones.\n\n"
            f"{_BLOCKS} In quiet mode, missing ones are 0 or left out.\n\nRaises:\n    {_SHORT}",
        ),
        f"read_{what}_storage": (
            read_storage,
            f"Fill a {kind} with the next {what}s. Returns their number.\n\n{_BLOCKS}\n\nRaises:\n    {_SHORT}\n"
            "    DTypeError: a storage of another type.",
        ),
        f"read_{what}_raw": (
            read_raw,
            f"Fill a writable buffer or array with the next {what}s ({dtype.name}). Returns their number.\n\n"
            f"{_BLOCKS}\n\nRaises:\n    {_SHORT}\n    DTypeError, LayoutError: the buffer cannot hold such numbers.",
        ),
    }


def _writers(what: str, dtype: NumpyType) -> Generated:
    """Generate the methods that write numbers of a type."""
    kind = STORAGE_CLASSES[dtype].__name__
    full = f"{_BLOCKS}\n\nRaises:\n    OSError: the file cannot be written.\n"

    def write(self: Numbers, value: Any) -> int:
        self._require("w")
        return self._write(what, _scalar(value, dtype))

    def write_storage(self: Numbers, storage: Storage) -> int:
        self._require("w")
        return self._write(what, _storage(storage, dtype)._flat)

    def write_raw(self: Numbers, buffer: Any) -> int:
        self._require("w")
        return self._write(what, _flat(buffer, dtype, True))

    return {
        f"write_{what}": (
            write,
            f"Write one {what} ({dtype.name}). Returns 1.\n\n{full}"
            "    DTypeError: not a number of this kind.\n    InvalidArgument: it does not fit into the type.",
        ),
        f"write_{what}_storage": (
            write_storage,
            f"Write a {kind}. Returns the number of elements written.\n\n{full}"
            "    DTypeError: a storage of another type.",
        ),
        f"write_{what}_raw": (
            write_raw,
            f"Write a buffer or array of {what}s ({dtype.name}). Returns the number of elements written.\n\n{full}"
            "    DTypeError, LayoutError: the buffer does not hold such numbers.",
        ),
    }


def _define(methods: Generated) -> None:
    """Add generated methods to `Numbers`."""
    for name, (method, doc) in methods.items():
        method.__name__ = name
        method.__qualname__ = f"File.{name}"
        method.__doc__ = doc
        setattr(Numbers, name, method)


def _flat(buffer: Any, dtype: NumpyType, writing: bool) -> NDArray[Any]:
    """Return a buffer as an array of one axis. Raises DTypeError, LayoutError, InvalidArgument."""
    if isinstance(buffer, np.ndarray) and buffer.dtype not in (dtype, np.uint8):
        raise DTypeError(f"the array must have type {dtype.name}, not {buffer.dtype}")
    try:
        flat = np.frombuffer(buffer, dtype) if memoryview(buffer).nbytes else np.empty(0, dtype)
    except TypeError as error:
        raise DTypeError(f"a {type_name(buffer)} is not a buffer: {error}; give a buffer or array") from error
    except (BufferError, ValueError) as error:
        raise LayoutError(f"numbers of {dtype.name} in a {type_name(buffer)}: {error}") from error
    if not writing and len(flat) and not flat.flags.writeable:
        raise LayoutError(f"cannot read numbers into a read-only {type_name(buffer)}; give a writable one")
    return flat


def _storage(storage: Any, dtype: NumpyType) -> Storage:
    if not isinstance(storage, Storage) or storage.dtype != dtype:
        found = type_name(storage)
        raise DTypeError(f"the storage must be a {STORAGE_CLASSES[dtype].__name__} ({dtype.name}), not a {found}")
    return storage


def _scalar(value: Any, dtype: NumpyType) -> NDArray[Any]:
    """Return a number as an array with one element."""
    try:
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return np.array([float(value)]).astype(dtype)
        number = integer(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise DTypeError(
            f"{value!r} is not a {dtype.name}; give {'a number' if dtype.kind == 'f' else 'an integer'}"
        ) from error
    bounds = np.iinfo(dtype)
    if not bounds.min <= number <= bounds.max:
        raise InvalidArgument(f"{number} does not fit into {dtype.name}; give {bounds.min} to {bounds.max}")
    return np.array([number], dtype)


for _what, _dtype in NUMBERS.items():
    _define(_readers(_what, _dtype) | _writers(_what, _dtype))
