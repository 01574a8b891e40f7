"""gradcheck and gradgradcheck find wrong gradients, and accept right ones."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st
from shmtensor.autograd import Function, GradcheckError, gradcheck, gradgradcheck
from shmtensor.autograd.sparse import SparseGradient


def double(*shape: int, complex: bool = False) -> Any:
    made = st.rand(*shape, dtype=st.complex128 if complex else st.float64) + 0.5
    return made.requires_grad_()


def with_rule(forward: Any, backward: Any) -> Any:
    class Made(Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            ctx.save_for_backward(*tensors)
            return forward(*tensors)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(*gradients, *ctx.saved_tensors)

    return Made.apply


def test_right_gradients() -> None:
    x, y = double(2, 3), double(3)
    for function in (
        lambda x, y: x * y,
        lambda x, y: (x @ y, x.sum(), y.exp()),
        lambda x, y: [x / y, (x > 0.7).long()],
    ):
        assert gradcheck(function, (x, y)) and gradgradcheck(function, (x, y))
    assert gradcheck(lambda x: x.exp(), x)
    z = double(3, complex=True)
    for function in (lambda x, z: x.sum(0) * z, lambda x, z: z.abs() * x, lambda x, z: (z.conj() * z).real):
        assert gradcheck(function, (x, z)) and gradgradcheck(function, (x, z))


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (lambda x, y: x * y, lambda g, x, y: (g * y, g * y)),
        (lambda x, y: x * y, lambda g, x, y: (g * y, None)),
        (lambda x, y: x + y, lambda g, x, y: (g, -g)),
        (lambda x, y: x * y, lambda g, x, y: (g * y * 1.01, g * x)),
        (lambda x, y: (x, y * 2), lambda g, h, x, y: (g, g * 2)),
    ],
    ids=["other input", "none", "sign", "1 %", "other result"],
)
def test_wrong_gradients(forward: Any, backward: Any) -> None:
    function, inputs = with_rule(forward, backward), (double(3), double(3))
    with pytest.raises(GradcheckError, match=r"input [01] is wrong"):
        gradcheck(function, inputs)
    assert not gradcheck(function, inputs, raise_exception=False)


def test_a_wrong_complex_gradient() -> None:
    function = with_rule(lambda z: z * z, lambda g, z: g * 2 * z)  # without the conjugate
    with pytest.raises(GradcheckError):
        gradcheck(function, double(3, complex=True))
    assert gradcheck(with_rule(lambda z: z * z, lambda g, z: g * 2 * z.conj()), double(3, complex=True))


def test_a_wrong_second_gradient() -> None:
    function = with_rule(lambda x: x**3, lambda g, x: g * 3 * x.detach() ** 2)
    x = double(3)
    assert gradcheck(function, x)
    with pytest.raises(GradcheckError):
        gradgradcheck(function, x)


def test_random_functions() -> None:
    x = double(3)
    with pytest.raises(GradcheckError, match="two passes"):
        gradcheck(lambda x: x * st.rand(3), x)
    noisy = with_rule(lambda x: x * 2, lambda g, x: g * 2 + st.rand(3) * 1e-9)
    with pytest.raises(GradcheckError, match="two passes"):
        gradcheck(noisy, x)
    assert gradcheck(noisy, x, nondet_tol=1e-8)


def test_a_result_whose_gradient_must_be_there() -> None:
    class Needs(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 2 + h * 3

    with pytest.raises((GradcheckError, TypeError)):
        gradcheck(Needs.apply, double(2))


def test_a_sparse_gradient_of_another_type() -> None:
    def rows(dtype: Any) -> Any:
        class First(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x[0] * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return SparseGradient(st.tensor([0]), (g * 2).reshape(1).to(dtype), (2,))

        return First.apply

    assert gradcheck(rows(st.float64), double(2), check_grad_dtypes=True)
    assert gradcheck(rows(st.float32), double(2))
    with pytest.raises(GradcheckError, match="the gradient for input 0 is of float32, not float64"):
        gradcheck(rows(st.float32), double(2), check_grad_dtypes=True)


def test_a_result_whose_backward_fails_alone() -> None:
    class Dense(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            if not g.is_contiguous():  # the gradient of a sum is one number in all places
                raise ValueError("gaps")
            return g * 2 + h * 3

    with pytest.raises(GradcheckError, match="backward of result 0 alone failed: gaps") as caught:
        gradcheck(Dense.apply, double(2))
    assert isinstance(caught.value.__cause__, ValueError)
    assert gradcheck(Dense.apply, double(2), check_undefined_grad=False)


def test_inputs_that_cannot_be_checked() -> None:
    with pytest.raises(st.errors.GradientError, match="requires grad"):
        gradcheck(lambda x: x, st.ones(2, dtype=st.float64))
    with pytest.raises(st.errors.DTypeError, match="float32"):
        gradcheck(lambda x: x * 2, st.ones(2, requires_grad=True))


def test_inputs_are_as_before() -> None:
    x = double(4)
    before = x.tolist()
    gradcheck(lambda x: x.exp(), x)
    assert x.tolist() == before and x.grad is None


def test_inputs_with_gaps_and_empty_ones() -> None:
    x = st.rand(4, 4, dtype=st.float64)[::2, 1::2].detach().requires_grad_()
    assert not x.is_contiguous()
    assert gradcheck(lambda x: x.cumsum(0), x) and gradgradcheck(lambda x: x * x, x, gen_non_contig_grad_outputs=True)
    assert gradcheck(lambda x: x * 2, double(0)) and gradcheck(lambda x: x.sum(), double(0))
