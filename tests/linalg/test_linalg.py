"""The extension `linalg`: factors multiply to the matrix, residuals are small for the type, bad input is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmtensor
from shmtensor import array_api, linalg
from shmtensor._tensor.core import wrap
from shmtensor.dtypes import BY_DTYPE
from shmtensor.errors import DTypeError, IndexOutOfRange, InvalidArgument, MissingExtra, NotSupported, ShmTensorError
from shmtensor.linalg import LinAlgError

TYPES = [kind for kind in ("float32", "float64", "complex64", "complex128") if np.dtype(kind) in BY_DTYPE]
COMPLEX = "complex64" in TYPES
LEADS = [(), (3,), (2, 0), (2, 3)]
SIDES = [(4, 4), (5, 3), (3, 5), (1, 1), (0, 0), (0, 3), (3, 0)]
scipy_there = pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="needs SciPy (the extra scipy)")


def random(*shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else real).astype(dtype)


def regular(*shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    """Square matrices far from singular."""
    return random(*shape, dtype=dtype, seed=seed) + 3 * shape[-1] * np.eye(shape[-1], dtype=dtype)


def positive(*shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    """Positive definite matrices."""
    a = regular(*shape, dtype=dtype, seed=seed)
    return a @ adjoint(a)


def adjoint(a: Any) -> Any:
    return a.swapaxes(-1, -2).conj()


def tensor(a: Any) -> Any:
    return shmtensor.from_numpy(np.ascontiguousarray(a))


def near(found: Any, wanted: Any, scale: float = 1) -> None:
    """Equal up to what rounding explains, and of the same type."""
    found = found.numpy() if isinstance(found, shmtensor.Tensor) else found
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if wanted.size:
        side = max(wanted.shape, default=1)
        bound = 60 * side * np.finfo(wanted.dtype).eps * max(1, float(np.abs(wanted).max())) * scale
        assert float(np.abs(found - wanted).max()) <= bound


# -- decompositions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_cholesky(n: int, dtype: str, lead: tuple[int, ...]) -> None:
    a = positive(*lead, n, n, dtype=dtype)
    lower, upper = linalg.cholesky(tensor(a)), linalg.cholesky(tensor(a), upper=True)
    near(lower.numpy() @ adjoint(lower.numpy()), a)
    near(adjoint(upper.numpy()) @ upper.numpy(), a)
    assert np.array_equal(lower.numpy(), np.tril(lower.numpy())) and np.array_equal(
        upper.numpy(), np.triu(upper.numpy())
    )


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", SIDES)
def test_qr(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    a = random(*lead, *sides, dtype=dtype)
    (m, n), k = sides, min(sides)
    for mode, columns in (("reduced", k), ("complete", m)):
        q, r = linalg.qr(tensor(a), mode=mode)
        assert (q.shape, r.shape) == ((*lead, m, columns), (*lead, columns, n))
        near(q.numpy() @ r.numpy(), a)
        near(adjoint(q.numpy()) @ q.numpy(), np.broadcast_to(np.eye(columns, dtype=dtype), (*lead, columns, columns)))
        assert np.array_equal(r.numpy(), np.triu(r.numpy()))
    assert linalg.qr(tensor(a)).R.shape == (*lead, k, n)


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", SIDES)
def test_svd(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    a = random(*lead, *sides, dtype=dtype)
    (m, n), k = sides, min(sides)
    u, s, vh = linalg.svd(tensor(a), full_matrices=False)
    assert (u.shape, s.shape, vh.shape) == ((*lead, m, k), (*lead, k), (*lead, k, n))
    near((u.numpy() * s.numpy()[..., None, :]) @ vh.numpy(), a)
    near(linalg.svdvals(tensor(a)), s.numpy())
    full = linalg.svd(tensor(a))
    assert (full.U.shape, full.S.shape, full.Vh.shape) == ((*lead, m, m), (*lead, k), (*lead, n, n))
    assert s.dtype == full.S.dtype == a.real.dtype
    assert (np.diff(s.numpy()) <= 0).all()


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_eigh(n: int, dtype: str, lead: tuple[int, ...]) -> None:
    a = random(*lead, n, n, dtype=dtype)
    a = a + adjoint(a)
    values, vectors = linalg.eigh(tensor(a))
    assert values.dtype == a.real.dtype
    near(vectors.numpy() * values.numpy()[..., None, :], a @ vectors.numpy())
    near(linalg.eigvalsh(tensor(a)), values.numpy())
    lower = tensor(np.tril(a))
    near(linalg.eigh(lower).eigenvalues, values.numpy())
    near(linalg.eigh(tensor(np.triu(a)), UPLO="U").eigenvalues, values.numpy())
    near(linalg.eigvalsh(tensor(np.triu(a)), UPLO="U"), values.numpy())
    with pytest.raises(InvalidArgument):
        linalg.eigh(lower, UPLO="X")


@pytest.mark.skipif(not COMPLEX, reason="no complex types")
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_eig(n: int, dtype: str, lead: tuple[int, ...]) -> None:
    a = random(*lead, n, n, dtype=dtype)
    values, vectors = linalg.eig(tensor(a))
    near(vectors.numpy() * values.numpy()[..., None, :], (a @ vectors.numpy()).astype(values.dtype))
    assert values.dtype == vectors.dtype == np.result_type(dtype, np.complex64)
    near(np.sort(linalg.eigvals(tensor(a)).numpy()), np.sort(values.numpy()), scale=10)
    assert linalg.eigvals(tensor(positive(2, 2, dtype=dtype))).dtype == values.dtype  # where all are real, too


@scipy_there
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", SIDES)
def test_lu(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    a = random(*lead, *sides, dtype=dtype)
    p, lower, upper = (one.numpy() for one in linalg.lu(tensor(a)))
    near(p @ lower @ upper, a)
    assert np.array_equal(lower, np.tril(lower)) and np.array_equal(upper, np.triu(upper))
    assert (p.sum(-1) == 1).all() and (p.sum(-2) == 1).all()
    if min(sides):
        assert np.abs(lower).max(initial=0) < 1.5  # pivots were taken
    both, pivots = linalg.lu_factor(tensor(a))
    near(both, np.tril(np.zeros_like(a)) + _joined(lower, upper, a))
    assert (pivots.dtype, pivots.shape) == (np.int32, (*lead, min(sides)))


def _joined(lower: Any, upper: Any, a: Any) -> Any:
    both = np.zeros_like(a)
    k = min(a.shape[-2:])
    both[..., :k] += np.tril(lower, -1)
    both[..., :k, :] += upper
    return both


@scipy_there
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", [(4, 4), (5, 3), (0, 0), (3, 0), (1, 1)])
def test_householder_product(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    a = random(*lead, *sides, dtype=dtype)
    reflectors = shmtensor.geqrf(tensor(a))
    near(linalg.householder_product(*reflectors), linalg.qr(tensor(a)).Q.numpy())
    some = linalg.householder_product(reflectors.a, reflectors.tau[..., : max(0, sides[1] - 1)])
    near(
        adjoint(some.numpy()) @ some.numpy(),
        np.broadcast_to(np.eye(sides[1], dtype=dtype), (*lead, sides[1], sides[1])),
    )
    with pytest.raises(InvalidArgument):
        linalg.householder_product(reflectors.a, reflectors.tau[..., None])
    with pytest.raises(InvalidArgument):
        linalg.householder_product(reflectors.a.mT[..., :1, :], tensor(random(*lead, 3, dtype=dtype)))


# -- solvers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", [(), (0,), (3,)])
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_solve(n: int, dtype: str, lead: tuple[int, ...], right: tuple[int, ...]) -> None:
    a = regular(*lead, n, n, dtype=dtype)
    b = random(*(lead if right else ()), n, *right, dtype=dtype)
    x = linalg.solve(tensor(a), tensor(b)).numpy()
    near(a @ x if right else (a @ x[..., None])[..., 0], np.broadcast_to(b, (*lead, n, *right)))
    near(a @ linalg.inv(tensor(a)).numpy(), np.broadcast_to(np.eye(n, dtype=dtype), a.shape))


def test_solve_from_the_right_and_of_a_vector_for_each_matrix() -> None:
    a, b = regular(3, 3, 3), random(3, 3)
    near(linalg.solve(tensor(a), tensor(b), left=False).numpy() @ a, np.broadcast_to(b, (3, 3, 3)))
    near((a @ linalg.solve(tensor(a), B=tensor(b)).numpy()[..., None])[..., 0], b)
    near(a @ array_api.linalg.solve(tensor(a), tensor(b)).numpy(), np.broadcast_to(b, (3, 3, 3)))
    with pytest.raises(InvalidArgument, match="one row"):
        linalg.solve(tensor(a), tensor(b[0]), left=False)


@scipy_there
def test_functions_that_report_what_is_singular() -> None:
    a = np.stack([regular(2, 2), np.array([[1.0, 2], [2, 4]]), np.zeros((2, 2))])
    one, b = tensor(a), tensor(random(3, 2, 1))
    for found in (linalg.inv_ex(one), linalg.solve_ex(one, b), linalg.lu_factor_ex(one), shmtensor.lu(one, True, True)):
        assert (found[-1].tolist(), found[-1].dtype) == ([0, 2, 1], np.int32)
    near(linalg.inv_ex(one).inverse[0], np.linalg.inv(a[0]))
    near(a[0] @ linalg.solve_ex(one, b).result[0].numpy(), b.numpy()[0])
    assert linalg.cholesky_ex(-tensor(positive(2, 3, 3))).info.tolist() == [1, 1]
    near(linalg.cholesky_ex(tensor(positive(3, 3))).L, np.linalg.cholesky(positive(3, 3)))
    near(linalg.cholesky_ex(tensor(positive(3, 3)), upper=True).L, np.linalg.cholesky(positive(3, 3)).T)
    for function in (linalg.inv_ex, linalg.lu_factor_ex, linalg.cholesky_ex, linalg.ldl_factor_ex):
        with pytest.raises(LinAlgError, match="of the stack"):
            function(one, check_errors=True)
    for function in (linalg.lu, linalg.lu_factor, linalg.lu_factor_ex, shmtensor.lu):
        with pytest.raises(NotSupported, match="pivot=False"):
            function(one, pivot=False)


@scipy_there
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
def test_ldl(dtype: str, lead: tuple[int, ...], hermitian: bool) -> None:
    a = random(*lead, 4, 4, dtype=dtype)
    a = a + (adjoint(a) if hermitian else a.swapaxes(-1, -2))
    b = random(*lead, 4, 3, dtype=dtype)
    factors = linalg.ldl_factor(tensor(np.tril(a)), hermitian=hermitian)
    assert np.array_equal(factors.LD.numpy(), np.tril(factors.LD.numpy())) and factors.pivots.dtype == np.int32
    near(a @ linalg.ldl_solve(*factors, tensor(b), hermitian=hermitian).numpy(), b, scale=300)
    with pytest.raises(InvalidArgument, match="ldl_solve of factors"):
        linalg.ldl_solve(*factors, tensor(b[..., :3, :]))


def test_solve_broadcasts_and_promotes() -> None:
    a, b = regular(2, 1, 4, 4, dtype="float32"), random(3, 4, 2)
    x = linalg.solve(tensor(a), tensor(b))
    assert (x.shape, x.dtype) == ((2, 3, 4, 2), np.float64)
    near(a @ x.numpy(), np.broadcast_to(b, x.shape))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_determinants(n: int, dtype: str, lead: tuple[int, ...]) -> None:
    a = regular(*lead, n, n, dtype=dtype)
    sign, size = linalg.slogdet(tensor(a))
    near(linalg.det(tensor(a)), np.asarray(np.linalg.det(a), dtype))
    near((sign.numpy() * np.exp(size.numpy())).astype(dtype), np.asarray(np.linalg.det(a), dtype))
    assert (sign.dtype, size.dtype) == (a.dtype, a.real.dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", SIDES)
def test_pinv(sides: tuple[int, int], dtype: str) -> None:
    a = random(2, *sides, dtype=dtype)
    inverse = linalg.pinv(tensor(a)).numpy()
    near(a @ inverse @ a, a)
    near(inverse @ a @ inverse, inverse)
    low = random(9, 2, dtype=dtype) @ random(2, 9, dtype=dtype)  # the default bound goes by the type
    near(linalg.pinv(tensor(low)), np.linalg.pinv(low, 1e-4), scale=20)
    small = tensor(np.diag([1, -1e-3]).astype(dtype))
    for how in ({"rtol": 0.1}, {"rcond": 0.1}, {"atol": 0.1}, {"atol": 0.1, "hermitian": True}):
        assert linalg.pinv(small, **how).numpy()[1, 1] == 0
    near(linalg.pinv(small, hermitian=True), np.diag([1, -1e3]).astype(dtype))


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sides", SIDES)
def test_lstsq(sides: tuple[int, int], dtype: str, lead: tuple[int, ...]) -> None:
    (m, n), k = sides, 2
    a, b = random(*lead, m, n, dtype=dtype), random(*lead, m, k, dtype=dtype, seed=1)
    found = linalg.lstsq(tensor(a), tensor(b), driver="gelsd")
    near(found.solution, np.linalg.pinv(a).astype(dtype) @ b, scale=10)
    assert (found.rank.numpy() == min(sides)).all() and found.rank.shape == lead
    near(found.singular_values, linalg.svdvals(tensor(a)).numpy())
    if m > n:
        near(found.residuals, (np.abs(b - a @ found.solution.numpy()) ** 2).sum(-2))
    else:
        assert found.residuals.numel() == 0
    vector = linalg.lstsq(tensor(a), tensor(random(m, dtype=dtype)), driver="gelsd")
    assert vector.solution.shape == (*lead, n)
    assert vector.residuals.shape == ((*lead, 1) if m > n else (0,))
    each = linalg.lstsq(tensor(a), tensor(b[..., 0]))
    near(each.solution, found.solution.numpy()[..., 0])


def test_lstsq_gives_what_the_driver_has() -> None:
    a, b = tensor(random(2, 5, 3)), tensor(random(2, 5, 4))
    shapes = {
        None: ((0,), (2,), (0,)), "gelsy": ((0,), (2,), (0,)), "gels": ((2, 4), (0,), (0,)),
        "gelsd": ((2, 4), (2,), (2, 3)), "gelss": ((2, 4), (2,), (2, 3)),
    }  # fmt: skip
    for driver, wanted in shapes.items():
        found = linalg.lstsq(a, b, driver=driver)
        assert tuple(one.shape for one in found[1:]) == wanted
    with pytest.raises(InvalidArgument, match="gelsx"):
        linalg.lstsq(a, b, driver="gelsx")


@scipy_there
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_solve_triangular(dtype: str, upper: bool, left: bool, unit: bool) -> None:
    a = regular(2, 4, 4, dtype=dtype)
    half = np.triu(a) if upper else np.tril(a)
    if unit:
        half = half / 20
        np.einsum("...ii->...i", half)[...] = 1
    b = random(*((2, 4, 3) if left else (2, 3, 4)), dtype=dtype)
    other = np.where(half == 0, np.asarray(np.nan, dtype), half)  # must not be read
    if unit:
        np.einsum("...ii->...i", other)[...] = np.nan
    x = linalg.solve_triangular(tensor(other), tensor(b), upper=upper, left=left, unitriangular=unit).numpy()
    near(half @ x if left else x @ half, b)


@scipy_there
@pytest.mark.parametrize("adjoint_too", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
def test_lu_solve(dtype: str, lead: tuple[int, ...], left: bool, adjoint_too: bool) -> None:
    a = regular(*lead, 4, 4, dtype=dtype)[..., ::-1, :]  # so that rows are exchanged
    b = random(*lead, *((4, 3) if left else (3, 4)), dtype=dtype)
    x = linalg.lu_solve(*linalg.lu_factor(tensor(a)), tensor(b), left=left, adjoint=adjoint_too).numpy()
    matrix = adjoint(a) if adjoint_too else a
    near(matrix @ x if left else x @ matrix, b)
    if left and not lead:
        x = linalg.lu_solve(*linalg.lu_factor(tensor(a)), tensor(b[:, 0])).numpy()
        near(a @ x, b[:, 0])


def test_tensorinv_and_tensorsolve() -> None:
    a = regular(6, 6).reshape(2, 3, 6)
    np.testing.assert_allclose(linalg.tensorinv(tensor(a)).numpy(), np.linalg.tensorinv(a))
    b = random(2, 3)
    x = linalg.tensorsolve(tensor(a), tensor(b))
    near(np.tensordot(a, x.numpy(), 1), b)
    near(np.tensordot(a.transpose(2, 0, 1), x.numpy(), ((0,), (0,))), b)
    assert linalg.tensorsolve(tensor(a.transpose(2, 0, 1)), tensor(b), dims=(0,)).shape == (6,)
    for bad in (lambda: linalg.tensorinv(tensor(a), ind=1), lambda: linalg.tensorsolve(tensor(a), tensor(b[0]))):
        with pytest.raises(InvalidArgument):
            bad()


# -- norms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, -2, float("inf"), float("-inf")])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_vector_norm(order: float, axis: Any, keepdims: bool) -> None:
    for dtype in TYPES:
        a = random(2, 3, 4, dtype=dtype)
        over = (0, 1, 2) if axis is None else axis
        size = np.abs(a)
        if order == 0:
            wanted = (size != 0).sum(over, keepdims=keepdims)
        elif np.isinf(order):
            wanted = (np.max if order > 0 else np.min)(size, over, keepdims=keepdims)
        else:
            wanted = (size**order).sum(over, keepdims=keepdims) ** (1 / order)
        near(linalg.vector_norm(tensor(a), axis=axis, keepdims=keepdims, ord=order), np.asarray(wanted, size.dtype))


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", TYPES)
def test_matrix_norms(dtype: str, order: Any) -> None:
    a = random(2, 3, 3, dtype=dtype)
    wanted = np.stack([np.linalg.norm(one, order) for one in a])
    near(linalg.matrix_norm(tensor(a), ord=order), wanted.astype(a.real.dtype))
    assert linalg.matrix_norm(tensor(a), ord=order, keepdims=True).shape == (2, 1, 1)
    near(linalg.norm(tensor(a), order, (1, 2)), wanted.astype(a.real.dtype))
    turned = wanted if order not in (1, -1) else np.stack([np.linalg.norm(one.T, order) for one in a])
    near(linalg.norm(tensor(a), order, (2, 1)), turned.astype(a.real.dtype)) if order in (1, -1) else None
    near(linalg.cond(tensor(a), order), np.linalg.cond(a, order).astype(a.real.dtype), scale=50)


def test_norm_as_a_whole() -> None:
    a = random(3, 4)
    for found in (
        linalg.vector_norm(tensor(a), 1, 0, True),
        linalg.vector_norm(tensor(a), ord=1, dim=(0,), keepdim=True),
    ):
        near(found, np.abs(a).sum(0, keepdims=True))
    near(linalg.vector_norm(tensor(a), dim=[]), np.sqrt((a**2).sum()).reshape(()))
    assert linalg.vector_norm(shmtensor.ones(4), dtype="float64").dtype == np.float64
    near(linalg.matrix_norm(tensor(a), 1, (1, 0)), np.asarray(np.linalg.norm(a.T, 1)))
    near(linalg.matrix_norm(tensor(a[:, None]), "fro", (0, 2), True), np.linalg.norm(a).reshape(1, 1, 1))
    near(linalg.norm(tensor(a[:, None]), None, (0, 2)), np.linalg.norm(a).reshape(1))
    assert linalg.norm(tensor(a)).item() == pytest.approx(np.sqrt((a**2).sum()))
    near(linalg.norm(tensor(a), 1, 0, True), np.abs(a).sum(0, keepdims=True))
    assert linalg.norm(shmtensor.ones(4, dtype="float32"), dtype="float64").dtype == np.float64
    assert linalg.cond(shmtensor.zeros(2, 2)).item() == float("inf")
    assert linalg.cond(shmtensor.zeros(2, 0, 0)).tolist() == [0, 0]
    assert linalg.vector_norm(shmtensor.zeros(0)).item() == 0
    assert linalg.matrix_norm(shmtensor.zeros(2, 0, 3)).tolist() == [0, 0]
    for bad in (lambda: linalg.vector_norm(tensor(a), axis=2), lambda: linalg.norm(tensor(a), 2, (0, 5))):
        with pytest.raises(IndexOutOfRange):
            bad()
    for bad in (
        lambda: linalg.matrix_norm(tensor(a[0])),
        lambda: linalg.matrix_norm(tensor(a), ord="no"),
        lambda: linalg.matrix_norm(tensor(a[:0]), ord=-2),
        lambda: linalg.vector_norm(tensor(a[:0]), ord=float("-inf")),
        lambda: linalg.cond(tensor(a), 1),
    ):
        with pytest.raises(InvalidArgument):
            bad()


@pytest.mark.parametrize("dtype", TYPES)
def test_matrix_rank(dtype: str) -> None:
    a = np.zeros((3, 4, 5), dtype)
    a[1, 0, 0] = 1
    a[2] = random(4, 5, dtype=dtype)
    rank = linalg.matrix_rank(tensor(a))
    assert (rank.tolist(), rank.dtype) == ([0, 1, 4], np.int64)
    steps = tensor(np.diag([1e3, 1e2, 1e1]).astype(dtype))
    assert [linalg.matrix_rank(steps, rtol=r).item() for r in (0.5, 0.05, 0.005)] == [1, 2, 3]
    both = shmtensor.stack([steps, steps])
    assert linalg.matrix_rank(both, rtol=shmtensor.tensor([0.5, 0.05])).tolist() == [1, 2]
    assert linalg.matrix_rank(tensor(a[:, :0])).tolist() == [0, 0, 0]
    assert linalg.matrix_rank(tensor(np.ones((9, 9), dtype) / 3)).item() == 1
    assert linalg.matrix_rank(steps, 50).item() == linalg.matrix_rank(steps, atol=50).item() == 2
    assert linalg.matrix_rank(both, atol=shmtensor.tensor([50.0, 500.0])).tolist() == [2, 1]
    assert linalg.matrix_rank(-both, atol=50, rtol=0.5, hermitian=True).tolist() == [1, 1]
    with pytest.raises(InvalidArgument):
        linalg.matrix_rank(both, rtol=shmtensor.ones(3))


# -- powers, products, functions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [-2, -1, 0, 1, 2, 5])
@pytest.mark.parametrize("dtype", TYPES)
def test_matrix_power(dtype: str, n: int) -> None:
    a = (regular(2, 3, 3, dtype=dtype) / 9).astype(dtype)
    wanted = np.broadcast_to(np.eye(3, dtype=dtype), a.shape)
    for _ in range(abs(n)):
        wanted = wanted @ (np.linalg.inv(a) if n < 0 else a)
    x = tensor(a)
    power = linalg.matrix_power(x, n)
    near(power, np.asarray(wanted), scale=5)
    power.zero_()
    assert np.array_equal(x.numpy(), a)
    assert linalg.matrix_power(shmtensor.tensor([[1, 1], [1, 0]]), 10).tolist() == [[89, 55], [55, 34]]


def test_multi_dot_and_vander() -> None:
    a, b, c = random(4), random(4, 6), random(6, 2)
    near(linalg.multi_dot([tensor(a), tensor(b), tensor(c)]), a @ b @ c)
    for bad in ([tensor(a)], [tensor(b), tensor(b)], [tensor(a), tensor(b), tensor(b)]):
        with pytest.raises(InvalidArgument):
            linalg.multi_dot(bad)
    x = random(2, 4)
    near(linalg.vander(tensor(x)), x[..., None] ** np.arange(4))
    near(linalg.vander(tensor(x), 2), x[..., None] ** np.arange(2))
    assert linalg.vander(tensor(x), 0).shape == (2, 4, 0)
    assert linalg.vander(shmtensor.arange(3)).tolist() == [[1, 0, 0], [1, 1, 1], [1, 2, 4]]
    assert linalg.vander(shmtensor.tensor(3, dtype="uint8"), N=3).tolist() == [[1, 3, 9]]
    assert linalg.vander(shmtensor.tensor(3, dtype="uint8"), N=3).dtype == np.int64
    with pytest.raises(InvalidArgument):
        linalg.vander(shmtensor.ones(2), N=-1)


FUNCTIONS = {
    "expm": np.exp, "logm": np.log, "sqrtm": np.sqrt, "cosm": np.cos, "sinm": np.sin, "tanm": np.tan, "coshm": np.cosh,
    "sinhm": np.sinh, "tanhm": np.tanh, "signm": np.sign,
}  # fmt: skip


@scipy_there
@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrix_functions(name: str, dtype: str, lead: tuple[int, ...]) -> None:
    """A Hermitian matrix has them on its eigenvalues."""
    a = positive(*lead, 4, 4, dtype=dtype) / 300
    values, vectors = np.linalg.eigh(a)
    wanted = (vectors * FUNCTIONS[name](values)[..., None, :]) @ adjoint(vectors)
    near(getattr(linalg, name)(tensor(a)), wanted.astype(dtype), scale=20)
    assert getattr(linalg, name)(tensor(np.zeros((0, 0), dtype))).shape == (0, 0)


@scipy_there
@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_ones_choice(dtype: str) -> None:
    a = positive(2, 3, 3, dtype=dtype) / 100
    near(linalg.matrix_exp(tensor(a)), linalg.expm(tensor(a)).numpy())
    near(linalg.funm(tensor(a), np.exp), linalg.expm(tensor(a)).numpy(), scale=20)
    third = linalg.fractional_matrix_power(tensor(a), 1 / 3)
    near(linalg.matrix_power(third, 3), a, scale=20)


@scipy_there
def test_functions_that_are_not_there() -> None:
    nilpotent, singular = shmtensor.tensor([[0.0, 1], [0, 0]]), shmtensor.tensor([[1.0, 2], [2, 4]])
    near(linalg.sqrtm(singular).mm(linalg.sqrtm(singular)), singular.numpy())
    for bad in (lambda: linalg.logm(singular), lambda: linalg.sqrtm(nilpotent), lambda: linalg.logm(nilpotent)):
        with pytest.raises(LinAlgError, match="of a matrix of shape"):
            bad()
    turn = shmtensor.tensor([[0.0, -1], [1, 0]])
    near(linalg.logm(turn), np.float32(np.pi / 2) * turn.numpy())  # a real logarithm
    if COMPLEX:
        assert linalg.sqrtm(-shmtensor.eye(2)).dtype == np.complex64
        assert linalg.sqrtm(shmtensor.stack([shmtensor.eye(2), -shmtensor.eye(2)])).dtype == np.complex64
    else:
        with pytest.raises(DTypeError):
            linalg.sqrtm(-shmtensor.eye(2))


# -- the array API's others --------------------------------------------------------------------------------------------


def test_diagonal_is_a_view_and_trace() -> None:
    x = shmtensor.arange(24, dtype="int32").reshape(2, 3, 4)
    assert linalg.diagonal(x, offset=1).tolist() == [[1, 6, 11], [13, 18, 23]]
    assert linalg.diagonal(x, dim1=0, dim2=1).tolist() == [[0, 16], [1, 17], [2, 18], [3, 19]]
    linalg.diagonal(x).fill_(0)
    assert x[1].tolist() == [[0, 13, 14, 15], [16, 0, 18, 19], [20, 21, 0, 23]]
    assert linalg.trace(x, offset=-1).tolist() == [4 + 9, 16 + 21]
    assert linalg.trace(x).dtype == np.int64
    assert linalg.trace(x, dtype="float64").dtype == np.float64
    for function in (linalg.diagonal, linalg.trace):
        with pytest.raises(InvalidArgument):
            function(x[0, 0])


def test_cross_and_the_products() -> None:
    a, b = random(4, 3), random(4, 3, seed=1)
    near(linalg.cross(tensor(a), tensor(b)), np.cross(a, b))
    near(linalg.cross(tensor(a.T), tensor(b.T), axis=0), np.cross(a, b).T)
    near(linalg.cross(tensor(a.T), tensor(b.T), dim=0), np.cross(a, b).T)
    near(linalg.vecdot(tensor(a), tensor(b), dim=0), (a * b).sum(0))
    with pytest.raises(InvalidArgument):
        linalg.cross(tensor(a.T), tensor(b.T))
    for name in ("matmul", "tensordot", "vecdot", "outer", "matrix_transpose"):
        assert getattr(linalg, name) is getattr(shmtensor, name)
    assert all(getattr(linalg, name) is not None for name in linalg.__all__)


# -- bad input ---------------------------------------------------------------------------------------------------------

SQUARE = ("cholesky", "eigh", "eigvalsh", "eig", "eigvals", "inv", "det", "slogdet", "expm", "logm", "sqrtm")
ANY = ("qr", "svd", "svdvals", "pinv", "matrix_rank", "lu", "lu_factor")


@pytest.mark.parametrize("name", SQUARE + ANY)
def test_what_is_no_matrix_for_it(name: str) -> None:
    function = getattr(linalg, name)
    for vector in (shmtensor.ones(3), shmtensor.tensor(1.0)):
        with pytest.raises(InvalidArgument, match=rf"{name}.*matrices"):
            function(vector)
    if name in SQUARE:
        with pytest.raises(InvalidArgument, match=rf"{name}.*\(2, 3\).*square"):
            function(shmtensor.ones(2, 3))
    for dtype in ("int64", "bool", "float16"):
        with pytest.raises(DTypeError, match=rf"{name}.*{dtype}"):
            function(shmtensor.ones(2, 2, dtype=dtype))
    with pytest.raises(DTypeError, match="ndarray"):
        function(np.eye(2))


@pytest.mark.parametrize("name", ["vector_norm", "matrix_norm", "norm"])
def test_norms_of_integers(name: str) -> None:
    with pytest.raises(DTypeError, match="int64"):
        getattr(linalg, name)(shmtensor.ones(2, 2, dtype="int64"))
    assert getattr(linalg, name)(shmtensor.ones(2, 2, dtype="float16")).dtype == np.float16


def test_matrices_without_an_answer() -> None:
    singular = shmtensor.tensor([[1.0, 2], [2, 4]])
    stack = shmtensor.stack([shmtensor.eye(2), shmtensor.zeros(2, 2)])
    for one in (singular, stack):
        for routine, bad in (
            ("gesv", lambda one=one: linalg.inv(one)),
            ("gesv", lambda one=one: linalg.solve(one, shmtensor.ones(2))),
            ("potrf", lambda one=one: linalg.cholesky(-one)),
            ("gesv", lambda one=one: linalg.matrix_power(one, -1)),
        ):
            with pytest.raises(LinAlgError, match=f"LAPACK {routine}") as found:
                bad()
            assert isinstance(found.value, ShmTensorError) and isinstance(found.value, np.linalg.LinAlgError)
    with pytest.raises(LinAlgError, match=r"svd.*gesdd"):
        linalg.svd(shmtensor.full((2, 2), float("nan")))
    assert linalg.det(singular).item() == 0
    assert linalg.slogdet(shmtensor.zeros(2, 2)).logabsdet.item() == float("-inf")


@scipy_there
def test_failures_of_scipys_routines_name_the_place() -> None:
    singular = shmtensor.tensor([[1.0, 2], [2, 4]])
    stack = shmtensor.stack([shmtensor.eye(2), singular])
    with pytest.raises(LinAlgError, match=r"lu_factor.*getrf: U\(2,2\) is zero"):
        linalg.lu_factor(singular)
    with pytest.raises(LinAlgError, match=r"U\(2,2\) is zero.*\(matrix \(1,\) of the stack\)"):
        linalg.lu_factor(stack)
    with pytest.raises(LinAlgError, match=r"trtrs: A\(1,1\) is zero"):
        linalg.solve_triangular(shmtensor.tensor([[0.0, 1], [0, 1]]), shmtensor.ones(2), upper=True)
    both, pivots = shmtensor.lu(singular)
    with pytest.raises(LinAlgError, match=r"getrs: U\(2,2\) is zero"):
        linalg.lu_solve(both, pivots, shmtensor.ones(2))
    near(shmtensor.matmul(shmtensor.matmul(*linalg.lu(stack)[:2]), linalg.lu(stack).U), stack.numpy())


@pytest.mark.parametrize("name", ["solve", "lstsq"])
def test_right_sides_that_do_not_fit(name: str) -> None:
    function, a = getattr(linalg, name), tensor(regular(2, 3, 3))
    for b in (random(2), random(2, 2), random(3, 2, 2), random(3, 2)[:2]):
        with pytest.raises(InvalidArgument, match="right side"):
            function(a, tensor(b))
    with pytest.raises(InvalidArgument):
        function(a, tensor(random(5, 3, 2)))
    with pytest.raises(DTypeError):
        function(a, shmtensor.ones(3, dtype="int64"))


@scipy_there
def test_right_sides_of_scipys_routines() -> None:
    a = tensor(regular(2, 3, 3))
    factors = linalg.lu_factor(a)
    for b in (random(2), random(2, 2), random(5, 3, 2)):
        with pytest.raises(InvalidArgument):
            linalg.solve_triangular(a, tensor(b), upper=True)
        with pytest.raises(InvalidArgument):
            linalg.lu_solve(*factors, tensor(b))
    with pytest.raises(DTypeError, match="float64 and float32"):
        linalg.solve_triangular(a, shmtensor.ones(3), upper=True)
    with pytest.raises(DTypeError, match="pivots"):
        linalg.lu_solve(factors.LU, shmtensor.ones(2, 3), tensor(random(3)))
    for pivots in ([1, 2], [0, 1, 2], [1, 2, 4]):
        with pytest.raises(InvalidArgument, match="pivots"):
            linalg.lu_solve(factors.LU, shmtensor.tensor(pivots), tensor(random(3)))
    for bad in (
        lambda: linalg.solve_triangular(a, tensor(random(3)), upper=True, left=False),
        lambda: linalg.lu_solve(*factors, tensor(random(3)), left=False),
    ):
        with pytest.raises(InvalidArgument, match="one row"):
            bad()


def test_qr_modes() -> None:
    with pytest.raises(InvalidArgument, match="mode 'raw'"):
        linalg.qr(shmtensor.eye(2), mode="raw")


# -- memory ------------------------------------------------------------------------------------------------------------


@scipy_there
@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "svdvals", "eigvalsh", "lu_factor", "expm", "matrix_rank"])
def test_shared_read_only_and_strided_input(name: str) -> None:
    a = positive(2, 4, 4)
    wanted = getattr(linalg, name)(tensor(a))
    wide = shmtensor.zeros(2, 8, 8, dtype="float64", shared=True)
    strided = wide[:, ::2, ::2]
    strided.copy_(tensor(a))
    frozen = a.copy()
    frozen.flags.writeable = False
    before = wide.clone()
    for x in (shmtensor.tensor(a, shared=True), strided, wrap(frozen), tensor(a).mT.contiguous().mT):
        found = getattr(linalg, name)(x)
        for one, other in zip(found, wanted, strict=True) if isinstance(found, tuple) else ((found, wanted),):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-9)
            assert not one.is_shared() and one.numpy().flags.writeable
    assert np.array_equal(wide.numpy(), before.numpy())


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 2**16))
def test_svd_is_its_matrix(m: int, n: int, seed: int) -> None:
    a = random(m, n, dtype="float32", seed=seed)
    u, s, vh = linalg.svd(tensor(a), full_matrices=False)
    near((u.numpy() * s.numpy()) @ vh.numpy(), a)
    assert linalg.matrix_rank(tensor(a)).item() <= min(m, n)


# -- SciPy is not there ------------------------------------------------------------------------------------------------

NEEDS_SCIPY = {
    "expm": lambda x: linalg.expm(x),
    "funm": lambda x: linalg.funm(x, np.exp),
    "lu": linalg.lu,
    "lu_factor": linalg.lu_factor,
    "solve_triangular": lambda x: linalg.solve_triangular(x, x, upper=True),
    "gesv": lambda x: shmtensor.gesv(x, x),
    "gels": lambda x: shmtensor.gels(x, x),
    "cholesky_inverse": shmtensor.cholesky_inverse,
    "ormqr": lambda x: shmtensor.ormqr(x, shmtensor.ones(2), x),
}


@pytest.mark.parametrize("name", NEEDS_SCIPY)
def test_without_scipy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    with pytest.raises(MissingExtra, match=rf"{name} needs SciPy.*shmtensor\[scipy\]") as found:
        NEEDS_SCIPY[name](shmtensor.eye(2))
    assert isinstance(found.value, ImportError)
    assert linalg.inv(shmtensor.eye(2)).tolist() == [[1, 0], [0, 1]]


def test_scipy_is_loaded_when_it_is_needed() -> None:
    code = "import sys, shmtensor; shmtensor.linalg.inv(shmtensor.eye(2)); print('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


# -- torch -------------------------------------------------------------------------------------------------------------

CASES: dict[str, Any] = {
    "inv": (regular(2, 3, 3),), "det": (random(2, 3, 3),), "slogdet": (random(2, 3, 3),), "cholesky": (positive(3, 3),),
    "eigvalsh": (positive(3, 3),), "svdvals": (random(2, 3, 4),), "pinv": (random(3, 4),), "vander": (random(2, 3),),
    "solve": (regular(2, 3, 3), random(2, 3, 2)), "matrix_exp": (random(2, 3, 3),), "matrix_rank": (random(3, 4),),
    "vecdot": (random(2, 3), random(2, 3, seed=1)), "cond": (random(2, 3, 3),), "matrix_norm": (random(2, 3, 3),),
    "vector_norm": (random(2, 3, 3),), "norm": (random(3, 3),), "lu": (random(2, 3, 4),),
    "tensorinv": (regular(4, 4).reshape(2, 2, 4),),
    "lu_factor": (random(2, 3, 3),), "lstsq": (random(2, 5, 3), random(2, 5, 2)), "cross": (random(4, 3), random(4, 3)),
    "diagonal": (random(2, 3, 4),),
}  # fmt: skip


@scipy_there
@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_as_torch_has_it(name: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = [np.ascontiguousarray(a) for a in CASES[name]]
    how = {"driver": "gelsd"} if name == "lstsq" else {}
    ours = getattr(linalg, name)(*[tensor(a) for a in arrays], **how)
    theirs = getattr(torch.linalg, name)(*[torch.from_numpy(a) for a in arrays], **how)
    for one, other in zip(ours, theirs, strict=True) if isinstance(ours, tuple) else ((ours, theirs),):
        assert one.shape == tuple(other.shape)
        assert str(other.dtype) == f"torch.{one.dtype.name}"
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-9)


# -- what is not finite ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("name", ["svd", "pinv", "lstsq"])
def test_infinities_are_refused_where_lapack_would_not_end(name: str, value: float) -> None:
    a = regular(3, 3)
    a[0, 1] = value
    how = {"b": tensor(np.ones((3, 1)))} if name == "lstsq" else {}
    with pytest.raises(LinAlgError, match=f"{name} of .*infinities or NaN"):
        getattr(linalg, name)(tensor(a), **how)


@scipy_there
def test_the_exponential_of_infinities_ends() -> None:
    a = np.zeros((2, 2, 2))
    a[0, 0, 1] = np.inf
    assert np.isnan(linalg.matrix_exp(tensor(a)).numpy()).tolist() == [[[True] * 2] * 2, [[False] * 2] * 2]
    assert linalg.matrix_exp(tensor(np.full((1, 1), np.inf))).tolist() == [[np.inf]]
