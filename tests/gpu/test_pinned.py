"""Pinned memory: what is registered and for how long, what is not, and private pinned memory."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from manager_world import until

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor.allocators import Allocator, CudaHostAllocator, PoolAllocator
from shmtensor.errors import DeviceUnavailable, InvalidArgument, OutOfMemory, StaleHandle
from shmtensor.gpu import driver, order, registered
from shmtensor.manager import client

LARGE = 1 << 18  # bytes


def shared(nbytes=LARGE):
    return st.zeros(nbytes, dtype=st.uint8, shared=True).storage()


@pytest.fixture
def stream(host, monkeypatch):
    """A stream of the host's driver that is current in each thread."""
    monkeypatch.setattr(registered, "current_streams", lambda: iter([(0, 5)]))
    return 5


# -- creation

PINNED = {
    "empty": lambda **how: st.empty(300, 400, **how),
    "channels last": lambda **how: st.empty(2, 40, 50, 60, memory_format=st.channels_last, **how),
    "zeros": lambda **how: st.zeros(300, 400, **how),
    "full": lambda **how: st.full((300, 400), 7, **how),
    "randn": lambda **how: st.randn(300, 400, **how),
    "tensor": lambda **how: st.tensor(np.ones((300, 400), "f"), **how),
    "zeros_like": lambda **how: st.zeros_like(st.empty(300, 400), **how),
    "new_ones": lambda **how: st.empty(1).new_ones(300, 400, **how),
}


@pytest.mark.parametrize("name", PINNED)
def test_creation_in_pinned_memory(either, name):
    make = PINNED[name]
    private, both = make(pin_memory=True), make(pin_memory=True, shared=True)
    assert private.is_pinned() and not private.is_shared()
    assert both.is_pinned() and both.is_shared()
    assert both.shape == private.shape == make().shape and both.stride() == private.stride() == make().stride()
    if name not in ("empty", "channels last", "randn"):
        assert (private == make()).all() and (both == make()).all()
    small = st.ones(3, pin_memory=True, shared=True, requires_grad=True)
    assert small.is_shared() and not small.is_pinned() and small.requires_grad


@pytest.mark.parametrize("how", [{"out": st.empty(3)}, {"allocator": PoolAllocator(CudaHostAllocator())}])
def test_pinned_memory_and_another_place(either, how):
    for make in (st.empty, st.ones, st.rand):
        with pytest.raises(InvalidArgument, match=rf"{next(iter(how))} and for pin_memory"):
            make(3, pin_memory=True, **how)


# -- shared memory


def test_shared_memory_is_pinned_where_it_is(either):
    storage = shared()
    view = storage.data()
    view[:] = 7
    assert not storage.is_pinned()
    assert storage.pin_memory() is storage
    assert storage.is_pinned()
    assert storage.pin_memory() is storage
    assert storage[5:9].is_pinned()
    assert view.sum() == 7 * LARGE
    with pytest.raises(driver.DriverError) as caught:  # the driver knows about it
        driver.current().register(0, storage.data_ptr(), LARGE)
    assert caught.value.code == driver.ALREADY_REGISTERED


def test_the_pages_of_a_block_are_registered_once(host):
    storage = shared(LARGE + 1)
    calls = len(host.calls)
    storage.pin_memory()
    storage.pin_memory()
    assert host.calls[calls:] == ["cuMemHostRegister"]
    assert host._registered[storage.data_ptr()] == LARGE + 4096


def test_a_registration_ends_with_the_last_use(host):
    storage = shared()
    address = storage.pin_memory().data_ptr()
    array = storage.data()
    del storage
    assert host.is_registered(address)
    del array
    until(lambda: not host.is_registered(address), "the streams have passed")


def test_a_registration_ends_before_the_memory_is_given_back(host):
    storage = shared(300 << 20)  # a segment of its own, whose pages empty_cache gives back
    address = storage.pin_memory().data_ptr()
    assert host.is_registered(address)
    del storage
    until(lambda: not host.is_registered(address), "the streams have passed")
    assert st.empty_cache() >= 300 << 20


def test_blocks_beside_each_other_are_registered_each(either):
    storages = [shared() for _ in range(8)]
    for storage in storages[::2]:
        storage.pin_memory()
    assert [storage.is_pinned() for storage in storages] == [True, False] * 4
    for storage in storages:
        storage.pin_memory()
    assert all(storage.is_pinned() for storage in storages)


def test_small_blocks_share_pages_so_they_are_copied(either):
    storage = shared(100)
    copy = storage.pin_memory()
    assert copy is not storage
    assert copy.is_pinned() and not storage.is_pinned() and not copy.is_shared()


def test_received_memory_is_pinned_in_each_process(either):
    queue = mp.Queue()
    tensor = st.zeros(LARGE, dtype=st.uint8, shared=True)
    tensor.storage().pin_memory()
    queue.put(tensor)
    assert queue.get().storage().is_pinned()  # it is the same memory
    queue.close()


@pytest.mark.parametrize("restriction", ["readonly", "copy_on_write"])
def test_memory_of_restricted_access(either, restriction):
    storage = shared().share_memory_(**{restriction: True})
    pinned = storage.pin_memory()
    assert pinned.is_pinned()
    assert (pinned is storage) is (restriction == "readonly")


def test_the_end_of_a_use_waits_for_its_streams(host, stream):
    storage = shared()
    address = storage.pin_memory().data_ptr()
    host.hold(stream)
    block = storage._region
    assert block.holds == 1
    name = block.segment, block.index, block.generation
    del storage, block
    until(lambda: host._held[stream], "the stream is asked to say when it has passed")
    assert host.is_registered(address)
    assert client.default().attach(*name).address == address
    host.release(stream)
    until(lambda: not host.is_registered(address), "the stream has passed")
    with pytest.raises(StaleHandle):
        client.default().attach(*name)


# -- refusals


def test_if_pinning_is_refused_there_is_one_warning_that_names_the_limit(host, monkeypatch):
    monkeypatch.setattr(registered, "_is_refused", False)
    host.memory_limit = 0
    storage = shared()
    with pytest.warns(RuntimeWarning, match=r"was not pinned.*CUDA_ERROR_OUT_OF_MEMORY.*limit of locked.*ulimit -l"):
        assert storage.pin_memory() is storage
    assert not storage.is_pinned()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not shared().pin_memory().is_pinned()
        assert registered.PinnedPool().allocate(LARGE).nbytes >= LARGE


def test_without_a_gpu_the_error_says_why(monkeypatch):
    monkeypatch.setattr(driver, "_driver", None)
    monkeypatch.setattr(driver, "_reason", "there is none in this test")
    for storage in (shared(), st.zeros(3).storage()):
        with pytest.raises(DeviceUnavailable, match="there is none in this test"):
            storage.pin_memory()
        assert not storage.is_pinned()


def test_memory_is_pinned_for_gpus_only(either):
    with pytest.raises(InvalidArgument, match="not to device 'xpu'"):
        st.zeros(3).storage().pin_memory("xpu")


# -- forks


def in_child(function):
    """The exit code of a forked child that runs a function."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(function())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_in_a_forked_child_nothing_is_registered(host):
    storage, pool = shared(), registered.PinnedPool()
    storage.pin_memory()
    block = pool.allocate(LARGE)
    held = block.holds

    def child():
        if storage.is_pinned() or pool.nbytes:
            return 1
        try:
            storage.pin_memory()
        except DeviceUnavailable as problem:
            return 0 if "spawn" in str(problem) else 2
        return 3

    assert in_child(child) == 0
    until(lambda: block.holds == held, "the holds of the child end")
    assert storage.is_pinned() and host.is_registered(block.address)


def test_a_forked_child_does_not_keep_the_blocks_of_a_pool(host, monkeypatch):
    """Also not those that a thread waits with for a stream: in the child its variables are never released."""
    pool, began, go = registered.PinnedPool(), threading.Event(), threading.Event()

    def hold(used):
        began.set()
        go.wait(20)

    def retire(used):
        threads.append(threading.Thread(target=hold, args=(used,)))
        threads[0].start()

    threads = []
    monkeypatch.setattr(registered, "retire", retire)
    address = pool.allocate(LARGE).address
    assert began.wait(20)
    monkeypatch.undo()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent closes its end
        os._exit(0)
    os.close(reader)
    go.set()
    threads[0].join()
    try:
        until(lambda: pool.allocate(LARGE).address == address, "the child has released the block")
    finally:
        os.close(writer)
        os.waitpid(pid, 0)


# -- pools


def test_a_pool_uses_a_block_again(either):
    pool = registered.PinnedPool()
    block = pool.allocate(LARGE)
    address, generation = block.address, block.generation
    other = pool.allocate(LARGE)
    assert other.address != address
    del block
    again = pool.allocate(LARGE - 5000)
    assert (again.address, again.generation, again.holds) == (address, generation + 1, 1)
    assert registered.is_registered(address)
    assert pool.nbytes == 2 * LARGE


def test_a_block_of_a_pool_is_in_use_as_long_as_anything_refers_to_it(either):
    pool = registered.PinnedPool()
    block = pool.allocate(LARGE)
    address, array = block.address, block.array(np.dtype(np.float32), (10,))
    del block
    view = array[3:5]
    del array
    assert pool.allocate(LARGE).address != address
    queue = mp.Queue()
    queue.put(st.from_numpy(view))
    message = st.from_numpy(view)
    del view
    queue.put(message)
    del message
    assert queue.get().numel() == 2
    assert pool.allocate(LARGE).address != address  # the other message is in flight
    assert queue.get().numel() == 2
    assert pool.allocate(LARGE).address == address
    queue.close()


def test_old_handles_to_a_block_that_is_used_again_are_refused(either):
    pool = registered.PinnedPool()
    block = pool.allocate(LARGE)
    name = block.segment, block.index, block.generation
    address = block.address
    assert client.default().attach(*name) is block
    del block
    again = pool.allocate(LARGE)
    assert again.address == address
    with pytest.raises(StaleHandle):
        client.default().attach(*name)


def test_a_pool_waits_for_the_streams_that_use_a_block(host, stream):
    pool = registered.PinnedPool()
    host.hold(stream)
    address = pool.allocate(LARGE).address
    assert pool.allocate(LARGE).address != address
    host.release(stream)
    until(lambda: pool.allocate(LARGE).address == address, "the stream has passed")


def test_a_block_is_kept_for_each_stream(host, monkeypatch):
    monkeypatch.setattr(registered, "current_streams", lambda: iter([(0, 5), (1, 6)]))
    pool = registered.PinnedPool()
    host.hold(5)
    host.hold(6)
    address = pool.allocate(LARGE).address
    until(lambda: host._held[6], "the streams are asked to say when they have passed")
    host.release(5)
    assert pool.allocate(LARGE).address != address
    host.release(6)
    until(lambda: pool.allocate(LARGE).address == address, "both streams have passed")


def test_free_blocks_go_with_empty_cache(host):
    pool = registered.PinnedPool()
    block, address = pool.allocate(LARGE), pool.allocate(2 * LARGE).address
    until(lambda: st.empty_cache() and pool.nbytes == LARGE, "the free one is given back")
    assert host.is_registered(block.address) and not host.is_registered(address)
    del block
    until(lambda: registered.trim() == LARGE, "so is the other one")


def test_blocks_of_other_sizes_are_given_back_when_a_pool_grows(either):
    pool = registered.PinnedPool()
    pool.allocate(LARGE)
    for _ in range(registered.RECENT + 1):
        until(order.is_idle, "the streams of libraries in this process have passed")
        pool.allocate(8 * LARGE)
    until(order.is_idle, "the streams of libraries in this process have passed")
    assert pool.nbytes == 9 * LARGE
    pool.allocate(64 * LARGE)
    assert pool.nbytes == 72 * LARGE


def test_a_pool_whose_memory_is_refused_gives_free_blocks_back(either, monkeypatch):
    pool = registered.PinnedPool()
    pool.allocate(LARGE)
    allocate, asked = client.default().allocate, []

    def refused_once(nbytes):
        asked.append(pool.nbytes)
        if len(asked) == 1:
            raise OutOfMemory("there is none in this test")
        return allocate(nbytes)

    monkeypatch.setattr(client.default(), "allocate", refused_once)
    assert pool.allocate(4 * LARGE).nbytes == 4 * LARGE
    assert asked == [LARGE, 0]


LEAVE = """
from host_driver import HostDriver
from shmtensor.gpu import driver, order, registered
from shmtensor.manager import client

host = HostDriver()
driver.use(host)
pool = registered.PinnedPool()
pool.allocate(1 << 20)
assert pool.nbytes
client.default().close()
assert not pool.nbytes and not host._registered
"""


def test_a_process_leaves_its_group_with_free_pinned_blocks():
    run = subprocess.run([sys.executable, "-c", LEAVE], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert run.returncode == 0


# -- private memory


def test_private_memory_is_copied_into_pinned_memory(either):
    storage = st.FloatStorage([1, 2, 3])
    pinned = storage.pin_memory()
    assert pinned.tolist() == [1, 2, 3]
    assert pinned.is_pinned() and not pinned.is_shared() and not storage.is_pinned()
    assert pinned.pin_memory() is pinned
    assert pinned.allocator.name == "pinned"
    assert st.memory_stats()["pinned"] == 12
    del pinned
    gc.collect()
    assert st.memory_stats()["pinned"] == 0


def test_tensors_in_pinned_memory(either):
    allocator = CudaHostAllocator()
    assert isinstance(allocator, Allocator)
    x = st.ones(1000, allocator=allocator)
    assert x.storage().is_pinned()
    assert x.sum() == 1000
    assert pickle.loads(pickle.dumps(x)).sum() == 1000
    assert allocator.stats().bytes == 4000
    x.storage().resize_(2000)
    assert x.sum() == 1000
    assert allocator.stats().bytes == 8000
    del x
    gc.collect()
    assert allocator.stats().blocks == 0


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 1 << 20])
def test_regions(either, nbytes):
    allocator = CudaHostAllocator()
    region = allocator.malloc(nbytes)
    assert len(region) == nbytes
    region[:] = 5
    grown = allocator.realloc(region, nbytes + 10)
    assert bytes(grown[:nbytes]) == b"\5" * nbytes
    allocator.free(grown)
    assert allocator.stats().blocks == 0


def test_a_pool_of_pinned_memory(either):
    pool = PoolAllocator(CudaHostAllocator())
    address = st.ones(1000, allocator=pool).data_ptr()
    gc.collect()
    assert st.ones(1000, allocator=pool).data_ptr() == address


def test_pinned_memory_that_the_driver_does_not_have(host):
    host.memory_limit = 0
    with pytest.raises(OutOfMemory, match=r"refused 8 bytes of pinned memory.*ulimit -l"):
        CudaHostAllocator().malloc(8)
    host.memory_limit, host.refuses["cuMemHostAlloc"] = None, driver.NOT_PERMITTED
    with pytest.raises(DeviceUnavailable, match="800"):
        CudaHostAllocator().malloc(8)


def test_private_memory_is_freed_once_its_streams_have_passed(host, stream):
    allocator = CudaHostAllocator()
    region = allocator.malloc(100)
    address = region.ctypes.data
    host.hold(stream)
    allocator.free(region)
    del region
    until(lambda: host._held[stream], "the stream is asked to say when it has passed")
    assert host.is_registered(address)
    host.release(stream)
    until(lambda: not host.is_registered(address), "the stream has passed")
