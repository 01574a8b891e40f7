"""`allocator=`: tensors in the memory of an allocator, by every function that creates them."""

import gc
import inspect

import numpy as np
import pytest

import shmtensor as st
from shmtensor.allocators import DefaultAllocator, ManagedAllocator, MapAllocator, MapFlags, managed_allocator
from shmtensor.dtypes import default_float
from shmtensor.errors import InvalidArgument, LayoutError

LIKE = st.ones(2, 3)
CALLS = {
    "arange": (5,),
    "as_tensor": ([1, 2],),
    "asarray": ([1, 2],),
    "empty": (2, 3),
    "bartlett_window": (5,),
    "blackman_window": (5,),
    "hamming_window": (5,),
    "hann_window": (5,),
    "kaiser_window": (5,),
    "empty_like": (LIKE,),
    "empty_permuted": ((2, 3), (1, 0)),
    "empty_strided": ((2, 3), (1, 2)),
    "eye": (3,),
    "from_numpy": (np.arange(3.0),),
    "full": ((2, 3), 7),
    "full_like": (LIKE, 7),
    "linspace": (0, 1, 5),
    "logspace": (0, 1, 5),
    "normal": (0.0, 1.0, (2, 3)),
    "ones": (2, 3),
    "ones_like": (LIKE,),
    "rand": (2, 3),
    "rand_like": (LIKE,),
    "randint": (5, (2, 3)),
    "randint_like": (LIKE, 5),
    "randn": (2, 3),
    "randn_like": (LIKE,),
    "randperm": (5,),
    "range": (0, 4),
    "scalar_tensor": (3,),
    "tensor": ([[1, 2], [3, 4]],),
    "zeros": (2, 3),
    "zeros_like": (LIKE,),
}
RANDOM = ("empty", "normal", "rand")
METHODS = {
    "new_empty": ((2, 3),),
    "new_empty_strided": ((2, 3), (1, 2)),
    "new_full": ((2, 3), 7),
    "new_ones": ((2, 3),),
    "new_tensor": ([1, 2],),
    "new_zeros": ((2, 3),),
}


def creates(namespace):
    """The functions with `shared`, which says where a new tensor lies; `load` takes what a file has."""
    found = set()
    for name in {*dir(namespace)} - {"load"}:
        function = getattr(namespace, name)
        if inspect.isroutine(function) and not name.startswith("_"):
            try:
                parameters = inspect.signature(function).parameters
            except ValueError:
                continue
            if "shared" in parameters:
                assert "allocator" in parameters, name
                found.add(name)
    return found


def test_every_function_that_creates_is_here():
    assert creates(st) == set(CALLS)
    assert creates(st.Tensor) == set(METHODS)


@pytest.mark.parametrize("name", [*CALLS, *METHODS])
def test_in_the_memory_of_an_allocator(name):
    allocator = DefaultAllocator()
    make, arguments = (getattr(st, name), CALLS[name]) if name in CALLS else (getattr(LIKE, name), METHODS[name])
    made, usual = make(*arguments, allocator=allocator), make(*arguments)
    assert made.storage().allocator is allocator
    assert (made.shape, made.dtype, made.stride()) == (usual.shape, usual.dtype, usual.stride())
    assert (allocator.stats().blocks, allocator.stats().bytes) == (1, made.nbytes)
    if not any(word in name for word in RANDOM):
        assert made.tolist() == usual.tolist()
    view = made[...]
    del made
    gc.collect()
    assert allocator.stats().blocks == 1
    del view
    gc.collect()
    assert allocator.stats().blocks == 0


@pytest.mark.parametrize("name", [*CALLS, *METHODS])
def test_one_place_alone(name):
    make, arguments = (getattr(st, name), CALLS[name]) if name in CALLS else (getattr(LIKE, name), METHODS[name])
    with pytest.raises(InvalidArgument, match="shared=True"):
        make(*arguments, allocator=DefaultAllocator(), shared=True)
    if "out" in inspect.signature(make).parameters:
        with pytest.raises(InvalidArgument, match="out"):
            make(*arguments, allocator=DefaultAllocator(), out=st.empty(2, 3))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (70, 80)])
@pytest.mark.parametrize("dtype", [st.bool_, st.uint8, st.float16, st.complex128])
def test_shapes_and_types(shape, dtype):
    allocator = DefaultAllocator()
    for make in (st.zeros, st.ones):
        made = make(shape, dtype=dtype, allocator=allocator)
        assert (made.shape, made.dtype, made.storage().size()) == (shape, dtype, made.numel())


def test_memory_formats():
    allocator = DefaultAllocator()
    made = st.empty(2, 3, 4, 5, memory_format=st.channels_last, allocator=allocator)
    assert made.stride() == (60, 1, 15, 3)
    assert made.storage().allocator is allocator
    assert st.zeros_like(made, allocator=allocator).stride() == (60, 1, 15, 3)


def test_what_lies_there_already_is_not_copied():
    allocator = DefaultAllocator()
    made = st.zeros(3, allocator=allocator)
    assert st.asarray(made, allocator=allocator) is made
    assert st.asarray(made, allocator=allocator, copy=True) is not made
    assert st.asarray(made, allocator=DefaultAllocator()) is not made
    with pytest.raises(InvalidArgument, match="copy=False"):
        st.asarray(st.zeros(3), allocator=allocator, copy=False)


@pytest.mark.parametrize("allocator", [managed_allocator, ManagedAllocator()])
def test_the_managed_allocator_is_shared_memory(allocator):
    made = st.full((2,), 5, allocator=allocator)
    assert made.is_shared()
    made[0] = 6
    assert st.LongStorage._new_shared_filename(*made.storage()._share_filename_()).tolist() == [6, 5]


def test_a_mapped_file(tmp_path):
    path = tmp_path / "numbers"
    made = st.arange(4, dtype=st.int32, allocator=MapAllocator(path, MapFlags.SHARED))
    made[0] = 9
    assert np.fromfile(path, np.int32).tolist() == [9, 1, 2, 3]
    frozen = MapAllocator(path, MapFlags.SHARED | MapFlags.NOCREATE | MapFlags.READONLY)
    assert st.empty(4, dtype=st.int32, allocator=frozen).tolist() == [9, 1, 2, 3]
    with pytest.raises(LayoutError, match="read-only"):
        st.zeros(4, dtype=st.int32, allocator=frozen)


def test_the_storage_can_be_resized_and_shared():
    allocator = DefaultAllocator()
    made = st.ones(3, allocator=allocator)
    assert made.resize_(2, 5).storage().allocator is allocator
    made.fill_(2).share_memory_()
    gc.collect()
    assert allocator.stats().blocks == 0
    assert made.sum().item() == 20


class WithoutFree:
    def malloc(self, nbytes):
        raise AssertionError("nothing could free it")


@pytest.mark.parametrize("allocator", [3, "map", WithoutFree()])
def test_what_is_no_allocator(allocator):
    for make in (st.zeros, st.rand):
        with pytest.raises(InvalidArgument, match="malloc"):
            make(3, allocator=allocator)
    assert st.empty(2, allocator=None).dtype == default_float()
