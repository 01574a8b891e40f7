"""The files of torch.save: a zip archive of a pickle, `data.pkl`, and of the bytes of each storage, `data/0`, ...

They are read and written without torch. torch.load reads the written files with weights_only=True.
"""

from __future__ import annotations

import io
import struct
import sys
import zipfile
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .._tensor.core import wrap
from .._tensor.creation import asarray
from .._tensor.methods import Tensor
from ..devices import Device
from ..dtypes import BY_DTYPE, BY_NAME, BY_PREFIX, DTYPES, DType, NumpyType, dtype_of
from ..errors import DTypeError, EndOfFile, FileDamaged, InvalidArgument, NotSupported, type_name
from ..storage import Storage
from . import archives
from .blocks import Blocks, Loaded, Loader, Place
from .containers import ORDERED_ATTRIBUTE, Walk, brief
from .entries import Entry, read_exactly
from .torch_pickle import PLAIN, Function, Reader

_CLASSIC: Final = ("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "ComplexFloat",
                   "ComplexDouble", "BFloat16")  # fmt: skip
"""Prefixes of the types that have a storage class in torch. Elements of others are bytes to torch's pickles."""
_OTHERS: Final = ("complex32", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2", "bits8",
                  "bits16", "bits1x8", "bits2x4", "bits4x2", "qint8", "quint8", "qint32")  # fmt: skip
_CONVERT: Final = "load it with torch and save it again: torch.save(torch.load(f), g)"
_OLD: Final = b"\x80"  # a pickle, as torch wrote files before version 1.6


# -- loading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """A storage class of torch."""

    name: str
    dtype: str
    """Type of its elements; those of an UntypedStorage are bytes."""


_UNTYPED: Final = _Kind("UntypedStorage", "uint8")


class _Types(dict[tuple[str, str], Any]):
    """Objects that pickles may refer to. Types are looked up on demand, because some need a package."""

    def __missing__(self, key: tuple[str, str]) -> DType:
        module, name = key
        if module == "torch" and name in BY_NAME:
            return DTYPES[dtype_of(name)]
        if module == "torch" and name in _OTHERS:
            raise DTypeError(f"the file has the type torch.{name}, which tensors do not have; convert it with torch")
        raise KeyError(key)


def read(loader: Loader, size: int) -> Any:
    """Return the object in a file. Blocks as reading does.

    Raises:
        FileDamaged: the file is invalid.
        NotSupported: the file has an old format, is a TorchScript program, or needs objects other than tensors,
            numbers, strings and plain containers.
        DTypeError, MissingExtra: elements of a type that tensors do not have, or that needs ml_dtypes.
    """
    return _File(loader, size).load()


def is_one(loader: Loader, size: int) -> bool:
    """Whether a zip archive has torch's pickle. Blocks as reading does. Raises FileDamaged."""
    _, places = archives.members(loader.file, size, loader.label, "arrays or torch's")
    return any(info.filename.endswith("/data.pkl") for _, info in places)


class _File:
    def __init__(self, loader: Loader, size: int) -> None:
        self._loader = loader
        self._label = loader.label
        self._refuse_others(size)
        _, places = archives.members(loader.file, size, self._label, "torch's")
        self._records: dict[str, tuple[int, zipfile.ZipInfo]] = {}
        for offset, info in places:
            name = info.filename.partition("/")[2]
            if name in self._records:
                raise FileDamaged(f"{self._label}: {info.filename!r} is a duplicate")
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                raise FileDamaged(f"{self._label}: {info.filename!r} is compressed, which torch.save does not do")
            self._records[name] = offset, info
        if "data.pkl" not in self._records or "constants.pkl" in self._records:
            if "constants.pkl" in self._records:
                raise NotSupported(f"{self._label}: a program of TorchScript; save its state_dict() with torch.save")
            raise FileDamaged(f"{self._label}: a zip archive without data.pkl, so torch.save has not written it")
        self._checked = any(info.CRC for _, info in places)  # all are 0 if torch wrote no checksums
        order = self._record("byteorder", 10) if "byteorder" in self._records else b"little"
        if order not in (b"little", b"big"):
            raise FileDamaged(f"{self._label}: the byte order is {order!r} instead of 'little' or 'big'")
        self._foreign = order.decode() != sys.byteorder
        self._storages: dict[str, tuple[_Kind, Storage]] = {}  # by key
        self._loaded: dict[int, tuple[_Kind, Loaded]] = {}  # by id of the storage

    def _refuse_others(self, size: int) -> None:
        head = bytearray(min(size, 512))
        read_exactly(self._loader.file, 0, memoryview(head), self._label)
        if head[:1] == _OLD or head[257:262] == b"ustar":
            raise NotSupported(f"{self._label}: torch's format from before version 1.6 is not loaded; {_CONVERT}")
        if not head:
            raise EndOfFile(f"{self._label}: the file is empty")

    def load(self) -> Any:
        """Return the object."""
        size = self._records["data.pkl"][1].file_size
        return Reader(self._record("data.pkl", size), self._label, self._table(), self._persistent).load()

    def _record(self, name: str, bound: int) -> bytes:
        offset, info = self._records[name]
        data = bytearray(min(info.file_size, bound))
        read_exactly(self._loader.file, offset, memoryview(data), self._label)
        if self._checked and zlib.crc32(data) != info.CRC:
            raise FileDamaged(f"{self._label}: the checksum of {info.filename!r} is wrong")
        return bytes(data)

    # -- objects that the pickle refers to -----------------------------------------------------------------------------

    def _table(self) -> dict[tuple[str, str], Any]:
        table = dict(PLAIN)
        rebuild: dict[str, Callable[..., Any]] = {
            "_rebuild_tensor": self._tensor,
            "_rebuild_tensor_v2": self._tensor,
            "_rebuild_tensor_v3": self._tensor_of_type,
            "_rebuild_parameter": self._parameter,
        }
        for name, call in rebuild.items():
            table["torch._utils", name] = Function(f"torch._utils.{name}", call)
        for prefix in _CLASSIC:
            table["torch", f"{prefix}Storage"] = _Kind(f"{prefix}Storage", BY_PREFIX[prefix].name)
        table["torch", "UntypedStorage"] = table["torch.storage", "UntypedStorage"] = _UNTYPED
        return _Types(table)

    def _persistent(self, given: Any) -> Storage:
        if type(given) is not tuple or len(given) not in (5, 6) or given[0] != "storage" or type(given[1]) is not _Kind:
            raise FileDamaged(f"{self._label}: the pickle refers to an object other than a storage")
        _, kind, key, _, count, *_ = given
        if not isinstance(key, str) or f"data/{key}" not in self._records:
            raise FileDamaged(f"{self._label}: there is no storage {brief(key)}")
        if key not in self._storages:
            self._storages[key] = kind, self._load(key, kind, count)
        known, storage = self._storages[key]
        if kind != known:
            raise FileDamaged(f"{self._label}: storage {key!r} is a {known.name} and a {kind.name}")
        return storage

    def _load(self, key: str, kind: _Kind, count: Any) -> Storage:
        offset, info = self._records[f"data/{key}"]
        dtype = dtype_of(kind.dtype)
        if type(count) is not int or count * dtype.itemsize != info.file_size:
            raise FileDamaged(
                f"{self._label}: {kind.name} {key!r} of {brief(count)} elements, and the file has {info.file_size} "
                "bytes"
            )
        if self._foreign and kind == _UNTYPED:
            raise NotSupported(f"{self._label}: untyped elements in the other byte order; {_CONVERT}")
        checksum = (0, info.CRC) if self._checked else None
        order = dtype.newbyteorder() if self._foreign else dtype
        loaded = self._loader.block(Entry(info.filename, order, (count,), offset, checksum=checksum))
        storage = loaded.storage(0, count, self._label)
        self._loaded[id(storage)] = kind, loaded
        return storage

    def _tensor(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        grad: Any = False,
        _hooks: Any = None,
        extra: Any = None,
    ) -> Tensor:
        return self._view(storage, getattr(storage, "dtype", None), offset, size, stride, grad, extra)

    def _tensor_of_type(
        self, storage: Any, offset: Any, size: Any, stride: Any, grad: Any, _hooks: Any, dtype: Any, extra: Any = None
    ) -> Tensor:
        kind, loaded = self._loaded.get(id(storage), (None, None))
        if kind == _UNTYPED and loaded is not None and loaded.memory is storage and isinstance(dtype, DType):
            self._loaded[id(storage)] = _UNTYPED, loaded.retyped(dtype.dtype)
        return self._view(storage, dtype, offset, size, stride, grad, extra)

    def _view(self, storage: Any, dtype: Any, offset: Any, size: Any, stride: Any, grad: Any, extra: Any) -> Tensor:
        if id(storage) not in self._loaded or not isinstance(dtype, DType):
            raise FileDamaged(f"{self._label}: a tensor without a storage or type")
        tensor = self._loaded[id(storage)][1].tensor(dtype.dtype, offset, size, stride, self._label)
        for flag, compute in (("conj", np.conj), ("neg", np.negative)):
            if isinstance(extra, dict) and extra.get(flag):
                tensor = self._computed(compute, tensor, storage)
        if grad is True and (dtype.is_floating_point or dtype.is_complex):
            tensor.requires_grad = True
        return tensor

    def _computed(self, compute: Callable[..., Any], tensor: Tensor, storage: Storage) -> Tensor:
        """Return a copy of a tensor to which a lazy operation of torch (conjugation, negation) has been applied."""
        if tensor.numel() > len(storage):  # many elements over little memory; a copy would need much more
            raise NotSupported(f"{self._label}: a conjugated or negated tensor whose elements overlap; {_CONVERT}")
        made = compute(tensor._live())
        return asarray(made, shared=True) if storage.is_shared() else wrap(made)

    def _parameter(self, data: Any, _grad: Any, _hooks: Any) -> Tensor:
        if not isinstance(data, Tensor):
            raise FileDamaged(f"{self._label}: a parameter of a {type_name(data)} instead of a tensor")
        return data


# -- saving -----------------------------------------------------------------------------------------------------------


def writer(obj: Any, label: str) -> Callable[[io.RawIOBase, Callable[[Any], None]], None]:
    """Return a function that writes an object to a file. Does not block.

    Raises:
        DTypeError, InvalidArgument: as Walk.walk.
    """
    blocks = Blocks(backwards=False)
    pickle = _Pickle(label, blocks).of(obj)

    def write(file: io.RawIOBase, _put: Callable[[Any], None]) -> None:
        with archives.writing(file) as archive:
            archives.put(archive, "archive/data.pkl", (pickle,))
            archives.put(archive, "archive/byteorder", (sys.byteorder.encode(),))
            for number, array in enumerate(blocks.arrays):
                archives.put(archive, f"archive/data/{number}", (array.view(np.uint8).data,))
            archives.put(archive, "archive/version", (b"3\n",))

    return write


class _Pickle(Walk):
    """Writes the pickle of an object, of protocol 2."""

    def of(self, obj: Any) -> bytes:
        """Return the pickle."""
        self._out = bytearray(b"\x80\x02")
        self.walk(obj)
        return bytes(self._out + b".")

    def again(self, number: int) -> None:
        self._out += b"j" + struct.pack("<I", number)

    def finished(self, number: int) -> None:
        self._out += b"r" + struct.pack("<I", number)

    def save_none(self, _value: None) -> None:
        self._out += b"N"

    def save_bool(self, value: bool) -> None:
        self._out += b"\x88" if value else b"\x89"

    def save_int(self, value: int) -> None:
        if 0 <= value < 256:
            self._out += struct.pack("<cB", b"K", value)
        elif -(1 << 31) <= value < 1 << 31:
            self._out += struct.pack("<ci", b"J", value)
        else:
            data = int(value).to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            if len(data) > 255:
                raise InvalidArgument(f"{self._where()}: an integer of {len(data)} bytes; torch.load reads at most 255")
            self._out += struct.pack("<cB", b"\x8a", len(data)) + data

    def save_float(self, value: float) -> None:
        self._out += struct.pack(">cd", b"G", value)

    def save_str(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self._out += struct.pack("<cI", b"X", len(data)) + data

    def save_complex(self, value: complex) -> None:
        self._global("__builtin__", "complex")
        self.save_float(value.real)
        self.save_float(value.imag)
        self._out += b"\x86R"

    def save_bytes(self, value: bytes | bytearray) -> None:
        self._global("_codecs", "encode")
        self.save_str(value.decode("latin1"))
        self.save_str("latin1")
        self._out += b"\x86R"

    def save_bytearray(self, value: bytearray) -> None:
        self._global("__builtin__", "bytearray")
        self.save_bytes(value)
        self._out += b"\x85R"

    def save_list(self, value: list[Any]) -> None:
        self._out += b"]("
        for index, one in enumerate(value):
            self.at(index, one)
        self._out += b"e"

    def save_tuple(self, value: tuple[Any, ...]) -> None:
        self._out += b"("
        for index, one in enumerate(value):
            self.at(index, one)
        self._out += b"t"

    def save_set(self, value: set[Any]) -> None:
        self._global("__builtin__", "set")
        self._out += b"]("
        for one in value:
            self.key(one)
        self._out += b"e\x85R"

    def save_dict(self, value: dict[Any, Any]) -> None:
        self._out += b"}"
        self._items(value)

    def save_ordered(self, value: OrderedDict[Any, Any]) -> None:
        attribute = self.attributes(value)
        self._empty_ordered()
        self._items(value)
        if attribute is not None:
            self._out += b"}"
            self.save_str(ORDERED_ATTRIBUTE)
            self.walk(attribute)
            self._out += b"sb"

    def save_counter(self, value: Counter[Any]) -> None:
        self._global("collections", "Counter")
        self.save_dict(value)
        self._out += b"\x85R"

    def save_dtype(self, value: DType | NumpyType) -> None:
        self._global("torch", dtype_of(value).name)

    def save_device(self, value: Device) -> None:
        self._global("torch", "device")
        self.save_str(str(value))
        self._out += b"\x85R"

    def save_tensor(self, value: Any) -> None:
        place = self._blocks.tensor(value)
        memory = self._blocks.arrays[place.block].dtype
        same = place.dtype == memory and _prefix(memory) in _CLASSIC
        self._global("torch._utils", "_rebuild_tensor_v2" if same else "_rebuild_tensor_v3")
        self._out += b"("
        self._reference(place.block)
        self._numbers_of(place)
        self._out += b"\x88" if getattr(value, "requires_grad", False) else b"\x89"
        self._empty_ordered()
        if not same:
            self.save_dtype(place.dtype)
        self._out += b"tR"

    def save_storage(self, value: Storage) -> None:
        block, _ = self._blocks.storage(value, parts=False)
        self._reference(block)

    def _numbers_of(self, place: Place) -> None:
        self.save_int(place.offset)
        for numbers in (place.shape, place.stride):
            self._out += b"("
            for number in numbers:
                self.save_int(number)
            self._out += b"t"

    def _reference(self, block: int) -> None:
        array = self._blocks.arrays[block]
        classic = _prefix(array.dtype) in _CLASSIC
        self._out += b"("
        self.save_str("storage")
        self._global(*(("torch", f"{_prefix(array.dtype)}Storage") if classic else ("torch.storage", "UntypedStorage")))
        self.save_str(str(block))
        self.save_str("cpu")
        self.save_int(len(array) if classic else array.nbytes)
        self._out += b"tQ"

    def _items(self, value: dict[Any, Any]) -> None:
        self._out += b"("
        for key, one in value.items():
            self.key(key)
            self.at(key, one)
        self._out += b"u"

    def _empty_ordered(self) -> None:
        self._global("collections", "OrderedDict")
        self._out += b")R"

    def _global(self, module: str, name: str) -> None:
        self._out += f"c{module}\n{name}\n".encode()


def _prefix(dtype: NumpyType) -> str:
    return BY_DTYPE[dtype].prefix
