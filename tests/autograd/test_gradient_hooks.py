"""Hooks of tensors, of leaves after accumulation and of nodes; gradients that results keep. Beside torch."""

from __future__ import annotations

from typing import Any

import pytest


def leaf(t: Any, *values: float) -> Any:
    return t.tensor(values, dtype=t.float64, requires_grad=True)


def test_a_hook_sees_and_replaces_the_gradient(t: Any) -> None:
    x = leaf(t, 1, 2)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(("again", g.tolist())))
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    x.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert seen == [("y", [1, 1]), ("again", [10, 10]), ("x", [30, 30])]
    assert x.grad.tolist() == [31, 31]


def test_a_hook_is_called_once_with_the_whole_gradient(t: Any) -> None:
    x = leaf(t, 2)
    y = x * 1
    calls = []
    y.register_hook(lambda g: calls.append(g.item()))
    (y * y + y * 3).backward()
    assert calls == [7]


def test_a_hook_goes_away(t: Any) -> None:
    x = leaf(t, 1)
    calls = []
    handle = x.register_hook(calls.append)
    (x * 2).backward()
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert len(calls) == 1
    with x.register_hook(calls.append):
        (x * 2).backward()
    (x * 2).backward()
    assert len(calls) == 2


def test_a_hook_may_remove_itself(t: Any) -> None:
    x = leaf(t, 1)
    calls = []
    handle = x.register_hook(lambda g: (calls.append("first"), handle.remove())[1])
    x.register_hook(lambda g: calls.append("second"))
    for _ in range(2):
        (x * 2).backward()
    assert calls == ["first", "second", "second"]


def test_hooks_of_a_leaf_after_accumulation(t: Any) -> None:
    x = leaf(t, 1)
    seen = []

    def step(one: Any) -> None:
        assert one is x
        seen.append(one.grad.item())
        one.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        (x * 2 + x * 3).backward()
    assert seen == [5, 5] and x.grad is None
    handle.remove()
    (x * 2).backward()
    assert x.grad.tolist() == [2]
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).register_post_accumulate_grad_hook(step)


def test_hooks_of_nodes(t: Any) -> None:
    x = leaf(t, 3)
    y = x * x
    seen = []
    node = y.grad_fn
    before = node.register_prehook(lambda outputs: seen.append(("before", [g.item() for g in outputs])))
    node.register_prehook(lambda outputs: tuple([g * 2 for g in outputs]))
    after = node.register_hook(lambda inputs, outputs: seen.append((len(inputs), [g.item() for g in outputs])))
    y.backward(retain_graph=True)
    assert seen == [("before", [1]), (2, [2])] and x.grad.tolist() == [12]
    before.remove()
    after.remove()
    node.register_hook(lambda inputs, outputs: tuple([g * 0 + 1 for g in inputs]))
    y.backward()
    assert len(seen) == 2 and x.grad.tolist() == [14]


def test_hooks_of_a_leafs_node(t: Any) -> None:
    x = leaf(t, 3)
    accumulator = (x * 2).grad_fn.next_functions[0][0]
    seen = []
    accumulator.register_prehook(lambda outputs: seen.append(outputs[0].item()))
    accumulator.register_hook(lambda inputs, outputs: seen.append(x.grad.item()))
    (x * 2).backward()
    assert seen == [2, 2]


def test_a_hook_sees_gradients_in_grad_too(t: Any) -> None:
    x = leaf(t, 3)
    y = x * 2
    y.register_hook(lambda g: g * 5)
    x.register_hook(lambda g: g + 1)
    assert t.autograd.grad(y * 1, y)[0].item() == 5
    y = x * 2
    assert t.autograd.grad(y * 1, x)[0].item() == 3


def test_hooks_with_create_graph(t: Any) -> None:
    x = leaf(t, 3)
    y = x * x
    y.register_hook(lambda g: g * x.detach())
    (found,) = t.autograd.grad(y, x, create_graph=True)
    assert found.item() == 18
    assert t.autograd.grad(found, x)[0].item() == 6


def test_results_keep_their_gradients(t: Any) -> None:
    x = leaf(t, 3)
    y = x * x
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()  # no effect on a leaf
    assert y.retains_grad and not x.retains_grad
    (y * 2).backward()
    assert (y.grad.item(), x.grad.item()) == (2, 12)
    y = x * x
    y.retain_grad()
    y.register_hook(lambda g: g * 100)
    z = y * 1
    z.backward()
    assert y.grad.item() == 100  # what hooks have made of it
    with pytest.raises(RuntimeError, match="require"):
        t.ones(1).retain_grad()


def test_refusals(t: Any) -> None:
    with pytest.raises(RuntimeError, match="require"):
        t.ones(1).register_hook(lambda g: None)
    x = leaf(t, 1)

    def fail(gradient: Any) -> None:
        raise KeyError("mine")

    handle = x.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        (x * 2).backward()
    handle.remove()
    (x * 2).backward()
    assert x.grad.tolist() == [2]


def test_a_hook_may_run_a_pass_of_its_own(t: Any) -> None:
    x, y = leaf(t, 3), leaf(t, 4)
    z = x * 2

    def inner(gradient: Any) -> None:
        assert not t.is_grad_enabled()
        with t.enable_grad():
            (y * y).backward()

    z.register_hook(inner)
    z.backward()
    assert (x.grad.item(), y.grad.item()) == (2, 8)
