"""The counter of in-place changes, and tensors that are changed although a rule needs them. Beside torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shmtensor as st

CHANGED = r"changed in place|modified by an inplace operation"


def leaf(t: Any, *values: float) -> Any:
    return t.tensor(values, dtype=t.float64, requires_grad=True)


def test_what_counts(t: Any) -> None:
    x = t.ones(4)
    start = x._version
    view, detached, data = x[1:], x.detach(), x.data
    x.add_(1)
    x *= 2
    x[0] = 5
    view.zero_()
    detached.add_(1)
    assert x._version == view._version == detached._version == start + 5
    before = x._version
    data.add_(1)
    assert x._version == before and data._version != before
    x + 1, x.sum(), x[0], x.clone().zero_()
    assert x._version == before
    t.add(x, 1, out=x)
    t.exp(x, out=view.new_zeros(4))
    assert x._version == before + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t, x: x.add_(1),
        lambda t, x: x.__setitem__(0, 3.0),
        lambda t, x: x[:1].zero_(),
        lambda t, x: x.detach().zero_(),
        lambda t, x: x.copy_(t.ones(2)),
        lambda t, x: x.fill_(3),
        lambda t, x: t.add(x.detach(), 1, out=x.detach()),
        lambda t, x: x.view(2, 1).mul_(2),
        lambda t, x: x.clamp_(0, 1),
        lambda t, x: x.uniform_(),
    ],
    ids=["add_", "setitem", "of a view", "of detach", "copy_", "fill_", "out", "of another view", "clamp_", "random"],
)
def test_a_changed_tensor_is_noticed(t: Any, change: Any) -> None:
    x, w = leaf(t, 1, 2), t.tensor([3.0, 4.0], dtype=t.float64)
    y = x * w
    with t.no_grad():
        change(t, w)
    with pytest.raises(RuntimeError, match=CHANGED):
        y.sum().backward()
    assert x.grad is None
    (x * w).sum().backward()  # the next one is not concerned
    assert x.grad.tolist() == w.tolist()


def test_a_change_through_data_is_not_noticed(t: Any) -> None:
    x, w = leaf(t, 1, 2), t.tensor([3.0, 4.0], dtype=t.float64)
    y = x * w
    w.data.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_a_change_before_does_not_matter(t: Any) -> None:
    x, w = leaf(t, 1, 2), t.tensor([3.0, 4.0], dtype=t.float64)
    w.add_(1)
    (x * w).sum().backward()
    assert x.grad.tolist() == [4, 5]


def test_results_that_are_kept_are_watched(t: Any) -> None:
    x = leaf(t, 1, 2)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=CHANGED):
        y.sum().backward()
    y = x * 2
    y.add_(1)  # the rule keeps 2 alone
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_leaf_that_an_optimizer_changes_before_the_pass(t: Any) -> None:
    x = leaf(t, 1, 2)
    y = (x * x).sum()
    with t.no_grad():
        x.sub_(0.1)
    with pytest.raises(RuntimeError, match=CHANGED):
        y.backward()


def test_what_is_not_needed_may_change(t: Any) -> None:
    x, w = t.ones(2, dtype=t.float64), leaf(t, 3, 4)
    y = w * x  # of w alone: x is kept, w is not
    with t.no_grad():
        w.zero_()
    y.sum().backward()
    assert w.grad.tolist() == [1, 1]


def test_the_message_says_what_was_changed() -> None:
    x, w = leaf(st, 1, 2), st.ones(2, dtype=st.float64)
    y = x * w
    w.add_(1).add_(1)
    with pytest.raises(
        st.errors.GradientError,
        match=r"multiply needs a tensor of float64 and shape \(2,\) that was changed .* 2 times",
    ):
        y.sum().backward()


def test_memory_that_is_shared_later_keeps_its_count() -> None:
    x, w = leaf(st, 1, 2), st.ones(2, dtype=st.float64)
    y = x * w
    w.share_memory_()
    view = w[:1]
    view.add_(1)
    with pytest.raises(st.errors.GradientError, match=CHANGED):
        y.sum().backward()


def test_tensors_of_one_storage_have_one_count() -> None:
    w = st.ones(4, dtype=st.float64)
    other = st.empty(0, dtype=st.float64).set_(w.storage(), 1, (2,), (1,))
    x = leaf(st, 1, 2, 3, 4)
    y = x * w
    other.zero_()
    with pytest.raises(st.errors.GradientError, match=CHANGED):
        y.sum().backward()


def test_arrays_are_not_watched() -> None:
    x, w = leaf(st, 1, 2), st.ones(2, dtype=st.float64)
    y = x * w
    np.multiply(w.numpy(), 5, out=w.numpy())
    y.sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_detach_shares_memory_and_data_too(t: Any) -> None:
    x = leaf(t, 1, 2)
    for other in (x.detach(), x.data):
        assert not other.requires_grad and other.is_leaf and other.data_ptr() == x.data_ptr()
        other[0] += 1
    assert x.tolist() == [3, 2]
    y = x * 2
    z = y.detach_()
    assert z is y and y.is_leaf and not y.requires_grad
    x.data = t.tensor([5.0, 6.0, 7.0], dtype=t.float64)
    assert x.tolist() == [5, 6, 7] and x.requires_grad
