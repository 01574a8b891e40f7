"""The tensors of a batch that the program gets: converted in trees of any type, and without gradients."""

from __future__ import annotations

import collections
from collections import OrderedDict, UserDict, UserList, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.data import DataLoader

pytestmark = pytest.mark.usefixtures("in_time")

Pair = namedtuple("Pair", "left right")


class Dict(dict[str, Any]):
    pass


class List(list[Any]):
    pass


TREES = {
    "OrderedDict": lambda x: OrderedDict(x=x),
    "defaultdict": lambda x: defaultdict(list, x=x),
    "UserDict": lambda x: UserDict(x=x),
    "dict": lambda x: Dict(x=x),
    "list": lambda x: List([x]),
    "UserList": lambda x: UserList([x]),
    "deque": lambda x: collections.deque([x]),
    "namedtuple": lambda x: Pair(x, "text"),
    "nested": lambda x: Dict(x=List([Pair(x, x)])),
}


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, collections.abc.Mapping):
        return [leaf for part in tree.values() for leaf in leaves(part)]
    if isinstance(tree, list | tuple | UserList | collections.deque):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


class Samples:
    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


@pytest.mark.parametrize("size", [2, None])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", TREES)
def test_tensors_in_trees_of_all_types_are_converted(kind, workers, size):
    dataset = Samples(lambda index: TREES[kind](np.full(2, index)))
    whole = list(DataLoader(dataset, size, num_workers=workers))
    for ours, tree in zip(whole, DataLoader(dataset, size, num_workers=workers, output="numpy"), strict=True):
        assert type(tree) is type(ours)
        kinds = {type(leaf) for leaf in leaves(tree)} - {str}
        assert kinds == {np.ndarray}


@pytest.mark.parametrize("output", ["shmtensor", "numpy"])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("size", [2, None])
def test_batches_are_without_gradients(size, workers, output):
    weight = st.ones(3, requires_grad=True)
    for batch in DataLoader(Samples(lambda index: weight * index), size, num_workers=workers, output=output):
        assert output == "numpy" or not batch.requires_grad
