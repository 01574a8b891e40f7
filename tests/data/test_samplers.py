"""Samplers: torch's orders and errors, epochs, states."""

import itertools
import pickle

import numpy as np
import pytest

import shmtensor as st
from shmtensor.data import (
    BatchSampler,
    BucketSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from shmtensor.errors import InvalidArgument

RANDOM = [
    lambda **options: RandomSampler(range(20), **options),
    lambda **options: RandomSampler(range(20), replacement=True, num_samples=70, **options),
    lambda **options: RandomSampler(range(20), num_samples=50, **options),
    lambda **options: SubsetRandomSampler([3, 1, 4, 15, 9, 2, 6], **options),
    lambda **options: WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 30, **options),
    lambda **options: WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 5, replacement=False, **options),
    lambda **options: BucketSampler([5, 1, 9, 2, 8, 3, 7, 7, 1, 4], 3, window=2, **options),
]


def test_a_sampler_without_an_order_says_so():
    with pytest.raises(NotImplementedError):
        iter(Sampler())


def test_sequential():
    sampler = SequentialSampler("abcd")
    assert list(sampler) == list(sampler) == [0, 1, 2, 3] and len(sampler) == 4


@pytest.mark.parametrize("make", RANDOM)
def test_the_order_depends_on_seed_and_epoch_only(make):
    one, two = make(seed=5), make(seed=5)
    epochs = [list(one) for _ in range(4)]
    assert len(set(map(str, epochs))) == 4 and all(len(epoch) == len(one) for epoch in epochs)
    two.set_epoch(2)
    assert [list(two), list(two)] == epochs[2:]
    two.set_epoch(0)
    st.manual_seed(1)
    assert list(two) == epochs[0] != list(make(seed=6))


@pytest.mark.parametrize("make", RANDOM)
def test_the_seed_comes_from_a_generator_once(make):
    found = []
    for _ in range(2):
        st.manual_seed(7)
        sampler = make()
        found.append([list(sampler), list(sampler)])
        assert list(make(generator=st.Generator(7))) == found[-1][0]
    assert found[0] == found[1] and found[0][0] != found[0][1]
    assert list(make(generator=np.random.default_rng(3))) == list(make(generator=np.random.default_rng(3)))


@pytest.mark.parametrize("make", RANDOM)
def test_states(make):
    sampler = make()
    next(iter(sampler))
    state = sampler.state_dict()
    expected = [list(sampler), list(sampler)]
    other = make()
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert [list(other), list(other)] == expected
    for wrong in ({}, None, {"seed": "a", "epoch": 1}):
        with pytest.raises(InvalidArgument):
            other.load_state_dict(wrong)
    assert other.state_dict() == sampler.state_dict()


@pytest.mark.parametrize("make", RANDOM)
def test_a_sampler_that_was_sent_goes_on(make):
    sampler = make(seed=3)
    list(sampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


@pytest.mark.parametrize(
    "indices",
    [
        [1.5, 2.5, 7],
        ["a", "b", "c"],
        [(1, 2), (3, 4)],
        [True, False],
        [2**63, 5],
        np.array([0.5, 1.5]),
        range(3, 9),
        [],
    ],
    ids=repr,
)
def test_a_subsets_indices_are_given_as_they_are(indices):
    found = list(SubsetRandomSampler(indices))
    assert sorted(map(repr, found)) == sorted(map(repr, indices))
    assert [
        key for batch in BatchSampler(SubsetRandomSampler(indices, seed=3), 2, False).batches() for key in batch
    ] == (list(SubsetRandomSampler(indices, seed=3)))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "uint64"])
def test_a_subsets_indices_may_be_an_array(dtype):
    array = np.array([4, 9, 2], dtype)
    for indices in (array, st.tensor(array)):
        found = list(SubsetRandomSampler(indices, seed=0))
        assert found == list(SubsetRandomSampler([4, 9, 2], seed=0))
    assert dtype == "uint64" or set(map(type, found)) == {int}


def test_weights_may_be_integers():
    found = [list(WeightedRandomSampler(kind([0, 1, 0, 5]), 20, seed=1)) for kind in (list, np.array)]
    assert found[0] == found[1] and set(found[0]) == {1, 3}


def test_random_samples():
    assert sorted(RandomSampler(range(20))) == list(range(20))
    assert len(set(RandomSampler(range(1000), num_samples=1000))) == 1000
    assert set(itertools.islice(RandomSampler(range(4), num_samples=10), 4)) == {0, 1, 2, 3}
    assert sorted(SubsetRandomSampler([5, 5, 8])) == [5, 5, 8] and list(SubsetRandomSampler([])) == []
    counts = np.bincount(list(WeightedRandomSampler([1, 0, 3], 4000, seed=1)), minlength=3)
    assert counts[1] == 0 and 2700 < counts[2] < 3300
    assert sorted(WeightedRandomSampler([1, 2, 3], 3, replacement=False)) == [0, 1, 2]


@pytest.mark.parametrize(
    "options", [{}, {"replacement": True}, {"replacement": True, "num_samples": 100}, {"num_samples": 53}]
)
def test_the_first_epoch_is_torchs(options):
    torch = pytest.importorskip("torch")
    for seed in range(3):
        st.manual_seed(seed)
        torch.manual_seed(seed)
        assert list(RandomSampler(range(23), **options)) == list(torch.utils.data.RandomSampler(range(23), **options))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
def test_distributed_samplers_are_torchs(count, shuffle, drop_last, replicas):
    torch = pytest.importorskip("torch")
    dataset = range(count)
    for rank in range(replicas):
        ours = DistributedSampler(dataset, replicas, rank, shuffle, 3, drop_last)
        if count == 0 or (drop_last and count < replicas):
            assert list(ours) == [] and len(ours) == 0
            continue
        theirs = torch.utils.data.DistributedSampler(dataset, replicas, rank, shuffle, 3, drop_last)
        for epoch in (0, 0, 4):
            ours.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert list(ours) == list(theirs) and len(ours) == len(theirs)
            assert list(ours) == list(ours)  # until set_epoch


def test_distributed_samplers_take_rank_and_count_from_the_environment(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "2")
    assert list(DistributedSampler(range(9), shuffle=False)) == [2, 5, 8]
    assert list(DistributedSampler(range(9), rank=0, shuffle=False)) == [0, 3, 6]
    monkeypatch.delenv("RANK")
    with pytest.raises(InvalidArgument, match="num_replicas and rank"):
        DistributedSampler(range(9))
    sampler = DistributedSampler(range(9), 3, 1)
    sampler.set_epoch(4)
    other = DistributedSampler(range(9), 3, 1, seed=9)
    other.load_state_dict(sampler.state_dict())
    assert list(other) == list(sampler)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_batches_are_torchs(count, drop_last):
    torch = pytest.importorskip("torch")
    ours = BatchSampler(SequentialSampler(range(count)), 3, drop_last)
    theirs = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(range(count)), 3, drop_last)
    assert list(ours) == list(theirs) == [batch.tolist() for batch in ours.batches()] and len(ours) == len(theirs)


def test_batches_of_any_iterable():
    assert list(BatchSampler(["a", "b", "c"], 2, False)) == [["a", "b"], ["c"]]
    assert list(BatchSampler(iter("abc"), 2, True).batches()) == [["a", "b"]]


def test_arrays_of_batches_are_the_lists_and_count_epochs():
    one, two = (BatchSampler(RandomSampler(range(10), seed=3), 4, False) for _ in range(2))
    for _ in range(3):
        assert list(one) == [batch.tolist() for batch in two.batches()]
    one.set_epoch(1)
    two.set_epoch(1)
    assert list(one) == list(two)


class Reversed(SequentialSampler):
    """A sampler of a program's own: it changes what is iterated, not the array."""

    def __iter__(self):
        return iter(range(len(self.data_source))[::-1])


def test_a_subclass_with_an_iteration_of_its_own_is_iterated():
    assert [list(batch) for batch in BatchSampler(Reversed(range(4)), 3, False).batches()] == [[3, 2, 1], [0]]


class Twice(BatchSampler):
    """A sampler of batches of a program's own."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch * 2


def test_a_subclass_of_batches_with_an_iteration_of_its_own_is_iterated():
    assert list(Twice(SequentialSampler(range(2)), 2, False).batches()) == [[0, 1, 0, 1]]


def test_buckets_hold_similar_lengths():
    lengths = np.random.default_rng(0).integers(1, 1000, 1000)
    sampler = BucketSampler(lengths, 10, window=20, seed=1)
    batches = list(sampler)
    assert sorted(itertools.chain(*batches)) == list(range(1000)) and len(batches) == len(sampler) == 100
    spread = np.mean([np.ptp(lengths[batch]) for batch in batches])
    assert spread < np.ptp(lengths) / 10
    assert [np.sort(batch).tolist() for batch in sampler.batches()] != [sorted(batch) for batch in batches]


def test_buckets_in_order_and_the_last_batch():
    assert list(BucketSampler([3, 1, 2, 5, 4], 2, shuffle=False)) == [[1, 2], [0, 4], [3]]
    dropped = BucketSampler([3, 1, 2, 5, 4], 2, drop_last=True, seed=0)
    assert len(list(dropped)) == len(dropped) == 2 and all(len(batch) == 2 for batch in dropped)
    assert list(BucketSampler([], 2)) == [] and len(BucketSampler([], 2)) == 0
    assert list(BucketSampler([7], 2, drop_last=True)) == []


WRONG = [
    ("RandomSampler", (range(3), 1)),
    ("RandomSampler", ([],)),
    ("RandomSampler", (range(3), False, 0)),
    ("RandomSampler", (range(3), False, 2.5)),
    ("WeightedRandomSampler", ([1, 2], 0)),
    ("WeightedRandomSampler", ([1, 2], True)),
    ("WeightedRandomSampler", ([1, 2], 2, 1)),
    ("WeightedRandomSampler", ([[1, 2]], 2)),
    ("BatchSampler", (range(3), 0, False)),
    ("BatchSampler", (range(3), True, False)),
    ("BatchSampler", (range(3), 2.0, False)),
    ("BatchSampler", (range(3), 2, 1)),
    ("DistributedSampler", (range(3), 2, 2)),
    ("DistributedSampler", (range(3), 2, -1)),
    ("DistributedSampler", (range(3), 0, 0)),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG, ids=str)
def test_wrong_arguments_are_refused_as_in_torch(name, arguments):
    with pytest.raises(InvalidArgument):
        getattr(st.data, name)(*arguments)
    torch = pytest.importorskip("torch")
    with pytest.raises((ValueError, TypeError)):
        getattr(torch.utils.data, name)(*arguments)


def test_integers_of_numpy_are_integers():
    three = np.int64(3)
    assert list(BatchSampler(range(7), three, False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(list(RandomSampler(range(7), num_samples=three))) == 3
    assert len(list(WeightedRandomSampler([1, 2], three))) == 3
    assert list(DistributedSampler(range(6), three, np.int64(1), shuffle=False)) == [1, 4]


def test_drawing_more_than_there_is_without_replacement_is_refused():
    with pytest.raises(InvalidArgument):
        list(WeightedRandomSampler([1, 0], 2, replacement=False))


def test_nothing_can_be_drawn_of_an_empty_dataset():
    with pytest.raises(InvalidArgument, match="has none"):
        list(RandomSampler([], num_samples=3))


def test_names_and_arguments_are_torchs():
    import inspect

    torch = pytest.importorskip("torch")
    for name in (
        "RandomSampler",
        "SequentialSampler",
        "SubsetRandomSampler",
        "WeightedRandomSampler",
        "BatchSampler",
        "DistributedSampler",
    ):
        ours = inspect.signature(getattr(st.data, name)).parameters
        theirs = inspect.signature(getattr(torch.utils.data, name)).parameters
        assert [(key, value.default) for key, value in theirs.items()] == [
            (key, value.default) for key, value in ours.items() if value.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
