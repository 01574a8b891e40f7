"""shmtensor's format of checkpoints: a safetensors file whose metadata has the structure of the object as JSON.

The blocks of memory are tensors named "0", "1", ... of one axis; "checksums" has the CRC-32 of the structure and of
each block. In the structure, None, bool, int, float, str and list are themselves; anything else is an object with one
field, whose name is the kind: `{"tuple": [1, 2]}`, `{"tensor": [block, type, offset, sizes, strides]}`. `{"same": 3}`
is the container or tensor that was complete as the fourth.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import struct
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..devices import Device
from ..dtypes import BY_NAME, DTYPES, DType, NumpyType, dtype_of
from ..errors import FileDamaged, InvalidArgument, NotSupported
from . import safetensors
from .blocks import Blocks, Loaded, Loader
from .containers import ORDERED_ATTRIBUTE, Walk, filled, is_key
from .entries import Entry, read_exactly

MARK: Final = "shmtensor"
"""The key in a safetensors file's metadata that says that it is a checkpoint; its value is the version."""
_VERSION: Final = "1"
_STRUCTURE: Final = "structure"
_CHECKSUMS: Final = "checksums"
_ALIGNMENT: Final = 64
_PIECE: Final = 1 << 20  # bytes copied at once
_SMALL: Final = 1 << 63


# -- saving -----------------------------------------------------------------------------------------------------------


class _Structure(Walk):
    """Makes the structure of an object."""

    def again(self, number: int) -> Any:
        return {"same": number}

    def finished(self, number: int) -> None:
        pass

    def save_none(self, value: Any) -> Any:
        return value

    save_bool = save_none

    def save_int(self, value: int) -> Any:
        return int(value) if abs(value) < _SMALL else {"int": hex(value)}

    def save_float(self, value: float) -> Any:
        return float(value) if np.isfinite(value) else {"float": repr(float(value))}

    def save_complex(self, value: complex) -> Any:
        return {"complex": [repr(float(value.real)), repr(float(value.imag))]}

    def save_str(self, value: str) -> Any:
        return str(value)

    def save_bytes(self, value: bytes | bytearray, kind: str = "bytes") -> Any:
        return {kind: base64.b64encode(value).decode()}

    def save_bytearray(self, value: bytearray) -> Any:
        return self.save_bytes(value, "bytearray")

    def save_list(self, value: list[Any]) -> Any:
        return [self.at(index, one) for index, one in enumerate(value)]

    def save_tuple(self, value: tuple[Any, ...]) -> Any:
        return {"tuple": self.save_list(list(value))}

    def save_set(self, value: set[Any]) -> Any:
        return {"set": [self.key(one) for one in value]}

    def save_dict(self, value: dict[Any, Any]) -> Any:
        return {"dict": self._items(value)}

    def save_counter(self, value: Counter[Any]) -> Any:
        return {"counter": self._items(value)}

    def save_ordered(self, value: OrderedDict[Any, Any]) -> Any:
        attribute = self.attributes(value)
        return {"ordered": [self._items(value), *([] if attribute is None else [self.walk(attribute)])]}

    def _items(self, value: dict[Any, Any]) -> list[Any]:
        return [part for key, one in value.items() for part in (self.key(key), self.at(key, one))]

    def save_dtype(self, value: DType | NumpyType) -> Any:
        return {"dtype": dtype_of(value).name}

    def save_device(self, value: Device) -> Any:
        return {"device": [value.type, value.index]}

    def save_tensor(self, value: Any) -> Any:
        place = self._blocks.tensor(value)
        return {"tensor": [place.block, place.dtype.name, place.offset, list(place.shape), list(place.stride)]}

    def save_storage(self, value: Any) -> Any:
        block, first = self._blocks.storage(value, parts=True)
        place, rest = divmod(first, value.element_size())
        if rest or value.dtype != self._blocks.arrays[block].dtype:
            return {"storage": [block, first, value.size(), value.dtype.name]}
        return {"storage": [block, place, value.size()]}


def writer(obj: Any, label: str) -> Callable[[io.RawIOBase, Callable[[Any], None]], None]:
    """Return a function that writes an object to a file. Does not block.

    Raises:
        DTypeError, InvalidArgument: as Walk.walk.
    """
    blocks = Blocks(backwards=True)
    value = _Structure(label, blocks).walk(obj)
    types = [[array.dtype.name, len(array)] for array in blocks.arrays]
    text = json.dumps({"blocks": types, "value": value}, separators=(",", ":"))
    order = sorted(range(len(types)), key=lambda number: -blocks.arrays[number].itemsize)
    head = _header(blocks.arrays, order, text)
    if len(head) > safetensors.MAX_HEADER:
        raise InvalidArgument(
            f"{label}: the structure of the object has {len(head)} bytes; at most {safetensors.MAX_HEADER} are "
            "possible: save long lists of numbers as tensors"
        )

    def write(_file: io.RawIOBase, put: Callable[[Any], None]) -> None:
        put(head)
        sums = [zlib.crc32(text.encode())] + [0] * len(order)
        for number in order:
            data = blocks.arrays[number].view(np.uint8).data
            for at in range(0, len(data), _PIECE):
                piece = bytes(data[at : at + _PIECE])  # other processes may write to shared memory
                sums[number + 1] = zlib.crc32(piece, sums[number + 1])
                put(piece)
        put(struct.pack(f"<{len(sums)}I", *sums))

    return write


def _header(arrays: list[NDArray[Any]], order: list[int], text: str) -> bytes:
    """Return the header of the file, so that blocks of larger elements are first and each is aligned to its own."""
    header: dict[str, Any] = {safetensors.METADATA: {MARK: _VERSION, _STRUCTURE: text}}
    offset = 0
    for number in order:
        array = arrays[number]
        short, shape = _as_safetensors(array.dtype, len(array))
        header[str(number)] = {"dtype": short, "shape": shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    size = 4 * (len(arrays) + 1)
    header[_CHECKSUMS] = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-(8 + len(encoded)) % _ALIGNMENT)
    return struct.pack("<Q", len(encoded)) + encoded


def _as_safetensors(dtype: NumpyType, count: int) -> tuple[str, list[int]]:
    """Return the type and shape of a block in the header: a complex128 is two F64."""
    short = safetensors.BY_DTYPE.get(dtype.name)
    return (short, [count]) if short is not None else ("F64", [count, 2])


# -- loading ----------------------------------------------------------------------------------------------------------


def read(loader: Loader, size: int) -> Any:
    """Return the object in a file. Blocks as reading does.

    Raises:
        FileDamaged: the file is invalid.
        NotSupported: a later version wrote it.
        DTypeError: a type that needs ml_dtypes.
    """
    entries, metadata = safetensors.parse(loader.file, size, loader.label)
    return build(loader, entries, metadata)


def build(loader: Loader, entries: list[Entry], metadata: dict[str, str]) -> Any:
    """Return the object in a file whose header has been read. Blocks and raises as `read`."""
    label = loader.label
    version = metadata.get(MARK)
    if version is None or _STRUCTURE not in metadata:
        raise FileDamaged(f"{label}: safetensors, but not a checkpoint; load it with the suffix .safetensors")
    if version != _VERSION:
        raise NotSupported(
            f"{label}: version {version!r:.50} of the format; this version of shmtensor reads {_VERSION}"
        )
    by_name = {entry.name: entry for entry in entries}
    text = metadata[_STRUCTURE]
    sums = _checksums(loader, by_name)
    if zlib.crc32(text.encode("utf-8", "surrogatepass")) != sums[0]:
        raise FileDamaged(f"{label}: the checksum of the structure is wrong")
    try:
        structure = json.loads(text, object_pairs_hook=safetensors.once, parse_constant=safetensors.no_constant)
        types = [(dtype_of(_known(name)), count) for name, count in structure["blocks"]]
        value = structure["value"]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise FileDamaged(f"{label}: the structure is invalid: {error}") from error
    wanted = [_checked(by_name, number, *given, sums, label) for number, given in enumerate(types)]
    blocks = [loader.block(entry) for entry in wanted]
    try:
        return _Values(label, blocks).value(value)
    except RecursionError as error:
        raise FileDamaged(f"{label}: containers are nested too deep") from error


def _checksums(loader: Loader, entries: dict[str, Entry]) -> tuple[int, ...]:
    entry = entries.get(_CHECKSUMS)
    if entry is None or entry.nbytes != 4 * len(entries):
        raise FileDamaged(f"{loader.label}: not as many checksums as blocks")
    data = bytearray(entry.nbytes)
    read_exactly(loader.file, entry.offset, memoryview(data), loader.label)
    return struct.unpack(f"<{len(entries)}I", data)


def _known(name: Any) -> str:
    if not isinstance(name, str) or name not in BY_NAME:
        raise ValueError(f"{name!r:.50} is not a type")
    return name


def _checked(
    entries: dict[str, Entry], number: int, dtype: NumpyType, count: Any, sums: tuple[int, ...], label: str
) -> Entry:
    """Return the entry of a block, which must be what the structure says."""
    entry = entries.get(str(number))
    if (
        entry is None
        or type(count) is not int
        or number + 1 >= len(sums)
        or list(entry.shape) != (wanted := _as_safetensors(dtype, count))[1]
        or safetensors.BY_DTYPE.get(entry.dtype.name) != wanted[0]
    ):
        raise FileDamaged(f"{label}: block {number} is not {dtype.name}[{count!r:.50}], as the structure says")
    return Entry(entry.name, dtype, (count,), entry.offset, checksum=(0, sums[number + 1]))


class _Values:
    """Makes the values of a structure."""

    def __init__(self, label: str, blocks: list[Loaded]) -> None:
        self._label = label
        self._blocks = blocks
        self._complete: list[Any] = []

    def value(self, node: Any) -> Any:
        """Return the value of a node. Raises FileDamaged."""
        if type(node) is list:
            return self._keep([self.value(one) for one in node])
        if type(node) is not dict:
            return node
        if len(node) != 1:
            raise self._damaged("an object without exactly one field")
        ((kind, content),) = node.items()
        make = getattr(self, f"load_{kind}", None)
        if make is None:
            raise self._damaged(f"a value of the kind {kind!r:.50}, which this version does not know")
        try:
            return make(content)
        except (ValueError, TypeError, LookupError, OverflowError, binascii.Error) as error:
            if isinstance(error, FileDamaged):
                raise
            raise self._damaged(f"{kind} {content!r:.50}: {error}") from error

    def _keep(self, value: Any) -> Any:
        self._complete.append(value)
        return value

    def _damaged(self, problem: str) -> FileDamaged:
        return FileDamaged(f"{self._label}: the structure has {problem}")

    def load_same(self, content: Any) -> Any:
        if type(content) is not int or content < 0:
            raise self._damaged(f"a reference to {content!r:.50}")
        return self._complete[content]

    def load_int(self, content: Any) -> int:
        return int(content, 16)

    def load_float(self, content: Any) -> float:
        return float(content)

    def load_complex(self, content: Any) -> complex:
        real, imaginary = content
        return complex(float(real), float(imaginary))

    def load_bytes(self, content: Any) -> bytes:
        return base64.b64decode(content, validate=True)

    def load_bytearray(self, content: Any) -> bytearray:
        made: bytearray = self._keep(bytearray(self.load_bytes(content)))
        return made

    def load_tuple(self, content: Any) -> Any:
        return self._keep(tuple([self.value(one) for one in self._list(content)]))

    def load_set(self, content: Any) -> Any:
        values = [self.value(one) for one in self._list(content)]
        if not all(map(is_key, values)):
            raise self._damaged("a set with an invalid value")
        return self._keep(set(values))

    def load_dict(self, content: Any) -> Any:
        return self._keep(self._filled({}, content))

    def load_counter(self, content: Any) -> Any:
        return self._keep(self._filled(Counter(), content))

    def load_ordered(self, content: Any) -> Any:
        items, *attribute = self._list(content)
        made = self._filled(OrderedDict(), items)
        if attribute:
            setattr(made, ORDERED_ATTRIBUTE, self.value(attribute[0]))
        return self._keep(made)

    def _filled(self, made: Any, content: Any) -> Any:
        values = [self.value(one) for one in self._list(content)]
        return filled(made, list(zip(values[::2], values[1::2], strict=True)), self._label)

    def _list(self, content: Any) -> list[Any]:
        if type(content) is not list:
            raise self._damaged(f"{content!r:.50} instead of a list")
        return content

    def load_dtype(self, content: Any) -> Any:
        return DTYPES[dtype_of(_known(content))]

    def load_device(self, content: Any) -> Any:
        kind, index = content
        if not isinstance(kind, str) or not (index is None or type(index) is int):
            raise self._damaged(f"the device {content!r:.50}")
        return Device(kind, index)

    def _block(self, number: Any) -> Loaded:
        if type(number) is not int or not 0 <= number < len(self._blocks):
            raise self._damaged(f"block {number!r:.50} of {len(self._blocks)}")
        return self._blocks[number]

    def load_tensor(self, content: Any) -> Any:
        number, name, offset, shape, stride = content
        return self._keep(self._block(number).tensor(dtype_of(_known(name)), offset, shape, stride, self._label))

    def load_storage(self, content: Any) -> Any:
        number, first, size, *other = content
        if other:  # a type that is not the block's, and then the first byte
            (name,) = other
            return self._keep(self._block(number).section(first, size, dtype_of(_known(name)), self._label))
        return self._keep(self._block(number).storage(first, size, self._label))
