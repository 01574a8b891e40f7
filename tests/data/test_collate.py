"""Collation: compared with torch's, type by type, and of samples of unequal lengths."""

import functools
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.data import (
    DataLoader,
    Padded,
    Ragged,
    default_collate,
    default_collate_fn_map,
    default_convert,
    pad_collate,
    ragged_collate,
)
from shmtensor.data.collate import collate
from shmtensor.data.randoms import WorkerInfo, set_worker_info
from shmtensor.errors import DTypeError, InvalidArgument, SampleMismatch

Point = namedtuple("Point", ["x", "y"])


def plain(tree):
    """A tree of either library's tensors in terms of NumPy and builtins, with types."""
    if isinstance(tree, np.ndarray | np.generic) or hasattr(tree, "numpy"):
        array = np.asarray(tree)
        return (
            "array" if not isinstance(tree, np.ndarray | np.generic) else "numpy",
            str(array.dtype),
            array.shape,
            array.tolist(),
        )
    if isinstance(tree, dict | UserDict | MappingProxyType):
        return type(tree), [(key, plain(value)) for key, value in tree.items()]
    if isinstance(tree, list | tuple):
        return type(tree), [plain(part) for part in tree]
    return type(tree), tree


BATCHES = [
    [1, 2, 3],
    [1, 2.5],
    [1.5, 2],
    [True, 2],
    [True, 2.5],
    [1.5, True],
    [1.5, np.float32(2)],
    [1, np.float32(2.5)],
    [np.float32(1), 2.5],
    [np.float32(1), 2],
    [np.int64(1), 2.5],
    [np.int8(1), 2],
    [np.int64(1), np.float32(2)],
    [np.array(1.0, np.float32), 2.5],
    [np.ones(2, np.int64), np.ones(2, np.float32)],
    [True, False],
    [np.float32(1), np.float32(2)],
    [np.int8(1), np.int8(2)],
    [np.bool_(True), np.bool_(False)],
    [np.float64(1), np.float64(2)],
    [np.zeros((2, 3)), np.ones((2, 3))],
    [np.zeros(2, np.uint8), np.ones(2, np.uint8)],
    [np.array(1), np.array(2)],
    [np.zeros((0, 2), np.float32)] * 2,
    ["a", "b"],
    ("a", "b"),
    [b"a", b"b"],
    [(1, 2.0), (3, 4.0)],
    [[1, 2.0], [3, 4.0]],
    [(1, "a"), (2, "b")],
    [{"a": 1, "b": np.ones(2)}, {"a": 2, "b": np.zeros(2)}],
    [{"a": 1}, {"a": 2, "more": 3}],
    [OrderedDict(b=1, a=2), OrderedDict(b=3, a=4)],
    [defaultdict(int, a=1), defaultdict(int, a=2)],
    [UserDict(a=1), UserDict(a=2)],
    [MappingProxyType({"a": 1}), MappingProxyType({"a": 2})],
    [Point(1, (2, 3)), Point(4, (5, 6))],
    [range(2), range(2)],
    [[], []],
    [{}, {}],
    [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
    [np.zeros(2, np.complex64)] * 3,
]


@pytest.mark.parametrize("batch", BATCHES, ids=repr)
def test_default_collate_is_torchs(batch):
    theirs = pytest.importorskip("torch").utils.data.default_collate
    assert plain(default_collate(batch)) == plain(theirs(batch))


@pytest.mark.parametrize(
    "batch", [*BATCHES, 5, "a", None, np.ones(2), np.array(["a"]), np.str_("a"), np.float32(2)], ids=repr
)
def test_default_convert_is_torchs(batch):
    theirs = pytest.importorskip("torch").utils.data.default_convert
    assert plain(default_convert(batch)) == plain(theirs(batch))


class Masked:
    """Samples with masks."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"x": np.ma.MaskedArray([1.0, index], [False, True]), "y": np.full(2, index)}


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_are_not_collated_keep_their_masks(workers):
    for index, sample in enumerate(DataLoader(Masked(), None, num_workers=workers)):
        assert type(sample["x"]) is np.ma.MaskedArray
        assert sample["x"].mask.tolist() == [False, True] and sample["x"].data.tolist() == [1, index]
        assert isinstance(sample["y"], st.Tensor) and sample["y"].tolist() == [index] * 2
    assert default_convert(np.ma.masked) is np.ma.masked


BAD = [
    [None, None],
    [object(), object()],
    [1j, 2j],
    [{1, 2}, {3}],
    [[1, 2], [1, 2, 3]],
    [(1,), (1, 2)],
    [np.zeros(2), np.zeros(3)],
    [np.zeros((2, 1)), np.zeros(2)],
    [np.array(["a"]), np.array(["b"])],
    [np.array([None]), np.array([None])],
    [{"a": 1}, {"b": 1}],
    [1, "a"],
    [np.zeros(2), None],
    [{"a": np.zeros(2)}, {"a": np.zeros(3)}],
    [1, None],
    [1.0, None],
    [1.0, "2"],
    [1.0, np.str_("2")],
    [True, None],
    [np.float32(1), None],
    [np.float32(1), "2"],
    [],
]


@pytest.mark.parametrize("batch", BAD, ids=lambda batch: "-".join(type(one).__name__ for one in batch))
def test_what_torch_refuses_is_refused(batch):
    theirs = pytest.importorskip("torch").utils.data.default_collate
    with pytest.raises(Exception):  # noqa: B017
        theirs(batch)
    with pytest.raises(st.errors.ShmTensorError):
        default_collate(batch)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (">i4", r'>i4, whose byte order.*astype\(array.dtype.newbyteorder\("="\)\)'),
        ([("a", "i4")], "'a', '<i4'.*type that tensors do not have.*collate_fn"),
        ("M8[s]", r"datetime64\[s\], a type that tensors do not have.*collate_fn"),
        ("U1", "<U1, a type that tensors do not have.*collate_fn"),
        (np.longdouble, "float128, a type that tensors do not have.*collate_fn"),
    ],
    ids=["byte-order", "structure", "date", "text", "longdouble"],
)
def test_an_array_that_cannot_be_collated_is_explained(dtype, message):
    with pytest.raises(st.errors.DTypeError, match=rf"{message}") as caught:
        default_collate([np.zeros(2, dtype)] * 2)
    assert "sample 0" in str(caught.value)
    with pytest.raises(st.errors.DTypeError, match="sample 1"):
        default_collate([np.zeros(2), np.zeros(2, dtype)])


def test_a_torch_tensor_that_cannot_be_collated_is_explained():
    torch = pytest.importorskip("torch")
    with pytest.raises(st.errors.DTypeError, match=r"sparse torch tensor.*sample 0.*to_dense\(\)"):
        default_collate([torch.eye(2).to_sparse()] * 2)
    with pytest.raises(st.errors.DTypeError, match=r"torch tensor on meta.*collate_fn"):
        default_collate([torch.eye(2, device="meta")] * 2)


def test_torch_tensors_become_ours():
    torch = pytest.importorskip("torch")
    batch = default_collate([(torch.ones(2), 1), (torch.zeros(2), 2)])
    assert isinstance(batch[0], st.Tensor) and batch[0].tolist() == [[1, 1], [0, 0]]
    source = torch.zeros(2)
    converted = default_convert([source])[0]
    source[0] = 5
    assert converted.tolist() == [5, 0]
    with pytest.raises(DTypeError, match="sample 0"):
        default_collate([torch.eye(2).to_sparse()] * 2)


def test_our_tensors_are_stacked_and_keep_gradients():
    x = st.ones(2, requires_grad=True)
    default_collate([x, st.zeros(2)]).sum().backward()
    assert x.grad.tolist() == [1, 1]
    assert default_collate([st.ones(2, dtype=st.int16), st.ones(2)]).dtype == st.float32


def test_unequal_shapes_name_samples_and_shapes():
    with pytest.raises(SampleMismatch, match=r"sample 0 has \(2,\), sample 2 \(3,\)") as caught:
        default_collate([np.zeros(2), np.zeros(2), np.zeros(3)])
    assert caught.value.positions == (0, 2)
    with pytest.raises(SampleMismatch, match="sample 1 has 2") as caught:
        default_collate([{"a": [1]}, {"a": [1, 2]}])
    assert caught.value.positions == (0, 1)
    with pytest.raises(SampleMismatch, match="the key 'a', and sample 1 does not"):
        default_collate([{"a": 1}, {"b": 1}])


def test_functions_are_found_by_type_then_by_base():
    class Mine:
        pass

    class Derived(Mine):
        pass

    calls = {Mine: lambda batch, *, collate_fn_map: len(batch), int: lambda batch, *, collate_fn_map: "ints"}
    assert collate([(Derived(), 1)] * 3, collate_fn_map=calls) == [3, "ints"]
    with pytest.raises(DTypeError, match="Mine"):
        default_collate([Mine()])
    default_collate_fn_map[Mine] = calls[Mine]
    try:
        assert default_collate([{"a": Derived()}] * 2) == {"a": 2}
    finally:
        del default_collate_fn_map[Mine]


def test_an_error_of_a_part_is_not_taken_for_a_mapping_that_cannot_be_made():
    """Each mapping around the part would be collated twice."""
    calls = []

    def fail(batch, *, collate_fn_map):
        calls.append(len(batch))
        raise DTypeError("no")

    with pytest.raises(DTypeError, match="no"):
        collate([{"a": {"b": {"c": 1}}}], collate_fn_map={int: fail})
    assert calls == [1]


def test_a_worker_collates_into_shared_memory():
    set_worker_info(WorkerInfo(0, 1, 0, None))
    try:
        assert default_collate([np.ones(2)] * 2).is_shared()
        assert ragged_collate([np.ones(2)] * 2).values.is_shared()
    finally:
        set_worker_info(None)
    assert not default_collate([np.ones(2)] * 2).is_shared()


# -- unequal lengths ---------------------------------------------------------------------------------------------------


def test_padding():
    batch = [(np.ones((1, 2), np.float32), 1), (np.ones((3, 1), np.float32), 2)]
    values, labels = pad_collate(batch)
    assert values.dtype == st.float32 and labels.tolist() == [1, 2]
    assert values.tolist() == [[[1, 1], [0, 0], [0, 0]], [[1, 0], [1, 0], [1, 0]]]


def test_padding_of_lists_with_lengths_and_multiples():
    tokens = functools.partial(pad_collate, padding_value=-1, lengths=True, multiple_of=4)
    found = tokens([{"ids": [1, 2, 3], "name": "a"}, {"ids": [4], "name": "b"}, {"ids": [], "name": "c"}])
    assert isinstance(found["ids"], Padded) and found["name"] == ["a", "b", "c"]
    assert found["ids"].values.tolist() == [[1, 2, 3, -1], [4, -1, -1, -1], [-1, -1, -1, -1]]
    assert found["ids"].lengths.tolist() == [3, 1, 0]
    with pytest.raises(SampleMismatch):
        pad_collate([np.ones(2), np.ones((2, 2))])
    with pytest.raises(InvalidArgument):
        pad_collate([np.ones(2)], multiple_of=0)


def test_padding_equals_torchs_pad_sequence():
    torch = pytest.importorskip("torch")
    parts = [torch.arange(n, dtype=torch.int64) for n in (3, 1, 4, 0)]
    theirs = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=7)
    assert pad_collate(parts, padding_value=7).tolist() == theirs.tolist()


def test_ragged():
    batch = [(np.full((n, 2), n), n) for n in (2, 0, 3)]
    ragged, labels = ragged_collate(batch)
    assert isinstance(ragged, Ragged) and labels.tolist() == [2, 0, 3]
    assert ragged.offsets.tolist() == [0, 2, 2, 5] and ragged.offsets.dtype == st.int64
    assert [part.tolist() for part in ragged.unbind()] == [value.tolist() for value, _ in batch]
    with pytest.raises(SampleMismatch):
        ragged_collate([np.ones((2, 2)), np.ones((2, 3))])
    assert ragged_collate([[1, 2], [3]]).values.tolist() == [1, 2, 3]


def test_lists_of_unequal_length_among_numbers_are_named():
    with pytest.raises(DTypeError, match=r"found list \(sample 1 of the batch\)"):
        default_collate([1, [2, [3, 4]]])


def test_errors_survive_a_pickle():
    import pickle

    error = pickle.loads(pickle.dumps(SampleMismatch("text", (0, 3))))
    assert error.positions == (0, 3) and str(error) == "text"


# -- integers beyond int64 ---------------------------------------------------------------------------------------------


class Items(st.data.Dataset[Any]):
    """Samples of a list."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def from_loader(samples: list[Any], workers: int) -> Any:
    return next(iter(st.data.DataLoader(Items(samples), len(samples), num_workers=workers)))


COLLATIONS = {
    "default": default_collate,
    "pad": pad_collate,
    "ragged": ragged_collate,
    "loader": functools.partial(from_loader, workers=0),
    "workers": functools.partial(from_loader, workers=2),
}


@pytest.mark.parametrize("way", COLLATIONS)
@pytest.mark.parametrize(
    ("samples", "place", "remedy"),
    [
        ([2**53 + 1, 2**63], 1, "np.uint64"),
        ([2**63], 0, "np.uint64"),
        ([True, 2**64 - 1], 1, "np.uint64"),
        ([-1, -(2**63) - 1], 1, "float"),
        ([1, 2**70], 1, "float"),
        ([{"a": 0}, {"a": 10**5000}], 1, "float"),
        ([np.int64(1), 2**63], 1, "np.uint64"),
    ],
    ids=["mixed", "alone", "bool", "negative", "larger", "huge", "numpy"],
)
def test_an_integer_beyond_int64_is_refused(way, samples, place, remedy):
    with pytest.raises(SampleMismatch, match=rf"sample {place} of the batch .* use {remedy}\(x\)") as caught:
        COLLATIONS[way](samples)
    assert caught.value.positions == (place,)


@pytest.mark.parametrize("function", [pad_collate, ragged_collate])
@pytest.mark.parametrize("numbers", [[2**63], [1, 2**63], [2**70]], ids=["alone", "mixed", "larger"])
def test_an_integer_beyond_int64_in_a_list_is_refused(function, numbers):
    with pytest.raises(SampleMismatch, match=r"sample 1 of the batch .*int64"):
        function([[1, 2], numbers])


def test_integers_beyond_int64_become_floats_beside_floats():
    assert default_collate([1.5, 2**70]).tolist() == [1.5, 2.0**70]
    assert default_collate([2**70, 1.5]).tolist() == [2.0**70, 1.5]
    assert pad_collate([[1.5, 2**70]]).tolist() == [[1.5, 2.0**70]]


def test_the_range_of_int64_and_uint64_is_kept():
    ends = [-(2**63), 2**63 - 1]
    assert default_collate(ends).dtype == st.int64 and default_collate(ends).tolist() == ends
    assert default_collate([np.uint64(2**64 - 1)]).tolist() == [2**64 - 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_without_a_batch_keeps_its_integers(workers):
    samples = [2**63, 2**70, [2**70]]
    assert list(st.data.DataLoader(Items(samples), None, num_workers=workers)) == samples
