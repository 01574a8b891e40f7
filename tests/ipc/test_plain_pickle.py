"""Plain pickle: by value, or by handle if the program asks for it; and libraries that pickle by themselves."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from manager_world import World, until

import shmtensor
from shmtensor import errors
from shmtensor.ipc.plain_pickle import open_handle
from shmtensor.manager import client


@pytest.fixture
def process_wide() -> Iterator[Callable[[Any], None]]:
    yield shmtensor.set_pickling
    shmtensor.set_pickling("value")


def in_flight() -> int:
    count: int = client.default().list()["in_flight_total"]
    return count


def by_handle(value: Any) -> bytes:
    with shmtensor.pickling("handle"):
        return pickle.dumps(value)


def is_by_handle(value: Any) -> bool:
    arrived = pickle.loads(pickle.dumps(value))
    return bool(arrived.storage() is value.storage())


# -- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_handle_names_the_same_memory(protocol: int) -> None:
    tensor = shmtensor.zeros(4, 1000, shared=True)
    before = in_flight()
    with shmtensor.pickling("handle"):
        message = pickle.dumps({"whole": tensor, "row": tensor[1]}, protocol)
    assert len(message) < 1000
    assert in_flight() == before + 1  # one storage
    arrived = pickle.loads(message)
    assert in_flight() == before
    assert arrived["whole"].storage() is arrived["row"].storage() is tensor.storage()
    assert arrived["row"].data_ptr() == tensor[1].data_ptr()
    assert not is_by_handle(tensor)  # outside of the block


def test_what_is_not_shared_goes_by_value() -> None:
    heap, private = shmtensor.ones(4), pickle.loads(by_handle(shmtensor.ones(4).share_memory_(copy_on_write=True)))
    with shmtensor.pickling("handle"):
        for tensor in (heap, private, shmtensor.Tensor(shmtensor.FloatStorage._new_using_fd(4))):
            assert not is_by_handle(tensor)
    assert not heap.is_shared()


def test_copies_stay_by_value() -> None:
    tensor = shmtensor.ones(4, shared=True)
    with shmtensor.pickling("handle"):
        for other in (
            copy.deepcopy(tensor),
            copy.deepcopy([tensor])[0],
            copy.copy(tensor.storage()),
        ):
            other.fill_(3)
            assert tensor.tolist() == [1] * 4


def test_rights_go_along() -> None:
    arrived = pickle.loads(by_handle(shmtensor.ones(4).share_memory_(readonly=True)))
    with pytest.raises(errors.LayoutError):
        arrived.fill_(2)
    part = shmtensor.ones(4, shared=True).storage()[1:3]
    assert pickle.loads(by_handle(part)).data_ptr() == part.data_ptr()


def test_who_is_meant(process_wide: Callable[[Any], None]) -> None:
    tensor = shmtensor.ones(4, shared=True)

    def in_a_thread() -> bool:
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(is_by_handle(tensor)))
        thread.start()
        thread.join()
        return seen[0]

    with shmtensor.pickling("handle"):
        assert is_by_handle(tensor)
        assert not in_a_thread()
        with shmtensor.pickling("value"):
            assert not is_by_handle(tensor)
        assert is_by_handle(tensor)
    process_wide("handle")
    assert is_by_handle(tensor)
    assert in_a_thread()
    with shmtensor.pickling("value"):
        assert not is_by_handle(tensor)
        assert in_a_thread()
    process_wide("value")
    assert not in_a_thread()


@pytest.mark.parametrize("how", ["", "handles", None, 1])
def test_other_words(how: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="'handle' or 'value'"):
        shmtensor.set_pickling(how)
    with pytest.raises(errors.InvalidArgument), shmtensor.pickling(how):
        pass
    assert not is_by_handle(shmtensor.ones(1, shared=True))


# -- how long it lives ------------------------------------------------------------------------------------------------


def test_a_handle_keeps_its_memory_until_it_is_loaded() -> None:
    message = by_handle(shmtensor.full((1000,), 4.0, shared=True))
    gc.collect()
    arrived = pickle.loads(message)
    assert arrived.tolist() == [4.0] * 1000
    assert pickle.loads(message).storage() is arrived.storage()  # loaded twice while it lives
    del arrived
    gc.collect()
    with pytest.raises(errors.StaleHandle, match="freed"):
        pickle.loads(message)


def test_a_handle_that_nobody_loads_can_be_collected() -> None:
    before = in_flight()
    message = by_handle(shmtensor.ones(10, shared=True))
    gc.collect()
    assert in_flight() == before + 1
    client.default().gc(in_flight=0.0)
    assert in_flight() == 0
    with pytest.raises(errors.StaleHandle):
        pickle.loads(message)


MAKE = """
import pickle, shmtensor
with shmtensor.pickling("handle"):
    print(pickle.dumps(shmtensor.ones(10, shared=True)).hex())
"""


def test_where_no_manager_answers(here: World) -> None:
    message = bytes.fromhex(here.run(MAKE))
    until(lambda: not here.managers(), "the manager to leave")
    with pytest.raises(errors.SegmentLost, match=r"at .*\.sock has ended, or belongs to another"):
        pickle.loads(message)


def test_in_another_group() -> None:
    where, *_ = pickled = by_handle_parts(shmtensor.ones(10, shared=True))
    assert isinstance(where, bytes)
    pickled[1] ^= 1
    with pytest.raises(errors.StaleHandle, match="has another group"):
        open_handle(*pickled)
    pickled[1] ^= 1
    assert open_handle(*pickled).tolist() == [1] * 10


def by_handle_parts(tensor: Any) -> list[Any]:
    with shmtensor.pickling("handle"):
        rebuild, parts = tensor.storage().__reduce_ex__(5)
    assert rebuild is open_handle
    return list(parts)


# -- by value ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_out_of_band_buffers_are_not_copied(shared: bool) -> None:
    tensor = shmtensor.ones(1000, shared=shared)
    buffers: list[pickle.PickleBuffer] = []
    message = pickle.dumps(tensor, 5, buffer_callback=buffers.append)
    assert len(message) < 1000
    assert np.frombuffer(buffers[0]).ctypes.data == tensor.data_ptr()
    received = bytearray(buffers[0])
    arrived = pickle.loads(message, buffers=[memoryview(received)])
    arrived.fill_(2)
    assert np.frombuffer(received, np.float32).tolist() == [2] * 1000
    assert tensor.tolist() == [1] * 1000


def test_a_read_only_buffer_makes_a_read_only_tensor() -> None:
    buffers: list[pickle.PickleBuffer] = []
    message = pickle.dumps(shmtensor.ones(4), 5, buffer_callback=buffers.append)
    arrived = pickle.loads(message, buffers=[memoryview(bytes(buffers[0]))])
    with pytest.raises(errors.LayoutError):
        arrived.fill_(2)
    shifted = bytearray(1) + bytearray(buffers[0])
    arrived = pickle.loads(message, buffers=[memoryview(shifted)[1:]])  # not aligned: copied
    assert arrived.add_(1).tolist() == [2] * 4


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_the_value_of_read_only_memory_can_be_changed(protocol: int) -> None:
    tensor = pickle.loads(by_handle(shmtensor.ones(4).share_memory_(readonly=True)))
    arrived = pickle.loads(pickle.dumps(tensor, protocol))
    assert arrived.add_(1).tolist() == [2] * 4
    assert arrived.storage().resize_(8).size() == 8


# -- libraries --------------------------------------------------------------------------------------------------------

EXECUTOR = """
import multiprocessing, operator
from concurrent.futures import ProcessPoolExecutor
import shmtensor
add = operator.methodcaller("add_", 1)
if __name__ == "__main__":
    tensor = shmtensor.zeros(100, shared=True)
    with ProcessPoolExecutor(2, multiprocessing.get_context("{method}")) as executor:
        assert executor.submit(add, tensor).result().tolist() == [1] * 100
        assert tensor.tolist() == [0] * 100
        shmtensor.set_pickling("handle")
        for future in [executor.submit(add, tensor) for _ in range(4)]:
            future.result()
        assert tensor.sum().item() > 0
        shmtensor.set_pickling("value")
    assert "shmtensor.multiprocessing" not in __import__("sys").modules
    from shmtensor.manager import client
    assert client.default().list()["in_flight_total"] == 0
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_standard_executor(here: World, method: str) -> None:
    here.run(EXECUTOR.format(method=method))


JOBLIB = """
import os
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
import shmtensor

def add(tensor, at):
    tensor[at] += 1
    return os.getpid()

tensor = shmtensor.zeros(8, 1000, shared=True)
with Parallel(n_jobs=2) as parallel:
    parallel(delayed(add)(tensor, at) for at in range(8))
    assert not tensor.any()
    shmtensor.set_pickling("handle")
    pids = parallel(delayed(add)(tensor, at) for at in range(8))
    assert tensor.all() and os.getpid() not in pids
get_reusable_executor().shutdown(wait=True)
from shmtensor.manager import client
assert client.default().list()["in_flight_total"] == 0
"""


def test_joblib(here: World) -> None:
    pytest.importorskip("joblib")
    here.run(JOBLIB)
