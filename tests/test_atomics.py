"""Atomic operations: the effect of each, no lost updates between processes, and no effect of bad input."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from manager_world import BOUND

import shmtensor
import shmtensor.multiprocessing as mp
from shmtensor import atomics, errors

INTEGERS = (shmtensor.int32, shmtensor.int64)
FLOATS = (shmtensor.float32, shmtensor.float64)
OTHERS = (shmtensor.uint8, shmtensor.int8, shmtensor.int16, shmtensor.float16, shmtensor.bool_)
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")
PROCESSES = 4
ADDITIONS = 20_000


def in_processes(target: Callable[..., None], *args: Any) -> None:
    ctx = mp.get_context("fork")
    processes = [ctx.Process(target=target, args=(i, *args)) for i in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(BOUND)
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.exitcode is None:
            process.kill()
            process.join()
    assert codes == [0] * PROCESSES


# ------------------------------------------------------------------------------------------------------------ integers


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_load_and_store(dtype: Any) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    t = shmtensor.tensor([1, 2, 3], dtype=dtype)
    for value in (low, -1, 0, high):
        for order in ("relaxed", "release", "seq_cst"):
            atomics.store(t, 1, value, order)
            for read in ("relaxed", "acquire", "seq_cst"):
                assert atomics.load(t, 1, read) == value
    assert t.tolist() == [1, high, 3]
    assert type(atomics.load(t, 0)) is int


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_read_and_write_in_one(dtype: Any, order: Any) -> None:
    t = shmtensor.tensor([10, 20, 30], dtype=dtype)
    assert atomics.exchange(t, 0, -7, order) == 10
    assert atomics.fetch_add(t, 1, 5, order) == 20
    assert atomics.fetch_add(t, 1, -26, order) == 25
    assert atomics.compare_exchange(t, 2, 30, 31, order) == (True, 30)
    assert atomics.compare_exchange(t, 2, 30, 32, order) == (False, 31)
    assert t.tolist() == [-7, -1, 31]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_fetch_add_wraps_around(dtype: Any) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    t = shmtensor.tensor([high, 0], dtype=dtype)
    assert atomics.fetch_add(t, 0, 1) == high
    assert atomics.load(t, 0) == low
    assert atomics.fetch_add(t, 0, -1) == low
    assert t.tolist() == [high, 0]


def test_indices() -> None:
    t = shmtensor.zeros(3, 4, dtype=shmtensor.int64)
    atomics.store(t, (1, 2), 1)
    atomics.store(t, (-1, -4), 2)
    atomics.store(t.t(), (3, 0), 3)
    atomics.store(t[1:, ::2], (np.int64(0), 0), 4)
    assert t.tolist() == [[0, 0, 0, 3], [4, 0, 1, 0], [2, 0, 0, 0]]
    single = t.select(0, 0).select(0, 3)
    assert atomics.fetch_add(single, (), 1) == 3
    assert atomics.load(t, (0, 3)) == 4
    assert atomics.load(t[1], (0,)) == 4
    assert atomics.load(t[1], np.int8(2)) == 1


def test_a_storage_that_moved_is_followed() -> None:
    t = shmtensor.zeros(4, dtype=shmtensor.int64)
    atomics.fetch_add(t, 0, 1)
    t.share_memory_()
    atomics.fetch_add(t, 0, 1)
    assert t.tolist() == [2, 0, 0, 0]


# -------------------------------------------------------------------------------------------------------------- floats


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_add(dtype: Any) -> None:
    t = shmtensor.tensor([0.5, 1.0], dtype=dtype)
    assert atomics.add_(t, 0, 0.25) is t
    atomics.add_(t, -1, np.float32(2))
    atomics.add_(t, 1, 3)
    assert t.tolist() == [0.75, 6.0]
    atomics.add_(t, 0, float("nan"))
    atomics.add_(t, 0, 1.0)  # bits are compared, so that NaN does not loop for ever
    atomics.add_(t, 1, float("-inf"))
    assert np.isnan(t.numpy()[0])
    assert t.numpy()[1] == float("-inf")


# ----------------------------------------------------------------------------------------------------------- index_add


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("rows", [0, 5, 300])
def test_index_add(dtype: Any, dim: int, rows: int) -> None:
    random = np.random.default_rng(rows)
    shape = [3, 4, 5]
    index = random.integers(0, shape[dim], rows)
    out = random.integers(-9, 9, shape).astype(dtype)
    shape[dim] = rows
    source = random.integers(-9, 9, shape).astype(dtype)
    expected = out.copy()
    np.add.at(expected, (*[slice(None)] * (dim % 3), index), 3 * source)
    for form in (index, index.astype(np.int32), index.tolist(), shmtensor.from_numpy(index.copy())):
        t = shmtensor.from_numpy(out.copy())
        assert atomics.index_add_atomic_(t, dim, form, shmtensor.from_numpy(source.copy()), 3) is t
        np.testing.assert_array_equal(t.numpy(), expected)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_index_add_of_single_elements(dtype: Any) -> None:
    t = shmtensor.zeros(4, dtype=dtype)
    assert t.index_add_atomic_(0, [3, 1, 3], shmtensor.tensor([1, 2, 4], dtype=dtype)) is t
    t[::2].index_add_atomic_(0, np.array([1], np.uint8), shmtensor.tensor([8], dtype=dtype), alpha=-1)
    assert t.tolist() == [0, 2, -8, 5]


def test_index_add_scales_by_fractions() -> None:
    t = shmtensor.zeros(2, 2)
    atomics.index_add_atomic_(t, 0, [1, 1], shmtensor.ones(2, 2), 0.25)
    assert t.tolist() == [[0, 0], [0.5, 0.5]]


def test_index_add_of_integers_wraps_around() -> None:
    t = shmtensor.tensor([2**31 - 1], dtype=shmtensor.int32)
    atomics.index_add_atomic_(t, 0, [0, 0], shmtensor.tensor([1, 2**30], dtype=shmtensor.int32), 4)
    assert t.tolist() == [-(2**31) + 3]


def test_index_add_of_itself_adds_the_values_from_before() -> None:
    t = shmtensor.arange(600)
    atomics.index_add_atomic_(t, 0, np.arange(600)[::-1], t)
    assert t.tolist() == [599] * 600


def test_index_add_on_expanded_memory() -> None:
    one = shmtensor.zeros(1, dtype=shmtensor.int64)
    wide = shmtensor.from_numpy(np.lib.stride_tricks.as_strided(one.numpy(), (4,), (0,)))
    atomics.index_add_atomic_(wide, 0, [0, 1, 2, 3], shmtensor.tensor([1, 2, 3, 4]))
    assert one.tolist() == [10]


# ---------------------------------------------------------------------------------------------- many at the same time


def _count(_: int, counter: Any, order: str) -> None:
    for _i in range(ADDITIONS):
        atomics.fetch_add(counter, 0, 1, order)


@pytest.mark.parametrize("order", ["relaxed", "seq_cst"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_no_addition_is_lost(dtype: Any, order: str) -> None:
    counter = shmtensor.zeros(1, dtype=dtype).share_memory_()
    in_processes(_count, counter, order)
    assert atomics.load(counter, 0) == PROCESSES * ADDITIONS


def _add(_: int, total: Any) -> None:
    for _i in range(ADDITIONS):
        atomics.add_(total, 0, 0.5)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_no_float_addition_is_lost(dtype: Any) -> None:
    total = shmtensor.zeros(1, dtype=dtype).share_memory_()
    in_processes(_add, total)
    assert total.item() == PROCESSES * ADDITIONS / 2


def _raise_by_three(_: int, cell: Any) -> None:
    for _i in range(ADDITIONS // 10):
        found = atomics.load(cell, 0, "relaxed")
        while True:
            done, found = atomics.compare_exchange(cell, 0, found, found + 3)
            if done:
                break


def test_compare_exchange_loops_lose_nothing() -> None:
    cell = shmtensor.zeros(1, dtype=shmtensor.int64).share_memory_()
    in_processes(_raise_by_three, cell)
    assert cell.item() == PROCESSES * (ADDITIONS // 10) * 3


def _take(own: int, tokens: Any, takers: Any) -> None:
    for i in range(len(tokens)):
        if atomics.exchange(tokens, i, 0):
            atomics.fetch_add(takers, i, 1 << (8 * own))


def test_exchange_gives_each_token_to_one() -> None:
    tokens = shmtensor.ones(2000, dtype=shmtensor.int32).share_memory_()
    takers = shmtensor.zeros(2000, dtype=shmtensor.int64).share_memory_()
    in_processes(_take, tokens, takers)
    assert set(takers.tolist()) <= {1 << (8 * i) for i in range(PROCESSES)}
    assert not tokens.any()


def _publish(own: int, flag: Any, data: Any) -> None:
    if own == 0:
        for i in range(1, 200):
            data[:] = i
            atomics.store(flag, 0, i, "release")
            while atomics.load(flag, 0, "acquire") != -i:
                pass
    elif own == 1:
        for i in range(1, 200):
            while atomics.load(flag, 0, "acquire") != i:
                pass
            assert (data.numpy() == i).all()
            atomics.store(flag, 0, -i, "release")


def test_release_and_acquire_publish() -> None:
    flag = shmtensor.zeros(1, dtype=shmtensor.int64).share_memory_()
    data = shmtensor.zeros(64, dtype=shmtensor.int64).share_memory_()
    in_processes(_publish, flag, data)


def _index_add(own: int, table: Any) -> None:
    random = np.random.default_rng(own)
    source = shmtensor.ones(500, 8, dtype=table.dtype)
    for _i in range(20):
        atomics.index_add_atomic_(table, 0, random.integers(0, 7, 500), source, 2)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_no_row_is_lost(dtype: Any) -> None:
    table = shmtensor.zeros(7, 8, dtype=dtype).share_memory_()
    in_processes(_index_add, table)
    columns = table.sum(0).tolist()
    assert columns == [PROCESSES * 20 * 500 * 2] * 8


def test_threads_share_tensors_on_the_heap() -> None:
    table = shmtensor.zeros(7, 8)
    threads = [threading.Thread(target=_index_add, args=(i, table)) for i in range(PROCESSES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert table.sum(0).tolist() == [PROCESSES * 20 * 500 * 2] * 8


# ----------------------------------------------------------------------------------------------------------- bad input

INTEGER_CALLS: list[Callable[..., Any]] = [
    lambda t, i: atomics.load(t, i),
    lambda t, i: atomics.store(t, i, 9),
    lambda t, i: atomics.exchange(t, i, 9),
    lambda t, i: atomics.fetch_add(t, i, 9),
    lambda t, i: atomics.compare_exchange(t, i, 1, 9),
]


@pytest.mark.parametrize("call", [*INTEGER_CALLS, lambda t, i: atomics.add_(t, i, 9)])
def test_indices_out_of_range_touch_nothing(call: Callable[..., Any]) -> None:
    whole = shmtensor.ones(9, dtype=shmtensor.int64 if call in INTEGER_CALLS else shmtensor.float64)
    t = whole[3:6]
    for index in (3, -4, 2**62, -(2**63), 2**70, -(2**70)):
        with pytest.raises(errors.IndexOutOfRange, match="3 elements"):
            call(t, index)
    for index in ("0", 1.0, None, True, [0], (0, 0), (), ("0",), slice(0, 1)):
        with pytest.raises(errors.InvalidArgument, match="index"):
            call(t, index)
    with pytest.raises(errors.IndexOutOfRange):
        call(t[:0], 0)
    with pytest.raises(errors.IndexOutOfRange, match="axis 1 has 1 elements"):
        call(t.view(3, 1), (0, 1))
    assert whole.tolist() == [1] * 9


def test_types_are_named() -> None:
    for dtype in OTHERS:
        t = shmtensor.ones(2, dtype=dtype)
        for call in INTEGER_CALLS:
            with pytest.raises(errors.DTypeError, match=f"int32 or int64, but the tensor has {dtype.name}"):
                call(t, 0)
        with pytest.raises(errors.DTypeError, match=f"float32 or float64, but the tensor has {dtype.name}"):
            atomics.add_(t, 0, 1.0)
        with pytest.raises(errors.DTypeError, match=f"the tensor has {dtype.name}"):
            atomics.index_add_atomic_(t, 0, [0], t[:1])
    with pytest.raises(errors.DTypeError, match="has float32"):
        atomics.fetch_add(shmtensor.ones(2), 0, 1)
    with pytest.raises(errors.DTypeError, match="has int64"):
        atomics.add_(shmtensor.ones(2, dtype=shmtensor.int64), 0, 1.0)


def test_orders() -> None:
    t = shmtensor.ones(2, dtype=shmtensor.int64)
    calls: list[Callable[[Any], Any]] = [
        lambda o: atomics.load(t, 0, o),
        lambda o: atomics.store(t, 0, 9, o),
        lambda o: atomics.exchange(t, 0, 9, o),
        lambda o: atomics.fetch_add(t, 0, 9, o),
        lambda o: atomics.compare_exchange(t, 0, 1, 9, o),
    ]
    for call in calls:
        for order in ("consume", "", "Relaxed", None, 5, b"relaxed"):
            with pytest.raises(errors.InvalidArgument, match="order"):
                call(order)
    for order in ("release", "acq_rel"):
        with pytest.raises(errors.InvalidArgument, match=f'order \'{order}\'; use "relaxed", "acquire" or'):
            calls[0](order)
    for order in ("acquire", "acq_rel"):
        with pytest.raises(errors.InvalidArgument, match=f'order \'{order}\'; use "relaxed", "release" or'):
            calls[1](order)
    assert t.tolist() == [1, 1]


def test_values() -> None:
    narrow, wide = (shmtensor.ones(2, dtype=dtype) for dtype in INTEGERS)
    for t, value, limit in ((narrow, 2**31, "int32"), (narrow, -(2**31) - 1, "int32"), (wide, 2**63, "int64")):
        for call in (atomics.store, atomics.exchange, atomics.fetch_add):
            with pytest.raises(errors.InvalidArgument, match=limit):
                call(t, 0, value)
        with pytest.raises(errors.InvalidArgument, match=limit):
            atomics.compare_exchange(t, 0, value, 1)
        with pytest.raises(errors.InvalidArgument, match=limit):
            atomics.compare_exchange(t, 0, 1, value)
    for value in (1.0, "1", None):
        with pytest.raises(errors.DTypeError, match="not an integer"):
            atomics.fetch_add(wide, 0, value)  # type: ignore[arg-type]
    for value in ("1", None, 1j):
        with pytest.raises(errors.DTypeError, match="not a real number"):
            atomics.add_(shmtensor.ones(2), 0, value)  # type: ignore[arg-type]
    assert narrow.tolist() == wide.tolist() == [1, 1]


@pytest.mark.parametrize("index", [[0, 3], [0, -1], [2**62, 0], np.array([0, 2**64 - 1], np.uint64)])
def test_index_add_out_of_range_adds_nothing(index: Any) -> None:
    whole = shmtensor.zeros(5, 2)
    with pytest.raises(errors.IndexOutOfRange, match="the axis has 3 elements, use 0 to 2"):
        atomics.index_add_atomic_(whole[1:4], 0, index, shmtensor.ones(2, 2))
    assert not whole.any()


def test_index_add_with_arguments_that_do_not_fit() -> None:
    t = shmtensor.zeros(3, 2)
    for index, shape in (([0], (2, 2)), ([0, 1], (2, 3)), ([0, 1], (2, 2, 1)), ([[0, 1]], (2, 2)), (0, (1, 2))):
        with pytest.raises(errors.InvalidArgument):
            atomics.index_add_atomic_(t, 0, index, shmtensor.ones(*shape))
    for dim in (2, -3, 2**70):
        with pytest.raises(errors.IndexOutOfRange, match="axis"):
            atomics.index_add_atomic_(t, dim, [0], shmtensor.ones(1, 2))
    with pytest.raises(errors.IndexOutOfRange, match="axis"):
        atomics.index_add_atomic_(shmtensor.tensor(1.0), 0, [0], shmtensor.ones(1))
    with pytest.raises(errors.InvalidArgument, match="list of integers"):
        atomics.index_add_atomic_(t, 0, [[0], [0, 1]], shmtensor.ones(2, 2))
    for index in ([0.0], ["a"], [True], [None]):
        with pytest.raises(errors.DTypeError, match="index"):
            atomics.index_add_atomic_(t, 0, index, shmtensor.ones(1, 2))
    with pytest.raises(errors.DTypeError, match="float64 for a tensor of float32"):
        atomics.index_add_atomic_(t, 0, [0], shmtensor.ones(1, 2, dtype=shmtensor.float64))
    with pytest.raises(errors.DTypeError, match="alpha"):
        whole = shmtensor.zeros(3, dtype=shmtensor.int64)
        atomics.index_add_atomic_(whole, 0, [0], shmtensor.ones(1, dtype=shmtensor.int64), 0.5)
    with pytest.raises(errors.InvalidArgument, match="int32"):
        narrow = shmtensor.zeros(3, dtype=shmtensor.int32)
        atomics.index_add_atomic_(narrow, 0, [0], shmtensor.ones(1, dtype=shmtensor.int32), 2**31)
    with pytest.raises(errors.InvalidArgument, match=r"need a Tensor, not numpy\.ndarray; use shmtensor\.asarray"):
        atomics.index_add_atomic_(t, 0, [0], np.ones((1, 2), np.float32))  # type: ignore[arg-type]
    assert not t.any()


def test_only_tensors() -> None:
    for call in INTEGER_CALLS:
        with pytest.raises(errors.InvalidArgument, match=r"need a Tensor, not numpy\.ndarray; use shmtensor\.asarray"):
            call(np.zeros(3, np.int64), 0)
    with pytest.raises(errors.InvalidArgument, match="need a Tensor, not list"):
        atomics.add_([0.0], 0, 1.0)  # type: ignore[arg-type]


def test_memory_that_cannot_be_used() -> None:
    from shmtensor import _native

    crooked = np.zeros(17, np.uint8)[1:].view(np.int64)
    with pytest.raises(errors.LayoutError, match="aligned"):
        _native.atomic_load(crooked, 0, "seq_cst")
    fixed = np.zeros(2, np.int64)
    fixed.flags.writeable = False
    with pytest.raises(errors.LayoutError, match="read-only"):
        _native.atomic_store(fixed, 0, 1, "seq_cst")
    with pytest.raises(errors.LayoutError, match="read-only"):
        _native.atomic_index_add(fixed, np.zeros(1, np.int64), np.ones(1, np.int64), 1)
    assert _native.atomic_load(fixed, 0, "seq_cst") == 0
    with pytest.raises(errors.DTypeError):
        _native.atomic_load(fixed.astype(">i8"), 0, "seq_cst")
    with pytest.raises(TypeError, match="ndarray"):
        _native.atomic_load([0], 0, "seq_cst")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="one axis"):
        _native.atomic_index_add(np.zeros(2), np.zeros(1, np.int32), np.ones(1), 1)
