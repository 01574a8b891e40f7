"""Tensors and storages on a GPU: creation, moves, operations, indices, text, pickles, other libraries."""

import copy
import io
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import DTypeError, InvalidArgument, NotSupported


def host(x):
    assert x.is_cuda
    return x.cpu().numpy()


def test_creation():
    assert st.ones(2, 3, device="cuda").tolist() == [[1.0] * 3] * 2
    assert st.zeros((2,), dtype=st.int64, device="cuda:0").tolist() == [0, 0]
    assert st.full((2, 2), 7, device="cuda").tolist() == [[7, 7], [7, 7]]
    assert st.arange(5, device="cuda").tolist() == [0, 1, 2, 3, 4]
    assert st.linspace(0, 1, 3, device="cuda").tolist() == [0, 0.5, 1]
    assert st.eye(2, device="cuda").tolist() == [[1, 0], [0, 1]]
    assert st.tensor([[1, 2], [3, 4]], device="cuda").tolist() == [[1, 2], [3, 4]]
    assert st.asarray([1.5], device="cuda").tolist() == [1.5]
    assert st.randn(100, device="cuda").shape == (100,) and st.rand(3, device="cuda").is_cuda
    assert st.empty(3, device=st.device("cuda", 0)).device == "cuda:0"
    x = st.ones(3, device="cuda")
    assert st.zeros_like(x).is_cuda and st.ones_like(x).is_cuda and st.full_like(x, 2).tolist() == [2, 2, 2]
    assert x.new_zeros(2).is_cuda and x.new_full((2,), 3).tolist() == [3, 3] and x.new_tensor([1]).is_cuda
    assert st.tensor(x).is_cuda and st.asarray(x) is x
    shared = st.zeros(4, device="cuda", shared=True)
    assert shared.is_shared() and shared.tolist() == [0] * 4
    assert st.arange(4, device="cuda", shared=True).is_shared()
    assert st.ones(2, device="cuda", requires_grad=True).requires_grad


def test_moves():
    x = st.arange(6, dtype=st.float32).reshape(2, 3)
    y = x.to("cuda")
    assert y.device == "cuda:0" == str(y.device) and y.get_device() == 0 and y.is_cuda and not y.is_cpu
    assert y.cpu().tolist() == x.tolist() and y.cpu().get_device() == -1
    assert y.cuda() is y and y.to("cuda:0") is y and x.cpu() is x
    assert x.cuda().tolist() == x.to(y).tolist() == x.to(device="cuda").tolist() == x.tolist()
    assert y.to("cpu", st.int64).dtype == st.int64 and x.to("cuda", st.float64).dtype == st.float64
    assert y.to_device("cpu").is_cpu
    assert y.t().to("cpu").tolist() == x.t().tolist() and x.t().cuda().tolist() == x.t().tolist()
    assert y.copy_(x + 1).tolist() == (x + 1).tolist()
    x.copy_(y)
    assert x[0, 0].item() == 1
    assert y.double().half().dtype == st.float16 and y.type() == "shmtensor.cuda.FloatTensor"


def test_text():
    x = st.ones(2, device="cuda")
    assert repr(x) == "tensor([1., 1.], device='cuda:0')"
    assert "device='cuda:0'" in repr(x.requires_grad_()) and f"{x.detach()[0]:.1f}" == "1.0"


def test_values():
    x = st.tensor([3.5], device="cuda")
    assert x.item() == float(x) == 3.5 and int(x) == 3 and bool(x) and len(x) == 1
    assert [float(one) for one in st.arange(3.0, device="cuda")] == [0, 1, 2]
    with pytest.raises(InvalidArgument, match="item"):
        st.ones(2, device="cuda").item()
    assert 1 in st.ones(2, device="cuda")


def test_numpy_is_refused():
    x = st.ones(2, device="cuda")
    for read in (lambda: x.numpy(), lambda: np.asarray(x), lambda: np.array(x)):
        with pytest.raises(DTypeError, match=r"use x\.cpu\(\)"):
            read()
    with pytest.raises(BufferError):
        memoryview(x)


UNARY = [
    "abs",
    "neg",
    "exp",
    "log1p",
    "sqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "square",
    "sign",
    "floor",
    "ceil",
    "round",
    "reciprocal",
    "rsqrt",
    "isnan",
    "erf",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "fmod",
    "remainder",
    "hypot",
]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = st.rand(4, 5) + 0.5
    found = getattr(st, name)(x.cuda())
    assert np.allclose(host(found), getattr(st, name)(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    x, y = st.rand(4, 5) + 0.5, st.rand(5) + 0.5
    for a, b in ((x, y), (x, 2.0), (x, y[0])):
        at_gpu = [one.cuda() if isinstance(one, st.Tensor) else one for one in (a, b)]
        found = getattr(st, name)(*at_gpu)
        assert np.allclose(host(found), getattr(st, name)(a, b).numpy(), rtol=1e-4)


def test_types_of_results():
    i, f, d = (st.ones(3, dtype=one, device="cuda") for one in (st.int64, st.float32, st.float64))
    assert (i + f).dtype == st.float32 and (i + 1.5).dtype == st.float32 and (f + d).dtype == st.float64
    assert (i / i).dtype == st.float32 and (i + 1).dtype == st.int64 and (f > 0).dtype == st.bool
    assert (f + st.tensor(2.0, dtype=st.float64)).dtype == st.float32  # a number on the host


REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "argmax",
    "argmin",
    "std",
    "var",
    "any",
    "all",
    "norm",
    "logsumexp",
    "cumsum",
]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    x = st.rand(4, 5) + 0.5
    how = {"dim": 1} if name in ("logsumexp", "cumsum") else {}
    x = x > 1 if name in ("any", "all") else x
    assert np.allclose(host(getattr(x.cuda(), name)(**how)), getattr(x, name)(**how).numpy(), rtol=1e-4)
    found, wanted = getattr(x.cuda(), name)(dim=1), getattr(x, name)(dim=1)
    if isinstance(wanted, tuple):
        assert all(np.allclose(host(a), b.numpy()) for a, b in zip(found, wanted, strict=True))
    else:
        assert np.allclose(host(found), wanted.numpy(), rtol=1e-4)


OTHERS = [
    lambda x: x.reshape(5, 4), lambda x: x.t(), lambda x: x.view(-1), lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: x[1:3],
    lambda x: x.flip(0), lambda x: x.expand(2, 4, 5), lambda x: x.permute(1, 0), lambda x: x.narrow(1, 1, 2),
    lambda x: st.cat([x, x]), lambda x: st.stack([x, x], 1), lambda x: x.repeat(2, 1), lambda x: st.where(x > 1, x, -x),
    lambda x: x.chunk(2)[1], lambda x: x.split(2, 1)[0], lambda x: x.tril(), lambda x: x.roll(1, 0),
    lambda x: x @ x.t(),
    lambda x: x.clamp(0.7, 1.2), lambda x: x.sort(1)[0], lambda x: x.topk(2, 1)[0],
    lambda x: x.index_select(0, st.tensor([0, 2]).to(x.device)),
    lambda x: x.gather(1, st.zeros(4, 1, dtype=st.int64, device=x.device)), lambda x: st.outer(x[0], x[1]),
    lambda x: x.masked_fill(x > 1, 0), lambda x: x[x > 1], lambda x: x[st.tensor([2, 0]).to(x.device)],
    lambda x: x[[0, 1], [1, 2]],
    lambda x: st.einsum("ij,kj->ik", x, x), lambda x: x.softmax(1), lambda x: x.log_softmax(1), lambda x: x.diagonal(),
    lambda x: x.argsort(1, descending=True, stable=True), lambda x: x.median(1)[0], lambda x: x.kthvalue(2, 1)[0],
    lambda x: (9 * x).to(st.int32).cumsum(0), lambda x: x.amax((0, 1), keepdim=True), lambda x: x.nanmedian(0)[0],
    lambda x: x.cumprod(1), lambda x: x.quantile(0.3, 1), lambda x: (9 * x).int().unique(), lambda x: x.aminmax(),
    lambda x: x.unfold(1, 2, 1), lambda x: st.linspace(0, 1, 5, device=x.device) + x,
]  # fmt: skip


@pytest.mark.parametrize("function", OTHERS)
def test_others(function):
    x = st.rand(4, 5) + 0.5
    found, wanted = function(x.cuda()), function(x)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    assert all(np.allclose(host(a), b.numpy(), rtol=1e-5) for a, b in pairs)


IN_PLACE = [
    lambda x: x.uniform_(), lambda x: x.normal_(), lambda x: x.random_(5), lambda x: x.fill_diagonal_(7),
    lambda x: x.index_add_(0, st.tensor([0, 0]).to(x.device), st.ones(2, 5, device=x.device)),
    lambda x: x.scatter_(1, st.zeros(4, 1, dtype=st.int64, device=x.device), 3.0),
    lambda x: x.scatter_add_(1, st.zeros(4, 2, dtype=st.int64, device=x.device), st.ones(4, 2, device=x.device)),
    lambda x: x.index_put_((st.tensor([1, 1]).to(x.device),), st.ones(5, device=x.device), accumulate=True),
    lambda x: x.masked_fill_(x > 1, 0), lambda x: x.diagonal_scatter(st.zeros(4, device=x.device)),
    lambda x: x.bernoulli_(0.3), lambda x: x.bernoulli_(x / 2), lambda x: st.bernoulli(x / 2), st.nn.functional.dropout,
    lambda x: x.copy_(st.rand(4, 5, generator=st.random.Generator().manual_seed(1))), lambda x: x.clamp_(0.7, 1),
]  # fmt: skip


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place(function):
    x = st.rand(4, 5) + 0.5
    y = x.cuda()
    results = []
    for one in (x, y):
        st.random.manual_seed(3)  # the same values on all devices
        results.append(function(one).cpu().numpy())
    assert np.allclose(*results, rtol=1e-5)


def test_complex_random_numbers():
    x = st.zeros(3, 4, dtype=st.complex64, device="cuda").normal_()
    assert (x.abs() > 0).all().item()


def test_modules_are_made_on_a_device():
    for module in (st.nn.Linear(3, 4, device="cuda"), st.nn.Conv2d(1, 2, 3, device="cuda")):
        assert all(p.is_cuda and p.abs().max().item() > 0 for p in module.parameters())


def test_views_share_memory():
    x = st.zeros(4, 5, device="cuda")
    view = x.t()[1:3]
    view += 1
    assert x.sum().item() == 8 and view.storage() is x.storage()
    x.view(-1)[0] = 9
    assert x[0, 0].item() == 9
    x.share_memory_()
    x[3, 2] = -5
    assert view[1, 3].item() == -5 and view.is_shared()


def test_writing():
    x = st.zeros(3, 4, device="cuda")
    x[0] = 1
    x[1, 2] = st.tensor(5.0)
    x[2] = st.arange(4.0)  # from the host
    x[:, 0] = [7, 8, 9]
    x[x == 5] = -1
    assert x.tolist() == [[7, 1, 1, 1], [8, 0, -1, 0], [9, 1, 2, 3]]
    x.add_(1).mul_(2).fill_(3).zero_()
    assert not x.any()
    y = st.zeros(3, 4)
    y[1] = st.ones(4, device="cuda")
    assert y.sum().item() == 4
    out = st.empty(3, 4, device="cuda")
    assert st.add(x, 1, out=out) is out and out.sum().item() == 12


def test_what_numpy_warns_of():
    """NumPy has a context that is silent about it, CuPy has none, and needs none."""
    x = st.tensor([0.0, 0.5, 1.0], device="cuda")
    assert st.nn.functional.binary_cross_entropy(x, x).item() == pytest.approx(math.log(2) / 3)
    y = st.tensor([complex(0, 1)], device="cuda")
    for function in (st.array_api.expm1, st.array_api.tanh):
        assert function(y).cpu().tolist() == pytest.approx(function(y.cpu()).tolist())


def test_devices_do_not_mix():
    x = st.ones(3, device="cuda")
    for work in (
        lambda: x + st.ones(3),
        lambda: st.ones(3) * x,
        lambda: st.cat([x, st.ones(3)]),
        lambda: x @ st.ones(3),
    ):
        with pytest.raises(InvalidArgument, match=r"on cpu .* and on cuda:0; .*x\.to\('cuda:0'\)"):
            work()


def test_wrong_devices():
    with pytest.raises(InvalidArgument, match=r"device cuda:77 does not exist; this process sees cuda:0"):
        st.ones(1, device="cuda:77")
    with pytest.raises(InvalidArgument, match="'mps' is not available"):
        st.ones(1, device="mps")


def test_what_a_gpu_lacks_is_said():
    with pytest.raises(NotSupported, match=r"not available for tensors on a GPU in this version .*use x\.cpu\(\)"):
        st.linalg.lstsq(st.rand(3, 3).cuda(), st.rand(3, 1).cuda(), driver="gelsd")


def test_copies_and_pickles():
    x = st.arange(6.0, device="cuda").reshape(2, 3)
    for made in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone(), copy.copy(x.t()).t().clone()):
        assert made.is_cuda and made.tolist() == x.tolist()
        made += 1
        assert x[0, 0].item() == 0
    a, b = pickle.loads(pickle.dumps([x, x[0]]))
    a[0, 0] = 9
    assert b[0].item() == 9
    file = io.BytesIO()
    st.save({"x": x}, file)
    file.seek(0)
    assert st.load(file)["x"].tolist() == x.tolist()


def test_pinned_memory_is_of_the_host():
    for make in (st.empty, st.ones, st.rand):
        with pytest.raises(InvalidArgument, match="device and for pin_memory"):
            make(3, pin_memory=True, device="cuda")


def test_storages():
    x = st.arange(6.0, device="cuda")
    s = x.storage()
    assert s.is_cuda and s.device == "cuda:0" and s.size() == 6 and s[2] == 2.0 and s.tolist() == [0, 1, 2, 3, 4, 5]
    assert not s.is_shared() and s.nbytes == 24 and s.cpu().tolist() == s.tolist() and s.cuda() is s
    assert s.clone().fill_(3).tolist() == [3] * 6 and s.type() == "shmtensor.cuda.FloatStorage"
    s[1] = 50
    assert x[1].item() == 50
    assert s.share_memory_() is s and s.is_shared() and x.storage() is s and x[1].item() == 50
    assert st.FloatStorage([1, 2]).cuda().tolist() == [1, 2]
    with pytest.raises(DTypeError):
        np.asarray(s)


def test_dlpack():
    x = st.arange(4.0, device="cuda")
    assert x.__dlpack_device__() == (2, 0)
    y = st.from_dlpack(x._array)
    y += 1
    assert x.tolist() == [1, 2, 3, 4] and y.is_cuda


def test_a_receivers_stream_uses_the_memory():
    x = st.arange(4.0, device="cuda", shared=True)
    stream = st.cuda.Stream()
    capsule = x.__dlpack__(stream=stream.ptr)
    assert stream.ptr in [known.ptr for known in x._array.data.mem.streams]  # its release waits for it
    del capsule


@pytest.mark.parametrize("form", [int, lambda handle: SimpleNamespace(cuda_stream=handle)], ids=["number", "torch"])
def test_streams_of_other_libraries(form):
    x, stream = st.arange(4.0, device="cuda", shared=True), st.cuda.Stream()
    for _ in range(2):
        x.record_stream(form(stream.ptr))
        assert [known.ptr for known in x._array.data.mem.streams].count(stream.ptr) == 1


@pytest.mark.parametrize("stream", ["0", True, 1.5])
def test_what_is_no_stream(stream):
    x = st.arange(4.0, device="cuda", shared=True)
    for use in (x.record_stream, lambda wrong: st.cuda.stream(wrong).__enter__()):
        with pytest.raises(DTypeError, match=f"a {type(stream).__name__} is not a stream; give one of shmtensor.cuda"):
            use(stream)


def test_copies_to_tensors_that_are_not_contiguous():
    x = st.zeros(3, 4, device="cuda")
    x.t().copy_(st.arange(12.0).reshape(4, 3))
    assert x.tolist() == st.arange(12.0).reshape(4, 3).t().tolist()
    x[:0].copy_(st.empty(0, 4))
    assert st.empty(0, 4).cuda().shape == (0, 4)


def test_the_source_of_a_copy_that_is_not_waited_for_is_kept():
    source = st.arange(1000.0, pin_memory=True)
    assert source.to("cuda", non_blocking=True).tolist() == source.tolist()
    x = st.zeros(1000, device="cuda")
    assert x.copy_(source, non_blocking=True).tolist() == source.tolist()


def test_copies_between_devices():
    if st.cuda.device_count() < 2:
        pytest.skip("there is one device")
    x = st.arange(6.0, device="cuda:0").reshape(2, 3)
    y = x.to("cuda:1")
    assert y.device.index == 1 and y.tolist() == x.tolist()
    y += 1
    assert x[0, 0].item() == 0


def test_what_an_element_of_a_storage_can_be():
    s = st.zeros(4, device="cuda").storage()
    s[1:3] = np.array([5, 6])
    assert s.tolist() == [0, 5, 6, 0]
    for wrong in ("text", object()):
        with pytest.raises(DTypeError):
            s[1:3] = wrong
    assert s.tolist() == [0, 5, 6, 0]


def test_views_beyond_the_memory_of_a_tensor():
    x = st.arange(6.0, device="cuda")
    assert x.as_strided((2, 2), (2, 1), 1).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="strid"):
        x.as_strided((2, 4), (3, 1), 0)


def test_names_of_torch():
    assert st.cuda.is_available() and st.cuda.status() == "" and st.cuda.device_count() >= 1
    assert st.cuda.current_device() == 0 and st.cuda.get_device_name() and st.cuda.is_initialized()
    facts = st.cuda.get_device_properties("cuda:0")
    assert facts.total_memory > 0 and len(facts.uuid) == 32
    free, total = st.cuda.mem_get_info()
    assert 0 < free <= total
    with st.cuda.device(0), st.cuda.stream(st.cuda.Stream()):
        x = st.ones(3, device="cuda") + 1
        st.cuda.current_stream().synchronize()
    st.cuda.synchronize()
    assert x.tolist() == [2] * 3 and st.cuda.memory_allocated() >= 0 and st.cuda.default_stream() is not None
    st.cuda.empty_cache()
