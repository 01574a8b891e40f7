"""TH's and torch's names for LAPACK's routines: results against formulas, NumPy and torch; as methods too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_linalg import LEADS, SIDES, TYPES, adjoint, near, positive, random, regular, tensor

import shmtensor
from shmtensor import linalg
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument
from shmtensor.linalg import LinAlgError, routines

pytest.importorskip("scipy")


def test_each_is_a_function_and_a_method() -> None:
    assert all(getattr(shmtensor, name) is getattr(routines, name) for name in routines.__all__)
    assert all(getattr(shmtensor.Tensor, name) is getattr(routines, name) for name in routines.METHODS)
    x = tensor(positive(3, 3))
    near(x.inverse(), linalg.inv(x).numpy())
    near(x.det(), linalg.det(x).numpy())
    near(x.qr().Q, linalg.qr(x).Q.numpy())
    near(x.matrix_power(2), x.mm(x).numpy())


# -- systems of equations


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_gesv(n: int, dtype: str, lead: tuple[int, ...]) -> None:
    a, b = regular(*lead, n, n, dtype=dtype), random(*lead, n, 2, dtype=dtype)
    x, factors = shmtensor.gesv(tensor(b), tensor(a))
    near(a @ x.numpy(), b)
    near(factors, linalg.lu_factor(tensor(a)).LU.numpy())
    assert shmtensor.gesv(tensor(random(n, dtype=dtype)), tensor(a)).solution.shape == (*lead, n)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", [(5, 3), (3, 5), (4, 4)])
def test_gels(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    a, b = random(*lead, *sides, dtype=dtype), random(*lead, sides[0], 2, dtype=dtype)
    x, factors = shmtensor.gels(tensor(b), tensor(a))
    assert (x.shape, factors.shape) == ((*lead, max(sides), 2), (*lead, *sides))
    near(x[..., : sides[1], :].clone(), linalg.lstsq(tensor(a), tensor(b)).solution.numpy(), scale=20)
    if sides[0] >= sides[1]:
        near(np.triu(factors.numpy()), np.triu(shmtensor.geqrf(tensor(a)).a.numpy()))
    with pytest.raises(InvalidArgument, match="right side"):
        shmtensor.gels(tensor(random(7, dtype=dtype)), tensor(a))


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_trtrs(dtype: str, upper: bool, turned: bool, unit: bool) -> None:
    a = regular(2, 4, 4, dtype=dtype) / 12
    half = np.triu(a) if upper else np.tril(a)
    if unit:
        np.einsum("...ii->...i", half)[...] = 1
    b = random(2, 4, 3, dtype=dtype)
    x, copied = shmtensor.triangular_solve(tensor(b), tensor(a), upper, turned, unit)
    near((half.swapaxes(-1, -2) if turned else half) @ x.numpy(), b, scale=5)
    assert np.array_equal(copied.numpy(), a)
    assert shmtensor.trtrs is shmtensor.triangular_solve


# -- positive definite matrices


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_cholesky_and_what_uses_it(n: int, dtype: str, lead: tuple[int, ...], upper: bool) -> None:
    a, b = positive(*lead, n, n, dtype=dtype), random(*lead, n, 2, dtype=dtype)
    factor = shmtensor.cholesky(tensor(a), upper)
    near(factor, shmtensor.potrf(tensor(a), upper).numpy())
    near(a @ shmtensor.cholesky_solve(tensor(b), factor, upper).numpy(), b)
    near(a @ shmtensor.cholesky_inverse(factor, upper).numpy(), np.broadcast_to(np.eye(n, dtype=dtype), a.shape))


@pytest.mark.parametrize("dtype", TYPES)
def test_ths_names_take_upper_triangles(dtype: str) -> None:
    a, b = positive(3, 3, dtype=dtype), random(3, dtype=dtype)
    factor = shmtensor.potrf(tensor(a))
    assert np.array_equal(factor.numpy(), np.triu(factor.numpy()))
    near(a @ shmtensor.potrs(tensor(b), factor).numpy(), b)
    near(shmtensor.potri(factor), np.linalg.inv(a).astype(dtype))
    near(shmtensor.cholesky(tensor(a)), adjoint(factor.numpy()))
    near(tensor(b).cholesky_solve(shmtensor.cholesky(tensor(a))), np.linalg.solve(a, b))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_pstrf(dtype: str, upper: bool) -> None:
    a = positive(2, 4, 4, dtype=dtype)
    half, pivots = shmtensor.pstrf(tensor(a), upper)
    assert pivots.dtype == np.int32
    for one, matrix, order in zip(half.numpy(), a, pivots.numpy(), strict=True):
        near(adjoint(one) @ one if upper else one @ adjoint(one), matrix[order][:, order])
    with pytest.raises(LinAlgError, match="pstrf: the matrix is rank deficient"):
        shmtensor.pstrf(shmtensor.ones(3, 3))
    with pytest.raises(LinAlgError, match="pstrf"):
        shmtensor.pstrf(tensor(np.diag([4.0, 1.0])), tol=2)


# -- inverses and determinants


@pytest.mark.parametrize("dtype", TYPES)
def test_inverses_and_determinants(dtype: str) -> None:
    a = regular(2, 3, 3, dtype=dtype)
    near(shmtensor.inverse(tensor(a)), np.linalg.inv(a))
    near(shmtensor.getri(tensor(a)), np.linalg.inv(a))
    near(shmtensor.pinverse(tensor(a)), np.linalg.inv(a), scale=5)
    near(np.exp(shmtensor.logdet(tensor(a)).numpy()), np.linalg.det(a), scale=5)
    assert shmtensor.logdet(tensor(np.diag([0, 1]).astype(dtype))).item() == -np.inf
    if np.dtype(dtype).kind == "f":
        assert np.isnan(shmtensor.logdet(tensor(np.diag([-1, 1]).astype(dtype))).item())


# -- orthogonal factors


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", SIDES)
def test_qr_in_parts(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    a, (m, n) = random(*lead, *sides, dtype=dtype), sides
    full = shmtensor.qr(tensor(a), some=False)
    assert full.Q.shape == (*lead, m, m)
    packed, tau = shmtensor.geqrf(tensor(a))
    assert (packed.shape, tau.shape) == ((*lead, m, n), (*lead, min(sides)))
    near(np.triu(packed.numpy())[..., : min(sides), :], shmtensor.qr(tensor(a)).R.numpy())
    if m >= n:
        near(shmtensor.orgqr(packed, tau), shmtensor.qr(tensor(a)).Q.numpy())
    q = full.Q.numpy()
    for turned in (False, True):
        matrix = adjoint(q) if turned else q
        c = random(*lead, m, 2, dtype=dtype)
        near(shmtensor.ormqr(packed, tau, tensor(c), transpose=turned), matrix @ c, scale=5)
        c = random(*lead, 2, m, dtype=dtype)
        near(shmtensor.ormqr(packed, tau, tensor(c), False, turned), c @ matrix, scale=5)
    with pytest.raises(InvalidArgument):
        shmtensor.ormqr(packed, tau, tensor(random(m + 1, 2, dtype=dtype)))


@pytest.mark.parametrize("dtype", TYPES)
def test_gesvd_gives_v(dtype: str) -> None:
    a = random(2, 3, 5, dtype=dtype)
    u, s, v = shmtensor.svd(tensor(a))
    assert (u.shape, s.shape, v.shape) == ((2, 3, 3), (2, 3), (2, 5, 3))
    near((u.numpy() * s.numpy()[..., None, :]) @ adjoint(v.numpy()), a)
    assert shmtensor.gesvd(tensor(a), some=False).V.shape == (2, 5, 5)
    none = shmtensor.svd(tensor(a), compute_uv=False)
    near(none.S, s.numpy())
    assert (none.U.shape, none.V.shape) == ((2, 3, 3), (2, 5, 5)) and not none.U.numpy().any()


# -- eigenvalues


@pytest.mark.parametrize("dtype", TYPES)
def test_syev(dtype: str) -> None:
    a = random(2, 4, 4, dtype=dtype)
    for upper in (True, False):
        half = np.triu(a) if upper else np.tril(a)
        whole = half + adjoint(half)
        np.einsum("...ii->...i", whole)[...] = np.einsum("...ii->...i", a).real
        values, vectors = shmtensor.symeig(tensor(a), True, upper)
        near(vectors.numpy() * values.numpy()[..., None, :], whole @ vectors.numpy())
        alone = shmtensor.syev(tensor(a), upper=upper)
        near(alone.eigenvalues, values.numpy())
        assert alone.eigenvectors.numel() == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_geev_is_real(n: int, dtype: str) -> None:
    a = random(n, n, dtype=dtype, seed=4)
    values, vectors = shmtensor.geev(tensor(a), True)
    assert (values.shape, values.dtype, vectors.dtype) == ((n, 2), np.dtype(dtype), np.dtype(dtype))
    columns, i = vectors.numpy(), 0
    while i < n:
        real, imaginary = values.numpy()[i]
        if imaginary:
            assert imaginary > 0 and np.allclose(values.numpy()[i + 1], [real, -imaginary])
            vector, value, i = columns[:, i] + 1j * columns[:, i + 1], real + 1j * imaginary, i + 2
        else:
            vector, value, i = columns[:, i], real, i + 1
        np.testing.assert_allclose(a @ vector, value * vector, atol=200 * np.finfo(dtype).eps)
    assert shmtensor.geev(tensor(a)).eigenvectors.numel() == 0
    with pytest.raises(InvalidArgument, match="not a stack"):
        shmtensor.geev(tensor(random(2, 2, 2)))


# -- triangular factors


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
def test_lu_and_what_uses_it(dtype: str, lead: tuple[int, ...]) -> None:
    a, b = regular(*lead, 4, 4, dtype=dtype)[..., ::-1, :], random(*lead, 4, 2, dtype=dtype)
    for factor, solve in ((shmtensor.lu, shmtensor.lu_solve), (shmtensor.btrifact, shmtensor.btrisolve)):
        both, pivots = factor(tensor(a))
        near(a @ solve(tensor(b), both, pivots).numpy(), b)
        p, lower, upper = (one.numpy() for one in shmtensor.lu_unpack(both, pivots))
        near(p @ lower @ upper, a)
    assert shmtensor.lu(shmtensor.zeros(2, 2))[1].tolist() == [1, 2]
    assert [one.shape for one in shmtensor.lu_unpack(both, pivots, unpack_data=False)[1:]] == [(0,), (0,)]
    assert shmtensor.lu_unpack(both, LU_pivots=pivots, unpack_pivots=False).P.shape == (0,)
    with pytest.raises(LinAlgError, match="getrf"):
        shmtensor.btrifact(shmtensor.zeros(2, 2))
    with pytest.raises(InvalidArgument, match="pivots"):
        shmtensor.lu_unpack(both, pivots[..., :2])
    with pytest.raises(DTypeError, match="pivots"):
        shmtensor.lu_unpack(both, both)


# -- norms


def test_norms() -> None:
    a = random(3, 4)
    x = tensor(a)
    assert x.norm().item() == pytest.approx(np.sqrt((a**2).sum()))
    near(x.norm(1, 0), np.abs(a).sum(0))
    near(x.norm("fro", (0, 1), True), np.sqrt((a**2).sum(keepdims=True)))
    near(x.norm(float("inf"), -1, keepdim=True), np.abs(a).max(-1, keepdims=True))
    near(x.norm("nuc"), np.asarray(linalg.svdvals(x).numpy().sum()))
    assert x.norm(0).item() == 12
    assert x.float().norm(2, (), dtype="float64").dtype == np.float64
    with pytest.raises(IndexOutOfRange):
        x.norm(2, 5)
    with pytest.raises(DTypeError, match="int64"):
        shmtensor.ones(2, dtype="int64").norm()


# -- failures as TH's


def test_failures_name_the_routine_and_the_place() -> None:
    singular, ones = shmtensor.tensor([[1.0, 2], [2, 4]]), shmtensor.ones(2)
    for words, bad in (
        (r"gesv: U\(2,2\) is zero", lambda: shmtensor.gesv(ones, singular)),
        (r"gels: diagonal element 2 of its triangular factor", lambda: shmtensor.gels(ones, shmtensor.zeros(2, 2).add(
            shmtensor.tensor([[1.0, 0], [0, 0]])))),
        (r"trtrs: A\(2,2\) is zero", lambda: shmtensor.trtrs(ones, shmtensor.tensor([[1.0, 0], [0, 0]]))),
        (r"LAPACK potrf", lambda: shmtensor.potrf(-singular)),
        (r"potri: element \(2,2\)", lambda: shmtensor.potri(shmtensor.tensor([[1.0, 0], [0, 0]]))),
        (r"LAPACK gesv", lambda: shmtensor.getri(singular)),
    ):  # fmt: skip
        with pytest.raises(LinAlgError, match=words):
            bad()


@pytest.mark.parametrize(
    "name", sorted(set(routines.__all__) - {"lu_unpack", "matrix_power", "norm", "orgqr", "ormqr"})
)
def test_types_and_shapes_that_are_refused(name: str) -> None:
    function = getattr(shmtensor, name)
    two = name in ("gesv", "gels", "trtrs", "triangular_solve", "cholesky_solve", "potrs", "btrisolve", "lu_solve")
    pivots = (shmtensor.tensor([1, 2]),) if name in ("btrisolve", "lu_solve") else ()
    for dtype in ("int64", "float16", "bool"):
        bad = shmtensor.ones(2, 2, dtype=dtype)
        with pytest.raises(DTypeError, match=dtype):
            function(bad, bad, *pivots) if two else function(bad)
    with pytest.raises(InvalidArgument, match="matrices"):
        function(*([shmtensor.ones(2)] * (1 + two)), *pivots)
    if two:
        with pytest.raises(DTypeError, match=r"float32 and float64|float64 and float32"):
            function(shmtensor.ones(2, 2), shmtensor.eye(2).double(), *pivots)


# -- torch

CASES: dict[str, Any] = {
    "cholesky": (positive(2, 3, 3),), "cholesky_inverse": (np.tril(positive(2, 3, 3)),), "geqrf": (random(2, 4, 3),),
    "cholesky_solve": (random(2, 3, 2), np.tril(positive(2, 3, 3))), "inverse": (regular(2, 3, 3),),
    "logdet": (random(4, 3, 3),), "pinverse": (random(2, 3, 4),), "slogdet": (random(2, 3, 3),), "qr": (random(4, 3),),
    "lu_unpack": (random(2, 3, 3), np.array([[2, 2, 3], [3, 2, 3]], np.int32)), "norm": (random(2, 3),),
    "orgqr": (random(2, 4, 3), random(2, 3)), "ormqr": (random(2, 4, 3), random(2, 3), random(2, 4, 5)),
    "triangular_solve": (random(2, 3, 2), regular(2, 3, 3)), "matrix_exp": (random(2, 3, 3),),
    "lu_solve": (random(2, 3, 2), regular(2, 3, 3), np.array([[2, 2, 3], [3, 2, 3]], np.int32)),
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # some names are torch's old ones
@pytest.mark.parametrize("name", CASES)
def test_as_torch_has_it(name: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = [np.ascontiguousarray(a) for a in CASES[name]]
    ours = getattr(shmtensor, name)(*[tensor(a) for a in arrays])
    theirs = getattr(torch, name)(*[torch.from_numpy(a) for a in arrays])
    for one, other in zip(ours, theirs, strict=True) if isinstance(ours, tuple) else ((ours, theirs),):
        assert one.shape == tuple(other.shape)
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-9)
