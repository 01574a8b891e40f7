"""Tensors that are changed in place while gradients are recorded: results, views and their bases. Beside torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shmtensor as st


def leaf(t: Any, *values: float) -> Any:
    return t.tensor(values, dtype=t.float64, requires_grad=True)


def weights(t: Any, x: Any) -> Any:
    """Different numbers for all elements, so that a gradient in a wrong place is seen."""
    return t.arange(1, x.numel() + 1, dtype=t.float64).reshape(tuple(x.shape))


def gradients(t: Any, function: Any, *leaves: Any) -> list[Any]:
    """Of the sum of a function's result, with weights."""
    y = function(*leaves)
    return [one.tolist() for one in t.autograd.grad((y * weights(t, y)).sum(), leaves)]


def test_results_may_be_changed(t: Any) -> None:
    x, w = leaf(t, 1, 2), leaf(t, 3, 4)
    y = x * 2
    before = y.grad_fn
    y += w
    assert y.grad_fn is not before and not y.is_leaf
    y *= w
    (y * weights(t, y)).sum().backward()
    assert x.grad.tolist() == [6, 16] and w.grad.tolist() == [2 + 2 * 3, 2 * (4 + 2 * 4)]


def test_a_product_with_itself_in_place(t: Any) -> None:
    def square(x: Any) -> Any:
        y = x * 1
        return y.mul_(y)

    def by_other(x: Any) -> Any:
        y = x * 1
        return y.mul_(x)

    x = leaf(t, 3, 4)
    assert gradients(t, by_other, x) == [[6, 16]]
    try:
        assert gradients(t, square, x) == [[6, 16]]
    except RuntimeError:  # torch refuses it: what it needs was changed
        assert t.__name__ == "torch"


def test_what_needs_no_gradient_takes_it_from_what_it_is_changed_by(t: Any) -> None:
    x = leaf(t, 1, 2)
    y = t.zeros(2, dtype=t.float64)
    y += x * 3
    assert y.requires_grad and not y.is_leaf
    y[0] = x[1] * 10
    (y * weights(t, y)).sum().backward()
    assert x.grad.tolist() == [0, 16]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[1:],
        lambda x: x[0],
        lambda x: x[..., 1],
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x.diagonal(),
        lambda x: x.unsqueeze(0)[0, :, 1:],
        lambda x: x.narrow(1, 1, 2).t(),
        lambda x: x.unfold(1, 2, 2),
        lambda x: x.split(1)[1],
        lambda x: x.chunk(2)[0],
        lambda x: x.unbind(1)[2],
        lambda x: x.as_strided((2, 2), (3, 1), 1),
        lambda x: x.view_as(x)[1],
    ],
    ids=range(15),
)
def test_a_view_is_changed(t: Any, view: Any) -> None:
    def base_of_changed(x: Any, w: Any) -> Any:
        y = x * 2
        view(y).mul_(w.sum())
        return y

    def changed(x: Any, w: Any) -> Any:
        y = x * 2
        one = view(y)
        one *= w.sum()
        return one

    def view_of_changed(x: Any, w: Any) -> Any:
        y = x * 2
        one = view(y)
        y.mul_(w.sum())
        return one

    def again(x: Any, w: Any) -> Any:
        y = x * 2
        one = view(y)
        one.mul_(w.sum())
        y.add_(w[0])
        one.mul_(w[1])
        return y * one.sum()

    def filled(x: Any, w: Any) -> Any:
        y = x * 2
        view(y).fill_(3)
        return y * w[0]

    x = t.arange(9, dtype=t.float64).reshape(3, 3).requires_grad_()
    w = leaf(t, 2, 5)
    for program in (base_of_changed, changed, view_of_changed, again, filled):
        try:
            found = gradients(t, program, x, w)
        except RuntimeError as error:
            assert t.__name__ == "torch" and "output of a function that returns multiple views" in str(error)
            continue
        if t is not st:
            own = st.arange(9, dtype=st.float64).reshape(3, 3).requires_grad_(), leaf(st, 2, 5)
            require_near(gradients(st, program, *own), found)
        for one, by_steps in zip((x, w), found, strict=True):
            require_near(differences(t, program, (x, w), one), np.ravel(by_steps), 1e-5)


def require_near(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, tolerance, tolerance * 100)


def differences(t: Any, function: Any, leaves: Any, one: Any) -> list[float]:
    found = []
    with t.no_grad():
        flat = one.detach().view(-1)
        for i in range(flat.numel()):
            values = []
            for step in (1e-6, -2e-6):
                flat[i] += step
                y = function(*leaves)
                values.append((y * weights(t, y)).sum().item())
            flat[i] += 1e-6
            found.append((values[0] - values[1]) / 2e-6)
    return found


def test_setitem(t: Any) -> None:
    def assign(x: Any, w: Any) -> Any:
        y = x * 1
        y[1] = w[0] * 2
        y[0:2, 0] = w
        y[2, 2] = 7
        return y

    x = t.ones(3, 3, dtype=t.float64, requires_grad=True)
    assert gradients(t, assign, x, leaf(t, 1, 2)) == [
        [[0, 2, 3], [0, 0, 0], [7, 8, 0]], [1 + 2 * (5 + 6), 4]]  # fmt: skip


def test_setitem_by_lists_and_masks(t: Any) -> None:
    def assign(x: Any, w: Any) -> Any:
        y = x * 1
        y[[0, 2]] = w
        y[y.detach() > 8] = w[0]
        return y

    x = t.tensor([1.0, 9, 3, 4], dtype=t.float64, requires_grad=True)
    assert gradients(t, assign, x, leaf(t, 1, 2)) == [[0, 0, 0, 4], [1 + 2, 3]]


def test_the_base_of_a_view_of_a_view(t: Any) -> None:
    def program(x: Any) -> Any:
        y = x * 1
        inner = y[1:][:, 1:]
        inner.mul_(3)
        inner[0].mul_(2)
        return y

    x = t.ones(3, 3, dtype=t.float64, requires_grad=True)
    assert gradients(t, program, x) == [[[1, 2, 3], [4, 30, 36], [7, 24, 27]]]


def test_views_know_what_they_are_of(t: Any) -> None:
    x = t.ones(3, requires_grad=True)
    y = x * 1
    view = y[1:]
    assert view._base is y and view[:1]._base is y and getattr(y, "_base", None) is None
    before = view.grad_fn
    y.mul_(2)
    assert view.grad_fn is not before  # it follows its base


def test_refusals(t: Any) -> None:
    x = t.ones(3, requires_grad=True)
    for change in (lambda: x.add_(1), lambda: x.mul_(x), lambda: x.__setitem__(0, 1.0), lambda: x.zero_()):
        with pytest.raises(RuntimeError, match=r"[Ll]eaf"):
            change()
    for change in (lambda: x[1:].add_(1), lambda: x.view(-1).zero_(), lambda: x[0].fill_(3)):
        with pytest.raises(RuntimeError, match=r"leaf"):
            change()
    assert x.tolist() == [1, 1, 1] and x._version == 0
    with t.no_grad():
        view = x[1:]
    with pytest.raises(RuntimeError, match="no_grad"):
        view.mul_(t.ones(2, requires_grad=True))
    with t.no_grad():
        view.mul_(2)
    assert x.tolist() == [1, 2, 2]


def test_a_leaf_by_what_requires_grad(t: Any) -> None:
    x = leaf(t, 1)
    y = t.zeros(1, dtype=t.float64)
    assert y.is_leaf
    y.add_(x)
    assert not y.is_leaf and y.requires_grad
    y.detach_()
    y.add_(1)
    assert y.is_leaf and y.tolist() == [2]


def test_copy(t: Any) -> None:
    x, w = leaf(t, 1, 2), t.ones(2, requires_grad=True)
    y = t.zeros(2, 2, dtype=t.float64)
    y[0].copy_(x)
    y[1].copy_(w)
    (y * weights(t, y)).sum().backward()
    assert x.grad.tolist() == [1, 2] and w.grad.tolist() == [3, 4] and w.grad.dtype == t.float32


def test_results_in_place_keep_their_gradient(t: Any) -> None:
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    y.mul_(5)
    (y * 1).backward()
    assert (y.grad.item(), x.grad.item()) == (1, 10)  # of what it is now


@pytest.mark.parametrize("axes", [(1, 0), (0, 1)])
def test_rows_of_a_base_in_another_order(axes: tuple[int, int]) -> None:
    def change(t: Any, x: Any, w: Any) -> Any:
        y = x.permute(*axes) * 2
        seen = y[1]
        y[0].mul_(w[0] * w[1])
        y.mul_(3)
        return (y * y).sum() + (seen * w[2]).sum()

    torch = pytest.importorskip("torch")
    found = []
    for t in (st, torch):
        x = t.arange(6, dtype=t.float64).reshape(2, 3).requires_grad_()
        w = leaf(t, 1, 2, 3)
        first = t.autograd.grad(change(t, x, w), (x, w), create_graph=True)
        second = t.autograd.grad(sum((g * weights(t, g)).sum() for g in first), (x, w))
        found.append([one.tolist() for one in (*first, *second)])
    assert found[0] == found[1]


def test_a_base_with_gaps_is_refused_before_anything_is_changed() -> None:
    x = leaf(st, 1, 2)
    base = st.from_numpy(np.ones(8)[::2])
    with pytest.raises(st.errors.NotSupported, match=r"take the view of a clone\(\)"):
        base[:2].mul_(x)
    z = st.view_as_real(st.complex(x, x) * 1)
    with pytest.raises(st.errors.NotSupported, match="change a clone"):
        z[1].mul_(x)
    assert base.tolist() == [1, 1, 1, 1] and z[1].tolist() == [2, 2]


def test_views_of_a_leaf_that_is_a_view_itself_cannot_be_changed() -> None:
    w = st.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.raises(st.errors.GradientError, match="a view of a leaf"):
        w[0].mul_(2)
    with st.no_grad():
        w[0].mul_(2)
    assert w.is_leaf and w.tolist() == [[0, 2, 4], [3, 4, 5]]
