"""save and load: tensors in files that other programs can read."""

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
_PIECE: Final = 1 << 26  # bytes written at once


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write tensors to a file. Its suffix selects the format: `.npy`, `.npz` or `.safetensors`. Blocks as writing does.

    The file is replaced atomically: a temporary file is written, synchronized and renamed. Processes that have the
    previous file open or mapped keep its content.

    Args:
        obj: for `.npy` a tensor or array, else a dict of them by name.
        path: the file.

    Raises:
        InvalidArgument: an unknown suffix, an object of another kind, or an invalid key.
        DTypeError: the format does not have a type.
        OSError: the file cannot be written; the previous one is unchanged.
    """
    target, suffix = _place(path)
    label = os.fspath(target)
    if suffix == ".npy":
        values = _array_of(obj, label)
        _replace(target, lambda file: arrays.write_npy(values, label, _writer(file)))
        return
    if not isinstance(obj, Mapping):
        raise InvalidArgument(f"{label} needs a dict of tensors by name, not a {type_name(obj)}")
    for key in obj:
        if not isinstance(key, str) or not _encodable(key) or (suffix == ".safetensors" and key == "__metadata__"):
            raise InvalidArgument(f"{label}: {key!r} is not a valid name of a tensor; use a plain string")
    named = {key: _array_of(value, f"{label}: {key!r}") for key, value in obj.items()}
    if suffix == ".npz":
        _replace(target, lambda file: arrays.write_npz(file, named, label))
    else:
        _replace(target, lambda file: safetensors.write(named, label, _writer(file)))


def load(path: str | os.PathLike[str], *, shared: bool = False, mmap: bool = False, writable: bool = False) -> Any:
    """Load the tensor of a `.npy` file, or a dict of tensors of another file. Blocks as reading does.

    Nothing is unpickled. Headers are checked against the size of the file before memory is allocated.

    Args:
        path: the file.
        shared: read into shared memory, one block for each tensor.
        mmap: map the file instead of reading it. Processes that map it, or receive such tensors, share its pages. The
            file must not be truncated meanwhile; `save` never does that.
        writable: with mmap: writes change the file, and all processes that map it see them. Otherwise mapped tensors
            are read-only.

    Raises:
        FileDamaged: the file is invalid; EndOfFile if it is too short.
        DTypeError: elements of a type that tensors do not have, including Python objects.
        LayoutError: with mmap: the elements cannot be mapped (compressed, not aligned, or writable in a `.npz`, which
            has checksums).
        InvalidArgument: an unknown suffix, or arguments that exclude each other.
        FileNotFoundError, OSError: the file cannot be read.
        OutOfMemory, ManagerError, MappingError: as `shmtensor.empty` and Storage.from_file.
    """
    if shared and mmap:
        raise InvalidArgument(
            "shared and mmap exclude each other; a mapped file is shared by all processes that map it"
        )
    if writable and not mmap:
        raise InvalidArgument("writable needs mmap; tensors that are read into memory are always writable")
    target, suffix = _place(path)
    label = os.fspath(target)
    try:
        file = io.FileIO(target)
    except OSError as error:
        raise OSError(error.errno, f"cannot load: {error.strerror}", label) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileDamaged(f"{label} is not a regular file, so its size is unknown; copy it to one")
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
        raise InvalidArgument(f"{path!r} is not a path: {error}; give the path of a file") from error
    if given.suffix not in _READERS:
        raise InvalidArgument(f"{given}: the suffix selects the format; use one of {', '.join(_READERS)}")
    return Path(os.path.realpath(given)), given.suffix


def _encodable(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _array_of(value: Any, label: str) -> NDArray[Any]:
    """Return the elements of a tensor or array in C order."""
    if not isinstance(value, Tensor | np.ndarray):
        raise DTypeError(f"{label}: cannot save a {type_name(value)}; {tensor_advice(value)}")
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
    """Write a temporary file beside the target and rename it."""
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
