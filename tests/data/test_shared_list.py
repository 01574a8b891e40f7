"""SharedList: its objects, and one memory for all processes."""

import gc
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor.data import SharedList
from shmtensor.errors import DTypeError, IndexOutOfRange

BOUND = 60


class Own:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Own and other.value == self.value


LISTS = [
    [],
    [1, -5, 2**63 - 1, -(2**63)],
    [1, 2**63],
    [1.5, float("inf"), -0.0],
    [True, False, True],
    ["a", "", "größer", "\ud800", "x" * 1000],
    [b"a", b"", bytes(range(256))],
    [1, "a", None],
    [1, True],
    [1, 2.0],
    [bytearray(b"a")],
    [{"path": "a.png", "label": 1}, {"path": "b.png", "label": 2}],
    [Own(1), Own([2])],
    [None],
    [(1, 2), [3]],
]


@pytest.mark.parametrize("values", LISTS, ids=lambda values: "-".join(type(one).__name__ for one in values[:4]))
def test_objects_come_back(values):
    shared = SharedList(values)
    assert len(shared) == len(values) and shared.tolist() == values == list(shared) and shared == values
    assert [type(one) for one in shared] == [type(one) for one in values]
    assert [shared[i] for i in range(-len(values), 0)] == values
    assert SharedList(iter(values)) == values and SharedList(tuple(values)) == values
    assert pickle.loads(pickle.dumps(shared)) == values
    assert shared._stored.is_shared()


def test_simple_lists_have_no_pickles():
    for values, width in (
        ([1] * 100, 8),
        ([1.0] * 100, 8),
        ([True] * 100, 1),
        (["abc"] * 100, 11),
        ([b"abcd"] * 100, 12),
    ):
        assert SharedList(values).nbytes <= 100 * width + 16


def test_arrays_and_tensors_are_content():
    shared = SharedList([np.arange(3), st.ones(2)])
    assert shared[0].tolist() == [0, 1, 2] and shared[1].tolist() == [1, 1]
    shared[0][0] = 9
    assert shared[0][0] == 0  # each time a new object


@pytest.mark.parametrize("part", [slice(2, 5), slice(None, None, -1), slice(1, None, 2), slice(5, 2), slice(-3, None)])
def test_slices_share_the_memory(part):
    values = [str(i) for i in range(7)]
    shared = SharedList(values)[part]
    assert isinstance(shared, SharedList) and shared == values[part] and shared[::-1] == values[part][::-1]
    assert shared._stored.data_ptr() == SharedList(shared)._stored.data_ptr()


def test_sequences():
    shared = SharedList(["a", "b", "a"])
    assert "b" in shared and "c" not in shared and shared.count("a") == 2 and shared.index("b") == 1
    assert shared != ["a"] and shared != 5 and shared[np.int64(1)] == "b" and list(reversed(shared)) == ["a", "b", "a"]
    assert "3 objects" in repr(shared)
    with pytest.raises(TypeError):
        hash(shared)


def test_wrong_indices():
    shared = SharedList([1, 2])
    for index in (2, -3):
        with pytest.raises(IndexOutOfRange, match="2 objects"):
            shared[index]
    for index in ("a", 1.0, None):
        with pytest.raises(DTypeError):
            shared[index]


def test_an_object_that_cannot_be_pickled_is_named():
    with pytest.raises(DTypeError, match="object 1, a function"):
        SharedList([1, lambda: 1])


def test_large_lists_go_through_several_buffers(monkeypatch):
    monkeypatch.setattr(st.data.shared_list, "_PIECE", 100)
    values = [os.urandom(n % 250) for n in range(300)]
    assert SharedList(values) == values


def test_reading_keeps_no_objects():
    shared = SharedList([{"path": str(i)} for i in range(10000)])
    list(shared)
    gc.collect()
    tracemalloc.start()
    for _ in shared:
        pass
    assert tracemalloc.get_traced_memory()[0] < 20000
    tracemalloc.stop()


def pss():
    """Bytes of memory of this process, where shared pages count in parts. In KiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def read(shared, results, ready, go, done):
    before = pss()
    ready.release()
    assert go.wait(BOUND)
    total = sum(len(shared[i]["path"]) for i in range(len(shared)))
    results.put((total, pss() - before))
    assert done.wait(BOUND)  # what the others share with this process would count in larger parts if it had ended


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_one_memory(method):
    """Eight readers of all objects together grow by far less than one copy of the list for each."""
    context = mp.get_context(method)
    values = [{"path": f"{i:0100d}", "label": i} for i in range(60_000)]
    shared = SharedList(values)
    del values
    assert shared.nbytes > 6 << 20
    results, ready, go, done = context.Queue(), context.Semaphore(0), context.Event(), context.Event()
    workers = [context.Process(target=read, args=(shared, results, ready, go, done)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert ready.acquire(timeout=BOUND)
    go.set()
    found = [results.get(timeout=BOUND) for _ in workers]
    done.set()
    for worker in workers:
        worker.join(BOUND)
        assert worker.exitcode == 0
    assert all(total == 100 * 60_000 for total, _ in found)
    growth = sum(kilobytes for _, kilobytes in found) * 1024
    assert growth < 3 * shared.nbytes, f"{growth} bytes for a list of {shared.nbytes}"
