"""Results of collate functions arrive as through torch's loader, and samples are sent as copies."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from manager_world import BOUND, SUPPORT
from tiers import first

from shmtensor.data import DataLoader

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import PackedSequence, pack_sequence  # noqa: E402

pytestmark = [pytest.mark.usefixtures("in_time"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def only(collate_fn: Any) -> Any:
    """The batch of a worker that collates by this function."""
    (batch,) = DataLoader([1, 2], 2, num_workers=1, collate_fn=lambda samples: collate_fn())
    return batch


def test_a_packed_sequence() -> None:
    found = only(lambda: pack_sequence([torch.ones(3), torch.zeros(2)]))
    assert type(found) is PackedSequence and found.data.tolist() == [1, 0, 1, 0, 1]


def test_tensors_on_one_memory() -> None:
    def shared() -> Any:
        x = torch.arange(4.0)
        return [x, x, x[1:]]

    first, second, part = only(shared)
    assert first is second
    first[1] = 9
    assert part.tolist() == [9, 2, 3]


def test_leaves_of_gradients_and_results_of_recorded_operations() -> None:
    assert only(lambda: torch.ones(3, requires_grad=True)).requires_grad
    with pytest.raises(RuntimeError, match="non-leaf"):
        only(lambda: torch.ones(3, requires_grad=True) * 2)


def test_conjugated_results() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(only(z.conj), z.conj())


class Views:
    """Samples that are views of one tensor, by a function."""

    def __init__(self, make: Any) -> None:
        self.x = torch.arange(24).reshape(12, 2) + 1j
        self.make = make

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return self.make(self.x, i)


@pytest.mark.parametrize(
    "make",
    [lambda x, i: x[i].conj(), lambda x, i: x[i].conj().imag, lambda x, i: (x[i].clone().requires_grad_(), i)],
    ids=["conj", "neg", "leaf"],
)
def test_all_batches_have_the_numbers_of_the_samples(make: Any) -> None:
    dataset = Views(make)
    ours = list(DataLoader(dataset, 3, num_workers=1, output="torch"))
    theirs = list(torch.utils.data.DataLoader(dataset, 3))
    for mine, wanted in zip(ours, theirs, strict=True):
        for a, b in zip(*((x,) if torch.is_tensor(x) else x for x in (mine, wanted)), strict=True):
            assert torch.equal(a, b)


class Watching(Views):
    """Samples say whether the memory of all samples has moved."""

    def __getitem__(self, i: int) -> Any:
        return self.x[i], self.x.is_shared()


def test_a_dataset_of_views_stays_where_it_is() -> None:
    batches = list(DataLoader(Watching(None), 1, num_workers=1, prefetch_factor=1))
    assert not any(bool(moved[0]) for _, moved in batches)


@pytest.mark.exhaustive
def test_many_results_need_no_descriptors() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "import torch; from shmtensor.data import DataLoader; from loader_world import Rows\n"
        "first = lambda rows: torch.full((2,), float(rows[0][0]))\n"
        "kept = list(DataLoader(Rows(2000), 2, num_workers=2, collate_fn=first))\n"
        "assert len(kept) == 1000 and all(type(b) is torch.Tensor and b[1] == 10 * n for n, b in enumerate(kept))"
    )

    environment = {**os.environ, "PYTHONPATH": f"{SUPPORT}:{SUPPORT.parents[1]}"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=BOUND, env=environment)


class Placed:
    """Samples that depend on what torch's function says of the worker, as datasets for torch's loader do."""

    first = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        info = torch.utils.data.get_worker_info()
        return torch.tensor([index + self.first, info.id, info.num_workers])


def begin_at_100(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info.id == worker
    info.dataset.first = 100


@pytest.mark.parametrize("collate_fn", [None, torch.utils.data.default_collate])
@pytest.mark.parametrize("method", first(["fork", "spawn"]))
def test_torch_knows_the_worker(method: str, collate_fn: Any) -> None:
    loader = DataLoader(
        Placed(), 4, num_workers=2, worker_init_fn=begin_at_100, multiprocessing_context=method, output="torch",
        collate_fn=collate_fn,
    )  # fmt: skip
    found = torch.cat(list(loader))
    assert found[:, 0].tolist() == list(range(100, 108)) and set(found[:, 1].tolist()) <= {0, 1}
    assert found[:, 2].tolist() == [2] * 8 and torch.utils.data.get_worker_info() is None
