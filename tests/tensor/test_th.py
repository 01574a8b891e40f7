"""What TH's tensors do beyond NumPy's and torch's arrays: see docs/th.md."""

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
