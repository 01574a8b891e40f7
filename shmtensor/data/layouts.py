"""The layout of samples: the tree of a sample, and the shape and type of each of its arrays.

It defines the tensors of a batch of such samples, writes samples into their rows, and builds the tree of the batch, as
`default_collate` would.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._tensor.core import Tensor
from .._tensor.creation import empty
from .collate import CollateMap, collate
from .leaves import array_of, numbers_of

Arrays: TypeAlias = Sequence[NDArray[Any]]
Described: TypeAlias = tuple[tuple[int, ...], np.dtype[Any], bool]
"""Shape and type of a leaf, and whether it is one of Python's numbers."""
Write: TypeAlias = Callable[[Arrays, int, Any], bool]
"""Write a part of a sample into a row of the arrays; False if it does not fit."""

NUMBERS: Final = {float: np.dtype(np.float64), int: np.dtype(np.int64), bool: np.dtype(np.bool_)}
"""Types of Python's numbers in a batch."""
MOST_LEAVES: Final = 128
"""A sample with more arrays has no slots: allocating and sending that many tensors takes longer than pickling them."""

_ndarray = np.ndarray


# -- nodes of the tree -------------------------------------------------------------------------------------------------


class _Leaf:
    """Python's numbers of one type, or arrays of one shape and type."""

    def __init__(self, leaf: int, shape: tuple[int, ...], dtype: np.dtype[Any], number: type | None = None) -> None:
        self.leaf: int = leaf
        self.shape: tuple[int, ...] = shape
        self.dtype: np.dtype[Any] = dtype
        self.number: type | None = number

    def writer(self) -> Write:
        leaf, shape, dtype, number = self.leaf, self.shape, self.dtype, self.number

        def write_number(slots: Arrays, row: int, value: Any) -> bool:
            if type(value) is not number:
                return False
            try:
                slots[leaf][row] = value
            except OverflowError:
                return False
            return True

        def write_array(slots: Arrays, row: int, value: Any) -> bool:
            if type(value) is not _ndarray:
                value = None if type(value) in NUMBERS else array_of(value)
                if value is None:
                    return False
            if value.shape != shape or (value.dtype is not dtype and value.dtype != dtype):
                return False
            slots[leaf][row] = value
            return True

        return write_array if number is None else write_number

    def rest(self, value: Any, found: list[Any]) -> None:
        pass

    def tree(self, leaves: Sequence[Any], others: Sequence[Any], batch: bool) -> Any:
        return leaves[self.leaf]


class _Other:
    """A leaf of strings or other objects, which have no slot."""

    def __init__(self, place: int) -> None:
        self.place = place

    def writer(self) -> Write:
        return lambda slots, row, value: True

    def rest(self, value: Any, found: list[Any]) -> None:
        found.append(value)

    def tree(self, leaves: Sequence[Any], others: Sequence[Any], batch: bool) -> Any:
        return others[self.place]


class _Items:
    """A tuple, list or namedtuple of fixed length."""

    def __init__(self, kind: Any, parts: list[_Node]) -> None:
        self.kind: Any = kind
        self.parts: list[_Node] = parts

    def writer(self) -> Write:
        kind, length = self.kind, len(self.parts)
        writers = [part.writer() for part in self.parts]

        def write_two(slots: Arrays, row: int, value: Any) -> bool:
            if type(value) is not kind or len(value) != 2:
                return False
            one, two = value
            return first(slots, row, one) and second(slots, row, two)

        def write(slots: Arrays, row: int, value: Any) -> bool:
            if type(value) is not kind or len(value) != length:
                return False
            for put, part in zip(writers, value):  # noqa: B905, SIM110 (lengths are equal; a loop is faster)
                if not put(slots, row, part):
                    return False
            return True

        if length == 2:
            first, second = writers
            return write_two
        return write

    def rest(self, value: Any, found: list[Any]) -> None:
        for node, part in zip(self.parts, value, strict=True):
            node.rest(part, found)

    def tree(self, leaves: Sequence[Any], others: Sequence[Any], batch: bool) -> Any:
        found = [part.tree(leaves, others, batch) for part in self.parts]
        if hasattr(self.kind, "_fields"):
            return self.kind(*found)
        return found if batch else self.kind(found)  # a batch of tuples is a list, as in torch


class _Mapping:
    """A dict or OrderedDict with fixed keys."""

    def __init__(self, kind: Any, parts: dict[Any, _Node]) -> None:
        self.kind: Any = kind
        self.parts: dict[Any, _Node] = parts

    def writer(self) -> Write:
        kind, length = self.kind, len(self.parts)
        writers = [(key, part.writer()) for key, part in self.parts.items()]

        def write(slots: Arrays, row: int, value: Any) -> bool:
            if type(value) is not kind or len(value) != length:
                return False
            try:
                for key, put in writers:
                    if not put(slots, row, value[key]):
                        return False
            except KeyError:
                return False
            return True

        return write

    def rest(self, value: Any, found: list[Any]) -> None:
        for key, node in self.parts.items():
            node.rest(value[key], found)

    def tree(self, leaves: Sequence[Any], others: Sequence[Any], batch: bool) -> Any:
        return self.kind((key, part.tree(leaves, others, batch)) for key, part in self.parts.items())


_Node: TypeAlias = _Leaf | _Other | _Items | _Mapping


class _Maker:
    """Makes the nodes of a sample, and numbers its leaves."""

    def __init__(self) -> None:
        self.leaves: list[Described] = []
        self.forms: list[type] = []

    def node(self, sample: Any, form: type = list) -> _Node:
        kind = type(sample)
        if kind in NUMBERS:
            return self._leaf((), NUMBERS[kind], kind)
        if kind in (list, tuple) or (isinstance(sample, tuple) and hasattr(kind, "_fields")):
            return _Items(kind, [self.node(part, tuple) for part in sample])
        if kind in (dict, OrderedDict):
            return _Mapping(kind, {key: self.node(part) for key, part in sample.items()})
        array = numbers_of(sample)
        if array is not None:
            return self._leaf(array.shape, array.dtype)
        return self.other(form)

    def other(self, form: type = list) -> _Other:
        self.forms.append(form)
        return _Other(len(self.forms) - 1)

    def _leaf(self, shape: tuple[int, ...], dtype: np.dtype[Any], number: type | None = None) -> _Leaf:
        self.leaves.append((shape, dtype, number is not None))
        return _Leaf(len(self.leaves) - 1, shape, dtype, number)


# -- the layout --------------------------------------------------------------------------------------------------------


class Layout:
    """The tree of samples with the shape and type of each array, made by `layout_of`. Its pickle is small.

    Its *leaves* are the numbers and arrays, in the order of the tree; a batch has a tensor, a *slot*, for each. Strings
    and other objects, its *others*, have no slot: `rest` returns those of a sample, `batch` takes those of all samples.

    Attributes:
        shapes, dtypes: shape and dtype of each leaf of a sample.
        others: number of leaves without a slot.
        nbytes: bytes of a sample in the slots.
        write: `write(arrays, row, sample)` writes a sample into a row of the slots' arrays. It returns False if the
            sample does not fit: another tree, type or shape, or an integer beyond 64 bits; part of the row is then
            written. Does not block.
    """

    __slots__ = ("_forms", "_numbers", "_root", "dtypes", "nbytes", "others", "shapes", "write")

    write: Write

    def __init__(self, root: _Node, leaves: Sequence[Described], forms: list[type]) -> None:
        self._root, self._forms = root, forms
        self.shapes: tuple[tuple[int, ...], ...] = tuple(shape for shape, _, _ in leaves)
        self.dtypes: tuple[np.dtype[Any], ...] = tuple(dtype for _, dtype, _ in leaves)
        self._numbers = tuple(number for _, _, number in leaves)
        self.others: int = len(forms)
        self.nbytes: int = sum(
            math.prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        )
        self.write = root.writer()

    def empty(self, n: int, shared: bool = True) -> list[Tensor]:
        """Return the slots of a batch of n samples: for each leaf a tensor of shape (n, *shape), of arbitrary content.

        Blocks and raises as `shmtensor.empty`.
        """
        return [
            empty((n, *shape), dtype=dtype, shared=shared)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]

    @staticmethod
    def arrays(slots: Sequence[Tensor]) -> list[NDArray[Any]]:
        """Return the arrays of slots, for `write` and `row`. They keep the memory alive. Does not block."""
        return [slot._live() for slot in slots]

    def row(self, arrays: Arrays, row: int, others: Sequence[Any] = ()) -> Any:
        """Return a row as a tree of arrays, in which a sample can be computed in place. Does not block.

        Args:
            arrays: the arrays of the slots.
            row: index of the row.
            others: values in place of the leaves without a slot (default None).
        """
        return self._root.tree([array[row, ...] for array in arrays], others or [None] * self.others, False)

    def sample(self, arrays: Arrays, row: int, others: Sequence[Any] = ()) -> Any:
        """Return the sample that `write` wrote into a row: as `row`, but with Python's numbers. Does not block."""
        leaves = [
            array[row].item() if number else array[row, ...]
            for array, number in zip(arrays, self._numbers, strict=True)
        ]
        return self._root.tree(leaves, others or [None] * self.others, False)

    def rows(self, arrays: Arrays, places: NDArray[np.int64]) -> Iterator[Any]:
        """Yield rows as trees of new arrays, with NumPy's numbers in place of arrays without axes. Does not block."""
        columns = [array[places] for array in arrays]
        if isinstance(self._root, _Leaf):
            return iter(columns[0])
        nothing = [None] * self.others
        return (self._root.tree(leaves, nothing, False) for leaves in zip(*columns, strict=True))

    def rest(self, sample: Any) -> list[Any]:
        """Return the leaves without a slot of a sample that `write` has written. Does not block."""
        found: list[Any] = []
        if self.others:
            self._root.rest(sample, found)
        return found

    def batch(
        self, leaves: Sequence[Any], rests: Sequence[Sequence[Any]] = (), collate_fn_map: CollateMap | None = None
    ) -> Any:
        """Return the tree of a batch, as `default_collate` would. Does not block.

        Args:
            leaves: a value for each leaf: the slots, or tensors or arrays made of them.
            rests: the result of `rest` for each sample; needed if there are others.
            collate_fn_map: functions that collate the others; default: those of `default_collate`.

        Raises:
            DTypeError: objects that cannot be collated.
        """
        columns = zip(*rests, strict=True)
        others = [
            collate(form(column), collate_fn_map=collate_fn_map)
            for form, column in zip(self._forms, columns, strict=True)
        ]
        return self._root.tree(leaves, others, True)

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self._root, list(zip(self.shapes, self.dtypes, self._numbers, strict=True)), self._forms)


def layout_of(sample: Any) -> Layout:
    """Return the layout of samples such as this one. Does not block.

    Leaves are Python's numbers (float64, int64, bool in a batch), NumPy's numbers and arrays, tensors, and those of
    torch's tensors that NumPy can represent; writing them records no gradients. The tree consists of dicts,
    OrderedDicts, lists, tuples and namedtuples; any other mapping or sequence is one leaf without a slot. So is a whole
    sample of more than 128 leaves.
    """
    maker = _Maker()
    root = maker.node(sample)
    if len(maker.leaves) > MOST_LEAVES:
        maker = _Maker()
        root = maker.other()
    return Layout(root, maker.leaves, maker.forms)
