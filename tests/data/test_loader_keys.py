"""Batch samplers with keys of any kind: the dataset gets them unchanged, with any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loader_world import Many, Rows

import shmtensor as st
from shmtensor.data import DataLoader
from shmtensor.errors import InvalidArgument

pytestmark = pytest.mark.usefixtures("in_time")


class Shown:
    """Samples that show their keys."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, key: Any) -> Any:
        return f"{type(key).__name__} {key}"


KEYS = {
    "floats": (lambda: np.array([0.5, 1.5]), ["float64 0.5", "float64 1.5"]),
    "strings": (lambda: np.array(["a", "b"]), ["str_ a", "str_ b"]),
    "bools": (lambda: [True, False], ["bool True", "bool False"]),
    "beyond int64": (lambda: np.array([2**63], np.uint64), [f"int {2**63}"]),
    "short integers": (lambda: np.array([1, 2], np.int8), ["int 1", "int 2"]),
    "int64": (lambda: np.array([1, 2]), ["int 1", "int 2"]),
    "two axes": (lambda: np.array([[1, 2], [3, 4]]), ["ndarray [1 2]", "ndarray [3 4]"]),
    "set": (lambda: {7}, ["int 7"]),
    "generator": (lambda: (n for n in (1, 2)), ["int 1", "int 2"]),
    "range": (lambda: range(2, 4), ["int 2", "int 3"]),
    "text": (lambda: "ab", ["str a", "str b"]),
    "tensor": (lambda: st.tensor([1, 2]), ["int 1", "int 2"]),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_kinds(kind, workers):
    make, wanted = KEYS[kind]
    assert list(map(list, DataLoader(Shown(), batch_sampler=[make()], num_workers=workers))) == [wanted]


@pytest.mark.parametrize("workers", [0, 2])
def test_ranges_are_keys(workers):
    found = list(DataLoader(Rows(), batch_sampler=[[0, 1], range(2, 4), range(4, 6), [6, 7]], num_workers=workers))
    assert np.array_equal(np.concatenate([batch.numpy() for batch in found]), Rows().x[:8])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_no_keys_is_collated(workers):
    loader = DataLoader(Rows(), batch_sampler=[[0, 1], [], [2]], num_workers=workers, collate_fn=len)
    assert list(loader) == [2, 0, 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("dataset", [Rows(), Many()], ids=["one", "many"])
def test_a_batch_of_no_keys_cannot_be_collated_by_default(dataset, place, workers):
    keys: list[list[int]] = [[0, 1], [2, 3], [4]]
    keys.insert(place, [])
    iterator = iter(DataLoader(dataset, batch_sampler=keys, num_workers=workers))
    lengths = []
    for _ in range(4):
        try:
            lengths.append(len(next(iterator)))
        except InvalidArgument as error:
            assert "without samples" in str(error)
            lengths.append(0)
    assert lengths == list(map(len, keys)) and next(iterator, None) is None


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("given", [[0, 1], np.arange(2)], ids=["list", "array"])
def test_a_batch_sampler_that_gives_single_keys(given, workers):
    iterator = iter(DataLoader(Rows(), batch_sampler=given, num_workers=workers))
    with pytest.raises(InvalidArgument, match=r"batch_sampler gave .*0.* for batch 0.*\[0, 1, 2\].*as sampler"):
        next(iterator)


def unreadable() -> Any:
    yield 1
    raise TypeError("of the program")


def test_a_type_error_of_a_batch_sampler_is_its_own():
    with pytest.raises(TypeError, match="of the program"):
        list(DataLoader(Rows(), batch_sampler=[unreadable()]))


@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_a_sampler_that_cannot_be_iterated(name):
    with pytest.raises(InvalidArgument, match=f"{name} must be iterable, and 5 is not"):
        DataLoader(Rows(), **{name: 5})
