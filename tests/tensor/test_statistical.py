"""Reductions, against NumPy in torch's types, and torch; each layout, `dim`, `keepdim`, `out=`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layouts import LAYOUTS, close, memory_of_its_own, same, tensor_of
from tiers import first
from torch_types import rank, real

import shmtensor as st
from shmtensor import Tensor
from shmtensor._tensor import statistical
from shmtensor.errors import DTypeError, InvalidArgument

TYPES = ("int8", "uint8", "int64", "float16", "float32", "float64", "complex64", "bool")


def variance(a, axis=None, keepdims=False):
    """Of a sample, computed in double precision; NaN of one element."""
    wide = a.astype("complex128" if a.dtype.kind == "c" else "float64")
    squares = np.abs(wide - wide.mean(axis=axis, keepdims=True)) ** 2
    total = squares.sum(axis=axis, keepdims=keepdims)
    with np.errstate(invalid="ignore"):
        return total / np.float64(a.size / total.size - 1)


def truth(function):
    """Truth values, but bytes of bytes, as in torch."""
    return lambda a, **how: np.asarray(function(a, **how)).astype("uint8" if a.dtype == np.uint8 else bool)


REDUCED = {
    "all": np.all, "amax": np.max, "amin": np.min, "any": np.any, "mean": np.mean, "nanmean": np.nanmean,
    "nansum": np.nansum, "prod": np.prod, "std": lambda *a, **how: np.sqrt(variance(*a, **how)), "sum": np.sum,
    "var": variance, "argmax": np.argmax, "argmin": np.argmin, "count_nonzero": np.count_nonzero,
}  # fmt: skip
INEXACT = ("mean", "nanmean", "std", "var")
"""What torch does not compute of integers."""


OTHERS = {
    "aminmax", "bhistc", "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "dist",
    "hash_tensor", "histc", "logcumsumexp", "logsumexp", "match", "max", "median", "min", "mode", "quantile", "renorm",
}  # fmt: skip


def test_every_function_has_a_case():
    assert {*REDUCED, *OTHERS} == set(statistical.__all__)


def result_type(name: str, dtype: str) -> str:
    """The type that torch gives."""
    if name.startswith("arg") or name == "count_nonzero":
        return "int64"
    if name in ("all", "any"):
        return "uint8" if dtype == "uint8" else "bool"
    if name in ("nansum", "prod", "sum"):
        return dtype if rank(dtype) > 1 else "int64"
    return real(dtype) if name in ("std", "var") else dtype


def expected(name: str, a: Any, dim: Any, keepdim: bool) -> Any:
    """What NumPy gives, in torch's type: a tensor without axes has an axis 0, and no axes in `dim` are all."""
    rows = a if a.ndim else a.reshape(1)
    result = np.asarray(REDUCED[name](rows, axis=None if dim == () else dim, keepdims=keepdim))
    return (result if a.ndim else result.reshape(())).astype(result_type(name, a.dtype.name))


@pytest.mark.parametrize("layout", first([name for name in LAYOUTS if name != "empty"], 4))
@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name, layout):
    function = getattr(st, name)
    for dtype in TYPES:
        t = tensor_of(layout, dtype)
        a = t.numpy()
        if name in INEXACT and rank(dtype) < 2:
            with pytest.raises(DTypeError, match=f"{name}.*{dtype}"):
                function(t)
            continue
        near = 1e-2 if dtype == "float16" else 1e-6
        dims: list[Any] = [None, *(range(-a.ndim, a.ndim) if a.ndim else (0, -1))]
        if not name.startswith("arg"):
            dims += [tuple(range(a.ndim)), ()]
        for dim in dims:
            for keep in (False, True):
                expect = expected(name, a, dim, keep)
                ours = function(t, axis=dim, keepdims=keep)
                same(ours, expect, near)
                memory_of_its_own(ours, t)
                placed = (dim, True, keep) if name in ("std", "var") else (dim, keep)
                same(getattr(t, name)(*placed), expect, near)
                same(getattr(t, name)(dim=dim, keepdim=keep), ours.numpy())
            if name in ("count_nonzero", "argmax", "argmin"):
                continue
            plain = function(t, axis=dim)
            out = st.empty(plain.shape, dtype=plain.dtype, shared=True)
            assert function(t, axis=dim, out=out) is out
            same(out, plain.numpy())


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_types_are_added_in_float32(name):
    pytest.importorskip("ml_dtypes")
    t = st.ones(100, dtype=name)
    for many in (t.mean(), t.nansum() / 100, t.cumsum(0)[-1] / 100, t.sum() / 100):
        assert float(many) == pytest.approx(1, abs=0.13)
    assert t.var().item() == 0
    assert t.sum().dtype == t.dtype == t.cumsum(0).dtype
    assert st.ones(1000, dtype=st.bfloat16).sum().item() == 1000
    assert t.sum(dtype="float64").item() == 100


HALVES: dict[str, Any] = {
    "norm": lambda m, t: m.norm(t(300.0, 3)),
    "linalg.norm": lambda m, t: m.linalg.norm(t(300.0, 3, 2), dim=0),
    "vector_norm": lambda m, t: m.linalg.vector_norm(t(200.0, 30), 3),
    "matrix_norm": lambda m, t: m.linalg.matrix_norm(t(200.0, 3, 3)),
    "dist": lambda m, t: m.dist(t(200.0, 3), t(0.0, 3)),
    "renorm": lambda m, t: m.renorm(t(200.0, 3, 3), 2, 0, 100),
    "normalize": lambda m, t: m.nn.functional.normalize(t(300.0, 2, 3)),
    "cosine_similarity": lambda m, t: m.nn.functional.cosine_similarity(t(200.0, 2, 3), t(200.0, 2, 3)),
    "pairwise_distance": lambda m, t: m.nn.functional.pairwise_distance(t(200.0, 2, 3), t(0.0, 2, 3)),
    "rms_norm": lambda m, t: m.nn.functional.rms_norm(t(300.0, 2, 3), (3,)),
    "sum": lambda m, t: t(1.0, 40000, 2).sum(0),
    "nansum": lambda m, t: t(1.0, 40000, 2).nansum(0),
    "mean": lambda m, t: t(1.0, 40000, 2).mean(0),
    "nanmean": lambda m, t: t(1.0, 40000, 2).nanmean(0),
    "prod": lambda m, t: t(1.01, 50, 2).prod(0),
    "var": lambda m, t: (t(1.0, 600).cumsum(0) * 4).var(),
    "cumsum": lambda m, t: t(1.0, 40000).cumsum(0)[-1],
    "cumprod": lambda m, t: t(1.01, 300).cumprod(0)[-1],
    "logsumexp": lambda m, t: t(1.0, 30000, 2).logsumexp(0),
    "logcumsumexp": lambda m, t: t(1.0, 3000).logcumsumexp(0)[-1],
    "trace": lambda m, t: m.trace(t(1.0, 3000, 3000)),
    "matmul": lambda m, t: t(1.0, 2, 40000) @ t(1.0, 40000, 2),
}


@pytest.mark.torch
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", HALVES)
def test_float16_is_computed_in_float32(name):
    torch = pytest.importorskip("torch")
    made = HALVES[name](st, lambda value, *shape: st.full(shape, value).half())
    wanted = HALVES[name](torch, lambda value, *shape: torch.full(shape, value).half())
    assert made.dtype == st.float16
    np.testing.assert_allclose(made.float().numpy(), wanted.float().numpy(), rtol=3e-3)


def test_axes_by_place_and_by_either_name():
    t = st.tensor(np.arange(6.0).reshape(2, 3))
    for found in (st.sum(t, 0), st.sum(t, axis=0), st.sum(t, dim=0), t.sum(0), t.sum(axis=0), t.sum(dim=0)):
        assert found.tolist() == [3, 5, 7]
    for pair in (t.max(1, True), st.max(t, dim=1, keepdim=True), t.max(axis=1, keepdims=True)):
        assert pair.values.shape == pair.indices.shape == (2, 1)
    assert t.argmax(1).tolist() == st.argmax(t, dim=1).tolist() == [2, 2]


def test_options_of_reductions():
    t = tensor_of("dense", "float32")
    a = t.numpy()
    same(t.sum(dtype="float64"), a.sum(dtype="float64"))
    same(st.prod(t, axis=0, dtype=st.float64), a.prod(0, dtype="float64"))
    for how, ddof in (({}, 1), ({"correction": 0}, 0), ({"unbiased": False}, 0), ({"correction": 1.5}, 1.5)):
        same(t.std(1, **how), a.std(1, ddof=ddof), 1e-6)
        same(st.var(t, **how), a.var(ddof=ddof), 1e-6)
    same(t.var(False), a.var(), 1e-6)
    with pytest.raises(InvalidArgument, match="unbiased"):
        t.var(unbiased=True, correction=1)
    same(st.mean(st.tensor([1, 2]), dtype="float64"), np.float64(1.5))
    assert st.sum(st.ones(300, dtype="uint8")).item() == 300
    assert st.empty(0).sum().item() == 0
    t = st.tensor([1.0, float("nan")])
    assert (t.nansum().item(), t.nanmean().item()) == (1, 1)
    base = st.arange(6.0)
    st.sum(base.view(2, 3), axis=0, out=base[1:4])  # out lies in the argument
    assert base.tolist() == [0, 3, 5, 7, 4, 5]


def test_logsumexp():
    for dtype in ("uint8", "int8", "float32", "float64"):
        t = st.tensor([[1, 2, 120], [4, 5, 6]], dtype=dtype)
        a = t.numpy().astype("float64")
        for dim in (None, 0, 1, (0, 1)):
            close(t.logsumexp(dim).numpy(), np.logaddexp.reduce(a, axis=dim), 1e-6)
            assert t.logsumexp(dim, True).shape == a.sum(dim, keepdims=True).shape
    assert st.tensor([1e30, 1e30]).logsumexp().item() == pytest.approx(1e30)
    assert st.tensor([1 + 9j, 2]).logsumexp(0).item() == pytest.approx(np.log(np.exp(1 + 9j) + np.exp(2)))
    assert st.tensor([-np.inf, -np.inf]).logsumexp().item() == -np.inf
    assert st.tensor([1.0, np.inf]).logsumexp().item() == np.inf
    a = np.random.default_rng(0).normal(size=(3, 4))
    same(st.tensor(a).logcumsumexp(1), np.log(np.cumsum(np.exp(a), 1)), 1e-12)
    assert st.ones(2, dtype="int8").logcumsumexp(0).dtype == st.float32


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "float32", "complex64"])
def test_accumulations(dtype):
    for layout in ("dense", "gaps", "backwards", "shared view", "empty"):
        t = tensor_of(layout, dtype)
        a = t.numpy().copy()
        whole = dtype if rank(dtype) > 1 else "int64"
        for dim in (0, 1, -1):
            same(t.cumsum(dim), np.cumsum(a, dim, whole), 1e-5)
            same(t.cumprod(dim), np.cumprod(a, dim, whole), 1e-5)
            expect = np.cumsum(a, dim)  # NumPy's type, which is the array API's
            begun = st.cumulative_sum(t, axis=dim, include_initial=True)
            same(begun.narrow(dim, 1, a.shape[dim]), expect, 1e-5)
            assert not begun.narrow(dim, 0, 1).any()
            out = st.empty(begun.shape, dtype=begun.dtype)
            assert st.cumulative_sum(t, axis=dim, include_initial=True, out=out) is out
            same(out, begun.numpy())
    same(st.ones(3).cumsum(0, dtype="float64"), np.array([1.0, 2, 3]))
    assert st.cumulative_prod(st.arange(1, 4), include_initial=True).tolist() == [1, 1, 2, 6]
    t = st.arange(1, 7)
    st.cumsum(t[:5], 0, out=t[1:])
    assert t.tolist() == [1, 1, 3, 6, 10, 15]


def test_diff():
    t = tensor_of("gaps", "float64")
    a = t.numpy()
    for n in range(4):
        same(st.diff(t, n=n), np.diff(a, n))
        memory_of_its_own(st.diff(t, n=n), t)
    same(st.diff(t, axis=0, prepend=t[:1], append=t[:1]), np.diff(a, axis=0, prepend=a[:1], append=a[:1]))


def test_quantile():
    t = tensor_of("backwards", "float64")
    a = t.numpy()
    for q in (0, 0.3, 1, [0.25, 0.75]):
        for dim in (None, 0, (0, 1)):
            same(t.quantile(q, dim), np.quantile(a, q, dim))
    same(t.quantile(st.tensor(0.5), 1, True), np.median(a, 1, keepdims=True))
    same(t.quantile(0.4, interpolation="nearest"), np.quantile(a, 0.4, method="nearest"))
    out = st.empty(2, dtype="float32")
    assert st.quantile(st.tensor([1.0, 2, 4]), [0, 0.75], out=out) is out and out.tolist() == [1, 3]
    same(st.tensor([1.0, 2]).quantile([0, 0.5]), np.array([1, 1.5], "float32"))
    with pytest.raises(DTypeError, match="int64"):
        st.tensor([1, 2]).quantile(0.5)


def test_mode():
    t = st.tensor([[3, 1, 3, 1, 2], [5, 4, 4, 5, 5]])
    values, indices = t.mode(1)
    assert (values.tolist(), indices.tolist()) == ([1, 5], [3, 4])
    assert t.mode(1, True).values.shape == (2, 1)
    assert t.t().mode(0).values.tolist() == [1, 5]
    assert t.mode(0).values.tolist() == [3, 1, 3, 1, 2]


def test_dist_and_match():
    for dtype in ("uint8", "int8", "float64"):
        a, b = st.tensor([[1, 2], [3, 250 if dtype == "uint8" else 4]], dtype=dtype), st.tensor([[4, 4]], dtype=dtype)
        apart = a.numpy().astype(float) - b.numpy().astype(float)
        for p in (0, 1, 2, 3, float("inf"), float("-inf")):
            assert a.dist(b, p).item() == pytest.approx(np.linalg.norm(apart.ravel(), p))
        np.testing.assert_allclose(st.match(a, b, 2).numpy(), 2 * (apart**2).sum(1, keepdims=True))
    assert st.match(st.empty(0, 3), st.ones(2, 3)).shape == (0, 2)
    assert st.ones(2, dtype="bool").dist(st.zeros(2, dtype="bool")).item() == pytest.approx(2**0.5)


def test_histograms():
    t = st.tensor([1.0, 2, 2, 3, 9])
    assert t.histc(4, 1, 5).tolist() == [1, 2, 1, 0]
    assert t.histc(4).tolist() == [3, 1, 0, 1]
    assert st.full((5,), 3.0).histc(2).sum().item() == 5
    assert st.empty(0).histc(3).tolist() == [0, 0, 0]
    assert st.ones(3, dtype="bool").histc(2, 0, 1).tolist() == [0, 3]
    assert st.arange(4, dtype="uint8").histc(2).tolist() == [2, 2]
    rows = st.tensor([[1.0, 2], [3, 5]]).bhistc(2)
    assert rows.tolist() == [[2, 0], [0 + 0, 2]] or rows.tolist() == [[2, 0], [0, 2]]
    assert st.empty(0, 3).bhistc(4).shape == (0, 4)
    assert (rows.dtype, st.ones(1, 2, dtype="int8").bhistc(2).dtype) == (st.float32, st.float32)


def test_renorm():
    t = tensor_of("dense", "float64")
    for p in (1, 2, 3.5, float("inf")):
        for dim in (0, 1):
            done = t.renorm(p, dim, 1).numpy()
            norms = np.linalg.norm(done, p, axis=1 - dim)
            before = np.linalg.norm(t.numpy(), p, axis=1 - dim)
            np.testing.assert_allclose(norms, np.minimum(before, 1), rtol=1e-6)
    assert st.tensor([3.0, 0.5]).renorm(2, 0, 1).tolist() == pytest.approx([1, 0.5])


@pytest.mark.torch
@pytest.mark.parametrize("name", REDUCED)
def test_types_are_torchs(name):
    """What `test_reductions` expects is what torch gives, wherever torch computes at all."""
    torch: Any = pytest.importorskip("torch")
    for dtype in TYPES:
        x = torch.ones(2, dtype=getattr(torch, dtype))
        try:
            theirs = getattr(torch, name)(x).dtype
        except (RuntimeError, NotImplementedError):
            assert dtype in ("bool", "complex64") or (rank(dtype) < 2 and name in INEXACT)
        else:
            assert not (name in INEXACT and rank(dtype) < 2)
            assert str(theirs) == f"torch.{result_type(name, dtype)}"


@pytest.mark.torch
def test_as_torch():
    torch: Any = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    a = rng.integers(0, 5, (6, 7)).astype(np.float32)
    a[2, 3] = np.nan
    ours, theirs = st.tensor(a), torch.from_numpy(a)
    for name, arguments in (("cummax", (0,)), ("cummax", (1,)), ("cummin", (1,)), ("aminmax", ())):
        for one, other in zip(getattr(ours, name)(*arguments), getattr(theirs, name)(*arguments), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    a = rng.normal(size=(6, 7)).astype(np.float32)
    ours, theirs = st.tensor(a), torch.from_numpy(a)
    for name, arguments in (
        ("cumsum", (1,)), ("cumprod", (0,)), ("logcumsumexp", (1,)), ("logsumexp", (0, True)), ("renorm", (2, 0, 1.0)),
        ("renorm", (1, 1, 0.5)), ("histc", (5, -1, 1)), ("histc", (5,)), ("amax", (1,)), ("amin", (0, True)),
        ("sum", (0, True)), ("mean", ((0, 1),)), ("count_nonzero", ()), ("argmax", (1, True)), ("quantile", (0.3, 1)),
        ("diff", ()), ("all", ()), ("any", (0,)),
    ):  # fmt: skip
        np.testing.assert_allclose(
            getattr(ours, name)(*arguments).numpy(), getattr(theirs, name)(*arguments).numpy(), rtol=1e-4, atol=1e-6
        )
    for p in (0, 1, 2, float("inf")):
        assert ours.dist(ours.t().contiguous().t() * 2, p).item() == pytest.approx(theirs.dist(theirs * 2, p).item())
    np.testing.assert_array_equal(ours.mode(1).values.numpy(), theirs.mode(1).values.numpy())


def test_methods_are_functions():
    t = tensor_of("dense", "float32")
    assert isinstance(t.max(), Tensor)
    with pytest.raises(TypeError):
        t.sum(nonsense=1)
    with pytest.raises(InvalidArgument):
        t.cumsum()
