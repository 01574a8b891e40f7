"""The values other than tensors that checkpoints can have, and the walk through an object to save."""

from __future__ import annotations

import abc
from collections import Counter, OrderedDict
from typing import Any, Final

import numpy as np

from .._tensor.methods import Tensor
from ..devices import Device
from ..dtypes import DType
from ..errors import DTypeError, FileDamaged, InvalidArgument, tensor_advice, type_name
from ..storage import Storage
from .blocks import Blocks

MAX_DEPTH: Final = 100
"""Maximum depth of nested containers."""
_MAX_KEY: Final = 100  # values in a key; the time to hash a key grows with their number
_EXACT: Final[dict[type, str]] = {
    type(None): "none", bool: "bool", int: "int", float: "float", complex: "complex", str: "str", bytes: "bytes",
    bytearray: "bytearray", list: "list", tuple: "tuple", dict: "dict", OrderedDict: "ordered", Counter: "counter",
    set: "set", Device: "device", DType: "dtype",
}  # fmt: skip
_BASES: Final[tuple[tuple[Any, str], ...]] = (
    (Tensor, "tensor"), (np.ndarray, "tensor"), (Storage, "storage"), (np.dtype, "dtype"),
    (int, "int"), (float, "float"), (complex, "complex"), (str, "str"),
)  # fmt: skip
_SHARED: Final = frozenset(("bytearray", "list", "tuple", "dict", "ordered", "counter", "set", "tensor", "storage"))
ORDERED_ATTRIBUTE: Final = "_metadata"
"""The attribute that torch gives to the OrderedDict of a model's state: the versions of its modules."""


def kind_of(value: Any) -> str | None:
    """Return the kind of a value, a name in the formats; None: it cannot be saved. Does not block."""
    found = _EXACT.get(type(value))
    if found is not None:
        return found
    if isinstance(value, tuple) and not hasattr(value, "_fields"):  # a Size, but not a named tuple
        return "tuple"
    return next((name for base, name in _BASES if isinstance(value, base)), None)


def brief(value: Any) -> str:
    """A value of a file, for a message; containers, which may be enormous, by their type."""
    return f"{value!r:.50}" if isinstance(value, str | bytes | int | float | None) else f"a {type_name(value)}"


def is_key(value: Any) -> bool:
    """Whether a value may be a key of a dict. Does not block.

    Keys are bounded, because hashing an enormous one in a damaged file could take too long, or overflow the stack.
    """
    if type(value) is not tuple:
        return _is_plain_key(value)
    left = [value]
    seen = 0
    while left:
        one = left.pop()
        seen += 1
        if type(one) is tuple:
            if seen + len(left) + len(one) > _MAX_KEY:
                return False
            left.extend(one)
        elif not _is_plain_key(one):
            return False
    return True


def _is_plain_key(value: Any) -> bool:
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    return value is None or isinstance(value, str | float | complex | bytes)


def filled(target: Any, items: list[tuple[Any, Any]], label: str) -> Any:
    """Add items to a dict, and return it. Does not block. Raises FileDamaged: invalid or equal keys."""
    for key, value in items:
        if not is_key(key):
            raise FileDamaged(f"{label}: {type_name(key)} is not a key that dicts in files may have")
        target[key] = value
    if len(target) != len(items):
        raise FileDamaged(f"{label}: two items of a dict have the same key")
    return target


class Walk(abc.ABC):
    """The walk through an object that is saved. A subclass has a method for each kind of value.

    Each container and tensor is saved once, and referred to by its number where it occurs again.
    """

    def __init__(self, label: str, blocks: Blocks) -> None:
        self._label = label
        self._blocks = blocks
        self._numbers: dict[int, tuple[int, Any]] = {}  # by id: number, and the object, so that it stays
        self._open: set[int] = set()
        self._path: list[str] = []

    @abc.abstractmethod
    def again(self, number: int) -> Any:
        """Save a reference to the container or tensor with this number."""
        raise NotImplementedError

    @abc.abstractmethod
    def finished(self, number: int) -> None:
        """Note that the container or tensor with this number is complete."""
        raise NotImplementedError

    def walk(self, value: Any) -> Any:
        """Save a value. Does not block.

        Raises:
            DTypeError: a value that cannot be saved.
            InvalidArgument: a container contains itself, or containers are nested too deep.
        """
        kind = kind_of(value)
        if kind is None:
            raise DTypeError(f"{self._where()}: cannot save a {type_name(value)}; {_advice(value)}")
        save = getattr(self, f"save_{kind}")
        if kind not in _SHARED:
            return save(value)
        if id(value) in self._numbers:
            return self.again(self._numbers[id(value)][0])
        if id(value) in self._open:
            raise InvalidArgument(f"{self._where()}: a {type_name(value)} contains itself; remove that reference")
        if len(self._open) >= MAX_DEPTH:
            raise InvalidArgument(
                f"{self._label}: containers are nested more than {MAX_DEPTH} deep; make the object flatter"
            )
        self._open.add(id(value))
        result = save(value)
        self._open.remove(id(value))
        number = len(self._numbers)
        self._numbers[id(value)] = number, value
        self.finished(number)
        return result

    def at(self, key: Any, value: Any) -> Any:
        """Save a value that is at an index or key of a container."""
        self._path.append(f"[{key!r:.50}]")
        result = self.walk(value)
        self._path.pop()
        return result

    def key(self, key: Any) -> Any:
        """Save a key of a dict, or a value in a set."""
        if not is_key(key):
            raise DTypeError(
                f"{self._where()}: cannot save the key {key!r:.50}; keys are strings, bytes, numbers of at most 64 "
                f"bits, and tuples of those"
            )
        return self.walk(key)

    def attributes(self, value: OrderedDict[Any, Any]) -> Any:
        """Return the metadata that torch attaches to a model's state; None: there is none."""
        found = {name: kept for name, kept in vars(value).items() if kept is not None}
        if found.keys() - {ORDERED_ATTRIBUTE}:
            raise DTypeError(
                f"{self._where()}: cannot save the attributes {list(found)} of an OrderedDict; remove them"
            )
        return found.get(ORDERED_ATTRIBUTE)

    def _where(self) -> str:
        return f"{self._label}: {''.join(self._path)}" if self._path else self._label


def _advice(value: Any) -> str:
    if isinstance(value, np.generic):
        return "use its item()"
    if isinstance(value, dict):
        return "use dict(x)"
    if isinstance(value, tuple | frozenset):
        return "use tuple(x)"
    if hasattr(value, "__dlpack__"):
        return tensor_advice(value)
    return "save its parts: tensors, numbers, strings, and lists, tuples and dicts of them"
