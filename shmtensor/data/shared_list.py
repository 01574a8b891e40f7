"""SharedList: a list whose objects are serialised in shared memory.

A list of Python objects grows in each forked worker that reads it, because reading writes reference counts, and it is
copied into each spawned one. A SharedList is one block: reading it writes nothing, and it is sent as a handle.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar, overload

import numpy as np

from .._tensor.core import Tensor
from .._tensor.creation import empty
from ..errors import DTypeError, IndexOutOfRange, ShmTensorError, type_name
from ..storage.arguments import integer

T_co = TypeVar("T_co", covariant=True)

_NUMBERS: Final[dict[type, str]] = {int: "q", float: "d", bool: "B"}
_PIECE: Final = 1 << 24
"""Bytes that are collected before a new buffer is started; the buffers are freed one by one."""


def _text(data: memoryview) -> str:
    return str(data, "utf-8", "surrogatepass")


def _encoded(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value, protocol=5)


_WRITE: Final[dict[str, Callable[[Any], bytes]]] = {"str": _encoded, "bytes": bytes, "pickle": _pickled}
_READ: Final[dict[str, Callable[[memoryview], Any]]] = {"str": _text, "bytes": bytes, "pickle": pickle.loads}


class SharedList(Sequence[T_co], Generic[T_co]):
    """An immutable list in shared memory. `shared[i]` makes a new object; slices are SharedLists over the same memory.

    A list of int (of 64 bits), float or bool is stored as an array; a list of str or bytes as their concatenated bytes;
    any other list as a pickle of each object.

    Args:
        objects: an iterable of objects, which is read once.

    Raises:
        DTypeError: an object cannot be pickled; the message names it.
        OutOfMemory, ManagerError: as `shmtensor.empty(shared=True)`.
    """

    __slots__ = ("_data", "_form", "_offsets", "_range", "_read", "_stored", "_values")

    def __init__(self, objects: Iterable[T_co]) -> None:
        if isinstance(objects, SharedList):
            self._open(objects._form, objects._stored, objects._range)
            return
        values: Sequence[T_co] = objects if isinstance(objects, list | tuple) else list(objects)
        form, stored = _store(values)
        self._open(form, stored, range(len(values)))

    def _open(self, form: str, stored: Tensor, places: range) -> None:
        self._form, self._stored, self._range = form, stored, places
        self._values = self._offsets = self._data = None
        data: Any = stored._live()
        memory = memoryview(data)
        if form in _READ:
            count = memory[:8].cast("q")[0]
            self._offsets = memory[8 : 8 * (count + 2)].cast("q")
            self._data = memory[8 * (count + 2) :]
            self._read = _READ[form]
        else:
            self._values = _numbers(memory, form)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> SharedList[T_co]: ...
    def __getitem__(self, index: Any) -> Any:
        """Return the object at an index, or a SharedList of a slice. Does not block.

        Raises:
            IndexOutOfRange: no such object.
            DTypeError: not an integer.
        """
        try:
            place = self._range[index]
        except IndexError:
            raise IndexOutOfRange(
                f"index {index} of a SharedList of {len(self)} objects; use {-len(self)} to {len(self) - 1}"
            ) from None
        except TypeError:
            place = self._range[_index(index)]
        if isinstance(place, range):
            part: SharedList[T_co] = object.__new__(SharedList)
            part._open(self._form, self._stored, place)
            return part
        if self._values is not None:
            return self._values[place]
        offsets = self._offsets
        assert offsets is not None and self._data is not None
        return self._read(self._data[offsets[place] : offsets[place + 1]])

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[T_co]:
        for place in range(len(self._range)):
            yield self[place]

    def tolist(self) -> list[T_co]:
        """All objects, in a list. Does not block."""
        return list(self)

    @property
    def nbytes(self) -> int:
        """Bytes of the shared memory; of a slice, those of the whole list."""
        return self._stored.numel()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedList | list):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SharedList({len(self)} objects, {self.nbytes} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._form, self._stored, self._range)


def _numbers(memory: memoryview, form: Any) -> Any:
    return memory.cast("?" if form == "B" else form)


def _opened(form: str, stored: Tensor, places: range) -> SharedList[Any]:
    made: SharedList[Any] = object.__new__(SharedList)
    made._open(form, stored, places)
    return made


def _index(value: Any) -> int:
    try:
        return integer(value)
    except TypeError:
        raise DTypeError(f"index {value!r} of a SharedList; give an integer or a slice") from None


def _store(values: Sequence[Any]) -> tuple[str, Tensor]:
    """Return the form of a list, and its bytes in shared memory."""
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else object
    if kind in _NUMBERS:
        try:
            numbers = np.frombuffer(array(_NUMBERS[kind], values), np.uint8)
            stored = empty(numbers.size, dtype=np.uint8, shared=True)
            stored._live()[...] = numbers
            return _NUMBERS[kind], stored
        except OverflowError:
            kind = object
    form = kind.__name__ if kind in (str, bytes) else "pickle"
    return form, _store_bytes(values, _WRITE[form])


def _store_bytes(values: Sequence[Any], write: Callable[[Any], bytes]) -> Tensor:
    """Return a tensor of the number of objects, the offset of each and the end (int64), and their bytes."""
    header = np.zeros(len(values) + 2, np.int64)
    header[0] = len(values)
    pieces, total = [bytearray()], 0
    for place, value in enumerate(values):
        try:
            data = write(value)
        except ShmTensorError:
            raise
        except Exception as error:
            raise DTypeError(
                f"object {place}, a {type_name(value)}, cannot be pickled: {error}; "
                "leave it out, or convert it to a type that pickle supports"
            ) from error
        if len(pieces[-1]) + len(data) > _PIECE and pieces[-1]:
            pieces.append(bytearray())
        pieces[-1] += data
        total += len(data)
        header[place + 2] = total
    stored = empty(header.nbytes + total, dtype=np.uint8, shared=True)
    memory = stored._live()
    memory[: header.nbytes] = header.view(np.uint8)
    end = len(memory)
    while pieces:
        piece = np.frombuffer(pieces.pop(), np.uint8)
        memory[end - piece.size : end] = piece
        end -= piece.size
    return stored
