"""Layouts of samples: writing rows, and trees of batches equal to those of default_collate."""

import pickle
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest

import shmtensor as st
from shmtensor.data import default_collate
from shmtensor.data.layouts import MOST_LEAVES, layout_of

Point = namedtuple("Point", ["x", "y"])


def same(one, two):
    """Whether two trees of tensors and objects are equal, in types too."""
    if isinstance(one, st.Tensor):
        return (
            isinstance(two, st.Tensor)
            and one.dtype == two.dtype
            and one.shape == two.shape
            and bool((one == two).all())
        )
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


def collated(samples):
    """A batch by way of slots."""
    layout = layout_of(samples[0])
    slots = layout.empty(len(samples), shared=False)
    arrays = layout.arrays(slots)
    for row, sample in enumerate(samples):
        assert layout.write(arrays, row, sample)
    return layout.batch(slots, [layout.rest(sample) for sample in samples] if layout.others else ())


def image(value, dtype=np.float32):
    return np.full((2, 3), value, dtype)


TREES = [
    lambda i: image(i),
    lambda i: image(i).T,
    lambda i: np.asfortranarray(image(i)),
    lambda i: i,
    lambda i: i / 2,
    lambda i: i % 2 == 0,
    lambda i: np.float32(i),
    lambda i: np.int16(i),
    lambda i: np.bool_(i % 2),
    lambda i: np.array(i),
    lambda i: image(i, np.complex64),
    lambda i: st.tensor(image(i)),
    lambda i: st.tensor(i),
    lambda i: (image(i), i),
    lambda i: [image(i), i],
    lambda i: (image(i), i, i / 2),
    lambda i: Point(image(i), i),
    lambda i: Point((i, image(i)), {"a": i}),
    lambda i: {"image": image(i), "label": i},
    lambda i: OrderedDict(label=i, image=image(i)),
    lambda i: {"image": image(i), "path": f"{i}.png"},
    lambda i: (image(i), f"{i}.png"),
    lambda i: f"{i}.png",
    lambda i: b"%d" % i,
    lambda i: {"boxes": [(i, "a"), (i, b"b")], "empty": {}},
    lambda i: defaultdict(list, a=i),
    lambda i: (),
    lambda i: np.zeros((0, 3)),
]


@pytest.mark.parametrize("tree", TREES)
def test_a_batch_is_what_default_collate_gives(tree):
    samples = [tree(i) for i in range(5)]
    assert same(collated(samples), default_collate(samples))


@pytest.mark.parametrize("tree", TREES)
def test_a_layout_that_was_sent_writes_the_same(tree):
    layout = pickle.loads(pickle.dumps(layout_of(tree(3))))
    slots = layout.empty(2, shared=False)
    assert layout.write(layout.arrays(slots), 1, tree(7))
    assert layout.shapes == layout_of(tree(3)).shapes and layout.dtypes == layout_of(tree(3)).dtypes


def test_torch_tensors_are_arrays():
    torch = pytest.importorskip("torch")
    samples = [
        {"x": torch.full((3,), float(i)), "n": torch.tensor(i), "g": torch.ones(2, requires_grad=True)}
        for i in range(4)
    ]
    batch = collated(samples)
    assert same(batch, default_collate(samples))
    assert batch["x"].dtype == st.float32 and batch["n"].tolist() == [0, 1, 2, 3]


def test_conjugated_torch_tensors_are_read():
    torch = pytest.importorskip("torch")
    samples = [torch.tensor([1 + 2j, 3j]).conj(), torch.tensor([1j, 2j]).conj()]
    assert collated(samples).tolist() == [[1 - 2j, -3j], [-1j, -2j]]
    assert collated([x.imag for x in samples]).tolist() == [[-2, -3], [-1, -2]]


def test_torch_tensors_that_are_no_arrays_have_no_slot():
    torch = pytest.importorskip("torch")
    assert layout_of(torch.eye(3).to_sparse()).others == 1
    assert layout_of(torch.ones(3, dtype=torch.bfloat16).to_sparse()).others == 1
    assert layout_of(torch.ones(3).to(torch.float8_e5m2)).others == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("recorded", [False, True])
def test_torch_tensors_of_types_that_numpy_has_not_are_arrays(dtype, recorded):
    torch = pytest.importorskip("torch")
    samples = [torch.full((3,), float(i)).to(getattr(torch, dtype)).requires_grad_(recorded) for i in range(4)]
    batch = collated(samples)
    assert layout_of(samples[0]).others == 0
    assert batch.dtype == getattr(st, dtype) and batch[:, 0].tolist() == [0, 1, 2, 3]
    assert default_collate(samples).tolist() == batch.tolist()


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (image(0), image(0)[:1]),
        (image(0), image(0).astype(np.float64)),
        (image(0), image(0)[0]),
        (image(0), 3),
        (image(0), "text"),
        (3, 3.0),
        (3, True),
        (3.0, 3),
        (3, 2**63),
        (3, np.int64(3)),
        ((1, 2), [1, 2]),
        ((1, 2), (1, 2, 3)),
        ((1, 2, 3), (1, 2)),
        ([1, 2, 3], [1, 2, "a"]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, [1]),
        (Point(1, 2), (1, 2)),
        ((1, (2, image(0))), (1, (2, image(0).T))),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(first, other):
    layout = layout_of(first)
    arrays = layout.arrays(layout.empty(2, shared=False))
    assert layout.write(arrays, 0, first)
    assert not layout.write(arrays, 1, other)


def test_only_its_row_is_written():
    layout = layout_of((image(0), 5))
    slots = layout.empty(3, shared=False)
    for slot in slots:
        slot.fill_(-1)
    assert layout.write(layout.arrays(slots), 1, (image(4), 7))
    assert slots[1].tolist() == [-1, 7, -1]
    assert slots[0].sum((1, 2)).tolist() == [-6, 24, -6]


def test_slots_are_shared_and_as_large_as_said():
    layout = layout_of((image(0), 5))
    slots = layout.empty(4)
    assert all(slot.is_shared() for slot in slots)
    assert sum(slot.nbytes for slot in slots) == 4 * layout.nbytes == 4 * (24 + 8)


def test_a_row_is_a_tree_of_writable_arrays():
    layout = layout_of({"image": image(0), "more": (5, "text")})
    slots = layout.empty(3, shared=False)
    row = layout.row(layout.arrays(slots), 2)
    row["image"][...] = 9
    row["more"][0][...] = 8
    assert type(row["more"]) is tuple and row["more"][1] is None
    assert slots[0][2].tolist() == image(9).tolist() and slots[1][2].item() == 8


def test_samples_of_very_many_arrays_have_no_slots():
    assert layout_of(list(range(MOST_LEAVES))).others == 0
    layout = layout_of(list(range(MOST_LEAVES + 1)))
    assert layout.shapes == () and layout.others == 1 and layout.nbytes == 0


def test_arrays_that_no_tensor_can_hold_have_no_slot():
    for value in (np.array(["a"]), np.array([None]), np.zeros(2, ">f4"), np.datetime64("2020-01-01"), None, 1j):
        assert layout_of(value).others == 1


def test_objects_that_cannot_be_collated_say_so():
    layout = layout_of((1, None))
    with pytest.raises(st.errors.DTypeError, match="NoneType"):
        layout.batch(layout.empty(1, shared=False), [layout.rest((1, None))])
