"""Gradients of products and convolutions, beside differences; of arrays, other types and broadcast operands too."""

import numpy as np
import pytest
from tiers import first

import shmtensor as st
from shmtensor.autograd import grad, gradcheck, gradgradcheck

CASES = {
    "matmul": (lambda a, b: a @ b, (2, 3), (3, 4)),
    "matmul of vectors": (lambda a, b: a @ b, (3,), (3,)),
    "matmul of a vector and stacks": (lambda a, b: a @ b, (3,), (2, 3, 2)),
    "matmul of stacks and a vector": (lambda a, b: a @ b, (2, 1, 2, 3), (3,)),
    "matmul of stacks and a matrix": (lambda a, b: a @ b, (2, 2, 3), (3, 2)),
    "matmul of stacks that broadcast": (lambda a, b: a @ b, (2, 1, 2, 3), (3, 3, 2)),
    "mm": (lambda a, b: a.mm(b), (2, 3), (3, 2)),
    "bmm": (lambda a, b: a.bmm(b), (2, 2, 3), (2, 3, 2)),
    "mv": (lambda a, b: a.mv(b), (2, 3), (3,)),
    "dot": (lambda a, b: a.dot(b), (3,), (3,)),
    "vdot": (lambda a, b: a.vdot(b), (3,), (3,)),
    "vecdot": (lambda a, b: st.vecdot(a, b, dim=0), (3, 2), (3, 1)),
    "outer": (lambda a, b: a.outer(b), (3,), (2,)),
    "inner": (lambda a, b: a.inner(b), (2, 3), (4, 2, 3)),
    "inner with a number": (lambda a, b: a.inner(b), (2, 3), ()),
    "kron": (lambda a, b: a.kron(b), (2, 3), (2, 1, 2)),
    "kron of scalars": (lambda a, b: a.kron(b), (), ()),
    "tensordot": (lambda a, b: st.tensordot(a, b, ([2, 0], [0, -1])), (2, 3, 4), (4, 3, 2)),
    "tensordot of axes of size 1": (lambda a, b: st.tensordot(a, b, ([0, 1], [1, 0])), (2, 3), (1, 2, 2)),
    "tensordot of all": (lambda a, b: st.tensordot(a, b), (2, 3), (2, 3)),
    "addmm": (lambda a, b: st.addmm(a[:1], a, b, beta=0.5, alpha=2), (2, 3), (3, 3)),
    "addmv": (lambda a, b: st.addmv(b, a, b, alpha=2), (3, 3), (3,)),
    "addr": (lambda a, b: st.addr(a[0, 0], a[0], b, beta=2, alpha=0.5), (2, 3), (2,)),
    "baddbmm": (lambda a, b: st.baddbmm(b, a, b, alpha=0.5), (2, 3, 3), (2, 3, 2)),
    "addbmm": (lambda a, b: st.addbmm(b[0], a, b, beta=2), (2, 3, 3), (2, 3, 2)),
    "chain_matmul": (lambda a, b: st.chain_matmul(a, b, a), (2, 3), (3, 2)),
    "multi_dot": (lambda a, b: st.linalg.multi_dot([a, b, a]), (3,), (3, 3)),
    "cross": (lambda a, b: a.cross(b, 0), (3, 2), (3, 2)),
    "linalg.cross": (lambda a, b: st.linalg.cross(a, b), (2, 3), (1, 3)),
    "einsum": (lambda a, b: st.einsum("ij,jk->ki", a, b), (2, 3), (3, 4)),
    "einsum of a diagonal": (lambda a, b: st.einsum("iij,j->i", a, b), (3, 3, 2), (2,)),
    "einsum of an ellipsis": (lambda a, b: st.einsum("...ij,j...->...i", a, b), (2, 2, 3), (3, 2)),
    "einsum that sums alone": (lambda a, b: st.einsum("ij,kl->l", a, b), (2, 3), (2, 2)),
    "einsum of axes of size 1": (lambda a, b: st.einsum("ij,ij->i", a, b), (2, 1), (2, 3)),
    "einsum by numbers": (lambda a, b: st.einsum(a, [0, 1], b, [1, 2], [0, 2]), (2, 3), (3, 2)),
    "trace": (lambda a, b: a.trace() * b, (2, 3), ()),
    "linalg.trace": (lambda a, b: st.linalg.trace(a, offset=1) * b, (2, 2, 3), (2,)),
    "conv2": (lambda a, b: st.conv2(a, b, stride=2), (2, 5, 4), (2, 2, 3)),
    "conv2 of stacks": (lambda a, b: st.conv2(a, b, "F", stride=(1, 2)), (2, 2, 2, 3), (2, 2, 2, 2)),
    "xcorr2": (lambda a, b: st.xcorr2(a, b, "F"), (2, 3), (2, 2)),
    "conv3": (lambda a, b: st.conv3(a, b), (2, 2, 3, 3), (1, 2, 1, 2, 2)),
    "xcorr3": (lambda a, b: st.xcorr3(a, b, stride=(1, 2, 1)), (2, 3, 3), (1, 2, 2)),
}


def leaf(shape, kind, rng):
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind == "complex" else 0)
    return st.tensor(values).requires_grad_()


@pytest.mark.parametrize("kind", first(["complex", "real"]))
@pytest.mark.parametrize("name", CASES)
def test_gradients_beside_differences(name, kind):
    function, *shapes = CASES[name]
    rng = np.random.default_rng(6)
    tensors = tuple([leaf(shape, kind, rng) for shape in shapes])
    assert gradcheck(function, tensors)
    assert gradgradcheck(function, tensors)


def test_products_with_arrays():
    x, a = st.ones(2, 3).double().requires_grad_(), np.arange(6.0).reshape(3, 2)
    assert grad((x @ a).sum(), x)[0].tolist() == [[1, 5, 9]] * 2
    assert grad((a @ x).sum(), x)[0].tolist() == [[6] * 3, [9] * 3]


def test_products_of_a_stack_of_no_rows():
    x, w = st.ones(2, 0, 3).requires_grad_(), st.ones(3, 2).requires_grad_()
    found = grad((x @ w).sum(), (x, w))
    assert [one.shape for one in found] == [(2, 0, 3), (3, 2)]
    assert found[1].tolist() == [[0, 0]] * 3


def test_gradients_have_the_types_of_their_operands():
    x, y = st.ones(2).requires_grad_(), st.ones(2).double().requires_grad_()
    for function in (st.outer, st.kron, st.inner, lambda a, b: st.tensordot(a, b, 1)):
        assert [one.dtype for one in grad(function(x, y).sum(), (x, y))] == [st.float32, st.float64]
    assert grad(st.outer(x, st.tensor([1, 2])).sum(), x)[0].tolist() == [3, 3]
