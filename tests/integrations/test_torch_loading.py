"""torch's DataLoader with shmtensor's processes and memory, and with datasets of shmtensor tensors."""

from __future__ import annotations

import collections
import gc
import os
import signal
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
import pytest
from manager_world import until

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map  # noqa: E402

import shmtensor  # noqa: E402
from shmtensor import errors  # noqa: E402
from shmtensor.integrations.torch import context, from_torch  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]
Pair = collections.namedtuple("Pair", "x y")


def in_ours(tensor: Any) -> bool:
    return from_torch(tensor).is_shared()


class Samples(Dataset[Any]):
    """What a dataset may return, by a function of the index."""

    def __init__(self, make: Any, count: int = 12) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return self.make(i)


def row(i: int) -> Any:
    return torch.full((3, 4), float(i))


def tree(i: int) -> Any:
    return {"x": row(i), "pair": Pair(np.full(2, i), i), "words": [str(i), float(i)]}


def ours(i: int) -> Any:
    return {"x": shmtensor.full((3,), float(i)), "label": i, "shared": shmtensor.full((2,), i, shared=True)}


def ragged(i: int) -> Any:
    return torch.zeros(i + 1)


def wrong(i: int) -> Any:
    if i == 5:
        raise ValueError("sample 5 is damaged")
    return row(i)


def test_it_is_a_context() -> None:
    for method in ("fork", "spawn", "forkserver"):
        assert isinstance(context(method), BaseContext) and context(method).get_start_method() == method
    assert context().get_start_method() in ("fork", "spawn", "forkserver")
    with pytest.raises(errors.InvalidArgument, match="choose one of fork, spawn, forkserver"):
        context("thread")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_batches_are_torchs_in_our_memory(method: str) -> None:
    loader = DataLoader(Samples(tree), batch_size=4, num_workers=2, multiprocessing_context=context(method))
    wanted = list(DataLoader(Samples(tree), batch_size=4))
    found = list(loader)
    assert len(found) == len(wanted) == 3
    for mine, theirs in zip(found, wanted, strict=True):
        assert type(mine) is dict and type(mine["pair"]) is Pair and mine["words"][0] == theirs["words"][0]
        tensors = (mine["x"], mine["pair"].x, mine["pair"].y, mine["words"][1])
        expected = (theirs["x"], theirs["pair"].x, theirs["pair"].y, theirs["words"][1])
        for a, b in zip(tensors, expected, strict=True):
            assert torch.equal(a, b) and a.dtype == b.dtype and a.is_shared() and in_ours(a)


def test_a_kept_batch_is_not_overwritten() -> None:
    loader = DataLoader(
        Samples(row, 64), batch_size=2, num_workers=2, multiprocessing_context=context("fork"), persistent_workers=True
    )
    kept = []
    for epoch in range(3):
        for i, batch in enumerate(loader):
            kept.append((2 * i, batch))
            if epoch == 1 and i == 5:
                break
    for first, batch in kept:
        assert batch[0].eq(first).all() and batch[1].eq(first + 1).all()
    del loader


def test_memory_is_used_again_and_freed() -> None:
    manager = shmtensor.manager.client.default()
    gc.collect()
    before = manager.native.stats().nbytes
    big = Samples(lambda i: torch.full((250_000,), float(i)), 40)
    addresses = set()
    for i, batch in enumerate(DataLoader(big, batch_size=2, num_workers=1, multiprocessing_context=context("fork"))):
        assert batch[1, 0] == 2 * i + 1
        addresses.add(batch.data_ptr())
    assert len(addresses) < 20
    del batch
    gc.collect()
    until(lambda: manager.native.stats().nbytes <= before + 1000, "the batches to go")


def test_the_calls_of_this_process_are_not_changed() -> None:
    for batch in DataLoader(Samples(row), batch_size=4, num_workers=1, multiprocessing_context=context("fork")):
        assert batch.is_shared()
    assert default_collate_fn_map[torch.Tensor] is collate_tensor_fn
    assert not next(iter(DataLoader(Samples(row), batch_size=4))).is_shared()


def doubled(batch: Any) -> Any:
    return torch.stack(batch) * 2


@pytest.mark.parametrize("options", [{"collate_fn": doubled, "batch_size": 2}, {"batch_size": None}])
def test_what_other_collates_return_is_moved(options: Any) -> None:
    batches = list(DataLoader(Samples(row), num_workers=2, multiprocessing_context=context("fork"), **options))
    assert all(in_ours(batch) for batch in batches)
    assert batches[1].flatten()[0] == (4 if "collate_fn" in options else 1)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        yield from (row(i) for i in range(info.id, 10, info.num_workers))


def test_iterable_datasets() -> None:
    loader = DataLoader(Stream(), batch_size=5, num_workers=2, multiprocessing_context=context("fork"))
    assert sorted(float(value) for batch in loader for value in batch[:, 0, 0]) == list(range(10))


@pytest.mark.parametrize("make", [ragged, wrong])
def test_errors_of_workers_are_torchs(make: Any) -> None:
    kind = RuntimeError if make is ragged else ValueError
    loader = DataLoader(Samples(make), batch_size=4, num_workers=2, multiprocessing_context=context("fork"))
    batches = iter(loader)
    with pytest.raises(kind, match=r"equal size|sample 5 is damaged"):
        list(batches)
    batches._shutdown_workers()  # the traceback still refers to them


def deadly(i: int) -> Any:
    if i == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return row(i)


def test_a_worker_that_is_killed_is_an_error_and_the_loader_goes_on() -> None:
    samples = Samples(deadly)
    loader = DataLoader(samples, batch_size=2, num_workers=2, multiprocessing_context=context("fork"))
    batches = iter(loader)
    with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly"):
        list(batches)
    batches._shutdown_workers()
    samples.make = row
    assert [float(batch[0, 0, 0]) for batch in loader] == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("shape", [(0,), ()])
def test_shapes_without_memory_or_axes(shape: Any) -> None:
    samples = Samples(lambda i: torch.zeros(shape))
    (batch,) = DataLoader(samples, batch_size=12, num_workers=1, multiprocessing_context=context("fork"))
    assert batch.shape == (12, *shape)


# -- datasets of our tensors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "ours"}])
def test_a_dataset_of_our_tensors(how: Any) -> None:
    if how.get("multiprocessing_context") == "ours":
        how = {**how, "multiprocessing_context": context("fork")}
    elif how:
        how = {**how, "multiprocessing_context": "fork"}
    for i, batch in enumerate(DataLoader(Samples(ours), batch_size=4, **how)):
        assert type(batch["x"]) is torch.Tensor and batch["x"].shape == (4, 3)
        assert batch["x"][:, 0].tolist() == batch["label"].tolist() == batch["shared"][:, 1].tolist()
        assert batch["label"][0] == 4 * i


def test_our_tensors_without_batches() -> None:
    loader = DataLoader(Samples(ours), batch_size=None, num_workers=1, multiprocessing_context=context("fork"))
    first = next(iter(loader))
    assert type(first["x"]) is shmtensor.Tensor and first["x"].is_shared()
