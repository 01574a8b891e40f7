"""The examples of autograd's first documents, of 2016 and 2017, with their old names."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st
from shmtensor.autograd import Function, Variable


def test_a_product_and_its_gradient() -> None:
    a = Variable(st.FloatTensor([2]), requires_grad=True)
    b = Variable(st.FloatTensor([3]), requires_grad=True)
    c = a * b
    assert c.creator is c.grad_fn and c.requires_grad and not a.grad_fn
    c.backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([3.0], [2.0])


def test_the_gradient_starts_from_what_is_passed() -> None:
    x = Variable(st.ones(2, 2), requires_grad=True)
    y = x + 2
    z = y * y * 3
    out = z.mean()
    out.backward(st.Tensor([1.0]).reshape(()))
    assert x.grad.tolist() == [[4.5, 4.5], [4.5, 4.5]]


def test_flags_spread() -> None:
    x, y = Variable(st.randn(5, 5)), Variable(st.randn(5, 5))
    z = Variable(st.randn(5, 5), requires_grad=True)
    a = x + y
    b = a + z
    assert (a.requires_grad, b.requires_grad) == (False, True)
    assert not Variable(st.ones(1), volatile=True).requires_grad
    assert isinstance(st.ones(1), Variable) and not isinstance(1.0, Variable)
    assert isinstance(z.data, st.Tensor) and not z.data.requires_grad


def test_the_graph_is_followed_by_hand() -> None:
    x = Variable(st.ones(2), requires_grad=True)
    y = (x * x).sum()
    assert y.grad_fn.name() == "SumBackward"
    (above,) = y.grad_fn.previous_functions
    assert above[0].name() == "MultiplyBackward" and above[1] == 0
    leaf = above[0].next_functions[0][0]
    assert leaf.variable is x and above[0].next_functions[1][0] is leaf


class Linear(Function):
    """A custom function as it is written today: static, with a context."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        ctx.save_for_backward(x, weight, bias)
        output = x.mm(weight.t())
        return output if bias is None else output + bias

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, weight, bias = ctx.saved_variables
        return (
            g.mm(weight) if ctx.needs_input_grad[0] else None,
            g.t().mm(x) if ctx.needs_input_grad[1] else None,
            g.sum(0) if bias is not None and ctx.needs_input_grad[2] else None,
        )


class OldLinear(Function):
    """The same as it was written then: an object for each call."""

    def forward(self, x: Any, weight: Any, bias: Any = None) -> Any:
        self.save_for_backward(x, weight, bias)
        output = x.mm(weight.t())
        return output if bias is None else output + bias

    def backward(self, g: Any) -> Any:
        x, weight, bias = self.saved_tensors
        return g.mm(weight), g.t().mm(x), None if bias is None else g.sum(0)


@pytest.mark.parametrize("apply", [Linear.apply, lambda *args: OldLinear()(*args)], ids=["static", "object"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_function_of_ones_own(apply: Any, has_bias: bool) -> None:
    x = st.arange(6, dtype=st.float64).reshape(2, 3).requires_grad_()
    weight = st.ones(4, 3, dtype=st.float64, requires_grad=True)
    bias = st.zeros(4, dtype=st.float64, requires_grad=True) if has_bias else None
    y = apply(x, weight, bias) if has_bias else apply(x, weight)
    assert y.tolist() == [[3.0] * 4, [12.0] * 4] and y.requires_grad
    y.backward(st.ones_like(y))
    assert x.grad.tolist() == [[4.0] * 3] * 2
    assert weight.grad.tolist() == [[3.0, 5.0, 7.0]] * 4
    if bias is not None:
        assert bias.grad.tolist() == [2.0] * 4


def test_the_engine_calls_in_the_order_of_the_graph() -> None:
    calls = []

    class Note(Function):
        @staticmethod
        def forward(ctx: Any, name: str, *tensors: Any) -> Any:
            ctx.name, ctx.count = name, len(tensors)
            return sum(tensors)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            calls.append(ctx.name)
            return (None, *[g] * ctx.count)

    x = st.ones(1, requires_grad=True)
    first = Note.apply("first", x)
    left, right = Note.apply("left", first), Note.apply("right", first)
    longer = Note.apply("longer", right)
    Note.apply("last", left, longer, left).backward()
    assert calls == [
        "last",
        "longer",
        "right",
        "left",
        "first",
    ]  # each once, after all that follow from it, the latest first
    assert x.grad.tolist() == [3.0]
