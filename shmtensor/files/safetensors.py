"""The safetensors format: a length, a JSON header, and the elements of all tensors in sequence.

Rules and order follow the reference implementation (huggingface/safetensors).
"""

from __future__ import annotations

import importlib
import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import NumpyType
from ..errors import DTypeError, EndOfFile, FileDamaged
from .entries import Entry, checked_shape, read_exactly

MAX_HEADER: Final = 100_000_000
"""Maximum size of a header in bytes, as in the reference implementation."""
METADATA: Final = "__metadata__"
"""The key of a header that is not a tensor, but a table of strings."""
_NAMES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32",
    "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip
"""Name in a file -> name of the dtype, in the order in which the reference sorts types."""
BY_DTYPE: Final = {name: short for short, name in _NAMES.items()}
"""Name of a dtype -> name in a file."""
_RANK: Final = {name: rank for rank, name in enumerate(_NAMES.values())}
_EXTENDED: Final = ("bfloat16", "float8")  # types that NumPy does not have


def _dtype(short: Any, label: str) -> NumpyType:
    name = _NAMES.get(short) if isinstance(short, str) else None
    if name is None:
        raise DTypeError(f"{label}: elements of type {short!r}, which tensors do not have")
    home = np
    if name.startswith(_EXTENDED):
        try:
            home = importlib.import_module("ml_dtypes")
        except ImportError as error:
            raise DTypeError(f"{label}: elements of type {name} need ml_dtypes; install it") from error
    dtype: NumpyType = np.dtype(getattr(home, "bool_" if name == "bool" else name))
    return dtype


def write(arrays: Mapping[str, NDArray[Any]], path: str, put: Callable[[Any], None]) -> None:
    """Write tensors, ordered by decreasing element size and then by name. Blocks as writing does.

    Raises:
        DTypeError: the format does not have a type.
        OSError: the file cannot be written.
    """
    for key, array in arrays.items():
        if array.dtype.name not in BY_DTYPE:
            raise DTypeError(f"{path}: safetensors does not have the type {array.dtype.name} of {key!r}; convert it")
    header: dict[str, Any] = {}
    order = sorted(arrays, key=lambda key: (-_RANK[arrays[key].dtype.name], key.encode("utf-8", "surrogatepass")))
    offset = 0
    for key in order:
        array = arrays[key]
        header[key] = {
            "dtype": BY_DTYPE[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    put(struct.pack("<Q", len(text)) + text)
    for key in order:
        put(arrays[key].reshape(-1).view(np.uint8).data)


def entries(file: io.RawIOBase, size: int, path: str) -> list[Entry]:
    """Return the entries of a file. Blocks as reading does. Raises as `parse`."""
    return parse(file, size, path)[0]


def parse(file: io.RawIOBase, size: int, path: str) -> tuple[list[Entry], dict[str, str]]:
    """Return the entries and the metadata of a file. Blocks as reading does.

    Raises:
        FileDamaged: the header is invalid, or tensors overlap, have gaps, exceed the file, do not match their shapes,
            or have the same name.
        DTypeError: a type that tensors do not have, or that needs ml_dtypes.
    """
    if size < 8:
        raise EndOfFile(f"{path}: a safetensors file begins with 8 bytes and a header, but this one has {size} bytes")
    length_bytes = bytearray(8)
    read_exactly(file, 0, memoryview(length_bytes), path)
    (length,) = struct.unpack("<Q", length_bytes)
    if length > MAX_HEADER:
        raise FileDamaged(f"{path}: the header has {length} bytes; at most {MAX_HEADER} are allowed")
    start = 8 + length
    if start > size:
        raise EndOfFile(f"{path}: the file ends after {size - 8} of {length} bytes of the header")
    text = bytearray(length)
    read_exactly(file, 8, memoryview(text), path)
    try:
        if text[:1] != b"{":
            raise ValueError("it does not begin with '{'")
        header = json.loads(text.decode(), object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise FileDamaged(f"{path}: the header is not JSON of tensors: {error}") from error
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileDamaged(f"{path}: {METADATA} is not a table of strings")
    found = [_entry(key, claim, path) for key, claim in header.items()]
    place = 0
    for entry in sorted(found, key=lambda entry: (entry.offset, entry.nbytes)):
        if entry.offset != place:
            problem = "overlaps another tensor" if entry.offset < place else "has unused bytes before it"
            raise FileDamaged(f"{path}: {entry.name!r} begins at byte {entry.offset} of the elements and {problem}")
        place += entry.nbytes
    if start + place != size:
        kind = EndOfFile if start + place > size else FileDamaged
        raise kind(f"{path}: the header describes {place} bytes of elements, and the file has {size - start}")
    return [Entry(entry.name, entry.dtype, entry.shape, start + entry.offset) for entry in found], metadata


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the table of an object in JSON. Does not block. Raises ValueError: a duplicate key."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("duplicate key")
    return table


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity in JSON. Raises ValueError."""
    raise ValueError(f"{name} is not valid JSON")


def _entry(key: str, claim: Any, path: str) -> Entry:
    """Return an entry with its offset from the first tensor's elements."""
    label = f"{path}: {key!r}"
    if not isinstance(claim, dict) or set(claim) != {"dtype", "shape", "data_offsets"}:
        raise FileDamaged(f"{label}: a tensor must have dtype, shape and data_offsets, and nothing else")
    dtype = _dtype(claim["dtype"], label)
    shape = checked_shape(claim["shape"], dtype.itemsize, label)
    offsets = claim["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise FileDamaged(f"{label}: data_offsets must be two integers")
    begin, end = offsets
    entry = Entry(key, dtype, shape, begin)
    if begin < 0 or end - begin != entry.nbytes or end >= 1 << 63:
        raise FileDamaged(
            f"{label}: its data_offsets are not {entry.nbytes} bytes apart, the size of {dtype}{list(shape)}"
        )
    return entry
