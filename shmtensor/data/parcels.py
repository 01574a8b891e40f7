"""Values between a program and its workers: arrays are sent as tensors, and a value that cannot be read is an error.

A message that cannot be unpickled is lost as a whole. So a value whose unpickling may fail is sent in a `Parcel`, which
arrives as either the value or the exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._tensor.core import Tensor
from .._tensor.creation import asarray
from ..ipc.codec import dump, load
from .failures import Failure, failure_of
from .leaves import PLAIN, numbers_of


class Opened(NamedTuple):
    """The content of a parcel: a value, or the failure to read it."""

    value: Any
    failure: Failure | None


class Parcel:
    """A value that arrives as `Opened`, even if it cannot be unpickled there."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, dump(None, self.value)


def _opened(data: Any, buffers: list[Any]) -> Opened:
    try:
        return Opened(load(data, buffers), None)
    except (Exception, SystemExit) as error:  # a module may call sys.exit() when it is imported
        return Opened(None, failure_of(error))


def sendable(value: Any) -> Any:
    """Return the sent form of a result: arrays and tensors as detached tensors, in a Parcel if reading may fail.

    Arrays of strings and objects, numbers and other objects stay as they are. Does not block.
    """
    if type(value) in PLAIN:
        return value
    doubts: list[Any] = []
    found = _with_tensors(value, doubts)
    return Parcel(found) if doubts else found


def received(value: Any) -> Opened:
    """Return a received value, opened."""
    return value if type(value) is Opened else Opened(value, None)


def _with_tensors(value: Any, doubts: list[Any]) -> Any:
    kind = type(value)
    if kind in PLAIN or isinstance(value, np.generic):
        return value
    if kind is Tensor:
        return value.detach() if value.requires_grad else value
    if kind in (list, tuple):
        return kind([_with_tensors(part, doubts) for part in value])
    if kind is dict:
        return {key: _with_tensors(part, doubts) for key, part in value.items()}
    array = numbers_of(value)
    if array is not None:
        return asarray(array)
    doubts.append(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind(*[_with_tensors(part, doubts) for part in value])
    return value


def flattened(tree: Any, leaf: Callable[[Any], Any], found: list[Any]) -> Any:
    """Append `leaf` of each leaf of a tree to `found`, in the order of a Layout's leaves. Returns the tree's structure.

    The structure can be compared with that of other trees. Trees consist of dicts, lists, tuples and namedtuples.
    """
    kind = type(tree)
    if kind is dict:
        return kind, tuple(tree), tuple(flattened(part, leaf, found) for part in tree.values())
    if kind in (list, tuple) or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return kind, tuple(flattened(part, leaf, found) for part in tree)
    found.append(leaf(tree))
    return None
