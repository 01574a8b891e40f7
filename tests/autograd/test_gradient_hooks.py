"""Hooks of tensors, of leaves after accumulation and of nodes; gradients that results keep. Beside torch."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st


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


def with_hook(t: Any, place: str, hook: Any) -> Any:
    """The gradient of a leaf with two elements after a pass with a hook at one of the places where hooks are."""
    x = t.ones(2, requires_grad=True)
    y = x * 2
    if place == "leaf":
        x.register_hook(hook)
    elif place == "result":
        y.register_hook(hook)
    elif place == "before":
        y.grad_fn.register_prehook(lambda outputs: (hook(outputs[0]),))
    else:
        y.grad_fn.register_hook(lambda inputs, outputs: (hook(inputs[0]), None))
    y.sum().backward()
    return x.grad


@pytest.mark.parametrize("place", ["leaf", "result", "before", "after"])
def test_what_a_hook_gives_has_the_shape_and_type_of_the_gradient(t: Any, place: str) -> None:
    assert with_hook(t, place, lambda g: g * 3).tolist() == [6, 6]
    for hook, error, message in (
        (lambda g: t.ones(3), (RuntimeError, ValueError), r"shape \(3,\) in place of|changed the size"),
        (lambda g: t.ones(1), (RuntimeError, ValueError), r"shape \(1,\) in place of|changed the size"),
        (lambda g: g.double(), (RuntimeError, TypeError), r"float64 in place of one of float32|changed the type"),
        (lambda g: g * 1j, (RuntimeError, TypeError), r"complex64 in place of|changed the type"),
        (lambda g: "text", TypeError, r"returned a str as gradient|returned 'str'"),
        (lambda g: 3, TypeError, r"returned a int as gradient|returned 'int'"),
    ):
        with pytest.raises(error, match=message) as caught:
            with_hook(t, place, hook)
        assert "<lambda>" in str(caught.value) or t.__name__ == "torch"


def test_a_hook_of_a_node_gives_no_gradient_where_there_was_none(t: Any) -> None:
    x = leaf(t, 1, 2)
    y = x * 2  # the number has no gradient
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0], inputs[0]))
    with pytest.raises((RuntimeError, ValueError), match=r"gradient that is None|None gradient"):
        y.sum().backward()


def test_hooks_of_nodes_give_as_many_gradients_as_they_get(t: Any) -> None:
    def refused(name: str, given: Any, error: Any, message: str) -> None:
        y = leaf(t, 1, 2) * 2
        getattr(y.grad_fn, name)(lambda *gradients: given)
        with pytest.raises(error, match=message) as caught:
            y.sum().backward()
        assert "<lambda>" in str(caught.value) or isinstance(caught.value, TypeError)

    one, number = t.ones(2, dtype=t.float64), (RuntimeError, ValueError)
    refused("register_prehook", (), number, r"0 gradients in place of 1|got 0, but expected 1")
    refused("register_prehook", (one, one), number, r"2 gradients in place of 1|got 2, but expected 1")
    refused("register_prehook", [one], TypeError, r"a list; it must return None, or a tuple|expected tuple")
    refused("register_hook", (), number, r"0 gradients in place of 2|got 0, but expected 2")
    refused("register_hook", (one,), number, r"1 gradients in place of 2|got 1, but expected 2")
    refused("register_hook", [one, None], TypeError, r"a list; it must return None, or a tuple|expected tuple")


def test_a_hook_of_a_node_takes_gradients_away(t: Any) -> None:
    x = leaf(t, 1, 2)
    for place in ("operation", "leaf"):
        y = x * 2
        node = y.grad_fn if place == "operation" else y.grad_fn.next_functions[0][0]
        node.register_prehook(lambda gradients: (None,))
        (y * y).sum().backward()
        assert x.grad is None
    y = x * 2
    y.grad_fn.register_hook(lambda inputs, outputs: (None, None))
    y.sum().backward()
    assert x.grad is None


def test_a_hook_of_a_node_may_return_one_gradient() -> None:
    x = leaf(st, 1, 2)
    y = x.exp() * 1
    y.grad_fn.register_prehook(lambda outputs: outputs[0] * 10)
    y.grad_fn.next_functions[0][0].register_hook(lambda inputs, outputs: st.ones(2, dtype=st.float64) * outputs[0])
    y.sum().backward()
    assert x.grad.tolist() == [10, 10]
