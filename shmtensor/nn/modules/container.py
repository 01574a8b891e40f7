"""Modules and parameters in sequences and dicts."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Self, overload

from ..._tensor.methods import Tensor
from ...errors import DTypeError, IndexOutOfRange, InvalidArgument, type_name
from ..parameter import Parameter
from .module import Module, _indented


def _place(index: Any, count: int) -> int:
    """A position from 0. Raises IndexOutOfRange."""
    found = operator.index(index)
    if not -count <= found < count:
        raise IndexOutOfRange(f"index {found} is out of range")
    return found % count


class _Row(Module):
    """Modules by number."""

    _modules: Any

    def _renumber(self, modules: Iterable[Any]) -> None:
        self._modules.replace((str(i), module) for i, module in enumerate(modules))

    def _list(self) -> list[Any]:
        return [*self._modules.values()]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, [*self._modules][_place(index, len(self))], module)

    def append(self, module: Module) -> Self:
        """Add a module at the end. Returns self."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Insert a module before a position. Returns self. Raises IndexOutOfRange, DTypeError: not a module."""
        if not isinstance(module, Module):
            raise DTypeError(f"module should be of type: {Module}")
        count = len(self)
        if not -count <= index <= count:
            raise IndexOutOfRange(f"Index out of range: {index}")
        modules = self._list()
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove the module at a position, and return it. Raises IndexOutOfRange."""
        module = self[key]  # type: ignore[index]
        del self[key]
        return module


class Sequential(_Row):
    """Modules that are called in order, each with the result of the one before.

    `Sequential(a, b)`, or `Sequential(OrderedDict([("first", a), ("second", b)]))`.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict([*self._modules.items()][index]))
        return self._list()[_place(index, len(self))]

    def __delitem__(self, index: int | slice) -> None:
        modules = self._list()
        if isinstance(index, slice):
            del modules[index]
        else:
            del modules[_place(index, len(self))]
        self._renumber(modules)

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise InvalidArgument(
                f"add operator supports only objects of Sequential class, but {type_name(other)} is given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Self:
        if not isinstance(other, Sequential):
            raise InvalidArgument(
                f"add operator supports only objects of Sequential class, but {type_name(other)} is given."
            )
        return self.extend(other)

    def __mul__(self, other: int) -> Sequential:
        if not isinstance(other, int):
            raise DTypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise InvalidArgument(f"Non-positive multiplication factor {other} for {type(self)}")
        return Sequential(*[module for _ in range(other) for module in self])

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        return self.extend([*(self * other)][len(self) :])

    def forward(self, input: Any) -> Any:
        """The result of the last module."""
        for module in self._modules.values():
            input = module(input)
        return input

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add modules at the end. Returns self."""
        for module in [*sequential]:
            self.append(module)
        return self


class ModuleList(_Row):
    """A list of modules, which are members."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self._list()[index])
        return self._list()[_place(index, len(self))]

    def __delitem__(self, index: int | slice) -> None:
        modules = self._list()
        if isinstance(index, slice):
            del modules[index]
        else:
            del modules[_place(index, len(self))]
        self._renumber(modules)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end. Returns self. Raises DTypeError: not a collection."""
        if not isinstance(modules, Iterable):
            raise DTypeError(f"ModuleList.extend should be called with an iterable, but got {type_name(modules)}")
        for module in [*modules]:
            self.append(module)
        return self

    def __repr__(self) -> str:
        parts = []
        start = 0
        for text, group in groupby([_indented(repr(module)) for module in self]):
            count = len([*group])
            end = start + count - 1
            parts.append(f"({start}): {text}" if count == 1 else f"({start}-{end}): {count} x {text}")
            start = end + 1
        if not parts:
            return f"{self._get_name()}()"
        return "\n  ".join([f"{self._get_name()}(", *parts]) + "\n)"


def _items(given: Any, what: str) -> Iterable[tuple[Any, Any]]:
    """The (key, value) pairs of a mapping, or of a collection of pairs. Raises DTypeError, InvalidArgument."""
    if not isinstance(given, Iterable):
        raise DTypeError(
            f"{what}.update should be called with an iterable of key/value pairs, but got {type_name(given)}"
        )
    if isinstance(given, Mapping | ModuleDict | ParameterDict):
        return [*given.items()]
    pairs = [*given]
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise DTypeError(f"{what} update sequence element #{i} should be Iterable; is {type_name(pair)}")
        if len([*pair]) != 2:
            raise InvalidArgument(f"{what} update sequence element #{i} has length {len([*pair])}; 2 is required")
    return pairs


class ModuleDict(Module):
    """A dict of modules, which are members."""

    _modules: Any

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove a module, and return it. Raises KeyError."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()  # type: ignore[no-any-return]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and modules."""
        return self._modules.items()  # type: ignore[no-any-return]

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()  # type: ignore[no-any-return]

    def update(self, modules: Any) -> None:
        """Set modules by name, from a mapping or from pairs. Raises DTypeError, InvalidArgument."""
        for name, module in _items(modules, "ModuleDict"):
            self[name] = module


def _described(value: Any, of_type: str) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    size = "x".join([str(size) for size in value.shape])
    word = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"{word} containing: [{of_type} of size {size}]"


def _member(value: Any) -> Any:
    """A tensor as a parameter; anything else unchanged."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """A list of parameters, which are members. Tensors become parameters; other values stay what they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ParameterList: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(len(self)))])
        return getattr(self, str(_place(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_place(index, len(self))), _member(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Add a value at the end. Returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end. Returns self. Raises DTypeError: not a collection."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise DTypeError(f"ParameterList.extend should be called with an iterable, but got {type_name(values)}")
        for value in [*values]:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """Each value in a line."""
        return "\n".join(
            [f"  ({i}): {_described(value, str(getattr(value, 'dtype', '')))}" for i, value in enumerate(self)]
        )


class ParameterDict(Module):
    """A dict of parameters, which are members. Tensors become parameters; other values stay what they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, str(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, str(key), _member(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, str(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed([*self._keys])

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return a value; set it to `default` first if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all values."""
        for key in [*self._keys]:
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove a value, and return it. Raises KeyError."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and its value, and return both. Raises KeyError: there is none."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or `default`."""
        return getattr(self, str(key)) if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another dict, with these keys and one value."""
        return ParameterDict([(key, default) for key in keys])

    def keys(self) -> Iterable[str]:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Keys and values."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Set values by key, from a mapping or from pairs. Raises DTypeError, InvalidArgument."""
        for key, value in _items(parameters, "ParameterDict"):
            self[key] = value

    def extra_repr(self) -> str:
        """Each value in a line."""
        return "\n".join(
            [
                f"  ({key}): {_described(value, value.type() if isinstance(value, Tensor) else '')}"
                for key, value in self.items()
            ]
        )

    def forward(self, *input: Any, **how: Any) -> Any:
        """Always raise DTypeError."""
        raise DTypeError("ParameterDict should not be called.")
