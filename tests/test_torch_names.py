"""Names that torch programs use: each exists here, with the same meaning as in torch.

An expression is computed twice, with the name `torch` bound to torch and to shmtensor.
"""

from __future__ import annotations

from typing import Any

import pytest
from beside_torch import plain, require_alike

import shmtensor as st

pytestmark = pytest.mark.torch  # most compare with it

X = "torch.tensor([[3., -1, 2], [0.5, 4, -6]])"
V = "torch.tensor([2, 0, 5, 2, 2])"
SQUARE = "torch.tensor([[4., 1, 0], [1, 3, 1], [0, 1, 2]])"
TYPES = """
float double half bfloat16 short int long float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
bool complex64 complex128 cfloat cdouble
"""
EXPRESSIONS = f"""
torch.device("cpu").type
torch.device("cpu", 0).index
str(torch.device("cuda:1"))
torch.device("cpu") == {X}.device
tuple(torch.Size([2, 3]))
torch.Size([2, 3]).numel()
torch.finfo(torch.float32).eps
torch.finfo(torch.float64).max
torch.finfo(torch.half).tiny
torch.finfo().bits
torch.iinfo(torch.int16).min
torch.iinfo(torch.uint8).max
torch.iinfo(torch.long).bits
torch.get_default_dtype()
torch.set_default_dtype(torch.float32)
torch.set_printoptions(precision=4)
torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8)
torch.frombuffer(bytearray(8), dtype=torch.float, count=1, offset=4)
torch.unique({V})
torch.unique({V}, return_inverse=True, return_counts=True)
torch.unique({V}, sorted=True, dim=0)
torch.unique_consecutive({V}, return_counts=True)
torch.softmax({X}, dim=1)
torch.softmax({X}, 0, dtype=torch.double)
torch.log_softmax({X}, dim=-1)
torch.relu({X})
torch.nan_to_num(torch.tensor([float("nan"), float("inf"), 1]), nan=7.0, posinf=9.0)
torch.cdist({X}, {X} + 1)
torch.cdist({X}, {X}, p=1)
torch.cov({X})
torch.cov({X}, correction=0)
torch.poisson(torch.zeros(3))
torch.poisson({X}.abs(), generator=torch.Generator()).shape
torch.complex(torch.ones(2), torch.zeros(2))
torch.polar(torch.ones(2), torch.tensor([0, torch.pi]))
torch.angle(torch.tensor([1 + 1j, -1]))
torch.angle({X})
torch.view_as_real(torch.tensor([1 + 2j]))
torch.triu_indices(3, 4, offset=1)
torch.tril_indices(3, 3)
torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4]))
torch.block_diag(torch.ones(2, 2), torch.tensor([[5.]]))
torch.var_mean({X}, dim=1)
torch.var_mean({X}, unbiased=False)
torch.std_mean({X}, dim=0, correction=0, keepdim=True)
torch.zeros(3).index_put_((torch.tensor([0, 2]),), torch.tensor([1., 2]))
torch.zeros(3).index_put_((torch.tensor([0, 0]),), torch.tensor([1., 2]), accumulate=True)
torch.index_put(torch.zeros(3), (torch.tensor([0, 2]),), torch.tensor(4.))
torch.index_put_(torch.zeros(3), (torch.tensor([0, 2]),), torch.tensor(4.))
torch.zeros(2, 2).put_(torch.tensor([0, 3]), torch.tensor([1., 2]))
torch.masked_scatter(torch.zeros(3), torch.tensor([True, False, True]), torch.tensor([1., 2]))
torch.scatter_reduce(torch.zeros(3), 0, torch.tensor([0, 0, 2]), torch.tensor([1., 2, 3]), reduce="sum")
torch.scatter_reduce(torch.ones(3), 0, torch.tensor([0, 0, 2]), torch.tensor([1., 2, 3]), "amax", include_self=False)
torch.diagonal_scatter(torch.zeros(2, 2), torch.ones(2))
torch.take_along_dim({X}, torch.tensor([[0], [2]]), dim=1)
torch.trapezoid({X})
torch.trapezoid({X}, dx=0.5, dim=0)
torch.histogram({X}, bins=4)
torch.histogram({X}, bins=3, range=(-6., 6.), density=True)
torch.gradient(torch.tensor([1., 4, 9, 16]))
torch.gradient(torch.tensor([1., 4, 9, 16]), spacing=2.0)
torch.xlogy(torch.tensor([0., 2]), torch.tensor([0., 3]))
torch.logit(torch.tensor([0.2, 0.9]))
torch.logit(torch.tensor([0., 0.9]), eps=0.1)
torch.heaviside(torch.tensor([-1., 0, 2]), torch.tensor([0.5]))
torch.unravel_index(torch.tensor([5, 2]), (2, 3))
torch.empty_strided((2, 3), (1, 2)).stride()
torch.clone({X})
torch.detach({X})
torch.numel({X})
torch.permute({X}, (1, 0))
torch.is_storage({X}.untyped_storage())
torch.is_storage({X})
torch.is_tensor({X})
torch.typename(3.5)
torch.typename({X}).rpartition(".")[2]
{X}.type().rpartition(".")[2]
{X}.cpu()
{X}.is_cuda
{X}.is_pinned()
{X}.is_cpu
{X}.get_device()
{X}.type(torch.LongTensor)
{X}.type("torch.DoubleTensor")
{X}.type(torch.int)
{X}.untyped_storage().nbytes()
{X}.untyped_storage().size()
len({X}.untyped_storage())
{X}.data
{X}.new([1, 2])
{X}.new(2, 3).shape
{X}.new_tensor([1, 2])
{X}.new_zeros(2, dtype=torch.long)
{X}.new_full((2,), 3.5)
{X}.repeat(2, 1)
{X}.is_set_to({X})
(lambda x: x.is_set_to(x.view(2, 3)))({X})
{X}.is_same_size({X} + 1)
{X}.unsqueeze_(1)
{X}.unsqueeze_(0).squeeze_()
{X}.transpose_(0, 1)
{X}.t_()
{X}.lerp_({X} + 1, 0.5)
{X}.lerp_(end={X} + 1, weight=torch.tensor(0.25))
{X}.cumsum_(dim=1)
{X}.tril_()
{X}.triu_(diagonal=1)
torch.zeros(3, 3).fill_diagonal_(2)
torch.zeros(3).map_(torch.ones(3), lambda a, b: a + 2 * b)
torch.zeros(3).map2_(torch.ones(3), torch.ones(3), lambda a, b, c: a + 2 * b + c)
{X}.apply_(lambda one: one + 1)
{X}.diag()
{X}.where({X} > 0, torch.tensor(0.))
{X}.msort()
{X}.itemsize
{X}.nbytes
{X}.renorm_(2, 0, 1.0)
torch.zeros(2, device="cpu")
torch.zeros(2, device=torch.device("cpu"), dtype=torch.half)
{X}.to("cpu", non_blocking=True)
{X}.to(torch.device("cpu"), torch.double)
{X}.copy_(torch.ones(3), non_blocking=True)
torch.add({X}, torch.ones(3), alpha=2)
{X}.sub(1, alpha=3)
{X}.add_({X}, alpha=-1)
torch.div({X}, 2, rounding_mode="floor")
{X}.div_(2, rounding_mode="trunc")
{X}.std(unbiased=False)
{X}.var(1, unbiased=True)
{X}.std(dim=1, correction=2)
{X}.round(decimals=1)
torch.round(torch.tensor([1.25, 2.375]), decimals=2)
torch.linspace(0, 1, steps=5)
torch.logspace(0, 2, steps=3)
torch.linspace(start=0, end=1, steps=3, dtype=torch.double)
torch.tensordot({X}, {X}, dims=([1], [1]))
torch.tensordot({X}, {X}.t(), dims=1)
torch.roll({X}, shifts=1, dims=1)
torch.flip({X}, dims=(0, 1))
torch.rot90({X}, k=1, dims=[0, 1])
torch.normal(mean=torch.ones(3), std=torch.zeros(3))
torch.normal(0.0, std=1.0, size=(2, 2)).shape
torch.zeros(2, pin_memory=False, requires_grad=False)
torch.empty(1, 2, 3, 4, memory_format=torch.channels_last).stride()
torch.ones(1, 2, 3, 4).contiguous(memory_format=torch.channels_last).stride()
torch.zeros_like({X}, memory_format=torch.preserve_format)
torch.zeros(2, layout=torch.strided)
torch.rand(3, generator=torch.Generator().manual_seed(1)).shape
torch.randperm(5, generator=torch.Generator()).sort().values
torch.tensor([1., 2], dtype=torch.double, device="cpu", requires_grad=False)
torch.einsum("ij,kj->ik", [{X}, {X}])
torch.einsum("ij,kj->ik", ({X}, {X}))
torch.einsum("ij->", {X})
torch.einsum({X}, [0, 1], [1, 0])
torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack({X}))
torch.from_dlpack({X})
torch.to_dlpack({X}).__class__.__name__
torch.cuda.is_available()
torch.cuda.device_count()
torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.is_grad_enabled() in (True, False)
torch.kthvalue({X}, 2, dim=1)
torch.topk({X}, k=2, dim=1, largest=False)
torch.median({X}, dim=1)
torch.mode({V})
torch.bincount({V}, minlength=8)
torch.bincount({V}, weights=torch.arange(5.))
torch.zeros(6).scatter_add_(0, {V}, torch.ones(5))
torch.gather({X}, 1, torch.tensor([[0, 0], [2, 1]]))
torch.linalg.norm({X})
torch.norm({X}, p=2, dim=1)
torch.allclose({X}, {X})
torch.equal({X}, {X} + 1)
torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
torch.chunk(torch.arange(7), 3)
torch.split(torch.arange(7), [3, 4])
torch.stack([{X}, {X}], dim=-1).shape
torch.cat(({X}, {X}), dim=1)
torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([2, 5]), right=True)
torch.linalg.solve({SQUARE}, torch.ones(3))
torch.linalg.cholesky({SQUARE})
torch.hann_window(5)
torch.hamming_window(4, periodic=False)
torch.blackman_window(5)
torch.bartlett_window(5)
torch.kaiser_window(5)
"""


def cases() -> list[str]:
    types = [f"torch.tensor([0, 1]).to(torch.{name})" for name in TYPES.split()]
    return types + [f"torch.zeros(2, dtype=torch.{name})" for name in TYPES.split()] + EXPRESSIONS.split("\n")[1:-1]


@pytest.mark.parametrize("expression", cases())
def test_a_name_means_what_it_means_in_torch(expression: str) -> None:
    torch: Any = pytest.importorskip("torch")
    theirs = plain(eval(expression, {"torch": torch}))
    ours = plain(eval(expression, {"torch": st}))
    require_alike(ours, theirs, expression)


PRESENT = """
set_default_tensor_type set_num_threads get_num_threads set_printoptions manual_seed Generator Tensor FloatTensor
LongTensor set_grad_enabled inference_mode no_grad enable_grad UntypedStorage typename
"""


@pytest.mark.parametrize("name", PRESENT.split())
def test_a_name_of_torch_is_here(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    assert callable(getattr(torch, name))
    assert callable(getattr(st, name))


def test_habits_of_numpy() -> None:
    x = st.tensor([1.26, 2.75, -0.5])
    assert round(x).tolist() == [1, 3, 0]
    assert st.allclose(round(x, 1), st.tensor([1.3, 2.8, -0.5]), atol=1e-6)
    assert x.astype("int32").dtype == st.int32
    assert x.copy().data_ptr() != x.data_ptr()


def test_modes_of_gradients() -> None:
    assert st.is_grad_enabled()
    with st.no_grad():
        assert not st.is_grad_enabled()
        with st.enable_grad():
            assert st.is_grad_enabled()
        assert not st.is_grad_enabled()
    for decorate in (st.no_grad, st.no_grad()):
        assert decorate(st.is_grad_enabled)() is False
    assert st.inference_mode()(st.is_inference_mode_enabled)() is True
    with st.set_grad_enabled(False):
        assert not st.is_grad_enabled()
    assert st.is_grad_enabled()
    st.set_grad_enabled(False)
    assert not st.is_grad_enabled()
    st.set_grad_enabled(True)
    with pytest.raises(ZeroDivisionError), st.no_grad():
        1 / 0  # noqa: B018
    assert st.is_grad_enabled()


def test_the_bytes_of_a_storage() -> None:
    x = st.tensor([1, 256], dtype=st.int16)
    bytes_ = x.untyped_storage()
    assert (bytes_.nbytes(), len(bytes_), bytes_.size(), bytes_.element_size()) == (4, 4, 4, 1)
    assert bytes_.tolist() == [1, 0, 0, 1] == [bytes_[i] for i in range(4)]
    assert bytes_ == x[1:].untyped_storage()
    assert bytes_ != st.zeros(2).untyped_storage()
    assert bytes_.data_ptr() == x.data_ptr()
    assert not bytes_.is_shared()
    assert bytes_.share_memory_().is_shared()
    assert x.is_shared()
    assert st.UntypedStorage(10).nbytes() == 10
    assert isinstance(bytes_, st.UntypedStorage)


@pytest.mark.parametrize("axes", [([0, 1.5], [1]), ([0, 99],), (3,)])
def test_einsum_with_axes_that_are_none(axes: Any) -> None:
    with pytest.raises(st.errors.InvalidArgument, match=r"einsum with axes|not an integer"):
        st.einsum(st.ones(2, 2), *axes)


def test_contiguous_in_a_format() -> None:
    x = st.ones(1, 2, 3, 4).contiguous(memory_format=st.channels_last)
    assert x.contiguous(memory_format=st.channels_last).data_ptr() == x.data_ptr()
    with pytest.raises(st.errors.InvalidArgument, match="4 axes"):
        st.ones(2).contiguous(memory_format=st.channels_last)


def test_windows_refuse() -> None:
    with pytest.raises(st.errors.InvalidArgument, match="-1 points"):
        st.hann_window(-1)
    with pytest.raises(st.errors.DTypeError, match="int64"):
        st.hann_window(3, dtype=st.int64)
    assert st.hann_window(0).shape == (0,)
    assert st.kaiser_window(1).tolist() == [1]
