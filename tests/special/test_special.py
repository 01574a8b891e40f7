"""Special functions against SciPy's, and polynomials against its polynomials."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from layouts import LAYOUTS, memory_of_its_own, same, tensor_of, written

import shmtensor as st
from shmtensor import special
from shmtensor.errors import DTypeError, InvalidArgument, LayoutError

scipy = pytest.importorskip("scipy.special")
INF, NAN = float("inf"), float("nan")
ONE = {
    "airy_ai": lambda x: scipy.airy(x)[0], "bessel_j0": scipy.j0, "bessel_j1": scipy.j1, "bessel_y0": scipy.y0,
    "bessel_y1": scipy.y1, "entr": scipy.entr, "erfcx": scipy.erfcx, "i0e": scipy.i0e, "i1": scipy.i1,
    "i1e": scipy.i1e, "log_ndtr": scipy.log_ndtr, "logit": scipy.logit, "modified_bessel_i0": scipy.i0,
    "modified_bessel_i1": scipy.i1, "modified_bessel_k0": scipy.k0, "modified_bessel_k1": scipy.k1, "ndtr": scipy.ndtr,
    "scaled_modified_bessel_k0": scipy.k0e, "scaled_modified_bessel_k1": scipy.k1e, "sinc": np.sinc,
    "spherical_bessel_j0": lambda x: scipy.spherical_jn(0, x),
}  # fmt: skip
TWO = {
    "gammainc": scipy.gammainc, "gammaincc": scipy.gammaincc, "xlog1py": scipy.xlog1py, "xlogy": scipy.xlogy,
    "zeta": scipy.zeta,
}  # fmt: skip
SAME = {
    "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gammainc": "igamma", "gammaincc": "igammac", "gammaln": "lgamma", "i0": "i0", "log1p": "log1p",
    "log_softmax": "log_softmax", "logit": "logit", "logsumexp": "logsumexp", "multigammaln": "mvlgamma",
    "ndtri": "ndtri", "polygamma": "polygamma", "psi": "digamma", "round": "round", "sinc": "sinc",
    "softmax": "softmax", "xlogy": "xlogy",
}  # fmt: skip
POLYNOMIALS = {
    "chebyshev_polynomial_t": scipy.eval_chebyt, "chebyshev_polynomial_u": scipy.eval_chebyu,
    "chebyshev_polynomial_v": lambda n, x: scipy.eval_chebyu(n, x) - before(n, x),
    "chebyshev_polynomial_w": lambda n, x: scipy.eval_chebyu(n, x) + before(n, x),
    "hermite_polynomial_h": scipy.eval_hermite, "hermite_polynomial_he": scipy.eval_hermitenorm,
    "laguerre_polynomial_l": scipy.eval_laguerre, "legendre_polynomial_p": scipy.eval_legendre,
}  # fmt: skip


def before(n, x):
    return (n > 0) * scipy.eval_chebyu(np.maximum(n, 1) - 1.0, x)


def test_every_function_has_a_case():
    shifted = {f"shifted_{name}" for name in POLYNOMIALS if name.startswith("chebyshev")}
    assert {*ONE, *TWO, *SAME, *POLYNOMIALS, *shifted} == set(special.__all__)


@pytest.mark.parametrize("name", SAME)
def test_one_function_under_two_names(name):
    assert getattr(special, name) is getattr(st, SAME[name])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ONE)
def test_of_one(name, layout):
    function = getattr(special, name)
    for dtype in ("float32", "float64", "int32", "bool", "float16"):
        t = tensor_of(layout, dtype, 0.1, 0.9)
        kind = "float32" if dtype in ("int32", "bool") else dtype
        a = t.numpy().astype("float64")
        with np.errstate(all="ignore"):
            expected = ONE[name](a).astype(kind)
        near = {"float64": 1e-9, "float32": 1e-5, "float16": 4e-3}[kind]
        same(function(t), expected, near)
        memory_of_its_own(function(t), t)
        out = st.empty(t.shape, dtype=kind)
        assert function(t, out=out) is out
        same(out, expected, near)
    with pytest.raises(DTypeError):
        function(st.tensor([1j]), out=st.zeros(1))
    if name not in ("logit", "sinc"):
        assert not hasattr(st, name) and not hasattr(st.Tensor, name)


@pytest.mark.parametrize("layout", ["0-d", "empty", "dense", "gaps", "backwards", "expanded"])
@pytest.mark.parametrize("name", TWO)
def test_of_two(name, layout):
    function = getattr(special, name)
    for dtype in ("float32", "float64", "int64"):
        kind = "float32" if dtype == "int64" else dtype
        t = tensor_of(layout, dtype, 1, 4)
        other = st.tensor(np.full(t.shape[-1:], 2, dtype))
        a, b = t.numpy().astype("float64"), other.numpy().astype("float64")
        near = 1e-9 if kind == "float64" else 1e-5
        same(function(t, other), TWO[name](a, b).astype(kind), near)
        same(function(t, 2), TWO[name](a, 2).astype(kind), near)
        same(function(3, other), TWO[name](3, b).astype(kind), near)
        out = st.empty(t.shape, dtype=kind)
        assert function(t, other, out=out) is out
    with pytest.raises(DTypeError):
        function(st.tensor([1j]), 2)
    with pytest.raises(InvalidArgument):
        function(st.ones(2), st.ones(3))


def test_products_with_logarithms_at_the_edges():
    x, y = st.tensor([0.0, 0.0, 0.0, 1.0, NAN]), st.tensor([0.0, INF, NAN, 0.0, 1.0])
    np.testing.assert_array_equal(st.xlogy(x, y).numpy(), np.array([0, 0, NAN, -INF, NAN], "float32"))
    np.testing.assert_array_equal(special.xlog1py(x, y - 1).numpy(), np.array([0, 0, NAN, -INF, NAN], "float32"))
    np.testing.assert_array_equal(
        special.entr(st.tensor([0.0, -1.0, NAN, INF])).numpy(), np.array([0, -INF, NAN, -INF], "float32")
    )
    assert special.spherical_bessel_j0(st.tensor([0.0, INF])).tolist() == [1, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_polygamma(dtype):
    t = tensor_of("gaps", dtype, 1, 4)
    kind = "float32" if dtype == "int32" else dtype
    a = t.numpy().astype("float64")
    for n in range(4):
        same(st.polygamma(n, t), scipy.polygamma(n, a).astype(kind), 1e-5)
        same(t.polygamma(n), scipy.polygamma(n, a).astype(kind), 1e-5)
    if dtype != "int32":
        assert t.polygamma_(1) is t
        same(t, scipy.polygamma(1, a).astype(kind), 1e-5)
    with pytest.raises(InvalidArgument, match="order"):
        st.polygamma(-1, t)


def test_mvlgamma_and_logit():
    t = tensor_of("dense", "float64", 3, 6)
    for p in (1, 2, 5):
        same(st.mvlgamma(t, p), scipy.multigammaln(t.numpy(), p))
    with pytest.raises(InvalidArgument, match="dimension"):
        st.mvlgamma(t, 0)
    x = st.tensor([0.0, 0.5, 1.0, NAN], dtype="float64")
    expected = scipy.logit(np.array([0.1, 0.5, 0.9, NAN]))
    same(x.logit(eps=0.1), expected)
    same(x.logit(eps=st.tensor(0.1, dtype="float64")), expected)
    same(st.tensor([-0.5, 0.5, 1.5], dtype="float64").logit(-1.0), np.array([NAN, 0, NAN]))  # as without eps
    for eps in (st.tensor([0.1, 0.2, 0.1, 0.2]), 1j, "0.1"):
        with pytest.raises(InvalidArgument, match=r"logit with eps .*; give a (real )?number"):
            x.logit(eps)
    assert x.logit_(0.1) is x
    same(x, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_place(layout):
    for name in ("sinc", "i0", "digamma"):
        t = tensor_of(layout, "float64", 0.1, 0.9)
        expected = getattr(st, name)(t).numpy()
        if written(t):
            assert getattr(t, f"{name}_")() is t
            same(t, expected)
        else:
            with pytest.raises(LayoutError):
                getattr(t, f"{name}_")()
    with pytest.raises(DTypeError):
        st.tensor([1]).sinc_()


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    n = np.arange(-2, 13)
    x = np.array([-2, -1, -0.9, -0.3, 0, 0.2, 0.99, 1, 1.7])[:, None]
    with np.errstate(all="ignore"):
        expected = np.where(n < 0, 0, POLYNOMIALS[name](np.maximum(n, 0), x))
    for kind, near in (("float64", 1e-9), ("float32", 1e-5)):
        function = getattr(special, name)
        ours = function(st.tensor(x.astype(kind)), st.tensor(n))
        assert ours.dtype == kind
        rounded = np.where(n < 0, 0, POLYNOMIALS[name](np.maximum(n, 0), x.astype(kind).astype("float64")))
        np.testing.assert_allclose(ours.numpy(), rounded, near, near)
        np.testing.assert_allclose(function(st.tensor(x), 5).numpy(), expected[:, n == 5], 1e-9, 1e-9)
        np.testing.assert_allclose(function(0.2, st.tensor(n.astype("float64"))).numpy(), expected[5], 1e-9, 1e-9)
        if name.startswith("chebyshev"):
            shifted = getattr(special, f"shifted_{name}")
            np.testing.assert_allclose(shifted(st.tensor((x + 1) / 2), st.tensor(n)).numpy(), expected, 1e-9, 1e-8)
    assert getattr(special, name)(st.tensor([2, 3]), 2).dtype == st.float32
    assert getattr(special, name)(st.zeros(0), 2).shape == (0,)


def test_scipy_is_imported_on_first_use_alone():
    code = "import sys, shmtensor as st; st.special.entr(st.ones(2)); assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", "tuvw")
def test_chebyshev_polynomials_of_any_degree_end(kind):
    polynomial = getattr(st.special, f"chebyshev_polynomial_{kind}")
    x = np.array([1.0001, -1.0001, 1.0, -1.0, 0.3])
    for n in (1001, 1002):  # by hyperbolic functions; those of lower degrees by the recurrence
        before, last, found = (np.asarray(polynomial(st.tensor(x), k)) for k in (n - 2, n - 1, n))
        np.testing.assert_allclose(found, 2 * x * last - before, rtol=1e-8)
    ends = {"t": (1, 1), "u": (10**12 + 1, 10**12 + 1), "v": (1, 2 * 10**12 + 1), "w": (2 * 10**12 + 1, 1)}[kind]
    x = np.array([1.0, -1.0, 1.5, -1 - 2**-52, np.nan])
    for n, signs in ((10**12, (1, 1)), (10**12 + 1, (1, -1))):
        found = np.asarray(polynomial(st.tensor(x), st.tensor(n)))
        np.testing.assert_allclose(found[:2], np.array(ends) * signs, rtol=1e-11)
        assert np.isnan(found[2:]).all()


@pytest.mark.filterwarnings("error")
def test_other_polynomials_of_large_degrees_end():
    for name in ("hermite_polynomial_h", "hermite_polynomial_he"):
        assert np.isnan(getattr(st.special, name)(st.tensor([0.0, 0.5, np.nan]), 1e12)).all()
        assert getattr(st.special, name)(st.tensor([0.0, 0.5]), st.tensor([10**12, 1])).tolist()[1] >= 0.5
    for name in ("laguerre_polynomial_l", "legendre_polynomial_p"):
        for n in (100_001, 1e12, float("inf")):
            with pytest.raises(InvalidArgument, match=r"a polynomial of degree .* give a degree up to 100000"):
                getattr(st.special, name)(st.tensor([0.5]), n)
