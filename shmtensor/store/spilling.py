"""Objects of a store in files: one `.safetensors` file each, named by the version (docs/store.md).

A file is written whole, synchronized and renamed before the table says that the object is in it, and is removed after
the table has forgotten it. So whoever is killed leaves at most a file that the table does not name, which the next
sweep removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._tensor.core import Tensor
from .._tensor.creation import from_numpy
from ..errors import InvalidArgument, ShmTensorError
from ..files import load, save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SUFFIX: Final = ".safetensors"
_FORMAT: Final = "shmtensor"  # a checkpoint: safetensors, whose metadata say how the values are nested


class ObjectDamaged(ShmTensorError):
    """The file of a spilled object is missing, damaged or cannot be read. Other objects are not concerned."""


class SpillDirectory:
    """The files of one store."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def create(self) -> None:
        """Make the directory if there is none, with what is above it. Raises InvalidArgument: it cannot be used."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgument(
                f"spill={os.fspath(self.path)!r} cannot be a directory: {error.strerror}; give another path"
            ) from None

    def file_of(self, version: int) -> Path:
        """Return the path of an object's file."""
        return self.path / f"{version}{_SUFFIX}"

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one thread of all processes in at a time. Blocks. Raises OSError: the directory is gone."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def write(self, version: int, value: Any) -> None:
        """Write an object's file. Blocks as writing does. Raises OSError."""
        arrays: list[Any] = []

        def listed(leaf: Any) -> Tensor:
            arrays.append(leaf)
            return _tensor(leaf)

        tree = _replaced(value, listed)
        content = {
            "value": tree,
            "arrays": [type(leaf) is np.ndarray for leaf in arrays],
            "sums": [_sum(leaf) for leaf in arrays],
        }
        save(content, self.file_of(version), format=_FORMAT)

    def read(self, version: int) -> Any:
        """Map an object's file and check its sums. Blocks as reading does.

        Raises:
            FileNotFoundError: there is none.
            ObjectDamaged: it is damaged, or cannot be read.
        """
        path = self.file_of(version)
        try:
            found = load(path, mmap=True, format=_FORMAT)
            leaves = iter(zip(found["arrays"], found["sums"], strict=True))
            return _replaced(found["value"], lambda tensor: _checked(tensor, *next(leaves)))
        except FileNotFoundError:
            raise
        except (ShmTensorError, OSError, LookupError, TypeError, ValueError) as error:
            path.stat()  # it may have been removed after it was opened, before it was mapped
            raise ObjectDamaged(
                f"the file {os.fspath(path)!r} of a spilled object cannot be used: {error}; delete the object or put "
                "it again with replace=True"
            ) from None

    def sweep(self, versions: Iterable[int]) -> None:
        """Remove the files of objects that are not among `versions`. Files of other names stay."""
        known = {f"{version}{_SUFFIX}" for version in versions}
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(self.path)):
                name = entry.name
                if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdecimal() and name not in known:
                    with contextlib.suppress(OSError):
                        Path(entry.path).unlink()


def _replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return a value of a store with something else in the places of its tensors and ndarrays, which come in order."""
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
    return from_numpy(leaf if leaf.flags.writeable else leaf.copy())


def _sum(leaf: Any) -> int:
    """Return the CRC-32 of the elements as they lie in memory."""
    array = leaf.numpy() if isinstance(leaf, Tensor) else leaf
    return zlib.crc32(array.ravel("K").view(np.uint8).data)


def _checked(tensor: Any, is_array: bool, expected: int) -> Any:
    if _sum(tensor) != expected:
        raise ValueError("its checksum does not fit its elements")
    return tensor.numpy() if is_array else tensor
