"""memory_stats: which memory is counted, and under which name."""

import gc
import subprocess
import sys

import numpy as np

import shmtensor
import shmtensor.multiprocessing
from shmtensor.allocators import DefaultAllocator, MapAllocator, MapFlags

KINDS = ("heap", "shared", "mapped", "pinned", "total")


def figures():
    gc.collect()
    return shmtensor.memory_stats()


def test_a_flat_dict_of_bytes():
    found = figures()
    assert set(found) == {*KINDS, *(f"{kind}.peak" for kind in KINDS)}
    assert all(type(nbytes) is int and nbytes >= 0 for nbytes in found.values())
    assert found["total"] == sum(found[kind] for kind in KINDS[:-1])
    assert all(found[f"{kind}.peak"] >= found[kind] for kind in KINDS)


def test_heap_counts_each_memory_once():
    before = figures()["heap"]
    storage = shmtensor.FloatStorage(2000)
    tensors = [shmtensor.Tensor(storage), shmtensor.Tensor(storage)[3:]]
    assert figures()["heap"] == before + 8000
    made = shmtensor.zeros(100, 100)
    rows = [made[1], made.t(), made.storage(), made.storage()[5:]]
    assert figures()["heap"] == before + 8000 + 40_000
    array = np.zeros(5000, np.uint8)
    seen = shmtensor.from_numpy(array)
    assert figures()["heap"] == before + 8000 + 40_000 + 5000, "a tensor keeps it"
    del storage, tensors, made, rows, seen
    assert figures()["heap"] == before
    assert figures()["heap.peak"] >= before + 8000 + 40_000 + 5000


def test_heap_peak_of_storages_needs_no_look():
    peak = figures()["heap.peak"]
    shmtensor.FloatStorage(peak)  # 4 times as much, and gone again
    assert figures()["heap.peak"] >= 4 * peak
    before = figures()["heap"]
    storage = shmtensor.FloatStorage(1000, allocator=DefaultAllocator())
    assert figures()["heap"] == before + 4000
    del storage
    assert figures()["heap"] == before


def test_a_queue_counts_as_the_memory_reserved_for_it():
    context = shmtensor.multiprocessing.get_context()
    context.SimpleQueue().close()  # there is a client
    before = figures()["shared"]
    queue = context.SimpleQueue()
    new = figures()["shared"] - before
    assert 0 < new <= 1 << 20, "not the address space that it can grow into"
    for _ in range(20_000):
        queue.put(b"x" * 100)
    grown = figures()["shared"] - before
    assert new + 20_000 * 100 <= grown < 1 << 26
    queue.close()
    del queue
    assert figures()["shared"] <= before


def test_shared_and_mapped(tmp_path):
    before = figures()
    storage = shmtensor.FloatStorage(1000).share_memory_()
    made = shmtensor.zeros(1000, shared=True)
    assert figures()["shared"] == before["shared"] + 8000
    assert figures()["heap"] == before["heap"]
    private = shmtensor.FloatStorage(10, allocator=MapAllocator(tmp_path / "x", MapFlags.SHARED))
    assert figures()["mapped"] == before["mapped"] + 40
    del storage, made, private
    after = figures()
    assert [after[kind] for kind in KINDS] == [before[kind] for kind in KINDS]
    assert after["mapped.peak"] >= before["mapped"] + 40


def test_asking_starts_no_manager():
    code = "import sys, shmtensor; print(shmtensor.memory_stats()['shared'], 'shmtensor.manager.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "False"]
