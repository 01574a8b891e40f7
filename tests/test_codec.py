"""The codec: values in, values out; by block what is memory, by pickle what is neither plain nor memory."""

from __future__ import annotations

import array
import enum
import gc
import math
import os
import pickle
import random
import socket
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manager_world import BOUND, World, until, world

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import _native, codec, errors
from shmtensor._tensor import Tensor
from shmtensor.manager import client
from shmtensor.storage import FloatStorage, Storage

PLAIN, PICKLED, TICKETED = 1, 2, 3
INLINE = 512  # bytes of an array that has no block


def native() -> _native.Client:
    return client.default().native


def held() -> int:
    """Blocks that this process holds."""
    gc.collect()
    return native().stats()[2]


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    before = held()
    yield
    until(lambda: held() <= before, f"at most {before} blocks held, as before the test")
    assert in_flight() == 0


def kind(value: Any) -> str:
    return type(value).__name__


def there(value: Any, kind: int | None = None) -> Any:
    """The value as another process would get it, but for the memory that it aliases here."""
    body, blocks = _native.pack(native(), value)
    assert kind is None or body[0] == kind, f"went as {body[0]}"
    return _native.unpack(body, blocks)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def same(a: Any, b: Any) -> bool:
    """Equal in class, value (a nan is itself) and, inside, in which objects are one."""
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
            return x.requires_grad == y.requires_grad and equal(x._live(), y._live())
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


# ------------------------------------------------------------------------------------------------------- plain values

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


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


class Row(list):  # type: ignore[type-arg]
    pass


@dataclass
class Record:
    name: str
    content: Any


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


# ---------------------------------------------------------------------------------------------------------- hypothesis

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
    """Nested values some of whose parts occur more than once."""
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


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values())
def test_arrives_as_by_pickle(value: Any) -> None:
    got, expected = there(value), pickled(value)
    assert same(expected, got)
    assert same(value, got)


@settings(max_examples=300, deadline=None)
@given(values(), st.data())
def test_a_damaged_body_is_an_error_and_no_more(value: Any, data: st.DataObject) -> None:
    body, blocks = _native.pack(native(), value)
    damaged = bytearray(body[: data.draw(st.integers(0, len(body)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if damaged[:1] == bytes([PICKLED]):
        return  # pickle trusts what it reads
    kept = blocks[: data.draw(st.integers(0, len(blocks)))]
    with suppress(errors.MessageDamaged):
        _native.unpack(bytes(damaged), kept)


def test_every_cut_of_a_body_is_noticed() -> None:
    value = [1, 2.5, "text", b"b", (None, {"a": np.arange(3)}), np.zeros(1000), shmtensor.ones(3), 2**40, [1j]]
    body, blocks = _native.pack(native(), value)
    for end in range(len(body)):
        with pytest.raises(errors.MessageDamaged):
            _native.unpack(body[:end], blocks)
    with pytest.raises(errors.MessageDamaged):
        _native.unpack(body + b"\0", blocks)
    with pytest.raises(errors.MessageDamaged, match="cut off"):
        _native.unpack(body, blocks[:1])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\0", b"\x07\x01", b"\x01\x63",
        b"\x01\x0c\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a tuple of very many
        b"\x01\x0d\xff\xff\xff\xff\x0f",
        b"\x01\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x01\x00\x00", b"\x01\x00\x01", b"\x01\x8d\x01\x00\x01",  # references: to nothing, to what is being read
        b"\x01\x0a\x01\x00\x00\x11\x00",  # beyond the last code point
        b"\x01\x0e\x01\x0d\x00\x01",  # a list as key
        b"\x01" + b"\x0d\x01" * 40 + b"\x01",  # deep
        b"\x01\x10\x11\x00", b"\x01\x10\x63\x00",  # no such element type
        b"\x01\x10\x0c\x3f" + b"\x01" * 63,  # too many axes
        b"\x01\x10\x0c\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x02",
        b"\x02\x01\x02\x00\x00", b"\x02\x01\x03\x00\x00", b"\x02\x00\x7f",
    ],
)  # fmt: skip
def test_forged_bodies(body: bytes) -> None:
    with pytest.raises(errors.MessageDamaged):
        _native.unpack(body, [])


def test_forged_places_in_a_block() -> None:
    block = native().allocate(64)
    for place in (
        b"\x0c\x01\x11\x00\x00",  # 17 elements
        b"\x0c\x01\x10\x00\x08",  # 16 from the second on
        b"\x0c\x01\x01\x00\x40",
        b"\x0c\x01\x01\x01\x00",  # of another block
        b"\x0c\x41\x02\x00\x00\x03",  # backwards from the start
        b"\x0c\x41\x02\x00\x00\x80\x01",
        b"\x0c\x41\x02\x00\x3f\x08",
    ):
        with pytest.raises(errors.MessageDamaged):
            _native.unpack(b"\x01\x0f" + place, [block])
    assert _native.unpack(b"\x01\x0f\x0c\x01\x08\x00\x00", [block]).shape == (8,)  # float64
    assert _native.unpack(b"\x01\x0f\x0c\x41\x02\x00\x38\x6f", [block]).stride() == (-7,)


# ------------------------------------------------------------------------------------------------------------ tensors


@pytest.mark.parametrize("dtype", [row.dtype for row in shmtensor.dtypes.ELEMENT_TYPES], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 5), (2, 3, 4), (1,) * 32])
def test_a_tensor_aliases(dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = shmtensor.zeros(shape, dtype=dtype)
    tensor.requires_grad = True
    got = there(tensor, PLAIN)
    assert type(got) is Tensor
    assert (got.shape, got.dtype, got.stride(), got.requires_grad) == (shape, dtype, tensor.stride(), True)
    assert tensor.is_shared()
    got.fill_(1)
    assert tensor.numpy().sum() == tensor.numel()
    assert got.storage() is tensor.storage()


def test_views_of_tensors() -> None:
    tensor = shmtensor.tensor(np.arange(60.0).reshape(3, 4, 5))
    for view in (
        tensor[1], tensor[:, 1:3], tensor.transpose(0, 2), tensor[2, 3, 4], tensor[:, ::2, 1:5:3], tensor[3:], tensor
    ):  # fmt: skip
        got = there(view, PLAIN)
        assert (got.shape, got.stride(), got.tolist()) == (view.shape, view.stride(), view.tolist())
        if view.numel():
            assert got.data_ptr() == view.data_ptr()


def test_tensors_on_one_storage_alias_there_as_well() -> None:
    tensor = shmtensor.zeros(10)
    body, blocks = _native.pack(native(), [tensor, tensor[2:5], {"view": tensor[3]}])
    assert body[0] == PLAIN
    assert len(blocks) == 1
    whole, part, views = _native.unpack(body, blocks)
    views["view"].fill_(7)
    assert part.tolist() == [0, 7, 0]
    assert whole[3].item() == 7
    assert whole.storage() is part.storage()


def test_a_tensor_whose_storage_has_moved() -> None:
    tensor = shmtensor.zeros(4)
    view = tensor[1:3]
    tensor.storage().share_memory_()  # neither knows yet
    got = there([view, tensor], PLAIN)
    got[1].fill_(5)
    assert tensor.tolist() == [5] * 4
    assert view.tolist() == [5, 5] == got[0].tolist()


def test_a_tensor_received_can_be_sent_on() -> None:
    got = there(there(shmtensor.ones(5), PLAIN), PLAIN)
    assert got.tolist() == [1] * 5


def test_many_tensors() -> None:
    tensors = [shmtensor.full((7,), i) for i in range(1000)]
    got = there([tensors, tensors[::2]], PLAIN)
    assert [t[0].item() for t in got[0]] == list(range(1000))
    assert all(a is b for a, b in zip(got[0][::2], got[1], strict=True))


def test_tensors_of_other_memory_go_by_pickle(tmp_path: Any) -> None:
    storage = FloatStorage.from_file(str(tmp_path / "file"), shared=True, size=4)
    body, blocks = _native.pack(native(), Tensor(storage))
    assert body[0] == PICKLED
    assert not blocks
    got = _native.unpack(body, blocks)
    got.fill_(3)
    assert storage.tolist() == [3] * 4


def test_a_tensor_of_another_group() -> None:
    with world() as other:
        address = other.serve()
        code = "import shmtensor\ns = shmtensor.ones(4).storage()\nprint(*s._share_filename_()[:2], flush=True)\n"
        holder = other.script(code + "input()", env={"SHMTENSOR_MANAGER": os.fsdecode(address)})
        assert holder.stdout
        where, handle = holder.stdout.readline().split()
        foreign = FloatStorage._new_shared_filename(eval(where), eval(handle), 4)
        got = there([Tensor(foreign), shmtensor.zeros(2)], PICKLED)
        assert got[0].tolist() == [1] * 4
        del got, foreign
        gc.collect()
        holder.communicate("\n")


def test_storages() -> None:
    storage = FloatStorage([1, 2, 3])
    tensor = Tensor(storage)
    part = storage[1:]
    body, blocks = _native.pack(native(), [storage, tensor, part, tensor[1:], Storage(0), storage])
    assert body[0] == PICKLED
    assert len(blocks) == 2
    got = _native.unpack(body, blocks)
    got[0][1] = 9
    assert got[1].tolist() == [1, 9, 3] == tensor.tolist()
    assert got[2].tolist() == [9, 3] == got[3].tolist()
    assert got[0] is got[5] is got[1].storage()
    assert got[4].size() == 0


# -------------------------------------------------------------------------------------------------------------- arrays

DTYPES = ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q", "e", "f", "d", "g", "F", "D", "G"]


@pytest.mark.parametrize("char", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (4, 0), (700,), (20, 30, 2)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_number_type(char: str, shape: tuple[int, ...], order: Any) -> None:
    value = (np.arange(math.prod(shape)) % 2).astype(char).reshape(shape).copy(order)
    got = there(value, PLAIN)
    assert same(value, got)
    assert same(pickled(value), got)
    got[...] = 0  # the receiver's own
    assert value.size < 2 or value.any()


def test_small_arrays_lie_on_the_heap_and_large_ones_in_blocks() -> None:
    body, blocks = _native.pack(native(), [np.zeros(INLINE, "u1"), np.zeros(INLINE + 1, "u1")])
    assert len(blocks) == 1
    small, large = _native.unpack(body, blocks)
    assert small.base is None
    assert large.base is blocks[0]


@pytest.mark.parametrize("size", [5, 1000, 100_000])
def test_a_view_ships_its_own_bytes(size: int) -> None:
    base = np.arange(size * 6.0).reshape(size, 6)
    for view in (base[1:2], base[:, 2], base[::-1], base.T, base.T[::2], base[:, ::3], base.reshape(size, 2, 3)[:, 0],
                 np.broadcast_to(base[:1], (3, 6))):  # fmt: skip
        body, blocks = _native.pack(native(), view)
        assert sum(b.nbytes for b in blocks) + len(body) <= view.nbytes + 64
        got = _native.unpack(body, blocks)
        assert same(pickled(view), got)


def test_arrays_arrive_writable_and_as_the_receivers_own() -> None:
    for size in (3, 3000):
        value = np.zeros(size)
        value.flags.writeable = False
        got = there([value, [Record("r", value)]], PICKLED)
        assert got[0] is got[1][0].content
        got[0][0] = 1
        got = there(value, PLAIN)
        got[0] = 1
        assert value[0] == 0


def test_an_array_over_a_tensor_is_copied() -> None:
    tensor = shmtensor.zeros(1000).share_memory_()
    got = there([tensor.numpy(), tensor], PLAIN)
    got[0][0] = 1
    assert got[1][0].item() == 0


class Matrix(np.ndarray):
    pass


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3, ">f4"), np.zeros(3, [("a", "f4"), ("b", "i2")]), np.array(["2020-01-01"], "M8[D]"),
        np.array(["a", "b"]), np.array([b"a"]), np.array([1, "x", None], object), np.zeros((2, 2)).view(Matrix),
        np.ma.masked_array([1, 2], [0, 1]), np.zeros(5, np.dtype("f4", metadata={"a": 1})).view(">f4"),
        np.array([1], "m8[s]"), np.zeros(3, "V4"),
    ],
    ids=lambda v: f"{type(v).__name__}-{v.dtype}",
)  # fmt: skip
@pytest.mark.parametrize("repeat", [1, 600])
def test_arrays_that_are_not_plain_numbers_go_by_pickle(value: Any, repeat: int) -> None:
    value = value.repeat(repeat, axis=0)
    got = there(value, PICKLED)
    assert type(got) is type(value)
    assert got.dtype == value.dtype
    assert got.tolist() == value.tolist()
    assert got.flags.writeable


def test_an_array_whose_dtype_object_is_a_copy_is_plain() -> None:
    value = pickled(np.arange(3.0))
    assert value.dtype is not np.dtype("f8")
    assert same(value, there(value, PLAIN))


def test_arrays_inside_pickles_lie_in_blocks() -> None:
    value = Record("r", [np.arange(1000.0), np.arange(5), np.asfortranarray(np.ones((30, 40))), np.arange(2000.0)[::2]])
    body, blocks = _native.pack(native(), value)
    assert body[0] == PICKLED
    assert [b.nbytes for b in blocks] == [8000, 9600, 8000]
    got = _native.unpack(body, blocks)
    assert same(value.content, got.content)
    assert got.content[2].flags.f_contiguous
    got.content[0][:] = 3
    assert bytes(blocks[0]) == np.full(1000, 3.0).tobytes()


# -------------------------------------------------------------------------------------------------------------- pickle


def test_reducers_of_multiprocessing_work() -> None:
    a, b = socket.socketpair()
    with a, b:
        got = there(a, PICKLED)
        with got:
            got.send(b"through")
            assert b.recv(20) == b"through"
    left, right = mp.Pipe()
    moved = there([left], PICKLED)[0]
    assert isinstance(moved, connection.Connection)
    moved.send([1])
    assert right.recv() == [1]
    for end in (left, right, moved):
        end.close()


class Registered:
    pass


def test_reducers_that_users_register_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForkingPickler, "_extra_reducers", dict(ForkingPickler._extra_reducers))
    ForkingPickler.register(Registered, lambda obj: (str, ("registered",)))
    assert there([Registered()], PICKLED) == ["registered"]
    ForkingPickler.register(np.ndarray, lambda obj: (str, ("array",)))
    assert there([Registered(), np.zeros(3)], PICKLED) == ["registered", "array"]


class Refuses:
    def __init__(self, *content: Any) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("no")


class Nested:
    """Encodes while it is being encoded."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        inner = codec.encode_for_wire([self.content, Record("n", self.content)])
        plain = bytes(ForkingPickler.dumps(self.content))
        return restore, (inner, plain, self.content)


def restore(inner: bytes, plain: bytes, content: Any) -> Any:
    return codec.decode_from_wire(inner), pickle.loads(plain), content


def test_a_reducer_may_encode() -> None:
    tensor = shmtensor.ones(3)
    inner, plain, direct = there([Nested(tensor), tensor], PICKLED)[0]
    assert inner[0] is not direct
    assert inner[0].storage() is inner[1].content.storage() is plain.storage() is direct.storage() is tensor.storage()


@pytest.mark.parametrize("bad", [Refuses(), lambda: 1, threading.Lock(), (i for i in ())], ids=kind)
def test_what_cannot_be_pickled_raises_and_leaves_nothing(bad: Any) -> None:
    tensor = shmtensor.zeros(1000).share_memory_()
    before = held()
    for value in (bad, [np.zeros(1000), tensor, bad], [Record("r", np.zeros(9000)), tensor.storage(), bad]):
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            _native.pack(native(), value)
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            codec.encode_for_wire(value)
    assert held() == before


def test_a_class_that_cannot_be_imported_is_pickles_own_error() -> None:
    body, blocks = _native.pack(native(), [Record("r", 1), np.zeros(1000)])
    assert body.count(b"Record") == 1
    with pytest.raises(AttributeError, match="Recorx"):
        _native.unpack(body.replace(b"Record", b"Recorx"), blocks)
    module = __name__.encode()
    with pytest.raises(ModuleNotFoundError):
        _native.unpack(body.replace(module, b"x" * len(module)), blocks)


def test_buffers_of_users() -> None:
    assert there([Registered, pickle.PickleBuffer(b"abc")], PICKLED)[1] == b"abc"
    got = there(pickle.PickleBuffer(bytearray(2000)), PICKLED)
    assert memoryview(got).nbytes == 2000
    with pytest.raises((BufferError, pickle.PicklingError)):
        there(pickle.PickleBuffer(memoryview(bytearray(10))[::2]))


def test_a_list_that_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = shmtensor.zeros(3)
    value: list[Any] = [tensor, *range(100)]
    share = Tensor.share_memory_

    def shrink(self: Tensor) -> Tensor:
        del value[1:]
        return share(self)

    monkeypatch.setattr(Tensor, "share_memory_", shrink)
    assert len(there(value, PICKLED)) == 1
    table: dict[int, Any] = {0: shmtensor.zeros(3), 1: 2}

    def grow(self: Tensor) -> Tensor:
        table.update(dict.fromkeys(range(100), 1))
        return share(self)

    monkeypatch.setattr(Tensor, "share_memory_", grow)
    assert len(there(table, PICKLED)) == 100


def test_a_client_that_is_none_is_looked_for_only_when_it_is_needed() -> None:
    with world() as w:
        code = """
import sys
from shmtensor import _native
assert _native.unpack(*_native.pack(None, [1, "a", {2: 3.5}])) == [1, "a", {2: 3.5}]
assert not {"numpy", "shmtensor.codec", "shmtensor.manager.client"} & set(sys.modules)
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


# ---------------------------------------------------------------------------------------------------- memory that goes


def test_encoding_and_decoding_leak_nothing() -> None:
    tensor = shmtensor.zeros(100).share_memory_()
    value = [tensor, np.zeros(1000), [1.5, "text", (tensor[2:],)], {"a": b"b" * 600}]
    body, blocks = _native.pack(native(), value)
    bodies = [_native.pack(native(), [value, Record("x", value)]), (body, blocks)]
    before = held()
    watched = (tensor, value, None, Tensor, blocks[0])
    counts = [sys.getrefcount(o) for o in watched]
    for _ in range(50):
        there(value)
        there([Record("r", value), tensor.storage()])
        codec.decode_from_wire(codec.encode_for_wire([value, Level.LOW]))
        for data, named in bodies:
            _native.unpack(data, named)
            for end in range(0, len(data), 7):
                with pytest.raises((errors.MessageDamaged, pickle.UnpicklingError, EOFError, ValueError)):
                    _native.unpack(data[:end], named)
        with pytest.raises(pickle.PicklingError):
            _native.pack(native(), [value, Refuses()])
    assert held() == before
    assert all(abs(sys.getrefcount(o) - n) < 25 for o, n in zip(watched, counts, strict=True))


def test_memory_is_free_once_the_array_is() -> None:
    before = native().stats()[3]
    got = there(np.zeros(1 << 20, "u1"))
    part = got[5:10]
    del got
    assert native().stats()[3] == before + (1 << 20)
    del part
    assert native().stats()[3] == before


def test_a_large_array() -> None:
    value = np.arange(1 << 23, dtype="f8")
    got = there({"x": value}, PLAIN)["x"]
    assert np.array_equal(got, value)
    assert not np.shares_memory(got, value)


def test_threads_encode_at_once() -> None:
    tensor = shmtensor.zeros(4).share_memory_()
    problems: list[Any] = []

    def work(seed: int) -> None:
        value = [tensor, np.full(20_000, seed), [tensor[1:], np.full((300, 2), seed).T[::2]], Record("r", np.ones(900))]
        try:
            for _ in range(100):
                got = there(value)
                assert (got[1] == seed).all()
                assert (got[2][1] == seed).all()
                assert got[0].storage() is tensor.storage()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert not problems


# ---------------------------------------------------------------------------------------------------- between processes

CHILD = """
import sys
from shmtensor import codec
for line in sys.stdin:
    got = codec.decode_from_wire(bytes.fromhex(line))
    got["tensor"] += 1
    got["array"][:] = 5
    reply = [got["array"], got["views"][0] is got["views"][1], got["plain"], got["odd"]]
    print(codec.encode_for_wire(reply).hex(), flush=True)
    del got, reply
"""


def ours() -> dict[str, str]:
    """The environment of a process that finds our manager."""
    return {"SHMTENSOR_RUNTIME_DIR": os.environ["SHMTENSOR_RUNTIME_DIR"]}


def test_to_another_process_and_back() -> None:
    native()
    with world() as w:
        child = w.script(CHILD, env=ours())
        assert child.stdin and child.stdout
        tensor = shmtensor.zeros(10)
        for odd in (None, {1, 2}, Fraction(1, 3)):
            view = tensor[2:4]
            value = {
                "tensor": tensor, "array": np.zeros(1000, "f4"), "views": [view, view], "plain": [1, "a"], "odd": odd,
            }  # fmt: skip
            data = codec.encode_for_wire(value)
            del value, view
            child.stdin.write(data.hex() + "\n")
            child.stdin.flush()
            reply = child.stdout.readline()
            assert reply, child.stderr and child.stderr.read()
            got = codec.decode_from_wire(bytes.fromhex(reply))
            assert got[0].tolist() == [5] * 1000
            assert got[1:] == [True, [1, "a"], odd]
            del got
        assert tensor.tolist() == [3] * 10
        child.communicate()
        assert child.returncode == 0


def test_what_was_sent_outlives_its_sender() -> None:
    native()
    with world() as w:
        code = "import shmtensor, numpy as np\nfrom shmtensor import codec\n"
        code += "print(codec.encode_for_wire([shmtensor.ones(1000), np.full(900, 2.0)]).hex())"
        data = bytes.fromhex(w.run(code, env=ours()))
    assert data[0] == TICKETED
    got = codec.decode_from_wire(data)
    assert got[0].sum().item() == 1000
    assert got[1].sum() == 1800


def test_withdrawn_messages_leave_nothing() -> None:
    for value in ([shmtensor.ones(5), np.ones(1000)], [1], Record("r", np.ones(1000))):
        data = codec.encode_for_wire(value)
        codec.withdraw(data)
    assert in_flight() == 0


def test_a_message_read_twice() -> None:
    data = codec.encode_for_wire(np.ones(1000))
    got = codec.decode_from_wire(data)
    again = codec.decode_from_wire(data)
    assert np.shares_memory(got, again)
    del got, again
    with pytest.raises(errors.StaleHandle):
        codec.decode_from_wire(data)


def test_blocks_that_nobody_here_has_open() -> None:
    """As a receiver finds them: each block gets its face while the message is decoded."""
    tensors = [shmtensor.full((600,), i) for i in range(20)]
    value = [*tensors, np.arange(1000), tensors[3][5:], Record("r", np.ones(900)), FloatStorage([4] * 200)]
    before = held()
    body, tickets = _native.pack_tickets(native(), value)
    plain, plain_tickets = _native.pack_tickets(native(), value[:-2])
    assert (body[0], plain[0]) == (PICKLED, PLAIN)
    del value, tensors
    assert held() == before
    for data, packed in ((plain, plain_tickets), (body, tickets)):
        got = _native.unpack_tickets(native(), data, packed)
        assert [t[599].item() for t in got[:20]] == list(range(20))
        assert got[20].tolist() == list(range(1000))
        got[21].fill_(9)
        assert got[3][7].item() == 9
        assert got[3].storage() is got[21].storage()
        got[3].fill_(3)
        del got
        assert held() == before


def test_a_wire_message_that_is_cut_off() -> None:
    data = codec.encode_for_wire([np.ones(1000), np.ones(1000)])
    for end in range(1, len(data) - 12, 3):
        with pytest.raises((errors.MessageDamaged, errors.ManagerError, errors.InvalidArgument)):
            codec.decode_from_wire(data[:end])
    codec.withdraw(data)


def test_a_message_of_which_one_block_is_gone_takes_the_others_out_of_flight() -> None:
    body, tickets = _native.pack_tickets(native(), [np.ones(1000), np.ones(1000), np.ones(1000)])
    forged = bytearray(tickets)
    forged[24 + 12] ^= 1  # generation of the second
    with pytest.raises(_native.BlockGone):
        _native.unpack_tickets(native(), body, bytes(forged))
    assert in_flight() == 1
    with pytest.raises(_native.BlockGone):
        _native.unpack_tickets(native(), body, tickets)
    assert in_flight() == 0


def test_a_message_whose_manager_is_gone() -> None:
    with world() as w:
        w.serve()
        code = "import numpy as np\nfrom shmtensor import codec\nprint(codec.encode_for_wire(np.ones(1000)).hex())"
        data = bytes.fromhex(w.run(code))
        stop(w)
        with pytest.raises(errors.SegmentLost, match="ended before"):
            codec.decode_from_wire(data)


def stop(w: World) -> None:
    w.server.terminate()
    w.server.wait(BOUND)
