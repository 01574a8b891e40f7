"""The state of a loader: resumed at every batch, with another number of workers, the remaining batches are the same."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_world import Decoded, Random, Rows, Stream
from manager_world import until

from shmtensor.data import BatchSampler, BucketSampler, DataLoader, DistributedSampler, RandomSampler
from shmtensor.errors import InvalidArgument

pytestmark = pytest.mark.usefixtures("in_time")


def whole(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def of(kind: str, workers: int, seed: int | None = None, **kwargs: Any) -> DataLoader[Any]:
    if kind == "stream":
        return DataLoader(Stream(), 4, num_workers=workers, seed=seed, **kwargs)
    if kind == "decoded":
        return DataLoader(Decoded(), 4, num_workers=workers, seed=seed, **kwargs)
    if kind == "sampler":
        return DataLoader(
            Random(30), 4, sampler=RandomSampler(range(30), seed=seed), num_workers=workers, seed=seed, **kwargs
        )
    if kind == "buckets":
        sampler = BucketSampler([n * n % 17 for n in range(30)], 4, seed=seed)
        return DataLoader(Random(30), batch_sampler=sampler, num_workers=workers, seed=seed, **kwargs)
    return DataLoader(Random(30), 4, shuffle=True, num_workers=workers, seed=seed, **kwargs)


@pytest.mark.parametrize("kind", ["shuffled", "sampler", "buckets", "stream", "decoded"])
def test_every_batch_can_be_resumed_at(kind):
    loader = of(kind, 2, 5)
    whole(loader)  # the second epoch is what is broken off
    states, wanted = [loader.state_dict()], []
    for batch in loader:
        wanted.append(batch.tolist())
        states.append(loader.state_dict())
    after = whole(loader)
    for done, state in enumerate(states):
        state = json.loads(json.dumps(state))
        resumed = of(kind, (0, 1, 3)[done % 3], 77)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert whole(resumed) == wanted[done:]
        if done % 3 == 0:
            assert whole(resumed) == after, "the epoch after that"


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["shuffled", "sampler", "buckets", "stream", "decoded"])
@pytest.mark.parametrize("workers", [0, 1, 2, 3, 8])
def test_every_batch_can_be_resumed_at_byte_for_byte(kind, workers):
    def data(loader: Any) -> list[bytes]:
        return [batch.numpy().tobytes() for batch in loader]

    loader = of(kind, 2, 5)
    states, wanted = [], []
    for batch in loader:
        states.append(loader.state_dict())
        wanted.append(batch.numpy().tobytes())
    after = data(loader)
    resumed = of(kind, workers, 77, **({"persistent_workers": True} if workers else {}))
    for done, state in enumerate(states[:-1], 1):
        resumed.load_state_dict(state)
        assert data(resumed) == wanted[done:]
    assert data(resumed) == after


class Held(Rows):
    """Samples of which one does not come before it may."""

    def __init__(self, mark: Path) -> None:
        super().__init__(23, ())
        self.mark = mark

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            until(self.mark.exists, "the other batches")
        return self.x[index]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_came_out_of_order_does_not_come_again(workers, tmp_path):
    loader = DataLoader(Held(tmp_path / "may"), 4, num_workers=2, in_order=False)
    iterator = iter(loader)
    found = [next(iterator).tolist() for _ in range(4)]
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["batches"], state["beyond"], state["samples"]) == (2, [3, 4], 16)
    (tmp_path / "may").touch()
    wanted = [list(range(start, min(start + 4, 23))) for start in range(0, 23, 4)]
    assert found == [wanted[n] for n in (0, 1, 3, 4)]
    for resumed in (DataLoader(Rows(23, ()), 4, num_workers=workers), of("stream", workers), of("decoded", workers)):
        resumed.load_state_dict(state)
        assert [len(batch) for batch in resumed] == [4, 3]
        resumed.load_state_dict(state)
        if not hasattr(resumed.dataset, "load"):
            assert [np.asarray(batch).reshape(len(batch), -1)[:, 0].tolist() for batch in resumed] == [
                wanted[2], wanted[5]
            ]  # fmt: skip


def test_the_end_of_an_epoch_is_the_begin_of_the_next():
    loader = of("shuffled", 0, 5)
    whole(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"], state["samples"]) == (1, 0, 0)
    loader.set_epoch(7)
    assert loader.state_dict()["epoch"] == 7


def test_samples_are_counted():
    loader = of("shuffled", 2, 5)
    iterator = iter(loader)
    next(iterator), next(iterator)
    assert loader.state_dict() == {
        "seed": 5, "epoch": 0, "batches": 2, "beyond": [], "samples": 8, "sampler": {"seed": 5, "epoch": 0},
        "order": {"sampler": "RandomSampler", "has_state": True, "length": 30, "batch_size": 4, "replacement": False},
    }  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_is_not_loaded_under_an_iterator(workers):
    loader = of("shuffled", workers, 5)
    state = loader.state_dict()
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(InvalidArgument, match="after iter"):
        loader.load_state_dict(state)
    list(iterator)
    loader.load_state_dict(state)
    assert whole(loader) == whole(of("shuffled", 0, 5))


@pytest.mark.parametrize("state", [{}, None, {"seed": 1}, 3], ids=repr)
def test_what_is_no_state(state):
    with pytest.raises(InvalidArgument, match="state"):
        of("shuffled", 0).load_state_dict(state)


def test_an_epoch_that_is_set_is_begun():
    loader = of("shuffled", 0, 5)
    epochs = [whole(loader) for _ in range(3)]
    again = of("shuffled", 2, 5)
    again.set_epoch(2)
    assert whole(again) == epochs[2]
    again.set_epoch(0)
    assert whole(again) == epochs[0]


def test_samplers_of_the_program_are_told_the_epoch():
    loader = DataLoader(Rows(20, ()), batch_sampler=BatchSampler(RandomSampler(range(20), seed=1), 6, False))
    loader.set_epoch(4)
    other = RandomSampler(range(20), seed=1)
    other.set_epoch(4)
    assert [int(n) for batch in loader for n in batch] == list(other)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_that_the_program_sets_at_its_sampler_counts(workers):
    sampler = RandomSampler(range(20), seed=1)
    loader = DataLoader(Rows(20, ()), 6, sampler=sampler, num_workers=workers)
    orders = []
    for epoch in (5, 3):
        sampler.set_epoch(epoch)
        orders.append([int(n) for batch in loader for n in batch])
    wanted = []
    for epoch in (5, 3):
        other = RandomSampler(range(20), seed=1)
        other.set_epoch(epoch)
        wanted.append(list(other))
    assert orders == wanted


class Turning:
    """A sampler as torch's DistributedSampler: without a state, told the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter([(n + self.epoch) % 20 for n in range(20)])

    def __len__(self) -> int:
        return 20


def test_the_epoch_of_a_sampler_without_a_state_is_resumed():
    sampler = Turning()
    loader = DataLoader(Rows(20, ()), 6, sampler=sampler)
    whole(loader)
    sampler.set_epoch(7)
    iterator = iter(loader)
    next(iterator)
    resumed = DataLoader(Rows(20, ()), 6, sampler=Turning())
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert [int(n) for batch in resumed for n in batch] == [(n + 7) % 20 for n in range(6, 20)]


@pytest.mark.parametrize("kind", [Turning, lambda: RandomSampler(range(20), seed=1)], ids=["epoch", "state"])
def test_an_epoch_that_is_set_after_a_state_was_loaded_counts(kind):
    sampler = kind()
    loader = DataLoader(Rows(20, ()), 6, sampler=sampler)
    sampler.set_epoch(7)
    whole(loader)
    state = loader.state_dict()
    again, wanted = kind(), kind()
    resumed = DataLoader(Rows(20, ()), 6, sampler=again)
    resumed.load_state_dict(state)
    again.set_epoch(11)
    wanted.set_epoch(11)
    assert [int(n) for batch in resumed for n in batch] == list(wanted)


@pytest.mark.parametrize(
    "kind", [Turning, lambda: RandomSampler(range(20), seed=1), lambda: None], ids=["epoch", "state", "own"]
)
def test_the_usual_loop_over_epochs_resumes(kind, recwarn):
    def loader() -> Any:
        return DataLoader(Rows(20, ()), 6, shuffle=None if kind() is not None else True, sampler=kind(), seed=3)

    one, again = loader(), loader()
    one.set_epoch(4)
    iterator = iter(one)
    next(iterator), next(iterator)
    state = one.state_dict()
    again.load_state_dict(state)
    again.set_epoch(4)
    assert whole(again) == whole(iterator)
    assert not recwarn
    again.load_state_dict(state)
    with pytest.warns(UserWarning, match=r"set_epoch\(5\) drops the position .* after 12 samples of epoch 4"):
        again.set_epoch(5)
    assert len(whole(again)) == 4


@pytest.mark.parametrize(("size", "other"), [(4, 8), (8, 4), (4, None), (None, 4)])
def test_a_state_of_batches_of_another_size_is_refused(size, other):
    loader = DataLoader(Rows(20, ()), size)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
        DataLoader(Rows(20, ()), size).load_state_dict(loader.state_dict())
        with pytest.raises(InvalidArgument, match=rf"batch_size={size or 1}, .* has batch_size={other or 1}:"):
            DataLoader(Rows(20, ()), other).load_state_dict(loader.state_dict())


class Own(RandomSampler):
    """A sampler of the program, with a state."""


def rows(length: int = 20, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(Rows(length, ()), **{"batch_size": 4, **kwargs})


def part(**kwargs: Any) -> DataLoader[Any]:
    return rows(40, sampler=DistributedSampler(range(40), **{"num_replicas": 2, "rank": 0, **kwargs}))


def buckets(**kwargs: Any) -> DataLoader[Any]:
    return DataLoader(Rows(20, ()), batch_sampler=BucketSampler(range(20), **{"batch_size": 4, "window": 2, **kwargs}))


@pytest.mark.parametrize(
    ("made", "other", "theirs", "ours"),
    [
        (lambda: rows(shuffle=True), rows, "sampler='RandomSampler', has_state=True", "sampler='SequentialSampler'"),
        (rows, lambda: rows(shuffle=True), "sampler='SequentialSampler', has_state=False", "sampler='RandomSampler'"),
        (lambda: rows(shuffle=True), lambda: rows(24, shuffle=True), "length=20", "length=24"),
        (lambda: rows(3, batch_size=2), lambda: rows(3, batch_size=3), "batch_size=2", "batch_size=3"),
        (
            lambda: DataLoader(Stream(), 3),
            lambda: DataLoader(Stream(), 4),
            "batch_size=3",
            "batch_size=4",
        ),
        (
            lambda: rows(sampler=RandomSampler(range(20), replacement=True)),
            lambda: rows(shuffle=True),
            "replacement=True",
            "replacement=False",
        ),
        (part, lambda: part(shuffle=False), "shuffle=True", "shuffle=False"),
        (part, lambda: part(num_replicas=4), "length=20, num_replicas=2", "length=10, num_replicas=4"),
        (part, lambda: rows(shuffle=True), "sampler='DistributedSampler'", "sampler='RandomSampler'"),
        (buckets, lambda: buckets(window=3), "window=2", "window=3"),
        (buckets, lambda: buckets(batch_size=5), "length=5, batch_size=4", "length=4, batch_size=5"),
        (lambda: rows(sampler=Own(range(20))), lambda: rows(sampler=[1] * 20), "has_state=True", "has_state=False"),
        (lambda: rows(shuffle=True), lambda: DataLoader(Stream(), 4), "has_state=True", "has_state=False"),
    ],
    ids=range(13),
)
def test_a_state_of_another_order_is_refused_in_the_middle_of_an_epoch(made, other, theirs, ours):
    loader, resumed = made(), other()
    begin = json.loads(json.dumps(loader.state_dict()))
    iterator = iter(loader)
    next(iterator)
    state, before = json.loads(json.dumps(loader.state_dict())), resumed.state_dict()
    with pytest.raises(InvalidArgument, match=f"after batch 1 of an epoch with {theirs}.* this loader has {ours}"):
        resumed.load_state_dict(state)
    assert resumed.state_dict() == before, "nothing was changed"
    made().load_state_dict(state)
    resumed.load_state_dict(begin)


@pytest.mark.parametrize(
    ("made", "other"),
    [
        (lambda: rows(shuffle=True), lambda: rows(sampler=RandomSampler(range(20), seed=8), num_workers=1)),
        (lambda: rows(shuffle=True), lambda: rows(shuffle=True, seed=8, drop_last=True, output="numpy")),
        (rows, lambda: rows(sampler=range(20))),
        (lambda: rows(batch_size=None), lambda: rows(batch_size=1)),
        (lambda: rows(sampler=Own(range(20), seed=3)), lambda: rows(sampler=RandomSampler(range(20)))),
        (part, lambda: part(rank=0, seed=9)),
    ],
    ids=range(6),
)
def test_a_state_is_resumed_by_a_loader_with_other_arguments_of_no_consequence(made, other):
    loader, resumed = made(), other()
    iterator = iter(loader)
    next(iterator)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert [np.ravel(batch).tolist() for batch in resumed] == [np.ravel(batch).tolist() for batch in iterator]


def test_a_dataset_in_order_may_have_grown():
    loader, grown = rows(), rows(24)
    next(iter(loader))
    grown.load_state_dict(loader.state_dict())
    assert [np.ravel(batch).tolist() for batch in grown] == [[*range(at, at + 4)] for at in range(4, 24, 4)]


def test_a_state_without_facts_of_its_order_is_accepted():
    loader = rows()
    next(iter(loader))
    state = loader.state_dict()
    del state["order"]
    rows().load_state_dict(state)


def test_every_rank_loads_the_state_of_the_first():
    loader = part()
    next(iter(loader))
    resumed = part(rank=1)
    resumed.load_state_dict(loader.state_dict())
    assert len(whole(resumed)) == 4


def test_a_loader_can_be_pickled_with_its_place():
    loader = of("shuffled", 2, 5, output="numpy", persistent_workers=True, on_worker_death="restart")
    whole(loader)
    iterator = iter(loader)
    next(iterator)
    copies = [pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)]
    for other in copies:
        other.load_state_dict(loader.state_dict())
        assert other.output == "numpy" and other.stats().batches == 0
    wanted = whole(iterator)
    assert [whole(other) for other in copies] == [wanted] * 2


@pytest.mark.parametrize(
    "change",
    [{"batches": -3}, {"batches": 99}, {"batches": 1.5}, {"beyond": [99]}, {"beyond": [-1]}, {"epoch": -1}],
    ids=repr,
)
def test_a_place_that_an_epoch_has_not(change):
    loader = of("shuffled", 0)
    with pytest.raises(InvalidArgument, match="state"):
        loader.load_state_dict({**loader.state_dict(), **change})


def test_a_sampler_without_state_is_warned_of(recwarn):
    dataset = Rows(20, ())
    state = {"seed": 1, "epoch": 0, "batches": 2, "samples": 8, "sampler": None, "order": {}, "beyond": []}
    for sampler in (None, list(range(20)), RandomSampler(dataset), Turning()):
        loader = DataLoader(dataset, 4, sampler=sampler)
        iterator = iter(loader)
        next(iterator)
        DataLoader(dataset, 4, sampler=sampler).load_state_dict(loader.state_dict())
    assert not recwarn
    with pytest.warns(UserWarning, match="has no state_dict.* are skipped by number.*; define both"):
        DataLoader(dataset, 4, sampler={n: n for n in range(20)}).load_state_dict(state)


def test_a_state_that_cannot_restore_the_order_is_warned_of_when_it_is_made():
    class WeightedRandomSampler:  # the name of torch's, which has no state either
        def __iter__(self) -> Iterator[int]:
            return iter(range(20))

    loader = DataLoader(Rows(20, ()), 4, sampler=WeightedRandomSampler())
    iterator = iter(loader)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.state_dict()  # at the start, so the order of the rest is that of a whole epoch
    next(iterator)
    with pytest.warns(UserWarning, match="use shmtensor.data.WeightedRandomSampler") as caught:
        loader.state_dict()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["Sampler", "Generator"])
def test_a_sampler_is_not_advised_to_be_another_class_of_its_name(name: str):
    sampler = type(name, (), {"__iter__": lambda _: iter(range(20))})()
    loader = DataLoader(Rows(20, ()), 4, sampler=sampler)
    iterator = iter(loader)
    next(iterator)
    with pytest.warns(UserWarning, match="; define both"):
        loader.state_dict()
