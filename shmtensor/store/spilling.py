"""Objects of a store in files: one `.safetensors` file each, named by the version (docs/store.md).

A file is written completely, synchronized and renamed before the table refers to it, and is removed after the table has
dropped it. So a process that is killed leaves at most a file that the table does not name, and the next sweep removes
it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._tensor.core import Tensor
from .._tensor.creation import from_numpy
from ..errors import InvalidArgument, OutOfMemory, ShmTensorError
from ..files import load, save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SUFFIX: Final = ".safetensors"
_FORMAT: Final = "shmtensor"  # a checkpoint: safetensors with metadata that describe how the values are nested


class ObjectDamaged(ShmTensorError):
    """The file of a spilled object is missing, damaged or cannot be read. Other objects are not affected."""


_OWNER: Final = "store.json"  # names the store that the files belong to
_OURS: Final = re.compile(r"(\d+)\.safetensors|\.\d+\.safetensors\.[0-9a-f]+\.tmp")

_PASSING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_locked: Final[set[int]] = set()
"""Descriptors through which this process holds the lock of a directory."""


def _after_fork() -> None:
    while _locked:
        os.close(_locked.pop())  # else the child would keep the lock when the parent is killed


os.register_at_fork(after_in_child=_after_fork)


class SpillDirectory:
    """The files of one store."""

    def __init__(self, path: str) -> None:
        self.path: Path = Path(path)

    def claim(self, owner: dict[str, Any], lives: Callable[[dict[str, Any]], bool]) -> None:
        """Make this the directory of a new store, and remove the files of one that has ended. Called inside `making`.

        Args:
            owner: description of the store, which is written to the directory.
            lives: returns whether the store with such a description may still exist.

        Raises:
            InvalidArgument: it belongs to another store, or has files like those of a store without a description.
        """
        note = self.path / _OWNER
        try:
            try:
                other = json.loads(note.read_bytes())
            except FileNotFoundError:
                if any(_OURS.fullmatch(entry.name) for entry in self.path.iterdir()):
                    raise InvalidArgument(
                        f"spill={os.fspath(self.path)!r} has files that may belong to another store; give an empty "
                        "directory"
                    ) from None
            except ValueError:
                pass  # its writer was killed before the store was made
            else:
                if isinstance(other, dict) and lives(other):
                    raise InvalidArgument(
                        f"spill={os.fspath(self.path)!r} belongs to the store {other.get('name')!r} of "
                        f"{other.get('address')!r}; give each store a directory of its own, or delete {_OWNER} "
                        "and the files there if that one has ended"
                    )
            note.write_text(json.dumps(owner))
            self.sweep(())
        except OSError as error:
            raise InvalidArgument(
                f"spill={os.fspath(self.path)!r} cannot be used: {error.strerror}; give another path"
            ) from None

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Make the directory if it is missing, and admit one process that makes a store at a time. Blocks.

        Raises InvalidArgument: the directory cannot be used.
        """
        with contextlib.ExitStack() as stack:
            try:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                stack.enter_context(self.exclusive())
            except OSError as error:
                raise InvalidArgument(
                    f"spill={os.fspath(self.path)!r} cannot be a directory: {error.strerror}; give another path"
                ) from None
            yield

    def file_of(self, version: int) -> Path:
        """Return the path of an object's file."""
        return self.path / f"{version}{_SUFFIX}"

    @contextlib.contextmanager
    def exclusive(self, waits: bool = True) -> Iterator[None]:
        """Admit one thread of all processes at a time. Blocks.

        Raises OSError: the directory is gone; BlockingIOError: another has the lock, and `waits` is False.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _locked.add(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            yield
        finally:
            if fd in _locked:  # not in a forked child
                _locked.remove(fd)
                fcntl.flock(fd, fcntl.LOCK_UN)  # children that were forked meanwhile have the descriptor as well
                os.close(fd)

    def write(self, version: int, value: Any) -> None:
        """Write an object's file. Blocks as writing does. Raises OSError."""
        tensors: list[Tensor] = []
        are_arrays: list[bool] = []

        def listed(leaf: Any) -> Tensor:
            are_arrays.append(type(leaf) is np.ndarray)
            tensors.append(_tensor(leaf))
            return tensors[-1]

        content = {"value": _replaced(value, listed), "arrays": are_arrays, "sums": [_sum(one) for one in tensors]}
        save(content, self.file_of(version), format=_FORMAT)

    def read(self, version: int) -> Any:
        """Map an object's file and check its sums. Blocks as reading does.

        Raises:
            FileNotFoundError: there is none.
            ObjectDamaged: it is damaged, or cannot be read.
            OSError, OutOfMemory: this process has no descriptor or no memory left for it.
        """
        path = self.file_of(version)
        try:
            found = load(path, mmap=True, format=_FORMAT)
            leaves = iter(zip(found["arrays"], found["sums"], strict=True))
            return _replaced(found["value"], lambda tensor: _checked(tensor, *next(leaves)))
        except (FileNotFoundError, OutOfMemory):
            raise
        except (ShmTensorError, OSError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                raise  # the file is not at fault
            try:
                path.stat()
            except FileNotFoundError:
                raise  # it was removed after it was opened, before it was mapped
            except OSError:
                pass
            raise ObjectDamaged(
                f"the file {os.fspath(path)!r} of a spilled object cannot be used: {error}; delete the object or put "
                "it again with replace=True"
            ) from None

    def remove(self, version: int) -> None:
        """Remove an object's file, if it is there."""
        with contextlib.suppress(OSError):
            self.file_of(version).unlink()

    def sweep(self, versions: Iterable[int]) -> None:
        """Remove the files of objects that are not among `versions`. Files of other names stay."""
        known = {f"{version}{_SUFFIX}" for version in versions}
        with contextlib.suppress(OSError):
            for entry in list(self.path.iterdir()):
                if _OURS.fullmatch(entry.name) and entry.name not in known:
                    with contextlib.suppress(OSError):
                        entry.unlink()


def _replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return a value of a store in which `replace(x)` stands for each tensor or ndarray x, called in order."""
    kind = type(value)
    if isinstance(value, Tensor | np.ndarray):
        return replace(value)
    if kind is dict:
        return {key: _replaced(item, replace) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind(_replaced(item, replace) for item in value)
    return value


def _tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf
    return from_numpy(leaf if leaf.flags.writeable else leaf.copy(order="K"))


def _sum(tensor: Tensor) -> int:
    """Return the CRC-32 of the elements in the order of memory."""
    return zlib.crc32(tensor.numpy().ravel("K").view(np.uint8).data)


def _checked(tensor: Any, is_array: bool, expected: int) -> Any:
    if _sum(tensor) != expected:
        raise ValueError("its checksum does not match its elements")
    return tensor.numpy() if is_array else tensor
