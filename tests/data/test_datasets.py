"""Datasets: the samples and errors of torch's, and the methods that the loader uses."""

import warnings

import numpy as np
import pytest

import shmtensor as st
from shmtensor.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from shmtensor.data.fetching import loads_many
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, NotSupported


class Numbers(Dataset):
    """Samples that tell their index."""

    def __init__(self, count, factor=1):
        self.count, self.factor = count, factor

    def __getitem__(self, index):
        if not -self.count <= index < self.count:
            raise IndexError(index)
        return index * self.factor

    def __len__(self):
        return self.count


class Several(Numbers):
    """It also gives several samples at once, and counts the calls."""

    calls = 0

    def __getitems__(self, indices):
        self.calls += 1
        return [self[index] for index in indices]


class Stream(IterableDataset):
    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


def test_a_base_without_samples_says_so():
    with pytest.raises(NotSupported, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotSupported, match="__iter__"):
        iter(IterableDataset())
    with pytest.raises(TypeError):
        len(Dataset())


def test_tensors():
    dataset = TensorDataset(st.arange(6).reshape(3, 2), np.array([7, 8, 9]))
    x, y = dataset[1]
    assert len(dataset) == 3 and x.tolist() == [2, 3] and y == 8
    x[0] = 50  # a row is a view
    assert dataset[1][0].tolist() == [50, 3]
    out = np.zeros(2, np.int64), np.zeros((), np.int64)
    dataset.fill(2, out)
    assert out[0].tolist() == [4, 5] and out[1] == 9
    for tensors in ((), (st.zeros(2), st.zeros(3))):
        with pytest.raises(InvalidArgument):
            TensorDataset(*tensors)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    dataset = TensorDataset(torch.arange(3), torch.eye(3))
    assert dataset[2][1].tolist() == [0, 0, 1] and isinstance(dataset[2][1], torch.Tensor)
    out = np.zeros((), np.int64), np.zeros(3, np.float32)
    dataset.fill(1, out)
    assert out[0] == 1 and out[1].tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", ["recorded", "conjugated", "negative", "bfloat16"])
def test_all_torch_tensors_can_be_written_in_place(kind):
    torch = pytest.importorskip("torch")
    tensor = {
        "recorded": lambda: torch.nn.Parameter(torch.arange(4.0)),
        "conjugated": lambda: (torch.arange(4) * 1j).conj(),
        "negative": lambda: (torch.arange(4) * 1j).conj().imag,
        "bfloat16": lambda: torch.arange(4, dtype=torch.bfloat16),
    }[kind]()
    batches = [batch[0].tolist() for batch in st.data.DataLoader(TensorDataset(tensor), 2)]
    assert batches == tensor.detach().reshape(2, 2).tolist()
    out = torch.empty_like(tensor.detach(), memory_format=torch.contiguous_format)[0].resolve_conj().resolve_neg()
    TensorDataset(tensor).fill(3, (st.from_torch(out).numpy(),))
    assert out.item() == tensor[3].item()


@pytest.mark.parametrize("member", [[1, 2, 2.5], [{"a": 1}], "abc", st.data.SharedList([1, 2])], ids=repr)
def test_only_tensors_and_arrays_are_rows(member):
    with pytest.raises(DTypeError, match="StackDataset"):
        TensorDataset(st.zeros(len(member)), member)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_rows_say_that_they_cannot_be_collated():
    torch = pytest.importorskip("torch")
    with pytest.raises(DTypeError, match="sparse torch tensor"):
        list(st.data.DataLoader(TensorDataset(torch.eye(4).to_sparse()), 2))


class Stored:
    """An array that does not lie in memory."""

    shape, dtype = (3,), np.dtype("int64")

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.arange(3)[index].tolist()


def test_rows_of_what_is_no_array_are_not_written_in_place():
    dataset = TensorDataset(Stored())
    assert dataset[1] == (1,) and not hasattr(dataset, "fill")


def test_stacks():
    pair = StackDataset(Numbers(3), Several(3, 10))
    named = StackDataset(one=Numbers(3), ten=Several(3, 10))
    assert pair[2] == (2, 20) and named[2] == {"one": 2, "ten": 20} and len(pair) == len(named) == 3
    assert pair.__getitems__([2, 0]) == [(2, 20), (0, 0)]
    assert named.__getitems__([2, 0]) == [{"one": 2, "ten": 20}, {"one": 0, "ten": 0}]
    assert pair.datasets[1].calls == 1
    for make in (
        lambda: StackDataset(),
        lambda: StackDataset(Numbers(3), one=Numbers(3)),
        lambda: StackDataset(Numbers(3), Numbers(4)),
        lambda: StackDataset(one=Numbers(3), two=Numbers(4)),
    ):
        with pytest.raises(InvalidArgument):
            make()


def test_too_few_samples_of_a_dataset_are_an_error():
    class Short(Several):
        def __getitems__(self, indices):
            return super().__getitems__(indices)[1:]

    with pytest.raises(InvalidArgument, match="Expected 2, got 1"):
        StackDataset(Short(3)).__getitems__([0, 1])


def test_one_after_the_other():
    dataset = Numbers(2) + Numbers(0) + Numbers(3, 10)
    assert isinstance(dataset, ConcatDataset) and len(dataset) == 5
    assert [dataset[i] for i in range(5)] == [0, 1, 0, 10, 20] and dataset[-1] == 20 and dataset[-5] == 0
    assert ConcatDataset([Numbers(2), Numbers(3)]).cumulative_sizes == [2, 5]
    for index in (5, -6):
        with pytest.raises(IndexOutOfRange, match="5 samples"):
            dataset[index]
    for datasets in ([], [Stream([1])]):
        with pytest.raises(InvalidArgument):
            ConcatDataset(datasets)


def test_streams_one_after_the_other():
    chain = Stream([1, 2]) + Stream([3])
    assert isinstance(chain, ChainDataset) and list(chain) == list(chain) == [1, 2, 3] and len(chain) == 3
    wrong = ChainDataset([Stream([1]), Numbers(3)])
    with pytest.raises(InvalidArgument):
        list(wrong)
    with pytest.raises(InvalidArgument):
        len(wrong)


def test_subsets():
    subset = Subset(Numbers(10, 2), [4, 1, 9])
    assert len(subset) == 3 and [subset[i] for i in range(3)] == [8, 2, 18] and subset[-1] == 18
    assert subset.__getitems__([2, 0]) == [18, 8]
    several = Subset(Several(10, 2), [4, 1, 9])
    assert several.__getitems__([2, 0]) == [18, 8] and several.dataset.calls == 1
    rows = Subset(np.arange(10) * 3, [4, 1, 9])
    assert rows[[0, 2]].tolist() == [12, 27]


def test_a_subset_with_samples_of_its_own_has_to_give_several():
    class Half(Subset):
        def __getitem__(self, index):
            return super().__getitem__(index) / 2

    class Whole(Half):
        def __getitems__(self, indices):
            return [self[index] for index in indices]

    with pytest.raises(NotSupported, match="__getitems__"):
        Half(Numbers(3), [1])
    assert Whole(Numbers(3), [1]).__getitems__([0]) == [0.5]
    assert not hasattr(Whole(TensorDataset(st.zeros(3)), [1]), "fill")


def test_fill_is_passed_through_where_all_have_it():
    data = TensorDataset(st.arange(5))
    out = (np.zeros((), np.int64),)
    Subset(data, [3]).fill(0, out)
    assert out[0] == 3
    (data + Subset(data, [1])).fill(5, out)
    assert out[0] == 1
    assert not hasattr(Subset(Numbers(3), [1]), "fill") and not hasattr(data + Numbers(3), "fill")


class Tripled(TensorDataset):
    """Inherits `fill`, but has other samples."""

    def __getitem__(self, index):
        return (super().__getitem__(index)[0] * 3,)


class Wrapped:
    """Takes what it has not from another dataset."""

    def __init__(self, inner):
        self._inner = inner

    def __getitem__(self, index):
        return (self._inner[index][0] * 3,)

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class Quick(Numbers):
    """Gives several samples at once without `__getitem__`."""

    def __getitems__(self, indices):
        return [index * self.factor for index in indices]


class Sixfold(Quick):
    """Inherits `__getitems__`, but has other samples."""

    def __getitem__(self, index):
        return super().__getitem__(index) * 6


@pytest.mark.parametrize(
    "dataset",
    [
        Tripled(st.arange(6)),
        Wrapped(TensorDataset(st.arange(6))),
        Subset(Tripled(st.arange(6)), range(6)),
        ConcatDataset([Tripled(st.arange(3)), Tripled(st.arange(3, 6))]),
        Sixfold(6),
        Subset(Sixfold(6), range(6)),
        StackDataset(Sixfold(6)),
        np.arange(6.0).reshape(6, 1),
        st.arange(6),
        ConcatDataset([np.arange(3), np.arange(3)]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_methods_that_give_other_samples_are_not_used(dataset):
    batches = [np.asarray(st.tensor(dataset[i])).ravel().tolist() for i in range(6)]
    found = []
    for batch in st.data.DataLoader(dataset, 2):
        found += np.asarray(batch[0] if isinstance(batch, list) else batch).reshape(2, -1).tolist()
    assert found == batches


class Open(Wrapped):
    """Takes all that it has not from another dataset."""

    def __getattr__(self, name):
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)


def test_several_samples_at_once_are_those_of_the_datasets_class():
    assert loads_many(Quick(6)) and loads_many(Subset(Quick(6), range(6)))
    assert Open(Quick(6)).__getitems__([1]) == [1], "of what it wraps"
    assert not loads_many(Open(Quick(6))) and not loads_many(Subset(Open(Quick(6)), range(6)))


class Sums(IterableDataset):
    """A stream of its own, which takes what it has not from another one."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        return (item + 1 for item in self.inner)

    def __getattr__(self, name):
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class Raw(Stream):
    """Items that have to be made samples."""

    def load(self, item):
        return item * 10


def test_load_is_that_of_the_streams_class():
    assert [batch.tolist() for batch in st.data.DataLoader(Raw([1, 2]), 2)] == [[10, 20]]
    assert [batch.tolist() for batch in st.data.DataLoader(Sums(Raw([1, 2])), 2)] == [[2, 3]]


class Epochs(Dataset):
    """Samples are the epoch."""

    epoch = -1

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.epoch

    def set_epoch(self, epoch):
        self.epoch = epoch


class EpochStream(IterableDataset):
    epoch = -1

    def __iter__(self):
        return iter([self.epoch] * 2)

    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize(
    ("dataset", "found"),
    [
        (Subset(Epochs(), [1, 0]), [7, 7]),
        (Epochs() + Numbers(1), [7, 7, 0]),
        (StackDataset(Epochs(), Numbers(2)), [[7, 0], [7, 1]]),
        (StackDataset(a=Epochs(), b=Numbers(2)), [{"a": 7, "b": 0}, {"a": 7, "b": 1}]),
        (Subset(Subset(Epochs(), [1, 0]) + Epochs(), [3, 0]), [7, 7]),
        (EpochStream() + Stream([1]), [7, 7, 1]),
        (ChainDataset(iter([EpochStream()])), [-1, -1]),
    ],
)
def test_datasets_within_others_are_told_the_epoch(dataset, found):
    loader = st.data.DataLoader(dataset, None)
    loader.set_epoch(7)
    assert [list(one) if isinstance(one, tuple) else one for one in loader] == found


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "combine",
    [
        lambda torch, one: torch.Subset(one, [1, 0]),
        lambda torch, one: torch.ConcatDataset([one, one]),
        lambda torch, one: torch.StackDataset(one, one),
        lambda torch, one: torch.StackDataset(a=one, b=torch.Subset(one, [0, 1])),
        lambda torch, one: Subset(torch.Subset(one, [1, 0]), [0]),
        lambda torch, one: torch.ChainDataset([type("Told", (EpochStream, torch.IterableDataset), {})()]),
    ],
    ids=["subset", "concat", "stack", "named", "ours", "chain"],
)
def test_datasets_within_torchs_are_told_the_epoch(combine, workers):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loader = st.data.DataLoader(combine(torch.utils.data, Epochs()), 1, num_workers=workers)
        loader.set_epoch(7)
        for batch in loader:
            parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]
            assert all(part.tolist() == [7] for part in parts)


# -- splits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[3, 7], [10], [0.3, 0.7], [0.5, 0.25, 0.25], [0.33, 0.33, 0.34], [0, 10], [1.0]])
def test_splits_are_torchs(lengths):
    torch = pytest.importorskip("torch")
    theirs = torch.utils.data.random_split(range(10), lengths, torch.Generator().manual_seed(42))
    for generator in (st.Generator(42), torch.Generator().manual_seed(42)):
        ours = random_split(range(10), lengths, generator)
        assert [list(part) for part in ours] == [list(part) for part in theirs]


def test_splits_have_all_samples_once():
    parts = random_split(Numbers(11), [0.5, 0.5])
    assert [len(part) for part in parts] == [6, 5]
    assert sorted(sample for part in parts for sample in part) == list(range(11))
    for lengths in ([3, 3], [0.5, 0.6], [1.5, -0.5], []):
        with pytest.raises(InvalidArgument):
            random_split(Numbers(11), lengths)


def test_an_empty_part_warns():
    with pytest.warns(UserWarning, match="index 1 is 0"):
        random_split(Numbers(1), [0.9, 0.1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        random_split(Numbers(2), [0.5, 0.5])
