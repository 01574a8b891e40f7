"""The pickles in torch's files, read without pickle: nothing in them is imported or executed.

`Reader` understands the opcodes that torch.save writes. Functions and classes that a pickle asks for are looked up in a
table, and only those in the table can be called.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from .._tensor.methods import Tensor
from ..devices import Device
from ..dtypes import DType
from ..errors import FileDamaged, NotSupported, ShmTensorError, type_name
from ..storage import Storage
from .containers import ORDERED_ATTRIBUTE, brief, filled, is_key

MAX_DEPTH: Final = 1000
"""Maximum depth of nested containers in a file."""
_VALUES: Final = (type(None), bool, int, float, complex, str, bytes, bytearray, Device, Tensor, Storage, DType)
_CONTAINERS: Final = (list, tuple, set, dict, OrderedDict, Counter)
_DAMAGE: Final = (LookupError, ValueError, TypeError, OverflowError, struct.error)  # what invalid operands raise


class Function:
    """A function that pickles may call: its name and its implementation."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name: str = name
        self.call: Callable[..., Any] = call


class Reader:
    """An interpreter of pickles.

    Args:
        data: the pickle.
        label: what messages call the file.
        table: Functions and values that pickles may refer to, by module and name.
        persistent: returns the object with a persistent id.
    """

    def __init__(
        self, data: bytes, label: str, table: Mapping[tuple[str, str], Any], persistent: Callable[[Any], Any]
    ) -> None:
        self._data = data
        self._at = 0
        self._label = label
        self._table = table
        self._persistent = persistent
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks below marks
        self._memo: dict[int, Any] = {}
        self._left = 2 * len(data)  # total length of call arguments still allowed; bounds what a small file can make

    def load(self) -> Any:
        """Return the object. Blocks as `persistent` does.

        Raises:
            FileDamaged: not a pickle, or a pickle with invalid values.
            NotSupported: the pickle asks for something other than tensors, numbers, strings and plain containers.
        """
        try:
            while (code := self._take(1)[0]) != _STOP:
                handle = _OPCODES.get(code)
                if handle is None:
                    raise NotSupported(
                        f"{self._label}: opcode {code:#x} at byte {self._at - 1} of its pickle is not loaded, because "
                        "torch.save does not write it for tensors and plain containers"
                    )
                handle(self)
            (result,) = self._stack
        except ShmTensorError:
            raise
        except _DAMAGE as error:
            raise self._damaged(str(error) or type_name(error)) from error
        self._inspect(result)
        return result

    def _inspect(self, result: Any) -> None:
        """Check that an object has only values that files may have, and is not too deep."""
        seen: set[int] = set()
        level = [result]
        for _ in range(MAX_DEPTH):
            deeper: list[Any] = []
            for value in level:
                if type(value) not in _CONTAINERS:
                    if not isinstance(value, _VALUES):
                        raise self._damaged(f"a {type_name(value)} is among the values")
                elif id(value) not in seen:
                    seen.add(id(value))
                    deeper.extend(value)
                    if isinstance(value, dict):
                        deeper.extend(value.values())
                    if type(value) is OrderedDict:
                        deeper.extend(vars(value).values())
            level = deeper
            if not level:
                return
        raise self._damaged(f"containers are nested more than {MAX_DEPTH} deep")

    def _damaged(self, problem: str) -> FileDamaged:
        return FileDamaged(f"{self._label}: its pickle is damaged at byte {self._at}: {problem}")

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise self._damaged("it is truncated")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + 1000)
        if end < 0:
            raise self._damaged("a name has no end")
        return self._take(end + 1 - self._at)[:-1].decode()

    def _text(self, form: str) -> None:
        self._stack.append(self._take(self._number(form)).decode("utf-8", "surrogatepass"))

    def _bytes(self, form: str) -> None:
        self._stack.append(self._take(self._number(form)))

    def _long(self) -> None:
        self._stack.append(int.from_bytes(self._take(self._number("<B")), "little", signed=True))

    def _protocol(self) -> None:
        if self._number("<B") > 5:
            raise self._damaged("an unknown protocol")

    # -- stack and memo -----------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        if len(self._below) > 2 * MAX_DEPTH:
            raise self._damaged(f"containers are nested more than {MAX_DEPTH} deep")
        self._below.append(self._stack)
        self._stack = []

    def _popped(self) -> list[Any]:
        items = self._stack
        self._stack = self._below.pop()
        return items

    def _get(self, form: str) -> None:
        self._stack.append(self._memo[self._number(form)])

    def _put(self, form: str) -> None:
        self._memo[self._number(form)] = self._stack[-1]

    def _memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    # -- containers ---------------------------------------------------------------------------------------------------

    def _tuple_to_mark(self) -> None:
        items = self._popped()
        self._stack.append(tuple(items))

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise self._damaged("not enough values for a tuple")
        at = len(self._stack) - count
        self._stack[at:] = [tuple(self._stack[at:])]

    def _append(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise self._damaged(f"an item is appended to a {type_name(target)}")
        target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) not in (dict, OrderedDict, Counter):
            raise self._damaged(f"an item of a {type_name(target)} is set")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not is_key(key):
                raise self._damaged(f"a {type_name(key)} is a key")
            target[key] = value

    def _add_items(self) -> None:
        items = self._popped()
        target = self._stack[-1]
        if type(target) is not set or not all(map(is_key, items)):
            raise self._damaged("an invalid value in a set")
        target.update(items)

    # -- functions ----------------------------------------------------------------------------------------------------

    def _find(self, module: str, name: str) -> None:
        module = "builtins" if module == "__builtin__" else module
        try:
            self._stack.append(self._table[module, name])
        except KeyError:
            raise self._refused(f"{module}.{name}") from None

    def _refused(self, name: str) -> NotSupported:
        return NotSupported(
            f"{self._label}: the file asks for {name:.100}, which is not loaded; only tensors, numbers, strings and "
            "plain containers are. If you trust who wrote it, load it with torch.load(f, weights_only=False), and save "
            "its tensors"
        )

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self._damaged("a name is not a string")
        self._find(module, name)

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not Function:
            raise self._damaged(f"a {type_name(function)} is called")
        if type(arguments) is not tuple:
            raise self._damaged("the arguments of a call are not a tuple")
        self._left -= sum(len(one) for one in arguments[:10] if isinstance(one, str | bytes | list | tuple | dict))
        if self._left < 0:
            raise self._damaged("calls make more values than a file of this size can have")
        try:
            self._stack.append(function.call(*arguments))
        except ShmTensorError:
            raise
        except _DAMAGE as error:
            raise self._damaged(f"{function.name}: {error}") from error

    def _build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(target) is not OrderedDict or type(state) is not dict or state.keys() - {ORDERED_ATTRIBUTE}:
            raise self._refused(f"the attributes of a {type_name(target)}")
        vars(target).update(state)

    def _persistent_id(self) -> None:
        self._stack.append(self._persistent(self._stack.pop()))


def _push(make: Callable[[], Any]) -> Callable[[Reader], None]:
    return lambda reader: reader._stack.append(make())


def _number(form: str) -> Callable[[Reader], None]:
    return lambda reader: reader._stack.append(reader._number(form))


_STOP: Final = ord(".")
_OPCODES: Final[dict[int, Callable[[Reader], None]]] = {
    0x80: Reader._protocol,
    0x95: lambda reader: reader._number("<Q"),  # FRAME
    ord("N"): _push(lambda: None),
    0x88: _push(lambda: True),
    0x89: _push(lambda: False),
    ord("J"): _number("<i"),
    ord("K"): _number("<B"),
    ord("M"): _number("<H"),
    ord("G"): _number(">d"),
    0x8A: Reader._long,
    ord("X"): lambda reader: reader._text("<I"),
    0x8C: lambda reader: reader._text("<B"),
    ord("B"): lambda reader: reader._bytes("<I"),
    ord("C"): lambda reader: reader._bytes("<B"),
    ord(")"): _push(tuple),
    ord("]"): _push(list),
    ord("}"): _push(dict),
    0x8F: _push(set),
    ord("("): Reader._mark,
    ord("t"): Reader._tuple_to_mark,
    0x85: lambda reader: reader._tuple(1),
    0x86: lambda reader: reader._tuple(2),
    0x87: lambda reader: reader._tuple(3),
    ord("a"): lambda reader: reader._append([reader._stack.pop()]),
    ord("e"): lambda reader: reader._append(reader._popped()),
    ord("s"): lambda reader: reader._set_items([reader._stack.pop(-2), reader._stack.pop()]),
    ord("u"): lambda reader: reader._set_items(reader._popped()),
    0x90: Reader._add_items,
    ord("h"): lambda reader: reader._get("<B"),
    ord("j"): lambda reader: reader._get("<I"),
    ord("q"): lambda reader: reader._put("<B"),
    ord("r"): lambda reader: reader._put("<I"),
    0x94: Reader._memoize,
    ord("c"): lambda reader: reader._find(reader._line(), reader._line()),
    0x93: Reader._stack_global,
    ord("i"): lambda reader: reader._find(reader._line(), reader._line()),  # INST: only for the name in the error
    ord("R"): Reader._reduce,
    ord("b"): Reader._build,
    ord("Q"): Reader._persistent_id,
}


# -- functions that make plain values ---------------------------------------------------------------------------------


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("the argument is not a latin1 string")
    return text.encode("latin1")


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    if not isinstance(items, list | tuple):
        raise ValueError("the argument is not a list of pairs")
    return OrderedDict(filled({}, [(key, value) for key, value in items], "collections.OrderedDict"))


def _counter(items: Any = None) -> Counter[Any]:
    if items is not None and not isinstance(items, dict):
        raise ValueError("the argument is not a dict")
    made: Counter[Any] = filled(Counter(), list((items or {}).items()), "collections.Counter")
    return made


def _set(items: Any = ()) -> set[Any]:
    if not isinstance(items, list | tuple) or not all(map(is_key, items)):
        raise ValueError("an invalid value in a set")
    return set(items)


def _complex(real: Any, imaginary: Any) -> complex:
    if not isinstance(real, int | float) or not isinstance(imaginary, int | float):
        raise ValueError("the parts are not numbers")
    return complex(real, imaginary)


def _bytes() -> bytes:
    return b""  # torch writes other bytes by _codecs.encode


def _bytearray(content: Any = b"", encoding: Any = None) -> bytearray:
    if isinstance(content, str):
        content = _encode(content, "latin1" if encoding == "latin-1" else encoding)
    if not isinstance(content, bytes):
        raise ValueError("the argument is not bytes")
    return bytearray(content)


def _device(kind: Any, index: Any = None) -> Device:
    if not isinstance(kind, str) or not (index is None or type(index) is int):
        raise ValueError(f"the device {brief(kind)}")
    name, colon, number = kind.partition(":")
    return Device(name, int(number) if colon else index)


def _size(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, tuple | list) or not all(type(size) is int for size in sizes):
        raise ValueError("the sizes are not integers")
    return tuple(sizes)


_CALLS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("collections", "OrderedDict"): _ordered,
    ("collections", "Counter"): _counter,
    ("_codecs", "encode"): _encode,
    ("builtins", "set"): _set,
    ("builtins", "complex"): _complex,
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytearray,
    ("torch", "device"): _device,
    ("torch", "Size"): _size,
}
PLAIN: Final[dict[tuple[str, str], Any]] = {key: Function(".".join(key), call) for key, call in _CALLS.items()}
"""The functions that make plain values."""
