"""Features of TH's tensors beyond NumPy's and torch's arrays: see docs/th.md."""

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, LayoutError

BYTES = st.tensor([0, 1, 2, 0], dtype=st.uint8)


def test_a_tensor_of_a_tensor_shares():
    x = st.ones(2, 3)
    for made in (st.Tensor(x), st.FloatTensor(x), st.FloatTensor(x[1])):
        assert made is not x
        assert made.storage() is x.storage()
        made.fill_(5)
    assert x.tolist() == [[5, 5, 5]] * 2
    with pytest.raises(DTypeError, match="float32"):
        st.IntTensor(x)


def test_is_set_to_the_same_view_of_the_same_storage():
    x = st.arange(6.0).reshape(2, 3)
    same = st.empty(0).set_(x)
    assert x.is_set_to(same)
    assert x.is_set_to(x[:])
    for other in (x[1:], x.t(), x.reshape(3, 2), x.clone(), x.view(st.int32)):
        assert not x.is_set_to(other)
    with pytest.raises(DTypeError):
        x.is_set_to([1])


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (6,), (1, 6), (6, 1), (1, 2, 1, 3)])
def test_copy_of_as_many_elements_is_in_order(shape):
    source = st.arange(6).reshape(shape)
    for target in (st.zeros(2, 3), st.zeros(6), st.zeros(3, 2).t(), st.zeros(2, 1, 3, 1)):
        assert target.copy_(source) is target
        assert target.reshape(-1).tolist() == [0, 1, 2, 3, 4, 5], (target.shape, shape)
    assert st.zeros(2, 3).copy_(st.arange(6).reshape(3, 2).t()).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert st.zeros(3, 2).copy_([[1, 2, 3], [4, 5, 6]], non_blocking=True).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_copy_of_fewer_elements_broadcasts():
    assert st.zeros(2, 3).copy_(st.arange(3)).tolist() == [[0, 1, 2]] * 2
    assert st.zeros(2, 3).copy_(st.arange(2).reshape(2, 1)).tolist() == [[0] * 3, [1] * 3]
    assert st.zeros(2, 3).copy_(7).tolist() == [[7] * 3] * 2
    for shape in ((2,), (4, 2), (7,), (2, 2, 3)):
        with pytest.raises(InvalidArgument, match="copying"):
            st.zeros(2, 3).copy_(st.zeros(shape))
    with pytest.raises(LayoutError):
        st.zeros(1).expand(3).copy_(st.arange(3))


def test_copy_to_itself_in_another_order():
    x = st.arange(6.0)
    x.reshape(2, 3).copy_(x.reshape(3, 2))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    x.reshape(2, 3).copy_(x.reshape(2, 3).t())
    assert x.tolist() == [0, 3, 1, 4, 2, 5]


def test_squeeze_of_one_axis_takes_only_size_1():
    x = st.zeros(2, 1, 3)
    assert x.squeeze(1).shape == (2, 3)
    assert x.squeeze(0).shape == x.squeeze(2).shape == (2, 1, 3)
    assert x.squeeze(-2).storage() is x.storage()
    with pytest.raises(IndexOutOfRange):
        x.squeeze(3)


# -- masks of bytes


def test_masks_of_bytes_select():
    x = st.arange(4.0)
    for mask in (BYTES, BYTES.to(st.bool_), BYTES.numpy()):
        assert x.masked_select(mask).tolist() == [1, 2]
        assert x.masked_fill(mask, 9).tolist() == [0, 9, 9, 3]
        assert x.clone().masked_scatter_(mask, st.tensor([7.0, 8.0])).tolist() == [0, 7, 8, 3]
    assert x[BYTES].tolist() == [1, 2]
    assert x.index_put((BYTES,), st.tensor(5.0)).tolist() == [0, 5, 5, 3]
    assert st.where(BYTES, x, -x).tolist() == [-0.0, 1, 2, -3]


def test_indices_of_bytes_are_masks():
    x = st.arange(8.0).reshape(2, 4)
    assert x[:, BYTES].tolist() == [[1, 2], [5, 6]]
    assert x[1, BYTES].tolist() == [5, 6]
    assert x[st.tensor([1, 0]), 1:3].tolist() == [[5, 6], [1, 2]], "other integers are indices"
    assert x[st.tensor(1, dtype=st.uint8)].shape == (1, 2, 4)
    both = st.zeros(2, 4, dtype=st.uint8)
    both[0, 1] = both[1, 3] = 255
    assert x[both].tolist() == [1, 7]
    x[both] = 0
    x[0, BYTES] = st.tensor([20.0, 30.0])
    assert x.tolist() == [[0, 20, 30, 3], [4, 5, 6, 0]]
    with pytest.raises(IndexOutOfRange):
        x[BYTES]
    with pytest.raises(IndexOutOfRange):
        x[BYTES] = 1


def test_masks_of_bytes_are_those_of_torch():
    torch = pytest.importorskip("torch")
    x = np.arange(8.0).reshape(2, 4)
    mask = np.array([0, 1, 0, 3], np.uint8)
    with pytest.warns(UserWarning, match="uint8"):
        want = torch.tensor(x)[:, torch.tensor(mask)]
    assert st.tensor(x)[:, st.tensor(mask)].tolist() == want.tolist()


# -- functions of Python over elements


def test_apply_and_map_call_a_function_for_each_element():
    x = st.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.apply_(lambda a: a + 1) is x
    assert x.tolist() == [[2, 3], [4, 5]]
    x.t().map_(st.tensor([[10.0, 20.0], [30.0, 40.0]]), lambda a, b: a * b)
    assert x.tolist() == [[20, 90], [80, 200]]
    x.map2_(st.tensor([1.0, 2.0]), st.tensor([[5.0], [6.0]]), lambda a, b, c: a + b - c)
    assert x.tolist() == [[16, 87], [75, 196]]
    for call in (lambda: x.apply_(3), lambda: x.map_(x, None), lambda: x.map2_(x, x, "f")):
        with pytest.raises(DTypeError):
            call()


# -- one test for each group of THTensor's functions


def matrix():
    """[[3, 1, 2], [6, 5, 4]], of float32."""
    return st.tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]])


def test_elements_are_read_and_written():
    x = st.arange(24.0).reshape(1, 2, 3, 4)
    assert (x[0, 1, 2, 3].item(), x[0, 0, -1, 0].item(), x[0][1][0][2].item()) == (23, 8, 14)
    x[0, 1, 2, 3] = 7
    assert x.storage()[23] == 7
    with pytest.raises(IndexOutOfRange):
        x[0, 2, 0, 0] = 1


def test_views_of_th():
    x = st.arange(12.0).reshape(3, 4)
    views = [
        (x.narrow(1, 1, 2), (3, 2), (4, 1), 1),
        (x.select(0, 2), (4,), (1,), 8),
        (x.transpose(0, 1), (4, 3), (1, 4), 0),
        (x.t(), (4, 3), (1, 4), 0),
        (x.unfold(1, 2, 2), (3, 2, 2), (4, 2, 1), 0),
        (x.view(2, 6), (2, 6), (6, 1), 0),
        (x.unsqueeze(1)[:, 0], (3, 4), (4, 1), 0),
        (x.unsqueeze(1).squeeze(1), (3, 4), (4, 1), 0),
        (x.select(0, 1).expand(2, 4), (2, 4), (0, 1), 4),
        (x.as_strided((2, 2), (5, 1), 3), (2, 2), (5, 1), 3),
    ]
    for view, shape, stride, offset in views:
        assert (view.shape, view.stride(), view.storage_offset()) == (shape, stride, offset)
        assert view.storage() is x.storage()


def test_fill_zero_and_indices():
    x = matrix()
    assert x.index_select(1, st.tensor([2, 0])).tolist() == [[2, 3], [4, 6]]
    assert x.clone().index_copy_(0, st.tensor([1]), st.zeros(1, 3)).tolist() == [[3, 1, 2], [0, 0, 0]]
    assert x.clone().index_add_(1, st.tensor([0, 0]), st.ones(2, 2)).tolist() == [[5, 1, 2], [8, 5, 4]]
    assert x.clone().index_fill_(1, st.tensor([1]), 9).tolist() == [[3, 9, 2], [6, 9, 4]]
    assert x.take(st.tensor([0, 5])).tolist() == [3, 4]
    assert x.clone().put_(st.tensor([1, 3]), st.tensor([10.0, 20.0])).tolist() == [[3, 10, 2], [20, 5, 4]]
    at = st.tensor([[0, 0, 1]])
    assert x.gather(0, at).tolist() == [[3, 1, 4]]
    assert x.clone().scatter_(0, at, st.tensor([[7.0, 8.0, 9.0]])).tolist() == [[7, 8, 2], [6, 5, 9]]
    assert x.clone().scatter_(0, at, 0).tolist() == [[0, 0, 2], [6, 5, 0]]
    assert x.clone().scatter_add_(0, at, st.ones(1, 3)).tolist() == [[4, 2, 2], [6, 5, 5]]
    assert x.fill_(2).tolist() == [[2] * 3] * 2
    assert x.zero_().tolist() == [[0] * 3] * 2


def test_nonzero_gives_a_row_for_each_element():
    x = st.tensor([[0, 5, 0], [7, 0, 9]])
    assert x.nonzero().tolist() == [[0, 1], [1, 0], [1, 2]]
    assert [part.tolist() for part in x.nonzero(as_tuple=True)] == [[0, 1, 1], [1, 0, 2]]


def test_arithmetic_with_numbers_and_tensors():
    x, y = st.tensor([7, -7, 8]), st.tensor([2, 2, 3])
    assert st.add(x, y, alpha=10).tolist() == [27, 13, 38]
    assert st.sub(x, 1).tolist() == [6, -8, 7]
    assert st.mul(x, y).tolist() == [14, -14, 24]
    assert st.div(x, 2).tolist() == [3.5, -3.5, 4.0]
    assert st.div(x, y, rounding_mode="trunc").tolist() == [3, -3, 2], "TH's division of integers"
    assert (st.fmod(x, y).tolist(), st.remainder(x, y).tolist()) == ([1, -1, 2], [1, 1, 2])
    assert ((x << y).tolist(), (y >> 1).tolist()) == ([28, -28, 64], [1, 1, 1])
    assert (st.bitwise_and(x, y).tolist(), st.bitwise_or(x, y).tolist()) == ([2, 0, 0], [7, -5, 11])
    assert st.bitwise_xor(x, y).tolist() == [5, -5, 11]
    assert (st.pow(y, 2).tolist(), st.pow(2, y).tolist()) == ([4, 4, 9], [4, 4, 8])
    assert (st.maximum(x, y).tolist(), st.minimum(x, y).tolist()) == ([7, 2, 8], [2, -7, 3])
    assert st.clamp(x, -1, 7).tolist() == [7, -1, 7]
    a, b, c = st.tensor([1.0]), st.tensor([2.0]), st.tensor([4.0])
    assert (st.addcmul(a, b, c, value=0.5).item(), st.addcdiv(a, b, c, value=2).item()) == (5, 2)
    assert st.lerp(a, b, 0.25).item() == 1.25
    assert x.add_(1).mul_(2).sub_(y).tolist() == [14, -14, 15]


ONE = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "exp", "floor", "frac", "lgamma", "log", "log1p", "neg",
    "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_element(name):
    torch = pytest.importorskip("torch")
    values = [0.25, 0.5, 0.75]
    want = getattr(torch, name)(torch.tensor(values, dtype=torch.float64)).tolist()
    x = st.tensor(values, dtype=st.float64)
    assert getattr(st, name)(x).tolist() == pytest.approx(want)
    assert getattr(x, f"{name}_")() is x
    assert x.tolist() == pytest.approx(want)


def test_comparisons_are_by_element_and_equal_is_one_truth_value():
    x, y = st.tensor([1, 2, 3]), st.tensor([1, 3, 2])
    found = {name: getattr(st, name)(x, y).tolist() for name in ("lt", "le", "gt", "ge", "eq", "ne")}
    assert found == {
        "lt": [False, True, False], "le": [True, True, False], "gt": [False, False, True], "ge": [True, False, True],
        "eq": [True, False, False], "ne": [False, True, True],
    }  # fmt: skip
    assert st.lt(x, 2).tolist() == [True, False, False]
    assert st.equal(x, y) is False
    assert st.equal(x, x.clone()) is x.equal(x) is True
    assert st.equal(x, x[:2]) is False
    assert (st.all(x > 0).item(), st.any(x > 3).item()) == (True, False)


def test_reductions_of_all_and_along_an_axis():
    x = matrix()
    assert [getattr(x, name)().item() for name in ("sum", "prod", "mean", "min", "max", "median")] == [
        21, 720, 3.5, 1, 6, 3
    ]  # fmt: skip
    assert (x.sum(1).tolist(), x.prod(0).tolist(), x.mean(1, keepdim=True).tolist()) == (
        [6, 15],
        [18, 5, 8],
        [[2], [5]],
    )
    for name, values, indices in (
        ("max", [3, 6], [0, 0]),
        ("min", [1, 4], [1, 2]),
        ("median", [2, 5], [2, 1]),
        ("mode", [1, 4], [1, 2]),
    ):
        found = getattr(st, name)(x, 1)
        assert (found[0].tolist(), found[1].tolist()) == (values, indices), name
    found = st.kthvalue(x, 2, 1)
    assert (found[0].tolist(), found[1].tolist()) == ([2, 5], [2, 1])
    assert (x.var(1).tolist(), x.std(1, False).tolist()) == ([1, 1], pytest.approx([(2 / 3) ** 0.5] * 2))
    assert st.norm(x).item() == pytest.approx(91**0.5)


def test_sums_so_far_distances_and_histograms():
    x = matrix()
    assert x.cumsum(1).tolist() == [[3, 4, 6], [6, 11, 15]]
    assert x.cumprod(0).tolist() == [[3, 1, 2], [18, 5, 8]]
    assert st.dist(x, st.zeros(2, 3), 1).item() == 21
    assert st.renorm(x, 1, 0, 3).sum(1).tolist() == pytest.approx([3, 3])
    assert st.histc(x, 3, 1, 6).tolist() == [2, 2, 2]
    assert st.bhistc(x, 2, 1, 6).tolist() == [[3, 0], [0, 3]]
    assert st.match(x, st.zeros(1, 3)).tolist() == [[14], [77]]


def test_sort_and_topk_give_values_and_indices():
    x = matrix()
    values, indices = st.sort(x, 1)
    assert (values.tolist(), indices.tolist()) == ([[1, 2, 3], [4, 5, 6]], [[1, 2, 0], [2, 1, 0]])
    values, indices = st.sort(x, 0, descending=True)
    assert (values[0].tolist(), indices[0].tolist()) == ([6, 5, 4], [1, 1, 1])
    values, indices = st.topk(x, 2)
    assert (values.tolist(), indices.tolist()) == ([[3, 2], [6, 5]], [[0, 2], [0, 1]])
    assert st.argsort(x, 1).tolist() == [[1, 2, 0], [2, 1, 0]]


def test_new_tensors_of_th():
    x = matrix()
    assert [made.tolist() for made in (st.zeros(2), st.ones(2), st.zeros_like(x[0]), st.ones_like(x[0]))] == [
        [0, 0], [1, 1], [0] * 3, [1] * 3
    ]  # fmt: skip
    assert st.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert (st.arange(0, 3).tolist(), st.range(0, 3).tolist()) == ([0, 1, 2], [0, 1, 2, 3])
    assert (st.linspace(0, 1, 3).tolist(), st.logspace(0, 2, 3).tolist()) == ([0, 0.5, 1], [1, 10, 100])
    assert (st.diag(st.tensor([1, 2])).tolist(), st.diag(x).tolist()) == ([[1, 0], [0, 2]], [3, 5])


def test_joining_and_triangles():
    x = matrix()
    assert st.cat([x, x], 1).shape == (2, 6)
    assert st.cat([x, st.zeros(1, 3)]).tolist()[2] == [0, 0, 0]
    assert st.reshape(x, (3, 2)).tolist() == [[3, 1], [2, 6], [5, 4]]
    assert (st.tril(x).tolist(), st.triu(x, 1).tolist()) == ([[3, 0, 0], [6, 5, 0]], [[0, 1, 2], [0, 0, 4]])


def test_references_keep_the_memory():
    """Retain and free are Python's: the memory lasts as long as something refers to it."""
    x = st.ones(3)
    view = x[1:]
    storage = x.storage()
    del x
    assert view.storage() is storage
    assert storage.tolist() == [1, 1, 1]
