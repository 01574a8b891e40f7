"""`Storage.resize_` by the allocator's realloc, where nothing else refers to the memory."""

import gc

import numpy as np
import pytest

from shmtensor import FloatStorage, IntStorage, Tensor
from shmtensor.allocators import DefaultAllocator, PoolAllocator
from shmtensor.errors import InvalidArgument, OutOfMemory


class Growing:
    """An allocator of bytearrays, which it resizes where they are."""

    name = "growing"
    context = None

    def __init__(self):
        self.calls = []

    def malloc(self, nbytes):
        self.calls.append(("malloc", nbytes))
        return bytearray(nbytes)

    def realloc(self, region, nbytes):
        self.calls.append(("realloc", nbytes))
        if nbytes > len(region):
            region.extend(bytes(nbytes - len(region)))  # BufferError, were a view of it left
        else:
            del region[nbytes:]
        return region

    def free(self, region):
        self.calls.append(("free", len(region)))


def test_resize_calls_realloc():
    allocator = Growing()
    storage = IntStorage([1, 2, 3], allocator=allocator)
    region = storage._region
    assert storage.resize_(5).tolist()[:3] == [1, 2, 3]
    assert storage.resize_(2).tolist() == [1, 2]
    assert storage.resize_(0).tolist() == []
    assert storage.resize_(2).size() == 2
    assert storage._region is region, "it was kept"
    assert storage.allocator is allocator
    tensor = Tensor(storage.fill_(7))
    del storage
    gc.collect()
    assert tensor.tolist() == [7, 7]
    del tensor
    gc.collect()
    sizes = [("realloc", 20), ("realloc", 8), ("realloc", 1), ("realloc", 8), ("free", 8)]
    assert allocator.calls == [("malloc", 12), *sizes]


@pytest.mark.parametrize(
    "hold",
    [
        Tensor,
        lambda storage: Tensor(storage)[1:],
        lambda storage: storage.data(),
        lambda storage: np.asarray(storage)[::2],
        lambda storage: memoryview(storage.data()),
        lambda storage: Tensor(storage[1:]),
        lambda storage: storage[1:].data(),
    ],
)
def test_memory_that_others_refer_to_is_copied(hold):
    allocator = Growing()
    storage = IntStorage([1, 2, 3], allocator=allocator)
    held = hold(storage)
    values = np.asarray(held).tolist()
    storage.resize_(1000).fill_(9)
    assert allocator.calls == [("malloc", 12), ("malloc", 4000)]
    if isinstance(held, Tensor):
        assert np.asarray(held).max() == 9, "a tensor follows"
    else:
        assert np.asarray(held).tolist() == values, "an array keeps the old memory"
    del held
    gc.collect()
    assert allocator.calls[2:] == [("free", 12)]
    assert storage.resize_(2).tolist() == [9, 9]
    assert allocator.calls[3:] == [("realloc", 8)]


def test_parts_follow_what_was_reallocated():
    allocator = Growing()
    storage = IntStorage([1, 2, 3], allocator=allocator)
    part, raw = storage[1:], storage.untyped()
    storage.resize_(1000)[1] = 8
    assert allocator.calls[1:] == [("realloc", 4000)]
    assert (part.tolist(), raw.tolist()[4:]) == ([8, 3], [8, 0, 0, 0, 3, 0, 0, 0])
    assert part.data_ptr() == storage.data_ptr() + 4


def test_what_is_read_while_memory_is_reallocated_is_empty():
    """Other threads and finalizers could otherwise take arrays of memory that is freed under them."""
    found = []

    class Watched(Growing):
        def realloc(self, region, nbytes):
            found.append((storage.tolist(), raw.tolist(), storage.data(), Tensor(storage)))
            return super().realloc(region, nbytes)

    storage = IntStorage([1, 2, 3], allocator=Watched())
    raw = storage.untyped()
    storage.resize_(1000)
    (values, octets, array, tensor) = found[0]
    assert (values, octets, array.tolist(), tensor.tolist()) == ([], [], [], [])
    assert (storage.tolist()[:3], raw.tolist()[:8]) == ([1, 2, 3], [1, 0, 0, 0, 2, 0, 0, 0])
    assert Tensor(storage)[1].item() == 2


def test_regions_of_the_pool_go_back_once():
    pool = PoolAllocator(DefaultAllocator(), 1 << 20)
    storage = FloatStorage([1, 2, 3], allocator=pool).resize_(100)
    assert storage.tolist()[:3] == [1, 2, 3]
    now = pool.stats()
    assert (now.blocks, now.bytes, now.kept_blocks) == (1, 400, 1)
    del storage
    gc.collect()
    assert (pool.stats().blocks, pool.stats().kept_bytes) == (0, 412)


def test_finalizers_run_as_the_old_memory_goes():
    called = []
    storage = IntStorage([1], allocator=Growing())
    storage.add_finalizer(called.append, 1)
    storage.resize_(100)
    gc.collect()
    assert called == [1]


def test_an_allocator_that_refuses_or_has_no_realloc():
    class Refusing(Growing):
        def realloc(self, region, nbytes):
            raise InvalidArgument("not this one")

    class Plain:
        malloc, free = Growing.malloc, Growing.free

        def __init__(self):
            self.calls = []

    for allocator in (Refusing(), Plain()):
        storage = IntStorage([1, 2], allocator=allocator).resize_(3)
        gc.collect()
        assert storage.tolist()[:2] == [1, 2]
        assert allocator.calls == [("malloc", 8), ("malloc", 12), ("free", 8)]


def test_nothing_changes_without_memory():
    class Full(Growing):
        def realloc(self, region, nbytes):
            raise OutOfMemory("there is none")

    allocator = Full()
    storage = IntStorage([1, 2], allocator=allocator)
    with pytest.raises(OutOfMemory, match="there is none"):
        storage.resize_(3)
    assert storage.tolist() == [1, 2]
    del storage
    gc.collect()
    assert allocator.calls == [("malloc", 8), ("free", 8)]


def test_a_realloc_that_gives_too_little_leaves_an_empty_storage():
    class Mean(Growing):
        def realloc(self, region, nbytes):
            return super().realloc(region, nbytes - 4)

    allocator = Mean()
    storage = IntStorage([1, 2], allocator=allocator)
    with pytest.raises(InvalidArgument, match="8 bytes instead of 12"):
        storage.resize_(3)
    assert storage.tolist() == [], "the old memory is gone"
    gc.collect()
    assert allocator.calls == [("malloc", 8), ("realloc", 8), ("free", 8)]


@pytest.mark.parametrize("values", [[1, 2, 3], list(range(5000))])
def test_the_default_allocator_resizes_by_its_own(values):
    allocator = DefaultAllocator()
    storage = IntStorage(values, allocator=allocator).resize_(2000)
    assert storage.tolist()[: len(values)] == values[:2000]
    assert allocator.stats().bytes == 8000
    del storage
    gc.collect()
    assert allocator.stats().blocks == 0
