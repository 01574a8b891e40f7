"""save and load: tensors by name in files that other programs read, too."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._tensor.methods import Tensor
from ..dtypes import require_supported
from ..errors import DTypeError, FileDamaged, InvalidArgument, tensor_advice, type_name
from . import arrays, safetensors
from .entries import Entry, map_tensors, read_tensor

_READERS: Final[dict[str, Callable[[io.FileIO, int, str], list[Entry]]]] = {
    ".npy": arrays.npy_entries,
    ".npz": arrays.npz_entries,
    ".safetensors": safetensors.entries,
}
_PIECE: Final = 1 << 26  # bytes that are written at once


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write tensors to a file, whose name says how: `.npy`, `.npz` or `.safetensors`. Blocks as writing does.

    The file is there whole or not at all: it is written beside, synchronized, and renamed into its place. Who has the
    one that was there before mapped or open keeps that.

    Args:
        obj: for `.npy` a tensor or array, else a dict of them by name.
        path: the file.

    Raises:
        InvalidArgument: another suffix, no such object, or a key that cannot stand there.
        DTypeError: a type that the format has not.
        OSError: it cannot be written; what was there before is as it was.
    """
    target, suffix = _place(path)
    label = os.fspath(target)
    if suffix == ".npy":
        values = _array_of(obj, label)
        _replace(target, lambda file: arrays.write_npy(values, label, _writer(file)))
        return
    if not isinstance(obj, Mapping):
        raise InvalidArgument(f"{label} holds tensors by name; give a dict of them, not a {type_name(obj)}")
    for key in obj:
        if not isinstance(key, str) or not _encodable(key) or (suffix == ".safetensors" and key == "__metadata__"):
            raise InvalidArgument(f"{label}: {key!r} cannot be the name of a tensor; give a plain string")
    named = {key: _array_of(value, f"{label}: {key!r}") for key, value in obj.items()}
    if suffix == ".npz":
        _replace(target, lambda file: arrays.write_npz(file, named, label))
    else:
        _replace(target, lambda file: safetensors.write(named, label, _writer(file)))


def load(path: str | os.PathLike[str], *, shared: bool = False, mmap: bool = False, writable: bool = False) -> Any:
    """The tensor of a `.npy` file, or a dict of those of a `.npz` or `.safetensors` one. Blocks as reading does.

    Nothing is unpickled, and nothing is believed: a header that claims what the file has not is an error before
    memory is taken for it.

    Args:
        path: the file.
        shared: read straight into shared memory, one block for each tensor.
        mmap: map the file instead of reading it. All processes that map it, and all that such tensors are sent to, have
            the same pages. The file must not be made shorter meanwhile; `save` never does that.
        writable: with mmap: writes reach the file and everyone who maps it. Without, such tensors are read-only.

    Raises:
        FileDamaged: the file is not what it should be; EndOfFile: it ends early.
        DTypeError: elements of a type that tensors have not, Python objects among them.
        LayoutError: mmap, and the elements cannot be used where they lie (compressed, not aligned, or writable in a
            `.npz`, which has checksums).
        InvalidArgument: another suffix, or arguments that contradict each other.
        FileNotFoundError, OSError: it cannot be read.
        OutOfMemory, ManagerError, MappingError: as `shmtensor.empty` and Storage.from_file.
    """
    if shared and mmap:
        raise InvalidArgument(
            "asked to load shared and with mmap; a mapped file is shared with all who map it: use one"
        )
    if writable and not mmap:
        raise InvalidArgument("asked to load writable without mmap; what is read into memory is writable anyway")
    target, suffix = _place(path)
    label = os.fspath(target)
    try:
        file = io.FileIO(target)
    except OSError as error:
        raise OSError(error.errno, f"cannot load: {error.strerror}", label) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileDamaged(f"{label} is no regular file, so nobody knows its size; copy it into one")
        entries = _READERS[suffix](file, status.st_size, label)
        if mmap:
            tensors = map_tensors(label, file, entries, writable)
        else:
            tensors = {entry.name: read_tensor(label, file, entry, shared) for entry in entries}
    return tensors[""] if suffix == ".npy" else tensors


def _place(path: str | os.PathLike[str]) -> tuple[Path, str]:
    try:
        given = Path(os.fsdecode(path))
        if "\0" in os.fspath(given):
            raise ValueError("embedded null character")
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{path!r} is no path: {error}; give the path of a file") from error
    if given.suffix not in _READERS:
        raise InvalidArgument(f"{given}: the name says what a file holds; end it in {', '.join(_READERS)}")
    return Path(os.path.realpath(given)), given.suffix


def _encodable(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _array_of(value: Any, label: str) -> NDArray[Any]:
    """The elements of a tensor or array in the order of C."""
    if not isinstance(value, Tensor | np.ndarray):
        raise DTypeError(f"{label}: a tensor or array can be saved, not a {type_name(value)}; {tensor_advice(value)}")
    array = value._live() if isinstance(value, Tensor) else value
    require_supported(array.dtype)
    return np.asarray(array, order="C")


def _writer(file: io.FileIO) -> Callable[[Any], None]:
    def write(data: Any) -> None:
        view = memoryview(data)
        while len(view):
            view = view[file.write(view[:_PIECE]) :]

    return write


def _replace(target: Path, write: Callable[[io.FileIO], None]) -> None:
    """Write a file beside the target and put it into its place."""
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        try:
            descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with io.FileIO(descriptor, "r+") as file:
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
                write(file)
                os.fsync(descriptor)
            beside.replace(target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise OSError(error.errno, f"cannot save: {error.strerror}", os.fspath(target)) from error
