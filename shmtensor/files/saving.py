"""save and load: tensors, and objects that contain them, in files that other programs can read."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._tensor.methods import Tensor
from ..devices import CPU, Device
from ..dtypes import require_supported
from ..errors import DTypeError, EndOfFile, FileDamaged, InvalidArgument, tensor_advice, type_name
from . import arrays, checkpoint, safetensors, torch_zip
from .blocks import Loader
from .entries import read_exactly
from .window import Window

_Write: TypeAlias = Callable[[io.RawIOBase, Callable[[Any], None]], None]
_FORMATS: Final = {
    ".npy": "npy", ".npz": "npz", ".safetensors": "safetensors", ".shmt": "shmtensor", ".pt": "torch", ".pth": "torch",
}  # fmt: skip
"""Suffix -> format."""
_PIECE: Final = 1 << 26  # bytes written at once


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2, *, format: str | None = None) -> None:
    """Write an object to a file, in a format for tensors or in one for checkpoints. Blocks as writing does.

    `npy` has one tensor; `npz` and `safetensors` have a dict of tensors by name. `shmtensor` and `torch` have
    checkpoints: tensors, storages, None, numbers, strings, bytes, dtypes, devices, and dicts (also OrderedDict and
    Counter), lists, tuples and sets of those. In these, tensors that share a storage share it when they are loaded.
    `torch.load(f, weights_only=True)` reads what is written as `torch`.

    A file at a path is replaced atomically: a temporary file is written, synchronized and renamed. Processes that have
    the previous file open or mapped keep its content.

    Args:
        obj: the object.
        f: a path, whose suffix selects the format: `.npy`, `.npz`, `.safetensors`, `.shmt` (shmtensor), `.pt`, `.pth`
            (torch); or an object with `write`, such as a file opened in binary mode or io.BytesIO.
        pickle_module: None; no pickle module is used.
        pickle_protocol: 2, the one that torch reads.
        format: `npy`, `npz`, `safetensors`, `shmtensor` or `torch`; default: as the suffix says, `shmtensor` for an
            object with `write`.

    Raises:
        InvalidArgument: an unknown suffix or format, an object of another kind, an invalid key, a container that
            contains itself, containers that are nested too deep, another pickle_module or pickle_protocol, or a path of
            something other than a regular file, such as a pipe or a device, which is left unchanged.
        DTypeError: the format does not have a type, or an object in a checkpoint cannot be saved.
        OSError: the file cannot be written; the previous one is unchanged.
    """
    if pickle_module is not None or pickle_protocol != 2:
        raise InvalidArgument(
            f"pickle_module {pickle_module!r} and pickle_protocol {pickle_protocol!r} cannot be chosen, because files "
            "are written without pickle; leave them out"
        )
    target, name = _place(f, format)
    label = "the file" if target is None else os.fspath(target)
    write = _WRITERS[name or "shmtensor"](obj, label)
    if target is not None:
        _require_regular(target)
        _replace(target, lambda file: write(file, _writer(file)))
        return
    window = Window(f, "save")
    try:
        write(window, _writer(window))
        window.finish()
    except OSError as error:
        raise OSError(error.errno, f"cannot save: {error.strerror or error}") from error


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    shared: bool = False,
    writable: bool = False,
    format: str | None = None,
) -> Any:
    """Load an object from a file that `save`, torch, NumPy or safetensors wrote. Blocks as reading does.

    Nothing is unpickled: a pickle in a torch file is read by an interpreter that makes only tensors, numbers, strings
    and plain containers, and refuses everything else. Sizes are checked against the size of the file before memory is
    allocated. All tensors are loaded to the CPU. Only `.pt` files keep `requires_grad`.

    Args:
        f: a path, or an object with `read`, `seek` and `tell`, which is read from its position to its end.
        map_location: None or "cpu": private memory; "shared": read into shared memory, one block for each storage.
        pickle_module: None; no pickle module is used.
        weights_only: None or True; nothing else can be loaded.
        mmap: map the file instead of reading it. Processes that map it, or receive such tensors, share its pages. The
            file must not be truncated meanwhile; `save` never does that.
        shared: the same as map_location="shared".
        writable: with mmap: writes change the file, and all processes that map it see them. Otherwise mapped tensors
            are read-only.
        format: as for `save`; default: as the suffix says, and for an object with `read` as its first bytes say.

    Raises:
        FileDamaged: the file is invalid, or a pipe or a device; EndOfFile if it is too short.
        NotSupported: a torch file that needs other objects (the message names them), is a TorchScript program, or was
            written by torch before version 1.6.
        DTypeError: elements of a type that tensors do not have, including Python objects.
        LayoutError: with mmap: the elements cannot be mapped (compressed, not aligned, or writable in a format that
            has checksums).
        InvalidArgument: an unknown suffix or format, an unknown map_location, arguments that exclude each other, or
            weights_only=False.
        FileNotFoundError, OSError: the file cannot be read.
        OutOfMemory, ManagerError, MappingError: as `shmtensor.empty` and Storage.from_file.
    """
    if pickle_module is not None or not (weights_only is None or weights_only is True):
        raise InvalidArgument(
            f"pickle_module {pickle_module!r} and weights_only {weights_only!r} cannot be chosen, because pickles are "
            "never executed; leave them out"
        )
    shared = _is_shared(map_location, shared)
    if shared and mmap:
        raise InvalidArgument(
            "shared and mmap exclude each other; a mapped file is shared by all processes that map it"
        )
    if writable and not mmap:
        raise InvalidArgument("writable needs mmap; tensors that are read into memory are always writable")
    target, name = _place(f, format)
    if target is None:
        if mmap:
            raise InvalidArgument(f"mmap needs a path, not {f!r:.100}")
        window = Window(f, "load")
        return _read(window, window.size(), "the file", name, shared=shared, mmap=False, writable=False)
    label = os.fspath(target)
    try:
        file = io.FileIO(target, opener=_at_once)
    except OSError as error:
        raise OSError(error.errno, f"cannot load: {error.strerror}", label) from error
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileDamaged(f"{label} is {_kind(status)}, not a regular file, so its size is unknown; copy it to one")
        return _read(file, status.st_size, label, name, shared=shared, mmap=bool(mmap), writable=writable)


def _is_shared(location: Any, shared: bool) -> bool:
    if location is None or (isinstance(location, str | Device) and location in ("shared", CPU)):
        if shared and location == CPU:
            raise InvalidArgument("map_location='cpu' and shared=True exclude each other; leave one of them out")
        return shared or location == "shared"
    raise InvalidArgument(f"map_location {location!r:.100} is not available; use None, 'cpu' or 'shared'")


def _read(file: io.RawIOBase, size: int, label: str, name: str | None, **how: bool) -> Any:
    """Return the object in a file. Without the name of a format, the first bytes determine it."""
    loader = Loader(label, file, **how)
    if name is None:
        name = _sniff(loader, size)
    if name == "torch":
        return torch_zip.read(loader, size)
    if name == "shmtensor":
        return checkpoint.read(loader, size)
    if name == "safetensors":
        entries, metadata = safetensors.parse(file, size, label)
        if checkpoint.MARK in metadata:
            return checkpoint.build(loader, entries, metadata)
    else:
        entries = (arrays.npy_entries if name == "npy" else arrays.npz_entries)(file, size, label)
    tensors = {entry.name: loader.tensor(entry) for entry in entries}
    return tensors[""] if name == "npy" else tensors


def _sniff(loader: Loader, size: int) -> str:
    head = bytearray(min(size, 9))
    read_exactly(loader.file, 0, memoryview(head), loader.label)
    if head[:6] == b"\x93NUMPY":
        return "npy"
    if head[:2] == b"PK":
        return "torch" if torch_zip.is_one(loader, size) else "npz"
    if head[8:] == b"{":
        return "safetensors"
    if head[:1] == b"\x80":
        return "torch"
    kind = EndOfFile if size < 9 else FileDamaged
    raise kind(f"{loader.label} begins with {bytes(head)!r}, which is not a format of shmtensor.save")


def _place(f: Any, format: str | None) -> tuple[Path | None, str | None]:
    """Return a path and its format: no path for a file object, and no format if the content determines it."""
    if format is not None and format not in _FORMATS.values():
        raise InvalidArgument(f"unknown format {format!r}; use one of {', '.join(dict.fromkeys(_FORMATS.values()))}")
    if hasattr(f, "write") or hasattr(f, "read"):
        return None, format
    try:
        given = Path(os.fsdecode(f))
        if "\0" in os.fspath(given):
            raise ValueError("embedded null character")
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{f!r} is not a path: {error}; give the path of a file") from error
    if format is None and given.suffix not in _FORMATS:
        raise InvalidArgument(
            f"{given}: the suffix selects the format; use one of {', '.join(_FORMATS)}, or give format="
        )
    return Path(os.path.realpath(given)), format or _FORMATS[given.suffix]


# -- opening a path ----------------------------------------------------------------------------------------------------


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(status.st_mode), "something else")


def _require_regular(target: Path) -> None:
    """Refuse to replace a pipe, a socket or a device. Raises InvalidArgument, OSError."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(error.errno, f"cannot save: {error.strerror}", os.fspath(target)) from error
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise InvalidArgument(
            f"cannot save: {target} is {_kind(status)}, not a regular file, and would be replaced; open it, "
            "and give the file object"
        )


# -- writers of formats: each checks an object, and returns its writer -------------------------------------------------


def _npy(obj: Any, label: str) -> _Write:
    values = _array_of(obj, label)
    header = arrays.npy_header(values, label)

    def write(_file: io.RawIOBase, put: Callable[[Any], None]) -> None:
        put(header)
        put(values.reshape(-1).view(np.uint8).data)

    return write


def _npz(obj: Any, label: str) -> _Write:
    named = _arrays_of(obj, label, ".npz")
    return lambda file, _put: arrays.write_npz(file, named, label)


def _safetensors(obj: Any, label: str) -> _Write:
    named = _arrays_of(obj, label, ".safetensors")
    return lambda _file, put: safetensors.write(named, label, put)


_WRITERS: Final[dict[str, Callable[[Any, str], _Write]]] = {
    "npy": _npy,
    "npz": _npz,
    "safetensors": _safetensors,
    "shmtensor": checkpoint.writer,
    "torch": torch_zip.writer,
}


def _arrays_of(obj: Any, label: str, suffix: str) -> dict[str, NDArray[Any]]:
    """Return a dict of tensors as arrays."""
    if not isinstance(obj, Mapping):
        raise InvalidArgument(
            f"{label} needs a dict of tensors by name, not a {type_name(obj)}; other objects need .shmt or .pt"
        )
    for key in obj:
        if not isinstance(key, str) or not _encodable(key) or (suffix == ".safetensors" and key == "__metadata__"):
            raise InvalidArgument(f"{label}: {key!r} is not a valid name of a tensor; use a plain string")
    return {key: _array_of(value, f"{label}: {key!r}") for key, value in obj.items()}


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


def _writer(file: io.RawIOBase) -> Callable[[Any], None]:
    def write(data: Any) -> None:
        view = memoryview(data)
        while len(view):
            done = file.write(view[:_PIECE])
            if not done:
                raise OSError(errno.EIO, "the file accepts no bytes")
            view = view[done:]

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
