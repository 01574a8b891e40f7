"""Refusals of the GPU driver: clear errors, and nothing is lost."""

from contextlib import closing

import gpu_world
import pytest

import shmtensor as st
from shmtensor import channel
from shmtensor.errors import DeviceUnavailable, NotSupported, OutOfMemory
from shmtensor.gpu import driver

BOUND = 30.0
NOT_PERMITTED = 800


@pytest.fixture
def host():
    """The driver over host memory, which can be told what to refuse."""
    made = gpu_world.install()
    if made is None:
        pytest.skip("there is a real GPU, which refuses nothing of this")
    gpu_world.held()
    st.cuda.empty_cache()  # so that the next one needs new memory
    yield made
    made.refuses.clear()
    made.lacks = ""


def test_out_of_memory_names_what_is_free_and_what_is_held():
    x = st.ones(1000, device="cuda", shared=True)
    free, total = st.cuda.mem_get_info()
    said = rf"cuda:0 has no {1 << 42} bytes left: \d+ of {total} bytes are free; this process has \d+ bytes in 1 shared"
    with pytest.raises(OutOfMemory, match=said):
        st.empty(1 << 42, dtype=st.uint8, device="cuda", shared=True)
    assert free <= total and x.sum().item() == 1000
    assert st.ones(10, device="cuda", shared=True).sum().item() == 10


@pytest.mark.parametrize("function", ["cuMemCreate", "cuMemExportToShareableHandle", "cuMemMap"])
def test_memory_that_must_not_be_shared(host, function):
    host.refuses[function] = NOT_PERMITTED
    with pytest.raises(DeviceUnavailable, match=rf"refused {function}"):
        st.empty(16 << 20, device="cuda", shared=True)  # in a segment of its own
    assert not host._handles  # given back
    host.refuses.clear()
    assert st.ones(16 << 20, device="cuda", shared=True).sum().item() == 16 << 20


def test_a_device_that_cannot_share(host):
    host.lacks = "memory by file descriptor"
    with pytest.raises(DeviceUnavailable, match=r"cannot be shared: the driver lacks memory by file descriptor"):
        st.empty(16 << 20, device="cuda", shared=True)
    assert st.ones(3, device="cuda").sum().item() == 3  # in private memory


def test_a_receiver_that_does_not_see_the_card(host, start):
    _, jobs, done = start(gpu_world.take_without, 2, 1, "")
    jobs.put(st.ones(1000, device="cuda:1", shared=True))
    assert "which this process does not see; check CUDA_VISIBLE_DEVICES" in done.get(timeout=BOUND)


def test_a_receiver_that_must_not_map(host, start):
    _, jobs, done = start(gpu_world.take_without, 2, 2, "cuMemImportFromShareableHandle")
    jobs.put(st.ones(1000, device="cuda", shared=True))
    said = done.get(timeout=BOUND)
    assert "refused cuMemImportFromShareableHandle" in said and "containers do not permit it" in said


def test_a_cupy_that_is_too_old(monkeypatch):
    monkeypatch.setattr("cupy.__version__", "12.3.0")
    assert driver._missing_package() == "CuPy 12.3.0 is too old; install 13 or newer"


@pytest.mark.parametrize("copy", [True, False])
def test_a_channel(copy):
    with closing(channel.listen("tcp://127.0.0.1:0", copy=copy)) as queue:
        with pytest.raises(NotSupported, match=r"sent through a channel; put x\.cpu\(\)"):
            queue.put({"x": st.ones(1000, device="cuda", shared=True)})
        queue.put(st.ones(1000, device="cuda").cpu())
        assert queue.get(timeout=BOUND).sum().item() == 1000
