"""The loader compared with torch's DataLoader on the same datasets, case by case."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from loader_world import Numbered, Rows, Stream

from shmtensor.data import DataLoader
from shmtensor.errors import QuotaExceeded

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.usefixtures("in_time"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

Pair = namedtuple("Pair", "left right")


class Trees:
    """Samples of one kind of tree."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 11

    def __getitem__(self, i: int) -> Any:
        return {
            "float": lambda: float(i),
            "int": lambda: i,
            "bool": lambda: i % 2 == 0,
            "text": lambda: f"s{i}",
            "bytes": lambda: b"b%d" % i,
            "tuple": lambda: (i, float(i)),
            "list": lambda: [i, [i, "x"]],
            "named": lambda: Pair(i, np.full(2, i)),
            "dict": lambda: {"a": i, "b": {"c": np.float32(i)}},
            "double": lambda: np.full((2, 3), i, np.float64),
            "int8": lambda: np.full(3, i, np.int8),
            "complex": lambda: np.full(3, i + 1j, np.complex64),
            "empty": lambda: np.zeros((0, 3), np.float32),
            "torch": lambda: torch.full((2, 2), i),
            "half": lambda: torch.full((2,), i, dtype=torch.float16),
            "mixed": lambda: (torch.full((2,), i), np.full(3, i), i, "t"),
        }[self.kind]()


KINDS = [
    "float",
    "int",
    "bool",
    "text",
    "bytes",
    "tuple",
    "list",
    "named",
    "dict",
    "double",
    "int8",
    "complex",
    "empty",
]
KINDS += ["torch", "half", "mixed"]


class TorchStream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    def __iter__(self) -> Any:
        return iter(range(10))


def form(tree: Any) -> Any:
    """A batch as types, values and torch's dtypes."""
    if isinstance(tree, torch.Tensor):
        return "tensor", tree.dtype, tuple(tree.shape), tree.tolist()
    if isinstance(tree, dict):
        return {key: form(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree).__name__, [form(value) for value in tree]
    return tree


def both(dataset: Any, *args: Any, workers: int = 0, **kwargs: Any) -> tuple[Any, Any]:
    ours = DataLoader(dataset, *args, num_workers=workers, output="torch", **kwargs)
    theirs = torch.utils.data.DataLoader(dataset, *args, **kwargs)
    return form(list(ours)), form(list(theirs))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_trees(kind, workers):
    ours, theirs = both(Trees(kind), 4, workers=workers)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_single_samples(kind, workers):
    ours, theirs = both(Trees(kind), None, workers=workers)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "kwargs",
    [{"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"sampler": [3, 1, 1]}, {"batch_sampler": [[1], [0, 2]]}],
    ids=repr,
)
def test_orders(workers, kwargs):
    ours, theirs = both(Numbered(), workers=workers, **kwargs)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [TorchStream()], ids=["stream"])
@pytest.mark.parametrize(
    "kwargs", [{"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}], ids=repr
)
def test_streams_of_torch(workers, dataset, kwargs):
    ours, theirs = both(dataset, workers=workers, **kwargs)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_and_samplers_of_torch(workers):
    data = torch.utils.data
    dataset = data.TensorDataset(torch.arange(30).reshape(15, 2), torch.arange(15.0))
    ours, theirs = both(data.Subset(dataset, [5, 3, 1, 7, 8]), 2, workers=workers)
    assert ours == theirs
    sampler = data.DistributedSampler(dataset, 2, 1, shuffle=True, seed=3)
    sampler.set_epoch(2)
    ours, theirs = both(dataset, 2, sampler=sampler, workers=workers)
    assert ours == theirs


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_functions_may_make_torch_tensors(workers):
    found = list(DataLoader(Rows(8), 4, num_workers=workers, collate_fn=lambda rows: torch.tensor(np.stack(rows)) * 2))
    assert [type(batch) for batch in found] == [torch.Tensor] * 2
    assert np.array_equal(torch.cat(found).numpy(), Rows(8).x * 2)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True}, {"batch_size": 0},
        {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
    ],
    ids=repr,
)  # fmt: skip
def test_what_torch_refuses(kwargs):
    for kind in (DataLoader, torch.utils.data.DataLoader):
        with pytest.raises(ValueError, match=r"\w"):
            kind(Rows(), **kwargs)


@pytest.mark.parametrize(
    "kwargs", [{}, {"batch_size": 5}, {"batch_size": 5, "drop_last": True}, {"batch_size": None}], ids=repr
)
def test_lengths_are_torchs(kwargs):
    assert len(DataLoader(Rows(23), **kwargs)) == len(torch.utils.data.DataLoader(Rows(23), **kwargs))


def test_our_stream_is_one_iterator_for_all_workers():
    found = [batch.tolist() for batch in DataLoader(Stream(10), 3, num_workers=3)]
    assert found == [[[n] * 3 for n in range(k, min(k + 3, 10))] for k in range(0, 10, 3)]


def _stacked(samples: list[Any]) -> Any:
    return {"x": torch.from_numpy(np.stack(samples))}


def test_tensors_of_a_collate_function_count_while_they_are_held():
    loader = DataLoader(Rows(80, (40_000,)), 8, num_workers=2, collate_fn=_stacked, max_bytes=3 * 1_280_000)
    kept = []
    with pytest.raises(QuotaExceeded, match="3 batches"):
        kept.extend(loader)
    assert [type(batch["x"]) for batch in kept] == [torch.Tensor] * 3
    assert loader.stats().held_nbytes == loader.stats().nbytes == 3 * 1_280_000
    kept.clear()
    assert loader.stats().held == 0
