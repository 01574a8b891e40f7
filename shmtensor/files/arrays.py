"""NumPy's formats: `.npy`, one array, and `.npz`, a zip archive of arrays. Nothing is unpickled."""

from __future__ import annotations

import ast
import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import BY_DTYPE, NumpyType
from ..errors import DTypeError, EndOfFile, FileDamaged, InvalidArgument
from . import archives
from .entries import Entry, checked_shape

MAX_HEADER: Final = 10_000
"""Maximum length of a header in characters, as in NumPy."""
_MAGIC: Final = b"\x93NUMPY"
_LENGTHS: Final = {(1, 0): "<H", (2, 0): "<I", (3, 0): "<I"}
_INFLATION: Final = 1032  # maximum compression ratio of deflate


# -- npy --------------------------------------------------------------------------------------------------------------


def npy_header(array: NDArray[Any], label: str) -> bytes:
    """Return the header of an array in C order. Does not block.

    Raises:
        DTypeError: NumPy's format does not have the type.
    """
    dtype = array.dtype
    if BY_DTYPE[dtype].package is not None:
        raise DTypeError(f"{label}: NumPy's format does not have {dtype.name}; save it as .safetensors")
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": array.shape})
    return file.getvalue()


def read_npy_header(read: Callable[[int], bytes], label: str) -> tuple[NumpyType, tuple[int, ...], bool, int]:
    """Read a header. Returns (dtype, shape, Fortran order, bytes of the header). Blocks as `read` does.

    Raises:
        FileDamaged: the header is invalid.
        DTypeError: an array of Python objects, which would have to be unpickled, or a structured array.
    """
    start = read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        raise FileDamaged(f"{label}: not a .npy file: it begins with {start!r} instead of {_MAGIC!r}")
    form = _LENGTHS.get((start[6], start[7]))
    if form is None:
        raise FileDamaged(f"{label}: unknown version {start[6]}.{start[7]} of NumPy's format; 1.0 to 3.0 are known")
    width = struct.calcsize(form)
    size = read(width)
    if len(size) < width:
        raise EndOfFile(f"{label}: the file ends in the header")
    (length,) = struct.unpack(form, size)
    if length > MAX_HEADER:
        raise FileDamaged(f"{label}: the header has {length} bytes; at most {MAX_HEADER} are allowed")
    text = read(length)
    if len(text) < length:
        raise EndOfFile(f"{label}: the file ends after {len(text)} of {length} bytes of the header")
    try:
        header = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise FileDamaged(f"{label}: the header is not a dictionary: {text[:100]!r}") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise FileDamaged(f"{label}: the header is not one that NumPy writes: {text[:100]!r}")
    descr, fortran = header["descr"], header["fortran_order"]
    if isinstance(descr, list):
        raise DTypeError(f"{label}: the array is structured; make one tensor of each field")
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) else None
    except (TypeError, ValueError, SyntaxError) as error:
        raise FileDamaged(f"{label}: {descr[:100]!r} is not a type") from error
    if dtype is None or not isinstance(fortran, bool):
        raise FileDamaged(f"{label}: the header is not one that NumPy writes: {text[:100]!r}")
    if dtype.hasobject:
        raise DTypeError(f"{label}: an array of Python objects is a pickle, and pickles are never loaded")
    if dtype.kind not in "biufc":
        raise DTypeError(f"{label}: tensors cannot have the array's type {dtype}")
    return dtype, checked_shape(header["shape"], dtype.itemsize, label), fortran, 8 + width + length


def npy_entries(file: io.RawIOBase, size: int, path: str) -> list[Entry]:
    """Return the entry of a `.npy` file. Bytes after the array are ignored, as in NumPy. Blocks as reading does.

    Raises:
        FileDamaged, DTypeError: as read_npy_header.
    """
    file.seek(0)
    dtype, shape, fortran, start = read_npy_header(lambda count: file.read(count) or b"", path)
    entry = Entry("", dtype, shape, start, fortran)
    if start + entry.nbytes > size:
        raise EndOfFile(f"{path}: {dtype}{list(shape)} needs {entry.nbytes} bytes, and the file has {size - start}")
    return [entry]


# -- npz --------------------------------------------------------------------------------------------------------------


def check_key(key: str, label: str) -> str:
    """Check the key of an array in an archive. Does not block. Raises InvalidArgument: an absolute or relative path."""
    parts = key.split("/")
    if not key or "\\" in key or "\0" in key or key[0] == "/" or key[1:2] == ":" or ".." in parts or "." in parts:
        raise InvalidArgument(f"{label}: {key!r} is not a valid name of an array in an archive; use a plain name")
    return key


def write_npz(file: io.RawIOBase, arrays: Mapping[str, NDArray[Any]], path: str) -> None:
    """Write an uncompressed archive with aligned elements. Blocks as writing does.

    Raises:
        InvalidArgument, DTypeError: a key or type that the format does not allow.
        OSError: the file cannot be written.
    """
    with archives.writing(file) as archive:
        for key, array in arrays.items():
            header = npy_header(array, f"{path}: {key!r}")
            data = array.reshape(-1).view(np.uint8).data
            archives.put(archive, f"{check_key(key, path)}.npy", (header, data))


def npz_entries(file: io.RawIOBase, size: int, path: str) -> list[Entry]:
    """Return the entries of a `.npz` file. Blocks as reading does.

    Raises:
        FileDamaged: not a zip archive, or members that overlap, are duplicated, invalid, or beyond the end.
        DTypeError: as read_npy_header.
    """
    archive, places = archives.members(file, size, path, "arrays")
    entries: dict[str, Entry] = {}
    for offset, info in places:
        try:
            name = check_key(info.filename.removesuffix(".npy"), path)
        except InvalidArgument as error:
            raise FileDamaged(str(error)) from error
        if name in entries or not info.filename.endswith(".npy"):
            raise FileDamaged(f"{path}: {info.filename!r} is a duplicate, or is not an array")
        entries[name] = _member(archive, info, offset, file, f"{path}: {name!r}", name)
    return list(entries.values())


def _member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, offset: int, file: io.RawIOBase, label: str, name: str
) -> Entry:
    stored = info.compress_type == zipfile.ZIP_STORED
    if info.file_size > (info.compress_size if stored else (info.compress_size + 1) * _INFLATION):
        raise FileDamaged(f"{label}: {info.compress_size} bytes in the file cannot hold {info.file_size} bytes")
    seen = bytearray()
    try:
        with archive.open(info) as stream:

            def read(count: int) -> bytes:
                found = stream.read(count)
                seen.extend(found)
                return found

            dtype, shape, fortran, start = read_npy_header(read, label)
    except (FileDamaged, DTypeError):
        raise
    except Exception as error:
        raise FileDamaged(f"{label}: {error}") from error
    if start + math.prod(shape) * dtype.itemsize != info.file_size:
        raise FileDamaged(f"{label}: {dtype}{list(shape)} does not have {info.file_size - start} bytes")
    if stored:
        return Entry(name, dtype, shape, offset + start, fortran, None, (zlib.crc32(seen), info.CRC))
    return Entry(name, dtype, shape, start, fortran, lambda: archive.open(info))
