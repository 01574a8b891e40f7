"""The codec and memory: tensors that alias, arrays in blocks, and no leaks."""

from __future__ import annotations

import gc
import math
import os
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest
from codec_world import PICKLED, PLAIN, Level, Record, Refuses, held, native, nothing_is_kept, pickled, same, there
from manager_world import BOUND, world

import shmtensor
from shmtensor import _native, errors
from shmtensor._tensor.methods import Tensor
from shmtensor.ipc import codec
from shmtensor.storage import FloatStorage, Storage

nothing_kept = pytest.fixture(autouse=True)(nothing_is_kept)


# -------------------------------------------------------------------------------------------------------------- tensors


@pytest.mark.parametrize("dtype", [row.dtype for row in shmtensor.dtypes.ELEMENT_TYPES], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 5), (2, 3, 4), (1,) * 32])
def test_a_tensor_aliases(dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = shmtensor.zeros(shape, dtype=dtype)
    got = there(tensor, PLAIN)
    assert type(got) is Tensor
    assert (got.shape, got.dtype, got.stride()) == (shape, dtype, tensor.stride())
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


# --------------------------------------------------------------------------------------------------------------- arrays


INLINE = 512  # bytes of an array that has no block


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


# ----------------------------------------------------------------------------------------------------- memory that goes


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
    before = native().stats().nbytes
    got = there(np.zeros(1 << 20, "u1"))
    part = got[5:10]
    del got
    assert native().stats().nbytes == before + (1 << 20)
    del part
    assert native().stats().nbytes == before


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
