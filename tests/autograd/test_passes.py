"""backward() and grad(), with each of their arguments and refusals, beside torch."""

from __future__ import annotations

from typing import Any

import pytest

import shmtensor as st


def leaf(t: Any, *values: float) -> Any:
    return t.tensor(values, dtype=t.float64, requires_grad=True)


def test_gradients_add_up(t: Any) -> None:
    x = leaf(t, 1, 2)
    for times in (1, 2, 3):
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0 * times, 4.0 * times]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_one_leaf_in_many_places(t: Any) -> None:
    x, y = leaf(t, 2), leaf(t, 5)
    z = x * y + x * x * y + x
    z.backward()
    assert x.grad.tolist() == [5 + 20 + 1] and y.grad.tolist() == [2 + 4]


def test_broadcasting_is_summed_back(t: Any) -> None:
    x, y, z = leaf(t, 1, 2, 3), t.ones(2, 1, dtype=t.float64, requires_grad=True), t.tensor(2.0, requires_grad=True)
    (x * y * z).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist(), z.grad.item()) == ([4, 4, 4], [[12], [12]], 12)
    assert z.grad.dtype == t.float32 and z.grad.shape == ()


def test_several_roots(t: Any) -> None:
    x = leaf(t, 1, 2)
    y, z = x * 2, (x * x).sum()
    t.autograd.backward([y, z], [t.tensor([1.0, 10.0], dtype=t.float64), None])
    assert x.grad.tolist() == [4, 24]
    x.grad = None
    y = x * 2
    t.autograd.backward((y, y), (t.ones_like(y), t.ones_like(y)))
    assert x.grad.tolist() == [4, 4]


def test_a_root_that_another_root_follows_from(t: Any) -> None:
    x = leaf(t, 3)
    y = x * x
    z = y * 2
    t.autograd.backward([z, y])
    assert x.grad.tolist() == [18]


def test_a_leaf_as_root(t: Any) -> None:
    x = leaf(t, 3)
    x.backward()
    x.backward(t.tensor([4.0], dtype=t.float64))
    assert x.grad.tolist() == [5]


def test_inputs_alone_get_gradients(t: Any) -> None:
    x, y = leaf(t, 2), leaf(t, 3)
    between = x * y
    z = between * x
    z.backward(inputs=[x, between], retain_graph=True)
    assert (x.grad.tolist(), y.grad) == ([12], None)
    assert x.grad is not None
    z.backward(inputs=y)
    assert (x.grad.tolist(), y.grad.tolist()) == ([12], [4])


def test_grad_changes_no_grad(t: Any) -> None:
    x, y = leaf(t, 2), leaf(t, 3)
    between = x * y
    z = between * x
    found = t.autograd.grad(z, [y, between, x])
    assert [one.tolist() for one in found] == [[4], [2], [12]]
    assert x.grad is None and y.grad is None
    assert t.autograd.grad((x * 2).sum(), x)[0].tolist() == [2]


def test_grad_of_outputs_with_gradients(t: Any) -> None:
    x = leaf(t, 1, 2)
    (found,) = t.autograd.grad([x * 2, x * x], [x], [t.tensor([1.0, 0], dtype=t.float64), t.ones(2, dtype=t.float64)])
    assert found.tolist() == [4, 4]


def test_grad_of_a_tensor_by_itself(t: Any) -> None:
    x = leaf(t, 3)
    y = x * 2
    assert t.autograd.grad(y, [y, x])[0].tolist() == [1]
    assert t.autograd.grad(x, x)[0].tolist() == [1]
    y = x * 2
    found = t.autograd.grad(y * 3 + x, [y, y, x])
    assert [one.tolist() for one in found] == [[3], [3], [7]]


def test_unused_inputs(t: Any) -> None:
    x, y = leaf(t, 1), leaf(t, 1, 2)
    with pytest.raises(RuntimeError, match=r"depend on input 1 of 2|appears to not have been used"):
        t.autograd.grad(x * 2, [x, y])
    assert t.autograd.grad(x * 2, [x, y], allow_unused=True)[1] is None
    assert t.autograd.grad(x * 2, [y], materialize_grads=True)[0].tolist() == [0, 0]


def test_batches_of_gradients(t: Any) -> None:
    x = leaf(t, 1, 2, 3)
    y = x * x
    (found,) = t.autograd.grad(y, x, t.eye(3, dtype=t.float64), is_grads_batched=True)
    assert found.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 6]]


def test_a_graph_is_released_by_its_pass(t: Any) -> None:
    x = leaf(t, 1, 2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    z = (x + x).sum()  # keeps nothing
    z.backward()
    z.backward()
    assert x.grad.tolist() == [8, 12]


def test_create_graph_gives_second_derivatives(t: Any) -> None:
    x = leaf(t, 2)
    y = x * x * x
    (first,) = t.autograd.grad(y, x, create_graph=True)
    assert first.requires_grad and first.tolist() == [12]
    (second,) = t.autograd.grad(first, x, create_graph=True)
    (third,) = t.autograd.grad(second, x)
    assert (second.tolist(), third.tolist()) == ([12], [6])
    assert not third.requires_grad


@pytest.mark.filterwarnings("ignore:Using backward")
def test_backward_with_create_graph(t: Any) -> None:
    x = leaf(t, 3)
    (x * x).backward(create_graph=True)
    assert x.grad.requires_grad
    gradient, x.grad = x.grad, None
    (gradient * gradient).backward()
    assert x.grad.tolist() == [24]


def test_results_without_a_gradient_are_zeros_for_rules(t: Any) -> None:
    x = leaf(t, 3, 1, 2)
    values, indices = x.sort()
    assert values.requires_grad and not indices.requires_grad
    values[0].backward()
    assert x.grad.tolist() == [0, 1, 0]


def test_gradients_are_of_the_inputs_type(t: Any) -> None:
    x, y = t.ones(2, requires_grad=True), t.ones(2, dtype=t.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (t.float32, t.float64)
    z = t.ones(2, dtype=t.complex64, requires_grad=True)
    x.grad = None
    (x * z).real.sum().backward()
    assert (x.grad.dtype, z.grad.dtype) == (t.float32, t.complex64)


def test_a_gradient_is_not_the_memory_of_what_was_passed(t: Any) -> None:
    x, y = leaf(t, 1, 2), leaf(t, 1, 2)
    g = t.ones(2, dtype=t.float64)
    (x + y).backward(g)
    x.grad.mul_(7)
    assert (g.tolist(), y.grad.tolist()) == ([1, 1], [1, 1])
    x.grad = y.grad = None
    x.backward(g)
    (x + x).backward(g)
    assert (g.tolist(), x.grad.tolist()) == ([1, 1], [3, 3])


def test_added_gradients_do_not_write_to_shared_ones(t: Any) -> None:
    x, y = leaf(t, 1, 2), leaf(t, 1, 2)
    z = x + y  # both get the same gradient
    (z + x * 1).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 2], [1, 1])


def test_a_gradient_stays_the_same_tensor(t: Any) -> None:
    x = leaf(t, 1)
    (x * 2).backward()
    before = x.grad
    (x * 2).backward()
    assert x.grad is before and before.tolist() == [4]


def test_refusals(t: Any) -> None:
    x = leaf(t, 1, 2)
    with pytest.raises(RuntimeError, match=r"shape \(2,\) without a gradient|only for scalar"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        t.ones(1).backward()
    with pytest.raises((RuntimeError, ValueError), match=r"of shape \(2,\) with a gradient of shape \(3,\)|shape"):
        (x * 2).backward(t.ones(3, dtype=t.float64))
    with pytest.raises((RuntimeError, ValueError), match=r"2 tensors with 1 gradients|got 2 tensors and 1 gradients"):
        t.autograd.backward([x * 2, x * 3], [t.ones(2, dtype=t.float64)])
    with pytest.raises(RuntimeError, match="not require grad"):
        t.autograd.grad((x * 2).sum(), t.ones(2))
    with pytest.raises((TypeError, RuntimeError)):
        (x * 2).backward("gradient")
    with pytest.raises((ValueError, RuntimeError), match="inputs"):
        (x * 2).sum().backward(inputs=[])
    with pytest.raises((TypeError, RuntimeError), match=r"inputs has a int; give tensors|but got int"):
        t.autograd.grad((x * 2).sum(), [3])
    assert x.grad is None


def test_only_inputs_cannot_be_false() -> None:
    x = leaf(st, 1, 2)
    with pytest.raises(st.errors.InvalidArgument, match="only_inputs=False; use backward"):
        st.autograd.grad((x * 2).sum(), x, only_inputs=False)
    assert x.grad is None


def test_arguments_in_a_sequence_that_were_changed(t: Any) -> None:
    x, y = leaf(t, 1, 2), leaf(t, 3, 4)
    factors = [x * 1, y * 1]
    result = t.einsum("i,i->", *factors)
    factors[0].mul_(2)
    with pytest.raises(
        RuntimeError, match=r"einsum needs a tensor of float64 and shape \(2,\) that was changed|inplace"
    ):
        result.backward()


def test_what_grad_may_be_set_to(t: Any) -> None:
    x = leaf(t, 1, 2)
    x.grad = t.ones(2, dtype=t.float64)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3, 3]
    for wrong in (t.ones(3, dtype=t.float64), t.ones(2), 1.0, x):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            x.grad = wrong
    del x.grad
    assert x.grad is None


def test_leaves(t: Any) -> None:
    x = t.ones(2)
    assert x.is_leaf and not x.requires_grad and x.grad_fn is None and x.grad is None
    assert (x * 2).is_leaf
    assert x.requires_grad_() is x
    y = x * 2
    assert x.is_leaf and not y.is_leaf and y.requires_grad and y.grad_fn is not None
    with pytest.raises(RuntimeError, match=r"only leaves|only change requires_grad flags of leaf"):
        y.requires_grad = False
    assert y.requires_grad_() is y
    with pytest.raises((RuntimeError, TypeError), match=r"int64|floating point"):
        t.arange(3).requires_grad_()
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_operations_that_never_have_gradients(t: Any) -> None:
    x = leaf(t, 1, 2)
    for result in (x > 1, x.argmax(), x == x, x.long(), x.isnan()):
        assert not result.requires_grad and result.is_leaf


def test_numbers_and_arrays_of_tensors_that_require_grad(t: Any) -> None:
    x = leaf(t, 1, 2)
    with pytest.raises(RuntimeError, match=r"numpy\(\)"):
        x.numpy()
    with pytest.raises(RuntimeError):
        t.add(x, 1, out=t.zeros(2, dtype=t.float64))
    assert x.detach().numpy().tolist() == x.tolist() == [1, 2]
    assert "requires_grad=True" in repr(x) and "grad_fn=<" in repr(x * 2)


def test_a_complex_result_needs_a_gradient(t: Any) -> None:
    z = t.ones(3, dtype=t.complex64, requires_grad=True)
    for run in (lambda y: y.backward(), lambda y: t.autograd.grad(y, z), lambda y: t.autograd.backward([y])):
        with pytest.raises(RuntimeError, match=r"complex64 without a gradient; give one|real scalar outputs"):
            run((z * z).sum())
    (z * z).sum().backward(t.tensor(1, dtype=t.complex64))
    assert z.grad.tolist() == [2, 2, 2]
    (z * z).sum().real.backward()
    assert z.grad.tolist() == [4, 4, 4]
