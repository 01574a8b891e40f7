"""The codec: plain values are encoded and decoded; other values are pickled."""

from __future__ import annotations

import array
import math
import random
import sys
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codec_world import PICKLED, PLAIN, Level, Record, kind, nothing_is_kept, pickled, same, there, values
from hypothesis import HealthCheck, given, settings
from manager_world import world

import shmtensor
from shmtensor import _native

nothing_kept = pytest.fixture(autouse=True)(nothing_is_kept)


PLAIN_VALUES = [
    None,
    True,
    False,
    *(0, 1, -1, 127, 128, -128, -129, 2**31, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, sys.float_info.min),
    *(0j, complex(-0.0, math.nan)),
    *("", "a", "\xe9", "\u20ac", "\U0001f600", "a\0b", "x\u20ac" * 1000, "y\U0001f600" * 777, "\ud800", "\ud83d\ude00"),
    *(b"", b"\0", bytes(range(256)) * 300),
    *((), (1,), [], [[]], {}, {1: 2, "a": (None, [3.5])}, {(1, "b"): b"c", None: {}, 2.5: []}),
    list(range(-200, 200)),
]


@pytest.mark.parametrize("value", PLAIN_VALUES, ids=lambda v: repr(v)[:20])
def test_plain_values_go_without_pickle(value: Any) -> None:
    for shifted in (value, ["x", value], ("xy", value, value), {"k": value}):  # at every alignment
        assert same(shifted, there(shifted, PLAIN))


@pytest.mark.parametrize(
    "name",
    [
        *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
        *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    ],
)
def test_numbers_of_ml_dtypes_go_without_pickle(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    for count in (0, 6, 3000):  # in the body, and in a block
        array = np.arange(1, count + 1).reshape(-1, 3).astype(dtype)
        for sent in (array, array[::2], array.T):
            got = there(sent, PLAIN)
            assert got.dtype == dtype and got.shape == sent.shape and got.tobytes() == sent.tobytes()


def test_a_tensor_of_ml_dtypes_goes_without_pickle() -> None:
    tensor = shmtensor.arange(20, dtype=shmtensor.float32).to(shmtensor.bfloat16).view(4, 5).share_memory_()
    for sent in (tensor, tensor.t(), tensor[:, ::2]):
        got = there(sent, PLAIN)
        assert got.dtype == shmtensor.bfloat16 and got.tolist() == sent.tolist()
        got.zero_()
    assert tensor.tolist() == [[0] * 5] * 4


def test_a_dict_keeps_its_order() -> None:
    value = dict.fromkeys(random.Random(1).sample(range(1000), 500))
    assert list(there(value, PLAIN)) == list(value)


def test_an_object_that_occurs_twice_is_one_object_there() -> None:
    inner, text, data, number = [1], "text " * 3, b"data" * 3, complex(1, 2)
    arr, tensor = np.arange(3), shmtensor.zeros(3)
    pair = (inner, 5)
    value = [inner, text, data, arr, tensor, pair, number, {"k": inner, "p": pair}]
    got = there([value, inner, text, data, arr, tensor, pair, number], PLAIN)
    for i, again in enumerate(got[1:]):
        assert got[0][i] is again
    assert got[0][7]["k"] is got[0][0] is got[0][7]["p"][0]
    assert got[0][7]["p"] is got[0][5]


def test_equal_objects_that_are_two_stay_two() -> None:
    got = there([[1], [1], np.zeros(2), np.zeros(2)], PLAIN)
    assert got[0] is not got[1]
    assert not np.shares_memory(got[2], got[3])


def test_thousands_of_shared_objects() -> None:
    parts = [[i] for i in range(5000)]
    got = there([parts, parts[::-1]], PLAIN)
    assert all(a is b for a, b in zip(got[0], got[1][::-1], strict=True))
    assert got == [parts, parts[::-1]]


def test_cycles_go_by_pickle() -> None:
    cycle: list[Any] = [1]
    cycle.append(cycle)
    got = there(cycle, PICKLED)
    assert got[1] is got
    around: dict[str, Any] = {}
    around["t"] = (around, [around])
    got = there(["x", around], PICKLED)[1]
    assert got["t"][0] is got is got["t"][1][0]


def test_deep_values_go_by_pickle() -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return value

    assert there(nested(32), PLAIN) == nested(32)
    assert there(nested(33), PICKLED) == nested(33)
    with pytest.raises(RecursionError):
        there(nested(100_000))


class Text(str):
    __slots__ = ()


class Row(list):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    "value",
    [
        2**63, -(2**63) - 1, 10**50, Level.LOW, Text("t"), Row([1]), {1, 2}, frozenset([3]), bytearray(b"xy"),
        OrderedDict(a=1), deque([1]), Decimal("1.5"), Fraction(1, 3), range(3), Record("r", [1]), np.float32(1.5),
        np.int64(3), array.array("d", [1, 2]), ..., int, len, np.dtype("f4"),
    ],
    ids=kind,
)  # fmt: skip
def test_what_is_not_plain_goes_by_pickle(value: Any) -> None:
    for shifted in (value, [1, value, {"k": value}]):
        got = there(shifted, PICKLED)
        assert got == shifted
    assert type(got[1]) is type(value)
    assert got[1] is got[2]["k"] or type(value) is int


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values())
def test_arrives_as_by_pickle(value: Any) -> None:
    got, expected = there(value), pickled(value)
    assert same(expected, got)
    assert same(value, got)


def test_a_client_that_is_none_is_looked_for_only_when_it_is_needed() -> None:
    with world() as w:
        code = """
import sys
from shmtensor import _native
assert _native.unpack(*_native.pack(None, [1, "a", {2: 3.5}])) == [1, "a", {2: 3.5}]
assert not {"numpy", "shmtensor.ipc.codec", "shmtensor.manager.client"} & set(sys.modules)
import numpy as np
assert _native.unpack(*_native.pack(None, [np.zeros(3), {1, 2}]))[1] == {1, 2}
from shmtensor.manager import client
assert not client._managers
body, blocks = _native.pack(None, np.ones(1000))
assert len(client._managers) == 1
assert _native.unpack(body, blocks).sum() == 1000
"""
        w.run(code)


def test_the_client_must_be_one() -> None:
    with pytest.raises(TypeError, match="client"):
        _native.pack(3, np.zeros(1000))  # type: ignore[arg-type]
