"""Gradients of reductions, cumulative sums, distances and transforms, beside differences, and in edge cases."""

import math

import numpy as np
import pytest

import shmtensor as st
from shmtensor.autograd import grad, gradcheck, gradgradcheck

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 4))
Z = X + 1j * RNG.standard_normal((3, 4))
ANY = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean((0, 1), keepdim=True),
    "prod": lambda x: x.prod(1),
    "var": lambda x: x.var(1, correction=0),
    "std": lambda x: x.std(),
    "var_mean": lambda x: st.var_mean(x, 0),
    "std_mean": lambda x: st.std_mean(x, 1, keepdim=True),
    "logsumexp": lambda x: x.logsumexp((0, 1)),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cumulative_sum": lambda x: x.cumulative_sum(axis=1, include_initial=True),
    "cumulative_prod": lambda x: x.cumulative_prod(axis=0, include_initial=True),
    "diff": lambda x: x.diff(2, 1),
    "diff between": lambda x: x[:, 1:].diff(1, 0, prepend=x[:1, 1:] * 2, append=x[1:, :3]),
    "renorm": lambda x: x.renorm(3, 0, 0.5),
    "dist": lambda x: x[0].dist(x[1], 3),
    "cov": lambda x: x.cov(correction=0),
    "cov with weights": lambda x: st.cov(x[1:], fweights=st.tensor([1, 2, 1, 3]), aweights=x[0].abs() + 1),
    "corrcoef": lambda x: x[:2].corrcoef(),
    "fft": lambda x: st.fft.fft(x, 6, 0),
    "ifft": lambda x: st.fft.ifft(x, 2, norm="ortho"),
    "irfft": lambda x: st.fft.irfft(x, 7),
    "hfft": lambda x: st.fft.hfft(x, 4, norm="forward"),
    "fft2": lambda x: st.fft.fft2(x, (2, 5)),
    "irfftn": lambda x: st.fft.irfftn(x, (4, -1)),
    "hfftn": lambda x: st.fft.hfftn(x),
    "fftshift": lambda x: st.fft.fftshift(x, 1),
    "stft": lambda x: st.stft(x.reshape(-1), 6, 2, 4, x[0], return_complex=True),
    "stft with zeros": lambda x: st.stft(x.reshape(2, 6), 4, pad_mode="constant", return_complex=True),
    "istft": lambda x: st.istft(x * (1 + 2j), 3, 1, onesided=False, window=x.real[1, :3].square() + 1),
}
REAL = {
    "nansum": lambda x: x.masked_fill(x < -0.5, math.nan).nansum(0),
    "nanmean": lambda x: st.nanmean(x.masked_fill(x < -0.5, math.nan), 1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(),
    "max": lambda x: x.max(0).values,
    "min": lambda x: x.min(1, keepdim=True).values,
    "median": lambda x: x.median(),
    "median along": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(0).values,
    "mode": lambda x: x.mode(1).values,
    "cummax": lambda x: x.cummax(1).values,
    "cummin": lambda x: x.cummin(0).values,
    "aminmax": lambda x: x.aminmax(dim=1),
    "rfft": lambda x: st.fft.rfft(x, 6, 0),
    "ihfft": lambda x: st.fft.ihfft(x, 3),
    "rfft2": lambda x: st.fft.rfft2(x, norm="ortho"),
    "ihfftn": lambda x: st.fft.ihfftn(x, (2, 3)),
    "match": lambda x: st.match(x, x[:2] * 2, 1.5),
    **{f"cdist {p}": lambda x, p=p: st.cdist(x, x[:2] + 1, p) for p in (0.5, 1, 1.5, 2, 3, math.inf)},
    **{f"pdist {p}": lambda x, p=p: st.pdist(x, p) for p in (0.5, 1, 2, 3, math.inf)},
    **{
        f"quantile {how}": lambda x, how=how: x.quantile(x.new_tensor([0.3, 0.8]), 1, interpolation=how)
        for how in ("linear", "lower", "higher", "midpoint", "nearest")
    },
    "nanquantile": lambda x: x.masked_fill(x < -0.5, math.nan).nanquantile(0.4, 1),
}


def leaf(values):
    return st.tensor(values).requires_grad_()


@pytest.mark.parametrize("values", [X, Z], ids=["real", "complex"])
@pytest.mark.parametrize("name", ANY)
def test_gradients_beside_differences(name, values):
    assert gradcheck(ANY[name], (leaf(values),))
    assert gradgradcheck(ANY[name], (leaf(values),))


@pytest.mark.parametrize("name", REAL)
def test_gradients_of_real_numbers_beside_differences(name):
    assert gradcheck(REAL[name], (leaf(X),))
    assert gradgradcheck(REAL[name], (leaf(X),))


def test_parts_of_a_quantile_have_gradients():
    parts = leaf([0.3, 0.8])
    assert gradcheck(lambda q: st.tensor(X).quantile(q, 0), (parts.double().detach().requires_grad_(),))


def gradient(function, values):
    x = st.tensor(values, dtype=st.float64).requires_grad_()
    return grad(function(x).sum(), x)[0].tolist()


def test_equal_extremes_share_the_gradient_and_an_index_has_it_alone():
    values = [3.0, 1.0, 3.0]
    assert gradient(lambda x: x.amax(), values) == gradient(lambda x: x.max(), values) == [0.5, 0, 0.5]
    assert gradient(lambda x: x.max(0).values, values) == [1, 0, 0]
    assert gradient(lambda x: x.cummax(0).values, values) == [2, 0, 1]
    assert gradient(lambda x: x.median(), values) == [0.5, 0, 0.5]


@pytest.mark.parametrize(
    ("values", "wanted"), [([2.0, 0, 3], [0, 6, 0]), ([0.0, 0, 3], [0, 0, 0]), ([[2.0, 0], [5, 7]], [[0, 70], [0, 0]])]
)
def test_products_with_zeros(values, wanted):
    assert gradient(lambda x: x.prod(), values) == wanted


def test_products_with_zeros_have_second_gradients():
    for zeros in ([1], [0, 2]):
        x = X[0].copy()
        x[zeros] = 0
        assert gradgradcheck(lambda a: a.prod(), (leaf(x),))
        assert gradcheck(lambda a: a.cumprod(0), (leaf(x),)) and gradgradcheck(lambda a: a.cumprod(0), (leaf(x),))


def test_gradients_where_a_root_has_none_are_0():
    assert gradient(lambda x: x.std(), [2.0, 2]) == [0, 0]
    assert gradient(lambda x: x.dist(x.detach()), [2.0, 3]) == [0, 0]
    assert gradient(lambda x: st.cdist(x, x.detach()), [[2.0, 3]]) == [[0, 0]]
    assert gradient(lambda x: st.pdist(x), [[2.0, 3], [2, 3]]) == [[0, 0], [0, 0]]


def test_gradients_of_no_elements_and_of_tensors_without_axes():
    assert gradient(lambda x: x.sum(0), np.ones((0, 2))) == []
    assert gradient(lambda x: x.prod(1), np.ones((2, 0))) == [[], []]
    for function in ("sum", "mean", "prod", "cumsum", "cumprod", "logcumsumexp", "amax"):
        assert gradient(lambda x, name=function: getattr(x, name)(0), 2.0) == 1


def test_running_sums_of_exponentials_do_not_overflow():
    assert np.allclose(gradient(lambda x: x.logcumsumexp(0), [-900.0, 900, 0]), [1, 2, 0])
