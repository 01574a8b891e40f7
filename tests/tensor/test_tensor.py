"""Tensors: creation, views, arithmetic, sharing, and sending by value."""

import copy
import gc
import operator
import os
import pickle
import threading

import numpy as np
import pytest

import shmtensor
from shmtensor import Tensor, from_numpy
from shmtensor.dtypes import ELEMENT_TYPES
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError, OutOfMemory, ShmTensorError


@pytest.fixture(params=[False, True], ids=["heap", "shared"])
def shared(request):
    return request.param


@pytest.fixture
def t(shared):
    return shmtensor.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), shared=shared)


# -- making


def test_creation(shared):
    for made, expected in [
        (shmtensor.zeros(2, 3, shared=shared), np.zeros((2, 3))),
        (shmtensor.ones((2, 3), shared=shared), np.ones((2, 3))),
        (shmtensor.full((2,), 7.5, shared=shared), np.full(2, 7.5)),
        (shmtensor.tensor([[1.5, 2], [3, 4]], shared=shared), np.array([[1.5, 2], [3, 4]])),
    ]:
        assert made.dtype == shmtensor.float32
        assert made.shape == expected.shape
        assert np.array_equal(made.numpy(), expected)
        assert made.is_shared() is shared
    assert shmtensor.empty([4, 0, 2], shared=shared).shape == (4, 0, 2)
    assert shmtensor.empty(shared=shared).shape == shmtensor.empty((), shared=shared).shape == ()


def test_types_of_values():
    doubles = shmtensor.tensor(np.array([1.5, 2.5]))
    assert (
        shmtensor.tensor([doubles[0], doubles[1]]).dtype
        == shmtensor.tensor([np.float64(1.5)]).dtype
        == shmtensor.float64
    )
    assert shmtensor.tensor([1, 2]).dtype == shmtensor.int64
    assert shmtensor.tensor([True]).dtype == shmtensor.bool_
    assert shmtensor.tensor(1.5).dtype == shmtensor.float32
    assert shmtensor.tensor(np.array([1.5])).dtype == shmtensor.float64
    assert shmtensor.tensor(shmtensor.zeros(2, dtype=bool)).dtype == shmtensor.bool_
    assert shmtensor.full(2, 3).dtype == shmtensor.int64
    assert shmtensor.arange(3).tolist() == [0, 1, 2]
    assert shmtensor.arange(0.0, 1, 0.5).dtype == shmtensor.float32
    assert shmtensor.arange(1, 7, 2, dtype="float64").tolist() == [1, 3, 5]


@pytest.mark.parametrize("row", ELEMENT_TYPES, ids=lambda row: row.prefix)
def test_typed_classes(row):
    cls = getattr(shmtensor, f"{row.prefix}Tensor")
    made = cls([[0, 1], [1, 0]])
    assert type(made) is Tensor
    assert isinstance(made, cls)
    assert made.dtype == row.dtype
    assert made.tolist() == [[0, 1], [1, 0]]
    assert cls(2, 3).shape == (2, 3)
    other = shmtensor.FloatTensor if row.prefix != "Float" else shmtensor.IntTensor
    assert not isinstance(made, other)
    with pytest.raises(DTypeError, match=row.dtype.name):
        other(made.storage())
    assert type(made.storage()).__name__ == f"{row.prefix}Storage"
    assert pickle.loads(pickle.dumps(made)).tolist() == made.tolist()


def test_constructors_of_torch():
    assert Tensor(5, 5).shape == (5, 5)
    assert Tensor().shape == (0,)
    assert Tensor([[1, 2], [3, 4]]).dtype == shmtensor.float32
    assert Tensor(np.arange(3)).tolist() == [0.0, 1.0, 2.0]
    storage = shmtensor.IntStorage([1, 2, 3, 4])
    made = Tensor(storage)
    assert made.storage() is storage
    assert made.view((2, 2)).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("make", [shmtensor.zeros, shmtensor.empty, shmtensor.ones, Tensor])
@pytest.mark.parametrize("size", [(-1,), (3, -1), (2**60,), (2**31, 2**31), (0, 2**62), (1,) * 65])
def test_impossible_sizes(make, size):
    with pytest.raises(InvalidArgument):
        make(*size)


def test_sizes_that_are_no_integers():
    for size in ((1.5,), ("a",), (None,), ([1, "b"],), (True,), (2, False), (np.ones((1, 2)),)):
        with pytest.raises(InvalidArgument, match="integers"):
            shmtensor.zeros(*size)


def test_more_than_memory(shared):
    with pytest.raises((OutOfMemory, InvalidArgument)) as caught:
        shmtensor.zeros(2**44, shared=shared)
    assert str(2**46) in str(caught.value)


def test_values_that_make_no_tensor():
    for data, error in (
        ([[1], [2, 3]], InvalidArgument),
        (["a"], DTypeError),
        (object(), DTypeError),
        ([np.datetime64("2026-01-01")], DTypeError),
        (np.array(["a"]), DTypeError),
    ):
        with pytest.raises(error):
            shmtensor.tensor(data)
    with pytest.raises(InvalidArgument):
        shmtensor.tensor([300], dtype="uint8")
    with pytest.raises(InvalidArgument):
        shmtensor.full(2, 300, dtype="uint8")
    with pytest.raises(ShmTensorError):
        shmtensor.arange(0, 5, 0)


# -- NumPy


def test_from_numpy_shares_memory_both_ways():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = from_numpy(array)
    tensor[0, 0] = 50
    array[1, 2] = 60
    assert tensor.tolist() == [[50, 1, 2], [3, 4, 60]]
    assert np.shares_memory(tensor.numpy(), array)
    assert np.asarray(tensor).base is not None
    assert tensor.data_ptr() == array.ctypes.data


def test_numpy_views_keep_the_memory(shared):
    array = shmtensor.full((1000,), 3, dtype="int32", shared=shared).numpy()
    gc.collect()
    other = shmtensor.zeros(1000, dtype="int32", shared=shared)
    assert array.sum() == 3000
    assert other.numpy().sum() == 0


def test_from_numpy_takes_strides_and_subclasses():
    array = np.arange(24, dtype=np.float64).reshape(2, 3, 4)
    for view in (array[:, ::2], array.T, array[1:, :, 1], np.broadcast_to(array, array.shape).T.copy().T):
        tensor = from_numpy(view)
        assert tensor.shape == view.shape
        assert tensor.stride() == tuple(s // 8 for s in view.strides)
        assert tensor.storage()[tensor.storage_offset()] == view.flat[0]
        moved = tensor.share_memory_()
        assert np.array_equal(moved.numpy(), view)
        assert moved.stride() == tensor.stride()
    masked = np.array([[1.0, 2.0]]).view(np.matrix) if hasattr(np, "matrix") else None
    if masked is not None:
        assert type(from_numpy(masked).numpy()) is np.ndarray


@pytest.mark.parametrize(
    ("array", "error", "says"),
    [
        (np.zeros(4, np.dtype([("a", "f4"), ("b", "i2")]))["a"], LayoutError, "copy"),
        (np.array([object()]), DTypeError, "objects"),
        (np.zeros(2, [("a", "i4")]), DTypeError, "structured"),
        (np.zeros(2, ">i4"), DTypeError, "byte order"),
        (np.zeros(2, np.longdouble), DTypeError, "float128"),
        (np.array(["a"]), DTypeError, "not supported"),
        ([1, 2], DTypeError, "list"),
    ],
)
def test_arrays_that_cannot_be_used(array, error, says):
    with pytest.raises(error, match=says):
        from_numpy(array)


def test_read_only_arrays_are_refused():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.raises(LayoutError, match="read-only"):
        from_numpy(array)


def test_array_protocol_follows_numpy(t):
    assert np.shares_memory(np.asarray(t), t.numpy())
    assert not np.shares_memory(np.array(t), t.numpy())
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, dtype=np.float64, copy=False)
    assert np.sum(t.numpy()) == 66


def test_the_callers_array_object_is_its_own():
    array = np.zeros(4)
    tensor = from_numpy(array)
    out = tensor.numpy()
    out.flags.writeable = False
    np.asarray(tensor).flags.writeable = False
    np.asarray(tensor.storage()).flags.writeable = False
    array.flags.writeable = False
    tensor.fill_(1)
    assert tensor.shape == (4,)


# -- views


def test_what_a_tensor_is(t):
    assert (t.shape, t.size(), t.size(-1), t.stride(), t.stride(0)) == ((3, 4), (3, 4), 4, (4, 1), 4)
    assert (t.dim(), t.ndim, t.numel(), t.nelement(), len(t)) == (2, 2, 12, 12, 3)
    assert (t.element_size(), t.nbytes, t.storage_offset()) == (4, 48, 0)
    assert t.is_contiguous()
    assert not t.t().is_contiguous()
    with pytest.raises(IndexError):
        t.size(2)


def test_views_share_one_storage(t):
    views = [
        t[1:], t[1], t[1, 2], t[..., 0], t[:, None], t.view(4, 3), t.view((2, -1)), t.view(12), t.narrow(0, 1, 2),
        t.narrow(1, -2, 1), t.select(1, -1), t.t(), t.transpose(0, -1), t.reshape(6, 2), t.contiguous(), t[::2],
    ]  # fmt: skip
    for view in views:
        assert view.storage() is t.storage()
        assert np.shares_memory(view.numpy(), t.numpy())
        assert view.storage()[view.storage_offset()] == view.numpy().flat[0]
    t.fill_(5)
    for view in views:
        assert (view == 5).all()


def test_views_have_numpys_values(t):
    array = t.numpy().copy()
    assert t.view(4, 3).tolist() == array.reshape(4, 3).tolist()
    assert t.narrow(1, 1, 2).tolist() == array[:, 1:3].tolist()
    assert t.narrow(1, 4, 0).shape == (3, 0)
    assert t.select(0, 1).tolist() == array[1].tolist()
    assert t.select(-1, -1).tolist() == array[:, -1].tolist()
    assert t.t().tolist() == array.T.tolist()
    assert t.transpose(0, 1).stride() == (1, 4)
    assert [row.tolist() for row in t] == array.tolist()
    assert t[2, 3].item() == 11
    assert t[2, 3].shape == ()
    assert t[t[:, 0] > 3].tolist() == array[array[:, 0] > 3].tolist()
    assert t[[0, 2], [1, 1]].tolist() == [1, 9]
    assert t[shmtensor.tensor([2, 0])].tolist() == array[[2, 0]].tolist()
    assert not np.shares_memory(t[[0, 1]].numpy(), t.numpy())


def test_views_that_are_not_there(t):
    for make in (
        lambda: t[3], lambda: t[0, 4], lambda: t[-4], lambda: t[0, 0, 0], lambda: t.narrow(2, 0, 1),
        lambda: t.narrow(0, 2, 2), lambda: t.narrow(0, 0, -1), lambda: t.select(0, 3), lambda: t.select(5, 0),
        lambda: t.transpose(0, 2), lambda: t[[5]],
    ):  # fmt: skip
        with pytest.raises(IndexError) as caught:
            make()
        assert isinstance(caught.value, ShmTensorError)
    for make in (
        lambda: t.view(5, 5), lambda: t.view(-1, 5), lambda: t.view(-1, -1), lambda: t.view(-2, 6),
        lambda: t.reshape(7), lambda: t.view("x", 1), lambda: t.select(0, "x"),
        lambda: t.view(1, 4, 3).t(), lambda: t.narrow(0, 1.5, 1), lambda: t.narrow(0, 0, "x"), lambda: t[[1, [2]]],
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            make()
    with pytest.raises(LayoutError, match="reshape"):
        t.t().view(12)
    assert t.t().reshape(12).tolist() == t.numpy().T.ravel().tolist()
    assert t.numel() == 12


def test_rebuild_checks_bounds(t):
    storage = t.storage()
    assert Tensor._rebuild(*t[1:, 1]._parts()).tolist() == t[1:, 1].tolist()
    assert Tensor._rebuild(storage, 12, (0,), (1,)).numel() == 0
    for bad in ((0, (13,), (1,)), (-1, (2,), (1,)), (11, (2,), (1,)), (0, (2,), (-1,)), (0, (2, 2), (1,))):
        with pytest.raises(InvalidArgument):
            Tensor._rebuild(storage, *bad)


def test_assignment(t):
    t[0] = 1
    t[1, 1:3] = [7, 8]
    t[2] = t[1]
    t[t > 7] = shmtensor.tensor(-1.0)
    assert t.tolist() == [[1, 1, 1, 1], [4, 7, -1, 7], [4, 7, -1, 7]]
    before = t.tolist()
    for key, value in ((0, [1, 2]), (0, "x"), (5, 1)):
        with pytest.raises(ShmTensorError):
            t[key] = value
    assert t.tolist() == before
    with pytest.raises(InvalidArgument):
        shmtensor.zeros(2, dtype="uint8")[0] = 300


# -- arithmetic

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY)
def test_operators_are_numpys(name, t):
    op = getattr(operator, name)
    array = t.numpy()
    other = shmtensor.tensor([1.0, 2, 3, 4])
    for right in (other, other.numpy(), 2, 2.5):
        result = op(t, right)
        expected = op(array, right.numpy() if isinstance(right, Tensor) else right)
        assert type(result) is Tensor
        assert result.dtype == expected.dtype
        assert np.array_equal(result.numpy(), expected, equal_nan=True)
        assert not result.is_shared()
    reflected = op(np.float64(3), t[1:])
    assert type(reflected) is Tensor
    assert np.array_equal(reflected.numpy(), op(np.float64(3), array[1:]))
    assert np.array_equal(op(other.numpy(), t[1:]).numpy(), op(other.numpy(), array[1:]))


def test_a_product_in_place_changes_the_memory():
    x = y = shmtensor.tensor([[0.0, 1], [2, 3]], shared=True)
    x @= x
    assert x is y
    assert x.is_shared()
    assert x.tolist() == [[2, 3], [6, 11]]


def test_in_place_changes_the_memory(t):
    expected = t.numpy().copy()
    address, storage = t.data_ptr(), t.storage()
    same = t
    t += 1
    t *= 2
    t -= shmtensor.ones(4)
    t /= 4
    assert t is same
    assert t.add_(1).sub_(2).mul_(3).div_(2) is t
    expected = (((((expected + 1) * 2 - 1) / 4) + 1 - 2) * 3) / 2
    assert np.allclose(t.numpy(), expected)
    assert (t.data_ptr(), t.storage()) == (address, storage)
    assert t.zero_().sum().item() == 0
    assert t.fill_(2).exp_().log_().numpy() == pytest.approx(2)
    assert t.copy_(np.arange(4)).tolist()[2] == [0, 1, 2, 3]
    with pytest.raises(InvalidArgument):
        t.copy_(np.arange(5))


def test_overlapping_in_place_is_as_if_copied():
    t = shmtensor.arange(6)
    t[1:] += t[:-1]
    assert t.tolist() == [0, 1, 3, 5, 7, 9]


def test_operations_that_do_not_go_together(t):
    with pytest.raises(InvalidArgument, match="broadcast"):
        t + shmtensor.ones(5)
    with pytest.raises(InvalidArgument):
        t.add_(shmtensor.ones(5))
    with pytest.raises(InvalidArgument):
        t @ t
    integers = shmtensor.arange(3)
    with pytest.raises(DTypeError):
        integers += 0.5
    with pytest.raises(TypeError):
        t + "x"
    with pytest.raises(TypeError):
        None + t
    for method in (t.add, t.add_, t.mul_, t.eq, t.maximum, t.matmul):
        for other in (None, "x", (1, 2, 3, 4), t.storage()):
            with pytest.raises(DTypeError, match=f"{method.__name__} of a tensor and a {type(other).__name__}"):
                method(other)
    assert integers.tolist() == [0, 1, 2]
    with pytest.raises(InvalidArgument, match="ambiguous"):
        bool(t)


def test_reductions_and_products(t):
    array = t.numpy()
    assert t.sum().item() == array.sum()
    assert t.sum(dim=0).tolist() == array.sum(0).tolist()
    assert t.mean(dim=(0, 1)).item() == array.mean()
    for function in (np.sum, np.mean, np.min, np.max, np.any, np.all, np.argmax, np.argmin):
        assert np.array_equal(function(t, axis=1), function(array, axis=1))
        assert np.array_equal(function(t), function(array))
    assert np.sum(t, keepdims=True, dtype="i8").shape == (1, 1)
    largest = t.max(dim=1, keepdim=True)
    assert (largest.values.tolist(), largest.indices.tolist()) == ([[3], [7], [11]], [[3]] * 3)
    assert (t.min().item(), t.max().item(), t.argmax().item(), t.argmin(dim=0).tolist()) == (0, 11, 11, [0] * 4)
    assert (t @ t.t()).tolist() == (array @ array.T).tolist()
    assert t.matmul(shmtensor.ones(4)).shape == (3,)
    assert (np.ones((2, 3), np.float32) @ t).tolist() == (np.ones((2, 3), np.float32) @ array).tolist()
    assert (-t).neg().abs().tolist() == t.tolist()
    assert t.maximum(5).min().item() == 5
    assert (t > 5).any() and not (t > 50).any()
    with pytest.raises(IndexError):
        t.sum(dim=2)
    with pytest.raises(InvalidArgument):
        shmtensor.empty(0).max()


def test_scalars(t):
    assert float(t[0, 1]) == 1.0
    assert int(t[0, 3]) == 3
    assert [10, 20, 30][shmtensor.tensor(1)] == 20
    assert f"{t[0, 1]:.2f}" == "1.00"
    assert 3 in t and 50 not in t
    with pytest.raises(InvalidArgument):
        t.item()
    with pytest.raises(TypeError):
        len(t[0, 0])
    with pytest.raises(TypeError):
        operator.index(t[0, 0])


def test_conversion_and_copies(t):
    assert t.to("float32") is t
    assert t.to("int64").tolist() == t.tolist()
    assert t.clone().storage() is not t.storage()
    assert t.t().contiguous().is_contiguous()
    with pytest.raises(DTypeError):
        t.to("longdouble")


def test_repr_says_where_shared_memory_is(t, shared):
    assert repr(t).startswith("tensor([[ 0.,  1.,  2.,  3.],\n        [ 4.,")
    assert repr(t).endswith("memory=shared)" if shared else "11.]])")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("make", ["empty", "zeros", "ones", "rand", "randn"])
def test_leaves_that_require_grad(make: str, shared: bool) -> None:
    function = getattr(shmtensor, make)
    assert not function(2, requires_grad=False, shared=shared).requires_grad
    assert function(2, requires_grad=True, shared=shared).requires_grad


def test_requires_grad_is_set() -> None:
    t = shmtensor.ones(2)
    assert shmtensor.Tensor._rebuild(t.storage(), 0, (2,), (1,), True).requires_grad  # a pickle
    assert not t.requires_grad and t.requires_grad_().requires_grad and not t.requires_grad_(False).requires_grad
    with pytest.raises(DTypeError, match="int64"):
        shmtensor.tensor([1], requires_grad=True)


# -- sharing


def test_share_memory_takes_all_tensors_of_the_storage_along():
    base = shmtensor.arange(12).view(3, 4)
    views = [base[1:], base.t(), base[2, 3], base.view(12)[5:5]]
    old = base.numpy()
    assert base[1:].share_memory_().is_shared()
    assert base.is_shared()
    for view in views:
        assert view.is_shared()
        assert view.storage() is base.storage()
    base[2, 3] = 99
    assert views[0].tolist()[1][3] == views[1].tolist()[3][2] == views[2].item() == 99
    views[1].zero_()
    assert base.sum().item() == 0
    assert old[2, 3] == 11
    assert base.share_memory_() is base


def test_share_memory_of_a_view_keeps_values_and_layout():
    tensor = from_numpy(np.arange(20.0).reshape(4, 5))[1:3, ::2].t()
    expected = tensor.tolist()
    assert tensor.share_memory_().tolist() == expected
    assert tensor.stride() == (2, 5)


def test_a_tensor_over_shared_memory_is_recognised():
    tensor = shmtensor.zeros(10, shared=True)
    again = from_numpy(tensor.numpy()[3:])
    assert again.is_shared()
    assert again.storage() is tensor.storage()
    assert again.storage_offset() == 3
    other = from_numpy(tensor.numpy()[1:].view(np.int32))
    assert other.storage().size() == 10
    assert other.storage_offset() == 1
    odd = shmtensor.zeros(9, shared=True)
    wide = from_numpy(odd.numpy()[2:8].view(np.int64))
    assert wide.is_shared()
    assert wide.storage().size() == 4
    assert wide.storage_offset() == 1
    wide.fill_(-1)
    assert np.isnan(odd.numpy()[2:8]).all()
    with pytest.raises(LayoutError, match="aligned"):
        from_numpy(odd.numpy()[1:3].view(np.int64))


def test_the_tuple_of_a_5x5_tensor():
    tensor = shmtensor.ones(5, 5, shared=True)
    manager, handle, size = tensor.storage()._share_filename_()
    assert size == 25
    opened = Tensor(shmtensor.Storage._new_shared_filename(manager, handle, size)).view((5, 5))
    opened[2, 2] = 4
    assert tensor[2, 2].item() == 4


def test_shared_memory_after_fork():
    tensor = shmtensor.zeros(4, shared=True)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            tensor += 1
            fresh = shmtensor.full((3,), 2.0, shared=True)
            tensor[0] = fresh.sum().item()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert tensor.tolist() == [6, 1, 1, 1]


def test_one_storage_however_many_threads_ask():
    tensor = shmtensor.zeros(1000, shared=True)
    found = []
    threads = [threading.Thread(target=lambda: found.append(tensor[1:].storage())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(storage) for storage in found}) == 1


# -- by value


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_is_by_value_and_keeps_sharing(t, protocol):
    whole, part = pickle.loads(pickle.dumps((t, t[1:, ::2]), protocol))
    assert whole.tolist() == t.tolist()
    assert part.tolist() == t[1:, ::2].tolist()
    assert whole.storage() is part.storage()
    assert not whole.is_shared()
    whole[2, 2] = -5
    assert part[1, 1].item() == -5
    assert t[2, 2].item() == 10
    assert pickle.loads(pickle.dumps(shmtensor.empty(0, 3), protocol)).shape == (0, 3)


def test_deepcopy_is_by_value_and_copy_shares_the_memory(t):
    shallow = copy.copy(t[1:])
    assert shallow is not t and shallow.storage() is t.storage() and shallow.tolist() == t[1:].tolist()
    whole, part = copy.deepcopy([t, t[1:]])
    whole.fill_(2)
    assert part.tolist() == [[2] * 4] * 2
    assert t[2, 3].item() == 11
    shallow.fill_(1)
    assert t[1:].tolist() == [[1] * 4] * 2
    t.share_memory_()
    shallow[0, 0] = 7
    assert t[1, 0].item() == 7


def test_pickle_of_a_tensor_on_a_part_of_a_storage():
    storage = shmtensor.IntStorage(range(10))
    part = Tensor(storage[4:8])
    loaded, other = pickle.loads(pickle.dumps((part[1:], Tensor(storage))))
    assert loaded.tolist() == [5, 6, 7]
    other[5] = 50
    assert loaded[0].item() == 50


def test_weak_reference_and_identity_hash(t):
    assert len({t, t}) == 1
    import weakref

    ref = weakref.ref(t[1:])
    gc.collect()
    assert ref() is None
