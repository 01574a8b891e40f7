"""Loaders with pinned memory: the place of batches, the reuse of their memory, and copies ahead to a GPU."""

import ctypes
import gc
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from loader_world import Numbered, Rows, Stream
from manager_world import until

import shmtensor as st
from shmtensor.data import DataLoader, prefetching
from shmtensor.data.prefetching import Prefetched
from shmtensor.errors import DeviceUnavailable, InvalidArgument, QuotaExceeded
from shmtensor.gpu import driver, order, registered

pytestmark = [pytest.mark.usefixtures("in_time"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Unequal(Rows):
    """Rows of unequal type, which do not fit into slots."""

    def __getitem__(self, index):
        return self.x[index].astype(np.float64 if index % 3 else np.float32)


def stacked(samples):
    return {"x": np.stack(samples), "t": st.tensor(np.stack(samples))}


def pinned(tree):
    """Whether all tensors of a batch are pinned; there is at least one."""
    if isinstance(tree, st.Tensor):
        return [tree.storage().is_pinned()]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [found for part in tree for found in pinned(part)] if isinstance(tree, list) else []


# -- where batches lie


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("device", ["", "cuda"])
def test_batches_are_pinned(either, workers, device):
    loader = DataLoader(
        Numbered(64), 8, num_workers=workers, pin_memory=True, pin_memory_device=device, persistent_workers=workers > 0
    )
    for _ in range(3):
        numbers = []
        for batch in loader:
            assert pinned(batch) == [True, True]
            assert (batch["x"][:, 0, 0] == batch["pair"][0]).all()
            numbers += batch["pair"][0].tolist()
        assert numbers == list(range(64))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "arguments"),
    [
        (Unequal(), {"batch_size": 8}),
        (Rows(), {"batch_size": 8, "collate_fn": stacked}),
        (Rows(), {"batch_size": None}),
        (Stream(), {"batch_size": 8}),
    ],
    ids=["unequal", "collated", "single", "stream"],
)
def test_batches_without_slots_are_copied_into_pinned_memory(either, workers, dataset, arguments):
    plain = list(DataLoader(dataset, **arguments))
    found = list(DataLoader(dataset, num_workers=workers, pin_memory=True, **arguments))
    assert all(all(pinned(batch)) and pinned(batch) for batch in found)
    for one, other in zip(found, plain, strict=True):
        if isinstance(one, dict):
            one, other = one["t"], other["t"]
        assert one.dtype == other.dtype and one.tolist() == other.tolist()


def test_workers_write_straight_into_the_blocks_of_the_loader(either, monkeypatch):
    """No copy is made in the program: each batch is a whole block of the pool."""
    monkeypatch.setattr("shmtensor.data.pinning.Pinning.__call__", lambda self, tensor: tensor)
    batches = list(DataLoader(Rows(64, (4096,)), 8, num_workers=2, pin_memory=True))[1:]  # the first was sent in parts
    assert [pinned(batch) for batch in batches] == [[True]] * 7


def test_memory_is_used_again(host):
    loader = DataLoader(Rows(512), 8, num_workers=2, pin_memory=True, prefetch_factor=2)
    for _ in loader:
        pass
    registrations = host.calls.count("cuMemHostRegister")
    for _ in range(3):
        for _ in loader:
            pass
    assert host.calls.count("cuMemHostRegister") < registrations + 60  # of 192 batches; more if workers are ahead


def test_batches_that_are_held_are_not_written_again(either):
    batches = list(DataLoader(Rows(512), 8, num_workers=2, pin_memory=True))
    values = np.concatenate([batch.numpy() for batch in batches])
    assert np.array_equal(values, Rows(512).x)


def test_statistics_and_bounds_count_what_is_held(either):
    loader = DataLoader(Rows(64, (4096,)), 8, num_workers=2, pin_memory=True, max_bytes=3 * 8 * 4 * 4096)
    iterator = iter(loader)
    held = [next(iterator), next(iterator), next(iterator)]
    assert loader.stats().held == 3
    with pytest.raises(QuotaExceeded):
        next(iterator)
    held.clear()
    gc.collect()
    assert loader.stats().held == 0
    assert sum(1 for _ in iterator) == 5


def test_batches_can_be_sent_on(either):
    queue = st.multiprocessing.Queue()
    for batch in DataLoader(Rows(64), 8, num_workers=2, pin_memory=True):
        queue.put(batch)
    del batch
    assert np.array_equal(np.concatenate([queue.get().numpy() for _ in range(8)]), Rows(64).x)
    queue.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_each_method(either, method):
    loader = DataLoader(Rows(64), 8, num_workers=2, pin_memory=True, multiprocessing_context=method)
    assert np.array_equal(np.concatenate([batch.numpy() for batch in loader]), Rows(64).x)


# -- without pinned memory


def test_without_a_gpu_there_is_a_warning(monkeypatch):
    monkeypatch.setattr(driver, "_driver", None)
    monkeypatch.setattr(driver, "_reason", "there is none in this test")
    with pytest.warns(UserWarning, match="pin_memory has no effect: there is none in this test") as caught:
        loader = DataLoader(Rows(), 8, num_workers=1, pin_memory=True)
    assert caught[0].filename == __file__
    assert [pinned(batch) for batch in loader] == [[False]] * 8


def test_if_pinning_is_refused_batches_are_not_pinned(host, monkeypatch):
    monkeypatch.setattr(registered, "_is_refused", False)
    loader = DataLoader(Rows(512), 8, num_workers=2, pin_memory=True)
    host.memory_limit = sum(host._registered.values()) + 4 * registered.PAGED_FROM
    with pytest.warns(RuntimeWarning, match="limit of locked memory") as caught:
        found = [(pinned(batch)[0], batch.numpy().copy()) for batch in loader]
    assert sum("limit of locked memory" in str(one.message) for one in caught) == 1  # others are Python's, of forks
    assert {is_pinned for is_pinned, _ in found} == {True, False}
    assert np.array_equal(np.concatenate([values for _, values in found]), Rows(512).x)


def test_the_device_must_be_a_gpu():
    with pytest.raises(InvalidArgument, match="pin_memory_device"):
        DataLoader(Rows(), pin_memory=True, pin_memory_device="xpu")


# -- copies that read a batch which the program has dropped


def raced(host, monkeypatch, keep):
    """Whether a batch changed while a stream was to read it, after the program had dropped it."""
    stream = 5
    monkeypatch.setattr(registered, "current_streams", lambda: iter([(0, stream)]))
    if not keep:
        monkeypatch.setattr(order, "keep_until_done", lambda owner, device, stream: None)
    host.hold(stream)
    iterator = iter(DataLoader(Rows(512, (16, 1024)), 8, num_workers=2, pin_memory=True))
    next(iterator)
    batch = next(iterator)
    address, nbytes, before = batch.data_ptr(), batch.nbytes, batch.numpy().tobytes()
    del batch  # batch.to("cuda", non_blocking=True) was the last that used it, and has not read it yet
    for _ in range(20):
        next(iterator)
    seen = ctypes.string_at(address, nbytes)
    host.release(stream)
    return seen != before


def test_a_copy_that_was_submitted_reads_the_batch_that_was_dropped(host, monkeypatch):
    assert not raced(host, monkeypatch, keep=True)


def test_without_the_deferral_it_would_read_a_later_batch(host, monkeypatch):
    """So that the test above can fail."""
    assert raced(host, monkeypatch, keep=False)


def test_the_memory_comes_back_once_the_stream_has_passed(host, monkeypatch):
    monkeypatch.setattr(registered, "current_streams", lambda: iter([(0, 5)]))
    loader = DataLoader(Rows(64, (1024,)), 8, num_workers=2, pin_memory=True)
    host.hold(5)
    assert len(list(loader)) == 8
    pool = loader._slots.pinning._pool
    size = pool.nbytes
    assert pool.trim() == 0
    host.release(5)
    until(lambda: pool.trim() == size or not pool.nbytes, "all blocks are free")


# -- copies ahead


@pytest.fixture
def device(either, monkeypatch):
    """A device on which tensors can be, of CuPy or of its stand-in."""
    if importlib.util.find_spec("cupy") is None:
        monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "support" / "host_cupy"))
    return "cuda"


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_copied_to_a_device_ahead(device, workers, pin_memory):
    loader = DataLoader(Numbered(64), 8, num_workers=workers, pin_memory=pin_memory)
    for _ in range(2):
        numbers, texts = [], []
        for batch in loader.prefetch_to(device):
            x, (number, text) = batch["x"], batch["pair"]
            assert str(x.device) == str(number.device) == "cuda:0"
            assert x.shape == (8, 3, 4)
            assert x[:, 0, 0].tolist() == number.tolist()
            numbers += number.tolist()
            texts += text
        assert numbers == list(range(64))
        assert texts == [str(number) for number in numbers]


def test_an_iterator_that_copies_ahead_can_be_dropped(device):
    loader = DataLoader(Rows(512), 8, num_workers=2, pin_memory=True)
    for _ in range(3):
        iterator = loader.prefetch_to(device)
        assert next(iterator)[0, 1].item() == 1
        del iterator
    assert sum(len(batch) for batch in loader.prefetch_to(device)) == 512


def test_an_empty_epoch_and_the_end(device):
    assert list(DataLoader(Rows(0)).prefetch_to(device)) == []
    iterator = DataLoader(Rows(3)).prefetch_to(device)
    assert len(list(iterator)) == 3
    assert next(iterator, None) is None


class Recorder:
    """A Copier that notes what it is asked for."""

    handle = 7

    def __init__(self, device):
        self.calls = self.all

    def begin(self):
        self.calls.append("begin")

    def copy(self, tensor):
        self.calls.append(("copy", tensor[0].item()))
        return tensor.clone()

    def end(self):
        return len(self.calls)

    def hand_out(self, event, copies):
        assert len(copies) == 1
        self.calls.append(("hand out", copies[0][0].item()))


def test_the_next_batch_is_copied_before_one_is_handed_out(device, monkeypatch):
    """So that the copy runs beside what the program then does with the one."""
    monkeypatch.setattr(Recorder, "all", [], raising=False)
    monkeypatch.setattr(prefetching, "_OurCopier", Recorder)
    kept = []
    monkeypatch.setattr(order, "keep_until_done", lambda owner, device, stream: kept.append((owner, device, stream)))
    iterator = Prefetched([st.tensor([k]) for k in range(3)], device)
    assert next(iterator).tolist() == [0]
    assert Recorder.all == ["begin", ("copy", 0), "begin", ("copy", 1), ("hand out", 0)]
    assert [stream for _, _, stream in kept] == [7, 7]
    assert kept[0][0][0].tolist() == [0]  # the batch that the copy reads, and what it writes
    assert next(iterator).tolist() == [1]
    assert Recorder.all[5:] == ["begin", ("copy", 2), ("hand out", 1)]


def test_copies_ahead_are_of_tensors_and_to_gpus(device):
    with pytest.raises(InvalidArgument, match="output='numpy'"):
        DataLoader(Rows(), output="numpy").prefetch_to(device)
    with pytest.raises(InvalidArgument, match="not to 'cpu'"):
        DataLoader(Rows()).prefetch_to("cpu")
    with pytest.raises(InvalidArgument, match="cuda:99"):
        DataLoader(Rows()).prefetch_to("cuda:99")


def test_without_a_gpu_nothing_can_be_copied_to_it(monkeypatch):
    monkeypatch.setattr(driver, "_driver", None)
    monkeypatch.setattr(driver, "_reason", "there is none in this test")
    monkeypatch.setattr("shmtensor.gpu.arrays._cupy", None)
    with pytest.raises(DeviceUnavailable, match="there is none in this test"):
        DataLoader(Rows()).prefetch_to("cuda:0")


# -- torch


def test_torch_tensors_of_a_batch_are_over_pinned_memory(either):
    torch = pytest.importorskip("torch")
    loader = DataLoader(Rows(64), 8, num_workers=2, pin_memory=True, output="torch")
    for batch in loader:
        assert registered.is_registered(batch.data_ptr())
        assert batch.is_pinned() is torch.cuda.is_available()
    assert np.array_equal(np.concatenate([batch.numpy() for batch in loader]), Rows(64).x)


def torch_collated(samples):
    import torch

    return torch.stack([torch.from_numpy(sample) for sample in samples]), "text"


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_tensors_of_a_collate_function_are_copied_into_pinned_memory(either, workers):
    pytest.importorskip("torch")
    loader = DataLoader(Rows(64), 8, num_workers=workers, pin_memory=True, collate_fn=torch_collated)
    for batch, text in loader:
        assert registered.is_registered(batch.data_ptr()) and text == "text"
    assert np.array_equal(np.concatenate([batch.numpy() for batch, _ in loader]), Rows(64).x)


@pytest.fixture
def gpu_torch():
    torch = pytest.importorskip("torch")
    if driver.status() or not torch.cuda.is_available():
        pytest.skip(f"needs torch and a GPU: {driver.status() or 'this torch has no CUDA'}")
    return torch


def test_on_a_gpu_torch_tensors_are_copied_ahead(gpu_torch):
    torch = gpu_torch
    loader = DataLoader(Rows(1024, (64, 1024)), 8, num_workers=2, pin_memory=True, output="torch")
    sums = []
    for batch in loader.prefetch_to("cuda"):
        assert batch.is_cuda
        torch.cuda._sleep(1_000_000)
        sums.append(batch.double().sum(dim=(1, 2)))
    assert torch.equal(torch.cat(sums).cpu(), torch.from_numpy(Rows(1024, (64, 1024)).x).double().sum(dim=(1, 2)))


def test_on_a_gpu_copies_of_torch_read_what_was_in_the_batch(gpu_torch):
    torch = gpu_torch
    loader = DataLoader(Rows(1024, (64, 1024)), 8, num_workers=2, pin_memory=True, output="torch")
    copies = []
    for batch in loader:
        assert batch.is_pinned()
        assert batch.pin_memory().data_ptr() == batch.data_ptr()
        torch.cuda._sleep(2_000_000)  # about a millisecond, so that the copies lag behind the loader
        copies.append(batch.to("cuda", non_blocking=True))
        del batch
    assert torch.equal(torch.cat(copies).cpu(), torch.from_numpy(Rows(1024, (64, 1024)).x))
