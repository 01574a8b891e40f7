"""Tensors on a GPU in messages: memory, order, lifetimes, kills."""

import functools
import os
import pickle
import selectors
import signal
import threading
import time

import gpu_world
import numpy as np
import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp
from shmtensor.allocators import cuda
from shmtensor.errors import DeviceUnavailable, NotSupported, OwnerDied
from shmtensor.gpu import memory, order
from shmtensor.manager import client

BOUND = 30.0


def until(condition, what):
    end = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def test_one_memory_in_two_processes(start):
    _, jobs, done = start(gpu_world.double)
    x = st.ones(1000, device="cuda")
    jobs.put(x)
    y = done.get(timeout=BOUND)
    assert x.is_shared() and y.is_cuda and y.data_ptr() == x.data_ptr()
    assert x.tolist() == y.tolist() == [2.0] * 1000
    x += 1
    assert y[0].item() == 3
    jobs.put(y)  # what was received is sent on
    assert done.get(timeout=BOUND).sum().item() == 6000


def test_views_types_and_containers(start):
    _, jobs, done = start(gpu_world.echo)
    base = st.arange(24, device="cuda").reshape(4, 6)
    value = {
        "t": base.t(),
        "row": base[1],
        "other": [st.ones(3, dtype=st.float64, device="cuda"), (None, 5)],
        "s": base[::2, 1:],
    }
    jobs.put(value)
    back = done.get(timeout=BOUND)
    assert back["t"].tolist() == base.t().tolist() and back["row"].tolist() == base[1].tolist()
    assert back["s"].stride() == (12, 1) and back["s"].tolist() == base[::2, 1:].tolist()
    assert back["other"][0].dtype == st.float64
    base[1, 0] = -1
    assert back["t"][0, 1].item() == back["row"][0].item() == -1  # views of one storage stay so
    assert back["row"].storage() is back["t"].storage()


@pytest.mark.parametrize(
    "dtype", [st.bool, st.uint8, st.int16, st.int32, st.int64, st.float16, st.float32, st.complex64]
)
def test_each_type(dtype):
    q = mp.Queue()
    x = st.tensor([0, 1, 1], dtype=dtype, device="cuda")
    q.put(x)
    y = q.get(timeout=BOUND)
    assert y.dtype == dtype and y.tolist() == x.tolist()


def test_a_tensor_that_is_received_before_it_is_computed():
    """The receiver's stream waits, and the tensor is sent on before anyone has looked at it."""
    q = mp.Queue()
    x = st.ones(1000, device="cuda", shared=True)
    gpu_world.hold(0.3)
    x += 1
    q.put(x)
    timer = threading.Timer(0.3, gpu_world.release)
    timer.start()
    y = q.get(timeout=BOUND)
    q.put(y)
    z = q.get(timeout=BOUND)
    assert z.tolist() == y.tolist() == [2.0] * 1000
    assert z._array.data.mem.pending is None
    timer.join()


def test_a_dropped_tensor_is_kept_until_its_stream_has_passed():
    before = gpu_world.held()
    x = st.ones(1000, device="cuda", shared=True)
    x += 1  # CuPy compiles it here
    st.cuda.synchronize()
    gpu_world.hold(0.5)
    x += 1
    del x
    assert client.default().native.device_stats(0).blocks == before + 1
    gpu_world.release()
    until(lambda: gpu_world.held() == before, "it is free")


def test_empty_and_scalar_tensors(start):
    _, jobs, done = start(gpu_world.echo)
    jobs.put([st.empty(0, device="cuda"), st.empty(3, 0, device="cuda"), st.tensor(4.0, device="cuda")])
    a, b, c = done.get(timeout=BOUND)
    assert a.shape == (0,) and b.shape == (3, 0) and c.item() == 4.0


def test_many_small_tensors_in_one_message(start):
    _, jobs, done = start(gpu_world.echo)
    before = gpu_world.held()
    sent = [st.full((4,), i, device="cuda") for i in range(300)]
    jobs.put(sent)
    back = done.get(timeout=BOUND)
    assert [x[0].item() for x in back] == list(range(300))
    segments = {x._array.data.mem.block.segment for x in back}
    assert len(segments) == 1  # one arena, so one descriptor and one mapping
    del sent, back
    until(lambda: gpu_world.held() == before, "all blocks are released")


def test_memory_is_released_at_once(start):
    _, jobs, done = start(gpu_world.sums)
    before = gpu_world.held()
    for _ in range(200):
        jobs.put(st.ones(1024, device="cuda", shared=True))
        assert done.get(timeout=BOUND) == 1024
    assert gpu_world.held() == before
    assert client.default().native.device_stats(0).reserved <= 64 << 20


def test_the_sender_drops_at_once(start):
    _, jobs, done = start(gpu_world.sums)
    for i in range(50):
        jobs.put(st.full((1000,), i, device="cuda"))
    assert [done.get(timeout=BOUND) for _ in range(50)] == [1000.0 * i for i in range(50)]


def test_a_receiver_sees_finished_work(start):
    """The message is there before the work is done; what is read afterwards is the result."""
    _, jobs, done = start(gpu_world.sums)
    x = st.zeros(1 << 20, device="cuda").share_memory_()
    jobs.put(x)
    assert done.get(timeout=BOUND) == 0
    gpu_world.hold(0.2)
    x += 1
    jobs.put(x)
    gpu_world.release()
    assert done.get(timeout=BOUND) == 1 << 20


def test_the_producer_may_exit(start):
    process, results = start(gpu_world.produce_and_exit, 1)
    process.join(BOUND)
    assert process.exitcode == 0
    x = results.get(timeout=BOUND)
    assert x.sum().item() == 499500.0


def test_the_producer_may_be_killed(start):
    process, results = start(gpu_world.produce_and_wait, 1)
    until(lambda: results.qsize() == 1, "it was sent")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    x = results.get(timeout=BOUND)
    assert x.sum().item() == 499500.0
    q = mp.Queue()
    q.put(x)
    assert q.get(timeout=BOUND)[3].item() == 3
    del x, q
    until(lambda: client.default().stats().device_bytes <= 64 << 20, "the memory of the dead is free")


def test_content_of_a_killed_process_is_whole_or_refused(start):
    process, results = start(gpu_world.produce_unfinished, 1)
    until(lambda: results.qsize() == 1, "it was sent")
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    try:
        whole = results.get(timeout=BOUND).tolist()  # waits until the content is there or lost
    except OwnerDied as problem:
        assert "was killed before the GPU had computed it" in str(problem)
    else:
        assert gpu_world.install() is None, "the host's driver computes nothing"
        assert set(whole) == {7.0}  # the real one may end what a process has submitted before it closes the process


def _holds(block):
    return block.holds


def _is_alone(block):
    return block.holds == 1


def test_a_killed_consumer_releases(start):
    process, jobs, done = start(gpu_world.take_and_wait)
    before = gpu_world.held()
    x = st.ones(1 << 20, device="cuda", shared=True)
    block = x._array.data.mem.block
    jobs.put(x)
    assert done.get(timeout=BOUND) == process.pid
    assert _holds(block) == 2
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    until(functools.partial(_is_alone, block), "the manager has released it")
    del x, block
    until(lambda: gpu_world.held() == before, "it is free")


def test_the_manager_is_killed(start):
    """The next one gets the descriptors from the clients."""
    x = st.ones(1000, device="cuda", shared=True)
    os.kill(client.default().stats().pid, signal.SIGKILL)
    _, jobs, done = start(gpu_world.sums)  # a process that has not mapped it
    jobs.put(x)
    assert done.get(timeout=BOUND) == 1000
    assert st.ones(5, device="cuda", shared=True).sum().item() == 5


def test_a_process_that_is_busy_gives_descriptors_to_the_next_manager(start):
    """It is in a call that needs no manager meanwhile, as `join` is."""
    x = st.ones(1000, device="cuda", shared=True)
    _, jobs, done = start(gpu_world.sums)
    answers = selectors.DefaultSelector()
    answers.register(done.fileno(), selectors.EVENT_READ)
    jobs.put(x)
    os.kill(client.default().stats().pid, signal.SIGKILL)
    assert answers.select(BOUND), "the other process could not map the memory"
    assert done.get(timeout=BOUND) == 1000


def test_pipes_and_arguments(start):
    ours, theirs = mp.Pipe()
    ours.send({"x": st.arange(5, device="cuda")})
    assert theirs.recv()["x"].tolist() == [0, 1, 2, 3, 4]
    weights = st.zeros(8, 1, device="cuda").share_memory_()
    context = mp.get_context("spawn")
    workers = [context.Process(target=gpu_world.train, args=(weights, 60)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert np.allclose(weights.cpu().numpy(), 1, atol=0.2)


def test_plain_pickle_is_by_value():
    x = st.ones(4, device="cuda").share_memory_()
    y = pickle.loads(pickle.dumps(x))
    y += 1
    assert y.is_cuda and x.tolist() == [1.0] * 4


def test_memory_that_went_through_another_library_is_known_again():
    x = st.arange(10, dtype=st.float32, device="cuda").share_memory_()
    part = st.from_dlpack(x[2:5]._array)
    q = mp.Queue()
    q.put(part)
    y = q.get(timeout=BOUND)
    x[2] = 50
    assert y[0].item() == 50


def test_restricted_sharing_and_stores_are_refused():
    x = st.ones(3, device="cuda")
    with pytest.raises(NotSupported, match="not available for memory of a GPU"):
        x.share_memory_(readonly=True)
    store = st.Store() if hasattr(st, "Store") else None
    if store is not None:
        with pytest.raises(NotSupported, match=r"put x\.cpu\(\)"):
            store.put("x", x)


def test_the_host_cannot_read_a_block():
    block = st.ones(3, device="cuda", shared=True)._array.data.mem.block
    assert memoryview(block).nbytes == 0
    with pytest.raises(BufferError, match="which the CPU cannot read"):
        block.array(np.dtype(np.float32), (3,))


def test_a_storage_in_a_queue_is_held_by_the_queue():
    before = client.default().list()["in_flight_total"]
    x = st.arange(5.0, device="cuda", shared=True)
    queue = mp.Queue()
    queue.put([x.storage(), x])
    assert client.default().list()["in_flight_total"] == before
    storage, tensor = queue.get(timeout=BOUND)
    assert storage is x.storage() and tensor.tolist() == [0, 1, 2, 3, 4]


def test_large_blocks_have_a_segment_of_their_own():
    x = st.ones(5 << 20, device="cuda", shared=True)  # 20 MiB
    mine = x._array.data.mem.block
    assert mine.offset == 0
    device_bytes = client.default().stats().device_bytes
    assert device_bytes >= 20 << 20
    del x, mine
    until(
        lambda: (
            gpu_world.held() >= 0 and cuda.empty_cache(0) >= 0 and client.default().stats().device_bytes < device_bytes
        ),
        "given back",
    )


def test_the_default_stream_is_busy_while_another_one_is():
    """A tensor computed on a blocking stream, as `cupy.cuda.Stream()` makes it, may be put on the default stream."""
    if gpu_world.install() is not None:
        pytest.skip("tests/gpu/test_order.py has it for the host's driver")
    import cupy

    lines = order.of(client.default())
    st.zeros(1000, device="cuda", shared=True)
    gpu_world.hold()  # loads the kernel
    gpu_world.release()
    assert lines.is_idle(0, 0)
    with cupy.cuda.Stream():
        gpu_world.hold(0.2)
    assert not lines.is_idle(0, 0)
    gpu_world.release()
    assert lines.is_idle(0, 0)


def test_a_forked_child_is_told():
    q = mp.Queue()
    process = mp.get_context("fork").Process(target=_use_in_child, args=(q,))
    process.start()
    assert "spawn" in q.get(timeout=BOUND)
    process.join()


def _use_in_child(q):
    try:
        st.ones(3, device="cuda")
        q.put("it worked")
    except (DeviceUnavailable, RuntimeError) as problem:
        q.put(str(problem))


def test_blocks_of_two_streams():
    x = st.ones(1000, device="cuda", shared=True)
    other = st.cuda.Stream()
    x.record_stream(other)
    assert len(x._array.data.mem.streams) == 2
    before = gpu_world.held()
    del x
    until(lambda: gpu_world.held() == before - 1, "both have passed")


def test_a_block_received_twice_is_one_memory():
    x = st.ones(10, device="cuda", shared=True)
    q = mp.Queue()
    q.put(x)
    q.put(x)
    a, b = q.get(timeout=BOUND), q.get(timeout=BOUND)
    assert a._array.data.mem is b._array.data.mem is x._array.data.mem
    assert memory.block_memory(a._array) is x._array.data.mem
