"""Helpers for tests of the codec: values, encoding and decoding them, comparing them, and checking for leaks."""

from __future__ import annotations

import enum
import gc
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from manager_world import until

from shmtensor import _native
from shmtensor._tensor.methods import Tensor
from shmtensor.manager import client

PLAIN, PICKLED, TICKETED = 1, 2, 3
"""First bytes of bodies and of messages."""


def native() -> _native.Client:
    return client.default().native


def held() -> int:
    """Blocks that this process holds."""
    gc.collect()
    return native().stats().blocks


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


def nothing_is_kept() -> Iterator[None]:
    """Checks that no blocks or messages under way are left after a test; codec test files make a fixture of it."""
    before = held()
    yield
    until(
        lambda: native().stats().blocks <= before or held() <= before,
        f"at most {before} blocks held, as before the test",
    )
    assert in_flight() == 0


def kind(value: Any) -> str:
    return type(value).__name__


def there(value: Any, kind: int | None = None) -> Any:
    """The value as another process would get it, except that it aliases memory of this one."""
    body, blocks = _native.pack(native(), value)
    assert kind is None or body[0] == kind, f"went as {body[0]}"
    return _native.unpack(body, blocks)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal in class, value (nan equals nan) and identity of inner objects."""
    pairs: dict[int, int] = {}
    back: dict[int, int] = {}

    def equal(x: Any, y: Any) -> bool:
        if type(x) is not type(y):
            return False
        if isinstance(x, list | dict | tuple | np.ndarray | Tensor) and not (isinstance(x, tuple) and not x):
            if id(x) in pairs or id(y) in back:
                return pairs.get(id(x)) == id(y) and back.get(id(y)) == id(x)
            pairs[id(x)] = id(y)
            back[id(y)] = id(x)
        if isinstance(x, Tensor):
            return equal(x._live(), y._live())
        if isinstance(x, np.ndarray):
            return (
                x.dtype == y.dtype
                and x.shape == y.shape
                and (x.flags.f_contiguous == y.flags.f_contiguous or not (x.flags.c_contiguous or x.flags.f_contiguous))
                and y.flags.writeable
                and x.tobytes() == y.tobytes()
            )
        if isinstance(x, list | tuple):
            return len(x) == len(y) and all(equal(i, j) for i, j in zip(x, y, strict=True))
        if isinstance(x, dict):
            return len(x) == len(y) and all(
                equal(i, j) and equal(x[i], y[j]) for i, j in zip(list(x), list(y), strict=True)
            )
        if isinstance(x, float):
            return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))
        if isinstance(x, complex):
            return equal(x.real, y.real) and equal(x.imag, y.imag)
        return bool(x == y)

    return equal(a, b)


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Record:
    name: str
    content: Any


class Refuses:
    def __init__(self, *content: Any) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("no")


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(), st.binary(),
    st.text(st.characters()),
    st.sampled_from(["f4", "f8", "i1", "u2", "?", "c8", "e"]).flatmap(
        lambda d: st.tuples(st.integers(0, 4), st.integers(0, 40), st.booleans()).map(
            lambda s: np.zeros((s[0], s[1]), d, order="F" if s[2] else "C") + np.asarray(1, d)
        )
    ),
)  # fmt: skip


keys = st.one_of(st.integers(), st.text(), st.binary(), st.tuples(st.integers(), st.text()), st.none())


@st.composite
def values(draw: st.DrawFn) -> Any:
    """Nested values, some parts of which occur more than once."""
    pool = draw(st.lists(leaves, min_size=1, max_size=6))
    for _ in range(draw(st.integers(0, 6))):
        some = draw(st.lists(st.sampled_from(range(len(pool))), max_size=5))
        parts = [pool[i] for i in some]
        kind = draw(st.sampled_from("ltd"))
        if kind == "l":
            pool.append(parts)
        elif kind == "t":
            pool.append(tuple(parts))
        else:
            pool.append(dict(zip(draw(st.lists(keys, min_size=len(parts), max_size=len(parts))), parts, strict=True)))
    return pool
