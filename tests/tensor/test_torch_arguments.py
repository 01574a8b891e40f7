"""Arguments, types and forms that torch has and NumPy lacks, of operations that NumPy has."""

from __future__ import annotations

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, ShmTensorError

BYTES = st.tensor([200, 1], dtype="uint8")


def test_alpha_is_of_the_type_of_the_result():
    assert st.add(BYTES, BYTES, alpha=-3).tolist() == [(200 - 600) % 256, 254]
    assert st.sub(BYTES, BYTES, alpha=-3).tolist() == [800 % 256, 4]
    assert st.add(st.tensor([300]), BYTES[:1], alpha=2).tolist() == [700]
    assert BYTES.clone().index_add_(0, st.tensor([0]), BYTES[:1], alpha=-1).tolist() == [0, 1]
    with pytest.raises(DTypeError, match=r"alpha 0\.5"):
        st.add(BYTES, BYTES, alpha=0.5)
    with pytest.raises(DTypeError, match=r"alpha 0\.5"):
        st.index_add(BYTES, 0, st.tensor([0]), BYTES[:1], alpha=0.5)


def test_negative_powers_of_integers():
    base, power = st.tensor([2, 1, -1, -1, 0, 3]), st.tensor([-1, -5, -2, -3, -1, 2])
    assert (base**power).tolist() == [0, 1, 1, -1, 0, 9]
    assert (2 ** st.tensor([3, -1])).tolist() == [8, 0]
    assert base.clone().pow_(power).tolist() == [0, 1, 1, -1, 0, 9]
    with pytest.raises(InvalidArgument, match="negative"):
        base**-1


def test_powers_of_2():
    assert st.ldexp(st.tensor([1, 3]), st.tensor([2, -1])).tolist() == [4, 1.5]
    assert st.ldexp(st.tensor([1, 3]), st.tensor([2, -1])).dtype == st.float32
    assert st.ones(2, dtype="float64").ldexp_(st.tensor(3)).tolist() == [8, 8]


def test_round_to_digits():
    x = st.tensor([1.2345, -1234.5, 2.5])
    assert x.round(decimals=2).tolist() == pytest.approx([1.23, -1234.5, 2.5])
    assert st.round(x, decimals=-2).tolist() == [0, -1200, 0]
    assert x.round(decimals=0).tolist() == x.round().tolist()
    assert x.round_(decimals=-3) is x and x.tolist() == [0, -1000, 0]
    with pytest.raises(InvalidArgument):
        x.round(decimals=0.5)


def test_complex_logarithms_of_sums():
    a, b = st.tensor([1 + 2j, -1j]), st.tensor([0.5 - 1j, 3.0])
    expected = np.log(np.exp(a.numpy()) + np.exp(b.numpy()))
    np.testing.assert_allclose(st.logaddexp(a, b).numpy(), expected, 1e-5)
    rows = st.stack([a, b])
    np.testing.assert_allclose(rows.logcumsumexp(0).numpy()[1], expected, 1e-5)
    np.testing.assert_allclose(rows.logsumexp(0).numpy(), expected, 1e-5)
    endless = st.tensor([-np.inf + 0j])
    assert st.logaddexp(endless, endless).numpy().real.tolist() == [-np.inf]


def test_truth_values_of_bytes_are_bytes():
    assert BYTES.all().dtype == BYTES.any(0).dtype == st.uint8
    assert BYTES.all().item() == 1 and st.tensor([1, 0]).all().dtype == st.bool
    assert st.tensor([True, False]).square().dtype == st.int64
    assert st.tensor([True]).sign().dtype == st.bool and st.tensor([True]).conj().dtype == st.bool


def test_hash_tensor():
    x = st.tensor([[1, 2], [4, 8]])
    assert (x.hash_tensor().item(), x.hash_tensor(1, keepdim=True).tolist()) == (15, [[3], [12]])
    one = np.float64(1).view(np.uint64)
    assert st.ones(3).hash_tensor().item() == one and st.ones(2).hash_tensor().item() == 0
    assert x.hash_tensor().dtype == st.uint64
    with pytest.raises(InvalidArgument):
        x.hash_tensor(mode=1)
    with pytest.raises(DTypeError):
        st.tensor([1j]).hash_tensor()


def test_scatter_with_reduce_and_gather_of_any_axes():
    x, at = st.ones(3), st.tensor([0, 0, 2])
    assert x.scatter(0, at, st.tensor([2.0, 3, 4]), reduce="add").tolist() == [6, 1, 5]
    assert x.scatter(0, at, st.tensor([2.0, 3, 4]), reduce="multiply").tolist() == [6, 1, 4]
    assert st.ones(2, dtype="int64").scatter_(0, st.tensor([0, 0]), 2.5, reduce="multiply").tolist() == [4, 1]
    with pytest.raises(InvalidArgument, match="reduce"):
        x.scatter(0, at, 1.0, reduce="mean")
    assert st.tensor(5).gather(0, st.tensor([0])).tolist() == [5] and st.tensor(5).gather(0, st.tensor(0)).shape == ()
    assert x.gather(0, st.empty((2, 0), dtype="int64")).shape == (2, 0)
    with pytest.raises(IndexOutOfRange):
        x.gather(1, st.empty((2, 0), dtype="int64"))


def test_tensors_without_axes():
    x = st.tensor(3.0)
    assert x.transpose(0, -1).shape == () and x.unfold(0, 1, 1).tolist() == [3]
    assert x.argmax(0, True).shape == () and x.argmin(-1).item() == 0
    with pytest.raises(IndexOutOfRange):
        x.transpose(0, 1)


def test_lists_of_tensors():
    x = st.arange(3)
    assert [one.shape for one in st.atleast_2d([x, x[0]])] == [(1, 3), (1, 1)]
    assert st.atleast_1d(x[0]).shape == (1,) and isinstance(st.atleast_3d(x, x), tuple)
    assert st.atleast_3d(x).storage() is x.storage()
    for indexing, shape in (("ij", (3, 2)), ("xy", (2, 3))):
        one, other = st.meshgrid([x, x[:2]], indexing=indexing)
        expected = np.meshgrid(np.arange(3), np.arange(2), indexing=indexing)
        assert one.shape == shape and one.tolist() == expected[0].tolist() and other.tolist() == expected[1].tolist()
    with pytest.raises(InvalidArgument):
        st.meshgrid()
    for parts in (x.split(2), x.chunk(2), x.tensor_split(2)):
        assert isinstance(parts, tuple) and len(parts) == 2


def test_cat_leaves_out_what_has_no_elements_on_one_axis():
    x = st.ones(2, 2)
    assert st.cat([st.empty(0), x, x], dim=1).shape == (2, 4)
    assert st.cat([st.empty(0, dtype="float64"), x]).dtype == st.float64
    assert st.cat([st.empty(0), st.empty(0)]).shape == (0,)
    assert st.cat([st.arange(2), st.ones(1)]).dtype == st.float32
    with pytest.raises(InvalidArgument):
        st.cat([st.empty(0, 3), x])


def test_diagonals_of_any_two_axes():
    x = st.arange(6).view(2, 3)
    made = x.diag_embed(1, dim1=0, dim2=2)
    assert made.shape == (4, 2, 4) and made.diagonal(1, 0, 2).tolist() == x.tolist() and made.sum().item() == 15
    assert x.diag_embed(0, -1, -2).tolist() == x.diag_embed().transpose(-1, -2).tolist()
    with pytest.raises(InvalidArgument):
        x.diag_embed(0, 1, 1)


def test_several_results_go_to_out():
    x = st.tensor([3.0, 1, 2])
    values, indices = st.empty(2), st.empty(2, dtype="int64")
    found = st.topk(x, 2, out=(values, indices))
    assert found.values is values and found.indices is indices
    assert (values.tolist(), indices.tolist()) == ([3, 2], [0, 2])
    s = st.empty(2)
    assert st.linalg.svd(st.eye(2), out=(st.empty(2, 2), s, st.empty(2, 2)))[1] is s and s.tolist() == [1, 1]
    for wrong in ((values,), values, (values, values, values)):
        with pytest.raises(InvalidArgument, match="out"):
            st.topk(x, 2, out=wrong)
    with pytest.raises(InvalidArgument):
        st.topk(x, 3, out=(values, indices))
    with pytest.raises(DTypeError):
        st.topk(x, 2, out=(values, 3))


def test_out_of_what_is_done_on_a_copy():
    x, at, into = st.ones(2), st.tensor([1]), st.empty(2)
    for call in (
        lambda: st.index_add(x, 0, at, x[:1], out=into),
        lambda: st.scatter(x, 0, at, 2.0, out=into),
        lambda: st.addcmul(x, st.tensor([0.0, 1]), x, out=into),
        lambda: st.scatter_reduce(x, 0, at, x, "sum", out=into),
        lambda: st.where(st.tensor([True, False]), x, 2.0, out=into),
    ):
        into.zero_()
        assert call() is into and into.tolist() == [1, 2] and x.tolist() == [1, 1]


def test_what_is_a_view():
    x = st.ones(2)
    assert +x is x and x.positive() is x and x.conj() is x
    assert st.cartesian_prod(x).storage() is x.storage()
    with pytest.raises(DTypeError):
        +st.tensor([True])


def test_whole_numbers_go_to_out_of_any_whole_type():
    assert st.tensor([7, -1]).clip(out=st.empty(2, dtype="uint8")).tolist() == [7, 255]
    assert st.tensor([7], dtype="int8").clip(max=st.tensor([3], dtype="int32")).dtype == st.int32
    x = st.tensor([200], dtype="uint8")
    assert x.clamp_(st.tensor([0], dtype="int32"), st.tensor([9], dtype="int32")).tolist() == [9]


def test_refusals_do_not_name_private_functions():
    x = st.ones(2, 2)
    for call in (
        lambda: st.slice_copy([1]), lambda: st.add((1, 2), x, alpha=2), lambda: st.atleast_1d(1),
        lambda: st.histogramdd(np.ones((2, 2)), 2), lambda: st.linalg.lu([1]), lambda: st.sub(1, 2, 3),
        lambda: x.add_(), lambda: x.div(1, 2, 3), lambda: x.clamp(2**70), lambda: x.clip(["a"]),
    ):  # fmt: skip
        with pytest.raises((TypeError, ShmTensorError)) as caught:
            call()
        assert " _" not in f" {caught.value}"
        assert "lambda" not in str(caught.value)
