"""torch tensors in shmtensor's memory of a GPU. On the stand-in with host memory, torch has them on the CPU."""

import gpu_world
import pytest

import shmtensor as st
import shmtensor.multiprocessing as mp

torch = pytest.importorskip("torch")

from shmtensor.integrations.torch import conversions, memory, reductions  # noqa: E402

BOUND = 30.0
HAS_GPU = torch.cuda.is_available()


class ByHandle:
    """A torch storage that is sent as `reduce_storage` sends those on a GPU; the stand-in's have torch's CPU."""

    def __init__(self, storage):
        self.storage = storage

    def __reduce__(self):
        return reductions.rebuild_storage, tuple(memory.place_on_device(self.storage))


@pytest.fixture
def on_host(monkeypatch):
    """Where there is no GPU, torch's exchange of streams is left out: it has none."""
    if not HAS_GPU:
        monkeypatch.setattr(memory, "from_dlpack", lambda tensor: st.from_dlpack(gpu_world.as_cupy(tensor)))


def test_a_tensor_of_ours_in_torch():
    x = st.arange(6.0, device="cuda", shared=True)
    y = x.torch()
    y += 1
    if HAS_GPU:
        assert y.device.type == "cuda"
        torch.cuda.synchronize()
    assert y.data_ptr() == x.data_ptr() and x.tolist() == [1, 2, 3, 4, 5, 6]


def test_memory_stays_until_torchs_stream_has_passed():
    before = gpu_world.held()
    x = st.arange(6.0, device="cuda", shared=True)
    y = x.torch()
    del x
    assert gpu_world.held() == before + 1 and y.tolist() == [0, 1, 2, 3, 4, 5]
    del y
    assert gpu_world.held() == before


def test_a_storage_goes_by_handle(on_host):
    x = st.arange(100.0, device="cuda", shared=True)
    theirs = conversions.to_torch(x[20:60])
    q = mp.Queue()
    q.put(ByHandle(theirs.untyped_storage()))
    found = q.get(timeout=BOUND)
    assert found.data_ptr() == theirs.data_ptr() and found.nbytes() == 160
    again = torch.empty(0, dtype=torch.float32, device=found.device).set_(found)
    again.mul_(2)
    if HAS_GPU:
        torch.cuda.synchronize()
    assert x[20:23].tolist() == [40, 42, 44] and x[19].item() == 19


def test_memory_of_torch_is_not_ours(on_host):
    assert memory.place_on_device(torch.zeros(10, device="cuda" if HAS_GPU else "cpu").untyped_storage()) is None


def test_through_another_process(start):
    if not HAS_GPU:
        pytest.skip("needs torch and a GPU")
    _, jobs, done = start(gpu_world.double)
    x = st.ones(1000, device="cuda", shared=True)
    values = x.torch()
    for value in (values, values[10:20], torch.nn.Parameter(values[:5]), values.view(10, 100).t()):
        jobs.put(value.detach() if value.requires_grad else value)
        back = done.get(timeout=BOUND)
        assert back.device.type == "cuda" and back.data_ptr() == value.data_ptr() and back.stride() == value.stride()
        del back
    torch.cuda.synchronize()
    assert x[0].item() == 8 and x[15].item() == 8 and x[999].item() == 4
    jobs.put(torch.nn.Parameter(values[:5]))
    q = mp.Queue()
    q.put(torch.nn.Parameter(values[:5]))
    assert q.get(timeout=BOUND).requires_grad
