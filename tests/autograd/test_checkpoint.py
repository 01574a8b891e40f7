"""Checkpoints, beside torch."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import shmtensor as st


@pytest.fixture
def checkpoint(t: Any) -> Any:
    if t is st:
        return st.autograd.checkpoint
    from torch.utils.checkpoint import checkpoint

    return lambda *args, **how: checkpoint(*args, use_reentrant=False, **how)


def test_gradients_are_those_without(t: Any, checkpoint: Any) -> None:
    w = t.tensor([2.0, 3.0], dtype=t.float64, requires_grad=True)
    x = t.tensor([1.0, 4.0], dtype=t.float64, requires_grad=True)
    calls = []

    def part(y: Any, factor: float, *, plus: float) -> Any:
        calls.append(t.is_grad_enabled())
        return (y * w * factor).exp() + plus

    direct = t.autograd.grad((part(x, 0.1, plus=1) * x).sum(), [x, w])
    calls.clear()
    y = checkpoint(part, x, 0.1, plus=1)
    assert len(calls) == 1
    (y * x).sum().backward()
    assert len(calls) == 2
    assert x.grad.tolist() == pytest.approx(direct[0].tolist()) and w.grad.tolist() == pytest.approx(direct[1].tolist())


def test_leaves_alone_need_gradients(t: Any, checkpoint: Any) -> None:
    w = t.ones(1, requires_grad=True)
    checkpoint(lambda x: x * w, t.full((1,), 5.0)).backward()
    assert w.grad.tolist() == [5]


def test_random_numbers_are_the_same_again(t: Any, checkpoint: Any) -> None:
    drawn = []

    def part(x: Any) -> Any:
        drawn.append(t.rand(3))
        return x * drawn[-1]

    x = t.ones(3, requires_grad=True)
    y = checkpoint(part, x)
    between = t.rand(3)
    y.sum().backward()
    assert drawn[0].tolist() == drawn[1].tolist() != between.tolist()
    assert x.grad.tolist() == drawn[0].tolist()


def test_several_results(t: Any, checkpoint: Any) -> None:
    x = t.tensor([3.0], requires_grad=True)
    a, b = checkpoint(lambda y: (y * y, y * 2), x)
    (a + b).backward()
    assert x.grad.tolist() == [8]


def test_in_sequence() -> None:
    x = st.tensor([2.0], requires_grad=True)
    calls = []

    def times(factor: int) -> Any:
        def one(y: Any) -> Any:
            calls.append(factor)
            return y * st.tensor([float(factor)])

        return one

    functions = [times(i) for i in (2, 3, 5, 7, 11)]
    st.autograd.checkpoint_sequential(functions, 2, x).backward()
    assert x.grad.item() == 2 * 3 * 5 * 7 * 11
    assert calls == [2, 3, 5, 7, 11, 2, 3]  # the last segment once


def test_an_error_the_second_time(t: Any, checkpoint: Any) -> None:
    calls = []

    def part(x: Any) -> Any:
        calls.append(x)
        if len(calls) == 2:
            raise KeyError("again")
        return x.exp()

    x = t.ones(1, requires_grad=True)
    y = checkpoint(part, x)
    with pytest.raises(KeyError, match="again"):
        y.backward()
    assert t.is_grad_enabled() and x.grad is None


def test_a_gradient_penalty(t: Any, checkpoint: Any) -> None:
    w = t.tensor([[1.0, 2.0]], dtype=t.float64, requires_grad=True)
    x = t.ones(1, 2, dtype=t.float64, requires_grad=True)

    def loss(call: Any) -> Any:
        out = call(lambda a: (a * w).tanh(), x).sum()
        (g,) = t.autograd.grad(out, x, create_graph=True)
        return out + 10 * (g.norm() - 1) ** 2

    direct = t.autograd.grad(loss(lambda f, *args: f(*args)), [w, x])
    again = t.autograd.grad(loss(checkpoint), [w, x])
    assert [g.tolist() for g in again] == [g.tolist() for g in direct]
    assert again[0].tolist()[0] == pytest.approx([2.7395, 0.7873], abs=1e-4)


def test_results_in_structures(t: Any, checkpoint: Any) -> None:
    x = t.tensor([3.0], requires_grad=True)
    found = checkpoint(lambda y: {"a": [y * y, (y.exp(), 5)], "b": None}, x)
    (found["a"][0] + found["a"][1][0]).backward()
    assert found["a"][1][1] == 5 and found["b"] is None
    assert x.grad.tolist() == pytest.approx([6 + 20.085537])


def test_gradients_of_some_only(t: Any, checkpoint: Any) -> None:
    w = t.tensor([2.0], requires_grad=True)
    x = t.tensor([3.0], requires_grad=True)
    (gx,) = t.autograd.grad(checkpoint(lambda a: a * w, x), x)
    assert gx.tolist() == [2] and [x.grad, w.grad] == [None, None]
    gx, gw = t.autograd.grad(checkpoint(lambda a: a * w, x), [x, w])
    assert (gx.tolist(), gw.tolist()) == ([2], [3])
    checkpoint(lambda a: a * w, x).backward(inputs=[x])
    assert x.grad.tolist() == [2] and w.grad is None


def test_tensors_from_everywhere(t: Any, checkpoint: Any) -> None:
    w = t.tensor([2.0], requires_grad=True)
    h = w.exp()  # not a leaf; it is used from the closure, in a list, in a dict and by name
    y = checkpoint(lambda a, *, k: a[0] * h * a[1]["x"] * k.tanh(), [h * 2, {"x": h * 3}], k=h)
    y.backward()
    direct = t.autograd.grad((w.exp() * 2) * w.exp() * (w.exp() * 3) * w.exp().tanh(), w)[0]
    assert w.grad.tolist() == pytest.approx(direct.tolist())


def test_hooks_run_once(t: Any, checkpoint: Any) -> None:
    w = t.tensor([2.0], requires_grad=True)
    x = t.tensor([3.0], requires_grad=True)
    seen: list[Any] = []
    w.register_hook(lambda g: seen.append(("hook", g.tolist())))
    w.register_post_accumulate_grad_hook(lambda leaf: seen.append(("after", leaf.grad.tolist())))
    y = checkpoint(lambda a: a * w, x)
    checkpoint(lambda a: a * w, y).backward()
    assert seen == [("hook", [12]), ("after", [12])]


def test_frozen_parameters(t: Any, checkpoint: Any) -> None:
    module = t.nn.Linear(2, 2).requires_grad_(False)
    x = t.ones(1, 2)
    assert not checkpoint(module, x).requires_grad
    module.requires_grad_(True)
    with t.no_grad():
        assert not checkpoint(module, x).requires_grad
    assert checkpoint(module, x).requires_grad


def test_gradients_of_gradients() -> None:
    w = st.tensor([[0.3, 0.7], [0.2, -0.4]], dtype=st.float64, requires_grad=True)
    x = st.tensor([[0.5, 0.1]], dtype=st.float64, requires_grad=True)

    def f(a: Any, b: Any) -> Any:
        c = st.autograd.checkpoint(lambda u, v: (u @ v).tanh().exp(), a, b)
        return st.autograd.checkpoint(lambda u, v: ((u @ v).softmax(-1) * u).cumsum(-1), c, b)

    assert st.autograd.gradcheck(f, (x, w)) and st.autograd.gradgradcheck(f, (x, w))


def test_checkpoints_in_checkpoints(t: Any, checkpoint: Any) -> None:
    x = t.tensor([0.3, 0.6], dtype=t.float64, requires_grad=True)
    calls = []

    def inner(y: Any) -> Any:
        calls.append("inner")
        return y.exp().tanh()

    def outer(y: Any, call: Any) -> Any:
        calls.append("outer")
        return call(inner, call(inner, y.sin()).exp()).exp()

    def plain(function: Any, *args: Any) -> Any:
        return function(*args)

    for create in (False, True):
        found = []
        for call in (plain, checkpoint):
            y = call(outer, call(outer, x, call), call)
            (g,) = t.autograd.grad(y.sum(), x, create_graph=create)
            if create:
                (g,) = t.autograd.grad((g * g).sum(), x)
            found.append(g.tolist())
        assert found[0] == pytest.approx(found[1])
    assert calls.count("outer") >= 8


def test_retained_graphs(t: Any, checkpoint: Any) -> None:
    x = t.tensor([2.0], requires_grad=True)
    calls = []

    def part(y: Any) -> Any:
        calls.append(1)
        return (y.exp() * y).exp().log()

    y = checkpoint(part, x)
    first = t.autograd.grad(y, x, retain_graph=True)[0]
    assert len(calls) == 2  # all values of one pass by one computation
    assert t.autograd.grad(y, x)[0].tolist() == first.tolist()
    assert len(calls) == 3
    with pytest.raises(RuntimeError, match="second time"):
        t.autograd.grad(y, x)


def test_gradients_within_the_function(t: Any, checkpoint: Any) -> None:
    w = t.tensor([0.5], dtype=t.float64, requires_grad=True)
    x = t.tensor([2.0], dtype=t.float64, requires_grad=True)

    def part(a: Any) -> Any:
        (g,) = t.autograd.grad((a * w).exp(), a, create_graph=True)
        return g * a

    direct = t.autograd.grad(part(x), [x, w])
    again = t.autograd.grad(checkpoint(part, x), [x, w])
    assert [g.tolist() for g in again] == [g.tolist() for g in direct]


def test_functions_of_ones_own(t: Any, checkpoint: Any) -> None:
    class Cube(t.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    x = t.tensor([2.0], dtype=t.float64, requires_grad=True)
    (g,) = t.autograd.grad(checkpoint(lambda a: Cube.apply(a.exp()), x), x, create_graph=True)
    (gg,) = t.autograd.grad(g, x)
    assert g.tolist() == pytest.approx([3 * 403.428793]) and gg.tolist() == pytest.approx([9 * 403.428793])


def test_dropout(t: Any, checkpoint: Any) -> None:
    t.manual_seed(5)
    x = t.ones(50, requires_grad=True)
    y = checkpoint(lambda a: t.nn.functional.dropout(a.exp(), 0.5) * a, x)
    before = t.get_rng_state().tolist()
    (g,) = t.autograd.grad(y.sum(), x)
    assert t.get_rng_state().tolist() == before
    assert g.tolist() == pytest.approx((2 * y).tolist()) and 0 in g.tolist()


def test_another_function_the_second_time(t: Any, checkpoint: Any) -> None:
    calls = []

    def more(x: Any) -> Any:
        calls.append(1)
        return x.exp().exp() if len(calls) % 2 else x.exp()

    def larger(x: Any) -> Any:
        calls.append(1)
        return (x.exp() if len(calls) % 2 else x.expand(2).exp()).sum()

    for function in (more, larger):
        calls.clear()
        y = checkpoint(function, t.ones(1, requires_grad=True))
        with pytest.raises(RuntimeError, match=r"(?i)checkpoint"):
            y.backward()


def test_arguments_changed_in_place(t: Any, checkpoint: Any) -> None:
    x = t.ones(1, requires_grad=True).clone()
    y = checkpoint(lambda a: a.exp() * a, x)
    with t.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match=r"(?i)place"):
        y.backward()


@pytest.mark.parametrize("nested", [False, True])
def test_memory_is_released(nested: bool) -> None:
    """Between the passes nothing of a checkpoint is in memory; after the pass neither."""
    alive: list[Any] = []

    def part(x: Any) -> Any:
        for _ in range(3):
            x = x.exp().tanh()
            alive.append(weakref.ref(x._array))
        return x

    def outer(x: Any) -> Any:
        x = x.sin()
        alive.append(weakref.ref(x._array))
        return st.autograd.checkpoint(part, x).cos()

    def count() -> int:
        return sum(one() is not None for one in alive)

    x = st.rand(10, requires_grad=True)
    kept = part(x)
    assert count() == 3
    del kept
    alive.clear()
    y = st.autograd.checkpoint(outer if nested else part, x).sum()
    assert len(alive) == (4 if nested else 3) and count() == 0
    (g,) = st.autograd.grad(y, x, retain_graph=True)
    assert count() == 0  # what a pass computed goes with it
    y.backward()
    assert x.grad is not None and x.grad.tolist() == g.tolist()
    assert count() == 0


def test_an_error_leaves_the_modes_as_they_were() -> None:
    calls: list[int] = []

    def part(x: Any) -> Any:
        calls.append(1)
        y = x.exp()
        if len(calls) != 3:
            raise KeyError("again")
        return y

    x = st.ones(1, requires_grad=True)
    for _ in range(2):
        with pytest.raises(KeyError):
            st.autograd.checkpoint(part, x)
    y = st.autograd.checkpoint(part, x)
    state = st.get_rng_state().tolist()
    for _ in range(2):  # it may be tried again
        with pytest.raises(KeyError):
            y.backward(retain_graph=True)
    calls[:] = [1, 1]
    y.backward()
    assert x.grad is not None and st.get_rng_state().tolist() == state
    z = x.exp()  # kept as ever
    z.backward()


def test_memory_of_functions_of_ones_own_is_released() -> None:
    alive: list[Any] = []

    class Cube(st.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    def part(x: Any) -> Any:
        y = x * 2
        alive.append(weakref.ref(y._array))
        return Cube.apply(y)

    x = st.ones(3, requires_grad=True)
    kept = part(x)
    assert alive.pop()() is not None
    y = st.autograd.checkpoint(part, x).sum()
    assert alive[0]() is None
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [24, 24, 24] and alive[1]() is None
    del kept


def test_without_the_random_state_of_the_first_call(t: Any, checkpoint: Any) -> None:
    drawn = []

    def noise(x: Any) -> Any:
        drawn.append(t.rand(()).item())
        return (x * 2).exp()

    x = t.tensor([0.5, 1.0], requires_grad=True)
    t.manual_seed(3)
    checkpoint(noise, x, preserve_rng_state=False).sum().backward()
    assert x.grad.tolist() == pytest.approx([5.43656, 14.77811])
    assert len(drawn) == 2 and drawn[0] != drawn[1]
    checkpoint(noise, x).sum().backward()
    assert drawn[2] == drawn[3]
