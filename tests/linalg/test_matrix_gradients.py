"""Gradients of decompositions, solutions, functions and norms of matrices, beside differences, and in edge cases."""

import math

import numpy as np
import pytest
from tiers import first

import shmtensor as st
from shmtensor import linalg
from shmtensor.autograd import grad, gradcheck, gradgradcheck
from shmtensor.errors import GradientError, NotSupported

NORMS = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)


def hermitian(x):
    return x @ x.mH + st.eye(x.shape[-2], dtype=x.dtype)


def regular(x):
    return x + 4 * st.eye(x.shape[-1], dtype=x.dtype)


SQUARE = {
    "cholesky": lambda x: linalg.cholesky(hermitian(x)),
    "cholesky, upper": lambda x: st.cholesky(hermitian(x), upper=True),
    "cholesky_ex": lambda x: linalg.cholesky_ex(hermitian(x))[0],
    "cholesky_solve": lambda x: st.cholesky_solve(x[0], regular(x).tril()),
    "cholesky_solve, upper": lambda x: st.cholesky_solve(x, regular(x).triu(), True),
    "cholesky_inverse": lambda x: st.cholesky_inverse(linalg.cholesky(hermitian(x))),
    "eigh": lambda x: (linalg.eigh(hermitian(x))[0], linalg.eigh(hermitian(x))[1].abs()),
    "eigvalsh": lambda x: linalg.eigvalsh(hermitian(x), UPLO="U"),
    "symeig": lambda x: st.symeig(hermitian(x), True)[1].abs(),
    "symeig of values": lambda x: st.symeig(hermitian(x))[0],
    "eig": lambda x: (linalg.eig(x)[0], linalg.eig(x)[1].abs()),
    "eigvals": lambda x: linalg.eigvals(x),
    "det": lambda x: linalg.det(x),
    "slogdet": lambda x: linalg.slogdet(x),
    "logdet": lambda x: st.logdet(hermitian(x)),
    "inv": lambda x: linalg.inv(regular(x)),
    "inv_ex": lambda x: linalg.inv_ex(regular(x))[0],
    "solve": lambda x: linalg.solve(regular(x), x[:, :2]),
    "solve of a vector": lambda x: linalg.solve(regular(x), x[0]),
    "solve from the right": lambda x: linalg.solve(regular(x), x[:2], left=False),
    "solve_ex": lambda x: linalg.solve_ex(regular(x), x)[0],
    "gesv": lambda x: st.gesv(x, regular(x))[0],
    "solve_triangular": lambda x: linalg.solve_triangular(regular(x), x, upper=True, left=False),
    "solve_triangular, unit": lambda x: linalg.solve_triangular(x, x[0], upper=False, unitriangular=True),
    "triangular_solve": lambda x: st.triangular_solve(x, regular(x), transpose=True),
    "lu_solve": lambda x: linalg.lu_solve(*linalg.lu_factor(regular(x)), x, adjoint=True),
    "lu_solve from the right": lambda x: linalg.lu_solve(*linalg.lu_factor(regular(x)), x[:2], left=False),
    "matrix_power": lambda x: linalg.matrix_power(x, 6),
    "matrix_power below 0": lambda x: linalg.matrix_power(regular(x), -3),
    "matrix_exp": lambda x: linalg.matrix_exp(x),
    "logm": lambda x: linalg.logm(hermitian(x)),
    "sqrtm": lambda x: linalg.sqrtm(hermitian(x)),
    "cosm": lambda x: linalg.cosm(x),
    "fractional_matrix_power": lambda x: linalg.fractional_matrix_power(hermitian(x), 0.4),
    "tensorsolve": lambda x: linalg.tensorsolve(regular(x)[None], x[0], dims=(0,)),
    "tensorinv": lambda x: linalg.tensorinv(regular(x)[None], 2),
    **{f"cond {p}": lambda x, p=p: linalg.cond(x, p) for p in (None, *NORMS)},
}
ESTIMATED = ("logm", "fractional_matrix_power")  # SciPy chooses their approximation with random numbers
TALL = {
    "qr": lambda x: linalg.qr(x),
    "svd": lambda x: [one.abs() for one in linalg.svd(x, full_matrices=False)],
    "svd of TH": lambda x: [one.abs() for one in st.svd(x)],
    "svdvals": lambda x: linalg.svdvals(x),
    "lu": lambda x: linalg.lu(x)[1:],
    "lu_factor": lambda x: linalg.lu_factor(x)[0],
    "lu_unpack": lambda x: st.lu_unpack(x, st.tensor([2, 2, 3][: min(x.shape)], dtype=st.int32))[1:],
    "pinv": lambda x: linalg.pinv(x),
    "lstsq": lambda x: linalg.lstsq(x, x[:, :2] ** 2, driver="gelsd")[0],
    "vander": lambda x: linalg.vander(x, 3),
    **{f"matrix_norm {ord}": lambda x, ord=ord: linalg.matrix_norm(x, ord) for ord in NORMS},
    **{
        f"vector_norm {ord}": lambda x, ord=ord: linalg.vector_norm(x, ord, dim=1)
        for ord in (0, 0.5, 1, 1.5, 2, 3, math.inf, -math.inf)
    },
    "norm": lambda x: linalg.norm(x),
}


def leaf(shape, kind):
    rng = np.random.default_rng(7)
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind == "complex" else 0)
    return st.tensor(values).requires_grad_()


def check(function, x, nondet_tol=0.0):
    assert gradcheck(function, (x,), nondet_tol=nondet_tol)
    assert gradgradcheck(function, (x,), nondet_tol=nondet_tol)


@pytest.mark.parametrize("kind", first(["real", "complex"]))
@pytest.mark.parametrize("name", SQUARE)
def test_gradients_of_square_matrices(name, kind):
    check(SQUARE[name], leaf((3, 3), kind), 1e-9 if name in ESTIMATED else 0.0)


@pytest.mark.parametrize("kind", first(["real", "complex"]))
@pytest.mark.parametrize("shape", [(4, 3), (2, 3)], ids=["tall", "wide"])
@pytest.mark.parametrize("name", TALL)
def test_gradients_of_matrices_of_any_shape(name, shape, kind):
    check(TALL[name], leaf(shape, kind))


@pytest.mark.parametrize("kind", first(["real", "complex"]))
def test_gradients_of_reflectors(kind):
    x, tau, other = leaf((4, 3), kind), leaf((2,), kind), leaf((4, 2), kind)
    assert gradcheck(linalg.householder_product, (x, tau))
    for how in ((True, False), (True, True)):
        assert gradcheck(lambda x, tau, other, how=how: st.ormqr(x[:, :2], tau, other, *how), (x, tau, other))
    assert gradcheck(lambda x, tau, other: st.ormqr(x[:, :2], tau, other.T, False, True), (x, tau, other))


def test_gradients_of_stacks_and_right_sides_that_broadcast():
    a, b = leaf((2, 3, 3), "real"), leaf((3, 2), "real")
    assert gradcheck(lambda a, b: linalg.solve(regular(a), b), (a, b))
    assert gradcheck(lambda a: linalg.matrix_norm(a, 2, dim=(0, 2)), (a,))


def test_sums_of_squares_of_lstsq_have_gradients():
    a, b = leaf((4, 2), "complex"), leaf((4, 3), "complex")
    assert gradcheck(lambda a, b: linalg.lstsq(a, b, driver="gelsd")[:2], (a, b))
    assert not linalg.lstsq(a, b, driver="gelsd").singular_values.requires_grad


def test_largest_singular_values_have_gradients():
    x = leaf((4, 3), "real")
    assert gradcheck(lambda x: st.svd_lowrank(x, 2)[1], (x,))
    assert gradcheck(lambda x: st.pca_lowrank(x, 2)[1], (x,))


def test_a_singular_matrix_has_a_gradient_of_its_determinant():
    x = st.tensor([[1.0, 2, 0], [2, 4, 0], [0, 1, 3]]).double().requires_grad_()
    assert np.allclose(grad(linalg.det(x), x)[0].tolist(), [[12, -6, 2], [-6, 3, -1], [0, 0, 0]])
    zeros = st.zeros(3, 3).double().requires_grad_()
    assert grad(linalg.det(zeros), zeros)[0].tolist() == [[0] * 3] * 3


def test_logarithms_of_determinants_of_singular_matrices_have_infinite_gradients():
    for function in (st.logdet, lambda x: linalg.slogdet(x)[1]):
        x = st.tensor([[1.0, 2], [2, 4]]).double().requires_grad_()
        assert np.isinf(grad(function(x), x)[0].numpy()).all()


def test_singular_values_that_are_equal_have_gradients_where_vectors_are_not_used():
    x = st.eye(3, dtype=st.float64).requires_grad_()
    for values in (linalg.svd(x)[1], linalg.svdvals(x), linalg.eigh(x)[0]):
        assert np.allclose(grad(values.sum(), x)[0].tolist(), np.eye(3))


def test_a_norm_of_zeros_has_the_gradient_0():
    for ord in (0.5, 1, 2, 3):
        x = st.zeros(2).double().requires_grad_()
        assert grad(linalg.vector_norm(x, ord), x)[0].tolist() == [0, 0]


def test_what_has_no_gradient_says_so():
    x = leaf((4, 3), "real")
    with pytest.raises(NotSupported, match="reduced"):
        grad(linalg.qr(x, "complete")[1].sum(), x)
    with pytest.raises(GradientError, match="geqrf has no gradient"):
        grad(st.geqrf(x)[0].sum(), x)
    assert not linalg.matrix_rank(x).requires_grad
